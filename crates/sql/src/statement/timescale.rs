//! Tables of `timescaledb_information`: what `TimescaleDB`'s clients ask of views, tables and jobs.

use std::sync::Arc;

use query::views::{RefreshPolicy, View, ViewStatus};
use query::{Interval, SqlType, Value};

use super::views::named;
use crate::error::SqlError;
use crate::relation::Relation;
use crate::run::Run;

/// The number of the first job.
const JOBS_FROM: i64 = 1000;
const REFRESH: &str = "policy_refresh_continuous_aggregate";
const RETENTION: &str = "policy_retention";

/// A job that keeps a view or a table.
struct Job {
    number: i64,
    kind: &'static str,
    /// The table that has its rows.
    table: String,
    /// The view that it keeps; `None` where it keeps a table.
    view: Option<Arc<View>>,
    /// How long rows are kept, in nanoseconds, of a job that deletes them.
    ttl_ns: i64,
}

impl Job {
    /// The nanoseconds between its runs, and whether it runs by itself.
    fn schedule(&self) -> (i64, bool) {
        match self.view.as_ref().filter(|_| self.kind == REFRESH).map(|view| &view.definition.options.refresh) {
            Some(RefreshPolicy::Every(ns)) => (*ns, true),
            Some(RefreshPolicy::Manual) => (0, false),
            Some(RefreshPolicy::Immediate) | None => (0, true),
        }
    }

    /// Its settings as JSON.
    fn config(&self) -> String {
        match self.view.as_ref().filter(|_| self.kind == REFRESH) {
            Some(view) => format!("{{\"end_offset\": \"{}\"}}", length_text(view.definition.lag_ns())),
            None => format!("{{\"drop_after\": \"{}\"}}", length_text(self.ttl_ns)),
        }
    }

    fn owner(&self) -> &str {
        self.view.as_ref().map_or("", |view| &view.definition.maker)
    }
}

impl Run<'_> {
    /// The number of the job of a table and a function that makes one.
    pub(super) fn job_of(&self, table: &str, function: &str) -> Result<Value, SqlError> {
        let kind = if function.contains("retention") { RETENTION } else { REFRESH };
        let found = self.jobs()?.into_iter().find(|job| job.kind == kind && job.table == table);
        Ok(Value::Int(found.map_or(JOBS_FROM, |job| job.number)))
    }

    fn jobs(&self) -> Result<Vec<Job>, SqlError> {
        let (mut jobs, mut of_views) = (Vec::new(), Vec::new());
        let ttl_ns = |table: &str| self.session.table_ttl_ns(&self.environment.database, table);
        let mut number = JOBS_FROM;
        for view in self.session.views(&self.environment.database)? {
            let table = view.definition.target.clone();
            let is_exposed = view.definition.is_exposed();
            jobs.push(Job { number, kind: REFRESH, table: table.clone(), view: Some(view.clone()), ttl_ns: 0 });
            let ttl_ns = if is_exposed { ttl_ns(&table) } else { 0 };
            if ttl_ns > 0 {
                jobs.push(Job { number: number + 1, kind: RETENTION, table: table.clone(), view: Some(view), ttl_ns });
            }
            of_views.extend(is_exposed.then_some(table));
            number += 2;
        }
        for table in self.tables()? {
            let ttl_ns = if of_views.contains(&table) { 0 } else { ttl_ns(&table) };
            if ttl_ns > 0 {
                jobs.push(Job { number, kind: RETENTION, table, view: None, ttl_ns });
                number += 1;
            }
        }
        Ok(jobs)
    }

    /// Tables of `timescaledb_information`; `None` for other names.
    pub(crate) fn timescale_information(&self, name: &str) -> Result<Option<Relation>, SqlError> {
        match name {
            "continuous_aggregates" => self.continuous_aggregates().map(Some),
            "hypertables" => self.hypertables().map(Some),
            "jobs" => self.jobs_table().map(Some),
            "job_stats" => self.job_stats().map(Some),
            _ => Ok(None),
        }
    }

    /// The tables that are no views: each is cut by its time.
    fn hypertables(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("hypertable_schema", SqlType::Text),
            ("hypertable_name", SqlType::Text),
            ("owner", SqlType::Text),
            ("num_dimensions", SqlType::Int),
            ("num_chunks", SqlType::Int),
            ("compression_enabled", SqlType::Bool),
            ("tablespaces", SqlType::Text),
            ("primary_dimension", SqlType::Text),
            ("primary_dimension_type", SqlType::Text),
        ];
        let row = |table: String| {
            let time_name = self.time_name_of(&table).unwrap_or_else(|_| self.time_name().to_owned());
            let mut row = vec![Value::text("public"), Value::text(table), Value::text("thalweg"), Value::Int(1)];
            // Chunks are of series and times here, not of tables.
            row.extend([Value::Null, Value::Bool(true), Value::Null]);
            row.extend([Value::text(time_name), Value::text("timestamp with time zone")]);
            row
        };
        let views = self.exposed_views()?;
        let is_table = |table: &String| !views.iter().any(|view| view.definition.target == *table);
        Ok(Relation { columns: named(&columns), rows: self.tables()?.into_iter().filter(is_table).map(row).collect() })
    }

    fn continuous_aggregates(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("hypertable_schema", SqlType::Text),
            ("hypertable_name", SqlType::Text),
            ("view_schema", SqlType::Text),
            ("view_name", SqlType::Text),
            ("view_owner", SqlType::Text),
            ("materialized_only", SqlType::Bool),
            ("compression_enabled", SqlType::Bool),
            ("materialization_hypertable_schema", SqlType::Text),
            ("materialization_hypertable_name", SqlType::Text),
            ("view_definition", SqlType::Text),
            ("finalized", SqlType::Bool),
        ];
        let row = |view: Arc<View>| {
            let definition = &view.definition;
            let text = |text: &str| Value::text(text);
            let mut row = vec![text("public"), text(definition.source()), text("public"), text(&definition.name)];
            row.extend([text(&definition.maker), Value::Bool(definition.options.materialized_only), Value::Bool(true)]);
            row.extend([text("public"), text(&definition.target), text(&definition.statement), Value::Bool(true)]);
            row
        };
        Ok(Relation { columns: named(&columns), rows: self.exposed_views()?.into_iter().map(row).collect() })
    }

    fn jobs_table(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("job_id", SqlType::Int),
            ("application_name", SqlType::Text),
            ("schedule_interval", SqlType::Interval),
            ("proc_schema", SqlType::Text),
            ("proc_name", SqlType::Text),
            ("owner", SqlType::Text),
            ("scheduled", SqlType::Bool),
            ("config", SqlType::Text),
            ("hypertable_schema", SqlType::Text),
            ("hypertable_name", SqlType::Text),
        ];
        let row = |job: Job| {
            let (every_ns, is_scheduled) = job.schedule();
            let name = format!("{} [{}]", job.kind, job.number);
            let mut row = vec![Value::Int(job.number), Value::text(name), Value::Interval(Interval::of_ns(every_ns))];
            row.extend([Value::text("_timescaledb_functions"), Value::text(job.kind), Value::text(job.owner())]);
            row.extend([Value::Bool(is_scheduled), Value::text(job.config())]);
            row.extend([Value::text("public"), Value::text(job.table)]);
            row
        };
        Ok(Relation { columns: named(&columns), rows: self.jobs()?.into_iter().map(row).collect() })
    }

    /// How jobs went since the start. Of those that delete rows nothing is counted.
    fn job_stats(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("hypertable_schema", SqlType::Text),
            ("hypertable_name", SqlType::Text),
            ("job_id", SqlType::Int),
            ("last_run_started_at", SqlType::Timestamp),
            ("last_successful_finish", SqlType::Timestamp),
            ("last_run_status", SqlType::Text),
            ("job_status", SqlType::Text),
            ("last_run_duration", SqlType::Interval),
            ("next_start", SqlType::Timestamp),
            ("total_runs", SqlType::Int),
            ("total_successes", SqlType::Int),
            ("total_failures", SqlType::Int),
        ];
        let mut rows = Vec::new();
        for job in self.jobs()? {
            let refreshed = job.view.as_ref().filter(|_| job.kind == REFRESH);
            let status =
                refreshed.map(|view| self.session.view_status(&view.definition.database, &view.definition.name));
            let status = status.transpose()?;
            let mut row = vec![Value::text("public"), Value::text(&*job.table), Value::Int(job.number), Value::Null];
            row.push(status.as_ref().and_then(|status| status.refreshed_ns).map_or(Value::Null, Value::Timestamp));
            row.push(status.as_ref().and_then(last_run_status).map_or(Value::Null, Value::text));
            row.push(Value::text(if job.schedule().1 { "Scheduled" } else { "Paused" }));
            row.extend([Value::Null, Value::Null]);
            let runs = status.as_ref().and_then(|status| i64::try_from(status.refreshes).ok());
            row.extend([runs.map_or(Value::Null, Value::Int), Value::Null, Value::Null]);
            rows.push(row);
        }
        Ok(Relation { columns: named(&columns), rows })
    }
}

/// A length of time in days and less, as Postgres writes it.
pub(super) fn length_text(ns: i64) -> String {
    const DAY_NS: i64 = 86_400_000_000_000;
    let days = i32::try_from(ns / DAY_NS).unwrap_or(i32::MAX);
    query::time::format_interval(Interval { months: 0, days, ns: ns % DAY_NS })
}

/// How a view's last refresh went; `None` if there was none since the start.
fn last_run_status(status: &ViewStatus) -> Option<&'static str> {
    match (&status.error, status.refreshed_ns) {
        (Some(_), _) => Some("Failed"),
        (None, Some(_)) => Some("Success"),
        (None, None) => None,
    }
}

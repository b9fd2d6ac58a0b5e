//! Statements about materialised views.

use std::sync::Arc;

use access::grant::Right;
use query::views::{Dialect, RefreshPolicy, RefreshRequest, View, ViewDefinition, ViewOptions};
use query::{Interval, QueryError, SqlType, Value};
use sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr, Statement,
};

use super::Answer;
use crate::Manner;
use crate::error::{SqlError, invalid};
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::syntax::views::{CreateView, ViewChange, ViewStatement};

/// `TimescaleDB`'s functions that set when a view is refreshed and how long it keeps its windows.
const POLICIES: [&str; 4] = [
    "add_continuous_aggregate_policy",
    "remove_continuous_aggregate_policy",
    "add_retention_policy",
    "remove_retention_policy",
];

/// The arguments of the functions that add policies, and of those that remove them; `view` has other names there.
const ADD_ARGUMENTS: [&str; 12] = [
    "view",
    "start_offset",
    "end_offset",
    "drop_after",
    "schedule_interval",
    "if_not_exists",
    "initial_start",
    "timezone",
    "include_tiered_data",
    "buckets_per_batch",
    "max_batches_per_execution",
    "refresh_newest_first",
];
const REMOVE_ARGUMENTS: [&str; 3] = ["view", "if_exists", "not_exists"];

/// The number of the first job.
const JOBS_FROM: i64 = 1000;

/// Returns whether a query is a call that changes a view.
pub(crate) fn is_policy_call(query: &Query) -> bool {
    policy_call(query).is_some()
}

/// The call that a query is, if it is one of those that set policies.
fn policy_call(query: &Query) -> Option<(&'static str, &Function)> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let [SelectItem::UnnamedExpr(Expr::Function(call)) | SelectItem::ExprWithAlias { expr: Expr::Function(call), .. }] =
        select.projection.as_slice()
    else {
        return None;
    };
    let name = call.name.0.last()?.as_ident()?.value.to_lowercase();
    let found = POLICIES.iter().find(|known| **known == name)?;
    Some((found, call))
}

/// The arguments of a call by their names; those without have the names that their places have.
struct Arguments {
    values: Vec<(String, Value)>,
}

impl Arguments {
    fn get(&self, name: &str) -> Option<&Value> {
        self.values.iter().find(|(known, value)| known == name && *value != Value::Null).map(|(_, value)| value)
    }

    fn is_true(&self, name: &str) -> Result<bool, SqlError> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(other) => invalid(format!("{name} is true or false, not {other}")),
        }
    }

    /// Refuses those that a function does not have.
    fn check(&self, function: &str) -> Result<(), SqlError> {
        let known = |name: &str| match function {
            "add_continuous_aggregate_policy" => name != "drop_after" && ADD_ARGUMENTS.contains(&name),
            "add_retention_policy" => !name.ends_with("_offset") && ADD_ARGUMENTS.contains(&name),
            _ => REMOVE_ARGUMENTS.contains(&name),
        };
        match self.values.iter().find(|(name, _)| !known(name)) {
            None => Ok(()),
            Some((name, _)) => invalid(format!("{function} has no argument {name:?} here")),
        }
    }

    /// A length of time in nanoseconds; months have 30 days, as `TimescaleDB` takes them.
    fn duration_ns(&self, name: &str) -> Result<Option<i64>, SqlError> {
        let interval = match self.get(name) {
            None => return Ok(None),
            Some(Value::Interval(interval)) => Some(*interval),
            Some(Value::Text(text)) => query::time::parse_interval(text),
            Some(_) => None,
        };
        let ns = interval.map(Interval::approximate_ns).and_then(|ns| i64::try_from(ns).ok());
        ns.map_or_else(|| invalid(format!("{name} is a length of time such as INTERVAL '1 hour'")), |ns| Ok(Some(ns)))
    }
}

impl Run<'_> {
    /// A statement about a view; `None` if it is another one.
    pub(super) fn view_statement(&mut self, statement: &Statement) -> Result<Option<Answer>, SqlError> {
        if let Statement::Query(query) = statement
            && let Some((name, call)) = policy_call(query)
        {
            return self.policy(name, call);
        }
        let Some(said) = self.parsed.view_statement(statement).cloned() else { return Ok(None) };
        if let ViewStatement::ShowCreate { name } = &said {
            let view = self.existing_view(name)?;
            if view.definition.statement.is_empty() {
                let message =
                    format!("the statement of the view {name:?} is shown to those who may read its whole database");
                return Err(QueryError::Forbidden(message).into());
            }
            return Ok(Some(Answer::Rows(Relation::of_texts(&["ddl"], [vec![view.definition.statement.clone()]]))));
        }
        if said == ViewStatement::Show {
            return self.materialized_views().map(|views| Some(Answer::Rows(views)));
        }
        if self.describes {
            return Ok(Some(Answer::Done(String::new())));
        }
        if self.client.has_pending_writes() {
            return invalid("views are not changed within a transaction that has written rows: COMMIT first");
        }
        self.change_view(&said, statement).map(|tag| Some(Answer::Done(tag.to_owned())))
    }

    fn change_view(&mut self, said: &ViewStatement, statement: &Statement) -> Result<&'static str, SqlError> {
        let database = self.environment.database.clone();
        match said {
            ViewStatement::Create(said) => {
                let Statement::CreateView(create) = statement else { return invalid("the view has no query") };
                self.create_view(said, &create.query)?;
                Ok("CREATE MATERIALIZED VIEW")
            }
            ViewStatement::Drop { name, if_exists } => {
                let missing = match self.existing_view(name) {
                    Ok(view) => return self.drop_view(&view.definition.name),
                    Err(SqlError::UnknownTable(missing)) => missing,
                    Err(error) => return Err(error),
                };
                // One whose definition cannot be read is dropped, too.
                if self.session.drop_view(&database, name)? || *if_exists {
                    Ok("DROP MATERIALIZED VIEW")
                } else {
                    Err(SqlError::UnknownTable(missing))
                }
            }
            ViewStatement::Alter { name, if_exists, change } => {
                match self.existing_view(name) {
                    Err(SqlError::UnknownTable(_)) if *if_exists => {}
                    Err(error) => return Err(error),
                    Ok(view) => self.alter_view(&view, change)?,
                }
                Ok("ALTER MATERIALIZED VIEW")
            }
            ViewStatement::Refresh(refresh) => {
                let view = self.existing_view(&refresh.name)?;
                let (range, is_forced) = (refresh.range, refresh.is_forced);
                let request = RefreshRequest { database: &database, name: &view.definition.name, range, is_forced };
                self.session.refresh_view(&request)?;
                // QuestDB does not wait.
                if self.manner != Manner::QuestDb && !self.session.wait_for_refresh(&request)? {
                    self.client.notices.push(format!(
                        "the view {:?} is refreshed further in the background: /api/v1/views says what is pending",
                        view.definition.name
                    ));
                }
                Ok(refresh.tag)
            }
            ViewStatement::ShowCreate { .. } | ViewStatement::Show => Ok("SHOW"),
        }
    }

    fn drop_view(&self, name: &str) -> Result<&'static str, SqlError> {
        self.session.drop_view(&self.environment.database, name)?;
        Ok("DROP MATERIALIZED VIEW")
    }

    fn alter_view(&mut self, view: &View, change: &ViewChange) -> Result<(), SqlError> {
        let ViewDefinition { database, name, target, .. } = &view.definition;
        let mut options = view.definition.options.clone();
        match change {
            ViewChange::MaterializedOnly(is_only) => options.materialized_only = *is_only,
            ViewChange::Refresh { refresh, lag_ns } => {
                options.refresh = *refresh;
                // A delay stays as it is where none is said.
                options.lag_ns = lag_ns.or(options.lag_ns);
            }
            ViewChange::Ttl(ttl_ns) => return Ok(self.session.set_table_ttl(database, target, *ttl_ns)?),
            ViewChange::AddColumn(added) => return self.add_view_column(&view.definition, added),
            ViewChange::Nothing => return Ok(()),
        }
        Ok(self.session.set_view_options(database, name, options)?)
    }

    /// Refuses a TTL that the sender may not set, before there is a view without it.
    fn check_ttl_right(&self) -> Result<(), SqlError> {
        let (scope, database) = (self.session.budget().scope(), &self.environment.database);
        if scope.may(Right::Admin, database) {
            return Ok(());
        }
        let message = format!(
            "a TTL needs the right admin on the database {database}, which the account {} does not have",
            scope.name
        );
        Err(QueryError::Forbidden(message).into())
    }

    fn create_view(&mut self, said: &CreateView, query: &Query) -> Result<(), SqlError> {
        let is_known = self.session.view(&self.environment.database, &said.name)?.is_some();
        if is_known && said.if_not_exists {
            return Ok(());
        }
        if said.ttl_ns.is_some() {
            self.check_ttl_right()?;
        }
        let definition = self.view_definition(said, query)?;
        let (database, target) = (definition.database.clone(), definition.target.clone());
        let notice = self.notice_of(&definition)?;
        self.session.create_view(definition)?;
        notice.into_iter().for_each(|notice| self.client.notices.push(notice));
        let Some(ttl_ns) = said.ttl_ns else { return Ok(()) };
        if let Err(error) = self.session.set_table_ttl(&database, &target, ttl_ns) {
            self.session.drop_view(&database, &said.name)?;
            return Err(error.into());
        }
        Ok(())
    }

    /// Says of a new view if queries do not need it.
    fn notice_of(&self, definition: &ViewDefinition) -> Result<Option<String>, SqlError> {
        let ViewDefinition { database, name, .. } = definition;
        let source = definition.source();
        let is_of_view = self.session.views(database)?.iter().any(|view| view.definition.target == source);
        let table = self.session.table(database, source)?;
        let is_needless = !is_of_view && table.is_some_and(|table| definition.is_in_summaries(&table));
        Ok(is_needless.then(|| {
            format!(
                "the summaries that the table \"{source}\" has give the same as the view \"{name}\" at the same cost: as long as the table keeps its \
                 rows the view is not needed"
            )
        }))
    }

    /// The view of a name as it is written, or without regard to case.
    fn existing_view(&self, name: &str) -> Result<Arc<View>, SqlError> {
        let views = self.session.views(&self.environment.database)?;
        let views: Vec<Arc<View>> = views.into_iter().filter(|view| view.definition.is_exposed()).collect();
        let exact = views.iter().find(|view| view.definition.name == name);
        let found = exact.or_else(|| views.iter().find(|view| view.definition.name.eq_ignore_ascii_case(name)));
        let missing = || SqlError::UnknownTable(format!("materialized view \"{name}\" does not exist"));
        found.cloned().ok_or_else(missing)
    }

    /// `add_continuous_aggregate_policy(…)` and its like; `None` where it is about a table that is no view.
    fn policy(&mut self, function: &'static str, call: &Function) -> Result<Option<Answer>, SqlError> {
        let places: &[&str] = match function {
            "add_continuous_aggregate_policy" => &["view", "start_offset", "end_offset", "schedule_interval"],
            "add_retention_policy" => &["view", "drop_after"],
            _ => &["view", "if_exists"],
        };
        let arguments = self.arguments(call, places)?;
        let name = arguments.get("view").map(ToString::to_string).unwrap_or_default();
        let name = name.rsplit('.').next().unwrap_or_default().trim_matches('"');
        let view = match self.existing_view(name) {
            Ok(view) => view,
            Err(SqlError::UnknownTable(_)) if function.ends_with("retention_policy") => return Ok(None),
            Err(error) => return Err(error),
        };
        arguments.check(function)?;
        let is_number = function.starts_with("add");
        if !self.describes {
            self.set_policy(function, &view, &arguments)?;
        }
        let job = if is_number { self.job_of(&view, function)? } else { Value::Null };
        let sql_type = if is_number { SqlType::Int } else { SqlType::Text };
        let relation = Relation { columns: vec![Column::new(function, sql_type)], rows: vec![vec![job]] };
        Ok(Some(Answer::Rows(relation)))
    }

    fn set_policy(&self, function: &str, view: &View, arguments: &Arguments) -> Result<(), SqlError> {
        let ViewDefinition { database, name, target, options, .. } = &view.definition;
        let no_policy = ViewOptions { refresh: RefreshPolicy::Immediate, lag_ns: None, ..options.clone() };
        let is_set = match function {
            "add_continuous_aggregate_policy" => *options != no_policy,
            "add_retention_policy" => self.session.table_ttl_ns(database, target) > 0,
            _ => false,
        };
        if is_set {
            // One that exists stays as it is.
            if arguments.is_true("if_not_exists")? {
                return Ok(());
            }
            return invalid(format!("the view {name:?} has a policy already: remove it first"));
        }
        let options = match function {
            "add_continuous_aggregate_policy" => {
                let every_ns = arguments.duration_ns("schedule_interval")?;
                if every_ns.is_some_and(|ns| ns <= 0) {
                    return invalid("schedule_interval is a length of time above zero");
                }
                let refresh = every_ns.map_or(RefreshPolicy::Immediate, RefreshPolicy::Every);
                let lag_ns = arguments.duration_ns("end_offset")?.map(|ns| ns.max(0));
                ViewOptions { refresh, lag_ns, ..no_policy }
            }
            "remove_continuous_aggregate_policy" => no_policy,
            "add_retention_policy" => {
                let Some(ttl_ns) = arguments.duration_ns("drop_after")?.filter(|ns| *ns > 0) else {
                    return invalid("add_retention_policy takes drop_after => INTERVAL '1 year'");
                };
                return Ok(self.session.set_table_ttl(database, target, ttl_ns)?);
            }
            _ => return Ok(self.session.set_table_ttl(database, target, 0)?),
        };
        Ok(self.session.set_view_options(database, name, options)?)
    }

    fn arguments(&mut self, call: &Function, places: &[&str]) -> Result<Arguments, SqlError> {
        let FunctionArguments::List(list) = &call.args else { return invalid(format!("{call} has no arguments")) };
        let mut values = Vec::with_capacity(list.args.len());
        for (place, argument) in list.args.iter().enumerate() {
            let (name, expression) = match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => {
                    (places.get(place).map(|name| (*name).to_owned()), expression)
                }
                FunctionArg::Named { name, arg: FunctionArgExpr::Expr(expression), .. }
                | FunctionArg::ExprNamed {
                    name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(expression), ..
                } => (Some(name.value.to_lowercase()), expression),
                _ => (None, &Expr::Value(sqlparser::ast::Value::Null.into())),
            };
            let Some(name) = name else { return invalid(format!("{call} has an argument that is not known here")) };
            let name =
                if ["continuous_aggregate", "relation"].contains(&name.as_str()) { "view".to_owned() } else { name };
            values.push((name, self.constant(expression)?));
        }
        Ok(Arguments { values })
    }

    /// The number of a view's job.
    fn job_of(&self, view: &View, function: &str) -> Result<Value, SqlError> {
        let jobs = self.jobs()?;
        let kind = if function.contains("retention") { RETENTION } else { REFRESH };
        let found = jobs.iter().find(|job| job.kind == kind && job.view.definition.name == view.definition.name);
        Ok(found.map_or(Value::Int(JOBS_FROM), |job| Value::Int(job.number)))
    }

    fn jobs(&self) -> Result<Vec<Job>, SqlError> {
        let mut jobs = Vec::new();
        for (place, view) in (0..).zip(self.session.views(&self.environment.database)?) {
            let ttl_ns = self.session.table_ttl_ns(&self.environment.database, &view.definition.target);
            jobs.push(Job { number: JOBS_FROM + 2 * place, kind: REFRESH, view: view.clone(), config_ns: 0 });
            if ttl_ns > 0 {
                jobs.push(Job { number: JOBS_FROM + 2 * place + 1, kind: RETENTION, view, config_ns: ttl_ns });
            }
        }
        Ok(jobs)
    }

    /// Tables of `timescaledb_information`; `None` for other names.
    pub(crate) fn timescale_information(&self, name: &str) -> Result<Option<Relation>, SqlError> {
        match name {
            "continuous_aggregates" => self.continuous_aggregates().map(Some),
            "jobs" => self.jobs_table().map(Some),
            _ => Ok(None),
        }
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
        let views = self.session.views(&self.environment.database)?;
        let exposed = views.into_iter().filter(|view| view.definition.is_exposed());
        Ok(Relation { columns: named(&columns), rows: exposed.map(row).collect() })
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
            let definition = &job.view.definition;
            let every_ns = match definition.options.refresh {
                RefreshPolicy::Every(ns) if job.kind == REFRESH => ns,
                _ => 0,
            };
            let is_scheduled = job.kind == RETENTION || definition.options.refresh != RefreshPolicy::Manual;
            let name = format!("{} [{}]", job.kind, job.number);
            let config = if job.kind == RETENTION {
                let after = query::time::format_interval(Interval::of_ns(job.config_ns));
                format!("{{\"drop_after\": \"{after}\"}}")
            } else {
                let end = query::time::format_interval(Interval::of_ns(definition.lag_ns()));
                format!("{{\"end_offset\": \"{end}\"}}")
            };
            let mut row = vec![Value::Int(job.number), Value::text(name), Value::Interval(Interval::of_ns(every_ns))];
            row.extend([Value::text("_timescaledb_functions"), Value::text(job.kind), Value::text(&*definition.maker)]);
            row.extend([Value::Bool(is_scheduled), Value::text(config)]);
            row.extend([Value::text("public"), Value::text(&*definition.target)]);
            row
        };
        Ok(Relation { columns: named(&columns), rows: self.jobs()?.into_iter().map(row).collect() })
    }

    /// `QuestDB`'s `materialized_views()`, with what is of interest here besides.
    pub(crate) fn materialized_views(&self) -> Result<Relation, SqlError> {
        let columns = [
            ("view_name", SqlType::Text),
            ("refresh_type", SqlType::Text),
            ("base_table_name", SqlType::Text),
            ("last_refresh_finish_timestamp", SqlType::Timestamp),
            ("view_sql", SqlType::Text),
            ("view_table_dir_name", SqlType::Text),
            ("invalidation_reason", SqlType::Text),
            ("view_status", SqlType::Text),
            ("computed_until", SqlType::Timestamp),
            ("pending_ranges", SqlType::Int),
            ("rows_written", SqlType::Int),
            ("late_samples_refused", SqlType::Int),
            ("dialect", SqlType::Text),
        ];
        let mut rows = Vec::new();
        for view in self.session.views(&self.environment.database)? {
            let definition = &view.definition;
            let status = self.session.view_status(&definition.database, &definition.name)?;
            let refresh = match definition.options.refresh {
                RefreshPolicy::Immediate => "immediate",
                RefreshPolicy::Every(_) => "timer",
                RefreshPolicy::Manual => "manual",
            };
            let text = |text: &str| Value::text(text);
            let mut row = vec![text(&definition.name), text(refresh), text(definition.source())];
            row.push(status.refreshed_ns.map_or(Value::Null, Value::Timestamp));
            row.extend([text(&definition.statement), text(&definition.target)]);
            let state = match (&status.error, view.state.is_pending()) {
                (Some(_), _) => "failing",
                (None, false) => "valid",
                (None, true) => "refreshing",
            };
            row.extend([status.error.as_deref().map_or(Value::Null, text), text(state)]);
            row.push(Value::Timestamp(view.state.watermark_ns));
            row.push(Value::Int(view.state.pending.len() as i64));
            row.extend([Value::Int(status.rows_written as i64), Value::Int(status.late_samples_refused as i64)]);
            row.push(text(definition.dialect.name()));
            rows.push(row);
        }
        Ok(Relation { columns: named(&columns), rows })
    }

    /// The name of a table's time: that of a view has one of its own.
    pub(crate) fn time_name_of(&self, table: &str) -> Result<String, SqlError> {
        let view = self.session.view(&self.environment.database, table)?;
        let of_view = view.filter(|view| view.definition.is_exposed() && view.definition.dialect != Dialect::InfluxQl);
        Ok(of_view.map_or_else(|| self.time_name().to_owned(), |view| view.definition.time_name.clone()))
    }
}

const REFRESH: &str = "policy_refresh_continuous_aggregate";
const RETENTION: &str = "policy_retention";

/// A job that keeps a view.
struct Job {
    number: i64,
    kind: &'static str,
    view: Arc<View>,
    config_ns: i64,
}

fn named(columns: &[(&str, SqlType)]) -> Vec<Column> {
    columns.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect()
}

//! Triggers, subscriptions and live streams: the accounts with whose rights they run, and their statements.

use std::sync::{Arc, Weak};

use access::scope::Scope;
use db::Db;
use influxql::{Series, SubscriptionStatement};
use platform::Platform;
use platform::network::NetworkPlatform;
use query::{Budget, QueryError, Value};
use sql::{Answer, Column, Relation, SqlError, TRIGGER_COLUMNS, TriggerStatement};
use views::delivery::{Deliveries, DeliveryOptions, DeliveryReport, ListedSubscription, Maker, OwnerScope, Owners};

use crate::error::ApiError;
use crate::sign_in::Caller;
use crate::state::State;

/// Live streams that may be open at the same time unless the settings say otherwise.
const STREAMS_MAX: usize = 100;

/// The accounts of a server.
struct ServerOwners {
    state: Weak<State>,
    db: Arc<Db>,
}

impl Owners for ServerOwners {
    fn scope(&self, owner: &str) -> Result<OwnerScope, String> {
        let state = self.state.upgrade().ok_or_else(|| "the server stops".to_owned())?;
        // It was made by a client that was let in without an account, which could do everything.
        if owner.is_empty() || !state.sign_in.is_required {
            return Ok(OwnerScope { scope: Scope::open(), created_ns: None });
        }
        let (directory, now_ns) = (state.sign_in.directory(), state.db.now_ns());
        let entry = directory.get(owner).filter(|entry| !entry.account.is_expired(now_ns));
        entry
            .map(|entry| OwnerScope { scope: entry.scope.clone(), created_ns: Some(entry.account.created_ns) })
            .ok_or_else(|| format!("the account {owner} is none of this server's own, or has expired"))
    }

    fn budget(&self, database: &str, scope: &Arc<Scope>) -> Arc<Budget> {
        match self.state.upgrade() {
            Some(state) => state.budget_of(database, scope),
            None => Arc::new(Budget::sharing(0, &self.db.query_memory()).for_scope(Scope::signed_out())),
        }
    }
}

impl State {
    /// Begins to deliver. Runs on the runtime's threads.
    pub(crate) fn start_deliveries(self: &Arc<Self>) {
        let owners = Arc::new(ServerOwners { state: Arc::downgrade(self), db: self.db.clone() });
        self.delivering.get_or_init(|| {
            Deliveries::start(DeliveryOptions {
                db: self.db.clone(),
                network: NetworkPlatform::real(Platform::real()),
                owners,
                urls: self.settings.web.webhook_urls.clone(),
                streams_max: self.settings.web.tail_streams_max.unwrap_or(STREAMS_MAX),
                log: crate::log::warn,
            })
        });
    }

    /// Triggers, subscriptions and live streams.
    pub(crate) fn deliveries(&self) -> Result<&Deliveries, ApiError> {
        self.delivering.get().ok_or_else(|| ApiError::later("the server starts: try again"))
    }

    /// Forgets what belongs to databases that were dropped.
    pub(crate) fn forget_dropped(&self) {
        self.tenants.forget_dropped(&self.db);
        if let Some(deliveries) = self.delivering.get() {
            deliveries.forget_dropped();
        }
    }

    /// Runs a statement about triggers.
    pub(crate) fn trigger_statement(
        &self,
        caller: &Caller,
        database: &str,
        statement: &TriggerStatement,
    ) -> Result<Answer, SqlError> {
        let maker = Maker { database, scope: &caller.scope };
        let deliveries = self.deliveries().map_err(|error| QueryError::Storage(error.message))?;
        let reports = deliveries.trigger_statement(statement, maker)?;
        if !statement.only_reads() {
            return Ok(Answer::Done(statement.tag().to_owned()));
        }
        let columns = TRIGGER_COLUMNS.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect();
        Ok(Answer::Rows(Relation { columns, rows: reports.iter().map(row).collect() }))
    }

    /// Runs a statement about subscriptions.
    pub(crate) fn subscription_statement(
        &self,
        caller: &Caller,
        statement: &SubscriptionStatement,
    ) -> Result<influxql::Answer, QueryError> {
        let maker = Maker { database: "", scope: &caller.scope };
        let deliveries = self.deliveries().map_err(|error| QueryError::Storage(error.message))?;
        let listed = deliveries.subscription_statement(statement, maker)?;
        let series = listed.chunk_by(|a, b| a.database == b.database).map(series);
        Ok(influxql::Answer { series: series.collect(), messages: Vec::new() })
    }
}

/// A row of `SHOW TRIGGERS`, in the order of its columns.
fn row(report: &DeliveryReport) -> Vec<Value> {
    let count = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    vec![
        Value::text(&*report.name),
        Value::text(&*report.table),
        Value::text(&*report.condition),
        Value::text(report.action),
        Value::text(&*report.target),
        Value::text(&*report.owner),
        Value::text(report.state),
        count(report.sequence),
        count(report.lag),
        count(report.sent_rows),
        count(report.failed_rows + report.dropped_rows),
        count(report.dropped_records),
        Value::text(&*report.last_error),
    ]
}

/// The subscriptions of a database, as InfluxDB lists them.
fn series(of_database: &[ListedSubscription]) -> Series {
    let rows = of_database.iter().map(|listed| {
        let destinations = listed.destinations.join(", ");
        vec![
            Value::text(&*listed.policy),
            Value::text(&*listed.name),
            Value::text(listed.mode),
            Value::text(destinations),
        ]
    });
    let name = of_database.first().map_or("", |listed| &listed.database);
    Series::list(name, &["retention_policy", "name", "mode", "destinations"], rows.collect())
}

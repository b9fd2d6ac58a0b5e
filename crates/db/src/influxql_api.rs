//! Asking in InfluxQL.

use influxql::{Answer, Engine, Query, Session, TableGroup};
use model::{Matcher, TimeRange};
use parking_lot::Mutex;
use query::plan::{Scan, Selector};
use query::{Budget, Context, Outcome, Plan, QueryError, Reads, TableSchema};
use store::{DatabasePolicy, StoreError};

use crate::{Db, WriteError};

impl Db {
    /// Runs a statement of an InfluxQL text, counted from 0.
    pub fn run_influxql(
        &self,
        query: &Query,
        number: usize,
        session: &Session<'_>,
        budget: &Budget,
    ) -> Result<Answer, QueryError> {
        query.run(number, &Statements { db: self, budget, reads: Mutex::default() }, session)
    }

    /// Drops a database with all its rows, and gives their room back; whether there was one.
    pub fn drop_database(&self, database: &str) -> Result<bool, StoreError> {
        self.store.drop_database(database)
    }
}

/// What InfluxQL's statements run on.
struct Statements<'a> {
    db: &'a Db,
    budget: &'a Budget,
    /// Of plans that ran so far.
    reads: Mutex<Reads>,
}

impl Statements<'_> {
    fn on<T>(&self, database: &str, work: impl FnOnce(&Context<'_>) -> T) -> T {
        let clock_ns = || self.db.now_ns();
        let Self { db, budget, .. } = self;
        work(&Context {
            store: &db.store,
            database,
            budget,
            clock_ns: &clock_ns,
            helpers: &db.helpers,
            kept_bins: db.kept_bins(budget),
        })
    }
}

impl Engine for Statements<'_> {
    fn now_ns(&self) -> i64 {
        self.db.now_ns()
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn databases(&self) -> Vec<String> {
        self.db.databases()
    }

    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method alone is not general enough in its lifetime"
    )]
    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError> {
        self.on(database, |context| context.tables())
    }

    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError> {
        self.on(database, |context| context.table(name))
    }

    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError> {
        let groups = self.on(database, |context| context.groups_of(scan))?;
        let of = |group: store::SelectedGroup| TableGroup {
            fields: group.columns.iter().map(|column| column.field.to_string()).collect(),
            tags: group.labels,
        };
        Ok(groups.into_iter().map(of).collect())
    }

    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        let outcome = self.on(database, |context| query::execute(plan, context))?;
        self.reads.lock().merge(&outcome.reads);
        Ok(outcome)
    }

    fn reads(&self) -> Reads {
        *self.reads.lock()
    }

    fn write(&self, database: &str, lines: &[u8]) -> Result<(), QueryError> {
        let (report, errors) = self.db.write_lines(database, lines).map_err(|error| match error {
            WriteError::Invalid(message) => QueryError::Invalid(message),
            WriteError::Refused(message) => QueryError::Storage(message),
        })?;
        let refused = errors.first.first().map(|error| error.reason.clone());
        match refused.or_else(|| report.rejected.first().map(|rejected| rejected.reason.clone())) {
            Some(reason) => Err(QueryError::Invalid(format!("partial write: {reason}"))),
            None => Ok(()),
        }
    }

    fn delete(
        &self,
        database: &str,
        table: Option<&str>,
        selectors: &[Selector],
        range: &TimeRange,
    ) -> Result<(), QueryError> {
        let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
        let compiled = index::compile(&matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let tables = match table {
            Some(table) => vec![table.to_owned()],
            None => self.tables(database)?,
        };
        for table in tables {
            self.db.store.delete_rows(database, &table, &compiled, range).map_err(|error| storage(&error))?;
        }
        self.db.store.carry_out_deletes().map_err(|error| storage(&error))
    }

    fn retention_ns(&self, database: &str) -> Option<i64> {
        self.db.policy(database).map(|policy| policy.retention_ns)
    }

    fn create_database(&self, database: &str, retention_ns: Option<i64>) -> Result<(), QueryError> {
        self.db.database_id(database).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let Some(retention_ns) = retention_ns else { return Ok(()) };
        let known = self.db.policy(database).unwrap_or_default();
        self.db.set_policy(database, &DatabasePolicy { retention_ns, ..known }).map_err(|error| storage(&error))
    }

    fn drop_database(&self, database: &str) -> Result<(), QueryError> {
        self.db.drop_database(database).map_err(|error| storage(&error))?;
        Ok(())
    }
}

fn storage(error: &StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message.clone()),
        other => QueryError::Storage(other.to_string()),
    }
}

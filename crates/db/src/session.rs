//! The session of a statement in SQL, InfluxQL or a plan: this process's databases within the statement's budget.

use model::{Field, Labels, Matcher, TimeRange, ValueType};
use parking_lot::Mutex;
use query::plan::{Scan, Selector};
use query::{
    Budget, Context, DatabaseSettings, LastRows, Outcome, Plan, QueryError, Reads, RefusedRow, Session, TableGroup,
    TableSchema,
};
use store::StoreError;

use crate::{Db, WriteError};

/// One statement's session.
pub(crate) struct DbSession<'a> {
    db: &'a Db,
    budget: &'a Budget,
    /// What plans read so far.
    reads: Mutex<Reads>,
}

impl Db {
    /// A session for one statement.
    pub(crate) fn session<'a>(&'a self, budget: &'a Budget) -> DbSession<'a> {
        DbSession { db: self, budget, reads: Mutex::default() }
    }

    /// Drops a database with all its rows, and gives their room back; whether there was one.
    pub fn drop_database(&self, database: &str) -> Result<bool, StoreError> {
        self.store.drop_database(database)
    }
}

impl DbSession<'_> {
    fn on<T>(&self, database: &str, read: impl FnOnce(&Context<'_>) -> T) -> T {
        let clock_ns = || self.db.now_ns();
        let Self { db, budget, .. } = self;
        read(&Context {
            store: &db.store,
            database,
            budget,
            clock_ns: &clock_ns,
            helpers: &db.helpers,
            bin_cache: db.bin_cache(budget),
        })
    }
}

impl Session for DbSession<'_> {
    fn now_ns(&self) -> i64 {
        self.db.now_ns()
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn databases(&self) -> Vec<String> {
        self.db.databases()
    }

    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError> {
        self.db.store.tables(database).map_err(|error| QueryError::Storage(error.to_string()))
    }

    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError> {
        self.db.store.table(database, name).map_err(|error| QueryError::Storage(error.to_string()))
    }

    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError> {
        let groups = self.on(database, |context| query::table_groups(scan, context))?;
        let group = |group: store::SelectedGroup| TableGroup {
            fields: group.columns.iter().map(|column| column.field.to_string()).collect(),
            tags: group.labels,
        };
        Ok(groups.into_iter().map(group).collect())
    }

    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        self.budget.note_read(&plan.read_range());
        let outcome = self.on(database, |context| query::execute(plan, context))?;
        self.reads.lock().merge(&outcome.reads);
        Ok(outcome)
    }

    fn last_rows(&self, database: &str, scan: &Scan) -> Result<LastRows, QueryError> {
        self.budget.note_read(&scan.range);
        let newest = self.on(database, |context| query::last_rows(scan, context))?;
        self.reads.lock().merge(&newest.reads);
        Ok(newest)
    }

    fn reads(&self) -> Reads {
        *self.reads.lock()
    }

    fn write(&self, database: &str, lines: &[u8]) -> Result<Option<RefusedRow>, QueryError> {
        let (report, errors) = self.db.write_lines(database, lines).map_err(|error| match error {
            WriteError::Invalid(message) => QueryError::Invalid(message),
            WriteError::Refused(message) => QueryError::Storage(message),
        })?;
        let line = errors.first.first();
        let line =
            line.map(|error| RefusedRow { position: format!("line {}", error.line), reason: error.reason.clone() });
        let row = || {
            let row = report.rejected.first()?;
            Some(RefusedRow { position: format!("row {}", row.line), reason: row.reason.clone() })
        };
        Ok(line.or_else(row))
    }

    fn delete(&self, database: &str, table: &str, selectors: &[Selector], range: &TimeRange) -> Result<(), QueryError> {
        let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
        let compiled = index::compile(&matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        self.db.store.delete_rows(database, table, &compiled, range).map_err(storage)?;
        self.db.store.carry_out_deletes().map_err(storage)
    }

    /// Registers the fields in a group without tags, which has no rows.
    fn create_table(&self, database: &str, table: &str, fields: &[(String, ValueType)]) -> Result<(), QueryError> {
        let member = |(name, value_type): &(String, ValueType)| {
            (Field { name: name.clone(), value_type: *value_type }, Labels::empty())
        };
        let members: Vec<(Field, Labels)> = fields.iter().map(member).collect();
        self.db.register_groups(database, table, &[Labels::empty()], &members).map_err(storage)?;
        Ok(())
    }

    fn retention_ns(&self, database: &str) -> Option<i64> {
        self.db.policy(database).map(|policy| policy.retention_ns)
    }

    fn set_up_database(&self, database: &str, settings: &DatabaseSettings) -> Result<(), QueryError> {
        self.db.database_id(database).map_err(|error| QueryError::Invalid(error.to_string()))?;
        if *settings == DatabaseSettings::default() {
            return Ok(());
        }
        let mut policy = self.db.policy(database).unwrap_or_default();
        policy.retention_ns = settings.retention_ns.unwrap_or(policy.retention_ns);
        policy.folds = settings.folds.clone().unwrap_or(policy.folds);
        self.db.set_policy(database, &policy).map_err(storage)
    }

    fn drop_database(&self, database: &str) -> Result<bool, QueryError> {
        self.db.drop_database(database).map_err(storage)
    }
}

/// An error that the sender can mend, or one of the storage.
fn storage(error: StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message),
        other => QueryError::Storage(other.to_string()),
    }
}

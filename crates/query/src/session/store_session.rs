//! The session over a store.

use std::sync::{Mutex, PoisonError};

use access::grant::Right;
use model::{Field, Labels, Matcher, TimeRange, ValueType};
use platform::Clock;
use store::{SelectedGroup, Store, StoreError, TableSchema, TableSelection};

use super::{DatabaseSettings, NewTable, RefusedRow, Session, TableGroup};
use crate::execute::{self, Context};
use crate::plan::{Scan, Selector};
use crate::series::selection;
use crate::{BinCache, Budget, Helpers, LastRows, Outcome, Plan, QueryError, Reads};

/// Writes for a session: who opened the store knows how lines are read, and watches its disk.
pub trait SessionWriter: Sync {
    /// As [`Session::write`]. The right to write the database is the caller's; the rows that it may write, and how many, are the budget's.
    fn write(&self, database: &str, lines: &[u8], budget: &Budget) -> Result<Option<RefusedRow>, QueryError>;

    /// Makes a database, unless there is one of the name.
    fn make_database(&self, database: &str) -> Result<(), QueryError>;
}

/// The parts of a process that a session works with.
#[derive(Clone, Copy)]
pub struct SessionHost<'a> {
    /// Where the data is.
    pub store: &'a Store,
    /// Says what the time is.
    pub clock: &'a dyn Clock,
    /// Threads that help if there is much to read.
    pub helpers: &'a Helpers,
    /// The cache of bins of time, if there is one.
    pub bin_cache: Option<&'a dyn BinCache>,
    /// Writes rows.
    pub writer: &'a dyn SessionWriter,
}

/// One statement's session over a store, within the statement's budget.
pub struct StoreSession<'a> {
    host: SessionHost<'a>,
    budget: &'a Budget,
    /// Counts of what plans read so far.
    reads: Mutex<Reads>,
}

impl<'a> StoreSession<'a> {
    /// A session that has read nothing.
    pub fn new(host: SessionHost<'a>, budget: &'a Budget) -> Self {
        Self { host, budget, reads: Mutex::default() }
    }

    fn read<T>(
        &self,
        database: &str,
        read: impl FnOnce(&Context<'_>) -> Result<T, QueryError>,
        reads: impl FnOnce(&T) -> Reads,
    ) -> Result<T, QueryError> {
        let (database, _) = selection::reach(database, &[], self.budget)?;
        let SessionHost { store, clock, helpers, bin_cache, .. } = self.host;
        if store.is_strict(database) {
            self.budget.be_strict();
        }
        let clock_ns = || clock.now_ns();
        let done = read(&Context { store, database, budget: self.budget, clock_ns: &clock_ns, helpers, bin_cache })?;
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).merge(&reads(&done));
        Ok(done)
    }

    /// Refuses what the statement's sender may not do. The words are the same whether there is such a database or not.
    fn require(&self, right: Right, database: &str) -> Result<(), QueryError> {
        let scope = self.budget.scope();
        if scope.may(right, database) {
            return Ok(());
        }
        let (account, right) = (&scope.name, right.name());
        Err(QueryError::Forbidden(format!(
            "the account {account} does not have the right {right} on the database {database}"
        )))
    }

    /// Returns whether a table has series that a sender with narrowed rights may read.
    fn has_readable_series(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        let wanted = TableSelection { database, table, fields: &[], matchers: &[] };
        Ok(!selection::select_table(self.host.store, &wanted, self.budget)?.is_empty())
    }

    fn is_narrowed(&self, database: &str) -> bool {
        !self.budget.scope().matchers(Right::Read, database).is_empty()
    }
}

impl Session for StoreSession<'_> {
    fn now_ns(&self) -> i64 {
        self.host.clock.now_ns()
    }

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn databases(&self) -> Vec<String> {
        let scope = self.budget.scope();
        let mut databases = self.host.store.databases();
        databases.retain(|database| scope.sees(database));
        databases
    }

    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError> {
        let (database, _) = selection::reach(database, &[], self.budget)?;
        let mut tables = self.host.store.tables(database)?;
        if self.is_narrowed(database) {
            let mut readable = Vec::new();
            for table in tables {
                if self.has_readable_series(database, &table)? {
                    readable.push(table);
                }
            }
            tables = readable;
        }
        Ok(tables)
    }

    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError> {
        let scope = self.budget.scope();
        if !scope.may(Right::Read, database) && scope.may(Right::Write, database) {
            // An INSERT looks at the columns that it is for.
            return Ok(self.host.store.table(database, name)?);
        }
        let (database, _) = selection::reach(database, &[], self.budget)?;
        if self.is_narrowed(database) && !self.has_readable_series(database, name)? {
            return Ok(None);
        }
        Ok(self.host.store.table(database, name)?)
    }

    fn groups(&self, database: &str, scan: &Scan) -> Result<Vec<TableGroup>, QueryError> {
        let groups = self.read(database, |context| execute::table_groups(scan, context), |_| Reads::default())?;
        let group = |group: SelectedGroup| TableGroup {
            fields: group.columns.iter().map(|column| column.field.to_string()).collect(),
            tags: group.labels,
        };
        Ok(groups.into_iter().map(group).collect())
    }

    fn tag_values(&self, database: &str, scan: &Scan, tag: &str) -> Result<Vec<String>, QueryError> {
        self.read(database, |context| execute::tag_values(scan, tag, context), |_| Reads::default())
    }

    fn run(&self, database: &str, plan: &Plan) -> Result<Outcome, QueryError> {
        self.budget().note_read(&plan.read_range());
        self.read(database, |context| execute::execute(plan, context), |outcome| outcome.reads)
    }

    fn last_rows(&self, database: &str, scan: &Scan) -> Result<LastRows, QueryError> {
        self.budget().note_read(&scan.range);
        self.read(database, |context| execute::last_rows(scan, context), |rows| rows.reads)
    }

    fn reads(&self) -> Reads {
        *self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, database: &str, lines: &[u8]) -> Result<Option<RefusedRow>, QueryError> {
        self.require(Right::Write, database)?;
        if !self.host.store.databases().iter().any(|known| known == database) {
            self.require(Right::Create, database)?;
        }
        self.host.writer.write(database, lines, self.budget)
    }

    fn delete(&self, database: &str, table: &str, selectors: &[Selector], range: &TimeRange) -> Result<(), QueryError> {
        self.require(Right::Admin, database)?;
        let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
        let compiled = index::compile(&matchers)?;
        self.host.store.delete_rows(database, table, &compiled, range).map_err(storage)?;
        self.host.store.carry_out_deletes().map_err(storage)
    }

    /// Registers the fields in a group without tags, which has no rows.
    fn create_table(&self, database: &str, table: &NewTable) -> Result<(), QueryError> {
        if !self.budget.scope().may(Right::Admin, database) {
            self.require(Right::Create, database)?;
        }
        let member = |(name, value_type): &(String, ValueType)| {
            (Field { name: name.clone(), value_type: *value_type }, Labels::empty())
        };
        let members: Vec<(Field, Labels)> = table.fields.iter().map(member).collect();
        self.host.store.register_groups(database, &table.name, &[Labels::empty()], &members).map_err(storage)?;
        self.host.store.declare_tags(database, &table.name, &table.tags).map_err(storage)
    }

    fn drop_table(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        self.require(Right::Admin, database)?;
        self.host.store.drop_table(database, table).map_err(storage)
    }

    fn table_ttl_ns(&self, database: &str, table: &str) -> i64 {
        self.host.store.table_ttl_ns(database, table)
    }

    fn set_table_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), QueryError> {
        self.require(Right::Admin, database)?;
        self.host.store.set_table_ttl(database, table, ttl_ns).map_err(storage)
    }

    fn retention_ns(&self, database: &str) -> Option<i64> {
        let policy = self.host.store.policy(database).filter(|_| self.budget.scope().sees(database));
        policy.map(|policy| policy.retention_ns)
    }

    fn set_up_database(&self, database: &str, settings: &DatabaseSettings) -> Result<(), QueryError> {
        // One that the sender has no right on is answered as one that does not exist.
        let is_known = self.databases().iter().any(|known| known == database);
        let is_change = is_known && *settings != DatabaseSettings::default();
        if !is_known || is_change {
            self.require(if is_change { Right::Admin } else { Right::Create }, database)?;
        }
        self.host.writer.make_database(database)?;
        if *settings == DatabaseSettings::default() {
            return Ok(());
        }
        let mut policy = self.host.store.policy(database).unwrap_or_default();
        policy.retention_ns = settings.retention_ns.unwrap_or(policy.retention_ns);
        policy.folds = settings.folds.clone().unwrap_or(policy.folds);
        policy.is_strict = settings.strict_folds.unwrap_or(policy.is_strict);
        self.host.store.set_policy(database, &policy).map_err(storage)
    }

    fn drop_database(&self, database: &str) -> Result<bool, QueryError> {
        self.require(Right::Admin, database)?;
        self.host.store.drop_database(database).map_err(storage)
    }
}

/// The error of a change: one that the sender can correct, or one of the storage.
pub(super) fn storage(error: StoreError) -> QueryError {
    match error {
        StoreError::Invalid(message) => QueryError::Invalid(message),
        other => other.into(),
    }
}

//! The session over a store.

use std::sync::{Mutex, PoisonError};

use model::{Field, Labels, Matcher, TimeRange, ValueType};
use platform::Clock;
use store::{SelectedGroup, Store, StoreError, TableSchema};

use super::{DatabaseSettings, NewTable, RefusedRow, Session, TableGroup};
use crate::execute::{self, Context};
use crate::plan::{Scan, Selector};
use crate::{BinCache, Budget, Helpers, LastRows, Outcome, Plan, QueryError, Reads};

/// Writes for a session: who opened the store knows how lines are read, and watches its disk.
pub trait SessionWriter: Sync {
    /// As [`Session::write`].
    fn write(&self, database: &str, lines: &[u8]) -> Result<Option<RefusedRow>, QueryError>;

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
        let SessionHost { store, clock, helpers, bin_cache, .. } = self.host;
        if store.is_strict(database) {
            self.budget.be_strict();
        }
        let clock_ns = || clock.now_ns();
        let done = read(&Context { store, database, budget: self.budget, clock_ns: &clock_ns, helpers, bin_cache })?;
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).merge(&reads(&done));
        Ok(done)
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
        self.host.store.databases()
    }

    fn tables(&self, database: &str) -> Result<Vec<String>, QueryError> {
        Ok(self.host.store.tables(database)?)
    }

    fn table(&self, database: &str, name: &str) -> Result<Option<TableSchema>, QueryError> {
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
        self.host.writer.write(database, lines)
    }

    fn delete(&self, database: &str, table: &str, selectors: &[Selector], range: &TimeRange) -> Result<(), QueryError> {
        let matchers: Vec<Matcher> = selectors.iter().map(Selector::matcher).collect();
        let compiled = index::compile(&matchers)?;
        self.host.store.delete_rows(database, table, &compiled, range).map_err(storage)?;
        self.host.store.carry_out_deletes().map_err(storage)
    }

    /// Registers the fields in a group without tags, which has no rows.
    fn create_table(&self, database: &str, table: &NewTable) -> Result<(), QueryError> {
        let member = |(name, value_type): &(String, ValueType)| {
            (Field { name: name.clone(), value_type: *value_type }, Labels::empty())
        };
        let members: Vec<(Field, Labels)> = table.fields.iter().map(member).collect();
        self.host.store.register_groups(database, &table.name, &[Labels::empty()], &members).map_err(storage)?;
        self.host.store.declare_tags(database, &table.name, &table.tags).map_err(storage)
    }

    fn drop_table(&self, database: &str, table: &str) -> Result<bool, QueryError> {
        self.host.store.drop_table(database, table).map_err(storage)
    }

    fn retention_ns(&self, database: &str) -> Option<i64> {
        self.host.store.policy(database).map(|policy| policy.retention_ns)
    }

    fn set_up_database(&self, database: &str, settings: &DatabaseSettings) -> Result<(), QueryError> {
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

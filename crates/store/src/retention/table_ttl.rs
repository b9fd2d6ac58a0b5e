//! How long single tables keep their rows, where that is less long than their database does.
//!
//! Parts hold the rows of many tables, so that none can go whole when the time of one table's rows is over. Its rows are deleted instead, a
//! step of their time at once: masked from then on, and dropped by the merge that deletes cause. Steps bound how often a part is merged. What is
//! made of the rows in windows ([`ExpiryGuard`]) has them go window by window, and is told before they go.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::{Catalog, DatabaseId, MeasurementId, RoaringBitmap};
use model::TimeRange;

use crate::manifest::State;
use crate::retention::expiry_guard::{ExpiryGuard, Going};
use crate::retention::whole_folds::before_folds;
use crate::{Store, StoreError};

/// The kind of the documents that hold the settings.
const KIND: &str = "table-ttl";
/// Between the names of database and table in that of a document; names have none.
const BETWEEN: char = '\0';
/// Rows are deleted this many times within the time that a table keeps them.
const STEPS: i64 = 32;
const STEP_NS_MIN: i64 = 60_000_000_000;

/// A table, by the names of its database and its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableName {
    database: String,
    table: String,
}

/// How long a table keeps its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableTtl {
    ttl_ns: i64,
    /// Rows before this time were deleted since the folder was opened.
    deleted_before_ns: i64,
}

impl TableTtl {
    fn new(ttl_ns: i64) -> Self {
        Self { ttl_ns, deleted_before_ns: i64::MIN }
    }
}

/// The tables that keep their rows less long than their databases do.
pub(crate) type TableTtls = BTreeMap<TableName, TableTtl>;

impl TableName {
    pub(crate) fn new(database: &str, table: &str) -> Self {
        Self { database: database.to_owned(), table: table.to_owned() }
    }

    /// Returns whether it is a table of a database, or the one of that name.
    pub(crate) fn is_of(&self, database: &str, table: Option<&str>) -> bool {
        self.database == database && table.is_none_or(|table| self.table == table)
    }

    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    pub(crate) fn document(&self) -> String {
        format!("{}{BETWEEN}{}", self.database, self.table)
    }

    /// The table whose document has a name.
    pub(crate) fn of_document(name: &str) -> Option<Self> {
        name.split_once(BETWEEN).map(|(database, table)| Self::new(database, table))
    }

    /// The numbers of the database and of the table, if there is one of the name.
    pub(crate) fn number(&self, catalog: &Catalog) -> Option<(DatabaseId, MeasurementId)> {
        let database = catalog.database(&self.database)?;
        Some((database, catalog.measurement(database, &self.table)?))
    }
}

/// As the manifest has them.
pub(crate) fn of_state(state: &State) -> TableTtls {
    let ttls = numbers_of_state(state, KIND).into_iter();
    ttls.map(|(name, ttl_ns)| (name, TableTtl::new(ttl_ns))).collect()
}

/// The numbers that documents of a kind hold for tables.
pub(crate) fn numbers_of_state(state: &State, kind: &str) -> BTreeMap<TableName, i64> {
    let read = |((found, name), bytes): (&(String, String), &Arc<[u8]>)| {
        let name = TableName::of_document(name).filter(|_| found == kind)?;
        Some((name, i64::from_le_bytes((**bytes).try_into().ok()?)))
    };
    state.documents.iter().filter_map(read).collect()
}

/// The time before which rows are past a TTL; it moves in steps, each of them whole folds.
fn expired_before_ns(now_ns: i64, ttl_ns: i64, fold_ns: i64) -> i64 {
    let fold_ns = fold_ns.max(1);
    let step_ns = (ttl_ns / STEPS).max(STEP_NS_MIN).max(fold_ns);
    let step_ns = step_ns - step_ns % fold_ns;
    let oldest_ns = now_ns.saturating_sub(ttl_ns);
    oldest_ns.saturating_sub(oldest_ns.rem_euclid(step_ns))
}

impl Store {
    /// How long a table keeps its rows, in nanoseconds; 0: as long as its database does.
    pub fn table_ttl_ns(&self, database: &str, table: &str) -> i64 {
        self.retention.table_ttls.read().get(&TableName::new(database, table)).map_or(0, |ttl| ttl.ttl_ns)
    }

    /// The tables of a database that keep their rows less long than it does, and how long, in nanoseconds.
    pub fn table_ttls(&self, database: &str) -> Vec<(String, i64)> {
        let ttls = self.retention.table_ttls.read();
        let of_database = ttls.iter().filter(|(name, _)| name.database == database);
        of_database.map(|(name, ttl)| (name.table.clone(), ttl.ttl_ns)).collect()
    }

    /// Says how long a table keeps its rows, in nanoseconds; 0: as long as its database does. Rows that are past it are gone when this returns,
    /// but for those of a step of a 32nd of that time, or of a minute, and those that the [`ExpiryGuard`] still has.
    pub fn set_table_ttl(&self, database: &str, table: &str, ttl_ns: i64) -> Result<(), StoreError> {
        if ttl_ns < 0 {
            return Err(StoreError::Invalid(
                "a TTL is not negative: 0 keeps rows as long as the database does".to_owned(),
            ));
        }
        let name = TableName::new(database, table);
        if ttl_ns == 0 {
            self.remove_document(KIND, &name.document())?;
            self.retention.table_ttls.write().remove(&name);
            return Ok(());
        }
        self.put_document(KIND, &name.document(), &ttl_ns.to_le_bytes())?;
        self.retention.table_ttls.write().insert(name, TableTtl::new(ttl_ns));
        self.delete_expired_rows().map(drop)
    }

    /// Forgets what was said of a database's tables, or of one of them.
    pub(crate) fn forget_table_ttls(&self, database: &str, table: Option<&str>) -> Result<(), StoreError> {
        let ttls = self.retention.table_ttls.read().clone();
        let names: Vec<TableName> = ttls.into_keys().filter(|name| name.is_of(database, table)).collect();
        names.iter().try_for_each(|name| self.set_table_ttl(&name.database, &name.table, 0))
    }

    /// Deletes rows that are past the TTL of their table. Whether there was a step to do.
    pub(crate) fn delete_expired_rows(&self) -> Result<bool, StoreError> {
        let now_ns = self.trusted_now_ns();
        let ttls = self.retention.table_ttls.read().clone();
        let (mut worked, mut failed) = (false, None);
        for (name, ttl) in &ttls {
            match self.delete_expired_of(name, *ttl, now_ns) {
                Ok(deleted) => worked |= deleted,
                // Others go on.
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(worked), Err)
    }

    /// Deletes the rows of a table that are past its TTL. Whether there was a step to do.
    fn delete_expired_of(&self, name: &TableName, ttl: TableTtl, now_ns: i64) -> Result<bool, StoreError> {
        let policy = self.policy(&name.database).unwrap_or_default();
        let fold_ns = policy.folds.iter().map(|(_, width_ns)| *width_ns).max().unwrap_or(0);
        let before_ns = expired_before_ns(now_ns, ttl.ttl_ns, fold_ns);
        if before_ns <= ttl.deleted_before_ns {
            return Ok(false);
        }
        let guard = self.retention.expiry_guard.get();
        let going = Going::Table(&name.table);
        let may_go = |guard: &Arc<dyn ExpiryGuard>| guard.may_go_before_ns(&name.database, going, before_ns);
        let before_ns = guard.as_ref().map_or(before_ns, may_go);
        if before_ns <= ttl.deleted_before_ns {
            return Ok(false);
        }
        let before_ns = self.before_folds_of(name, before_ns)?;
        if before_ns <= ttl.deleted_before_ns {
            return Ok(false);
        }
        if let Some(guard) = guard
            && !guard.before_expiry(&name.database, going, before_ns)?
        {
            return Ok(false);
        }
        let range = TimeRange::new(i64::MIN, before_ns.saturating_sub(1));
        self.delete_rows(&name.database, &name.table, &[], &range)?;
        if let Some(ttl) = self.retention.table_ttls.write().get_mut(name) {
            ttl.deleted_before_ns = before_ns;
        }
        Ok(true)
    }

    /// The latest time up to one that cuts no fold of a table's rows: parts may be folded as a policy said before.
    fn before_folds_of(&self, name: &TableName, before_ns: i64) -> Result<i64, StoreError> {
        let selected = self.select_table(&name.database, &name.table, &[], &[])?;
        let mut groups = vec![RoaringBitmap::new(); self.shards.len()];
        for group in selected.iter() {
            if let Some(of_shard) = groups.get_mut(group.shard) {
                of_shard.insert(group.key.group);
            }
        }
        self.before_folds_of_groups(&groups, before_ns)
    }

    /// The latest time up to one that cuts no fold of some groups of each shard.
    pub(crate) fn before_folds_of_groups(
        &self,
        groups: &[RoaringBitmap],
        mut before_ns: i64,
    ) -> Result<i64, StoreError> {
        let mut shards = Vec::with_capacity(self.shards.len());
        for (shard, groups) in self.shards.iter().zip(groups) {
            shards.push((shard.parts_and_deletes().0, groups - self.unfolded_groups(shard)?));
        }
        loop {
            let bound_ns = before_ns;
            for (parts, groups) in &shards {
                before_ns = before_folds(parts, groups, before_ns);
            }
            if before_ns == bound_ns {
                return Ok(before_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_expire_in_steps_of_whole_folds() {
        const MINUTE_NS: i64 = 60_000_000_000;
        const DAY_NS: i64 = 1440 * MINUTE_NS;
        let now_ns = 1_000 * DAY_NS + 7 * MINUTE_NS + 5;
        // A 32nd of a day is 45 minutes.
        assert_eq!(expired_before_ns(now_ns, DAY_NS, 0), 999 * DAY_NS);
        assert_eq!(expired_before_ns(now_ns + 45 * MINUTE_NS, DAY_NS, 0), 999 * DAY_NS + 45 * MINUTE_NS);
        assert_eq!(expired_before_ns(now_ns, MINUTE_NS, 0), 1_000 * DAY_NS + 6 * MINUTE_NS);
        // Steps of 40 minutes, then of an hour.
        assert_eq!(expired_before_ns(now_ns, DAY_NS, 20 * MINUTE_NS).rem_euclid(40 * MINUTE_NS), 0);
        assert_eq!(expired_before_ns(now_ns + 59 * MINUTE_NS, DAY_NS, 60 * MINUTE_NS), 999 * DAY_NS + 60 * MINUTE_NS);
    }
}

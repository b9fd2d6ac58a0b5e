//! Series that keep their rows less long than others of their table do: their keeper says now and then up to when they are past keeping.
//!
//! As with a table's TTL, parts hold the rows of many series, so that rows are deleted: masked from then on, and dropped by the merge that
//! deletes cause. Up to when that was done of a table is written down before anything goes: what was made of its rows, such as results of rules,
//! must not be made again of those that are left.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::{CompiledMatcher, RoaringBitmap};
use model::TimeRange;

use super::table_ttl::{TableName, numbers_of_state};
use crate::manifest::State;
use crate::part::Part;
use crate::retention::deletes::Delete;
use crate::{Store, StoreError, TableSelection};

/// The kind of the documents that say up to when series of a table went, in nanoseconds.
const KIND: &str = "series-trim";

/// Up to when series of tables went.
pub(crate) type SeriesTrims = BTreeMap<TableName, i64>;

/// As the manifest has them.
pub(crate) fn of_state(state: &State) -> SeriesTrims {
    numbers_of_state(state, KIND)
}

impl Store {
    /// The tables of a database some of whose series went as far as they are before a time, with that time, in nanoseconds.
    pub fn trimmed_tables(&self, database: &str) -> Vec<(String, i64)> {
        let trims = self.retention.series_trims.read();
        let of_database = trims.iter().filter(|(name, _)| name.is_of(database, None));
        of_database.map(|(name, before_ns)| (name.table().to_owned(), *before_ns)).collect()
    }

    /// Deletes the rows before a time of the groups of a table that satisfy one of several sets of matchers: they are past keeping. Nothing after
    /// the trusted time goes, and of folded rows whole folds alone. The time before which rows are gone, which may be earlier, is told to the caller
    /// before they go, unless there are none, and is returned.
    ///
    /// # Errors
    /// Those of the caller, with nothing deleted, and those of a delete.
    pub fn trim_series(
        &self,
        (database, table): (&str, &str),
        matcher_sets: &[Vec<CompiledMatcher>],
        before_ns: i64,
        prepare: &mut dyn FnMut(i64) -> Result<(), StoreError>,
    ) -> Result<i64, StoreError> {
        self.trim_tables(database, &[(table, matcher_sets)], before_ns, prepare)
    }

    /// As [`Store::trim_series`], of several tables by one delete.
    ///
    /// # Errors
    /// Likewise.
    pub fn trim_tables(
        &self,
        database: &str,
        tables: &[(&str, &[Vec<CompiledMatcher>])],
        before_ns: i64,
        prepare: &mut dyn FnMut(i64) -> Result<(), StoreError>,
    ) -> Result<i64, StoreError> {
        let Some(id) = self.catalog.read().catalog.database(database) else { return Ok(i64::MIN) };
        let mut groups = vec![RoaringBitmap::new(); self.shards.len()];
        let sets = tables.iter().flat_map(|(table, sets)| sets.iter().map(move |matchers| (*table, matchers)));
        for (table, matchers) in sets {
            // Past the cache of selections: queries have others.
            let selection = TableSelection { database, table, fields: &[], matchers };
            for group in self.select_table_now(&selection, &|_| true)?.unwrap_or_default() {
                if let Some(of_shard) = groups.get_mut(group.shard) {
                    of_shard.insert(group.key.group);
                }
            }
        }
        let before_ns = self.before_folds_of_groups(&groups, before_ns.min(self.trusted_now_ns()))?;
        if !self.may_have_rows_before(&groups, before_ns) {
            return Ok(before_ns);
        }
        prepare(before_ns)?;
        tables.iter().try_for_each(|(table, _)| self.note_trim(TableName::new(database, table), before_ns))?;
        self.delete_groups(id, groups, &TimeRange::new(i64::MIN, before_ns.saturating_sub(1)))?;
        Ok(before_ns)
    }

    fn note_trim(&self, name: TableName, before_ns: i64) -> Result<(), StoreError> {
        let mut trims = self.retention.series_trims.write();
        if trims.get(&name).is_none_or(|known_ns| *known_ns < before_ns) {
            self.put_document(KIND, &name.document(), &before_ns.to_le_bytes())?;
            trims.insert(name, before_ns);
        }
        Ok(())
    }

    /// Forgets what went of a database's tables, or of one of them.
    pub(crate) fn forget_trims(&self, database: &str, table: Option<&str>) -> Result<(), StoreError> {
        let trims = self.retention.series_trims.read().clone();
        for name in trims.into_keys().filter(|name| name.is_of(database, table)) {
            self.remove_document(KIND, &name.document())?;
            self.retention.series_trims.write().remove(&name);
        }
        Ok(())
    }

    /// Returns whether there may be rows of some groups before a time: a delete flushes, which is not done for nothing. The trash counts: what comes
    /// back from it must not bring rows that are gone.
    fn may_have_rows_before(&self, groups: &[RoaringBitmap], before_ns: i64) -> bool {
        let is_before = |range: &TimeRange| range.start_ns < before_ns;
        self.shards.iter().zip(groups).filter(|(_, groups)| !groups.is_empty()).any(|(shard, groups)| {
            let state = shard.state.lock();
            let frozen = state.frozen.as_ref().and_then(|frozen| frozen.head.extent());
            if [state.head.extent(), frozen].into_iter().flatten().any(|range| is_before(&range)) {
                return true;
            }
            let (parts, deletes) = (state.parts.clone(), state.deletes.clone());
            let trash: Vec<Arc<Part>> = shard.trash.lock().iter().map(|trashed| trashed.part.clone()).collect();
            drop(state);
            let mut old = parts.iter().chain(&trash).filter(|part| is_before(&part.info.range));
            old.any(|part| !is_masked_before(part, groups, &deletes, before_ns))
        })
    }
}

/// Returns whether deletes mask all rows that a part has of some groups before a time.
fn is_masked_before(part: &Part, groups: &RoaringBitmap, deletes: &[Delete], before_ns: i64) -> bool {
    let last_ns = part.info.range.end_ns.min(before_ns.saturating_sub(1));
    let is_covering = |delete: &&Delete| {
        delete.columns.is_empty()
            && delete.masks(part)
            && delete.range.start_ns <= part.info.range.start_ns
            && delete.range.end_ns >= last_ns
            // Rows after the delete stand beside those that it masks.
            && delete.sequence >= part.info.sequences.1
    };
    let unmasked = &part.groups & groups;
    let unmasked = deletes.iter().filter(is_covering).fold(unmasked, |groups, delete| groups - &delete.groups);
    unmasked.is_empty()
}

//! Dropping: a database with all that is in it, and rows of a table.

use index::{CompiledMatcher, DatabaseId, RoaringBitmap};
use model::TimeRange;

use crate::retention::{Deleted, check_folds_whole};
use crate::retention::deletes::Delete;
use crate::{Store, StoreError};

impl Store {
    /// Drops a database: its name is free again at once, and its rows give their room back. Whether there was one. What a writer
    /// has under way meanwhile may come too late to be seen by anyone.
    pub fn drop_database(&self, name: &str) -> Result<bool, StoreError> {
        let Some(id) = self.catalog.read().catalog.database(name) else {
            return Ok(false);
        };
        // Rows first: a crash in between leaves a database without rows, not rows without a database.
        self.delete_all(id)?;
        self.with_catalog(|state, entries| {
            entries.extend(state.catalog.drop_database(id));
            Ok(())
        })?;
        self.log.commit(self.log.last_sequence())?;
        // What came in between.
        self.delete_all(id)?;
        self.carry_out_deletes()?;
        Ok(true)
    }

    /// Deletes the rows in a range of a table's groups that satisfy all matchers.
    pub fn delete_rows(
        &self,
        database: &str,
        table: &str,
        matchers: &[CompiledMatcher],
        range: &TimeRange,
    ) -> Result<Deleted, StoreError> {
        let Some(id) = self.catalog.read().catalog.database(database) else {
            return Ok(Deleted::default());
        };
        let selected = self.select_table(database, table, &[], matchers)?;
        let mut groups = vec![RoaringBitmap::new(); self.shards.len()];
        let mut deleted = Deleted::default();
        for group in selected.iter() {
            deleted.series += group.columns.len() as u64;
            let of_shard = groups.get_mut(group.shard);
            deleted.groups += u64::from(of_shard.is_some_and(|of_shard| of_shard.insert(group.key.group)));
        }
        self.delete_groups(id, groups, range)?;
        Ok(deleted)
    }

    /// Merges until no row on disk is masked any more: their room is given back, and what has no rows left leaves the index.
    pub fn carry_out_deletes(&self) -> Result<(), StoreError> {
        while self.deletes_pending() > 0 && self.merge_parts(true)? {}
        Ok(())
    }

    fn delete_all(&self, database: DatabaseId) -> Result<(), StoreError> {
        let mut all = Vec::with_capacity(self.shards.len());
        for shard in &self.shards {
            let catalog = self.catalog.read();
            let mut groups = RoaringBitmap::new();
            for (_, measurement) in catalog.catalog.measurements(database) {
                let of = shard.groups.read().groups.of_measurement(database, measurement);
                groups |= of.map_err(StoreError::index(&self.options.directory))?;
            }
            all.push(groups);
        }
        self.delete_groups(database, all, &TimeRange::ALL)
    }

    fn delete_groups(
        &self,
        database: DatabaseId,
        groups: Vec<RoaringBitmap>,
        range: &TimeRange,
    ) -> Result<(), StoreError> {
        for (shard, groups) in self.shards.iter().zip(&groups) {
            check_folds_whole(&shard.parts_and_deletes().0, groups, range)?;
        }
        for (shard, groups) in self.shards.iter().zip(groups).filter(|(_, groups)| !groups.is_empty()) {
            self.delete_in(shard, &Delete { sequence: 0, database, range: *range, groups, columns: Vec::new() })?;
        }
        Ok(())
    }
}

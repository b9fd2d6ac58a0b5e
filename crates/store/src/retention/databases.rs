//! Dropping: a database with all that is in it, and rows of a table.

use index::{CompiledMatcher, DatabaseId, MeasurementId, RoaringBitmap};
use model::TimeRange;

use crate::head::shard::Shard;
use crate::retention::Deleted;
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
        self.drop_regular(id)?;
        self.forget_table_ttls(name, None)?;
        self.forget_table_layouts(name, None)?;
        self.forget_trims(name, None)?;
        self.forget_unfolded(name, None)?;
        self.with_catalog(|state, entries| {
            entries.extend(state.catalog.drop_database(id));
            Ok(())
        })?;
        self.log.commit(self.log.last_sequence())?;
        // Cursors must not take what another database of the name gets for this one's.
        self.caches.log_series().clear();
        // What came in between.
        self.delete_all(id)?;
        self.carry_out_deletes()?;
        Ok(true)
    }

    /// Drops a table: its rows, columns and types are gone at once, its tokens are stale, and a new one of its name has its own columns.
    /// Returns whether there was one.
    pub fn drop_table(&self, database: &str, table: &str) -> Result<bool, StoreError> {
        let found = {
            let catalog = &self.catalog.read().catalog;
            catalog.database(database).and_then(|database| Some((database, catalog.measurement(database, table)?)))
        };
        let Some((id, measurement)) = found else { return Ok(false) };
        self.forget_table_ttls(database, Some(table))?;
        self.forget_table_layouts(database, Some(table))?;
        self.forget_trims(database, Some(table))?;
        self.forget_unfolded(database, Some(table))?;
        let database = id;
        // Rows first: a crash in between leaves a table without rows, not rows without a table.
        self.delete_groups(database, self.groups_of(database, measurement)?, &TimeRange::ALL)?;
        self.with_catalog(|state, entries| {
            entries.extend(state.catalog.drop_measurement(measurement));
            Ok(())
        })?;
        self.log.commit(self.log.last_sequence())?;
        self.caches.log_series().clear();
        self.clear_dropped(database, measurement)?;
        self.carry_out_deletes()?;
        self.purge_dropped(database, measurement)?;
        Ok(true)
    }

    /// Makes the groups of a dropped measurement stale, and deletes what came for them until then.
    fn clear_dropped(&self, database: DatabaseId, measurement: MeasurementId) -> Result<(), StoreError> {
        let groups = self.groups_of(database, measurement)?;
        if groups.iter().all(RoaringBitmap::is_empty) {
            return Ok(());
        }
        for (shard, groups) in self.shards.iter().zip(&groups) {
            shard.groups.write().removed |= groups;
        }
        // From now on no writer finds them by what it looked up before.
        self.ingestor.forget_groups();
        self.delete_groups(database, groups, &TimeRange::ALL)
    }

    /// Takes the groups of a dropped measurement out of the index, as far as they have no rows.
    fn purge_dropped(&self, database: DatabaseId, measurement: MeasurementId) -> Result<(), StoreError> {
        let groups = self.groups_of(database, measurement)?;
        self.shards.iter().zip(groups).try_for_each(|(shard, groups)| self.purge_groups(shard, groups))
    }

    /// Does what drops of tables before this opening left to do.
    pub(crate) fn finish_drops(&self) -> Result<(), StoreError> {
        let dropped: Vec<(DatabaseId, MeasurementId)> = self.catalog.read().catalog.dropped_measurements().collect();
        for (database, measurement) in dropped {
            self.clear_dropped(database, measurement)?;
            self.purge_dropped(database, measurement)?;
        }
        Ok(())
    }

    /// The groups of a measurement, shard by shard.
    fn groups_of(&self, database: DatabaseId, measurement: MeasurementId) -> Result<Vec<RoaringBitmap>, StoreError> {
        let of_shard = |shard: &Shard| {
            let groups = shard.groups.read().groups.of_measurement(database, measurement);
            groups.map_err(StoreError::index(&self.options.directory))
        };
        self.shards.iter().map(of_shard).collect()
    }

    /// Declares tags of a table that exists, so that it has them before any row.
    pub fn declare_tags(&self, database: &str, table: &str, tags: &[String]) -> Result<(), StoreError> {
        self.with_catalog(|state, entries| {
            let catalog = &mut state.catalog;
            let found = catalog.database(database).and_then(|database| catalog.measurement(database, table));
            if let Some(measurement) = found {
                entries.extend(tags.iter().filter_map(|tag| catalog.register_tag(measurement, tag)));
            }
            Ok(())
        })?;
        self.log.commit(self.log.last_sequence())
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
        while self.deletes_pending() > 0 && self.merge_what_is_there(true)? {}
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

    pub(super) fn delete_groups(
        &self,
        database: DatabaseId,
        groups: Vec<RoaringBitmap>,
        range: &TimeRange,
    ) -> Result<(), StoreError> {
        for (shard, groups) in self.shards.iter().zip(&groups) {
            self.check_folds_whole(shard, groups, range)?;
        }
        for (shard, groups) in self.shards.iter().zip(groups).filter(|(_, groups)| !groups.is_empty()) {
            self.delete_in(shard, &Delete { sequence: 0, database, range: *range, groups, columns: Vec::new() })?;
        }
        Ok(())
    }
}

//! Upkeep of an open database: backups, compaction, policies, deletes.

use model::{Matcher, TimeRange};
use platform::objects::{ObjectOptions, is_inside};
use query::views::{SourceDelete, ViewCatalog};
use store::{BackupReport, CompactReport, DatabasePolicy, Deleted, Progress, PruneReport, StoreError};

use crate::Db;

impl Db {
    /// Copies what the folder holds now to an address (a folder, `s3://bucket/prefix`, …) that may hold earlier backups; with `keep`,
    /// removes all but the newest so many afterwards. Reads and writes go on; two backups at a time take turns.
    pub fn backup(
        &self,
        url: &str,
        objects: &ObjectOptions,
        keep: Option<usize>,
        tell: &mut dyn FnMut(&Progress),
    ) -> Result<(BackupReport, Option<PruneReport>), StoreError> {
        let _turn = self.backing_up.lock();
        self.check_target(url)?;
        let target = self.platform.objects.open(url, objects).map_err(StoreError::Objects)?;
        let report = self.store.backup(&*target, tell)?;
        let pruned = keep.map(|keep| store::prune(&*target, keep)).transpose()?;
        Ok((report, pruned))
    }

    /// As Prometheus's snapshots: a backup in `snapshots` of the folder itself, which is no part of what it backs up.
    pub fn snapshot(&self, tell: &mut dyn FnMut(&Progress)) -> Result<BackupReport, StoreError> {
        let _turn = self.backing_up.lock();
        let to = self.store.directory().join("snapshots");
        let target = self.platform.objects.open(&to.to_string_lossy(), &ObjectOptions::default());
        self.store.backup(&*target.map_err(StoreError::Objects)?, tell)
    }

    /// A backup inside of what it backs up would go with it, and be taken for files of the folder.
    fn check_target(&self, url: &str) -> Result<(), StoreError> {
        let own = self.store.directory().display().to_string();
        let objects = self.store.objects_url();
        let Some(outer) = [Some(own.as_str()), objects].into_iter().flatten().find(|outer| is_inside(url, outer))
        else {
            return Ok(());
        };
        Err(StoreError::Invalid(format!(
            "the backup target {url} is inside of {outer}, which is backed up; name a target outside of it"
        )))
    }

    /// Flushes, merges until no merge is due, and gives back the room of deleted rows.
    pub fn compact(&self, tell: &mut dyn FnMut(&Progress)) -> Result<CompactReport, StoreError> {
        self.store.compact(tell)
    }

    /// Forgets the losses that answers warn of: an operator has seen them. How many there were.
    pub fn acknowledge_losses(&self) -> Result<usize, StoreError> {
        self.store.acknowledge_losses()
    }

    /// How a database keeps its data; `None` if there is none of that name.
    pub fn policy(&self, database: &str) -> Option<DatabasePolicy> {
        self.store.policy(database)
    }

    /// Returns whether there is a database of a name.
    pub fn has_database(&self, database: &str) -> bool {
        self.store.has_database(database)
    }

    /// Says how a database keeps its data; made if it does not exist. Refused where its views cannot be kept right by that.
    pub fn set_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), StoreError> {
        self.views.change_policy(database, policy)
    }

    /// Deletes the samples in a range of all series that satisfy one of the sets of matchers. They are gone when this returns.
    pub fn delete(
        &self,
        database: &str,
        matcher_sets: &[Vec<Matcher>],
        range: &TimeRange,
    ) -> Result<Deleted, StoreError> {
        let mut total = Deleted::default();
        let delete = SourceDelete { database, table: None, range: *range };
        let hold = self.views.before_delete(&delete).map_err(|error| StoreError::Invalid(error.to_string()))?;
        for matchers in matcher_sets {
            let compiled = index::compile(matchers).map_err(|error| StoreError::Invalid(error.to_string()))?;
            let deleted = self.store.delete(database, &compiled, range)?;
            total.groups += deleted.groups;
            total.series += deleted.series;
        }
        drop(hold);
        Ok(total)
    }
}

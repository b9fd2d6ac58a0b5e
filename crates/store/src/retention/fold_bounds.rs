//! When samples are folded of which views are made, and the tables that are not folded: those that views write.
//!
//! In other databases the age of samples says whether they are folded. Where a fold would change what a view is made of, rows from before a time are refused
//! first; then the guard of expiry says how far samples may be folded, and is told, and the bound is on disk, before any is.

use std::collections::{BTreeMap, BTreeSet};

use index::{DatabaseId, RoaringBitmap};
use tracing_mutex::parkinglot::RwLock;

use crate::compaction::CompactionJob;
use crate::head::shard::Shard;
use crate::part::{BLOCK_SLOTS, PartInfo, PartKey};
use crate::retention::by_windows::{PAUSE_NS, older_before_ns};
use crate::retention::expiry_guard::Going;
use crate::retention::policy::DatabasePolicy;
use crate::retention::table_ttl::TableName;
use crate::{Store, StoreError};

/// The kind of the documents that hold the bounds, by the names of databases, in nanoseconds since 1970.
const KIND: &str = "folds-by-windows";
/// The kind of the documents that name tables which are not folded though no view may write them any more; they are empty.
const UNFOLDED_KIND: &str = "unfolded-table";

/// A database whose samples are folded once views have what they need of them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FoldBound {
    database: String,
    /// Rows before this are refused: they are folded, or about to be.
    closed_before_ns: i64,
    /// Samples before this may be folded; on disk.
    foldable_before_ns: i64,
    /// Before this the guard is not asked, in nanoseconds of the monotonic clock.
    next_look_ns: u64,
    /// Another number after each call of [`Store::hold_folds`]: what the guard said before does not know of the newest view.
    views: u64,
}

/// What of databases is not folded, or not yet.
#[derive(Default)]
pub(crate) struct Folding {
    bounds: RwLock<BTreeMap<DatabaseId, FoldBound>>,
    /// Tables whose samples stay as they are.
    unfolded: RwLock<BTreeSet<TableName>>,
}

impl Folding {
    /// The time before which samples of a retention class may be folded.
    pub(crate) fn foldable_before_ns(&self, class: u32, policies: &BTreeMap<DatabaseId, DatabasePolicy>) -> i64 {
        let bounds = self.bounds.read();
        let is_of_class = |id: &DatabaseId| policies.get(id).is_some_and(|policy| policy.has_class(class));
        let of_class = bounds.iter().filter(|(id, _)| is_of_class(id));
        of_class.map(|(_, bound)| bound.foldable_before_ns).min().unwrap_or(i64::MAX)
    }

    /// The times before which databases take no rows, as their samples are about to be folded.
    pub(crate) fn closed(&self) -> BTreeMap<DatabaseId, i64> {
        self.bounds.read().iter().map(|(id, bound)| (*id, bound.closed_before_ns)).collect()
    }

    /// As [`Self::closed`], of one database; `i64::MIN`: it takes rows of any age.
    pub(crate) fn closed_before_ns(&self, database: DatabaseId) -> i64 {
        self.bounds.read().get(&database).map_or(i64::MIN, |bound| bound.closed_before_ns)
    }
}

impl Store {
    /// Takes up the bounds that a folder has that is opened, and has the samples of these databases, and of no others, folded as the guard says; with how far
    /// views reach back, as for [`Store::hold_folds`].
    pub fn open_fold_bounds(&self, databases: &BTreeMap<String, i64>) {
        for (database, bytes) in self.documents(KIND) {
            let known_ns = (*bytes).try_into().map(i64::from_le_bytes);
            if !databases.contains_key(&database) {
                // It cannot be removed from a folder that is only read.
                let _ = self.remove_document(KIND, &database);
            } else if let (Some(id), Ok(known_ns)) = (self.database_number(&database), known_ns) {
                self.retention.folding.bounds.write().insert(id, FoldBound::new(&database, known_ns));
            }
        }
        databases.iter().for_each(|(database, reach_ns)| drop(self.hold_folds(database, *reach_ns)));
        let named = self.documents(UNFOLDED_KIND).into_iter().filter_map(|(name, _)| TableName::of_document(&name));
        self.retention.folding.unfolded.write().extend(named);
    }

    /// Has the samples of a database folded only as the guard says from now on, and returns the time before which some may be folded by now, in nanoseconds
    /// since 1970; `i64::MIN`: none are. From there on rows are refused for as long as a view reaches back, in nanoseconds. On disk when this returns.
    ///
    /// # Errors
    /// As every change of the manifest; the guard is asked until the folder is closed.
    pub fn hold_folds(&self, database: &str, reach_ns: i64) -> Result<i64, StoreError> {
        let Some(id) = self.database_number(database) else { return Ok(i64::MIN) };
        let _moving = self.retention.moving.lock();
        let known_ns = {
            let mut bounds = self.retention.folding.bounds.write();
            let known_ns = bounds.get(&id).map(|bound| bound.foldable_before_ns);
            bounds.entry(id).or_insert_with(|| FoldBound::new(database, i64::MIN)).views += 1;
            known_ns
        };
        // No fold begins any more: those that have begun are among these.
        let foldable_ns = known_ns.unwrap_or_else(|| self.folded_before_ns(id));
        if let Some(bound) = self.retention.folding.bounds.write().get_mut(&id) {
            bound.foldable_before_ns = foldable_ns;
            bound.closed_before_ns = bound.closed_before_ns.max(closed_before_ns(foldable_ns, reach_ns));
        }
        self.ingestor.look_again();
        if known_ns.is_none() {
            self.put_document(KIND, database, &foldable_ns.to_le_bytes())?;
        }
        Ok(foldable_ns)
    }

    /// Has the samples of a database folded by their age again.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn release_folds(&self, database: &str) -> Result<(), StoreError> {
        let _moving = self.retention.moving.lock();
        self.retention.folding.bounds.write().retain(|_, bound| bound.database != database);
        self.remove_document(KIND, database).map(drop)
    }

    /// The time before which samples of a database may be folded, if views hold the others; in nanoseconds since 1970.
    pub fn foldable_before_ns(&self, database: &str) -> Option<i64> {
        let id = self.database_number(database)?;
        self.retention.folding.bounds.read().get(&id).map(|bound| bound.foldable_before_ns)
    }

    /// The widths to which samples of a database are folded, or were, in nanoseconds.
    pub fn fold_widths_ns(&self, database: &str) -> BTreeSet<i64> {
        let Some(id) = self.database_number(database) else { return BTreeSet::new() };
        let policy = self.policy_of(id);
        let folds = self.folds_of_classes(&policy);
        let mut widths_ns: BTreeSet<i64> = folds.into_iter().map(|(_, width_ns)| width_ns).collect();
        self.each_folded_part(&policy, |info| widths_ns.extend([info.fold_ns]));
        widths_ns
    }

    /// The ages and widths by which samples of a database are folded: those of what it wrote by an earlier policy may be another database's now.
    fn folds_of_classes(&self, policy: &DatabasePolicy) -> Vec<(i64, i64)> {
        let policies = self.retention.policies.read();
        let of_classes = policies.values().filter(|other| policy.has_class(other.class));
        of_classes.flat_map(|other| other.folds.iter().copied()).collect()
    }

    /// Has rows of a database taken again that were refused as they were about to be folded, but for those before a time that is given, and those of the time up
    /// to which some may be folded; in nanoseconds since 1970.
    pub fn reopen_folds(&self, database: &str, closed_ns: i64) {
        let Some(id) = self.database_number(database) else { return };
        if let Some(bound) = self.retention.folding.bounds.write().get_mut(&id) {
            bound.closed_before_ns = bound.closed_before_ns.min(closed_ns.max(bound.foldable_before_ns));
        }
    }

    /// The time before which a database takes no rows, as their samples are folded or about to be; `i64::MIN`: it takes rows of any age.
    pub fn folds_closed_before_ns(&self, database: &str) -> i64 {
        let id = self.database_number(database);
        id.map_or(i64::MIN, |id| self.retention.folding.closed_before_ns(id))
    }

    /// Has the samples of a table not folded from now on, in merges that begin; returns whether they were until now.
    pub fn keep_unfolded(&self, database: &str, table: &str) -> bool {
        self.retention.folding.unfolded.write().insert(TableName::new(database, table))
    }

    /// As [`Self::keep_unfolded`], until the table is dropped.
    ///
    /// # Errors
    /// As every change of the manifest.
    pub fn keep_unfolded_for_good(&self, database: &str, table: &str) -> Result<(), StoreError> {
        let name = TableName::new(database, table);
        self.keep_unfolded(database, table);
        if !self.has_document(UNFOLDED_KIND, &name.document()) {
            self.put_document(UNFOLDED_KIND, &name.document(), &[])?;
        }
        Ok(())
    }

    /// Has the samples of a table folded again.
    pub fn release_unfolded(&self, database: &str, table: &str) {
        self.retention.folding.unfolded.write().remove(&TableName::new(database, table));
    }

    /// Forgets what was said of a database's tables, or of one of them.
    pub(crate) fn forget_unfolded(&self, database: &str, table: Option<&str>) -> Result<(), StoreError> {
        let known = self.retention.folding.unfolded.read().clone();
        for name in known.into_iter().filter(|name| name.is_of(database, table)) {
            self.remove_document(UNFOLDED_KIND, &name.document())?;
            self.retention.folding.unfolded.write().remove(&name);
        }
        Ok(())
    }

    /// Returns once no merge is under way that was begun before.
    pub fn await_merges(&self) {
        self.shards.iter().for_each(|shard| drop(shard.work.lock()));
    }

    /// Returns whether samples of a table are folded.
    ///
    /// # Errors
    /// If the index or a part cannot be read.
    pub fn has_folds(&self, database: &str, table: &str) -> Result<bool, StoreError> {
        let selected = self.select_table(database, table, &[], &[])?;
        let parts: Vec<_> = self.shards.iter().map(|shard| shard.parts_and_deletes().0).collect();
        for group in selected.iter() {
            let blocks: BTreeSet<u32> = group.columns.iter().map(|column| column.slot / BLOCK_SLOTS).collect();
            let of_shard = parts.get(group.shard).into_iter().flat_map(|parts| parts.iter());
            for part in of_shard.filter(|part| part.info.fold_ns > 0) {
                let mut has_nodes = false;
                for block in &blocks {
                    let key = PartKey { block: *block, ..group.key };
                    part.find(key, self.caches.index_blocks(), |_, nodes| has_nodes |= nodes.is_some())?;
                }
                if has_nodes {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// The groups of a shard whose samples stay as they are.
    pub(crate) fn unfolded_groups(&self, shard: &Shard) -> Result<RoaringBitmap, StoreError> {
        let tables = self.retention.folding.unfolded.read().clone();
        let mut groups = RoaringBitmap::new();
        for name in &tables {
            if let Some((database, measurement)) = name.number(&self.catalog.read().catalog) {
                let of = shard.groups.read().groups.of_measurement(database, measurement);
                groups |= of.map_err(StoreError::index(&self.options.directory))?;
            }
        }
        Ok(groups)
    }

    /// Returns whether a merge folds samples that views hold by now.
    pub(crate) fn is_held_from_folding<'a>(
        &self,
        class: u32,
        job: &CompactionJob,
        mut inputs: impl Iterator<Item = &'a PartInfo>,
    ) -> bool {
        let bound_ns = self.retention.folding.foldable_before_ns(class, &self.retention.policies.read());
        inputs.any(|info| info.fold_ns < job.fold_ns && info.patch_of == 0 && info.partition.end_ns >= bound_ns)
    }

    /// The time before which samples of a database are folded, or about to be.
    fn folded_before_ns(&self, database: DatabaseId) -> i64 {
        let policy = self.policy_of(database);
        let mut folded_before_ns = i64::MIN;
        self.each_folded_part(&policy, |info| {
            folded_before_ns = folded_before_ns.max(info.partition.end_ns.saturating_add(1));
        });
        for shard in &self.shards {
            let state = shard.state.lock();
            let sealed = state.sealed.iter().filter(|sealed| policy.has_class(sealed.class));
            folded_before_ns =
                sealed.map(|sealed| sealed.range.end_ns.saturating_add(1)).fold(folded_before_ns, i64::max);
        }
        folded_before_ns
    }

    fn each_folded_part(&self, policy: &DatabasePolicy, mut each: impl FnMut(&PartInfo)) {
        for shard in &self.shards {
            let (parts, _) = shard.parts_and_deletes();
            let is_folded = |info: &&PartInfo| info.fold_ns > 0 && policy.has_class(info.class);
            parts.iter().map(|part| &part.info).filter(is_folded).for_each(&mut each);
        }
    }

    /// Has samples folded that are old enough in databases whose views hold them, as far as the guard lets them. Returns whether some may be. Of a bound that the
    /// guard has just kept nothing is asked, unless it is forced.
    ///
    /// # Errors
    /// The first error of a database: its samples stay, those of others are folded.
    pub(crate) fn move_fold_bounds(&self, is_forced: bool) -> Result<bool, StoreError> {
        let clock_ns = self.monotonic_ns();
        let due: Vec<(DatabaseId, FoldBound)> = {
            let bounds = self.retention.folding.bounds.read();
            let due = bounds.iter().filter(|(_, bound)| is_forced || bound.next_look_ns <= clock_ns);
            due.map(|(id, bound)| (*id, bound.clone())).collect()
        };
        let (mut moved, mut failed) = (false, None);
        for (id, bound) in due {
            match self.move_fold_bound(id, &bound) {
                Ok(has_moved) => moved |= has_moved,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(moved), Err)
    }

    fn move_fold_bound(&self, id: DatabaseId, known: &FoldBound) -> Result<bool, StoreError> {
        let Some(guard) = self.retention.expiry_guard.get() else { return Ok(false) };
        let folds = self.folds_of_classes(&self.policy_of(id));
        let Some(age_ns) = folds.into_iter().map(|(age_ns, _)| age_ns).min() else { return Ok(false) };
        let old_before_ns = older_before_ns(self.trusted_now_ns(), age_ns);
        if old_before_ns <= known.foldable_before_ns {
            return Ok(false);
        }
        let change = |change: &dyn Fn(&mut FoldBound)| {
            self.retention.folding.bounds.write().get_mut(&id).into_iter().for_each(change);
        };
        // From here on the windows of what is to be folded get no rows: those on their way are looked at again.
        change(&|bound| bound.closed_before_ns = bound.closed_before_ns.max(old_before_ns));
        self.ingestor.look_again();
        let before_ns = guard.may_go_before_ns(&known.database, Going::Folded, old_before_ns);
        if before_ns <= known.foldable_before_ns {
            let next_look_ns = self.monotonic_ns().saturating_add(PAUSE_NS);
            change(&|bound| bound.next_look_ns = next_look_ns);
            return Ok(false);
        }
        if !guard.before_expiry(&known.database, Going::Folded, before_ns)? {
            return Ok(false);
        }
        // The guard has locks of its own: meanwhile there may be another view, or none.
        let _moving = self.retention.moving.lock();
        let is_same =
            |bound: &FoldBound| (bound.views, bound.foldable_before_ns) == (known.views, known.foldable_before_ns);
        if !self.retention.folding.bounds.read().get(&id).is_some_and(is_same) {
            return Ok(false);
        }
        self.put_document(KIND, &known.database, &before_ns.to_le_bytes())?;
        change(&|bound| bound.foldable_before_ns = before_ns);
        Ok(true)
    }
}

/// The time before which rows are refused where samples before a time may be folded and views reach so far back.
const fn closed_before_ns(foldable_ns: i64, reach_ns: i64) -> i64 {
    if foldable_ns == i64::MIN { foldable_ns } else { foldable_ns.saturating_add(reach_ns) }
}

impl FoldBound {
    fn new(database: &str, before_ns: i64) -> Self {
        Self {
            database: database.to_owned(),
            closed_before_ns: before_ns,
            foldable_before_ns: before_ns,
            next_look_ns: 0,
            views: 0,
        }
    }
}

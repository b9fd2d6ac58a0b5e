//! What goes: rows past keeping, deleted rows; and how much room the rest may take on the fast tier.
//!
//! * [`policy`]: what a database's says, and its bytes · [`table_ttl`]: of one table · [`series_trim`]: of some series · [`table_layout`]: columns as they were declared
//! * [`by_windows`]: of databases that views are made of · [`fold_bounds`]: when their samples are folded · [`expiry_guard`]: what knows of views
//! * [`databases`]: databases that are dropped · [`deletes`]: rows that are deleted · [`trash`]: files that wait to be removed
//! * [`whole_folds`]: folds are deleted as wholes
//! * [`time`]: what is past keeping · [`trusted_time`]: a clock that no jump moves

pub(crate) mod by_windows;
pub(crate) mod databases;
pub(crate) mod deletes;
pub(crate) mod expiry_guard;
pub(crate) mod fold_bounds;
pub(crate) mod policy;
pub(crate) mod series_trim;
pub(crate) mod table_layout;
pub(crate) mod table_ttl;
pub(crate) mod time;
pub(crate) mod trash;
pub(crate) mod trusted_time;
pub(crate) mod whole_folds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use index::{CompiledMatcher, DatabaseId, MeasurementId, RoaringBitmap, Slot};
use model::TimeRange;
use tracing_mutex::parkinglot::{Mutex, RwLock};

use crate::compaction::{self, Lengths, Policy};
use crate::head::shard::{Shard, TrashedPart};
use crate::journal::{Change, ChangeKind};
use crate::log::{NewRecord, record};
use crate::manifest::{Edit, State};
use crate::part::{Part, PartInfo};
use crate::retention::by_windows::WindowBounds;
use crate::retention::deletes::Delete;
use crate::retention::expiry_guard::Guard;
use crate::retention::fold_bounds::Folding;
use crate::retention::policy::DatabasePolicy;
use crate::retention::series_trim::SeriesTrims;
use crate::retention::table_layout::TableLayouts;
use crate::retention::table_ttl::TableTtls;
use crate::retention::trusted_time::TrustedTime;
use crate::{Store, StoreError};

/// What a delete touched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Groups that matched.
    pub groups: u64,
    /// Series (columns of groups) that matched.
    pub series: u64,
}

/// Which columns of which measurements a delete masks; none stands for all.
type MaskedColumns = BTreeMap<MeasurementId, BTreeSet<Slot>>;

/// The groups of one shard that a delete masks, and which of their columns.
#[derive(Default)]
struct Masked {
    groups: RoaringBitmap,
    columns: MaskedColumns,
}

/// How long rows stay, and where.
pub(crate) struct Retention {
    /// As in the manifest.
    policies: RwLock<BTreeMap<DatabaseId, DatabasePolicy>>,
    /// Tables that keep their rows less long than their databases do.
    pub(crate) table_ttls: RwLock<TableTtls>,
    /// Columns of tables as they were declared.
    pub(crate) table_layouts: RwLock<TableLayouts>,
    /// What has to know before rows go by them.
    expiry_guard: Guard,
    /// Databases whose rows go by windows.
    window_bounds: RwLock<WindowBounds>,
    /// When samples of which views are made are folded, and tables that are not.
    pub(crate) folding: Folding,
    /// Locked while a bound is written down and moves, before `window_bounds` and those of `folding`.
    moving: Mutex<()>,
    /// Up to when series of tables went that keep their rows less long than others of the table.
    series_trims: RwLock<SeriesTrims>,
    /// Length of partitions on the fast tier.
    fast_partition_length_ns: AtomicI64,
    /// The clock that policies go by.
    trusted_time: TrustedTime,
}

impl Retention {
    /// As the manifest has it.
    pub(crate) fn new(state: &State, trusted_time: TrustedTime) -> Self {
        Self {
            policies: RwLock::new(state.policies.clone()),
            table_ttls: RwLock::new(table_ttl::of_state(state)),
            table_layouts: RwLock::new(table_layout::of_state(state)),
            expiry_guard: Guard::none(),
            window_bounds: RwLock::new(WindowBounds::new()),
            folding: Folding::default(),
            moving: Mutex::new(()),
            series_trims: RwLock::new(series_trim::of_state(state)),
            fast_partition_length_ns: AtomicI64::new(state.fast_partition_length_ns),
            trusted_time,
        }
    }

    /// The oldest timestamp that a database of a policy keeps at a time.
    pub(crate) fn oldest_ns(&self, database: DatabaseId, policy: &DatabasePolicy, now_ns: i64) -> i64 {
        self.oldest_by_age_ns(database, policy, now_ns).max(policy.floor_ns)
    }

    /// As [`Self::oldest_ns`], whatever an earlier policy took.
    pub(crate) fn oldest_by_age_ns(&self, database: DatabaseId, policy: &DatabasePolicy, now_ns: i64) -> i64 {
        let by_age_ns = policy.oldest_by_age_ns(now_ns);
        if by_age_ns == i64::MIN {
            return by_age_ns;
        }
        self.window_bounds.read().get(&database).map_or(by_age_ns, |bound| bound.kept_from_ns.min(by_age_ns))
    }
}

impl Store {
    /// Lengths of partitions now.
    pub(crate) fn lengths(&self) -> Lengths {
        Lengths::new(self.retention.fast_partition_length_ns.load(Ordering::Relaxed))
    }

    /// Retention classes of the databases that have a policy; all others are in class 0.
    pub(crate) fn classes(&self) -> BTreeMap<DatabaseId, u32> {
        self.retention.policies.read().iter().map(|(database, policy)| (*database, policy.class)).collect()
    }

    /// How a retention class is merged, and how long the longest of its databases keeps rows.
    pub(crate) fn merge_policy(&self, class: u32) -> Policy {
        let policies = self.retention.policies.read();
        let of_class = policies.values().filter(|policy| policy.has_class(class)).map(|policy| policy.retention_ns);
        // Databases without a policy are in class 0, and keep everything.
        let keeps_all = class == 0 || of_class.clone().any(|retention_ns| retention_ns == 0);
        let current = policies.values().find(|policy| policy.class == class);
        Policy {
            level0_partitions_max: self.options.level0_partitions_max,
            level0_parts_max: self.options.level0_parts_max,
            patches_max: self.options.patches_max,
            join_bytes_max: self.options.join_bytes_max,
            retention_ns: if keeps_all { 0 } else { of_class.max().unwrap_or(0) },
            folds: current.map(|policy| policy.folds.clone()).unwrap_or_default(),
            foldable_before_ns: self.retention.folding.foldable_before_ns(class, &policies),
        }
    }

    /// The time before which all databases of a retention class keep no rows.
    fn oldest_of_class_ns(&self, class: u32, now_ns: i64) -> i64 {
        if self.merge_policy(class).retention_ns <= 0 {
            return i64::MIN;
        }
        let policies = self.retention.policies.read();
        let of_class = policies.iter().filter(|(_, policy)| policy.has_class(class));
        let oldest = of_class.map(|(database, policy)| self.retention.oldest_by_age_ns(*database, policy, now_ns));
        oldest.min().unwrap_or(i64::MIN)
    }

    /// What of a range a database still keeps.
    pub(crate) fn retained(&self, database: DatabaseId, range: &TimeRange) -> TimeRange {
        match self.retention.policies.read().get(&database) {
            None => *range,
            Some(policy) => {
                let oldest_ns = self.retention.oldest_ns(database, policy, self.trusted_now_ns());
                TimeRange::new(range.start_ns.max(oldest_ns), range.end_ns)
            }
        }
    }

    /// How a database keeps its data.
    pub fn policy(&self, database: &str) -> Option<DatabasePolicy> {
        let id = self.catalog.read().catalog.database(database)?;
        Some(self.retention.policies.read().get(&id).cloned().unwrap_or_default())
    }

    /// How a database keeps its data, by its number.
    pub(crate) fn policy_of(&self, database: DatabaseId) -> DatabasePolicy {
        self.retention.policies.read().get(&database).cloned().unwrap_or_default()
    }

    /// Returns whether there is a database of a name.
    pub fn has_database(&self, database: &str) -> bool {
        self.catalog.read().catalog.database(database).is_some()
    }

    /// Returns whether queries of a database fail whose answer would be made of what folding left.
    pub fn is_strict(&self, database: &str) -> bool {
        let id = self.catalog.read().catalog.database(database);
        id.is_some_and(|id| self.retention.policies.read().get(&id).is_some_and(|policy| policy.is_strict))
    }

    /// Says how a database keeps its data; made if it does not exist. What is kept less long than before disappears at
    /// once; files go when no database keeps anything in them.
    pub fn set_policy(&self, database: &str, policy: &DatabasePolicy) -> Result<(), StoreError> {
        policy.check().map_err(StoreError::Invalid)?;
        let is_new = self.catalog.read().catalog.database(database).is_none();
        let id = self.database_id(database)?;
        // Makes the database itself durable before the manifest names its number.
        self.flush_all()?;
        let mut policies = self.retention.policies.write();
        let known = policies.get(&id).cloned().unwrap_or_default();
        if known.retains_like(policy) {
            if known.is_strict != policy.is_strict {
                let known = DatabasePolicy { is_strict: policy.is_strict, ..known };
                self.commit_at_trusted_time(&mut vec![Edit::Policy { database: id, policy: known.clone() }])?;
                policies.insert(id, known);
            }
            return Ok(());
        }
        let alike = policies.values().find(|other| other.retains_like(policy)).map(|other| other.class);
        let next = policies.values().map(|known| known.class).max().unwrap_or(0) + 1;
        let floor_ns = self.retention.oldest_ns(id, &known, self.trusted_now_ns());
        let earlier = if is_new { Vec::new() } else { [known.earlier_classes, vec![known.class]].concat() };
        // A database that has data gets a class of its own: what it wrote later must have the larger number.
        let class = alike.filter(|_| is_new).unwrap_or(next);
        let policy = DatabasePolicy { class, floor_ns, earlier_classes: earlier, ..policy.clone() };
        // With the time that the floor follows from: after a crash no earlier one may show what is beneath it.
        self.commit_at_trusted_time(&mut vec![Edit::Policy { database: id, policy: policy.clone() }])?;
        policies.insert(id, policy);
        Ok(())
    }

    /// Puts parts all of whose time is past keeping into the trash. Whether there were any.
    pub(crate) fn drop_expired(&self) -> Result<bool, StoreError> {
        let now_ns = self.trusted_now_ns();
        let mut dropped = false;
        for shard in &self.shards {
            let _work = shard.work.lock();
            let (parts, _) = shard.parts_and_deletes();
            let mut classes: BTreeMap<u32, Vec<PartInfo>> = BTreeMap::new();
            for part in parts.iter() {
                classes.entry(part.info.class).or_default().push(part.info);
            }
            let mut expired = BTreeSet::new();
            for (class, parts) in classes {
                expired.extend(compaction::expired(&parts, self.oldest_of_class_ns(class, now_ns)));
            }
            if expired.is_empty() {
                continue;
            }
            dropped = true;
            let removed: Vec<_> = parts.iter().filter(|part| expired.contains(&part.info.id)).cloned().collect();
            let _withdrawn = self.withdraw_journal()?;
            let trashed = self.trash_parts(shard, &removed, now_ns);
            self.journal.replaced(ChangeKind::Deleted, shard.number, &removed);
            trashed?;
        }
        Ok(dropped)
    }

    /// Takes parts from readers and puts them into the trash. Their files stay, and so do their groups in the index.
    fn trash_parts(&self, shard: &Shard, removed: &[Arc<Part>], at_ns: i64) -> Result<(), StoreError> {
        let mut edits = removed.iter().map(|part| Edit::Expired { id: part.info.id, at_ns }).collect();
        self.commit_at_trusted_time(&mut edits)?;
        let gone: BTreeSet<u64> = removed.iter().map(|part| part.info.id).collect();
        let mut state = shard.state.lock();
        let kept = state.parts.iter().filter(|part| !gone.contains(&part.info.id)).cloned().collect();
        state.parts = Arc::new(kept);
        let trashed = removed.iter().map(|part| TrashedPart { part: part.clone(), at_ns });
        shard.trash.lock().extend(trashed);
        Ok(())
    }

    /// Takes groups that have no rows any more out of the index.
    pub(crate) fn purge_groups(&self, shard: &Shard, mut groups: RoaringBitmap) -> Result<(), StoreError> {
        // No row can come while the state is held: writers look whether a group is still there after they have it.
        let state = shard.state.lock();
        state.parts.iter().for_each(|part| groups -= &part.groups);
        shard.trash.lock().iter().for_each(|trashed| groups -= &trashed.part.groups);
        let is_silent = |group: &u32| {
            state.head.is_silent(*group) && state.frozen.as_ref().is_none_or(|frozen| frozen.head.is_silent(*group))
        };
        let silent: RoaringBitmap = groups.iter().filter(is_silent).collect();
        if silent.is_empty() {
            return Ok(());
        }
        let mut index = shard.groups.write();
        let entry = index.groups.remove(&silent);
        index.unlogged.extend(entry);
        index.removed |= &silent;
        self.ingestor.forget_groups();
        let told = self.log_groups(shard.number as usize, &mut index);
        drop(state);
        told
    }

    /// Halves or doubles the lengths of partitions so that levels 0 and 1 fit the fast tier.
    pub(crate) fn fit_partitions(&self) -> Result<(), StoreError> {
        let mut fast_bytes = 0;
        let mut span = TimeRange::EMPTY;
        for shard in &self.shards {
            let (parts, _) = shard.parts_and_deletes();
            for info in parts.iter().map(|part| part.info).filter(|info| info.level < 2) {
                fast_bytes += info.bytes;
                span = span.union(info.range);
            }
        }
        let lengths = self.lengths();
        let fitted = compaction::fit(lengths, fast_bytes, self.options.fast_bytes_max, compaction::length_of(&span));
        if fitted == lengths {
            return Ok(());
        }
        self.commit_edits(&[Edit::FastLength(fitted.fast_partition_length_ns)])?;
        self.retention.fast_partition_length_ns.store(fitted.fast_partition_length_ns, Ordering::Relaxed);
        Ok(())
    }

    /// Deletes the samples of all series that satisfy the matchers, in a range of time. They are gone when this returns;
    /// their room is given back at the next merge.
    pub fn delete(
        &self,
        database: &str,
        matchers: &[CompiledMatcher],
        range: &TimeRange,
    ) -> Result<Deleted, StoreError> {
        self.delete_sets(database, &[matchers.to_vec()], range)
    }

    /// As [`Store::delete`], for all series that satisfy one of several sets of matchers. A delete flushes a shard: sets that mask the same
    /// columns cost one, however many they are.
    pub fn delete_sets(
        &self,
        database: &str,
        matcher_sets: &[Vec<CompiledMatcher>],
        range: &TimeRange,
    ) -> Result<Deleted, StoreError> {
        let Some(id) = self.catalog.read().catalog.database(database) else {
            return Ok(Deleted::default());
        };
        let mut deleted = Deleted::default();
        let mut by_columns: Vec<BTreeMap<MaskedColumns, RoaringBitmap>> = vec![BTreeMap::new(); self.shards.len()];
        for matchers in matcher_sets {
            for (of_shard, masked) in by_columns.iter_mut().zip(self.masked(database, matchers, &mut deleted)?) {
                if !masked.groups.is_empty() {
                    *of_shard.entry(masked.columns).or_default() |= masked.groups;
                }
            }
        }
        for (shard, of_shard) in self.shards.iter().zip(&by_columns) {
            for groups in of_shard.values() {
                self.check_folds_whole(shard, groups, range)?;
            }
        }
        for (shard, of_shard) in self.shards.iter().zip(by_columns) {
            for (columns, groups) in of_shard {
                let columns =
                    columns.into_iter().map(|(measurement, slots)| (measurement, slots.into_iter().collect()));
                let columns = columns.collect();
                self.delete_in(shard, &Delete { sequence: 0, database: id, range: *range, groups, columns })?;
            }
        }
        Ok(deleted)
    }

    /// What the series that satisfy matchers are in each shard.
    fn masked(
        &self,
        database: &str,
        matchers: &[CompiledMatcher],
        deleted: &mut Deleted,
    ) -> Result<Vec<Masked>, StoreError> {
        let by_name = matchers.iter().any(|matcher| matcher.name() == model::METRIC_NAME);
        let mut all: Vec<Masked> = Vec::new();
        all.resize_with(self.shards.len(), Masked::default);
        for group in &self.select(database, matchers)? {
            let Some(masked) = all.get_mut(group.shard) else {
                continue;
            };
            deleted.groups += u64::from(masked.groups.insert(group.key.group));
            deleted.series += group.columns.len() as u64;
            if by_name {
                let columns = masked.columns.entry(group.key.measurement).or_default();
                columns.extend(group.columns.iter().map(|column| column.slot));
            }
        }
        Ok(all)
    }

    /// Flushes a shard and masks rows in what is then on disk: rows that come meanwhile are younger than the delete.
    pub(crate) fn delete_in(&self, shard: &Shard, delete: &Delete) -> Result<(), StoreError> {
        self.with_reserve(|| self.delete_once(shard, delete.clone()))
    }

    fn delete_once(&self, shard: &Shard, mut delete: Delete) -> Result<(), StoreError> {
        let _hurry = self.throttle.hurry();
        let _work = shard.work.lock();
        self.check_folds_whole(shard, &delete.groups, &delete.range)?;
        // A record of its own, on disk, so that no two deletes have the same number.
        let mark = self.log.append(&NewRecord::without_rows(record::MARK, &[]))?;
        self.log.commit(mark)?;
        delete.sequence = self.flush(shard)?;
        let withdrawn = self.withdraw_journal()?;
        self.commit_edits(&[Edit::AddDelete { shard: shard.number, delete: delete.clone() }])?;
        let change = Change {
            sequence: 0,
            kind: ChangeKind::Deleted,
            shard: shard.number,
            database: Some(delete.database),
            range: delete.range,
            groups: Some(Arc::new(delete.groups.clone())),
        };
        let mut state = shard.state.lock();
        state.deletes = Arc::new(state.deletes.iter().cloned().chain([delete]).collect());
        drop(state);
        self.journal.push(change);
        drop(withdrawn);
        self.drop_idle_deletes(shard)
    }

    /// Forgets deletes that no part holds masked rows of any more.
    pub(crate) fn drop_idle_deletes(&self, shard: &Shard) -> Result<(), StoreError> {
        let (parts, deletes) = shard.parts_and_deletes();
        // What is masked in the trash stays so if it is restored.
        let trash = shard.trash.lock().clone();
        let is_idle = |delete: &Delete| {
            let in_trash = trash.iter().map(|trashed| &trashed.part);
            !parts.iter().chain(in_trash).any(|part| delete.masks(part))
        };
        let idle: BTreeSet<u64> =
            deletes.iter().filter(|delete| is_idle(delete)).map(|delete| delete.sequence).collect();
        drop(trash);
        if idle.is_empty() {
            return Ok(());
        }
        let remove = |sequence: &u64| Edit::RemoveDelete { shard: shard.number, sequence: *sequence };
        self.commit_edits(&idle.iter().map(remove).collect::<Vec<_>>())?;
        let mut state = shard.state.lock();
        let kept = state.deletes.iter().filter(|delete| !idle.contains(&delete.sequence)).cloned().collect();
        state.deletes = Arc::new(kept);
        Ok(())
    }
}

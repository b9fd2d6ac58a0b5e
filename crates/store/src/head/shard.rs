//! A shard: its groups, its head, its parts, each under its own lock.
//!
//! Lock order, to be kept everywhere: catalog → groups of a shard → log, and states of shards (ascending) → groups of
//! a shard → producers → log. `measurements` are taken alone. The manifest is taken after all of them, and never held while one of them is taken. `work` of a shard,
//! then the store's `flushing`, then `journal_file`, come before all others. Cursors of the log are taken before the log and the manifest. `policies` are taken before the manifest.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use index::{GroupEntry, GroupId, Groups, MeasurementId, RoaringBitmap};
use model::TimeRange;
use tracing_mutex::parkinglot::{Mutex, RwLock};

use crate::compaction;
use crate::head::Head;
use crate::head::sealed::{Sealed, sealed_until_ns};
use crate::log::record::ShardRows;
use crate::part::Part;
use crate::retention::deletes::Delete;

/// Stands for that of a group that was not looked up yet, or is not there.
pub(crate) const NO_MEASUREMENT: MeasurementId = MeasurementId::MAX;

/// The unit of concurrency.
pub(crate) struct Shard {
    pub(crate) number: u32,
    pub(crate) groups: RwLock<ShardGroups>,
    pub(crate) state: Mutex<ShardState>,
    /// By group, that of those whose rows came by token; [`NO_MEASUREMENT`] of others.
    pub(crate) measurements: RwLock<Vec<MeasurementId>>,
    /// Held while parts are merged, deleted or moved: one at a time.
    pub(crate) work: Mutex<Rest>,
    /// No row later than this comes for time that is folded.
    pub(crate) sealed_until_ns: AtomicI64,
    /// Parts past their retention whose files are still there, oldest in the trash first. Taken after `state`, and alone otherwise.
    pub(crate) trash: Mutex<Vec<TrashedPart>>,
}

/// A part that is not read any more and whose file is still there.
#[derive(Clone)]
pub(crate) struct TrashedPart {
    pub(crate) part: Arc<Part>,
    /// Since when it is in the trash, by the trusted time.
    pub(crate) at_ns: i64,
}

/// A shard's part of the index.
#[derive(Default)]
pub(crate) struct ShardGroups {
    pub(crate) groups: Groups,
    /// Smallest sequence id of a group record whose groups no segment holds yet.
    pub(crate) unsaved_since: Option<u64>,
    /// Smallest sequence id of a group record whose groups are being written to a segment.
    pub(crate) frozen_since: Option<u64>,
    /// Segments of version 1: their groups count as unsaved, and the next segment takes their place.
    pub(crate) old_segments: Vec<u64>,
    /// Entries that the log does not hold yet, because the disk was full.
    pub(crate) unlogged: Vec<GroupEntry>,
    /// Groups that left the index since opening: rows for them must not be taken.
    pub(crate) removed: RoaringBitmap,
}

/// What readers and writers of samples share.
pub(crate) struct ShardState {
    pub(crate) head: Head,
    /// The largest timestamp that was written, or was in parts at opening.
    pub(crate) newest_ns: i64,
    /// A head that is being flushed: nothing is added to it, but it is still read.
    pub(crate) frozen: Option<Arc<Frozen>>,
    /// All parts, in order of [`compaction::age_order`]; replaced as a whole.
    pub(crate) parts: Arc<Vec<Arc<Part>>>,
    /// Groups whose rows of a range are about to be folded.
    pub(crate) sealed: Vec<Sealed>,
    /// Deletes that mask rows of parts, oldest first; replaced as a whole.
    pub(crate) deletes: Arc<Vec<Delete>>,
}

/// Since when no flush has brought anything new.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// Largest sequence id in parts.
    pub(crate) sequence: u64,
    /// When it was first seen, on the monotonic clock; 0: not yet.
    pub(crate) since_ns: u64,
}

/// A head on its way to disk.
pub(crate) struct Frozen {
    pub(crate) head: Head,
    /// Every row of the shard with a sequence id up to this is in here or in parts.
    pub(crate) sequence: u64,
}

impl ShardState {
    /// Returns whether a group's rows of an instant are folded, or about to be.
    pub(crate) fn is_sealed(&self, group: GroupId, timestamp_ns: i64) -> bool {
        Sealed::any(&self.parts, &self.sealed, group, timestamp_ns)
    }
}

impl Shard {
    pub(crate) fn new(
        number: u32,
        groups: ShardGroups,
        mut parts: Vec<Arc<Part>>,
        deletes: Vec<Delete>,
        head_bytes: usize,
    ) -> Self {
        parts.sort_unstable_by_key(|part| compaction::age_order(&part.info));
        let sealed_until_ns = AtomicI64::new(sealed_until_ns(parts.iter().map(|part| &part.info)));
        let (parts, deletes) = (Arc::new(parts), Arc::new(deletes));
        let newest_ns = parts.iter().map(|part| part.info.range.end_ns).max().unwrap_or(i64::MIN);
        let state =
            ShardState { head: Head::new(head_bytes), newest_ns, frozen: None, parts, sealed: Vec::new(), deletes };
        Self {
            number,
            groups: RwLock::new(groups),
            state: Mutex::new(state),
            measurements: RwLock::default(),
            work: Mutex::default(),
            sealed_until_ns,
            trash: Mutex::default(),
        }
    }

    /// Returns whether parts that were folded may have rows in a range: mostly there are none at all.
    pub(crate) fn may_be_folded(&self, range: &TimeRange) -> bool {
        self.sealed_until_ns.load(Ordering::Acquire) >= range.start_ns.max(i64::MIN + 1)
    }

    /// Puts rows into the head, and tells the index of groups that have more fields than before.
    pub(crate) fn apply(&self, state: &mut ShardState, rows: &ShardRows, sequence: u64) {
        let mut grown = Vec::new();
        state.head.append(rows, sequence, |group, slots| grown.push((group, slots.to_vec())));
        state.newest_ns = state.newest_ns.max(state.head.newest_ns().unwrap_or(i64::MIN));
        let is_news = |(group, slots): &(u32, Vec<u32>)| {
            let groups = &self.groups.read().groups;
            // Where the index cannot be read, reading the group will say so.
            let known = groups.slots(*group).ok().flatten();
            known.is_some_and(|known| slots.iter().any(|slot| !known.contains(*slot)))
        };
        grown.retain(is_news);
        if grown.is_empty() {
            return;
        }
        let mut index = self.groups.write();
        for (group, slots) in grown {
            let _ = index.groups.extend(group, &slots);
        }
        index.unsaved_since.get_or_insert(sequence);
    }

    /// Replaces the frozen head by the parts that it was written to.
    pub(crate) fn thaw(&self, added: Vec<Arc<Part>>) {
        let mut state = self.state.lock();
        if !added.is_empty() {
            let mut parts: Vec<Arc<Part>> = state.parts.iter().cloned().chain(added).collect();
            parts.sort_unstable_by_key(|part| compaction::age_order(&part.info));
            state.parts = Arc::new(parts);
        }
        state.frozen = None;
    }

    /// Returns whether a part exists.
    pub(crate) fn has_part(&self, id: u64) -> bool {
        self.state.lock().parts.iter().any(|part| part.info.id == id)
    }

    /// The parts on disk, and the deletes that mask some of their rows.
    pub(crate) fn parts_and_deletes(&self) -> (Arc<Vec<Arc<Part>>>, Arc<Vec<Delete>>) {
        let state = self.state.lock();
        (state.parts.clone(), state.deletes.clone())
    }

    /// Smallest sequence id that the log must keep for this shard.
    pub(crate) fn first_needed(&self) -> Option<u64> {
        let state = self.state.lock();
        let frozen = state.frozen.as_ref().and_then(|frozen| frozen.head.first_sequence());
        let groups = self.groups.read();
        [frozen, state.head.first_sequence(), groups.unsaved_since, groups.frozen_since].into_iter().flatten().min()
    }
}

//! Counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::Shared;
use crate::index::{KeyEntry, SlabMeta, SlabNode};
use crate::{Key, flash};

/// Counts since the cache was opened, and sizes now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stats {
    /// Requests, and how they ended: all, a part, nothing.
    pub gets: u64,
    /// Requests that got all.
    pub hits: u64,
    /// Requests that got the head or the tail.
    pub partial_hits: u64,
    /// Requests that got nothing.
    pub misses: u64,
    /// Bytes of points that requests got, uncompressed.
    pub hit_bytes: u64,
    /// Answers that were set.
    pub sets: u64,
    /// Bytes of points in them, uncompressed.
    pub set_bytes: u64,
    /// Reads of the file.
    pub reads: u64,
    /// Bytes read from the file.
    pub read_bytes: u64,
    /// Bytes written to the file.
    pub written_bytes: u64,
    /// Bytes of slabs with points that were set: what the file would have been written without compaction and deletes.
    pub sealed_bytes: u64,
    /// Slabs that requests read from.
    pub slab_reads: u64,
    /// Bytes that those slabs have: what would have been read without time markers.
    pub whole_slab_bytes: u64,
    /// Slabs made of what was set.
    pub slabs_sealed: u64,
    /// Slabs that went to make room.
    pub slabs_evicted: u64,
    /// Slabs that were found damaged.
    pub slabs_bad: u64,
    /// Compactions, and the slabs that they took and made.
    pub compactions: u64,
    /// Slabs that compaction took.
    pub slabs_compacted: u64,
    /// Slabs that compaction made.
    pub slabs_made: u64,
    /// Keys with anything cached.
    pub keys: u64,
    /// Slabs with points.
    pub slabs: u64,
    /// Slabs that the file has room for.
    pub slabs_max: u64,
    /// Bytes of slabs with points.
    pub slab_bytes: u64,
    /// Points in slabs.
    pub points: u64,
    /// Bytes in memory of points that are not on flash yet.
    pub open_bytes: u64,
    /// Pages of the file that were asked for and lay in memory.
    pub buffer_hits: u64,
    /// Bytes in memory of pages of the file.
    pub buffer_bytes: u64,
    /// Bytes in memory of the key index and the slab index.
    pub index_bytes: u64,
    /// The share of slabs that the LRU partition may have, in thousandths; 0 for policies without one.
    pub lru_thousandths: u64,
    /// Deletes that are remembered.
    pub deletes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) gets: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) partial_hits: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) hit_bytes: AtomicU64,
    pub(crate) sets: AtomicU64,
    pub(crate) set_bytes: AtomicU64,
    pub(crate) sealed_bytes: AtomicU64,
    pub(crate) slab_reads: AtomicU64,
    pub(crate) whole_slab_bytes: AtomicU64,
    pub(crate) slabs_sealed: AtomicU64,
    pub(crate) slabs_evicted: AtomicU64,
    pub(crate) slabs_bad: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) compacted_bytes: AtomicU64,
    pub(crate) slabs_compacted: AtomicU64,
    pub(crate) slabs_made: AtomicU64,
    work: Mutex<bool>,
    woken: Condvar,
}

impl Counters {
    #[allow(clippy::unused_self, reason = "reads as what it is: a counter of these grows")]
    pub(crate) fn add(&self, counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn count_hit(&self, is_whole: bool, bytes: usize) {
        self.add(if is_whole { &self.hits } else { &self.partial_hits }, 1);
        self.add(&self.hit_bytes, bytes as u64);
    }

    pub(crate) fn wake(&self) {
        *self.work.lock() = true;
        self.woken.notify_one();
    }

    pub(crate) fn wait_for_work(&self, timeout_ms: u64) {
        let mut work = self.work.lock();
        if !*work {
            self.woken.wait_for(&mut work, Duration::from_millis(timeout_ms));
        }
        *work = false;
    }
}

impl Shared {
    pub(super) fn stats(&self) -> Stats {
        let counters = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (buffer_hits, buffer_bytes) = self.flash.buffer.stats();
        let state = self.state.lock();
        let slabs = || state.slabs.iter().flatten();
        // A hash map keeps a byte beside each entry and an eighth of its room free.
        let key_bytes = (size_of::<Key>() + size_of::<KeyEntry>() + 1) * 8 / 7;
        let heap_bytes: usize = state.keys.values().map(KeyEntry::heap_bytes).sum();
        let sets = state.field_sets.iter().map(|set| size_of_val(&**set) + 2 * size_of::<usize>() + size_of_val(set));
        let sets: usize = sets.sum();
        let nodes = slabs().count() * (size_of::<SlabNode>() + 8);
        let metas =
            state.slabs.capacity() * size_of::<Option<Box<SlabMeta>>>() + slabs().count() * size_of::<SlabMeta>();
        let deletes = state.deletes.len() * size_of::<flash::Delete>() * 2;
        Stats {
            gets: get(&counters.gets),
            hits: get(&counters.hits),
            partial_hits: get(&counters.partial_hits),
            misses: get(&counters.misses),
            hit_bytes: get(&counters.hit_bytes),
            sets: get(&counters.sets),
            set_bytes: get(&counters.set_bytes),
            reads: get(&self.flash.reads),
            read_bytes: get(&self.flash.bytes_read),
            written_bytes: get(&self.flash.bytes_written),
            sealed_bytes: get(&counters.sealed_bytes),
            slab_reads: get(&counters.slab_reads),
            whole_slab_bytes: get(&counters.whole_slab_bytes),
            slabs_sealed: get(&counters.slabs_sealed),
            slabs_evicted: get(&counters.slabs_evicted),
            slabs_bad: get(&counters.slabs_bad),
            compactions: get(&counters.compactions),
            slabs_compacted: get(&counters.slabs_compacted),
            slabs_made: get(&counters.slabs_made),
            keys: state.keys.len() as u64,
            slabs: slabs().count() as u64,
            slabs_max: state.slabs.len() as u64,
            slab_bytes: slabs().map(|meta| u64::from(meta.used_bytes)).sum(),
            points: slabs().map(|meta| u64::from(meta.points)).sum(),
            open_bytes: state.open_bytes as u64,
            buffer_hits,
            buffer_bytes: buffer_bytes as u64,
            index_bytes: (state.keys.len() * key_bytes + heap_bytes + sets + nodes + metas + deletes) as u64,
            lru_thousandths: state.policy.lru_share().map_or(0, |share| (share * 1000.0) as u64),
            deletes: state.deletes.len() as u64,
        }
    }
}

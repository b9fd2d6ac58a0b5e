//! What takes memory, and what happens when there is too little: heads are flushed earlier, new series are refused with a
//! reason, what is there goes on being written and read.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Store;
use crate::shard::Shard;

/// Share of the limit that index, keys and the indexes of parts may take before new series are refused.
const INDEX_SHARE: (u64, u64) = (7, 10);

/// Share of the limit that heads keep for themselves however large the index is.
const HEADS_SHARE_MIN: (u64, u64) = (1, 8);

/// Share of the limit that all running queries may take together: a reader never takes the writers' room.
const QUERIES_SHARE: (u64, u64) = (1, 4);

/// How much one query may hold for each byte that all leave free: there is always room for a small one, whatever large ones hold. One
/// alone gets four fifths, two get four ninths each (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet
/// switches, 1998).
const HELD_PER_FREE: u64 = 4;

/// What all running queries hold together, and how much that may be.
#[derive(Debug)]
pub struct QueryMemory {
    used_bytes: AtomicU64,
    /// Bytes that they may hold.
    pub bytes_max: u64,
}

impl QueryMemory {
    pub(crate) const fn new(memory_bytes_max: u64) -> Self {
        Self { used_bytes: AtomicU64::new(0), bytes_max: memory_bytes_max / QUERIES_SHARE.1 * QUERIES_SHARE.0 }
    }

    /// Takes so many bytes for a query that has some already, or takes none and says `false`.
    pub fn take(&self, bytes: u64, held_bytes: u64) -> bool {
        let held_bytes = held_bytes.saturating_add(bytes);
        let fits = |used: u64| {
            let used = used.checked_add(bytes)?;
            let free = self.bytes_max.checked_sub(used)?;
            (held_bytes <= free.saturating_mul(HELD_PER_FREE)).then_some(used)
        };
        self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Gives back bytes that were taken.
    pub fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes held now.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// Bytes in memory, by what holds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Newest rows that are in no part yet.
    pub heads: u64,
    /// Groups and catalog, as far as they are not in mapped files.
    pub index: u64,
    /// Raw group keys that are remembered.
    pub keys: u64,
    /// Indexes of open parts.
    pub parts: u64,
    /// Blocks of objects, and what of parts is held decoded: index blocks and the ends of chunks.
    pub cache: u64,
    /// What running queries hold.
    pub queries: u64,
    /// Memory of rows and requests that are done with, kept for the next ones.
    pub spare: u64,
    /// Answers that whoever embeds the store keeps.
    pub results: u64,
}

impl MemoryUse {
    /// All together.
    pub fn total(&self) -> u64 {
        self.heads + self.spare + self.fixed()
    }

    /// What neither a flush frees nor is given back when memory is short.
    fn fixed(&self) -> u64 {
        self.index + self.keys + self.parts + self.cache + self.queries + self.results
    }
}

/// Bytes that the heads may take beside the rest.
fn heads_bytes_max(limit: u64, heads_max: u64, fixed: u64) -> u64 {
    let least = limit / HEADS_SHARE_MIN.1 * HEADS_SHARE_MIN.0;
    limit.saturating_sub(fixed).max(least).min(heads_max)
}

/// Why new series are refused, if they are.
fn refusal(limit: u64, memory: &MemoryUse) -> Option<String> {
    let held = memory.index + memory.keys + memory.parts;
    let most = limit / INDEX_SHARE.1 * INDEX_SHARE.0;
    (held > most).then(|| {
        format!(
            "new series are refused: index and keys hold {held} bytes of the {most} that they may (7/10 of \
             memory_bytes_max = {limit}); raise memory_bytes_max or write fewer series"
        )
    })
}

impl Store {
    /// Bytes in memory now.
    pub fn memory(&self) -> MemoryUse {
        let catalog_bytes = self.catalog.read().catalog.memory_bytes();
        let mut memory = MemoryUse {
            index: catalog_bytes as u64,
            keys: self.keys.memory_bytes() as u64,
            queries: self.query_memory.used_bytes(),
            spare: self.spare.size_bytes() as u64 + self.requests_bytes.load(Ordering::Relaxed),
            results: self.results_bytes.load(Ordering::Relaxed),
            cache: self.settled.as_ref().map_or(0, |settled| settled.tier.counters().memory_bytes)
                + (self.seen.memory_bytes() + self.tails.memory_bytes() + self.chosen.memory_bytes()) as u64,
            ..MemoryUse::default()
        };
        for shard in &self.shards {
            memory.index += shard.groups.read().groups.memory_bytes() as u64;
            memory.heads += heads_bytes(shard);
            memory.spare += shard.state.lock().head.spare().size_bytes() as u64;
            let (parts, _) = shard.parts_and_deletes();
            memory.parts += parts.iter().map(|part| part.memory_bytes() as u64).sum::<u64>();
        }
        memory
    }

    /// What all running queries take their memory from.
    pub fn query_memory(&self) -> std::sync::Arc<QueryMemory> {
        self.query_memory.clone()
    }

    /// Says how many bytes of answers are kept: heads give way to them.
    pub fn hold_results(&self, bytes: u64) {
        self.results_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Says how many bytes of requests that are done with are kept outside for the next ones; whether memory is so short that they are
    /// better given back.
    pub fn hold_requests(&self, bytes: u64) -> bool {
        self.requests_bytes.store(bytes, Ordering::Relaxed);
        self.memory_is_short.load(Ordering::Relaxed)
    }

    /// Looks at what is held, and sets how much heads may take and whether new series are refused.
    pub(crate) fn account(&self) {
        let memory = self.memory();
        let limit = self.options.memory_bytes_max;
        let heads = heads_bytes_max(limit, self.options.head_bytes_max as u64, memory.fixed());
        self.heads_bytes.store(heads, Ordering::Relaxed);
        let is_short = memory.total() > limit;
        self.memory_is_short.store(is_short, Ordering::Relaxed);
        self.shards.iter().for_each(|shard| shard.state.lock().head.spare().look(is_short));
        if is_short {
            self.seen.give_back();
            self.tails.give_back();
            self.chosen.give_back();
            self.spare.give_back();
        }
        *self.refusal.write() = refusal(limit, &memory);
    }
}

fn heads_bytes(shard: &Shard) -> u64 {
    let state = shard.state.lock();
    let frozen = state.frozen.as_ref().map_or(0, |frozen| frozen.head.bytes());
    (state.head.bytes() + frozen) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_give_way_to_the_index_down_to_their_share() {
        assert_eq!(heads_bytes_max(800, 256, 100), 256);
        assert_eq!(heads_bytes_max(800, 256, 600), 200);
        assert_eq!(heads_bytes_max(800, 256, 790), 100);
    }

    #[test]
    fn queries_share_a_quarter_of_the_limit() {
        let memory = QueryMemory::new(400);
        assert!(memory.take(60, 0) && memory.take(20, 0));
        assert!(!memory.take(21, 0));
        memory.give_back(60);
        assert!(!memory.take(u64::MAX, 20) && !memory.take(1, u64::MAX));
        assert_eq!((memory.used_bytes(), memory.bytes_max), (20, 100));
    }

    /// How much queries of such greed come to hold when each takes a byte after the other.
    fn held_by_greedy(memory: &QueryMemory, count: usize) -> Vec<u64> {
        let mut held = vec![0; count];
        while held.iter_mut().fold(false, |any, held| {
            let took = memory.take(1, *held);
            *held += u64::from(took);
            any | took
        }) {}
        held
    }

    #[test]
    fn the_greedy_leave_room_for_small_ones() {
        for (greedy, bytes_max, share) in [(1, 1000, 800), (2, 900, 400), (3, 1300, 400)] {
            let memory = QueryMemory::new(4 * bytes_max);
            assert_eq!(held_by_greedy(&memory, greedy), vec![share; greedy]);
            assert!(memory.take(50, 0) && !memory.take(1, share), "{greedy}");
        }
    }

    #[test]
    fn new_series_are_refused_with_a_reason() {
        let memory = |index| MemoryUse { index, heads: 10_000, ..MemoryUse::default() };
        assert_eq!(refusal(1000, &memory(700)), None);
        assert!(refusal(1000, &memory(701)).is_some_and(|reason| reason.contains("memory_bytes_max = 1000")));
    }
}

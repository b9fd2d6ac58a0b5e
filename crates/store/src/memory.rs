//! What takes memory, and what happens when there is too little: heads are flushed earlier, new series are refused with a
//! reason, what is there goes on being written and read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use platform::Clock;

use crate::head::shard::Shard;
use crate::{Store, StoreOptions};

// The budgets of all caches and buffer pools in memory. What each is worth, in counts: `docs/decisions/0019-caches-in-memory.md`.
//
// | cache | where | spares |
// |---|---|---|
// | results, newest samples of selectors | `db::results`, setting `result_cache_memory_bytes_max` | evaluating what was evaluated |
// | blocks of objects | `tier::blocks`, setting of the object tier | requests to the object store |
// | index blocks | `cache::index_blocks` | decoding a block to find one key |
// | last rows of chunks | `cache::last_rows` | decoding a chunk for its end |
// | selections, and what is derived from them | `cache::selections`, `read::last_rows` | labels of groups, searching parts for last rows |
// | matched groups | `index::matcher` | regular expressions over all values of a label |
// | series of the log | `log::cursor::rows` | looking up labels for each sample that a cursor reads |
// | timestamps | `read::times_cache`, each reader | decoding the timestamps that series of a scrape share |
//
// Pools of buffers spare page faults: rows and log records (`write::buffer_pool`, `log::writer`), blocks of heads (`head::block_pool`, as
// many as a head has), and outside the store columns of requests (`ingest::batch::columns`) and bodies (`server::http::body`).

/// What a cache may take.
pub(crate) struct CacheBudget {
    /// One part in so many of the limit.
    pub(crate) share: u64,
    /// Bytes at most.
    pub(crate) bytes_max: u64,
}

impl CacheBudget {
    /// The bytes that it may take of a limit.
    pub(crate) fn bytes(&self, memory_bytes_max: u64) -> usize {
        (memory_bytes_max / self.share).min(self.bytes_max) as usize
    }

    /// The bytes for each of so many parts of it.
    pub(crate) fn bytes_each(&self, memory_bytes_max: u64, parts: usize) -> usize {
        self.bytes(memory_bytes_max) / parts.max(1)
    }
}

/// Decoded index blocks of parts.
pub(crate) const INDEX_BLOCK_CACHE: CacheBudget = CacheBudget { share: 32, bytes_max: 64 << 20 };
/// Decoded last rows of chunks.
pub(crate) const LAST_ROWS_CACHE: CacheBudget = CacheBudget { share: 64, bytes_max: 32 << 20 };
/// Groups that matchers selected; what readers derive from them may take as much again.
pub(crate) const SELECTION_CACHE: CacheBudget = CacheBudget { share: 64, bytes_max: 32 << 20 };
/// Groups that regular expressions matched, in the indexes of all shards.
pub(crate) const MATCH_CACHE: CacheBudget = CacheBudget { share: 64, bytes_max: 64 << 20 };
/// Labels of series that cursors of the log read.
pub(crate) const LOG_SERIES_CACHE: CacheBudget = CacheBudget { share: 64, bytes_max: 64 << 20 };
/// Timestamps that one reader decoded.
pub(crate) const TIMES_CACHE_BYTES_MAX: usize = 4 << 20;
/// Blocks and payloads of requests that are done with, each.
pub(crate) const BUFFER_POOL_BYTES_MAX: usize = 16 << 20;
/// The buffer of log records that is kept for the next ones.
pub(crate) const LOG_BUFFER_BYTES_MAX: usize = 8 << 20;

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

/// How much all queries, or requests, of one tenant may hold for each byte that is free: alone it gets eight ninths, and others always find
/// the last one. It is more than one of them may hold, so that a tenant's large queries leave room for its own small ones.
const TENANT_HELD_PER_FREE: u64 = 8;

/// Share of the limit that all requests on their way in may take together: bodies, what they unpack to, and the rows that are made of them.
const REQUESTS_SHARE: (u64, u64) = (1, 4);

/// Share of the limit that each pool may take however much everything else holds.
const POOL_SHARE_MIN: (u64, u64) = (1, 16);

/// What the program takes beside what is counted, at most: code, stacks, the allocator's own.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;

/// Share of a small limit that is set apart for that.
const PROGRAM_SHARE: (u64, u64) = (1, 8);

/// The one ledger of what clients cause: what the store holds for itself, as it was counted last, and what all pools have lent.
struct Ledger {
    clock: Arc<dyn Clock>,
    limit_bytes: u64,
    store_bytes: AtomicU64,
    lent_bytes: AtomicU64,
}

impl Ledger {
    /// Lends bytes if they fit beside everything else, or if the pool has not had its least share.
    fn lend(&self, bytes: u64, used_bytes: u64) -> bool {
        let least = self.limit_bytes / POOL_SHARE_MIN.1 * POOL_SHARE_MIN.0;
        let program = PROGRAM_BYTES_MAX.min(self.limit_bytes / PROGRAM_SHARE.1 * PROGRAM_SHARE.0);
        let taken = program.saturating_add(self.store_bytes.load(Ordering::Relaxed));
        let before = self.lent_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = taken.saturating_add(before).saturating_add(bytes) <= self.limit_bytes;
        if fits || used_bytes.saturating_add(bytes) <= least {
            return true;
        }
        self.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        false
    }
}

/// Memory that clients' queries, or their requests, hold together. Asked before anything is allocated for them.
pub struct MemoryPool {
    ledger: Arc<Ledger>,
    used_bytes: AtomicU64,
    /// Bytes that they may hold.
    pub bytes_max: u64,
    /// Threads that wait for bytes.
    waiting: AtomicUsize,
    /// Held by a thread from its last try until it waits.
    trying: Mutex<()>,
    given_back: Condvar,
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used_bytes = self.used_bytes();
        formatter.debug_struct("MemoryPool").field("used_bytes", &used_bytes).finish_non_exhaustive()
    }
}

/// The pools of a folder.
pub(crate) struct MemoryPools {
    pub(crate) queries: Arc<MemoryPool>,
    pub(crate) requests: Arc<MemoryPool>,
}

impl MemoryPools {
    pub(crate) fn new(memory_bytes_max: u64, clock: Arc<dyn Clock>) -> Self {
        let ledger = Arc::new(Ledger {
            clock,
            limit_bytes: memory_bytes_max,
            store_bytes: AtomicU64::new(0),
            lent_bytes: AtomicU64::new(0),
        });
        let pool = |(share, of): (u64, u64)| {
            Arc::new(MemoryPool {
                ledger: ledger.clone(),
                used_bytes: AtomicU64::new(0),
                bytes_max: memory_bytes_max / of * share,
                waiting: AtomicUsize::new(0),
                trying: Mutex::new(()),
                given_back: Condvar::new(),
            })
        };
        Self { queries: pool(QUERIES_SHARE), requests: pool(REQUESTS_SHARE) }
    }

    /// Says what the store holds beside what it lends.
    fn account(&self, store_bytes: u64) {
        self.queries.ledger.store_bytes.store(store_bytes, Ordering::Relaxed);
    }
}

/// What the queries, or the requests, of one tenant hold of a pool together.
#[derive(Debug)]
pub struct TenantMemory {
    pool: Arc<MemoryPool>,
    used_bytes: AtomicU64,
}

impl TenantMemory {
    /// Takes so many bytes for a query or a request that has some already, or takes none and says `false`.
    pub fn take(&self, bytes: u64, held_bytes: u64) -> bool {
        let taken = self.pool.take(bytes, self.holdings(held_bytes));
        self.count(taken, bytes)
    }

    /// As [`TenantMemory::take`], but waits for others to give bytes back, for so long at most. Only for threads that may block.
    pub fn take_within(&self, bytes: u64, held_bytes: u64, patience: Duration) -> bool {
        let taken = self.pool.take_within(bytes, self.holdings(held_bytes), patience);
        self.count(taken, bytes)
    }

    const fn holdings(&self, held_bytes: u64) -> Holdings<'_> {
        Holdings { held_bytes, tenant_bytes: &self.used_bytes }
    }

    fn count(&self, taken: bool, bytes: u64) -> bool {
        if taken {
            self.used_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back bytes that were taken.
    pub fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.pool.give_back(bytes);
    }

    /// The pool.
    pub const fn pool(&self) -> &Arc<MemoryPool> {
        &self.pool
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes.load(Ordering::Relaxed)
    }
}

/// The bytes that count against a request for more: those of the query or the request itself, and those of all of its tenant's.
#[derive(Debug, Clone, Copy)]
struct Holdings<'a> {
    held_bytes: u64,
    /// Others of the tenant may take and give back meanwhile.
    tenant_bytes: &'a AtomicU64,
}

impl Holdings<'_> {
    /// Returns whether so many bytes more may be taken when so many stay free after that.
    fn fits(self, bytes: u64, free_bytes: u64) -> bool {
        let is_within = |held: u64, per_free: u64| held.saturating_add(bytes) <= free_bytes.saturating_mul(per_free);
        is_within(self.held_bytes, HELD_PER_FREE)
            && is_within(self.tenant_bytes.load(Ordering::Relaxed), TENANT_HELD_PER_FREE)
    }
}

impl MemoryPool {
    /// A tenant's account of what it holds.
    pub fn tenant(self: &Arc<Self>) -> Arc<TenantMemory> {
        Arc::new(TenantMemory { pool: self.clone(), used_bytes: AtomicU64::new(0) })
    }

    /// Takes so many bytes, or takes none and says `false`.
    fn take(&self, bytes: u64, held: Holdings<'_>) -> bool {
        let fits = |used: u64| {
            let used = used.checked_add(bytes)?;
            let free = self.bytes_max.checked_sub(used)?;
            held.fits(bytes, free).then_some(used)
        };
        let Ok(used_bytes) = self.used_bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, fits) else {
            return false;
        };
        let lent = self.ledger.lend(bytes, used_bytes);
        if !lent {
            self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        lent
    }

    fn take_within(&self, bytes: u64, held: Holdings<'_>, patience: Duration) -> bool {
        if self.take(bytes, held) {
            return true;
        }
        if !self.may_ever_hold(held.held_bytes.saturating_add(bytes)) {
            return false;
        }
        let begun_ns = self.ledger.clock.monotonic_ns();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut trying = self.trying.lock();
        let taken = loop {
            if self.take(bytes, held) {
                break true;
            }
            let waited = Duration::from_nanos(self.ledger.clock.monotonic_ns().saturating_sub(begun_ns));
            let left = patience.saturating_sub(waited);
            if left.is_zero() || self.given_back.wait_for(&mut trying, left).timed_out() {
                break false;
            }
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        taken
    }

    /// Returns whether one query or request alone could hold so many bytes.
    pub fn may_ever_hold(&self, bytes: u64) -> bool {
        self.bytes_max.checked_sub(bytes).is_some_and(|free| bytes <= free.saturating_mul(HELD_PER_FREE))
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.ledger.lent_bytes.fetch_sub(bytes, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.trying.lock());
            self.given_back.notify_all();
        }
    }

    /// Bytes in use.
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
    /// Blocks of objects, and index blocks and last rows of chunks that are cached decoded.
    pub cache: u64,
    /// What running queries hold.
    pub queries: u64,
    /// What requests on their way in hold: bodies, and what is made of them.
    pub requests: u64,
    /// Memory of rows and requests that are done with, kept for the next ones.
    pub spare: u64,
    /// Results that the store's embedder caches.
    pub results: u64,
}

impl MemoryUse {
    /// All together.
    pub fn total(&self) -> u64 {
        self.heads + self.spare + self.fixed()
    }

    /// What neither a flush frees nor is given back when memory is short.
    fn fixed(&self) -> u64 {
        self.index + self.keys + self.parts + self.cache + self.queries + self.requests + self.results
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

/// How the store's memory is divided, as it was when it was last accounted for.
pub struct Memory {
    pools: MemoryPools,
    /// Bytes that all heads may take.
    heads_bytes: AtomicU64,
    /// Bytes of results that the embedder caches.
    results_bytes: AtomicU64,
    /// Bytes of buffers that the embedder keeps for the next requests.
    requests_bytes: AtomicU64,
    /// True if everything takes more than the limit.
    is_short: AtomicBool,
}

impl Memory {
    pub(crate) fn new(options: &StoreOptions, clock: Arc<dyn Clock>) -> Self {
        Self {
            pools: MemoryPools::new(options.memory_bytes_max, clock),
            heads_bytes: AtomicU64::new(options.head_bytes_max as u64),
            results_bytes: AtomicU64::new(0),
            requests_bytes: AtomicU64::new(0),
            is_short: AtomicBool::new(false),
        }
    }

    /// Bytes that all heads may take.
    pub(crate) fn heads_bytes(&self) -> u64 {
        self.heads_bytes.load(Ordering::Relaxed)
    }

    /// The pool of all running queries.
    pub fn queries(&self) -> Arc<MemoryPool> {
        self.pools.queries.clone()
    }

    /// The pool of all requests on their way in.
    pub fn requests(&self) -> Arc<MemoryPool> {
        self.pools.requests.clone()
    }

    /// Accounts for cached results: heads give way to them.
    pub fn account_results(&self, bytes: u64) {
        self.results_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Accounts for buffers that the embedder keeps for the next requests. Returns whether memory is so short that it should free them.
    pub fn account_requests(&self, bytes: u64) -> bool {
        self.requests_bytes.store(bytes, Ordering::Relaxed);
        self.is_short.load(Ordering::Relaxed)
    }
}

impl Store {
    /// Bytes in memory now.
    pub fn memory_use(&self) -> MemoryUse {
        let catalog_bytes = self.catalog.read().catalog.memory_bytes();
        let mut memory = MemoryUse {
            index: catalog_bytes as u64,
            keys: self.ingestor.keys_bytes(),
            queries: self.memory.pools.queries.used_bytes(),
            requests: self.memory.pools.requests.used_bytes(),
            spare: self.ingestor.buffers_bytes() + self.memory.requests_bytes.load(Ordering::Relaxed),
            results: self.memory.results_bytes.load(Ordering::Relaxed),
            cache: self.object_tier.as_ref().map_or(0, |object_tier| object_tier.tier.counters().memory_bytes)
                + self.caches.memory_bytes(),
            ..MemoryUse::default()
        };
        memory.index += self.regular.read().values().map(|regular| regular.memory_bytes() as u64).sum::<u64>();
        for shard in &self.shards {
            memory.index += shard.groups.read().groups.memory_bytes() as u64;
            memory.heads += heads_bytes(shard);
            memory.spare += shard.state.lock().head.pool().size_bytes() as u64;
            let (parts, _) = shard.parts_and_deletes();
            memory.parts += parts.iter().map(|part| part.memory_bytes() as u64).sum::<u64>();
        }
        memory
    }

    /// The pools of queries and requests, and what the embedder accounts for.
    pub const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Counts the memory in use, and sets how much heads may take and whether new series are refused.
    pub(crate) fn account(&self) {
        let memory = self.memory_use();
        let limit = self.options.memory_bytes_max;
        self.memory.pools.account(memory.total() - memory.queries - memory.requests);
        let heads = heads_bytes_max(limit, self.options.head_bytes_max as u64, memory.fixed());
        self.memory.heads_bytes.store(heads, Ordering::Relaxed);
        let is_short = memory.total() > limit;
        self.memory.is_short.store(is_short, Ordering::Relaxed);
        self.shards.iter().for_each(|shard| shard.state.lock().head.pool().look(is_short));
        if is_short {
            self.caches.clear();
            self.shards.iter().for_each(|shard| shard.groups.read().groups.clear_matched());
            self.ingestor.clear_buffers();
        }
        self.ingestor.refuse_series(refusal(limit, &memory));
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

    fn pools(memory_bytes_max: u64) -> MemoryPools {
        MemoryPools::new(memory_bytes_max, platform::Platform::real().clock)
    }

    #[test]
    fn heads_give_way_to_the_index_down_to_their_share() {
        assert_eq!(heads_bytes_max(800, 256, 100), 256);
        assert_eq!(heads_bytes_max(800, 256, 600), 200);
        assert_eq!(heads_bytes_max(800, 256, 790), 100);
    }

    #[test]
    fn queries_share_a_quarter_of_the_limit() {
        let memory = pools(400).queries.tenant();
        assert!(memory.take(60, 0) && memory.take(20, 0));
        assert!(!memory.take(21, 0));
        memory.give_back(60);
        assert!(!memory.take(u64::MAX, 20) && !memory.take(1, u64::MAX));
        assert_eq!((memory.used_bytes(), memory.pool().bytes_max), (20, 100));
    }

    /// How much queries of such greed come to hold when each takes a byte after the other.
    fn lent_to_greedy(memory: &Arc<MemoryPool>, count: usize) -> Vec<u64> {
        let mut held = vec![0; count];
        let tenants: Vec<_> = (0..count).map(|_| memory.tenant()).collect();
        while held.iter_mut().zip(&tenants).fold(false, |any, (held, memory)| {
            let took = memory.take(1, *held);
            *held += u64::from(took);
            any | took
        }) {}
        held
    }

    #[test]
    fn the_greedy_leave_room_for_small_ones() {
        for (greedy, bytes_max, share) in [(1, 1000, 800), (2, 900, 400), (3, 1300, 400)] {
            let memory = pools(4 * bytes_max).queries;
            assert_eq!(lent_to_greedy(&memory, greedy), vec![share; greedy]);
            let other = memory.tenant();
            assert!(other.take(50, 0) && !other.take(1, share), "{greedy}");
        }
    }

    #[test]
    fn a_tenant_leaves_room_for_others_and_for_its_own_small_queries() {
        let pool = pools(4 * 900).queries;
        let (greedy, other) = (pool.tenant(), pool.tenant());
        // Many queries, each of which holds little.
        while greedy.take(1, 0) {}
        assert_eq!(greedy.used_bytes(), 800);
        assert!(other.take(40, 0) && other.take(40, 40));
        // What the other took is not the first one's any more.
        greedy.give_back(100);
        assert!(!greedy.take(100, 0));
        let (alone, held) = (pools(4 * 1000).queries.tenant(), 800);
        assert!(alone.take(held, 0) && !alone.take(1, held) && alone.take(50, 0), "its small ones have room");
    }

    #[test]
    fn pools_lend_within_the_limit_beside_the_store() {
        let pools = pools(1600);
        let (queries, requests) = (pools.queries.tenant(), pools.requests.tenant());
        // Of 1600 the program has 200 and the store 1200.
        pools.account(1200);
        assert!(queries.take(120, 0) && !queries.take(100, 0));
        assert!(requests.take(100, 0), "its least share");
        assert!(!requests.take(1, 100));
        pools.account(0);
        assert!(queries.take(100, 0) && requests.take(100, 100));
    }

    #[test]
    fn waiting_requests_get_memory_that_others_release() {
        let pool = pools(4000).requests.tenant();
        assert!(pool.take(800, 0) && !pool.take_within(900, 0, Duration::from_mins(1)), "it never could");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| pool.take_within(500, 0, Duration::from_mins(1)));
            while pool.pool.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            pool.give_back(800);
            assert!(waiter.join().unwrap());
        });
        assert_eq!(pool.used_bytes(), 500);
        assert!(!pool.take_within(700, 0, Duration::ZERO));
    }

    #[test]
    fn new_series_are_refused_with_a_reason() {
        let memory = |index| MemoryUse { index, heads: 10_000, ..MemoryUse::default() };
        assert_eq!(refusal(1000, &memory(700)), None);
        assert!(refusal(1000, &memory(701)).is_some_and(|reason| reason.contains("memory_bytes_max = 1000")));
    }
}

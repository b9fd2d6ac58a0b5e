//! Blocks of objects in memory, and on flash what memory lets go.
//!
//! Memory is `quick_cache`: weighted, and a scan passes through it without driving out what is read often. A block that
//! leaves memory goes to flash if it was read more than once while it was there, or if it has left before ([`Ghosts`]).

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use tracing_mutex::parkinglot::Mutex;

use super::flash::FlashCache;

/// What a block in memory costs beside its bytes, about.
const BLOCK_OVERHEAD_BYTES: u64 = 160;
/// Memory is cut into so many independent caches at most.
const MEMORY_SHARDS_MAX: usize = 32;
/// Places in the memory of what was let go, per block that the cache holds: four, so that few take another's slot.
const GHOSTS_PER_BLOCK: usize = 4;
const GHOSTS_MAX: usize = 1 << 22;

/// Names a block: its object by a hash of where it is, its key and its size, and its number in the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BlockKey {
    pub(super) object: u128,
    pub(super) number: u32,
}

impl BlockKey {
    fn mixed(self) -> u64 {
        let folded = (self.object as u64) ^ (self.object >> 64) as u64;
        let spread =
            (folded ^ u64::from(self.number).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        spread ^ (spread >> 29)
    }
}

impl Hash for BlockKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.mixed());
    }
}

/// Block keys hash themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

pub(super) type HashBlocks = BuildHasherDefault<AlreadyHashed>;

/// A block in memory.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    /// True if it was read again since it came.
    hit: AtomicBool,
}

impl Block {
    pub(super) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { bytes, hit: AtomicBool::new(false) })
    }
}

#[derive(Clone)]
struct Bytes;

impl Weighter<BlockKey, Arc<Block>> for Bytes {
    fn weight(&self, _key: &BlockKey, block: &Arc<Block>) -> u64 {
        block.bytes.len() as u64 + BLOCK_OVERHEAD_BYTES
    }
}

/// Gathers what an insertion drives out, so that it is written to flash outside the cache's locks.
#[derive(Clone)]
struct Gather;

impl Lifecycle<BlockKey, Arc<Block>> for Gather {
    type RequestState = Vec<(BlockKey, Arc<Block>)>;

    fn on_evict(&self, evicted: &mut Self::RequestState, key: BlockKey, block: Arc<Block>) {
        evicted.push((key, block));
    }
}

/// Remembers a fingerprint of blocks that were let go. Bounded: a newer one takes an older one's slot.
struct Ghosts {
    fingerprints: Mutex<Vec<u32>>,
}

impl Ghosts {
    fn new(count: usize) -> Self {
        Self { fingerprints: Mutex::new(vec![0; count.clamp(64, GHOSTS_MAX).next_power_of_two()]) }
    }

    /// Returns whether the block was here before; from now on it was.
    fn remembers(&self, key: BlockKey) -> bool {
        let mixed = key.mixed();
        // Zero stands for none.
        let fingerprint = ((mixed >> 32) as u32).max(1);
        let mut fingerprints = self.fingerprints.lock();
        let index = mixed as usize & (fingerprints.len() - 1);
        fingerprints.get_mut(index).is_some_and(|index| std::mem::replace(index, fingerprint) == fingerprint)
    }
}

/// Hits and misses by layer.
#[derive(Debug, Default)]
pub(super) struct BlockCounters {
    pub(super) memory_hits: AtomicU64,
    pub(super) flash_hits: AtomicU64,
    pub(super) misses: AtomicU64,
}

/// Memory in front of flash.
pub(super) struct BlockCache {
    memory: Cache<BlockKey, Arc<Block>, Bytes, HashBlocks, Gather>,
    flash: Option<FlashCache>,
    ghosts: Ghosts,
    pub(super) counters: BlockCounters,
}

impl BlockCache {
    pub(super) fn new(memory_bytes: u64, block_bytes: u64, flash: Option<FlashCache>) -> Result<Self, String> {
        let blocks = usize::try_from(memory_bytes / block_bytes).unwrap_or(usize::MAX).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(blocks)
            .weight_capacity(memory_bytes)
            .shards((blocks / 64).clamp(1, MEMORY_SHARDS_MAX))
            .build()
            .map_err(|error| error.to_string())?;
        let flash_blocks = flash.as_ref().map_or(0, FlashCache::slots);
        Ok(Self {
            memory: Cache::with_options(options, Bytes, HashBlocks::default(), Gather),
            flash,
            ghosts: Ghosts::new(blocks.saturating_add(flash_blocks).saturating_mul(GHOSTS_PER_BLOCK)),
            counters: BlockCounters::default(),
        })
    }

    /// A block from memory or flash; counts which.
    pub(super) fn get(&self, key: BlockKey) -> Option<Arc<Block>> {
        if let Some(block) = self.memory.get(&key) {
            block.hit.store(true, Ordering::Relaxed);
            self.counters.memory_hits.fetch_add(1, Ordering::Relaxed);
            return Some(block);
        }
        if let Some(bytes) = self.flash.as_ref().and_then(|flash| flash.get(key)) {
            self.counters.flash_hits.fetch_add(1, Ordering::Relaxed);
            let block = Block::new(bytes);
            self.insert(key, block.clone());
            return Some(block);
        }
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// A block that came into memory in this moment; not counted.
    pub(super) fn peek(&self, key: BlockKey) -> Option<Arc<Block>> {
        self.memory.peek(&key)
    }

    pub(super) fn insert(&self, key: BlockKey, block: Arc<Block>) {
        let mut evicted = Vec::new();
        self.memory.insert_with_lifecycle(key, block, &mut evicted);
        let Some(flash) = &self.flash else {
            return;
        };
        for (key, block) in evicted {
            if block.hit.load(Ordering::Relaxed) || self.ghosts.remembers(key) {
                flash.put(key, &block.bytes);
            }
        }
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.memory.weight()
    }

    pub(super) fn flash(&self) -> Option<&FlashCache> {
        self.flash.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ghosts_know_what_came_twice() {
        let ghosts = Ghosts::new(1024);
        let key = |number| BlockKey { object: 7, number };
        let first = (0..512).filter(|number| ghosts.remembers(key(*number))).count();
        let second = (0..512).filter(|number| ghosts.remembers(key(*number))).count();
        assert_eq!(first, 0);
        assert!(second > 256, "{second} of 512 remembered");
    }

    #[test]
    fn memory_stays_within_its_bytes() {
        let cache = BlockCache::new(10_000, 1_000, None).unwrap();
        for number in 0..1_000 {
            cache.insert(BlockKey { object: 1, number }, Block::new(vec![0; 1_000]));
            assert!(cache.memory_bytes() <= 10_000);
        }
        assert!(cache.memory_bytes() > 5_000);
    }
}

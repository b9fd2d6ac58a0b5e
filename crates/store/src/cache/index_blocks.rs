//! Index blocks, cached decoded: finding a key means to go through its block. A block is cached when it is read for the second time. Parts never
//! change, so that an entry stays valid, and a part's number is never reused.

use std::collections::HashSet;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use crate::cache::generations::Generations;
use crate::cache::number_hash::NumberHash;
use crate::memory::INDEX_BLOCK_CACHE;
use crate::part::PartKey;
use crate::part::index_block::{BlockHandle, ChunkRef, KeyEntry};

/// Locks among which blocks are divided, so that threads seldom wait for one another.
const STRIPES: usize = 16;

/// Blocks of a stripe that were read once. When there are so many, all are forgotten.
const READ_ONCE_MAX: usize = 1 << 12;

/// A part's number, and the block's in it.
type BlockId = (u64, usize);

/// What the cache has of a block.
pub(crate) enum Lookup {
    /// It is read for the first time.
    First,
    /// It was read before, and may be cached.
    Again,
    /// It is cached.
    Cached(Arc<CachedBlock>),
}

/// A decoded index block, its keys side by side: a search for many keys spends its time waiting for memory.
#[derive(Default)]
pub(crate) struct CachedBlock {
    /// In order.
    keys: Vec<PartKey>,
    /// For each key where its chunks end.
    ends: Vec<u32>,
    chunks: Vec<ChunkRef>,
    /// For each key.
    summaries: Vec<Option<BlockHandle>>,
}

impl CachedBlock {
    /// Of entries in order of their keys.
    pub(crate) fn new(entries: &[KeyEntry]) -> Self {
        let mut block = Self::default();
        block.chunks.reserve_exact(entries.iter().map(|entry| entry.chunks.len()).sum());
        for entry in entries {
            block.chunks.extend_from_slice(&entry.chunks);
            block.ends.push(block.chunks.len() as u32);
        }
        block.keys = entries.iter().map(|entry| entry.key).collect();
        block.summaries = entries.iter().map(|entry| entry.summary).collect();
        block
    }

    /// The chunks of a key, and where its summary is; `None` if the block has no such key.
    pub(crate) fn find(&self, key: PartKey) -> Option<(&[ChunkRef], Option<BlockHandle>)> {
        // Groups that came together lie side by side: the index that a key would have there is tried first, since a search looks at several.
        let guess = self.keys.first().map_or(0, |first| key.group.wrapping_sub(first.group) as usize);
        let index = if self.keys.get(guess) == Some(&key) { guess } else { self.keys.binary_search(&key).ok()? };
        let from = index.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let to = self.ends.get(index).copied();
        let chunks = from.zip(to).and_then(|(from, to)| self.chunks.get(from as usize..to as usize));
        Some((chunks.unwrap_or_default(), self.summaries.get(index).copied().flatten()))
    }

    fn memory_bytes(&self) -> usize {
        let of_key = size_of::<PartKey>() + size_of::<u32>() + size_of::<Option<BlockHandle>>();
        size_of::<Self>() + self.keys.len() * of_key + size_of_val(self.chunks.as_slice())
    }
}

/// Index blocks that readers of a store decoded.
pub(crate) struct IndexBlockCache {
    stripes: [Mutex<Stripe>; STRIPES],
}

struct Stripe {
    read_once: HashSet<BlockId, NumberHash>,
    cached: Generations<BlockId, Arc<CachedBlock>>,
}

impl IndexBlockCache {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = INDEX_BLOCK_CACHE.bytes_each(memory_bytes_max, STRIPES);
        let stripe = || Mutex::new(Stripe { read_once: HashSet::default(), cached: Generations::new(bytes_max) });
        Self { stripes: std::array::from_fn(|_| stripe()) }
    }

    fn stripe(&self, block: BlockId) -> Option<&Mutex<Stripe>> {
        self.stripes.get((block.0 as usize).wrapping_mul(7).wrapping_add(block.1) % STRIPES)
    }

    /// Looks a block up that is about to be read.
    pub(crate) fn lookup(&self, block: BlockId) -> Lookup {
        let Some(stripe) = self.stripe(block) else { return Lookup::First };
        let mut stripe = stripe.lock();
        if let Some(cached) = stripe.cached.get(block) {
            return Lookup::Cached(cached);
        }
        if stripe.read_once.len() >= READ_ONCE_MAX {
            stripe.read_once.clear();
        }
        if stripe.read_once.insert(block) { Lookup::First } else { Lookup::Again }
    }

    /// Caches a block.
    pub(crate) fn insert(&self, block: BlockId, cached: Arc<CachedBlock>) {
        if let Some(stripe) = self.stripe(block) {
            let (mut stripe, bytes) = (stripe.lock(), cached.memory_bytes());
            stripe.read_once.remove(&block);
            stripe.cached.insert(block, cached, bytes);
        }
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_stripe = |stripe: &Mutex<Stripe>| {
            let stripe = stripe.lock();
            stripe.cached.memory_bytes() + stripe.read_once.capacity() * size_of::<BlockId>()
        };
        self.stripes.iter().map(of_stripe).sum()
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        for stripe in &self.stripes {
            let mut stripe = stripe.lock();
            stripe.read_once.clear();
            stripe.cached.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;

    fn chunk(offset: u64) -> ChunkRef {
        ChunkRef { range: TimeRange::new(0, 1), sequence_first: 1, handle: BlockHandle { offset, bytes: 1 } }
    }

    fn entry(group: u32, chunks: Vec<ChunkRef>, summary: Option<BlockHandle>) -> KeyEntry {
        KeyEntry { key: PartKey { group, ..PartKey::default() }, chunks, summary }
    }

    #[test]
    fn keys_of_a_cached_block_have_their_chunks() {
        let key = |group| PartKey { group, ..PartKey::default() };
        let summary = Some(BlockHandle { offset: 9, bytes: 4 });
        let entries =
            [entry(2, vec![chunk(1), chunk(2)], None), entry(4, vec![], summary), entry(5, vec![chunk(3)], summary)];
        let block = CachedBlock::new(&entries);
        assert_eq!(block.find(key(2)), Some(([chunk(1), chunk(2)].as_slice(), None)));
        assert_eq!(block.find(key(4)), Some(([].as_slice(), summary)));
        assert_eq!(block.find(key(5)), Some(([chunk(3)].as_slice(), summary)));
        for group in [0, 3, 6] {
            assert_eq!(block.find(key(group)), None);
        }
    }

    #[test]
    fn a_block_is_cached_from_the_second_read_on() {
        let seen = IndexBlockCache::new(u64::MAX);
        assert!(matches!(seen.lookup((1, 0)), Lookup::First));
        assert!(matches!(seen.lookup((1, 0)), Lookup::Again));
        assert!(matches!(seen.lookup((2, 0)), Lookup::First));
        seen.insert((1, 0), Arc::default());
        assert!(matches!(seen.lookup((1, 0)), Lookup::Cached(_)));
        seen.clear();
        assert!(matches!(seen.lookup((1, 0)), Lookup::First));
        // Without memory for blocks none is cached.
        let none = IndexBlockCache::new(0);
        none.insert((1, 0), Arc::default());
        assert!(matches!(none.lookup((1, 0)), Lookup::First));
    }
}

//! Index blocks that readers came by: finding a key means to go through its block, so that one asked for again is held decoded, for whoever
//! comes next. Parts never change, so what is held stays right; a part's number is never another's.

use std::collections::HashSet;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use crate::cache::generations::Generations;
use crate::cache::number_hash::NumberHash;
use crate::part::PartKey;
use crate::part::index_block::{ChunkRef, KeyEntry, Place};

/// Locks among which blocks are divided, so that threads seldom wait for one another.
const STRIPES: usize = 16;

/// Blocks of a stripe of which it is known that they were seen once. When they are full, all are forgotten.
const SEEN_ONCE_MAX: usize = 1 << 12;

/// Share of the store's memory that blocks may take, and how many bytes at most.
const MEMORY_SHARE: u64 = 32;
const HELD_BYTES_MAX: u64 = 64 << 20;

/// A part's number, and the block's in it.
type BlockId = (u64, usize);

/// What is known of a block.
pub(crate) enum Sight {
    /// It was not asked for before.
    First,
    /// It was, and may be held.
    Again,
    /// It is held.
    Held(Arc<HeldBlock>),
}

/// What a block has of its keys: side by side, since whoever looks for many keys spends his time waiting for memory.
#[derive(Default)]
pub(crate) struct HeldBlock {
    /// In order.
    keys: Vec<PartKey>,
    /// For each key where its chunks end.
    ends: Vec<u32>,
    chunks: Vec<ChunkRef>,
    /// For each key.
    summaries: Vec<Option<Place>>,
}

impl HeldBlock {
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
    pub(crate) fn find(&self, key: PartKey) -> Option<(&[ChunkRef], Option<Place>)> {
        // Groups that came together lie side by side: the place that a key would have there is looked at first, since a search looks at several.
        let guess = self.keys.first().map_or(0, |first| key.group.wrapping_sub(first.group) as usize);
        let place = if self.keys.get(guess) == Some(&key) { guess } else { self.keys.binary_search(&key).ok()? };
        let from = place.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let to = self.ends.get(place).copied();
        let chunks = from.zip(to).and_then(|(from, to)| self.chunks.get(from as usize..to as usize));
        Some((chunks.unwrap_or_default(), self.summaries.get(place).copied().flatten()))
    }

    fn memory_bytes(&self) -> usize {
        let of_key = size_of::<PartKey>() + size_of::<u32>() + size_of::<Option<Place>>();
        size_of::<Self>() + self.keys.len() * of_key + size_of_val(self.chunks.as_slice())
    }
}

/// Blocks that readers of a store came by.
pub(crate) struct SeenBlocks {
    stripes: [Mutex<Seen>; STRIPES],
}

struct Seen {
    once: HashSet<BlockId, NumberHash>,
    held: Generations<BlockId, Arc<HeldBlock>>,
}

impl SeenBlocks {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = (memory_bytes_max / MEMORY_SHARE).min(HELD_BYTES_MAX) as usize / STRIPES;
        let stripe = || Mutex::new(Seen { once: HashSet::default(), held: Generations::new(bytes_max) });
        Self { stripes: std::array::from_fn(|_| stripe()) }
    }

    fn stripe(&self, block: BlockId) -> Option<&Mutex<Seen>> {
        self.stripes.get((block.0 as usize).wrapping_mul(7).wrapping_add(block.1) % STRIPES)
    }

    /// Comes by a block.
    pub(crate) fn see(&self, block: BlockId) -> Sight {
        let Some(stripe) = self.stripe(block) else { return Sight::First };
        let mut seen = stripe.lock();
        if let Some(held) = seen.held.get(block) {
            return Sight::Held(held);
        }
        if seen.once.len() >= SEEN_ONCE_MAX {
            seen.once.clear();
        }
        if seen.once.insert(block) { Sight::First } else { Sight::Again }
    }

    /// Holds a block.
    pub(crate) fn hold(&self, block: BlockId, held: Arc<HeldBlock>) {
        if let Some(stripe) = self.stripe(block) {
            let (mut seen, bytes) = (stripe.lock(), held.memory_bytes());
            seen.once.remove(&block);
            seen.held.hold(block, held, bytes);
        }
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_stripe = |stripe: &Mutex<Seen>| {
            let seen = stripe.lock();
            seen.held.memory_bytes() + seen.once.capacity() * size_of::<BlockId>()
        };
        self.stripes.iter().map(of_stripe).sum()
    }

    /// Lets go of everything.
    pub(crate) fn give_back(&self) {
        for stripe in &self.stripes {
            let mut seen = stripe.lock();
            seen.once.clear();
            seen.held.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;

    fn chunk(offset: u64) -> ChunkRef {
        ChunkRef { range: TimeRange::new(0, 1), sequence_first: 1, place: Place { offset, bytes: 1 } }
    }

    fn entry(group: u32, chunks: Vec<ChunkRef>, summary: Option<Place>) -> KeyEntry {
        KeyEntry { key: PartKey { group, ..PartKey::default() }, chunks, summary }
    }

    #[test]
    fn keys_of_a_held_block_have_their_chunks() {
        let key = |group| PartKey { group, ..PartKey::default() };
        let summary = Some(Place { offset: 9, bytes: 4 });
        let entries =
            [entry(2, vec![chunk(1), chunk(2)], None), entry(4, vec![], summary), entry(5, vec![chunk(3)], summary)];
        let block = HeldBlock::new(&entries);
        assert_eq!(block.find(key(2)), Some(([chunk(1), chunk(2)].as_slice(), None)));
        assert_eq!(block.find(key(4)), Some(([].as_slice(), summary)));
        assert_eq!(block.find(key(5)), Some(([chunk(3)].as_slice(), summary)));
        for group in [0, 3, 6] {
            assert_eq!(block.find(key(group)), None);
        }
    }

    #[test]
    fn a_block_is_held_from_the_second_time_on() {
        let seen = SeenBlocks::new(u64::MAX);
        assert!(matches!(seen.see((1, 0)), Sight::First));
        assert!(matches!(seen.see((1, 0)), Sight::Again));
        assert!(matches!(seen.see((2, 0)), Sight::First));
        seen.hold((1, 0), Arc::default());
        assert!(matches!(seen.see((1, 0)), Sight::Held(_)));
        seen.give_back();
        assert!(matches!(seen.see((1, 0)), Sight::First));
        // Who has no memory for blocks holds none.
        let none = SeenBlocks::new(0);
        none.hold((1, 0), Arc::default());
        assert!(matches!(none.see((1, 0)), Sight::First));
    }
}

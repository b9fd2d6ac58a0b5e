//! Index blocks that a reader of many groups came by: finding a key means to go through its block, so that one asked for again is held
//! decoded.

use std::collections::HashMap;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use super::PartKey;
use super::index_block::{BLOCK_KEYS, ChunkRef, KeyEntry};
use crate::number_hash::NumberHash;

/// Blocks that are held. Of others keys are found one by one.
const BLOCKS_MAX: usize = 1024;

/// About what a block takes that is held: keys have a chunk or two.
const BLOCK_BYTES: usize = BLOCK_KEYS * (size_of::<PartKey>() + size_of::<u32>() + 3 * size_of::<ChunkRef>() / 2);

/// Blocks of which it is known that they were seen once.
const SEEN_MAX: usize = 1 << 16;

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
    /// There is no room for it.
    Full,
}

/// The chunks of a block's keys: side by side, since whoever looks for many keys spends his time waiting for memory.
#[derive(Default)]
pub(crate) struct HeldBlock {
    /// In order.
    keys: Vec<PartKey>,
    /// For each key where its chunks end.
    ends: Vec<u32>,
    chunks: Vec<ChunkRef>,
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
        block
    }

    /// The chunks of a key.
    pub(crate) fn chunks_of(&self, key: PartKey) -> &[ChunkRef] {
        // Groups that came together lie side by side: the place that a key would have there is looked at first, since a search looks at several.
        let guess = self.keys.first().map_or(0, |first| key.group.wrapping_sub(first.group) as usize);
        let place = if self.keys.get(guess) == Some(&key) { Ok(guess) } else { self.keys.binary_search(&key) };
        let Ok(place) = place else { return &[] };
        let from = place.checked_sub(1).map_or(Some(0), |before| self.ends.get(before).copied());
        let to = self.ends.get(place).copied();
        let chunks = from.zip(to).and_then(|(from, to)| self.chunks.get(from as usize..to as usize));
        chunks.unwrap_or_default()
    }
}

/// Blocks that one reader came by. Parts never change, so what is held stays right.
#[derive(Default)]
pub(crate) struct SeenBlocks(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// `None` of those seen once.
    blocks: HashMap<BlockId, Option<Arc<HeldBlock>>, NumberHash>,
    held: usize,
}

impl SeenBlocks {
    /// Comes by a block.
    pub(crate) fn see(&self, block: BlockId) -> Sight {
        let mut seen = self.0.lock();
        match seen.blocks.get(&block) {
            Some(Some(entries)) => Sight::Held(entries.clone()),
            Some(None) if seen.held < BLOCKS_MAX => Sight::Again,
            None if seen.blocks.len() < SEEN_MAX => {
                seen.blocks.insert(block, None);
                Sight::First
            }
            _ => Sight::Full,
        }
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let seen = self.0.lock();
        seen.held * BLOCK_BYTES + seen.blocks.len() * size_of::<(BlockId, Option<Arc<HeldBlock>>)>()
    }

    /// Holds a block.
    pub(crate) fn hold(&self, block: BlockId, held: Arc<HeldBlock>) {
        let mut seen = self.0.lock();
        if seen.held < BLOCKS_MAX && seen.blocks.insert(block, Some(held)).flatten().is_none() {
            seen.held += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use model::TimeRange;

    use super::*;
    use crate::part::Place;

    #[test]
    fn keys_of_a_held_block_have_their_chunks() {
        let key = |group| PartKey { group, ..PartKey::default() };
        let chunk =
            |offset| ChunkRef { range: TimeRange::new(0, 1), sequence_first: 1, place: Place { offset, bytes: 1 } };
        let entry = |group, chunks| KeyEntry { key: key(group), chunks, summary: None };
        let block = HeldBlock::new(&[entry(2, vec![chunk(1), chunk(2)]), entry(4, vec![]), entry(5, vec![chunk(3)])]);
        assert_eq!(block.chunks_of(key(2)), [chunk(1), chunk(2)]);
        assert_eq!(block.chunks_of(key(5)), [chunk(3)]);
        for group in [0, 3, 4, 6] {
            assert_eq!(block.chunks_of(key(group)), []);
        }
    }

    #[test]
    fn a_block_is_held_from_the_second_time_on() {
        let seen = SeenBlocks::default();
        assert!(matches!(seen.see((1, 0)), Sight::First));
        assert!(matches!(seen.see((1, 0)), Sight::Again));
        assert!(matches!(seen.see((2, 0)), Sight::First));
        seen.hold((1, 0), Arc::default());
        seen.hold((1, 0), Arc::default());
        assert!(matches!(seen.see((1, 0)), Sight::Held(_)));
        assert_eq!(seen.0.lock().held, 1);
        for block in 1..BLOCKS_MAX {
            seen.hold((1, block), Arc::default());
        }
        assert!(matches!(seen.see((2, 0)), Sight::Full));
        assert!(matches!(seen.see((1, 1)), Sight::Held(_)));
    }
}

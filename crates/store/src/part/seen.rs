//! Index blocks that a reader of many groups came by: finding a key means to go through its block, so that one asked for again is held
//! decoded.

use std::collections::HashMap;
use std::sync::Arc;

use tracing_mutex::parkinglot::Mutex;

use super::index_block::KeyEntry;

/// Blocks that are held. Of others keys are found one by one.
const BLOCKS_MAX: usize = 1024;

/// About what a block takes that is held.
const BLOCK_BYTES: usize = 14 << 10;

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
    /// It is held: its entries, in order of their keys.
    Held(Arc<Vec<KeyEntry>>),
    /// There is no room for it.
    Full,
}

/// Blocks that one reader came by. Parts never change, so what is held stays right.
#[derive(Default)]
pub(crate) struct SeenBlocks(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// `None` of those seen once.
    blocks: HashMap<BlockId, Option<Arc<Vec<KeyEntry>>>>,
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
        seen.held * BLOCK_BYTES + seen.blocks.len() * size_of::<(BlockId, Option<Arc<Vec<KeyEntry>>>)>()
    }

    /// Holds a block's entries.
    pub(crate) fn hold(&self, block: BlockId, entries: Arc<Vec<KeyEntry>>) {
        let mut seen = self.0.lock();
        if seen.held < BLOCKS_MAX && seen.blocks.insert(block, Some(entries)).flatten().is_none() {
            seen.held += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_held_from_the_second_time_on() {
        let seen = SeenBlocks::default();
        assert!(matches!(seen.see((1, 0)), Sight::First));
        assert!(matches!(seen.see((1, 0)), Sight::Again));
        assert!(matches!(seen.see((2, 0)), Sight::First));
        seen.hold((1, 0), Arc::new(Vec::new()));
        seen.hold((1, 0), Arc::new(Vec::new()));
        assert!(matches!(seen.see((1, 0)), Sight::Held(_)));
        assert_eq!(seen.0.lock().held, 1);
        for block in 1..BLOCKS_MAX {
            seen.hold((1, block), Arc::new(Vec::new()));
        }
        assert!(matches!(seen.see((2, 0)), Sight::Full));
        assert!(matches!(seen.see((1, 1)), Sight::Held(_)));
    }
}

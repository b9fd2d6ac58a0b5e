//! Memory of shared rows that are flushed: it serves the shard's next head. Pages that are given back to the system and got anew for
//! each head cost more than the rows that are copied into them.

use std::sync::atomic::{AtomicU32, Ordering};

use tracing_mutex::parkinglot::Mutex;

use super::block::Block;

/// After so many looks without use the memory is given back: some ten seconds of rest.
const LOOKS_IDLE_MAX: u32 = 100;

/// Empty blocks with room, of one shard. There are never more than a full head has.
#[derive(Debug, Default)]
pub(crate) struct BlockPool {
    blocks: Mutex<Vec<Block>>,
    /// Looks since a block was taken.
    idle: AtomicU32,
}

impl BlockPool {
    /// A block with room for so many rows and bytes, if there is one.
    pub(super) fn take(&self, rows: usize, bytes: usize) -> Option<Block> {
        self.idle.store(0, Ordering::Relaxed);
        let mut blocks = self.blocks.lock();
        let index = blocks.iter().rposition(|block| block.has_room_of(rows, bytes))?;
        Some(blocks.swap_remove(index))
    }

    /// Keeps the memory of blocks, up to so many bytes in all.
    pub(super) fn give(&self, given: impl Iterator<Item = Block>, size_bytes_max: usize) {
        let mut blocks = self.blocks.lock();
        let mut size_bytes: usize = blocks.iter().map(Block::capacity_bytes).sum();
        for mut block in given {
            size_bytes += block.capacity_bytes();
            if size_bytes > size_bytes_max {
                return;
            }
            block.clear();
            blocks.push(block);
        }
    }

    /// Bytes that are kept.
    pub(crate) fn size_bytes(&self) -> usize {
        self.blocks.lock().iter().map(Block::capacity_bytes).sum()
    }

    /// Gives all memory back if it has been of no use for long, or at once if it is needed elsewhere.
    pub(crate) fn look(&self, memory_is_short: bool) {
        if memory_is_short || self.idle.fetch_add(1, Ordering::Relaxed) >= LOOKS_IDLE_MAX {
            *self.blocks.lock() = Vec::new();
        }
    }
}

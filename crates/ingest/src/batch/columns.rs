//! Blocks whose rows are stored: their memory serves the next request. Columns of a request take hundreds of kilobytes; got from
//! the system anew each time, their pages cost more than filling them.

use std::sync::{Mutex, PoisonError};

use model::{Batch, Block, GroupKey};

/// Blocks that are kept, and bytes of all of them together.
const BLOCKS_MAX: usize = 64;
const BYTES_MAX: usize = 16 << 20;

/// Smaller columns are not worth keeping: requests of a few rows.
const BLOCK_BYTES_MIN: usize = 16 << 10;

static SPARE: Spare = Spare(Mutex::new((Vec::new(), 0)));

/// Empty blocks, and the bytes that they have room for.
struct Spare(Mutex<(Vec<Block>, usize)>);

/// An empty block with room, if there is one.
pub(crate) fn empty_block() -> Block {
    SPARE.take()
}

/// Keeps the memory of a batch whose rows are stored for the next one.
pub fn recycle(batch: Batch<'_>) {
    batch
        .blocks
        .into_iter()
        .filter(|block| capacity_bytes(block) >= BLOCK_BYTES_MIN)
        .for_each(|block| SPARE.give(block));
}

/// Bytes that are kept for the next batches.
pub fn kept_bytes() -> usize {
    SPARE.0.lock().unwrap_or_else(PoisonError::into_inner).1
}

/// Gives what is kept back to the system.
pub fn give_back() {
    *SPARE.0.lock().unwrap_or_else(PoisonError::into_inner) = (Vec::new(), 0);
}

fn capacity_bytes(block: &Block) -> usize {
    let words = block.timestamps_ns.capacity() + block.cells.capacity();
    block.keys.capacity() * size_of::<GroupKey>() + words * size_of::<u64>() + block.lines.capacity() * size_of::<u32>()
}

impl Spare {
    fn take(&self) -> Block {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (blocks, bytes) = &mut *spare;
        let block = blocks.pop().unwrap_or_default();
        *bytes -= capacity_bytes(&block);
        block
    }

    fn give(&self, mut block: Block) {
        block.measurement = None;
        block.fields.clear();
        block.keys.clear();
        block.timestamps_ns.clear();
        block.lines.clear();
        block.cells.clear();
        let block_bytes = capacity_bytes(&block);
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (blocks, bytes) = &mut *spare;
        if blocks.len() < BLOCKS_MAX && *bytes + block_bytes <= BYTES_MAX {
            *bytes += block_bytes;
            blocks.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cells: usize) -> Block {
        Block { measurement: Some("m".to_owned()), lines: vec![1], cells: vec![7; cells], ..Block::default() }
    }

    #[test]
    fn blocks_come_back_empty_and_few_are_kept() {
        let spare = Spare(Mutex::new((Vec::new(), 0)));
        assert_eq!(capacity_bytes(&spare.take()), 0, "none is there");
        spare.give(block(1000));
        let taken = spare.take();
        assert_eq!(taken, Block::default());
        assert!(taken.cells.capacity() >= 1000);
        spare.give(block(BYTES_MAX / size_of::<u64>() + 1));
        assert_eq!(spare.take().cells.capacity(), 0, "too large");
        (0..BLOCKS_MAX + 5).for_each(|_| spare.give(block(10)));
        let kept = std::iter::from_fn(|| Some(spare.take()).filter(|block| block.cells.capacity() > 0)).count();
        assert_eq!(kept, BLOCKS_MAX);
        assert_eq!(spare.0.lock().unwrap().1, 0);
    }
}

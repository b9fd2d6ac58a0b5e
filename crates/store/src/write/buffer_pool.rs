//! Memory of requests that are written: it serves the next ones. A request's rows take hundreds of kilobytes, and pages got from the
//! system anew for each of them cost more than filling them.

use tracing_mutex::parkinglot::Mutex;

use crate::log::record::{RowBlock, ShardRows};
use crate::memory::BUFFER_POOL_BYTES_MAX;

/// Blocks and payloads that are pooled.
const BLOCKS_MAX: usize = 64;
const PAYLOADS_MAX: usize = 16;

/// Bytes that one of them may have room for, and all blocks or payloads together.
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 4 << 20;

/// Empty blocks of rows, and empty payloads of log records.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    blocks: Mutex<Vec<RowBlock>>,
    payloads: Mutex<Vec<Vec<u8>>>,
}

/// Something pooled.
trait Buffer {
    fn capacity_bytes(&self) -> usize;
}

impl Buffer for RowBlock {
    fn capacity_bytes(&self) -> usize {
        self.groups.capacity() * size_of::<u32>() + (self.timestamps_ns.capacity() + self.cells.capacity()) * 8
    }
}

impl Buffer for Vec<u8> {
    fn capacity_bytes(&self) -> usize {
        self.capacity()
    }
}

impl BufferPool {
    /// A block without rows or columns.
    pub(crate) fn block(&self) -> RowBlock {
        self.blocks.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of rows that are written.
    pub(crate) fn recycle_rows(&self, rows: Vec<ShardRows>) {
        let mut pooled = self.blocks.lock();
        for mut block in rows.into_iter().flat_map(|rows| rows.blocks) {
            block.columns.clear();
            block.groups.clear();
            block.timestamps_ns.clear();
            block.cells.clear();
            recycle(&mut pooled, block, BLOCKS_MAX);
        }
    }

    /// Bytes that are pooled.
    pub(crate) fn size_bytes(&self) -> usize {
        let blocks: usize = self.blocks.lock().iter().map(Buffer::capacity_bytes).sum();
        blocks + self.payloads.lock().iter().map(Buffer::capacity_bytes).sum::<usize>()
    }

    /// Gives all memory back to the system.
    pub(crate) fn clear(&self) {
        *self.blocks.lock() = Vec::new();
        *self.payloads.lock() = Vec::new();
    }

    /// An empty payload.
    pub(crate) fn payload(&self) -> Vec<u8> {
        self.payloads.lock().pop().unwrap_or_default()
    }

    /// Keeps the memory of a payload that is in the log.
    pub(crate) fn recycle_payload(&self, mut payload: Vec<u8>) {
        payload.clear();
        recycle(&mut self.payloads.lock(), payload, PAYLOADS_MAX);
    }
}

fn recycle<T: Buffer>(pooled: &mut Vec<T>, one: T, count_max: usize) {
    let bytes = one.capacity_bytes();
    if pooled.len() >= count_max || !(BYTES_MIN..=BYTES_MAX).contains(&bytes) {
        return;
    }
    if pooled.iter().map(Buffer::capacity_bytes).sum::<usize>() + bytes <= BUFFER_POOL_BYTES_MAX {
        pooled.push(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_empty_and_few_are_pooled() {
        let pool = BufferPool::default();
        let block = |cells| RowBlock { cells: vec![1; cells], groups: vec![1], ..RowBlock::default() };
        let rows = |blocks| vec![ShardRows { blocks, ..ShardRows::default() }];
        pool.recycle_rows(rows(vec![block(10), block(BYTES_MAX / 8 + 1), block(5000)]));
        let taken = pool.block();
        assert_eq!((taken.cells.capacity() >= 5000, &taken), (true, &RowBlock::default()));
        assert_eq!(pool.block().capacity_bytes(), 0, "the others are too small and too large");
        pool.recycle_rows(rows((0..BLOCKS_MAX + 5).map(|_| block(5000)).collect()));
        assert_eq!(pool.blocks.lock().len(), BLOCKS_MAX);
        (0..PAYLOADS_MAX + 5).for_each(|_| pool.recycle_payload(vec![7; BYTES_MAX]));
        assert_eq!(pool.payloads.lock().len(), BUFFER_POOL_BYTES_MAX / BYTES_MAX);
        assert!(pool.payload().is_empty());
        assert!(pool.size_bytes() > 0);
        pool.clear();
        assert_eq!(pool.size_bytes(), 0);
    }
}

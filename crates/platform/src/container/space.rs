//! Which blocks are free. Nothing of it is stored: what no file and no zone has is free.

use std::collections::BTreeMap;

use super::directory::BlockRun;
use super::layout::HEAD_BLOCKS;

/// Free blocks, and where the blocks that were ever used end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlockSpace {
    /// How many are free from a block on; neighbours are one run, and none ends at `end`.
    free: BTreeMap<u64, u64>,
    /// No block from here on is in use.
    end: u64,
    /// Every block from here on reads as zeros.
    written_end: u64,
}

impl BlockSpace {
    /// The space beside blocks in use, which come in order and do not overlap, of a file of so many blocks.
    pub(super) fn beside(used: &[BlockRun], file_blocks: u64) -> Self {
        let mut free = BTreeMap::new();
        let mut end = HEAD_BLOCKS;
        for run in used {
            if run.start > end {
                free.insert(end, run.start - end);
            }
            end = run.end().max(end);
        }
        Self { free, end, written_end: file_blocks.max(end) }
    }

    /// Where the blocks in use end.
    pub(super) const fn end(&self) -> u64 {
        self.end
    }

    /// Every block from here on reads as zeros.
    pub(super) const fn written_end(&self) -> u64 {
        self.written_end
    }

    /// The file was cut to the blocks in use: what comes after reads as zeros.
    pub(super) const fn was_cut(&mut self) {
        self.written_end = self.end;
    }

    /// Free runs.
    pub(super) fn free_runs(&self) -> impl Iterator<Item = BlockRun> {
        self.free.iter().map(|(start, blocks)| BlockRun { start: *start, blocks: *blocks })
    }

    /// Takes blocks that follow one another: `wanted`, or no fewer than `needed`. After a block that is given if that is possible, else from the
    /// first place that has as many as wanted, else from the first with as many as needed, else from the end.
    pub(super) fn take(&mut self, needed: u64, wanted: u64, after: Option<u64>) -> BlockRun {
        if let Some(after) = after.filter(|after| *after >= HEAD_BLOCKS) {
            if after == self.end {
                return self.take_at_end(wanted);
            }
            if let Some(blocks) = self.free.get(&after).copied().filter(|blocks| *blocks >= needed) {
                return self.carve(after, blocks.min(wanted));
            }
        }
        let first = |blocks_min: u64| self.free.iter().find(|(_, blocks)| **blocks >= blocks_min);
        match first(wanted).or_else(|| first(needed)).map(|(start, blocks)| (*start, *blocks)) {
            Some((start, blocks)) => self.carve(start, blocks.min(wanted)),
            None => self.take_at_end(wanted),
        }
    }

    /// Takes as many of so many blocks as a free run has: the first that has them all, else the largest. `None` if none is free.
    pub(super) fn take_free(&mut self, wanted: u64) -> Option<BlockRun> {
        let fitting = self.free.iter().find(|(_, blocks)| **blocks >= wanted);
        let largest = || self.free.iter().max_by_key(|(_, blocks)| **blocks);
        let (start, blocks) = fitting.or_else(largest).map(|(start, blocks)| (*start, *blocks))?;
        Some(self.carve(start, blocks.min(wanted)))
    }

    /// Takes blocks that read as zeros.
    pub(super) fn take_zeros(&mut self, blocks: u64) -> BlockRun {
        let start = self.end.max(self.written_end);
        if start > self.end {
            self.free.insert(self.end, start - self.end);
            self.end = start;
        }
        self.take_at_end(blocks)
    }

    fn take_at_end(&mut self, blocks: u64) -> BlockRun {
        let run = BlockRun { start: self.end, blocks };
        self.end += blocks;
        self.written_end = self.written_end.max(self.end);
        run
    }

    fn carve(&mut self, start: u64, blocks: u64) -> BlockRun {
        if let Some(all) = self.free.remove(&start)
            && all > blocks
        {
            self.free.insert(start + blocks, all - blocks);
        }
        BlockRun { start, blocks }
    }

    /// Blocks are free again.
    pub(super) fn give(&mut self, run: BlockRun) {
        if run.blocks == 0 {
            return;
        }
        let (mut start, mut end) = (run.start, run.end());
        if let Some((before, blocks)) = self.free.range(..start).next_back().map(|(at, blocks)| (*at, *blocks))
            && before + blocks == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(blocks) = self.free.remove(&end) {
            end += blocks;
        }
        if end == self.end {
            self.end = start;
        } else {
            self.free.insert(start, end - start);
        }
    }

    /// The free run that a block is in.
    pub(super) fn run_with(&self, block: u64) -> Option<BlockRun> {
        let (start, blocks) = self.free.range(..=block).next_back()?;
        let run = BlockRun { start: *start, blocks: *blocks };
        (run.end() > block).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is taken and given back: no block is had twice, none is lost, zeros are what was never written.
        #[test]
        fn blocks_are_had_once(steps in prop::collection::vec((0_u8..5, 1_u64..20, 0_usize..100), 1..200)) {
            let mut space = BlockSpace::beside(&[], HEAD_BLOCKS);
            let mut taken: Vec<BlockRun> = Vec::new();
            let mut written_end = HEAD_BLOCKS;
            for (kind, blocks, which) in steps {
                let run = match kind {
                    0 => Some(space.take(blocks.div_ceil(2), blocks, None)),
                    1 => {
                        let after = taken.get(which % taken.len().max(1)).map(BlockRun::end);
                        Some(space.take(blocks.div_ceil(2), blocks, after))
                    }
                    2 => {
                        let run = space.take_zeros(blocks);
                        prop_assert!(run.start >= written_end);
                        Some(run)
                    }
                    3 => space.take_free(blocks),
                    _ => {
                        if !taken.is_empty() {
                            space.give(taken.swap_remove(which % taken.len()));
                        }
                        None
                    }
                };
                if let Some(run) = run {
                    prop_assert!(run.blocks > 0 && run.blocks <= blocks && run.end() <= space.end());
                    prop_assert!(!taken.iter().any(|other| other.overlaps(&run)));
                    written_end = written_end.max(run.end());
                    taken.push(run);
                }
                let mut used = taken.clone();
                used.sort_unstable();
                let rebuilt = BlockSpace::beside(&used, space.written_end());
                prop_assert_eq!(&rebuilt, &space);
            }
        }
    }
}

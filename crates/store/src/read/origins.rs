//! Where what was read lay.

use crate::part::chunk::Rows;
use crate::part::{ChunkRef, Part};

/// Counts of what was read from one kind of storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origin {
    /// Chunks of parts; none of the head.
    pub chunks: u64,
    /// Rows that were decoded or taken, of all chosen columns together.
    pub rows: u64,
    /// Bytes of chunks and summaries, as they are stored; none of the head.
    pub bytes: u64,
}

/// Counts of what was read, by the kind of storage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Origins {
    /// Newest rows, in memory.
    pub head: Origin,
    /// Local parts by level: as flushed, merged, for the object store.
    pub levels: [Origin; 3],
    /// Parts whose bytes are in the object store alone; those that its cache of blocks had are among them.
    pub objects: Origin,
    /// Folds that a bound of what was read cuts: they count where their last sample is.
    pub cut_folds: u64,
}

impl Origin {
    fn add(&mut self, other: &Self) {
        self.chunks += other.chunks;
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}

impl Origins {
    /// All places with the names that answers have for them.
    pub const fn named(&self) -> [(&'static str, Origin); 5] {
        let [level_0, level_1, level_2] = self.levels;
        [
            ("head", self.head),
            ("level_0", level_0),
            ("level_1", level_1),
            ("level_2", level_2),
            ("object_store", self.objects),
        ]
    }

    /// Adds what else was read.
    pub fn merge(&mut self, others: &Self) {
        self.head.add(&others.head);
        self.objects.add(&others.objects);
        self.cut_folds += others.cut_folds;
        self.levels.iter_mut().zip(&others.levels).for_each(|(level, other)| level.add(other));
    }

    pub(crate) fn add_head(&mut self, rows: &[Rows]) {
        self.add_head_rows(count(rows));
    }

    /// Adds rows that were taken of a head.
    pub(crate) const fn add_head_rows(&mut self, rows: u64) {
        self.head.rows += rows;
    }

    pub(crate) fn add_chunks(&mut self, part: &Part, chunks: &[ChunkRef], rows: u64) {
        let bytes = chunks.iter().map(|chunk| u64::from(chunk.handle.bytes)).sum();
        self.origin_of(part).add(&Origin { chunks: chunks.len() as u64, rows, bytes });
    }

    pub(crate) fn add_summary(&mut self, part: &Part, bytes: usize) {
        self.origin_of(part).bytes += bytes as u64;
    }

    fn origin_of(&mut self, part: &Part) -> &mut Origin {
        if !part.data().is_local() {
            return &mut self.objects;
        }
        let [level_0, level_1, level_2] = &mut self.levels;
        match part.info.level {
            0 => level_0,
            1 => level_1,
            _ => level_2,
        }
    }
}

/// Rows of all pieces.
pub(crate) fn count(rows: &[Rows]) -> u64 {
    rows.iter().map(|rows| rows.timestamps_ns.len() as u64).sum()
}

//! A group's newest rows, row by row.

use std::sync::Arc;

use index::Slot;
use model::{TimeRange, ValueType};

use super::SealedChunk;
use super::layouts::LayoutId;
use crate::part::chunk::{self, Rows, RowsColumn};

/// One member block of a group.
#[derive(Debug, Clone, Default)]
pub(crate) struct GroupHead {
    pub(crate) layout: LayoutId,
    /// The layout of its rows among the shared ones, if it has some there.
    pub(crate) shared_layout: LayoutId,
    /// True if rows have presence words: some cells are missing.
    pub(crate) sparse: bool,
    pub(crate) unsorted: bool,
    /// Smallest and largest timestamp in the buffer.
    pub(crate) range_ns: (i64, i64),
    /// Smallest and largest sequence id in the buffer.
    pub(crate) sequences: (u64, u64),
    pub(crate) buffer: Vec<u64>,
    /// What earlier buffers became, oldest first.
    pub(crate) sealed: Vec<Sealed>,
}

/// A buffer that was full.
#[derive(Debug, Clone)]
pub(crate) enum Sealed {
    /// Of numbers, none missing: as it was. A flush encodes it, not the writer.
    Dense(Arc<DenseRows>),
    Chunk(SealedChunk),
}

/// Rows of numbers, none missing, row by row in order of arrival.
#[derive(Debug)]
pub(crate) struct DenseRows {
    pub(crate) columns: Arc<[(Slot, ValueType)]>,
    pub(crate) unsorted: bool,
    pub(crate) range: TimeRange,
    pub(crate) sequences: (u64, u64),
    pub(crate) buffer: Vec<u64>,
}

fn presence_words(width: usize) -> usize {
    width.div_ceil(64)
}

/// Returns whether a row has a cell at a index of its layout.
pub(crate) fn is_present(present: &[u64], index: usize) -> bool {
    present.get(index / 64).is_none_or(|word| word >> (index % 64) & 1 == 1)
}

/// Returns whether some cells are not numbers by themselves, but point at bytes.
pub(crate) fn has_texts(columns: &[(Slot, ValueType)]) -> bool {
    columns.iter().any(|(_, value_type)| value_type.is_elsewhere())
}

impl Sealed {
    pub(crate) fn range(&self) -> TimeRange {
        match self {
            Self::Dense(dense) => dense.range,
            Self::Chunk(chunk) => chunk.range,
        }
    }
}

impl DenseRows {
    /// The rows, sorted and merged, with the given columns (sorted) or all.
    pub(crate) fn rows(&self, slots: Option<&[Slot]>) -> Rows {
        dense_rows(&self.buffer, &self.columns, self.unsorted, slots)
    }
}

/// Turns rows of numbers, none missing, into columns, column by column: several times as fast as row by row.
pub(crate) fn dense_rows(
    buffer: &[u64],
    columns: &[(Slot, ValueType)],
    unsorted: bool,
    slots: Option<&[Slot]>,
) -> Rows {
    let rows = || buffer.chunks_exact(1 + columns.len());
    let mut found = Rows { timestamps_ns: rows().map(|row| row[0] as i64).collect(), columns: Vec::new() };
    for (index, (slot, value_type)) in columns.iter().enumerate() {
        if slots.is_none_or(|slots| slots.binary_search(slot).is_ok()) {
            let cells = rows().map(|row| row[1 + index]).collect();
            found.columns.push(RowsColumn { cells, ..RowsColumn::new(*slot, *value_type) });
        }
    }
    if unsorted { chunk::merge(&[found]) } else { found }
}

impl GroupHead {
    /// Timestamp, presence words (none: all present) and cells of each row.
    pub(crate) fn rows(&self, width: usize) -> impl Iterator<Item = (i64, &[u64], &[u64])> {
        let presence = if self.sparse { presence_words(width) } else { 0 };
        self.buffer.chunks_exact(1 + presence + width).map(move |row| {
            let (present, cells) = row[1..].split_at(presence);
            (row[0] as i64, present, cells)
        })
    }

    /// The smallest and the largest timestamp in the buffer, if it has rows.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        (!self.buffer.is_empty()).then(|| TimeRange::new(self.range_ns.0, self.range_ns.1))
    }

    /// Adds a row; `indexes` says where its cells stand in the layout, `None` that they are all of it in order.
    pub(crate) fn push(&mut self, timestamp_ns: i64, cells: &[u64], indexes: Option<&[usize]>, width: usize) {
        match indexes {
            None if !self.sparse => {
                self.buffer.reserve(1 + cells.len());
                self.buffer.push(timestamp_ns as u64);
                self.buffer.extend_from_slice(cells);
            }
            Some(indexes) if !self.sparse && indexes.len() == width => self.push_permuted(timestamp_ns, cells, indexes),
            _ => self.push_sparse(timestamp_ns, cells, indexes, width),
        }
    }

    /// A row with all cells, in another order than the layout's.
    fn push_permuted(&mut self, timestamp_ns: i64, cells: &[u64], indexes: &[usize]) {
        self.buffer.push(timestamp_ns as u64);
        let cells_at = self.buffer.len();
        self.buffer.resize(cells_at + indexes.len(), 0);
        for (cell, index) in cells.iter().zip(indexes) {
            self.buffer[cells_at + index] = *cell;
        }
    }

    fn push_sparse(&mut self, timestamp_ns: i64, cells: &[u64], indexes: Option<&[usize]>, width: usize) {
        if !self.sparse {
            let same: Vec<usize> = (0..width).collect();
            self.widen(width, width, &same);
        }
        self.buffer.push(timestamp_ns as u64);
        let presence_at = self.buffer.len();
        let cells_at = presence_at + presence_words(width);
        self.buffer.resize(cells_at + width, 0);
        for (column, cell) in cells.iter().enumerate() {
            let index = indexes.map_or(column, |indexes| indexes[column]);
            self.buffer[presence_at + index / 64] |= 1 << (index % 64);
            self.buffer[cells_at + index] = *cell;
        }
    }

    /// Rewrites the rows as sparse ones of another layout; `indexes` says where each old column goes.
    pub(crate) fn widen(&mut self, from_width: usize, to_width: usize, indexes: &[usize]) {
        let mut wider = Self { sparse: true, ..Self::default() };
        for (timestamp_ns, present, cells) in self.rows(from_width) {
            let kept = (0..from_width).filter(|index| is_present(present, *index));
            let (cells, indexes): (Vec<u64>, Vec<usize>) = kept.map(|index| (cells[index], indexes[index])).unzip();
            wider.push_sparse(timestamp_ns, &cells, Some(&indexes), to_width);
        }
        self.buffer = wider.buffer;
        self.sparse = true;
    }
}

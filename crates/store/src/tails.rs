//! The last rows of chunks, held decoded: what was written last is asked for again and again, and one row costs as much to decode as all
//! of its chunk. Chunks never change; what deletes mask of one is not held.

use std::ops::Range;
use std::sync::Arc;

use index::Slot;
use model::{TimeRange, ValueType};
use tracing_mutex::parkinglot::Mutex;

use crate::chunk::{Rows, RowsColumn};
use crate::generations::Generations;
use crate::part::{ChunkRef, Part};

/// Rows that are held of a chunk at most.
const ROWS_MAX: usize = 32;

/// Share of the store's memory that tails may take, and how many bytes at most.
const MEMORY_SHARE: u64 = 64;
const HELD_BYTES_MAX: u64 = 32 << 20;

/// A part's number, and where its chunk is in it.
type ChunkId = (u64, u64);

/// A chunk's rows from a time on: little memory, all of it in one place.
pub(crate) struct Tail {
    from_ns: i64,
    /// What was asked for; the chunk need not have all of them.
    slots: Box<[Slot]>,
    timestamps_ns: Box<[i64]>,
    columns: Box<[(Slot, ValueType)]>,
    /// The columns' cells, one column behind the other.
    cells: Box<[u64]>,
    /// Which cells are null; empty if none is.
    nulls: Box<[bool]>,
}

impl Tail {
    fn new(from_ns: i64, slots: &[Slot], rows: &Rows, places: Range<usize>) -> Option<Self> {
        let mut cells = Vec::with_capacity(places.len() * rows.columns.len());
        for column in &rows.columns {
            cells.extend_from_slice(column.cells.get(places.clone())?);
        }
        let has_nulls = rows.columns.iter().any(|column| !column.nulls.is_empty());
        let is_null = |column: &RowsColumn| places.clone().map(|row| column.is_null(row)).collect::<Vec<bool>>();
        Some(Self {
            from_ns,
            slots: slots.into(),
            timestamps_ns: rows.timestamps_ns.get(places.clone())?.into(),
            columns: rows.columns.iter().map(|column| (column.slot, column.value_type)).collect(),
            cells: cells.into(),
            nulls: if has_nulls { rows.columns.iter().flat_map(is_null).collect() } else { Box::default() },
        })
    }

    /// When its rows are.
    pub(crate) fn timestamps_ns(&self) -> &[i64] {
        &self.timestamps_ns
    }

    /// The cells of a column, and which of them are null (empty: none).
    pub(crate) fn column(&self, slot: Slot, value_type: ValueType) -> Option<(&[u64], &[bool])> {
        let rows = self.timestamps_ns.len();
        let place = self.columns.iter().position(|column| *column == (slot, value_type))?;
        let places = place * rows..(place + 1) * rows;
        Some((self.cells.get(places.clone())?, self.nulls.get(places).unwrap_or_default()))
    }

    /// A cell of a column, which mostly is where it is expected; `None` if it is null.
    pub(crate) fn cell(&self, row: usize, column: (Slot, ValueType), expected: usize) -> Option<u64> {
        let is_there = self.columns.get(expected) == Some(&column);
        let place = if is_there { expected } else { self.columns.iter().position(|found| *found == column)? };
        let place = place * self.timestamps_ns.len() + row;
        if self.nulls.get(place) == Some(&true) { None } else { self.cells.get(place).copied() }
    }

    /// What is held of some columns.
    pub(crate) fn rows(&self, slots: &[Slot]) -> Rows {
        let wanted = self.columns.iter().filter(|(slot, _)| slots.binary_search(slot).is_ok());
        let columns = wanted.filter_map(|(slot, value_type)| {
            let (cells, nulls) = self.column(*slot, *value_type)?;
            let nulls = if nulls.contains(&true) { nulls.to_vec() } else { Vec::new() };
            Some(RowsColumn { cells: cells.to_vec(), nulls, ..RowsColumn::new(*slot, *value_type) })
        });
        Rows { timestamps_ns: self.timestamps_ns.to_vec(), columns: columns.collect() }
    }

    fn size_bytes(&self) -> usize {
        let of_columns = size_of_val(&*self.slots) + size_of_val(&*self.columns) + size_of_val(&*self.nulls);
        size_of::<Self>() + size_of_val(&*self.timestamps_ns) + size_of_val(&*self.cells) + of_columns
    }
}

/// Ends of chunks that readers of a store came by.
pub(crate) struct Tails(Mutex<Generations<ChunkId, Arc<Tail>>>);

impl Tails {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = (memory_bytes_max / MEMORY_SHARE).min(HELD_BYTES_MAX) as usize;
        Self(Mutex::new(Generations::new(bytes_max)))
    }

    /// Whether of a chunk so little is wanted that it may be held, or be there.
    pub(crate) fn is_tail(chunk: &ChunkRef, range: &TimeRange) -> bool {
        let [length_ns, wanted_ns] =
            [chunk.range.start_ns, range.start_ns].map(|from_ns| i128::from(chunk.range.end_ns) - i128::from(from_ns));
        range.end_ns >= chunk.range.end_ns && wanted_ns * 8 < length_ns
    }

    /// The rows of a chunk that are in a range of which it is a tail, maybe with some before; `None` if they are not held.
    pub(crate) fn get(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot]) -> Option<Arc<Tail>> {
        let tail = self.0.lock().get((part.info.id, chunk.place.offset))?;
        let has_all = *tail.slots == *slots || slots.iter().all(|slot| tail.slots.binary_search(slot).is_ok());
        (tail.from_ns <= range.start_ns && has_all).then_some(tail)
    }

    /// Holds what of a chunk's rows is in a range of which it is a tail, if that is little and numbers only.
    pub(crate) fn hold(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot], rows: &Rows) {
        let first = rows.timestamps_ns.partition_point(|time_ns| *time_ns < range.start_ns);
        let places = first..rows.timestamps_ns.len();
        let is_small = |value_type: ValueType| !value_type.is_elsewhere();
        if places.len() > ROWS_MAX || !rows.columns.iter().all(|column| is_small(column.value_type)) {
            return;
        }
        let Some(tail) = Tail::new(range.start_ns, slots, rows, places) else { return };
        let bytes = tail.size_bytes();
        self.0.lock().hold((part.info.id, chunk.place.offset), Arc::new(tail), bytes);
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.lock().memory_bytes()
    }

    /// Lets go of everything.
    pub(crate) fn give_back(&self) {
        self.0.lock().clear();
    }
}

//! The last rows of chunks, cached decoded: the newest rows are read again and again, and one row costs as much to decode as its whole chunk.
//! Chunks never change; of chunks that a delete masks nothing is cached.

use std::sync::Arc;

use index::Slot;
use model::TimeRange;
use tracing_mutex::parkinglot::Mutex;

use crate::cache::generations::Generations;
use crate::memory::LAST_ROWS_CACHE;
use crate::part::chunk::{Rows, RowsColumn};
use crate::part::{ChunkRef, Part};

/// Rows that are cached of a chunk at most.
const ROWS_MAX: usize = 32;

/// A part's number, and the offset of its chunk.
type ChunkId = (u64, u64);

/// A chunk's rows from a time on.
struct LastRows {
    from_ns: i64,
    /// The slots that were read; the chunk need not have all of them.
    slots: Box<[Slot]>,
    rows: Rows,
}

impl LastRows {
    /// The rows with some of the columns.
    fn with_columns(&self, slots: &[Slot]) -> Rows {
        let is_wanted = |column: &&RowsColumn| slots.binary_search(&column.slot).is_ok();
        let columns = self.rows.columns.iter().filter(is_wanted).cloned().collect();
        Rows { timestamps_ns: self.rows.timestamps_ns.clone(), columns }
    }

    fn size_bytes(&self) -> usize {
        let column = |column: &RowsColumn| size_of_val(&*column.cells) + size_of_val(&*column.validity);
        let columns: usize = self.rows.columns.iter().map(|of| size_of::<RowsColumn>() + column(of)).sum();
        size_of::<Self>() + size_of_val(&*self.slots) + size_of_val(&*self.rows.timestamps_ns) + columns
    }
}

/// Last rows of chunks that readers of a store decoded.
pub(crate) struct LastRowsCache(Mutex<Generations<ChunkId, Arc<LastRows>>>);

impl LastRowsCache {
    /// For a store that may take so many bytes.
    pub(crate) fn new(memory_bytes_max: u64) -> Self {
        let bytes_max = LAST_ROWS_CACHE.bytes(memory_bytes_max);
        Self(Mutex::new(Generations::new(bytes_max)))
    }

    /// Returns whether a range has so little of a chunk's end that its rows may be cached.
    pub(crate) fn takes(chunk: &ChunkRef, range: &TimeRange) -> bool {
        let [length_ns, wanted_ns] =
            [chunk.range.start_ns, range.start_ns].map(|from_ns| i128::from(chunk.range.end_ns) - i128::from(from_ns));
        range.end_ns >= chunk.range.end_ns && wanted_ns * 8 < length_ns
    }

    /// The rows of a chunk that are in a range at its end, maybe with some before; `None` if they are not cached.
    pub(crate) fn get(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot]) -> Option<Rows> {
        let last = self.0.lock().get((part.info.id, chunk.handle.offset))?;
        let has_all = *last.slots == *slots || slots.iter().all(|slot| last.slots.binary_search(slot).is_ok());
        (last.from_ns <= range.start_ns && has_all).then(|| last.with_columns(slots))
    }

    /// Caches the rows of a chunk that are in a range at its end, if they are few and numbers only.
    pub(crate) fn insert(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot], rows: &Rows) {
        let first = rows.timestamps_ns.partition_point(|time_ns| *time_ns < range.start_ns);
        let picked: Vec<usize> = (first..rows.timestamps_ns.len()).collect();
        let is_number = |column: &RowsColumn| !column.value_type.is_elsewhere();
        if picked.len() > ROWS_MAX || !rows.columns.iter().all(is_number) {
            return;
        }
        let mut rows = rows.pick(&picked);
        for column in rows.columns.iter_mut().filter(|column| !column.validity.contains(&false)) {
            column.validity = Vec::new();
        }
        let last = LastRows { from_ns: range.start_ns, slots: slots.into(), rows };
        let bytes = last.size_bytes();
        self.0.lock().insert((part.info.id, chunk.handle.offset), Arc::new(last), bytes);
    }

    /// About as many bytes as it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.0.lock().memory_bytes()
    }

    /// Lets go of everything.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }
}

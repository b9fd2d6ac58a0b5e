//! The last rows of chunks, held decoded: what was written last is asked for again and again, and one row costs as much to decode as all
//! of its chunk. Chunks never change; what deletes mask of one is not held.

use std::sync::Arc;

use index::Slot;
use model::{TimeRange, ValueType};
use tracing_mutex::parkinglot::Mutex;

use crate::chunk::Rows;
use crate::generations::Generations;
use crate::part::{ChunkRef, Part};

/// Rows that are held of a chunk at most.
const ROWS_MAX: usize = 32;

/// Share of the store's memory that tails may take, and how many bytes at most.
const MEMORY_SHARE: u64 = 64;
const HELD_BYTES_MAX: u64 = 32 << 20;

/// A part's number, and where its chunk is in it.
type ChunkId = (u64, u64);

/// A chunk's rows from a time on.
struct Tail {
    from_ns: i64,
    /// What was asked for; the chunk need not have all of them.
    slots: Vec<Slot>,
    rows: Rows,
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
    pub(crate) fn get(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot]) -> Option<Rows> {
        let tail = self.0.lock().get((part.info.id, chunk.place.offset))?;
        if tail.from_ns > range.start_ns {
            return None;
        }
        if tail.slots == slots {
            return Some(tail.rows.clone());
        }
        if !slots.iter().all(|slot| tail.slots.binary_search(slot).is_ok()) {
            return None;
        }
        let is_wanted = |slot: &Slot| slots.binary_search(slot).is_ok();
        let columns = tail.rows.columns.iter().filter(|column| is_wanted(&column.slot)).cloned().collect();
        Some(Rows { timestamps_ns: tail.rows.timestamps_ns.clone(), columns })
    }

    /// Holds what of a chunk's rows is in a range of which it is a tail, if that is little and numbers only.
    pub(crate) fn hold(&self, part: &Part, chunk: &ChunkRef, range: &TimeRange, slots: &[Slot], rows: &Rows) {
        let first = rows.timestamps_ns.partition_point(|time_ns| *time_ns < range.start_ns);
        let places: Vec<usize> = (first..rows.timestamps_ns.len()).collect();
        let is_small = |value_type: ValueType| !value_type.is_elsewhere();
        if places.len() > ROWS_MAX || !rows.columns.iter().all(|column| is_small(column.value_type)) {
            return;
        }
        let rows = rows.pick(&places);
        let of_column = size_of::<crate::chunk::RowsColumn>() + places.len() * (size_of::<u64>() + 1);
        let bytes = size_of::<Tail>() + size_of_val(slots) + rows.columns.len() * of_column + 8 * places.len();
        let tail = Tail { from_ns: range.start_ns, slots: slots.to_vec(), rows };
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

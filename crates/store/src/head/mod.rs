//! The newest rows of a shard, in memory.
//!
//! ```text
//! Head
//!  ├─ layouts        interned column lists
//!  ├─ places[group]  nothing yet · its columns and its newest row among the shared ones · which of …
//!  ├─ groups         row buffer (row-major: timestamp, presence words if sparse, cells) + earlier ones, sealed
//!  ├─ wide           the same for member blocks beyond a group's first
//!  ├─ shared         rows of all other groups, those with the same columns together
//!  └─ text           what string cells point into
//! ```
//!
//! A group whose rows have had one and the same columns all along, none missing, has its rows in the buffer that all groups with these
//! columns share; lone series are such groups. Another one gets a buffer of its own, which is sealed when it is full: one of numbers,
//! none missing, as it is, because writers have no time for more; others sorted, merged, encoded as a chunk. Rows keep the order of
//! arrival until then, so that for the same time the later one wins.

pub(crate) mod sealed;
pub(crate) mod shard;

mod append;
mod block;
mod block_pool;
mod contents;
mod group;
mod last_rows;
mod layouts;
mod packed;
mod read;
mod row_buffer;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use codec::{DecodeError, Effort};
use index::{GroupId, Slot};
use model::{TimeRange, ValueType};

use crate::log::record::RowBlock;
use crate::part::chunk::{self, Rows};
use crate::part::{BLOCK_SLOTS, EncodedChunk};

use block_pool::BlockPool;
use group::{DenseRows, GroupHead, Sealed};
use layouts::Layouts;
use row_buffer::{SharedRows, SharedView};

pub(crate) use contents::{FlushBlock, HeadContents};
pub(crate) use last_rows::{HeadLastRow, HeadLastRows};
pub(crate) use layouts::LayoutId;
pub(crate) use row_buffer::GroupedRows;

/// Least bytes of a group's row buffer before it is sealed (design: 2 KiB, or 40 B a member if that is more).
const SEAL_BYTES_MIN: usize = 2 << 10;
const SEAL_BYTES_PER_MEMBER: usize = 40;
/// Most bytes of a group's row buffer, however few groups there are.
const SEAL_BYTES_MAX: usize = 64 << 10;

/// Of the bytes that a head may have one in so many stays for its successor's shared rows. What stays costs memory all the time, what does
/// not costs page faults: the figures are in `docs/guide/benchmarks.md`, *memory*.
const POOL_PART: usize = 2;

/// Fixed cost of a group that has rows: its entry in the head and the allocations after it.
const GROUP_BYTES: usize = size_of::<GroupHead>() + 32;

/// What [`GroupLocation::of`] says of a group: a place in `groups`, or with this bit the layout of its shared rows.
const SHARED: u32 = 1 << 31;
/// A group that has no rows yet: it may become either.
const NOWHERE: u32 = u32::MAX;

/// Where a group's rows are.
#[derive(Debug, Clone, Copy)]
struct GroupLocation {
    /// A layout of shared rows with [`SHARED`], or the number of a group with its own rows.
    target: u32,
    /// Its newest row among the shared ones.
    newest: u32,
}

/// Which of a group's rows are among the shared ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shares {
    /// It has none.
    Nothing,
    /// All, with those of other groups with these columns.
    Layout(LayoutId),
    /// Some are elsewhere.
    NotAll,
}

/// The newest rows of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    budget_bytes: usize,
    layouts: Layouts,
    locations: Vec<GroupLocation>,
    groups: Vec<(GroupId, GroupHead)>,
    wide: BTreeMap<(GroupId, u32), GroupHead>,
    /// By layout.
    shared: Vec<Option<SharedRows>>,
    /// Memory of the shard's heads before this one.
    pool: Arc<BlockPool>,
    text: Vec<u8>,
    /// Bytes of rows, chunks and text.
    bytes: usize,
    seal_bytes: usize,
    pub(crate) rows: u64,
    /// Smallest and largest sequence id inside.
    sequences: Option<(u64, u64)>,
    newest_ns: Option<i64>,
}

/// A chunk in memory.
#[derive(Debug, Clone)]
pub(crate) struct SealedChunk {
    pub(crate) range: TimeRange,
    pub(crate) sequences: (u64, u64),
    pub(crate) rows: u64,
    pub(crate) bytes: Arc<[u8]>,
}

impl SealedChunk {
    /// As a part's writer takes it.
    pub(crate) fn encoded(&self) -> EncodedChunk<'_> {
        EncodedChunk { range: self.range, sequences: self.sequences, rows: self.rows, bytes: &self.bytes }
    }

    /// Some rows, encoded; `None` if there are none.
    pub(crate) fn from_rows(rows: &Rows, places: Range<usize>, sequences: (u64, u64), effort: Effort) -> Option<Self> {
        let (range, rows_count) = (rows.range_of(&places)?, places.len() as u64);
        let mut bytes = Vec::new();
        chunk::encode(rows, places, sequences, effort, &mut bytes);
        Some(Self { range, sequences, rows: rows_count, bytes: bytes.into() })
    }
}

/// Something that a head has of a key.
#[derive(Debug, Clone)]
pub(crate) enum HeadBlock {
    Sealed(SealedChunk),
    /// A buffer of numbers that was full.
    Dense(Arc<DenseRows>),
    /// Rows that are sealed nowhere yet, sorted.
    Loose(Rows),
    /// Rows of numbers among the shared ones.
    Shared(SharedView, Arc<[(Slot, ValueType)]>),
}

impl HeadBlock {
    /// Resolves what is still to be looked for; done while the head is not locked.
    pub(crate) fn resolved(self, slots: &[Slot]) -> Self {
        match self {
            Self::Shared(view, columns) => Self::Loose(sorted_rows(&view.rows(), &columns, slots)),
            found => found,
        }
    }

    /// From its first to its last row; nothing if it has none, or they are to be looked for.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        match self {
            Self::Sealed(sealed) => Some(sealed.range),
            Self::Dense(dense) => Some(dense.range),
            Self::Loose(rows) => rows.range(),
            Self::Shared(..) => None,
        }
    }

    /// Its rows, with the given columns (sorted).
    pub(crate) fn rows(&self, slots: &[Slot]) -> Result<Rows, DecodeError> {
        match self {
            Self::Sealed(sealed) => chunk::decode(&sealed.bytes, Some(slots)).map(|(_, rows)| rows),
            Self::Dense(dense) => Ok(dense.rows(Some(slots))),
            Self::Loose(rows) => Ok(rows.clone()),
            Self::Shared(view, columns) => Ok(sorted_rows(&view.rows(), columns, slots)),
        }
    }
}

impl Head {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            budget_bytes,
            layouts: Layouts::default(),
            locations: Vec::new(),
            groups: Vec::new(),
            wide: BTreeMap::new(),
            shared: Vec::new(),
            pool: Arc::default(),
            text: Vec::new(),
            bytes: 0,
            seal_bytes: SEAL_BYTES_MAX,
            rows: 0,
            sequences: None,
            newest_ns: None,
        }
    }

    /// An empty head that takes this one's place, and later its memory.
    pub(crate) fn successor(&self, budget_bytes: usize) -> Self {
        Self { pool: self.pool.clone(), ..Self::new(budget_bytes) }
    }

    /// Memory that is kept for rows to come.
    pub(crate) fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.locations.capacity() * size_of::<GroupLocation>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_none()
    }

    pub(crate) fn first_sequence(&self) -> Option<u64> {
        self.sequences.map(|(first, _)| first)
    }

    /// The largest timestamp inside.
    pub(crate) fn newest_ns(&self) -> Option<i64> {
        self.newest_ns
    }

    /// Everything, for a flush.
    pub(crate) fn contents(&self) -> HeadContents<'_> {
        HeadContents::new(self)
    }

    /// Returns whether there is nothing of a group.
    pub(crate) fn is_silent(&self, group: GroupId) -> bool {
        self.locations.get(group as usize).is_none_or(|place| place.target == NOWHERE)
            && self.wide.range((group, 0)..=(group, u32::MAX)).next().is_none()
    }
}

/// Returns whether timestamps ascend, none twice.
fn is_ascending(timestamps_ns: &[i64]) -> bool {
    timestamps_ns.is_sorted_by(|before, after| before < after)
}

/// Rows of numbers (timestamp and cells of each) in order of arrival as the wanted columns, sorted and merged.
fn sorted_rows(buffer: &[u64], columns: &[(Slot, ValueType)], slots: &[Slot]) -> Rows {
    let found = group::dense_rows(buffer, columns, false, Some(slots));
    if is_ascending(&found.timestamps_ns) { found } else { chunk::merge(&[found]) }
}

/// Adds a row to a group's buffer; the bytes that it took.
fn push_row(
    head: &mut GroupHead,
    timestamp_ns: i64,
    cells: &[u64],
    places: Option<&[usize]>,
    width: usize,
    sequence: u64,
) -> usize {
    let mut bytes = 0;
    if head.buffer.is_empty() {
        if head.sealed.is_empty() {
            bytes += GROUP_BYTES;
        }
        head.sequences = (sequence, sequence);
        head.range_ns = (timestamp_ns, timestamp_ns);
        head.unsorted = false;
        head.sparse = false;
    } else {
        // Beyond the largest timestamp, or not in order.
        head.unsorted |= timestamp_ns <= head.range_ns.1;
        head.range_ns = (head.range_ns.0.min(timestamp_ns), head.range_ns.1.max(timestamp_ns));
    }
    head.sequences.1 = sequence;
    let before = head.buffer.len();
    head.push(timestamp_ns, cells, places, width);
    bytes + (head.buffer.len() - before) * 8
}

/// Gives a group another layout; the bytes that its rows grew by.
fn change_layout(head: &mut GroupHead, layouts: &Layouts, to: LayoutId) -> usize {
    let before = head.buffer.len();
    if !head.buffer.is_empty() {
        let places = layouts.offsets(head.layout, to);
        head.widen(layouts.width(head.layout), layouts.width(to), &places);
    }
    head.layout = to;
    (head.buffer.len() - before) * 8
}

/// Bytes at which a row buffer is sealed: half of the budget spread over the groups, within bounds. Few groups get large
/// buffers, and with them large chunks; many get small ones.
fn seal_bytes(budget_bytes: usize, active_groups: usize) -> usize {
    (budget_bytes / 2 / active_groups.max(1)).clamp(SEAL_BYTES_MIN, SEAL_BYTES_MAX)
}

/// The rows of a wide group by member block.
fn split_members(block: &RowBlock) -> Vec<(u32, RowBlock)> {
    let mut numbers: Vec<u32> = block.columns.iter().map(|(slot, _)| slot / BLOCK_SLOTS).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let part = |number: u32| {
        let inside = |(_, (slot, _)): &(usize, &(Slot, ValueType))| slot / BLOCK_SLOTS == number;
        let places: Vec<usize> = block.columns.iter().enumerate().filter(inside).map(|(place, _)| place).collect();
        let cells = |row: usize| {
            let cells = block.row(row);
            places.iter().map(move |place| cells.get(*place).copied().unwrap_or(0))
        };
        let part = RowBlock {
            columns: places.iter().filter_map(|place| block.columns.get(*place).copied()).collect(),
            groups: block.groups.clone(),
            timestamps_ns: block.timestamps_ns.clone(),
            cells: (0..block.rows()).flat_map(cells).collect(),
        };
        (number, part)
    };
    numbers.into_iter().map(part).collect()
}

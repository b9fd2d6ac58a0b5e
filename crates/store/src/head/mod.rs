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

pub(crate) mod shard;

mod block;
mod contents;
mod group;
mod last_rows;
mod layouts;
mod packed;
mod row_buffer;
mod spare_rows;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use codec::{DecodeError, Effort};
use index::{GroupId, Slot};
use model::{Span, TimeRange, ValueType};

use crate::log::record::{RowBlock, ShardRows};
use crate::part::chunk::{self, CHUNK_ROWS_MAX, Rows, RowsColumn};
use crate::part::{BLOCK_SLOTS, EncodedChunk, PartKey};

use group::{DenseRows, GroupHead, Sealed, has_texts, is_present};
use layouts::{Layouts, Placement};
use row_buffer::{GroupRows, NONE, SharedRows, SharedView};
use spare_rows::SpareRows;

pub(crate) use contents::{FlushPiece, HeadContents};
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
const SPARE_PART: usize = 2;

/// Fixed cost of a group that has rows: its entry in the head and the allocations behind it.
const GROUP_BYTES: usize = size_of::<GroupHead>() + 32;

/// What [`GroupPlace::of`] says of a group: a place in `groups`, or with this bit the layout of its shared rows.
const SHARED: u32 = 1 << 31;
/// A group that has no rows yet: it may become either.
const NOWHERE: u32 = u32::MAX;

/// Where a group's rows are.
#[derive(Debug, Clone, Copy)]
struct GroupPlace {
    of: u32,
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
    places: Vec<GroupPlace>,
    groups: Vec<(GroupId, GroupHead)>,
    wide: BTreeMap<(GroupId, u32), GroupHead>,
    /// By layout.
    shared: Vec<Option<SharedRows>>,
    /// Memory of the shard's heads before this one.
    spare: Arc<SpareRows>,
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
    pub(crate) fn of(rows: &Rows, places: Range<usize>, sequences: (u64, u64), effort: Effort) -> Option<Self> {
        let (range, rows_count) = (rows.range_of(&places)?, places.len() as u64);
        let mut bytes = Vec::new();
        chunk::encode(rows, places, sequences, effort, &mut bytes);
        Some(Self { range, sequences, rows: rows_count, bytes: bytes.into() })
    }
}

/// Something that a head has of a key.
#[derive(Debug, Clone)]
pub(crate) enum HeadPiece {
    Sealed(SealedChunk),
    /// A buffer of numbers that was full.
    Dense(Arc<DenseRows>),
    /// Rows that are sealed nowhere yet, sorted.
    Loose(Rows),
    /// Rows of numbers among the shared ones.
    Shared(SharedView, Arc<[(Slot, ValueType)]>),
}

impl HeadPiece {
    /// The same, with nothing left that is to be looked for. Done while the head is not held.
    pub(crate) fn found(self, slots: &[Slot]) -> Self {
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
            places: Vec::new(),
            groups: Vec::new(),
            wide: BTreeMap::new(),
            shared: Vec::new(),
            spare: Arc::default(),
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
        Self { spare: self.spare.clone(), ..Self::new(budget_bytes) }
    }

    /// Memory that is kept for rows to come.
    pub(crate) fn spare(&self) -> &SpareRows {
        &self.spare
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.places.capacity() * size_of::<GroupPlace>()
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

    /// Adds a request's rows. Groups that have columns they had not in this head are handed to `grown` with those columns.
    pub(crate) fn append(&mut self, rows: &ShardRows, sequence: u64, mut grown: impl FnMut(GroupId, &[Slot])) {
        for block in &rows.blocks {
            self.rows += block.rows() as u64;
            self.newest_ns = self.newest_ns.max(block.timestamps_ns.iter().copied().max());
            let block_of = |(slot, _): &(Slot, ValueType)| slot / BLOCK_SLOTS;
            let first = block.columns.first().map_or(0, block_of);
            if !block.columns.iter().all(|column| block_of(column) == first) {
                for (number, part) in split_members(block) {
                    self.append_block(&part, number, &rows.text, sequence, &mut grown);
                }
                continue;
            }
            let others = if first == 0 { self.append_shared(block, &rows.text, &mut grown) } else { None };
            match others {
                None if first == 0 => {}
                others => {
                    self.append_block(others.as_ref().unwrap_or(block), first, &rows.text, sequence, &mut grown);
                }
            }
        }
        let first = self.sequences.map_or(sequence, |(first, _)| first);
        self.sequences = Some((first, sequence));
    }

    /// Adds the rows of groups that have had no other columns to the shared ones; the other rows.
    fn append_shared(
        &mut self,
        block: &RowBlock,
        text: &[u8],
        grown: &mut impl FnMut(GroupId, &[Slot]),
    ) -> Option<RowBlock> {
        let placed = self.layouts.place(LayoutId::default(), &block.columns);
        let layout = placed.to;
        let width = self.layouts.width(layout);
        if width != block.columns.len() {
            return Some(block.clone());
        }
        if self.shared.len() <= layout as usize {
            self.shared.resize_with(layout as usize + 1, || None);
        }
        let mut shared = self.shared[layout as usize].take().unwrap_or_else(|| {
            SharedRows::new(&self.layouts.get(layout), self.spare.clone(), self.budget_bytes / SPARE_PART)
        });
        let bytes_before = shared.bytes();
        let texts = has_texts(&block.columns);
        let mut moved = Vec::new();
        let mut others: Option<RowBlock> = None;
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let cells = block.row(row);
            let known = self.place_of(*group);
            let fits = known.of == NOWHERE || known.of == layout | SHARED;
            if !fits || shared.is_full() {
                // One that changes its columns shares no more.
                let new = || RowBlock { columns: block.columns.clone(), ..RowBlock::default() };
                others.get_or_insert_with(new).push(*group, *timestamp_ns, cells);
                continue;
            }
            if known.of == NOWHERE {
                grown(*group, &block.columns.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
            let cells = if texts { self.move_texts(block, row, text, &mut moved) } else { cells };
            let newest = shared.push(*group, known.newest, *timestamp_ns, cells, placed.places.as_deref());
            self.places[*group as usize] = GroupPlace { of: layout | SHARED, newest };
        }
        self.bytes += shared.bytes() - bytes_before;
        self.shared[layout as usize] = Some(shared);
        others
    }

    /// A row's cells, their texts copied into the head.
    fn move_texts<'a>(&mut self, block: &RowBlock, row: usize, text: &[u8], moved: &'a mut Vec<u64>) -> &'a [u64] {
        moved.clear();
        let cells = block.row(row).iter().zip(&block.columns);
        moved.extend(
            cells.map(|(cell, (_, kind))| if kind.is_elsewhere() { self.move_text(*cell, text) } else { *cell }),
        );
        moved
    }

    /// What is known of a group, which has an entry from now on.
    fn place_of(&mut self, group: GroupId) -> GroupPlace {
        let place = group as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, GroupPlace { of: NOWHERE, newest: NONE });
        }
        self.places[place]
    }

    /// Rows whose columns are all of one member block.
    fn append_block(
        &mut self,
        block: &RowBlock,
        number: u32,
        text: &[u8],
        sequence: u64,
        grown: &mut impl FnMut(GroupId, &[Slot]),
    ) {
        let texts = has_texts(&block.columns);
        let mut placement: Option<Placement> = None;
        let mut moved = Vec::new();
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let cells = if texts { self.move_texts(block, row, text, &mut moved) } else { block.row(row) };
            let place = if number == 0 { Some(self.own_place(*group)) } else { None };
            let head = match place {
                Some(place) => &mut self.groups[place].1,
                None => self.wide.entry((*group, number)).or_default(),
            };
            let placed = match placement.take() {
                Some(placed) if placed.from == head.layout || placed.to == head.layout => placed,
                _ => self.layouts.place(head.layout, &block.columns),
            };
            let mut bytes = 0;
            if placed.to != head.layout {
                bytes += change_layout(head, &self.layouts, placed.to);
                grown(*group, &block.columns.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
            let width = self.layouts.width(head.layout);
            bytes += push_row(head, *timestamp_ns, cells, placed.places.as_deref(), width, sequence);
            let full_bytes = self.seal_bytes.max(width * SEAL_BYTES_PER_MEMBER);
            let is_full = head.buffer.len() * 8 >= full_bytes || head.buffer.len() >= CHUNK_ROWS_MAX;
            self.bytes += bytes;
            if is_full {
                self.seal(place, (*group, number));
            }
            placement = Some(placed);
        }
    }

    /// The place of a group that shares no buffer, from now on.
    fn own_place(&mut self, group: GroupId) -> usize {
        let known = self.place_of(group);
        if known.of & SHARED == 0 {
            return known.of as usize;
        }
        let place = self.groups.len();
        let shared_layout = if known.of == NOWHERE { LayoutId::default() } else { known.of & !SHARED };
        self.groups.push((group, GroupHead { shared_layout, ..GroupHead::default() }));
        self.places[group as usize].of = place as u32;
        place
    }

    /// Copies the text of a string cell into the head.
    fn move_text(&mut self, cell: u64, text: &[u8]) -> u64 {
        let from = Span::from_cell(cell);
        let bytes = text.get(from.start as usize..).and_then(|text| text.get(..from.len as usize));
        let bytes = bytes.unwrap_or_default();
        let moved = Span { start: self.text.len() as u32, len: bytes.len() as u32 }.to_cell();
        self.text.extend_from_slice(bytes);
        self.bytes += bytes.len();
        moved
    }

    fn seal(&mut self, place: Option<usize>, key: (GroupId, u32)) {
        let found = match place {
            Some(place) => self.groups.get(place).map(|(_, head)| head),
            None => self.wide.get(&key),
        };
        let Some(range) = found.and_then(GroupHead::range) else {
            return;
        };
        let columns = found.map(|head| self.layouts.get(head.layout)).unwrap_or_default();
        let is_dense = found.is_some_and(|head| !head.sparse) && !has_texts(&columns);
        let chunk = if is_dense { None } else { found.and_then(|head| self.encode_buffer(head)) };
        self.seal_bytes = seal_bytes(self.budget_bytes, self.groups.len() + self.wide.len());
        let found = match place {
            Some(place) => self.groups.get_mut(place).map(|(_, head)| head),
            None => self.wide.get_mut(&key),
        };
        let Some(head) = found else {
            return;
        };
        if let Some(chunk) = chunk {
            self.bytes = self.bytes + chunk.bytes.len() + size_of::<Sealed>() - head.buffer.len() * 8;
            head.buffer.clear();
            head.sealed.push(Sealed::Chunk(chunk));
            if head.buffer.capacity() * 8 > self.seal_bytes * 2 {
                head.buffer.shrink_to(self.seal_bytes / 8);
            }
            return;
        }
        // The next one becomes as long, most likely.
        let next = Vec::with_capacity(head.buffer.len());
        let buffer = std::mem::replace(&mut head.buffer, next);
        self.bytes += size_of::<Sealed>() + size_of::<DenseRows>();
        let dense = DenseRows { columns, unsorted: head.unsorted, range, sequences: head.sequences, buffer };
        head.sealed.push(Sealed::Dense(Arc::new(dense)));
    }

    /// The row buffer as a chunk; `None` if it is empty.
    fn encode_buffer(&self, head: &GroupHead) -> Option<SealedChunk> {
        let rows = self.sorted(head, &TimeRange::ALL, None);
        SealedChunk::of(&rows, 0..rows.timestamps_ns.len(), head.sequences, Effort::Fast)
    }

    /// The rows of a group's buffer in a range, sorted and merged, with the given columns (sorted) or all.
    fn sorted(&self, head: &GroupHead, range: &TimeRange, slots: Option<&[Slot]>) -> Rows {
        let columns = self.layouts.get(head.layout);
        let mut rows = Rows::default();
        let mut wanted = Vec::new();
        for (place, (slot, value_type)) in columns.iter().enumerate() {
            if slots.is_none_or(|slots| slots.binary_search(slot).is_ok()) {
                wanted.push(place);
                rows.columns.push(RowsColumn::new(*slot, *value_type));
            }
        }
        if *range == TimeRange::ALL && !head.sparse && !has_texts(&columns) {
            return group::dense_rows(&head.buffer, &columns, head.unsorted, slots);
        }
        for (timestamp_ns, present, cells) in head.rows(columns.len()) {
            if !range.contains(timestamp_ns) {
                continue;
            }
            rows.timestamps_ns.push(timestamp_ns);
            for (column, place) in rows.columns.iter_mut().zip(&wanted) {
                let cell = cells.get(*place).copied().filter(|_| is_present(present, *place));
                self.push_cell(column, cell);
            }
        }
        if head.unsorted { chunk::merge(&[rows]) } else { rows }
    }

    fn push_cell(&self, column: &mut RowsColumn, cell: Option<u64>) {
        match cell {
            Some(cell) if column.value_type.is_elsewhere() => {
                column.push_text(crate::log::record::text_of(&self.text, cell).unwrap_or_default());
            }
            cell => column.push(cell),
        }
    }

    /// Rows of a group among the shared ones; where texts are among them at once, for the head has these.
    fn shared_piece(&self, view: SharedView, layout: LayoutId, slots: &[Slot]) -> HeadPiece {
        let columns = self.layouts.get(layout);
        if !has_texts(&columns) {
            return HeadPiece::Shared(view, columns);
        }
        let mut found = group::dense_rows(&view.rows(), &columns, false, Some(slots));
        for column in found.columns.iter_mut().filter(|column| column.value_type.is_elsewhere()) {
            let cells = std::mem::take(&mut column.cells);
            cells.into_iter().for_each(|cell| self.push_cell(column, Some(cell)));
        }
        HeadPiece::Loose(if is_ascending(&found.timestamps_ns) { found } else { chunk::merge(&[found]) })
    }

    /// All that a group has among the shared rows as columns, sorted and merged.
    fn gathered_rows(&self, layout: LayoutId, gathered: GroupRows) -> Rows {
        let columns = self.layouts.get(layout);
        let GroupRows { timestamps_ns, columns: cells, is_ordered } = gathered;
        let mut rows = Rows { timestamps_ns, columns: Vec::with_capacity(columns.len()) };
        for ((slot, value_type), of_column) in columns.iter().zip(cells) {
            let mut column = RowsColumn::new(*slot, *value_type);
            if value_type.is_elsewhere() {
                of_column.into_iter().for_each(|cell| self.push_cell(&mut column, Some(cell)));
            } else {
                column.cells = of_column;
            }
            rows.columns.push(column);
        }
        if is_ordered { rows } else { chunk::merge(&[rows]) }
    }

    /// The shared rows that a group has some of, their layout, and its newest.
    fn shared_place(&self, group: GroupId) -> Option<(&SharedRows, LayoutId, u32)> {
        let place = self.places.get(group as usize)?;
        let layout = match place.of {
            NOWHERE => return None,
            shared if shared & SHARED != 0 => shared & !SHARED,
            own => self.groups.get(own as usize)?.1.shared_layout,
        };
        Some((self.shared.get(layout as usize)?.as_ref()?, layout, place.newest))
    }

    /// Where all rows of a group's first member block are.
    pub(crate) fn shares(&self, group: GroupId) -> Shares {
        match self.places.get(group as usize).map_or(NOWHERE, |place| place.of) {
            NOWHERE => Shares::Nothing,
            shared if shared & SHARED != 0 => Shares::Layout(shared & !SHARED),
            _ => Shares::NotAll,
        }
    }

    /// The rows in a range that share a layout; `None` if more than so many are to be looked at for them.
    pub(crate) fn recent(&self, layout: LayoutId, range: &TimeRange, rows_max: usize) -> Option<GroupedRows> {
        let shared = self.shared.get(layout as usize)?.as_ref()?;
        shared.recent(self.layouts.get(layout), range, rows_max)
    }

    /// What the head has of a key in a range, oldest first; some of it may turn out to be without rows.
    pub(crate) fn read(&self, key: &PartKey, range: &TimeRange, slots: &[Slot]) -> Vec<HeadPiece> {
        let mut pieces = Vec::new();
        if let Some((shared, layout, newest)) = self.shared_place(key.group).filter(|_| key.block == 0) {
            pieces.push(self.shared_piece(shared.view(newest, range), layout, slots));
        }
        if let Some(head) = self.group(key) {
            let sealed = head.sealed.iter().filter(|sealed| sealed.range().overlaps(range));
            pieces.extend(sealed.map(|sealed| match sealed {
                Sealed::Dense(dense) => HeadPiece::Dense(dense.clone()),
                Sealed::Chunk(chunk) => HeadPiece::Sealed(chunk.clone()),
            }));
            pieces.push(HeadPiece::Loose(self.sorted(head, range, Some(slots))));
        }
        pieces
    }

    fn group(&self, key: &PartKey) -> Option<&GroupHead> {
        if key.block > 0 {
            return self.wide.get(&(key.group, key.block));
        }
        let place = self.places.get(key.group as usize).filter(|place| place.of & SHARED == 0)?;
        self.groups.get(place.of as usize).map(|(_, head)| head)
    }

    /// Whether a key has a row in a range, judged by whole chunks.
    pub(crate) fn has_rows(&self, key: &PartKey, range: &TimeRange) -> bool {
        let shared = self.shared_place(key.group).filter(|_| key.block == 0);
        if shared.is_some_and(|(shared, _, newest)| shared.has_rows(newest, range)) {
            return true;
        }
        self.group(key).is_some_and(|head| {
            head.sealed.iter().any(|sealed| sealed.range().overlaps(range))
                || head.rows(self.layouts.width(head.layout)).any(|(timestamp_ns, ..)| range.contains(timestamp_ns))
        })
    }

    /// Everything, for a flush.
    pub(crate) fn contents(&self) -> HeadContents<'_> {
        HeadContents::of(self)
    }

    /// Whether there is nothing of a group.
    pub(crate) fn is_silent(&self, group: GroupId) -> bool {
        self.places.get(group as usize).is_none_or(|place| place.of == NOWHERE)
            && self.wide.range((group, 0)..=(group, u32::MAX)).next().is_none()
    }
}

/// Whether timestamps ascend, none twice.
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
        let places = layouts.places(head.layout, to);
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

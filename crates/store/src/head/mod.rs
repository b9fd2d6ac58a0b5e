//! The newest rows of a shard, in memory.
//!
//! ```text
//! Head
//!  ├─ layouts        interned column lists
//!  ├─ places[group]  nothing yet · a lone series · which of …
//!  ├─ groups         row buffer (row-major: timestamp, presence words if sparse, cells) + sealed chunks
//!  ├─ wide           the same for member blocks beyond a group's first
//!  ├─ lone           rows of all lone series together
//!  └─ text           what string cells point into
//! ```
//!
//! A row buffer that is full is sealed: sorted, merged, encoded as a chunk. Rows keep the order of arrival until then,
//! so that for the same time the later one wins. A group whose rows have had one and the same single column all along is a lone
//! series: its rows go into the shared buffer.

mod group;
mod layouts;
mod lone;

use std::collections::BTreeMap;
use std::sync::Arc;

use index::{GroupId, Slot};
use model::{Span, TimeRange, ValueType};

use crate::chunk::{self, CHUNK_ROWS_MAX, Rows, RowsColumn};
use crate::log::record::{RowBlock, ShardRows};
use crate::part::{BLOCK_SLOTS, EncodedChunk, PartKey};

use group::{GroupHead, is_present};
use layouts::{LayoutId, Layouts, Placement};
use lone::{LoneRow, LoneRows, RowsByGroup};

/// Least bytes of a group's row buffer before it is sealed (design: 2 KiB, or 40 B a member if that is more).
const SEAL_BYTES_MIN: usize = 2 << 10;
const SEAL_BYTES_PER_MEMBER: usize = 40;
/// Most bytes of a group's row buffer, however few groups there are.
const SEAL_BYTES_MAX: usize = 64 << 10;

/// Fixed cost of a group that has rows: its entry in the head and the allocations behind it.
const GROUP_BYTES: usize = size_of::<GroupHead>() + 32;

/// What [`Head::places`] says of a group: a place in `groups`, or with this bit the layout of a lone series.
const LONE: u32 = 1 << 31;
/// A group that has no rows yet: it may become either.
const NOWHERE: u32 = u32::MAX;

/// The newest rows of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    budget_bytes: usize,
    layouts: Layouts,
    places: Vec<u32>,
    groups: Vec<(GroupId, GroupHead)>,
    wide: BTreeMap<(GroupId, u32), GroupHead>,
    lone: LoneRows,
    text: Vec<u8>,
    /// Bytes of row buffers, chunks and text.
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

    fn of(rows: &Rows, sequences: (u64, u64)) -> Option<Self> {
        let range = rows.range()?;
        let mut bytes = Vec::new();
        chunk::encode(rows, sequences, &mut bytes);
        Some(Self { range, sequences, rows: rows.timestamps_ns.len() as u64, bytes: bytes.into() })
    }
}

/// Something that a head has of a key.
#[derive(Debug, Clone)]
pub(crate) enum HeadPiece {
    Sealed(SealedChunk),
    /// Rows that are in no chunk yet, sorted.
    Loose(Rows),
}

impl HeadPiece {
    pub(crate) fn range(&self) -> Option<TimeRange> {
        match self {
            Self::Sealed(sealed) => Some(sealed.range),
            Self::Loose(rows) => rows.range(),
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
            lone: LoneRows::default(),
            text: Vec::new(),
            bytes: 0,
            seal_bytes: SEAL_BYTES_MAX,
            rows: 0,
            sequences: None,
            newest_ns: None,
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.lone.bytes() + self.places.capacity() * size_of::<u32>()
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
            if let [column] = block.columns.as_slice() {
                self.append_single(block, *column, &rows.text, sequence, &mut grown);
                continue;
            }
            let block_of = |(slot, _): &(Slot, ValueType)| slot / BLOCK_SLOTS;
            let first = block.columns.first().map_or(0, block_of);
            if block.columns.iter().all(|column| block_of(column) == first) {
                self.append_block(block, first, &rows.text, sequence, &mut grown);
            } else {
                for (number, part) in split_members(block) {
                    self.append_block(&part, number, &rows.text, sequence, &mut grown);
                }
            }
        }
        let first = self.sequences.map_or(sequence, |(first, _)| first);
        self.sequences = Some((first, sequence));
    }

    /// Rows of one column: those of lone series into the shared buffer, the others into their groups' own.
    fn append_single(
        &mut self,
        block: &RowBlock,
        column: (Slot, ValueType),
        text: &[u8],
        sequence: u64,
        grown: &mut impl FnMut(GroupId, &[Slot]),
    ) {
        let layout = self.layouts.intern(vec![column]);
        let is_text = column.1.is_elsewhere();
        let mut others = RowBlock { columns: block.columns.clone(), ..RowBlock::default() };
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let known = self.place_of(*group);
            let is_lone = column.0 < BLOCK_SLOTS && known & LONE != 0;
            let Some(cell) = block.cells.get(row).copied() else {
                continue;
            };
            if !is_lone {
                others.groups.push(*group);
                others.timestamps_ns.push(*timestamp_ns);
                others.cells.push(cell);
                continue;
            }
            if known != layout | LONE {
                self.places[*group as usize] = layout | LONE;
                grown(*group, &[column.0]);
            }
            let cell = if is_text { self.move_text(cell, text) } else { cell };
            self.lone.push(LoneRow { group: *group, layout, timestamp_ns: *timestamp_ns, cell });
        }
        if others.rows() > 0 {
            self.append_block(&others, column.0 / BLOCK_SLOTS, text, sequence, grown);
        }
    }

    /// What is known of a group, which has an entry from now on.
    fn place_of(&mut self, group: GroupId) -> u32 {
        let place = group as usize;
        if place >= self.places.len() {
            self.places.resize(place + 1, NOWHERE);
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
        let texts = block.columns.iter().any(|(_, value_type)| value_type.is_elsewhere());
        let mut placement: Option<Placement> = None;
        let mut moved = Vec::new();
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            if texts {
                moved.clear();
                let cells = block.row(row).iter().zip(&block.columns);
                moved.extend(cells.map(|(cell, (_, kind))| match kind {
                    kind if kind.is_elsewhere() => self.move_text(*cell, text),
                    _ => *cell,
                }));
            }
            let cells = if texts { moved.as_slice() } else { block.row(row) };
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

    /// The place of a group that is no lone series, from now on.
    fn own_place(&mut self, group: GroupId) -> usize {
        let known = self.place_of(group);
        if known & LONE == 0 {
            return known as usize;
        }
        let place = self.groups.len();
        self.groups.push((group, GroupHead::default()));
        self.places[group as usize] = place as u32;
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
        let Some(sealed) = found.and_then(|head| self.encode_buffer(head)) else {
            return;
        };
        let active = self.groups.len() + self.wide.len();
        let found = match place {
            Some(place) => self.groups.get_mut(place).map(|(_, head)| head),
            None => self.wide.get_mut(&key),
        };
        if let Some(head) = found {
            self.bytes = self.bytes + sealed.bytes.len() + size_of::<SealedChunk>() - head.buffer.len() * 8;
            head.buffer.clear();
            head.chunks.push(sealed);
            self.seal_bytes = seal_bytes(self.budget_bytes, active);
            if head.buffer.capacity() * 8 > self.seal_bytes * 2 {
                head.buffer.shrink_to(self.seal_bytes / 8);
            }
        }
    }

    /// The row buffer as a chunk; `None` if it is empty.
    fn encode_buffer(&self, head: &GroupHead) -> Option<SealedChunk> {
        SealedChunk::of(&self.sorted(head, &TimeRange::ALL, None), head.sequences)
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
        if let Some(dense) = dense(head, range, &columns, &wanted) {
            rows.timestamps_ns = dense.0;
            rows.columns.iter_mut().zip(dense.1).for_each(|(column, cells)| column.cells = cells);
            return if head.unsorted { chunk::merge(&[rows]) } else { rows };
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

    /// Rows of a lone series, sorted and merged.
    fn lone_rows(&self, lone: impl Iterator<Item = LoneRow>, slots: Option<&[Slot]>) -> Rows {
        let mut pieces: Vec<(LayoutId, Rows)> = Vec::new();
        let mut is_sorted = true;
        for row in lone {
            let layout = self.layouts.get(row.layout);
            let Some((slot, value_type)) = layout.first().copied() else {
                continue;
            };
            if slots.is_some_and(|slots| slots.binary_search(&slot).is_err()) {
                continue;
            }
            if pieces.last().is_none_or(|(last, _)| *last != row.layout) {
                let columns = vec![RowsColumn::new(slot, value_type)];
                pieces.push((row.layout, Rows { timestamps_ns: Vec::new(), columns }));
            }
            let Some((_, rows)) = pieces.last_mut() else {
                continue;
            };
            is_sorted &= rows.timestamps_ns.last().is_none_or(|last| *last < row.timestamp_ns);
            rows.timestamps_ns.push(row.timestamp_ns);
            rows.columns.iter_mut().for_each(|column| self.push_cell(column, Some(row.cell)));
        }
        let mut pieces: Vec<Rows> = pieces.into_iter().map(|(_, rows)| rows).collect();
        if is_sorted && pieces.len() <= 1 { pieces.pop().unwrap_or_default() } else { chunk::merge(&pieces) }
    }

    /// What the head has of a key in a range, oldest first.
    pub(crate) fn read(&mut self, key: &PartKey, range: &TimeRange, slots: &[Slot]) -> Vec<HeadPiece> {
        self.lone.prepare_read();
        self.read_frozen(key, range, slots)
    }

    /// As [`Head::read`], of a head that nothing is added to any more.
    pub(crate) fn read_frozen(&self, key: &PartKey, range: &TimeRange, slots: &[Slot]) -> Vec<HeadPiece> {
        let mut pieces = Vec::new();
        if key.block == 0 {
            let lone = self.lone_rows(self.lone.of_group(key.group, range).into_iter(), Some(slots));
            pieces.push(HeadPiece::Loose(lone));
        }
        if let Some(head) = self.group(key) {
            let sealed = head.chunks.iter().filter(|chunk| chunk.range.overlaps(range)).cloned();
            pieces.extend(sealed.map(HeadPiece::Sealed));
            pieces.push(HeadPiece::Loose(self.sorted(head, range, Some(slots))));
        }
        pieces.retain(|piece| piece.range().is_some());
        pieces
    }

    fn group(&self, key: &PartKey) -> Option<&GroupHead> {
        if key.block > 0 {
            return self.wide.get(&(key.group, key.block));
        }
        let place = self.places.get(key.group as usize).filter(|place| **place & LONE == 0)?;
        self.groups.get(*place as usize).map(|(_, head)| head)
    }

    /// Whether a key has a row in a range, judged by whole chunks.
    pub(crate) fn has_rows(&mut self, key: &PartKey, range: &TimeRange) -> bool {
        self.lone.prepare_read();
        self.has_rows_frozen(key, range)
    }

    /// As [`Head::has_rows`], of a head that nothing is added to any more.
    pub(crate) fn has_rows_frozen(&self, key: &PartKey, range: &TimeRange) -> bool {
        if key.block == 0 && !self.lone.of_group(key.group, range).is_empty() {
            return true;
        }
        self.group(key).is_some_and(|head| {
            head.chunks.iter().any(|chunk| chunk.range.overlaps(range))
                || head.rows(self.layouts.width(head.layout)).any(|(timestamp_ns, ..)| range.contains(timestamp_ns))
        })
    }

    /// Sorts what a flush will go through.
    pub(crate) fn freeze(&mut self) {
        self.lone.sort();
    }

    /// Everything, for a flush.
    pub(crate) fn contents(&self) -> HeadContents<'_> {
        HeadContents { head: self, lone: self.lone.by_group() }
    }

    /// Whether there is nothing of a group.
    pub(crate) fn is_silent(&self, group: GroupId) -> bool {
        self.places.get(group as usize).is_none_or(|place| *place == NOWHERE)
            && self.wide.range((group, 0)..=(group, u32::MAX)).next().is_none()
    }
}

/// Everything in a head, for a flush.
pub(crate) struct HeadContents<'a> {
    head: &'a Head,
    lone: RowsByGroup<'a>,
}

impl HeadContents<'_> {
    /// Groups and member blocks that have rows; some may come twice.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (GroupId, u32)> {
        let own = self.head.groups.iter().map(|(group, _)| (*group, 0));
        own.chain(self.head.wide.keys().copied()).chain(self.lone.groups().map(|group| (group, 0)))
    }

    /// A key's rows as chunks, oldest first.
    pub(crate) fn chunks(&self, group: GroupId, block: u32) -> Vec<SealedChunk> {
        let mut chunks = Vec::new();
        if block == 0 {
            let rows = self.head.lone_rows(self.lone.of_group(group), None);
            for from in (0..rows.timestamps_ns.len()).step_by(CHUNK_ROWS_MAX) {
                let to = (from + CHUNK_ROWS_MAX).min(rows.timestamps_ns.len());
                chunks.extend(SealedChunk::of(&chunk::slice(&rows, from, to), self.head.sequences.unwrap_or((0, 0))));
            }
        }
        let key = PartKey { group, block, ..PartKey::default() };
        if let Some(head) = self.head.group(&key) {
            chunks.extend(head.chunks.iter().cloned());
            chunks.extend(self.head.encode_buffer(head));
        }
        chunks
    }
}

/// Timestamps and the wanted columns of a buffer all of whose rows are wanted, whole and numbers: column by column, which is
/// several times as fast as row by row.
fn dense(
    head: &GroupHead,
    range: &TimeRange,
    columns: &[(Slot, ValueType)],
    wanted: &[usize],
) -> Option<(Vec<i64>, Vec<Vec<u64>>)> {
    let has_texts = columns.iter().any(|(_, value_type)| value_type.is_elsewhere());
    if head.sparse || has_texts || *range != TimeRange::ALL {
        return None;
    }
    let rows = || head.buffer.chunks_exact(1 + columns.len());
    let timestamps_ns = rows().map(|row| row[0] as i64).collect();
    let cells = wanted.iter().map(|place| rows().map(|row| row[1 + place]).collect());
    Some((timestamps_ns, cells.collect()))
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
        if head.chunks.is_empty() {
            bytes += GROUP_BYTES;
        }
        head.sequences = (sequence, sequence);
        head.unsorted = false;
        head.sparse = false;
    } else {
        head.unsorted |= timestamp_ns <= head.last_ns;
    }
    head.last_ns = timestamp_ns;
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

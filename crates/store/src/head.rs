//! The newest rows of a shard, in memory.
//!
//! ```text
//! Head
//!  ├─ layouts        interned column lists
//!  ├─ groups[id]     row buffer (row-major: timestamp, presence words if sparse, cells) + sealed chunks
//!  └─ text           what string cells point into
//! ```
//!
//! A row buffer that is full is sealed: sorted, merged, encoded as a chunk. Rows keep the order of arrival until then,
//! so that for the same time the later one wins.

use std::collections::HashMap;
use std::sync::Arc;

use index::{GroupId, Slot};
use model::{Span, TimeRange, ValueType};

use crate::chunk::{self, CHUNK_ROWS_MAX, Rows, RowsColumn};
use crate::log::record::{RowBlock, ShardRows};

/// Least bytes of a group's row buffer before it is sealed (design: 2 KiB, or 40 B a member if that is more).
const SEAL_BYTES_MIN: usize = 2 << 10;
const SEAL_BYTES_PER_MEMBER: usize = 40;
/// Most bytes of a group's row buffer, however few groups there are.
const SEAL_BYTES_MAX: usize = 64 << 10;

/// Fixed cost of a group that has rows: its entry in the head and the allocations behind it.
const GROUP_BYTES: usize = size_of::<GroupHead>() + 32;

type LayoutId = u32;

/// The newest rows of a shard.
#[derive(Debug)]
pub(crate) struct Head {
    budget_bytes: usize,
    layouts: Layouts,
    groups: Vec<GroupHead>,
    /// Groups that have rows.
    active_groups: usize,
    text: Vec<u8>,
    /// Bytes of row buffers, chunks and text.
    bytes: usize,
    seal_bytes: usize,
    pub(crate) rows: u64,
    /// Smallest and largest sequence id inside.
    sequences: Option<(u64, u64)>,
}

#[derive(Debug, Default)]
struct Layouts {
    columns: Vec<Arc<[(Slot, ValueType)]>>,
    ids: HashMap<Arc<[(Slot, ValueType)]>, LayoutId>,
}

#[derive(Debug, Clone, Default)]
struct GroupHead {
    layout: LayoutId,
    sparse: bool,
    unsorted: bool,
    last_ns: i64,
    /// Smallest and largest sequence id in the buffer.
    sequences: (u64, u64),
    buffer: Vec<u64>,
    chunks: Vec<SealedChunk>,
}

/// A chunk in memory.
#[derive(Debug, Clone)]
pub(crate) struct SealedChunk {
    pub(crate) range: TimeRange,
    pub(crate) sequences: (u64, u64),
    pub(crate) bytes: Arc<[u8]>,
}

/// How a block's columns fall into a layout: place of each.
struct Placement {
    from: LayoutId,
    to: LayoutId,
    /// `None` if the places are 0, 1, 2, … and there are no other columns.
    places: Option<Vec<usize>>,
}

impl Head {
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let mut layouts = Layouts::default();
        layouts.intern(Vec::new());
        Self {
            budget_bytes,
            layouts,
            groups: Vec::new(),
            active_groups: 0,
            text: Vec::new(),
            bytes: 0,
            seal_bytes: SEAL_BYTES_MAX,
            rows: 0,
            sequences: None,
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sequences.is_none()
    }

    pub(crate) fn first_sequence(&self) -> Option<u64> {
        self.sequences.map(|(first, _)| first)
    }

    /// Adds a request's rows. Groups whose layout grew are handed to `grown` with the columns they have now.
    pub(crate) fn append(&mut self, rows: &ShardRows, sequence: u64, mut grown: impl FnMut(GroupId, &[Slot])) {
        for block in &rows.blocks {
            self.append_block(block, &rows.text, sequence, &mut grown);
        }
        let first = self.sequences.map_or(sequence, |(first, _)| first);
        self.sequences = Some((first, sequence));
    }

    fn append_block(&mut self, block: &RowBlock, text: &[u8], sequence: u64, grown: &mut impl FnMut(GroupId, &[Slot])) {
        let texts = block.columns.iter().any(|(_, value_type)| *value_type == ValueType::String);
        let mut placement: Option<Placement> = None;
        let mut moved = Vec::new();
        self.rows += block.rows() as u64;
        for (row, (group, timestamp_ns)) in block.groups.iter().zip(&block.timestamps_ns).enumerate() {
            let place = *group as usize;
            if place >= self.groups.len() {
                self.groups.resize(place + 1, GroupHead::default());
            }
            let layout = self.groups[place].layout;
            let placed = match placement.take() {
                Some(placed) if placed.from == layout || placed.to == layout => placed,
                _ => self.layouts.place(layout, &block.columns),
            };
            if placed.to != layout {
                self.change_layout(place, placed.to);
                grown(*group, &block.columns.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
            }
            let cells = block.row(row);
            let cells = if texts { self.move_texts(cells, &block.columns, text, &mut moved) } else { cells };
            self.append_row(place, *timestamp_ns, cells, placed.places.as_deref(), sequence);
            placement = Some(placed);
        }
    }

    /// Copies the texts of a row's string cells into the head.
    fn move_texts<'a>(
        &mut self,
        cells: &[u64],
        columns: &[(Slot, ValueType)],
        text: &[u8],
        moved: &'a mut Vec<u64>,
    ) -> &'a [u64] {
        moved.clear();
        for (cell, (_, value_type)) in cells.iter().zip(columns) {
            if *value_type != ValueType::String {
                moved.push(*cell);
                continue;
            }
            let from = Span::from_cell(*cell);
            let bytes = text.get(from.start as usize..).and_then(|text| text.get(..from.len as usize));
            let bytes = bytes.unwrap_or_default();
            moved.push(Span { start: self.text.len() as u32, len: bytes.len() as u32 }.to_cell());
            self.text.extend_from_slice(bytes);
            self.bytes += bytes.len();
        }
        moved
    }

    fn append_row(&mut self, place: usize, timestamp_ns: i64, cells: &[u64], places: Option<&[usize]>, sequence: u64) {
        let group = &mut self.groups[place];
        let width = self.layouts.width(group.layout);
        if group.buffer.is_empty() {
            if group.chunks.is_empty() {
                self.active_groups += 1;
                self.bytes += GROUP_BYTES;
            }
            group.sequences = (sequence, sequence);
            group.unsorted = false;
            group.sparse = false;
        } else {
            group.unsorted |= timestamp_ns <= group.last_ns;
        }
        group.last_ns = timestamp_ns;
        group.sequences.1 = sequence;
        let before = group.buffer.len();
        match places {
            None if !group.sparse => {
                group.buffer.push(timestamp_ns as u64);
                group.buffer.extend_from_slice(cells);
            }
            Some(places) if !group.sparse && places.len() == width => group.push_permuted(timestamp_ns, cells, places),
            _ => group.push_sparse(timestamp_ns, cells, places, width),
        }
        self.bytes += (group.buffer.len() - before) * 8;
        let full_bytes = self.seal_bytes.max(width * SEAL_BYTES_PER_MEMBER);
        if group.buffer.len() * 8 >= full_bytes || group.buffer.len() >= CHUNK_ROWS_MAX {
            self.seal(place);
        }
    }

    fn change_layout(&mut self, place: usize, to: LayoutId) {
        let group = &mut self.groups[place];
        if !group.buffer.is_empty() {
            let before = group.buffer.len();
            let places = self.layouts.places(group.layout, to);
            group.widen(self.layouts.width(group.layout), self.layouts.width(to), &places);
            self.bytes += (group.buffer.len() - before) * 8;
        }
        self.groups[place].layout = to;
    }

    fn seal(&mut self, place: usize) {
        let Some(sealed) = self.encode_buffer(place) else {
            return;
        };
        let group = &mut self.groups[place];
        self.bytes = self.bytes + sealed.bytes.len() + size_of::<SealedChunk>() - group.buffer.len() * 8;
        group.buffer.clear();
        group.chunks.push(sealed);
        self.seal_bytes = seal_bytes(self.budget_bytes, self.active_groups);
        if group.buffer.capacity() * 8 > self.seal_bytes * 2 {
            group.buffer.shrink_to(self.seal_bytes / 8);
        }
    }

    /// The row buffer as a chunk; `None` if it is empty.
    fn encode_buffer(&self, place: usize) -> Option<SealedChunk> {
        let group = self.groups.get(place).filter(|group| !group.buffer.is_empty())?;
        let rows = self.sorted(group, &TimeRange::ALL, None);
        let range = TimeRange::new(*rows.timestamps_ns.first()?, *rows.timestamps_ns.last()?);
        let mut bytes = Vec::new();
        chunk::encode(&rows, group.sequences, &mut bytes);
        Some(SealedChunk { range, sequences: group.sequences, bytes: bytes.into() })
    }

    /// The rows of a group's buffer in a range, sorted and merged, with the given columns (sorted) or all.
    fn sorted(&self, group: &GroupHead, range: &TimeRange, slots: Option<&[Slot]>) -> Rows {
        let columns = self.layouts.get(group.layout);
        let mut rows = Rows::default();
        let mut wanted = Vec::new();
        for (place, (slot, value_type)) in columns.iter().enumerate() {
            if slots.is_none_or(|slots| slots.binary_search(slot).is_ok()) {
                wanted.push(place);
                rows.columns.push(RowsColumn::new(*slot, *value_type));
            }
        }
        for (timestamp_ns, present, cells) in group.rows(columns.len()) {
            if !range.contains(timestamp_ns) {
                continue;
            }
            rows.timestamps_ns.push(timestamp_ns);
            for (column, place) in rows.columns.iter_mut().zip(&wanted) {
                let cell = cells.get(*place).copied().filter(|_| is_present(present, *place));
                match cell {
                    Some(cell) if column.value_type == ValueType::String => column.push_text(self.text_of(cell)),
                    cell => column.push(cell),
                }
            }
        }
        if group.unsorted { chunk::merge(&[rows]) } else { rows }
    }

    fn text_of(&self, cell: u64) -> &str {
        crate::log::record::text_of(&self.text, cell).unwrap_or_default()
    }

    /// A group's sealed chunks that overlap a range, and its unsealed rows in it, oldest first.
    pub(crate) fn read(&self, group: GroupId, range: &TimeRange, slots: &[Slot]) -> (Vec<SealedChunk>, Option<Rows>) {
        let Some(group) = self.groups.get(group as usize) else {
            return (Vec::new(), None);
        };
        let chunks = group.chunks.iter().filter(|chunk| chunk.range.overlaps(range)).cloned().collect();
        let rows = (!group.buffer.is_empty()).then(|| self.sorted(group, range, Some(slots)));
        (chunks, rows.filter(|rows| !rows.timestamps_ns.is_empty()))
    }

    /// Whether a group has a row in a range, judged by whole chunks.
    pub(crate) fn has_rows(&self, group: GroupId, range: &TimeRange) -> bool {
        let Some(group) = self.groups.get(group as usize) else {
            return false;
        };
        let width = self.layouts.width(group.layout);
        group.chunks.iter().any(|chunk| chunk.range.overlaps(range))
            || group.rows(width).any(|(timestamp_ns, ..)| range.contains(timestamp_ns))
    }

    /// All of a group's rows as chunks, oldest first: what a flush writes.
    pub(crate) fn chunks(&self, group: GroupId) -> Vec<SealedChunk> {
        let mut chunks = self.groups.get(group as usize).map_or(Vec::new(), |group| group.chunks.clone());
        chunks.extend(self.encode_buffer(group as usize));
        chunks
    }

    /// Groups that have rows.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        let has_rows = |(_, group): &(usize, &GroupHead)| !group.buffer.is_empty() || !group.chunks.is_empty();
        self.groups.iter().enumerate().filter(has_rows).map(|(place, _)| place as GroupId)
    }
}

/// Bytes at which a row buffer is sealed: half of the budget spread over the groups, within bounds. Few groups get large
/// buffers, and with them large chunks; many get small ones.
fn seal_bytes(budget_bytes: usize, active_groups: usize) -> usize {
    (budget_bytes / 2 / active_groups.max(1)).clamp(SEAL_BYTES_MIN, SEAL_BYTES_MAX)
}

fn presence_words(width: usize) -> usize {
    width.div_ceil(64)
}

fn is_present(present: &[u64], place: usize) -> bool {
    present.get(place / 64).is_none_or(|word| word >> (place % 64) & 1 == 1)
}

impl GroupHead {
    /// Timestamp, presence words (none: all present) and cells of each row.
    fn rows(&self, width: usize) -> impl Iterator<Item = (i64, &[u64], &[u64])> {
        let presence = if self.sparse { presence_words(width) } else { 0 };
        self.buffer.chunks_exact(1 + presence + width).map(move |row| {
            let (present, cells) = row[1..].split_at(presence);
            (row[0] as i64, present, cells)
        })
    }

    /// A row with all cells, in another order than the layout's.
    fn push_permuted(&mut self, timestamp_ns: i64, cells: &[u64], places: &[usize]) {
        self.buffer.push(timestamp_ns as u64);
        let cells_at = self.buffer.len();
        self.buffer.resize(cells_at + places.len(), 0);
        for (cell, place) in cells.iter().zip(places) {
            self.buffer[cells_at + place] = *cell;
        }
    }

    fn push_sparse(&mut self, timestamp_ns: i64, cells: &[u64], places: Option<&[usize]>, width: usize) {
        if !self.sparse {
            let same: Vec<usize> = (0..width).collect();
            self.widen(width, width, &same);
        }
        self.buffer.push(timestamp_ns as u64);
        let presence_at = self.buffer.len();
        let cells_at = presence_at + presence_words(width);
        self.buffer.resize(cells_at + width, 0);
        for (column, cell) in cells.iter().enumerate() {
            let place = places.map_or(column, |places| places[column]);
            self.buffer[presence_at + place / 64] |= 1 << (place % 64);
            self.buffer[cells_at + place] = *cell;
        }
    }

    /// Rewrites the rows as sparse ones of another layout; `places` says where each old column goes.
    fn widen(&mut self, from_width: usize, to_width: usize, places: &[usize]) {
        let mut wider = Self { sparse: true, ..Self::default() };
        for (timestamp_ns, present, cells) in self.rows(from_width) {
            let kept = (0..from_width).filter(|place| is_present(present, *place));
            let (cells, places): (Vec<u64>, Vec<usize>) = kept.map(|place| (cells[place], places[place])).unzip();
            wider.push_sparse(timestamp_ns, &cells, Some(&places), to_width);
        }
        self.buffer = wider.buffer;
        self.sparse = true;
    }
}

impl Layouts {
    fn get(&self, id: LayoutId) -> Arc<[(Slot, ValueType)]> {
        self.columns.get(id as usize).cloned().unwrap_or_default()
    }

    fn width(&self, id: LayoutId) -> usize {
        self.columns.get(id as usize).map_or(0, |columns| columns.len())
    }

    fn intern(&mut self, columns: Vec<(Slot, ValueType)>) -> LayoutId {
        if let Some(id) = self.ids.get(columns.as_slice()) {
            return *id;
        }
        let columns: Arc<[(Slot, ValueType)]> = columns.into();
        let id = self.columns.len() as LayoutId;
        self.columns.push(columns.clone());
        self.ids.insert(columns, id);
        id
    }

    /// The layout that holds a group's columns and a block's, and where the block's go in it.
    fn place(&mut self, from: LayoutId, block: &[(Slot, ValueType)]) -> Placement {
        let known = self.get(from);
        let mut columns = known.to_vec();
        columns.extend(block);
        columns.sort_unstable();
        columns.dedup_by_key(|(slot, _)| *slot);
        let to = self.intern(columns);
        let columns = self.get(to);
        let places: Vec<usize> = block.iter().map(|column| place_of(&columns, column.0)).collect();
        let straight = places.len() == columns.len() && places.iter().enumerate().all(|(at, place)| at == *place);
        Placement { from, to, places: (!straight).then_some(places) }
    }

    fn places(&self, from: LayoutId, to: LayoutId) -> Vec<usize> {
        let columns = self.get(to);
        self.get(from).iter().map(|(slot, _)| place_of(&columns, *slot)).collect()
    }
}

/// Where a slot stands among columns that hold it.
fn place_of(columns: &[(Slot, ValueType)], slot: Slot) -> usize {
    columns.partition_point(|(candidate, _)| *candidate < slot)
}

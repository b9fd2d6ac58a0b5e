//! Reading a group's samples: from parts, heads and what deletes leave of them.

use std::sync::Arc;

use index::Slot;
use model::{Column, TimeRange};
use tracing_mutex::parkinglot::Mutex;

use crate::chunk::{self, ChunkHeader, Rows, RowsColumn};
use crate::deletes::Delete;
use crate::head::HeadPiece;
use crate::histogram;
use crate::origins::Origins;
use crate::part::{BLOCK_SLOTS, ChunkRef, Part, PartKey, ReadAhead, SeenBlocks};
use crate::scan::{SelectedColumn, SelectedGroup};
use crate::shard::Shard;
use crate::{Store, StoreError};

/// What a shard has of a key at a moment, oldest first.
pub(crate) struct KeyView {
    pub(crate) key: PartKey,
    pub(crate) parts: Arc<Vec<Arc<Part>>>,
    pub(crate) deletes: Arc<Vec<Delete>>,
    /// What heads have in the range, oldest first.
    pub(crate) heads: Vec<HeadPiece>,
}

impl KeyView {
    /// Takes a view of a key: nothing that is written later is in it.
    pub(crate) fn take(shard: &Shard, key: PartKey, range: &TimeRange, slots: &[Slot]) -> Self {
        let (parts, deletes, frozen, newest) = {
            let state = shard.state.lock();
            let newest = state.head.read(&key, range, slots);
            (state.parts.clone(), state.deletes.clone(), state.frozen.clone(), newest)
        };
        let frozen = frozen.map(|frozen| frozen.head.read(&key, range, slots));
        let heads = frozen.into_iter().flatten().chain(newest).collect();
        Self { key, parts, deletes, heads }
    }

    /// Deletes that mask something of the key in a part.
    pub(crate) fn masking(&self, part: &Part) -> Vec<&Delete> {
        self.deletes.iter().filter(|delete| delete.touches(&self.key, &part.info)).collect()
    }

    /// The key's rows of a part, as they were written and not deleted.
    pub(crate) fn read_part(&self, part: &Part, chunks: &[ChunkRef], slots: &[Slot]) -> Result<Vec<Rows>, StoreError> {
        Ok(self.not_deleted(part, part.read(chunks, Some(slots))?))
    }

    fn not_deleted(&self, part: &Part, read: Vec<(ChunkHeader, Rows)>) -> Vec<Rows> {
        let masking = self.masking(part);
        let read = read.into_iter().map(|(_, mut rows)| {
            masking.iter().for_each(|delete| delete.apply(&self.key, &mut rows));
            rows
        });
        read.collect()
    }

    /// The rows that heads have, oldest first.
    pub(crate) fn read_heads(&self, slots: &[Slot]) -> Result<Vec<Rows>, StoreError> {
        let rows = |piece: &HeadPiece| piece.rows(slots).map_err(|error| StoreError::in_head(&error));
        self.heads.iter().map(rows).collect()
    }

    /// All rows that overlap a range, oldest first.
    pub(crate) fn pieces(&self, range: &TimeRange, slots: &[Slot], way: &ReadersWay) -> Result<Vec<Rows>, StoreError> {
        let (mut pieces, mut origins) = (Vec::new(), Origins::default());
        let mut found: Vec<(&Part, Vec<ChunkRef>)> = Vec::new();
        for part in self.parts.iter().filter(|part| part.info.range.overlaps(range)) {
            if let Some(entry) = part.find_seen(self.key, &way.seen)? {
                found.push((part, entry.overlapping(range)));
            }
        }
        Part::warm(found.iter().flat_map(|(part, chunks)| chunks.iter().map(|chunk| (*part, chunk.place))));
        for (part, chunks) in found {
            let read = part.read_ahead(&chunks, Some(slots), &way.ahead)?;
            let rows = self.not_deleted(part, read);
            origins.add_chunks(part, &chunks, &rows);
            pieces.extend(rows);
        }
        let heads = self.read_heads(slots)?;
        origins.add_head(&heads);
        way.origins.lock().merge(&origins);
        pieces.extend(heads);
        Ok(pieces)
    }
}

/// The chosen columns of a group by member block, with their places among the chosen.
pub(crate) fn by_block(columns: &[SelectedColumn]) -> Vec<(u32, Vec<usize>)> {
    let mut blocks: Vec<(u32, Vec<usize>)> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let block = column.slot / BLOCK_SLOTS;
        match blocks.last_mut().filter(|(last, _)| *last == block) {
            Some((_, places)) => places.push(place),
            None => blocks.push((block, vec![place])),
        }
    }
    blocks
}

/// What one who reads many keys came by.
#[derive(Default)]
pub(crate) struct ReadersWay {
    seen: SeenBlocks,
    ahead: ReadAhead,
    origins: Mutex<Origins>,
}

/// Reads groups one after the other and remembers what it came by in parts: for whoever reads many. Threads may share one. What is
/// written meanwhile is read.
pub struct GroupReader<'s> {
    pub(crate) store: &'s Store,
    pub(crate) way: ReadersWay,
}

impl GroupReader<'_> {
    /// Where all lay that was read so far.
    pub fn origins(&self) -> Origins {
        *self.way.origins.lock()
    }

    /// About as many bytes as it holds of what it came by.
    pub fn memory_bytes(&self) -> usize {
        self.way.seen.memory_bytes() + self.way.ahead.memory_bytes()
    }

    /// A group's samples in a range: one column for each of [`SelectedGroup::columns`].
    pub fn read(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Vec<Column>, StoreError> {
        let Some(shard) = self.store.shards.get(selected.shard) else {
            return Ok(Vec::new());
        };
        let range = &self.store.kept(selected.key.database, range);
        let mut columns = Vec::with_capacity(selected.columns.len());
        for (block, places) in by_block(&selected.columns) {
            let wanted: Vec<&SelectedColumn> = places.iter().filter_map(|place| selected.columns.get(*place)).collect();
            let slots: Vec<Slot> = wanted.iter().map(|column| column.slot).collect();
            let view = KeyView::take(shard, PartKey { block, ..selected.key }, range, &slots);
            let pieces = view.pieces(range, &slots, &self.way)?;
            let pieces = chunk::in_time_order(pieces);
            columns.extend(wanted.into_iter().map(|column| collect_column(&pieces, column, range)));
        }
        Ok(columns)
    }
}

impl Store {
    /// Reads many groups.
    pub fn reader(&self) -> GroupReader<'_> {
        GroupReader { store: self, way: ReadersWay::default() }
    }

    /// A group's samples in a range: one column for each of [`SelectedGroup::columns`].
    pub fn read(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Vec<Column>, StoreError> {
        self.reader().read(selected, range)
    }

    /// Whether a group has rows in a range, judged by whole chunks.
    pub fn has_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<bool, StoreError> {
        let Some(shard) = self.shards.get(selected.shard) else {
            return Ok(false);
        };
        let range = &self.kept(selected.key.database, range);
        for (block, _) in by_block(&selected.columns) {
            let key = PartKey { block, ..selected.key };
            let (parts, frozen) = {
                let state = shard.state.lock();
                if state.head.has_rows(&key, range) {
                    return Ok(true);
                }
                (state.parts.clone(), state.frozen.clone())
            };
            if frozen.is_some_and(|frozen| frozen.head.has_rows(&key, range)) {
                return Ok(true);
            }
            for part in parts.iter().filter(|part| part.info.range.overlaps(range)) {
                if part.find(key)?.is_some_and(|entry| !entry.overlapping(range).is_empty()) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

fn collect_column(pieces: &[Rows], wanted: &SelectedColumn, range: &TimeRange) -> Column {
    let mut column = Column::with_capacity(wanted.value_type, pieces.iter().map(|rows| rows.timestamps_ns.len()).sum());
    for rows in pieces {
        let of_slot = |column: &&RowsColumn| column.slot == wanted.slot && column.value_type == wanted.value_type;
        let Some(cells) = rows.columns.iter().find(of_slot) else {
            continue;
        };
        let from = rows.timestamps_ns.partition_point(|timestamp| *timestamp < range.start_ns);
        let to = rows.timestamps_ns.partition_point(|timestamp| *timestamp <= range.end_ns);
        if append_all(&mut column, rows, cells, from..to) {
            continue;
        }
        for row in (from..to).filter(|row| !cells.is_null(*row)) {
            if let (Some(timestamp), Some(cell)) = (rows.timestamps_ns.get(row), cells.cells.get(row)) {
                push_cell(&mut column, *timestamp, *cell, cells);
            }
        }
    }
    column
}

/// Appends a stretch of numbers none of which is null, at once; false if it is not such.
fn append_all(column: &mut Column, rows: &Rows, cells: &RowsColumn, stretch: std::ops::Range<usize>) -> bool {
    let (Some(times), Some(bits)) = (rows.timestamps_ns.get(stretch.clone()), cells.cells.get(stretch)) else {
        return false;
    };
    match column {
        _ if !cells.nulls.is_empty() => false,
        Column::F64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend(bits.iter().copied().map(f64::from_bits));
            true
        }
        Column::I64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend(bits.iter().map(|cell| *cell as i64));
            true
        }
        Column::U64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend_from_slice(bits);
            true
        }
        _ => false,
    }
}

fn push_cell(column: &mut Column, timestamp_ns: i64, cell: u64, cells: &RowsColumn) {
    match column {
        Column::F64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(f64::from_bits(cell));
        }
        Column::I64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell as i64);
        }
        Column::U64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell);
        }
        Column::Bool(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell != 0);
        }
        Column::String(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(String::from_utf8_lossy(cells.text(cell)).into_owned());
        }
        Column::Histogram(timestamps, values) => {
            if let Some(value) = histogram::from_bytes(cells.text(cell), values.last()) {
                timestamps.push(timestamp_ns);
                values.push(value);
            }
        }
    }
}

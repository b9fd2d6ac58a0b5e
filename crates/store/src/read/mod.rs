//! Reading a group's samples: from parts, heads and what deletes leave of them.

pub(crate) mod end_rows;
pub(crate) mod extent;
pub(crate) mod folds;
pub(crate) mod head_rows;
pub(crate) mod last_rows;
pub(crate) mod last_samples;
pub(crate) mod milliseconds;
pub(crate) mod names;
pub(crate) mod origins;
pub(crate) mod select;
pub(crate) mod table_rows;
pub(crate) mod tables;
pub(crate) mod times_cache;
pub(crate) mod windows;

use std::sync::Arc;

use index::Slot;
use model::{SampleColumn, TimeRange, ValueType};
use tracing_mutex::parkinglot::Mutex;

use crate::cache::index_blocks::IndexBlockCache;
use crate::cache::last_rows::LastRowsCache;
use crate::head::HeadBlock;
use crate::head::shard::Shard;
use crate::part::chunk::{self, DecodeTarget, EncodedTimes, Rows, RowsColumn};
use crate::part::histogram;
use crate::part::{BLOCK_SLOTS, ChunkRef, Part, PartKey, ReadAhead};
use crate::read::origins::Origins;
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::times_cache::TimesCache;
use crate::retention::deletes::Delete;
use crate::{Store, StoreError};

/// What a shard has of a key at a moment, oldest first.
pub(crate) struct KeySnapshot {
    pub(crate) key: PartKey,
    pub(crate) parts: Arc<Vec<Arc<Part>>>,
    pub(crate) deletes: Arc<Vec<Delete>>,
    /// What heads have in the range, oldest first.
    pub(crate) heads: Vec<HeadBlock>,
}

impl KeySnapshot {
    /// Takes a snapshot of a key: nothing that is written later is in it.
    pub(crate) fn take(shard: &Shard, key: PartKey, range: &TimeRange, slots: &[Slot]) -> Self {
        let (parts, deletes, frozen, newest) = {
            let state = shard.state.lock();
            let newest = state.head.read(&key, range, slots);
            (state.parts.clone(), state.deletes.clone(), state.frozen.clone(), newest)
        };
        let frozen = frozen.map(|frozen| frozen.head.read(&key, range, slots));
        let heads = frozen.into_iter().flatten().chain(newest).map(|piece| piece.resolved(slots));
        let heads = heads.filter(|piece| piece.range().is_some()).collect();
        Self { key, parts, deletes, heads }
    }

    /// Deletes that mask something of the key in a part.
    pub(crate) fn masking(&self, part: &Part) -> Vec<&Delete> {
        self.deletes.iter().filter(|delete| delete.touches(&self.key, &part.info)).collect()
    }

    /// The key's rows of a part, as they were written and not deleted.
    pub(crate) fn read_part(&self, part: &Part, chunks: &[ChunkRef], slots: &[Slot]) -> Result<Vec<Rows>, StoreError> {
        let masking = self.masking(part);
        let read = part.read(chunks, Some(slots))?.into_iter().map(|(_, mut rows)| {
            masking.iter().for_each(|delete| delete.apply(&self.key, &mut rows));
            rows
        });
        Ok(read.collect())
    }

    /// The rows that heads have, oldest first.
    pub(crate) fn read_heads(&self, slots: &[Slot]) -> Result<Vec<Rows>, StoreError> {
        let rows = |piece: &HeadBlock| piece.rows(slots).map_err(|error| StoreError::in_head(&error));
        self.heads.iter().map(rows).collect()
    }

    /// The chunks that overlap a range, part by part.
    pub(crate) fn find_chunks(
        &self,
        range: &TimeRange,
        context: &ReadContext,
    ) -> Result<Vec<(&Part, ChunkRef)>, StoreError> {
        let (mut found, mut chunks) = (Vec::new(), Vec::new());
        for part in self.parts.iter().filter(|part| part.info.range.overlaps(range)) {
            part.find_in(self.key, range, &context.index_blocks, &mut chunks)?;
            found.extend(chunks.drain(..).map(|chunk| (&**part, chunk)));
        }
        Ok(found)
    }

    /// The only chunk that was found, if only its last rows are wanted and no delete masks it: then they may be cached.
    fn cacheable<'s>(&self, found: &[(&'s Part, ChunkRef)], range: &TimeRange) -> Option<(&'s Part, ChunkRef)> {
        let [(part, chunk)] = found else { return None };
        (LastRowsCache::takes(chunk, range) && self.masking(part).is_empty()).then_some((*part, *chunk))
    }

    /// All rows that overlap a range, oldest first; those of chunks that do not overlap in time joined in order of it.
    pub(crate) fn row_blocks(
        &self,
        range: &TimeRange,
        slots: &[Slot],
        context: &ReadContext,
    ) -> Result<Vec<Rows>, StoreError> {
        self.pieces_with_times(self.find_chunks(range, context)?, range, slots, (context, false))
            .map(|(pieces, _)| pieces)
    }

    /// As [`Self::pieces`]; the timestamps of a single piece of chunks as they were written may stay encoded.
    pub(crate) fn pieces_with_times(
        &self,
        mut found: Vec<(&Part, ChunkRef)>,
        range: &TimeRange,
        slots: &[Slot],
        (context, keep_encoded): (&ReadContext, bool),
    ) -> Result<(Vec<Rows>, Option<EncodedTimes>), StoreError> {
        let cacheable = self.cacheable(&found, range);
        if let Some(cached) = cacheable.and_then(|(part, chunk)| context.last_rows.get(part, &chunk, range, slots)) {
            let heads = self.read_heads(slots)?;
            context.origins.lock().add_head(&heads);
            return Ok((std::iter::once(cached).chain(heads).collect(), None));
        }
        let (mut origins, mut chunks) = (Origins::default(), Vec::new());
        Part::warm(found.iter().map(|(part, chunk)| (*part, chunk.handle)));
        let apart = in_order_apart(&mut found);
        let heads = self.read_heads(slots)?;
        origins.add_head(&heads);
        // What heads have something to say about is not joined with what they have not.
        let heads_from_ns = heads.iter().filter_map(|rows| rows.timestamps_ns.first()).min().copied();
        let is_free = |chunk: &ChunkRef| heads_from_ns.is_none_or(|from_ns| chunk.range.end_ns < from_ns);
        let lengths = found.iter().map(|(_, chunk)| chunk.range.end_ns.wrapping_sub(chunk.range.start_ns) as u64);
        let as_written = apart && heads.is_empty() && found.iter().all(|(part, _)| self.masking(part).is_empty());
        let encoded_times = (keep_encoded && as_written && !found.is_empty()).then(EncodedTimes::default);
        let mut target =
            DecodeTarget { chunks: found.len(), length_ns: lengths.sum(), encoded_times, ..DecodeTarget::default() };
        let together = |(a, left): &(&Part, ChunkRef), (b, right): &(&Part, ChunkRef)| {
            a.info.id == b.info.id && is_free(left) == is_free(right)
        };
        for of_part in found.chunk_by(together) {
            let Some((part, first)) = of_part.first() else { continue };
            chunks.clear();
            chunks.extend(of_part.iter().map(|(_, chunk)| *chunk));
            let (masking, before) = (self.masking(part), target.blocks.len());
            target.goes_on = apart && masking.is_empty() && is_free(first);
            let rows = part.read_into(&chunks, slots, &context.ahead, &mut target)?;
            for delete in masking {
                target.blocks.iter_mut().skip(before).for_each(|rows| delete.apply(&self.key, rows));
            }
            origins.add_chunks(part, &chunks, rows as u64);
        }
        if let (Some((part, chunk)), [rows], None) = (cacheable, target.blocks.as_slice(), &target.encoded_times) {
            context.last_rows.insert(part, &chunk, range, slots, rows);
        }
        let mut pieces = target.blocks;
        context.origins.lock().merge(&origins);
        pieces.extend(heads);
        Ok((pieces, target.encoded_times))
    }
}

/// Puts chunks in order of time if no two overlap; whether that is so.
fn in_order_apart(found: &mut [(&Part, ChunkRef)]) -> bool {
    let follow = |found: &[(&Part, ChunkRef)]| {
        found.windows(2).all(|pair| matches!(pair, [(_, a), (_, b)] if a.range.end_ns < b.range.start_ns))
    };
    if follow(found) {
        return true;
    }
    let mut order: Vec<TimeRange> = found.iter().map(|(_, chunk)| chunk.range).collect();
    order.sort_unstable_by_key(|range| range.start_ns);
    let apart = order.windows(2).all(|pair| matches!(pair, [a, b] if a.end_ns < b.start_ns));
    if apart {
        found.sort_unstable_by_key(|(_, chunk)| chunk.range.start_ns);
    }
    apart
}

/// The chosen columns of a group by member block, with their indexes among the chosen.
pub(crate) fn by_block(columns: &[SelectedColumn]) -> Vec<(u32, Vec<usize>)> {
    let mut blocks: Vec<(u32, Vec<usize>)> = Vec::new();
    for (index, column) in columns.iter().enumerate() {
        let block = column.slot / BLOCK_SLOTS;
        match blocks.last_mut().filter(|(last, _)| *last == block) {
            Some((_, indexes)) => indexes.push(index),
            None => blocks.push((block, vec![index])),
        }
    }
    blocks
}

/// State shared across the keys that one reader visits.
pub(crate) struct ReadContext {
    /// The store's, both.
    pub(crate) index_blocks: Arc<IndexBlockCache>,
    pub(crate) last_rows: Arc<LastRowsCache>,
    ahead: ReadAhead,
    times: TimesCache,
    origins: Mutex<Origins>,
}

impl ReadContext {
    fn count_cut(&self, folds: u64) {
        self.origins.lock().cut_folds += folds;
    }
}

/// A column of [`GroupReader::read_by_millisecond`].
#[derive(Debug, Clone, PartialEq)]
pub enum ByMillisecond {
    /// Numbers as floats, no two of them in the same millisecond. Groups with the same times may share their memory.
    Floats {
        /// Milliseconds since the Unix epoch.
        times_ms: Arc<Vec<i64>>,
        /// As many as times.
        values: Vec<f64>,
    },
    /// Anything, as it is.
    Column(SampleColumn),
}

/// Reads many groups one after the other, and caches what it decoded of parts. Threads may share one. What is
/// written meanwhile is read.
pub struct GroupReader<'s> {
    pub(crate) store: &'s Store,
    pub(crate) context: ReadContext,
}

impl GroupReader<'_> {
    /// Where all lay that was read so far.
    pub fn origins(&self) -> Origins {
        *self.context.origins.lock()
    }

    /// About as many bytes as it has cached.
    pub fn memory_bytes(&self) -> usize {
        self.context.ahead.memory_bytes() + self.context.times.memory_bytes()
    }

    /// A group's samples in a range: one column for each of [`SelectedGroup::columns`].
    pub fn read(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Vec<SampleColumn>, StoreError> {
        let mut columns = Vec::with_capacity(selected.columns.len());
        self.each_block(selected, range, |snapshot, range, wanted, slots| {
            columns_of(snapshot.row_blocks(range, slots, &self.context)?, wanted, range, |column| columns.push(column));
            Ok(())
        })?;
        Ok(columns)
    }

    /// A group's samples in a range, by milliseconds: timestamps that many groups share are converted once.
    pub fn read_by_millisecond(
        &self,
        selected: &SelectedGroup,
        range: &TimeRange,
    ) -> Result<Vec<ByMillisecond>, StoreError> {
        let mut columns = Vec::with_capacity(selected.columns.len());
        self.each_block(selected, range, |snapshot, range, wanted, slots| {
            let found = snapshot.find_chunks(range, &self.context)?;
            let (mut pieces, encoded_times) = snapshot.pieces_with_times(found, range, slots, (&self.context, true))?;
            if let Some(encoded_times) = encoded_times {
                if take_floats(&mut pieces, &encoded_times, wanted, range, (&self.context.times, &mut columns))
                    .is_some()
                {
                    return Ok(());
                }
                let settled = pieces.iter_mut().try_for_each(|piece| encoded_times.decode(&mut piece.timestamps_ns));
                if settled.is_err() {
                    // Read again, for the error to tell where the bytes are.
                    pieces = snapshot.row_blocks(range, slots, &self.context)?;
                }
            }
            columns_of(pieces, wanted, range, |column| columns.push(ByMillisecond::Column(column)));
            Ok(())
        })?;
        Ok(columns)
    }

    /// Calls for each member block of a group with what there is of it, the range that is kept, the columns and their slots.
    pub(crate) fn each_block(
        &self,
        selected: &SelectedGroup,
        range: &TimeRange,
        mut each: impl FnMut(&KeySnapshot, &TimeRange, &[&SelectedColumn], &[Slot]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let Some(shard) = self.store.shards.get(selected.shard) else {
            return Ok(());
        };
        let range = &self.store.retained(selected.key.database, range);
        for (block, indexes) in by_block(&selected.columns) {
            let wanted: Vec<&SelectedColumn> =
                indexes.iter().filter_map(|index| selected.columns.get(*index)).collect();
            let slots: Vec<Slot> = wanted.iter().map(|column| column.slot).collect();
            let snapshot = KeySnapshot::take(shard, PartKey { block, ..selected.key }, range, &slots);
            each(&snapshot, range, &wanted, &slots)?;
        }
        Ok(())
    }
}

impl Store {
    /// Reads many groups.
    pub fn reader(&self) -> GroupReader<'_> {
        let context = ReadContext {
            index_blocks: self.caches.index_blocks().clone(),
            last_rows: self.caches.last_rows().clone(),
            ahead: ReadAhead::default(),
            times: TimesCache::default(),
            origins: Mutex::default(),
        };
        GroupReader { store: self, context }
    }

    /// A group's samples in a range: one column for each of [`SelectedGroup::columns`].
    pub fn read(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<Vec<SampleColumn>, StoreError> {
        self.reader().read(selected, range)
    }

    /// Returns whether a group has rows in a range, judged by whole chunks.
    pub fn has_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<bool, StoreError> {
        let Some(shard) = self.shards.get(selected.shard) else {
            return Ok(false);
        };
        let range = &self.retained(selected.key.database, range);
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
                if names::part_has_rows(part, key, range, self)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Appends what pieces have of columns.
fn columns_of(pieces: Vec<Rows>, wanted: &[&SelectedColumn], range: &TimeRange, mut push: impl FnMut(SampleColumn)) {
    let mut pieces = chunk::in_time_order(pieces);
    for (index, column) in wanted.iter().enumerate() {
        let taken = match pieces.as_mut_slice() {
            [alone] => take_column(alone, column, range, index + 1 == wanted.len()),
            _ => None,
        };
        push(taken.unwrap_or_else(|| collect_column(&pieces, column, range)));
    }
}

/// Takes the numbers of the only piece, whose timestamps are still encoded; `None` if they are anything but numbers without nulls, or are to be read with
/// their nanoseconds.
fn take_floats(
    pieces: &mut [Rows],
    encoded_times: &EncodedTimes,
    wanted: &[&SelectedColumn],
    range: &TimeRange,
    (known, columns): (&TimesCache, &mut Vec<ByMillisecond>),
) -> Option<()> {
    let [piece] = pieces else { return None };
    let (rows, of_slot) = (encoded_times.rows(), |column: &RowsColumn, wanted: &SelectedColumn| {
        column.slot == wanted.slot && column.value_type == wanted.value_type
    });
    let is_plain = |(column, wanted): (&RowsColumn, &&SelectedColumn)| {
        of_slot(column, wanted) && is_number(column) && column.cells.len() == rows
    };
    if piece.columns.len() != wanted.len() || !piece.columns.iter().zip(wanted).all(is_plain) {
        return None;
    }
    let cut_times = known.cut(encoded_times, range).ok()?;
    let times_ms = cut_times.times_ms.as_ref()?;
    for column in &mut piece.columns {
        let cells = cut(std::mem::take(&mut column.cells), cut_times.rows.clone()).into_iter();
        let values = match column.value_type {
            ValueType::F64 => cells.map(f64::from_bits).collect(),
            ValueType::I64 => cells.map(|cell| cell as i64 as f64).collect(),
            _ => cells.map(|cell| cell as f64).collect(),
        };
        columns.push(ByMillisecond::Floats { times_ms: times_ms.clone(), values });
    }
    Some(())
}

/// Returns whether all cells of a column are numbers.
fn is_number(column: &RowsColumn) -> bool {
    matches!(column.value_type, ValueType::F64 | ValueType::I64 | ValueType::U64) && column.validity.is_empty()
}

/// Takes the only piece's numbers of a column without copying them, with the last one also the times; `None` if it is not such.
fn take_column(rows: &mut Rows, wanted: &SelectedColumn, range: &TimeRange, is_last: bool) -> Option<SampleColumn> {
    let of_slot = |column: &&mut RowsColumn| column.slot == wanted.slot && column.value_type == wanted.value_type;
    let column = rows.columns.iter_mut().find(of_slot)?;
    if !is_number(column) || column.cells.len() != rows.timestamps_ns.len() {
        return None;
    }
    let from = rows.timestamps_ns.partition_point(|timestamp| *timestamp < range.start_ns);
    let to = rows.timestamps_ns.partition_point(|timestamp| *timestamp <= range.end_ns).max(from);
    let times = if is_last {
        cut(std::mem::take(&mut rows.timestamps_ns), from..to)
    } else {
        rows.timestamps_ns.get(from..to)?.to_vec()
    };
    let cells = cut(std::mem::take(&mut column.cells), from..to).into_iter();
    Some(match column.value_type {
        ValueType::F64 => SampleColumn::F64(times, cells.map(f64::from_bits).collect()),
        ValueType::I64 => SampleColumn::I64(times, cells.map(|cell| cell as i64).collect()),
        _ => SampleColumn::U64(times, cells.collect()),
    })
}

/// A range of values, in the memory of all of them unless most of that would be wasted.
fn cut<T: Copy>(mut values: Vec<T>, stretch: std::ops::Range<usize>) -> Vec<T> {
    if stretch.len() < values.capacity() / 2 {
        return values.get(stretch).unwrap_or_default().to_vec();
    }
    values.truncate(stretch.end);
    values.drain(..stretch.start.min(values.len()));
    values
}

fn collect_column(pieces: &[Rows], wanted: &SelectedColumn, range: &TimeRange) -> SampleColumn {
    let mut column =
        SampleColumn::with_capacity(wanted.value_type, pieces.iter().map(|rows| rows.timestamps_ns.len()).sum());
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

/// Appends a range of numbers none of which is null, at once; false if it is not such.
fn append_all(column: &mut SampleColumn, rows: &Rows, cells: &RowsColumn, stretch: std::ops::Range<usize>) -> bool {
    let (Some(times), Some(bits)) = (rows.timestamps_ns.get(stretch.clone()), cells.cells.get(stretch)) else {
        return false;
    };
    match column {
        _ if !cells.validity.is_empty() => false,
        SampleColumn::F64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend(bits.iter().copied().map(f64::from_bits));
            true
        }
        SampleColumn::I64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend(bits.iter().map(|cell| *cell as i64));
            true
        }
        SampleColumn::U64(timestamps, values) => {
            timestamps.extend_from_slice(times);
            values.extend_from_slice(bits);
            true
        }
        _ => false,
    }
}

fn push_cell(column: &mut SampleColumn, timestamp_ns: i64, cell: u64, cells: &RowsColumn) {
    match column {
        SampleColumn::F64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(f64::from_bits(cell));
        }
        SampleColumn::I64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell as i64);
        }
        SampleColumn::U64(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell);
        }
        SampleColumn::Bool(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(cell != 0);
        }
        SampleColumn::String(timestamps, values) => {
            timestamps.push(timestamp_ns);
            values.push(String::from_utf8_lossy(cells.text(cell)).into_owned());
        }
        SampleColumn::Histogram(timestamps, values) => {
            if let Some(value) = histogram::from_bytes(cells.text(cell), values.last()) {
                timestamps.push(timestamp_ns);
                values.push(value);
            }
        }
    }
}

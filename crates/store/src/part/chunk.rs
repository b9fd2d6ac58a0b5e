//! One group's rows for a stretch of time, as columns: in memory and as bytes. Layout: `docs/formats/chunk.md`.

use std::ops::Range;

use codec::presence::{self, Cell};
use codec::{DecodeError, Effort, Reader, boolean, float, histogram, integer, text, varint};
use index::Slot;
use model::{STALE_NAN_BITS, Summary, SummaryParts, TimeRange, ValueType};

/// Rows that any chunk may hold.
pub(crate) const CHUNK_ROWS_MAX: usize = 1 << 16;

/// Columns that any chunk may hold.
const CHUNK_COLUMNS_MAX: usize = 1 << 20;

/// Bytes that a column takes beside its cells, and that a chunk's header and checksum take, for itself and for a column; at most, or nearly.
const COLUMN_BYTES: usize = 32;
const HEADER_BYTES: usize = 48;
const COLUMN_HEADER_BYTES: usize = 8;

/// Rows of a chunk on level 1, and on level 2 where large chunks cost less.
const ROWS: [usize; 2] = [1024, 4096];

/// Rows that a chunk of a level may have.
pub(crate) fn rows_max(level: u8) -> usize {
    ROWS[usize::from(level.clamp(1, 2) - 1)]
}

/// How hard chunks of a level try to be small: what settles is read rarely and kept long.
pub(crate) fn effort_of(level: u8) -> Effort {
    if level < 2 { Effort::Fast } else { Effort::Small }
}

/// Rows as chunks of a level, of equal size: a small one at the end would have to be joined with others by the next merge.
pub(crate) fn cut_evenly(places: Range<usize>, level: u8) -> impl Iterator<Item = Range<usize>> {
    let count = places.len();
    let rows = count.div_ceil(count.div_ceil(rows_max(level)).max(1)).max(1);
    let end = places.end;
    places.step_by(rows).map(move |from| from..(from + rows).min(end))
}

/// One group's rows: columns of equal length. Timestamps ascend, none twice, unless said otherwise.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Rows {
    pub(crate) timestamps_ns: Vec<i64>,
    /// Sorted by slot.
    pub(crate) columns: Vec<RowsColumn>,
}

/// One member's cells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowsColumn {
    pub(crate) slot: Slot,
    pub(crate) value_type: ValueType,
    /// Bits of the value; for strings and histograms a place in `texts`. A stale cell holds [`STALE_NAN_BITS`], a null cell anything.
    pub(crate) cells: Vec<u64>,
    /// Which cells are null; empty if none is.
    pub(crate) nulls: Vec<bool>,
    /// Texts, or histograms in the bytes of [`codec::histogram::encode_row`].
    pub(crate) texts: Vec<Vec<u8>>,
}

impl Rows {
    /// First and last timestamp; `None` if there are no rows.
    pub(crate) fn range(&self) -> Option<TimeRange> {
        Some(TimeRange::new(*self.timestamps_ns.first()?, *self.timestamps_ns.last()?))
    }

    /// From the first to the last of some rows.
    pub(crate) fn range_of(&self, places: &Range<usize>) -> Option<TimeRange> {
        let timestamps_ns = self.timestamps_ns.get(places.clone())?;
        Some(TimeRange::new(*timestamps_ns.first()?, *timestamps_ns.last()?))
    }

    /// Takes out those of some rows all of whose cells are null.
    pub(crate) fn drop_empty(&mut self, of: Range<usize>) {
        let count = self.timestamps_ns.len();
        if self.columns.iter().any(|column| column.nulls.is_empty()) && count > 0 {
            return;
        }
        let is_kept = |row: usize| !of.contains(&row) || self.columns.iter().any(|column| !column.is_null(row));
        let kept: Vec<usize> = (0..count).filter(|row| is_kept(*row)).collect();
        if kept.len() < count {
            *self = self.pick(&kept);
        }
    }

    /// Some of the rows, by their places.
    pub(crate) fn pick(&self, places: &[usize]) -> Self {
        let column = |column: &RowsColumn| {
            let mut picked = RowsColumn::new(column.slot, column.value_type);
            if column.value_type.is_elsewhere() {
                places.iter().for_each(|row| picked.push_from(Some(column), *row));
                return picked;
            }
            picked.cells = places.iter().filter_map(|row| column.cells.get(*row).copied()).collect();
            if !column.nulls.is_empty() {
                picked.nulls = places.iter().map(|row| column.is_null(*row)).collect();
            }
            picked
        };
        Self {
            timestamps_ns: places.iter().filter_map(|row| self.timestamps_ns.get(*row).copied()).collect(),
            columns: self.columns.iter().map(column).collect(),
        }
    }
}

impl RowsColumn {
    pub(crate) fn new(slot: Slot, value_type: ValueType) -> Self {
        Self { slot, value_type, cells: Vec::new(), nulls: Vec::new(), texts: Vec::new() }
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.get(row).copied().unwrap_or(false)
    }

    /// Which cells of some rows are null; empty if none is.
    pub(crate) fn nulls_in(&self, places: &Range<usize>) -> &[bool] {
        self.nulls.get(places.clone()).unwrap_or_default()
    }

    pub(crate) fn push(&mut self, cell: Option<u64>) {
        if cell.is_none() && self.nulls.is_empty() {
            self.nulls.resize(self.cells.len(), false);
        }
        if cell.is_none() || !self.nulls.is_empty() {
            self.nulls.push(cell.is_none());
        }
        self.cells.push(cell.unwrap_or(0));
    }

    pub(crate) fn push_text(&mut self, text: &[u8]) {
        self.texts.push(text.to_vec());
        self.push(Some(self.texts.len() as u64 - 1));
    }

    /// Adds the values of some rows to a summary; they are later than what it has.
    pub(crate) fn add_to(&self, summary: &mut Summary, timestamps_ns: &[i64], rows: Range<usize>, parts: SummaryParts) {
        let (Some(times_ns), Some(cells)) = (timestamps_ns.get(rows.clone()), self.cells.get(rows.clone())) else {
            return;
        };
        let nulls = self.nulls.get(rows).unwrap_or_default();
        if !nulls.contains(&true) {
            summary.add_all(times_ns, cells, parts);
            return;
        }
        let samples = times_ns.iter().zip(cells).zip(nulls).filter(|(_, is_null)| !**is_null);
        samples.for_each(|((timestamp_ns, bits), _)| summary.add(*timestamp_ns, *bits));
    }

    /// Makes the cells of some rows null.
    pub(crate) fn clear(&mut self, from: usize, to: usize) {
        if self.nulls.is_empty() {
            self.nulls.resize(self.cells.len(), false);
        }
        self.nulls.iter_mut().take(to).skip(from).for_each(|null| *null = true);
    }

    /// Appends all cells of a column of the same member.
    fn append(&mut self, other: &Self) {
        if !(self.nulls.is_empty() && other.nulls.is_empty()) {
            self.nulls.resize(self.cells.len(), false);
            self.nulls.extend_from_slice(&other.nulls);
            self.nulls.resize(self.cells.len() + other.cells.len(), false);
        }
        let texts = self.texts.len() as u64;
        if self.value_type.is_elsewhere() {
            self.cells.extend(other.cells.iter().map(|place| place + texts));
            self.texts.extend_from_slice(&other.texts);
        } else {
            self.cells.extend_from_slice(&other.cells);
        }
    }

    /// The bytes that a cell points at.
    pub(crate) fn text(&self, place: u64) -> &[u8] {
        self.texts.get(place as usize).map(Vec::as_slice).unwrap_or_default()
    }

    /// Appends another column's cell, or null if there is none.
    pub(crate) fn push_from(&mut self, from: Option<&Self>, row: usize) {
        match from {
            Some(from) if !from.is_null(row) => match (from.value_type, from.cells.get(row)) {
                (value_type, Some(place)) if value_type.is_elsewhere() => {
                    self.push_text(from.text(*place));
                }
                (_, cell) => self.push(cell.copied()),
            },
            _ => self.push(None),
        }
    }
}

/// What a chunk's bytes say before the columns.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkHeader {
    pub(crate) rows: usize,
    pub(crate) range: TimeRange,
    /// Smallest and largest sequence id of the rows inside.
    pub(crate) sequences: (u64, u64),
    columns: Vec<(Slot, ValueType, usize)>,
    timestamps_bytes: usize,
}

/// Appends a chunk of some rows (at least one, at most [`CHUNK_ROWS_MAX`]), columns that have no cell there left out, and its checksum.
pub(crate) fn encode(rows: &Rows, places: Range<usize>, sequences: (u64, u64), effort: Effort, out: &mut Vec<u8>) {
    let timestamps_ns = rows.timestamps_ns.get(places.clone()).unwrap_or_default();
    let (Some(first), Some(last)) = (timestamps_ns.first(), timestamps_ns.last()) else {
        return;
    };
    let start = out.len();
    // Room for small numbers: most chunks of many series are as short as that, and a buffer that grows takes longer than they do.
    let mut body = Vec::with_capacity(COLUMN_BYTES + (COLUMN_BYTES + timestamps_ns.len()) * rows.columns.len());
    integer::encode_with(timestamps_ns, effort, &mut body);
    let timestamps_bytes = body.len();
    let has_cells = |column: &&RowsColumn| column.nulls.is_empty() || column.nulls_in(&places).contains(&false);
    let encoded = |column| {
        let start = body.len();
        encode_column(column, &places, effort, &mut body);
        (column, body.len() - start)
    };
    let columns: Vec<(&RowsColumn, usize)> = rows.columns.iter().filter(has_cells).map(encoded).collect();
    out.reserve(HEADER_BYTES + columns.len() * COLUMN_HEADER_BYTES + body.len());
    varint::push(out, timestamps_ns.len() as u64);
    varint::push_signed(out, *first);
    varint::push(out, last.wrapping_sub(*first) as u64);
    varint::push(out, sequences.0);
    varint::push(out, sequences.1 - sequences.0);
    varint::push(out, timestamps_bytes as u64);
    varint::push(out, columns.len() as u64);
    for (column, length) in columns {
        varint::push(out, u64::from(column.slot));
        out.push(column.value_type as u8);
        varint::push(out, length as u64);
    }
    out.extend_from_slice(&body);
    let checksum = crc32c::crc32c(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

fn encode_column(column: &RowsColumn, places: &Range<usize>, effort: Effort, out: &mut Vec<u8>) {
    let (cells, nulls) = (column.cells.get(places.clone()).unwrap_or_default(), column.nulls_in(places));
    let is_stale = |bits: &u64| column.value_type == ValueType::F64 && *bits == STALE_NAN_BITS;
    // Nearly always there is none: looking at all of them takes vectors, stopping at the first does not.
    let has_stale = cells.iter().fold(false, |found, bits| found | is_stale(bits));
    if !nulls.contains(&true) && !has_stale {
        presence::encode_all_values(out);
        encode_values(column, cells, effort, out);
        return;
    }
    let state = |(row, cell): (usize, &u64)| match cell {
        _ if nulls.get(row).copied().unwrap_or(false) => Cell::Null,
        bits if is_stale(bits) => Cell::Stale,
        _ => Cell::Value,
    };
    let states: Vec<Cell> = cells.iter().enumerate().map(state).collect();
    let values = cells.iter().zip(&states).filter(|(_, state)| **state == Cell::Value).map(|(cell, _)| *cell);
    let values: Vec<u64> = values.collect();
    presence::encode_with(&states, effort, out);
    encode_values(column, &values, effort, out);
}

fn encode_values(column: &RowsColumn, cells: &[u64], effort: Effort, out: &mut Vec<u8>) {
    match column.value_type {
        ValueType::F64 => float::encode_with(bytemuck::cast_slice(cells), effort, out),
        ValueType::I64 | ValueType::U64 => integer::encode_with(bytemuck::cast_slice(cells), effort, out),
        ValueType::Bool => boolean::encode(&cells.iter().map(|cell| *cell != 0).collect::<Vec<_>>(), out),
        ValueType::String => {
            // Checked to be UTF-8 when it came in.
            let text = |place: &u64| std::str::from_utf8(column.text(*place)).unwrap_or_default();
            text::encode_with(&cells.iter().map(text).collect::<Vec<_>>(), effort, out);
        }
        ValueType::Histogram => {
            histogram::encode_rows(cells.iter().map(|place| column.text(*place)), effort, out);
        }
    }
}

/// Reads a chunk's header. The checksum is checked by [`decode`].
pub(crate) fn decode_header(reader: &mut Reader<'_>) -> Result<ChunkHeader, DecodeError> {
    let rows = reader.length(CHUNK_ROWS_MAX)?;
    let start_ns = reader.varint_signed()?;
    let end_ns = start_ns.wrapping_add(reader.varint()? as i64);
    let first = reader.varint()?;
    let last = first.checked_add(reader.varint()?).ok_or_else(|| reader.error("sequence id beyond 64 bits"))?;
    let timestamps_bytes = reader.length(reader.rest().len())?;
    let width = reader.length(CHUNK_COLUMNS_MAX.min(reader.rest().len()))?;
    let mut columns = Vec::with_capacity(width);
    for _ in 0..width {
        let slot = u32::try_from(reader.varint()?).map_err(|_| reader.error("slot beyond 32 bits"))?;
        let value_type = ValueType::from_number(reader.byte()?).ok_or_else(|| reader.error("unknown value type"))?;
        columns.push((slot, value_type, reader.length(reader.rest().len())?));
    }
    let range = TimeRange::new(start_ns, end_ns);
    Ok(ChunkHeader { rows, range, sequences: (first, last), columns, timestamps_bytes })
}

/// Checks a chunk's checksum and reads its header.
pub(crate) fn check(bytes: &[u8]) -> Result<ChunkHeader, DecodeError> {
    checked_header(&mut Reader::new(bytes), bytes)
}

fn checked_header(reader: &mut Reader<'_>, bytes: &[u8]) -> Result<ChunkHeader, DecodeError> {
    let Some((body, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(reader.error("bytes missing"));
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(reader.error("checksum of a chunk does not match"));
    }
    decode_header(reader)
}

/// Reads a chunk: all columns, or those of the given slots (sorted).
pub(crate) fn decode(bytes: &[u8], slots: Option<&[Slot]>) -> Result<(ChunkHeader, Rows), DecodeError> {
    let mut reader = Reader::new(bytes);
    let header = checked_header(&mut reader, bytes)?;
    let wanted = |slot: Slot| slots.is_none_or(|slots| slots.binary_search(&slot).is_ok());
    let of_column = |(slot, value_type, _): &(Slot, ValueType, usize)| RowsColumn::new(*slot, *value_type);
    let columns = header.columns.iter().filter(|(slot, ..)| wanted(*slot)).map(of_column);
    let mut rows = Rows { timestamps_ns: Vec::new(), columns: columns.collect() };
    decode_rows(&mut reader, &header, &mut rows, (None, &mut float::Scratch::default()))?;
    Ok((header, rows))
}

/// Pieces of a key's rows that chunks are read onto.
#[derive(Default)]
pub(crate) struct Onto {
    pub(crate) pieces: Vec<Rows>,
    /// Whether the next chunk begins behind the end of the last piece, which may go on then.
    pub(crate) goes_on: bool,
    /// The times of the only piece, which has none itself as long as they are held here.
    pub(crate) held: Option<HeldTimes>,
    /// All chunks that will come, and how long they are together.
    pub(crate) chunks: usize,
    pub(crate) length_ns: u64,
    pub(crate) scratch: float::Scratch,
}

/// Times of chunks as they are encoded: for whoever may know them already.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct HeldTimes {
    rows: usize,
    /// Of each chunk how many they are, how many bytes, and these.
    bytes: Vec<u8>,
}

impl HeldTimes {
    pub(crate) fn push(&mut self, rows: usize, encoded: &[u8]) {
        self.rows += rows;
        varint::push(&mut self.bytes, rows as u64);
        varint::push(&mut self.bytes, encoded.len() as u64);
        self.bytes.extend_from_slice(encoded);
    }

    pub(crate) const fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends the times.
    pub(crate) fn decode(&self, timestamps_ns: &mut Vec<i64>) -> Result<(), DecodeError> {
        let mut reader = Reader::new(&self.bytes);
        while !reader.is_empty() {
            let rows = reader.length(CHUNK_ROWS_MAX)?;
            let length = reader.length(reader.rest().len())?;
            integer::decode(&mut Reader::new(reader.bytes(length)?), rows, timestamps_ns)?;
        }
        Ok(())
    }
}

impl Onto {
    /// For how many rows there should be room, if they are as dense as those of a first chunk.
    fn rows_expected(&self, header: &ChunkHeader) -> usize {
        let length_ns = header.range.end_ns.wrapping_sub(header.range.start_ns) as u64;
        if !self.goes_on || length_ns == 0 {
            return header.rows;
        }
        let rows = header.rows as f64 * self.length_ns as f64 / length_ns as f64;
        (rows as usize + self.chunks).clamp(header.rows, CHUNK_ROWS_MAX)
    }

    /// Gives a piece its times, if there is one: it is not the only one, or they are wanted.
    pub(crate) fn settle_times(&mut self) -> Result<(), DecodeError> {
        let Some(piece) = self.pieces.last_mut() else { return Ok(()) };
        self.held.take().map_or(Ok(()), |held| held.decode(&mut piece.timestamps_ns))
    }
}

/// Reads the columns of a chunk, all or those of the given slots (sorted): behind the last piece, if it may go on and has the same columns, else as
/// a piece of its own. Returns how many rows came.
pub(crate) fn decode_onto(bytes: &[u8], slots: Option<&[Slot]>, onto: &mut Onto) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    let header = checked_header(&mut reader, bytes)?;
    let is_wanted = |slot: &Slot| slots.is_none_or(|slots| slots.binary_search(slot).is_ok());
    let wanted = || header.columns.iter().filter(|(slot, ..)| is_wanted(slot));
    let is_alike = |rows: &Rows| {
        let known = rows.columns.iter().map(|column| (column.slot, column.value_type));
        known.eq(wanted().map(|(slot, value_type, _)| (*slot, *value_type)))
    };
    if !onto.goes_on || !onto.pieces.last().is_some_and(is_alike) {
        let rows = onto.rows_expected(&header);
        let column = |(slot, value_type, _): &(Slot, ValueType, usize)| RowsColumn {
            cells: Vec::with_capacity(rows),
            ..RowsColumn::new(*slot, *value_type)
        };
        let columns = wanted().map(column).collect();
        onto.settle_times()?;
        let timestamps_ns = Vec::with_capacity(if onto.held.is_some() { 0 } else { rows });
        onto.pieces.push(Rows { timestamps_ns, columns });
    }
    if let Some(rows) = onto.pieces.last_mut() {
        decode_rows(&mut reader, &header, rows, (onto.held.as_mut(), &mut onto.scratch))?;
    }
    Ok(header.rows)
}

/// Appends a chunk's rows to some that have columns of the chunk; their times to those that are held, if they are.
fn decode_rows(
    reader: &mut Reader<'_>,
    header: &ChunkHeader,
    rows: &mut Rows,
    (held, scratch): (Option<&mut HeldTimes>, &mut float::Scratch),
) -> Result<(), DecodeError> {
    let timestamps = reader.bytes(header.timestamps_bytes)?;
    match held {
        Some(held) => held.push(header.rows, timestamps),
        None => integer::decode(&mut Reader::new(timestamps), header.rows, &mut rows.timestamps_ns)?,
    }
    let mut columns = rows.columns.iter_mut().peekable();
    for (slot, value_type, length) in &header.columns {
        let bytes = reader.bytes(*length)?;
        let is_same = |column: &&mut RowsColumn| column.slot == *slot && column.value_type == *value_type;
        if let Some(column) = columns.next_if(is_same) {
            decode_column(&mut Reader::new(bytes), header.rows, scratch, column)?;
        }
    }
    Ok(())
}

/// Appends the cells of so many rows.
fn decode_column(
    reader: &mut Reader<'_>,
    rows: usize,
    scratch: &mut float::Scratch,
    column: &mut RowsColumn,
) -> Result<(), DecodeError> {
    let Some(states) = presence::decode(reader, rows)? else {
        decode_values(reader, (rows, column.value_type), scratch, &mut column.texts, &mut column.cells)?;
        if !column.nulls.is_empty() {
            column.nulls.resize(column.cells.len(), false);
        }
        return Ok(());
    };
    let count = states.iter().filter(|state| **state == Cell::Value).count();
    let mut values = Vec::new();
    decode_values(reader, (count, column.value_type), scratch, &mut column.texts, &mut values)?;
    let mut values = values.into_iter();
    for state in states {
        match state {
            Cell::Value => column.push(values.next()),
            Cell::Stale => column.push(Some(STALE_NAN_BITS)),
            Cell::Null => column.push(None),
        }
    }
    Ok(())
}

/// Appends so many cells with values, and what those hold that is elsewhere.
fn decode_values(
    reader: &mut Reader<'_>,
    (count, value_type): (usize, ValueType),
    scratch: &mut float::Scratch,
    texts: &mut Vec<Vec<u8>>,
    cells: &mut Vec<u64>,
) -> Result<(), DecodeError> {
    let first = texts.len() as u64;
    match value_type {
        ValueType::F64 => float::decode_with(reader, count, scratch, cells)?,
        ValueType::I64 | ValueType::U64 => {
            let mut values = Vec::new();
            integer::decode(reader, count, &mut values)?;
            cells.extend(values.iter().map(|value| *value as u64));
        }
        ValueType::Bool => {
            let mut values = Vec::new();
            boolean::decode(reader, count, &mut values)?;
            cells.extend(values.iter().map(|value| u64::from(*value)));
        }
        ValueType::String => texts.extend(text::decode(reader, count)?.into_iter().map(String::into_bytes)),
        ValueType::Histogram => texts.extend(histogram::decode_rows(reader, count)?),
    }
    if value_type.is_elsewhere() {
        cells.extend(first..texts.len() as u64);
    }
    Ok(())
}

/// Joins rows of one group, oldest first, each piece's own in order of time: a later value replaces an earlier one, member by
/// member.
pub(crate) fn join(pieces: Vec<Rows>) -> Rows {
    let pieces = in_time_order(pieces);
    let alike = |a: &Rows, b: &Rows| {
        let kinds =
            |rows: &Rows| -> Vec<_> { rows.columns.iter().map(|column| (column.slot, column.value_type)).collect() };
        kinds(a) == kinds(b)
    };
    if !pieces.windows(2).all(|pair| matches!(pair, [a, b] if alike(a, b))) {
        return merge(&pieces);
    }
    let more = pieces.iter().skip(1).map(|rows| rows.timestamps_ns.len()).sum();
    let mut pieces = pieces.into_iter();
    let mut joined = pieces.next().unwrap_or_default();
    joined.timestamps_ns.reserve_exact(more);
    joined.columns.iter_mut().for_each(|column| column.cells.reserve_exact(more));
    for rows in pieces {
        joined.timestamps_ns.extend_from_slice(&rows.timestamps_ns);
        joined.columns.iter_mut().zip(&rows.columns).for_each(|(column, more)| column.append(more));
    }
    joined
}

/// Pieces that follow one another in time, of pieces as [`join`] takes them: only those that overlap are merged.
pub(crate) fn in_time_order(mut pieces: Vec<Rows>) -> Vec<Rows> {
    pieces.retain(|rows| !rows.timestamps_ns.is_empty());
    let follows = |a: &Rows, b: &Rows| a.timestamps_ns.last() < b.timestamps_ns.first();
    if pieces.windows(2).all(|pair| matches!(pair, [a, b] if follows(a, b))) {
        return pieces;
    }
    let mut by_start: Vec<(usize, Rows)> = pieces.into_iter().enumerate().collect();
    by_start.sort_by_key(|(_, rows)| rows.timestamps_ns.first().copied());
    let mut ordered = Vec::new();
    let (mut overlapping, mut end_ns): (Vec<(usize, Rows)>, Option<i64>) = (Vec::new(), None);
    for (age, rows) in by_start {
        if !overlapping.is_empty() && rows.timestamps_ns.first().copied() > end_ns {
            ordered.push(merge_by_age(std::mem::take(&mut overlapping)));
        }
        end_ns = end_ns.max(rows.timestamps_ns.last().copied());
        overlapping.push((age, rows));
    }
    ordered.push(merge_by_age(overlapping));
    ordered
}

fn merge_by_age(mut pieces: Vec<(usize, Rows)>) -> Rows {
    pieces.sort_by_key(|(age, _)| *age);
    let mut pieces: Vec<Rows> = pieces.into_iter().map(|(_, rows)| rows).collect();
    if pieces.len() > 1 { merge(&pieces) } else { pieces.pop().unwrap_or_default() }
}

/// A row of one of several pieces.
#[derive(Debug, Clone, Copy)]
struct RowPlace {
    timestamp_ns: i64,
    piece: u32,
    row: u32,
}

/// Joins rows of one group, oldest first: sorted by time, a later value replacing an earlier one member by member. The pieces'
/// own rows may be in any order.
pub(crate) fn merge(pieces: &[Rows]) -> Rows {
    if let [alone] = pieces
        && let Some(sorted) = sort_distinct(alone)
    {
        return sorted;
    }
    let mut slots: Vec<(Slot, ValueType)> =
        pieces.iter().flat_map(|rows| &rows.columns).map(|column| (column.slot, column.value_type)).collect();
    slots.sort_unstable();
    slots.dedup_by_key(|(slot, _)| *slot);
    let mut order: Vec<RowPlace> = Vec::with_capacity(pieces.iter().map(|rows| rows.timestamps_ns.len()).sum());
    for (piece, rows) in pieces.iter().enumerate() {
        let place = |(row, timestamp): (usize, &i64)| RowPlace {
            timestamp_ns: *timestamp,
            piece: piece as u32,
            row: row as u32,
        };
        order.extend(rows.timestamps_ns.iter().enumerate().map(place));
    }
    // Stable: rows of one time stay in order of age. Sorted stretches, as the pieces are, are merged, not sorted anew.
    order.sort_by_key(|place| place.timestamp_ns);
    let mut timestamps_ns: Vec<i64> = order.iter().map(|place| place.timestamp_ns).collect();
    timestamps_ns.dedup();
    let is_distinct = timestamps_ns.len() == order.len();
    let column = |slot: &(Slot, ValueType)| {
        let distinct = if is_distinct { interleave_column(pieces, &order, *slot) } else { None };
        distinct.unwrap_or_else(|| merge_column(pieces, &order, *slot))
    };
    Rows { columns: slots.iter().map(column).collect(), timestamps_ns }
}

/// A column of rows no two of which have the same time, if every piece has a value in each: much faster than the general way.
fn interleave_column(pieces: &[Rows], order: &[RowPlace], (slot, value_type): (Slot, ValueType)) -> Option<RowsColumn> {
    let mut cells: Vec<&[u64]> = Vec::with_capacity(pieces.len());
    for rows in pieces {
        let column = rows.columns.iter().find(|column| column.slot == slot)?;
        if !column.nulls.is_empty() || column.value_type != value_type || value_type.is_elsewhere() {
            return None;
        }
        cells.push(&column.cells);
    }
    let cell = |place: &RowPlace| cells.get(place.piece as usize)?.get(place.row as usize).copied();
    let merged: Vec<u64> = order.iter().map(cell).collect::<Option<_>>()?;
    Some(RowsColumn { cells: merged, ..RowsColumn::new(slot, value_type) })
}

/// One piece's rows in order of time; `None` if two have the same timestamp. Much faster than the general way, and what
/// late rows in a buffer come to.
fn sort_distinct(rows: &Rows) -> Option<Rows> {
    let order = order_distinct(&rows.timestamps_ns)?;
    Some(rows.pick(&order.into_iter().map(|row| row as usize).collect::<Vec<_>>()))
}

/// Places of timestamps (fewer than 2^32) in order of time; `None` if two are the same. Those that came in order are only gone
/// through, late ones are sorted and put between them.
pub(crate) fn order_distinct(timestamps_ns: &[i64]) -> Option<Vec<u32>> {
    let (mut on_time, mut late) = (Vec::with_capacity(timestamps_ns.len()), Vec::new());
    for (timestamp_ns, place) in timestamps_ns.iter().zip(0u32..) {
        match on_time.last() {
            Some((newest_ns, _)) if newest_ns >= timestamp_ns => late.push((*timestamp_ns, place)),
            _ => on_time.push((*timestamp_ns, place)),
        }
    }
    late.sort_unstable();
    if late.windows(2).any(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        return None;
    }
    let mut order = Vec::with_capacity(timestamps_ns.len());
    let mut on_time = on_time.as_slice();
    for (timestamp_ns, place) in late {
        let before = on_time.partition_point(|(known_ns, _)| *known_ns < timestamp_ns);
        let (earlier, later) = on_time.split_at(before);
        if later.first().is_some_and(|(next_ns, _)| *next_ns == timestamp_ns) {
            return None;
        }
        order.extend(earlier.iter().map(|(_, place)| *place));
        order.push(place);
        on_time = later;
    }
    order.extend(on_time.iter().map(|(_, place)| *place));
    Some(order)
}

fn merge_column(pieces: &[Rows], order: &[RowPlace], (slot, value_type): (Slot, ValueType)) -> RowsColumn {
    let of_piece = |rows: &Rows| rows.columns.iter().position(|column| column.slot == slot);
    let places: Vec<Option<usize>> = pieces.iter().map(of_piece).collect();
    let column_of = |piece: u32| pieces[piece as usize].columns.get(places[piece as usize]?);
    let mut merged = RowsColumn::new(slot, value_type);
    for same_time in order.chunk_by(|a, b| a.timestamp_ns == b.timestamp_ns) {
        let has_value =
            |place: &&RowPlace| column_of(place.piece).is_some_and(|column| !column.is_null(place.row as usize));
        match same_time.iter().rev().find(has_value) {
            Some(place) => merged.push_from(column_of(place.piece), place.row as usize),
            None => merged.push(None),
        }
    }
    merged
}

/// The rows from one index up to another; columns that have no cell there left out.
pub(crate) fn slice(rows: &Rows, from: usize, to: usize) -> Rows {
    let column = |column: &RowsColumn| {
        let mut part = RowsColumn::new(column.slot, column.value_type);
        if column.value_type.is_elsewhere() {
            (from..to).for_each(|row| part.push_from(Some(column), row));
        } else {
            part.cells = column.cells.get(from..to).unwrap_or_default().to_vec();
            part.nulls = column.nulls.get(from..to).unwrap_or_default().to_vec();
            if !part.nulls.contains(&true) {
                part.nulls.clear();
            }
        }
        part
    };
    let has_cells = |column: &RowsColumn| column.nulls.is_empty() || column.nulls.contains(&false);
    Rows {
        timestamps_ns: rows.timestamps_ns.get(from..to).unwrap_or_default().to_vec(),
        columns: rows.columns.iter().map(column).filter(has_cells).collect(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    type Written = Vec<(i64, BTreeMap<Slot, u64>)>;

    fn rows_of(written: &Written) -> Rows {
        let slots: std::collections::BTreeSet<Slot> =
            written.iter().flat_map(|(_, cells)| cells.keys().copied()).collect();
        let column = |slot: &Slot| {
            let mut column = RowsColumn::new(*slot, ValueType::F64);
            for (_, cells) in written {
                column.push(cells.get(slot).copied());
            }
            column
        };
        Rows {
            timestamps_ns: written.iter().map(|(timestamp, _)| *timestamp).collect(),
            columns: slots.iter().map(column).collect(),
        }
    }

    fn written() -> impl Strategy<Value = Written> {
        let cell = prop_oneof![Just(STALE_NAN_BITS), (0u64..50).prop_map(|value| (value as f64).to_bits())];
        proptest::collection::vec((0i64..20, proptest::collection::btree_map(0u32..3, cell, 0..4)), 0..20)
    }

    proptest! {
        /// Against a map from time and slot to the value written last.
        #[test]
        fn merging_keeps_the_last_value_of_each_cell(pieces in proptest::collection::vec(written(), 0..4)) {
            let mut expected: BTreeMap<i64, BTreeMap<Slot, u64>> = BTreeMap::new();
            for (timestamp, cells) in pieces.iter().flatten() {
                expected.entry(*timestamp).or_default().extend(cells);
            }
            let merged = merge(&pieces.iter().map(rows_of).collect::<Vec<_>>());
            let mut found: BTreeMap<i64, BTreeMap<Slot, u64>> = merged.timestamps_ns.iter().map(|timestamp| (*timestamp, BTreeMap::new())).collect();
            for column in &merged.columns {
                for (row, timestamp) in merged.timestamps_ns.iter().enumerate().filter(|(row, _)| !column.is_null(*row)) {
                    found.entry(*timestamp).or_default().insert(column.slot, column.cells[row]);
                }
            }
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn bytes_and_back(piece in written()) {
            let rows = merge(&[rows_of(&piece)]);
            prop_assume!(!rows.timestamps_ns.is_empty());
            let mut bytes = Vec::new();
            encode(&rows, 0..rows.timestamps_ns.len(), (3, 9), Effort::Fast, &mut bytes);
            let (header, back) = decode(&bytes, None).unwrap();
            prop_assert_eq!(header.sequences, (3, 9));
            prop_assert_eq!(back.timestamps_ns, rows.timestamps_ns);
            for (column, back) in rows.columns.iter().zip(&back.columns) {
                for row in 0..column.cells.len() {
                    prop_assert_eq!(column.is_null(row), back.is_null(row));
                    prop_assert!(column.is_null(row) || column.cells[row] == back.cells[row]);
                }
            }
        }

        #[test]
        fn hostile_bytes_are_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = bytes;
            let checksum = crc32c::crc32c(&bytes);
            bytes.extend_from_slice(&checksum.to_le_bytes());
            let _ = decode(&bytes, None);
        }
    }

    #[test]
    fn every_type_comes_back_and_columns_can_be_chosen() {
        let mut texts = RowsColumn::new(4, ValueType::String);
        texts.push_text(b"a");
        texts.push(None);
        let mut flags = RowsColumn::new(2, ValueType::Bool);
        flags.push(Some(1));
        flags.push(Some(0));
        let mut numbers = RowsColumn::new(0, ValueType::U64);
        numbers.push(Some(u64::MAX));
        numbers.push(Some(0));
        let rows = Rows { timestamps_ns: vec![-5, 10], columns: vec![numbers, flags, texts] };
        let mut bytes = Vec::new();
        encode(&rows, 0..rows.timestamps_ns.len(), (1, 1), Effort::Fast, &mut bytes);
        assert_eq!(decode(&bytes, None).unwrap().1, rows);
        assert_eq!(decode(&bytes, Some(&[2])).unwrap().1.columns, rows.columns[1..2]);
        bytes[3] ^= 1;
        assert!(decode(&bytes, None).is_err());
    }
}

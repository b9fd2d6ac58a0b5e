//! The bytes of a chunk become rows.

use codec::presence::{self, Cell};
use codec::{DecodeError, Reader, boolean, float, histogram, integer, text, varint};
use index::Slot;
use model::{STALE_NAN_BITS, TimeRange, ValueType};

use super::{CHUNK_ROWS_MAX, ChunkHeader, Rows, RowsColumn};

/// Columns that any chunk may hold.
const CHUNK_COLUMNS_MAX: usize = 1 << 20;

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

/// Blocks of a key's rows that chunks are decoded into.
#[derive(Default)]
pub(crate) struct DecodeTarget {
    pub(crate) blocks: Vec<Rows>,
    /// True if the next chunk begins after the end of the last piece, which may go on then.
    pub(crate) goes_on: bool,
    /// The times of the only piece, which has none itself as long as they are encoded here.
    pub(crate) encoded_times: Option<EncodedTimes>,
    /// All chunks that will come, and how long they are together.
    pub(crate) chunks: usize,
    pub(crate) length_ns: u64,
    pub(crate) scratch: float::Scratch,
}

/// Timestamps of chunks as they are encoded: the reader may have decoded the same bytes before.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct EncodedTimes {
    rows: usize,
    /// Of each chunk how many they are, how many bytes, and these.
    bytes: Vec<u8>,
}

impl EncodedTimes {
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

impl DecodeTarget {
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
    pub(crate) fn decode_times(&mut self) -> Result<(), DecodeError> {
        let Some(piece) = self.blocks.last_mut() else { return Ok(()) };
        self.encoded_times.take().map_or(Ok(()), |encoded_times| encoded_times.decode(&mut piece.timestamps_ns))
    }
}

/// Reads the columns of a chunk, all or those of the given slots (sorted): after the last piece, if it may go on and has the same columns, else as
/// a piece of its own. Returns how many rows came.
pub(crate) fn decode_into(
    bytes: &[u8],
    slots: Option<&[Slot]>,
    target: &mut DecodeTarget,
) -> Result<usize, DecodeError> {
    let mut reader = Reader::new(bytes);
    let header = checked_header(&mut reader, bytes)?;
    let is_wanted = |slot: &Slot| slots.is_none_or(|slots| slots.binary_search(slot).is_ok());
    let wanted = || header.columns.iter().filter(|(slot, ..)| is_wanted(slot));
    let is_alike = |rows: &Rows| {
        let known = rows.columns.iter().map(|column| (column.slot, column.value_type));
        known.eq(wanted().map(|(slot, value_type, _)| (*slot, *value_type)))
    };
    if !target.goes_on || !target.blocks.last().is_some_and(is_alike) {
        let rows = target.rows_expected(&header);
        let column = |(slot, value_type, _): &(Slot, ValueType, usize)| RowsColumn {
            cells: Vec::with_capacity(rows),
            ..RowsColumn::new(*slot, *value_type)
        };
        let columns = wanted().map(column).collect();
        target.decode_times()?;
        let timestamps_ns = Vec::with_capacity(if target.encoded_times.is_some() { 0 } else { rows });
        target.blocks.push(Rows { timestamps_ns, columns });
    }
    if let Some(rows) = target.blocks.last_mut() {
        decode_rows(&mut reader, &header, rows, (target.encoded_times.as_mut(), &mut target.scratch))?;
    }
    Ok(header.rows)
}

/// Appends a chunk's rows to some that have columns of the chunk; their times to those that stay encoded, if they do.
fn decode_rows(
    reader: &mut Reader<'_>,
    header: &ChunkHeader,
    rows: &mut Rows,
    (encoded_times, scratch): (Option<&mut EncodedTimes>, &mut float::Scratch),
) -> Result<(), DecodeError> {
    let timestamps = reader.bytes(header.timestamps_bytes)?;
    match encoded_times {
        Some(encoded_times) => encoded_times.push(header.rows, timestamps),
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
        if !column.validity.is_empty() {
            column.validity.resize(column.cells.len(), true);
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

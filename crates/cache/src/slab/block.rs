//! Blocks: points of a slab that are read together, about four KiB of them.
//!
//! | tag | layout | bytes behind the tag |
//! |---|---|---|
//! | 0 | rows | bytes of a point's key bits, number of points, the points |
//! | 1 | columns | number of points, timestamps, series, values |

use std::sync::Arc;

use codec::{DecodeError, Reader, boolean, float, integer, text, varint};

use crate::points::{Points, ValueType, Values};

/// What a block aims to take.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Points that one block may hold at most: bounds what a decoder allocates.
pub(crate) const BLOCK_POINTS_MAX: usize = 1 << 14;

const ROWS: u8 = 0;
const COLUMNS: u8 = 1;

/// A block's points, and in rows the bits that say whose they are.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) points: Points,
    /// Bytes of bits for each point, one point after the other; empty if all points belong to all keys that refer to the block.
    pub(crate) bits: Vec<u8>,
}

impl Block {
    /// Whether a point belongs to the key with a number.
    pub(crate) fn belongs(&self, place: usize, key: usize) -> bool {
        if self.bits.is_empty() {
            return true;
        }
        let width = self.bits.len() / self.points.len().max(1);
        key / 8 < width && self.bits.get(place * width + key / 8).is_some_and(|byte| byte >> (key % 8) & 1 == 1)
    }
}

/// Appends points in columns.
pub(crate) fn encode_columns(points: &Points, out: &mut Vec<u8>) {
    out.push(COLUMNS);
    varint::push(out, points.len() as u64);
    integer::encode(&points.timestamps, out);
    let series: Vec<i64> = points.series.iter().map(|series| i64::from(*series)).collect();
    integer::encode(&series, out);
    match &points.values {
        Values::F64(column) => float::encode(column, out),
        Values::I64(column) => integer::encode(column, out),
        Values::Bool(column) => boolean::encode(column, out),
        Values::Text(column) => text::encode(&column.iter().map(AsRef::as_ref).collect::<Vec<_>>(), out),
    }
}

/// Bytes of a point in a row, beside its key bits.
pub(crate) fn row_bytes(values: &Values, place: usize) -> usize {
    let value = match values {
        Values::F64(_) | Values::I64(_) => 8,
        Values::Bool(_) => 1,
        Values::Text(column) => column.get(place).map_or(0, |text| text.len()) + 4,
    };
    8 + 4 + value
}

/// Starts a block of rows.
pub(crate) fn start_rows(width: usize, count: usize, out: &mut Vec<u8>) {
    out.push(ROWS);
    out.push(width as u8);
    varint::push(out, count as u64);
}

/// Appends one row.
pub(crate) fn push_row(points: &Points, place: usize, bits: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&points.timestamps.get(place).copied().unwrap_or_default().to_le_bytes());
    out.extend_from_slice(&points.series.get(place).copied().unwrap_or_default().to_le_bytes());
    match &points.values {
        Values::F64(column) => out.extend(column.get(place).copied().unwrap_or_default().to_bits().to_le_bytes()),
        Values::I64(column) => out.extend(column.get(place).copied().unwrap_or_default().to_le_bytes()),
        Values::Bool(column) => out.push(u8::from(column.get(place).copied().unwrap_or_default())),
        Values::Text(column) => {
            let text = column.get(place).map_or("", AsRef::as_ref);
            out.extend_from_slice(&(text.len() as u32).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.extend_from_slice(bits);
}

/// Reads a block of values of a type.
pub(crate) fn decode(bytes: &[u8], value_type: ValueType) -> Result<Block, DecodeError> {
    let mut reader = Reader::new(bytes);
    match reader.byte()? {
        ROWS => decode_rows(&mut reader, value_type),
        COLUMNS => decode_columns(&mut reader, value_type),
        _ => Err(reader.error("unknown layout of a block")),
    }
}

fn decode_columns(reader: &mut Reader<'_>, value_type: ValueType) -> Result<Block, DecodeError> {
    let count = reader.length(BLOCK_POINTS_MAX)?;
    let mut points = Points::new(value_type);
    integer::decode(reader, count, &mut points.timestamps)?;
    let mut series = Vec::new();
    integer::decode(reader, count, &mut series)?;
    points.series = series.into_iter().map(|number| u32::try_from(number).unwrap_or(u32::MAX)).collect();
    match &mut points.values {
        Values::F64(column) => float::decode(reader, count, column)?,
        Values::I64(column) => integer::decode(reader, count, column)?,
        Values::Bool(column) => boolean::decode(reader, count, column)?,
        Values::Text(column) => column.extend(text::decode(reader, count)?.into_iter().map(Arc::from)),
    }
    points.make_even();
    Ok(Block { points, bits: Vec::new() })
}

fn decode_rows(reader: &mut Reader<'_>, value_type: ValueType) -> Result<Block, DecodeError> {
    let width = usize::from(reader.byte()?);
    let count = reader.length(BLOCK_POINTS_MAX)?;
    let mut block = Block { points: Points::new(value_type), bits: Vec::new() };
    for _ in 0..count {
        block.points.timestamps.push(i64::from_le_bytes(reader.array()?));
        block.points.series.push(reader.u32()?);
        match &mut block.points.values {
            Values::F64(column) => column.push(f64::from_bits(reader.u64()?)),
            Values::I64(column) => column.push(i64::from_le_bytes(reader.array()?)),
            Values::Bool(column) => column.push(reader.byte()? != 0),
            Values::Text(column) => column.push(Arc::from(row_text(reader)?)),
        }
        block.bits.extend_from_slice(reader.bytes(width)?);
    }
    Ok(block)
}

fn row_text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let len = reader.u32()? as usize;
    std::str::from_utf8(reader.bytes(len)?).map_err(|_| reader.error("text that is not UTF-8"))
}

//! Blocks: points of a slab that are read together, about four KiB of them: a tag, the number of points, timestamps, series, values.

use std::sync::Arc;

use codec::{DecodeError, Reader, boolean, float, integer, text, varint};

use crate::points::{Points, ValueType, Values};

/// What a block aims to take.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Points that one block may hold at most: bounds what a decoder allocates.
pub(crate) const BLOCK_POINTS_MAX: usize = 1 << 14;

/// The tag of a block in columns, the only layout that there is.
const COLUMNS: u8 = 1;

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

/// Reads a block of values of a type.
pub(crate) fn decode(bytes: &[u8], value_type: ValueType) -> Result<Points, DecodeError> {
    let reader = &mut Reader::new(bytes);
    if reader.byte()? != COLUMNS {
        return Err(reader.error("unknown layout of a block"));
    }
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
    Ok(points)
}

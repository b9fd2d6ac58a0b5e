//! Rows become the bytes of a chunk.

use std::ops::Range;

use codec::presence::{self, Cell};
use codec::{Effort, boolean, float, histogram, integer, text, varint};
use model::{STALE_NAN_BITS, ValueType};

use super::{Rows, RowsColumn};

/// Bytes that a column takes beside its cells, and that a chunk's header and checksum take, for itself and for a column; at most, or nearly.
const COLUMN_BYTES: usize = 32;
const HEADER_BYTES: usize = 48;
const COLUMN_HEADER_BYTES: usize = 8;

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
    let has_cells = |column: &&RowsColumn| column.validity.is_empty() || column.validity_in(&places).contains(&true);
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
    let (cells, validity) = (column.cells.get(places.clone()).unwrap_or_default(), column.validity_in(places));
    let is_stale = |bits: &u64| column.value_type == ValueType::F64 && *bits == STALE_NAN_BITS;
    // Nearly always there is none: looking at all of them takes vectors, stopping at the first does not.
    let has_stale = cells.iter().fold(false, |found, bits| found | is_stale(bits));
    if !validity.contains(&false) && !has_stale {
        presence::encode_all_values(out);
        encode_values(column, cells, effort, out);
        return;
    }
    let state = |(row, cell): (usize, &u64)| match cell {
        _ if validity.get(row) == Some(&false) => Cell::Null,
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

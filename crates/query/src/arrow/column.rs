//! A column of a batch as it grows.

use std::fmt::Write;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_array::builder::{
    BooleanBuilder, Float64Builder, Int64Builder, StringBuilder, TimestampNanosecondBuilder, UInt64Builder,
};

use super::{ArrowType, ZONE};
use crate::{Cell, FrameColumn, Values};

#[derive(Debug)]
pub(super) enum ColumnBuilder {
    Time(TimestampNanosecondBuilder),
    F64(Float64Builder),
    I64(Int64Builder),
    U64(UInt64Builder),
    Bool(BooleanBuilder),
    Text(StringBuilder),
}

impl ColumnBuilder {
    pub(super) fn new(column_type: ArrowType) -> Self {
        match column_type {
            ArrowType::Time => Self::Time(TimestampNanosecondBuilder::new().with_timezone(ZONE)),
            ArrowType::F64 => Self::F64(Float64Builder::new()),
            ArrowType::I64 => Self::I64(Int64Builder::new()),
            ArrowType::U64 => Self::U64(UInt64Builder::new()),
            ArrowType::Bool => Self::Bool(BooleanBuilder::new()),
            ArrowType::Text => Self::Text(StringBuilder::new()),
        }
    }

    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(texts) => texts.values_slice().len(),
            _ => 0,
        }
    }

    /// Adds a cell. One that the column's type cannot hold is a null.
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        match self {
            Self::Time(times) => times.append_option(if let Cell::I64(ns) = cell { Some(ns) } else { None }),
            Self::F64(floats) => floats.append_option(cell.number()),
            Self::I64(integers) => {
                integers.append_option(cell.integer().and_then(|integer| i64::try_from(integer).ok()));
            }
            Self::U64(integers) => {
                integers.append_option(cell.integer().and_then(|integer| u64::try_from(integer).ok()));
            }
            Self::Bool(booleans) => {
                booleans.append_option(if let Cell::Bool(value) = cell { Some(value) } else { None });
            }
            Self::Text(texts) => push_text(texts, cell),
        }
    }

    /// Adds rows of a frame's column, at once if they are of this type.
    pub(super) fn extend(&mut self, column: &FrameColumn, rows: std::ops::Range<usize>) {
        let validity = column.cells.validity.as_ref().map(|validity| validity.get(rows.clone()).unwrap_or_default());
        match (&mut *self, &column.cells.values) {
            (Self::F64(floats), Values::F64(values)) if values.len() >= rows.end => {
                let values = values.get(rows).unwrap_or_default();
                match validity {
                    Some(validity) if validity.len() == values.len() => floats.append_values(values, validity),
                    Some(_) => floats.append_nulls(values.len()),
                    None => floats.append_slice(values),
                }
            }
            (Self::I64(integers), Values::I64(values)) if values.len() >= rows.end => {
                let values = values.get(rows).unwrap_or_default();
                match validity {
                    Some(validity) if validity.len() == values.len() => integers.append_values(values, validity),
                    Some(_) => integers.append_nulls(values.len()),
                    None => integers.append_slice(values),
                }
            }
            _ => rows.for_each(|row| self.push(column.cell(row))),
        }
    }

    /// Adds times.
    pub(super) fn extend_times(&mut self, times_ns: &[i64]) {
        match self {
            Self::Time(times) => times.append_slice(times_ns),
            other => times_ns.iter().for_each(|ns| other.push(Cell::I64(*ns))),
        }
    }

    /// Adds a text so many times, or so many nulls.
    pub(super) fn extend_text(&mut self, text: Option<&str>, rows: usize) {
        match (&mut *self, text) {
            (Self::Text(texts), Some(text)) => texts.append_value_n(text, rows),
            (Self::Text(texts), None) => texts.append_nulls(rows),
            _ => (0..rows).for_each(|_| self.push(text.map_or(Cell::Null, Cell::Text))),
        }
    }

    pub(super) fn extend_nulls(&mut self, rows: usize) {
        (0..rows).for_each(|_| self.push(Cell::Null));
    }

    pub(super) fn finish(self) -> ArrayRef {
        match self {
            Self::Time(mut times) => Arc::new(times.finish()),
            Self::F64(mut floats) => Arc::new(floats.finish()),
            Self::I64(mut integers) => Arc::new(integers.finish()),
            Self::U64(mut integers) => Arc::new(integers.finish()),
            Self::Bool(mut booleans) => Arc::new(booleans.finish()),
            Self::Text(mut texts) => Arc::new(texts.finish()),
        }
    }
}

/// Adds a cell of any kind as a text.
fn push_text(texts: &mut StringBuilder, cell: Cell<'_>) {
    let mut text = String::new();
    let _ = match cell {
        Cell::Null => return texts.append_null(),
        Cell::Text(text) => return texts.append_value(text),
        Cell::F64(value) => write!(text, "{value}"),
        Cell::I64(value) => write!(text, "{value}"),
        Cell::U64(value) => write!(text, "{value}"),
        Cell::Bool(value) => write!(text, "{value}"),
    };
    texts.append_value(text);
}

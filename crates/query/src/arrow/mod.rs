//! Answers as Arrow's record batches, and as its stream of them (the IPC streaming format of Arrow's columnar specification).
//!
//! Times are `timestamp[ns, tz=UTC]`, texts `utf8`; a batch has [`BATCH_ROWS_MAX`] rows at most unless its reader sets other
//! [`BatchLimits`], and fewer if their texts are long.

mod column;
mod frames;

use std::sync::Arc;

pub use arrow_array::RecordBatch;
use arrow_array::{ArrayRef, RecordBatchOptions};
pub use arrow_schema::SchemaRef;
use arrow_schema::{ArrowError, DataType, Field, Schema, TimeUnit};

use column::ColumnBuilder;
pub use frames::{ColumnSource, FrameBatches, TableColumn};

use crate::{Cell, QueryError};

/// Rows of a batch.
pub const BATCH_ROWS_MAX: usize = 16_384;
/// Bytes of the texts of a batch, but that a row is not cut in two.
pub const BATCH_TEXT_BYTES_MAX: usize = 8 << 20;
/// The media type of Arrow's streams.
pub const STREAM_MEDIA_TYPE: &str = "application/vnd.apache.arrow.stream";
/// Times have no zone of their own here.
const ZONE: &str = "UTC";

/// The type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrowType {
    /// `timestamp[ns, tz=UTC]`; its cells are integers.
    Time,
    /// `float64`
    F64,
    /// `int64`
    I64,
    /// `uint64`
    U64,
    /// `bool`
    Bool,
    /// `utf8`
    Text,
}

impl ArrowType {
    /// As Arrow knows it.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some(ZONE.into())),
            Self::F64 => DataType::Float64,
            Self::I64 => DataType::Int64,
            Self::U64 => DataType::UInt64,
            Self::Bool => DataType::Boolean,
            Self::Text => DataType::Utf8,
        }
    }

    /// A type that holds values of both: numbers of two kinds are floats, all else that differs is text.
    #[must_use]
    pub fn unified(self, other: Self) -> Self {
        let is_number = |one: Self| matches!(one, Self::F64 | Self::I64 | Self::U64);
        match (self, other) {
            (a, b) if a == b => a,
            (a, b) if is_number(a) && is_number(b) => Self::F64,
            _ => Self::Text,
        }
    }
}

/// The schema of named columns, all of which may be null.
pub fn schema<'a>(columns: impl IntoIterator<Item = (&'a str, ArrowType)>) -> SchemaRef {
    let field = |(name, column_type): (&str, ArrowType)| Field::new(name, column_type.data_type(), true);
    Arc::new(Schema::new(columns.into_iter().map(field).collect::<Vec<Field>>()))
}

/// How large batches grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Rows of a batch.
    pub rows_max: usize,
    /// Bytes of the texts of a batch, but that a row is not cut in two. Below 2 GiB, which 32-bit offsets reach.
    pub text_bytes_max: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { rows_max: BATCH_ROWS_MAX, text_bytes_max: BATCH_TEXT_BYTES_MAX }
    }
}

/// Puts rows into batches.
#[derive(Debug)]
pub struct BatchBuilder {
    schema: SchemaRef,
    types: Vec<ArrowType>,
    columns: Vec<ColumnBuilder>,
    rows: usize,
    limits: BatchLimits,
}

impl BatchBuilder {
    /// For rows of these columns.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, ArrowType)>) -> Self {
        let named: Vec<(&str, ArrowType)> = columns.into_iter().collect();
        let types: Vec<ArrowType> = named.iter().map(|(_, column_type)| *column_type).collect();
        let columns = types.iter().map(|column_type| ColumnBuilder::new(*column_type)).collect();
        Self { schema: schema(named), types, columns, rows: 0, limits: BatchLimits::default() }
    }

    /// With batches of another size.
    #[must_use]
    pub fn with_limits(self, limits: BatchLimits) -> Self {
        Self { limits, ..self }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Adds a row. Cells are as many as columns; numbers become what their column holds. When a batch is full it is given.
    pub fn push<'a>(&mut self, cells: impl Iterator<Item = Cell<'a>>) -> Result<Option<RecordBatch>, QueryError> {
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
        self.rows += 1;
        if self.is_full() { self.finish() } else { Ok(None) }
    }

    /// The rows added since the last batch; `None` if there are none.
    pub fn finish(&mut self) -> Result<Option<RecordBatch>, QueryError> {
        if self.rows == 0 {
            return Ok(None);
        }
        // Without columns the rows still count.
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        let fresh = self.types.iter().map(|column_type| ColumnBuilder::new(*column_type)).collect();
        let columns: Vec<ArrayRef> =
            std::mem::replace(&mut self.columns, fresh).into_iter().map(ColumnBuilder::finish).collect();
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map(Some)
            .map_err(|error| failed(&error))
    }

    fn is_full(&self) -> bool {
        self.rows >= self.limits.rows_max || self.text_bytes() >= self.limits.text_bytes_max
    }

    fn text_bytes(&self) -> usize {
        self.columns.iter().map(ColumnBuilder::text_bytes).sum()
    }
}

/// Batches as Arrow's stream.
pub fn stream(
    schema: &SchemaRef,
    batches: impl IntoIterator<Item = Result<RecordBatch, QueryError>>,
) -> Result<Vec<u8>, QueryError> {
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(Vec::new(), schema).map_err(|error| failed(&error))?;
    for batch in batches {
        writer.write(&batch?).map_err(|error| failed(&error))?;
    }
    writer.into_inner().map_err(|error| failed(&error))
}

fn failed(error: &ArrowError) -> QueryError {
    QueryError::Execution(format!("the answer could not be written as Arrow: {error}"))
}

#[cfg(test)]
mod tests;

//! Rows of a table as they were read, without values of SQL between.

use std::collections::HashMap;

use query::arrow::{ArrowType, BatchBuilder, BatchLimits, RecordBatch, SchemaRef};
use query::{Cell, QueryError, ResultRows, RowColumn, RowValue, SeriesColumn, Values};

use super::{builder, described_type};
use crate::relation::Column;
use crate::select::table_rows::TableRows;

/// The rows of a table as they were read, batch by batch.
#[derive(Debug)]
pub struct TableBatches {
    rows: ResultRows,
    builder: BatchBuilder,
    /// The index of the next row.
    next: usize,
}

impl TableRows {
    /// Its rows as Arrow's batches: those that [`crate::Relation::batches`] makes of the table with values.
    pub fn into_batches(self) -> TableBatches {
        let types: Vec<ArrowType> =
            self.columns.iter().enumerate().map(|(index, column)| type_of(column, &self.rows, index)).collect();
        TableBatches { builder: builder(&self.columns, &types), rows: self.rows, next: 0 }
    }
}

/// A type that holds all values of a column.
fn type_of(column: &Column, rows: &ResultRows, index: usize) -> ArrowType {
    let declared = described_type(column);
    if declared == ArrowType::I64 && has_beyond_i64(rows, index) { ArrowType::F64 } else { declared }
}

/// Returns whether a column has numbers that 64 signed bits do not hold.
fn has_beyond_i64(rows: &ResultRows, index: usize) -> bool {
    let Some(RowColumn::Field(field) | RowColumn::FieldOrTag(field, _)) = rows.columns().get(index) else {
        return false;
    };
    let is_beyond = |cells: &query::Column| match &cells.values {
        Values::U64(values) => {
            (0..values.len()).any(|row| matches!(cells.cell(row), Cell::U64(value) if i64::try_from(value).is_err()))
        }
        _ => false,
    };
    (0..rows.frames()).filter_map(|frame| rows.field(frame, *field)).any(is_beyond)
}

impl TableBatches {
    /// With batches of another size.
    #[must_use]
    pub fn with_limits(self, limits: BatchLimits) -> Self {
        Self { builder: self.builder.with_limits(limits), ..self }
    }

    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }
}

impl Iterator for TableBatches {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut series: HashMap<u32, Vec<SeriesColumn<'_>>> = HashMap::new();
        while let Some(row) = self.rows.order().get(self.next) {
            self.next += 1;
            let columns = series.entry(row.series).or_insert_with(|| self.rows.series_columns(row.series));
            let cells = columns.iter().map(|column| match column.value(row) {
                RowValue::Time(time_ns) => Cell::I64(time_ns),
                RowValue::Cell(cell) => cell,
            });
            if let full @ Some(_) = self.builder.push(cells).transpose() {
                return full;
            }
        }
        self.builder.finish().transpose()
    }
}

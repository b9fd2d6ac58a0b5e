//! Tables as Arrow's record batches, and back.

mod read;

use query::Cell;
use query::QueryError;
use query::arrow::{ArrowType, BatchBuilder, RecordBatch, SchemaRef};

use crate::error::SqlError;
use crate::relation::{Column, Relation};
use crate::value::{SqlType, Value};

pub(crate) use read::relation_of_batch;

/// The rows of a table, batch by batch.
#[derive(Debug)]
pub struct RelationBatches<'a> {
    rows: std::slice::Iter<'a, Vec<Value>>,
    types: Vec<ArrowType>,
    builder: BatchBuilder,
}

impl Relation {
    /// Its rows as Arrow's batches. A column of whole numbers that has some beyond 64 signed bits is one of floats; intervals, and columns of
    /// values of different kinds, are texts as Postgres writes them.
    pub fn batches(&self) -> RelationBatches<'_> {
        let types: Vec<ArrowType> =
            self.columns.iter().enumerate().map(|(place, column)| arrow_type(column, &self.rows, place)).collect();
        let named = self.columns.iter().map(|column| column.name.as_str()).zip(types.iter().copied());
        let builder = BatchBuilder::new(named);
        RelationBatches { rows: self.rows.iter(), types, builder }
    }
}

impl Relation {
    /// Rows that another engine gave.
    pub fn of_batches(schema: &SchemaRef, batches: impl IntoIterator<Item = RecordBatch>) -> Result<Self, SqlError> {
        let mut relation = Self { columns: columns_of(schema), rows: Vec::new() };
        for batch in batches {
            relation.rows.extend(relation_of_batch(&batch)?.rows);
        }
        Ok(relation)
    }
}

/// The columns of what another engine gives.
pub fn columns_of(schema: &SchemaRef) -> Vec<Column> {
    schema.fields().iter().map(|field| Column::new(field.name(), read::sql_type_of(field.data_type()))).collect()
}

impl RelationBatches<'_> {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        self.builder.schema()
    }
}

impl Iterator for RelationBatches<'_> {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        for row in self.rows.by_ref() {
            let written = |(value, kind): (&Value, &ArrowType)| {
                let is_text = *kind == ArrowType::Text && !value.is_null() && !matches!(value, Value::Text(_));
                is_text.then(|| value.to_string())
            };
            let texts: Vec<Option<String>> = row.iter().zip(&self.types).map(written).collect();
            let cells =
                row.iter().zip(&texts).map(|(value, text)| text.as_deref().map_or_else(|| cell(value), Cell::Text));
            match self.builder.push(cells).transpose() {
                None => {}
                full => return full,
            }
        }
        self.builder.finish().transpose()
    }
}

/// A value as it is; intervals are written as texts before.
fn cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null | Value::Interval(_) => Cell::Null,
        Value::Bool(value) => Cell::Bool(*value),
        Value::Int(value) | Value::Timestamp(value) => Cell::I64(*value),
        Value::Float(value) => Cell::F64(*value),
        Value::Text(text) => Cell::Text(text),
    }
}

/// What holds all values of a column.
fn arrow_type(column: &Column, rows: &[Vec<Value>], place: usize) -> ArrowType {
    let of = |sql_type: SqlType| match sql_type {
        SqlType::Bool => Some(ArrowType::Bool),
        SqlType::Int => Some(ArrowType::I64),
        SqlType::Float => Some(ArrowType::F64),
        SqlType::Timestamp => Some(ArrowType::Time),
        SqlType::Text | SqlType::Interval => Some(ArrowType::Text),
        SqlType::Unknown => None,
    };
    let mut found = of(column.sql_type);
    for kind in rows.iter().filter_map(|row| of(row.get(place)?.sql_type())) {
        found = Some(found.map_or(kind, |known| known.unified(kind)));
    }
    found.unwrap_or(ArrowType::Text)
}

#[cfg(test)]
mod tests;

//! Tables as Arrow's record batches, and back.

mod read;
mod table;

use query::arrow::{ArrowType, BatchBuilder, BatchLimits, RecordBatch, SchemaRef};
use query::{Cell, QueryError, SqlType, Value};

use crate::error::{SqlError, invalid};
use crate::relation::{Column, Relation};

pub use read::extent_of;
pub(crate) use read::relation_of_batch;
pub use table::TableBatches;

/// The rows of a table, which are borrowed or owned, batch by batch.
#[derive(Debug)]
pub struct RelationBatches<R> {
    rows: R,
    types: Vec<ArrowType>,
    builder: BatchBuilder,
}

impl Relation {
    /// Its rows as Arrow's batches. A column of whole numbers that has some beyond 64 signed bits is one of floats; intervals, and columns of
    /// values of different kinds, are texts as Postgres writes them.
    pub fn batches(&self) -> RelationBatches<std::slice::Iter<'_, Vec<Value>>> {
        RelationBatches::new(&self.columns, self.rows.iter(), self.types())
    }

    /// As [`Relation::batches`]; rows are freed as they are read.
    pub fn into_batches(self) -> RelationBatches<std::vec::IntoIter<Vec<Value>>> {
        let types = self.types();
        RelationBatches::new(&self.columns, self.rows.into_iter(), types)
    }

    /// For each column a type that holds all of its values.
    fn types(&self) -> Vec<ArrowType> {
        self.columns.iter().enumerate().map(|(place, column)| arrow_type(column, &self.rows, place)).collect()
    }

    /// Its rows as batches of the very schema that [`arrow_schema`] gives for its columns, whatever is in them: for protocols that tell
    /// the schema before there are rows. An error if a column of whole numbers has some beyond 64 signed bits.
    pub fn batches_as_described(&self) -> Result<RelationBatches<std::slice::Iter<'_, Vec<Value>>>, SqlError> {
        for (place, column) in self.columns.iter().enumerate().filter(|(_, column)| column.sql_type.is_integer()) {
            if self.rows.iter().any(|row| matches!(row.get(place), Some(Value::Float(_)))) {
                return invalid(format!(
                    "column \"{0}\" has numbers beyond 64 signed bits: ask for CAST({0} AS double precision)",
                    column.name
                ));
            }
        }
        Ok(RelationBatches::new(&self.columns, self.rows.iter(), self.columns.iter().map(described_type).collect()))
    }
}

/// The schema that columns have in Arrow before there are rows.
pub fn arrow_schema(columns: &[Column]) -> SchemaRef {
    query::arrow::schema(columns.iter().map(|column| (column.name.as_str(), described_type(column))))
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

impl<R> RelationBatches<R> {
    fn new(columns: &[Column], rows: R, types: Vec<ArrowType>) -> Self {
        Self { rows, builder: builder(columns, &types), types }
    }

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

fn builder(columns: &[Column], types: &[ArrowType]) -> BatchBuilder {
    BatchBuilder::new(columns.iter().map(|column| column.name.as_str()).zip(types.iter().copied()))
}

impl<R: Iterator<Item: AsRef<[Value]>>> Iterator for RelationBatches<R> {
    type Item = Result<RecordBatch, QueryError>;

    fn next(&mut self) -> Option<Self::Item> {
        for row in self.rows.by_ref() {
            let row = row.as_ref();
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
        Value::Int(value) | Value::Timestamp(value) | Value::LocalTimestamp(value) | Value::Date(value) => {
            Cell::I64(*value)
        }
        Value::Unsigned(value) => Cell::U64(*value),
        Value::Float(value) => Cell::F64(*value),
        Value::Text(text) => Cell::Text(text),
    }
}

/// A type that holds all values of a column.
fn arrow_type(column: &Column, rows: &[Vec<Value>], place: usize) -> ArrowType {
    let mut found = known_type(column.sql_type);
    for kind in rows.iter().filter_map(|row| known_type(row.get(place)?.sql_type())) {
        found = Some(found.map_or(kind, |known| known.unified(kind)));
    }
    found.unwrap_or(ArrowType::Text)
}

/// The type that holds the declared values of a column.
fn described_type(column: &Column) -> ArrowType {
    known_type(column.sql_type).unwrap_or(ArrowType::Text)
}

const fn known_type(sql_type: SqlType) -> Option<ArrowType> {
    match sql_type {
        SqlType::Bool => Some(ArrowType::Bool),
        SqlType::Int | SqlType::Int4 => Some(ArrowType::I64),
        SqlType::Float => Some(ArrowType::F64),
        SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date => Some(ArrowType::Time),
        SqlType::Text | SqlType::Interval => Some(ArrowType::Text),
        SqlType::Unknown => None,
    }
}

#[cfg(test)]
mod tests;

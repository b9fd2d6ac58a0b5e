//! The result of a query, batch by batch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use query::arrow::{BatchLimits, FrameBatches};
use query::{Budget, Frame, QueryError, Value};
use sql::{Relation, RelationBatches, TableBatches, TableRows};

use crate::error::Error;

/// A program that has the result in its own memory wants few large batches: arrays of Python see what is in one without a copy.
const LIMITS: BatchLimits = BatchLimits { rows_max: 1 << 20, text_bytes_max: 256 << 20 };

/// The key of warnings in the metadata of a schema.
const WARNINGS: &str = "thalweg.warnings";

/// Rows as languages give them.
pub(crate) enum Rows {
    /// Values.
    Relation(RelationBatches<std::vec::IntoIter<Vec<Value>>>),
    /// Rows of a table as they were read.
    Table(TableBatches),
    /// Series.
    Frames(FrameBatches<Vec<Frame>>),
}

impl Rows {
    pub(crate) fn from_relation(relation: Relation) -> Self {
        Self::Relation(relation.into_batches().with_limits(LIMITS))
    }

    pub(crate) fn from_table(table: TableRows) -> Self {
        Self::Table(table.into_batches().with_limits(LIMITS))
    }

    pub(crate) fn from_frames(frames: Vec<Frame>) -> Self {
        Self::Frames(FrameBatches::of_all(frames).with_limits(LIMITS))
    }

    fn schema(&self) -> SchemaRef {
        match self {
            Self::Relation(rows) => rows.schema(),
            Self::Table(rows) => rows.schema(),
            Self::Frames(rows) => rows.schema(),
        }
    }

    fn next(&mut self) -> Option<Result<RecordBatch, QueryError>> {
        match self {
            Self::Relation(rows) => rows.next(),
            Self::Table(rows) => rows.next(),
            Self::Frames(rows) => rows.next(),
        }
    }
}

/// The result of a query. The memory that its rows take is the query's until it is dropped.
pub struct Batches {
    schema: SchemaRef,
    rows: Rows,
    budget: Arc<Budget>,
    warnings: Vec<String>,
}

impl Batches {
    pub(crate) fn new(rows: Rows, budget: Arc<Budget>, warnings: Vec<String>) -> Self {
        let mut schema = rows.schema();
        if !warnings.is_empty() {
            let metadata = [(WARNINGS.to_owned(), warnings.join("\n"))];
            schema = Arc::new(Schema::new_with_metadata(schema.fields().clone(), metadata.into_iter().collect()));
        }
        Self { schema, rows, budget, warnings }
    }

    /// Remarks on the result: likely mistakes in PromQL, lost or folded rows. They also stand in the schema's metadata as `thalweg.warnings`,
    /// a line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn step(&mut self) -> Option<Result<RecordBatch, Error>> {
        if let Err(error) = self.budget.check() {
            return Some(Err(error.into()));
        }
        Some(self.rows.next()?.map_err(Error::from))
    }
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    /// The next batch. What reads it may be of another language: nothing unwinds from here.
    fn next(&mut self) -> Option<Self::Item> {
        let step = catch_unwind(AssertUnwindSafe(|| self.step()));
        let step = step.unwrap_or_else(|payload| Some(Err(Error::panicked(&*payload))));
        Some(step?.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

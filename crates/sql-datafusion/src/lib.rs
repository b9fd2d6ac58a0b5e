//! The rest of SQL: what the built-in layer does not have, by DataFusion over tables that are read by plans.
//!
//! A statement's way, file by file: `session` (what DataFusion may do, and its tables) · `table` (a table: which columns, tags, times and how
//! many rows of it are read) · `filter` (conditions that become part of a scan) · `drive` (DataFusion on a thread of its own, its scans on the
//! asker's, which may use the store) · `memory` (the query's budget as DataFusion's memory pool).
//!
//! Everything is behind the feature `datafusion`.
#![cfg(feature = "datafusion")]

mod drive;
mod filter;
mod memory;
mod session;
mod table;

use std::fmt;

use query::arrow::{RecordBatch, SchemaRef};
use query::{Plan, QueryError, Value};

pub use drive::{describe, run};

/// A query, and what it is read with.
#[derive(Debug, Clone)]
pub struct SqlQuery {
    /// One statement that reads.
    pub text: String,
    /// The values of `$1`, `$2` …
    pub parameters: Vec<Value>,
    /// The database whose tables it reads.
    pub database: String,
    /// The value of `now()`, in nanoseconds since the Unix epoch.
    pub now_ns: i64,
    /// The name of the tables' time.
    pub time_name: &'static str,
}

/// The answer to a query.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its columns.
    pub schema: SchemaRef,
    /// Its rows.
    pub batches: Vec<RecordBatch>,
    /// The plans by which tables were read.
    pub plans: Vec<Plan>,
}

/// Why a query gave no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqlQueryError {
    /// DataFusion does not take it, or it failed. Holds DataFusion's message.
    Statement(String),
    /// Its data or its limits.
    Query(QueryError),
}

impl From<QueryError> for SqlQueryError {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl fmt::Display for SqlQueryError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Statement(message) => out.write_str(message),
            Self::Query(error) => error.fmt(out),
        }
    }
}

impl std::error::Error for SqlQueryError {}

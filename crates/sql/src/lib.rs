//! SQL: statements in, tables out, by way of the plan.
//!
//! A measurement is a table of its time, its tags and its fields; a Prometheus metric is one of its time, its labels and `value`.
//!
//! * `syntax`: [`parse()`] turns text into the grammar's tree, and takes the clauses out that only time-series databases have ·
//!   `settings`: those of databases · `accounts`: statements about users · `triggers`, `views`: about triggers and materialised views · `view_columns`: columns that these get later · `view_texts`: those that make views of plain SQL, as they were written · `spelling`, `table_options`: other spellings of statements, and of what CREATE TABLE has · `cursor`: their tokens · `access`: which
//!   statements only read, and which the audit log has
//! * `statement`: which kind a statement is · `session`, `settings`: statements about the session · `change`, `insert`, `conflict`: statements
//!   that write · `create`, `table_options`: CREATE TABLE · `accepted`: statements that do nothing here · `policies`, `timescale`: functions and tables of TimescaleDB · `views`, `view_columns`: those about materialised views · `stored_queries`: views of plain SQL, and what they show · `likeness`: tables of what is alike · `row_program`: conditions and columns of single rows, for triggers · `schemas`: what stands before names of tables · `copy`: COPY in text, CSV, binary and
//!   Parquet
//! * `run`: queries as wholes: CTEs, set operations · `catalog`: tables about tables, `types` as clients know them
//! * `select`: FROM, WHERE, groups, `order` · `filter`, `pushed`, `latest`: what the plan does · `join`, `group`, `sample`, `fill`: what is
//!   done on rows · `windows`: row numbers · `folds`: aggregates of rows that stand for folded ones · `table_rows`: rows as they were read ·
//!   `own_rows`: tables as their own transaction sees them · `narrow`: conditions that become a view's · `view`, `view_source`, `view_table`: queries of materialised views as their plans · `type_tree`: a question of asyncpg
//! * `context`: the connection that statements come from · `pending`: the writes of its transaction · `settings`: those of its session
//! * `scope`: the columns that a name may mean · `expression`: names to columns, values of rows
//! * `relation`: rows of values · `arrow`: record batches · `error`: why there is no answer · `fuzzing`: entries for fuzzers
//!
//! The plan does what it can: conditions on time, tags and fields, groups by tags and bins of time, the last rows. The rest is done on rows
//! here. A statement that needs more is refused with [`SqlError::Unsupported`].

mod arrow;
mod catalog;
mod context;
mod copy;
mod error;
mod expression;
#[doc(hidden)]
pub mod fuzzing;
mod pending;
mod relation;
mod run;
mod scope;
mod select;
mod settings;
mod statement;
mod syntax;

pub use arrow::{RelationBatches, TableBatches, arrow_schema, columns_of, extent_of};
pub use catalog::{table_columns, type_number};
pub use context::{ChangedSettings, ClientContext, Manner, Notices, Role, Roles, Setting};
pub use copy::{CopyIn, CopyOut, PARQUET_MEDIA_TYPE, push_binary, read_binary};
pub use error::SqlError;
pub use expression::{ParameterType, array};
pub use pending::{PendingWrite, PendingWrites, commit};
pub use query::time::format_rfc3339_us;
pub use query::{Interval, SqlType, Value};
pub use relation::{Column, Relation};
pub use select::table_rows::TableRows;
pub use settings::{session_zone, timeout_ms};
pub use statement::{
    Answer, CursorStep, Declared, Fetch, MissingColumns, OutputColumn, Prepared, RowProgram, RowProgramText,
    SessionCommand, copy_in, describe, insert_outputs, insert_rows, parameter_types, run, session_command,
};
pub use syntax::parse::{Parsed, TEXT_BYTES_MAX, parse};
pub use syntax::triggers::{NewTrigger, NewTriggerAction, TRIGGER_COLUMNS, TriggerOptions, TriggerStatement};

//! SQL: statements in, tables out, by way of the plan.
//!
//! A measurement is a table of its time, its tags and its fields; a Prometheus metric one of its time, its labels and `value`. The way of a
//! statement, file by file:
//!
//! * [`parse()`]: text to the grammar's tree; what time-series databases add to SELECT is taken out of the tokens before, as is what is said of
//!   databases (`settings`) · `access`: which statements only read
//! * `statement`: which kind · `change`, `insert`, `copy`: statements that write · `catalog`: tables about tables
//! * `run`: queries as wholes · `select`: FROM, WHERE, groups, order · `scope`: the columns that a name may mean
//! * `expression`: names to places, values of rows · `order`: rows in order
//! * `relation`: rows of values · `table_rows`: rows as they were read · `arrow`: record batches · `error`: why there is no answer
//!
//! What the plan can do it does: conditions on time, tags and fields (`select/filter`), groups by tags and bins of time (`select/pushed`), the
//! newest rows (`select/latest`). The rest is done on rows here. What this layer does not have is refused with [`SqlError::Unsupported`].

mod access;
mod arrow;
mod catalog;
mod change;
mod copy;
mod error;
mod expression;
mod insert;
mod order;
mod parse;
mod relation;
mod run;
mod scope;
mod select;
mod settings;
mod statement;
mod table_rows;

pub use arrow::{RelationBatches, arrow_schema, columns_of, extent_of};
pub use catalog::{table_columns, type_number};
pub use copy::{CopyIn, CopyOut, PARQUET_MEDIA_TYPE, fuzz_copy_text, fuzz_parquet};
pub use error::SqlError;
pub use parse::{Parsed, TEXT_BYTES_MAX, parse};
pub use query::time::format_rfc3339_us;
pub use query::{Interval, SqlType, Value};
pub use relation::{Column, Relation};
pub use run::Manner;
pub use statement::{Answer, ClientContext, copy_in, describe, insert_rows, run};
pub use table_rows::TableRows;

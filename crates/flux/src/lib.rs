//! The everyday part of Flux, InfluxDB 2's language: text to plans, to tables.
//!
//! ```text
//! text ── syntax ──► statements ── evaluate ──► stream of tables ── csv ──► annotated CSV
//!                                                 │
//!                          source: from |> range |> filter (|> group) (|> aggregate) as plans of the table engine
//!                          functions: what follows, over tables in memory
//! ```
//!
//! * `syntax`: text to expressions with their positions
//! * `evaluate`: variables, calls and pipes of a script · `row`: functions of one row (`filter`, `map`) · `arguments`: those of a call
//! * `stream`: tables in memory (`table`), and tables that are not read yet (`source`), whose filters, groups (`group_key`) and aggregates (`plan_function`) become plans
//! * `functions`: pipeline functions over tables: `aggregate`, `window`, `shape` (groups, columns, order), `change` (values row by row), `pivot`
//! * `csv`: the answer's text
//! * `task`: scripts that are kept and write what they give, as continuous queries
//!
//! Data comes from a [`query::Session`]; there is no clock, no I/O and no thread in here. A function that is not supported is refused with
//! its name and position.

mod arguments;
mod csv;
mod evaluate;
mod functions;
mod row;
mod stream;
mod syntax;
mod task;

pub use csv::{Annotation, Dialect};
pub use evaluate::{Query, RequestContext, Results};
pub use syntax::{FluxError, Position, TEXT_BYTES_MAX};
pub use task::{TaskOptionChanges, TaskOptions, TaskScript};

/// The functions that a pipeline may have, for messages and documentation.
pub const PIPELINE_FUNCTIONS: [&str; 42] = functions::NAMES;

//! The database in process, as the bindings of other languages need it: errors are a code and a message, options and parameters are JSON, rows
//! and results are Arrow's record batches.
//!
//! * `engine`: [`Engine`], a folder that is open: writes, series, samples, deletes, queries
//! * `epochs`: regular databases: their epochs and names
//! * `options`: settings of an engine · `error`: why something failed
//! * `batches`: [`Batches`], the result of a query · `results`: what each language gives as such
//! * `rows`: record batches as rows of a table · `rrd`: series as files of RRDtool

mod batches;
mod engine;
mod epochs;
mod error;
mod options;
mod results;
mod rows;
mod rrd;

pub use batches::Batches;
pub use db::{EpochRow, EpochWritten, NameValidity};
pub use engine::{ColumnRoles, DEFAULT_DATABASE, Engine, Query, WriteSummary};
pub use epochs::{CellStatus, NameEpochs, refusal};
pub use error::{Code, Error};
pub use ingest::line::{FieldColumn, FieldValues, Precision, TableColumns, TagColumn};
pub use model::{EpochColumn, EpochNames, Labels, SampleColumn, TimeRange};
pub use options::EngineOptions;
pub use rrd::RrdExport;

/// The version of this library.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

//! Between the query languages and the store: what a language runs ([`Plan`], [`Selection`]), on what ([`Session`], [`Source`]), within which
//! limits ([`Budget`]), what it gets ([`Frame`], [`ResultRows`], [`Series`]) and how it fails ([`QueryError`]).
//!
//! * `plan`: the logical plan, its written form, the lowering of conditions, rewrite rules · `sexpr`: the written form read
//! * `execute`: the one executor of plans, over frames (`frame`) · `fill`: gaps between bins
//! * `session`: what SQL, InfluxQL and plans may read and change · `tables`: groups of tables
//! * `source`, `store_source`: series for PromQL · `windows`: its windows from summaries · `selection`: groups within a budget
//! * `value`, `time`: values, types and times of SQL and InfluxQL
//! * `result_rows`, `series_labels`: rows as they were read, for answers that show them · `row_limit` · `arrow`: frames as record batches
//! * `statistics`: of numbers, for aggregates · `lines`: rows as line protocol
//! * `budget`, `threads`, `trace`: limits, helping threads, measurements

pub mod arrow;
mod budget;
mod execute;
mod fill;
mod frame;
pub mod lines;
pub mod plan;
mod result_rows;
mod row_limit;
mod selection;
mod series_labels;
mod session;
mod sexpr;
mod source;
pub mod statistics;
mod store_source;
mod tables;
mod threads;
pub mod time;
mod trace;
pub mod value;
mod windows;

pub use budget::{Budget, Pace, SAMPLE_BYTES, Stop};
pub use execute::{
    BinCache, BinsRequest, BinsResponse, CachedBinReads, ComputeBins, Context, LastRow, LastRows, Outcome, Reads,
    StepReport, execute, last_rows,
};
pub use fill::{fill_gaps, interpolated};
pub use frame::{Frame, FrameColumn};
pub use model::{Cell, Column, Values};
pub use plan::Plan;
pub use result_rows::{ResultRows, RowColumn, RowOrder, RowRef, RowShape, RowValue, SeriesColumn};
pub use row_limit::RowLimit;
pub use selection::cardinality;
pub use series_labels::{SeriesLabels, SeriesTexts};
pub use session::{DatabaseSettings, RefusedRow, Session, TableGroup};
pub use sexpr::{SyntaxError, TEXT_BYTES_MAX, parse};
pub use source::{QueryError, Selection, Series, SeriesSink, Source, WindowSink};
pub use store::{Origin, Origins, SelectedGroup, TableSchema};
pub use store_source::{Chosen, StoreSource};
pub use tables::table_groups;
pub use threads::Helpers;
pub use trace::Trace;
pub use value::{Interval, SqlType, Value};
pub use windows::{WindowSelection, WindowSeries, WindowValue};

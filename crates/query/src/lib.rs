//! Between the query languages and the store: what a language runs ([`Plan`], [`Selection`]), on what ([`Session`], [`Source`]), within which
//! limits ([`Budget`]), what it gets ([`Frame`], [`ResultRows`], [`Series`]) and how it fails ([`QueryError`]).
//!
//! * `plan`: the logical plan, its rewrite rules, its written form; `plan/sexpr` reads that form
//! * `execute`: the one executor of plans, over frames; `execute/fill` fills gaps between bins for all languages
//! * `result`: what a query gives: `frame`s, rows as they were read (`result_rows`), labels of series, labels that a table says (`label_rows`), `LIMIT`
//! * `series`: what PromQL reads: `source`s, the one over a store, the one over a `regular` database, windows from summaries, groups within a budget (`selection`), series of `texts`
//! * `session`: what SQL, InfluxQL and plans may read and change; the one over a store, and (`session/testing`) one in memory for tests
//! * `views`: materialised views: definitions, states, how they are read
//! * `sketch`: what is about known of many values, and can be put together
//! * `value`, `time`: values, types and times of SQL and InfluxQL · `statistics`: of numbers, for aggregates, (`ranked`) values by their order, and (`line`) areas under lines
//! * `arrow`: frames as record batches · `lines`: rows as line protocol
//! * `budget`, `threads`, `trace`: limits, helping threads, measurements

pub mod arrow;
mod budget;
mod execute;
pub mod lines;
pub mod plan;
mod result;
mod series;
mod session;
pub mod sketch;
pub mod statistics;
mod threads;
pub mod time;
mod trace;
pub mod value;
pub mod views;

pub use budget::{
    Budget, FOLDED_WARNING, HiddenTable, QueryMemory, QueryMemoryLimit, SAMPLE_BYTES, Schedule, Stop, ViewUse,
    WriteLimits,
};
pub use execute::{
    BinCache, BinsRequest, BinsResponse, CachedBinReads, ComputeBins, LastRow, LastRows, Outcome, Reads, StepReport,
    fill_gaps, interpolated, note_folds,
};
pub use index::Projection;
pub use model::{Cell, Column, Folds, Summary, Values};
pub use plan::Plan;
pub use plan::sexpr::{SyntaxError, TEXT_BYTES_MAX, parse};
pub use result::frame::{ColumnFinder, Frame, FrameColumn};
pub use result::label_rows::LabelRows;
pub use result::result_rows::{ResultRows, RowColumn, RowOrder, RowRef, RowShape, RowValue, SeriesColumn};
pub use result::row_limit::RowLimit;
pub use result::series_labels::{SeriesLabels, SeriesTexts};
pub use series::regular::{NAME_TAG, RegularSource};
pub use series::selection::{cardinality, reach};
pub use series::source::{LastSampleSink, QueryError, Selection, Series, SeriesSink, Source, WindowSink, number_of};
pub use series::store_source::{Chosen, StoreSource};
pub use series::texts::{TextSample, TextSeries, TextSink, scan_without_texts};
pub use series::viewed::{ViewedLabels, ViewedValue, ViewedWindows};
pub use series::windows::{WindowSelection, WindowSeries, WindowValue};
pub use session::regular::{MissingValue, RegularSettings};
pub use session::store_session::{SessionHost, SessionWriter, StoreSession};
#[cfg(feature = "testing")]
#[doc(hidden)]
pub use session::testing;
pub use session::{DatabaseSettings, NewTable, RefusedRow, Session, TableGroup, TopNames};
pub use store::{
    EpochCell, EpochKind, EpochValue, NameKind, NameValidity, Origin, Origins, SelectedGroup, TableLayout, TableSchema,
    TopBy,
};
pub use threads::Helpers;
pub use trace::Trace;
pub use value::{Interval, SqlType, Value};

//! Between the query languages and the store: what a language asks ([`Selection`], [`Plan`]), what it gets ([`Series`], [`Frame`]), what it
//! may use ([`Budget`]) and how it fails ([`QueryError`]).

pub mod arrow;
mod budget;
mod execute;
mod frame;
pub mod plan;
mod read_rows;
mod selection;
mod series_labels;
mod sexpr;
mod source;
mod store_source;
mod tables;
mod threads;
mod trace;
mod windows;

pub use budget::{Budget, Pace, SAMPLE_BYTES, Stop};
pub use execute::{
    BinsAsked, BinsFound, Context, KeptBins, KeptReads, LastRow, LastRows, MakeBins, Outcome, Reads, StepReport,
    execute, last_rows,
};
pub use frame::{Cell, Frame, FrameColumn};
pub use model::Values;
pub use plan::Plan;
pub use read_rows::{RowPlace, Shows};
pub use selection::cardinality;
pub use series_labels::{SeriesLabels, SeriesTexts};
pub use sexpr::{SyntaxError, TEXT_BYTES_MAX, parse};
pub use source::{QueryError, Selection, Series, SeriesSink, Source, WindowSink};
pub use store::{Origin, Origins, SelectedGroup, TableSchema};
pub use store_source::{Chosen, StoreSource};
pub use threads::Helpers;
pub use trace::Trace;
pub use windows::{WindowSelection, WindowSeries, WindowValue};

//! Plain data that Thalweg's crates pass to one another. No I/O, no file formats, no helpers.
//!
//! * [`Labels`]: what names a series or a group.
//! * [`Matcher`]: a condition on one label, as the query languages write it.
//! * [`TimeRange`]: a stretch of time, both ends included.
//! * [`Batch`]: rows on their way in; one request, one database.
//! * [`SampleColumn`]: one member's samples on their way out.
//! * [`EpochNames`], [`EpochColumn`]: one moment's values of many series, on their way in or out.
//! * [`Column`]: a table's column on its way out: values, and which of them are there.
//! * [`histogram::NativeHistogram`]: a sample that is a whole distribution.
//!
//! * `batch`: rows on their way in · `rejection`: why some were not taken · `limits`: bounds on requests
//! * `labels`, `matcher`, `time_range`: choosing series · `value`: types of values · `exemplar`, `histogram`: samples that are more than a number
//! * `epochs`: names and values of one moment · `samples`, `cells`: columns on their way out · `summary`: what many samples add up to · `folds`: rows that stand for folded ones

mod batch;
mod cells;
mod epochs;
mod exemplar;
mod folds;
pub mod histogram;
mod labels;
mod limits;
mod matcher;
mod rejection;
mod samples;
mod summary;
mod time_range;
mod value;

pub use batch::{Batch, Block, Field, GroupIdentity, GroupKey, KeyDecoder, MetricKind, MetricMetadata, Span};
pub use cells::{Cell, Column, Values};
pub use epochs::{EpochColumn, EpochNames};
pub use exemplar::{Exemplar, SeriesExemplar, StartTimestamp};
pub use folds::Folds;
pub use histogram::NativeHistogram;
pub use labels::{DuplicateLabel, Labels};
pub use limits::Limits;
pub use matcher::{MatchOp, Matcher};
pub use rejection::RejectionKind;
pub use samples::SampleColumn;
pub use summary::{Summary, SummaryParts};
pub use time_range::TimeRange;
pub use value::{STALE_NAN_BITS, ValueType, is_stale_bits};

/// The label that holds a metric's name, as Prometheus spells it.
pub const METRIC_NAME: &str = "__name__";

/// The field whose name does not show in a metric's name: `up` with field `value` is the metric `up`.
pub const VALUE_FIELD: &str = "value";

/// The field that holds a metric's native histograms, next to [`VALUE_FIELD`] with its floats. Its name does not show either.
pub const HISTOGRAM_FIELD: &str = "native_histogram";

/// The database that requests without one read and write.
pub const DEFAULT_DATABASE: &str = "default";

/// The metric name under which PromQL sees a field of a measurement: joined by `_`, or the measurement alone
/// for the fields `value` and `native_histogram`.
pub fn metric_name(measurement: &str, field: &str) -> String {
    if field == VALUE_FIELD || field == HISTOGRAM_FIELD {
        measurement.to_owned()
    } else {
        format!("{measurement}_{field}")
    }
}

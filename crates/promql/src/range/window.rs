//! One window over the samples of a series.

use std::sync::Arc;

use crate::eval::annotations::Annotations;
use crate::histogram::native::Histogram;
use crate::range::marks::MarkedValues;
use crate::syntax::ast::Edges;
use crate::syntax::span::Span;

/// The samples in a window that is open at its start and closed at its end. Of anchored and smoothed selectors samples
/// around it are there too.
#[derive(Debug)]
pub(crate) struct SampleWindow<'a> {
    pub(crate) timestamps_ms: &'a [i64],
    /// As many as timestamps.
    pub(crate) values: &'a [f64],
    pub(crate) histogram_timestamps_ms: &'a [i64],
    /// As many as their timestamps. There is a float or a histogram at least.
    pub(crate) histograms: &'a [Arc<Histogram>],
    /// The resets or changes inside, for functions that need them.
    pub(crate) marked: MarkedValues<'a>,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) range_ms: i64,
    /// The time of evaluation; differs from the end by the offset.
    pub(crate) time_ms: i64,
    /// The scalar arguments at this step.
    pub(crate) scalars: [f64; 2],
    pub(crate) edges: Edges,
    /// The metric's name, for annotations.
    pub(crate) name: &'a str,
    /// The position of the range expression, for annotations.
    pub(crate) span: Span,
    /// The position of the first argument, which for quantiles is the quantile.
    pub(crate) quantile_span: Span,
    pub(crate) annotations: &'a Annotations,
}

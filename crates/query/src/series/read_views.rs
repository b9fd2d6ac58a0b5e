//! The views that a query of PromQL reads by the names of metrics, and which of their windows it computes.

use std::sync::Arc;

use model::TimeRange;

use crate::views::View;

/// The views that a query reads by the names of metrics.
#[derive(Debug, Default)]
pub(crate) struct ReadViews {
    /// The tables of all of them.
    pub(crate) targets: Vec<String>,
    pub(crate) unstored: Vec<UnstoredView>,
}

/// A view some of whose windows are computed for a query.
#[derive(Debug)]
pub(crate) struct UnstoredView {
    pub(crate) view: Arc<View>,
    /// From this time on rows are of windows that are not over.
    pub(crate) end_ns: i64,
    /// The times of the windows that are computed.
    pub(crate) ranges: Vec<TimeRange>,
}

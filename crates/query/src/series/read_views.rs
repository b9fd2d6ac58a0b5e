//! The views that a query of PromQL reads by the names of metrics, and which of their windows it computes.

use std::sync::Arc;

use model::TimeRange;

use crate::views::View;

/// The views that a query reads by the names of metrics.
#[derive(Debug, Default)]
pub(crate) struct ReadViews {
    /// The tables of those that it names, not by patterns.
    pub(crate) targets: Vec<String>,
    pub(crate) unstored: Vec<UnstoredView>,
}

/// A view some of whose windows are computed for a query.
#[derive(Debug)]
pub(crate) struct UnstoredView {
    pub(crate) view: Arc<View>,
    /// The times of the windows that are computed, in order; what is stored of them does not count.
    pub(crate) ranges: Vec<TimeRange>,
}

//! Series of an answer, for tables and plots.

/// Labels and samples (seconds, value) of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) samples: Vec<(f64, String)>,
}

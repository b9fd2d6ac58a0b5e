//! What stands beside a series' samples: exemplars, and since when it counts.

use crate::{GroupKey, Labels};

/// An observation that stands for others: a value with labels of its own, such as the id of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    /// The exemplar's own labels, not those of its series.
    pub labels: Labels,
    /// The observed value.
    pub value: f64,
    /// When, in nanoseconds since the Unix epoch.
    pub timestamp_ns: i64,
}

/// An exemplar on its way in.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesExemplar {
    /// Its series, as rows name theirs.
    pub key: GroupKey,
    /// The exemplar.
    pub exemplar: Exemplar,
}

/// Since when a series' counter counts: it was zero then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StartTimestamp {
    /// The series, as rows name theirs.
    pub key: GroupKey,
    /// Nanoseconds since the Unix epoch.
    pub start_ns: i64,
}

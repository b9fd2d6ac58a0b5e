//! Stretches of time.

/// A stretch of time in nanoseconds since the Unix epoch, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TimeRange {
    /// First instant inside.
    pub start_ns: i64,
    /// Last instant inside.
    pub end_ns: i64,
}

impl TimeRange {
    /// All of time.
    pub const ALL: Self = Self { start_ns: i64::MIN, end_ns: i64::MAX };

    /// From the first to the last instant inside.
    pub const fn new(start_ns: i64, end_ns: i64) -> Self {
        Self { start_ns, end_ns }
    }

    /// Returns whether the instant is inside.
    pub const fn contains(&self, timestamp_ns: i64) -> bool {
        self.start_ns <= timestamp_ns && timestamp_ns <= self.end_ns
    }

    /// Returns whether the two share an instant.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start_ns <= other.end_ns && other.start_ns <= self.end_ns
    }
}

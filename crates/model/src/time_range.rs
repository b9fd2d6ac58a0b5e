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

    /// No time at all: what [`TimeRange::union`] begins with.
    pub const EMPTY: Self = Self { start_ns: i64::MAX, end_ns: i64::MIN };

    /// From the first to the last instant inside.
    pub const fn new(start_ns: i64, end_ns: i64) -> Self {
        Self { start_ns, end_ns }
    }

    /// Returns whether the instant is inside.
    pub const fn contains(&self, timestamp_ns: i64) -> bool {
        self.start_ns <= timestamp_ns && timestamp_ns <= self.end_ns
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self { start_ns: self.start_ns.min(other.start_ns), end_ns: self.end_ns.max(other.end_ns) }
    }

    /// The smallest range that contains all of the timestamps.
    pub fn from_timestamps<'a>(timestamps_ns: impl IntoIterator<Item = &'a i64>) -> Self {
        timestamps_ns.into_iter().fold(Self::EMPTY, |range, time_ns| range.union(Self::new(*time_ns, *time_ns)))
    }

    /// Returns whether the two share an instant.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start_ns <= other.end_ns && other.start_ns <= self.end_ns
    }
}

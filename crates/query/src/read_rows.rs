//! Rows of several series as they were read, and what is shown of them: to write an answer down nobody needs a value for each cell.

use crate::frame::FrameColumn;

/// A row: when it is, of which series, and where in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowPlace {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// The number of its series.
    pub series: u32,
    /// Its place among the rows of the series.
    pub row: u32,
}

/// What a column shows of the rows of a series; a language has values of its own.
#[derive(Debug, Clone, PartialEq)]
pub enum Shows<'a, V> {
    /// Their times.
    Time,
    /// The same in all of them.
    Same(V),
    /// A field.
    Field(&'a FrameColumn),
}

//! `LIMIT` and `OFFSET`.

/// Rows to skip and to take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowLimit {
    /// So many are left out first.
    pub skip: usize,
    /// At most so many stay; `None`: all.
    pub rows: Option<usize>,
}

impl RowLimit {
    /// How many rows are needed in all; `None`: all.
    pub const fn needed(self) -> Option<usize> {
        match self.rows {
            Some(rows) => Some(rows.saturating_add(self.skip)),
            None => None,
        }
    }

    /// Leaves the rows that stay.
    pub fn apply<T>(self, rows: &mut Vec<T>) {
        rows.drain(..self.skip.min(rows.len()));
        rows.truncate(self.rows.unwrap_or(usize::MAX));
    }
}

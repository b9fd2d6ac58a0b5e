//! Rows that stand for others, which were folded.
//!
//! Folding replaces the samples of an interval by their [`Summary`] and leaves the last one as a row. The rule for what
//! folded data answers, in every language:
//!
//! * Aggregates that summaries have (count, sum, min, max, first, last, avg, and what is made of them) take the summary in
//!   place of the row. A fold belongs to the window, group or bin that its last sample is in, whatever is asked beside it
//!   and however long the range is. `count(*)` counts the rows that were written.
//! * Everything else (quantiles, deviations, rates, the rows themselves, a window that cuts a fold) takes the rows that
//!   folding left. The response says so in a warning; a strict database refuses the query.

use crate::Summary;

/// The summaries of rows that stand for folded ones, by row.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Folds(Vec<(usize, Summary)>);

impl Folds {
    /// Every row stands for itself.
    pub const NONE: Self = Self(Vec::new());

    /// Returns whether every row stands for itself.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds that of a row after all before.
    pub fn push(&mut self, row: usize, summary: Summary) {
        self.0.push((row, summary));
    }

    /// The summary of what a row stands for, if that is more than itself.
    pub fn get(&self, row: usize) -> Option<&Summary> {
        let place = self.0.binary_search_by_key(&row, |(known, _)| *known).ok()?;
        self.0.get(place).map(|(_, summary)| summary)
    }

    /// Rows and summaries, in order of the rows.
    pub fn iter(&self) -> impl Iterator<Item = &(usize, Summary)> {
        self.0.iter()
    }

    /// Those of these rows, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        if self.is_empty() {
            return Self::default();
        }
        let fold = |(place, row): (usize, &usize)| Some((place, *self.get(*row)?));
        Self(rows.iter().enumerate().filter_map(fold).collect())
    }

    /// Those of the last of so many rows, last first.
    #[must_use]
    pub fn last_reversed(&self, all: usize, rows: usize) -> Self {
        let fold = |(row, summary): &(usize, Summary)| (all - 1 - row, *summary);
        let last = self.0.iter().rev().take_while(|(row, _)| all - row <= rows);
        Self(last.map(fold).collect())
    }
}

//! Instant vectors over all steps of an evaluation, a row per series.
//!
//! ```text
//!  step        0    1    2    3    4    5
//!  row a       .    1    2    .    4    .      first = 1, values = [1, 2, ABSENT, 4]
//!  row b       7    7    7    7    7    7      first = 0, values = [7; 6]
//! ```
//!
//! A row holds the stretch of steps from its first to its last value only, so that short-lived series cost little.

use std::collections::HashMap;

use model::{Labels, STALE_NAN_BITS, is_stale_bits};
use query::{Budget, QueryError};

/// Marks a step without a value. No computation yields these bits: arithmetic makes quiet NaNs, and selectors leave
/// stale markers out.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Whether a step has no value.
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale_bits(value)
}

/// The instants of an evaluation; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    pub(crate) start_ms: i64,
    pub(crate) step_ms: i64,
    pub(crate) count: usize,
}

impl Steps {
    /// The single instant of an instant query.
    pub(crate) const fn one(time_ms: i64) -> Self {
        Self { start_ms: time_ms, step_ms: 1, count: 1 }
    }

    pub(crate) const fn time_ms(&self, step: usize) -> i64 {
        self.start_ms + step as i64 * self.step_ms
    }
}

/// One series of an instant vector.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) labels: Labels,
    /// The step of the first value.
    pub(crate) first: usize,
    pub(crate) values: Vec<f64>,
}

impl Row {
    pub(crate) const fn new(labels: Labels) -> Self {
        Self { labels, first: 0, values: Vec::new() }
    }

    /// Adds a value behind the others; steps left out become absent.
    pub(crate) fn push(&mut self, step: usize, value: f64) {
        if self.values.is_empty() {
            self.first = step;
        }
        self.values.resize(step - self.first, ABSENT);
        self.values.push(value);
    }

    pub(crate) fn get(&self, step: usize) -> Option<f64> {
        let value = *self.values.get(step.checked_sub(self.first)?)?;
        (!is_absent(value)).then_some(value)
    }

    /// One past the last step.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    /// Steps with a value, and the values.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, f64)> {
        let values = self.values.iter().enumerate().filter(|(_, value)| !is_absent(**value));
        values.map(|(place, value)| (self.first + place, *value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| is_absent(*value))
    }

    /// Changes each value; the function may answer [`ABSENT`].
    pub(crate) fn map(&mut self, mut change: impl FnMut(usize, f64) -> f64) {
        for (place, value) in self.values.iter_mut().enumerate() {
            if !is_absent(*value) {
                *value = change(self.first + place, *value);
            }
        }
    }

    /// Takes over the values of another row; fails if both have one at the same step.
    fn absorb(&mut self, other: &Self) -> Result<(), QueryError> {
        let (first, end) = (self.first.min(other.first), self.end().max(other.end()));
        let mut values = Vec::with_capacity(end - first);
        for step in first..end {
            values.push(match (self.get(step), other.get(step)) {
                (Some(_), Some(_)) => return Err(same_labels()),
                (Some(value), None) | (None, Some(value)) => value,
                (None, None) => ABSENT,
            });
        }
        (self.first, self.values) = (first, values);
        Ok(())
    }
}

/// Samples taken out of a budget, given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge<'b> {
    budget: &'b Budget,
    samples: usize,
}

impl<'b> Charge<'b> {
    pub(crate) const fn none(budget: &'b Budget) -> Self {
        Self { budget, samples: 0 }
    }

    /// Takes over samples that were charged by someone else.
    pub(crate) const fn adopt(budget: &'b Budget, samples: usize) -> Self {
        Self { budget, samples }
    }

    pub(crate) fn add(&mut self, samples: usize) -> Result<(), QueryError> {
        // The budget keeps what it refused, so it is ours to give back even then.
        self.samples += samples;
        self.budget.take(samples)
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.samples);
    }
}

/// An instant vector over all steps. Its samples are charged to the budget.
#[derive(Debug)]
pub(crate) struct Vector<'b> {
    pub(crate) rows: Vec<Row>,
    charge: Charge<'b>,
}

impl<'b> Vector<'b> {
    pub(crate) const fn empty(budget: &'b Budget) -> Self {
        Self { rows: Vec::new(), charge: Charge::none(budget) }
    }

    /// Adds a row unless it has no values.
    pub(crate) fn push(&mut self, row: Row) -> Result<(), QueryError> {
        if !row.is_empty() {
            self.charge.add(row.values.len())?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Changes each value; see [`Row::map`]. Rows left without values go.
    pub(crate) fn map(&mut self, mut change: impl FnMut(usize, f64) -> f64) -> Result<(), QueryError> {
        for row in &mut self.rows {
            self.charge.budget.check()?;
            row.map(&mut change);
        }
        self.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Removes the metric's name (with type and unit, which belong to it) from all rows, and joins those that are the
    /// same series then.
    pub(crate) fn drop_names(&mut self) -> Result<(), QueryError> {
        for row in &mut self.rows {
            row.labels = without_name(&row.labels);
        }
        self.join_same_labels()
    }

    /// Joins rows of the same labels; fails if both have a value at the same step.
    pub(crate) fn join_same_labels(&mut self) -> Result<(), QueryError> {
        if !has_same_labels(&self.rows) {
            return Ok(());
        }
        let mut places: HashMap<Labels, usize> = HashMap::with_capacity(self.rows.len());
        let mut joined: Vec<Row> = Vec::with_capacity(self.rows.len());
        for row in std::mem::take(&mut self.rows) {
            if let Some(earlier) = places.get(&row.labels).and_then(|place| joined.get_mut(*place)) {
                earlier.absorb(&row)?;
            } else {
                places.insert(row.labels.clone(), joined.len());
                joined.push(row);
            }
        }
        self.rows = joined;
        Ok(())
    }

    /// Whether there is any value, step by step.
    pub(crate) fn occupied(&self, steps: usize) -> Vec<bool> {
        let mut occupied = vec![false; steps];
        for (step, _) in self.rows.iter().flat_map(Row::present) {
            if let Some(seen) = occupied.get_mut(step) {
                *seen = true;
            }
        }
        occupied
    }
}

/// Whether two rows have the same labels.
pub(crate) fn has_same_labels(rows: &[Row]) -> bool {
    let mut seen = std::collections::HashSet::with_capacity(rows.len());
    !rows.iter().all(|row| seen.insert(&row.labels))
}

/// The error for two samples of one series at one step.
pub(crate) fn same_labels() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".to_owned())
}

/// Whether a label says what the metric is: it goes when a function changes the values' meaning.
pub(crate) fn is_metadata_label(name: &str) -> bool {
    matches!(name, model::METRIC_NAME | "__type__" | "__unit__")
}

/// The labels without the metric's name, type and unit.
pub(crate) fn without_name(labels: &Labels) -> Labels {
    if labels.iter().any(|(name, _)| is_metadata_label(name)) {
        labels.retain(|name| !is_metadata_label(name))
    } else {
        labels.clone()
    }
}

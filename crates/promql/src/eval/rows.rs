//! Instant vectors over all steps of an evaluation, a row per series.
//!
//! ```text
//!  step        0    1    2    3    4    5
//!  row a       .    1    2    .    4    .      first = 1, values = [1, 2, ABSENT, 4]
//!  row b       7    7    7    7    7    7      first = 0, values = [7; 6]
//! ```
//!
//! A row stores the steps from its first to its last value only, so that short-lived series cost little.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Labels, METRIC_NAME, STALE_NAN_BITS, is_stale_bits};
use query::{Budget, QueryError, SAMPLE_BYTES};

use crate::histogram::native::Histogram;

/// Marks a step without a value. No computation yields these bits: arithmetic makes quiet NaNs, and selectors leave
/// stale markers out.
pub(crate) const ABSENT: f64 = f64::from_bits(STALE_NAN_BITS);

/// Marks a step whose value is a histogram; another NaN that no computation yields.
const HISTOGRAM_MARKER_BITS: u64 = STALE_NAN_BITS + 1;

/// Returns whether a step has no value.
pub(crate) fn is_absent(value: f64) -> bool {
    is_stale_bits(value)
}

/// Returns whether any value is NaN, as all markers are: comparing floats costs less than comparing their bits.
fn contain_nan(values: &[f64]) -> bool {
    values.iter().fold(false, |found, value| found | value.is_nan())
}

/// Returns whether each step has a value. There is no early exit, so that the loop is vectorized.
pub(crate) fn are_all_present(values: &[f64]) -> bool {
    !contain_nan(values) || !values.iter().fold(false, |absent, value| absent | is_absent(*value))
}

/// A sample's float, without the bits of a marker.
pub(crate) fn cleaned(value: f64) -> f64 {
    if value.to_bits() == HISTOGRAM_MARKER_BITS { f64::NAN } else { value }
}

/// Returns whether samples contain the bits of a marker. There is no early exit, so that the loop is vectorized.
pub(crate) fn contain_markers(values: &[f64]) -> bool {
    // The two differ in the lowest bit.
    let is_marker = |value: &f64| value.to_bits() | 1 == HISTOGRAM_MARKER_BITS;
    contain_nan(values) && values.iter().fold(false, |found, value| found | is_marker(value))
}

/// A value of a series at one step.
#[derive(Debug, Clone)]
pub(crate) enum Sample {
    Float(f64),
    Histogram(Arc<Histogram>),
}

impl Sample {
    /// The float, if it is one.
    pub(crate) const fn float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Histogram(_) => None,
        }
    }

    /// Its kind, for messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Float(_) => "float",
            Self::Histogram(_) => "histogram",
        }
    }
}

impl From<Histogram> for Sample {
    fn from(histogram: Histogram) -> Self {
        Self::Histogram(Arc::new(histogram))
    }
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

/// Consecutive steps, in milliseconds: from the first to just before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepSpan {
    /// The first step.
    pub start_ms: i64,
    /// All steps are earlier.
    pub end_ms: i64,
}

/// One series of an instant vector.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) labels: Labels,
    /// The metric's name is to be dropped from the result, if removal is delayed.
    pub(crate) drop_name: bool,
    /// The step of the first value.
    pub(crate) first: usize,
    values: Vec<f64>,
    /// As many as values, or none if all of them are floats.
    histograms: Vec<Option<Arc<Histogram>>>,
}

impl Row {
    pub(crate) const fn new(labels: Labels) -> Self {
        Self { labels, drop_name: false, first: 0, values: Vec::new(), histograms: Vec::new() }
    }

    /// Sets whether the name is to be dropped from the result.
    pub(crate) fn with_drop_name(self, drop_name: bool) -> Self {
        Self { drop_name, ..self }
    }

    /// A row with the same labels and no values.
    pub(crate) fn emptied(&self) -> Self {
        Self { drop_name: self.drop_name, ..Self::new(self.labels.clone()) }
    }

    /// A row of floats from the first step on.
    pub(crate) const fn from_floats(labels: Labels, values: Vec<f64>) -> Self {
        Self { labels, drop_name: false, first: 0, values, histograms: Vec::new() }
    }

    /// A row of floats from some step on, among them steps without a value.
    pub(crate) fn from_steps(labels: Labels, mut first: usize, mut values: Vec<f64>) -> Self {
        let absent = values.iter().take_while(|value| is_absent(**value)).count();
        if absent > 0 {
            values.drain(..absent);
            first += absent;
        }
        values.truncate(values.iter().rposition(|value| !is_absent(*value)).map_or(0, |last| last + 1));
        Self { first, ..Self::from_floats(labels, values) }
    }

    /// Appends a float; skipped steps become absent.
    pub(crate) fn push_float(&mut self, step: usize, value: f64) {
        if self.values.is_empty() {
            self.first = step;
        }
        self.values.resize(step - self.first, ABSENT);
        self.values.push(value);
        if !self.histograms.is_empty() {
            self.histograms.resize(self.values.len(), None);
        }
    }

    /// Appends a value.
    pub(crate) fn push(&mut self, step: usize, sample: Sample) {
        match sample {
            Sample::Float(value) => self.push_float(step, value),
            Sample::Histogram(histogram) => {
                self.push_float(step, f64::from_bits(HISTOGRAM_MARKER_BITS));
                self.histograms.resize(self.values.len() - 1, None);
                self.histograms.push(Some(histogram));
            }
        }
    }

    fn sample(&self, index: usize) -> Option<Sample> {
        let value = *self.values.get(index)?;
        if value.to_bits() == HISTOGRAM_MARKER_BITS {
            return self.histograms.get(index)?.clone().map(Sample::Histogram);
        }
        (!is_absent(value)).then_some(Sample::Float(value))
    }

    pub(crate) fn get(&self, step: usize) -> Option<Sample> {
        self.sample(step.checked_sub(self.first)?)
    }

    /// The float at a step.
    pub(crate) fn float(&self, step: usize) -> Option<f64> {
        let value = *self.values.get(step.checked_sub(self.first)?)?;
        (!is_absent(value) && value.to_bits() != HISTOGRAM_MARKER_BITS).then_some(value)
    }

    /// Returns whether there is a value at a step.
    pub(crate) fn has(&self, step: usize) -> bool {
        step.checked_sub(self.first).and_then(|index| self.values.get(index)).is_some_and(|value| !is_absent(*value))
    }

    pub(crate) fn has_histograms(&self) -> bool {
        !self.histograms.is_empty()
    }

    /// One past the last step.
    pub(crate) fn end(&self) -> usize {
        self.first + self.values.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// The charge of the row, in samples.
    pub(crate) fn charge(&self) -> usize {
        let histograms = self.histograms.iter().flatten().map(|histogram| histogram.samples());
        self.values.len() + histograms.sum::<usize>()
    }

    /// Steps with a value.
    pub(crate) fn steps(&self) -> impl Iterator<Item = usize> {
        let values = self.values.iter().enumerate().filter(|(_, value)| !is_absent(**value));
        values.map(|(index, _)| self.first + index)
    }

    /// Steps with a value, and the values.
    pub(crate) fn present(&self) -> impl Iterator<Item = (usize, Sample)> {
        (0..self.values.len()).filter_map(|index| Some((self.first + index, self.sample(index)?)))
    }

    /// Steps with a float, and the floats.
    pub(crate) fn floats(&self) -> impl Iterator<Item = (usize, f64)> {
        let values = self.values.iter().enumerate();
        let floats = values.filter(|(_, value)| !is_absent(**value) && value.to_bits() != HISTOGRAM_MARKER_BITS);
        floats.map(|(index, value)| (self.first + index, *value))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.iter().all(|value| is_absent(*value))
    }

    /// The values from the first step on, those of steps without one being [`ABSENT`]; `None` if there are histograms.
    pub(crate) fn all_floats(&self) -> Option<&[f64]> {
        self.histograms.is_empty().then_some(&self.values)
    }

    /// Changes each float and drops histograms. The function may return [`ABSENT`].
    pub(crate) fn map_floats(&mut self, mut change: impl FnMut(usize, f64) -> f64) {
        for (index, value) in self.values.iter_mut().enumerate() {
            if value.to_bits() == HISTOGRAM_MARKER_BITS {
                *value = ABSENT;
            } else if !is_absent(*value) {
                *value = change(self.first + index, *value);
            }
        }
        self.histograms = Vec::new();
    }

    /// Changes each value, or removes it.
    pub(crate) fn map(&mut self, mut change: impl FnMut(usize, Sample) -> Option<Sample>) {
        let mut changed = self.emptied();
        for (step, sample) in self.present() {
            if let Some(sample) = change(step, sample) {
                changed.push(step, sample);
            }
        }
        *self = changed;
    }

    /// Keeps the values at which a condition holds.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        for (index, value) in self.values.iter_mut().enumerate() {
            if !is_absent(*value) && !keep(self.first + index) {
                *value = ABSENT;
            }
        }
    }

    /// Appends the values of a row whose steps are all later.
    pub(crate) fn extend(&mut self, later: Self) {
        if self.has_histograms() || later.has_histograms() {
            later.present().for_each(|(step, sample)| self.push(step, sample));
            return;
        }
        self.values.resize(later.first - self.first, ABSENT);
        self.values.extend(later.values);
    }

    /// The value of the first step, repeated.
    pub(crate) fn repeated(&self, steps: usize) -> Self {
        let mut row = self.emptied();
        match self.get(0) {
            Some(Sample::Float(value)) => row.values = vec![value; steps],
            Some(Sample::Histogram(histogram)) => {
                row.values = vec![f64::from_bits(HISTOGRAM_MARKER_BITS); steps];
                row.histograms = vec![Some(histogram); steps];
            }
            None => {}
        }
        row
    }

    /// Adds the values of another row; fails if both have a value at the same step.
    fn absorb(&mut self, other: &Self) -> Result<(), QueryError> {
        let (first, end) = (self.first.min(other.first), self.end().max(other.end()));
        let mut joined = self.emptied();
        for step in first..end {
            match (self.get(step), other.get(step)) {
                (Some(_), Some(_)) => return Err(same_labels()),
                (Some(sample), None) | (None, Some(sample)) => joined.push(step, sample),
                (None, None) => {}
            }
        }
        *self = joined;
        Ok(())
    }
}

/// Samples charged to a budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Charge<'b> {
    budget: &'b Budget,
    samples: usize,
}

impl<'b> Charge<'b> {
    pub(crate) const fn none(budget: &'b Budget) -> Self {
        Self { budget, samples: 0 }
    }

    /// Takes over samples that are charged already.
    pub(crate) const fn adopt(budget: &'b Budget, samples: usize) -> Self {
        Self { budget, samples }
    }

    pub(crate) const fn budget(&self) -> &'b Budget {
        self.budget
    }

    pub(crate) fn add(&mut self, samples: usize) -> Result<(), QueryError> {
        self.budget.take(samples)?;
        self.samples += samples;
        Ok(())
    }

    /// Releases a part of it.
    pub(crate) fn release(&mut self, samples: usize) {
        let samples = samples.min(self.samples);
        self.samples -= samples;
        self.budget.give_back(samples);
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

    /// Adds a row unless it has no values. Its labels and itself count, too: there may be as many rows as values.
    pub(crate) fn push(&mut self, row: Row) -> Result<(), QueryError> {
        if !row.is_empty() {
            let around_bytes = size_of::<Row>() + row.labels.size_bytes();
            self.charge.add(row.charge() + around_bytes.div_ceil(SAMPLE_BYTES))?;
            self.rows.push(row);
        }
        Ok(())
    }

    /// Changes each float; see [`Row::map_floats`]. Rows without values are removed.
    pub(crate) fn map_floats(&mut self, mut change: impl FnMut(usize, f64) -> f64) -> Result<(), QueryError> {
        for row in &mut self.rows {
            self.charge.budget.check()?;
            row.map_floats(&mut change);
        }
        self.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Changes each value, or removes it. Rows without values are removed.
    pub(crate) fn map(&mut self, mut change: impl FnMut(usize, Sample) -> Option<Sample>) -> Result<(), QueryError> {
        for row in &mut self.rows {
            self.charge.budget.check()?;
            row.map(&mut change);
        }
        self.rows.retain(|row| !row.is_empty());
        Ok(())
    }

    /// Removes the metric's name (with type and unit, which belong to it) from all rows, and joins those that are the
    /// same series then; if removal is delayed, only marks them.
    pub(crate) fn drop_names(&mut self, delayed: bool) -> Result<(), QueryError> {
        for row in &mut self.rows {
            row.drop_name = true;
            if !delayed {
                row.labels = without_name(&row.labels);
            }
        }
        if delayed { Ok(()) } else { self.join_same_labels() }
    }

    /// Removes the names whose removal was delayed.
    pub(crate) fn drop_delayed_names(&mut self) -> Result<(), QueryError> {
        for row in self.rows.iter_mut().filter(|row| row.drop_name) {
            row.labels = without_name(&row.labels);
        }
        self.join_same_labels()
    }

    /// Joins rows of the same labels; fails if both have a value at the same step.
    pub(crate) fn join_same_labels(&mut self) -> Result<(), QueryError> {
        if !has_same_labels(&self.rows) {
            return Ok(());
        }
        let mut index_by_labels: HashMap<Labels, usize> = HashMap::with_capacity(self.rows.len());
        let mut joined: Vec<Row> = Vec::with_capacity(self.rows.len());
        for row in std::mem::take(&mut self.rows) {
            if let Some(earlier) = index_by_labels.get(&row.labels).and_then(|index| joined.get_mut(*index)) {
                earlier.absorb(&row)?;
            } else {
                index_by_labels.insert(row.labels.clone(), joined.len());
                joined.push(row);
            }
        }
        self.rows = joined;
        Ok(())
    }

    /// For each step, whether there is any value.
    pub(crate) fn occupied(&self, steps: usize) -> Vec<bool> {
        let mut occupied = vec![false; steps];
        for step in self.rows.iter().flat_map(Row::steps) {
            if let Some(is_occupied) = occupied.get_mut(step) {
                *is_occupied = true;
            }
        }
        occupied
    }
}

/// Returns whether two rows have the same labels.
pub(crate) fn has_same_labels(rows: &[Row]) -> bool {
    let mut is_occupied = std::collections::HashSet::with_capacity(rows.len());
    !rows.iter().all(|row| is_occupied.insert(&row.labels))
}

/// The error for two samples of one series at one step.
pub(crate) fn same_labels() -> QueryError {
    QueryError::Execution("vector cannot contain metrics with the same labelset".to_owned())
}

/// Returns whether a label describes the metric: functions that change the meaning of values drop it.
pub(crate) fn is_metadata_label(name: &str) -> bool {
    matches!(name, METRIC_NAME | "__type__" | "__unit__")
}

/// The labels without the metric's name, type and unit.
pub(crate) fn without_name(labels: &Labels) -> Labels {
    if labels.iter().any(|(name, _)| is_metadata_label(name)) {
        labels.retain(|name| !is_metadata_label(name))
    } else {
        labels.clone()
    }
}

pub(crate) fn metric_name(labels: &Labels) -> &str {
    labels.get(METRIC_NAME).unwrap_or_default()
}

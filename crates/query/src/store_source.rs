//! The store as a source of series.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use index::compile;
use model::{Column, Labels, NativeHistogram, TimeRange};
use store::{SelectedGroup, Store, StoreError};

use crate::{Budget, QueryError, Selection, Series, Source};

const NS_PER_MS: i64 = 1_000_000;

/// One database of a store. Numbers and booleans (as 0 and 1) are series; texts are not.
pub struct StoreSource<'a> {
    store: &'a Store,
    database: &'a str,
}

impl<'a> StoreSource<'a> {
    /// A database, by name; one that does not exist has no series.
    pub const fn new(store: &'a Store, database: &'a str) -> Self {
        Self { store, database }
    }

    /// The groups that satisfy the matchers and may have samples in the range.
    pub fn groups(
        &self,
        matchers: &[model::Matcher],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<SelectedGroup>, QueryError> {
        let compiled = compile(matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let mut groups = Vec::new();
        for group in self.store.select(self.database, &compiled).map_err(|error| unreadable(&error))? {
            budget.check()?;
            if self.store.has_rows(&group, range).map_err(|error| unreadable(&error))? {
                groups.push(group);
            }
        }
        Ok(groups)
    }
}

impl Source for StoreSource<'_> {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        let compiled = compile(selection.matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let range = nanosecond_range(selection.start_ms, selection.end_ms);
        let mut found: Vec<Series> = Vec::new();
        let mut places: HashMap<Labels, usize> = HashMap::new();
        for group in self.store.select(self.database, &compiled).map_err(|error| unreadable(&error))? {
            budget.check()?;
            let columns = self.store.read(&group, &range).map_err(|error| unreadable(&error))?;
            for (column, selected) in columns.iter().zip(group.columns.iter()) {
                let labels = selected.series_labels(&group.labels);
                let Some(series) = to_series(&labels, column) else { continue };
                budget.take(series.samples())?;
                match places.entry(labels) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(found.len());
                        found.push(series);
                    }
                    Entry::Occupied(known) => {
                        if let Some(before) = found.get_mut(*known.get()) {
                            *before = join(before, &series);
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

fn unreadable(error: &StoreError) -> QueryError {
    QueryError::Storage(error.to_string())
}

/// All nanoseconds of the milliseconds from the first to the last.
fn nanosecond_range(start_ms: i64, end_ms: i64) -> TimeRange {
    let last = end_ms.saturating_mul(NS_PER_MS).saturating_add(NS_PER_MS - 1);
    TimeRange::new(start_ms.saturating_mul(NS_PER_MS), last)
}

/// Samples by the millisecond: the last of each. `None` for texts and for no samples.
fn to_series(labels: &Labels, column: &Column) -> Option<Series> {
    let mut series =
        Series { labels: labels.clone(), timestamps_ms: Vec::new(), values: Vec::new(), histograms: Vec::new() };
    if let Column::Histogram(timestamps_ns, histograms) = column {
        for (timestamp_ns, histogram) in timestamps_ns.iter().zip(histograms) {
            let timestamp_ms = timestamp_ns.div_euclid(NS_PER_MS);
            if series.histograms.last().is_some_and(|(last_ms, _)| *last_ms == timestamp_ms) {
                series.histograms.pop();
            }
            series.histograms.push((timestamp_ms, histogram.clone()));
        }
    } else {
        (series.timestamps_ms, series.values) = to_samples(column)?;
    }
    (!series.values.is_empty() || !series.histograms.is_empty()).then_some(series)
}

/// Samples by the millisecond: the last of each. `None` for texts and for no samples.
fn to_samples(column: &Column) -> Option<(Vec<i64>, Vec<f64>)> {
    let timestamps_ns = column.timestamps_ns();
    let values: Vec<f64> = match column {
        Column::F64(_, values) => values.clone(),
        Column::I64(_, values) => values.iter().map(|value| *value as f64).collect(),
        Column::U64(_, values) => values.iter().map(|value| *value as f64).collect(),
        Column::Bool(_, values) => values.iter().map(|value| f64::from(u8::from(*value))).collect(),
        Column::String(..) | Column::Histogram(..) => return None,
    };
    let mut samples: (Vec<i64>, Vec<f64>) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    for (timestamp_ns, value) in timestamps_ns.iter().zip(values) {
        let timestamp_ms = timestamp_ns.div_euclid(NS_PER_MS);
        if samples.0.last() == Some(&timestamp_ms) {
            samples.1.pop();
        } else {
            samples.0.push(timestamp_ms);
        }
        samples.1.push(value);
    }
    (!samples.0.is_empty()).then_some(samples)
}

/// Two columns that make up the same labels, as one series. Where both have a sample, the later registered one counts.
fn join(before: &Series, after: &Series) -> Series {
    let mut joined: Vec<(i64, u8, f64)> = Vec::with_capacity(before.values.len() + after.values.len());
    joined.extend(before.timestamps_ms.iter().zip(&before.values).map(|(timestamp, value)| (*timestamp, 1, *value)));
    joined.extend(after.timestamps_ms.iter().zip(&after.values).map(|(timestamp, value)| (*timestamp, 0, *value)));
    joined.sort_by_key(|(timestamp, age, _)| (*timestamp, *age));
    joined.dedup_by_key(|(timestamp, ..)| *timestamp);
    let (timestamps_ms, values) = joined.into_iter().map(|(timestamp, _, value)| (timestamp, value)).unzip();
    let mut histograms: Vec<(i64, NativeHistogram)> =
        after.histograms.iter().chain(&before.histograms).cloned().collect();
    histograms.sort_by_key(|(timestamp, _)| *timestamp);
    histograms.dedup_by_key(|(timestamp, _)| *timestamp);
    Series { labels: after.labels.clone(), timestamps_ms, values, histograms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_of_a_millisecond_counts() {
        let column = Column::I64(vec![-1, 0, 999_999, 1_000_000], vec![1, 2, 3, 4]);
        assert_eq!(to_samples(&column), Some((vec![-1, 0, 1], vec![1.0, 3.0, 4.0])));
        assert_eq!(to_samples(&Column::String(vec![1], vec!["a".into()])), None);
    }

    #[test]
    fn columns_of_one_name_become_one_series() {
        let series = |timestamps_ms: &[i64], values: &[f64]| Series {
            labels: Labels::empty(),
            timestamps_ms: timestamps_ms.to_vec(),
            values: values.to_vec(),
            histograms: Vec::new(),
        };
        let joined = join(&series(&[1, 2, 3], &[1.0, 1.0, 1.0]), &series(&[2, 4], &[2.0, 2.0]));
        assert_eq!(joined, series(&[1, 2, 3, 4], &[1.0, 2.0, 1.0, 2.0]));
    }
}

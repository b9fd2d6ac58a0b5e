//! Results of some steps of a range query, which can be cut and joined.

use std::collections::BTreeMap;
use std::iter::Peekable;

use model::Labels;

use crate::eval::annotations::{StepInfo, shown_annotations};
use crate::result::{EvaluationResult, ResultValue, SeriesPoints};

/// The result of an expression that has a [`step_read_interval`](crate::Expression::step_read_interval), for consecutive steps: floats alone,
/// and annotations whose steps are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialRange {
    /// In order of labels.
    pub series: Vec<PartialSeries>,
    /// Infos that belong to some of the steps, by their text.
    pub infos: BTreeMap<String, StepInfo>,
}

/// A series' labels, and its values with their times in milliseconds.
pub type PartialSeries = (Labels, Vec<(i64, f64)>);

/// The steps of a partial range that a result takes: from the first to the last, both included.
#[derive(Debug, Clone, Copy)]
pub struct PartialRangeSlice<'a> {
    /// Where they come from.
    pub range: &'a PartialRange,
    /// The first step, in milliseconds.
    pub first_ms: i64,
    /// The last step, in milliseconds.
    pub last_ms: i64,
}

impl PartialRangeSlice<'_> {
    fn values<'v>(&self, values: &'v [(i64, f64)]) -> &'v [(i64, f64)] {
        let first = values.partition_point(|(time_ms, _)| *time_ms < self.first_ms);
        let end = values.partition_point(|(time_ms, _)| *time_ms <= self.last_ms);
        values.get(first..end).unwrap_or_default()
    }
}

impl PartialRange {
    /// The result for the steps of all slices, which are in order of time and do not overlap.
    pub fn result(slices: &[PartialRangeSlice<'_>]) -> EvaluationResult {
        let joined = Self::join(slices);
        let matrix =
            joined.series.into_iter().map(|(labels, floats)| (labels, SeriesPoints { floats, histograms: Vec::new() }));
        let infos = joined.infos.into_values().map(|info| info.text_with_position);
        EvaluationResult {
            value: ResultValue::Matrix(matrix.collect()),
            warnings: Vec::new(),
            infos: shown_annotations(infos, "info"),
        }
    }

    /// One partial range of slices, which are in order of time and do not overlap.
    pub fn join<'s>(slices: &'s [PartialRangeSlice<'s>]) -> Self {
        let mut joined = Self::default();
        for slice in slices {
            for (text, info) in &slice.range.infos {
                joined.add_info(text, info, slice.first_ms, slice.last_ms);
            }
        }
        let cursor =
            |slice: &'s PartialRangeSlice<'s>| SeriesCursor { rest: slice.range.series.iter().peekable(), slice };
        let mut cursors: Vec<SeriesCursor<'s>> = slices.iter().map(cursor).collect();
        while let Some(labels) = cursors.iter_mut().filter_map(SeriesCursor::labels).min() {
            let runs: Vec<&[(i64, f64)]> = cursors.iter_mut().map(|cursor| cursor.take(labels)).collect();
            let values = runs.concat();
            if !values.is_empty() {
                joined.series.push((labels.clone(), values));
            }
        }
        joined
    }

    /// Adds the values and infos of later steps.
    pub fn append(&mut self, later: &Self) {
        for (text, info) in &later.infos {
            self.add_info(text, info, i64::MIN, i64::MAX);
        }
        let count = self.series.len();
        for (labels, values) in &later.series {
            let index = self.series.get(..count).unwrap_or_default().binary_search_by(|(other, _)| other.cmp(labels));
            match index.ok().and_then(|index| self.series.get_mut(index)) {
                Some((_, before)) => before.extend_from_slice(values),
                None => self.series.push((labels.clone(), values.clone())),
            }
        }
        if self.series.len() > count {
            self.series.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    /// Its approximate size in memory.
    pub fn size_bytes(&self) -> usize {
        let series = self.series.iter().map(|(labels, values)| {
            size_of::<PartialSeries>() + labels.packed_bytes() + size_of_val(values.as_slice())
        });
        let infos = self.infos.iter().map(|(text, info)| {
            2 * text.len() + info.text_with_position.len() + size_of::<StepInfo>() + size_of_val(info.steps.as_slice())
        });
        series.sum::<usize>() + infos.sum::<usize>()
    }

    fn add_info(&mut self, text: &str, info: &StepInfo, first_ms: i64, last_ms: i64) {
        let clipped = info.steps.iter().map(|(first, last)| ((*first).max(first_ms), (*last).min(last_ms)));
        let clipped: Vec<(i64, i64)> = clipped.filter(|(first, last)| first <= last).collect();
        if clipped.is_empty() {
            return;
        }
        let known = self.infos.entry(text.to_owned());
        let known = known
            .or_insert_with(|| StepInfo { text_with_position: info.text_with_position.clone(), steps: Vec::new() });
        known.steps.extend(clipped);
    }
}

/// The series of a slice that are still to be joined.
struct SeriesCursor<'a> {
    rest: Peekable<std::slice::Iter<'a, PartialSeries>>,
    slice: &'a PartialRangeSlice<'a>,
}

impl<'a> SeriesCursor<'a> {
    fn labels(&mut self) -> Option<&'a Labels> {
        self.rest.peek().map(|(labels, _)| labels)
    }

    /// The slice's values of a series, if it is the next one.
    fn take(&mut self, labels: &Labels) -> &'a [(i64, f64)] {
        let next = self.rest.next_if(|(next, _)| next == labels);
        next.map_or(&[], |(_, values)| self.slice.values(values))
    }
}

//! Answers of range queries that can be cut by steps and put together again: for whoever keeps them.

use std::collections::BTreeMap;
use std::iter::Peekable;

use model::Labels;
use query::QueryError;

use crate::Expression;
use crate::answer::{self, Answer, Evaluation, Points, Value};
use crate::notes::{StepRanges, shown_notes};

/// The answer of an expression whose steps stand for themselves ([`Expression::reads_stepwise`]), for a stretch of steps: floats alone, and
/// notes of which the steps are known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stretch {
    /// In order of labels.
    pub series: Vec<StretchSeries>,
    /// Infos that go with some of the steps, by their text.
    pub infos: BTreeMap<String, StepInfo>,
}

/// A series' labels, and its values with their times in milliseconds.
pub type StretchSeries = (Labels, Vec<(i64, f64)>);

/// An info, and when it holds.
#[derive(Debug, Clone, PartialEq)]
pub struct StepInfo {
    /// As answers show it.
    pub shown: String,
    /// From the first to the last step of each run of steps with which it goes, in milliseconds.
    pub steps: Vec<(i64, i64)>,
}

/// What became of a stretch.
#[derive(Debug, Clone, PartialEq)]
pub enum Evaluated {
    /// It can be kept.
    Stretch(Stretch),
    /// It cannot: there are histograms, or notes that go with the answer as a whole.
    Whole(Answer),
}

/// As [`crate::evaluate_range`], in a form to be kept if the answer has one. Only for expressions whose steps stand for themselves.
pub fn evaluate_stretch(
    expression: &Expression,
    (start_ms, end_ms, step_ms): (i64, i64, i64),
    evaluation: &Evaluation<'_>,
) -> Result<Evaluated, QueryError> {
    let (matrix, notes) = answer::matrix(expression, (start_ms, end_ms, step_ms), evaluation)?;
    let has_histograms = matrix.iter().any(|(_, points)| !points.histograms.is_empty());
    if has_histograms || !notes.are_by_step() {
        return Ok(Evaluated::Whole(answer::answer(Value::Matrix(matrix), notes, expression.text())));
    }
    let infos = notes.into_step_infos(expression.text());
    let series = matrix.into_iter().map(|(labels, points)| (labels, points.floats)).collect();
    Ok(Evaluated::Stretch(Stretch { series, infos }))
}

impl Stretch {
    /// The answer for the steps from the first to the last of each part; parts are in order of time and do not overlap.
    pub fn answer(parts: &[(&Self, i64, i64)]) -> Answer {
        let joined = Self::join(parts);
        let matrix =
            joined.series.into_iter().map(|(labels, floats)| (labels, Points { floats, histograms: Vec::new() }));
        let infos = joined.infos.into_values().map(|info| info.shown);
        Answer { value: Value::Matrix(matrix.collect()), warnings: Vec::new(), infos: shown_notes(infos, "info") }
    }

    /// The same, to be kept.
    pub fn join(parts: &[(&Self, i64, i64)]) -> Self {
        let mut joined = Self::default();
        for (stretch, first_ms, last_ms) in parts {
            for (text, info) in &stretch.infos {
                joined.add_info(text, info, (*first_ms, *last_ms));
            }
        }
        let mut cursors: Vec<Cursor<'_>> = Vec::with_capacity(parts.len());
        for (stretch, first_ms, last_ms) in parts {
            cursors.push(Cursor { rest: stretch.series.iter().peekable(), times: (*first_ms, *last_ms) });
        }
        while let Some(labels) = cursors.iter_mut().filter_map(Cursor::labels).min() {
            let pieces: Vec<&[(i64, f64)]> = cursors.iter_mut().map(|cursor| cursor.take(labels)).collect();
            let values = pieces.concat();
            if !values.is_empty() {
                joined.series.push((labels.clone(), values));
            }
        }
        joined
    }

    /// Adds what there is for later steps.
    pub fn append(&mut self, later: &Self) {
        for (text, info) in &later.infos {
            self.add_info(text, info, (i64::MIN, i64::MAX));
        }
        let known = self.series.len();
        for (labels, values) in &later.series {
            let place = self.series.get(..known).unwrap_or_default().binary_search_by(|(other, _)| other.cmp(labels));
            match place.ok().and_then(|place| self.series.get_mut(place)) {
                Some((_, before)) => before.extend_from_slice(values),
                None => self.series.push((labels.clone(), values.clone())),
            }
        }
        if self.series.len() > known {
            self.series.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
    }

    /// About as many bytes as it takes.
    pub fn size_bytes(&self) -> usize {
        let series = self.series.iter().map(|(labels, values)| {
            size_of::<StretchSeries>() + labels.packed_bytes() + size_of_val(values.as_slice())
        });
        let infos = self.infos.iter().map(|(text, info)| {
            2 * text.len() + info.shown.len() + size_of::<StepInfo>() + size_of_val(info.steps.as_slice())
        });
        series.sum::<usize>() + infos.sum::<usize>()
    }

    fn add_info(&mut self, text: &str, info: &StepInfo, (first_ms, last_ms): (i64, i64)) {
        let within = info.steps.iter().map(|(first, last)| ((*first).max(first_ms), (*last).min(last_ms)));
        let within: Vec<(i64, i64)> = within.filter(|(first, last)| first <= last).collect();
        if within.is_empty() {
            return;
        }
        let known = self.infos.entry(text.to_owned());
        let known = known.or_insert_with(|| StepInfo { shown: info.shown.clone(), steps: Vec::new() });
        known.steps.extend(within);
    }
}

/// The series of a part that are not taken yet.
struct Cursor<'a> {
    rest: Peekable<std::slice::Iter<'a, StretchSeries>>,
    times: (i64, i64),
}

impl<'a> Cursor<'a> {
    fn labels(&mut self) -> Option<&'a Labels> {
        self.rest.peek().map(|(labels, _)| labels)
    }

    /// The values of a series in the part's times, if it is the next one.
    fn take(&mut self, labels: &Labels) -> &'a [(i64, f64)] {
        let Some((_, values)) = self.rest.next_if(|(next, _)| next == labels) else { return &[] };
        let first = values.partition_point(|(time_ms, _)| *time_ms < self.times.0);
        let end = values.partition_point(|(time_ms, _)| *time_ms <= self.times.1);
        values.get(first..end).unwrap_or_default()
    }
}

impl From<(String, StepRanges)> for StepInfo {
    fn from((shown, ranges): (String, StepRanges)) -> Self {
        Self { shown, steps: ranges.into_runs() }
    }
}

//! Selectors and subqueries: each is read once for all steps, then a window slides over its sorted samples.

use model::{METRIC_NAME, Matcher, is_stale_bits};
use query::{QueryError, Selection, Series};

use crate::ast::{At, Expr, Selector, Shift, Subquery};
use crate::eval::Evaluator;
use crate::rows::{Charge, Row, Steps, Vector, has_same_labels, is_absent, same_labels, without_name};
use crate::window::{Marks, Window, WindowFunction};

/// Series of a range vector, without stale markers, with the bounds by which windows move over them.
pub(crate) struct RangeVector<'b> {
    pub(crate) series: Vec<Series>,
    ends: WindowEnds,
    range_ms: i64,
    charge: Charge<'b>,
}

/// Where windows end, step by step.
#[derive(Debug, Clone, Copy)]
struct WindowEnds {
    steps: Steps,
    offset_ms: i64,
    /// By `@`, the same for all steps.
    pinned_ms: Option<i64>,
}

impl WindowEnds {
    fn at(&self, step: usize) -> i64 {
        self.pinned_ms.unwrap_or_else(|| self.steps.time_ms(step)) - self.offset_ms
    }

    fn first_ms(&self) -> i64 {
        self.at(0)
    }

    fn last_ms(&self) -> i64 {
        self.at(self.steps.count.saturating_sub(1))
    }
}

/// Which side of the newest sample a selector answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    Values,
    /// Seconds, for `timestamp()`.
    Timestamps,
}

impl<'q> Evaluator<'q> {
    fn window_ends(&self, shift: &Shift, steps: Steps) -> WindowEnds {
        let pinned_ms = shift.at.map(|at| match at {
            At::Time(time_ms) => time_ms,
            At::Start => self.query_start_ms,
            At::End => self.query_end_ms,
        });
        WindowEnds { steps, offset_ms: shift.offset_ms, pinned_ms }
    }

    /// The series with samples later than the first and not later than the second time, in order of their labels.
    fn select(&self, matchers: &[Matcher], after_ms: i64, to_ms: i64) -> Result<(Vec<Series>, Charge<'q>), QueryError> {
        let selection = Selection { matchers, start_ms: after_ms + 1, end_ms: to_ms };
        let mut series = self.source.select(&selection, self.budget)?;
        let charge = Charge::adopt(self.budget, series.iter().map(|series| series.values.len()).sum());
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok((series, charge))
    }

    /// The newest sample of each series within the lookback, step by step.
    pub(crate) fn instant_vector(
        &self,
        selector: &Selector,
        steps: Steps,
        answers: Answers,
    ) -> Result<Vector<'q>, QueryError> {
        let ends = self.window_ends(&selector.shift, steps);
        let lookback_ms = self.settings.lookback_ms;
        let (series, _charge) = self.select(&selector.matchers, ends.first_ms() - lookback_ms, ends.last_ms())?;
        let mut vector = Vector::empty(self.budget);
        for series in &series {
            self.budget.check()?;
            vector.push(newest_samples(series, &ends, lookback_ms, answers))?;
        }
        Ok(vector)
    }

    /// A range selector or a subquery.
    pub(crate) fn range_vector(&self, expr: &Expr, steps: Steps) -> Result<RangeVector<'q>, QueryError> {
        match expr {
            Expr::Range(selector, range_ms) => {
                let ends = self.window_ends(&selector.shift, steps);
                let (mut series, charge) =
                    self.select(&selector.matchers, ends.first_ms() - range_ms, ends.last_ms())?;
                series.iter_mut().for_each(drop_stale);
                Ok(RangeVector { series, ends, range_ms: *range_ms, charge })
            }
            Expr::Subquery(subquery) => self.subquery(subquery, steps),
            _ => Err(QueryError::Execution("expected a range vector".to_owned())),
        }
    }

    /// Evaluates the inner expression at multiples of the subquery's step, once for all windows.
    fn subquery(&self, subquery: &Subquery, steps: Steps) -> Result<RangeVector<'q>, QueryError> {
        let ends = self.window_ends(&subquery.shift, steps);
        let step_ms = subquery.step_ms.unwrap_or(self.settings.subquery_step_ms).max(1);
        let after_ms = ends.first_ms() - subquery.range_ms;
        let start_ms = (after_ms.div_euclid(step_ms) + 1) * step_ms;
        let mut range =
            RangeVector { series: Vec::new(), ends, range_ms: subquery.range_ms, charge: Charge::none(self.budget) };
        if start_ms > ends.last_ms() {
            return Ok(range);
        }
        let count = self.step_count(start_ms, ends.last_ms(), step_ms)?;
        let inner_steps = Steps { start_ms, step_ms, count };
        let inner = self.vector(&subquery.inner, inner_steps)?;
        for row in &inner.rows {
            range.charge.add(row.values.len())?;
            let (steps, values): (Vec<usize>, Vec<f64>) = row.present().unzip();
            let timestamps_ms = steps.into_iter().map(|step| inner_steps.time_ms(step)).collect();
            range.series.push(Series { labels: row.labels.clone(), timestamps_ms, values });
        }
        Ok(range)
    }

    /// Applies a function to every window of every series.
    pub(crate) fn over_windows(
        &self,
        function: WindowFunction,
        range: &RangeVector<'q>,
        scalars: &[Vec<f64>],
    ) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        let mut scratch = Vec::new();
        for series in &range.series {
            self.budget.check()?;
            let row = over_series(function, range, series, scalars, &mut scratch)?;
            if function.wants_counter() && !row.is_empty() {
                self.notes.check_counter_name(series.labels.get(METRIC_NAME).unwrap_or_default());
            }
            vector.push(row)?;
        }
        if has_same_labels(&vector.rows) {
            return Err(same_labels());
        }
        Ok(vector)
    }
}

impl RangeVector<'_> {
    /// Samples in the window of the first step, for instant queries that ask for a range.
    pub(crate) fn into_first_window(self) -> Vec<Series> {
        let (end_ms, range_ms) = (self.ends.first_ms(), self.range_ms);
        let mut series = self.series;
        for series in &mut series {
            let first = series.timestamps_ms.partition_point(|time_ms| *time_ms <= end_ms - range_ms);
            let end = series.timestamps_ms.partition_point(|time_ms| *time_ms <= end_ms).max(first);
            series.timestamps_ms = series.timestamps_ms.drain(first..end).collect();
            series.values = series.values.drain(first..end).collect();
        }
        series.retain(|series| !series.values.is_empty());
        series
    }

    /// Whether any series has a sample in the window, step by step.
    pub(crate) fn occupied(&self, steps: Steps) -> Vec<bool> {
        let mut occupied = vec![false; steps.count];
        for series in &self.series {
            for (step, _, _) in Windows::new(&series.timestamps_ms, &self.ends, self.range_ms) {
                if let Some(seen) = occupied.get_mut(step) {
                    *seen = true;
                }
            }
        }
        occupied
    }
}

/// Steps whose window holds samples, with the places of its first sample and of its end: two cursors that only move
/// forward.
struct Windows<'a> {
    timestamps_ms: &'a [i64],
    ends: &'a WindowEnds,
    range_ms: i64,
    step: usize,
    first: usize,
    end: usize,
}

impl<'a> Windows<'a> {
    const fn new(timestamps_ms: &'a [i64], ends: &'a WindowEnds, range_ms: i64) -> Self {
        Self { timestamps_ms, ends, range_ms, step: 0, first: 0, end: 0 }
    }
}

impl Iterator for Windows<'_> {
    type Item = (usize, usize, usize);

    fn next(&mut self) -> Option<Self::Item> {
        while self.step < self.ends.steps.count {
            let step = self.step;
            self.step += 1;
            let end_ms = self.ends.at(step);
            let start_ms = end_ms - self.range_ms;
            while self.timestamps_ms.get(self.first).is_some_and(|time_ms| *time_ms <= start_ms) {
                self.first += 1;
            }
            while self.timestamps_ms.get(self.end).is_some_and(|time_ms| *time_ms <= end_ms) {
                self.end += 1;
            }
            if self.first < self.end {
                return Some((step, self.first, self.end));
            }
            if self.first == self.timestamps_ms.len() {
                return None;
            }
        }
        None
    }
}

fn over_series(
    function: WindowFunction,
    range: &RangeVector<'_>,
    series: &Series,
    scalars: &[Vec<f64>],
    scratch: &mut Vec<f64>,
) -> Result<Row, QueryError> {
    let marks = Marks::find(function, &series.values);
    let labels = if function.keeps_name() { series.labels.clone() } else { without_name(&series.labels) };
    let mut row = Row::new(labels);
    let scalar =
        |place: usize, step: usize| scalars.get(place).and_then(|values| values.get(step)).copied().unwrap_or(f64::NAN);
    for (step, first, end) in Windows::new(&series.timestamps_ms, &range.ends, range.range_ms) {
        let end_ms = range.ends.at(step);
        let window = Window {
            timestamps_ms: series.timestamps_ms.get(first..end).unwrap_or_default(),
            values: series.values.get(first..end).unwrap_or_default(),
            marked: marks.within(first, end, &series.values),
            start_ms: end_ms - range.range_ms,
            end_ms,
            time_ms: range.ends.steps.time_ms(step),
            scalars: [scalar(0, step), scalar(1, step)],
        };
        if let Some(value) = function.apply(&window, scratch)? {
            row.push(step, value);
        }
    }
    Ok(row)
}

fn newest_samples(series: &Series, ends: &WindowEnds, lookback_ms: i64, answers: Answers) -> Row {
    let mut row = Row::new(series.labels.clone());
    for (step, _, end) in Windows::new(&series.timestamps_ms, ends, lookback_ms) {
        let Some((time_ms, value)) = series.timestamps_ms.get(end - 1).zip(series.values.get(end - 1)) else {
            continue;
        };
        if is_stale_bits(*value) {
            continue;
        }
        row.push(step, if answers == Answers::Values { *value } else { *time_ms as f64 / 1000.0 });
    }
    row
}

fn drop_stale(series: &mut Series) {
    if !series.values.iter().any(|value| is_absent(*value)) {
        return;
    }
    let samples = series.timestamps_ms.iter().copied().zip(series.values.iter().copied());
    (series.timestamps_ms, series.values) = samples.filter(|(_, value)| !is_stale_bits(*value)).unzip();
}

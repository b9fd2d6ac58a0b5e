//! Selectors and subqueries: each is read once for all steps, then a window slides over its sorted samples.

use std::sync::Arc;

use model::{Labels, Matcher, is_stale_bits};
use query::{QueryError, Selection, Series, Trace, WindowSelection, WindowValue};

use crate::eval::Evaluator;
use crate::histogram::{CounterReset, Histogram};
use crate::interpolate;
use crate::notes::Notes;
use crate::rows::{Charge, Row, Sample, Steps, Vector, cleaned, hold_marks};
use crate::stream::{Collected, RowSink, SCAN, Streaming};
use crate::syntax::ast::{Edges, Expr, Grouping, Node, Range, Selector, Shift, Subquery};
use crate::syntax::span::Span;

/// What finding the newest samples is called.
pub(crate) const NEWEST: &str = "newest";

/// A series: floats and histograms, each sorted by time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Series with the same times may share them.
    pub(crate) timestamps_ms: Arc<Vec<i64>>,
    pub(crate) values: Vec<f64>,
    pub(crate) histogram_timestamps_ms: Vec<i64>,
    pub(crate) histograms: Vec<Arc<Histogram>>,
}

/// A series of a range vector.
#[derive(Debug, Clone)]
pub(crate) struct RangeSeries {
    pub(crate) labels: Labels,
    /// The name is to go in the end, where that is put off.
    pub(crate) drop_name: bool,
    pub(crate) samples: Samples,
}

/// Series of a range vector, without stale markers.
pub(crate) struct RangeVector<'b> {
    pub(crate) series: Vec<RangeSeries>,
    pub(crate) bounds: WindowBounds,
    charge: Charge<'b>,
}

/// How windows move over samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBounds {
    pub(crate) ends: WindowEnds,
    pub(crate) range_ms: i64,
    pub(crate) edges: Edges,
    /// How far beyond its start and its end a window looks.
    pub(crate) reach_ms: [i64; 2],
}

impl WindowBounds {
    /// Windows in which the newest sample is looked for.
    pub(crate) const fn lookback(ends: WindowEnds, lookback_ms: i64) -> Self {
        Self { ends, range_ms: lookback_ms, edges: Edges::Plain, reach_ms: [0, 0] }
    }

    /// Where a selector looks for the newest sample.
    ///
    /// `timestamp(x @ t offset d)` looks back from `t`, at samples that the same selector for itself could see: so
    /// does Prometheus, which reads them for the latter and then takes `t` alone for the time.
    pub(crate) fn newest(selector: &Selector, answers: Answers, steps: Steps, lookback_ms: i64) -> Self {
        let ends = WindowEnds::new(&selector.shift, steps);
        let WindowEnds { offset_ms, pinned_ms: Some(pinned_ms), .. } = ends else {
            return Self::lookback(ends, lookback_ms);
        };
        if answers != Answers::Timestamps {
            return Self::lookback(ends, lookback_ms);
        }
        let read_to_ms = pinned_ms - offset_ms + if selector.edges == Edges::Smoothed { lookback_ms } else { 0 };
        let after_ms = pinned_ms.max(pinned_ms - offset_ms) - lookback_ms;
        let to_ms = pinned_ms.min(read_to_ms).max(after_ms);
        let ends = WindowEnds { steps, offset_ms: 0, pinned_ms: Some(to_ms) };
        Self::lookback(ends, to_ms - after_ms)
    }

    /// After which and up to which time samples are looked at, all windows together.
    pub(crate) fn span_ms(&self) -> (i64, i64) {
        (self.ends.first_ms() - self.range_ms - self.reach_ms[0], self.ends.last_ms() + self.reach_ms[1])
    }

    /// After which and up to which time samples are looked at for one window.
    pub(crate) fn window_ms(&self, step: usize) -> (i64, i64) {
        let end_ms = self.ends.at(step);
        (end_ms - self.range_ms - self.reach_ms[0], end_ms + self.reach_ms[1])
    }

    /// The same windows for whoever answers them from summaries; `None` of those that look elsewhere, too.
    pub(crate) fn selection<'a>(&self, matchers: &'a [Matcher], value: WindowValue) -> Option<WindowSelection<'a>> {
        let WindowEnds { steps, pinned_ms, .. } = self.ends;
        let Steps { step_ms, count, .. } = steps;
        let is_plain = self.edges == Edges::Plain && (pinned_ms.is_none() || count == 1);
        let (first_end_ms, range_ms) = (self.ends.first_ms(), self.range_ms);
        is_plain.then_some(WindowSelection { matchers, value, first_end_ms, step_ms, count, range_ms })
    }

    /// `anchored` and `smoothed` go with some functions only.
    pub(crate) fn check_edges(&self, function: &str) -> Result<(), QueryError> {
        match self.edges.rule() {
            Some((word, functions)) if !functions.contains(&function) => Err(QueryError::Execution(format!(
                "{word} modifier can only be used with: {} - not with {function}",
                functions.join(", ")
            ))),
            _ => Ok(()),
        }
    }
}

/// Where windows end, step by step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowEnds {
    pub(crate) steps: Steps,
    offset_ms: i64,
    /// By `@`, the same for all steps.
    pinned_ms: Option<i64>,
}

impl WindowEnds {
    pub(crate) fn new(shift: &Shift, steps: Steps) -> Self {
        Self { steps, offset_ms: shift.offset_ms(), pinned_ms: shift.pinned_ms() }
    }

    pub(crate) fn at(&self, step: usize) -> i64 {
        self.pinned_ms.unwrap_or_else(|| self.steps.time_ms(step)) - self.offset_ms
    }

    /// Whether all windows are the same.
    pub(crate) const fn is_pinned(&self) -> bool {
        self.pinned_ms.is_some()
    }

    pub(crate) fn first_ms(&self) -> i64 {
        self.at(0)
    }

    pub(crate) fn last_ms(&self) -> i64 {
        self.at(self.steps.count.saturating_sub(1))
    }
}

/// Which side of the newest sample a selector answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    Values,
    /// Seconds, for `timestamp()`.
    Timestamps,
    /// Milliseconds, for `info()`.
    Milliseconds,
}

impl Samples {
    pub(crate) fn from_series(series: Series) -> (Labels, Self) {
        let (histogram_timestamps_ms, histograms) =
            series.histograms.iter().map(|(time_ms, native)| (*time_ms, Arc::new(Histogram::from(native)))).unzip();
        let samples =
            Self { timestamps_ms: series.timestamps_ms, values: series.values, histogram_timestamps_ms, histograms };
        (series.labels, samples)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.histograms.is_empty()
    }

    pub(crate) fn drop_stale(&mut self) {
        if hold_marks(&self.values) {
            let samples = self.timestamps_ms.iter().copied().zip(self.values.iter().copied());
            let samples = samples.filter(|(_, value)| !is_stale_bits(*value));
            let (times_ms, values): (Vec<i64>, _) = samples.map(|(time, value)| (time, cleaned(value))).unzip();
            (self.timestamps_ms, self.values) = (Arc::new(times_ms), values);
        }
        if self.histograms.iter().any(|histogram| histogram.is_stale()) {
            let samples = self.histogram_timestamps_ms.iter().copied().zip(self.histograms.iter().cloned());
            (self.histogram_timestamps_ms, self.histograms) =
                samples.filter(|(_, histogram)| !histogram.is_stale()).unzip();
        }
    }

    /// The samples later than the first and not later than the second time.
    pub(crate) fn between(&self, after_ms: i64, to_ms: i64) -> Self {
        let bounds = |times: &[i64]| {
            let first = times.partition_point(|time_ms| *time_ms <= after_ms);
            (first, times.partition_point(|time_ms| *time_ms <= to_ms).max(first))
        };
        let (first, end) = bounds(&self.timestamps_ms);
        let (histogram_first, histogram_end) = bounds(&self.histogram_timestamps_ms);
        let part = |times: &[i64], first: usize, end: usize| times.get(first..end).unwrap_or_default().to_vec();
        Self {
            timestamps_ms: Arc::new(part(&self.timestamps_ms, first, end)),
            values: self.values.get(first..end).unwrap_or_default().to_vec(),
            histogram_timestamps_ms: part(&self.histogram_timestamps_ms, histogram_first, histogram_end),
            histograms: self.histograms.get(histogram_first..histogram_end).unwrap_or_default().to_vec(),
        }
    }
}

impl<'q> Evaluator<'q> {
    /// The series with samples later than the first and not later than the second time, in order of their labels.
    fn select(
        &self,
        matchers: &[Matcher],
        after_ms: i64,
        to_ms: i64,
    ) -> Result<(Vec<(Labels, Samples)>, Charge<'q>), QueryError> {
        let selection = Selection { matchers, start_ms: after_ms + 1, end_ms: to_ms };
        let started_ns = self.source.trace().map(Trace::begin);
        let mut series = self.source.select(&selection, self.budget)?;
        if let Some((trace, started_ns)) = self.source.trace().zip(started_ns) {
            trace.end(started_ns, Some(SCAN), series.len(), series.iter().map(Series::samples).sum());
        }
        let charge = Charge::adopt(self.budget, series.iter().map(Series::samples).sum());
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok((series.into_iter().map(Samples::from_series).collect(), charge))
    }

    /// The newest sample of each series within the lookback, step by step.
    pub(crate) fn instant_vector(
        &self,
        selector: &Selector,
        steps: Steps,
        answers: Answers,
        span: Span,
    ) -> Result<Vector<'q>, QueryError> {
        if selector.edges == Edges::Smoothed && answers == Answers::Values {
            return self.smoothed_vector(selector, &WindowEnds::new(&selector.shift, steps), span);
        }
        let bounds = WindowBounds::newest(selector, answers, steps, self.settings.lookback_ms);
        self.newest(&selector.matchers, &bounds, answers)
    }

    pub(crate) fn newest(
        &self,
        matchers: &[Matcher],
        bounds: &WindowBounds,
        answers: Answers,
    ) -> Result<Vector<'q>, QueryError> {
        let mut collected = Collected::new(self.budget);
        self.newest_rows(matchers, bounds, answers, None, &mut collected)?;
        Ok(collected.sorted())
    }

    /// The rows of an instant vector, in order, to wherever they go.
    pub(crate) fn newest_rows(
        &self,
        matchers: &[Matcher],
        bounds: &WindowBounds,
        answers: Answers,
        grouping: Option<&Grouping>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let make = |labels: Labels, samples: Samples, _: &Notes| Ok(newest_samples(labels, &samples, bounds, answers));
        let rule = Streaming { step: NEWEST, make: &make, windows: None, grouping, distinct: false };
        self.stream(matchers, bounds.span_ms(), &rule, sink)
    }

    fn smoothed_vector(&self, selector: &Selector, ends: &WindowEnds, span: Span) -> Result<Vector<'q>, QueryError> {
        let lookback_ms = self.settings.lookback_ms;
        let (series, _charge) =
            self.select(&selector.matchers, ends.first_ms() - lookback_ms, ends.last_ms() + lookback_ms)?;
        let mut vector = Vector::empty(self.budget);
        for (labels, mut samples) in series {
            samples.drop_stale();
            let name = labels.get(model::METRIC_NAME).unwrap_or_default().to_owned();
            let mut row = Row::new(labels);
            for step in 0..ends.steps.count {
                self.budget.check()?;
                let time_ms = ends.at(step);
                let window = samples.between(time_ms - lookback_ms, time_ms + lookback_ms);
                if let Some(sample) = interpolate::at(&window, time_ms, &self.notes, &name, span) {
                    row.push(step, sample);
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }

    /// A range selector or a subquery.
    pub(crate) fn range_vector(&self, expr: &Expr, steps: Steps) -> Result<RangeVector<'q>, QueryError> {
        match &expr.node {
            Node::Range(range) => self.range_selector(range, steps),
            Node::Subquery(subquery) => self.subquery(subquery, steps),
            Node::Parentheses(inner) => self.range_vector(inner, steps),
            _ => Err(QueryError::Execution("expected a range vector".to_owned())),
        }
    }

    fn range_selector(&self, range: &Range, steps: Steps) -> Result<RangeVector<'q>, QueryError> {
        let bounds = self.range_bounds(range, steps);
        let (after_ms, to_ms) = bounds.span_ms();
        let (series, charge) = self.select(&range.selector.matchers, after_ms, to_ms)?;
        let series = series.into_iter().map(|(labels, mut samples)| {
            samples.drop_stale();
            RangeSeries { labels, drop_name: false, samples }
        });
        Ok(RangeVector { series: series.collect(), bounds, charge })
    }

    pub(crate) fn range_bounds(&self, range: &Range, steps: Steps) -> WindowBounds {
        range_bounds(range, steps, self.settings.lookback_ms)
    }

    /// Evaluates the inner expression at multiples of the subquery's step, once for all windows.
    fn subquery(&self, subquery: &Subquery, steps: Steps) -> Result<RangeVector<'q>, QueryError> {
        let (inner_steps, bounds) = self.inner_steps(subquery, steps)?;
        let mut range = RangeVector { series: Vec::new(), bounds, charge: Charge::none(self.budget) };
        let Some(inner_steps) = inner_steps else { return Ok(range) };
        let inner = self.vector(&subquery.inner, inner_steps)?;
        for row in &inner.rows {
            range.charge.add(row.len())?;
            range.series.push(RangeSeries {
                labels: row.labels.clone(),
                drop_name: row.drop_name,
                samples: samples_of(row, inner_steps),
            });
        }
        Ok(range)
    }

    /// The steps at which a subquery evaluates its inner expression, if there are any, and its windows.
    pub(crate) fn inner_steps(
        &self,
        subquery: &Subquery,
        steps: Steps,
    ) -> Result<(Option<Steps>, WindowBounds), QueryError> {
        let (bounds, start_ms, step_ms) = subquery_grid(subquery, steps, self.settings.subquery_step_ms);
        let last_ms = bounds.ends.last_ms();
        if start_ms > last_ms {
            return Ok((None, bounds));
        }
        let count = self.step_count(start_ms, last_ms, step_ms)?;
        Ok((Some(Steps { start_ms, step_ms, count }), bounds))
    }
}

/// How windows of a range selector move.
pub(crate) fn range_bounds(range: &Range, steps: Steps, lookback_ms: i64) -> WindowBounds {
    let edges = range.selector.edges;
    let reach_ms = match edges {
        Edges::Plain => [0, 0],
        Edges::Anchored => [lookback_ms, 0],
        Edges::Smoothed => [lookback_ms, lookback_ms],
    };
    let ends = WindowEnds::new(&range.selector.shift, steps);
    WindowBounds { ends, range_ms: range.range.settled_ms(), edges, reach_ms }
}

/// How windows of a subquery move, when its first step is, and the time between two.
pub(crate) fn subquery_grid(subquery: &Subquery, steps: Steps, default_step_ms: i64) -> (WindowBounds, i64, i64) {
    let ends = WindowEnds::new(&subquery.shift, steps);
    let range_ms = subquery.range.settled_ms();
    let step_ms = subquery.step.as_ref().map_or(default_step_ms, crate::syntax::ast::Extent::settled_ms).max(1);
    let after_ms = ends.first_ms() - range_ms;
    // As Prometheus: multiples of the step are found by a division that rounds towards zero.
    let mut start_ms = after_ms / step_ms * step_ms;
    if start_ms <= after_ms {
        start_ms += step_ms;
    }
    (WindowBounds { ends, range_ms, edges: Edges::Plain, reach_ms: [0, 0] }, start_ms, step_ms)
}

/// What is known of counter resets does not hold between samples taken at other times.
fn samples_of(row: &Row, steps: Steps) -> Samples {
    let (mut samples, mut timestamps_ms) = (Samples::default(), Vec::new());
    for (step, sample) in row.present() {
        match sample {
            Sample::Float(value) => {
                timestamps_ms.push(steps.time_ms(step));
                samples.values.push(value);
            }
            Sample::Histogram(histogram) => {
                samples.histogram_timestamps_ms.push(steps.time_ms(step));
                let hinted = matches!(histogram.hint, CounterReset::Reset | CounterReset::NoReset);
                let histogram = if hinted {
                    Arc::new(Histogram { hint: CounterReset::Unknown, ..Histogram::clone(&histogram) })
                } else {
                    histogram
                };
                samples.histograms.push(histogram);
            }
        }
    }
    Samples { timestamps_ms: Arc::new(timestamps_ms), ..samples }
}

impl RangeVector<'_> {
    /// Samples in the window of the first step, for instant queries that ask for a range.
    pub(crate) fn into_first_window(self) -> Result<Vec<RangeSeries>, QueryError> {
        let WindowBounds { ends, range_ms, edges, reach_ms: [before_ms, behind_ms] } = self.bounds;
        let end_ms = ends.first_ms();
        let mut found = Vec::new();
        for mut series in self.series {
            series.samples = series.samples.between(end_ms - range_ms - before_ms, end_ms + behind_ms);
            if let Some((word, _)) = edges.rule() {
                if !series.samples.histograms.is_empty() {
                    return Err(QueryError::Execution(format!("{word} modifier is not supported with histograms")));
                }
                let smoothed = edges == Edges::Smoothed;
                interpolate::extend(&mut series.samples, end_ms - range_ms, end_ms, smoothed);
            }
            if !series.samples.is_empty() {
                found.push(series);
            }
        }
        Ok(found)
    }

    /// Whether any series has a sample in the window, step by step.
    pub(crate) fn occupied(&self, steps: Steps) -> Vec<bool> {
        let mut occupied = vec![false; steps.count];
        for series in &self.series {
            for times in [&*series.samples.timestamps_ms, &series.samples.histogram_timestamps_ms] {
                let mut cursor = Cursor::default();
                for (step, seen) in occupied.iter_mut().enumerate() {
                    let end_ms = self.bounds.ends.at(step);
                    let (first, end) = cursor.advance(times, end_ms - self.bounds.range_ms, end_ms);
                    *seen |= first < end;
                }
            }
        }
        occupied
    }
}

/// The bounds of a window within sorted times: both only move forward.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    first: usize,
    end: usize,
}

impl Cursor {
    /// The places of the first time after, and of the first time beyond.
    pub(crate) fn advance(&mut self, times: &[i64], after_ms: i64, to_ms: i64) -> (usize, usize) {
        while times.get(self.first).is_some_and(|time_ms| *time_ms <= after_ms) {
            self.first += 1;
        }
        self.end = self.end.max(self.first);
        while times.get(self.end).is_some_and(|time_ms| *time_ms <= to_ms) {
            self.end += 1;
        }
        (self.first, self.end)
    }
}

fn newest_samples(labels: Labels, samples: &Samples, bounds: &WindowBounds, answers: Answers) -> Row {
    let mut row = Row::new(labels);
    let (mut floats, mut histograms) = (Cursor::default(), Cursor::default());
    for step in 0..bounds.ends.steps.count {
        let (after_ms, to_ms) = bounds.window_ms(step);
        let newest = |cursor: &mut Cursor, times: &[i64]| {
            let (first, end) = cursor.advance(times, after_ms, to_ms);
            let place = end.checked_sub(1).filter(|_| first < end)?;
            Some((*times.get(place)?, place))
        };
        let float = newest(&mut floats, &samples.timestamps_ms);
        let histogram = newest(&mut histograms, &samples.histogram_timestamps_ms);
        let is_float = float.map(|(time_ms, _)| time_ms) >= histogram.map(|(time_ms, _)| time_ms);
        let Some((time_ms, place)) = (if is_float { float } else { histogram }) else { continue };
        let sample = if is_float {
            samples
                .values
                .get(place)
                .filter(|value| !is_stale_bits(**value))
                .map(|value| Sample::Float(cleaned(*value)))
        } else {
            samples.histograms.get(place).filter(|histogram| !histogram.is_stale()).cloned().map(Sample::Histogram)
        };
        match (sample, answers) {
            (None, _) => {}
            (Some(_), Answers::Timestamps) => row.push_float(step, time_ms as f64 / 1000.0),
            (Some(Sample::Float(_)), Answers::Milliseconds) => row.push_float(step, time_ms as f64),
            (Some(sample), Answers::Values | Answers::Milliseconds) => row.push(step, sample),
        }
    }
    row
}

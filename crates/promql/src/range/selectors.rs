//! Selectors and subqueries: each is read once for all steps, then a window slides over its sorted samples.

use std::sync::Arc;

use model::{Labels, Matcher, is_stale_bits};
use query::{Budget, Projection, QueryError, Series, Trace};

use crate::eval::annotations::{AnnotationContext, Annotations};
use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::{CollectedRows, RowSink, SCAN, StreamOptions};
use crate::eval::rows::{Charge, Row, Sample, Steps, Vector, cleaned, metric_name};
use crate::histogram::native::{CounterReset, Histogram};
use crate::range::interpolate;
use crate::range::samples::{Cursor, SampleInterval, Samples};
use crate::range::window_bounds::{SelectorOutput, WindowBounds, WindowEnds, range_bounds, subquery_grid};
use crate::syntax::ast::{Edges, Expr, NeededLabels, Node, Range, Selector, Subquery};
use crate::syntax::span::Span;

/// The step that finding the last samples is reported as.
pub(crate) const NEWEST: &str = "newest";

/// A series of a range vector.
#[derive(Debug, Clone)]
pub(crate) struct RangeSeries {
    pub(crate) labels: Labels,
    /// The metric's name is to be dropped from the result, if removal is delayed.
    pub(crate) drop_name: bool,
    pub(crate) samples: Samples,
}

/// Series of a range vector, without stale markers.
pub(crate) struct RangeVector<'b> {
    pub(crate) series: Vec<RangeSeries>,
    pub(crate) bounds: WindowBounds,
    charge: Charge<'b>,
}

impl<'q> Evaluator<'q> {
    /// The series with samples in an interval, in order of their labels.
    fn select(
        &self,
        matchers: &[Matcher],
        interval: SampleInterval,
    ) -> Result<(Vec<(Labels, Samples)>, Charge<'q>), QueryError> {
        let selection = interval.selection(matchers);
        let started_ns = self.source.trace().map(Trace::begin);
        let mut series = self.source.select(&selection, self.budget)?;
        if let Some((trace, started_ns)) = self.source.trace().zip(started_ns) {
            trace.end(started_ns, Some(SCAN), series.len(), series.iter().map(Series::samples).sum());
        }
        let charge = Charge::adopt(self.budget, series.iter().map(Series::samples).sum());
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok((series.into_iter().map(Samples::from_series).collect(), charge))
    }

    /// The last sample of each series within the lookback, at each step.
    pub(crate) fn instant_vector(
        &self,
        selector: &Selector,
        steps: Steps,
        output: SelectorOutput,
        span: Span,
    ) -> Result<Vector<'q>, QueryError> {
        if selector.edges == Edges::Smoothed && output == SelectorOutput::Values {
            return self.smoothed_vector(selector, &WindowEnds::new(&selector.shift, steps), span);
        }
        let bounds = WindowBounds::instant(selector, output, steps, self.settings.lookback_ms);
        self.instant_samples(&selector.matchers, &bounds, output)
    }

    pub(crate) fn instant_samples(
        &self,
        matchers: &[Matcher],
        bounds: &WindowBounds,
        output: SelectorOutput,
    ) -> Result<Vector<'q>, QueryError> {
        let mut collected = CollectedRows::new(self.budget);
        self.instant_rows(matchers, bounds, output, NeededLabels::All, &mut collected)?;
        Ok(collected.sorted())
    }

    /// The rows of an instant vector, in order.
    pub(crate) fn instant_rows(
        &self,
        matchers: &[Matcher],
        bounds: &WindowBounds,
        output: SelectorOutput,
        needed: NeededLabels<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let make = |labels: Labels, samples: Samples, annotations: &Annotations| {
            annotations.check_folds(&samples, Span::from(0), self.budget)?;
            Ok(instant_row(labels, &samples, bounds, output))
        };
        let row_of_last = |labels, time_ms, value| row_of_last(labels, output, time_ms, value);
        // With several steps a window slides over all samples.
        let last = (bounds.ends.steps.count == 1).then_some(&row_of_last as &_);
        let options = StreamOptions {
            step: NEWEST,
            make: &make,
            windows: None,
            last,
            grouping: needed.grouping(),
            projection: needed.projection().or_else(|| last.map(|_| Projection::ALL)),
            is_numbered: needed.are_numbered(),
            distinct: false,
        };
        self.stream(matchers, bounds.read_interval(), &options, sink)
    }

    fn smoothed_vector(&self, selector: &Selector, ends: &WindowEnds, span: Span) -> Result<Vector<'q>, QueryError> {
        let lookback_ms = self.settings.lookback_ms;
        let around = |first_ms: i64, last_ms: i64| SampleInterval {
            after_ms: first_ms - lookback_ms,
            to_ms: last_ms + lookback_ms,
        };
        let (series, _charge) = self.select(&selector.matchers, around(ends.first_ms(), ends.last_ms()))?;
        let mut vector = Vector::empty(self.budget);
        for (labels, mut samples) in series {
            self.annotations.check_folds(&samples, span, self.budget)?;
            samples.drop_stale();
            let name = metric_name(&labels).to_owned();
            let mut row = Row::new(labels);
            for step in 0..ends.steps.count {
                self.budget.check()?;
                let time_ms = ends.at(step);
                let window = samples.between(around(time_ms, time_ms));
                let context = AnnotationContext { annotations: &self.annotations, name: &name, span };
                if let Some(sample) = interpolate::at(&window, time_ms, context) {
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
        let (series, charge) = self.select(&range.selector.matchers, bounds.read_interval())?;
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
        let grid = subquery_grid(subquery, steps, self.settings.subquery_step_ms);
        let mut range = RangeVector { series: Vec::new(), bounds: grid.bounds, charge: Charge::none(self.budget) };
        let Some(subquery_steps) = grid.steps(self.settings)? else { return Ok(range) };
        let inner = self.vector(&subquery.inner, subquery_steps)?;
        for row in &inner.rows {
            range.charge.add(row.len())?;
            range.series.push(RangeSeries {
                labels: row.labels.clone(),
                drop_name: row.drop_name,
                samples: samples_from_row(row, subquery_steps),
            });
        }
        Ok(range)
    }
}

/// Hints about counter resets do not hold between the samples of a subquery, so they are dropped.
fn samples_from_row(row: &Row, steps: Steps) -> Samples {
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
    pub(crate) fn into_first_window(
        self,
        annotations: &Annotations,
        budget: &Budget,
    ) -> Result<Vec<RangeSeries>, QueryError> {
        let WindowBounds { ends, range_ms, edges, .. } = self.bounds;
        let (end_ms, interval) = (ends.first_ms(), self.bounds.window(0));
        let mut series_in_window = Vec::new();
        for mut series in self.series {
            annotations.check_folds(&series.samples, Span::from(0), budget)?;
            series.samples = series.samples.between(interval);
            if let Some((word, _)) = edges.keyword_and_functions() {
                if !series.samples.histograms.is_empty() {
                    return Err(QueryError::Execution(format!("{word} modifier is not supported with histograms")));
                }
                let smoothed = edges == Edges::Smoothed;
                interpolate::extend(&mut series.samples, end_ms - range_ms, end_ms, smoothed);
            }
            if !series.samples.is_empty() {
                series_in_window.push(series);
            }
        }
        Ok(series_in_window)
    }

    /// For each step, whether any series has a sample in the window.
    pub(crate) fn occupied(&self, steps: Steps) -> Vec<bool> {
        let mut occupied = vec![false; steps.count];
        for series in &self.series {
            for times in [&*series.samples.timestamps_ms, &series.samples.histogram_timestamps_ms] {
                let mut cursor = Cursor::default();
                for (step, is_occupied) in occupied.iter_mut().enumerate() {
                    let to_ms = self.bounds.ends.at(step);
                    let interval = SampleInterval { after_ms: to_ms - self.bounds.range_ms, to_ms };
                    let (first, end) = cursor.advance(times, interval);
                    *is_occupied |= first < end;
                }
            }
        }
        occupied
    }
}

/// The row of a series at a single step.
fn row_of_last(labels: Labels, output: SelectorOutput, time_ms: i64, value: f64) -> Row {
    let value = match output {
        SelectorOutput::Values => cleaned(value),
        SelectorOutput::Timestamps => time_ms as f64 / 1000.0,
        SelectorOutput::Milliseconds => time_ms as f64,
    };
    Row::from_floats(labels, vec![value])
}

fn instant_row(labels: Labels, samples: &Samples, bounds: &WindowBounds, output: SelectorOutput) -> Row {
    let mut row = Row::new(labels);
    let (mut floats, mut histograms) = (Cursor::default(), Cursor::default());
    for step in 0..bounds.ends.steps.count {
        let interval = bounds.window(step);
        let last = |cursor: &mut Cursor, times: &[i64]| {
            let (first, end) = cursor.advance(times, interval);
            let index = end.checked_sub(1).filter(|_| first < end)?;
            Some((*times.get(index)?, index))
        };
        let float = last(&mut floats, &samples.timestamps_ms);
        let histogram = last(&mut histograms, &samples.histogram_timestamps_ms);
        let is_float = float.map(|(time_ms, _)| time_ms) >= histogram.map(|(time_ms, _)| time_ms);
        let Some((time_ms, index)) = (if is_float { float } else { histogram }) else { continue };
        let sample = if is_float {
            samples
                .values
                .get(index)
                .filter(|value| !is_stale_bits(**value))
                .map(|value| Sample::Float(cleaned(*value)))
        } else {
            samples.histograms.get(index).filter(|histogram| !histogram.is_stale()).cloned().map(Sample::Histogram)
        };
        match (sample, output) {
            (None, _) => {}
            (Some(_), SelectorOutput::Timestamps) => row.push_float(step, time_ms as f64 / 1000.0),
            (Some(Sample::Float(_)), SelectorOutput::Milliseconds) => row.push_float(step, time_ms as f64),
            (Some(sample), SelectorOutput::Values | SelectorOutput::Milliseconds) => row.push(step, sample),
        }
    }
    row
}

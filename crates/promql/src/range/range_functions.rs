//! Functions of a range, applied to every window of every series.

use std::sync::{Mutex, PoisonError};

use model::{Labels, METRIC_NAME, MatchOp, Matcher};
use query::{Budget, QueryError};

use crate::eval::annotations::Annotations;
use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::{DistinctSink, RowSink, SeriesRow, StreamOptions};
use crate::eval::rows::{ABSENT, Row, Steps, cleaned, metric_name, without_name};
use crate::range::marks::Marks;
use crate::range::rate_runs;
use crate::range::samples::{Cursor, Samples};
use crate::range::window::SampleWindow;
use crate::range::window_bounds::WindowBounds;
use crate::range::window_positions::WindowPositions;
use crate::syntax::ast::{Call, Edges, Expr, NeededLabels, Node};
use crate::syntax::functions::{Function, RangeFunction};
use crate::syntax::result_kind::ResultKind;
use crate::syntax::span::Span;

/// Samples of windows between two looks at whether the query was stopped.
const UNCHECKED_SAMPLES_MAX: usize = 1 << 16;

/// A call of a range function.
#[derive(Clone, Copy)]
pub(crate) struct RangeCall<'a> {
    pub(crate) call: &'a Call,
    pub(crate) steps: Steps,
    /// The labels of the rows that are needed.
    pub(crate) needed: NeededLabels<'a>,
}

impl Evaluator<'_> {
    /// Evaluates the rows of a range function, in order.
    pub(crate) fn range_rows(&self, range_call: &RangeCall<'_>, sink: &mut dyn RowSink) -> Result<(), QueryError> {
        if self.rows_by_view(range_call, sink)? {
            return Ok(());
        }
        let RangeCall { call, steps, needed } = *range_call;
        let is_range = |argument: &&Expr| argument.kind() == ResultKind::RangeVector;
        let (ranges, others): (Vec<&Expr>, Vec<&Expr>) = call.arguments.iter().partition(is_range);
        let ([argument], Function::Range(function)) = (ranges.as_slice(), call.signature.function) else {
            return Err(QueryError::Execution("expected one range vector".to_owned()));
        };
        let scalars = others.iter().map(|scalar| self.scalar(scalar, steps)).collect::<Result<Vec<_>, _>>()?;
        // Annotations about mixed ranges point at the first argument, whatever it is.
        let span = match call.arguments.first() {
            // As Prometheus: a subquery has been replaced by its values then, and its position is lost.
            Some(Expr { node: Node::Subquery(_), .. }) | None => Span::from(0),
            Some(first) => first.span,
        };
        let delayed_names = self.settings.name_removal.is_delayed();
        let annotated_steps = (self.steps.get() == Some(steps)).then_some(steps);
        let evaluate = |bounds| {
            let (scalars, budget, positions) = (scalars.as_slice(), self.budget, Mutex::default());
            WindowEvaluation { function, bounds, scalars, span, delayed_names, annotated_steps, budget, positions }
        };
        if let Node::Range(range) = &argument.node {
            let bounds = self.range_bounds(range, steps);
            bounds.check_edges(call.signature.name)?;
            let evaluation = evaluate(bounds);
            let make = |labels: Labels, mut samples: Samples, annotations: &Annotations| {
                samples.drop_stale();
                evaluation.row(&labels, false, &samples, annotations)
            };
            let matchers = &range.selector.matchers;
            let row_of = |labels: Labels, values: Vec<Option<f64>>| evaluation.row_of_windows(labels, values);
            let windows = function.value().and_then(|value| bounds.selection(matchers, value));
            let windows = windows.map(|windows| (windows, &row_of as &_));
            // Series of several metrics may be the same without their names: then all labels are needed to tell.
            let is_of_one_name = delayed_names || matchers.iter().any(is_name);
            let projection = needed.projection().filter(|_| is_of_one_name);
            let options = StreamOptions {
                step: call.signature.name,
                make: &make,
                windows,
                last: None,
                grouping: needed.grouping(),
                projection,
                is_numbered: needed.are_numbered(),
                distinct: !is_of_one_name || projection.is_none() && !delayed_names,
            };
            return self.stream(matchers, bounds.read_interval(), &options, sink);
        }
        let mut range = self.range_vector(argument, steps)?;
        if self.is_stepwise {
            // In an order that does not depend on which steps the query has.
            range.series.sort_by(|a, b| a.labels.cmp(&b.labels));
        }
        range.bounds.check_edges(call.signature.name)?;
        let evaluation = evaluate(range.bounds);
        let mut output = DistinctSink::new(!delayed_names, sink);
        for series in &range.series {
            self.budget.check()?;
            let row = evaluation.row(&series.labels, series.drop_name, &series.samples, &self.annotations)?;
            let made = SeriesRow::grouped((series.labels.clone(), row), needed.grouping(), self.budget)?;
            made.map_or(Ok(()), |made| output.push(made))?;
        }
        Ok(())
    }
}

/// Returns whether a matcher chooses a single metric.
pub(crate) fn is_name(matcher: &Matcher) -> bool {
    matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal
}

/// A function applied to every window of series.
pub(super) struct WindowEvaluation<'a> {
    pub(super) function: RangeFunction,
    pub(super) bounds: WindowBounds,
    scalars: &'a [Vec<f64>],
    pub(super) span: Span,
    /// Names are dropped from the result only.
    delayed_names: bool,
    /// The steps, if they are those of the query.
    annotated_steps: Option<Steps>,
    pub(super) budget: &'a Budget,
    /// Positions of windows in the last series of each thread.
    positions: Mutex<Vec<WindowPositions>>,
}

impl WindowEvaluation<'_> {
    /// The row of a series, with the labels of the result.
    fn row(
        &self,
        labels: &Labels,
        drop_name: bool,
        samples: &Samples,
        annotations: &Annotations,
    ) -> Result<Row, QueryError> {
        let values = if samples.folds.is_empty() { self.values_of_floats(samples)? } else { None };
        let mut row = match values {
            Some((first_step, values)) => Row::from_steps(labels.clone(), first_step, values),
            None if self.is_of_folds(samples) => self.row_of_folds(labels, samples, annotations)?,
            None => {
                annotations.check_folds(samples, self.span, self.budget)?;
                self.row_of_samples(labels, samples, annotations)?
            }
        };
        if self.function.wants_counter() && row.floats().next().is_some() {
            annotations.check_counter_name(metric_name(&row.labels), self.span, &row, self.annotated_steps);
        }
        self.drop_metric_name(&mut row, drop_name);
        Ok(row)
    }

    /// The row of a series whose windows' values are known.
    fn row_of_windows(&self, labels: Labels, values: Vec<Option<f64>>) -> Row {
        let values = values.into_iter().map(|value| value.map_or(ABSENT, cleaned)).collect();
        let mut row = Row::from_steps(labels, 0, values);
        self.drop_metric_name(&mut row, false);
        row
    }

    /// Drops the name, if the function does.
    fn drop_metric_name(&self, row: &mut Row, drop_name: bool) {
        row.drop_name = !self.function.keeps_name() || drop_name;
        if row.drop_name && !self.delayed_names {
            row.labels = without_name(&row.labels);
        }
    }

    /// The values of a series that has floats alone, from some step on, for functions that need only the floats of each window; `None`
    /// otherwise.
    fn values_of_floats(&self, samples: &Samples) -> Result<Option<(usize, Vec<f64>)>, QueryError> {
        let change = self.function.change();
        let is_plain = self.bounds.edges == Edges::Plain && samples.histograms.is_empty();
        if !is_plain || (change.is_none() && self.function.apply_to_floats(&[0.0]).is_none()) {
            return Ok(None);
        }
        let lock = || self.positions.lock().unwrap_or_else(PoisonError::into_inner);
        let mut positions = lock().pop().unwrap_or_default();
        positions.find(&samples.timestamps_ms, &self.bounds, change);
        let changes = match change {
            Some(change) => {
                let marks = Marks::find(self.function, &samples.values);
                rate_runs::changes_of_runs(&samples.values, &marks, &positions, change.counter)
            }
            None => (positions.first_step, self.apply_to_windows(&samples.values, &positions)?),
        };
        lock().push(positions);
        Ok(Some(changes))
    }

    fn apply_to_windows(&self, values: &[f64], positions: &WindowPositions) -> Result<Vec<f64>, QueryError> {
        let mut results = Vec::with_capacity(positions.windows.len());
        let mut unchecked_samples = 0;
        for window in &positions.windows {
            let inside = values.get(window.first as usize..window.end as usize).unwrap_or_default();
            unchecked_samples += inside.len();
            if unchecked_samples > UNCHECKED_SAMPLES_MAX {
                self.budget.check()?;
                unchecked_samples = 0;
            }
            let value = if inside.is_empty() { None } else { self.function.apply_to_floats(inside) };
            results.push(value.unwrap_or(ABSENT));
        }
        Ok(results)
    }

    fn row_of_samples(&self, labels: &Labels, samples: &Samples, annotations: &Annotations) -> Result<Row, QueryError> {
        let marks = Marks::find(self.function, &samples.values);
        let mut marks = marks.cursor(&samples.values);
        let (name, mut row) = (metric_name(labels), Row::new(labels.clone()));
        let mut scratch = Vec::new();
        let scalar = |index: usize, step: usize| {
            self.scalars.get(index).and_then(|values| values.get(step)).copied().unwrap_or(f64::NAN)
        };
        let WindowBounds { ends, range_ms, edges, .. } = self.bounds;
        let (mut floats, mut histograms) = (Cursor::default(), Cursor::default());
        let mut unchecked_samples = 0;
        for step in 0..ends.steps.count {
            let end_ms = ends.at(step);
            let start_ms = end_ms - range_ms;
            let interval = self.bounds.window(step);
            let (first, end) = floats.advance(&samples.timestamps_ms, interval);
            let (histogram_first, histogram_end) = histograms.advance(&samples.histogram_timestamps_ms, interval);
            if first == end && histogram_first == histogram_end {
                continue;
            }
            unchecked_samples += end - first + histogram_end - histogram_first;
            if unchecked_samples > UNCHECKED_SAMPLES_MAX {
                self.budget.check()?;
                unchecked_samples = 0;
            }
            let histogram_range = histogram_first..histogram_end;
            let window = SampleWindow {
                timestamps_ms: samples.timestamps_ms.get(first..end).unwrap_or_default(),
                values: samples.values.get(first..end).unwrap_or_default(),
                histogram_timestamps_ms: samples
                    .histogram_timestamps_ms
                    .get(histogram_range.clone())
                    .unwrap_or_default(),
                histograms: samples.histograms.get(histogram_range).unwrap_or_default(),
                marked: marks.within(first, end),
                start_ms,
                end_ms,
                range_ms,
                time_ms: ends.steps.time_ms(step),
                scalars: [scalar(0, step), scalar(1, step)],
                edges,
                name,
                span: self.span,
                quantile_span: self.span,
                annotations,
            };
            if let Some(sample) = self.function.apply(&window, &mut scratch)? {
                row.push(step, sample);
            }
        }
        Ok(row)
    }
}

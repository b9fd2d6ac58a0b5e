//! Functions of a range, applied to every window of every series.

use std::sync::{Mutex, PoisonError};

use model::Labels;
use query::{Budget, QueryError};

use crate::eval::{Evaluator, name_of};
use crate::function::Function;
use crate::notes::Notes;
use crate::rate_runs;
use crate::rows::{ABSENT, Row, Steps, cleaned, without_name};
use crate::select::{Cursor, Samples, WindowBounds};
use crate::stream::{Made, Passage, RowSink, Streaming};
use crate::syntax::ast::{Call, Edges, Expr, Grouping, Node, ResultKind};
use crate::syntax::span::Span;
use crate::window::{Marks, Window, WindowFunction};
use crate::window_places::WindowPlaces;

/// Samples of windows between two looks at whether the query was stopped.
const UNCHECKED_SAMPLES_MAX: usize = 1 << 16;

impl Evaluator<'_> {
    /// The rows of a window function, evaluated, in order, to wherever they go.
    pub(crate) fn evaluated_rows(
        &self,
        call: &Call,
        steps: Steps,
        grouping: Option<&Grouping>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let is_range = |argument: &&Expr| argument.kind() == ResultKind::RangeVector;
        let (ranges, others): (Vec<&Expr>, Vec<&Expr>) = call.arguments.iter().partition(is_range);
        let ([argument], Function::Window(function)) = (ranges.as_slice(), call.signature.function) else {
            return Err(QueryError::Execution("expected one range vector".to_owned()));
        };
        let scalars = others.iter().map(|scalar| self.scalar(scalar, steps)).collect::<Result<Vec<_>, _>>()?;
        // Notes about mixed ranges point at the first argument, whatever it is.
        let span = match call.arguments.first() {
            // As Prometheus: of a subquery nothing is left by then, not even its place.
            Some(Expr { node: Node::Subquery(_), .. }) | None => Span::from(0),
            Some(first) => first.span,
        };
        let put_off = self.settings.name_removal.is_delayed();
        let noted_steps = (self.steps.get() == Some(steps)).then_some(steps);
        let over_windows = |bounds| {
            let (scalars, budget, places) = (scalars.as_slice(), self.budget, Mutex::default());
            Over { function, bounds, scalars, span, put_off, noted_steps, budget, places }
        };
        if let Node::Range(range) = &argument.node {
            let bounds = self.range_bounds(range, steps);
            bounds.check_edges(call.signature.name)?;
            let over = over_windows(bounds);
            let make = |labels: Labels, mut samples: Samples, notes: &Notes| {
                samples.drop_stale();
                over.row(&labels, false, &samples, notes)
            };
            let matchers = &range.selector.matchers;
            let row_of = |labels: Labels, values: Vec<Option<f64>>| over.row_of_windows(labels, values);
            let windows = function.value().and_then(|value| bounds.selection(matchers, value));
            let windows = windows.map(|windows| (windows, &row_of as &_));
            let rule = Streaming { step: call.signature.name, make: &make, windows, grouping, distinct: !put_off };
            return self.stream(matchers, bounds.span_ms(), &rule, sink);
        }
        let mut range = self.range_vector(argument, steps)?;
        if self.may_be_cut {
            // In an order that does not depend on which steps the query has.
            range.series.sort_by(|a, b| a.labels.cmp(&b.labels));
        }
        range.bounds.check_edges(call.signature.name)?;
        let over = over_windows(range.bounds);
        let mut passage = Passage::new(!put_off, sink);
        for series in &range.series {
            self.budget.check()?;
            let row = over.row(&series.labels, series.drop_name, &series.samples, &self.notes)?;
            let group = grouping.map(|grouping| grouping.key(&row.labels));
            passage.pass(Made { series: series.labels.clone(), group, row })?;
        }
        Ok(())
    }
}

/// A function applied to every window of series.
struct Over<'a> {
    function: WindowFunction,
    bounds: WindowBounds,
    scalars: &'a [Vec<f64>],
    span: Span,
    /// Whether names are dropped from the answer only.
    put_off: bool,
    /// The steps, if they are those of the query.
    noted_steps: Option<Steps>,
    budget: &'a Budget,
    /// Where windows lie in the series that threads had last: as many as there are threads.
    places: Mutex<Vec<WindowPlaces>>,
}

impl Over<'_> {
    /// The row of a series, with the labels that it has from there on.
    fn row(&self, labels: &Labels, drop_name: bool, samples: &Samples, notes: &Notes) -> Result<Row, QueryError> {
        let mut row = match self.of_floats(samples)? {
            Some((first_step, values)) => Row::of_steps(labels.clone(), first_step, values),
            None => self.of_samples(labels, samples, notes)?,
        };
        if self.function.wants_counter() && row.floats().next().is_some() {
            notes.check_counter_name(name_of(&row.labels), self.span, &row, self.noted_steps);
        }
        self.name(&mut row, drop_name);
        Ok(row)
    }

    /// The row of a series of which the windows' values are known.
    fn row_of_windows(&self, labels: Labels, values: Vec<Option<f64>>) -> Row {
        let values = values.into_iter().map(|value| value.map_or(ABSENT, cleaned)).collect();
        let mut row = Row::of_steps(labels, 0, values);
        self.name(&mut row, false);
        row
    }

    /// Drops the name, if the function does.
    fn name(&self, row: &mut Row, drop_name: bool) {
        row.drop_name = !self.function.keeps_name() || drop_name;
        if row.drop_name && !self.put_off {
            row.labels = without_name(&row.labels);
        }
    }

    /// The values of a series of floats alone from some step on, of functions that ask for nothing but the floats of each window; `None` of
    /// others.
    fn of_floats(&self, samples: &Samples) -> Result<Option<(usize, Vec<f64>)>, QueryError> {
        let change = self.function.change();
        let is_plain = self.bounds.edges == Edges::Plain && samples.histograms.is_empty();
        if !is_plain || (change.is_none() && self.function.of_values(&[0.0]).is_none()) {
            return Ok(None);
        }
        let lock = || self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut places = lock().pop().unwrap_or_default();
        places.find(&samples.timestamps_ms, &self.bounds, change);
        let found = match change {
            Some(change) => {
                let marks = Marks::find(self.function, &samples.values);
                rate_runs::over_windows(&samples.values, &marks, &places, change.counter)
            }
            None => (places.first_step, self.over_values(&samples.values, &places)?),
        };
        lock().push(places);
        Ok(Some(found))
    }

    fn over_values(&self, values: &[f64], places: &WindowPlaces) -> Result<Vec<f64>, QueryError> {
        let mut results = Vec::with_capacity(places.windows.len());
        let mut unchecked_samples = 0;
        for window in &places.windows {
            let inside = values.get(window.first as usize..window.end as usize).unwrap_or_default();
            unchecked_samples += inside.len();
            if unchecked_samples > UNCHECKED_SAMPLES_MAX {
                self.budget.check()?;
                unchecked_samples = 0;
            }
            let value = if inside.is_empty() { None } else { self.function.of_values(inside) };
            results.push(value.unwrap_or(ABSENT));
        }
        Ok(results)
    }

    fn of_samples(&self, labels: &Labels, samples: &Samples, notes: &Notes) -> Result<Row, QueryError> {
        let marks = Marks::find(self.function, &samples.values);
        let mut marks = marks.walk(&samples.values);
        let (name, mut row) = (name_of(labels), Row::new(labels.clone()));
        let mut scratch = Vec::new();
        let scalar = |place: usize, step: usize| {
            self.scalars.get(place).and_then(|values| values.get(step)).copied().unwrap_or(f64::NAN)
        };
        let WindowBounds { ends, range_ms, edges, reach_ms: [before_ms, behind_ms] } = self.bounds;
        let (mut floats, mut histograms) = (Cursor::default(), Cursor::default());
        let mut unchecked_samples = 0;
        for step in 0..ends.steps.count {
            let end_ms = ends.at(step);
            let start_ms = end_ms - range_ms;
            let (after_ms, to_ms) = (start_ms - before_ms, end_ms + behind_ms);
            let (first, end) = floats.advance(&samples.timestamps_ms, after_ms, to_ms);
            let (histogram_first, histogram_end) =
                histograms.advance(&samples.histogram_timestamps_ms, after_ms, to_ms);
            if first == end && histogram_first == histogram_end {
                continue;
            }
            unchecked_samples += end - first + histogram_end - histogram_first;
            if unchecked_samples > UNCHECKED_SAMPLES_MAX {
                self.budget.check()?;
                unchecked_samples = 0;
            }
            let histogram_range = histogram_first..histogram_end;
            let window = Window {
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
                notes,
            };
            if let Some(sample) = self.function.apply(&window, &mut scratch)? {
                row.push(step, sample);
            }
        }
        Ok(row)
    }
}

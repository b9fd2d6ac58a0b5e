//! Walks an expression and computes it for all steps at once.

use model::{Labels, METRIC_NAME, MatchOp};
use query::{Budget, QueryError, Source};

use crate::Settings;
use crate::function::{Function, HistogramPart};
use crate::histogram::{Histogram, variance_of};
use crate::math;
use crate::notes::Notes;
use crate::rows::{ABSENT, Row, Sample, Steps, Vector, has_same_labels, same_labels, without_name};
use crate::select::{Answers, Cursor, RangeSeries, RangeVector};
use crate::syntax::ast::{Call, Expr, Node, ResultKind};
use crate::syntax::span::Span;
use crate::window::{Marks, Window, WindowFunction};

/// One query under way.
pub(crate) struct Evaluator<'q> {
    pub(crate) source: &'q dyn Source,
    pub(crate) settings: &'q Settings,
    pub(crate) budget: &'q Budget,
    pub(crate) notes: Notes,
}

/// A value at every step.
pub(crate) enum Computed<'b> {
    Scalar(Vec<f64>),
    Vector(Vector<'b>),
}

impl<'q> Evaluator<'q> {
    /// How many steps lie between two times; fails if there are too many.
    pub(crate) fn step_count(&self, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<usize, QueryError> {
        let count = (end_ms - start_ms) / step_ms + 1;
        let steps_max = self.settings.steps_max;
        usize::try_from(count).ok().filter(|count| *count <= steps_max).ok_or_else(|| {
            QueryError::Execution(format!(
                "evaluation takes {count} steps, more than the limit of {steps_max} (steps_max): use a longer step or a \
                 shorter range"
            ))
        })
    }

    /// Computes a scalar or an instant vector. What is the same at every step is computed once.
    pub(crate) fn compute(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        self.budget.check()?;
        if steps.count == 1 || !expr.is_step_invariant() {
            return self.compute_steps(expr, steps);
        }
        match self.compute_steps(expr, Steps { count: 1, ..steps })? {
            Computed::Scalar(values) => {
                let value = values.first().copied().unwrap_or(f64::NAN);
                Ok(Computed::Scalar(vec![value; steps.count]))
            }
            Computed::Vector(once) => {
                let mut vector = Vector::empty(self.budget);
                for row in &once.rows {
                    vector.push(row.repeated(steps.count))?;
                }
                Ok(Computed::Vector(vector))
            }
        }
    }

    fn compute_steps(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        match &expr.node {
            Node::Number { value, .. } => Ok(Computed::Scalar(vec![*value; steps.count])),
            Node::Selector(selector) => {
                self.instant_vector(selector, steps, Answers::Values, expr.span).map(Computed::Vector)
            }
            Node::Parentheses(inner) => self.compute(inner, steps),
            Node::Sign { negative, inner } => self.sign(*negative, inner, steps),
            Node::Binary(binary) => self.binary(binary, expr.span, steps),
            Node::Aggregate(aggregate) => self.aggregate(aggregate, expr.span, steps).map(Computed::Vector),
            Node::Call(call) => self.call(call, expr.span, steps),
            Node::Text(_) | Node::Range(_) | Node::Subquery(_) => Err(QueryError::Execution(format!(
                "expected a scalar or an instant vector, got {}",
                expr.kind().name()
            ))),
        }
    }

    /// Computes an instant vector.
    pub(crate) fn vector(&self, expr: &Expr, steps: Steps) -> Result<Vector<'q>, QueryError> {
        match self.compute(expr, steps)? {
            Computed::Vector(vector) => Ok(vector),
            Computed::Scalar(_) => Err(QueryError::Execution("expected an instant vector, got scalar".to_owned())),
        }
    }

    /// Computes a scalar: a value for every step.
    pub(crate) fn scalar(&self, expr: &Expr, steps: Steps) -> Result<Vec<f64>, QueryError> {
        match self.compute(expr, steps)? {
            Computed::Scalar(values) => Ok(values),
            Computed::Vector(_) => Err(QueryError::Execution("expected a scalar, got instant vector".to_owned())),
        }
    }

    pub(crate) fn drop_names(&self, vector: &mut Vector<'q>) -> Result<(), QueryError> {
        vector.drop_names(self.settings.delayed_name_removal)
    }

    /// The metric's name for notes about results: functions that drop it do so before, unless that is put off.
    pub(crate) fn name_for_notes<'l>(&self, labels: &'l Labels) -> &'l str {
        if self.settings.delayed_name_removal { name_of(labels) } else { "" }
    }

    fn sign(&self, negative: bool, inner: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let computed = self.compute(inner, steps)?;
        if !negative {
            return Ok(computed);
        }
        match computed {
            Computed::Scalar(mut values) => {
                for value in &mut values {
                    *value = -*value;
                }
                Ok(Computed::Scalar(values))
            }
            Computed::Vector(mut vector) => {
                vector.map(|_, sample| {
                    Some(match sample {
                        Sample::Float(value) => Sample::Float(-value),
                        Sample::Histogram(histogram) => {
                            let mut negated = Histogram::clone(&histogram);
                            negated.multiply(-1.0);
                            negated.into()
                        }
                    })
                })?;
                self.drop_names(&mut vector)?;
                Ok(Computed::Vector(vector))
            }
        }
    }

    fn call(&self, call: &Call, span: Span, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let (function, arguments) = (call.signature.function, call.arguments.as_slice());
        let scalar = match (function, arguments) {
            (Function::Time, []) => times_s(steps).collect(),
            (Function::Pi, []) => vec![std::f64::consts::PI; steps.count],
            (Function::Scalar, [input]) => only_values(&self.vector(input, steps)?, steps.count),
            (Function::MaximumOf | Function::MinimumOf, [left, right]) => {
                let (left, right) = (self.scalar(left, steps)?, self.scalar(right, steps)?);
                let choose = if function == Function::MaximumOf { math::maximum } else { math::minimum };
                left.into_iter().zip(right).map(|(left, right)| choose(left, right)).collect()
            }
            _ => return self.vector_call(call, span, steps).map(Computed::Vector),
        };
        Ok(Computed::Scalar(scalar))
    }

    fn vector_call(&self, call: &Call, span: Span, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let function = call.signature.function;
        match (function, call.arguments.as_slice()) {
            (Function::Vector, [input]) => self.single_row(self.scalar(input, steps)?),
            (Function::Math(math), [input]) => self.map_floats(input, steps, |_, value| math.apply()(value)),
            (Function::Date(part), [input]) => self.map_floats(input, steps, |_, value| part.at(math::whole(value))),
            (Function::Date(part), []) => {
                let values = (0..steps.count).map(|step| part.at(steps.time_ms(step) / 1000)).collect();
                self.single_row(values)
            }
            (Function::Clamp | Function::ClampMax | Function::ClampMin | Function::Round, [input, limits @ ..]) => {
                self.limit(function, input, limits, steps)
            }
            (Function::Timestamp, [input]) => self.timestamp(input, steps),
            (Function::StartTimestamp, [input]) => {
                // Start timestamps are no part of what is selected; Prometheus answers nothing without them, too.
                self.vector(input, steps).map(|_| Vector::empty(self.budget))
            }
            (Function::Absent, [input]) => {
                let occupied = self.vector(input, steps)?.occupied(steps.count);
                self.absent(input, &occupied)
            }
            (Function::AbsentOverTime, [input]) => {
                let range = self.range_vector(input, steps)?;
                check_edges(&range, call.signature.name)?;
                let occupied = range.occupied(steps);
                self.absent(input, &occupied)
            }
            (Function::Window(window), _) => self.window_call(window, call, steps),
            (Function::Histogram(part), [input]) => self.histogram_part(part, input, steps),
            (Function::HistogramQuantile, [quantile, input]) => self.histogram_quantile(quantile, input, steps),
            (Function::HistogramQuantiles, [input, label, quantiles @ ..]) => {
                self.histogram_quantiles(input, label, quantiles, steps)
            }
            (Function::HistogramFraction, [lower, upper, input]) => {
                self.histogram_fraction([lower, upper], input, steps)
            }
            (Function::LabelReplace | Function::LabelJoin, [input, texts @ ..]) => {
                self.relabel(function, call.signature.name, input, texts, steps)
            }
            (
                Function::Sort | Function::SortDescending | Function::SortByLabel | Function::SortByLabelDescending,
                [input, labels @ ..],
            ) => self.sort(function, input, labels, span, steps),
            (Function::Info, [input, labels @ ..]) => self.info(input, labels.first(), steps),
            _ => {
                let name = call.signature.name;
                Err(QueryError::Execution(format!("wrong number of arguments in call to {name:?}")))
            }
        }
    }

    /// A vector of one series without labels.
    fn single_row(&self, values: Vec<f64>) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        vector.push(Row::of_floats(Labels::empty(), values))?;
        Ok(vector)
    }

    fn map_floats(
        &self,
        input: &Expr,
        steps: Steps,
        change: impl FnMut(usize, f64) -> f64,
    ) -> Result<Vector<'q>, QueryError> {
        let mut vector = self.vector(input, steps)?;
        vector.map_floats(change)?;
        self.drop_names(&mut vector)?;
        Ok(vector)
    }

    fn timestamp(&self, input: &Expr, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let mut vector = if let Node::Selector(selector) = &input.node {
            self.instant_vector(selector, steps, Answers::Timestamps, input.span)?
        } else {
            let mut vector = self.vector(input, steps)?;
            vector.map(|step, _| Some(Sample::Float(steps.time_ms(step) as f64 / 1000.0)))?;
            vector
        };
        self.drop_names(&mut vector)?;
        Ok(vector)
    }

    /// `clamp` and its like, and `round`: functions of a value and of scalars.
    fn limit(&self, function: Function, input: &Expr, limits: &[Expr], steps: Steps) -> Result<Vector<'q>, QueryError> {
        let limits = limits.iter().map(|limit| self.scalar(limit, steps)).collect::<Result<Vec<_>, _>>()?;
        let limit = |place: usize, step: usize| limits.get(place).and_then(|limit| limit.get(step)).copied();
        self.map_floats(input, steps, |step, value| {
            let (first, second) = (limit(0, step), limit(1, step));
            match function {
                Function::Round => round(value, first.unwrap_or(1.0)),
                Function::ClampMin => clamp(value, first.unwrap_or(f64::NAN), f64::INFINITY),
                Function::ClampMax => clamp(value, f64::NEG_INFINITY, first.unwrap_or(f64::NAN)),
                _ => clamp(value, first.unwrap_or(f64::NAN), second.unwrap_or(f64::NAN)),
            }
        })
    }

    fn absent(&self, input: &Expr, occupied: &[bool]) -> Result<Vector<'q>, QueryError> {
        let mut row = Row::new(labels_of_absent(input)?);
        for (step, _) in occupied.iter().enumerate().filter(|(_, occupied)| !**occupied) {
            row.push_float(step, 1.0);
        }
        let mut vector = Vector::empty(self.budget);
        vector.push(row)?;
        Ok(vector)
    }

    /// Numbers that native histograms hold.
    fn histogram_part(&self, part: HistogramPart, input: &Expr, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let mut vector = self.vector(input, steps)?;
        vector.map(|_, sample| {
            let Sample::Histogram(histogram) = sample else { return None };
            Some(Sample::Float(match part {
                HistogramPart::Average => histogram.sum / histogram.count,
                HistogramPart::Count => histogram.count,
                HistogramPart::Sum => histogram.sum,
                HistogramPart::Variance => variance_of(&histogram),
                HistogramPart::StandardDeviation => variance_of(&histogram).sqrt(),
            }))
        })?;
        self.drop_names(&mut vector)?;
        Ok(vector)
    }

    fn window_call(&self, function: WindowFunction, call: &Call, steps: Steps) -> Result<Vector<'q>, QueryError> {
        let is_range = |argument: &&Expr| argument.kind() == ResultKind::RangeVector;
        let (ranges, others): (Vec<&Expr>, Vec<&Expr>) = call.arguments.iter().partition(is_range);
        let [argument] = ranges.as_slice() else {
            return Err(QueryError::Execution("expected one range vector".to_owned()));
        };
        let range = self.range_vector(argument, steps)?;
        check_edges(&range, call.signature.name)?;
        let scalars = others.iter().map(|scalar| self.scalar(scalar, steps)).collect::<Result<Vec<_>, _>>()?;
        // Notes about mixed ranges point at the first argument, whatever it is.
        let first_span = match call.arguments.first() {
            // As Prometheus: of a subquery nothing is left by then, not even its place.
            Some(Expr { node: Node::Subquery(_), .. }) | None => Span::from(0),
            Some(first) => first.span,
        };
        let over = Over { function, range: &range, scalars: &scalars, span: first_span, notes: &self.notes };
        let mut vector = Vector::empty(self.budget);
        let mut scratch = Vec::new();
        let put_off = self.settings.delayed_name_removal;
        for series in &range.series {
            self.budget.check()?;
            let mut row = over.series(series, &mut scratch)?;
            row.drop_name = !function.keeps_name() || series.drop_name;
            if row.drop_name && !put_off {
                row.labels = without_name(&row.labels);
            }
            if function.wants_counter() && row.floats().next().is_some() {
                self.notes.check_counter_name(name_of(&series.labels), first_span);
            }
            vector.push(row)?;
        }
        if !put_off && has_same_labels(&vector.rows) {
            return Err(same_labels());
        }
        Ok(vector)
    }
}

/// A function applied to every window of series.
struct Over<'a, 'b> {
    function: WindowFunction,
    range: &'a RangeVector<'b>,
    scalars: &'a [Vec<f64>],
    span: Span,
    notes: &'a Notes,
}

impl Over<'_, '_> {
    fn series(&self, series: &RangeSeries, scratch: &mut Vec<f64>) -> Result<Row, QueryError> {
        let samples = &series.samples;
        let marks = Marks::find(self.function, &samples.values);
        let mut row = Row::new(series.labels.clone());
        let scalar = |place: usize, step: usize| {
            self.scalars.get(place).and_then(|values| values.get(step)).copied().unwrap_or(f64::NAN)
        };
        let [before_ms, behind_ms] = self.range.reach_ms;
        let (mut floats, mut histograms) = (Cursor::default(), Cursor::default());
        for step in 0..self.range.ends.steps.count {
            let end_ms = self.range.ends.at(step);
            let start_ms = end_ms - self.range.range_ms;
            let (after_ms, to_ms) = (start_ms - before_ms, end_ms + behind_ms);
            let (first, end) = floats.advance(&samples.timestamps_ms, after_ms, to_ms);
            let (histogram_first, histogram_end) =
                histograms.advance(&samples.histogram_timestamps_ms, after_ms, to_ms);
            if first == end && histogram_first == histogram_end {
                continue;
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
                marked: marks.within(first, end, &samples.values),
                start_ms,
                end_ms,
                range_ms: self.range.range_ms,
                time_ms: self.range.ends.steps.time_ms(step),
                scalars: [scalar(0, step), scalar(1, step)],
                edges: self.range.edges,
                name: name_of(&series.labels),
                span: self.span,
                quantile_span: self.span,
                notes: self.notes,
            };
            if let Some(sample) = self.function.apply(&window, scratch)? {
                row.push(step, sample);
            }
        }
        Ok(row)
    }
}

pub(crate) fn name_of(labels: &Labels) -> &str {
    labels.get(METRIC_NAME).unwrap_or_default()
}

/// `anchored` and `smoothed` go with some functions only.
fn check_edges(range: &RangeVector<'_>, function: &str) -> Result<(), QueryError> {
    match range.edges.rule() {
        Some((word, functions)) if !functions.contains(&function) => Err(QueryError::Execution(format!(
            "{word} modifier can only be used with: {} - not with {function}",
            functions.join(", ")
        ))),
        _ => Ok(()),
    }
}

fn times_s(steps: Steps) -> impl Iterator<Item = f64> {
    (0..steps.count).map(move |step| steps.time_ms(step) as f64 / 1000.0)
}

/// The float where there is exactly one, else NaN.
fn only_values(vector: &Vector<'_>, steps: usize) -> Vec<f64> {
    let mut found = vec![false; steps];
    let mut values = vec![f64::NAN; steps];
    for (step, value) in vector.rows.iter().flat_map(Row::floats) {
        if let (Some(found), Some(only)) = (found.get_mut(step), values.get_mut(step)) {
            *only = if *found { f64::NAN } else { value };
            *found = true;
        }
    }
    values
}

/// To the nearest multiple; ties go up.
fn round(value: f64, nearest: f64) -> f64 {
    let inverse = 1.0 / nearest;
    (value * inverse + 0.5).floor() / inverse
}

/// Nothing if the bounds are crossed.
fn clamp(value: f64, least: f64, most: f64) -> f64 {
    if most < least {
        return ABSENT;
    }
    math::maximum(least, math::minimum(most, value))
}

/// What the labels of an absent series must be, by the selector: those with one equality matcher.
fn labels_of_absent(input: &Expr) -> Result<Labels, QueryError> {
    let selector = match &input.node {
        Node::Selector(selector) => &**selector,
        Node::Range(range) => &range.selector,
        _ => return Ok(Labels::empty()),
    };
    let mut kept: Vec<(&str, &str)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for matcher in selector.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME) {
        if matcher.op == MatchOp::Equal && !seen.contains(&matcher.name.as_str()) {
            seen.push(&matcher.name);
            kept.push((&matcher.name, &matcher.value));
        } else {
            kept.retain(|(name, _)| *name != matcher.name);
        }
    }
    Labels::from_pairs(kept).map_err(|error| QueryError::Execution(error.to_string()))
}

//! Walks an expression and computes it for all steps at once.

use std::cell::{Cell, RefCell};

use model::{Labels, METRIC_NAME, MatchOp};
use query::{Budget, QueryError, Source};

use crate::Settings;
use crate::explain;
use crate::function::{Function, HistogramPart};
use crate::histogram::{Histogram, variance_of};
use crate::inner::Keeper;
use crate::math;
use crate::notes::Notes;
use crate::rows::{ABSENT, Row, Sample, Steps, Vector};
use crate::select::Answers;
use crate::stream::Collected;
use crate::syntax::ast::{Aggregation, Call, Expr, Node};
use crate::syntax::span::Span;

/// One query under way.
pub(crate) struct Evaluator<'q> {
    pub(crate) source: &'q dyn Source,
    pub(crate) settings: &'q Settings,
    pub(crate) budget: &'q Budget,
    pub(crate) notes: Notes,
    /// The steps of a range query: all, or the stretch of them that is evaluated by itself.
    pub(crate) steps: Cell<Option<Steps>>,
    /// Whether it is a range query whose answer may be kept and cut by steps: then the order of rows must not depend on which steps it
    /// has. Else it is that of Prometheus.
    pub(crate) may_be_cut: bool,
    /// Who keeps expressions within this one, if anybody does.
    pub(crate) keeper: Option<&'q dyn Keeper>,
    /// The nearest expression around what is evaluated that was looked up.
    pub(crate) outer: RefCell<Option<String>>,
}

/// A value at every step.
pub(crate) enum Computed<'b> {
    Scalar(Vec<f64>),
    Vector(Vector<'b>),
}

impl<'q> Evaluator<'q> {
    /// For one moment.
    pub(crate) fn new(source: &'q dyn Source, settings: &'q Settings, budget: &'q Budget) -> Self {
        let (notes, steps, outer) = (Notes::default(), Cell::new(None), RefCell::new(None));
        Self { source, settings, budget, notes, steps, may_be_cut: false, keeper: None, outer }
    }

    /// How many steps lie between two times; fails if there are too many.
    pub(crate) fn step_count(&self, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<usize, QueryError> {
        step_count(self.settings, start_ms, end_ms, step_ms)
    }

    /// Whether a single moment is asked for, so that the order of rows counts.
    pub(crate) fn is_instant(&self, steps: Steps) -> bool {
        !self.may_be_cut && steps.count == 1
    }

    /// Computes a scalar or an instant vector. What is the same at every step is computed once.
    pub(crate) fn compute(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        self.budget.check()?;
        let Some(trace) = self.source.trace() else { return self.compute_once(expr, steps) };
        let started_ns = trace.begin();
        let computed = self.compute_once(expr, steps)?;
        let (series, rows) = match &computed {
            Computed::Scalar(values) => (1, values.len()),
            Computed::Vector(vector) => (vector.rows.len(), vector.rows.iter().map(Row::len).sum()),
        };
        trace.end(started_ns, explain::step_name(expr), series, rows);
        Ok(computed)
    }

    fn compute_once(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
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
        let mut computed = self.compute_node(expr, steps)?;
        if let Computed::Vector(vector) = &mut computed
            && steps.count > 1
            && !self.may_be_cut
            && is_gathered_by_steps(expr)
        {
            vector.rows.sort_by_cached_key(|row| (row.first..row.end()).find(|step| row.has(*step)));
        }
        Ok(computed)
    }

    fn compute_node(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
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
        vector.drop_names(self.settings.name_removal.is_delayed())
    }

    /// The metric's name for notes about results: functions that drop it do so before, unless that is put off.
    pub(crate) fn name_for_notes<'l>(&self, labels: &'l Labels) -> &'l str {
        if self.settings.name_removal.is_delayed() { name_of(labels) } else { "" }
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
                range.bounds.check_edges(call.signature.name)?;
                let occupied = range.occupied(steps);
                self.absent(input, &occupied)
            }
            (Function::Window(_), _) => {
                let mut collected = Collected::new(self.budget);
                self.window_rows(call, span, steps, None, &mut collected)?;
                // Rows of a subquery stay in its order, which is that of labels where the answer may be cut.
                let of_series = call.arguments.iter().any(|argument| matches!(argument.node, Node::Range(_)));
                Ok(if of_series || self.may_be_cut { collected.sorted() } else { collected.vector })
            }
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
}

/// Whether Prometheus puts the series that come of it into a map step by step, so that those come first which have a value first.
fn is_gathered_by_steps(expr: &Expr) -> bool {
    match &expr.node {
        Node::Binary(_) => true,
        Node::Call(call) => !matches!(
            call.signature.function,
            Function::Window(_) | Function::LabelReplace | Function::LabelJoin | Function::Info
        ),
        Node::Aggregate(aggregate) => matches!(
            aggregate.operation,
            Aggregation::TopK
                | Aggregation::BottomK
                | Aggregation::LimitK
                | Aggregation::LimitRatio
                | Aggregation::CountValues
        ),
        _ => false,
    }
}

/// How many steps lie between two times; fails if there are too many.
pub(crate) fn step_count(settings: &Settings, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<usize, QueryError> {
    let count = (end_ms - start_ms) / step_ms + 1;
    let steps_max = settings.steps_max;
    usize::try_from(count).ok().filter(|count| *count <= steps_max).ok_or_else(|| {
        QueryError::Execution(format!(
            "evaluation takes {count} steps, more than the limit of {steps_max} (steps_max): use a longer step or a \
             shorter range"
        ))
    })
}

pub(crate) fn name_of(labels: &Labels) -> &str {
    labels.get(METRIC_NAME).unwrap_or_default()
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

//! Functions of scalars and instant vectors.

use model::{Labels, METRIC_NAME, MatchOp};
use query::QueryError;

use crate::eval::evaluator::{Computed, Evaluator};
use crate::eval::math;
use crate::eval::row_stream::CollectedRows;
use crate::eval::rows::{ABSENT, Row, Sample, Steps, Vector};
use crate::histogram::native_quantile::variance_of;
use crate::range::range_functions::RangeCall;
use crate::range::window_bounds::SelectorOutput;
use crate::syntax::ast::{Call, Expr, NeededLabels, Node};
use crate::syntax::functions::{Function, HistogramPart};
use crate::syntax::number::{maximum, minimum};
use crate::syntax::span::Span;

impl<'q> Evaluator<'q> {
    pub(super) fn call(&self, call: &Call, span: Span, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let (function, arguments) = (call.signature.function, call.arguments.as_slice());
        let scalar = match (function, arguments) {
            (Function::Time, []) => times_s(steps).collect(),
            (Function::Pi, []) => vec![std::f64::consts::PI; steps.count],
            (Function::Scalar, [input]) => only_values(&self.vector(input, steps)?, steps.count),
            (Function::MaximumOf | Function::MinimumOf, [left, right]) => {
                let (left, right) = (self.scalar(left, steps)?, self.scalar(right, steps)?);
                let choose = if function == Function::MaximumOf { maximum } else { minimum };
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
                // Start timestamps are not selected; without them Prometheus returns nothing as well.
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
            (Function::Range(_), _) => {
                let mut collected = CollectedRows::new(self.budget);
                self.range_rows(&RangeCall { call, steps, needed: NeededLabels::All }, &mut collected)?;
                // Rows of a subquery stay in its order, which is that of labels if the result may be cut by steps.
                let is_range_selector = call.arguments.iter().any(|argument| matches!(argument.node, Node::Range(_)));
                Ok(if is_range_selector || self.is_stepwise { collected.sorted() } else { collected.vector })
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
            (Function::Similar | Function::Correlated, [count, input, reference, bin_s]) => {
                self.similar([count, input, reference, bin_s], (function == Function::Correlated, span), steps)
            }
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
        vector.push(Row::from_floats(Labels::empty(), values))?;
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
            self.instant_vector(selector, steps, SelectorOutput::Timestamps, input.span)?
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
        let limit = |index: usize, step: usize| limits.get(index).and_then(|limit| limit.get(step)).copied();
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

fn times_s(steps: Steps) -> impl Iterator<Item = f64> {
    (0..steps.count).map(move |step| steps.time_ms(step) as f64 / 1000.0)
}

/// The float where there is exactly one, else NaN.
fn only_values(vector: &Vector<'_>, steps: usize) -> Vec<f64> {
    let mut is_found = vec![false; steps];
    let mut values = vec![f64::NAN; steps];
    for (step, value) in vector.rows.iter().flat_map(Row::floats) {
        if let (Some(is_found), Some(value_at)) = (is_found.get_mut(step), values.get_mut(step)) {
            *value_at = if *is_found { f64::NAN } else { value };
            *is_found = true;
        }
    }
    values
}

/// Rounds to the nearest multiple, and ties up.
fn round(value: f64, nearest: f64) -> f64 {
    let inverse = 1.0 / nearest;
    (value * inverse + 0.5).floor() / inverse
}

/// Nothing if the bounds are crossed.
fn clamp(value: f64, least: f64, most: f64) -> f64 {
    if most < least {
        return ABSENT;
    }
    maximum(least, minimum(most, value))
}

/// The labels of an absent series, from the selector: those with exactly one equality matcher.
fn labels_of_absent(input: &Expr) -> Result<Labels, QueryError> {
    let selector = match &input.node {
        Node::Selector(selector) => &**selector,
        Node::Range(range) => &range.selector,
        _ => return Ok(Labels::empty()),
    };
    let mut labels: Vec<(&str, &str)> = Vec::new();
    let mut names_seen: Vec<&str> = Vec::new();
    for matcher in selector.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME) {
        if matcher.op == MatchOp::Equal && !names_seen.contains(&matcher.name.as_str()) {
            names_seen.push(&matcher.name);
            labels.push((&matcher.name, &matcher.value));
        } else {
            labels.retain(|(name, _)| *name != matcher.name);
        }
    }
    Labels::from_pairs(labels).map_err(|error| QueryError::Execution(error.to_string()))
}

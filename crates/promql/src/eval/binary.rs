//! Operators between two expressions.

use std::cell::Cell;

use query::QueryError;

use crate::eval::annotations::{Annotations, HistogramOperation};
use crate::eval::evaluator::{Computed, Evaluator};
use crate::eval::rows::{Sample, Steps, Vector};
use crate::histogram::native::{CounterReset, Histogram};
use crate::syntax::ast::{Arithmetic, Chain, Comparison, Link, Operator};
use crate::syntax::span::Span;

impl Arithmetic {
    fn apply(self) -> fn(f64, f64) -> f64 {
        match self {
            Self::Add => |a, b| a + b,
            Self::Subtract => |a, b| a - b,
            Self::Multiply => |a, b| a * b,
            Self::Divide => |a, b| a / b,
            Self::Modulo => |a, b| a % b,
            Self::Power => f64::powf,
            Self::Atan2 => f64::atan2,
        }
    }
}

impl Comparison {
    #[expect(clippy::float_cmp, reason = "PromQL compares exactly")]
    fn holds(self) -> fn(f64, f64) -> bool {
        match self {
            Self::Equal => |a, b| a == b,
            Self::NotEqual => |a, b| a != b,
            Self::Greater => |a, b| a > b,
            Self::Less => |a, b| a < b,
            Self::GreaterOrEqual => |a, b| a >= b,
            Self::LessOrEqual => |a, b| a <= b,
        }
    }
}

/// The result of an operator for two values.
pub(super) enum OperatorOutcome {
    /// The value; a filter keeps it if the flag is true.
    Value(Sample, bool),
    /// The operator is not defined for such values.
    Nothing,
}

/// An annotation of a pair of values.
#[derive(Debug, Clone, Copy)]
pub(super) enum PairAnnotation {
    Types(&'static str, &'static str),
    Buckets,
    ResetConflict(HistogramOperation),
    Reconciled(HistogramOperation),
}

/// An operator, and what it needs to annotate pairs of values that it is not defined for.
pub(super) struct OperatorContext<'a> {
    /// The annotation of the last pair.
    pub(super) annotation: Cell<Option<PairAnnotation>>,
    operator: Operator,
    pub(super) return_bool: bool,
    annotations: &'a Annotations,
    span: Span,
}

impl OperatorContext<'_> {
    /// Returns whether the result is another metric.
    pub(super) const fn changes_metric(&self) -> bool {
        matches!(self.operator, Operator::Arithmetic(_))
    }

    fn no_result(&self, left: &Sample, right: &Sample) -> OperatorOutcome {
        self.annotation.set(Some(PairAnnotation::Types(left.kind(), right.kind())));
        OperatorOutcome::Nothing
    }

    pub(super) fn apply(&self, left: &Sample, right: &Sample) -> OperatorOutcome {
        match (left, right) {
            (Sample::Float(a), Sample::Float(b)) => match self.operator {
                Operator::Arithmetic(arithmetic) => {
                    OperatorOutcome::Value(Sample::Float(arithmetic.apply()(*a, *b)), true)
                }
                Operator::Comparison(comparison) => {
                    OperatorOutcome::Value(Sample::Float(*a), comparison.holds()(*a, *b))
                }
                _ => self.no_result(left, right),
            },
            (Sample::Float(factor), Sample::Histogram(histogram)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Multiply) => scaled(histogram, |result| result.multiply(*factor)),
                _ => self.no_result(left, right),
            },
            (Sample::Histogram(histogram), Sample::Float(value)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Multiply) => scaled(histogram, |result| result.multiply(*value)),
                Operator::Arithmetic(Arithmetic::Divide) => scaled(histogram, |result| result.divide(*value)),
                Operator::Trim { upper } => {
                    let mut result = Histogram::clone(histogram);
                    result.trim(*value, upper);
                    OperatorOutcome::Value(result.into(), true)
                }
                _ => self.no_result(left, right),
            },
            (Sample::Histogram(a), Sample::Histogram(b)) => match self.operator {
                Operator::Arithmetic(Arithmetic::Add) => self.combined(a, b, HistogramOperation::Addition),
                Operator::Arithmetic(Arithmetic::Subtract) => self.combined(a, b, HistogramOperation::Subtraction),
                Operator::Comparison(Comparison::Equal) => OperatorOutcome::Value(left.clone(), a.same_data(b)),
                Operator::Comparison(Comparison::NotEqual) => OperatorOutcome::Value(left.clone(), !a.same_data(b)),
                _ => self.no_result(left, right),
            },
        }
    }

    /// The sum or the difference of two histograms.
    fn combined(&self, left: &Histogram, right: &Histogram, operation: HistogramOperation) -> OperatorOutcome {
        let mut result = left.clone();
        let added = match operation {
            HistogramOperation::Subtraction => result.subtract(right),
            _ => result.add(right),
        };
        let Ok(added) = added else {
            self.annotation.set(Some(PairAnnotation::Buckets));
            return OperatorOutcome::Nothing;
        };
        if added.reset_conflict {
            // As Prometheus: there is no result then.
            self.annotation.set(Some(PairAnnotation::ResetConflict(operation)));
            return OperatorOutcome::Nothing;
        }
        if added.bounds_reconciled {
            self.annotation.set(Some(PairAnnotation::Reconciled(operation)));
        }
        if operation == HistogramOperation::Subtraction {
            result.hint = CounterReset::Gauge;
        }
        result.compact();
        OperatorOutcome::Value(result.into(), true)
    }

    pub(super) fn annotate(&self, annotation: Option<PairAnnotation>) {
        match annotation {
            None => {}
            Some(PairAnnotation::Types(left, right)) => {
                self.annotations.incompatible_types(left, self.operator.name(), right, self.span);
            }
            Some(PairAnnotation::Buckets) => self.annotations.incompatible_buckets(self.operator.name(), self.span),
            Some(PairAnnotation::ResetConflict(operation)) => self.annotations.reset_conflict(operation, self.span),
            Some(PairAnnotation::Reconciled(operation)) => self.annotations.bounds_reconciled(operation, self.span),
        }
    }

    /// The result of two values; a filter keeps the left one. Nothing, if there is none.
    fn result(&self, left: &Sample, right: &Sample) -> Option<Sample> {
        let outcome = self.apply(left, right);
        self.annotate(self.annotation.take());
        match outcome {
            OperatorOutcome::Nothing => None,
            OperatorOutcome::Value(_, keep) if self.return_bool => Some(Sample::Float(f64::from(u8::from(keep)))),
            OperatorOutcome::Value(sample, keep) => keep.then_some(sample),
        }
    }
}

fn scaled(histogram: &Histogram, scale: impl FnOnce(&mut Histogram)) -> OperatorOutcome {
    let mut result = histogram.clone();
    scale(&mut result);
    result.compact();
    OperatorOutcome::Value(result.into(), true)
}

impl<'q> Evaluator<'q> {
    /// Applies the operators of a chain one after another. Operands at its front that are the same at every step are combined once.
    pub(crate) fn chain(&self, chain: &Chain, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let invariant = if steps.count > 1 { chain.invariant_operands() } else { 0 };
        // Each operator is a step within the one after it; the last one is the chain's own.
        let trace = self.source.trace();
        let inner = chain.links.len().saturating_sub(1);
        let started_ns: Vec<i64> = trace.iter().flat_map(|trace| (0..inner).map(|_| trace.begin())).collect();
        let once = Steps { count: 1, ..steps };
        let mut left = self.compute(&chain.first, if invariant > 1 { once } else { steps })?;
        for (place, link) in chain.links.iter().enumerate() {
            self.budget.check()?;
            let operands = place + 2;
            let link_steps = if operands <= invariant { once } else { steps };
            let right = self.compute(&link.right, link_steps)?;
            let span = chain.first.span.to(link.right.span);
            left = self.link(link, span, [left, right], link_steps.count)?;
            if place < inner {
                self.order_by_steps(&mut left, link_steps);
            }
            if operands == invariant {
                left = self.repeated(left, steps)?;
            }
            if let (Some(trace), Some(started_ns)) = (trace, started_ns.get(place)) {
                let (series, rows) = left.size();
                trace.end(*started_ns, Some(link.operator.name()), series, rows);
            }
        }
        Ok(left)
    }

    pub(crate) fn link(
        &self,
        link: &Link,
        span: Span,
        sides: [Computed<'q>; 2],
        count: usize,
    ) -> Result<Computed<'q>, QueryError> {
        let (operator, return_bool) = (link.operator, link.return_bool);
        let operator = OperatorContext {
            annotation: Cell::new(None),
            operator,
            return_bool,
            annotations: &self.annotations,
            span,
        };
        match sides.into() {
            (Computed::Scalar(left), Computed::Scalar(right)) => {
                let compute: Box<dyn Fn(f64, f64) -> f64> = match link.operator {
                    Operator::Arithmetic(arithmetic) => Box::new(arithmetic.apply()),
                    Operator::Comparison(comparison) => {
                        Box::new(move |a, b| f64::from(u8::from(comparison.holds()(a, b))))
                    }
                    other => {
                        let name = other.name();
                        let message = format!("operator {name:?} not allowed for Scalar operations");
                        return Err(QueryError::Execution(message));
                    }
                };
                Ok(Computed::Scalar(left.iter().zip(&right).map(|(left, right)| compute(*left, *right)).collect()))
            }
            (Computed::Vector(vector), Computed::Scalar(scalar)) => {
                self.with_scalar(vector, &operator, |step, sample| {
                    operator.result(&sample, &Sample::Float(scalar_at(&scalar, step)))
                })
            }
            (Computed::Scalar(scalar), Computed::Vector(vector)) => {
                let filters = matches!(link.operator, Operator::Comparison(_)) && !link.return_bool;
                self.with_scalar(vector, &operator, |step, sample| {
                    let result = operator.result(&Sample::Float(scalar_at(&scalar, step)), &sample)?;
                    // A filter keeps the vector's value, not the scalar.
                    Some(if filters { sample } else { result })
                })
            }
            (Computed::Vector(left), Computed::Vector(right)) => {
                let matching = link.matching.clone().unwrap_or_default();
                let result = match link.operator {
                    Operator::Set(operation) => self.set(operation, &matching, left, right, count),
                    _ => self.join(&operator, &matching, [left, right], count),
                };
                result.map(Computed::Vector)
            }
        }
    }

    fn with_scalar(
        &self,
        mut vector: Vector<'q>,
        operator: &OperatorContext<'_>,
        change: impl FnMut(usize, Sample) -> Option<Sample>,
    ) -> Result<Computed<'q>, QueryError> {
        vector.map(change)?;
        if operator.changes_metric() || operator.return_bool {
            self.drop_names(&mut vector)?;
        }
        Ok(Computed::Vector(vector))
    }
}

fn scalar_at(scalar: &[f64], step: usize) -> f64 {
    scalar.get(step).copied().unwrap_or(f64::NAN)
}

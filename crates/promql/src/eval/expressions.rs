//! Walks an expression and computes it for all steps at once.

use query::QueryError;

use crate::eval::evaluator::{Computed, Evaluator};
use crate::eval::rows::{Sample, Steps, Vector};
use crate::histogram::native::Histogram;
use crate::range::window_bounds::SelectorOutput;
use crate::syntax::ast::{Aggregation, Edges, Expr, Node, Operator};
use crate::syntax::functions::Function;

impl<'q> Evaluator<'q> {
    /// Computes a scalar or an instant vector. Expressions that are the same at every step are computed once.
    pub(crate) fn compute(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        self.budget.check()?;
        let Some(trace) = self.source.trace() else { return self.compute_once(expr, steps) };
        let started_ns = trace.begin();
        let computed = self.compute_once(expr, steps)?;
        let (series, rows) = computed.size();
        trace.end(started_ns, step_name(expr), series, rows);
        Ok(computed)
    }

    fn compute_once(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        if steps.count == 1 || !expr.is_step_invariant() {
            return self.compute_steps(expr, steps);
        }
        let computed = self.compute_steps(expr, Steps { count: 1, ..steps })?;
        self.repeated(computed, steps)
    }

    /// Repeats a result of one step for all of them.
    pub(super) fn repeated(&self, computed: Computed<'q>, steps: Steps) -> Result<Computed<'q>, QueryError> {
        match computed {
            Computed::Scalar(values) => {
                let value = values.first().copied().unwrap_or(f64::NAN);
                Ok(Computed::Scalar(vec![value; steps.count]))
            }
            Computed::Vector(at_first_step) => {
                let mut vector = Vector::empty(self.budget);
                for row in &at_first_step.rows {
                    vector.push(row.repeated(steps.count))?;
                }
                Ok(Computed::Vector(vector))
            }
        }
    }

    fn compute_steps(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        let mut computed = self.compute_node(expr, steps)?;
        if is_ordered_by_steps(expr) {
            self.order_by_steps(&mut computed, steps);
        }
        Ok(computed)
    }

    /// Puts series that have a value earlier first, if the order matters.
    pub(super) fn order_by_steps(&self, computed: &mut Computed<'q>, steps: Steps) {
        if let Computed::Vector(vector) = computed
            && steps.count > 1
            && !self.is_stepwise
        {
            vector.rows.sort_by_cached_key(|row| (row.first..row.end()).find(|step| row.has(*step)));
        }
    }

    fn compute_node(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        match &expr.node {
            Node::Number { value, .. } => Ok(Computed::Scalar(vec![*value; steps.count])),
            Node::Selector(selector) => {
                self.instant_vector(selector, steps, SelectorOutput::Values, expr.span).map(Computed::Vector)
            }
            Node::Parentheses(inner) => self.compute(inner, steps),
            Node::Sign { negative, inner } => self.sign(*negative, inner, steps),
            Node::Chain(chain) => self.chain(chain, steps),
            Node::Aggregate(aggregate) => self.aggregate(aggregate, expr.span, steps).map(Computed::Vector),
            Node::SampleAggregate(aggregate) => {
                self.aggregate_samples(aggregate, expr.span, steps).map(Computed::Vector)
            }
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
}

/// Returns whether Prometheus collects the resulting series step by step, so that series that have a value earlier come first.
fn is_ordered_by_steps(expr: &Expr) -> bool {
    match &expr.node {
        Node::Chain(_) => true,
        Node::Call(call) => !matches!(
            call.signature.function,
            Function::Range(_) | Function::LabelReplace | Function::LabelJoin | Function::Info
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

/// The name of a step in traces; `None` for expressions that do nothing themselves or are reported where series are read.
pub(crate) fn step_name(expr: &Expr) -> Option<&'static str> {
    match &expr.node {
        Node::Number { .. } | Node::Text(_) | Node::Parentheses(_) | Node::Range(_) | Node::Subquery(_) => None,
        Node::Selector(selector) => (selector.edges == Edges::Smoothed).then_some("smoothed"),
        Node::Sign { .. } => Some("sign"),
        Node::Chain(chain) => chain.last_operator().map(Operator::name),
        Node::Aggregate(aggregate) => Some(aggregate.operation.name()),
        Node::SampleAggregate(aggregate) => Some(aggregate.operation.name()),
        Node::Call(call) => {
            let is_range = |argument: &Expr| matches!(argument.unwrapped().node, Node::Range(_));
            let streams = matches!(call.signature.function, Function::Range(_)) && call.arguments.iter().any(is_range);
            (!streams).then_some(call.signature.name)
        }
    }
}

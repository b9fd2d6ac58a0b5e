//! Walks an expression and computes it for all steps at once.

use model::{Labels, METRIC_NAME, MatchOp};
use query::{Budget, QueryError, Source};

use crate::Settings;
use crate::ast::{Expr, ResultKind};
use crate::function::Function;
use crate::notes::Notes;
use crate::rows::{ABSENT, Row, Steps, Vector};
use crate::select::Answers;
use crate::window::WindowFunction;

/// One query under way.
pub(crate) struct Evaluator<'q> {
    pub(crate) source: &'q dyn Source,
    pub(crate) settings: &'q Settings,
    pub(crate) budget: &'q Budget,
    /// What `start()` means.
    pub(crate) query_start_ms: i64,
    /// What `end()` means.
    pub(crate) query_end_ms: i64,
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
                    let value = row.get(0).unwrap_or(ABSENT);
                    vector.push(Row { values: vec![value; steps.count], ..Row::new(row.labels.clone()) })?;
                }
                Ok(Computed::Vector(vector))
            }
        }
    }

    fn compute_steps(&self, expr: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        match expr {
            Expr::Number(number) => Ok(Computed::Scalar(vec![*number; steps.count])),
            Expr::Selector(selector) => self.instant_vector(selector, steps, Answers::Values).map(Computed::Vector),
            Expr::Negate(inner) => self.negate(inner, steps),
            Expr::Binary(binary) => self.binary(binary, steps),
            Expr::Aggregate(aggregate) => self.aggregate(aggregate, steps).map(Computed::Vector),
            Expr::Call(function, arguments) => self.call(*function, arguments, steps),
            Expr::Text(_) | Expr::Range(..) | Expr::Subquery(_) => Err(QueryError::Execution(format!(
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

    fn negate(&self, inner: &Expr, steps: Steps) -> Result<Computed<'q>, QueryError> {
        match self.compute(inner, steps)? {
            Computed::Scalar(mut values) => {
                for value in &mut values {
                    *value = -*value;
                }
                Ok(Computed::Scalar(values))
            }
            Computed::Vector(mut vector) => {
                vector.map(|_, value| -value)?;
                vector.drop_names()?;
                Ok(Computed::Vector(vector))
            }
        }
    }

    fn call(&self, function: Function, arguments: &[Expr], steps: Steps) -> Result<Computed<'q>, QueryError> {
        let vector = match (function, arguments) {
            (Function::Time, []) => {
                return Ok(Computed::Scalar(times_s(steps).collect()));
            }
            (Function::Pi, []) => return Ok(Computed::Scalar(vec![std::f64::consts::PI; steps.count])),
            (Function::Scalar, [input]) => {
                return Ok(Computed::Scalar(only_values(&self.vector(input, steps)?, steps.count)));
            }
            (Function::Vector, [input]) => self.single_row(self.scalar(input, steps)?)?,
            (Function::Math(math), [input]) => self.map_values(input, steps, |_, value| math.apply()(value))?,
            (Function::Date(part), [input]) => self.map_values(input, steps, |_, value| part.at(value as i64))?,
            (Function::Date(part), []) => {
                let values = (0..steps.count).map(|step| part.at(steps.time_ms(step).div_euclid(1000))).collect();
                self.single_row(values)?
            }
            (Function::Clamp | Function::ClampMax | Function::ClampMin | Function::Round, [input, limits @ ..]) => {
                self.limit(function, input, limits, steps)?
            }
            (Function::Timestamp, [Expr::Selector(selector)]) => {
                let mut vector = self.instant_vector(selector, steps, Answers::Timestamps)?;
                vector.drop_names()?;
                vector
            }
            (Function::Timestamp, [input]) => {
                self.map_values(input, steps, |step, _| steps.time_ms(step) as f64 / 1000.0)?
            }
            (Function::Absent, [input]) => {
                let occupied = self.vector(input, steps)?.occupied(steps.count);
                self.absent(input, &occupied)?
            }
            (Function::AbsentOverTime, [input]) => {
                let occupied = self.range_vector(input, steps)?.occupied(steps);
                self.absent(input, &occupied)?
            }
            (Function::Window(window), arguments) => self.window_call(window, arguments, steps)?,
            (Function::HistogramQuantile, [quantile, input]) => self.histogram_quantile(quantile, input, steps)?,
            (Function::HistogramFraction, [lower, upper, input]) => {
                self.histogram_fraction([lower, upper], input, steps)?
            }
            (Function::LabelReplace | Function::LabelJoin, [input, texts @ ..]) => {
                self.relabel(function, input, texts, steps)?
            }
            (
                Function::Sort | Function::SortDescending | Function::SortByLabel | Function::SortByLabelDescending,
                [input, labels @ ..],
            ) => self.sort(function, input, labels, steps)?,
            _ => {
                let name = function.signature().name;
                return Err(QueryError::Execution(format!("wrong number of arguments in call to {name:?}")));
            }
        };
        Ok(Computed::Vector(vector))
    }

    /// A vector of one series without labels.
    fn single_row(&self, values: Vec<f64>) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        vector.push(Row { values, ..Row::new(Labels::empty()) })?;
        Ok(vector)
    }

    fn map_values(
        &self,
        input: &Expr,
        steps: Steps,
        change: impl FnMut(usize, f64) -> f64,
    ) -> Result<Vector<'q>, QueryError> {
        let mut vector = self.vector(input, steps)?;
        vector.map(change)?;
        vector.drop_names()?;
        Ok(vector)
    }

    /// `clamp` and its like, and `round`: functions of a value and of scalars.
    fn limit(&self, function: Function, input: &Expr, limits: &[Expr], steps: Steps) -> Result<Vector<'q>, QueryError> {
        let limits = limits.iter().map(|limit| self.scalar(limit, steps)).collect::<Result<Vec<_>, _>>()?;
        let limit = |place: usize, step: usize| limits.get(place).and_then(|limit| limit.get(step)).copied();
        self.map_values(input, steps, |step, value| {
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
            row.push(step, 1.0);
        }
        let mut vector = Vector::empty(self.budget);
        vector.push(row)?;
        Ok(vector)
    }

    fn window_call(
        &self,
        function: WindowFunction,
        arguments: &[Expr],
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let (ranges, others): (Vec<&Expr>, Vec<&Expr>) =
            arguments.iter().partition(|argument| argument.kind() == ResultKind::RangeVector);
        let scalars = others.iter().map(|scalar| self.scalar(scalar, steps)).collect::<Result<Vec<_>, _>>()?;
        let [range] = ranges.as_slice() else {
            return Err(QueryError::Execution("expected one range vector".to_owned()));
        };
        let range = self.range_vector(range, steps)?;
        if function == WindowFunction::Quantile && !range.series.is_empty() {
            for quantiles in &scalars {
                self.notes.check_quantiles(quantiles);
            }
        }
        self.over_windows(function, &range, &scalars)
    }
}

fn times_s(steps: Steps) -> impl Iterator<Item = f64> {
    (0..steps.count).map(move |step| steps.time_ms(step) as f64 / 1000.0)
}

/// The value where there is exactly one, else NaN.
fn only_values(vector: &Vector<'_>, steps: usize) -> Vec<f64> {
    let mut found = vec![0u8; steps];
    let mut values = vec![f64::NAN; steps];
    for (step, value) in vector.rows.iter().flat_map(Row::present) {
        if let (Some(found), Some(only)) = (found.get_mut(step), values.get_mut(step)) {
            *only = if *found == 0 { value } else { f64::NAN };
            *found = 1;
        }
    }
    values
}

/// To the nearest multiple; ties go up.
fn round(value: f64, nearest: f64) -> f64 {
    let inverse = 1.0 / nearest;
    (value * inverse + 0.5).floor() / inverse
}

/// Nothing if the bounds are crossed; NaN if any of the three is.
fn clamp(value: f64, least: f64, most: f64) -> f64 {
    if most < least {
        return ABSENT;
    }
    if value.is_nan() || least.is_nan() || most.is_nan() {
        return f64::NAN;
    }
    least.max(most.min(value))
}

/// What the labels of an absent series must be, by the selector: those with one equality matcher.
fn labels_of_absent(input: &Expr) -> Result<Labels, QueryError> {
    let (Expr::Selector(selector) | Expr::Range(selector, _)) = input else { return Ok(Labels::empty()) };
    let matchers = || selector.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME);
    let alone = matchers().filter(|matcher| {
        matcher.op == MatchOp::Equal && matchers().filter(|other| other.name == matcher.name).count() == 1
    });
    Labels::from_pairs(alone.map(|matcher| (&matcher.name, &matcher.value)))
        .map_err(|error| QueryError::Execution(error.to_string()))
}

//! From expressions to answers.

use model::Labels;
use query::{Budget, QueryError, Source};

use crate::ast::{Expr, ResultKind};
use crate::eval::{Computed, Evaluator};
use crate::notes::Notes;
use crate::rows::{Row, Steps, Vector};
use crate::{Expression, Settings};

/// Times farther from the epoch than this are refused, so that no sum of times and offsets overflows.
const TIME_MS_MAX: i64 = 1 << 52;

/// What a query yields.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The values.
    pub value: Value,
    /// What is likely wrong, in Prometheus's words; at most ten, and how many more there are.
    pub warnings: Vec<String>,
    /// What may be of interest; as many.
    pub infos: Vec<String>,
}

/// Values; times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// One number.
    Scalar {
        /// The time of evaluation.
        time_ms: i64,
        /// The number.
        value: f64,
    },
    /// A text.
    String {
        /// The time of evaluation.
        time_ms: i64,
        /// The text.
        text: String,
    },
    /// One sample per series, all at the time of evaluation. The order is that of the expression, if it has one
    /// (`sort`, `topk`).
    Vector(Vec<(Labels, i64, f64)>),
    /// Samples per series, in order of the labels.
    Matrix(Vec<(Labels, Vec<(i64, f64)>)>),
}

/// Evaluates an expression at one instant.
///
/// A range vector yields its raw samples as [`Value::Matrix`]; scalars, strings and instant vectors yield their like.
pub fn evaluate_instant(
    expression: &Expression,
    source: &dyn Source,
    time_ms: i64,
    settings: &Settings,
    budget: &Budget,
) -> Result<Answer, QueryError> {
    check_times(&[time_ms], settings)?;
    let evaluator = evaluator(source, settings, budget, [time_ms, time_ms]);
    let steps = Steps::one(time_ms);
    let value = match (&expression.0, expression.result_kind()) {
        (Expr::Text(text), _) => Value::String { time_ms, text: text.clone() },
        (expr, ResultKind::RangeVector) => range_samples(&evaluator, expr, steps)?,
        (expr, _) => match evaluator.compute(expr, steps)? {
            Computed::Scalar(values) => Value::Scalar { time_ms, value: values.first().copied().unwrap_or(f64::NAN) },
            Computed::Vector(vector) => samples(&vector, time_ms)?,
        },
    };
    Ok(answer(value, evaluator.notes))
}

/// Evaluates an expression at every step from start to end, both included; always yields a [`Value::Matrix`].
///
/// As in Prometheus, range vectors and strings are refused, and a scalar is a series without labels.
pub fn evaluate_range(
    expression: &Expression,
    source: &dyn Source,
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
    settings: &Settings,
    budget: &Budget,
) -> Result<Answer, QueryError> {
    check_times(&[start_ms, end_ms], settings)?;
    if step_ms <= 0 {
        return Err(QueryError::Invalid(
            "zero or negative query resolution step widths are not accepted. Try a positive integer".to_owned(),
        ));
    }
    if end_ms < start_ms {
        return Err(QueryError::Invalid("end timestamp must not be before start time".to_owned()));
    }
    if let kind @ (ResultKind::RangeVector | ResultKind::String) = expression.result_kind() {
        return Err(QueryError::Invalid(format!(
            "invalid expression type {:?} for range query, must be Scalar or instant Vector",
            kind.name()
        )));
    }
    let evaluator = evaluator(source, settings, budget, [start_ms, end_ms]);
    let steps = Steps { start_ms, step_ms, count: evaluator.step_count(start_ms, end_ms, step_ms)? };
    let mut matrix = match evaluator.compute(&expression.0, steps)? {
        Computed::Scalar(values) => vec![points(&Row { values, ..Row::new(Labels::empty()) }, steps)],
        Computed::Vector(vector) => {
            let mut matrix = Vec::with_capacity(vector.rows.len());
            for row in &vector.rows {
                budget.check()?;
                matrix.push(points(row, steps));
            }
            matrix
        }
    };
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(answer(Value::Matrix(matrix), evaluator.notes))
}

fn evaluator<'q>(
    source: &'q dyn Source,
    settings: &'q Settings,
    budget: &'q Budget,
    [query_start_ms, query_end_ms]: [i64; 2],
) -> Evaluator<'q> {
    Evaluator { source, settings, budget, query_start_ms, query_end_ms, notes: Notes::default() }
}

fn check_times(times_ms: &[i64], settings: &Settings) -> Result<(), QueryError> {
    let bounds = -TIME_MS_MAX..=TIME_MS_MAX;
    let lookback_ms = &settings.lookback_ms;
    match times_ms.iter().chain([lookback_ms, &settings.subquery_step_ms]).find(|time| !bounds.contains(time)) {
        Some(outside) => Err(QueryError::Invalid(format!("time out of range: {outside} ms"))),
        None => Ok(()),
    }
}

fn answer(value: Value, notes: Notes) -> Answer {
    let (warnings, infos) = notes.into_lists();
    Answer { value, warnings, infos }
}

fn points(row: &Row, steps: Steps) -> (Labels, Vec<(i64, f64)>) {
    let points = row.present().map(|(step, value)| (steps.time_ms(step), value));
    (row.labels.clone(), points.collect())
}

fn samples(vector: &Vector<'_>, time_ms: i64) -> Result<Value, QueryError> {
    if crate::rows::has_same_labels(&vector.rows) {
        return Err(crate::rows::same_labels());
    }
    let samples = vector.rows.iter().filter_map(|row| Some((row.labels.clone(), time_ms, row.get(0)?)));
    Ok(Value::Vector(samples.collect()))
}

fn range_samples(evaluator: &Evaluator<'_>, expr: &Expr, steps: Steps) -> Result<Value, QueryError> {
    let series = evaluator.range_vector(expr, steps)?.into_first_window();
    let mut matrix: Vec<(Labels, Vec<(i64, f64)>)> = series
        .into_iter()
        .map(|series| (series.labels, series.timestamps_ms.into_iter().zip(series.values).collect()))
        .collect();
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Value::Matrix(matrix))
}

//! From expressions to answers.

use std::sync::Arc;

use model::Labels;
use query::{Budget, QueryError, Source};

use crate::eval::{Computed, Evaluator, step_count};
use crate::histogram::Histogram;
use crate::inner::Keeper;
use crate::notes::Notes;
use crate::plan::{Times, settle};
use crate::rows::{Row, Sample, Steps, Vector};
use crate::syntax::ast::{Expr, Node, ResultKind};
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
    Vector(Vec<VectorSample>),
    /// Samples per series, in order of the labels.
    Matrix(Vec<(Labels, Points)>),
}

/// A series' value at one time: the float, or the histogram if there is one.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorSample {
    /// The series.
    pub labels: Labels,
    /// The time, in milliseconds.
    pub time_ms: i64,
    /// The value, unless there is a histogram.
    pub value: f64,
    /// The histogram, if the value is one.
    pub histogram: Option<Arc<Histogram>>,
}

/// A series' values with their times in milliseconds: floats, and histograms.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Points {
    /// In order of time.
    pub floats: Vec<(i64, f64)>,
    /// In order of time.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
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
    let expr = settle(&expression.expr, Times { start_ms: time_ms, end_ms: time_ms, step_ms: 0 })?;
    let evaluator = Evaluator::new(source, settings, budget);
    let steps = Steps::one(time_ms);
    let value = match (&expr.unwrapped().node, expr.kind()) {
        (Node::Text(text), _) => Value::String { time_ms, text: text.clone() },
        (_, ResultKind::RangeVector) => range_samples(&evaluator, &expr, steps)?,
        _ => match evaluator.compute(&expr, steps)? {
            Computed::Scalar(values) => Value::Scalar { time_ms, value: values.first().copied().unwrap_or(f64::NAN) },
            Computed::Vector(mut vector) => {
                vector.drop_marked_names()?;
                samples(&vector, time_ms)?
            }
        },
    };
    Ok(answer(value, evaluator.notes, &expression.text))
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
    let evaluation = Evaluation { source, settings, budget, keeper: None };
    let (matrix, notes) = matrix(expression, (start_ms, end_ms, step_ms), &evaluation)?;
    Ok(answer(Value::Matrix(matrix), notes, &expression.text))
}

/// How many steps a range query has, if it is right as far as can be told before it is evaluated.
pub fn range_steps(
    expression: &Expression,
    (start_ms, end_ms, step_ms): (i64, i64, i64),
    settings: &Settings,
) -> Result<usize, QueryError> {
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
    step_count(settings, start_ms, end_ms, step_ms)
}

/// What a range query is evaluated on, and how.
#[derive(Clone, Copy)]
pub struct Evaluation<'a> {
    /// Where series come from.
    pub source: &'a dyn Source,
    /// How expressions are evaluated.
    pub settings: &'a Settings,
    /// What may be used.
    pub budget: &'a Budget,
    /// Who keeps expressions within the query's, if anybody does.
    pub keeper: Option<&'a dyn Keeper>,
}

/// The series of a range query's answer with their values, and what is to be told of them.
pub(crate) fn matrix(
    expression: &Expression,
    (start_ms, end_ms, step_ms): (i64, i64, i64),
    evaluation: &Evaluation<'_>,
) -> Result<(Vec<(Labels, Points)>, Notes), QueryError> {
    let Evaluation { source, settings, budget, keeper } = *evaluation;
    let count = range_steps(expression, (start_ms, end_ms, step_ms), settings)?;
    let expr = settle(&expression.expr, Times { start_ms, end_ms, step_ms })?;
    let steps = Steps { start_ms, step_ms, count };
    let may_be_cut = expression.reads_stepwise(settings).is_some();
    let evaluator = Evaluator { may_be_cut, keeper, ..Evaluator::new(source, settings, budget) };
    evaluator.steps.set(Some(steps));
    let mut matrix = match evaluator.compute(&expr, steps)? {
        Computed::Scalar(values) => vec![points(&Row::of_floats(Labels::empty(), values), steps)],
        Computed::Vector(mut vector) => {
            vector.drop_marked_names()?;
            let mut matrix = Vec::with_capacity(vector.rows.len());
            for row in &vector.rows {
                budget.check()?;
                matrix.push(points(row, steps));
            }
            matrix
        }
    };
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((matrix, evaluator.notes))
}

pub(crate) fn check_times(times_ms: &[i64], settings: &Settings) -> Result<(), QueryError> {
    let bounds = -TIME_MS_MAX..=TIME_MS_MAX;
    let lookback_ms = &settings.lookback_ms;
    match times_ms.iter().chain([lookback_ms, &settings.subquery_step_ms]).find(|time| !bounds.contains(time)) {
        Some(outside) => Err(QueryError::Invalid(format!("time out of range: {outside} ms"))),
        None => Ok(()),
    }
}

pub(crate) fn answer(value: Value, notes: Notes, text: &str) -> Answer {
    let (warnings, infos) = notes.into_lists(text);
    Answer { value, warnings, infos }
}

pub(crate) fn points(row: &Row, steps: Steps) -> (Labels, Points) {
    let mut points = Points::default();
    for (step, sample) in row.present() {
        let time_ms = steps.time_ms(step);
        match sample {
            Sample::Float(value) => points.floats.push((time_ms, value)),
            Sample::Histogram(histogram) => points.histograms.push((time_ms, histogram)),
        }
    }
    (row.labels.clone(), points)
}

fn samples(vector: &Vector<'_>, time_ms: i64) -> Result<Value, QueryError> {
    if crate::rows::has_same_labels(&vector.rows) {
        return Err(crate::rows::same_labels());
    }
    let samples = vector.rows.iter().filter_map(|row| {
        let labels = row.labels.clone();
        Some(match row.get(0)? {
            Sample::Float(value) => VectorSample { labels, time_ms, value, histogram: None },
            Sample::Histogram(histogram) => {
                VectorSample { labels, time_ms, value: histogram.sum(), histogram: Some(histogram) }
            }
        })
    });
    Ok(Value::Vector(samples.collect()))
}

fn range_samples(evaluator: &Evaluator<'_>, expr: &Expr, steps: Steps) -> Result<Value, QueryError> {
    let series = evaluator.range_vector(expr, steps)?.into_first_window()?;
    let mut matrix: Vec<(Labels, Points)> = series
        .into_iter()
        .map(|series| {
            let samples = series.samples;
            let floats = samples.timestamps_ms.iter().copied().zip(samples.values).collect();
            let histograms = samples.histogram_timestamps_ms.into_iter().zip(samples.histograms).collect();
            let labels = if series.drop_name { crate::rows::without_name(&series.labels) } else { series.labels };
            (labels, Points { floats, histograms })
        })
        .collect();
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Value::Matrix(matrix))
}

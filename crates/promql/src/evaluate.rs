//! From expressions to results.

use model::Labels;
use query::QueryError;

use crate::cache::partial_range::PartialRange;
use crate::eval::annotations::Annotations;
use crate::eval::evaluator::{Computed, Evaluation, Evaluator};
use crate::eval::rows::{Row, Steps, without_name};
use crate::expression::Expression;
use crate::result::{EvaluationResult, ResultValue, SeriesPoints, points, vector_value};
use crate::settings::EvaluationSettings;
use crate::syntax::ast::{Expr, Node};
use crate::syntax::bind_times::{QueryTimes, bind_times};
use crate::syntax::result_kind::ResultKind;

/// Times farther from the epoch than this are refused, so that no sum of times and offsets overflows.
const TIME_MS_MAX: i64 = 1 << 52;

/// Evaluates an expression at one instant.
///
/// A range vector yields its raw samples as [`ResultValue::Matrix`]; scalars, strings and instant vectors yield their like.
pub fn evaluate_instant(
    expression: &Expression,
    time_ms: i64,
    evaluation: &Evaluation<'_>,
) -> Result<EvaluationResult, QueryError> {
    check_times(&[time_ms], evaluation.settings)?;
    let expr = bind_times(&expression.expr, QueryTimes::instant(time_ms))?;
    let evaluator = Evaluator::new(evaluation);
    let steps = Steps::one(time_ms);
    let value = match (&expr.unwrapped().node, expr.kind()) {
        (Node::Text(text), _) => ResultValue::String { time_ms, text: text.clone() },
        (_, ResultKind::RangeVector) => range_samples(&evaluator, &expr, steps)?,
        _ => match evaluator.compute(&expr, steps)? {
            Computed::Scalar(values) => {
                ResultValue::Scalar { time_ms, value: values.first().copied().unwrap_or(f64::NAN) }
            }
            Computed::Vector(mut vector) => {
                vector.drop_delayed_names()?;
                vector_value(&vector, time_ms)?
            }
        },
    };
    Ok(EvaluationResult::new(value, evaluator.annotations, &expression.text))
}

/// Evaluates an expression at every step from start to end, both included; always yields a [`ResultValue::Matrix`].
///
/// As in Prometheus, range vectors and strings are refused, and a scalar is a series without labels.
pub fn evaluate_range(
    expression: &Expression,
    times: QueryTimes,
    evaluation: &Evaluation<'_>,
) -> Result<EvaluationResult, QueryError> {
    let (matrix, annotations) = matrix(expression, times, evaluation)?;
    Ok(EvaluationResult::new(ResultValue::Matrix(matrix), annotations, &expression.text))
}

/// The result of some steps, as a cache can use it.
#[derive(Debug, Clone, PartialEq)]
pub enum RangeOutcome {
    /// It can be cached, cut and joined.
    Partial(PartialRange),
    /// It cannot: there are histograms, or annotations that belong to the result as a whole.
    Whole(EvaluationResult),
}

/// Like [`evaluate_range`], in a form to be cached where there is one. Only for expressions that have a
/// [`step_read_interval`](Expression::step_read_interval).
pub fn evaluate_partial_range(
    expression: &Expression,
    times: QueryTimes,
    evaluation: &Evaluation<'_>,
) -> Result<RangeOutcome, QueryError> {
    let (matrix, annotations) = matrix(expression, times, evaluation)?;
    let has_histograms = matrix.iter().any(|(_, points)| !points.histograms.is_empty());
    if has_histograms || !annotations.are_by_step() {
        let value = ResultValue::Matrix(matrix);
        return Ok(RangeOutcome::Whole(EvaluationResult::new(value, annotations, expression.text())));
    }
    let infos = annotations.into_step_infos(expression.text());
    let series = matrix.into_iter().map(|(labels, points)| (labels, points.floats)).collect();
    Ok(RangeOutcome::Partial(PartialRange { series, infos }))
}

/// The number of steps of a range query; fails if the query is wrong, as far as that can be known before it is evaluated.
pub fn range_steps(
    expression: &Expression,
    times: QueryTimes,
    settings: &EvaluationSettings,
) -> Result<usize, QueryError> {
    check_times(&[times.start_ms, times.end_ms], settings)?;
    if times.step_ms <= 0 {
        return Err(QueryError::Invalid(
            "zero or negative query resolution step widths are not accepted. Try a positive integer".to_owned(),
        ));
    }
    if times.end_ms < times.start_ms {
        return Err(QueryError::Invalid("end timestamp must not be before start time".to_owned()));
    }
    if let kind @ (ResultKind::RangeVector | ResultKind::String) = expression.result_kind() {
        return Err(QueryError::Invalid(format!(
            "invalid expression type {:?} for range query, must be Scalar or instant Vector",
            kind.name()
        )));
    }
    settings.step_count(times)
}

/// The series of a range query with their values, and its annotations.
fn matrix(
    expression: &Expression,
    times: QueryTimes,
    evaluation: &Evaluation<'_>,
) -> Result<(Vec<(Labels, SeriesPoints)>, Annotations), QueryError> {
    let settings = evaluation.settings;
    let count = range_steps(expression, times, settings)?;
    let expr = bind_times(&expression.expr, times)?;
    let steps = Steps { start_ms: times.start_ms, step_ms: times.step_ms, count };
    let is_stepwise = expression.step_read_interval(settings).is_some();
    let evaluator = Evaluator { is_stepwise, ..Evaluator::new(evaluation) };
    evaluator.steps.set(Some(steps));
    let mut matrix = match evaluator.compute(&expr, steps)? {
        Computed::Scalar(values) => vec![points(&Row::from_floats(Labels::empty(), values), steps)],
        Computed::Vector(mut vector) => {
            vector.drop_delayed_names()?;
            let mut matrix = Vec::with_capacity(vector.rows.len());
            for row in &vector.rows {
                evaluation.budget.check()?;
                matrix.push(points(row, steps));
            }
            matrix
        }
    };
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok((matrix, evaluator.annotations))
}

pub(crate) fn check_times(times_ms: &[i64], settings: &EvaluationSettings) -> Result<(), QueryError> {
    let bounds = -TIME_MS_MAX..=TIME_MS_MAX;
    let lookback_ms = &settings.lookback_ms;
    match times_ms.iter().chain([lookback_ms, &settings.subquery_step_ms]).find(|time| !bounds.contains(time)) {
        Some(outside) => Err(QueryError::Invalid(format!("time out of range: {outside} ms"))),
        None => Ok(()),
    }
}

fn range_samples(evaluator: &Evaluator<'_>, expr: &Expr, steps: Steps) -> Result<ResultValue, QueryError> {
    let series = evaluator.range_vector(expr, steps)?;
    let series = series.into_first_window(&evaluator.annotations, evaluator.budget)?;
    let mut matrix: Vec<(Labels, SeriesPoints)> = series
        .into_iter()
        .map(|series| {
            let samples = series.samples;
            let floats = samples.timestamps_ms.iter().copied().zip(samples.values).collect();
            let histograms = samples.histogram_timestamps_ms.into_iter().zip(samples.histograms).collect();
            let labels = if series.drop_name { without_name(&series.labels) } else { series.labels };
            (labels, SeriesPoints { floats, histograms })
        })
        .collect();
    matrix.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(ResultValue::Matrix(matrix))
}

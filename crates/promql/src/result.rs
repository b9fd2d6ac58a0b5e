//! The results of queries.

use std::sync::Arc;

use model::Labels;
use query::QueryError;

use crate::eval::annotations::Annotations;
use crate::eval::rows::{Row, Sample, Steps, Vector, has_same_labels, same_labels};
use crate::histogram::native::Histogram;

/// The result of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct EvaluationResult {
    /// The values.
    pub value: ResultValue,
    /// Likely mistakes, in Prometheus's words; at most ten, and how many more there are.
    pub warnings: Vec<String>,
    /// Information that may be of interest; as many.
    pub infos: Vec<String>,
}

/// Values; times are milliseconds since the Unix epoch.
#[derive(Debug, Clone, PartialEq)]
pub enum ResultValue {
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
    Matrix(Vec<(Labels, SeriesPoints)>),
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
pub struct SeriesPoints {
    /// In order of time.
    pub floats: Vec<(i64, f64)>,
    /// In order of time.
    pub histograms: Vec<(i64, Arc<Histogram>)>,
}

impl EvaluationResult {
    /// Annotations get their positions in the expression's text.
    pub(crate) fn new(value: ResultValue, annotations: Annotations, text: &str) -> Self {
        let (warnings, infos) = annotations.into_lists(text);
        Self { value, warnings, infos }
    }
}

/// A row with the times of its steps.
pub(crate) fn points(row: &Row, steps: Steps) -> (Labels, SeriesPoints) {
    let mut points = SeriesPoints::default();
    for (step, sample) in row.present() {
        let time_ms = steps.time_ms(step);
        match sample {
            Sample::Float(value) => points.floats.push((time_ms, value)),
            Sample::Histogram(histogram) => points.histograms.push((time_ms, histogram)),
        }
    }
    (row.labels.clone(), points)
}

/// The value of an instant query.
pub(crate) fn vector_value(vector: &Vector<'_>, time_ms: i64) -> Result<ResultValue, QueryError> {
    if has_same_labels(&vector.rows) {
        return Err(same_labels());
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
    Ok(ResultValue::Vector(samples.collect()))
}

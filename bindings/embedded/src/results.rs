//! What each language gives, as rows of one table.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use db::{Db, InstantQuery, RangeQuery};
use influxql::FlatTable;
use model::{Column, Values};
use promql::{EvaluationResult, Histogram, ResultValue, SeriesPoints, VectorSample};
use query::{Budget, Frame, FrameColumn, SqlType, Value};
use serde_json::Value as Json;
use sql::{Answer, ClientContext, Relation};

use crate::batches::Rows;
use crate::error::{Code, Error};

const NS_PER_MS: i64 = 1_000_000;

/// Rows, and remarks on them.
pub(crate) struct Answered {
    pub(crate) rows: Rows,
    pub(crate) warnings: Vec<String>,
}

/// Statements of SQL one after the other; the last one's table. One that gives none gives its tag in the column `status`.
pub(crate) fn sql(
    db: &Db,
    database: &str,
    text: &str,
    parameters: Vec<Value>,
    budget: &Arc<Budget>,
) -> Result<Answered, Error> {
    let parsed = sql::parse(text)?;
    let client = ClientContext { parameters, ..ClientContext::new(database, db.now_ns()) };
    let mut last = None;
    for index in 0..parsed.statements.len() {
        if parsed.account_statement(index).is_some() || parsed.trigger_statement(index).is_some() {
            let message = "accounts and triggers are the server's: in process there are none";
            return Err(Error::new(Code::Unsupported, message));
        }
        last = Some(db.sql(&parsed, index, &client, budget)?);
    }
    let rows = match last {
        None => return Err(Error::invalid("the text has no statement")),
        Some(Answer::Table(table)) => Rows::from_table(table),
        Some(Answer::Rows(relation) | Answer::Returned(relation, _)) => Rows::from_relation(relation),
        Some(Answer::Done(tag)) => Rows::from_relation(status(&tag)),
        Some(Answer::Set(_)) => Rows::from_relation(status("SET")),
        Some(Answer::CopyOut(_) | Answer::CopyIn(_)) => {
            let message = "COPY is of Postgres's protocol: a query gives rows here, and rows are written as columns";
            return Err(Error::new(Code::Unsupported, message));
        }
    };
    Ok(Answered { rows, warnings: client.notices.take() })
}

fn status(tag: &str) -> Relation {
    let column = sql::Column::new("status", SqlType::Text);
    Relation { columns: vec![column], rows: vec![vec![Value::text(tag)]] }
}

/// The values of `$1`, `$2` …: a JSON array of numbers, texts, booleans and nulls; an empty text stands for none.
pub(crate) fn parameters(text: &str) -> Result<Vec<Value>, Error> {
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let Ok(Json::Array(values)) = serde_json::from_str(text) else {
        return Err(Error::invalid(format!("parameters are a JSON array such as [\"a\", 1.5, null], not {text}")));
    };
    values.into_iter().map(parameter).collect()
}

fn parameter(value: Json) -> Result<Value, Error> {
    Ok(match value {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(value),
        Json::String(text) => Value::text(text),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Value::Int(number),
            (None, Some(number)) => Value::Float(number),
            (None, None) => return Err(Error::invalid(format!("the parameter {number} is beyond all numbers"))),
        },
        other => return Err(Error::invalid(format!("the parameter {other} is no number, text, boolean or null"))),
    })
}

/// Statements of InfluxQL, as the one table that InfluxDB 3 makes of their series.
pub(crate) fn influxql(db: &Db, database: &str, text: &str, budget: &Arc<Budget>) -> Result<Answered, Error> {
    let query = influxql::Query::parse(text, &BTreeMap::new())?;
    let request = influxql::RequestContext { database: Some(database), read_only: false };
    let (mut series, mut warnings) = (Vec::new(), Vec::new());
    for number in 0..query.len() {
        if query.account_statement(number).is_some() || query.subscription_statement(number).is_some() {
            let message = "accounts and subscriptions are the server's: in process there are none";
            return Err(Error::new(Code::Unsupported, message));
        }
        let answer = db.run_influxql(&query, number, &request, budget)?;
        series.extend(answer.series);
        warnings.extend(answer.messages);
    }
    let FlatTable { columns, rows } = FlatTable::new(&series);
    let columns = columns.into_iter().map(|name| sql::Column::new(name, SqlType::Unknown)).collect();
    Ok(Answered { rows: Rows::from_relation(Relation { columns, rows }), warnings })
}

/// PromQL at one moment.
pub(crate) fn instant(db: &Db, database: &str, query: &InstantQuery) -> Result<Answered, Error> {
    Ok(evaluated(db.instant(database, query)?))
}

/// PromQL at regular moments.
pub(crate) fn range(db: &Db, database: &str, query: &RangeQuery) -> Result<Answered, Error> {
    Ok(evaluated(db.range(database, query)?))
}

/// A row for each sample: its time, its labels, and its value (or its histogram, as Prometheus's JSON has it).
fn evaluated(result: EvaluationResult) -> Answered {
    let frames = match result.value {
        ResultValue::Scalar { time_ms, value } => vec![frame(model::Labels::empty(), &[(time_ms, value)])],
        ResultValue::String { time_ms, text } => vec![texts(model::Labels::empty(), "value", vec![(time_ms, text)])],
        ResultValue::Vector(samples) => no_rows().chain(samples.into_iter().map(frame_of_sample)).collect(),
        ResultValue::Matrix(series) => no_rows().chain(series.into_iter().flat_map(frames_of_series)).collect(),
    };
    let warnings = result.warnings.into_iter().chain(result.infos).collect();
    Answered { rows: Rows::from_frames(frames), warnings }
}

/// A frame by which the table has the column `value` also where there is no sample.
fn no_rows() -> impl Iterator<Item = Frame> {
    std::iter::once(frame(model::Labels::empty(), &[]))
}

fn frame_of_sample(sample: VectorSample) -> Frame {
    match sample.histogram {
        None => frame(sample.labels, &[(sample.time_ms, sample.value)]),
        Some(histogram) => histograms(sample.labels, &[(sample.time_ms, histogram)]),
    }
}

fn frames_of_series((labels, points): (model::Labels, SeriesPoints)) -> Vec<Frame> {
    let mut frames = Vec::new();
    if !points.histograms.is_empty() {
        frames.push(histograms(labels.clone(), &points.histograms));
    }
    if !points.floats.is_empty() {
        frames.push(frame(labels, &points.floats));
    }
    frames
}

fn frame(labels: model::Labels, points: &[(i64, f64)]) -> Frame {
    let times_ns = points.iter().map(|(time_ms, _)| time_ms.saturating_mul(NS_PER_MS)).collect();
    let values = points.iter().map(|(_, value)| *value).collect();
    Frame::new(labels, times_ns, vec![column("value", Values::F64(values))])
}

fn histograms(labels: model::Labels, points: &[(i64, Arc<Histogram>)]) -> Frame {
    texts(labels, "histogram", points.iter().map(|(time_ms, histogram)| (*time_ms, json(histogram))).collect())
}

fn texts(labels: model::Labels, name: &str, points: Vec<(i64, String)>) -> Frame {
    let (times_ns, values) =
        points.into_iter().map(|(time_ms, text)| (time_ms.saturating_mul(NS_PER_MS), text)).unzip();
    Frame::new(labels, times_ns, vec![column(name, Values::Text(values))])
}

fn column(name: &str, values: Values) -> FrameColumn {
    FrameColumn { name: name.into(), cells: Column::of_values(values) }
}

/// A native histogram as Prometheus's JSON has it.
fn json(histogram: &Histogram) -> String {
    let (count, sum, buckets) = histogram.json_parts();
    let mut out = format!(r#"{{"count":"{count}","sum":"{sum}","buckets":["#);
    for (index, (bounds, [lower, upper, count])) in buckets.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // Writing into a string does not fail.
        let _ = write!(out, r#"{comma}[{bounds},"{lower}","{upper}","{count}"]"#);
    }
    out.push_str("]}");
    out
}

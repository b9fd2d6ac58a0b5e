//! `/api/v1/plan`: queries in the s-expression language.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use query::arrow::{self, FrameBatches, STREAM_MEDIA_TYPE};
use query::{FOLDED_WARNING, Frame, FrameColumn, Outcome, Values};

use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::explain::{Explain, analyzed, planned};
use crate::http::json;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::{RequestParts, extract};
use crate::http::rows_json::{Floats, push_cell};
use crate::state::State;

pub(crate) async fn plan(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let explain = Explain::from_parameters(&parts.parameters)?;
    let text = text(&parts)?;
    let plan = state.db.parse_plan(&text)?;
    if explain == Explain::Plan {
        return Ok(json::success(&planned(&plan.to_string()), &[], &[]));
    }
    let budget = state.query_budget(&parts);
    let asked = QueryJob::new(&state, "plan", &text, &budget, &parts)?;
    let database = parts.parameters.database(&parts.headers);
    if explain == Explain::No && wants_arrow(&parts)? {
        let of_query = budget.clone();
        let work = move |state: &State| {
            let frames = state.db.run_plan(&database, &plan, &of_query)?.frames;
            let batches = FrameBatches::of_all(&frames);
            Ok((arrow::stream(&batches.schema(), batches)?, ()))
        };
        let (stream, ()) = run_query(&state, asked, work).await?;
        let mut response = ([(header::CONTENT_TYPE, STREAM_MEDIA_TYPE)], stream).into_response();
        ReadTimes::attach(&mut response, &budget);
        return Ok(response);
    }
    let of_query = budget.clone();
    let (data, ()) = run_query(&state, asked, move |state| {
        let outcome = state.db.run_plan(&database, &plan, &of_query)?;
        let Outcome { frames: found, steps, reads } = &outcome;
        let is_analyzed = explain == Explain::Analyze;
        Ok((if is_analyzed { analyzed(&plan.to_string(), steps, reads) } else { frames(found) }, ()))
    })
    .await?;
    let warnings: Vec<String> = budget.is_folded().then(|| FOLDED_WARNING.to_owned()).into_iter().collect();
    let mut response = json::success(&data, &warnings, &[]);
    ReadTimes::attach(&mut response, &budget);
    Ok(response)
}

/// Whether the frames are to come as one table in Arrow's stream.
fn wants_arrow(parts: &RequestParts) -> Result<bool, ApiError> {
    let accepts = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match parts.parameters.get("format") {
        None => Ok(accepts.split(',').any(|accepted| accepted.trim().starts_with(STREAM_MEDIA_TYPE))),
        Some("json") => Ok(false),
        Some("arrow") => Ok(true),
        Some(_) => Err(ApiError::invalid_parameter("format", "it is json or arrow")),
    }
}

/// The parameter `query`, or the body if it is not a form.
fn text(parts: &RequestParts) -> Result<String, ApiError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if parts.parameters.get("query").is_none()
        && !parts.body.is_empty()
        && !content_type.starts_with("application/x-www-form-urlencoded")
    {
        return String::from_utf8(parts.body.clone()).map_err(|_| ApiError::bad_data("the query is not UTF-8"));
    }
    parts.parameters.required("query").map(str::to_owned)
}

/// `{"resultType":"frames","result":[{"labels":{…},"columns":[{"name":"time","type":"timestamp_ns","values":[…]},…]}]}`
fn frames(frames: &[Frame]) -> String {
    let mut out = String::from(r#"{"resultType":"frames","result":["#);
    for (place, frame) in frames.iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        let _ = write!(
            out,
            r#"{{"labels":{},"columns":[{{"name":"time","type":"timestamp_ns","values":["#,
            json::labels(&frame.labels)
        );
        for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
            let _ = write!(out, "{}{time_ns}", if row == 0 { "" } else { "," });
        }
        out.push_str("]}");
        frame.columns.iter().for_each(|column| push_column(&mut out, column, frame.rows()));
        out.push_str("]}");
    }
    out.push_str("]}");
    out
}

fn push_column(out: &mut String, column: &FrameColumn, rows: usize) {
    let kind = match column.cells.values {
        Values::F64(_) => "f64",
        Values::I64(_) => "i64",
        Values::U64(_) => "u64",
        Values::Bool(_) => "bool",
        Values::Text(_) => "string",
    };
    let _ = write!(out, r#",{{"name":{},"type":"{kind}","values":["#, json::text(&column.name));
    for row in 0..rows {
        out.push_str(if row == 0 { "" } else { "," });
        push_cell(out, column.cell(row), Floats::Plain);
    }
    out.push_str("]}");
}

//! OpenTSDB's `POST /api/put`.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ingest::{Protocol, opentsdb};

use super::{Outcome, Reason, with_retry, with_retry_after};
use crate::error::ApiError;
use crate::http::body::body_error;
use crate::http::json;
use crate::http::request::{RequestParts, extract_write};
use crate::http::text::Text;
use crate::state::State;

/// How much the sender wants to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Nothing,
    Summary,
    Details,
}

pub(crate) async fn put(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        let has = |name| parts.parameters.has(name);
        let detail = match (has("details"), has("summary")) {
            (true, _) => Detail::Details,
            (false, true) => Detail::Summary,
            (false, false) => Detail::Nothing,
        };
        let outcome = state.work_of(&parts.tenant.clone(), move |state| write_points(state, parts)).await??;
        Ok((outcome, detail))
    };
    match written.await {
        Ok((outcome, detail)) => answer(&outcome, detail),
        Err(error) => failure(&error, ""),
    }
}

fn write_points(state: &State, parts: RequestParts) -> Result<Outcome, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    let options = opentsdb::Options { hasher: state.hasher(Protocol::Opentsdb, &to)?, limits: state.db.limits() };
    body.parse(|json| {
        let parsed = opentsdb::parse_json(json, &options).map_err(|error| body_error(&error))?;
        state.store("opentsdb", &to, parsed)
    })
}

/// As OpenTSDB answers: 204, or 400 if a point was not parts; with what was asked for.
fn answer(outcome: &Outcome, detail: Detail) -> Response {
    let status = if outcome.dropped == 0 { StatusCode::OK } else { outcome.status() };
    if detail == Detail::Nothing {
        if outcome.dropped == 0 {
            return StatusCode::NO_CONTENT.into_response();
        }
        let message = "One or more data points had errors".to_owned();
        let error = ApiError::new(status, "bad_data", message);
        return failure(&error, "Append \\\"details\\\" to the put request to see them");
    }
    let mut body = String::from("{");
    if detail == Detail::Details {
        body.push_str(r#""errors":["#);
        for (place, Reason { line: point, text, .. }) in outcome.reasons.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(body, r#"{comma}{{"datapoint":{point},"error":{}}}"#, json::text(text));
        }
        body.push_str("],");
    }
    let _ = write!(body, r#""failed":{},"success":{}}}"#, outcome.dropped, outcome.written);
    with_retry(status, (status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// `details` is JSON's text already.
fn failure(error: &ApiError, details: &str) -> Response {
    let body = format!(
        r#"{{"error":{{"code":{},"message":{},"details":"{details}"}}}}"#,
        error.status.as_u16(),
        json::text(&error.message)
    );
    let response = (error.status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    with_retry_after(error.status, error.retry_after_s(), response)
}

//! What InfluxDB's clients expect of an answer to a write.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::{Parameters, bucket_database};
use crate::http::write::{Outcome, with_retry, with_retry_after};

/// The kind of errors of what is there already.
pub(crate) const CONFLICT: &str = "conflict";

/// The version of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V1,
    V2,
    V3,
}

/// The database that a write names: by `bucket` alone in version 2, by `db` alone in the others.
pub(crate) fn written_database(version: Version, parameters: &Parameters) -> Result<&str, ApiError> {
    let named = match version {
        Version::V2 => parameters.get("bucket").map(bucket_database).transpose()?,
        Version::V1 => parameters.get("db"),
        Version::V3 => Some(parameters.required("db")?),
    };
    Ok(named.unwrap_or(model::DEFAULT_DATABASE))
}

/// A line that was not taken.
#[derive(Debug)]
pub(crate) struct BadLine {
    /// Counted from 1.
    pub(crate) line: u32,
    /// Its beginning.
    pub(crate) text: String,
    pub(crate) reason: String,
}

/// The third interface's answer: 204, or the status with the lines one by one.
pub(crate) fn answer_v3(status: StatusCode, what: &str, bad_lines: &[BadLine]) -> Response {
    if bad_lines.is_empty() {
        return StatusCode::NO_CONTENT.into_response();
    }
    let line = |BadLine { line, text, reason }: &BadLine| {
        let (text, reason) = (json::text(text), json::text(reason));
        format!(r#"{{"original_line":{text},"line_number":{line},"error_message":{reason}}}"#)
    };
    let lines: Vec<String> = bad_lines.iter().map(line).collect();
    let body = format!(r#"{{"error":{},"data":[{}]}}"#, json::text(what), lines.join(","));
    with_retry(status, (status, [(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// 204 if all lines were taken; else 400, or 429 if they are to be sent again, with the lines that were not, and why.
pub(crate) fn answer(version: Version, outcome: &Outcome) -> Response {
    if outcome.dropped == 0 {
        return StatusCode::NO_CONTENT.into_response();
    }
    let code = if outcome.for_now > 0 { "too many requests" } else { "invalid" };
    error(version, outcome.status(), code, &outcome.message())
}

/// An error for the whole request.
pub(crate) fn failure(version: Version, failed: &ApiError) -> Response {
    let code = match failed.status {
        StatusCode::PAYLOAD_TOO_LARGE => "request too large",
        StatusCode::SERVICE_UNAVAILABLE => "unavailable",
        StatusCode::TOO_MANY_REQUESTS => "too many requests",
        StatusCode::INTERNAL_SERVER_ERROR => "internal error",
        StatusCode::NOT_FOUND => "not found",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::UNPROCESSABLE_ENTITY if failed.kind == CONFLICT => CONFLICT,
        _ => "invalid",
    };
    with_retry_after(failed.status, failed.retry_after_s(), error(version, failed.status, code, &failed.message))
}

fn error(version: Version, status: StatusCode, code: &str, message: &str) -> Response {
    let text = json::text(message);
    let body = match version {
        Version::V1 | Version::V3 => format!(r#"{{"error":{text}}}"#),
        Version::V2 => format!(r#"{{"code":{},"message":{text}}}"#, json::text(code)),
    };
    // A header holds printable ASCII only; the body has the whole text.
    let plain: String = message
        .chars()
        .map(|character| if (' '..='~').contains(&character) { character } else { ' ' })
        .take(512)
        .collect();
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::HeaderName::from_static("x-influxdb-error"), plain.as_str()),
    ];
    with_retry(status, (status, headers, body).into_response())
}

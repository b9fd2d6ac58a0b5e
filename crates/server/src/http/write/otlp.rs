//! OpenTelemetry: `POST /v1/metrics`, and the call `MetricsService/Export` of gRPC.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ingest::otlp::{self, Answer};
use ingest::{Parsed, Protocol};

use super::{Outcome, Reason, with_retry_after};
use crate::error::ApiError;
use crate::http::body::{Form, body_error, unpack};
use crate::http::json;
use crate::http::request::{RequestParts, extract_write};
use crate::sign_in::Destination;
use crate::state::State;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";

/// How a body is spelled, and its answer with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Spelling {
    Protobuf,
    Json,
}

/// `POST /v1/metrics`, `POST /api/v1/otlp/v1/metrics`.
pub(crate) async fn metrics(From(state): From<Arc<State>>, request: Request) -> Response {
    let spelling = match spelling_of(&request) {
        Ok(spelling) => spelling,
        Err(error) => return failure(&error, Spelling::Json),
    };
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_http(state, parts, spelling)).await?
    };
    match (written.await, spelling) {
        (Ok(answer), Spelling::Json) => ([(header::CONTENT_TYPE, JSON)], answer.to_json()).into_response(),
        (Ok(answer), Spelling::Protobuf) => ([(header::CONTENT_TYPE, PROTOBUF)], answer.to_protobuf()).into_response(),
        (Err(error), spelling) => failure(&error, spelling),
    }
}

fn spelling_of(request: &Request) -> Result<Spelling, ApiError> {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split(';').next().unwrap_or_default().trim() {
        PROTOBUF | "application/protobuf" => Ok(Spelling::Protobuf),
        JSON => Ok(Spelling::Json),
        other => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bad_data",
            format!("content type {other:?} is not supported; use {PROTOBUF} or {JSON}"),
        )),
    }
}

fn write_http(state: &State, mut parts: RequestParts, spelling: Spelling) -> Result<Answer, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let form = if spelling == Spelling::Json { Form::Text } else { Form::Protobuf };
    let mut body = unpack(state, &parts.headers, parts.body, (&mut parts.share, form))?;
    if spelling == Spelling::Json {
        *body = otlp::json_to_protobuf(&body).map_err(|error| body_error(&error))?;
        parts.share.grow_patiently(body.len())?;
    }
    write_metrics(state, &to, &body)
}

/// Writes an `ExportMetricsServiceRequest`.
pub(crate) fn write_metrics(state: &State, to: &Destination, body: &[u8]) -> Result<Answer, ApiError> {
    let options = otlp::Options {
        hasher: state.hasher(Protocol::Otlp, to)?,
        settings: &state.settings.otlp,
        deltas: &state.otlp_deltas,
        now_ns: state.db.now_ns(),
        limits: state.db.limits(),
    };
    let otlp::Request { batch, errors, points } = otlp::parse(body, &options).map_err(|error| body_error(&error))?;
    let outcome = state.store("otlp", to, Parsed { batch, errors })?;
    if outcome.for_now > 0 {
        // A partial success is final for exporters: they would not send what was refused again.
        return Err(ApiError::later(outcome.number_points().message()));
    }
    Ok(answer(&outcome, points))
}

/// A point of a histogram is many rows; what counts is the point.
fn answer(outcome: &Outcome, points: u64) -> Answer {
    if outcome.dropped == 0 {
        return Answer::default();
    }
    let mut lines: Vec<u32> = outcome.reasons.iter().map(|reason| reason.line).collect();
    lines.dedup();
    let all_told = outcome.reasons.len() as u64 == outcome.dropped;
    let points_rejected = if all_told { lines.len() as u64 } else { outcome.dropped.min(points) };
    let numbered = Outcome { reasons: outcome.reasons.clone(), dropped: outcome.dropped, ..Outcome::default() };
    Answer { points_rejected, message: numbered.number_points().message() }
}

impl Outcome {
    fn number_points(mut self) -> Self {
        for Reason { line: point, text, .. } in &mut self.reasons {
            *text = format!("data point {point}: {text}");
        }
        self
    }
}

/// An error as a `google.rpc.Status`.
fn failure(error: &ApiError, spelling: Spelling) -> Response {
    let code = grpc_code(error.status);
    let answer = match spelling {
        Spelling::Json => {
            let body = format!(r#"{{"code":{code},"message":{}}}"#, json::text(&error.message));
            (error.status, [(header::CONTENT_TYPE, JSON)], body).into_response()
        }
        Spelling::Protobuf => {
            let body = otlp::encode_status(code, &error.message);
            (error.status, [(header::CONTENT_TYPE, PROTOBUF)], body).into_response()
        }
    };
    with_retry_after(error.status, error.retry_after_s(), answer)
}

/// The code of gRPC that says the same to its clients: whether to send again, above all.
pub(crate) fn grpc_code(status: StatusCode) -> u32 {
    match status {
        // A body that is too large is an invalid argument, not RESOURCE_EXHAUSTED, which clients may take for a reason to send
        // the same again.
        StatusCode::BAD_REQUEST | StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::PAYLOAD_TOO_LARGE => 3,
        StatusCode::REQUEST_TIMEOUT => 4,
        StatusCode::UNAUTHORIZED => 16,
        StatusCode::FORBIDDEN => 7,
        StatusCode::NOT_FOUND => 12,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => 14,
        _ => 13,
    }
}

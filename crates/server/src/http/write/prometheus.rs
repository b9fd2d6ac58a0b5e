//! Prometheus's remote write and text exposition.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ingest::encoding::Encoding;
use ingest::remote_write::{self, AcceptedSamples};
use ingest::replicas::{Replicas, Verdict};
use ingest::{Parsed, Protocol, exposition};
use model::{Block, ValueType};

use super::{Outcome, failure, plain_answer};
use crate::error::ApiError;
use crate::http::body::{Form, body_error, unpack_as};
use crate::http::parameters::Parameters;
use crate::http::request::{RequestParts, extract_write};
use crate::http::text::Text;
use crate::sign_in::Destination;
use crate::state::State;

/// The version of the message, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    V1,
    V2,
}

/// The answer to a replica that is not the elected one. The counts of its samples are in the headers, or a sender of version 2 takes
/// the request for failed.
const DUPLICATE: &str = "deduplicated: another replica of the cluster is the elected one\n";

/// What became of a remote-write request.
enum RemoteWrite {
    Stored(Outcome),
    /// Another replica sends the same samples.
    Duplicate,
}

/// `POST /api/v1/write`: Prometheus remote write 1.0 and 2.0.
pub(crate) async fn remote_write(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        let message = check_headers(&parts.headers)?;
        state.work_of(&parts.tenant.clone(), move |state| write_remote(state, parts, message)).await?
    };
    match written.await {
        Ok((result, samples)) => {
            let counts = [
                ("x-prometheus-remote-write-samples-written", samples.samples),
                ("x-prometheus-remote-write-histograms-written", samples.histograms),
                ("x-prometheus-remote-write-exemplars-written", samples.exemplars),
            ];
            let mut response = match result {
                RemoteWrite::Stored(outcome) => plain_answer(&Ok(outcome)),
                RemoteWrite::Duplicate => (StatusCode::ACCEPTED, DUPLICATE).into_response(),
            };
            for (name, count) in counts {
                response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from(count));
            }
            response
        }
        Err(error) => failure(&error),
    }
}

/// The message that the headers announce. A sender that announces another one gets 415; if it is one of version 2, it falls
/// back to version 1.
fn check_headers(headers: &HeaderMap) -> Result<Message, ApiError> {
    let value = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let unsupported = |message: String| Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_data", message));
    let encoding = value(header::CONTENT_ENCODING);
    if !["snappy", ""].contains(&encoding) {
        return unsupported(format!("content encoding {encoding:?} is not supported; remote write uses snappy"));
    }
    let content_type = value(header::CONTENT_TYPE);
    let mut parts = content_type.split(';').map(str::trim);
    if !["", "application/x-protobuf"].contains(&parts.next().unwrap_or_default()) {
        return unsupported(format!("content type {content_type:?} is not supported; use application/x-protobuf"));
    }
    match parts.find_map(|part| part.strip_prefix("proto=")) {
        None | Some("prometheus.WriteRequest") => Ok(Message::V1),
        Some("io.prometheus.write.v2.Request") => Ok(Message::V2),
        Some(other) => unsupported(format!(
            "message {other:?} is not supported; send io.prometheus.write.v2.Request or prometheus.WriteRequest"
        )),
    }
}

fn write_remote(
    state: &State,
    mut parts: RequestParts,
    message: Message,
) -> Result<(RemoteWrite, AcceptedSamples), ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let body = unpack_as(state, Encoding::Snappy, parts.body, (&mut parts.share, Form::Protobuf))?;
    let replicas = admit_replica(state, &to, &body, message)?;
    let hasher = state.hasher(Protocol::RemoteWrite, &to)?;
    let dropped_label = replicas.map(|admitted| admitted.replica_label);
    let options = remote_write::Options { hasher, limits: state.db.limits(), dropped_label };
    let request = match message {
        Message::V1 => remote_write::parse(&body, &options),
        Message::V2 => remote_write::parse_v2(&body, &options),
    };
    let remote_write::WriteRequest { batch, errors, accepted: mut samples } =
        request.map_err(|error| body_error(&error))?;
    if let Some(duplicates) = replicas.and_then(|admitted| admitted.duplicate_of) {
        duplicates.count_duplicate(samples.samples + samples.histograms);
        ingest::recycle(batch);
        return Ok((RemoteWrite::Duplicate, samples));
    }
    let rows: Vec<(bool, Vec<u32>)> = batch.blocks.iter().map(lines_by_kind).collect();
    let outcome = state.store("remote_write", &to, Parsed { batch, errors })?;
    let (floats, histograms) = refused_by_kind(&outcome, &rows);
    samples.samples = samples.samples.saturating_sub(floats);
    samples.histograms = samples.histograms.saturating_sub(histograms);
    Ok((RemoteWrite::Stored(outcome.number_lines()), samples))
}

/// What became of a request that tells which replica of a Prometheus it is of.
#[derive(Clone, Copy)]
struct AdmittedReplica<'a> {
    /// The label that its series lose.
    replica_label: &'a str,
    /// Where it is counted, if another replica is the elected one.
    duplicate_of: Option<&'a Replicas>,
}

/// Finds the replica that sent a body and decides about it; `None` if replicas are not told apart, or the body has none of their labels.
fn admit_replica<'a>(
    state: &'a State,
    to: &Destination,
    body: &[u8],
    message: Message,
) -> Result<Option<AdmittedReplica<'a>>, ApiError> {
    let Some(replicas) = &state.replicas else { return Ok(None) };
    let labels = replicas.labels();
    let found = match message {
        Message::V1 => remote_write::replica(body, labels),
        Message::V2 => remote_write::replica_v2(body, labels),
    };
    let Some(replica) = found.map_err(|error| body_error(&error))? else { return Ok(None) };
    let duplicate_of = match replicas.admit(&to.database, replica, state.db.clock().monotonic_ns()) {
        Verdict::Accepted => None,
        Verdict::Duplicate => Some(replicas),
        Verdict::Refused(reason) => return Err(ApiError::bad_data(reason)),
    };
    Ok(Some(AdmittedReplica { replica_label: &labels.replica, duplicate_of }))
}

/// Whether a block holds histograms, and the lines of its rows.
fn lines_by_kind(block: &Block) -> (bool, Vec<u32>) {
    let of_histograms = block.fields.iter().any(|field| field.value_type == ValueType::Histogram);
    (of_histograms, block.lines.clone())
}

/// How many floats and histograms that were parsed are not written. Where the store does not tell all of them, the answer
/// claims nothing that is not certain.
fn refused_by_kind(outcome: &Outcome, rows: &[(bool, Vec<u32>)]) -> (u64, u64) {
    let total = |of_histograms: bool| {
        let blocks = rows.iter().filter(move |(histograms, _)| *histograms == of_histograms);
        blocks.flat_map(|(_, lines)| lines)
    };
    match &outcome.refused {
        Some(refused) if refused.is_empty() => (0, 0),
        Some(refused) => {
            let refused =
                |of_histograms| total(of_histograms).filter(|line| refused.binary_search(line).is_ok()).count() as u64;
            (refused(false), refused(true))
        }
        None => (total(false).count() as u64, total(true).count() as u64),
    }
}

/// `POST /api/v1/import/prometheus`: the text that a target of Prometheus shows.
pub(crate) async fn exposition(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_exposition(state, parts)).await?
    };
    plain_answer(&written.await)
}

fn write_exposition(state: &State, parts: RequestParts) -> Result<Outcome, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let now_ns = default_time_ns(&parts.parameters)?.unwrap_or_else(|| state.db.now_ns());
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let extra_labels = extra_labels(&parts.parameters)?;
    let format = exposition::Format::from_content_type(content_type);
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    let options = exposition::Options {
        format,
        extra_labels: &extra_labels,
        hasher: state.hasher(Protocol::Exposition, &to)?,
        now_ns,
        limits: state.db.limits(),
    };
    let outcome = body.parse(|lines| {
        let parsed = exposition::parse(lines, &options).map_err(|error| body_error(&error))?;
        state.store("exposition", &to, parsed)
    })?;
    Ok(outcome.number_lines())
}

/// The time of samples that bring none: `timestamp` in milliseconds, as VictoriaMetrics has it.
fn default_time_ns(parameters: &Parameters) -> Result<Option<i64>, ApiError> {
    let read = |text: &str| text.parse::<i64>().ok()?.checked_mul(1_000_000);
    let bad = |text| ApiError::invalid_parameter("timestamp", format!("{text:?} is not a time in milliseconds"));
    parameters.get("timestamp").map(|text| read(text).ok_or_else(|| bad(text))).transpose()
}

/// Labels that every series gets: `extra_label=name=value`, any number of them.
pub(super) fn extra_labels(parameters: &Parameters) -> Result<Vec<(String, String)>, ApiError> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    let bad = |text| ApiError::invalid_parameter("extra_label", format!("{text:?} is not name=value"));
    parameters.all("extra_label").map(|text| pair(text).ok_or_else(|| bad(text))).collect()
}

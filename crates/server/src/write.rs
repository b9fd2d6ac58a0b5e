//! Writing: InfluxDB's line protocol, Prometheus's remote write and text exposition.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::{WriteError, WriteReport};
use ingest::line::{self, Precision};
use ingest::{LineErrors, Protocol, exposition, remote_write};

use crate::body::{body_error, unpack};
use crate::error::ApiError;
use crate::influx::{self, Version};
use crate::parameters::Parameters;
use crate::routes::{Taken, take};
use crate::state::State;

/// How much of a bad line an answer quotes.
const QUOTED_CHARACTERS_MAX: usize = 200;

/// How the catalog's reason begins when a field has another type than before.
const TYPE_CONFLICT: &str = "field type conflict";

/// What became of a request's lines.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    pub(crate) dropped: u64,
    /// Lines (counted from 1) that were not taken, and why; the first ones.
    reasons: Vec<(u32, String)>,
}

impl Outcome {
    fn new(report: WriteReport, errors: LineErrors) -> Self {
        let refused = report.rejected.into_iter().map(|rejected| (rejected.line, rejected.reason));
        let mut reasons: Vec<(u32, String)> =
            errors.first.into_iter().map(|error| (error.line, error.reason)).chain(refused).collect();
        reasons.sort();
        Self { written: report.rows_written, dropped: errors.total + report.rejected_total, reasons }
    }

    /// Quotes the lines as InfluxDB does, for its clients look for the words: `unable to parse 'cpu value=': missing field
    /// value (line 2)`. A conflict of types is no fault of the line's spelling.
    fn quote_lines(mut self, body: &[u8]) -> Self {
        let mut lines = body.split(|byte| *byte == b'\n');
        let mut lines_read = 0;
        let mut quoted = String::new();
        for (line, reason) in &mut self.reasons {
            if *line > lines_read {
                let text = lines.nth((*line - lines_read - 1) as usize).unwrap_or_default().trim_ascii();
                quoted = String::from_utf8_lossy(text).chars().take(QUOTED_CHARACTERS_MAX).collect();
                lines_read = *line;
            }
            *reason = if reason.starts_with(TYPE_CONFLICT) {
                format!("{reason} (line {line})")
            } else {
                format!("unable to parse '{quoted}': {reason} (line {line})")
            };
        }
        self
    }

    /// For the reasons of protocols without a form of their own.
    fn number_lines(mut self) -> Self {
        for (line, reason) in &mut self.reasons {
            *reason = format!("line {line}: {reason}");
        }
        self
    }

    /// The reasons, a line each; if something was written, `partial write: … dropped=2` around them.
    pub(crate) fn message(&self) -> String {
        let mut told: Vec<&str> = self.reasons.iter().map(|(_, reason)| reason.as_str()).collect();
        let more = self.dropped.saturating_sub(told.len() as u64);
        let more = format!("and {more} more");
        if self.dropped > told.len() as u64 {
            told.push(&more);
        }
        let told = told.join("\n");
        if self.written == 0 { told } else { format!("partial write: {told} dropped={}", self.dropped) }
    }
}

impl std::convert::From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Invalid(reason) => Self::bad_data(reason),
            WriteError::Refused(message) => {
                Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "unavailable", message }
            }
        }
    }
}

/// `POST /write`: `db`, `precision`; user, password, retention policy and consistency are accepted and not used.
pub(crate) async fn influx_v1(From(state): From<Arc<State>>, request: Request) -> Response {
    influx(state, request, Version::V1, "db").await
}

/// `POST /api/v2/write`: `bucket`, `precision`; the organisation is accepted and not used.
pub(crate) async fn influx_v2(From(state): From<Arc<State>>, request: Request) -> Response {
    influx(state, request, Version::V2, "bucket").await
}

async fn influx(state: Arc<State>, request: Request, version: Version, database: &'static str) -> Response {
    let written = async {
        let taken = take(&state, request).await?;
        state.work(move |state| write_lines(state, taken, database)).await?
    };
    match written.await {
        Ok(outcome) => influx::answer(version, &outcome),
        Err(error) => influx::failure(version, &error),
    }
}

fn write_lines(state: &State, taken: Taken, database: &str) -> Result<Outcome, ApiError> {
    let precision = taken.parameters.get("precision").unwrap_or("ns");
    let precision = Precision::from_name(precision)
        .ok_or_else(|| ApiError::bad_data(format!("invalid precision {precision:?} (use ns, us, ms, s, m or h)")))?;
    let database = taken.parameters.get(database).unwrap_or(model::DEFAULT_DATABASE).to_owned();
    let body = unpack(state, &taken.headers, taken.body)?;
    let options = line::Options {
        hasher: state.db.key_hasher().scope(Protocol::Line, state.db.database_id(&database)?),
        precision,
        now_ns: state.db.now_ns(),
        limits: state.db.limits(),
    };
    let parsed = line::parse(&body, &options).map_err(|error| body_error(&error))?;
    state.metrics.count_rejected(parsed.errors.total);
    Ok(Outcome::new(state.db.write(&database, &parsed.batch)?, parsed.errors).quote_lines(&body))
}

/// `POST /api/v1/write`: Prometheus remote write 1.0.
pub(crate) async fn remote_write(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    check_remote_write(&taken.headers)?;
    let outcome = state.work(move |state| write_remote(state, &taken)).await?;
    plain_answer(&outcome)
}

/// Version 1 is packed with snappy; a sender of version 2 says so in its content type and falls back on 415.
fn check_remote_write(headers: &HeaderMap) -> Result<(), ApiError> {
    let value =
        |name| headers.get(name).and_then(|value: &header::HeaderValue| value.to_str().ok()).unwrap_or_default();
    let unsupported =
        |message: String| Err(ApiError { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, kind: "bad_data", message });
    let encoding = value(header::CONTENT_ENCODING);
    if !["snappy", ""].contains(&encoding) {
        return unsupported(format!("content encoding {encoding:?} is not supported; remote write uses snappy"));
    }
    let content_type = value(header::CONTENT_TYPE);
    if content_type.contains("io.prometheus.write.v2") {
        return unsupported("remote write 2.0 is not supported; send prometheus.WriteRequest".to_owned());
    }
    if !content_type.is_empty() && !content_type.starts_with("application/x-protobuf") {
        return unsupported(format!("content type {content_type:?} is not supported; use application/x-protobuf"));
    }
    Ok(())
}

fn write_remote(state: &State, taken: &Taken) -> Result<(Outcome, Option<String>), ApiError> {
    let database = taken.parameters.database(&taken.headers);
    let body =
        remote_write::decompress(&taken.body, state.settings.unpacked_bytes_max).map_err(|error| body_error(&error))?;
    let options = remote_write::Options {
        hasher: state.db.key_hasher().scope(Protocol::RemoteWrite, state.db.database_id(&database)?),
        limits: state.db.limits(),
    };
    let request = remote_write::parse(&body, &options).map_err(|error| body_error(&error))?;
    let note = request.dropped_reason();
    state.metrics.count_rejected(request.errors.total);
    state.metrics.count_dropped(request.histograms_dropped, request.exemplars_dropped);
    let report = state.db.write(&database, &request.batch)?;
    Ok((Outcome::new(report, request.errors).number_lines(), note))
}

/// `POST /api/v1/import/prometheus`: the text that a target of Prometheus shows.
pub(crate) async fn exposition(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let taken = take(&state, request).await?;
    let outcome = state.work(move |state| write_exposition(state, taken)).await?;
    plain_answer(&outcome.map(|outcome| (outcome, None)))
}

fn write_exposition(state: &State, taken: Taken) -> Result<Outcome, ApiError> {
    let database = taken.parameters.database(&taken.headers);
    let now_ns =
        taken.parameters.time_ms("timestamp")?.map_or_else(|| state.db.now_ns(), |time_ms| time_ms * 1_000_000);
    let content_type =
        taken.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let extra_labels = extra_labels(&taken.parameters)?;
    let body = unpack(state, &taken.headers, taken.body)?;
    let options = exposition::Options {
        format: exposition::Format::from_content_type(content_type),
        extra_labels: &extra_labels,
        hasher: state.db.key_hasher().scope(Protocol::Exposition, state.db.database_id(&database)?),
        now_ns,
        limits: state.db.limits(),
    };
    let parsed = exposition::parse(&body, &options).map_err(|error| body_error(&error))?;
    state.metrics.count_rejected(parsed.errors.total);
    Ok(Outcome::new(state.db.write(&database, &parsed.batch)?, parsed.errors).number_lines())
}

/// Labels that every series gets: `extra_label=name=value`, any number of them.
fn extra_labels(parameters: &Parameters) -> Result<Vec<(String, String)>, ApiError> {
    let pair = |text: &str| {
        let (name, value) = text.split_once('=')?;
        (!name.is_empty()).then(|| (name.to_owned(), value.to_owned()))
    };
    let bad = |text| ApiError::invalid_parameter("extra_label", format!("{text:?} is not name=value"));
    parameters.all("extra_label").map(|text| pair(text).ok_or_else(|| bad(text))).collect()
}

/// 204 if everything was taken. What was dropped because it is of a kind that is not stored yet is told in a header.
fn plain_answer(outcome: &Result<(Outcome, Option<String>), ApiError>) -> Result<Response, ApiError> {
    match outcome {
        Err(error) => {
            let mut response = error.clone().into_response();
            if error.status == StatusCode::SERVICE_UNAVAILABLE {
                response.headers_mut().insert(header::RETRY_AFTER, influx::RETRY_AFTER_S);
            }
            Ok(response)
        }
        Ok((outcome, _)) if outcome.dropped > 0 => Err(ApiError::bad_data(outcome.message())),
        Ok((_, None)) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok((_, Some(note))) => Ok((StatusCode::NO_CONTENT, [("x-thalweg-dropped", note.clone())]).into_response()),
    }
}

//! Line protocol by the interfaces of InfluxDB 1, 2 and 3.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;
use db::Rejected;
use ingest::line::{self, Precision};
use ingest::{LineError, Parsed, Protocol};

use super::{Outcome, Reason, quoted};
use crate::error::ApiError;
use crate::http::body::body_error;
use crate::http::influx::{self, BadLine, Version};
use crate::http::parameters::bucket_database;
use crate::http::request::{RequestParts, extract_write};
use crate::http::text::Text;
use crate::sign_in::Destination;
use crate::state::State;

/// `POST /write`: `db`, `precision`; user, password, retention policy and consistency are accepted and not used.
pub(crate) async fn influx_v1(From(state): From<Arc<State>>, request: Request) -> Response {
    influx(state, request, Version::V1).await
}

/// `POST /api/v2/write`: `bucket`, `precision`; the organisation is accepted and not used.
pub(crate) async fn influx_v2(From(state): From<Arc<State>>, request: Request) -> Response {
    influx(state, request, Version::V2).await
}

async fn influx(state: Arc<State>, request: Request, version: Version) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_lines(state, parts, version)).await?
    };
    match written.await {
        Ok(outcome) => influx::answer(version, &outcome),
        Err(error) => influx::failure(version, &error),
    }
}

/// Refuses what a subscription of this server sends: it would be sent again without end.
fn refuse_own(state: &State, parts: &RequestParts) -> Result<(), ApiError> {
    let own = views::origin_text(state.db.incarnation());
    if parts.headers.get(views::ORIGIN_HEADER).is_none_or(|origin| origin.as_bytes() != own.as_bytes()) {
        return Ok(());
    }
    Err(ApiError::bad_data(
        "a subscription sends to its own server: its rows would come back to it without end; drop it",
    ))
}

fn write_lines(state: &State, parts: RequestParts, version: Version) -> Result<Outcome, ApiError> {
    if version == Version::V1 {
        refuse_own(state, &parts)?;
    }
    let precision = parts.parameters.get("precision").unwrap_or("ns");
    let precision = Precision::from_name(precision)
        .ok_or_else(|| ApiError::bad_data(format!("invalid precision {precision:?} (use ns, us, ms, s, m or h)")))?;
    let database = match version {
        Version::V2 => parts.parameters.get("bucket").map(bucket_database).transpose()?,
        Version::V1 | Version::V3 => parts.parameters.get("db"),
    };
    let to = state.destination(database.unwrap_or(model::DEFAULT_DATABASE), &parts.caller.scope)?;
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    let options = line_options(state, &to, precision)?;
    let outcome = body.parse(|lines| {
        let parsed = line::parse(lines, &options).map_err(|error| body_error(&error))?;
        state.store("line", &to, parsed)
    })?;
    Ok(outcome.quote_lines(&mut body))
}

pub(crate) fn line_options<'a>(
    state: &'a State,
    to: &Destination,
    precision: Precision,
) -> Result<line::Options<'a>, ApiError> {
    Ok(line::Options {
        hasher: state.hasher(Protocol::Line, to)?,
        precision,
        now_ns: state.db.now_ns(),
        limits: state.db.limits(),
    })
}

/// `POST /api/v3/write_lp`: `db`, `precision` (`auto` tells the unit of each line by its size), `accept_partial`. `no_sync` is
/// accepted; an answer means that all is on disk nevertheless.
pub(crate) async fn influx_v3(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_lines_v3(state, parts)).await?
    };
    match written.await {
        Ok(response) => response,
        Err(error) => influx::failure(Version::V3, &error),
    }
}

/// Adds lines that the store would refuse for their fields' types to those that cannot be read.
fn refuse_conflicts(state: &State, database: &str, parsed: &mut Parsed<'_>) {
    for conflict in state.db.type_conflicts(database, &parsed.batch) {
        let Rejected { line, kind, reason } = conflict;
        parsed.errors.push_error(state.db.limits().errors_max, LineError { line, kind, reason });
    }
    parsed.errors.first.sort_by_key(|error| error.line);
}

fn write_lines_v3(state: &State, parts: RequestParts) -> Result<Response, ApiError> {
    let parameters = &parts.parameters;
    let to = state.destination(parameters.required("db")?, &parts.caller.scope)?;
    let precision = match parameters.get("precision").unwrap_or("auto") {
        "auto" => Precision::Auto,
        "nanosecond" => Precision::Nanosecond,
        "microsecond" => Precision::Microsecond,
        "millisecond" => Precision::Millisecond,
        "second" => Precision::Second,
        name => Precision::from_name(name).ok_or_else(|| {
            ApiError::bad_data(format!(
                "invalid precision {name:?} (use auto, nanosecond, microsecond, millisecond or second)"
            ))
        })?,
    };
    let accept_partial = parameters.flag("accept_partial", true)?;
    parameters.flag("no_sync", false)?;
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    let options = line_options(state, &to, precision)?;
    let (outcome, what) = body.parse(|lines| {
        let mut parsed = line::parse(lines, &options).map_err(|error| body_error(&error))?;
        if !accept_partial {
            refuse_conflicts(state, &to.database, &mut parsed);
        }
        if accept_partial || parsed.errors.is_empty() {
            return Ok((state.store("line", &to, parsed)?, "partial write of line protocol occurred"));
        }
        state.metrics.count_rejected(&parsed.errors);
        Ok((Outcome::of_errors(parsed.errors), "parsing failed for write_lp endpoint"))
    })?;
    let quoted = quoted(&mut body, &outcome.reasons);
    let bad_lines: Vec<BadLine> = outcome
        .reasons
        .iter()
        .map(|Reason { line, text, .. }| BadLine {
            line: *line,
            text: quoted.get(line).cloned().unwrap_or_default(),
            reason: text.clone(),
        })
        .collect();
    Ok(influx::answer_v3(outcome.status(), what, &bad_lines))
}

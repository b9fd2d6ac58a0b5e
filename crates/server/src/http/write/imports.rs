//! Files over HTTP: lines of JSON, CSV.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::response::Response;
use ingest::csv::{CsvError, CsvField, CsvFormat, CsvImporter, CsvMapping, TimeFormat};
use ingest::encoding::Encoding;
use ingest::line::{self, Precision};
use ingest::{Body, BodyError, LineErrors, Parsed, Protocol, json_lines, remote_write};

use super::influx::line_options;
use super::prometheus::extra_labels;
use super::{Outcome, Reason, plain_answer};
use crate::error::ApiError;
use crate::http::body::{Form, body_error, unpack, unpack_as};
use crate::http::parameters::Parameters;
use crate::http::request::{RequestParts, extract_write};
use crate::http::text::Text;
use crate::sign_in::Destination;
use crate::state::State;

/// Rows of CSV that are written together.
const CSV_ROWS: usize = 50_000;

/// `POST /api/v1/import`: series as lines of JSON.
pub(crate) async fn json_lines(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_json_lines(state, parts)).await?
    };
    plain_answer(&written.await)
}

fn write_json_lines(state: &State, parts: RequestParts) -> Result<Outcome, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    let options = json_lines::Options { hasher: state.hasher(Protocol::JsonLines, &to)?, limits: state.db.limits() };
    let outcome = body.parse(|lines| {
        let parsed = json_lines::parse(lines, &options).map_err(|error| body_error(&error))?;
        state.store("json_lines", &to, parsed)
    })?;
    Ok(outcome.number_lines())
}

/// `POST /api/v1/import/native`: blocks as `/api/v1/export/native` writes them. Those before one that is damaged are written.
pub(crate) async fn native(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_native(state, parts)).await?
    };
    plain_answer(&written.await)
}

fn write_native(state: &State, mut parts: RequestParts) -> Result<Outcome, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
    let (mut whole, mut at) = (Outcome::default(), 0);
    while at < body.len() {
        let cut = || ApiError::bad_data(format!("the block at byte {at} is cut off: export it again"));
        let rest = body.get(at..).unwrap_or_default();
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(cut)?;
        let length = u32::from_le_bytes(*length) as usize;
        let mut packed = state.spares.take();
        packed.clear();
        packed.extend_from_slice(rest.get(..length).ok_or_else(cut)?);
        // What a block takes is given back before the next one.
        let mut share = state.bodies.share(&parts.tenant);
        share.swap_place(&mut parts.share);
        let block = unpack_as(state, Encoding::Snappy, packed, (&mut share, Form::Protobuf))?;
        let hasher = state.hasher(Protocol::RemoteWrite, &to)?;
        let options = remote_write::Options { hasher, limits: state.db.limits(), dropped_label: None };
        let parsed = remote_write::parse_v2(&block, &options).map_err(|error| body_error(&error))?;
        let parsed = Parsed { batch: parsed.batch, errors: parsed.errors };
        add(&mut whole, state.store("native", &to, parsed)?, LineErrors::default());
        share.swap_place(&mut parts.share);
        at += 4 + length;
    }
    Ok(whole.number_lines())
}

/// `POST /api/v1/import/csv`: a file whose columns `format` says by their places, as VictoriaMetrics has it, with `extra_label` (any
/// number); or one whose first row names the columns. `measurement`, `time`, `time_format`, `tag` (any number),
/// `field` (any number, `name` or `name:type`; without one all others) and `delimiter` say what they are.
pub(crate) async fn csv(From(state): From<Arc<State>>, request: Request) -> Response {
    let written = async {
        let parts = extract_write(&state, request).await?;
        state.work_of(&parts.tenant.clone(), move |state| write_csv(state, parts)).await?
    };
    plain_answer(&written.await)
}

fn write_csv(state: &State, parts: RequestParts) -> Result<Outcome, ApiError> {
    let to = state.destination(parts.parameters.database(&parts.headers), &parts.caller.scope)?;
    let columns = csv_columns(&parts.parameters)?;
    let mut body = Text::new(state, &parts.headers, parts.body, parts.share)?;
    // Chunks are written before the end of the file is read.
    body.check()?;
    let outcome = body.parse(|file| {
        let limits = state.db.limits().clone();
        let importer = match columns {
            CsvColumns::ByPlaces(format) => CsvImporter::by_places(file, format, limits),
            CsvColumns::Named(mapping) => CsvImporter::new(file, mapping, limits).map_err(csv_error)?,
        };
        import_csv(state, &to, importer)
    })?;
    Ok(outcome.number_lines())
}

pub(super) fn import_csv(
    state: &State,
    to: &Destination,
    mut importer: CsvImporter<Body<'_>>,
) -> Result<Outcome, ApiError> {
    let (mut whole, mut lines) = (Outcome::default(), Vec::new());
    loop {
        lines.clear();
        let Some(chunk) = importer.next_chunk(CSV_ROWS, &mut lines).map_err(csv_error)? else { return Ok(whole) };
        let options = line_options(state, to, Precision::Nanosecond)?;
        let parsed = line::parse(&lines, &options).map_err(|error| body_error(&error))?;
        state.metrics.count_rejected(&chunk.errors);
        let written = state.store("csv", to, parsed)?;
        add(&mut whole, written, chunk.errors);
    }
}

/// Adds a chunk's outcome. Rows that could be read and were refused have the numbers of the chunk's lines, which mean
/// nothing to the sender.
fn add(whole: &mut Outcome, chunk: Outcome, errors: LineErrors) {
    whole.written += chunk.written;
    whole.dropped += chunk.dropped + errors.total;
    whole.for_now += chunk.for_now;
    whole.reasons.extend(errors.first.into_iter().map(Reason::from));
    whole.reasons.extend(chunk.reasons);
    whole.reasons.truncate(100);
}

/// What the columns of a file are.
enum CsvColumns {
    ByPlaces(CsvFormat),
    Named(CsvMapping),
}

fn csv_columns(parameters: &Parameters) -> Result<CsvColumns, ApiError> {
    match parameters.get("format") {
        Some(format) => {
            let format = CsvFormat::parse(format).map_err(|error| ApiError::invalid_parameter("format", error))?;
            Ok(CsvColumns::ByPlaces(format.with_labels(extra_labels(parameters)?)))
        }
        None => csv_mapping(parameters).map(CsvColumns::Named),
    }
}

fn csv_mapping(parameters: &Parameters) -> Result<CsvMapping, ApiError> {
    let fields: Vec<CsvField> = parameters.all("field").map(CsvField::parse).collect();
    let time_format = match parameters.get("time_format") {
        None => TimeFormat::Auto,
        Some(name) => TimeFormat::from_name(name)
            .ok_or_else(|| ApiError::invalid_parameter("time_format", "use auto, rfc3339, s, ms, us or ns"))?,
    };
    let delimiter = match parameters.get("delimiter").map(str::as_bytes) {
        None => b',',
        Some([delimiter]) => *delimiter,
        Some(_) => return Err(ApiError::invalid_parameter("delimiter", "it is one character of ASCII")),
    };
    Ok(CsvMapping {
        measurement: parameters.required("measurement")?.to_owned(),
        time_column: parameters.get("time").map(str::to_owned),
        time_format,
        tags: parameters.all("tag").map(str::to_owned).collect(),
        fields: (!fields.is_empty()).then_some(fields),
        delimiter,
    })
}

pub(super) fn csv_error(error: CsvError) -> ApiError {
    let error = match error {
        CsvError::Read(error) => match error.downcast::<BodyError>() {
            Ok(error) => return body_error(&error),
            Err(error) => CsvError::Read(error),
        },
        error @ CsvError::Mapping(_) => error,
    };
    ApiError::bad_data(error.to_string())
}

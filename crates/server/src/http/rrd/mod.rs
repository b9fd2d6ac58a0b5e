//! `/api/v1/rrd/…`: RRDtool's files over HTTP.
//!
//! * `fetch`: rows of a file, as `rrdtool fetch` chooses and prints them, or as JSON · `xport`: columns and what is computed of them
//! * `host`: what a client may read and change, and how rows are stored · `files`: paths and definitions · `import`, `export`: whole files · `remove`: a file with its data

pub(crate) mod host;

use std::sync::Arc;

use access::scope::Scope;
use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use model::Labels;
use query::QueryError;
use rrd::RrdError;
use rrd::catalog::{Destination, export_series};
use rrd::fetch::{FetchRequest, Fetched};
use rrd::file::{Consolidation, Definition, write_binary, write_xml, xml_bytes_max};
use rrd::pattern::Patterns;
use rrd::protocol::Host;
use rrd::time::{Times, parse_range};
use rrd::xport::{self, Exported, Fetch, Format, Script, Settings};
use serde_json::json;

use crate::error::ApiError;
use crate::http::body::{Form, unpack};
use crate::http::json as http_json;
use crate::http::parameters::Parameters;
use crate::http::query::{AnswerBytes, QueryJob, run_query};
use crate::http::request::{RequestParts, extract, extract_write};
use crate::state::State;

use host::RrdHost;

/// Rows that an export has about, unless `maxrows` says otherwise.
const ROWS: i64 = 400;

impl std::convert::From<RrdError> for ApiError {
    fn from(error: RrdError) -> Self {
        match error {
            RrdError::Invalid(message) => Self::bad_data(message),
            RrdError::NotFound(_) => Self::not_found(error.to_string()),
            RrdError::Refused(message) => Self::later(message),
            RrdError::Query(error) => error.into(),
        }
    }
}

/// Reads when it is the query's turn. What is wrong with a file or a request is no failure of the query.
async fn read<B: AnswerBytes + Default + Send + 'static>(
    state: &Arc<State>,
    parts: RequestParts,
    kind: &'static str,
    work: impl FnOnce(&RrdHost<'_>, &Parameters, &query::Budget) -> Result<B, RrdError> + Send + 'static,
) -> Result<B, ApiError> {
    let budget = state.query_budget(&parts);
    let text = parts.parameters.get("path").unwrap_or_default().to_owned();
    let job = QueryJob::new(state, kind, &text, &budget, &parts)?;
    let database = parts.parameters.database(&parts.headers);
    let (answer, error) = run_query(state, job, move |state| {
        let host = RrdHost::new(state, &database, &parts.caller.scope);
        match work(&host, &parts.parameters, &budget) {
            Ok(answer) => Ok((answer, None)),
            Err(RrdError::Query(error)) => Err::<(B, Option<RrdError>), QueryError>(error),
            Err(error) => Ok((B::default(), Some(error))),
        }
    })
    .await?;
    error.map_or(Ok(answer), |error| Err(error.into()))
}

/// The range of a request, and the time now, in seconds.
fn times(host: &RrdHost<'_>, parameters: &Parameters) -> Result<(Times, i64), RrdError> {
    let now_s = host.now().seconds;
    Ok((parse_range(parameters.get("start"), parameters.get("end"), now_s)?, now_s))
}

fn whole(parameters: &Parameters, name: &str, default: i64) -> Result<i64, RrdError> {
    let Some(text) = parameters.get(name) else { return Ok(default) };
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| RrdError::Invalid(format!("invalid parameter {name:?}: {text:?} is no whole number above 0")))
}

fn required<'a>(parameters: &'a Parameters, name: &str) -> Result<&'a str, RrdError> {
    parameters.get(name).ok_or_else(|| RrdError::Invalid(format!("the parameter {name:?} is missing")))
}

/// `/api/v1/rrd/fetch`: `path`, `cf`, `start`, `end`, `resolution`, `format` (`text`, `json`).
pub(crate) async fn fetch(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let is_json = match parts.parameters.get("format") {
        None | Some("text") => false,
        Some("json") => true,
        Some(_) => return Err(ApiError::invalid_parameter("format", "it is text or json")),
    };
    let work = move |host: &RrdHost<'_>, parameters: &Parameters, budget: &query::Budget| {
        let name = parameters.get("cf").unwrap_or("AVERAGE");
        let function = Consolidation::from_name(name)
            .ok_or_else(|| RrdError::Invalid(format!("cf {name:?} is none of AVERAGE, MIN, MAX and LAST")))?;
        let (Times { start_s, end_s }, _) = times(host, parameters)?;
        let step_s = whole(parameters, "resolution", 1)?;
        let file = host.file(required(parameters, "path")?)?;
        let rows = host.catalog().fetch(&file, &FetchRequest { function, start_s, end_s, step_s }, budget)?;
        budget.hold_bytes(rows.values.len() as u64 * 24)?;
        Ok(if is_json { rows.to_json() } else { rows.to_text() })
    };
    let text = read(&state, parts, "rrd fetch", work).await?;
    let content_type = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

/// Rows for an export.
struct Files<'a> {
    host: &'a RrdHost<'a>,
    budget: &'a query::Budget,
}

impl Fetch for Files<'_> {
    fn fetch(&self, path: &str, request: &FetchRequest) -> Result<Fetched, RrdError> {
        self.host.catalog().fetch(&*self.host.file(path)?, request, self.budget)
    }

    fn hold(&self, values: usize) -> Result<(), RrdError> {
        self.budget.check()?;
        Ok(self.budget.hold_bytes(values as u64 * 8)?)
    }
}

/// `/api/v1/rrd/xport`: `arg` (any number, in order), `start`, `end`, `step`, `maxrows`, `format` (`xml`, `json`), `showtime`, `enumds`.
pub(crate) async fn xport(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let is_json = match parts.parameters.get("format") {
        None | Some("xml") => false,
        Some("json") => true,
        Some(_) => return Err(ApiError::invalid_parameter("format", "it is xml or json")),
    };
    let format = Format {
        is_json,
        has_times: parts.parameters.flag("showtime", false)?,
        is_numbered: parts.parameters.flag("enumds", false)?,
    };
    let work = move |host: &RrdHost<'_>, parameters: &Parameters, budget: &query::Budget| {
        let (times, now_s) = times(host, parameters)?;
        let arguments: Vec<&str> = parameters.all("arg").collect();
        let script = Script::parse(&arguments, times)?;
        let step_s = if parameters.has("step") { whole(parameters, "step", 1)? } else { 0 };
        let settings = Settings { times, step_s, rows_max: whole(parameters, "maxrows", ROWS)?, now_s };
        let exported = xport::export(&script, settings, &Files { host, budget })?;
        budget.hold_bytes(exported.values.len() as u64 * 32)?;
        Ok(xport::write(&exported, format))
    };
    let text = read(&state, parts, "rrd xport", work).await?;
    let content_type = if is_json { "application/json" } else { "application/xml" };
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

/// What statements such as `DEF`, `CDEF` and `XPORT` export of a range, at a step (0: as fine as there are rows for); for the handlers of other routes.
pub(crate) fn exported(
    (state, database, scope): (&State, &str, &Arc<Scope>),
    statements: &[&str],
    (times, step_s): (Times, i64),
    budget: &query::Budget,
) -> Result<Exported, RrdError> {
    let host = RrdHost::new(state, database, scope);
    let script = Script::parse(statements, times)?;
    let settings = Settings { times, step_s, rows_max: ROWS, now_s: host.now().seconds };
    xport::export(&script, settings, &Files { host: &host, budget })
}

/// `/api/v1/rrd/files`: the files below `folder`, with their measurements, labels and definitions.
pub(crate) async fn files(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let work = |host: &RrdHost<'_>, parameters: &Parameters, budget: &query::Budget| {
        let folder = parameters.get("folder").unwrap_or_default().trim_matches('/');
        let mut list = Vec::new();
        for file in host.catalog().paths(host.database(), folder) {
            budget.check()?;
            if !host.may_see(&file) {
                continue;
            }
            let labels: serde_json::Map<_, _> =
                file.identity.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
            let mut one = file.definition.to_json();
            one["path"] = file.path.as_str().into();
            one["measurement"] = file.identity.measurement.as_str().into();
            one["labels"] = labels.into();
            list.push(one);
        }
        let text = serde_json::Value::Array(list).to_string();
        budget.hold_bytes(text.len() as u64)?;
        Ok(text)
    };
    Ok(http_json::success(&read(&state, parts, "rrd files", work).await?, &[], &[]))
}

/// `POST /api/v1/rrd/import`: the body is a file, `.rrd` or XML; `path`, `pattern` (any number), `replace`.
pub(crate) async fn import(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let mut parts = extract_write(&state, request).await?;
    let tenant = parts.tenant.clone();
    let work = move |state: &State| {
        let database = parts.parameters.database(&parts.headers);
        let host = RrdHost::new(state, &database, &parts.caller.scope);
        let replaces = parts.parameters.flag("replace", false)?;
        let path = rrd::protocol::relative_path(parts.parameters.required("path")?, host.directory())?;
        let patterns = Patterns::parse(parts.parameters.all("pattern"))?;
        let own = parts.parameters.has("pattern").then_some(&patterns);
        let identity = own.unwrap_or_else(|| host.catalog().patterns()).identity(&path);
        host.check_change(&identity.labels)?;
        if let Ok(known) = host.catalog().file(&database, &path)
            && replaces
        {
            host.check_replace(&known.identity.labels)?;
        }
        let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
        let read = rrd::file::read(&body)?;
        let to = Destination { database: &database, path: &path, identity: Some(identity), replaces };
        let (file, report) = host.catalog().import(&read.rrd, &to, &host)?;
        let labels: serde_json::Map<_, _> =
            file.identity.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        let answer = json!({
            "path": file.path, "measurement": file.identity.measurement, "labels": labels, "rows": report.rows,
            "refused": report.refused, "reason": report.reason, "notes": read.notes,
        });
        Ok::<_, ApiError>(http_json::success(&answer.to_string(), &[], &[]))
    };
    state.work_of(&tenant, work).await?
}

/// `/api/v1/rrd/export`: a file, by its `path`; or one of a series (`match[]`) by `step` and definitions (`arg`: one `DS:…`, `RRA:…`).
/// `format` is `rrd` or `xml`.
pub(crate) async fn export(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let is_xml = match parts.parameters.get("format") {
        None | Some("rrd") => false,
        Some("xml") => true,
        Some(_) => return Err(ApiError::invalid_parameter("format", "it is rrd or xml")),
    };
    let sets = parts.parameters.matcher_sets()?;
    let work = move |host: &RrdHost<'_>, parameters: &Parameters, budget: &query::Budget| {
        let rrd = match sets.as_slice() {
            [] => {
                let file = host.file(required(parameters, "path")?)?;
                host.catalog().export(&file, budget)?
            }
            [matchers] => {
                let arguments: Vec<&str> = parameters.all("arg").collect();
                let definition = Definition::parse(whole(parameters, "step", 300)? as u64, &arguments)?;
                export_series((host.catalog().db(), host.database()), matchers, &definition, budget)?
            }
            _ => return Err(RrdError::invalid("a file is made of one selector: there is more than one match[]")),
        };
        let cells: usize = rrd.archives.iter().map(|archive| archive.values.len()).sum();
        budget.hold_bytes(if is_xml { xml_bytes_max(&rrd) } else { cells as u64 * 8 })?;
        if is_xml { Ok(write_xml(&rrd).into_bytes()) } else { write_binary(&rrd) }
    };
    let bytes = read(&state, parts, "rrd export", work).await?;
    let content_type = if is_xml { "application/xml" } else { "application/octet-stream" };
    Ok((StatusCode::OK, [(header::CONTENT_TYPE, content_type)], bytes).into_response())
}

/// `POST /api/v1/rrd/remove`: removes the file of a `path` with its data.
pub(crate) async fn remove(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let work = move |state: &State| {
        let database = parts.parameters.database(&parts.headers);
        let host = RrdHost::new(state, &database, &parts.caller.scope);
        let path = rrd::protocol::relative_path(parts.parameters.required("path")?, host.directory())?;
        let known = host.catalog().file(&database, &path).ok();
        host.check_replace(known.as_ref().map_or(&Labels::empty(), |file| &file.identity.labels))?;
        if !host.catalog().remove(&database, &path)? {
            return Err(ApiError::not_found(format!("there is no file {path}")));
        }
        Ok(StatusCode::NO_CONTENT.into_response())
    };
    state.work(work).await?
}

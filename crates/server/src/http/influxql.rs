//! `/query`: InfluxQL as InfluxDB 1.x answers it; `/api/v3/query_influxql`: as InfluxDB 3 does.
//!
//! `q` holds the statements (in the query string, in a form, or a file of that name in a multipart form), `db` the database, `params` a JSON object for `$name` in
//! them. `epoch` says how times are written, `pretty` breaks JSON into lines, `chunked` sends it in pieces of `chunk_size` rows, and
//! `Accept: application/csv` asks for CSV, `application/x-msgpack` for `MessagePack`. Errors of statements stand in the answer, which is 200; a text that cannot be read is 400.

mod csv;
mod flat;
mod msgpack;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use access::audit::Event;
use access::statement::AccountStatement;
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use influxql::{Parameter, Query, RequestContext, Series, TimeFormat, Value};
use query::{Budget, QueryError, Stop};
use serde_json::Value as Json;

use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::influx::{self, Version};
use crate::http::multipart;
use crate::http::objects::ObjectForm;
use crate::http::parameters::Parameters;
use crate::http::query::{QueryJob, run_query, timeout};
use crate::http::request::{RequestParts, extract};
use crate::http::status::INFLUXDB_VERSION;
use crate::scheduler::running::Description;
use crate::sign_in::Caller;
use crate::sign_in::statements::{AccountAnswer, statement_error};
use crate::state::State;

/// Rows of a piece unless the request says otherwise.
const CHUNK_ROWS: usize = 10_000;

/// What a request asks for.
struct Wanted {
    text: String,
    query: Query,
    database: Option<String>,
    read_only: bool,
    form: Form,
}

/// How the answer is written.
#[derive(Debug, Clone, Copy)]
struct Form {
    times: TimeFormat,
    pretty: bool,
    layout: Layout,
    /// Rows of a piece; `None`: all in one.
    chunk_rows: Option<usize>,
}

/// The shape of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// InfluxDB 1's object of results.
    Results,
    /// InfluxDB 1's CSV.
    Csv,
    /// InfluxDB 1's object of results in binary form.
    MessagePack,
    /// Rows as InfluxDB 3 has them.
    Objects(ObjectForm),
}

impl Layout {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Results => "application/json",
            Self::Csv => "text/csv",
            Self::MessagePack => "application/x-msgpack",
            Self::Objects(form) => form.content_type(),
        }
    }
}

/// What a statement gave.
type Done = Result<influxql::Answer, QueryError>;

/// The handler of `/query`.
pub(crate) async fn query(From(state): From<Arc<State>>, request: Request) -> Response {
    let mut response = match answer(&state, request).await {
        Ok(response) => response,
        Err(error) => influx::failure(Version::V1, &error),
    };
    for (name, value) in [("x-influxdb-version", INFLUXDB_VERSION), ("x-influxdb-build", "OSS")] {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

/// The handler of `/api/v3/query_influxql`.
pub(crate) async fn query_v3(From(state): From<Arc<State>>, request: Request) -> Response {
    answer_v3(&state, request).await.unwrap_or_else(|error| influx::failure(Version::V3, &error))
}

async fn answer(state: &Arc<State>, request: Request) -> Result<Response, ApiError> {
    let read_only = request.method() != Method::POST;
    let parts = extract(state, request).await?;
    let file = multipart::query_file(&parts.headers, &parts.body)?;
    let wanted = read(&parts.parameters, &parts.headers, file, read_only)?;
    run_wanted(state, parts, wanted).await
}

async fn answer_v3(state: &Arc<State>, request: Request) -> Result<Response, ApiError> {
    let read_only = request.method() != Method::POST;
    let mut parts = extract(state, request).await?;
    parts.read_json()?;
    let form = ObjectForm::named(parts.parameters.get("format"))?;
    if form == ObjectForm::Parquet {
        return Err(ApiError::invalid_parameter("format", "Parquet is written for SQL only"));
    }
    let mut wanted = read(&parts.parameters, &parts.headers, None, read_only)?;
    wanted.form.layout = Layout::Objects(form);
    run_wanted(state, parts, wanted).await
}

async fn run_wanted(state: &Arc<State>, parts: RequestParts, wanted: Wanted) -> Result<Response, ApiError> {
    if let Some(change) = wanted.query.first_change().filter(|_| wanted.read_only) {
        return Err(ApiError::only_by_post(&change));
    }
    let budget = state.query_budget(&parts);
    let description = Description {
        kind: "influxql",
        text: wanted.text.clone(),
        database: wanted.database.clone().unwrap_or_default(),
        caller: parts.caller.clone(),
    };
    let asked = QueryJob::without_request(description, budget.clone(), timeout(state, &parts.parameters)?);
    let caller = parts.caller.clone();
    drop(parts);
    let content_type = wanted.form.layout.content_type();
    let of_query = budget.clone();
    let work = move |state: &State| run(state, &wanted, (&caller, &of_query));
    let (text, binary) = run_query(state, asked, work).await?;
    let body = if binary.is_empty() { text.into_bytes() } else { binary };
    let mut response = (StatusCode::OK, [(header::CONTENT_TYPE, content_type)], body).into_response();
    ReadTimes::attach(&mut response, &budget);
    Ok(response)
}

fn read(
    parameters: &Parameters,
    headers: &HeaderMap,
    file: Option<String>,
    read_only: bool,
) -> Result<Wanted, ApiError> {
    let Some(text) = parameters.get("q").map(str::to_owned).or(file) else {
        return Err(ApiError::bad_data("missing required parameter \"q\""));
    };
    let bound = bound(parameters.get("params"))?;
    let query = Query::parse(&text, &bound).map_err(|error| ApiError::bad_data(error.to_string()))?;
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let csv = ["application/csv", "text/csv"].iter().any(|wanted| accepts.starts_with(wanted));
    let chunked = parameters.get("chunked") == Some("true");
    let layout = match accepts {
        _ if csv => Layout::Csv,
        // InfluxDB's Python client asks for both, and cannot read several objects.
        accepts if accepts.starts_with("application/x-msgpack") && !chunked => Layout::MessagePack,
        _ => Layout::Results,
    };
    let times = match parameters.get("epoch") {
        // Spreadsheets are to compute with times.
        None if csv => TimeFormat::Number { unit_ns: 1 },
        None => TimeFormat::Text,
        // As InfluxDB: what it does not know is nanoseconds.
        Some(epoch) => TimeFormat::named(epoch).unwrap_or(TimeFormat::Number { unit_ns: 1 }),
    };
    let rows = parameters.get("chunk_size").and_then(|rows| rows.parse().ok()).filter(|rows| *rows > 0);
    let form = Form {
        times,
        pretty: parameters.get("pretty") == Some("true"),
        layout,
        chunk_rows: chunked.then(|| rows.unwrap_or(CHUNK_ROWS)),
    };
    let database = parameters.get("db").map(str::to_owned);
    Ok(Wanted { text, query, database, read_only, form })
}

/// Values for `$name`, out of a JSON object. An object with one member says what the value is to be: `{"identifier": "host"}`.
fn bound(text: Option<&str>) -> Result<BTreeMap<String, Parameter>, ApiError> {
    let Some(text) = text else { return Ok(BTreeMap::new()) };
    let bad = |why: &str| ApiError::bad_data(format!("error parsing query parameters: {why}"));
    let object: serde_json::Map<String, Json> = serde_json::from_str(text).map_err(|error| bad(&error.to_string()))?;
    let mut bound = BTreeMap::new();
    for (name, value) in object {
        let parameter =
            parameter(&value).ok_or_else(|| bad(&format!("{name} is {value}, which no parameter can be")))?;
        bound.insert(name, parameter);
    }
    Ok(bound)
}

fn parameter(value: &Json) -> Option<Parameter> {
    Some(match value {
        Json::String(text) => Parameter::Text(text.clone()),
        Json::Bool(value) => Parameter::Boolean(*value),
        Json::Number(number) => match number.as_i64() {
            Some(value) => Parameter::Integer(value),
            None => Parameter::Number(number.as_f64()?),
        },
        Json::Object(object) => match object.iter().next()? {
            (kind, Json::String(text)) => match kind.as_str() {
                "string" => Parameter::Text(text.clone()),
                "identifier" => Parameter::Identifier(text.clone()),
                "regex" => Parameter::Pattern(text.clone()),
                "duration" => Parameter::Duration(influxql::duration_ns(text)?),
                _ => return None,
            },
            (kind, value) => match kind.as_str() {
                "integer" => Parameter::Integer(value.as_i64()?),
                "float" => Parameter::Number(value.as_f64()?),
                "boolean" => Parameter::Boolean(value.as_bool()?),
                "duration" => Parameter::Duration(value.as_i64()?),
                _ => return None,
            },
        },
        Json::Array(_) | Json::Null => return None,
    })
}

/// Runs the statements one after the other; after one that fails the others are not run. Returns the answer as text, or in binary form.
fn run(state: &State, wanted: &Wanted, (caller, budget): (&Caller, &Budget)) -> Result<(String, Vec<u8>), QueryError> {
    let session = RequestContext { database: wanted.database.as_deref(), read_only: wanted.read_only };
    let mut results: Vec<Done> = Vec::with_capacity(wanted.query.len());
    let mut failed = false;
    for number in 0..wanted.query.len() {
        if failed {
            results.push(Err(QueryError::Execution("not executed".to_owned())));
            continue;
        }
        let held = budget.samples();
        let result = match (wanted.query.account_statement(number), wanted.query.subscription_statement(number)) {
            (Some(statement), _) => account_answer(state, caller, statement),
            (_, Some(statement)) => state.subscription_statement(caller, &statement),
            _ => state.db.run_influxql(&wanted.query, number, &session, budget),
        };
        if let (Ok(_), Some((event, statement))) = (&result, wanted.query.audited(number)) {
            state.sign_in.audit.note(state.db.now_ns(), event, caller.actor(), &statement);
            if event == Event::Deleted {
                // It may have dropped a database.
                state.forget_dropped();
            }
        }
        failed = result.is_err();
        results.push(result.map_err(timed_out));
        budget.give_back(usize::try_from(budget.samples().saturating_sub(held)).unwrap_or(0));
    }
    let text = match wanted.form.layout {
        Layout::Csv => csv::csv(&results, wanted.form.times),
        Layout::Results => write::json(&results, &wanted.form),
        Layout::Objects(form) => flat::text(results, form)?,
        Layout::MessagePack => return Ok((String::new(), msgpack::msgpack(&results, wanted.form.times))),
    };
    Ok((text, Vec::new()))
}

/// The answer to a statement about users.
fn account_answer(state: &State, caller: &Caller, statement: &AccountStatement) -> Done {
    let done = state.account_statement(caller, statement).map_err(statement_error)?;
    let series = match done {
        AccountAnswer::Done => return Ok(influxql::Answer::default()),
        AccountAnswer::Users(users) => {
            let rows =
                users.into_iter().map(|(name, is_admin)| vec![Value::from(name.as_str()), Value::Bool(is_admin)]);
            Series::list("", &["user", "admin"], rows.collect())
        }
        AccountAnswer::Grants(grants) => {
            let rows = grants.iter().map(|(database, right)| vec![database.as_str().into(), right.as_str().into()]);
            Series::list("", &["database", "privilege"], rows.collect())
        }
    };
    Ok(influxql::Answer { series: vec![series], messages: Vec::new() })
}

fn timed_out(error: QueryError) -> QueryError {
    match error {
        QueryError::Stopped(Stop::Timeout) => QueryError::Execution("query-timeout limit exceeded".to_owned()),
        other => other,
    }
}

/// Reads a query string and a form as InfluxQL's clients send them; the form's first line says what it is.
pub(crate) fn fuzz(query: &str, form: &[u8]) {
    let (kind, body) = form.split_at(memchr::memchr(b'\n', form).unwrap_or(0));
    let mut headers = HeaderMap::new();
    if let Ok(kind) = header::HeaderValue::from_bytes(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    let Ok(parameters) = Parameters::read(Some(query), &headers, body) else { return };
    let file = multipart::query_file(&headers, body).ok().flatten();
    let _ = read(&parameters, &headers, file, true);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_bound_by_their_types() {
        let text = r#"{"a":"x","b":5,"c":2.5,"d":true,"e":{"identifier":"host"},"f":{"duration":"1h30m"},"g":{"regex":"a.*"},"h":{"integer":7}}"#;
        let found: Vec<Parameter> = bound(Some(text)).unwrap().into_values().collect();
        let expected = [
            Parameter::Text("x".to_owned()),
            Parameter::Integer(5),
            Parameter::Number(2.5),
            Parameter::Boolean(true),
            Parameter::Identifier("host".to_owned()),
            Parameter::Duration(5_400_000_000_000),
            Parameter::Pattern("a.*".to_owned()),
            Parameter::Integer(7),
        ];
        assert_eq!(found, expected);
        for bad in ["", "[]", r#"{"a":[]}"#, r#"{"a":null}"#, r#"{"a":{"duration":"soon"}}"#] {
            assert_eq!(bound(Some(bad)).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}

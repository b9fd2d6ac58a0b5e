//! `/api/v2/query`: Flux as InfluxDB 2 answers it, in annotated CSV.
//!
//! The body is the script itself (`application/vnd.flux`), or an object: `query`, `type` (`flux`), `dialect` (`header`, `delimiter`, `annotations`),
//! `params`, `now`.

use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use flux::{Annotation, Dialect, Query, RequestContext};
use jiff::Timestamp;
use serde_json::{Map, Value as Json};

use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::influx::{self, Version};
use crate::http::query::{QueryJob, run_query, timeout};
use crate::http::request::{RequestParts, extract};
use crate::scheduler::running::Description;
use crate::state::State;

/// The database of a query is named in its text.
const DATABASE: &str = "";

/// What a request asks for.
struct Wanted {
    text: String,
    query: Query,
    context: RequestContext,
    dialect: Dialect,
}

/// The handler of `/api/v2/query`.
pub(crate) async fn query(From(state): From<Arc<State>>, request: Request) -> Response {
    answer(&state, request).await.unwrap_or_else(|error| influx::failure(Version::V2, &error))
}

async fn answer(state: &Arc<State>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(state, request).await?;
    let wanted = read(&parts, state.db.now_ns())?;
    let budget = state.query_budget(&parts);
    let description =
        Description { kind: "flux", text: wanted.text, database: DATABASE.to_owned(), caller: parts.caller.clone() };
    let asked = QueryJob::without_request(description, budget.clone(), timeout(state, &parts.parameters)?);
    drop(parts);
    let of_query = budget.clone();
    let (query, context, dialect) = (wanted.query, wanted.context, wanted.dialect);
    let work = move |state: &State| {
        let results = state.db.run_flux(&query, &context, &of_query)?;
        Ok((results.csv_within(&dialect, &of_query)?, ()))
    };
    let (text, ()) = run_query(state, asked, work).await?;
    let mut response = (StatusCode::OK, [(header::CONTENT_TYPE, "text/csv; charset=utf-8")], text).into_response();
    ReadTimes::attach(&mut response, &budget);
    Ok(response)
}

fn read(parts: &RequestParts, now_ns: i64) -> Result<Wanted, ApiError> {
    let content_type =
        parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut context = RequestContext { now_ns, ..RequestContext::default() };
    let mut dialect = Dialect::default();
    let text = if content_type.starts_with("application/vnd.flux") {
        std::str::from_utf8(&parts.body).map_err(|_| ApiError::bad_data("the script is not UTF-8"))?.to_owned()
    } else {
        let body: Result<Map<String, Json>, _> = serde_json::from_slice(&parts.body);
        let body = body.map_err(|error| ApiError::bad_data(format!("the body is no JSON object: {error}")))?;
        read_object(&body, &mut context, &mut dialect)?
    };
    let query = Query::parse(&text).map_err(|error| ApiError::bad_data(format!("compilation failed: {error}")))?;
    Ok(Wanted { text, query, context, dialect })
}

/// The script of an object, and what it says beside.
fn read_object(
    body: &Map<String, Json>,
    context: &mut RequestContext,
    dialect: &mut Dialect,
) -> Result<String, ApiError> {
    let text = |name: &str| body.get(name).and_then(Json::as_str);
    if let Some(kind) = text("type").filter(|kind| *kind != "flux") {
        return Err(ApiError::bad_data(format!(
            "unknown query type {kind:?}: it is flux; InfluxQL is asked at /query"
        )));
    }
    if body
        .get("extern")
        .and_then(|tree| tree.get("body"))
        .and_then(Json::as_array)
        .is_some_and(|body| !body.is_empty())
    {
        return Err(ApiError::bad_data("extern is not supported: put options into the script, or values into params"));
    }
    if let Some(now) = text("now") {
        let now: Timestamp = now.parse().map_err(|_| ApiError::bad_data(format!("now is not in RFC 3339: {now}")))?;
        context.now_ns = i64::try_from(now.as_nanosecond()).unwrap_or(context.now_ns);
    }
    if let Some(parameters) = body.get("params").and_then(Json::as_object) {
        for (name, value) in parameters {
            context.parameters.insert(name.clone(), parameter(name, value)?);
        }
    }
    if let Some(wanted) = body.get("dialect").and_then(Json::as_object) {
        read_dialect(wanted, dialect)?;
    }
    text("query").map(str::to_owned).ok_or_else(|| ApiError::bad_data("request body requires query"))
}

fn parameter(name: &str, value: &Json) -> Result<query::Value, ApiError> {
    Ok(match value {
        Json::String(text) => query::Value::text(text.as_str()),
        Json::Bool(value) => query::Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(value), _) => query::Value::Int(value),
            (None, Some(value)) => query::Value::Float(value),
            (None, None) => query::Value::Null,
        },
        _ => return Err(ApiError::bad_data(format!("the parameter {name} is a string, a number or a boolean"))),
    })
}

fn read_dialect(wanted: &Map<String, Json>, dialect: &mut Dialect) -> Result<(), ApiError> {
    dialect.header = wanted.get("header").and_then(Json::as_bool).unwrap_or(true);
    if let Some(delimiter) = wanted.get("delimiter").and_then(Json::as_str).filter(|delimiter| !delimiter.is_empty()) {
        let mut characters = delimiter.chars();
        dialect.delimiter = match (characters.next(), characters.next()) {
            (Some(delimiter), None) => delimiter,
            _ => return Err(ApiError::bad_data("the delimiter is one character")),
        };
    }
    for name in wanted.get("annotations").and_then(Json::as_array).into_iter().flatten() {
        let name = name.as_str().unwrap_or_default();
        let annotation = Annotation::named(name).ok_or_else(|| {
            ApiError::bad_data(format!("unknown annotation {name:?}: there are datatype, group and default"))
        })?;
        dialect.annotations.push(annotation);
    }
    Ok(())
}

//! `/api/v1/graph`: the answer of a query in any language as a picture, or as columns for pages that draw by themselves.
//!
//! * `request`: what is asked for · `source`: answers of each language as series · `table`: those with rows · `columns`: the JSON · `error`: why there is none

mod columns;
mod error;
mod request;
mod source;
mod table;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use plot::PlotError;
use query::{Budget, FOLDED_WARNING};

use crate::error::ApiError;
use crate::http::admin::ReadTimes;
use crate::http::query::{QueryJob, run_query, timeout};
use crate::http::request::extract;
use crate::scheduler::running::Description;
use crate::state::State;

use error::GraphError;
use request::{Format, GraphRequest};
use source::GraphAnswer;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;

/// What a document may do: SVG holds nothing that runs or is loaded.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// Remarks of an answer that are written below its picture.
const NOTES_MAX: usize = 3;

/// The handler of `/api/v1/graph`.
pub(crate) async fn graph(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let asked = GraphRequest::read(&parts, state.db.now_ns())?;
    let budget = state.query_budget(&parts);
    let description = Description {
        kind: "graph",
        text: asked.text.clone(),
        database: asked.database.clone(),
        caller: parts.caller.clone(),
    };
    let job = QueryJob::without_request(description, budget.clone(), timeout(&state, &parts.parameters)?);
    let headers = parts.headers.clone();
    drop(parts);
    let (format, of_query) = (asked.format, budget.clone());
    let work = move |state: &State| match made(state, asked, &of_query) {
        Ok(body) => {
            let tag = tag(&body);
            Ok((body, Ok(tag)))
        }
        Err(GraphError::Query(error)) => Err(error),
        Err(GraphError::Refused(error)) => Ok((Vec::new(), Err(error))),
    };
    let (body, tag) = run_query(&state, job, work).await?;
    let mut response = answered(&headers, format, body, &tag?);
    ReadTimes::attach(&mut response, &budget);
    Ok(response)
}

/// Runs the query, and draws what it gives.
fn made(state: &State, asked: GraphRequest, budget: &Arc<Budget>) -> Result<Vec<u8>, GraphError> {
    let check = || budget.check().map_err(GraphError::from);
    let zone = asked.zone()?;
    let GraphAnswer { mut series, range_ns, step_ns, mut warnings, infos } = source::find(state, &asked, budget)?;
    warnings.extend(budget.is_folded().then(|| FOLDED_WARNING.to_owned()));
    asked.name(&mut series);
    let (format, resolution, step) = (asked.format, asked.resolution, asked.step_ns);
    let mut chart = asked.chart;
    (chart.series, chart.step_ns) = (series, step.or(step_ns));
    ((chart.start_ns, chart.end_ns), chart.zone) = (range_ns, zone);
    // Series thinned out, and as they are drawn.
    let points: usize = chart.series.iter().map(|series| series.points.len()).sum();
    budget.hold_bytes(points.min(chart.series.len() * chart.width_px as usize * 5) as u64 * 64)?;
    let body = if format == Format::Json {
        let columns = plot::columns::columns(&chart, check)?;
        budget.hold_bytes(columns.times_ns.len() as u64 * (columns.values.len() as u64 + 1) * 32)?;
        columns::json(&chart, &columns, (&warnings, &infos)).into_bytes()
    } else {
        chart.notes = warnings.into_iter().take(NOTES_MAX).collect();
        let picture = plot::draw(&chart, check)?;
        budget.hold_bytes(picture.memory_bytes(if format == Format::Svg { 0.0 } else { resolution }))?;
        match format {
            Format::Png => picture.png(resolution)?,
            Format::WebP => picture.webp(resolution)?,
            Format::Svg | Format::Json => picture.svg().into_bytes(),
        }
    };
    if body.len() > ANSWER_BYTES_MAX {
        let (count, limit) = (body.len() as u64, ANSWER_BYTES_MAX as u64);
        return Err(PlotError::TooLarge { what: "bytes", count, limit, limit_name: "answer_bytes_max" }.into());
    }
    Ok(body)
}

/// A strong `ETag`: the same body has the same one.
fn tag(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("\"{:016x}-{:x}\"", hasher.finish(), body.len())
}

/// The answer, or 304 to a client that has it.
fn answered(headers: &HeaderMap, format: Format, body: Vec<u8>, tag: &str) -> Response {
    let known = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let mut known = known.flat_map(|value| value.split(',')).map(str::trim);
    let is_known = known.any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, format.content_type())], body).into_response()
    };
    let headers = response.headers_mut();
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    // Late rows change it, and not everyone may see it.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CONTENT_SECURITY_POLICY));
    headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(format.disposition()));
    response
}

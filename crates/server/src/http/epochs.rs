//! `/api/v1/epoch`: epochs of regular databases, and which names are valid when.

use std::fmt::Write;
use std::sync::Arc;

use access::rate::Counted;
use axum::extract::{Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::{EpochBatch, EpochCell, EpochColumn, EpochNames, EpochRow, EpochValue, EpochWritten, NameRows, TopBy};
use ingest::epoch::{self, EpochBody};
use query::TopNames;

use crate::error::ApiError;
use crate::http::body::{Form, reserve_rows, unpack};
use crate::http::json;
use crate::http::request::{RequestParts, extract, extract_write};
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;

/// Series of `top` unless the request says how many.
const TOP_DEFAULT: usize = 10;

/// `POST /api/v1/epoch?db=&time=`: names and values as CSV, JSON or binary columns. What is refused because other values are there is told with 409;
/// the rest is written.
pub(crate) async fn write(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract_write(&state, request).await?;
    let written = state.work_of(&parts.tenant.clone(), move |state| write_now(state, parts)).await??;
    let EpochWritten { time_ns, written, added, unchanged, refused, refusal } = written;
    let mut data = format!(
        r#"{{"time_ms":{},"written":{written},"names_added":{added},"unchanged":{unchanged},"refused":{refused}"#,
        time_ns / NS_PER_MS
    );
    let Some(refusal) = refusal else {
        data.push('}');
        return Ok(json::success(&data, &[], &[]));
    };
    let message = format!("{refused} values were refused, {written} written; the first: {refusal}");
    Ok(ApiError::new(StatusCode::CONFLICT, "conflict", message).into_response())
}

fn write_now(state: &State, mut parts: RequestParts) -> Result<EpochWritten, ApiError> {
    let database = parts.parameters.database(&parts.headers);
    let time_ns = parts.parameters.required_time_ms("time")?.saturating_mul(NS_PER_MS);
    state.destination(&*database, &parts.caller.scope)?;
    state.db.check_writes_whole(&database, &parts.caller.scope)?;
    let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
    reserve_rows(&mut parts.share, Form::Text, &body)?;
    let EpochBody { names, values } = epoch::parse(&body).map_err(ApiError::bad_data)?;
    let batch = EpochBatch { time_ns, names: &names, values: &values };
    let (scope, tenant) = (&parts.caller.scope, &parts.tenant);
    let gate = |count| state.take_new_series(scope, tenant, count);
    let written = state.db.write_epoch_gated(&database, &batch, Some(&gate))?;
    state.owe(scope, tenant, (Counted::Samples, written.written));
    Ok(written)
}

/// `POST /api/v1/epoch/remove?db=&time=`: ends names, one a line, before the epoch of the time; now unless it is given.
pub(crate) async fn remove(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract_write(&state, request).await?;
    let remove = move |state: &State| {
        let mut parts = parts;
        let database = parts.parameters.database(&parts.headers);
        let time_ns = parts.parameters.time_ms("time")?.map(|time_ms| time_ms.saturating_mul(NS_PER_MS));
        state.destination(&*database, &parts.caller.scope)?;
        state.db.check_writes_whole(&database, &parts.caller.scope)?;
        let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
        reserve_rows(&mut parts.share, Form::Text, &body)?;
        let text = std::str::from_utf8(&body).map_err(|_| ApiError::bad_data("names are UTF-8, one a line"))?;
        let names: EpochNames = text.lines().map(str::trim).filter(|name| !name.is_empty()).collect();
        Ok(state.db.remove_names(&database, &names, time_ns.unwrap_or_else(|| state.db.now_ns()))?)
    };
    let removed = state.work(remove).await?.map_err(|error: ApiError| error)?;
    Ok(json::success(&format!(r#"{{"removed":{removed}}}"#), &[], &[]))
}

/// `GET /api/v1/epoch/values?db=` with `name=` (and `start=`, `end=`): a series in all epochs of the range; with `time=`: all series in one epoch, as JSON or
/// with `format=csv` or `binary`.
pub(crate) async fn values(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let budget = state.query_budget(&parts);
    let database = parts.parameters.database(&parts.headers);
    if let Some(name) = parts.parameters.get("name").map(str::to_owned) {
        let range = parts.parameters.range()?;
        let read = move |state: &State| {
            let rows = state.db.name_rows(&database, &name, &range, &budget)?;
            let rows =
                rows.ok_or_else(|| ApiError::not_found(format!("the database {database} has no series {name:?}")))?;
            Ok::<_, ApiError>(name_json(&rows))
        };
        return Ok(json::success(&state.work_of(&parts.tenant, read).await??, &[], &[]));
    }
    let time_ms = parts.parameters.time_ms("time")?;
    let time_ms = time_ms.ok_or_else(|| ApiError::bad_data("say name=… for a series, or time=… for an epoch"))?;
    let format = parts.parameters.get("format").unwrap_or("json").to_owned();
    let read = move |state: &State| {
        let row = state.db.epoch(&database, time_ms.saturating_mul(NS_PER_MS), &budget)?;
        match format.as_str() {
            "json" => Ok(json::success(&epoch_json(&row), &[], &[])),
            "csv" => Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], epoch_csv(&row)).into_response()),
            "binary" => {
                let content_type = [(header::CONTENT_TYPE, "application/octet-stream")];
                Ok((content_type, epoch::encode(&row.names, &row.values)).into_response())
            }
            _ => Err(ApiError::invalid_parameter("format", "it is json, csv or binary")),
        }
    };
    state.work_of(&parts.tenant, read).await?
}

/// `GET /api/v1/epoch/top?db=&start=&end=&limit=&by=`: the series with the largest sums (or with `by=max`, values) in a range.
pub(crate) async fn top(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let budget = state.query_budget(&parts);
    let database = parts.parameters.database(&parts.headers);
    let by = match parts.parameters.get("by").unwrap_or("sum") {
        "sum" => TopBy::Sum,
        "max" => TopBy::Max,
        _ => return Err(ApiError::invalid_parameter("by", "it is sum or max")),
    };
    let count = match parts.parameters.limit()? {
        0 => TOP_DEFAULT,
        count => count,
    };
    let request = TopNames { range: parts.parameters.range()?, by, count };
    let read = move |state: &State| state.db.top_names(&database, &request, &budget);
    let found = state.work_of(&parts.tenant, read).await??;
    let mut data = "[".to_owned();
    for (place, (name, value)) in found.iter().enumerate() {
        data.push_str(if place > 0 { ",{\"name\":" } else { "{\"name\":" });
        json::push_text(&mut data, name);
        data.push_str(",\"value\":");
        push_value(&mut data, *value);
        data.push('}');
    }
    data.push(']');
    Ok(json::success(&data, &[], &[]))
}

/// `GET /api/v1/epoch/series?db=&match=&limit=`: which names are valid when, those that match a pattern, by name and time.
pub(crate) async fn series(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let budget = state.query_budget(&parts);
    let database = parts.parameters.database(&parts.headers);
    let limit = parts.parameters.limit()?;
    let pattern = parts.parameters.get("match").map(str::to_owned);
    let read = move |state: &State| state.db.name_validity(&database, pattern.as_deref(), &budget);
    let mut found = state.work_of(&parts.tenant, read).await??;
    if limit > 0 {
        found.truncate(limit);
    }
    let mut data = "[".to_owned();
    for (place, validity) in found.iter().enumerate() {
        data.push_str(if place > 0 { ",{\"name\":" } else { "{\"name\":" });
        json::push_text(&mut data, &validity.name);
        let _ = write!(data, ",\"index\":{},\"from_ms\":{},\"to_ms\":", validity.index, validity.from_ns / NS_PER_MS);
        match validity.to_ns {
            Some(to_ns) => json::push_integer(&mut data, to_ns / NS_PER_MS),
            None => data.push_str("null"),
        }
        data.push('}');
    }
    data.push(']');
    Ok(json::success(&data, &[], &[]))
}

/// The rows of a name: a missing value is `null`, an undefined one `"undefined"`.
fn name_json(rows: &NameRows) -> String {
    let mut data = "{\"name\":".to_owned();
    json::push_text(&mut data, &rows.name);
    data.push_str(",\"times_ms\":[");
    for (place, time_ns) in rows.times_ns.iter().enumerate() {
        push_comma(&mut data, place);
        json::push_integer(&mut data, time_ns / NS_PER_MS);
    }
    data.push_str("],\"values\":[");
    for (place, cell) in rows.cells.iter().enumerate() {
        push_comma(&mut data, place);
        match cell {
            EpochCell::Value(value) => push_value(&mut data, *value),
            EpochCell::Missing => data.push_str("null"),
            EpochCell::Undefined => data.push_str("\"undefined\""),
        }
    }
    data.push_str("]}");
    data
}

fn epoch_json(row: &EpochRow) -> String {
    let mut data = format!("{{\"time_ms\":{},\"names\":[", row.time_ns / NS_PER_MS);
    for (place, name) in row.names.iter().chain(row.missing.iter()).enumerate() {
        push_comma(&mut data, place);
        json::push_text(&mut data, name);
    }
    data.push_str("],\"values\":[");
    let mut place = 0;
    each_value(&row.values, |value| {
        push_comma(&mut data, place);
        push_value(&mut data, value);
        place += 1;
    });
    for _ in row.missing.iter() {
        push_comma(&mut data, place);
        data.push_str("null");
        place += 1;
    }
    data.push_str("]}");
    data
}

fn epoch_csv(row: &EpochRow) -> String {
    let mut text = "name,value\n".to_owned();
    let mut names = row.names.iter();
    each_value(&row.values, |value| {
        push_csv_name(&mut text, names.next().unwrap_or_default());
        push_value(&mut text, value);
        text.push('\n');
    });
    for name in row.missing.iter() {
        push_csv_name(&mut text, name);
        text.push('\n');
    }
    text
}

fn each_value(values: &EpochColumn, mut visit: impl FnMut(EpochValue)) {
    match values {
        EpochColumn::Int(values) => values.iter().for_each(|value| visit(EpochValue::Int(*value))),
        EpochColumn::Float(values) => values.iter().for_each(|value| visit(EpochValue::Float(*value))),
    }
}

fn push_csv_name(text: &mut String, name: &str) {
    if name.contains([',', '"', '\n', '\r']) {
        let _ = write!(text, "\"{}\",", name.replace('"', "\"\""));
    } else {
        text.push_str(name);
        text.push(',');
    }
}

fn push_comma(text: &mut String, place: usize) {
    if place > 0 {
        text.push(',');
    }
}

/// A number; JSON has none that are not finite.
fn push_value(text: &mut String, value: EpochValue) {
    match value {
        EpochValue::Int(value) => json::push_integer(text, value),
        EpochValue::Float(value) if value.is_finite() => {
            let _ = write!(text, "{value}");
        }
        EpochValue::Float(_) => text.push_str("null"),
    }
}

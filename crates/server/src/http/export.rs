//! `/api/v1/export` in its forms: samples as they are.

mod csv;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use ingest::remote_write::{SeriesV2, compress, encode_v2};
use model::{Labels, Matcher};
use query::{Budget, QueryError, Series};

use crate::error::ApiError;
use crate::http::json;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::{RequestParts, extract};
use crate::state::State;

pub(crate) const NS_PER_MS: i64 = 1_000_000;

/// Samples that one block of a native export holds at most, but for a single longer series.
const BLOCK_SAMPLES_MAX: usize = 1 << 20;

/// `/api/v1/export`: a line of JSON for each series, as `/api/v1/import` takes it. Series of native histograms are left out: lines have
/// no form for them.
pub(crate) async fn json_lines(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let lines = export(&state, request, "export", |series| {
        let mut lines = String::new();
        series.iter().filter(|series| !series.values.is_empty()).for_each(|series| push_line(&mut lines, series));
        lines.into_bytes()
    });
    Ok(([(header::CONTENT_TYPE, "application/stream+json")], lines.await?).into_response())
}

/// `/api/v1/export/native`: blocks as `/api/v1/import/native` takes them (`docs/formats/export.md`): everything, bit by bit.
pub(crate) async fn native(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let blocks = export(&state, request, "export", blocks);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], blocks.await?).into_response())
}

/// `/api/v1/export/csv`: rows with the columns that `format` names. Series of native histograms are left out.
pub(crate) async fn csv(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let format = parts.parameters.get("format").unwrap_or_default();
    let columns = csv::Columns::parse(format).map_err(|error| ApiError::invalid_parameter("format", error))?;
    let range_ms = range_ms(&parts)?;
    let rows =
        selected(&state, &parts, "export", range_ms, move |series, budget| columns.write(series, budget)).await?;
    Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], rows).into_response())
}

async fn export(
    state: &Arc<State>,
    request: Request,
    kind: &'static str,
    write: fn(&[Series]) -> Vec<u8>,
) -> Result<Vec<u8>, ApiError> {
    let parts = extract(state, request).await?;
    selected(state, &parts, kind, range_ms(&parts)?, move |series, _| Ok(write(series))).await
}

fn range_ms(parts: &RequestParts) -> Result<(i64, i64), ApiError> {
    let range = parts.parameters.range()?;
    Ok((range.start_ns / NS_PER_MS, range.end_ns / NS_PER_MS))
}

/// The series that satisfy one of the parameters `match[]`, each once, written down.
pub(crate) async fn selected(
    state: &Arc<State>,
    parts: &RequestParts,
    kind: &'static str,
    range_ms: (i64, i64),
    write: impl FnOnce(&[Series], &Budget) -> Result<Vec<u8>, QueryError> + Send + 'static,
) -> Result<Vec<u8>, ApiError> {
    let matcher_sets = parts.parameters.matcher_sets()?;
    if matcher_sets.is_empty() {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let budget = state.query_budget(parts);
    let text = parts.parameters.all("match[]").collect::<Vec<_>>().join(" ");
    let asked = QueryJob::new(state, kind, &text, &budget, parts)?;
    let database = parts.parameters.database(&parts.headers);
    let work = move |state: &State| {
        let series = series_of(state, &database, &matcher_sets, range_ms, &budget)?;
        // What is written is held, too: at most two samples' bytes for each.
        budget.take(2 * series.iter().map(Series::samples).sum::<usize>())?;
        Ok((String::new(), write(&series, &budget)?))
    };
    Ok(run_query(state, asked, work).await?.1)
}

fn series_of(
    state: &State,
    database: &str,
    matcher_sets: &[Vec<Matcher>],
    range_ms: (i64, i64),
    budget: &Budget,
) -> Result<Vec<Series>, QueryError> {
    let mut found: BTreeMap<Labels, Series> = BTreeMap::new();
    for matchers in matcher_sets {
        let series = state.db.samples(database, matchers, range_ms, budget)?;
        found.extend(series.into_iter().map(|series| (series.labels.clone(), series)));
    }
    Ok(found.into_values().collect())
}

/// Not a number has no spelling in JSON and is null, infinities are texts.
fn push_line(out: &mut String, series: &Series) {
    let _ = write!(out, r#"{{"metric":{},"values":["#, json::labels(&series.labels));
    for (place, value) in series.values.iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        let _ = match value {
            value if value.is_nan() => write!(out, "null"),
            value if value.is_infinite() => {
                write!(out, r#""{}Infinity""#, if value.is_sign_negative() { "-" } else { "" })
            }
            value => write!(out, "{value}"),
        };
    }
    out.push_str(r#"],"timestamps":["#);
    for (place, time_ms) in series.timestamps_ms.iter().enumerate() {
        out.push_str(if place == 0 { "" } else { "," });
        let _ = write!(out, "{time_ms}");
    }
    out.push_str("]}\n");
}

/// Blocks of some series each: a length in four bytes, the smallest first, and a request of remote write, version 2, packed by snappy.
fn blocks(series: &[Series]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), series);
    while !rest.is_empty() {
        let mut samples = 0;
        let within = |series: &&Series| {
            samples += series.samples();
            samples <= BLOCK_SAMPLES_MAX
        };
        let count = rest.iter().take_while(within).count().max(1);
        let (block, behind) = rest.split_at(count.min(rest.len()));
        let packed = compress(&request(block));
        out.extend((packed.len() as u32).to_le_bytes());
        out.extend_from_slice(&packed);
        rest = behind;
    }
    out
}

fn request(series: &[Series]) -> Vec<u8> {
    let labels: Vec<Vec<(&str, &str)>> = series.iter().map(|series| series.labels.iter().collect()).collect();
    let samples: Vec<Vec<(i64, f64)>> = series
        .iter()
        .map(|series| series.timestamps_ms.iter().copied().zip(series.values.iter().copied()).collect())
        .collect();
    let written = series.iter().zip(&labels).zip(&samples).map(|((series, labels), samples)| SeriesV2 {
        labels,
        samples,
        histograms: &series.histograms,
        ..SeriesV2::default()
    });
    encode_v2(&written.collect::<Vec<_>>())
}

//! `/api/v1/search/metric_names`, `/label_names` and `/label_values`: names that match a text, as lines of JSON.

mod score;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use axum::extract::{Request, State as From};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use model::{METRIC_NAME, Matcher, MetricMetadata, TimeRange};
use query::{Budget, QueryError};

use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::query::{QueryJob, run_query};
use crate::http::request::extract;
use crate::state::State;
use score::{Algorithm, Search};

/// Results unless the request says how many, and at most.
const RESULTS: usize = 100;
const RESULTS_MAX: usize = 10_000;
/// Results of a line, unless the request says how many.
const LINE_RESULTS: usize = 100;
/// Texts that are searched for at once.
const TERMS_MAX: usize = 32;
const NS_PER_MS: i64 = 1_000_000;
/// The range of time unless the request says one: up to now.
const RANGE_MS: i64 = 3_600_000;

/// The kind of names that are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    MetricNames { with_metadata: bool },
    LabelNames,
    LabelValues(String),
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Alphabetical { is_descending: bool },
    Score,
}

/// A request.
struct Wanted {
    target: Target,
    database: String,
    matcher_sets: Vec<Vec<Matcher>>,
    range: TimeRange,
    search: Search,
    order: Order,
    shows_score: bool,
    results_max: usize,
    line_results: usize,
}

/// A name and its score.
struct Match {
    name: String,
    score: f64,
}

pub(crate) async fn metric_names(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    answer(state, request, |parameters| {
        Ok(Target::MetricNames { with_metadata: parameters.flag("include_metadata", false)? })
    })
    .await
}

pub(crate) async fn label_names(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    answer(state, request, |_| Ok(Target::LabelNames)).await
}

pub(crate) async fn label_values(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    answer(state, request, |parameters| Ok(Target::LabelValues(parameters.required("label")?.to_owned()))).await
}

async fn answer(
    state: Arc<State>,
    request: Request,
    target: impl FnOnce(&Parameters) -> Result<Target, ApiError>,
) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let budget = state.query_budget(&parts);
    let text = parts.parameters.all("search[]").collect::<Vec<_>>().join(", ");
    let asked = QueryJob::new(&state, "search", &text, &budget, &parts)?;
    let target = target(&parts.parameters)?;
    let database = parts.parameters.database(&parts.headers);
    let wanted = read(&parts.parameters, (target, database), state.db.now_ns() / NS_PER_MS)?;
    drop(parts);
    let of_query = budget.clone();
    let work = move |state: &State| Ok((lines(state, &wanted, &of_query)?, ()));
    let (body, ()) = run_query(&state, asked, work).await?;
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson; charset=utf-8")], body).into_response())
}

fn read(parameters: &Parameters, (target, database): (Target, String), now_ms: i64) -> Result<Wanted, ApiError> {
    let start_ms = parameters.time_ms("start")?.unwrap_or(now_ms - RANGE_MS);
    let end_ms = parameters.time_ms("end")?.unwrap_or(now_ms);
    if end_ms < start_ms {
        return Err(ApiError::bad_data("end timestamp must not be before start timestamp"));
    }
    let terms: Vec<&str> = parameters.all("search[]").collect();
    if terms.len() > TERMS_MAX {
        let message = format!("too many search[] terms: got {}, maximum is {TERMS_MAX}", terms.len());
        return Err(ApiError::bad_data(message));
    }
    let algorithm = match parameters.get("fuzz_alg").filter(|name| !name.is_empty()) {
        None | Some("subsequence") => Algorithm::Subsequence,
        Some("jarowinkler") => Algorithm::JaroWinkler,
        Some(_) => return Err(ApiError::invalid_parameter("fuzz_alg", "it is subsequence or jarowinkler")),
    };
    let threshold = number(parameters, "fuzz_threshold", 0..=100)?.unwrap_or(0) as f64 / 100.0;
    let results_max = number(parameters, "limit", 1..=RESULTS_MAX)?.unwrap_or(RESULTS);
    let line_results = number(parameters, "batch_size", 1..=usize::MAX)?.unwrap_or(LINE_RESULTS);
    let is_case_sensitive = parameters.flag("case_sensitive", true)?;
    let order = order(parameters, terms.is_empty())?;
    Ok(Wanted {
        target,
        database,
        matcher_sets: parameters.matcher_sets()?,
        range: TimeRange::new(
            start_ms.saturating_mul(NS_PER_MS),
            end_ms.saturating_mul(NS_PER_MS).saturating_add(NS_PER_MS - 1),
        ),
        search: Search::new(terms.into_iter(), algorithm, threshold, is_case_sensitive),
        order,
        shows_score: parameters.flag("include_score", false)?,
        results_max,
        line_results,
    })
}

fn number(
    parameters: &Parameters,
    name: &str,
    range: std::ops::RangeInclusive<usize>,
) -> Result<Option<usize>, ApiError> {
    let Some(text) = parameters.get(name).filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.parse().ok().filter(|number| range.contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let (first, last) = (range.start(), range.end());
            let bounds =
                if *last == usize::MAX { format!("from {first} up") } else { format!("from {first} to {last}") };
            Err(ApiError::invalid_parameter(name, format!("it is a number {bounds}")))
        }
    }
}

fn order(parameters: &Parameters, has_no_terms: bool) -> Result<Order, ApiError> {
    let text = |name: &str| parameters.get(name).filter(|text| !text.is_empty()).map(str::to_owned);
    let (by, direction) = (text("sort_by"), text("sort_dir"));
    match (by.as_deref(), direction.as_deref()) {
        (None, Some(_)) => Err(ApiError::bad_data("sort_dir is only valid when sort_by is set")),
        (Some("score"), Some(_)) => Err(ApiError::bad_data("sort_dir is not supported for sort_by=score")),
        (Some("score"), None) if has_no_terms => Err(ApiError::bad_data("sort_by=score requires search[] to be set")),
        (Some("score"), None) => Ok(Order::Score),
        (None | Some("alpha"), None | Some("asc")) => Ok(Order::Alphabetical { is_descending: false }),
        (Some("alpha"), Some("dsc")) => Ok(Order::Alphabetical { is_descending: true }),
        (Some("alpha"), Some(_)) => Err(ApiError::invalid_parameter("sort_dir", "it is asc or dsc")),
        (Some(_), _) => Err(ApiError::invalid_parameter("sort_by", "it is alpha or score")),
    }
}

/// The results, some in a line, and a last line that says whether there are more.
fn lines(state: &State, wanted: &Wanted, budget: &Budget) -> Result<String, QueryError> {
    let Wanted { database, matcher_sets, range, .. } = wanted;
    let names = match &wanted.target {
        Target::MetricNames { .. } => state.db.label_values(database, METRIC_NAME, matcher_sets, *range, 0, budget)?,
        Target::LabelNames => state.db.label_names(database, matcher_sets, *range, 0, budget)?,
        Target::LabelValues(label) => state.db.label_values(database, label, matcher_sets, *range, 0, budget)?,
    };
    let mut found = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        if index % 1024 == 0 {
            budget.check()?;
        }
        if let Some(score) = wanted.search.score(&name) {
            found.push(Match { name, score });
        }
    }
    found.sort_by(|a, b| match wanted.order {
        Order::Alphabetical { is_descending: false } => a.name.cmp(&b.name),
        Order::Alphabetical { is_descending: true } => b.name.cmp(&a.name),
        Order::Score => b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal).then_with(|| a.name.cmp(&b.name)),
    });
    let has_more = found.len() > wanted.results_max;
    found.truncate(wanted.results_max);
    let metadata = match wanted.target {
        Target::MetricNames { with_metadata: true } => state.db.metadata(database, None, budget)?,
        _ => Vec::new(),
    };
    let metadata: HashMap<&str, &MetricMetadata> =
        metadata.iter().map(|metadata| (metadata.family.as_str(), metadata)).collect();
    let mut out = String::new();
    // The first line is there also without results.
    for line in found.chunks(wanted.line_results).chain(found.is_empty().then_some(&[][..])) {
        out.push_str(r#"{"results":["#);
        for (index, found) in line.iter().enumerate() {
            out.push_str(if index == 0 { "" } else { "," });
            push_result(&mut out, wanted, found, metadata.get(found.name.as_str()).copied());
        }
        out.push_str("]}\n");
    }
    // Writing to a string cannot fail.
    let _ = writeln!(out, r#"{{"status":"success","has_more":{has_more}}}"#);
    Ok(out)
}

fn push_result(out: &mut String, wanted: &Wanted, found: &Match, metadata: Option<&MetricMetadata>) {
    let key = if matches!(wanted.target, Target::LabelValues(_)) { "value" } else { "name" };
    let _ = write!(out, r#"{{"{key}":{}"#, json::text(&found.name));
    if wanted.shows_score {
        let _ = write!(out, r#","score":{}"#, found.score);
    }
    if let Some(metadata) = metadata {
        let _ = write!(out, r#","type":"{}""#, metadata.kind.name());
        for (name, text) in [("help", &metadata.help), ("unit", &metadata.unit)] {
            if !text.is_empty() {
                let _ = write!(out, r#","{name}":{}"#, json::text(text));
            }
        }
    }
    out.push('}');
}

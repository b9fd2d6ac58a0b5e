//! `/api/v1/targets` and its neighbours.

use std::sync::Arc;

use access::grant::Right;
use access::scope::Scope;
use axum::Extension;
use axum::extract::{Request, State as From};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use model::MetricMetadata;
use relabel::{Labels, relabel_steps};
use scrape::config::{read_selector, units};
use scrape::target::TargetLoop;
use scrape::{Dropped, Pool};
use serde_json::{Map, Value, json};

use super::mode::PrometheusMode;
use crate::error::ApiError;
use crate::http::json;
use crate::http::parameters::Parameters;
use crate::http::request::extract;
use crate::http::status;
use crate::sign_in::Caller;
use crate::state::State;

/// When no scrape was: Go's zero time.
const NEVER: &str = "0001-01-01T00:00:00Z";

/// Which targets are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Selected {
    active: bool,
    dropped: bool,
}

impl Selected {
    fn read(parameters: &Parameters) -> Self {
        let state = parameters.get("state").unwrap_or_default().to_ascii_lowercase();
        // Other words list all, as in Prometheus.
        Self { active: state != "dropped", dropped: state != "active" }
    }
}

/// The jobs that a caller sees: all or none. Targets name other machines, and their metadata the metrics of a database, so the caller has to
/// be let read all of that database.
fn pools(state: &State, scope: &Scope, wanted: Option<&str>) -> Vec<Arc<Pool>> {
    let mut pools = visible_mode(state, scope).map(|mode| mode.pools()).unwrap_or_default();
    let wanted = wanted.filter(|wanted| !wanted.is_empty());
    pools.retain(|pool| wanted.is_none_or(|wanted| pool.config.job_name == wanted));
    pools
}

/// What runs, if a caller may see it.
fn visible_mode<'a>(state: &'a State, scope: &Scope) -> Option<&'a Arc<PrometheusMode>> {
    let reads_all =
        |database: &str| scope.may(Right::Read, database) && scope.matchers(Right::Read, database).is_empty();
    state.settings.prometheus.as_ref().filter(|mode| reads_all(mode.database()))
}

/// What an operator should look at.
pub(crate) async fn notifications(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    let mode = visible_mode(&state, &caller.scope);
    let now = time(state.db.now_ns());
    let texts = mode.map(|mode| mode.notifications()).unwrap_or_default().into_iter();
    let shown: Vec<Value> = texts.map(|text| json!({ "text": text, "date": now, "active": true })).collect();
    json::success(&Value::Array(shown).to_string(), &[], &[])
}

pub(crate) async fn targets(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let selected = Selected::read(&parts.parameters);
    let pools = pools(&state, &parts.caller.scope, parts.parameters.get("scrapePool"));
    let data = state.work_unbounded(move |_| list(&pools, selected)).await?;
    Ok(json::success(&data, &[], &[]))
}

fn list(pools: &[Arc<Pool>], selected: Selected) -> String {
    let (mut active, mut dropped, mut counts, mut errors) = (Vec::new(), Vec::new(), Map::new(), Map::new());
    for pool in pools {
        let name = &pool.config.job_name;
        if selected.active {
            active.extend(pool.active().iter().map(|target| target_json(target)));
        }
        let Dropped { count, labels, invalid } = pool.dropped();
        counts.insert(name.clone(), count.into());
        if selected.dropped {
            dropped.extend(labels.iter().map(|labels| json!({ "discoveredLabels": labels, "scrapePool": name })));
        }
        let found: Vec<String> = pool.errors().into_iter().chain(invalid).collect();
        if !found.is_empty() {
            errors.insert(name.clone(), found.into());
        }
    }
    let (active, dropped, counts) = (Value::Array(active), Value::Array(dropped), Value::Object(counts));
    // Not of Prometheus: why jobs do not run, or lack targets.
    let errors =
        if errors.is_empty() { String::new() } else { format!(r#","scrapePoolErrors":{}"#, Value::Object(errors)) };
    format!(r#"{{"activeTargets":{active},"droppedTargets":{dropped},"droppedTargetCounts":{counts}{errors}}}"#)
}

fn target_json(target: &TargetLoop) -> Value {
    let last = target.last();
    let url = &target.target.url;
    json!({
        "discoveredLabels": target.target.discovered,
        "labels": target.target.labels,
        "scrapePool": target.job.job_name,
        "scrapeUrl": url,
        "globalUrl": url,
        "lastError": last.error,
        "lastScrape": time(last.begun_ns),
        "lastScrapeDuration": last.duration_s,
        "health": last.health.name(),
        "scrapeInterval": units::duration_text(target.target.interval_ms),
        "scrapeTimeout": units::duration_text(target.target.timeout_ms),
    })
}

pub(super) fn time(time_ns: i64) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(time_ns)) {
        Ok(time) if time_ns != 0 => time.to_string(),
        _ => NEVER.to_owned(),
    }
}

pub(crate) async fn scrape_pools(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    let pools = pools(&state, &caller.scope, None);
    let names: Vec<String> = pools.iter().map(|pool| pool.config.job_name.clone()).collect();
    json::success(&json!({ "scrapePools": names }).to_string(), &[], &[])
}

pub(crate) async fn metadata(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let parameters = &parts.parameters;
    let selector = parameters.get("match_target").filter(|text| !text.is_empty()).map(read_selector).transpose();
    let selector = selector.map_err(|error| ApiError::invalid_parameter("match_target", error))?;
    let limit = match parameters.get("limit").filter(|text| !text.is_empty()).map(str::parse::<i64>) {
        None => usize::MAX,
        Some(Ok(limit)) => usize::try_from(limit).unwrap_or(usize::MAX),
        Some(Err(_)) => return Err(ApiError::invalid_parameter("limit", "it is not a number")),
    };
    let metric = parameters.get("metric").filter(|metric| !metric.is_empty()).map(str::to_owned);
    let mut found = Vec::new();
    for target in pools(&state, &parts.caller.scope, None).iter().flat_map(|pool| pool.active()) {
        let labels = &target.target.labels;
        if selector.as_ref().is_some_and(|selector| !selector.matches(labels)) {
            continue;
        }
        let described = target.metadata();
        let wanted = described.iter().filter(|found| metric.as_ref().is_none_or(|metric| found.family == *metric));
        found.extend(wanted.map(|found| metadata_json(labels, found, metric.is_none())));
        if found.len() >= limit {
            break;
        }
    }
    found.truncate(limit);
    Ok(json::success(&Value::Array(found).to_string(), &[], &[]))
}

fn metadata_json(labels: &Labels, found: &MetricMetadata, with_name: bool) -> Value {
    let mut shown = json!({
        "target": labels,
        "type": found.kind.name(),
        "help": found.help,
        "unit": found.unit,
    });
    if with_name {
        shown["metric"] = found.family.clone().into();
    }
    shown
}

pub(crate) async fn relabel(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let name = parts.parameters.required("scrapePool")?;
    let labels: Labels = match serde_json::from_str(parts.parameters.required("labels")?) {
        Ok(Value::Object(pairs)) => {
            let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
            pairs.into_iter().map(|(name, value)| (name, text(value))).collect()
        }
        _ => return Err(ApiError::invalid_parameter("labels", "it is no JSON object")),
    };
    let pools = pools(&state, &parts.caller.scope, Some(name));
    let pool = pools.first().ok_or_else(|| ApiError::bad_data(format!("there is no scrape pool {name:?}")))?;
    let rules = &pool.config.relabel;
    let steps = relabel_steps(&labels, rules).into_iter().zip(rules).map(|(step, rule)| {
        let text = rule.text();
        json!({
            "rule": {
                "source_labels": text.source_labels,
                "separator": text.separator.as_deref().unwrap_or(";"),
                "regex": text.regex.as_deref().unwrap_or("(.*)"),
                "modulus": text.modulus,
                "target_label": text.target_label,
                "replacement": text.replacement.as_deref().unwrap_or("$1"),
                "action": text.action.name(),
            },
            "keep": step.labels.is_some(),
            "output": step.labels.unwrap_or_default(),
        })
    });
    let data = json!({ "steps": steps.collect::<Vec<_>>() });
    Ok(json::success(&data.to_string(), &[], &[]))
}

/// The configuration in force, without its secrets.
pub(crate) async fn config(From(state): From<Arc<State>>) -> Response {
    let shown = state.settings.prometheus.as_ref().map(|mode| mode.config().redacted.clone());
    json::success(&json!({ "yaml": shown.unwrap_or_default() }).to_string(), &[], &[])
}

pub(crate) async fn reload(From(state): From<Arc<State>>) -> Result<Response, ApiError> {
    let Some(mode) = state.settings.prometheus.clone() else {
        return Err(ApiError::bad_data(
            "the server runs no configuration: start it with --prometheus FILE or --stream-aggregation FILE",
        ));
    };
    if let Some(refused) = status::lifecycle_refusal(&state) {
        return Ok(refused);
    }
    let reloaded = state.work_unbounded(move |_| mode.reload()).await?;
    Ok(match reloaded {
        Ok(_) => StatusCode::OK.into_response(),
        Err(problems) => {
            let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
            let message = format!("failed to reload config: {}\n", lines.join("\n"));
            (StatusCode::INTERNAL_SERVER_ERROR, message).into_response()
        }
    })
}

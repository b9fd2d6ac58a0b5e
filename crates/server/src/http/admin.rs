//! `/api/v1/admin`: backups, compaction, how databases keep their data, and Prometheus's deletion of series.

use std::sync::Arc;

use access::audit::Event;
use access::grant::Right;
use axum::Extension;
use axum::extract::{Path, Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::{DatabasePolicy, EpochKind, EpochValue, StoreError};
use model::TimeRange;
use platform::objects::ObjectOptions;
use query::{Budget, FOLDED_WARNING, RegularSettings};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::http::backup_targets;
use crate::http::json;
use crate::http::parameters::{duration_text, parse_duration_ms};
use crate::http::request::extract;
use crate::sign_in::Caller;
use crate::state::State;

const NS_PER_MS: i64 = 1_000_000;

pub(crate) async fn backup(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let to = parts.parameters.required("to")?.to_owned();
    state.sign_in.audit.note(state.db.now_ns(), Event::BackedUp, parts.caller.actor(), &crate::redact::passwords(&to));
    let keep = match parts.parameters.get("keep").map(str::parse::<usize>) {
        None => None,
        Some(Ok(keep @ 1..)) => Some(keep),
        Some(_) => return Err(ApiError::invalid_parameter("keep", "it is not a number from 1 up")),
    };
    let run = move |state: &State| {
        let to = backup_targets::resolve(&state.settings.backup_targets, &to)?;
        let done = state.db.backup(&to, &ObjectOptions::default(), keep, &mut |_| {});
        done.map_err(|error| storage(&error))
    };
    let (report, pruned) = state.work(run).await??;
    let data = json!({
        "name": report.name,
        "sequence": report.sequence,
        "files": report.files,
        "bytes": report.bytes,
        "files_copied": report.files_copied,
        "bytes_copied": report.bytes_copied,
        "backups_removed": pruned.map_or(0, |pruned| pruned.backups_removed),
        "files_removed": pruned.map_or(0, |pruned| pruned.files_removed),
    });
    Ok(json::success(&data.to_string(), &[], &[]))
}

/// As Prometheus: a backup within the data folder, `snapshots/NAME`; `thalweg restore` reads it.
pub(crate) async fn snapshot(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    extract(&state, request).await?;
    let report = state.work(|state| state.db.snapshot(&mut |_| {})).await?.map_err(|error| storage(&error))?;
    Ok(json::success(&json!({ "name": report.name }).to_string(), &[], &[]))
}

pub(crate) async fn compact(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    extract(&state, request).await?;
    let report = state.work(|state| state.db.compact(&mut |_| {})).await?.map_err(|error| storage(&error))?;
    let data = json!({
        "merges": report.merges,
        "bytes_before": report.bytes.0,
        "bytes_after": report.bytes.1,
        "parts_before": report.parts.0,
        "parts_after": report.parts.1,
        "deletes_before": report.deletes.0,
        "deletes_after": report.deletes.1,
    });
    Ok(json::success(&data.to_string(), &[], &[]))
}

/// The losses that no operator has acknowledged yet.
pub(crate) async fn losses(From(state): From<Arc<State>>) -> Response {
    let losses: Vec<Value> = state.db.health().losses().iter().map(loss_json).collect();
    json::success(&Value::from(losses).to_string(), &[], &[])
}

/// Has answers no longer warn of what is lost.
pub(crate) async fn acknowledge_losses(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    extract(&state, request).await?;
    let count = state.work(|state| state.db.acknowledge_losses()).await?.map_err(|error| storage(&error))?;
    Ok(json::success(&json!({ "acknowledged": count }).to_string(), &[], &[]))
}

fn loss_json(loss: &db::Loss) -> Value {
    json!({
        "file": loss.file,
        "message": loss.message,
        "start_ns": loss.range.start_ns,
        "end_ns": loss.range.end_ns,
        "text": loss.to_string(),
    })
}

/// The times that a response is about; one without is about all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadTimes(TimeRange);

impl ReadTimes {
    /// Attaches the times that a query has read to its response. A statement that reads no rows may be about any.
    pub(crate) fn attach(response: &mut Response, budget: &Budget) {
        let range = budget.read_range();
        if range != TimeRange::EMPTY {
            response.extensions_mut().insert(Self(range));
        }
        if budget.is_folded() {
            response.extensions_mut().insert(IsFolded);
        }
    }
}

/// Marks a response that is made of what folding left.
#[derive(Debug, Clone, Copy)]
struct IsFolded;

/// Says in a header of every response whose times are hit that some data is lost, until that is acknowledged; and of every
/// response that is made of what folding left. Responses of PromQL have a warning as well.
pub(crate) fn warn(state: &State, response: &mut Response) {
    let times = response.extensions().get::<ReadTimes>().map(|times| times.0);
    let folded = response.extensions().get::<IsFolded>().map(|_| FOLDED_WARNING.to_owned());
    let warnings: Vec<String> = state.db.health().loss_warning(times.as_ref()).into_iter().chain(folded).collect();
    if warnings.is_empty() {
        return;
    }
    if let Ok(value) = header::HeaderValue::from_str(&printable(&warnings.join("; "))) {
        response.headers_mut().insert("x-thalweg-warning", value);
    }
}

/// A text as a header may hold it: letters beyond ASCII become question marks.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|letter| if (' '..='~').contains(&letter) { letter } else { '?' }).collect()
}

pub(crate) async fn databases(
    From(state): From<Arc<State>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let list = move |state: &State| {
        let of = |name: &String| state.db.policy(name).map(|policy| database_json(state, name, &policy));
        let databases = state.db.databases();
        let found: Vec<Value> = databases.iter().filter(|name| caller.scope.sees(name)).filter_map(of).collect();
        Value::from(found)
    };
    Ok(json::success(&state.work(list).await?.to_string(), &[], &[]))
}

pub(crate) async fn database(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    match state.db.policy(&name).filter(|_| caller.scope.sees(&name)) {
        Some(policy) => Ok(json::success(&database_json(&state, &name, &policy).to_string(), &[], &[])),
        None => Err(ApiError::not_found(format!("there is no database {name:?}"))),
    }
}

/// Makes a database or changes how it keeps its data; what the body leaves out stays as it is.
pub(crate) async fn put_database(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let change = PolicyChange::read(&parts.body)?;
    let policy = change_policy(&state, &parts.caller, &name, change).await?;
    Ok(json::success(&database_json(&state, &name, &policy).to_string(), &[], &[]))
}

/// Makes a database or changes its policy, if the caller may; the policy then.
pub(super) async fn change_policy(
    state: &Arc<State>,
    caller: &Caller,
    name: &str,
    change: PolicyChange,
) -> Result<DatabasePolicy, ApiError> {
    // One that the caller has no right on is answered as one that does not exist.
    let is_known = caller.scope.sees(name) && state.db.databases().iter().any(|known| known == name);
    let right = if is_known { Right::Admin } else { Right::Create };
    caller.require(right, name)?;
    let detail = format!("database {name}");
    state.sign_in.audit.note(state.db.now_ns(), Event::SettingsChanged, caller.actor(), &detail);
    let name = name.to_owned();
    let set = move |state: &State| {
        if let Some(definition) = change.regular.over(state.db.regular(&name)).map_err(StoreError::Invalid)?
            && state.db.regular(&name) != Some(definition)
        {
            state.db.define_regular(&name, &definition)?;
        }
        let policy = change.over(state.db.policy(&name).unwrap_or_default());
        state.db.set_policy(&name, &policy)?;
        Ok(state.db.policy(&name).unwrap_or_default())
    };
    state.work(set).await?.map_err(|error| storage(&error))
}

/// Drops a database with all its rows, and gives their room back; 204.
pub(crate) async fn drop_database(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    drop_named(&state, &caller, name).await
}

pub(super) async fn drop_named(state: &Arc<State>, caller: &Caller, name: String) -> Result<Response, ApiError> {
    caller.require(Right::Admin, &name)?;
    state.sign_in.audit.note(state.db.now_ns(), Event::Deleted, caller.actor(), &format!("drop database {name}"));
    let message = format!("there is no database {name:?}");
    let work = move |state: &State| {
        let dropped = state.db.drop_database(&name);
        state.forget_dropped();
        dropped
    };
    let dropped = state.work(work).await?.map_err(|error| storage(&error))?;
    if dropped { Ok(StatusCode::NO_CONTENT.into_response()) } else { Err(ApiError::not_found(message)) }
}

/// As Prometheus: `match[]`, `start`, `end`; 204.
pub(crate) async fn delete_series(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let matcher_sets = parts.parameters.matcher_sets()?;
    if matcher_sets.is_empty() {
        return Err(ApiError::bad_data("no match[] parameter provided"));
    }
    let range = parts.parameters.range()?;
    // The whole of the last millisecond.
    let range = TimeRange::new(range.start_ns, range.end_ns.saturating_add(NS_PER_MS - 1));
    let database = parts.parameters.database(&parts.headers);
    parts.caller.require(Right::Admin, &database)?;
    let detail = format!("{database}: {}", parts.parameters.all("match[]").collect::<Vec<_>>().join(" "));
    state.sign_in.audit.note(state.db.now_ns(), Event::Deleted, parts.caller.actor(), &detail);
    let delete = move |state: &State| state.db.delete(&database, &matcher_sets, &range);
    let deleted = state.work(delete).await?.map_err(|error| storage(&error))?;
    let series = [("x-thalweg-series", deleted.series.to_string())];
    Ok((StatusCode::NO_CONTENT, series).into_response())
}

/// As Prometheus: what was deleted goes from the disk; 204.
pub(crate) async fn clean_tombstones(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    extract(&state, request).await?;
    state.work(|state| state.db.compact(&mut |_| {})).await?.map_err(|error| storage(&error))?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn storage(error: &StoreError) -> ApiError {
    use platform::objects::ObjectErrorKind as Kind;
    let is_asked_wrong = match error {
        StoreError::Invalid(_) => true,
        StoreError::Objects(error) => matches!(error.kind, Kind::Config | Kind::Denied),
        _ => false,
    };
    if is_asked_wrong { ApiError::bad_data(error.to_string()) } else { ApiError::internal(error.to_string()) }
}

fn policy_json(name: &str, policy: &DatabasePolicy) -> Value {
    let text = |ns: i64| duration_text(ns / NS_PER_MS);
    let folds: Vec<String> =
        policy.folds.iter().map(|(age_ns, width_ns)| format!("{}:{}", text(*age_ns), text(*width_ns))).collect();
    let retention = if policy.retention_ns == 0 { "forever".to_owned() } else { text(policy.retention_ns) };
    let mut shown = json!({ "name": name, "retention": retention, "folds": folds.join(",") });
    if policy.is_strict {
        shown["strict_folds"] = Value::from(true);
    }
    shown
}

/// A database's policy, and its definition if it is regular.
fn database_json(state: &State, name: &str, policy: &DatabasePolicy) -> Value {
    let mut shown = policy_json(name, policy);
    if let Some(definition) = state.db.regular(name) {
        shown["interval"] = Value::from(duration_text(definition.interval_ns / NS_PER_MS));
        shown["start"] = Value::from(query::time::format_rfc3339_us(definition.start_ns));
        shown["value"] = Value::from(if definition.kind == EpochKind::Int { "int" } else { "float" });
        shown["missing"] = match definition.missing {
            None => Value::from("null"),
            Some(EpochValue::Int(value)) => Value::from(value.to_string()),
            Some(EpochValue::Float(value)) => Value::from(value.to_string()),
        };
        shown["overwrite"] = Value::from(if definition.may_overwrite { "allow" } else { "refuse" });
    }
    shown
}

/// What a request says of a policy.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PolicyChange {
    retention_ns: Option<i64>,
    folds: Option<Vec<(i64, i64)>>,
    is_strict: Option<bool>,
    regular: RegularSettings,
}

impl PolicyChange {
    /// Keeps rows so long; 0: forever.
    pub(super) fn of_retention(retention_ns: i64) -> Self {
        Self { retention_ns: Some(retention_ns), ..Self::default() }
    }

    fn read(body: &[u8]) -> Result<Self, ApiError> {
        let expected = r#"expected an object such as {"retention":"1y","folds":"30d:5m,90d:1h"}"#;
        let bad = |what: &str| ApiError::bad_data(format!("{what}; {expected}"));
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self::default());
        }
        let object: Map<String, Value> =
            serde_json::from_slice(body).map_err(|error| bad(&format!("the body cannot be read: {error}")))?;
        let mut change = Self::default();
        for (name, value) in &object {
            if name == "strict_folds" {
                let is_strict = value.as_bool().ok_or_else(|| bad(&format!("{name:?} is neither true nor false")))?;
                change.is_strict = Some(is_strict);
                continue;
            }
            if RegularSettings::NAMES.contains(&name.as_str()) {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                change.regular.set(name, &text).map_err(|why| bad(&why))?;
                continue;
            }
            let text = value.as_str().ok_or_else(|| bad(&format!("{name:?} is not a string")))?;
            match name.as_str() {
                "retention" => change.retention_ns = Some(retention(text)?),
                "folds" => change.folds = Some(folds(text)?),
                "name" => {}
                _ => return Err(bad(&format!("unknown field {name:?}"))),
            }
        }
        Ok(change)
    }

    fn over(self, policy: DatabasePolicy) -> DatabasePolicy {
        DatabasePolicy {
            retention_ns: self.retention_ns.unwrap_or(policy.retention_ns),
            folds: self.folds.unwrap_or_else(|| policy.folds.clone()),
            is_strict: self.is_strict.unwrap_or(policy.is_strict),
            ..policy
        }
    }
}

fn retention(text: &str) -> Result<i64, ApiError> {
    if matches!(text, "" | "0" | "forever") { Ok(0) } else { duration_ns("retention", text) }
}

/// Steps as `age:width`, between commas.
fn folds(text: &str) -> Result<Vec<(i64, i64)>, ApiError> {
    let parse = |step: &str| {
        let (age, width) = step.split_once(':').ok_or_else(|| {
            ApiError::invalid_parameter("folds", format!("{step:?} is not an age and a width such as 30d:5m"))
        })?;
        Ok((duration_ns("folds", age.trim())?, duration_ns("folds", width.trim())?))
    };
    text.split(',').map(str::trim).filter(|step| !step.is_empty()).map(parse).collect()
}

fn duration_ns(name: &str, text: &str) -> Result<i64, ApiError> {
    if text.parse::<f64>().is_ok() {
        let reason = format!("{text:?} has no unit: write {text}d for days, {text}h for hours or {text}m for minutes");
        return Err(ApiError::invalid_parameter(name, reason));
    }
    let duration_ms = parse_duration_ms(text).map_err(|why| ApiError::invalid_parameter(name, why))?;
    match duration_ms.checked_mul(NS_PER_MS).filter(|length_ns| *length_ns > 0) {
        Some(length_ns) => Ok(length_ns),
        None => {
            Err(ApiError::invalid_parameter(name, format!("{text:?} is not a duration above 0 and below 290 years")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_NS: i64 = 86_400_000_000_000;

    #[test]
    fn policies_as_texts() {
        let read = |body: &str| PolicyChange::read(body.as_bytes());
        let change = read(r#"{"retention":"30d","folds":"7d:5m, 14d:1h"}"#).unwrap();
        let policy = change.over(DatabasePolicy::default());
        assert_eq!(policy.retention_ns, 30 * DAY_NS);
        assert_eq!(policy.folds, [(7 * DAY_NS, 300_000_000_000), (14 * DAY_NS, 3_600_000_000_000)]);
        let text = policy_json("a", &policy).to_string();
        assert_eq!(text, r#"{"folds":"7d:5m,14d:1h","name":"a","retention":"30d"}"#);
        assert_eq!(read(&text).unwrap().over(DatabasePolicy::default()), policy, "what is told can be said");
        assert_eq!(read("").unwrap(), PolicyChange::default());
        let kept = read(r#"{"folds":""}"#).unwrap().over(policy);
        assert_eq!((kept.retention_ns, kept.folds.len()), (30 * DAY_NS, 0));
        for bad in [
            "[]",
            "{",
            r#"{"retention":5}"#,
            r#"{"retention":"soon"}"#,
            r#"{"keep":"1d"}"#,
            r#"{"folds":"30d"}"#,
            r#"{"folds":"30:5m"}"#,
        ] {
            assert_eq!(read(bad).unwrap_err().status, StatusCode::BAD_REQUEST, "{bad}");
        }
    }
}

//! What InfluxDB 2's clients need beside writing: buckets, which are databases; organisations, of which there is one under any name;
//! and deletes.

use std::fmt::Write;
use std::sync::Arc;

use access::audit::Event;
use access::grant::Right;
use axum::Extension;
use axum::extract::{Path, Request, State as From};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use db::DatabasePolicy;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::http::admin::{PolicyChange, change_policy, drop_named};
use crate::http::influx::{self, CONFLICT, Version};
use crate::http::parameters::Parameters;
use crate::http::parameters::bucket_database;
use crate::http::request::{RequestParts, extract};
use crate::sign_in::Caller;
use crate::state::State;

const NS_PER_S: i64 = 1_000_000_000;
pub(crate) const ORGANISATION: &str = "thalweg";
pub(crate) const ORGANISATION_ID: &str = "0000000000000001";
/// Buckets of a page, unless the request says how many, and at most.
const PAGE_BUCKETS: usize = 20;
const PAGE_BUCKETS_MAX: usize = 100;

/// `GET /api/v2/orgs`: the one organisation, by the name that the request has for it.
pub(crate) async fn organisations(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let name = parts.parameters.get("org").unwrap_or(ORGANISATION);
        let organisation = json!({ "id": ORGANISATION_ID, "name": name, "status": "active", "links": {} });
        Ok(ok(&json!({ "links": { "self": "/api/v2/orgs" }, "orgs": [organisation] })))
    })
    .await
}

/// `GET /api/v2/buckets`: `name`, `id`, `limit`, `offset`, `after`.
pub(crate) async fn buckets(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let page = BucketPage::read(&parts.parameters)?;
        let names = page.select(visible(&state, &parts.caller));
        let buckets: Vec<Value> = names.iter().filter_map(|name| bucket_json(&state, name)).collect();
        Ok(ok(&json!({ "links": { "self": "/api/v2/buckets" }, "buckets": buckets })))
    })
    .await
}

/// `GET /api/v2/buckets/{id}`
pub(crate) async fn bucket(
    From(state): From<Arc<State>>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Response {
    respond(async {
        let name = named(&state, &caller, &id)?;
        Ok(ok(&bucket_json(&state, &name).unwrap_or_default()))
    })
    .await
}

/// `POST /api/v2/buckets`: `name`, `retentionRules`.
pub(crate) async fn create_bucket(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let body = object(&parts)?;
        let name = body.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ApiError::bad_data("the bucket has no name"))?;
        if visible(&state, &parts.caller).iter().any(|known| known == name) {
            let message = format!("bucket with name {name} already exists");
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, CONFLICT, message));
        }
        let policy = change_policy(&state, &parts.caller, name, retention(&body)?).await?;
        Ok((StatusCode::CREATED, ok(&described(name, &policy))).into_response())
    })
    .await
}

/// `PATCH /api/v2/buckets/{id}`: `retentionRules`.
pub(crate) async fn change_bucket(From(state): From<Arc<State>>, Path(id): Path<String>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let name = named(&state, &parts.caller, &id)?;
        let body = object(&parts)?;
        if body.get("name").is_some_and(|new| new != &Value::from(name.as_str())) {
            return Err(ApiError::bad_data("a bucket cannot be renamed"));
        }
        let policy = change_policy(&state, &parts.caller, &name, retention(&body)?).await?;
        Ok(ok(&described(&name, &policy)))
    })
    .await
}

/// `DELETE /api/v2/buckets/{id}`
pub(crate) async fn drop_bucket(
    From(state): From<Arc<State>>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Response {
    respond(async {
        let name = named(&state, &caller, &id)?;
        drop_named(&state, &caller, name).await
    })
    .await
}

/// `POST /api/v2/delete`: `bucket` or `bucketID`; `start`, `stop` and `predicate` in the body.
pub(crate) async fn delete(From(state): From<Arc<State>>, request: Request) -> Response {
    respond(async {
        let parts = extract(&state, request).await?;
        let database = deleted_database(&state, &parts.caller, &parts.parameters)?;
        if !visible(&state, &parts.caller).contains(&database) {
            return Err(ApiError::not_found(format!("bucket {database:?} not found")));
        }
        parts.caller.require(Right::Admin, &database)?;
        let text = delete_statement(&object(&parts)?).map_err(ApiError::bad_data)?;
        let detail = format!("{database}: {text}");
        state.sign_in.audit.note(state.db.now_ns(), Event::Deleted, parts.caller.actor(), &detail);
        let budget = state.query_budget(&parts);
        let run = move |state: &State| {
            let query = influxql::Query::parse(&text, &std::collections::BTreeMap::new())?;
            let context = influxql::RequestContext { database: Some(&database), read_only: false };
            state.db.run_influxql(&query, 0, &context, &budget)
        };
        state.work(run).await??;
        Ok(StatusCode::NO_CONTENT.into_response())
    })
    .await
}

/// The database that a delete names.
pub(crate) fn deleted_database(state: &State, caller: &Caller, parameters: &Parameters) -> Result<String, ApiError> {
    match (parameters.get("bucket"), parameters.get("bucketID")) {
        (Some(name), _) => bucket_database(name).map(str::to_owned),
        (None, Some(id)) => named(state, caller, id),
        (None, None) => Err(ApiError::invalid_parameter("bucket", "it is missing")),
    }
}

async fn respond(answer: impl Future<Output = Result<Response, ApiError>>) -> Response {
    answer.await.unwrap_or_else(|error| influx::failure(Version::V2, &error))
}

fn ok(body: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json; charset=utf-8")], body.to_string()).into_response()
}

fn object(parts: &RequestParts) -> Result<Value, ApiError> {
    let body: Result<Value, _> = serde_json::from_slice(&parts.body);
    let body = body.map_err(|error| ApiError::bad_data(format!("the body is no JSON: {error}")))?;
    if body.is_object() { Ok(body) } else { Err(ApiError::bad_data("the body is no JSON object")) }
}

/// The databases that a caller has any right on.
fn visible(state: &State, caller: &Caller) -> Vec<String> {
    let mut names = state.db.databases();
    names.retain(|name| caller.scope.sees(name));
    names
}

/// Which buckets a request lists.
struct BucketPage {
    name: Option<String>,
    id: Option<String>,
    after: Option<String>,
    offset: usize,
    limit: usize,
}

impl BucketPage {
    fn read(parameters: &Parameters) -> Result<Self, ApiError> {
        let text = |name| parameters.get(name).map(str::to_owned);
        let number = |name: &str, default: usize| match parameters.get(name) {
            None => Ok(default),
            Some(text) => text.parse().map_err(|_| ApiError::invalid_parameter(name, "it is no number from 0 up")),
        };
        Ok(Self {
            name: text("name"),
            id: text("id"),
            after: text("after"),
            offset: number("offset", 0)?,
            limit: number("limit", PAGE_BUCKETS)?.clamp(1, PAGE_BUCKETS_MAX),
        })
    }

    fn select(&self, mut names: Vec<String>) -> Vec<String> {
        let is = |wanted: &Option<String>, known: &str| wanted.as_ref().is_none_or(|wanted| wanted == known);
        let after = self.after.as_ref().and_then(|after| names.iter().position(|name| id(name) == *after));
        names.drain(..after.map_or(0, |place| place + 1));
        names.retain(|name| is(&self.name, name) && is(&self.id, &id(name)));
        names.into_iter().skip(self.offset).take(self.limit).collect()
    }
}

/// A bucket's id: 16 hexadecimal digits, made of its name by FNV-1a.
fn id(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{:016x}", hash.max(1))
}

fn named(state: &State, caller: &Caller, wanted: &str) -> Result<String, ApiError> {
    let found = visible(state, caller).into_iter().find(|name| id(name) == wanted);
    found.ok_or_else(|| ApiError::not_found("bucket not found"))
}

fn bucket_json(state: &State, name: &str) -> Option<Value> {
    state.db.policy(name).map(|policy| described(name, &policy))
}

fn described(name: &str, policy: &DatabasePolicy) -> Value {
    let seconds = policy.retention_ns / NS_PER_S;
    let rules = if seconds == 0 { json!([]) } else { json!([{ "type": "expire", "everySeconds": seconds }]) };
    json!({
        "id": id(name),
        "orgID": ORGANISATION_ID,
        "type": "user",
        "name": name,
        "retentionRules": rules,
        "labels": [],
        "links": { "self": format!("/api/v2/buckets/{}", id(name)) },
    })
}

/// `retentionRules`: at most one, in seconds; 0 is forever.
fn retention(body: &Value) -> Result<PolicyChange, ApiError> {
    let Some(rules) = body.get("retentionRules").filter(|rules| !rules.is_null()) else {
        return Ok(PolicyChange::default());
    };
    let bad = || ApiError::bad_data("retentionRules is a list of at most one {\"type\":\"expire\",\"everySeconds\":…}");
    let retention_ns = match rules.as_array().ok_or_else(bad)?.as_slice() {
        [] => 0,
        [rule] => {
            let seconds = rule.get("everySeconds").and_then(Value::as_i64).filter(|seconds| *seconds >= 0);
            seconds.and_then(|seconds| seconds.checked_mul(NS_PER_S)).ok_or_else(bad)?
        }
        _ => return Err(bad()),
    };
    Ok(PolicyChange::of_retention(retention_ns))
}

/// A label and the value that it has to have.
#[derive(Debug, PartialEq, Eq)]
struct Comparison {
    label: String,
    value: String,
}

/// A delete's body as InfluxQL's statement.
fn delete_statement(body: &Value) -> Result<String, String> {
    let time_ns = |name: &str| {
        let text = body.get(name).and_then(Value::as_str).ok_or_else(|| format!("{name:?} is missing"))?;
        let time = text.parse::<jiff::Timestamp>().map_err(|_| format!("{name:?} is not in RFC 3339: {text}"))?;
        Ok::<i128, String>(time.as_nanosecond().clamp(i64::MIN.into(), i64::MAX.into()))
    };
    let (start_ns, stop_ns) = (time_ns("start")?, time_ns("stop")?);
    let comparisons = predicate(body.get("predicate").and_then(Value::as_str).unwrap_or_default())?;
    let (mut from, mut conditions) = (String::new(), String::new());
    for Comparison { label, value } in comparisons {
        // Writing into a string does not fail.
        let _ = match label.as_str() {
            "_field" => return Err("rows are deleted whole: a predicate cannot name _field".to_owned()),
            "_measurement" if !from.is_empty() => return Err("a predicate names one _measurement".to_owned()),
            "_measurement" => write!(from, " FROM {}", quoted(&value, '"')),
            _ => write!(conditions, "{} = {} AND ", quoted(&label, '"'), quoted(&value, '\'')),
        };
    }
    Ok(format!("DELETE{from} WHERE {conditions}time >= {start_ns} AND time <= {stop_ns}"))
}

fn quoted(text: &str, quote: char) -> String {
    let mut out = String::from(quote);
    for letter in text.chars() {
        if letter == quote || letter == '\\' {
            out.push('\\');
        }
        out.push(letter);
    }
    out.push(quote);
    out
}

/// Parses `label="value" AND …`, the only predicates that InfluxDB 2 deletes by.
fn predicate(text: &str) -> Result<Vec<Comparison>, String> {
    let mut rest = text.trim();
    let mut comparisons = Vec::new();
    while !rest.is_empty() {
        let (label, after) = word(rest)?;
        let after = after.trim_start().strip_prefix('=').filter(|after| !after.starts_with(['=', '~']));
        let after = after.ok_or_else(|| format!("a predicate compares by =, between AND: {text}"))?;
        let (value, after) = word(after.trim_start())?;
        comparisons.push(Comparison { label, value });
        rest = after.trim_start();
        match rest.get(..3).filter(|and| and.eq_ignore_ascii_case("and")).and_then(|_| rest.get(3..)) {
            Some(more) if !more.trim().is_empty() => rest = more.trim_start(),
            _ if rest.is_empty() => {}
            _ => return Err(format!("expected AND before {rest:?}: a predicate knows = and AND")),
        }
    }
    Ok(comparisons)
}

/// A word or a text between quotes, and what is after it.
fn word(text: &str) -> Result<(String, &str), String> {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let end = text.find(|letter: char| letter.is_whitespace() || "=!~()\"'".contains(letter)).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        return if word.is_empty() { Err(format!("expected a name at {text:?}")) } else { Ok((word.to_owned(), rest)) };
    };
    let mut out = String::new();
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => out.extend(letters.next().map(|(_, escaped)| escaped)),
            _ if letter == quote => return Ok((out, text.get(at + 1..).unwrap_or_default())),
            _ => out.push(letter),
        }
    }
    Err(format!("a text has no end: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predicates_become_statements() {
        let statement = |predicate: &str| {
            delete_statement(&json!({
                "start": "1970-01-01T00:00:00Z",
                "stop": "1970-01-01T00:00:02+00:00",
                "predicate": predicate,
            }))
        };
        let times = "time >= 0 AND time <= 2000000000";
        assert_eq!(statement("").unwrap(), format!("DELETE WHERE {times}"));
        assert_eq!(
            statement(r#"_measurement="a\"b" and host='x y' AND "r"=eu"#).unwrap(),
            format!(r#"DELETE FROM "a\"b" WHERE "host" = 'x y' AND "r" = 'eu' AND {times}"#)
        );
        assert_eq!(statement("h=\"it's\"").unwrap(), format!(r#"DELETE WHERE "h" = 'it\'s' AND {times}"#));
        for bad in ["a", "a=", "a!=b", "a=b OR c=d", "a=b AND", "a=\"b", "_field=v", "a==b", "(a=b)"] {
            assert!(statement(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn buckets_are_paged() {
        let names = || ["a", "b", "c"].map(str::to_owned).to_vec();
        let page = |query: &str| {
            let parameters = Parameters::read(Some(query), &header::HeaderMap::new(), &[]).unwrap();
            BucketPage::read(&parameters).unwrap().select(names())
        };
        assert_eq!(page(""), names());
        assert_eq!(page("limit=1&offset=1"), ["b"]);
        assert_eq!(page("name=c"), ["c"]);
        assert_eq!(page(&format!("after={}", id("a"))), ["b", "c"]);
        assert_eq!(page(&format!("id={}", id("b"))), ["b"]);
    }
}

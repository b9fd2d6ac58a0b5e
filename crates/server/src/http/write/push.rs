//! Prometheus's Pushgateway: `/metrics/job/JOB/LABEL/VALUE…` by PUT, POST and DELETE, and what was pushed at `/api/v1/metrics`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use access::grant::Right;
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ingest::exposition::{self, metric_families};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::http::body::{Form, body_error, unpack};
use crate::http::json;
use crate::http::request::{RequestParts, extract, extract_write};
use crate::metrics::pushed::{self, Description, Group, GroupName, Push, Pushed};
use crate::sign_in::forbidden;
use crate::state::State;

/// Where the labels of a group begin in a path.
const PREFIX: &str = "/metrics/";

/// Replaces a group's metrics (PUT), or those of the same name (POST).
pub(crate) async fn push(From(state): From<Arc<State>>, request: Request) -> Result<StatusCode, ApiError> {
    let push = if request.method() == Method::PUT { Push::All } else { Push::SameName };
    let parts = extract_write(&state, request).await?;
    state.work_of(&parts.tenant.clone(), move |state| write(state, parts, push)).await??;
    Ok(StatusCode::OK)
}

fn write(state: &State, mut parts: RequestParts, push: Push) -> Result<(), ApiError> {
    let name = group_name(&parts)?;
    let to = state.destination(name.database.clone(), &parts.caller.scope)?;
    let body = unpack(state, &parts.headers, parts.body, (&mut parts.share, Form::Text))?;
    let (text, format) = as_text(&parts.headers, &body)?;
    pushed::push(state, &to, name, Pushed { push, text: &text, format })
}

/// Deletes a group.
pub(crate) async fn delete(From(state): From<Arc<State>>, request: Request) -> Result<StatusCode, ApiError> {
    let parts = extract_write(&state, request).await?;
    let tenant = parts.tenant.clone();
    let work = move |state: &State| {
        let name = group_name(&parts)?;
        let to = state.destination(name.database.clone(), &parts.caller.scope)?;
        pushed::delete(state, &to, &name)
    };
    state.work_of(&tenant, work).await??;
    Ok(StatusCode::ACCEPTED)
}

/// The groups of a database.
pub(crate) async fn list(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let database = parts.parameters.database(&parts.headers);
    parts.caller.require(Right::Read, &database)?;
    if !parts.caller.scope.matchers(Right::Read, &database).is_empty() {
        return Err(forbidden("pushed groups are shown to accounts that may read the whole database".to_owned()));
    }
    let list = move |state: &State| {
        let mut groups = pushed::groups(state);
        groups.retain(|group| group.name.database == database);
        Value::from(groups.iter().map(described).collect::<Vec<_>>())
    };
    Ok(json::success(&state.work(list).await?.to_string(), &[], &[]).into_response())
}

/// The pushed metrics as text and its format: they come as it, or as delimited messages of protobuf.
fn as_text<'b>(headers: &HeaderMap, body: &'b [u8]) -> Result<(Cow<'b, str>, exposition::Format), ApiError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !content_type.starts_with("application/vnd.google.protobuf") {
        let text = std::str::from_utf8(body).map_err(|_| ApiError::bad_data("the metrics are not UTF-8"))?;
        return Ok((Cow::Borrowed(text), exposition::Format::from_content_type(content_type)));
    }
    if !content_type.contains("encoding=delimited") {
        let message = format!("content type {content_type:?} is not supported: push encoding=delimited, or text");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_data", message));
    }
    let text = metric_families::text(body).map_err(|error| body_error(&error))?;
    Ok((Cow::Owned(text), exposition::Format::Text))
}

fn group_name(parts: &RequestParts) -> Result<GroupName, ApiError> {
    let database = parts.parameters.database(&parts.headers);
    let labels = grouping(parts.path.strip_prefix(PREFIX).unwrap_or_default()).map_err(ApiError::bad_data)?;
    Ok(GroupName { database, labels })
}

/// The labels of a path: names and values between slashes, values of `name@base64` as base64 for URLs.
fn grouping(path: &str) -> Result<BTreeMap<String, String>, String> {
    let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    let (pairs, rest) = parts.as_chunks::<2>();
    if let [name] = rest {
        return Err(format!("the label {name:?} of the path has no value"));
    }
    let mut labels = BTreeMap::new();
    for (place, [name, value]) in pairs.iter().enumerate() {
        let name = unescaped(name)?;
        let (name, value) = match name.strip_suffix("@base64") {
            Some(name) => (name.to_owned(), decoded(value)?),
            None => (name, unescaped(value)?),
        };
        match (place, name.as_str(), value.as_str()) {
            (0, "job", "") => return Err("job name is required".to_owned()),
            (0, "job", _) => {}
            (0, ..) => return Err("the path begins with /metrics/job/".to_owned()),
            _ if name.is_empty() || name.starts_with("__") => return Err(format!("improper label name {name:?}")),
            _ => {}
        }
        if labels.insert(name.clone(), value).is_some() {
            return Err(format!("the label {name:?} is twice in the path"));
        }
    }
    Ok(labels)
}

fn unescaped(text: &str) -> Result<String, String> {
    let encoded = format!("v={}", text.replace('+', "%2B").replace('&', "%26"));
    let pair = form_urlencoded::parse(encoded.as_bytes()).next();
    let text = pair.map(|(_, value)| value.into_owned()).unwrap_or_default();
    if text.contains('\u{fffd}') { Err("the path is not UTF-8".to_owned()) } else { Ok(text) }
}

fn decoded(text: &str) -> Result<String, String> {
    let bad = || format!("{text:?} is no base64 for URLs");
    let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=').as_bytes()).map_err(|_| bad())?;
    String::from_utf8(bytes).map_err(|_| bad())
}

/// A group as the Pushgateway shows it.
fn described(group: &Group) -> Value {
    let pushed = Timestamp::from_nanosecond(group.pushed_ns.into()).unwrap_or_default().to_string();
    let mut shown = Map::new();
    shown.insert("labels".to_owned(), json!(group.name.labels));
    shown.insert("last_push_successful".to_owned(), true.into());
    for (name, lines) in group.families.iter().filter(|(name, _)| !name.is_empty()) {
        let Description { kind, help } = Description::read(lines);
        let samples = lines.lines().filter(|line| !line.starts_with('#'));
        let metrics: Vec<Value> = samples.filter_map(|line| sample(line, &group.name.labels)).collect();
        let family = json!({ "time_stamp": pushed, "type": kind.to_uppercase(), "help": help, "metrics": metrics });
        shown.insert(name.clone(), family);
    }
    shown.into()
}

fn sample(line: &str, grouping: &BTreeMap<String, String>) -> Option<Value> {
    let (key, value) = line.rsplit_once(char::is_whitespace)?;
    let identity = exposition::decode_key(key.trim().as_bytes()).ok()?;
    let mut labels: BTreeMap<String, String> =
        identity.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    labels.extend(grouping.clone());
    labels.entry("instance".to_owned()).or_default();
    Some(json!({ "name": identity.measurement, "labels": labels, "value": value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_named_by_paths() {
        let labels = |path: &str| grouping(path).map(|labels| format!("{labels:?}"));
        assert_eq!(labels("job/a%20b+c").unwrap(), r#"{"job": "a b+c"}"#);
        assert_eq!(labels("job/a/instance/x/").unwrap(), r#"{"instance": "x", "job": "a"}"#);
        assert_eq!(labels("job@base64/YS9i/path@base64/=").unwrap(), r#"{"job": "a/b", "path": ""}"#);
        for bad in ["job", "job/", "job@base64/=", "x/y", "job/a/b", "job/a/job/b", "job@base64/!", "job/a/__x/y"] {
            assert!(grouping(bad).is_err(), "{bad}");
        }
    }
}

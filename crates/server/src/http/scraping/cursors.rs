//! Cursors of the log: who reads it, and what is held for readers that are gone.

use std::sync::Arc;

use access::audit::Event;
use axum::extract::{Request, State as From};
use axum::response::Response;
use db::Db;
use scrape::forward::receiver_of_cursor;
use serde_json::{Value, json};

use super::mode::PrometheusMode;
use crate::error::ApiError;
use crate::http::json;
use crate::http::request::extract;
use crate::state::State;

/// Receivers of `remote_write` that the log is held for and that no configuration names: without one nothing is sent to them, and nothing
/// given up.
pub fn abandoned_receivers(db: &Db, mode: Option<&PrometheusMode>) -> Vec<String> {
    let cursors = db.log_cursors().into_iter().map(|cursor| cursor.name);
    cursors.filter(|cursor| is_in_use(cursor, mode) == Some(false)).collect()
}

/// Returns whether the configuration has the receiver of a cursor; `None` for cursors of other readers.
fn is_in_use(cursor: &str, mode: Option<&PrometheusMode>) -> Option<bool> {
    let receiver = receiver_of_cursor(cursor)?;
    Some(mode.is_some_and(|mode| mode.has_receiver(receiver)))
}

pub(crate) async fn cursors(From(state): From<Arc<State>>) -> Response {
    let mode = state.settings.prometheus.as_deref();
    let written = state.db.durable_sequence();
    let cursors: Vec<Value> = state
        .db
        .log_cursors()
        .into_iter()
        .map(|cursor| {
            json!({
                "name": cursor.name,
                "sequence": cursor.sequence,
                "records_behind": written.saturating_sub(cursor.sequence),
                "in_use": is_in_use(&cursor.name, mode),
            })
        })
        .collect();
    let data = json!({ "cursors": cursors, "retained_bytes": state.db.log_retained_bytes() });
    json::success(&data.to_string(), &[], &[])
}

/// Removes a cursor: the log is not held for its reader any more.
pub(crate) async fn remove_cursor(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let name = parts.parameters.required("name")?.to_owned();
    if is_in_use(&name, state.settings.prometheus.as_deref()) == Some(true) {
        let message =
            format!("{name:?} is read by a receiver of the configuration: take it out of remote_write and reload");
        return Err(ApiError::bad_data(message));
    }
    if is_in_use(&name, None).is_none() {
        let message = format!(
            "{name:?} is read by a trigger, a subscription or the refresher of views: drop what it is for, and it goes"
        );
        return Err(ApiError::bad_data(message));
    }
    let cursor = name.clone();
    let removed = state.work(move |state| state.db.remove_log_cursor(&cursor)).await?;
    if !removed.map_err(|error| ApiError::internal(error.to_string()))? {
        return Err(ApiError::not_found(format!("the log has no cursor {name:?}")));
    }
    state.sign_in.audit.note(state.db.now_ns(), Event::SettingsChanged, parts.caller.actor(), &name);
    Ok(json::success(&json!({ "removed": name }).to_string(), &[], &[]))
}

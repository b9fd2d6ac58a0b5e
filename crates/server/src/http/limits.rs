//! `/api/v1/admin/limits`: the limits of databases, for administrators of the server.

use std::sync::Arc;

use access::audit::Event;
use access::rate::Quota;
use axum::Extension;
use axum::extract::{Path, Request, State as From};
use axum::response::Response;
use serde_json::json as object;

use crate::error::ApiError;
use crate::http::json;
use crate::http::request::extract;
use crate::scheduler::tenants::LIMITS;
use crate::sign_in::Caller;
use crate::state::State;

/// `GET /api/v1/admin/limits/{name}`: the limits of a database.
pub(crate) async fn show(From(state): From<Arc<State>>, Path(name): Path<String>) -> Response {
    answer(&name, state.tenants.quota(&name))
}

/// `PUT /api/v1/admin/limits/{name}`: sets all limits of a database; those that the body leaves out do not hold any more.
pub(crate) async fn put(
    From(state): From<Arc<State>>,
    Path(name): Path<String>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let parts = extract(&state, request).await?;
    let quota: Quota = serde_json::from_slice(&parts.body).map_err(|error| {
        ApiError::bad_data(format!(
            "the limits cannot be read: {error}; expected an object such as {{\"samples_per_s\":1000}}"
        ))
    })?;
    if !state.db.has_database(&name) {
        return Err(ApiError::not_found(format!("there is no database {name:?}")));
    }
    state.sign_in.audit.note(state.db.now_ns(), Event::SettingsChanged, caller.actor(), &format!("limits of {name}"));
    let document = serde_json::to_vec(&quota).map_err(|error| ApiError::internal(error.to_string()))?;
    let stored = name.clone();
    let store = move |state: &State| {
        let done = if quota == Quota::default() {
            state.db.remove_document(LIMITS, &stored).map(drop)
        } else {
            state.db.put_document(LIMITS, &stored, &document)
        };
        done.map_err(|error| ApiError::internal(error.to_string()))?;
        state.tenants.reload(&state.db);
        Ok::<_, ApiError>(())
    };
    state.work(store).await??;
    Ok(answer(&name, quota))
}

fn answer(name: &str, quota: Quota) -> Response {
    let data = object!({ "name": name, "quota": quota });
    json::success(&data.to_string(), &[], &[])
}

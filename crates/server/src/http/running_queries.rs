//! Starting and ending queries for requests; the list of those that run, and killing one.

use std::sync::Arc;

use access::audit::Event;
use axum::Extension;
use axum::extract::{Path, State as From};
use axum::response::Response;
use query::Budget;

use crate::error::ApiError;
use crate::http::json;
use crate::log::{self, Level};
use crate::scheduler::running::{AdmissionPermit, Description, Ended, EndedQuery, Outcome};
use crate::sign_in::Caller;
use crate::state::State;

/// A query that runs. Dropped before it is done, its client has left: it is stopped.
pub(crate) struct Started<'s> {
    state: &'s State,
    id: u64,
}

impl State {
    /// Lets a query run when a slot is free. The thread that does its work holds the slot, also when the client has left.
    pub(crate) async fn start_query(
        &self,
        description: Description,
        budget: Arc<Budget>,
    ) -> Result<(Started<'_>, Arc<AdmissionPermit>), ApiError> {
        let tenant = self.tenant(&description.database, &description.caller.scope);
        let (id, slot) = self.queries.start(description, tenant, budget, self.db.now_ns()).await?;
        Ok((Started { state: self, id }, slot))
    }
}

impl Started<'_> {
    /// The query is done, or failed for a reason: counts it, and tells the operator if it was slow, or failed.
    pub(crate) fn end(self, outcome: Outcome, answer_bytes: usize, reason: Option<&str>) {
        let (now_ns, slow_ms) = (self.state.db.now_ns(), self.state.settings.query_slow_ms);
        let ended = Ended { reason, outcome, answer_bytes, now_ns, slow_ms };
        match self.state.queries.end(self.id, &ended) {
            Some(EndedQuery { text, is_slow: true }) => self.state.tell_slow_query(|| text),
            Some(EndedQuery { text, is_slow: false }) => log::write(Level::Debug, &text),
            None => {}
        }
    }
}

impl Drop for Started<'_> {
    fn drop(&mut self) {
        self.state.queries.abandon(self.id, self.state.db.now_ns());
    }
}

/// `GET /api/v1/status/active_queries`
pub(crate) async fn list(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    json::success(&state.queries.list(state.db.now_ns(), &caller), &[], &[])
}

/// `POST /api/v1/status/active_queries/{id}/kill`
pub(crate) async fn kill(
    From(state): From<Arc<State>>,
    Path(id): Path<String>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let known = id.parse().is_ok_and(|id| state.queries.stop(id, &caller));
    if known {
        state.sign_in.audit.note(state.db.now_ns(), Event::QueryStopped, caller.actor(), &id);
    }
    if known { Ok(json::success("null", &[], &[])) } else { Err(ApiError::not_found(format!("no query {id:?} runs"))) }
}

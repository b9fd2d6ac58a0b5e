//! What handlers take out of a request: its body within bounds, and its parameters.

use std::sync::Arc;

use access::rate::Counted;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri};
use ingest::encoding::Encoding;

use crate::error::ApiError;
use crate::http::body::{self, Buffer, Share};
use crate::http::influx::{self, Version};
use crate::http::influx_v2;
use crate::http::parameters::Parameters;
use crate::scheduler::tenants::Tenant;
use crate::sign_in::Caller;
use crate::state::State;

/// Bytes of a form that a network thread reads itself.
const SHORT_FORM_BYTES: usize = 16 << 10;

/// A request whose body was parts.
pub(crate) struct RequestParts {
    pub(crate) headers: HeaderMap,
    pub(crate) parameters: Parameters,
    pub(crate) body: Buffer,
    /// The body's share of what all bodies may take; it goes with the request.
    pub(crate) share: Share,
    /// What labels are asked for, say: the part of the path that varies.
    pub(crate) path: String,
    /// The client that sent it.
    pub(crate) caller: Caller,
    /// Its tenant: the database that it names outside of its body.
    pub(crate) tenant: Arc<Tenant>,
}

impl RequestParts {
    /// Adds the members of a body that is a JSON object to the parameters.
    pub(crate) fn read_json(&mut self) -> Result<(), ApiError> {
        if self.body.iter().all(u8::is_ascii_whitespace) || Parameters::is_form(&self.headers) {
            return Ok(());
        }
        self.parameters.add_json(&self.body)
    }
}

/// Takes a request's body; parameters come from the query string and, if it is a form, from the body.
pub(crate) async fn extract(state: &Arc<State>, request: Request) -> Result<RequestParts, ApiError> {
    let (head, body) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions);
    let tenant = tenant_of(state, &head, &caller);
    let (body, share) = body::collect(state, &tenant, body).await?;
    let (parameters, body, share, headers) = read_form(state, head.uri.query(), (head.headers, body, share)).await?;
    Ok(RequestParts { headers, parameters, body, share, path: head.uri.path().to_owned(), caller, tenant })
}

/// Reads parameters: those of a long form on a thread that may compute for a while.
async fn read_form(
    state: &Arc<State>,
    query: Option<&str>,
    (headers, body, mut share): (HeaderMap, Buffer, Share),
) -> Result<(Parameters, Buffer, Share, HeaderMap), ApiError> {
    if !Parameters::is_form(&headers) || body.len() <= SHORT_FORM_BYTES {
        return Ok((Parameters::read(query, &headers, &body)?, body, share, headers));
    }
    let query = query.map(str::to_owned);
    let read = move |_: &State| {
        // The pairs are copies of what the form spells.
        share.grow(body.len())?;
        Ok((Parameters::read(query.as_deref(), &headers, &body)?, body, share, headers))
    };
    state.work_unbounded(read).await?
}

/// Takes the body of a request that writes: it is data, even if a client calls it a form, as curl does.
pub(crate) async fn extract_write(state: &Arc<State>, request: Request) -> Result<RequestParts, ApiError> {
    let (head, body) = request.into_parts();
    let caller = Caller::from_extensions(&head.extensions);
    let tenant = tenant_of(state, &head, &caller);
    let (body, mut share) = body::collect(state, &tenant, body).await?;
    // What is not known is refused when it is unpacked.
    let encoding = body::encoding_of(&head.headers).unwrap_or(Encoding::Identity);
    share.queue_if_large(encoding, &body, state.body_timeout()).await?;
    let parameters = Parameters::read(head.uri.query(), &HeaderMap::new(), &[])?;
    state.take(&caller.scope, &tenant, (Counted::Bytes, body.len() as u64))?;
    Ok(RequestParts {
        headers: head.headers,
        parameters,
        body,
        share,
        path: head.uri.path().to_owned(),
        caller,
        tenant,
    })
}

/// What a request counts as before its body is read: the database that its query string or its headers name, in the way of its route.
pub(crate) fn tenant_named(state: &State, (uri, headers): (&Uri, &HeaderMap), caller: &Caller) -> Arc<Tenant> {
    let parameters = Parameters::read(uri.query(), &HeaderMap::new(), &[]).unwrap_or_default();
    let database = match uri.path() {
        "/write" => influx::written_database(Version::V1, &parameters).map(str::to_owned),
        "/api/v2/write" => influx::written_database(Version::V2, &parameters).map(str::to_owned),
        "/api/v3/write_lp" => influx::written_database(Version::V3, &parameters).map(str::to_owned),
        "/api/v2/delete" => influx_v2::deleted_database(state, caller, &parameters),
        _ => Ok(parameters.database(headers)),
    };
    // One that names none is refused by its handler.
    state.tenant(&database.unwrap_or_default(), &caller.scope)
}

/// As [`tenant_named`], of a request's head.
pub(crate) fn tenant_of(state: &State, head: &Parts, caller: &Caller) -> Arc<Tenant> {
    tenant_named(state, (&head.uri, &head.headers), caller)
}

impl State {
    /// The limits of a request's query, with what its sender may read and whether it may use cached answers.
    pub(crate) fn query_budget(&self, parts: &RequestParts) -> Arc<query::Budget> {
        let budget = self.budget_of(&parts.parameters.database(&parts.headers), &parts.caller.scope);
        if !parts.parameters.may_cache() {
            budget.compute_all();
        }
        if !parts.parameters.may_use_views() {
            budget.use_views(query::ViewUse::Named);
        }
        budget
    }
}

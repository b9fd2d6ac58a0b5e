//! The right that each route of HTTP needs, and the check before a request reaches its handler.
//!
//! The router is built from the same table ([`crate::http::routes`]), so no route is without a right. Rights on databases are checked where the
//! database's name is known: by [`Destination`](super::Destination) for rows, by the query's budget for everything that is read, and by the
//! handlers of databases themselves.

use std::collections::HashMap;
use std::sync::Arc;

use access::rate::Counted;
use axum::extract::{MatchedPath, Request, State as From};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Caller, OwnedCredentials, credentials};
use crate::error::ApiError;
use crate::http::{page, routes};
use crate::listen::grpc::status;
use crate::listen::socket::Peer;
use crate::state::State;

/// What a client needs for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// Nothing: it tells nothing of the data.
    Nothing,
    /// To be signed in.
    SignIn,
    /// The right to read the database that it names.
    Read,
    /// The right to write the database that it names.
    Write,
    /// The rights that its statements need.
    Statements,
    /// A right on the database in its path or parameters: to see it, to make it, or to administer it.
    Database,
    /// To administer the server.
    ServerAdmin,
}

impl Need {
    /// As the guide's table says it.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::SignIn => "signed in",
            Self::Read => "`read`",
            Self::Write => "`write` (and `create` for a database that does not exist)",
            Self::Statements => "what each statement needs",
            Self::Database => "`create` to make the database, `admin` to change it",
            Self::ServerAdmin => "server administrator",
        }
    }
}

/// The needs of all routes, by their paths as the router has them.
pub(crate) type Needs = HashMap<&'static str, Need>;

type Found = Result<Option<OwnedCredentials>, ApiError>;

async fn sign_in(state: &Arc<State>, found: Found, peer: Option<&Peer>) -> Result<Caller, ApiError> {
    match found {
        Ok(credentials) => state.sign_in(credentials, peer).await,
        Err(error) if state.sign_in.is_required => Err(error),
        Err(_) => state.sign_in(None, peer).await,
    }
}

/// Signs a request's client in, unless its route needs nothing. Its body has not been read then.
pub(crate) async fn check(
    From((state, needs)): From<(Arc<State>, Arc<Needs>)>,
    mut request: Request,
    next: Next,
) -> Response {
    let need = match request.extensions().get::<MatchedPath>() {
        Some(path) => needs.get(path.as_str()).copied().unwrap_or(Need::ServerAdmin),
        None if page::asset(request.uri().path()).is_some() => Need::Nothing,
        // What does not exist is told to those who are signed in.
        None => Need::SignIn,
    };
    let peer = request.extensions().get::<Peer>().cloned();
    let found = credentials::of_request(request.headers(), request.uri());
    let signed_in = sign_in(&state, found, peer.as_ref()).await;
    let may_have_body = routes::may_have_body(&request);
    let close = |response| if may_have_body { routes::closing(response) } else { response };
    let caller = match signed_in {
        Ok(caller) => caller,
        Err(_) if need == Need::Nothing => {
            Caller { scope: access::scope::Scope::signed_out(), remote: peer.map(|peer| peer.address) }
        }
        Err(error) => return close(refused(&error)),
    };
    if need == Need::ServerAdmin
        && let Err(error) = caller.require_server_admin()
    {
        let path = request.uri().path();
        state.sign_in.audit.note(state.db.now_ns(), access::audit::Event::Denied, caller.actor(), path);
        return close(error.into_response());
    }
    if let Err(error) = state.sign_in.take(&caller.scope, Counted::Requests, 1, state.db.now_ns()) {
        return close(error.into_response());
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Signs a call of gRPC in; the rights that it needs are checked where its database is known.
pub(crate) async fn check_call(From(state): From<Arc<State>>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let found = credentials::of_request(request.headers(), request.uri());
    let signed_in = sign_in(&state, found, peer.as_ref()).await;
    match signed_in {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => status(&error),
    }
}

/// The answer to a client that is not signed in: it says in which ways it may be.
pub(crate) fn refused(error: &ApiError) -> Response {
    let mut response = error.clone().into_response();
    if error.status == StatusCode::UNAUTHORIZED {
        for challenge in ["Bearer realm=\"thalweg\"", "Basic realm=\"thalweg\", charset=\"UTF-8\""] {
            response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
    }
    response
}

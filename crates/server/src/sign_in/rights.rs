//! The right that each route of HTTP needs, and the check before a request reaches its handler.
//!
//! The router is built from the same table ([`crate::http::routes`]), so no route is without a right. Rights on databases are checked where the
//! database's name is known: by [`Destination`](super::Destination) for rows, by the query's budget for everything that is read, and by the
//! handlers of databases themselves.

use std::collections::HashMap;
use std::sync::Arc;

use access::rate::Counted;
use axum::extract::{MatchedPath, Request, State as From};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Acquainted, Caller, OwnedCredentials, credentials, page_session, proxy, unauthorized};
use crate::error::ApiError;
use crate::http::page;
use crate::http::request::tenant_named;
use crate::listen::grpc::status;
use crate::listen::socket::Peer;
use crate::settings::Network;
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

/// What of a request says who sent it.
enum Claim {
    Credentials(OwnedCredentials),
    /// The cookie of the page.
    Cookie(String),
    /// The account that a trusted proxy has signed in.
    Proxied(String),
    /// Nothing but its connection.
    Connection,
}

/// A request's sender, before anything of it is checked. Where a trusted proxy has sent the request, the peer is as the proxy says.
struct Sender {
    peer: Option<Peer>,
    claim: Result<Claim, ApiError>,
}

impl Sender {
    fn from_request(request: &Request, trusted: &[Network]) -> Self {
        let (headers, peer) = (request.headers(), request.extensions().get::<Peer>());
        let proxied = peer.and_then(|peer| proxy::read(peer, headers, trusted));
        let (peer, user) = match proxied {
            Some(proxied) => (Some(proxied.peer), proxied.user),
            None => (peer.cloned(), None),
        };
        let claim = credentials::of_request(headers, request.uri()).map(|credentials| {
            let cookie = || page_session::cookie(headers, peer.as_ref()).map(|cookie| Claim::Cookie(cookie.to_owned()));
            let sent = credentials.map(Claim::Credentials).or_else(cookie).or(user.map(Claim::Proxied));
            sent.unwrap_or(Claim::Connection)
        });
        Self { peer, claim }
    }

    async fn sign_in(self, state: &Arc<State>) -> Result<Caller, ApiError> {
        let peer = self.peer.as_ref();
        if !state.sign_in.is_required {
            return state.sign_in(None, peer).await;
        }
        match self.claim? {
            Claim::Credentials(credentials) => state.sign_in(Some(credentials), peer).await,
            Claim::Cookie(cookie) => {
                let caller = state.session_caller(&cookie, peer);
                caller.ok_or_else(|| unauthorized("the session is over: sign in again"))
            }
            Claim::Proxied(user) => state.proxied_caller(&user, peer),
            Claim::Connection => state.sign_in(None, peer).await,
        }
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
    let sender = Sender::from_request(&request, &state.settings.trusted_proxies);
    let remote = sender.peer.as_ref().map(|peer| peer.address);
    // Handlers that sign in by themselves count failures of the client, not of its proxy.
    sender.peer.clone().map(|peer| request.extensions_mut().insert(peer));
    let signed_in = sender.sign_in(&state).await;
    let caller = match signed_in {
        Ok(caller) => {
            Acquainted::note(request.extensions());
            caller
        }
        Err(_) if need == Need::Nothing => Caller { scope: access::scope::Scope::signed_out(), remote },
        Err(error) => return refused(&error, request.headers()),
    };
    if need == Need::ServerAdmin
        && let Err(error) = caller.require_server_admin()
    {
        let path = request.uri().path();
        state.sign_in.audit.note(state.db.now_ns(), access::audit::Event::Denied, caller.actor(), path);
        return error.into_response();
    }
    if need != Need::Nothing
        && let Err(error) = count(&state, &caller, &request)
    {
        return error.into_response();
    }
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Counts a request among what its account may ask for, and what may be asked of the database that it names.
fn count(state: &State, caller: &Caller, request: &Request) -> Result<(), ApiError> {
    let tenant = tenant_named(state, (request.uri(), request.headers()), caller);
    state.take(&caller.scope, &tenant, (Counted::Requests, 1))
}

/// Signs a call of gRPC in; the rights that it needs are checked where its database is known.
pub(crate) async fn check_call(From(state): From<Arc<State>>, mut request: Request, next: Next) -> Response {
    let signed_in = Sender::from_request(&request, &state.settings.trusted_proxies).sign_in(&state).await;
    match signed_in {
        Ok(caller) => {
            Acquainted::note(request.extensions());
            if let Err(error) = count(&state, &caller, &request) {
                return status(&error);
            }
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(error) => status(&error),
    }
}

/// The answer to a client that is not signed in: it says in which ways it may be.
///
/// The page is not told: it has a form, which the browser's own would stand before.
pub(crate) fn refused(error: &ApiError, headers: &HeaderMap) -> Response {
    let mut response = error.clone().into_response();
    if error.status == StatusCode::UNAUTHORIZED && !headers.contains_key(page_session::PAGE) {
        for challenge in ["Bearer realm=\"thalweg\"", "Basic realm=\"thalweg\", charset=\"UTF-8\""] {
            response.headers_mut().append(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
        }
    }
    response
}

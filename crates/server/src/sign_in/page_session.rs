//! `/api/v1/session`: the page signs in and out. A cookie that scripts cannot read stands for the account, and counts only together with a
//! header that pages of other origins cannot send: a request that another page has a browser make is not signed in.

use std::sync::Arc;

use access::audit::Event;
use access::secret::{TOKEN_BYTES, token_text};
use access::session::AGE_MAX_S;
use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{Caller, OwnedCredentials, credentials, lock, unauthorized};
use crate::error::ApiError;
use crate::http::json;
use crate::listen::socket::{Peer, Transport};
use crate::state::State;

/// The header of the page's own requests.
pub(crate) const PAGE: HeaderName = HeaderName::from_static("x-thalweg-page");

/// The cookie's name: by TLS with the prefix that has browsers take it from this host alone, by TLS alone, for all of its paths.
const COOKIE: &str = "thalweg-session";
const SECURE_COOKIE: &str = "__Host-thalweg-session";

/// The name of the cookie of a connection.
const fn cookie_name(is_secure: bool) -> &'static str {
    if is_secure { SECURE_COOKIE } else { COOKIE }
}

/// Returns whether a connection is by TLS.
pub(super) fn is_secure(peer: Option<&Peer>) -> bool {
    peer.is_some_and(|peer| peer.transport == Transport::Tls)
}

/// Bytes of a name and a password as JSON.
const BODY_BYTES_MAX: usize = 8 << 10;

/// The cookie of a request of the page's own.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, peer: Option<&Peer>) -> Option<&'a str> {
    if !headers.contains_key(PAGE) {
        return None;
    }
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|text| text.split(';'));
    let name = cookie_name(is_secure(peer));
    pairs.find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

/// `GET /api/v1/session`: who has signed in, and whether one has to.
pub(crate) async fn show(From(state): From<Arc<State>>, Extension(caller): Extension<Caller>) -> Response {
    let account = Some(&*caller.scope.name).filter(|name| !name.is_empty());
    answer(&json!({
        "required": state.sign_in.is_required,
        "account": account,
        "server_admin": caller.scope.is_server_admin,
        "oidc": state.settings.web.oidc.as_ref().is_some_and(|oidc| oidc.signs_page_in()),
    }))
}

/// `POST /api/v1/session` with a user and a password, or a token in the place of the password: begins a session.
pub(crate) async fn begin(From(state): From<Arc<State>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(state.body_timeout(), to_bytes(body, BODY_BYTES_MAX)).await;
    let Ok(Ok(body)) = body else {
        let refused = ApiError::too_large(format!("a name and a password have at most {BODY_BYTES_MAX} bytes"));
        return refused.into_response();
    };
    let begun = async {
        if !head.headers.contains_key(PAGE) {
            return Err(ApiError::bad_data("sessions are the page's: send a token with each request"));
        }
        let credentials = read(&Zeroizing::new(body.to_vec()));
        let credentials = credentials.ok_or_else(|| ApiError::bad_data(r#"expected {"user":"…","password":"…"}"#))?;
        let peer = head.extensions.get::<Peer>();
        let caller = state.sign_in(Some(credentials), peer).await?;
        let cookie = state.begin_session(&caller)?;
        let set = set_cookie(&cookie, AGE_MAX_S, is_secure(peer))?;
        Ok(([(header::SET_COOKIE, set)], answer(&json!({ "account": &*caller.scope.name }))).into_response())
    };
    begun.await.unwrap_or_else(ApiError::into_response)
}

/// `DELETE /api/v1/session`: ends the session.
pub(crate) async fn end(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let peer = request.extensions().get::<Peer>();
    if let Some(cookie) = cookie(request.headers(), peer) {
        lock(&state.sign_in.sessions).end(cookie);
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, set_cookie("", 0, is_secure(peer))?)]).into_response())
}

fn answer(data: &Value) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], json::success(&data.to_string(), &[], &[])).into_response()
}

fn read(body: &[u8]) -> Option<OwnedCredentials> {
    let mut value: Value = serde_json::from_slice(body).ok()?;
    let mut text = |name: &str| match value.get_mut(name).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let (name, password) = (text("user").unwrap_or_default(), text("password")?);
    Some(credentials::password_of(&name, &Zeroizing::new(password)))
}

/// The cookie of a session that begins, and that ends after so many seconds at the latest.
pub(super) fn session_cookie(value: &str, left_s: i64, is_secure: bool) -> Result<HeaderValue, ApiError> {
    set_cookie(value, left_s.clamp(0, AGE_MAX_S), is_secure)
}

fn set_cookie(value: &str, age_s: i64, is_secure: bool) -> Result<HeaderValue, ApiError> {
    let secure = if is_secure { "; Secure" } else { "" };
    let name = cookie_name(is_secure);
    let text = format!("{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::from_str(&text).map_err(|_| ApiError::internal("the cookie is no header"))
}

impl State {
    fn begin_session(&self, caller: &Caller) -> Result<Zeroizing<String>, ApiError> {
        let directory = self.sign_in.directory();
        let entry = directory.get(&caller.scope.name).ok_or_else(|| unauthorized("no client has to sign in here"))?;
        let mut random = Zeroizing::new([0; TOKEN_BYTES]);
        let filled = self.db.fill_random(&mut *random);
        filled.map_err(|error| ApiError::internal(format!("no random bytes: {error}")))?;
        let (cookie, now_ns) = (token_text(&random), self.db.now_ns());
        lock(&self.sign_in.sessions).begin(&cookie, &entry.account, now_ns);
        self.sign_in.audit.note(now_ns, Event::SignedIn, caller.actor(), "page");
        Ok(cookie)
    }

    /// Who the page's user is, if its cookie is that of a session.
    pub(crate) fn session_caller(&self, cookie: &str, peer: Option<&Peer>) -> Option<Caller> {
        let now_ns = self.db.now_ns();
        let remote = peer.map(|peer| peer.address);
        let mut sessions = lock(&self.sign_in.sessions);
        if let Some(scope) = sessions.external(cookie, now_ns) {
            return Some(Caller { scope, remote });
        }
        let name = sessions.account(cookie, now_ns)?;
        let directory = self.sign_in.directory();
        let entry = directory.get(&name).filter(|entry| !entry.account.is_expired(now_ns))?;
        if !sessions.is_of(cookie, &entry.account) {
            sessions.end(cookie);
            return None;
        }
        entry.note_use(now_ns);
        Some(Caller { scope: entry.scope.clone(), remote })
    }
}

//! The page's sign-in at an identity provider: the browser is sent there, and comes back with a code.

use std::net::IpAddr;
use std::sync::Arc;

use access::audit::{Actor, Event};
use access::oidc::pkce::{AGE_MAX_S, Attempt, RANDOM_BYTES};
use access::secret::{TOKEN_BYTES, is_equal, token_text};
use axum::extract::{Request, State as From};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use zeroize::Zeroizing;

use super::check::unavailable;
use super::oidc::{CALLBACK, Oidc, OidcClient, Refusal};
use super::{lock, page_session, unauthorized};
use crate::error::ApiError;
use crate::listen::socket::Peer;
use crate::state::State;

/// The cookie that ties a sign-in at the provider to the browser that began it.
const ATTEMPT_COOKIE: &str = "thalweg-oidc";
/// Its name by TLS: browsers take it from this host alone.
const SECURE_ATTEMPT_COOKIE: &str = "__Host-thalweg-oidc";

/// Under which name sign-ins fail and have to wait: the account is not known yet.
const WAITING: &str = "oidc";

const NS_PER_S: i64 = 1_000_000_000;

/// The page's sign-in at the provider, if there is one.
fn page_client(state: &State) -> Result<(&Arc<Oidc>, &OidcClient), ApiError> {
    let oidc = state.settings.web.oidc.as_ref();
    let client = oidc.and_then(|oidc| Some((oidc, oidc.client()?)));
    client.ok_or_else(|| ApiError::not_found("the page does not sign in at a provider here (--oidc-client-id)"))
}

/// `GET /api/v1/session/oidc`: sends the browser to the provider.
pub(crate) async fn begin(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let (oidc, client) = page_client(&state)?;
    let now_s = state.db.now_ns() / NS_PER_S;
    let peer = request.extensions().get::<Peer>();
    state.check_wait(peer.map(|peer| peer.address.ip()), WAITING)?;
    let is_secure = page_session::is_secure(peer);
    let mut random = Zeroizing::new([0; RANDOM_BYTES]);
    let filled = state.db.fill_random(&mut *random);
    filled.map_err(|error| ApiError::internal(format!("no random bytes: {error}")))?;
    let attempt = Attempt::from_random(&random);
    drop(request);
    let cookie = attempt_cookie(&attempt.state, AGE_MAX_S, is_secure)?;
    let url = oidc.begin(client, attempt, now_s).await.map_err(|why| refused(&state, None, why))?;
    let location =
        HeaderValue::from_str(&url).map_err(|_| ApiError::internal("the provider's address is no header"))?;
    let headers = [
        (header::LOCATION, location),
        (header::SET_COOKIE, cookie),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((StatusCode::FOUND, headers).into_response())
}

/// `GET /api/v1/session/oidc/callback`: the browser comes back with a code, and gets a session.
pub(crate) async fn finish(From(state): From<Arc<State>>, request: Request) -> Result<Response, ApiError> {
    let (oidc, client) = page_client(&state)?;
    let (now_ns, peer) = (state.db.now_ns(), request.extensions().get::<Peer>().cloned());
    let is_secure = page_session::is_secure(peer.as_ref());
    let address = peer.as_ref().map(|peer| peer.address.ip());
    let Returned { code, state: returned, error: refusal, begun } = Returned::read(&request, is_secure);
    state.check_wait(address, WAITING)?;
    // Without it another page could have a browser sign in with an account that it did not choose.
    let is_own = begun.is_some_and(|begun| is_equal(begun.as_bytes(), returned.as_bytes()));
    let attempt = if is_own { oidc.end(&returned, now_ns / NS_PER_S) } else { None };
    let signed_in = match (attempt, refusal.is_empty()) {
        (None, _) => Err(Refusal::Wrong("it was begun elsewhere, or too long ago".to_owned())),
        (Some(_), false) => {
            Err(Refusal::Wrong(format!("the provider refuses: {:?}", refusal.chars().take(100).collect::<String>())))
        }
        (Some(attempt), true) => oidc.exchange(client, (&code, &attempt), now_ns / NS_PER_S).await,
    };
    let signed_in = signed_in.map_err(|why| refused(&state, address, why))?;
    let mut random = Zeroizing::new([0; TOKEN_BYTES]);
    let filled = state.db.fill_random(&mut *random);
    filled.map_err(|error| ApiError::internal(format!("no random bytes: {error}")))?;
    let cookie = token_text(&random);
    state.sign_in.audit.note(
        now_ns,
        Event::SignedIn,
        Actor { account: &signed_in.scope.name, address },
        "page, by OpenID Connect",
    );
    let left_s = signed_in.expires_ns.saturating_sub(now_ns) / NS_PER_S;
    lock(&state.sign_in.sessions).begin_external(&cookie, signed_in, now_ns);
    let mut headers = HeaderMap::new();
    headers.append(header::SET_COOKIE, page_session::session_cookie(&cookie, left_s, is_secure)?);
    headers.append(header::SET_COOKIE, attempt_cookie("", 0, is_secure)?);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::LOCATION, page_location(client)?);
    Ok((StatusCode::SEE_OTHER, headers).into_response())
}

/// What a browser comes back with.
struct Returned {
    code: String,
    state: String,
    error: String,
    /// The state of the sign-in that it began.
    begun: Option<String>,
}

impl Returned {
    fn read(request: &Request, is_secure: bool) -> Self {
        let parameter = |name: &str| {
            let mut pairs = form_urlencoded::parse(request.uri().query().unwrap_or_default().as_bytes());
            pairs.find(|(found, _)| found == name).map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        Self {
            code: parameter("code"),
            state: parameter("state"),
            error: parameter("error"),
            begun: attempt_of(request.headers(), is_secure).map(str::to_owned),
        }
    }
}

/// Where the page is: the address that the provider sends browsers back to, without the callback's path.
fn page_location(client: &OidcClient) -> Result<HeaderValue, ApiError> {
    let page = client.redirect_url.strip_suffix(CALLBACK).unwrap_or_default();
    HeaderValue::from_str(&format!("{page}/")).map_err(|_| ApiError::internal("the redirect URL is no header"))
}

/// Refuses a sign-in. Only one that is wrong counts as failed.
fn refused(state: &State, address: Option<IpAddr>, refusal: Refusal) -> ApiError {
    let why = match refusal {
        Refusal::Unavailable(why) => {
            state.tell(|| format!("OpenID Connect: the page cannot sign in: {why}"));
            return unavailable("the identity provider does not answer: try again");
        }
        Refusal::Useless(why) => why,
        Refusal::Wrong(why) => {
            state.sign_in.fail(address, WAITING, state.db.now_ns());
            why
        }
    };
    state.tell(|| format!("OpenID Connect: a sign-in of the page failed: {why}"));
    unauthorized("the sign-in at the identity provider failed: begin it again from the page")
}

/// The name of the cookie of a connection.
const fn attempt_name(is_secure: bool) -> &'static str {
    if is_secure { SECURE_ATTEMPT_COOKIE } else { ATTEMPT_COOKIE }
}

/// The state that a browser's cookie has.
fn attempt_of(headers: &HeaderMap, is_secure: bool) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| pair.trim().strip_prefix(attempt_name(is_secure))?.strip_prefix('='))
}

/// The cookie comes back with the redirection from the provider, which is another site: lax.
fn attempt_cookie(value: &str, age_s: i64, is_secure: bool) -> Result<HeaderValue, ApiError> {
    let secure = if is_secure { "; Secure" } else { "" };
    let name = attempt_name(is_secure);
    let text = format!("{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::from_str(&text).map_err(|_| ApiError::internal("the cookie is no header"))
}

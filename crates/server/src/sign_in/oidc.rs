//! `OpenID` Connect: the provider's documents, fetched and kept for a while; tokens (JWT) as credentials; and codes of the page's sign-in. What
//! decides is in [`access::oidc`].

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use access::oidc::documents::{DOCUMENT_BYTES_MAX, Discovery, discovery_url, id_token, is_safe_url};
use access::oidc::keys::{KEYS_BYTES_MAX, KeySet};
use access::oidc::pkce::{Attempt, Pending};
use access::oidc::token::TokenError;
use access::oidc::{Identity, OidcRules};
use access::scope::Scope;
use access::secret::{TokenHash, token_hash};
use access::session::ExternalSignIn;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use form_urlencoded::byte_serialize;
use platform::network::{ClientOptions, HttpClient, HttpRequest, NetworkPlatform, TlsOptions};
use zeroize::Zeroizing;

/// For how long the provider's keys are used before they are fetched again.
const KEYS_FRESH_S: i64 = 3_600;
/// For how long they are used while the provider cannot be reached.
const KEYS_AGE_MAX_S: i64 = 24 * 3_600;
/// How often the provider is asked at most.
const FETCH_PAUSE_S: u64 = 30;
/// How long the provider may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tokens that were checked and are not checked again.
const CHECKED_MAX: usize = 10_000;

const NS_PER_S: i64 = 1_000_000_000;

/// Where the provider sends browsers back to, below the route prefix.
pub(crate) const CALLBACK: &str = "/api/v1/session/oidc/callback";

/// How the server signs the page in at the provider.
#[derive(Clone)]
pub struct OidcClient {
    /// Its name there.
    pub id: String,
    /// Its secret, if it has one.
    pub secret: Option<Zeroizing<String>>,
    /// Where the provider sends browsers back to: this server's `/api/v1/session/oidc/callback`, as browsers reach it.
    pub redirect_url: String,
}

impl fmt::Debug for OidcClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the secret.
        formatter.debug_struct("OidcClient").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Why a token or a code signs no client in. Holds why, for the log.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The provider cannot be asked: the token may be right.
    Unavailable(String),
    /// It may be right, or was: it is signed by a key that the provider was not asked for yet, or has expired.
    Useless(String),
    /// It is wrong.
    Wrong(String),
}

impl From<TokenError> for Refusal {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::UnknownKey => Self::Wrong("it is signed by a key that the provider does not name".to_owned()),
            TokenError::Useless(why) => Self::Useless(why),
            TokenError::Refused(why) => Self::Wrong(why),
        }
    }
}

/// The provider, and what is known of it.
pub struct Oidc {
    rules: OidcRules,
    client: Option<OidcClient>,
    http: Arc<dyn HttpClient>,
    known: RwLock<Option<Arc<Known>>>,
    /// When the provider was asked last, seconds; held while it is.
    asked_s: tokio::sync::Mutex<Option<i64>>,
    checked: Mutex<HashMap<TokenHash, Checked>>,
    pending: Mutex<Pending>,
}

/// What the provider said last.
struct Known {
    discovery: Discovery,
    keys: KeySet,
    fetched_s: i64,
}

impl Known {
    fn is_young(&self, now_s: i64, max_s: i64) -> bool {
        now_s.saturating_sub(self.fetched_s) <= max_s
    }
}

/// A token that was right.
#[derive(Clone)]
struct Checked {
    scope: Arc<Scope>,
    expires_ns: i64,
}

impl fmt::Debug for Oidc {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Oidc").field("rules", &self.rules).finish_non_exhaustive()
    }
}

impl Oidc {
    /// A provider by its rules, with the page's client if the page signs in there, and the authorities that its certificate is checked by (PEM).
    pub fn new(
        network: &NetworkPlatform,
        rules: OidcRules,
        client: Option<OidcClient>,
        authorities: Option<Vec<u8>>,
    ) -> Result<Self, String> {
        if !is_safe_url(&rules.issuer) {
            return Err(format!("the issuer {:?} is neither https:// nor on this machine", rules.issuer));
        }
        let options = ClientOptions {
            tls: TlsOptions { ca: authorities, ..TlsOptions::default() },
            keep_alive: true,
            ..ClientOptions::default()
        };
        Ok(Self {
            http: network.network.client(&options)?,
            rules,
            client,
            known: RwLock::default(),
            asked_s: tokio::sync::Mutex::new(None),
            checked: Mutex::default(),
            pending: Mutex::default(),
        })
    }

    /// Returns whether the page can sign in at the provider.
    pub(crate) const fn signs_page_in(&self) -> bool {
        self.client.is_some()
    }

    fn known(&self) -> Option<Arc<Known>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The provider's documents at a time. Old ones are used while new ones are fetched.
    async fn fresh(self: &Arc<Self>, now_s: i64) -> Result<Arc<Known>, Refusal> {
        if let Some(known) = self.usable(now_s) {
            self.refresh_old(&known, now_s);
            return Ok(known);
        }
        let fetched = self.fetch(now_s).await;
        let why = || fetched.err().unwrap_or_else(|| "the provider was asked a moment ago".to_owned());
        self.usable(now_s).ok_or_else(|| Refusal::Unavailable(why()))
    }

    /// The provider's documents, if they are young enough to be used.
    fn usable(&self, now_s: i64) -> Option<Arc<Known>> {
        self.known().filter(|known| known.is_young(now_s, KEYS_AGE_MAX_S))
    }

    fn refresh_old(self: &Arc<Self>, known: &Known, now_s: i64) {
        if !known.is_young(now_s, KEYS_FRESH_S) {
            self.refresh(now_s);
        }
    }

    /// Has the provider asked for its documents, if it is not being asked and was not a moment ago, and does not wait for them.
    fn refresh(self: &Arc<Self>, now_s: i64) {
        let is_due = self.asked_s.try_lock().is_ok_and(|asked_s| is_due(*asked_s, now_s));
        // Threads that compute may have no runtime; the next request on a network thread has one.
        let runtime = tokio::runtime::Handle::try_current().ok().filter(|_| is_due);
        let this = self.clone();
        runtime.map(|runtime| runtime.spawn(async move { this.fetch_due(now_s).await }));
    }

    /// Asks the provider for its documents, unless that was done a moment ago; returns whether it was asked. A client that leaves meanwhile
    /// does not break that off for the others.
    async fn fetch(self: &Arc<Self>, now_s: i64) -> Result<bool, String> {
        let this = self.clone();
        let fetching = tokio::spawn(async move { this.fetch_due(now_s).await });
        fetching.await.unwrap_or_else(|error| Err(format!("the provider could not be asked: {error}")))
    }

    async fn fetch_due(&self, now_s: i64) -> Result<bool, String> {
        let mut asked_s = self.asked_s.lock().await;
        if !is_due(*asked_s, now_s) {
            return Ok(false);
        }
        *asked_s = Some(now_s);
        let fetched = self.fetch_now(now_s).await;
        match &fetched {
            Ok(known) => *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known.clone()),
            Err(why) => crate::notice::write(&format!("OpenID Connect: {}: {why}", self.rules.issuer)),
        }
        fetched.map(|_| true)
    }

    /// Checks a token; one of a key that is not known by keys that are fetched anew.
    async fn check(
        self: &Arc<Self>,
        now_s: i64,
        check: impl Fn(&KeySet) -> Result<Identity, TokenError>,
    ) -> Result<Identity, Refusal> {
        let known = self.fresh(now_s).await?;
        let checked = check(&known.keys);
        if checked != Err(TokenError::UnknownKey) {
            return checked.map_err(Refusal::from);
        }
        // The provider may sign with a new key.
        let was_asked = self.fetch(now_s).await.map_err(Refusal::Unavailable)?;
        let known = self.known().unwrap_or(known);
        let checked = check(&known.keys);
        if checked == Err(TokenError::UnknownKey) && !was_asked {
            return Err(new_key());
        }
        checked.map_err(Refusal::from)
    }

    async fn fetch_now(&self, now_s: i64) -> Result<Arc<Known>, String> {
        let url = discovery_url(&self.rules.issuer);
        let document = self.ask(HttpRequest::get(url), DOCUMENT_BYTES_MAX).await?;
        let discovery = Discovery::parse(&document, &self.rules.issuer)?;
        let keys = self.ask(HttpRequest::get(&discovery.jwks_uri), KEYS_BYTES_MAX).await?;
        Ok(Arc::new(Known { keys: KeySet::parse(&keys)?, discovery, fetched_s: now_s }))
    }

    /// The body of an answer, of at most so many bytes.
    async fn ask(&self, request: HttpRequest, bytes_max: usize) -> Result<Vec<u8>, String> {
        let url = request.url.split('?').next().unwrap_or_default().to_owned();
        let request = request.with_header("accept", "application/json");
        let asking = async {
            let mut response = self.http.send(request).await.map_err(|error| error.to_string())?;
            let body = response.read_body(bytes_max).await.map_err(|error| error.to_string())?;
            // An error of OAuth is a document, too.
            match response.status {
                200 | 400 | 401 => Ok(body),
                status => Err(format!("it answers {status}")),
            }
        };
        let asked = tokio::time::timeout(PATIENCE, asking).await;
        asked.unwrap_or_else(|_| Err("it does not answer".to_owned())).map_err(|why| format!("{url}: {why}"))
    }

    /// What the sender of a token may do.
    pub(crate) async fn sign_in(self: &Arc<Self>, token: &str, now_ns: i64) -> Result<Arc<Scope>, Refusal> {
        if let Some(scope) = self.checked(token, now_ns) {
            return Ok(scope);
        }
        let second = now_ns / NS_PER_S;
        let identity = self.check(second, |keys| self.rules.check(token, keys, second)).await?;
        Ok(self.remember(token, &identity, now_ns))
    }

    /// As [`Oidc::sign_in`], by what is known of the provider already.
    pub(crate) fn sign_in_by_known(self: &Arc<Self>, token: &str, now_ns: i64) -> Result<Arc<Scope>, Refusal> {
        if let Some(scope) = self.checked(token, now_ns) {
            return Ok(scope);
        }
        let second = now_ns / NS_PER_S;
        let Some(known) = self.usable(second) else {
            self.refresh(second);
            return Err(Refusal::Unavailable("the provider's keys are not known yet".to_owned()));
        };
        self.refresh_old(&known, second);
        match self.rules.check(token, &known.keys, second) {
            Ok(identity) => Ok(self.remember(token, &identity, now_ns)),
            Err(TokenError::UnknownKey) => {
                self.refresh(second);
                Err(new_key())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn checked(&self, token: &str, now_ns: i64) -> Option<Arc<Scope>> {
        let checked = lock(&self.checked);
        checked
            .get(&token_hash(token))
            .filter(|checked| checked.expires_ns > now_ns)
            .map(|checked| checked.scope.clone())
    }

    /// Keeps what a token gives. As long as a caller has a scope, it is found here: how long its connection may last is known by that.
    fn remember(&self, token: &str, identity: &Identity, now_ns: i64) -> Arc<Scope> {
        let hash = token_hash(token);
        let mut all = lock(&self.checked);
        // Another request with the token may have been faster.
        if let Some(checked) = all.get(&hash).filter(|checked| checked.expires_ns > now_ns) {
            return checked.scope.clone();
        }
        if all.len() >= CHECKED_MAX {
            all.retain(|_, checked| checked.expires_ns > now_ns && Arc::strong_count(&checked.scope) > 1);
        }
        let (scope, expires_ns) = (self.rules.scope(identity), identity.expires_s.saturating_mul(NS_PER_S));
        all.insert(hash, Checked { scope: scope.clone(), expires_ns });
        scope
    }

    /// Until when a scope holds that a token gave.
    pub(crate) fn expires_ns(&self, scope: &Arc<Scope>) -> Option<i64> {
        let checked = lock(&self.checked);
        checked.values().find(|checked| Arc::ptr_eq(&checked.scope, scope)).map(|checked| checked.expires_ns)
    }

    /// The page's client, if the page signs in there.
    pub(crate) const fn client(&self) -> Option<&OidcClient> {
        self.client.as_ref()
    }

    /// Begins a sign-in of the page: where the browser is sent.
    pub(crate) async fn begin(
        self: &Arc<Self>,
        client: &OidcClient,
        attempt: Attempt,
        now_s: i64,
    ) -> Result<String, Refusal> {
        let known = self.fresh(now_s).await?;
        let url = authorization_url(client, &known.discovery, &attempt);
        lock(&self.pending).begin(attempt, now_s);
        Ok(url)
    }

    /// Ends the sign-in of a state, which comes back once.
    pub(crate) fn end(&self, state: &str, now_s: i64) -> Option<Attempt> {
        lock(&self.pending).end(state, now_s)
    }

    /// Exchanges a code for what the account may do that it stands for.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        client: &OidcClient,
        (code, attempt): (&str, &Attempt),
        now_s: i64,
    ) -> Result<ExternalSignIn, Refusal> {
        let known = self.fresh(now_s).await?;
        let request = code_request(client, &known.discovery, (code, attempt));
        let answer = self.ask(request, DOCUMENT_BYTES_MAX).await.map_err(Refusal::Unavailable)?;
        let token = id_token(&answer).map_err(Refusal::Wrong)?;
        let rules = OidcRules { audiences: vec![client.id.clone()], ..self.rules.clone() };
        let identity = self.check(now_s, |keys| rules.check_answer(&token, keys, (&attempt.nonce, now_s))).await?;
        Ok(ExternalSignIn {
            scope: self.rules.scope(&identity),
            expires_ns: identity.expires_s.saturating_mul(NS_PER_S),
        })
    }
}

/// Returns whether the provider may be asked again.
fn is_due(asked_s: Option<i64>, now_s: i64) -> bool {
    // A request may have waited for another one that came later.
    asked_s.is_none_or(|asked_s| now_s.abs_diff(asked_s) >= FETCH_PAUSE_S)
}

fn new_key() -> Refusal {
    Refusal::Useless("it is signed by a key that is not known, and the provider was asked a moment ago".to_owned())
}

/// Where a browser signs in.
fn authorization_url(client: &OidcClient, discovery: &Discovery, attempt: &Attempt) -> String {
    let endpoint = &discovery.authorization_endpoint;
    let joint = if endpoint.contains('?') { '&' } else { '?' };
    let query = form_urlencoded::Serializer::new(String::new())
        .append_pair("response_type", "code")
        .append_pair("client_id", &client.id)
        .append_pair("redirect_uri", &client.redirect_url)
        .append_pair("scope", "openid profile email groups")
        .append_pair("state", &attempt.state)
        .append_pair("nonce", &attempt.nonce)
        .append_pair("code_challenge", &attempt.challenge())
        .append_pair("code_challenge_method", "S256")
        .finish();
    format!("{endpoint}{joint}{query}")
}

/// What a code is exchanged by.
fn code_request(client: &OidcClient, discovery: &Discovery, (code, attempt): (&str, &Attempt)) -> HttpRequest {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "authorization_code")
        .append_pair("code", code)
        .append_pair("redirect_uri", &client.redirect_url)
        .append_pair("code_verifier", &attempt.verifier);
    let basic = client.secret.as_ref().map(|secret| {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        STANDARD.encode(format!("{}:{}", encoded(&client.id), encoded(secret)))
    });
    if basic.is_none() {
        form.append_pair("client_id", &client.id);
    }
    let mut request = HttpRequest {
        method: "POST",
        url: discovery.token_endpoint.clone(),
        body: form.finish().into_bytes(),
        ..HttpRequest::default()
    };
    request = request.with_header("content-type", "application/x-www-form-urlencoded");
    if let Some(basic) = basic {
        request = request.with_header("authorization", format!("Basic {basic}"));
    }
    request
}

/// The path that only the provider's redirection leads to.
pub(crate) fn is_callback(path: &str) -> bool {
    path.ends_with(CALLBACK)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

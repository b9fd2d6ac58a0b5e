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
const FETCH_PAUSE_S: i64 = 30;
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

    /// The provider's documents at a time, fetched if they are old.
    async fn fresh(&self, now_s: i64) -> Result<Arc<Known>, String> {
        let is_young = |known: &Arc<Known>, max_s: i64| now_s.saturating_sub(known.fetched_s) <= max_s;
        if let Some(known) = self.known().filter(|known| is_young(known, KEYS_FRESH_S)) {
            return Ok(known);
        }
        let fetched = self.fetch(now_s).await;
        match self.known().filter(|known| is_young(known, KEYS_AGE_MAX_S)) {
            Some(known) => Ok(known),
            None => Err(fetched.err().unwrap_or_else(|| "the provider was asked a moment ago".to_owned())),
        }
    }

    /// Asks the provider for its documents, unless that was done a moment ago.
    async fn fetch(&self, now_s: i64) -> Result<(), String> {
        let mut asked_s = self.asked_s.lock().await;
        if asked_s.is_some_and(|asked_s| (0..FETCH_PAUSE_S).contains(&now_s.saturating_sub(asked_s))) {
            return Ok(());
        }
        *asked_s = Some(now_s);
        let fetched = self.fetch_now(now_s).await;
        match &fetched {
            Ok(known) => *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known.clone()),
            Err(why) => crate::notice::write(&format!("OpenID Connect: {}: {why}", self.rules.issuer)),
        }
        fetched.map(drop)
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

    /// What the sender of a token may do; an error is for the log.
    pub(crate) async fn sign_in(&self, token: &str, now_ns: i64) -> Result<Arc<Scope>, String> {
        if let Some(scope) = self.checked(token, now_ns) {
            return Ok(scope);
        }
        let second = now_ns / NS_PER_S;
        let known = self.fresh(second).await?;
        let mut checked = self.rules.check(token, &known.keys, second);
        if checked == Err(TokenError::UnknownKey) {
            // The provider may sign with a new key.
            self.fetch(second).await?;
            let known = self.known().unwrap_or(known);
            checked = self.rules.check(token, &known.keys, second);
        }
        self.remember(token, checked)
    }

    /// As [`Oidc::sign_in`], by what is known of the provider already.
    pub(crate) fn sign_in_by_known(&self, token: &str, now_ns: i64) -> Result<Arc<Scope>, String> {
        if let Some(scope) = self.checked(token, now_ns) {
            return Ok(scope);
        }
        let second = now_ns / NS_PER_S;
        let known = self.known().filter(|known| second.saturating_sub(known.fetched_s) <= KEYS_AGE_MAX_S);
        let known = known.ok_or("the provider's keys are not known yet")?;
        self.remember(token, self.rules.check(token, &known.keys, second))
    }

    fn checked(&self, token: &str, now_ns: i64) -> Option<Arc<Scope>> {
        let checked = lock(&self.checked);
        checked
            .get(&token_hash(token))
            .filter(|checked| checked.expires_ns > now_ns)
            .map(|checked| checked.scope.clone())
    }

    fn remember(&self, token: &str, checked: Result<Identity, TokenError>) -> Result<Arc<Scope>, String> {
        let identity = checked.map_err(|error| match error {
            TokenError::UnknownKey => "it is signed by a key that the provider does not name".to_owned(),
            TokenError::Refused(why) => why,
        })?;
        let scope = self.rules.scope(&identity);
        let mut all = lock(&self.checked);
        if all.len() >= CHECKED_MAX {
            all.clear();
        }
        let expires_ns = identity.expires_s.saturating_mul(NS_PER_S);
        all.insert(token_hash(token), Checked { scope: scope.clone(), expires_ns });
        Ok(scope)
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
    pub(crate) async fn begin(&self, client: &OidcClient, attempt: Attempt, now_s: i64) -> Result<String, String> {
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
        &self,
        client: &OidcClient,
        (code, attempt): (&str, &Attempt),
        now_s: i64,
    ) -> Result<Arc<Scope>, String> {
        let known = self.fresh(now_s).await?;
        let request = code_request(client, &known.discovery, (code, attempt));
        let token = id_token(&self.ask(request, DOCUMENT_BYTES_MAX).await?)?;
        let rules = OidcRules { audiences: vec![client.id.clone()], ..self.rules.clone() };
        let mut checked = rules.check_answer(&token, &known.keys, (&attempt.nonce, now_s));
        if checked == Err(TokenError::UnknownKey) {
            self.fetch(now_s).await?;
            let known = self.known().unwrap_or(known);
            checked = rules.check_answer(&token, &known.keys, (&attempt.nonce, now_s));
        }
        checked.map(|identity| self.rules.scope(&identity)).map_err(|error| format!("{error:?}"))
    }
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

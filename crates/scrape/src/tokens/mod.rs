//! Tokens that requests sign in with, fetched where the configuration or the cloud's machine says.
//!
//! * `request`: how a token is asked for · `assertion`: statements signed with a client's key · `azure`, `google`: identities of clouds

mod assertion;
mod azure;
mod google;
mod request;
#[cfg(test)]
mod tests;

use platform::network::{ClientOptions, HttpClient, HttpRequest, NetworkPlatform};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::Mutex;

use crate::client::{proxy_options, tls_options};
use crate::config::{Credentials, HttpConfig, Origin, ProxyConfig, TlsConfig};
use request::TokenRequest;

/// Bytes of a response with a token.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Characters of a refusal's reason that are shown.
const REASON_CHARACTERS_MAX: usize = 300;

/// A token is fetched anew so long before it ends.
const MARGIN_NS: i64 = 10_000_000_000;

/// Fetches the tokens of one section, and keeps the newest as long as it lasts.
pub(crate) struct TokenSource {
    network: NetworkPlatform,
    credentials: Credentials,
    tls: TlsConfig,
    proxy: ProxyConfig,
    /// Held while a token is fetched, so that requests that come together fetch one.
    newest: Mutex<Option<Token>>,
}

struct Token {
    text: String,
    ends_ns: i64,
    /// The request that fetched it: a new secret needs a new token.
    request: TokenRequest,
}

impl TokenSource {
    /// The tokens of a section, if it signs in with tokens that have to be fetched.
    pub(crate) fn new(network: &NetworkPlatform, config: &HttpConfig) -> Option<Self> {
        let (tls, proxy) = match &config.credentials {
            Credentials::Oauth2(client) => (client.tls.clone(), client.proxy.clone()),
            Credentials::Azure(_) | Credentials::Google(_) => (TlsConfig::default(), config.proxy.clone()),
            _ => return None,
        };
        let (network, credentials) = (network.clone(), config.credentials.clone());
        Some(Self { network, credentials, tls, proxy, newest: Mutex::default() })
    }

    /// A token that is good now. Files and the environment are looked at each time, so that new secrets need no reload.
    pub(crate) async fn token(&self) -> Result<String, String> {
        let request = self.request()?;
        let mut newest = self.newest.lock().await;
        let now_ns = self.network.platform.clock.now_ns();
        let is_good = |token: &&Token| token.ends_ns > now_ns && token.request == request;
        if let Some(token) = newest.as_ref().filter(is_good) {
            return Ok(token.text.clone());
        }
        let (text, lifetime_ns) = self.fetch(&request, now_ns).await?;
        let ends_ns = now_ns.saturating_add(lifetime_ns).saturating_sub(MARGIN_NS);
        *newest = Some(Token { text: text.clone(), ends_ns, request });
        Ok(text)
    }

    fn request(&self) -> Result<TokenRequest, String> {
        let files = &*self.network.platform.files;
        let origin =
            Origin { files, variable: &|name: &str| std::env::var(name).ok().filter(|value| !value.is_empty()) };
        match &self.credentials {
            Credentials::Oauth2(client) => {
                request::of_client(client, files).map_err(|reason| format!("oauth2: {reason}"))
            }
            Credentials::Azure(config) => {
                azure::request(config, &origin).map_err(|reason| format!("azuread: {reason}"))
            }
            Credentials::Google(config) => {
                google::request(config, &origin).map_err(|reason| format!("google_iam: {reason}"))
            }
            _ => Err("no token is configured".to_owned()),
        }
    }

    async fn fetch(&self, request: &TokenRequest, now_ns: i64) -> Result<(String, i64), String> {
        let host = request.url.split(['?', '#']).next().unwrap_or_default();
        let failed = |reason: String| format!("the token of {host}: {reason}");
        let request = request.build(now_ns, &*self.network.platform.random).map_err(failed)?;
        self.exchange(request).await.map_err(failed)
    }

    async fn exchange(&self, request: HttpRequest) -> Result<(String, i64), String> {
        let mut response = self.connect()?.send(request).await.map_err(|error| error.to_string())?;
        let body = response.read_body(ANSWER_BYTES_MAX).await.map_err(|error| error.to_string())?;
        let answer = serde_json::from_slice(&body);
        if response.status != 200 {
            let reason = answer.as_ref().map_or_else(|_| String::new(), reason_in);
            return Err(format!("the server answered with status {} {reason}", response.status).trim_end().to_owned());
        }
        token_in(&answer.map_err(|error| error.to_string())?)
    }

    fn connect(&self) -> Result<Arc<dyn HttpClient>, String> {
        self.network.network.client(&ClientOptions {
            tls: tls_options(&*self.network.platform.files, &self.tls)?,
            follow_redirects: true,
            enable_http2: true,
            ..proxy_options(&self.proxy)
        })
    }
}

/// The token in an answer, and for how many nanoseconds it is good. Azure's machines write numbers as texts.
fn token_in(answer: &Value) -> Result<(String, i64), String> {
    let text = answer["access_token"].as_str().ok_or("the answer has no access_token")?;
    let seconds = &answer["expires_in"];
    let seconds = seconds.as_i64().or_else(|| seconds.as_str().and_then(|text| text.parse().ok()));
    Ok((text.to_owned(), seconds.map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000_000_000))))
}

/// Why a server refused, in its own words.
fn reason_in(answer: &Value) -> String {
    let words = answer["error_description"].as_str().or_else(|| answer["error"].as_str()).unwrap_or_default();
    words.chars().take(REASON_CHARACTERS_MAX).collect()
}

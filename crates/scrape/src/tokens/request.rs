//! How a token is asked for: plain data that two requests are compared by, from which one is built.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use platform::network::HttpRequest;
use platform::{Files, Random};
use serde_json::{Map, Value};

use super::assertion::Assertion;
use crate::client::USER_AGENT;
use crate::config::{AssertionConfig, JWT_BEARER, Oauth2Config, Source};

/// Seconds for which a statement is good.
const ASSERTION_LIFETIME_S: i64 = 600;

/// A request of a token.
#[derive(Clone, PartialEq)]
pub(super) struct TokenRequest {
    pub(super) url: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// The pairs of a form; without one, the token is fetched by GET.
    pub(super) form: Option<Vec<(String, String)>>,
    /// A statement that the form gets besides, signed when it is sent, and its name there.
    pub(super) assertion: Option<(&'static str, Assertion)>,
}

impl TokenRequest {
    /// A request with a form.
    pub(super) fn of_form<const N: usize>(url: String, pairs: [(&str, &str); N]) -> Self {
        let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        Self { url, headers: Vec::new(), form: Some(pairs.collect()), assertion: None }
    }

    /// The request at a time.
    pub(super) fn build(&self, now_ns: i64, random: &dyn Random) -> Result<HttpRequest, String> {
        let mut request = HttpRequest { method: "GET", url: self.url.clone(), headers: Vec::new(), body: Vec::new() };
        if let Some(pairs) = &self.form {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.extend_pairs(pairs);
            if let Some((name, assertion)) = &self.assertion {
                form.append_pair(name, &assertion.sign(now_ns, random)?);
            }
            request.method = "POST";
            request.body = form.finish().into_bytes();
            request = request.with_header("Content-Type", "application/x-www-form-urlencoded");
        }
        let headers = self.headers.iter();
        let request = headers.fold(request, |request, (name, value)| request.with_header(name, value.clone()));
        Ok(request.with_header("User-Agent", USER_AGENT))
    }
}

/// The request of a client of OAuth 2.0, with its secrets as they are now.
pub(super) fn of_client(client: &Oauth2Config, files: &dyn Files) -> Result<TokenRequest, String> {
    let read = |source: &Option<Source>| source.as_ref().map_or(Ok(String::new()), |source| source.read(files));
    let mut request = match &client.assertion {
        None => {
            let mut request = TokenRequest::of_form(client.token_url.clone(), [("grant_type", "client_credentials")]);
            let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let pair = format!("{}:{}", encode(&client.client_id), encode(&read(&client.client_secret)?));
            request.headers.push(("Authorization", format!("Basic {}", STANDARD.encode(pair))));
            request
        }
        Some(config) => {
            let mut request = TokenRequest::of_form(client.token_url.clone(), [("grant_type", JWT_BEARER)]);
            request.assertion = Some(("assertion", assertion_of(client, config, read(&config.key)?)));
            request
        }
    };
    let form = request.form.get_or_insert_default();
    if !client.scopes.is_empty() {
        form.push(("scope".to_owned(), client.scopes.join(" ")));
    }
    // Some servers want another grant's name than the standard has.
    if client.endpoint_params.iter().any(|(name, _)| name == "grant_type") {
        form.retain(|(name, _)| name != "grant_type");
    }
    form.extend(client.endpoint_params.iter().cloned());
    Ok(request)
}

fn assertion_of(client: &Oauth2Config, config: &AssertionConfig, key: String) -> Assertion {
    let or_else = |text: &str, default: &str| Value::from(if text.is_empty() { default } else { text });
    let mut claims = Map::new();
    claims.insert("iss".to_owned(), or_else(&config.issuer, &client.client_id));
    claims.insert("sub".to_owned(), Value::from(&*client.client_id));
    claims.insert("aud".to_owned(), or_else(&config.audience, &client.token_url));
    if !client.scopes.is_empty() {
        claims.insert("scope".to_owned(), Value::from(client.scopes.join(" ")));
    }
    claims.extend(config.claims.clone());
    let mut header = Map::new();
    if !config.key_id.is_empty() {
        header.insert("kid".to_owned(), Value::from(&*config.key_id));
    }
    Assertion { key, algorithm: config.algorithm, header, claims, lifetime_s: ASSERTION_LIFETIME_S }
}

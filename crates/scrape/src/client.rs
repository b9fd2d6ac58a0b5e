//! Requests with credentials. Files with secrets are read for each request, so that a new password needs no reload.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use platform::network::{ClientOptions, HttpClient, HttpError, HttpRequest, HttpResponse, NetworkPlatform, TlsOptions};
use std::path::PathBuf;
use std::sync::Arc;

use crate::aws::Signer;
use crate::config::{Credentials, HttpConfig, Oauth2Config, ProxyConfig, Source, TlsConfig};

/// What requests are sent by.
pub const USER_AGENT: &str = concat!("Thalweg/", env!("CARGO_PKG_VERSION"));

/// Bytes of a response with a token.
const TOKEN_BYTES_MAX: usize = 1 << 20;

/// A token is fetched anew so long before it ends.
const TOKEN_MARGIN_NS: i64 = 10_000_000_000;

/// A client for one `http_config`.
pub struct Client {
    network: NetworkPlatform,
    config: HttpConfig,
    unix_socket: Option<PathBuf>,
    connected: Mutex<Option<(ClientOptions, Arc<dyn HttpClient>)>>,
    token: Mutex<Option<Token>>,
    /// Signs requests, if they are to be signed.
    signer: Option<Signer>,
}

#[derive(Clone)]
struct Token {
    text: String,
    ends_ns: i64,
    secret: String,
}

impl Client {
    /// A client; connections are made when they are needed.
    pub fn new(network: &NetworkPlatform, config: &HttpConfig) -> Self {
        Self {
            network: network.clone(),
            config: config.clone(),
            unix_socket: None,
            connected: Mutex::default(),
            token: Mutex::default(),
            signer: match &config.credentials {
                Credentials::Sigv4(signing) => Some(Signer::new(network, signing, &config.proxy)),
                _ => None,
            },
        }
    }

    /// The client of a local service.
    #[must_use]
    pub fn over_socket(mut self, path: PathBuf) -> Self {
        self.unix_socket = Some(path);
        self
    }

    /// Sends a request; resolves with the head of the response. Callers bound the time.
    pub async fn send(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut request = request.with_header("User-Agent", USER_AGENT);
        let authorization = self.authorization().await.map_err(HttpError::Failed)?;
        if let Some(authorization) = authorization {
            request = request.with_header("Authorization", authorization);
        }
        for header in &self.config.headers {
            for value in &header.values {
                let value = self.read(value).map_err(HttpError::Failed)?;
                request = request.with_header(&header.name, value);
            }
        }
        if let Some(signer) = &self.signer {
            request = signer.sign(request).await.map_err(|reason| HttpError::Failed(format!("sigv4: {reason}")))?;
        }
        self.connect().map_err(HttpError::Failed)?.send(request).await
    }

    fn read(&self, source: &Source) -> Result<String, String> {
        source.read(&*self.network.platform.files)
    }

    /// The client for the options as they are now.
    fn connect(&self) -> Result<Arc<dyn HttpClient>, String> {
        let HttpConfig { tls, follow_redirects, enable_http2, keep_alive, proxy, .. } = &self.config;
        let options = ClientOptions {
            tls: self.tls(tls)?,
            follow_redirects: *follow_redirects,
            enable_http2: *enable_http2,
            keep_alive: *keep_alive,
            unix_socket: self.unix_socket.clone(),
            ..proxy_options(proxy)
        };
        let mut connected = self.connected.lock();
        if let Some((known, client)) = &*connected
            && *known == options
        {
            return Ok(client.clone());
        }
        let client = self.network.network.client(&options)?;
        *connected = Some((options, client.clone()));
        Ok(client)
    }

    fn tls(&self, config: &TlsConfig) -> Result<TlsOptions, String> {
        let read = |source: &Option<Source>| source.as_ref().map(|source| self.read(source)).transpose();
        let (certificate, key) = (read(&config.cert)?, read(&config.key)?);
        let identity = certificate.zip(key).map(|(certificate, key)| format!("{certificate}\n{key}\n").into_bytes());
        Ok(TlsOptions {
            ca: read(&config.ca)?.map(String::into_bytes),
            identity,
            server_name: config.server_name.clone(),
            insecure_skip_verify: config.insecure_skip_verify,
            version_min: config.version_min,
            version_max: config.version_max,
        })
    }

    async fn authorization(&self) -> Result<Option<String>, String> {
        match &self.config.credentials {
            Credentials::Basic { username, password } => {
                let read =
                    |source: &Option<Source>| source.as_ref().map_or(Ok(String::new()), |source| self.read(source));
                let pair = format!("{}:{}", read(username)?, read(password)?);
                Ok(Some(format!("Basic {}", STANDARD.encode(pair))))
            }
            Credentials::Authorization { kind, credentials: Some(credentials) } => {
                Ok(Some(format!("{kind} {}", self.read(credentials)?)))
            }
            Credentials::None | Credentials::Authorization { .. } | Credentials::Sigv4(_) => Ok(None),
            Credentials::NotBuiltIn(reason) => Err(reason.clone()),
            Credentials::Oauth2(config) => Ok(Some(format!("Bearer {}", self.oauth2_token(config).await?))),
        }
    }

    async fn oauth2_token(&self, config: &Oauth2Config) -> Result<String, String> {
        let secret = config.client_secret.as_ref().map_or(Ok(String::new()), |source| self.read(source))?;
        let now_ns = self.network.platform.clock.now_ns();
        let cached = self.token.lock().clone();
        if let Some(token) = cached.filter(|token| token.ends_ns > now_ns && token.secret == secret) {
            return Ok(token.text);
        }
        let request = token_request(config, &secret);
        let options = ClientOptions {
            tls: self.tls(&config.tls)?,
            follow_redirects: true,
            enable_http2: true,
            ..proxy_options(&config.proxy)
        };
        let client = self.network.network.client(&options)?;
        let failed = |reason: String| format!("oauth2: {reason}");
        let mut response = client.send(request).await.map_err(|error| failed(error.to_string()))?;
        let body = response.read_body(TOKEN_BYTES_MAX).await.map_err(|error| failed(error.to_string()))?;
        if response.status != 200 {
            return Err(failed(format!("the token's server answered with status {}", response.status)));
        }
        let json: serde_json::Value = serde_json::from_slice(&body).map_err(|error| failed(error.to_string()))?;
        let text = json["access_token"].as_str().ok_or_else(|| failed("the answer has no access_token".to_owned()))?;
        let lifetime_ns = json["expires_in"].as_i64().map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000_000_000));
        let ends_ns = now_ns.saturating_add(lifetime_ns).saturating_sub(TOKEN_MARGIN_NS);
        *self.token.lock() = Some(Token { text: text.to_owned(), ends_ns, secret });
        Ok(text.to_owned())
    }
}

fn token_request(config: &Oauth2Config, secret: &str) -> HttpRequest {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials");
    if !config.scopes.is_empty() {
        form.append_pair("scope", &config.scopes.join(" "));
    }
    for (name, value) in &config.endpoint_params {
        form.append_pair(name, value);
    }
    let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = format!("{}:{}", encode(&config.client_id), encode(secret));
    let body = form.finish().into_bytes();
    let request = HttpRequest { method: "POST", url: config.token_url.clone(), headers: Vec::new(), body };
    request
        .with_header("User-Agent", USER_AGENT)
        .with_header("Authorization", format!("Basic {}", STANDARD.encode(pair)))
        .with_header("Content-Type", "application/x-www-form-urlencoded")
}

pub(crate) fn proxy_options(proxy: &ProxyConfig) -> ClientOptions {
    ClientOptions {
        proxy_url: proxy.url.clone(),
        no_proxy: proxy.except.clone(),
        proxy_from_environment: proxy.from_environment,
        ..ClientOptions::default()
    }
}

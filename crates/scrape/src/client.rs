//! Requests with credentials. Files with secrets are read for each request, so that a new password needs no reload.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use platform::Files;
use platform::network::{ClientOptions, HttpClient, HttpError, HttpRequest, HttpResponse, NetworkPlatform, TlsOptions};
use std::path::PathBuf;
use std::sync::Arc;

use crate::aws::Signer;
use crate::config::{Credentials, HttpConfig, ProxyConfig, Source, TlsConfig};
use crate::tokens::TokenSource;

/// What requests are sent by.
pub const USER_AGENT: &str = concat!("Thalweg/", env!("CARGO_PKG_VERSION"));

/// A client for one `http_config`.
pub struct Client {
    network: NetworkPlatform,
    config: HttpConfig,
    unix_socket: Option<PathBuf>,
    connected: Mutex<Option<(ClientOptions, Arc<dyn HttpClient>)>>,
    /// Fetches tokens, if requests sign in with such.
    tokens: Option<TokenSource>,
    /// Signs requests, if they are to be signed.
    signer: Option<Signer>,
}

impl Client {
    /// A client; connections are made when they are needed.
    pub fn new(network: &NetworkPlatform, config: &HttpConfig) -> Self {
        Self {
            network: network.clone(),
            config: config.clone(),
            unix_socket: None,
            connected: Mutex::default(),
            tokens: TokenSource::new(network, config),
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
            tls: tls_options(&*self.network.platform.files, tls)?,
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
            Credentials::NotBuiltIn(reason) => Err(reason.clone()),
            Credentials::None
            | Credentials::Authorization { .. }
            | Credentials::Sigv4(_)
            | Credentials::Oauth2(_)
            | Credentials::Azure(_)
            | Credentials::Google(_) => match &self.tokens {
                Some(tokens) => Ok(Some(format!("Bearer {}", tokens.token().await?))),
                None => Ok(None),
            },
        }
    }
}

/// Options of TLS, with certificates as they are in their files now.
pub(crate) fn tls_options(files: &dyn Files, config: &TlsConfig) -> Result<TlsOptions, String> {
    let read = |source: &Option<Source>| source.as_ref().map(|source| source.read(files)).transpose();
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

pub(crate) fn proxy_options(proxy: &ProxyConfig) -> ClientOptions {
    ClientOptions {
        proxy_url: proxy.url.clone(),
        no_proxy: proxy.except.clone(),
        proxy_from_environment: proxy.from_environment,
        ..ClientOptions::default()
    }
}

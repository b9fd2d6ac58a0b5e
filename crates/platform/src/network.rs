//! The network and what runs on it: HTTP requests, single datagrams, tasks and timers; real and simulated.
//!
//! A task is a future that a [`Tasks`] runs. It waits on [`Tasks::sleep_ms`] and on answers of a [`Network`] alone, so that a simulation
//! ([`sim`]) can run days of it in seconds, always in the same order.
//!
//! * `real`: reqwest on tokio, with the feature `network` · [`retry`]: what answers of receivers mean · [`sim`]: tasks in order of time, and a network that a test answers for

#[cfg(feature = "network")]
mod real;
pub mod retry;
pub mod sim;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use crate::Platform;

/// A future without a type of its own.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The outside world with a network.
#[derive(Clone)]
pub struct NetworkPlatform {
    /// Clock, files, randomness.
    pub platform: Platform,
    /// HTTP and datagrams.
    pub network: Arc<dyn Network>,
    /// Tasks and timers.
    pub tasks: Arc<dyn Tasks>,
}

impl NetworkPlatform {
    /// The machine that the program runs on. To be made on tokio's runtime, on which its tasks run, whichever thread spawns them.
    #[cfg(feature = "network")]
    pub fn real(platform: Platform) -> Self {
        Self { platform, network: Arc::new(real::RealNetwork), tasks: Arc::new(real::RealTasks::default()) }
    }
}

impl fmt::Debug for NetworkPlatform {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("NetworkPlatform")
    }
}

/// Runs tasks.
pub trait Tasks: Send + Sync {
    /// Runs a future to its end.
    fn spawn(&self, task: BoxFuture<'static, ()>);

    /// Runs work that computes or waits for the disk, where it holds no task up.
    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()>;

    /// Resolves after so many milliseconds.
    fn sleep_ms(&self, duration_ms: u64) -> BoxFuture<'static, ()>;
}

/// Runs work that computes or waits for the disk where it holds no task up; `None` if it did not come to its end.
pub async fn compute<T: Send + 'static>(
    tasks: &Arc<dyn Tasks>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let slot = Arc::new(Mutex::new(None));
    let result = slot.clone();
    tasks.block(Box::new(move || *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(work()))).await;
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// A request.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HttpRequest {
    /// `GET`, `POST`, ….
    pub method: &'static str,
    /// Scheme, host, path and query.
    pub url: String,
    /// Headers beyond those that every request has.
    pub headers: Vec<(String, String)>,
    /// The body; empty for most methods.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// A `GET` without headers.
    pub fn get(url: impl Into<String>) -> Self {
        Self { method: "GET", url: url.into(), ..Self::default() }
    }

    /// The request with one header more.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// Headers may hold credentials, and so may addresses.
impl fmt::Debug for HttpRequest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// The head of a response; its body follows in chunks.
pub struct HttpResponse {
    /// `200`, ….
    pub status: u16,
    /// All headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Box<dyn HttpBody>,
}

impl HttpResponse {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The whole body, unless it is longer than this.
    pub async fn read_body(&mut self, size_bytes_max: usize) -> Result<Vec<u8>, HttpError> {
        let mut content = Vec::new();
        while let Some(chunk) = self.body.chunk().await? {
            if content.len() + chunk.len() > size_bytes_max {
                return Err(HttpError::TooLarge);
            }
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }
}

impl fmt::Debug for HttpResponse {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// A body as it arrives.
pub trait HttpBody: Send {
    /// The next bytes; `None` at the end.
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, HttpError>>;
}

/// A body that is there already: one chunk.
impl HttpBody for Option<Vec<u8>> {
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, HttpError>> {
        let chunk = self.take().filter(|chunk| !chunk.is_empty());
        Box::pin(std::future::ready(Ok(chunk)))
    }
}

/// A request without a whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpError {
    /// There was no connection, or it broke.
    Failed(String),
    /// The body has more bytes than its reader takes.
    TooLarge,
}

impl fmt::Display for HttpError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(reason) => formatter.write_str(reason),
            Self::TooLarge => formatter.write_str("the body is too large"),
        }
    }
}

impl std::error::Error for HttpError {}

/// How connections are made.
#[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[derive(Clone, PartialEq, Eq, Default)]
pub struct ClientOptions {
    /// TLS.
    pub tls: TlsOptions,
    /// Whether redirections are followed.
    pub follow_redirects: bool,
    /// Whether HTTP/2 is offered.
    pub enable_http2: bool,
    /// Whether connections are kept open between requests.
    pub keep_alive: bool,
    /// The proxy of all requests.
    pub proxy_url: Option<String>,
    /// Hosts, domains and networks that are reached without it, separated by commas.
    pub no_proxy: String,
    /// Takes proxies from the variables of the environment.
    pub proxy_from_environment: bool,
    /// The socket of a local service, in place of TCP.
    pub unix_socket: Option<PathBuf>,
}

/// May hold a proxy's password.
impl fmt::Debug for ClientOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ClientOptions")
    }
}

/// How TLS is spoken, in PEM.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct TlsOptions {
    /// Certificates of authorities that are trusted, in place of the system's.
    pub ca: Option<Vec<u8>>,
    /// The client's own certificate and key, one after the other.
    pub identity: Option<Vec<u8>>,
    /// The name that the server's certificate must have, if it is not that of the address.
    pub server_name: Option<String>,
    /// Takes every certificate.
    pub insecure_skip_verify: bool,
    /// The lowest version: 2 for TLS 1.2, 3 for TLS 1.3.
    pub version_min: Option<u8>,
    /// The highest version.
    pub version_max: Option<u8>,
}

impl fmt::Debug for TlsOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsOptions")
    }
}

/// Sends requests, and keeps connections for the next ones.
pub trait HttpClient: Send + Sync {
    /// Sends a request; resolves when the response's head is there. Callers bound the time.
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>>;
}

/// How a message is sent that one message answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A datagram each way.
    Udp,
    /// A connection; a message has its length in front, as two bytes.
    Tcp,
}

/// Everything beyond the machine.
pub trait Network: Send + Sync {
    /// A client; an error says what is wrong with the options.
    fn client(&self, options: &ClientOptions) -> Result<Arc<dyn HttpClient>, String>;

    /// Sends a message and resolves with the one that answers. Callers bound the time.
    fn exchange(
        &self,
        to: SocketAddr,
        transport: Transport,
        message: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, HttpError>>;

    /// Sends datagrams to `host:port`; nothing answers, and none need arrive.
    fn send_datagrams(&self, to: String, datagrams: Vec<Vec<u8>>) -> BoxFuture<'static, Result<(), HttpError>>;
}

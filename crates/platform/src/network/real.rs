//! reqwest and tokio.

use std::error::Error;
use std::fmt::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::tls::Version;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Method, NoProxy, Proxy, Url};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;

use super::{
    BoxFuture, ClientOptions, HttpBody, HttpClient, HttpError, HttpRequest, HttpResponse, Network, Tasks, Transport,
};

/// Redirections of one request.
const REDIRECTS_MAX: usize = 10;

/// How long a connection may take to be made; callers bound requests as a whole.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) struct RealTasks(Option<Handle>);

impl Default for RealTasks {
    fn default() -> Self {
        Self(Handle::try_current().ok())
    }
}

impl RealTasks {
    /// The runtime of the caller, else the one that this was made on.
    fn runtime(&self) -> Handle {
        Handle::try_current().ok().or_else(|| self.0.clone()).unwrap_or_else(Handle::current)
    }
}

impl Tasks for RealTasks {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.runtime().spawn(task);
    }

    fn block(&self, work: Box<dyn FnOnce() + Send>) -> BoxFuture<'static, ()> {
        let running = self.runtime().spawn_blocking(work);
        Box::pin(async {
            // An error means that the work panicked or that the runtime ends: callers see that it gave nothing.
            let _ = running.await;
        })
    }

    fn sleep_ms(&self, duration_ms: u64) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(Duration::from_millis(duration_ms)))
    }
}

pub(super) struct RealNetwork;

impl Network for RealNetwork {
    fn client(&self, options: &ClientOptions) -> Result<Arc<dyn HttpClient>, String> {
        // An error means that the program has chosen a provider already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = builder(options)?.build().map_err(|error| explain(&error))?;
        Ok(Arc::new(RealClient { client, options: options.clone() }))
    }

    fn exchange(
        &self,
        to: SocketAddr,
        transport: Transport,
        message: Vec<u8>,
    ) -> BoxFuture<'static, Result<Vec<u8>, HttpError>> {
        Box::pin(async move {
            let answer = match transport {
                Transport::Udp => exchange_datagrams(to, &message).await,
                Transport::Tcp => exchange_over_tcp(to, &message).await,
            };
            answer.map_err(|error| HttpError::Failed(format!("{to}: {error}")))
        })
    }

    fn send_datagrams(&self, to: String, datagrams: Vec<Vec<u8>>) -> BoxFuture<'static, Result<(), HttpError>> {
        Box::pin(async move {
            let sent = send_datagrams(&to, &datagrams).await;
            sent.map_err(|error| HttpError::Failed(format!("{to}: {error}")))
        })
    }
}

async fn send_datagrams(to: &str, datagrams: &[Vec<u8>]) -> std::io::Result<()> {
    let address = tokio::net::lookup_host(to).await?.next().ok_or(std::io::ErrorKind::NotFound)?;
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(address).await?;
    for datagram in datagrams {
        socket.send(datagram).await?;
    }
    Ok(())
}

async fn exchange_datagrams(to: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let local = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(to).await?;
    socket.send(message).await?;
    let mut answer = vec![0; 1 << 16];
    let length = socket.recv(&mut answer).await?;
    answer.truncate(length);
    Ok(answer)
}

async fn exchange_over_tcp(to: SocketAddr, message: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to).await?;
    stream.write_u16(message.len() as u16).await?;
    stream.write_all(message).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    Ok(answer)
}

fn builder(options: &ClientOptions) -> Result<ClientBuilder, String> {
    let redirects = if options.follow_redirects { Policy::limited(REDIRECTS_MAX) } else { Policy::none() };
    let mut builder = Client::builder().redirect(redirects).connect_timeout(CONNECT_TIMEOUT);
    if !options.enable_http2 {
        builder = builder.http1_only();
    }
    if !options.keep_alive {
        builder = builder.pool_max_idle_per_host(0);
    }
    if let Some(socket) = &options.unix_socket {
        builder = builder.unix_socket(socket.clone());
    }
    let tls = &options.tls;
    let version = |number: u8| if number >= 3 { Version::TLS_1_3 } else { Version::TLS_1_2 };
    if let Some(number) = tls.version_min {
        builder = builder.tls_version_min(version(number));
    }
    if let Some(number) = tls.version_max {
        builder = builder.tls_version_max(version(number));
    }
    if let Some(pem) = &tls.ca {
        let certificates = Certificate::from_pem_bundle(pem).map_err(|error| format!("ca: {}", explain(&error)))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let Some(pem) = &tls.identity {
        let identity = Identity::from_pem(pem).map_err(|error| format!("certificate and key: {}", explain(&error)))?;
        builder = builder.identity(identity);
    }
    builder = builder.tls_danger_accept_invalid_certs(tls.insecure_skip_verify);
    add_proxy(builder, options)
}

fn add_proxy(builder: ClientBuilder, options: &ClientOptions) -> Result<ClientBuilder, String> {
    let variable = |name: &str| std::env::var(name).or_else(|_| std::env::var(name.to_uppercase())).ok();
    let proxy = |proxy: reqwest::Result<Proxy>, except: &str| {
        let proxy = proxy.map_err(|error| format!("proxy: {}", explain(&error)))?;
        Ok::<_, String>(proxy.no_proxy(NoProxy::from_string(except)))
    };
    // Without one of these, variables of the environment count for nothing, as in Prometheus.
    let mut builder = builder.no_proxy();
    if let Some(url) = &options.proxy_url {
        builder = builder.proxy(proxy(Proxy::all(url), &options.no_proxy)?);
    } else if options.proxy_from_environment {
        let except = variable("no_proxy").unwrap_or_default();
        if let Some(url) = variable("http_proxy") {
            builder = builder.proxy(proxy(Proxy::http(url), &except)?);
        }
        if let Some(url) = variable("https_proxy") {
            builder = builder.proxy(proxy(Proxy::https(url), &except)?);
        }
    }
    Ok(builder)
}

/// An error with its causes: reqwest's own text names none of them.
fn explain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(found) = cause {
        let message = found.to_string();
        if !text.contains(&message) {
            // Writing into a string does not fail.
            let _ = write!(text, ": {message}");
        }
        cause = found.source();
    }
    text
}

struct RealClient {
    client: Client,
    options: ClientOptions,
}

impl HttpClient for RealClient {
    fn send(&self, request: HttpRequest) -> BoxFuture<'static, Result<HttpResponse, HttpError>> {
        let (client, options) = (self.client.clone(), self.options.clone());
        Box::pin(async move {
            let failed = |error: &reqwest::Error| HttpError::Failed(explain(error));
            let method = Method::from_bytes(request.method.as_bytes());
            let method = method.map_err(|error| HttpError::Failed(error.to_string()))?;
            let url = Url::parse(&request.url).map_err(|error| HttpError::Failed(format!("address: {error}")))?;
            let (client, url, host) = match options.tls.server_name.clone() {
                Some(name) if url.scheme() == "https" => {
                    let (client, named) = under_name(&options, &url, &name).map_err(HttpError::Failed)?;
                    (client, named, url.host_str().map(|host| with_port(host, &url)))
                }
                _ => (client, url, None),
            };
            let mut sent = client.request(method, url).body(request.body);
            if let Some(host) = host.filter(|_| !request.headers.iter().any(|(name, _)| name == "Host")) {
                sent = sent.header("Host", host);
            }
            for (name, value) in &request.headers {
                sent = sent.header(name, value);
            }
            let response = sent.send().await.map_err(|error| failed(&error.without_url()))?;
            let text = |value: &reqwest::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
            let headers = response.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
            Ok(HttpResponse { status: response.status().as_u16(), headers, body: Box::new(RealBody(response)) })
        })
    }
}

fn with_port(host: &str, url: &Url) -> String {
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A client and an address that ask for a certificate of another name: the name takes the host's place, and is found where the host is.
fn under_name(options: &ClientOptions, url: &Url, name: &str) -> Result<(Client, Url), String> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or(443);
    let found = (host.trim_matches(['[', ']']), port).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
    let addresses: Vec<SocketAddr> = found.collect();
    let client = builder(options)?.resolve_to_addrs(name, &addresses).build().map_err(|error| explain(&error))?;
    let mut named = url.clone();
    named.set_host(Some(name)).map_err(|error| format!("server_name: {error}"))?;
    Ok((client, named))
}

struct RealBody(reqwest::Response);

impl HttpBody for RealBody {
    fn chunk(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>, HttpError>> {
        Box::pin(async {
            let chunk = self.0.chunk().await;
            let chunk = chunk.map_err(|error| HttpError::Failed(explain(&error.without_url())))?;
            Ok(chunk.map(|bytes| bytes.to_vec()))
        })
    }
}

//! Sockets and connections.

pub(crate) mod connection_limit;
pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod stream;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::middleware;
use db::Db;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};
use tower::ServiceExt;
use wire::frame::Plane;

use crate::host;
use crate::http::guard::{self, RequestGuard};
use crate::http::health;
use crate::listen::connection_limit::{ConnectionLimit, FULL};
use crate::listen::stream::{LineProtocol, serve_tcp, serve_udp};
use crate::metrics::Metrics;
use crate::scheduler::running::Remote;
use crate::sql::postgres;
use crate::state::{Listener, ServerSettings, State};
use crate::wire::Planes;

/// How long accepting pauses when the process has no file descriptors left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a silent connection of gRPC is asked whether its client is still there, and how long it may think about it.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Calls that a connection of gRPC may have under way.
const CALLS_MAX: u32 = 32;

/// Bytes of a call that may be on their way unread.
const WINDOW_BYTES: u32 = 1 << 20;

/// Why the server cannot serve.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be listened on: choose another one, or stop what has it.
    Bind {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the operating system said.
        error: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { flag, address, error } => {
                write!(formatter, "cannot listen on {address}: {error}; choose another address with {flag}")
            }
        }
    }
}

impl std::error::Error for ServeError {}

/// HTTP, which is listened on before the data folder is open: `/health` and `/ready` tell of that, all else is to be asked again.
pub struct Front {
    address: SocketAddr,
    http: Arc<http1::Shared>,
    stopping: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
    all_ended: mpsc::Receiver<()>,
}

impl Front {
    /// Listens, and answers from now on.
    pub async fn bind(settings: ServerSettings) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Bind { flag: "--http", address: settings.http, error };
        let listener = TcpListener::bind(settings.http).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = Arc::new(RequestGuard::new(address.ip(), &settings));
        let http = Arc::new(http1::Shared::new(settings, guard));
        let (stopping, stopped) = watch::channel(false);
        let (alive, all_ended) = mpsc::channel(1);
        let port = Port {
            settings: http.settings.clone(),
            metrics: http.metrics.clone(),
            version: Version::One(http.clone()),
        };
        tokio::spawn(accept_http(port, listener, stopped.clone(), alive.clone()));
        Ok(Self { address, http, stopping, stopped, alive, all_ended })
    }

    /// Where HTTP is served.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on the other ports, and hands HTTP to the database: connections that are open stay so.
    pub async fn open(self, db: Arc<Db>) -> Result<Server, ServeError> {
        let state = Arc::new(State::new(db, self.http.settings.clone(), self.http.metrics.clone()));
        let mut server = Server {
            front: self,
            lines: Vec::new(),
            otlp_grpc: None,
            postgres: None,
            flight_sql: None,
            control: None,
            ingest: None,
            addresses: Vec::new(),
            unavailable: Vec::new(),
            state,
        };
        server.bind_others().await?;
        server.front.http.open(&server.state);
        Ok(server)
    }
}

/// A server that listens.
pub struct Server {
    front: Front,
    lines: Vec<(LineProtocol, TcpListener, Option<UdpSocket>)>,
    otlp_grpc: Option<TcpListener>,
    postgres: Option<TcpListener>,
    flight_sql: Option<TcpListener>,
    addresses: Vec<(&'static str, SocketAddr)>,
    unavailable: Vec<ServeError>,
    control: Option<TcpListener>,
    ingest: Option<TcpListener>,
    state: Arc<State>,
}

impl Server {
    /// Listens; [`Server::run`] serves until the end. [`Front`] does it in two steps.
    pub async fn bind(db: Arc<Db>, settings: ServerSettings) -> Result<Self, ServeError> {
        Front::bind(settings).await?.open(db).await
    }

    async fn bind_others(&mut self) -> Result<(), ServeError> {
        let settings = self.state.settings.clone();
        let lines = [
            ("--line", settings.line, LineProtocol::Line, true),
            ("--graphite", settings.graphite, LineProtocol::Graphite, true),
            ("--opentsdb", settings.opentsdb, LineProtocol::Opentsdb, false),
        ];
        let (otlp_grpc, control, ingest) = (settings.otlp_grpc, settings.control, settings.ingest);
        let (postgres, flight_sql) = (settings.postgres, settings.flight_sql.filter(|_| cfg!(feature = "flight-sql")));
        for (flag, listener, protocol, with_udp) in lines {
            if let Some((tcp, udp)) = self.bind_one(flag, listener, with_udp).await? {
                self.lines.push((protocol, tcp, udp));
            }
        }
        self.otlp_grpc = self.bind_one("--otlp-grpc", otlp_grpc, false).await?.map(|(tcp, _)| tcp);
        self.control = self.bind_one("--control", control, false).await?.map(|(tcp, _)| tcp);
        self.ingest = self.bind_one("--ingest", ingest, false).await?.map(|(tcp, _)| tcp);
        self.postgres = self.bind_one("--postgres", postgres, false).await?.map(|(tcp, _)| tcp);
        self.flight_sql = self.bind_one("--flight-sql", flight_sql, false).await?.map(|(tcp, _)| tcp);
        Ok(())
    }

    /// Binds a port for TCP and, if asked, the same for UDP. `None` if it is off, or cannot be had and need not be.
    async fn bind_one(
        &mut self,
        flag: &'static str,
        listener: Option<Listener>,
        with_udp: bool,
    ) -> Result<Option<(TcpListener, Option<UdpSocket>)>, ServeError> {
        let Some(Listener { address, required }) = listener else { return Ok(None) };
        let bound = async {
            let tcp = TcpListener::bind(address).await?;
            let address = tcp.local_addr()?;
            let udp = if with_udp { Some(UdpSocket::bind(address).await?) } else { None };
            Ok((tcp, udp, address))
        };
        match bound.await {
            Ok((tcp, udp, address)) => {
                self.addresses.push((flag, address));
                Ok(Some((tcp, udp)))
            }
            Err(error) if required => Err(ServeError::Bind { flag, address, error }),
            Err(error) => {
                self.unavailable.push(ServeError::Bind { flag, address, error });
                Ok(None)
            }
        }
    }

    /// Where HTTP is served.
    pub fn address(&self) -> SocketAddr {
        self.front.address
    }

    /// Where the listeners beside HTTP listen, by their flags.
    pub fn addresses(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// Listeners that could not be had and are not required.
    pub fn unavailable(&self) -> &[ServeError] {
        &self.unavailable
    }

    /// Serves until `stop` resolves; then finishes requests under way, for as long as the settings allow.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let sampling = host::start(&self.state);
        let Front { stopping, stopped, alive, mut all_ended, .. } = self.front;
        tokio::spawn(health::tell(self.state.clone(), stopped.clone()));
        for (protocol, tcp, udp) in self.lines {
            tokio::spawn(serve_tcp(self.state.clone(), protocol, tcp, stopped.clone(), alive.clone()));
            if let Some(udp) = udp {
                tokio::spawn(serve_udp(self.state.clone(), protocol, udp, stopped.clone(), alive.clone()));
            }
        }
        let state = &self.state;
        #[cfg(feature = "flight-sql")]
        let flight_sql = self.flight_sql.map(|listener| (listener, crate::sql::flight::router(state.clone())));
        #[cfg(not(feature = "flight-sql"))]
        let flight_sql = None;
        let otlp = self.otlp_grpc.map(|listener| (listener, grpc::router(state.clone())));
        for (listener, router) in otlp.into_iter().chain(flight_sql) {
            let Ok(address) = listener.local_addr() else { continue };
            let guard = Arc::new(RequestGuard::new(address.ip(), &state.settings));
            let version = Version::Two(router.layer(middleware::from_fn_with_state(guard, guard::check)));
            let port = Port { settings: state.settings.clone(), metrics: state.metrics.clone(), version };
            tokio::spawn(accept_http(port, listener, stopped.clone(), alive.clone()));
        }
        if let Some(listener) = self.postgres {
            tokio::spawn(postgres::accept(self.state.clone(), listener, stopped.clone()));
        }
        let planes = Planes::new(self.state.clone(), stopped);
        for (plane, listener) in [(Plane::Control, self.control), (Plane::Data, self.ingest)] {
            if let Some(listener) = listener {
                tokio::spawn(planes.clone().accept(plane, listener, alive.clone()));
            }
        }
        drop(planes);
        drop(alive);
        stop.await;
        let _ = stopping.send(true);
        sampling.stop().await;
        let patience = Duration::from_millis(self.state.settings.stop_timeout_ms);
        // Nobody sends: it ends when the last of them has dropped its end.
        let _ = tokio::time::timeout(patience, all_ended.recv()).await;
    }
}

/// The version of HTTP that a port speaks, and who answers there.
#[derive(Clone)]
enum Version {
    One(Arc<http1::Shared>),
    Two(Router),
}

/// What the connections of a port share.
struct Port {
    settings: Arc<ServerSettings>,
    metrics: Arc<Metrics>,
    version: Version,
}

/// What a connection has of its port's for as long as it is open.
struct Open {
    metrics: Arc<Metrics>,
    _place: OwnedSemaphorePermit,
    _alive: mpsc::Sender<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Accepts until the stop. Each connection holds a clone of `alive` as long as it lives.
async fn accept_http(port: Port, listener: TcpListener, mut stop: watch::Receiver<bool>, alive: mpsc::Sender<()>) {
    let Port { settings, metrics, version } = port;
    let places = ConnectionLimit::new(settings.connections_max);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let Ok((stream, remote)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let evict = || match &version {
            Version::One(shared) => shared.parking.evict(),
            Version::Two(_) => false,
        };
        let Some(place) = places.take(evict).await else {
            metrics.refuse_connection();
            let answer: &[u8] = if matches!(version, Version::One(_)) { FULL } else { &[] };
            places.refuse(stream, answer);
            continue;
        };
        // Answers are small and complete: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        metrics.connections.fetch_add(1, Ordering::Relaxed);
        let open = Open { metrics: metrics.clone(), _place: place, _alive: alive.clone() };
        let stop = stop.clone();
        match version.clone() {
            Version::One(shared) => tokio::spawn(async move {
                http1::serve(&shared, stream, remote, stop).await;
                drop(open);
            }),
            Version::Two(router) => tokio::spawn(async move {
                serve_http2(router, stream, remote, stop).await;
                drop(open);
            }),
        };
    }
}

/// Serves a connection of HTTP/2 until it ends. One that broke concerns nobody but its client.
async fn serve_http2(router: Router, stream: TcpStream, remote: SocketAddr, mut stop: watch::Receiver<bool>) {
    let service = router.map_request(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Remote(remote));
        request
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

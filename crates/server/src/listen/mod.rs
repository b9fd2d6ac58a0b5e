//! Sockets and connections.

pub(crate) mod accept;
pub(crate) mod connection_limit;
pub(crate) mod grpc;
pub(crate) mod http1;
pub(crate) mod http2;
mod request_body;
mod request_line;
pub(crate) mod socket;
pub(crate) mod stream;
pub(crate) mod tls;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::middleware;
use db::Db;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{mpsc, watch};
use wire::frame::Plane;

use crate::host;
use crate::http::guard::{self, RequestGuard};
use crate::http::health;
use crate::listen::accept::{Acceptor, Source};
use crate::listen::http2::Grpc;
use crate::listen::stream::{LineProtocol, Lines, serve_udp};
use crate::listen::tls::Tls;
use crate::log;
use crate::metrics::pushed;
use crate::settings::{Listener, ServerSettings};
use crate::sign_in::rights;
use crate::sql::postgres;
use crate::state::State;
use crate::wire::{PlanePort, Planes};

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
    /// A certificate or its key cannot be used. Holds which one and why.
    Tls(String),
    /// A unix socket cannot be made.
    Socket {
        /// The flag that names its path.
        flag: &'static str,
        /// Which one, and why.
        why: String,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { flag, address, error } => {
                write!(formatter, "cannot listen on {address}: {error}; choose another address with {flag}")
            }
            Self::Tls(why) => write!(formatter, "TLS: {why}"),
            Self::Socket { flag, why } => write!(formatter, "{flag}: {why}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// HTTP, which is listened on before the data folder is open: `/health` and `/ready` tell of that, all else is to be asked again.
pub struct Front {
    address: SocketAddr,
    http: Arc<http1::Shared>,
    tls: Option<Arc<Tls>>,
    stopping: watch::Sender<bool>,
    acceptor: Acceptor,
    all_ended: mpsc::Receiver<()>,
}

impl Front {
    /// Listens, and answers from now on.
    pub async fn bind(settings: ServerSettings) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Bind { flag: "--http", address: settings.http, error };
        let tls = settings.tls.clone().map(Tls::load).transpose().map_err(ServeError::Tls)?.map(Arc::new);
        let listener = TcpListener::bind(settings.http).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = Arc::new(RequestGuard::new(address.ip(), &settings));
        let http = Arc::new(http1::Shared::new(settings, guard));
        let (stopping, stopped) = watch::channel(false);
        let (alive, all_ended) = mpsc::channel(1);
        let acceptor = Acceptor {
            metrics: http.metrics.clone(),
            connections_max: http.settings.connections_max,
            handshake_patience: Duration::from_millis(http.settings.head_timeout_ms),
            stop: stopped,
            alive,
        };
        let http_tls = tls_of(tls.as_ref(), "--http");
        acceptor.spawn(Source::Tcp(listener, http_tls), http.clone());
        #[cfg(unix)]
        if let Some(path) = &http.settings.http_socket {
            let listener = unix_socket::bind("--http-socket", path)?;
            acceptor.spawn(Source::Unix(listener), http.clone());
        }
        if let Some(tls) = &tls {
            let (tls, mut stop) = (tls.clone(), acceptor.stop.clone());
            tokio::spawn(async move {
                tokio::select! {
                    () = tls::watch(tls) => {}
                    _ = stop.wait_for(|stop| *stop) => {}
                }
            });
        }
        Ok(Self { address, http, tls, stopping, acceptor, all_ended })
    }

    /// Where HTTP is served.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens on the other ports, and hands HTTP to the database: connections that are open stay so.
    pub async fn open(self, db: Arc<Db>) -> Result<Server, ServeError> {
        let state = State::new(db, self.http.settings.clone(), self.http.metrics.clone(), self.tls.clone());
        let state = Arc::new(state);
        state.start_deliveries();
        let mut server = Server {
            front: self,
            lines: Vec::new(),
            #[cfg(unix)]
            rrdcached_socket: None,
            otlp_grpc: None,
            postgres: None,
            redis: None,
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

/// Serves Redis's protocol.
fn serve_redis(state: &Arc<State>, acceptor: &Acceptor, source: Source) {
    match crate::protocols::redis::Port::new(state.clone()) {
        Ok(port) => acceptor.spawn(source, port),
        Err(error) => log::error(&format!("--redis: cannot start its threads: {error}")),
    }
}

/// The TLS of a listener, by its flag.
fn tls_of(tls: Option<&Arc<Tls>>, flag: &str) -> Option<Arc<Tls>> {
    tls.filter(|tls| tls.covers(flag)).cloned()
}

/// A server that listens.
pub struct Server {
    front: Front,
    lines: Vec<(LineProtocol, TcpListener, Option<UdpSocket>)>,
    #[cfg(unix)]
    rrdcached_socket: Option<UnixListener>,
    otlp_grpc: Option<TcpListener>,
    postgres: Option<TcpListener>,
    redis: Option<TcpListener>,
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
            ("--rrdcached", settings.web.rrd.listener, LineProtocol::Rrdcached, false),
        ];
        let (otlp_grpc, control, ingest) = (settings.otlp_grpc, settings.control, settings.ingest);
        let redis = settings.redis.listener;
        let (postgres, flight_sql) = (settings.postgres, settings.flight_sql.filter(|_| cfg!(feature = "flight-sql")));
        for (flag, listener, protocol, with_udp) in lines {
            if let Some((tcp, udp)) = self.bind_one(flag, listener, with_udp).await? {
                self.lines.push((protocol, tcp, udp));
            }
        }
        #[cfg(unix)]
        if let Some(path) = &settings.web.rrd.socket {
            self.rrdcached_socket = Some(unix_socket::bind("--rrdcached-socket", path)?);
        }
        self.otlp_grpc = self.bind_one("--otlp-grpc", otlp_grpc, false).await?.map(|(tcp, _)| tcp);
        self.control = self.bind_one("--control", control, false).await?.map(|(tcp, _)| tcp);
        self.ingest = self.bind_one("--ingest", ingest, false).await?.map(|(tcp, _)| tcp);
        self.postgres = self.bind_one("--postgres", postgres, false).await?.map(|(tcp, _)| tcp);
        self.redis = self.bind_one("--redis", redis, false).await?.map(|(tcp, _)| tcp);
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

    /// Returns whether clients have to sign in.
    pub fn asks_to_sign_in(&self) -> bool {
        self.state.sign_in.is_required
    }

    /// Returns whether HTTP is served by TLS.
    pub fn has_https(&self) -> bool {
        tls_of(self.front.tls.as_ref(), "--http").is_some()
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

    /// Serves until `stop` resolves or a client may end the server and does (`/-/quit`); then finishes requests under way, for as long as the settings allow.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let sampling = [host::start(&self.state), host::repeat(&self.state, pushed::INTERVAL_MS, pushed::write_all)];
        let refreshing = start_refreshing(&self.state.db);
        let Front { stopping, acceptor, mut all_ended, tls, .. } = self.front;
        let source = |listener, flag| Source::Tcp(listener, tls_of(tls.as_ref(), flag));
        let (state, stopped) = (&self.state, &acceptor.stop);
        tokio::spawn(health::tell(state.clone(), stopped.clone()));
        for (protocol, tcp, udp) in self.lines {
            acceptor.spawn(source(tcp, protocol.name()), Lines::new(state.clone(), protocol));
            if let Some(udp) = udp {
                tokio::spawn(serve_udp(state.clone(), protocol, udp, stopped.clone(), acceptor.alive.clone()));
            }
        }
        #[cfg(unix)]
        if let Some(listener) = self.rrdcached_socket {
            acceptor.spawn(Source::Unix(listener), Lines::new(state.clone(), LineProtocol::Rrdcached));
        }
        #[cfg(feature = "flight-sql")]
        let flight_sql =
            self.flight_sql.map(|listener| ("--flight-sql", listener, crate::sql::flight::router(state.clone())));
        #[cfg(not(feature = "flight-sql"))]
        let flight_sql = None;
        let otlp = self.otlp_grpc.map(|listener| ("--otlp-grpc", listener, grpc::router(state.clone())));
        for (flag, listener, router) in otlp.into_iter().chain(flight_sql) {
            let Ok(address) = listener.local_addr() else { continue };
            let guard = Arc::new(RequestGuard::new(address.ip(), &state.settings));
            let router = router
                .layer(middleware::from_fn_with_state(state.clone(), rights::check_call))
                .layer(middleware::from_fn_with_state(guard, guard::check));
            let grpc = Grpc { router, settings: state.settings.clone() };
            acceptor.spawn(source(listener, flag), Arc::new(grpc));
        }
        if let Some(listener) = self.postgres {
            // Its clients ask for TLS in its own way.
            let sessions = postgres::Sessions::new(state.clone(), tls_of(tls.as_ref(), "--postgres"));
            acceptor.spawn(Source::Tcp(listener, None), sessions);
        }
        if let Some(listener) = self.redis {
            serve_redis(state, &acceptor, source(listener, "--redis"));
        }
        let planes = Planes::new(state.clone(), stopped.clone());
        let of_planes = [(Plane::Control, "--control", self.control), (Plane::Data, "--ingest", self.ingest)];
        for (plane, flag, listener) in of_planes {
            if let Some(listener) = listener {
                acceptor.spawn(source(listener, flag), Arc::new(PlanePort { planes: planes.clone(), plane }));
            }
        }
        drop(planes);
        drop(acceptor);
        tokio::select! {
            () = stop => {}
            () = self.state.quit.notified() => {}
        }
        let _ = stopping.send(true);
        // Live streams end, so that their connections do.
        let delivering = self.state.clone();
        let stopped = move || delivering.delivering.get().map(views::delivery::Deliveries::stop);
        let _ = tokio::task::spawn_blocking(stopped).await;
        for repeated in sampling {
            repeated.stop().await;
        }
        stop_refreshing(refreshing).await;
        let patience = Duration::from_millis(self.state.settings.stop_timeout_ms);
        // Nothing is sent: it ends when the last connection has dropped its end.
        let _ = tokio::time::timeout(patience, all_ended.recv()).await;
        #[cfg(unix)]
        for path in [&self.state.settings.http_socket, &self.state.settings.web.rrd.socket].into_iter().flatten() {
            platform::private::remove_socket(path);
        }
    }
}

/// Unix sockets.
#[cfg(unix)]
mod unix_socket {
    use std::io;
    use std::path::Path;

    use tokio::net::UnixListener;

    use super::ServeError;

    /// Listens on a path that only the server's owner may use.
    pub(super) fn bind(flag: &'static str, path: &Path) -> Result<UnixListener, ServeError> {
        let failed = |error| ServeError::Socket { flag, why: format!("{}: {error}", path.display()) };
        bind_private(path).map_err(failed)
    }

    /// Until its mode is set it has another name.
    fn bind_private(path: &Path) -> io::Result<UnixListener> {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            // Another server answers there.
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = Path::new(&new);
        platform::private::remove_socket(new);
        let listener = UnixListener::bind(new)?;
        platform::private::publish_socket(new, path)?;
        Ok(listener)
    }
}

/// Starts the thread that keeps materialised views right; without it they are computed when they are read.
fn start_refreshing(db: &Arc<Db>) -> Option<views::RefreshThread> {
    let started = views::RefreshThread::start(db, log::warn);
    started.inspect_err(|error| log::warn(&format!("materialised views are not stored: no thread: {error}"))).ok()
}

/// Returns when the pass under way has ended.
async fn stop_refreshing(refreshing: Option<views::RefreshThread>) {
    if let Some(refreshing) = refreshing {
        // A panic was reported when it happened.
        let _ = tokio::task::spawn_blocking(move || refreshing.stop()).await;
    }
}

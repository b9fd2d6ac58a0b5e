//! Sockets and connections.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use db::Db;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::state::{ServerSettings, State};
use crate::wire::Listeners;
use crate::{host, routes};

/// How long accepting pauses when the process has no file descriptors left.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the server cannot serve.
#[derive(Debug)]
pub enum ServeError {
    /// The address cannot be listened on: choose another one, or stop what has it.
    Bind {
        /// The address.
        address: SocketAddr,
        /// The flag that says another one.
        flag: &'static str,
        /// What the operating system said.
        error: io::Error,
    },
}

impl fmt::Display for ServeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { address, flag, error } => {
                write!(formatter, "cannot listen on {address}: {error}; choose another address with {flag}")
            }
        }
    }
}

impl std::error::Error for ServeError {}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    wire: Listeners,
    state: Arc<State>,
}

impl Server {
    /// Listens; clients may connect from now on, and are served by [`Server::run`].
    pub async fn bind(db: Arc<Db>, settings: ServerSettings) -> Result<Self, ServeError> {
        let failed = |error| ServeError::Bind { address: settings.http, flag: "--http", error };
        let listener = TcpListener::bind(settings.http).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let wire = Listeners::bind(&settings).await?;
        Ok(Self { listener, address, wire, state: Arc::new(State::new(db, settings)) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the binary protocol registers, if it does.
    pub fn control_address(&self) -> Option<SocketAddr> {
        self.wire.control_address
    }

    /// Where the binary protocol takes rows, if it does.
    pub fn ingest_address(&self) -> Option<SocketAddr> {
        self.wire.ingest_address
    }

    /// Serves until `stop` resolves; then finishes requests under way, for as long as the settings allow.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let sampling = host::start(&self.state);
        let wire = self.wire.start(&self.state);
        let router = routes::router(self.state.clone());
        let connections =
            Arc::new(Semaphore::new(self.state.settings.connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        let graceful = GracefulShutdown::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut stop => break,
            };
            match accepted {
                Ok((stream, _)) => serve(&self.state, stream, router.clone(), &connections, &graceful).await,
                Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
            }
        }
        sampling.stop().await;
        let patience = Duration::from_millis(self.state.settings.stop_timeout_ms);
        wire.stop(patience).await;
        let _ = tokio::time::timeout(patience, graceful.shutdown()).await;
    }
}

async fn serve(
    state: &Arc<State>,
    stream: TcpStream,
    router: Router,
    connections: &Arc<Semaphore>,
    graceful: &GracefulShutdown,
) {
    let Ok(permit) = connections.clone().acquire_owned().await else {
        return;
    };
    // Answers are small and complete: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(state.settings.head_timeout_ms))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let watched = graceful.watch(connection);
    let state = state.clone();
    state.metrics.connections.fetch_add(1, Ordering::Relaxed);
    tokio::spawn(async move {
        // A connection that broke concerns nobody but its client.
        let _ = watched.await;
        state.metrics.connections.fetch_sub(1, Ordering::Relaxed);
        drop(permit);
    });
}

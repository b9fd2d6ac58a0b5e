//! Connections of HTTP/2: gRPC, and requests of clients that agreed on it in the handshake of TLS.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::Inner;
use crate::scheduler::running::Remote;
use crate::settings::ServerSettings;
use crate::sign_in::Acquainted;

/// How often a silent connection is asked whether its client is still there, and how long it may think about it.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Requests that a connection may have under way.
const CALLS_MAX: u32 = 32;

/// Bytes of a request that may be on their way unread.
const WINDOW_BYTES: u32 = 1 << 20;

/// Bytes that the headers of a request may have.
const HEADER_BYTES_MAX: u32 = 64 << 10;

/// gRPC: calls of HTTP/2 that a router answers.
pub(crate) struct Grpc {
    pub(crate) router: Router,
    pub(crate) settings: Arc<ServerSettings>,
}

impl Serve for Grpc {
    async fn serve(self: Arc<Self>, socket: Socket, peer: Peer, stop: watch::Receiver<bool>) {
        serve(|| self.router.clone(), &self.settings, (socket, peer), stop).await;
    }

    fn inner(&self) -> Inner {
        Inner::Grpc
    }
}

/// What happens on a connection.
#[derive(Debug, Default)]
struct Calls {
    /// Calls whose answers are not made yet.
    under_way: AtomicUsize,
    /// Calls that have begun or ended.
    changes: AtomicU64,
}

impl Calls {
    fn begin(self: &Arc<Self>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        UnderWay(self.clone())
    }
}

/// A call until its answer is made.
struct UnderWay(Arc<Calls>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
        self.0.changes.fetch_add(1, Ordering::Relaxed);
    }
}

/// Serves a connection until it ends, or is silent for as long as it may be. A broken one concerns only its client. Each request is answered by
/// the router of its time.
pub(crate) async fn serve(
    router: impl Fn() -> Router,
    settings: &ServerSettings,
    (socket, peer): (Socket, Peer),
    mut stop: watch::Receiver<bool>,
) {
    let (calls, acquainted) = (Arc::new(Calls::default()), Acquainted::default());
    let service = service_fn(|mut request: Request<Incoming>| {
        let under_way = calls.begin();
        request.extensions_mut().insert(Remote(peer.address));
        request.extensions_mut().insert(peer.clone());
        request.extensions_mut().insert(acquainted.clone());
        let answering = router().oneshot(request);
        async move {
            let answer = answering.await;
            drop(under_way);
            answer
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_MAX)
        .max_header_list_size(HEADER_BYTES_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stop.wait_for(|stop| *stop) => {}
        () = silence(&calls, || acquainted.patience(settings)) => {}
    }
    // Answers that are under way are finished.
    connection.as_mut().graceful_shutdown();
    let farewell = Duration::from_millis(settings.head_timeout_ms);
    if acquainted.is_set() {
        let _ = connection.await;
    } else {
        let _ = timeout(farewell, connection).await;
    }
}

/// Returns when no call has begun or ended for so long, and none is under way.
async fn silence(calls: &Calls, idle: impl Fn() -> Duration) {
    let mut seen = calls.changes.load(Ordering::Relaxed);
    loop {
        sleep(idle()).await;
        let now = calls.changes.load(Ordering::Relaxed);
        if now == seen && calls.under_way.load(Ordering::Relaxed) == 0 {
            return;
        }
        seen = now;
    }
}

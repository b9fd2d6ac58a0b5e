//! Connections of HTTP/2: gRPC, and requests of clients that agreed on it in the handshake of TLS.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::sync::watch;
use tower::ServiceExt;

use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::Inner;
use crate::scheduler::running::Remote;

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
pub(crate) struct Grpc(pub(crate) Router);

impl Serve for Grpc {
    async fn serve(self: Arc<Self>, socket: Socket, peer: Peer, stop: watch::Receiver<bool>) {
        serve(move || self.0.clone(), socket, peer, stop).await;
    }

    fn inner(&self) -> Inner {
        Inner::Grpc
    }
}

/// Serves a connection until it ends. A broken one concerns only its client. Each request is answered by the router of its time.
pub(crate) async fn serve(router: impl Fn() -> Router, socket: Socket, peer: Peer, mut stop: watch::Receiver<bool>) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Remote(peer.address));
        request.extensions_mut().insert(peer.clone());
        router().oneshot(request)
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
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

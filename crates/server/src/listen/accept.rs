//! The one loop that accepts connections, whatever is spoken on a port.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::listen::connection_limit::ConnectionLimit;
use crate::metrics::Metrics;

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A protocol that is spoken on a port.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Serves a connection until it ends, or until the stop and what is under way then.
    fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        remote: SocketAddr,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;

    /// Makes room by closing a connection that is silent; whether there was one.
    fn evict(&self) -> bool {
        false
    }

    /// The answer to a client that finds no room; nothing where the protocol has no such answer.
    fn refusal(&self) -> &'static [u8] {
        &[]
    }
}

/// What all ports share.
#[derive(Clone)]
pub(crate) struct Acceptor {
    pub(crate) metrics: Arc<Metrics>,
    /// Connections that a port may have open.
    pub(crate) connections_max: usize,
    pub(crate) stop: watch::Receiver<bool>,
    /// Each connection holds a clone as long as it lives.
    pub(crate) alive: mpsc::Sender<()>,
}

/// What a connection has of its port for as long as it is open.
struct Open {
    metrics: Arc<Metrics>,
    _permit: OwnedSemaphorePermit,
    _alive: mpsc::Sender<()>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Acceptor {
    /// Accepts in the background until the stop.
    pub(crate) fn spawn(&self, listener: TcpListener, service: Arc<impl Serve>) {
        tokio::spawn(self.clone().accept(listener, service));
    }

    async fn accept(mut self, listener: TcpListener, service: Arc<impl Serve>) {
        let room = ConnectionLimit::new(self.connections_max);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            let Ok((stream, remote)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = room.take(|| service.evict()).await else {
                self.metrics.refuse_connection();
                room.refuse(stream, service.refusal());
                continue;
            };
            // Answers are small and complete: waiting to fill a packet only delays them.
            let _ = stream.set_nodelay(true);
            self.metrics.connections.fetch_add(1, Ordering::Relaxed);
            let open = Open { metrics: self.metrics.clone(), _permit: permit, _alive: self.alive.clone() };
            let (service, stop) = (service.clone(), self.stop.clone());
            tokio::spawn(async move {
                service.serve(stream, remote, stop).await;
                drop(open);
            });
        }
    }
}

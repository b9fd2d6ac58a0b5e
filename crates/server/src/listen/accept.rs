//! The one loop that accepts connections, whatever is spoken on a port, and shakes hands with those of TLS.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpListener;
#[cfg(unix)]
use tokio::net::UnixListener;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use crate::listen::connection_limit::ConnectionLimit;
use crate::listen::socket::{Peer, Socket};
use crate::listen::tls::{Handshake, Inner, Tls};
use crate::metrics::Metrics;

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A protocol that is spoken on a port.
pub(crate) trait Serve: Send + Sync + 'static {
    /// Serves a connection until it ends, or until the stop and what is under way then.
    fn serve(
        self: Arc<Self>,
        socket: Socket,
        peer: Peer,
        stop: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;

    /// The protocol within TLS.
    fn inner(&self) -> Inner {
        Inner::Other
    }

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
    /// How long a handshake may take.
    pub(crate) handshake_patience: Duration,
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

/// Where connections come from.
pub(crate) enum Source {
    /// TCP; by TLS if there is any.
    Tcp(TcpListener, Option<Arc<Tls>>),
    #[cfg(unix)]
    Unix(UnixListener),
}

impl Source {
    async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(listener, _) => {
                let (stream, remote) = listener.accept().await?;
                // Answers are small and complete: waiting to fill a packet only delays them.
                let _ = stream.set_nodelay(true);
                Ok((Socket::Tcp(stream), Peer::tcp(remote)))
            }
            #[cfg(unix)]
            Self::Unix(listener) => Ok((Socket::Unix(listener.accept().await?.0), Peer::unix_socket())),
        }
    }

    fn tls(&self) -> Option<&Arc<Tls>> {
        match self {
            Self::Tcp(_, tls) => tls.as_ref(),
            #[cfg(unix)]
            Self::Unix(_) => None,
        }
    }
}

impl Acceptor {
    /// Accepts in the background until the stop.
    pub(crate) fn spawn(&self, source: Source, service: Arc<impl Serve>) {
        tokio::spawn(self.clone().accept(source, service));
    }

    async fn accept(mut self, source: Source, service: Arc<impl Serve>) {
        let room = ConnectionLimit::new(self.connections_max);
        loop {
            let accepted = tokio::select! {
                accepted = source.accept() => accepted,
                _ = self.stop.wait_for(|stop| *stop) => return,
            };
            let Ok((socket, peer)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Some(permit) = room.take(|| service.evict()).await else {
                self.metrics.refuse_connection();
                // Who wants to shake hands does not understand bare words.
                room.refuse(socket, if source.tls().is_some() { &[] } else { service.refusal() });
                continue;
            };
            self.metrics.connections.fetch_add(1, Ordering::Relaxed);
            let open = Open { metrics: self.metrics.clone(), _permit: permit, _alive: self.alive.clone() };
            let (service, stop, tls) = (service.clone(), self.stop.clone(), source.tls().cloned());
            let handshake = Handshake { inner: service.inner(), patience: self.handshake_patience };
            tokio::spawn(async move {
                let connected = match (socket, tls) {
                    // Boxed, so that a connection does not hold the room that its handshake took.
                    (Socket::Tcp(stream), Some(tls)) => {
                        Box::pin(tls.accept(stream, peer.address, handshake)).await.ok()
                    }
                    (socket, _) => Some((socket, peer)),
                };
                if let Some((socket, peer)) = connected {
                    service.serve(socket, peer, stop).await;
                }
                drop(open);
            });
        }
    }
}

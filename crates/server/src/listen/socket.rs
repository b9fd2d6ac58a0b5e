//! A connection as protocols see it, whatever carries it: TCP, TLS over TCP, or a unix socket.

use std::io::{self, IoSlice};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use access::certificate::CertificateNames;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio_rustls::server::TlsStream;

/// The other end of a connection, as far as the connection itself shows it.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    /// Its address; a loopback one with port 0 for a client of a unix socket.
    pub(crate) address: SocketAddr,
    /// The names in its certificate, which an authority of the settings has signed.
    pub(crate) certificate: Option<Arc<CertificateNames>>,
    /// How its bytes come.
    pub(crate) transport: Transport,
}

/// How the bytes of a connection come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Tls,
    /// The mode of the socket's file says who may connect.
    UnixSocket,
}

impl Peer {
    /// A client of TCP without TLS.
    pub(crate) const fn tcp(address: SocketAddr) -> Self {
        Self { address, certificate: None, transport: Transport::Tcp }
    }

    /// A client of a unix socket.
    #[cfg(unix)]
    pub(crate) fn unix_socket() -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self { address, certificate: None, transport: Transport::UnixSocket }
    }

    /// Returns whether others on the way could read the connection.
    pub(crate) fn is_in_the_clear(&self) -> bool {
        self.transport == Transport::Tcp && !self.address.ip().to_canonical().is_loopback()
    }
}

/// A connection.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    /// Boxed: its state takes a kilobyte, and most connections are bare.
    Tls(Box<TlsStream<TcpStream>>),
    #[cfg(unix)]
    Unix(UnixStream),
}

impl Socket {
    /// Returns whether HTTP/2 was agreed on.
    pub(crate) fn speaks_http2(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            _ => false,
        }
    }

    /// Waits until there may be bytes to read, or the end.
    pub(crate) async fn readable(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.readable().await,
            Self::Tls(stream) => {
                if has_plaintext(stream) {
                    return Ok(());
                }
                stream.get_ref().0.readable().await
            }
            #[cfg(unix)]
            Self::Unix(stream) => stream.readable().await,
        }
    }

    /// Waits for bytes; false if the client has left. By TLS they may be of TLS alone.
    pub(crate) async fn says_more(&mut self) -> bool {
        // Being readable may be a false alarm, so what is there is looked at.
        match self {
            Self::Tcp(stream) => matches!(stream.peek(&mut [0]).await, Ok(1..)),
            Self::Tls(stream) => has_plaintext(stream) || matches!(stream.get_ref().0.peek(&mut [0]).await, Ok(1..)),
            // There is no peeking: the reader sees the end itself.
            #[cfg(unix)]
            Self::Unix(stream) => stream.readable().await.is_ok(),
        }
    }

    /// Reads what is there without waiting.
    pub(crate) fn try_read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(into);
        // No task needs to be woken: the caller waits with `readable`.
        match Pin::new(self).poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Writes as much as fits the socket's buffers.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(written) = Pin::new(&mut *self).poll_write(&mut context, bytes) else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let _ = Pin::new(self).poll_flush(&mut context)?;
        written
    }
}

impl Socket {
    /// Says goodbye as far as that needs no waiting: by TLS an end without it could be another's doing.
    pub(crate) fn try_close(&mut self) {
        let _ = Pin::new(self).poll_shutdown(&mut Context::from_waker(Waker::noop()));
    }
}

/// Returns whether bytes were decrypted that nothing has read yet.
fn has_plaintext(stream: &mut TlsStream<TcpStream>) -> bool {
    let state = stream.get_mut().1.process_new_packets();
    // A broken session is readable: its reader gets the error.
    state.map_or(true, |state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
}

/// Calls a method of whatever carries the connection.
macro_rules! forward {
    ($socket:expr, $method:ident ($($argument:expr),*)) => {
        match &mut *$socket {
            Socket::Tcp(stream) => Pin::new(stream).$method($($argument),*),
            Socket::Tls(stream) => Pin::new(stream.as_mut()).$method($($argument),*),
            #[cfg(unix)]
            Socket::Unix(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        forward!(self, poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        forward!(self, poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        forward!(self, poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
            #[cfg(unix)]
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, poll_shutdown(context))
    }
}

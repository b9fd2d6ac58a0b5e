//! How many connections there may be, how long each may take, and what their bodies take together.
//!
//! With no place left, the connection that has been silent for longest between two requests is closed. If all of them are busy, the new
//! client is told so at once. Between requests a connection may be silent for long; a request, once it has begun, has to come in time.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustls::ServerConnection;
use tracing_mutex::parkinglot::Mutex;

use super::memcached::is_http;
use super::{ServerOptions, Service};

/// Clients that are told at the same time that there is no room; further ones are only closed.
const REFUSALS_MAX: usize = 64;
/// How long a client that is refused is listened to, so that it is answered in its own protocol, and how long it may take to read that.
const REFUSAL_TIMEOUT: Duration = Duration::from_millis(200);
/// Bytes of a request that are enough to know its protocol.
const REFUSAL_BYTES: usize = 4096;

/// Bytes that are made of a byte of an answer as it is read.
pub(super) const ANSWER_WORK_FACTOR: usize = 3;

const FULL: &str = "as many connections are open as may be (connections_max): try again";

/// The other side of a session.
pub(super) trait Peer: Read + Write {
    /// The last request is answered. Says whether some of the next one is there already.
    fn next_request(&mut self, _has_begun: bool) {}

    /// The client has signed in: from now on it may be silent for long.
    fn note_sign_in(&mut self) {}
}

/// The places of connections.
#[derive(Default)]
pub(super) struct Connections {
    open: Mutex<Open>,
    refusals: AtomicUsize,
    pub(super) refused: AtomicU64,
}

#[derive(Default)]
struct Open {
    count: usize,
    next: u64,
    /// Those that wait for a request; the first has waited longest.
    waiting: BTreeMap<u64, Arc<TcpStream>>,
}

impl Connections {
    /// Connections that are open.
    pub(super) fn count(&self) -> usize {
        self.open.lock().count
    }

    /// Takes a place, or that of a silent connection, which is closed; whether there was one.
    pub(super) fn take(&self, connections_max: usize) -> bool {
        let mut open = self.open.lock();
        if open.count < connections_max {
            open.count += 1;
            return true;
        }
        let Some((_, silent)) = open.waiting.pop_first() else { return false };
        // One that has ended meanwhile has closed it itself.
        let _ = silent.shutdown(Shutdown::Both);
        true
    }

    /// Gives a place back.
    pub(super) fn give_back(&self) {
        self.open.lock().count -= 1;
    }

    fn wait(&self, stream: &Arc<TcpStream>) -> u64 {
        let mut open = self.open.lock();
        open.next += 1;
        let number = open.next;
        open.waiting.insert(number, stream.clone());
        number
    }

    /// Returns whether the connection had not been evicted.
    fn wake(&self, number: u64) -> bool {
        self.open.lock().waiting.remove(&number).is_some()
    }
}

/// Tells a client that there is no room for it, in a thread of its own.
pub(super) fn refuse(service: &Arc<Service>, stream: TcpStream) {
    let connections = &service.connections;
    connections.refused.fetch_add(1, Ordering::Relaxed);
    if connections.refusals.fetch_add(1, Ordering::Relaxed) >= REFUSALS_MAX {
        connections.refusals.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let told = super::spawn("cache-refuse", service, move |service| {
        // A client that is gone has nothing to be told.
        let _ = tell_full(stream);
        service.connections.refusals.fetch_sub(1, Ordering::Relaxed);
    });
    if told.is_err() {
        connections.refusals.fetch_sub(1, Ordering::Relaxed);
    }
}

fn tell_full(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(REFUSAL_TIMEOUT))?;
    stream.set_write_timeout(Some(REFUSAL_TIMEOUT))?;
    let mut said = [0; REFUSAL_BYTES];
    // One that says nothing yet gets memcached's answer.
    let count = stream.read(&mut said).unwrap_or(0);
    let said = String::from_utf8_lossy(said.get(..count).unwrap_or_default());
    let answer = if is_http(said.lines().next().unwrap_or_default()) {
        let length = FULL.len() + 1;
        format!(
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{FULL}\n"
        )
    } else {
        format!("SERVER_ERROR {FULL}\r\n")
    };
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    // What is not read would take the answer away from the client.
    let _ = stream.read(&mut [0; REFUSAL_BYTES]);
    Ok(())
}

/// A connection that has a place.
pub(super) struct Connection<'s> {
    service: &'s Service,
    stream: Arc<TcpStream>,
    state: State,
    /// TLS over the stream, if it is spoken.
    tls: Option<Box<ServerConnection>>,
    /// Whether reading waits for as long as a silent connection may.
    is_patient: bool,
    /// Whether the client has signed in, or need not.
    is_known: bool,
}

#[derive(Clone, Copy)]
enum State {
    /// Between two requests: its number among those that are.
    Waiting(u64),
    /// In a request, which has to have come by this time of the monotonic clock.
    Busy { deadline_ns: u64 },
    /// Its place is another's.
    Evicted,
}

impl<'s> Connection<'s> {
    pub(super) fn new(service: &'s Service, stream: TcpStream) -> io::Result<Self> {
        let ServerOptions { write_timeout_ms, tls, token, .. } = &service.options;
        let tls = tls.as_ref().map(|config| ServerConnection::new(config.clone()).map(Box::new));
        let (tls, is_known) = (tls.transpose().map_err(io::Error::other)?, token.is_none());
        stream.set_write_timeout(Some(Duration::from_millis((*write_timeout_ms).max(1))))?;
        stream.set_nodelay(true)?;
        let stream = Arc::new(stream);
        let state = State::Waiting(service.connections.wait(&stream));
        Ok(Self { service, stream, state, tls, is_patient: false, is_known })
    }

    /// Agrees on the keys of TLS, if that is spoken, within the time for it.
    pub(super) fn shake_hands(&mut self) -> io::Result<()> {
        let limit_ns = self.service.options.sign_in_timeout_ms.saturating_mul(1_000_000);
        let deadline_ns = self.now_ns().saturating_add(limit_ns);
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.wait_until(deadline_ns)?;
            let Some(tls) = &mut self.tls else { return Ok(()) };
            let mut stream = &*self.stream;
            while tls.wants_write() {
                tls.write_tls(&mut stream)?;
            }
            if tls.is_handshaking() && tls.wants_read() && tls.read_tls(&mut stream)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Err(error) = tls.process_new_packets() {
                // The alert says why.
                let _ = tls.write_tls(&mut stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        Ok(())
    }

    /// How long a silent connection is waited for.
    fn patience(&self) -> Duration {
        let ServerOptions { idle_timeout_ms, sign_in_timeout_ms, .. } = self.service.options;
        let patience_ms = if self.is_known { idle_timeout_ms } else { idle_timeout_ms.min(sign_in_timeout_ms) };
        Duration::from_millis(patience_ms.max(1))
    }

    fn now_ns(&self) -> u64 {
        self.service.cache.shared.platform.clock.monotonic_ns()
    }

    fn begin(&mut self) {
        let ServerOptions { request_timeout_ms, sign_in_timeout_ms, .. } = self.service.options;
        let limit_ms = if self.is_known { request_timeout_ms } else { request_timeout_ms.min(sign_in_timeout_ms) };
        let request_ns = limit_ms.saturating_mul(1_000_000);
        self.state = State::Busy { deadline_ns: self.now_ns().saturating_add(request_ns) };
    }

    fn wake(&mut self) -> io::Result<()> {
        let State::Waiting(number) = self.state else { return Ok(()) };
        if self.service.connections.wake(number) {
            self.begin();
            return Ok(());
        }
        self.state = State::Evicted;
        Err(io::ErrorKind::ConnectionAborted.into())
    }
}

impl Connection<'_> {
    /// Lets the next read of the socket take until a time of the monotonic clock.
    fn wait_until(&self, deadline_ns: u64) -> io::Result<()> {
        let left_ns = deadline_ns.saturating_sub(self.now_ns());
        if left_ns == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(Duration::from_nanos(left_ns).max(Duration::from_millis(1))))
    }

    /// Reads text by TLS. A record that comes byte by byte has the time of one read, not each byte.
    fn read_unsealed(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.is_patient = false;
        let patience_ns = u64::try_from(self.patience().as_nanos()).unwrap_or(u64::MAX);
        let deadline_ns = match self.state {
            State::Busy { deadline_ns } => deadline_ns,
            _ => self.now_ns().saturating_add(patience_ns),
        };
        loop {
            let Some(tls) = &mut self.tls else { return (&*self.stream).read(buffer) };
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.wait_until(deadline_ns)?;
            let Some(tls) = &mut self.tls else { continue };
            let mut stream = &*self.stream;
            while tls.wants_write() {
                tls.write_tls(&mut stream)?;
            }
            if tls.read_tls(&mut stream)? == 0 {
                // An end without a goodbye is an end of the connection, not of a request.
                tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                return match tls.reader().read(buffer) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(io::ErrorKind::UnexpectedEof.into()),
                    read => read,
                };
            }
            tls.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl Read for Connection<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = if self.tls.is_some() {
            self.read_unsealed(buffer)?
        } else {
            if let State::Busy { deadline_ns } = self.state {
                self.wait_until(deadline_ns)?;
                self.is_patient = false;
            } else if !self.is_patient {
                self.stream.set_read_timeout(Some(self.patience()))?;
                self.is_patient = true;
            }
            (&*self.stream).read(buffer)?
        };
        self.wake()?;
        Ok(count)
    }
}

impl Write for Connection<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let mut stream = &*self.stream;
        match &mut self.tls {
            None => stream.write(buffer),
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut stream).write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut stream = &*self.stream;
        match &mut self.tls {
            None => Ok(()),
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut stream).flush(),
        }
    }
}

impl Peer for Connection<'_> {
    fn next_request(&mut self, has_begun: bool) {
        if has_begun {
            self.begin();
        } else if let State::Busy { .. } = self.state {
            self.state = State::Waiting(self.service.connections.wait(&self.stream));
        }
    }

    fn note_sign_in(&mut self) {
        (self.is_known, self.is_patient) = (true, false);
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        if let Some(tls) = &mut self.tls {
            // An end without a goodbye could be another's doing.
            tls.send_close_notify();
            let _ = tls.write_tls(&mut &*self.stream);
        }
        // The place of one that was evicted is another's already.
        let has_place = match self.state {
            State::Waiting(number) => self.service.connections.wake(number),
            State::Busy { .. } => true,
            State::Evicted => false,
        };
        if has_place {
            self.service.connections.give_back();
        }
    }
}

/// What bodies and long replies of all connections take.
#[derive(Default)]
pub(super) struct Bodies(AtomicUsize);

/// A request's share of it; given back when dropped.
pub(super) struct Share<'s> {
    bodies: &'s Bodies,
    bytes_max: usize,
    bytes: usize,
}

impl Bodies {
    pub(super) const fn share(&self, bytes_max: usize) -> Share<'_> {
        Share { bodies: self, bytes_max, bytes: 0 }
    }
}

impl Share<'_> {
    /// Takes so many bytes more, before they are allocated.
    pub(super) fn grow(&mut self, bytes: usize) -> io::Result<()> {
        let before = self.bodies.0.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) <= self.bytes_max {
            self.bytes += bytes;
            return Ok(());
        }
        self.bodies.0.fetch_sub(bytes, Ordering::Relaxed);
        let message = format!("the server holds {before} bytes of bodies already (bodies_bytes_max): try again later");
        Err(io::Error::new(io::ErrorKind::OutOfMemory, message))
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.bodies.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

//! How many connections there may be: with none left a client is told so at once, rather than left to wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use crate::listen::socket::Socket;
use crate::wire::linger;

/// How long a connection that was told to make room may take to.
const ROOM_TIMEOUT: Duration = Duration::from_millis(200);

/// Clients that are told at the same time that there is no room; further ones are not told why they are closed.
const REFUSALS_MAX: usize = 64;

/// What a client of HTTP is told.
pub(crate) const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 122\r\n\r\n\
{\"status\":\"error\",\"errorType\":\"unavailable\",\"error\":\"as many connections are open as may be (connections_max): try again\"}";

/// The connections that a listener may have open.
pub(crate) struct ConnectionLimit {
    permits: Arc<Semaphore>,
    refusals: Arc<Semaphore>,
}

impl ConnectionLimit {
    pub(crate) fn new(connections_max: usize) -> Self {
        let permits = Arc::new(Semaphore::new(connections_max.clamp(1, Semaphore::MAX_PERMITS)));
        Self { permits, refusals: Arc::new(Semaphore::new(REFUSALS_MAX)) }
    }

    /// A place; if there is none, that of a connection which `evict` could close. `None` if there is none of those either.
    pub(crate) async fn take(&self, evict: impl Fn() -> bool) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.permits.clone().try_acquire_owned() {
            return Some(place);
        }
        if !evict() {
            return None;
        }
        timeout(ROOM_TIMEOUT, self.permits.clone().acquire_owned()).await.ok()?.ok()
    }

    /// Says why to a client, if it has something to hear, and closes.
    pub(crate) fn refuse(&self, mut stream: Socket, answer: &'static [u8]) {
        let Ok(slot) = self.refusals.clone().try_acquire_owned() else { return };
        if answer.is_empty() {
            return;
        }
        tokio::spawn(async move {
            // It fits the socket's buffer.
            if stream.try_write(answer).is_ok() && stream.shutdown().await.is_ok() {
                linger(stream).await;
            }
            drop(slot);
        });
    }
}

/// Connections that wait for their clients' next request, the one that has waited longest first.
#[derive(Debug, Default)]
pub(crate) struct IdleConnections(Mutex<Parked>);

#[derive(Debug, Default)]
struct Parked {
    next: u64,
    waiting: BTreeMap<u64, oneshot::Sender<()>>,
}

/// A connection's entry; gone when it is dropped.
pub(crate) struct Entry<'p> {
    parking: &'p IdleConnections,
    number: u64,
    /// Resolves when the connection has to make room.
    pub(crate) evicted: oneshot::Receiver<()>,
}

impl IdleConnections {
    fn lock(&self) -> std::sync::MutexGuard<'_, Parked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self) -> Entry<'_> {
        let (sender, evicted) = oneshot::channel();
        let mut parked = self.lock();
        let number = parked.next;
        parked.next += 1;
        parked.waiting.insert(number, sender);
        Entry { parking: self, number, evicted }
    }

    /// Tells the one that has waited longest to close; whether there was one.
    pub(crate) fn evict(&self) -> bool {
        while let Some((_, connection)) = { self.lock().waiting.pop_first() } {
            if connection.send(()).is_ok() {
                return true;
            }
        }
        false
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.parking.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{} {head}", body.len());
    }

    #[test]
    fn the_one_that_waited_longest_goes_first() {
        let parking = IdleConnections::default();
        let (mut first, mut second) = (parking.enter(), parking.enter());
        let third = parking.enter();
        drop(third);
        assert!(parking.evict());
        assert!(first.evicted.try_recv().is_ok() && second.evicted.try_recv().is_err());
        assert!(parking.evict() && !parking.evict());
        assert!(second.evicted.try_recv().is_ok());
    }
}

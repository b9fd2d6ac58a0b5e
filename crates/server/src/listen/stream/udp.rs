//! Datagrams of line protocols: whole lines each, without an answer.

use std::sync::{Arc, Mutex};

use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc, watch};

use super::protocols::{Close, LineProtocol, count_lines};
use crate::error::ApiError;
use crate::http::body::{Form, reserve_rows};
use crate::listen::socket::Peer;
use crate::state::State;

/// The largest datagram there is.
const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// Datagrams that wait to be stored.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    lines: Vec<u8>,
    datagrams: u64,
}

impl Queue {
    /// Adds a datagram; whether there was room.
    fn push(&self, datagram: &[u8], bytes_max: usize) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Waiting { lines, datagrams } = &mut *waiting;
        if lines.len() + datagram.len() + 1 > bytes_max {
            return false;
        }
        lines.extend_from_slice(datagram);
        if datagram.last() != Some(&b'\n') {
            lines.push(b'\n');
        }
        *datagrams += 1;
        self.filled.notify_one();
        true
    }

    fn take(&self) -> Waiting {
        std::mem::take(&mut *self.waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

/// Takes datagrams until the stop, and stores them beside.
pub(crate) async fn serve_udp(
    state: Arc<State>,
    protocol: LineProtocol,
    socket: UdpSocket,
    mut stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    let queue = Arc::new(Queue::default());
    let storing = tokio::spawn(store(state.clone(), protocol, queue.clone(), stop.clone(), alive));
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut datagram) => received,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        // Errors of a socket without a peer are those of others' datagrams, told late.
        let Ok((length, remote)) = received else { continue };
        let content = datagram.get(..length).unwrap_or_default();
        // A datagram has no place for a token.
        let taken = protocol.client_of(&state, &Peer::tcp(remote)).is_some()
            && queue.push(content, state.settings.udp_queue_bytes_max);
        state.metrics.count_datagram(protocol.name(), taken);
    }
    queue.filled.notify_one();
    let _ = storing.await;
}

async fn store(
    state: Arc<State>,
    protocol: LineProtocol,
    queue: Arc<Queue>,
    stop: watch::Receiver<bool>,
    alive: mpsc::Sender<()>,
) {
    loop {
        queue.filled.notified().await;
        let stopped = *stop.borrow();
        let Waiting { lines, datagrams } = queue.take();
        if !lines.is_empty() {
            let scope = protocol.scope(&state);
            let tenant = protocol.tenant(&state, &scope);
            let mut share = state.bodies.share(&tenant);
            let taken = tenant.clone();
            let serve = move |state: &State| {
                let asked = count_lines(state, (&scope, &taken), lines.len());
                let room = asked.and_then(|()| share.grow_patiently(lines.len()));
                if let Err(error) = room.and_then(|()| reserve_rows(&mut share, Form::Text, &lines)) {
                    state.metrics.drop_datagrams(protocol.name(), datagrams);
                    let message = format!("{datagrams} datagrams were dropped: {}", error.message);
                    return Err(ApiError { message, ..error });
                }
                protocol.serve(state, &lines, (&scope, &Mutex::default()))
            };
            let served = state.work_of(&tenant, serve).await;
            let why = match served.and_then(|served| served) {
                Ok(served) => match served.close {
                    Some(Close::BadLine(why)) => Some(why),
                    _ => None,
                },
                Err(error) => Some(error.message),
            };
            if let Some(why) = why {
                state.tell(|| format!("{} by UDP: {why}", protocol.name()));
            }
        }
        if stopped {
            drop(alive);
            return;
        }
    }
}

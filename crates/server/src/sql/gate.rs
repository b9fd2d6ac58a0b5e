//! A connection of Postgres's protocol, seen by what decodes it: whole messages that were checked, and none that is too long.
//! What decodes them would take a gibibyte of each client and look beyond a message's end.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::frames::{Frames, Refusal};
use crate::http::body::Share;
use crate::listen::socket::Socket;
use crate::scheduler::tenants::Tenant;
use crate::state::State;

/// Bytes that are read at a time, at least; at most, what is left of a message and this.
const READ_BYTES: usize = 8 << 10;
const READ_BYTES_MAX: usize = 256 << 10;

/// Bytes of a message from which on it counts among the bodies that the server holds.
const LARGE_BYTES: usize = 32 << 10;

/// The socket, and what came of messages.
pub(super) struct Gate {
    stream: Socket,
    state: Arc<State>,
    tenant: Arc<Tenant>,
    frames: Frames,
    buffer: Vec<u8>,
    /// Bytes at the buffer's beginning that are whole messages, and how many of them were handed on.
    whole: usize,
    delivered: usize,
    /// Bytes that the message behind those has.
    wanted: usize,
    /// Its share of what all may hold.
    share: Option<Share>,
    /// When it must be there.
    deadline: Option<Pin<Box<Sleep>>>,
    refusal: Option<Refusal>,
    /// When a silent client is delivered up.
    idle: Option<Pin<Box<Sleep>>>,
    /// When one is that does not read.
    unread: Option<Pin<Box<Sleep>>>,
}

impl Gate {
    /// For a socket, of which some bytes were read already.
    pub(super) fn new(stream: Socket, ahead: Vec<u8>, state: Arc<State>) -> Self {
        let bytes_max = state.settings.postgres_message_bytes_max;
        let has_to_sign_in = state.sign_in.is_required;
        let mut gate = Self {
            stream,
            frames: if has_to_sign_in { Frames::before_sign_in(bytes_max) } else { Frames::new(bytes_max) },
            tenant: state.own_tenant(),
            state,
            buffer: ahead,
            whole: 0,
            delivered: 0,
            wanted: 0,
            share: None,
            deadline: None,
            refusal: None,
            idle: None,
            unread: None,
        };
        gate.scan_or_refuse();
        gate
    }

    /// Takes note that the client has signed in, and of what it counts as.
    pub(super) fn note_sign_in(&mut self, tenant: Arc<Tenant>) {
        self.tenant = tenant;
        self.frames.note_sign_in();
    }

    /// Why nothing more is handed on.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    pub(super) fn into_stream(self) -> Socket {
        self.stream
    }

    /// Finds whole messages in what has come; after one that is refused nothing counts.
    fn scan_or_refuse(&mut self) {
        if let Err(refusal) = self.scan() {
            self.buffer.truncate(self.whole);
            self.refusal = Some(refusal);
        }
    }

    /// Finds whole messages in what has come.
    fn scan(&mut self) -> Result<(), Refusal> {
        loop {
            let rest = self.buffer.get(self.whole..).unwrap_or_default();
            let Some(length) = self.frames.length(rest)? else { return Ok(()) };
            let Some(message) = rest.get(..length) else { return self.expect(length) };
            self.frames.check(message)?;
            self.whole += length;
            self.wanted = 0;
            self.deadline = None;
        }
    }

    /// Makes sure that a message may be held.
    fn expect(&mut self, length: usize) -> Result<(), Refusal> {
        if self.wanted == 0 && length > LARGE_BYTES {
            let mut share = self.state.bodies.share(&self.tenant);
            // Here, and where it is decoded.
            let taken = share.grow(2 * length);
            taken.map_err(|error| Refusal { code: "53200", message: error.message })?;
            self.share = Some(share);
        }
        self.wanted = length;
        Ok(())
    }

    /// Lets go of what was handed on.
    fn settle(&mut self) {
        if self.delivered < self.whole {
            return;
        }
        self.buffer.drain(..self.whole);
        (self.whole, self.delivered) = (0, 0);
        if self.wanted == 0 {
            self.share = None;
        }
        if self.buffer.is_empty() {
            // A silent connection holds nothing.
            self.buffer = Vec::new();
        }
    }

    /// Reads once; how many bytes.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let filled = self.buffer.len();
        let room = self.wanted.saturating_sub(filled - self.whole).clamp(READ_BYTES, READ_BYTES_MAX);
        self.buffer.resize(filled + room, 0);
        let mut into = ReadBuf::new(self.buffer.get_mut(filled..).unwrap_or_default());
        let read = Pin::new(&mut self.stream).poll_read(context, &mut into);
        let count = into.filled().len();
        self.buffer.truncate(filled + count);
        if self.buffer.is_empty() {
            self.buffer = Vec::new();
        }
        read.map_ok(|()| count)
    }

    /// A message that began to come is waited for, but not for ever; nor is one that did not.
    fn poll_deadline(&mut self, context: &mut Context<'_>) -> Poll<Refusal> {
        let settings = &self.state.settings;
        if self.buffer.len() == self.whole {
            let patience_ms = settings.postgres_idle_timeout_ms;
            ready!(poll_timer(&mut self.idle, patience_ms, context));
            let message = format!("the session was silent for {patience_ms} ms (postgres_idle_timeout_ms)");
            return Poll::Ready(Refusal { code: "57P05", message });
        }
        let patience_ms = settings.body_timeout_ms;
        ready!(poll_timer(&mut self.deadline, patience_ms, context));
        let message = format!("a message took longer than {patience_ms} ms (body_timeout_ms)");
        Poll::Ready(Refusal { code: "08006", message })
    }

    /// A client that takes nothing of what it asked for is waited for, but not for ever.
    fn note_written<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.unread = None;
            return written;
        }
        ready!(poll_timer(&mut self.unread, self.state.settings.write_timeout_ms, context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

/// Whether a timer that begins now, if it has not before, has run out.
fn poll_timer(timer: &mut Option<Pin<Box<Sleep>>>, patience_ms: u64, context: &mut Context<'_>) -> Poll<()> {
    timer.get_or_insert_with(|| Box::pin(sleep(Duration::from_millis(patience_ms)))).as_mut().poll(context)
}

impl AsyncRead for Gate {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let gate = &mut *self;
        loop {
            if gate.delivered < gate.whole {
                let whole = gate.buffer.get(gate.delivered..gate.whole).unwrap_or_default();
                let count = whole.len().min(into.remaining());
                into.put_slice(whole.get(..count).unwrap_or_default());
                gate.delivered += count;
                return Poll::Ready(Ok(()));
            }
            // What came before what is wrong was handed on first.
            if let Some(refusal) = &gate.refusal {
                return Poll::Ready(Err(io::Error::other(refusal.clone())));
            }
            // A caller that reads again is done with the bytes it got.
            gate.settle();
            let Poll::Ready(count) = gate.poll_fill(context)? else {
                gate.refusal = Some(ready!(gate.poll_deadline(context)));
                continue;
            };
            gate.idle = None;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            gate.scan_or_refuse();
        }
    }
}

impl AsyncWrite for Gate {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note_written(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.note_written(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

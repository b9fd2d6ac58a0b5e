//! Connections of line listeners.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::scope::Scope;
use access::secret::is_token;
use axum::http::StatusCode;
use memchr::{memchr, memrchr};
use rrd::protocol::Session;
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::http;
use super::protocols::{Close, LineProtocol, Served, count_lines};
use crate::error::ApiError;
use crate::http::body::{Form, reserve_rows};
use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::scheduler::tenants::slots::{FairSlots, Slot, TenantName};
use crate::sign_in::{Client, OwnedCredentials, unauthorized};
use crate::state::State;

/// Room that is made for bytes to read; more if there are more.
const READ_BYTES: usize = 64 << 10;

/// Bytes of an answer that a client has the time of `write_timeout_ms` to take.
const WRITTEN_BYTES: usize = 64 << 10;

/// Bytes that are held of a client that has not signed in.
const SIGN_IN_BYTES_MAX: usize = 4 << 10;

/// How long lines for which there is no memory wait until it is asked for again.
const ROOM_PAUSE: Duration = Duration::from_millis(100);

/// Lines that a limit holds back are tried again after this at the latest: the limit may have been raised.
const LIMIT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// What the connections of a listener share.
pub(crate) struct Lines {
    state: Arc<State>,
    protocol: LineProtocol,
    /// Connections that read and store at present.
    busy: Arc<FairSlots>,
    /// Bytes of unfinished lines of all connections.
    rest_bytes: AtomicUsize,
}

impl Lines {
    pub(crate) fn new(state: Arc<State>, protocol: LineProtocol) -> Arc<Self> {
        let busy = FairSlots::new(state.settings.streams.busy_max);
        Arc::new(Self { state, protocol, busy, rest_bytes: AtomicUsize::new(0) })
    }
}

impl Serve for Lines {
    async fn serve(self: Arc<Self>, stream: Socket, peer: Peer, stop: watch::Receiver<bool>) {
        let protocol = self.protocol.name();
        self.state.metrics.stream_opened(protocol);
        let reason = Connection::new(self.clone(), stream, peer).run(stop).await;
        self.state.metrics.stream_closed(protocol, reason);
    }
}

struct Connection {
    shared: Arc<Lines>,
    stream: Socket,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    /// Its first line has come, and was none of HTTP.
    has_begun: bool,
    /// When patience ends.
    deadline: Instant,
    peer: Peer,
    /// Who the client is, once that is known.
    client: Option<Client>,
    /// Lines have come, so the next one is none that signs in.
    has_sent: bool,
    /// What a protocol with state remembers of the client.
    session: Arc<Mutex<Session>>,
}

/// What a read brought.
enum Read {
    Lines(Vec<u8>),
    Nothing,
    End(&'static str),
}

impl Connection {
    fn new(shared: Arc<Lines>, stream: Socket, peer: Peer) -> Self {
        let deadline = sleep(Duration::ZERO).deadline();
        let client = shared.protocol.client_of(&shared.state, &peer);
        Self {
            shared,
            stream,
            rest: Vec::new(),
            has_begun: false,
            deadline,
            peer,
            client,
            has_sent: false,
            session: Arc::default(),
        }
    }

    /// Reads and stores until the connection ends; why it did, as metrics name it.
    async fn run(mut self, mut stop: watch::Receiver<bool>) -> &'static str {
        let settings = &self.shared.state.settings;
        let idle = Duration::from_millis(settings.streams.idle_timeout_ms);
        // A client that has to sign in does so soon.
        let unknown = idle.min(Duration::from_millis(settings.head_timeout_ms));
        let patience = Duration::from_millis(settings.streams.line_timeout_ms);
        let mut had_rest = false;
        loop {
            match (self.rest.is_empty(), had_rest) {
                (true, _) => self.deadline = sleep(if self.client.is_some() { idle } else { unknown }).deadline(),
                // A line gets its time once, however many bytes of it trickle in.
                (false, false) if self.client.is_some() => self.deadline = sleep(patience).deadline(),
                (false, false) => self.deadline = sleep(unknown.min(patience)).deadline(),
                (false, true) => {}
            }
            had_rest = !self.rest.is_empty();
            let readable = tokio::select! {
                readable = timeout_at(self.deadline, self.stream.readable()) => readable,
                _ = stop.wait_for(|stop| *stop) => return "server stopped",
            };
            match readable {
                Err(_) if had_rest => return "slow line",
                Err(_) => return "idle",
                Ok(Err(_)) => return "broken",
                Ok(Ok(())) => {}
            }
            if let Some(reason) = self.take_turn(&mut had_rest, &mut stop).await {
                return reason;
            }
        }
    }

    /// The account whose turn it takes: one that is held back keeps others from no more than its share.
    fn account(&self) -> TenantName {
        match &self.client {
            Some(Client::Account(entry)) => entry.scope.name.clone(),
            Some(Client::Known(scope) | Client::External { scope, .. }) => scope.name.clone(),
            None => "".into(),
        }
    }

    /// Reads what is there and stores its whole lines, if it is this connection's turn. Why the connection ends, if it does.
    async fn take_turn(&mut self, had_rest: &mut bool, stop: &mut watch::Receiver<bool>) -> Option<&'static str> {
        let shared = self.shared.clone();
        let Some(mut turn) = Turn::take(&shared.busy, self.account()).await else { return Some("server stopped") };
        let lines = match self.read() {
            Read::Lines(lines) => lines,
            Read::Nothing => return None,
            Read::End(reason) => return Some(reason),
        };
        *had_rest = false;
        let (scope, lines) = match self.signed_in(lines).await {
            Ok(signed_in) => signed_in,
            Err(error) => {
                self.tell_closed(&error.message);
                return Some("not signed in");
            }
        };
        if lines.is_empty() {
            return None;
        }
        let sent = Sent { lines, scope, session: self.session.clone() };
        match store(&shared, &mut turn, sent, stop).await {
            Ok(served) => {
                // A client that reads slowly holds up no other one.
                drop(turn);
                self.answer(served).await
            }
            Err(error) => {
                shared.state.tell(|| format!("{}: a connection was closed: {}", shared.protocol.name(), error.message));
                Some("not stored")
            }
        }
    }

    /// What the connection may write, and the lines that are left: where clients have to sign in, the first line is `auth TOKEN`. A client that
    /// is let in otherwise may send a token, too, and is judged by that; it is no row, which would be quoted in the log.
    async fn signed_in(&mut self, lines: Vec<u8>) -> Result<(Arc<Scope>, Vec<u8>), ApiError> {
        let state = self.shared.state.clone();
        let first_end = memchr(b'\n', &lines).unwrap_or(lines.len());
        let first = std::str::from_utf8(lines.get(..first_end).unwrap_or_default()).ok();
        let token = first.and_then(|first| first.trim().strip_prefix("auth ")).map(str::trim);
        let token = token.filter(|token| self.client.is_none() || !self.has_sent && is_token(token));
        self.has_sent |= !lines.trim_ascii().is_empty();
        let lines = match token {
            None => lines,
            Some(token) => {
                let credentials = OwnedCredentials::Token(token.to_owned().into());
                let caller = state.sign_in(Some(credentials), Some(&self.peer)).await?;
                self.client = Some(state.sign_in.client(&caller));
                lines.get(first_end + 1..).unwrap_or_default().to_vec()
            }
        };
        let client = self.client.as_ref().ok_or_else(|| unauthorized("the first line has to be: auth TOKEN"))?;
        let scope = state.sign_in.scope_now(client, state.db.now_ns());
        let scope = scope.ok_or_else(|| unauthorized("its account was removed, has expired, or has another secret"))?;
        Ok((scope, lines))
    }

    /// Reads what is there, up to `stream_bytes_max`, and keeps the unfinished line.
    fn read(&mut self) -> Read {
        let settings = &self.shared.state.settings;
        let mut buffer = std::mem::take(&mut self.rest);
        self.shared.rest_bytes.fetch_sub(buffer.len(), Ordering::Relaxed);
        let searched = buffer.len();
        let bytes_max = match self.client {
            Some(_) => settings.streams.bytes_max.max(READ_BYTES) + searched,
            None => SIGN_IN_BYTES_MAX,
        };
        let mut filled = searched;
        let mut ended = None;
        while filled < bytes_max {
            if buffer.len() == filled {
                buffer.resize((filled + READ_BYTES.max(filled)).min(bytes_max), 0);
            }
            match self.stream.try_read(buffer.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => ended = Some("client left"),
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => ended = Some("broken"),
            }
            break;
        }
        buffer.truncate(filled);
        let line_end = memrchr(b'\n', buffer.get(searched..).unwrap_or_default()).map(|end| searched + end + 1);
        let rest = buffer.get(line_end.unwrap_or(0)..).unwrap_or_default();
        if let Some(reason) = ended.filter(|_| line_end.is_none()) {
            // What is left is a line without its end, perhaps a number without its last digits.
            return Read::End(reason);
        }
        if self.client.is_none() && rest.len() >= SIGN_IN_BYTES_MAX {
            return Read::End("not signed in");
        }
        if rest.len() > self.shared.state.db.limits().line_bytes_max {
            return Read::End("line_bytes_max");
        }
        let kept = self.shared.rest_bytes.fetch_add(rest.len(), Ordering::Relaxed) + rest.len();
        self.rest = rest.to_vec();
        if kept > settings.streams.rest_bytes_max {
            return Read::End("stream_rest_bytes_max");
        }
        match line_end {
            None => Read::Nothing,
            Some(end) => {
                buffer.truncate(end);
                if !self.has_begun && http::is_request(&buffer) {
                    self.tell_closed("it speaks HTTP, which this port does not: nothing of it was stored");
                    return Read::End("http");
                }
                self.has_begun |= !buffer.trim_ascii().is_empty();
                Read::Lines(buffer)
            }
        }
    }

    async fn answer(&mut self, served: Served) -> Option<&'static str> {
        if self.shared.protocol == LineProtocol::Rrdcached {
            let patience = Duration::from_millis(self.shared.state.settings.write_timeout_ms);
            for piece in served.reply.chunks(WRITTEN_BYTES) {
                let written = timeout(patience, self.stream.write_all(piece)).await;
                if !matches!(written, Ok(Ok(()))) {
                    return Some("answers not read");
                }
            }
            drop(served.memory);
        } else if !served.reply.is_empty() {
            // A client that does not read its answers does not get them.
            let _ = self.stream.try_write(&served.reply);
        }
        match served.close {
            None => None,
            Some(Close::Asked) => Some("client left"),
            Some(Close::BadLine(why)) => {
                self.tell_closed(&why);
                Some("bad line")
            }
        }
    }

    fn tell_closed(&self, why: &str) {
        let name = self.shared.protocol.name();
        let peer = self.peer.address;
        self.shared.state.tell(|| format!("{name}: the connection of {peer} was closed: {why}"));
    }
}

/// A connection's turn to read and store.
struct Turn {
    turns: Arc<FairSlots>,
    account: TenantName,
    slot: Option<Slot>,
}

impl Turn {
    /// Waits for one; `None` if the server stops.
    async fn take(turns: &Arc<FairSlots>, account: TenantName) -> Option<Self> {
        let slot = turns.acquire(&account, usize::MAX).await.ok()?;
        Some(Self { turns: turns.clone(), account, slot: Some(slot) })
    }

    /// Lets others have it until something has happened; returns whether the server stops.
    async fn leave_for<T, E>(&mut self, waited: impl Future<Output = Result<T, E>>) -> bool {
        self.slot = None;
        if waited.await.is_ok() {
            return true;
        }
        self.slot = self.turns.acquire(&self.account, usize::MAX).await.ok();
        self.slot.is_none()
    }
}

/// Whole lines of a client.
struct Sent {
    lines: Vec<u8>,
    scope: Arc<Scope>,
    session: Arc<Mutex<Session>>,
}

/// Stores whole lines when there is memory for them and their rows, and when the limits of their sender allow it, however long that takes:
/// meanwhile the sender is held back. An error if there can never be so much, and on the stop.
async fn store(
    shared: &Arc<Lines>,
    turn: &mut Turn,
    sent: Sent,
    stop: &mut watch::Receiver<bool>,
) -> Result<Served, ApiError> {
    let (protocol, state) = (shared.protocol, &shared.state);
    let Sent { mut lines, scope, session } = sent;
    let tenant = protocol.tenant(state, &scope);
    let mut is_counted = false;
    loop {
        let (of_scope, of_tenant, of_client) = (scope.clone(), tenant.clone(), session.clone());
        let counts = !is_counted;
        let attempt = move |state: &State| {
            let counted = if counts { count_lines(state, (&of_scope, &of_tenant), lines.len()) } else { Ok(()) };
            if let Err(error) = counted {
                return Err((error, lines, false));
            }
            let mut share = state.bodies.share(&of_tenant);
            let room = share.grow_patiently(lines.len());
            match room.and_then(|()| reserve_rows(&mut share, Form::Text, &lines)) {
                Err(error) => Err((error, lines, true)),
                Ok(()) => match protocol.serve(state, &lines, (&of_scope, &of_client)) {
                    // A limit of samples: nothing of the lines was stored.
                    Err(error) if error.retry_after.is_some() => Err((error, lines, true)),
                    served => Ok(served),
                },
            }
        };
        match state.work_unbounded(attempt).await? {
            Ok(served) => return served,
            Err((error, kept, counted)) => {
                let Some(pause) = pause_after(&error) else { return Err(error) };
                (lines, is_counted) = (kept, counted);
                let mut share = state.bodies.share(&tenant);
                // Lines that a limit holds back are counted, and hold up no other connection.
                let may_leave = error.status == StatusCode::TOO_MANY_REQUESTS && share.grow(lines.len()).is_ok();
                let waited = timeout(pause, stop.wait_for(|stop| *stop));
                let stopped = if may_leave { turn.leave_for(waited).await } else { waited.await.is_ok() };
                if stopped {
                    return Err(error);
                }
            }
        }
    }
}

/// After how long lines are tried again that could not be stored; `None` if they never can.
fn pause_after(error: &ApiError) -> Option<Duration> {
    match error.status {
        StatusCode::SERVICE_UNAVAILABLE => Some(ROOM_PAUSE),
        StatusCode::TOO_MANY_REQUESTS => {
            Some(error.retry_after.unwrap_or(ROOM_PAUSE).clamp(ROOM_PAUSE, LIMIT_PAUSE_MAX))
        }
        _ => None,
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.stream.try_close();
        self.shared.rest_bytes.fetch_sub(self.rest.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn others_get_the_turn_of_a_connection_that_a_limit_holds_back() {
        let (turns, other) = (FairSlots::new(1), TenantName::from("other"));
        let mut turn = Turn::take(&turns, "limited".into()).await.unwrap();
        assert!(turns.try_acquire(&other).is_none());
        let waited = async { turns.try_acquire(&other).map_or(Ok(()), |_| Err(())) };
        assert!(!turn.leave_for(waited).await);
        assert!(turns.try_acquire(&other).is_none());
    }
}

//! The port of Redis's protocol: bytes in, requests run on a thread that may block, replies out. What requests do is crate `redis`'s.

mod access;
mod adds;
mod wait;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use redis::protocol::{self, Parser, ProtocolError, ReplyWriter, Request};
use redis::{Flow, Service, Session};
use tokio::io::AsyncWriteExt;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use self::access::Account;
use crate::http::body::Share;
use crate::listen::accept::Serve;
use crate::listen::socket::{Peer, Socket};
use crate::state::State;

/// Bytes that are read of a connection before its requests run.
const READ_BYTES: usize = 16 << 10;

/// Bytes of memory for a byte of input: the shortest argument has six, and its range sixteen.
const MEMORY_PER_BYTE: usize = 4;

/// Bytes that are held of a client that has not signed in.
const SIGN_IN_BYTES_MAX: usize = 16 << 10;

const FULL: &[u8] = b"-ERR max number of clients reached (connections_max)\r\n";

/// The port.
pub(crate) struct Port {
    state: Arc<State>,
    service: Arc<Service>,
    /// Connections whose requests seem to add samples: one thread does them, so that those of many are appended and synced together.
    adds: mpsc::Sender<adds::Job>,
}

impl Port {
    pub(crate) fn new(state: Arc<State>) -> io::Result<Arc<Self>> {
        let limits = redis::Limits {
            database: state.settings.redis.database.clone(),
            ahead_ms_max: state.settings.ahead_ms_max,
            ..redis::Limits::default()
        };
        let service = Arc::new(Service::new(state.db.clone(), limits));
        let adds = adds::start(service.clone())?;
        Ok(Arc::new(Self { state, service, adds }))
    }
}

impl Serve for Port {
    async fn serve(self: Arc<Self>, socket: Socket, peer: Peer, mut stop: watch::Receiver<bool>) {
        let connection = Box::new(Connection::new(&self, peer));
        tokio::select! {
            () = run(self, socket, connection) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    fn refusal(&self) -> &'static [u8] {
        FULL
    }
}

/// What moves to the thread that runs requests, and back.
struct Connection {
    session: Session,
    account: Account,
    parser: Parser,
    /// Those that were read, and the bytes that they take.
    requests: Vec<Request>,
    parsed_bytes: usize,
    /// Why no more can be read.
    broken: Option<ProtocolError>,
    /// Bytes that came and belong to no request that has run.
    input: Vec<u8>,
    out: ReplyWriter,
    /// The log's last record when requests were last run: a client that waits looks again after a later one.
    looked_at: u64,
    /// The memory of the input and the replies.
    share: Share,
}

impl Connection {
    fn new(port: &Port, peer: Peer) -> Self {
        let account = Account::new(port.state.clone(), peer);
        Self {
            session: port.service.session(),
            account,
            parser: Parser::default(),
            requests: Vec::new(),
            parsed_bytes: 0,
            broken: None,
            input: Vec::new(),
            out: ReplyWriter::default(),
            looked_at: 0,
            share: port.state.bodies.share(&port.state.own_tenant()),
        }
    }

    /// Reads what is there; `None` at the end.
    fn read(&mut self, socket: &mut Socket) -> Option<()> {
        let start = self.input.len();
        if self.input.capacity() < start + READ_BYTES {
            // An unfinished request grows: twice as much each time.
            let more = READ_BYTES.max(start);
            if let Err(error) = self.share.grow(more.saturating_mul(MEMORY_PER_BYTE)) {
                self.out.error(&format!("OOM {}", error.message));
                return None;
            }
            self.input.reserve_exact(more);
        }
        let room = self.input.capacity().min(start + READ_BYTES.max(start));
        self.input.resize(room, 0);
        let mut filled = start;
        let mut is_open = true;
        while filled < room {
            match socket.try_read(self.input.get_mut(filled..).unwrap_or_default()) {
                Ok(0) => is_open = false,
                Ok(count) => {
                    filled += count;
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => is_open = false,
            }
            break;
        }
        self.input.truncate(filled);
        is_open.then_some(())
    }

    /// Returns whether the input begins as a request that adds samples does.
    fn seems_to_add(&self) -> bool {
        const HEAD_BYTES: usize = 40;
        let head = self.input.get(..self.input.len().min(HEAD_BYTES)).unwrap_or_default().to_ascii_uppercase();
        memchr::memmem::find(&head, b"\nTS.ADD\r").is_some() || memchr::memmem::find(&head, b"\nTS.MADD\r").is_some()
    }

    /// Reads the requests that have come whole.
    fn parse(&mut self) {
        let mut limits = protocol::Limits::default();
        if !redis::Access::is_signed_in(&self.account) {
            limits.request_bytes_max = SIGN_IN_BYTES_MAX;
        }
        self.requests.clear();
        self.parsed_bytes = 0;
        loop {
            let at = self.parsed_bytes;
            match self.parser.next(self.input.get(at..).unwrap_or_default(), &limits) {
                Ok(None) => return,
                Ok(Some(mut request)) => {
                    for range in &mut request.arguments {
                        *range = range.start + at..range.end + at;
                    }
                    self.parsed_bytes += request.bytes;
                    self.requests.push(request);
                }
                Err(error) => {
                    self.broken = Some(error);
                    return;
                }
            }
        }
    }

    /// Runs the requests that were read.
    fn run(&mut self, service: &Service) -> Flow {
        let requests = (self.input.as_slice(), self.requests.as_slice());
        let flow = service.run(&mut self.session, &mut self.account, requests, &mut self.out);
        self.end(flow)
    }

    /// Ends a run: its input is done with, up to the request that waits.
    fn end(&mut self, flow: Flow) -> Flow {
        if let Some(waiting) = self.session.waiting().filter(|_| flow == Flow::Wait) {
            let done: usize = self.requests.iter().take(waiting.done()).map(|request| request.bytes).sum();
            self.input.drain(..done);
            // What comes after it is read again when it is done.
            (self.parser, self.broken) = (Parser::default(), None);
            return flow;
        }
        self.input.drain(..self.parsed_bytes);
        match self.broken.take() {
            None => flow,
            Some(error) => {
                self.out.error(&format!("ERR {error}"));
                Flow::Close
            }
        }
    }

    /// Gives back the memory of a connection that waits for its client.
    fn rest(&mut self, port: &Port) {
        if self.input.is_empty() && self.input.capacity() > 0 {
            self.input = Vec::new();
            self.share = port.state.bodies.share(&port.state.own_tenant());
        }
    }
}

async fn run(port: Arc<Port>, mut socket: Socket, mut connection: Box<Connection>) {
    let settings = &port.state.settings;
    let idle = Duration::from_millis(settings.redis.idle_timeout_ms);
    let patience = Duration::from_millis(settings.body_timeout_ms);
    let write_patience = Duration::from_millis(settings.write_timeout_ms);
    let mut flow = Flow::Continue;
    loop {
        let mut is_open = true;
        if flow == Flow::Wait {
            match wait::wait(&port, &mut socket, &mut connection).await {
                wait::Ended::Again => {}
                wait::Ended::Gone => return,
                wait::Ended::TooMuch => {
                    connection.out.error("ERR a client that waits may send 64 KiB meanwhile: read the reply first");
                    is_open = false;
                }
            }
        } else {
            connection.rest(&port);
            let is_between = connection.input.is_empty();
            let waits = if is_between { idle } else { patience };
            if !matches!(timeout(waits, socket.readable()).await, Ok(Ok(()))) {
                return;
            }
            is_open = connection.read(&mut socket).is_some();
        }
        if is_open || flow != Flow::Wait {
            let Some((back, ended)) = run_requests(&port, connection).await else { return };
            (connection, flow) = (back, ended);
        }
        let replies = connection.out.take();
        let sent = timeout(write_patience, async {
            socket.write_all(&replies).await?;
            socket.flush().await
        });
        let is_sent = matches!(sent.await, Ok(Ok(())));
        drop(replies);
        if !connection.session.is_in_transaction() {
            connection.account.release_replies();
        }
        if !is_sent || flow == Flow::Close || !is_open {
            let _ = timeout(write_patience, socket.shutdown()).await;
            return;
        }
    }
}

/// Runs the requests that have come; `None` if the server ends.
async fn run_requests(port: &Arc<Port>, mut connection: Box<Connection>) -> Option<(Box<Connection>, Flow)> {
    let mut is_parsed = false;
    if connection.seems_to_add() {
        let (done, ended) = oneshot::channel();
        port.adds.send(adds::Job { connection, done }).await.ok()?;
        match ended.await.ok()? {
            adds::Ended::Ran(back, flow) => return Some((back, flow)),
            adds::Ended::Others(back) => (connection, is_parsed) = (back, true),
        }
    }
    let (service, tenant) = (port.service.clone(), connection.account.tenant());
    let ran = port.state.work_of(&tenant, move |state| {
        connection.looked_at = state.db.last_sequence();
        if !is_parsed {
            connection.parse();
        }
        let flow = connection.run(&service);
        (connection, flow)
    });
    ran.await.ok()
}

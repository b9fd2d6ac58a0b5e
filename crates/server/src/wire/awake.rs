//! A connection of the data plane that is not silent: batches are read ahead, applied in turns, and acknowledged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::grant::Right;
use access::scope::Scope;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{Instant, sleep, timeout_at};
use wire::data::{Ack, Answer, Reason, Refused};
use wire::frame::{self, HEADER_BYTES, MessageBuffer};

use super::commit::Notice;
use super::data::{NEEDS_WRITE, Parked, Session, stopping, tell};
use super::socket::{self, End};
use super::turn::{self, Job, Work};
use super::written::{Written, check_owing};
use super::{PERMIT_BYTES, Planes};
use crate::listen::socket::Socket;
use crate::sign_in::Client;
use crate::state::State;

/// Messages that are read ahead of the one that is applied.
const JOBS_MAX: usize = 4;

/// Batches whose acknowledgements share one message.
const ACKS_MAX: usize = 256;

/// How long a client that a limit holds back waits at least, and at most until the limit is looked at again.
const LIMIT_PAUSE_MIN: Duration = Duration::from_millis(10);
const LIMIT_PAUSE_MAX: Duration = Duration::from_secs(5);

/// How long it waits in all; then its connection ends, which may have no client any more.
const LIMIT_WAIT_MAX: Duration = Duration::from_mins(5);

/// Bytes of frames that the client may have sent since its greeting.
type Credit = Arc<AtomicU64>;

/// Serves a connection until it is silent, and gives it back once everything is acknowledged; or until it ends.
pub(super) async fn serve(planes: &Arc<Planes>, parked: Parked) -> Option<Parked> {
    let Parked { stream, session } = parked;
    let (from, to) = split(stream);
    let patience = Duration::from_millis(planes.settings().body_timeout_ms);
    let credit = Arc::new(AtomicU64::new(session.credit));
    let (jobs, to_apply) = mpsc::channel(JOBS_MAX);
    let (used, buffers) = mpsc::channel(JOBS_MAX);
    let (acks, to_tell) = mpsc::unbounded_channel();
    let (producer, last_sequence) = (session.producer, session.last_sequence);
    let last_written = Arc::new(Written::new(session.databases));
    let work = Work { jobs: to_apply, used, acks, producer, last_sequence, written: last_written.clone() };
    let mut writing = tokio::spawn(write(to, to_tell, credit.clone(), patience));
    let client = session.client;
    let mut reader = Reader {
        planes,
        client: &client,
        from,
        credit: credit.clone(),
        received: session.received,
        jobs,
        buffers,
        has_rested: true,
        written: last_written.clone(),
    };
    let reading = async {
        let (is_silent, written) = tokio::select! {
            is_silent = reader.read() => (is_silent, None),
            written = &mut writing => (false, Some(written)),
        };
        let Reader { from, received, .. } = reader;
        (is_silent, written, from, received)
    };
    let ((is_silent, written, from, received), applied) = tokio::join!(reading, turn::apply_all(planes, work));
    let written = match written {
        Some(written) => written,
        None => writing.await,
    };
    match (written.ok().flatten(), applied) {
        (Some(to), Some(last_sequence)) if is_silent => {
            let credit = credit.load(Ordering::Acquire);
            let databases = last_written.databases();
            let session = Session { client, producer, credit, received, last_sequence, databases };
            Some(Parked { stream: from.unsplit(to), session })
        }
        (to, _) => {
            if let Some(mut to) = to {
                let _ = to.shutdown().await;
            }
            socket::linger(from).await;
            None
        }
    }
}

/// Why nothing more is read; with a message that the client is notice.
type Ended = Option<(Reason, String)>;

fn ended(end: End) -> Ended {
    match end {
        End::Gone => None,
        End::Broken(error) => Some((Reason::Malformed, error.0)),
    }
}

/// Reads messages ahead.
struct Reader<'a> {
    planes: &'a Planes,
    client: &'a Client,
    from: ReadHalf<Socket>,
    credit: Credit,
    received: u64,
    jobs: mpsc::Sender<Job>,
    buffers: mpsc::Receiver<MessageBuffer>,
    /// No thread waits for the next message.
    has_rested: bool,
    /// The databases whose limits the next message waits for.
    written: Arc<Written>,
}

impl Reader<'_> {
    /// Hands over one message after another, and why there are no more, if the client is to know. Whether there are none because
    /// it is silent.
    async fn read(&mut self) -> bool {
        let mut stop = self.planes.stop.clone();
        loop {
            let next = tokio::select! {
                next = self.message() => next,
                _ = stop.wait_for(|stop| *stop) => Err(Some(stopping())),
            };
            let (job, is_last) = match next {
                Ok(Some(job)) => (job, false),
                Ok(None) => return true,
                Err(None) => return false,
                Err(Some((reason, message))) => {
                    (Job::End(Refused { reason, message, incarnation: self.planes.db().incarnation() }), true)
                }
            };
            self.has_rested = false;
            if self.jobs.send(job).await.is_err() || is_last {
                return false;
            }
        }
    }

    /// The next message; `None` if the client is silent.
    async fn message(&mut self) -> Result<Option<Job>, Ended> {
        let settings = self.planes.settings();
        let Some(header) = self.header().await.map_err(ended)? else { return Ok(None) };
        let bytes =
            frame::message_bytes(header, settings.message_bytes_max).map_err(|error| ended(End::Broken(error)))?;
        self.received += (HEADER_BYTES + bytes) as u64;
        let allowed = self.credit.load(Ordering::Acquire);
        if self.received > allowed {
            let received = self.received;
            let message = format!("{received} bytes were sent on this connection, and {allowed} were allowed so far");
            return Err(Some((Reason::Malformed, message)));
        }
        let State { sign_in, db, .. } = &*self.planes.state;
        // Rights end with their account, also on connections that are open.
        let scope = sign_in.scope_now(self.client, db.now_ns()).filter(|scope| scope.may_anywhere(Right::Write));
        let Some(scope) = scope else { return Err(Some((Reason::Malformed, NEEDS_WRITE.to_owned()))) };
        self.wait_for_limits(&scope).await?;
        let permits = bytes.div_ceil(PERMIT_BYTES) as u32;
        let memory = match self.planes.memory.clone().try_acquire_many_owned(permits) {
            Ok(memory) => memory,
            Err(_) => {
                // Others whose messages wait to be applied have the memory: this client waits, and keeps no thread from them.
                self.rest().await;
                self.planes.memory.clone().acquire_many_owned(permits).await.map_err(|_| None)?
            }
        };
        let mut buffer = self.buffers.try_recv().unwrap_or_default();
        self.body(buffer.resize(bytes)).await.map_err(ended)?;
        Ok(Some(Job::Message { buffer, memory, scope }))
    }

    /// Holds the client back until its account, and the databases that its last message wrote, owe nothing.
    async fn wait_for_limits(&mut self, scope: &Scope) -> Result<(), Ended> {
        let (state, begun) = (self.planes.state.clone(), sleep(Duration::ZERO).deadline());
        while let Err(error) = check_owing(&state, scope, &self.written.databases()) {
            if begun.elapsed() > LIMIT_WAIT_MAX {
                return Err(Some((Reason::Unavailable, error.message)));
            }
            self.rest().await;
            sleep(error.retry_after.unwrap_or_default().clamp(LIMIT_PAUSE_MIN, LIMIT_PAUSE_MAX)).await;
        }
        Ok(())
    }

    /// The next frame's header; `None` if nothing of it comes for a while.
    async fn header(&mut self) -> Result<Option<[u8; HEADER_BYTES]>, End> {
        let begun = sleep(Duration::ZERO).deadline();
        let (mut bytes, mut filled) = ([0; HEADER_BYTES], 0);
        if self.planes.threads.are_wanted() {
            if self.fill(&mut bytes, &mut filled, begun).await? {
                return Ok(Some(bytes));
            }
            self.rest().await;
        }
        if self.fill(&mut bytes, &mut filled, begun + self.planes.quiet_after()).await? {
            return Ok(Some(bytes));
        }
        if filled == 0 {
            return Ok(None);
        }
        self.rest().await;
        let idle = Duration::from_millis(self.planes.settings().idle_timeout_ms);
        if self.fill(&mut bytes, &mut filled, begun + idle).await? { Ok(Some(bytes)) } else { Err(End::Gone) }
    }

    /// Fills a message. Who sends it slowly keeps no thread waiting.
    async fn body(&mut self, bytes: &mut [u8]) -> Result<(), End> {
        let begun = sleep(Duration::ZERO).deadline();
        let (patience, mut filled) = (Duration::from_millis(self.planes.settings().body_timeout_ms), 0);
        let wait = if self.planes.threads.are_wanted() { Duration::ZERO } else { self.planes.quiet_after() };
        if self.fill(bytes, &mut filled, begun + wait.min(patience)).await? {
            return Ok(());
        }
        self.rest().await;
        if self.fill(bytes, &mut filled, begun + patience).await? { Ok(()) } else { Err(End::Gone) }
    }

    /// Whether all bytes came before the deadline; what is there is taken also if it has passed.
    async fn fill(&mut self, bytes: &mut [u8], filled: &mut usize, deadline: Instant) -> Result<bool, End> {
        match timeout_at(deadline, socket::fill_on(&mut self.from, bytes, filled)).await {
            Ok(done) => done.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Gives up the thread that waits for the next message, if one does.
    async fn rest(&mut self) {
        if !self.has_rested {
            self.has_rested = true;
            // If no thread applies batches any more, the job is dropped.
            let _ = self.jobs.send(Job::Rest).await;
        }
    }
}

/// Tells the client what is done, as much as there is in one message. Gives the socket back if it can be notice more.
async fn write(
    mut to: WriteHalf<Socket>,
    mut notice: UnboundedReceiver<Notice>,
    credit: Credit,
    patience: Duration,
) -> Option<WriteHalf<Socket>> {
    while let Some(first) = notice.recv().await {
        let (mut ack, mut count, mut end, mut next) = (Ack::default(), 0, None, Some(first));
        while let Some(told_now) = next {
            match told_now {
                Notice::Batch { sequence, frame_bytes, exception } => {
                    ack.sequence = sequence;
                    ack.exceptions.extend(exception);
                    credit.fetch_add(frame_bytes, Ordering::AcqRel);
                    count += 1;
                }
                Notice::End(refused) => end = Some(refused),
            }
            next = if count < ACKS_MAX && end.is_none() { notice.try_recv().ok() } else { None };
        }
        ack.credit_bytes = credit.load(Ordering::Acquire);
        if count > 0 && tell(&mut to, &Answer::Ack(ack), patience).await.is_err() {
            return None;
        }
        if let Some(refused) = end {
            let _ = tell(&mut to, &Answer::Refused(refused), patience).await;
            let _ = to.shutdown().await;
            return None;
        }
    }
    Some(to)
}

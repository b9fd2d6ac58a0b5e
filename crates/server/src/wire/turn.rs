//! Threads that apply batches: few for many connections. A connection has one from a batch on until it is silent for a while,
//! or until it has had its turn and others wait, who get theirs in the order in which they came.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use access::scope::Scope;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::data::{Exception, Message, Reason, Refused, Request};
use wire::frame::{HEADER_BYTES, MessageBuffer};

use super::Planes;
use super::apply::{Applier, ApplyError};
use super::commit::{Applied, Notice};
use super::written::Written;

/// Bytes of messages that a connection has applied in a turn, if others wait for theirs.
const TURN_BYTES: usize = 4 << 20;

/// What a small message counts.
const SMALL_BYTES: usize = 64 << 10;

/// Bytes of a buffer that is kept for the next message.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// What a message counts: a small one takes time, too.
fn counted_bytes(bytes: usize) -> usize {
    bytes.max(SMALL_BYTES)
}

/// Whether a connection that has applied so much gives up its thread. If no other connection waits, it keeps it.
fn is_over(turn_bytes: usize, is_wanted: bool) -> bool {
    is_wanted && turn_bytes >= TURN_BYTES
}

/// The bound on threads.
pub(super) struct Threads {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// A connection that waits for a thread.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    pub(super) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS))), waiting: AtomicUsize::new(0) }
    }

    /// Whether a connection waits for one.
    pub(super) fn are_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for one; who came first is served first.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = self.free.clone().try_acquire_owned() {
            return Some(permit);
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        self.free.clone().acquire_owned().await.ok()
    }
}

/// Work on a connection.
pub(super) enum Job {
    Message {
        buffer: MessageBuffer,
        memory: OwnedSemaphorePermit,
        /// What the client may do, as it was when the message came.
        scope: Arc<Scope>,
    },
    /// There is nothing at present: no thread is to wait for it.
    Rest,
    End(Refused),
}

/// What a connection's turns go on with.
pub(super) struct Work {
    pub(super) jobs: mpsc::Receiver<Job>,
    /// Where buffers go to be filled again.
    pub(super) used: mpsc::Sender<MessageBuffer>,
    /// The connection's writer.
    pub(super) acks: UnboundedSender<Notice>,
    pub(super) producer: u64,
    pub(super) last_sequence: Option<u64>,
    /// The databases that the last message wrote.
    pub(super) written: Arc<Written>,
}

/// Applies messages in order until there are no more; then the number of the last. `None` if the connection ends.
pub(super) async fn apply_all(planes: &Arc<Planes>, mut work: Work) -> Option<Option<u64>> {
    while let Some(job) = work.jobs.recv().await {
        match job {
            Job::Rest => {}
            Job::End(refused) => {
                work.tell(planes, None, Notice::End(refused));
                return None;
            }
            Job::Message { buffer, memory, scope } => {
                let (thread, shared) = (planes.threads.take().await?, planes.clone());
                let turn = tokio::task::spawn_blocking(move || {
                    let _thread = thread;
                    work.turn(&shared, Job::Message { buffer, memory, scope })
                });
                work = turn.await.ok().flatten()?;
            }
        }
    }
    Some(work.last_sequence)
}

impl Work {
    fn tell(&self, planes: &Planes, record: Option<db::Appended>, notice: Notice) {
        planes.committer.hand_over(Applied { record, notice, to: self.acks.clone() });
    }

    /// Applies a message and those behind it, until the turn is over. `None` if the connection ends.
    fn turn(mut self, planes: &Planes, first: Job) -> Option<Self> {
        let mut applier = Applier::new(&planes.state, self.producer, planes.settings().ahead_ms_max);
        let discards = planes.settings().ingest_discard;
        let (mut job, mut turn_bytes) = (first, 0);
        loop {
            let (buffer, memory, scope) = match job {
                Job::Message { buffer, memory, scope } => (buffer, memory, scope),
                Job::Rest => return Some(self),
                Job::End(refused) => {
                    self.tell(planes, None, Notice::End(refused));
                    return None;
                }
            };
            // The reader waits for limits of databases that it knows. Further ones are known here.
            applier.has_waited_for(self.written.databases());
            let outcome = apply((&mut applier, &scope), &buffer, &mut self.last_sequence, discards);
            if let Some(samples) = applier.take_written() {
                self.written.count(&planes.state, &scope, (samples, buffer.bytes().len()));
            }
            let (reason, message) = match outcome {
                Ok((record, notice)) => {
                    self.tell(planes, record, notice);
                    turn_bytes += counted_bytes(buffer.bytes().len());
                    self.recycle(buffer);
                    drop(memory);
                    if is_over(turn_bytes, planes.threads.are_wanted()) {
                        return Some(self);
                    }
                    match self.jobs.blocking_recv() {
                        Some(next) => job = next,
                        None => return Some(self),
                    }
                    continue;
                }
                Err(ApplyError::Malformed(error)) => (Reason::Malformed, error.0),
                Err(ApplyError::Invalid(message)) => (Reason::Malformed, message),
                Err(ApplyError::Unavailable(message)) => (Reason::Unavailable, message),
            };
            let refused = Refused { reason, message, incarnation: planes.db().incarnation() };
            self.tell(planes, None, Notice::End(refused));
            return None;
        }
    }

    fn recycle(&self, buffer: MessageBuffer) {
        if buffer.capacity_bytes() <= KEPT_BYTES_MAX {
            // If the reader is gone, or there are enough, it is dropped.
            let _ = self.used.try_send(buffer);
        }
    }
}

fn apply(
    (applier, scope): (&mut Applier<'_>, &Scope),
    buffer: &MessageBuffer,
    last_sequence: &mut Option<u64>,
    discards: bool,
) -> Result<(Option<db::Appended>, Notice), ApplyError> {
    let message = Message::new(buffer.bytes())?;
    let Request::Batch(batch) = message.request()? else {
        return Err(ApplyError::Invalid("a second greeting".to_owned()));
    };
    let sequence = batch.sequence;
    if sequence == 0 || last_sequence.is_some_and(|last| sequence <= last) {
        let message = format!("batch {sequence} behind batch {}: numbers ascend from 1", last_sequence.unwrap_or(0));
        return Err(ApplyError::Invalid(message));
    }
    *last_sequence = Some(sequence);
    let frame_bytes = (HEADER_BYTES + buffer.bytes().len()) as u64;
    if discards {
        for block in batch.blocks() {
            block?;
        }
        return Ok((None, Notice::Batch { sequence, frame_bytes, exception: None }));
    }
    let (record, exception) = match applier.apply(&batch, scope) {
        Ok(appended) => {
            let stale_tokens = appended.stale.iter().map(|token| token.to_bits()).collect::<Vec<_>>();
            let duplicate = appended.is_duplicate;
            let dropped = [(db::BEYOND_RETENTION, appended.beyond_retention), (db::FOLDED_TIME, appended.folded)];
            let dropped = dropped.iter().filter(|(_, rows)| *rows > 0);
            let dropped: Vec<String> = dropped.map(|(reason, rows)| format!("{reason} dropped={rows}")).collect();
            let error = (!dropped.is_empty()).then(|| format!("partial write: {}", dropped.join(", ")));
            let is_plain = stale_tokens.is_empty() && !duplicate && error.is_none();
            let exception = Exception { sequence, duplicate, error, stale_tokens };
            (Some(appended), (!is_plain).then_some(exception))
        }
        Err(ApplyError::Invalid(error)) => {
            (None, Some(Exception { sequence, error: Some(error), ..Exception::default() }))
        }
        Err(other) => return Err(other),
    };
    Ok((record, Notice::Batch { sequence, frame_bytes, exception }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_for_others_only_and_soon() {
        let turn =
            |bytes: usize, is_wanted: bool| (1..10_000).find(|count| is_over(count * counted_bytes(bytes), is_wanted));
        assert_eq!(turn(1 << 20, false), None);
        assert_eq!(turn(1 << 20, true), Some(4));
        assert_eq!((turn(8, true), turn(1000, true)), (Some(64), Some(64)), "however small they are");
        assert_eq!(turn(8 << 20, true), Some(1));
    }
}

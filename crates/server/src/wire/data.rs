//! A connection of the data plane.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ingest::wire::data::{self, Ack, Answer, Exception, Hello, Message, Reason, Refused, Request, Welcome};
use ingest::wire::frame::{HEADER_BYTES, MessageBuffer, Plane};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::apply::{Applier, ApplyError};
use super::commit::{Applied, Told};
use super::socket::{self, End};
use super::{PERMIT_BYTES, Planes};

/// Messages that are read ahead of the one that is applied.
const JOBS_MAX: usize = 4;

/// Bytes of a buffer that is kept for the next message.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Batches whose acknowledgements share one message.
const ACKS_MAX: usize = 256;

/// What the applier is to do.
enum Job {
    Message { buffer: MessageBuffer, _memory: OwnedSemaphorePermit },
    End(Refused),
}

/// Bytes of frames that the client may have sent since its greeting.
type Credit = Arc<AtomicU64>;

/// Serves until the client goes, breaks the protocol, or the server stops.
pub(super) async fn serve(planes: &Arc<Planes>, stream: TcpStream) {
    let (mut from, mut to) = stream.into_split();
    let patience = Duration::from_millis(planes.settings().body_timeout_ms);
    let hello = match greet(planes, &mut from, &mut to).await {
        Ok(hello) => hello,
        Err(None) => return,
        Err(Some(refused)) => {
            let _ = tell(&mut to, &Answer::Refused(refused), patience).await;
            let _ = to.shutdown().await;
            return socket::linger(from).await;
        }
    };
    let credit = Arc::new(AtomicU64::new(planes.settings().in_flight_bytes_max as u64));
    let (jobs, to_apply) = mpsc::channel(JOBS_MAX);
    let (used, buffers) = mpsc::channel(JOBS_MAX);
    let (acks, to_tell) = mpsc::unbounded_channel();
    let (shared, committer) = (planes.clone(), planes.committer.clone());
    let applying = tokio::task::spawn_blocking(move || {
        let tell = |record, told| committer.hand_over(Applied { record, told, to: acks.clone() });
        apply_all(&shared, hello, to_apply, &used, &tell);
    });
    let writing = tokio::spawn(write(to, to_tell, credit.clone(), patience));
    let mut from = from;
    let reading = read(planes, &mut from, &credit, &jobs, buffers);
    tokio::pin!(writing);
    let written = tokio::select! {
        () = reading => None,
        written = &mut writing => Some(written),
    };
    drop(jobs);
    if written.is_none() {
        let _ = writing.await;
    }
    let _ = applying.await;
    socket::linger(from).await;
}

/// Preface and greeting; an error with a message is told to the client.
async fn greet(planes: &Planes, from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf) -> Result<Hello, Option<Refused>> {
    let (settings, incarnation) = (planes.settings(), planes.db().incarnation());
    let patience = Duration::from_millis(settings.head_timeout_ms);
    let refuse = |reason, message| Some(Refused { reason, message, incarnation });
    let ended = |end| match end {
        End::Gone => None,
        End::Broken(error) => refuse(Reason::Malformed, error.0),
    };
    let read = async {
        socket::preface(Plane::Data, from, patience).await?;
        let bytes = socket::header(from, settings.message_bytes_max.min(PERMIT_BYTES), patience).await?;
        let mut buffer = MessageBuffer::default();
        socket::fill(from, buffer.resize(bytes), patience).await?;
        Ok::<_, End>(buffer)
    };
    let buffer = read.await.map_err(ended)?;
    let message = Message::new(buffer.bytes()).map_err(|error| refuse(Reason::Malformed, error.0))?;
    let hello = match message.request() {
        Ok(Request::Hello(hello)) => hello,
        Ok(Request::Batch(_)) => {
            return Err(refuse(Reason::Malformed, "a batch before the greeting".to_owned()));
        }
        Err(error) => return Err(refuse(Reason::Malformed, error.0)),
    };
    if hello.incarnation != 0 && hello.incarnation != incarnation {
        let message = "these tokens are from another data folder: register again".to_owned();
        return Err(refuse(Reason::Incarnation, message));
    }
    let last = if hello.producer == 0 { None } else { planes.db().last_sent(hello.producer) };
    let welcome = Welcome {
        incarnation,
        last_sequence: last.unwrap_or(0),
        knows_producer: last.is_some(),
        credit_bytes: settings.in_flight_bytes_max as u64,
        message_bytes_max: settings.message_bytes_max as u32,
    };
    tell(to, &Answer::Welcome(welcome), patience).await.map_err(|_| None)?;
    Ok(hello)
}

async fn tell(to: &mut OwnedWriteHalf, answer: &Answer, patience: Duration) -> Result<(), End> {
    let mut bytes = Vec::new();
    data::encode_answer(answer, &mut bytes)?;
    socket::send(to, &bytes, patience).await
}

/// Hands the applier one message after another, and why there are no more, if the client is to know.
async fn read(
    planes: &Planes,
    from: &mut OwnedReadHalf,
    credit: &Credit,
    jobs: &mpsc::Sender<Job>,
    mut buffers: mpsc::Receiver<MessageBuffer>,
) {
    let mut stop = planes.stop.clone();
    let mut received = 0;
    loop {
        let next = tokio::select! {
            next = read_message(planes, from, credit, &mut received, &mut buffers) => next,
            _ = stop.wait_for(|stop| *stop) => Err(Some((Reason::Unavailable, "the server stops".to_owned()))),
        };
        let (job, is_last) = match next {
            Ok(job) => (job, false),
            Err(None) => return,
            Err(Some((reason, message))) => {
                (Job::End(Refused { reason, message, incarnation: planes.db().incarnation() }), true)
            }
        };
        if jobs.send(job).await.is_err() || is_last {
            return;
        }
    }
}

async fn read_message(
    planes: &Planes,
    from: &mut OwnedReadHalf,
    credit: &Credit,
    received: &mut u64,
    buffers: &mut mpsc::Receiver<MessageBuffer>,
) -> Result<Job, Option<(Reason, String)>> {
    let settings = planes.settings();
    let ended = |end| match end {
        End::Gone => None,
        End::Broken(error) => Some((Reason::Malformed, error.0)),
    };
    let idle = Duration::from_millis(settings.idle_timeout_ms);
    let bytes = socket::header(from, settings.message_bytes_max, idle).await.map_err(ended)?;
    *received += (HEADER_BYTES + bytes) as u64;
    let allowed = credit.load(Ordering::Acquire);
    if *received > allowed {
        let message = format!("{received} bytes were sent on this connection, and {allowed} were allowed so far");
        return Err(Some((Reason::Malformed, message)));
    }
    // Others whose messages wait to be applied have the memory: this client waits.
    let permits = bytes.div_ceil(PERMIT_BYTES) as u32;
    let memory = planes.memory.clone().acquire_many_owned(permits).await.map_err(|_| None)?;
    let mut buffer = buffers.try_recv().unwrap_or_default();
    let patience = Duration::from_millis(settings.body_timeout_ms);
    socket::fill(from, buffer.resize(bytes), patience).await.map_err(ended)?;
    Ok(Job::Message { buffer, _memory: memory })
}

/// Applies messages in order until there are no more or one cannot be.
fn apply_all(
    planes: &Planes,
    hello: Hello,
    mut jobs: mpsc::Receiver<Job>,
    used: &mpsc::Sender<MessageBuffer>,
    tell: &dyn Fn(Option<db::Appended>, Told),
) {
    let mut applier = Applier::new(planes.db(), hello.producer);
    let discards = planes.settings().ingest_discard;
    let mut last_sequence = None;
    let end = |reason, message| {
        tell(None, Told::End(Refused { reason, message, incarnation: planes.db().incarnation() }));
    };
    while let Some(job) = jobs.blocking_recv() {
        let Job::Message { buffer, _memory } = job else {
            if let Job::End(refused) = job {
                tell(None, Told::End(refused));
            }
            return;
        };
        match apply(&mut applier, &buffer, &mut last_sequence, discards) {
            Ok((record, told)) => tell(record, told),
            Err(ApplyError::Malformed(error)) => return end(Reason::Malformed, error.0),
            Err(ApplyError::Invalid(message)) => return end(Reason::Malformed, message),
            Err(ApplyError::Unavailable(message)) => return end(Reason::Unavailable, message),
        }
        if buffer.capacity_bytes() <= KEPT_BYTES_MAX {
            // Where nobody reads any more, or there are enough, it is dropped.
            let _ = used.try_send(buffer);
        }
    }
}

fn apply(
    applier: &mut Applier<'_>,
    buffer: &MessageBuffer,
    last_sequence: &mut Option<u64>,
    discards: bool,
) -> Result<(Option<db::Appended>, Told), ApplyError> {
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
        return Ok((None, Told::Batch { sequence, frame_bytes, exception: None }));
    }
    let (record, exception) = match applier.apply(&batch) {
        Ok(appended) => {
            let stale_tokens = appended.stale.iter().map(|token| token.to_bits()).collect::<Vec<_>>();
            let duplicate = appended.is_duplicate;
            let is_plain = stale_tokens.is_empty() && !duplicate;
            let exception = Exception { sequence, duplicate, error: None, stale_tokens };
            (Some(appended), (!is_plain).then_some(exception))
        }
        Err(ApplyError::Invalid(error)) => {
            (None, Some(Exception { sequence, error: Some(error), ..Exception::default() }))
        }
        Err(other) => return Err(other),
    };
    Ok((record, Told::Batch { sequence, frame_bytes, exception }))
}

/// Tells the client what is done, as much as there is in one message, until the end.
async fn write(mut to: OwnedWriteHalf, mut told: UnboundedReceiver<Told>, credit: Credit, patience: Duration) {
    while let Some(first) = told.recv().await {
        let (mut ack, mut count, mut end, mut next) = (Ack::default(), 0, None, Some(first));
        while let Some(told_now) = next {
            match told_now {
                Told::Batch { sequence, frame_bytes, exception } => {
                    ack.sequence = sequence;
                    ack.exceptions.extend(exception);
                    credit.fetch_add(frame_bytes, Ordering::AcqRel);
                    count += 1;
                }
                Told::End(refused) => end = Some(refused),
            }
            next = if count < ACKS_MAX && end.is_none() { told.try_recv().ok() } else { None };
        }
        ack.credit_bytes = credit.load(Ordering::Acquire);
        if count > 0 && tell(&mut to, &Answer::Ack(ack), patience).await.is_err() {
            return;
        }
        if let Some(refused) = end {
            let _ = tell(&mut to, &Answer::Refused(refused), patience).await;
            break;
        }
    }
    let _ = to.shutdown().await;
}

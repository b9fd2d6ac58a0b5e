//! Live streams: what is written to a database, as server-sent events.
//!
//! A stream holds nothing of the log back. One that reads too slowly is cut off with an event that says so; its client resumes after the
//! sequence id that it got last, as far as the log goes.
//!
//! * this file: streams and their bounds · [`events`]: records as text

mod events;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use model::Matcher;
use platform::network::compute;
use tokio::sync::mpsc;

use crate::feed::{Batch, Feed, Follower, Step, WhenOverrun};
use crate::series_filter::SeriesFilter;
use events::Progress;

/// Chunks of a stream that wait for its client.
const CHUNKS_MAX: usize = 2;

/// How often a stream that has nothing to say says that it is there.
const HEARTBEAT_MS: u64 = 15_000;

/// How long a client that is cut off may take to read why.
const GOODBYE_MS: u64 = 30_000;

/// How long a client may leave what it is sent unread.
const SENDING_MS_MAX: u64 = 60_000;

/// Selectors of a stream.
const SETS_MAX: usize = 100;

/// Bytes of the values of all their matchers: patterns are compiled again with each batch.
const MATCHERS_BYTES_MAX: usize = 16 << 10;

/// What a client wants to see of a database.
#[derive(Debug, Clone)]
pub struct TailRequest {
    /// The database.
    pub database: String,
    /// Series that satisfy all matchers of one of these sets; none: all series.
    pub matcher_sets: Vec<Vec<Matcher>>,
    /// What comes after this sequence id; `None`: after all that is on disk.
    pub since: Option<u64>,
}

/// What a stream's account may read by now: matchers that each series satisfies, or why it may read nothing any more.
pub type TailAccess = dyn Fn() -> Result<Vec<Matcher>, String> + Send + Sync;

/// Why there is no stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TailError {
    /// There are as many as there may be.
    TooMany {
        /// The limit.
        streams_max: usize,
    },
    /// The request has no meaning. Holds the message.
    Invalid(String),
}

/// Streams of a server.
pub struct Streams {
    feed: Arc<Feed>,
    open_max: usize,
    open: AtomicUsize,
    opened: AtomicU64,
    cut_off: AtomicU64,
    samples: AtomicU64,
}

/// Counts of streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamStats {
    /// Those that are open.
    pub open: usize,
    /// All since the start.
    pub opened: u64,
    /// Those that were cut off since their clients read too slowly.
    pub cut_off: u64,
    /// Samples that were sent.
    pub samples: u64,
}

/// One of the open streams, until it is dropped.
struct Open(Arc<Streams>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Streams {
    pub(crate) fn new(feed: &Arc<Feed>, streams_max: usize) -> Arc<Self> {
        Arc::new(Self {
            feed: feed.clone(),
            open_max: streams_max,
            open: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            cut_off: AtomicU64::new(0),
            samples: AtomicU64::new(0),
        })
    }

    /// Opens a stream: chunks of its text, until its client drops them, may read no more, reads too slowly, or the server stops.
    pub fn open(
        self: &Arc<Self>,
        request: TailRequest,
        access: Arc<TailAccess>,
    ) -> Result<mpsc::Receiver<Vec<u8>>, TailError> {
        let bytes: usize = request.matcher_sets.iter().flatten().map(|matcher| matcher.value.len()).sum();
        if request.matcher_sets.len() > SETS_MAX || bytes > MATCHERS_BYTES_MAX {
            return Err(TailError::Invalid(format!(
                "match[]: a stream has at most {SETS_MAX} selectors, with {MATCHERS_BYTES_MAX} bytes of values together"
            )));
        }
        let account = access().map_err(TailError::Invalid)?;
        SeriesFilter::new(&account, &request.matcher_sets).map_err(|error| TailError::Invalid(error.to_string()))?;
        let durable = self.feed.db.durable_sequence();
        let since = request.since.unwrap_or(durable);
        if since > durable {
            return Err(TailError::Invalid(format!(
                "since: {since} is beyond the last sequence id {durable}: it is of another data folder"
            )));
        }
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.open_max {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(TailError::TooMany { streams_max: self.open_max });
        }
        let open = Open(self.clone());
        self.opened.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(CHUNKS_MAX);
        let follower = Follower::new(&self.feed, &request.database, since, WhenOverrun::Ends);
        let stream = Stream { streams: self.clone(), request, access, follower, sender };
        self.feed.network.tasks.spawn(Box::pin(async move {
            stream.run().await;
            drop(open);
        }));
        Ok(receiver)
    }

    /// The counts.
    pub fn stats(&self) -> StreamStats {
        StreamStats {
            open: self.open.load(Ordering::Relaxed),
            opened: self.opened.load(Ordering::Relaxed),
            cut_off: self.cut_off.load(Ordering::Relaxed),
            samples: self.samples.load(Ordering::Relaxed),
        }
    }
}

/// Why a stream ends.
enum Ending {
    /// Its client is gone.
    Left,
    /// Its client is told.
    Announced { reason: &'static str, message: String },
}

struct Stream {
    streams: Arc<Streams>,
    request: TailRequest,
    access: Arc<TailAccess>,
    follower: Follower,
    sender: mpsc::Sender<Vec<u8>>,
}

impl Stream {
    async fn run(mut self) {
        let mut stopped = self.streams.feed.stopped();
        let first = self.follower.sequence();
        let mut sent_through = first;
        let ending = tokio::select! {
            ending = self.follow(&mut sent_through) => ending,
            _ = stopped.wait_for(|stopped| *stopped) => {
                Ending::Announced { reason: "stopped", message: "the server stops".to_owned() }
            }
        };
        let Ending::Announced { reason, message } = ending else { return };
        let tasks = &self.streams.feed.network.tasks;
        let goodbye = events::end(sent_through, reason, &message);
        tokio::select! {
            // A client that is gone is told nothing.
            _ = self.sender.send(goodbye) => {}
            () = tasks.sleep_ms(GOODBYE_MS) => {}
        }
    }

    async fn follow(&mut self, sent_through: &mut u64) -> Ending {
        let hello = events::heartbeat(*sent_through);
        if self.sender.send(hello).await.is_err() {
            return Ending::Left;
        }
        loop {
            let account = match (self.access)() {
                Ok(account) => account,
                Err(message) => return Ending::Announced { reason: "forbidden", message },
            };
            match self.follower.read().await {
                Step::Batch { batch, after } => {
                    if let Err(ending) = self.send_batch(batch, after, &account).await {
                        return ending;
                    }
                    *sent_through = self.follower.sequence();
                }
                Step::Gap(gap) => {
                    let tasks = self.streams.feed.network.tasks.clone();
                    let sent = tokio::select! {
                        sent = self.sender.send(events::gap(gap.sequences)) => sent,
                        () = tasks.sleep_ms(SENDING_MS_MAX) => return self.too_slow(),
                    };
                    if sent.is_err() {
                        return Ending::Left;
                    }
                    *sent_through = self.follower.sequence();
                }
                Step::CaughtUp => {
                    *sent_through = self.follower.sequence();
                    if let Err(ending) = self.rest(*sent_through).await {
                        return ending;
                    }
                }
                Step::Overrun => return self.too_slow(),
            }
        }
    }

    /// Waits for more to be written, and says at times that the stream is there.
    async fn rest(&mut self, sequence: u64) -> Result<(), Ending> {
        let tasks = self.streams.feed.network.tasks.clone();
        tokio::select! {
            () = self.follower.changed() => return Ok(()),
            () = self.sender.closed() => return Err(Ending::Left),
            () = tasks.sleep_ms(HEARTBEAT_MS) => {}
        }
        tokio::select! {
            sent = self.sender.send(events::heartbeat(sequence)) => sent.map_err(|_| Ending::Left),
            () = tasks.sleep_ms(SENDING_MS_MAX) => Err(self.too_slow()),
        }
    }

    /// Sends what is wanted of a batch, chunk by chunk.
    async fn send_batch(&mut self, batch: Arc<Batch>, after: u64, account: &[Matcher]) -> Result<(), Ending> {
        let filter = SeriesFilter::new(account, &self.request.matcher_sets);
        let mut filter =
            filter.map_err(|error| Ending::Announced { reason: "forbidden", message: error.to_string() })?;
        let mut progress = Progress::after(&batch.records, after);
        let tasks = self.streams.feed.network.tasks.clone();
        while !progress.is_at_end(&batch.records) {
            let records = batch.clone();
            let written = compute(&tasks, move || {
                let text = events::chunk(&records.records, &mut progress, &mut filter);
                (text, progress, filter)
            });
            let Some((text, next, same)) = written.await else { return Err(Ending::Left) };
            self.streams.samples.fetch_add(next.samples - progress.samples, Ordering::Relaxed);
            (progress, filter) = (next, same);
            if text.is_empty() {
                continue;
            }
            let sent = tokio::select! {
                sent = self.sender.send(text) => sent,
                () = tasks.sleep_ms(SENDING_MS_MAX) => return Err(self.too_slow()),
                // The batch must not stay as long as a client that has stopped reading.
                () = self.follower.overrun() => return Err(self.too_slow()),
            };
            sent.map_err(|_| Ending::Left)?;
        }
        Ok(())
    }

    fn too_slow(&self) -> Ending {
        self.streams.cut_off.fetch_add(1, Ordering::Relaxed);
        let message =
            "this client reads more slowly than rows are written: resume with Last-Event-ID, or ask for fewer series";
        Ending::Announced { reason: "too_slow", message: message.to_owned() }
    }
}

//! One job: reads what is written, delivers the rows that are wanted, and saves how far it came.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use access::grant::Right;
use access::scope::Scope;
use db::{LogGap, StoreError};
use parking_lot::Mutex;
use platform::network::compute;
use platform::network::retry::{Backoff, Verdict};
use tokio::sync::watch;

use super::context::Shared;
use super::definition::JobKey;
use super::queue::{Chunk, Pending, Prepared, prepare};
use super::reading::Reading;
use super::send::Outgoing;
use super::work::{JobSpec, Work};
use crate::feed::{ERROR_PAUSE_MS, Step};
use crate::series_filter::SeriesFilter;
use crate::subscription::SubscriptionRun;
use crate::trigger::{Bound, SchemaCache, TriggerRun};

/// The position is saved so often: what was delivered since is delivered again after a crash.
const SAVE_MS: u64 = 5_000;

/// The pause before it is looked again whether the owner may do this.
const FORBIDDEN_PAUSE_MS: u64 = 5_000;

/// The pauses between attempts.
const BACKOFF: Backoff = Backoff { min_ms: 100, max_ms: 30_000 };

const NS_PER_MS: u64 = 1_000_000;

/// Numbers of a job.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) sent_rows: AtomicU64,
    /// Rows that the receiver refused, or that the condition cannot be computed for.
    pub(crate) failed_rows: AtomicU64,
    /// Rows that were not taken within `retry_for`.
    pub(crate) dropped_rows: AtomicU64,
    /// Records that the log did not have any more.
    pub(crate) dropped_records: AtomicU64,
    pub(crate) retries: AtomicU64,
}

/// A job.
pub(crate) struct Job {
    pub(crate) key: JobKey,
    pub(crate) spec: JobSpec,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counts: Counts,
    /// Whose turn it is among destinations.
    pub(crate) turn: AtomicU64,
    /// What the table of a trigger has.
    pub(crate) schema: Mutex<SchemaCache>,
    cursor: String,
    /// Everything up to this sequence id was delivered, refused or dropped.
    done_through: AtomicU64,
    saved_through: AtomicU64,
    saved_at_ns: AtomicU64,
    /// Why it does not go on; empty if it does.
    last_error: Mutex<String>,
    /// Why rows were refused or dropped last; empty if none were.
    last_loss: Mutex<String>,
    stop: watch::Sender<bool>,
}

impl Job {
    /// Begins where it was, or with what is written from now on.
    pub(crate) fn start(key: &JobKey, spec: JobSpec, shared: &Arc<Shared>) -> Result<Arc<Self>, StoreError> {
        let cursor = key.cursor();
        let sequence = shared.db().log_cursor(&cursor, Some(key.database()))?.sequence();
        let job = Arc::new(Self {
            key: key.clone(),
            spec,
            shared: shared.clone(),
            counts: Counts::default(),
            turn: AtomicU64::new(0),
            schema: Mutex::default(),
            cursor,
            done_through: AtomicU64::new(sequence),
            saved_through: AtomicU64::new(sequence),
            saved_at_ns: AtomicU64::new(0),
            last_error: Mutex::default(),
            last_loss: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        let (running, mut stopped) = (job.clone(), job.stop.subscribe());
        shared.feed.network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = running.run() => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
        Ok(job)
    }

    /// Ends, and saves its position.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
        // What was delivered since the last time is delivered again if this fails.
        let _ = self.save();
    }

    /// Everything up to this sequence id was delivered, refused or dropped.
    pub(crate) fn sequence(&self) -> u64 {
        self.done_through.load(Ordering::Relaxed)
    }

    /// Why it does not go on, if it does not.
    pub(crate) fn error(&self) -> Option<String> {
        Some(self.last_error.lock().clone()).filter(|reason| !reason.is_empty())
    }

    /// Why rows were refused or dropped last, if any were.
    pub(crate) fn loss(&self) -> Option<String> {
        Some(self.last_loss.lock().clone()).filter(|reason| !reason.is_empty())
    }

    fn note_error(&self, reason: &str) {
        let mut last = self.last_error.lock();
        if last.is_empty() && !reason.is_empty() {
            (self.shared.log)(&format!("{} does not go on: {reason}; it is tried again", self.key));
        }
        reason.clone_into(&mut last);
    }

    fn note_loss(&self, reason: String) {
        let mut last = self.last_loss.lock();
        if *last != reason {
            (self.shared.log)(&format!("{}: {reason}", self.key));
            *last = reason;
        }
    }

    /// The rights that it runs with, or why it may not run.
    fn scope(&self) -> Result<Arc<Scope>, String> {
        let database = self.key.database();
        if self.shared.is_dropped(database, &self.spec.origin) {
            return Err(format!("the database {database} was dropped"));
        }
        let scope = self.shared.scope_of(&self.spec.origin)?;
        let needs: &[Right] = match &self.spec.work {
            Work::Trigger(trigger) => {
                if let Some(url) = trigger.url() {
                    self.shared.urls.check(url, &["http", "https"])?;
                }
                if trigger.url().is_some() && !scope.is_server_admin {
                    return Err(format!("the account {} administers the server no more", scope.name));
                }
                if trigger.url().is_some() { &[Right::Read] } else { &[Right::Read, Right::Write] }
            }
            Work::Subscription(subscription) => {
                if !scope.is_server_admin {
                    return Err(format!("the account {} administers the server no more", scope.name));
                }
                let mut destinations = subscription.destinations.iter();
                destinations.try_for_each(|url| self.shared.urls.check(url, &["http", "https", "udp"]))?;
                &[Right::Read]
            }
        };
        match needs.iter().find(|right| !scope.may(**right, database)) {
            Some(right) => Err(format!(
                "the account {} does not have the right {} on the database {database} any more",
                scope.name,
                right.name()
            )),
            None => Ok(scope),
        }
    }

    async fn run(self: Arc<Self>) {
        let mut reading = Reading::new(&self.shared.feed, self.key.database(), self.sequence());
        loop {
            self.allowed_scope(&mut reading).await;
            self.fill(&mut reading).await;
            while let Some(chunk) = reading.queue.take_chunk(&self.spec.batching, self.now_ns()) {
                let reserved_bytes = chunk.reserved_bytes();
                self.deliver(Arc::new(chunk), &mut reading).await;
                reading.queue.settle(reserved_bytes);
                self.done(reading.queue.done_through()).await;
                if !reading.queue.is_full(&self.spec.batching) {
                    break;
                }
            }
        }
    }

    /// The rights that it runs with, once there are any. Until then it holds no memory for what waits.
    async fn allowed_scope(&self, reading: &mut Reading) -> Arc<Scope> {
        loop {
            match self.scope() {
                Ok(scope) => return scope,
                Err(reason) => {
                    self.note_error(&reason);
                    reading.let_go();
                    self.shared.feed.network.tasks.sleep_ms(FORBIDDEN_PAUSE_MS).await;
                }
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.shared.feed.network.platform.clock.monotonic_ns()
    }

    /// Reads until there is something to deliver.
    async fn fill(self: &Arc<Self>, reading: &mut Reading) {
        let limits = &self.spec.batching;
        while !reading.queue.is_full(limits) {
            if let Some(left) = reading.pending.take() {
                // The rights as they are now: they may have been narrowed while it waited for rows.
                let Ok(scope) = self.scope() else {
                    reading.pending = Some(left);
                    return;
                };
                let could_prepare = self.prepare(left, reading, &scope).await;
                if reading.pending.is_none() {
                    reading.queue.note_read(reading.follower.sequence());
                }
                if !could_prepare && !reading.queue.is_empty() {
                    // What waits gives memory back once it is delivered.
                    return;
                }
                continue;
            }
            if reading.queue.due_ns(limits).is_some_and(|due_ns| due_ns <= self.now_ns()) {
                return;
            }
            match reading.follower.read().await {
                Step::Batch { batch, after } => reading.note_batch(batch, after),
                Step::Gap(gap) => {
                    self.note_gap(gap);
                    reading.note_gap();
                }
                Step::CaughtUp => {
                    reading.queue.note_read(reading.follower.sequence());
                    self.wait(reading).await;
                }
                Step::Overrun => {}
            }
        }
    }

    /// Turns a part of a batch into rows of the queue, and notes what is left of it; returns whether that could be done.
    async fn prepare(self: &Arc<Self>, batch: Pending, reading: &mut Reading, scope: &Arc<Scope>) -> bool {
        let (job, memory, scope, input) = (self.clone(), reading.queue.memory().clone(), scope.clone(), batch.clone());
        let prepared = compute(&self.shared.feed.network.tasks, move || job.prepare_now(&input, &memory, &scope)).await;
        match prepared.unwrap_or_else(|| Err("reading rows stopped short".to_owned())) {
            Ok(mut prepared) => {
                self.counts.failed_rows.fetch_add(prepared.failed, Ordering::Relaxed);
                if let Some(reason) = prepared.error.take() {
                    self.note_loss(format!("rows were left out: {reason}"));
                }
                let next = prepared.next;
                reading.queue.push(&mut prepared, self.now_ns());
                reading.pending = next.map(|progress| Pending { progress, ..batch });
                true
            }
            Err(reason) => {
                self.note_error(&reason);
                if reading.queue.is_empty() {
                    self.shared.feed.network.tasks.sleep_ms(ERROR_PAUSE_MS).await;
                }
                reading.pending = Some(batch);
                false
            }
        }
    }

    fn prepare_now(
        &self,
        pending: &Pending,
        memory: &db::TenantMemory,
        scope: &Arc<Scope>,
    ) -> Result<Prepared, String> {
        let account = self.shared.db().read_matchers(scope, self.key.database());
        let mut filter = SeriesFilter::new(&account, &[]).map_err(|error| error.to_string())?;
        let limits = &self.spec.batching;
        match &self.spec.work {
            Work::Trigger(work) => {
                match TriggerRun::new(work, Bound { shared: &self.shared, schema: &self.schema, scope }, pending)? {
                    Some(mut run) => prepare(pending, &mut run, &mut filter, limits, memory),
                    None => Ok(Prepared::default()),
                }
            }
            Work::Subscription(work) => prepare(pending, &mut SubscriptionRun::new(work), &mut filter, limits, memory),
        }
    }

    fn note_gap(&self, gap: LogGap) {
        let count = gap.sequences.1.saturating_sub(gap.sequences.0).saturating_add(1);
        self.counts.dropped_records.fetch_add(count, Ordering::Relaxed);
        self.note_loss(format!(
            "{count} records were not looked at, sequence ids {} to {}: the log does not have them any more; raise --log-retained-bytes-max",
            gap.sequences.0, gap.sequences.1
        ));
    }

    /// Waits until there is more to read, or rows have waited long enough. What was read and not wanted counts as done.
    async fn wait(self: &Arc<Self>, reading: &mut Reading) {
        let Reading { follower, queue, .. } = reading;
        let tasks = &self.shared.feed.network.tasks;
        if let Some(due_ns) = queue.due_ns(&self.spec.batching) {
            let left_ms = due_ns.saturating_sub(self.now_ns()).div_ceil(NS_PER_MS);
            tokio::select! {
                () = follower.changed() => {}
                () = tasks.sleep_ms(left_ms) => {}
            }
            return;
        }
        self.done_through.fetch_max(queue.done_through(), Ordering::Relaxed);
        self.note_error("");
        if !self.is_unsaved() {
            return follower.changed().await;
        }
        tokio::select! {
            () = follower.changed() => {}
            () = tasks.sleep_ms(SAVE_MS) => self.save_off_network().await,
        }
    }

    /// Delivers rows, again and again until they are taken, refused, or too old. Once that has failed it holds no memory for those after them.
    async fn deliver(self: &Arc<Self>, chunk: Arc<Chunk>, reading: &mut Reading) {
        let (begun_ns, rows) = (self.now_ns(), chunk.rows());
        let own = self.clone();
        let made = compute(&self.shared.feed.network.tasks, move || Outgoing::new(&own.spec.work, chunk)).await;
        let Some(outgoing) = made else {
            self.counts.failed_rows.fetch_add(rows, Ordering::Relaxed);
            return self.note_loss("rows were left out: making their request stopped short".to_owned());
        };
        for attempt in 0.. {
            let scope = self.allowed_scope(reading).await;
            let delivered = self.send(&outgoing, &scope).await;
            let failed = delivered.failed_rows;
            match delivered.verdict {
                Verdict::Sent => {
                    self.counts.sent_rows.fetch_add(rows.saturating_sub(failed), Ordering::Relaxed);
                    self.counts.failed_rows.fetch_add(failed, Ordering::Relaxed);
                    self.note_error("");
                    if let Some(reason) = delivered.failure {
                        self.note_loss(format!("rows were refused: {reason}"));
                    }
                    return;
                }
                Verdict::Refused(reason) => {
                    self.counts.failed_rows.fetch_add(rows, Ordering::Relaxed);
                    self.note_error("");
                    self.note_loss(format!("rows were refused: {reason}"));
                    return;
                }
                Verdict::Retry { after_ms, reason } => {
                    self.counts.retries.fetch_add(1, Ordering::Relaxed);
                    self.note_error(&reason);
                    let waited_ms = self.now_ns().saturating_sub(begun_ns) / NS_PER_MS;
                    if self.spec.batching.retry_for_ms.is_some_and(|retry_for_ms| waited_ms >= retry_for_ms) {
                        self.counts.dropped_rows.fetch_add(rows, Ordering::Relaxed);
                        self.note_loss(format!("rows were dropped that were not taken for {waited_ms} ms: {reason}"));
                        return;
                    }
                    if attempt + 1 == self.attempts_of_round() {
                        reading.let_go();
                    }
                    let pause_ms = BACKOFF.pause_ms(attempt / self.attempts_of_round(), after_ms);
                    self.shared.feed.network.tasks.sleep_ms(pause_ms).await;
                }
            }
        }
    }

    async fn done(self: &Arc<Self>, through: u64) {
        self.done_through.fetch_max(through, Ordering::Relaxed);
        let since_ns = self.now_ns().saturating_sub(self.saved_at_ns.load(Ordering::Relaxed));
        if since_ns >= SAVE_MS * NS_PER_MS {
            self.save_off_network().await;
        }
    }

    fn is_unsaved(&self) -> bool {
        self.sequence() > self.saved_through.load(Ordering::Relaxed)
    }

    async fn save_off_network(self: &Arc<Self>) {
        self.saved_at_ns.store(self.now_ns(), Ordering::Relaxed);
        let own = self.clone();
        // A full disk, say: it is tried again later.
        compute(&self.shared.feed.network.tasks, move || own.save().is_ok()).await;
    }

    fn save(&self) -> Result<(), StoreError> {
        let through = self.sequence();
        if through > self.saved_through.load(Ordering::Relaxed) {
            self.shared.db().save_log_cursor(&self.cursor, through)?;
            self.saved_through.fetch_max(through, Ordering::Relaxed);
        }
        Ok(())
    }
}

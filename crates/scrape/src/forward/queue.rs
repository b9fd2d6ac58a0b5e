//! One receiver: rounds of what is written, each sent as a whole before the cursor goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use db::{CommitListener, Db};
use parking_lot::Mutex;
use platform::network::{NetworkPlatform, compute};
use tokio::sync::{Notify, watch};

use super::collect::{Reader, Round};
use super::lanes::Lanes;
use super::outgoing::Item;
use super::pace::next_shards;
use super::{CURSOR_PREFIX, Forwarder, without_credentials};
use crate::client::Client;
use crate::config::RemoteWriteConfig;
use relabel::Labels;

/// The position is saved so often: what was sent since is sent again after a crash.
pub(super) const SAVE_MS: u64 = 5_000;

/// Numbers of one kind of what is sent.
#[derive(Debug, Default)]
pub(super) struct KindCounts {
    pub(super) sent: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retried: AtomicU64,
}

/// Numbers of a receiver.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) samples: KindCounts,
    pub(super) histograms: KindCounts,
    pub(super) exemplars: KindCounts,
    pub(super) metadata: KindCounts,
    pub(super) dropped_by_relabelling: AtomicU64,
    pub(super) dropped_too_old: AtomicU64,
    pub(super) sent_bytes: AtomicU64,
    pub(super) metadata_bytes: AtomicU64,
    /// Items that were read and are not with a shard yet.
    pub(super) collecting: AtomicU64,
    pub(super) pending: AtomicU64,
    pub(super) shards: AtomicU64,
    pub(super) shards_desired: AtomicU64,
    pub(super) highest_sent_ms: AtomicI64,
    pub(super) highest_read_ms: AtomicI64,
    pub(super) gaps: AtomicU64,
    pub(super) gaps_failed: AtomicU64,
    pub(super) read_errors: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) requests_ns: AtomicU64,
}

/// A receiver.
pub(super) struct Queue {
    pub(super) name: String,
    /// Without credentials.
    pub(super) url: String,
    pub(super) config: RemoteWriteConfig,
    external_labels: Labels,
    pub(super) db: Arc<Db>,
    pub(super) database: String,
    pub(super) network: NetworkPlatform,
    pub(super) client: Client,
    pub(super) reader: Arc<Mutex<Reader>>,
    pub(super) counts: Counts,
    /// Everything up to this sequence id was sent or refused.
    done_through: AtomicU64,
    /// Everything up to this sequence id that is in no round under way was read and not wanted.
    pub(super) skipped_through: AtomicU64,
    pub(super) rounds_under_way: AtomicU64,
    /// Requests that failed and are sent again after a pause.
    pub(super) requests_waiting: AtomicU64,
    saved_through: AtomicU64,
    saved_at_ns: AtomicU64,
    pub(super) written: Notify,
    /// Why the last request failed; empty if it did not.
    last_error: Mutex<String>,
    /// Why the last gap was not sent as a whole that was not; empty if all were.
    gap_error: Mutex<String>,
    stop: watch::Sender<bool>,
}

impl CommitListener for Queue {
    fn committed(&self) {
        self.written.notify_one();
    }
}

impl Queue {
    /// Begins to send what is written from now on, or where it was before.
    pub(super) fn start(name: &str, config: &RemoteWriteConfig, external_labels: &Labels, of: &Forwarder) -> Arc<Self> {
        let Forwarder { network, db, database, .. } = of;
        let reader = Reader::new(&format!("{CURSOR_PREFIX}{name}"), database, config, external_labels, db);
        let queue = Arc::new(Self {
            name: name.to_owned(),
            url: without_credentials(&config.url),
            config: config.clone(),
            external_labels: external_labels.clone(),
            db: db.clone(),
            database: database.clone(),
            network: network.clone(),
            client: Client::new(network, &config.http),
            reader: Arc::new(Mutex::new(reader)),
            counts: Counts::default(),
            done_through: AtomicU64::new(0),
            skipped_through: AtomicU64::new(0),
            rounds_under_way: AtomicU64::new(0),
            requests_waiting: AtomicU64::new(0),
            saved_through: AtomicU64::new(0),
            saved_at_ns: AtomicU64::new(network.platform.clock.monotonic_ns()),
            written: Notify::new(),
            last_error: Mutex::default(),
            gap_error: Mutex::default(),
            stop: watch::Sender::new(false),
        });
        let as_listener: Arc<dyn CommitListener> = queue.clone();
        db.listen_to_commits(Arc::downgrade(&as_listener));
        let sends_metadata = config.version == 1 && config.metadata_interval_ms.is_some();
        queue.spawn(|queue| Box::pin(queue.run()));
        if sends_metadata {
            queue.spawn(|queue| Box::pin(queue.send_metadata_again_and_again()));
        }
        queue
    }

    fn spawn(self: &Arc<Self>, task: impl FnOnce(Arc<Self>) -> platform::network::BoxFuture<'static, ()>) {
        let mut stopped = self.stop.subscribe();
        let running = task(self.clone());
        self.network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = running => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
    }

    /// Returns whether a configuration is the one it has.
    pub(super) fn is_of(&self, config: &RemoteWriteConfig, external_labels: &Labels) -> bool {
        self.config == *config && self.external_labels == *external_labels
    }

    /// Notes why a request failed, or that it did not.
    pub(super) fn note_error(&self, reason: &str) {
        reason.clone_into(&mut self.last_error.lock());
    }

    /// Notes that a gap was not sent as a whole, and why.
    pub(super) fn note_failed_gap(&self, reason: String) {
        self.counts.gaps_failed.fetch_add(1, Ordering::Relaxed);
        *self.gap_error.lock() = reason;
    }

    /// Why the last request failed, if it did; else why a gap was not sent as a whole.
    pub(super) fn last_error(&self) -> Option<String> {
        let reasons = [self.last_error.lock().clone(), self.gap_error.lock().clone()];
        reasons.into_iter().find(|reason| !reason.is_empty())
    }

    /// Ends, and saves its position.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
        // What was sent since the last time is sent again if this fails.
        let _ = self.save();
    }

    async fn run(self: Arc<Self>) {
        let mut lanes = Lanes::new(next_shards(&self.config.queue, 0, 1));
        self.counts.shards.store(lanes.count(), Ordering::Relaxed);
        loop {
            let count = lanes.count();
            match self.while_sending(&mut lanes, self.collect(count)).await {
                Round::Items(round) => {
                    let items = round.items.len() as u64;
                    self.enqueue(&mut lanes, round).await;
                    self.resize(&mut lanes, items).await;
                }
                Round::Gap(gap) => {
                    self.counts.gaps.fetch_add(1, Ordering::Relaxed);
                    self.fill(gap, &mut lanes).await;
                }
            }
        }
    }

    pub(super) async fn send_part(self: &Arc<Self>, mut part: Vec<Item>) {
        let most = self.config.queue.samples_per_send_max.max(1) as usize;
        while !part.is_empty() {
            let rest = part.split_off(part.len().min(most));
            self.send_batch(Arc::new(std::mem::replace(&mut part, rest))).await;
        }
    }

    /// Notes that everything up to a sequence id was sent or refused.
    fn note_done(&self, through: u64) {
        self.done_through.fetch_max(through, Ordering::Relaxed);
    }

    /// Notes that everything up to a sequence id was read, and that there is nothing to send but rounds that are under way.
    pub(super) fn note_skipped(&self, through: u64) {
        self.skipped_through.fetch_max(through, Ordering::Relaxed);
        if self.rounds_under_way.load(Ordering::Relaxed) == 0 {
            self.note_done(through);
        }
    }

    pub(super) async fn done(self: &Arc<Self>, through: u64) {
        self.note_done(through);
        let now_ns = self.network.platform.clock.monotonic_ns();
        if now_ns.saturating_sub(self.saved_at_ns.load(Ordering::Relaxed)) >= SAVE_MS * 1_000_000 {
            self.save_off_network().await;
        }
    }

    /// Returns whether something was done since the position was saved.
    pub(super) fn is_unsaved(&self) -> bool {
        self.done_through.load(Ordering::Relaxed) > self.saved_through.load(Ordering::Relaxed)
    }

    pub(super) async fn save_off_network(self: &Arc<Self>) {
        self.saved_at_ns.store(self.network.platform.clock.monotonic_ns(), Ordering::Relaxed);
        let own = self.clone();
        // A full disk, say: it is tried again later.
        compute(&self.network.tasks, move || own.save().is_ok()).await;
    }

    fn save(&self) -> Result<(), db::StoreError> {
        let through = self.done_through.load(Ordering::Relaxed);
        if through > self.saved_through.load(Ordering::Relaxed) {
            self.db.save_log_cursor(&format!("{CURSOR_PREFIX}{}", self.name), through)?;
            self.saved_through.fetch_max(through, Ordering::Relaxed);
        }
        Ok(())
    }
}

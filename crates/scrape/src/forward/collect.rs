//! What goes into a round: read off the log until there is enough, or until the oldest has waited long enough.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use db::{Db, LogCursor, LogGap, LogLease, LogRead};
use model::MetricMetadata;
use platform::network::compute;

use super::batch::Families;
use super::lanes::NewRound;
use super::outgoing::{Item, Outgoing};
use super::queue::{Queue, SAVE_MS};
use crate::config::RemoteWriteConfig;
use relabel::Labels;

/// The pause after the log could not be read: there was no memory, say.
const ERROR_PAUSE_MS: u64 = 1_000;

const NS_PER_MS: u64 = 1_000_000;

/// A round.
pub(super) enum Round {
    /// Items of records.
    Items(NewRound),
    /// The log does not hold records any more.
    Gap(LogGap),
}

/// Reads the log for one receiver.
pub(super) struct Reader {
    db: Arc<Db>,
    database: String,
    cursor_name: String,
    cursor: Option<LogCursor>,
    pub(super) outgoing: Outgoing,
    /// Comes after the round under way.
    next_gap: Option<LogGap>,
    pub(super) families: Arc<Families>,
    /// True if they are sent with the samples.
    has_families: bool,
}

/// What reading on gave.
enum Progress {
    Items(Vec<Item>, LogLease),
    Gap(LogGap),
    End,
}

/// What one attempt to read gave.
struct ReadResult {
    progress: Result<Progress, String>,
    /// Records up to this sequence id were read.
    through: u64,
    dropped: u64,
}

impl Reader {
    pub(super) fn new(
        cursor_name: &str,
        database: &str,
        config: &RemoteWriteConfig,
        external_labels: &Labels,
        db: &Arc<Db>,
    ) -> Self {
        // Opened here, so that what is written from now on is sent; where that fails it is tried again.
        let cursor = db.log_cursor(cursor_name, Some(database)).ok();
        Self {
            outgoing: Outgoing::new(config, external_labels, db.query_memory().tenant()),
            db: db.clone(),
            database: database.to_owned(),
            cursor_name: cursor_name.to_owned(),
            cursor,
            next_gap: None,
            families: Arc::default(),
            has_families: config.version == 2 && config.metadata_interval_ms.is_some(),
        }
    }

    fn read(&mut self) -> ReadResult {
        let progress = self.read_on();
        let through = self.cursor.as_ref().map_or(0, LogCursor::sequence);
        ReadResult { progress, through, dropped: std::mem::take(&mut self.outgoing.dropped) }
    }

    fn read_on(&mut self) -> Result<Progress, String> {
        if let Some(gap) = self.next_gap.take() {
            return Ok(Progress::Gap(gap));
        }
        if self.cursor.is_none() {
            let opened = self.db.log_cursor(&self.cursor_name, Some(&self.database));
            self.cursor = Some(opened.map_err(|error| error.to_string())?);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(Progress::End) };
        let read = cursor.read().map_err(|error| error.to_string())?;
        if cursor.take_new_catalog() && self.has_families {
            self.look_up_families();
        }
        match read {
            LogRead::End => Ok(Progress::End),
            LogRead::Gap(gap) => Ok(Progress::Gap(gap)),
            LogRead::Records(batch) => {
                let mut items = Vec::new();
                batch.records.iter().for_each(|record| self.outgoing.push_record(record, &mut items));
                Ok(Progress::Items(items, batch.memory))
            }
        }
    }

    /// Looks up what metric families are about.
    fn look_up_families(&mut self) {
        let found = metadata(&self.db, &self.database).unwrap_or_default();
        let by_name: HashMap<_, _> = found.into_iter().map(|about| (about.family.clone(), about)).collect();
        self.families = Arc::new(by_name);
    }
}

/// What clients and targets said of metric families.
pub(super) fn metadata(db: &Db, database: &str) -> Result<Vec<MetricMetadata>, String> {
    db.metadata(database, None, &db.budget(0)).map_err(|error| error.to_string())
}

impl Queue {
    /// Waits until there is something to send.
    pub(super) async fn collect(self: &Arc<Self>, shards: u64) -> Round {
        let wanted = self.config.queue.samples_per_send_max.saturating_mul(shards) as usize;
        let (mut items, mut memory, mut through) = (Vec::new(), Vec::new(), 0);
        let mut deadline_ns: Option<u64> = None;
        loop {
            let ReadResult { progress, through: read_through, dropped } = self.read().await;
            self.counts.dropped_by_relabelling.fetch_add(dropped, Ordering::Relaxed);
            match progress {
                Ok(Progress::Gap(gap)) if items.is_empty() => return Round::Gap(gap),
                Ok(Progress::Gap(gap)) => {
                    self.reader.lock().next_gap = Some(gap);
                    return Round::Items(NewRound { items, memory, through });
                }
                Ok(Progress::Items(more, lease)) => {
                    through = read_through;
                    let highest_ms = more.iter().map(|item| item.time_ms).max().unwrap_or(i64::MIN);
                    self.counts.highest_read_ms.fetch_max(highest_ms, Ordering::Relaxed);
                    if !more.is_empty() {
                        items.extend(more);
                        memory.push(lease);
                    }
                }
                Ok(Progress::End) if items.is_empty() => self.idle(read_through).await,
                Ok(Progress::End) => {
                    through = read_through;
                    if self.wait_until(deadline_ns).await {
                        return Round::Items(NewRound { items, memory, through });
                    }
                }
                Err(_) => {
                    self.counts.read_errors.fetch_add(1, Ordering::Relaxed);
                    if !items.is_empty() {
                        return Round::Items(NewRound { items, memory, through });
                    }
                    self.network.tasks.sleep_ms(ERROR_PAUSE_MS).await;
                }
            }
            self.counts.collecting.store(items.len() as u64, Ordering::Relaxed);
            if items.len() >= wanted.min(self.capacity(shards)) {
                return Round::Items(NewRound { items, memory, through });
            }
            if !items.is_empty() {
                deadline_ns = deadline_ns.or_else(|| Some(self.deadline_ns()));
            }
        }
    }

    /// When a request goes off that begins to fill now.
    fn deadline_ns(&self) -> u64 {
        let wait_ms = self.config.queue.batch_deadline_ms;
        self.network.platform.clock.monotonic_ns() + wait_ms.saturating_mul(NS_PER_MS)
    }

    fn capacity(&self, shards: u64) -> usize {
        self.config.queue.capacity.max(1).saturating_mul(shards) as usize
    }

    async fn read(self: &Arc<Self>) -> ReadResult {
        let reader = self.reader.clone();
        let read = compute(&self.network.tasks, move || reader.lock().read()).await;
        read.unwrap_or_else(|| ReadResult {
            progress: Err("reading the log stopped short".to_owned()),
            through: 0,
            dropped: 0,
        })
    }

    /// Waits for more to be written. What was read and not wanted counts as done.
    async fn idle(self: &Arc<Self>, through: u64) {
        self.note_skipped(through);
        if !self.is_unsaved() {
            return self.written.notified().await;
        }
        tokio::select! {
            () = self.written.notified() => {}
            () = self.network.tasks.sleep_ms(SAVE_MS) => self.save_off_network().await,
        }
    }

    /// Waits for more to be written, or until a time; returns whether that has come.
    async fn wait_until(&self, deadline_ns: Option<u64>) -> bool {
        let now_ns = self.network.platform.clock.monotonic_ns();
        let left_ns = deadline_ns.unwrap_or(now_ns).saturating_sub(now_ns);
        if left_ns == 0 {
            return true;
        }
        tokio::select! {
            () = self.written.notified() => false,
            () = self.network.tasks.sleep_ms(left_ns.div_ceil(NS_PER_MS)) => true,
        }
    }
}

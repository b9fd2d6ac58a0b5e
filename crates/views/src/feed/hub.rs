//! The reader of a database's log, and the batches that it read last. Slow members do not hold it up: they lose their place.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use db::{CommitListener, Db, LogCursor, LogLease, LogRead, LogRecord};
use parking_lot::Mutex;
use platform::network::compute;
use tokio::sync::{Notify, watch};

use super::{ERROR_PAUSE_MS, Feed};

/// Bytes of memory that the batches of a hub may take; with little memory, a share of it.
const BATCHES_BYTES_MAX: u64 = 16 << 20;
const BATCHES_SHARE: u64 = 16;

/// Bytes of batches that every member has that stay for new ones.
const SPARE_BATCHES_BYTES: u64 = 1 << 20;

/// Records that were read together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// In order of sequence ids.
    pub(crate) records: Vec<LogRecord>,
    /// Sequence id of the last record that was read.
    pub(crate) last_sequence: u64,
    /// Their memory.
    pub(super) memory: LogLease,
}

/// What a hub has for a member.
pub(super) enum HubStep {
    Batch(Arc<Batch>),
    /// Nothing more, up to this sequence id.
    CaughtUp(u64),
    /// The member was too slow: what comes next for it is gone.
    Overrun,
}

#[derive(Default)]
struct HubState {
    /// Numbered one after the other.
    batches: VecDeque<Arc<Batch>>,
    bytes: u64,
    /// Number of the first batch.
    first: u64,
    /// The records before the first batch go up to this sequence id.
    before_first: u64,
    /// Everything up to this sequence id was read.
    position: u64,
    /// The number of the batch that comes next for each.
    members: BTreeMap<u64, u64>,
    next_member: u64,
}

impl HubState {
    fn drop_first(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= batch.memory.bytes();
            self.before_first = batch.last_sequence;
            self.first += 1;
        }
    }

    /// Lets go of batches that every member has, and of those beyond a number of bytes. The newest stays for those who have all before it, whatever it takes.
    fn trim(&mut self, bytes_max: u64) {
        let slowest = self.members.values().min().copied().unwrap_or(u64::MAX);
        while self.bytes > bytes_max && self.batches.len() > 1
            || self.bytes > SPARE_BATCHES_BYTES && self.first < slowest
        {
            if self.batches.is_empty() {
                return;
            }
            self.drop_first();
        }
    }
}

/// The reader of a database's log.
pub(super) struct Hub {
    database: String,
    bytes_max: u64,
    cursor: Mutex<Option<LogCursor>>,
    state: Mutex<HubState>,
    written: Notify,
    /// Changes whenever there is more, or less.
    changes: watch::Sender<u64>,
}

impl CommitListener for Hub {
    fn committed(&self) {
        self.written.notify_one();
    }
}

impl Hub {
    pub(super) fn new(db: &Db, database: &str, sequence: u64) -> Self {
        let state = HubState { before_first: sequence, position: sequence, ..HubState::default() };
        Self {
            database: database.to_owned(),
            bytes_max: (db.query_memory().bytes_max / BATCHES_SHARE).min(BATCHES_BYTES_MAX),
            cursor: Mutex::new(Some(db.log_reader(database, sequence))),
            state: Mutex::new(state),
            written: Notify::new(),
            changes: watch::Sender::new(0),
        }
    }

    pub(super) fn database(&self) -> &str {
        &self.database
    }

    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().members.is_empty()
    }

    /// Joins with what comes after a sequence id, if it is there.
    pub(super) fn join(self: &Arc<Self>, sequence: u64) -> Option<Member> {
        let mut state = self.state.lock();
        if state.before_first > sequence {
            return None;
        }
        let before = state.batches.iter().take_while(|batch| batch.last_sequence <= sequence).count();
        let (id, next) = (state.next_member, state.first + before as u64);
        state.next_member += 1;
        state.members.insert(id, next);
        drop(state);
        self.written.notify_one();
        Some(Member { hub: self.clone(), id, changes: self.changes.subscribe() })
    }

    /// Reads as long as there are members.
    pub(super) async fn run(self: Arc<Self>, feed: &Arc<Feed>) {
        loop {
            if feed.remove_if_empty(&self) {
                return;
            }
            let own = self.clone();
            match compute(&feed.network.tasks, move || own.read()).await {
                Some(Ok(true)) => {}
                Some(Ok(false)) => self.written.notified().await,
                _ => {
                    feed.note_read_error();
                    feed.network.tasks.sleep_ms(ERROR_PAUSE_MS).await;
                }
            }
        }
    }

    /// Reads on; returns whether there may be more.
    fn read(&self) -> Result<bool, db::StoreError> {
        let mut cursor = self.cursor.lock();
        let Some(cursor) = cursor.as_mut() else { return Ok(false) };
        let read = cursor.read()?;
        let mut state = self.state.lock();
        state.position = cursor.sequence();
        let has_more = match read {
            LogRead::End => false,
            LogRead::Gap(_) => {
                // Members find out by themselves what is missing.
                while !state.batches.is_empty() {
                    state.drop_first();
                }
                state.first += 1;
                state.before_first = state.position;
                true
            }
            LogRead::Records(batch) => {
                state.bytes += batch.memory.bytes();
                let (records, last_sequence, memory) = (batch.records, batch.last_sequence, batch.memory);
                state.batches.push_back(Arc::new(Batch { records, last_sequence, memory }));
                state.trim(self.bytes_max);
                true
            }
        };
        drop(state);
        self.changes.send_modify(|changes| *changes += 1);
        Ok(has_more)
    }
}

/// One that follows a hub.
pub(super) struct Member {
    hub: Arc<Hub>,
    id: u64,
    changes: watch::Receiver<u64>,
}

impl Member {
    /// What comes next.
    pub(super) fn step(&mut self) -> HubStep {
        self.changes.mark_unchanged();
        let mut state = self.hub.state.lock();
        let next = state.members.get(&self.id).copied().unwrap_or_default();
        let Some(index) = next.checked_sub(state.first) else { return HubStep::Overrun };
        let Some(batch) = state.batches.get(index as usize).cloned() else { return HubStep::CaughtUp(state.position) };
        state.members.insert(self.id, next + 1);
        HubStep::Batch(batch)
    }

    /// Returns whether it has lost its place.
    pub(super) fn is_overrun(&self) -> bool {
        let state = self.hub.state.lock();
        state.members.get(&self.id).is_none_or(|next| *next < state.first)
    }

    /// Waits until there is more, or less.
    pub(super) async fn changed(&mut self) {
        // The hub is there as long as its members.
        let _ = self.changes.changed().await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.hub.state.lock().members.remove(&self.id);
        self.hub.written.notify_one();
    }
}

//! One reader of the log for everything that follows a database: streams, triggers, subscriptions.
//!
//! ```text
//! log ──► hub of a database: batches of the last records ──► follower: what comes after its own sequence id
//!   └──────── a follower that is behind reads by itself until the hub has what comes next ────────┘
//! ```
//!
//! * this file: hubs, and who joins them · [`hub`]: the reader and its batches · [`follower`]: a position in what is written

mod follower;
mod hub;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use db::{CommitListener, Db};
use parking_lot::Mutex;
use platform::network::NetworkPlatform;
use tokio::sync::watch;

pub(crate) use follower::{Follower, Step, WhenOverrun};
pub(crate) use hub::Batch;
use hub::{Hub, Member};

/// The pause after the log could not be read: there was no memory, say.
pub(crate) const ERROR_PAUSE_MS: u64 = 1_000;

/// What all followers share.
pub(crate) struct Feed {
    pub(crate) db: Arc<Db>,
    pub(crate) network: NetworkPlatform,
    hubs: Mutex<BTreeMap<String, Arc<Hub>>>,
    read_errors: AtomicU64,
    stop: watch::Sender<bool>,
}

impl Feed {
    pub(crate) fn new(db: Arc<Db>, network: NetworkPlatform) -> Arc<Self> {
        let stop = watch::Sender::new(false);
        Arc::new(Self { db, network, hubs: Mutex::default(), read_errors: AtomicU64::new(0), stop })
    }

    /// Joins the hub of a database, with what comes after a sequence id. `None` if the hub does not have that any more: its reader is ahead.
    fn join(self: &Arc<Self>, database: &str, sequence: u64) -> Option<Member> {
        let mut hubs = self.hubs.lock();
        if let Some(hub) = hubs.get(database) {
            return hub.join(sequence);
        }
        let hub = Arc::new(Hub::new(&self.db, database, sequence));
        let listener: Arc<dyn CommitListener> = hub.clone();
        self.db.listen_to_commits(Arc::downgrade(&listener));
        hubs.insert(database.to_owned(), hub.clone());
        let member = hub.join(sequence);
        let (feed, mut stopped) = (self.clone(), self.stop.subscribe());
        self.network.tasks.spawn(Box::pin(async move {
            tokio::select! {
                () = hub.run(&feed) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        }));
        member
    }

    /// Removes a hub that has no members; returns whether it is gone.
    fn remove_if_empty(&self, hub: &Arc<Hub>) -> bool {
        let mut hubs = self.hubs.lock();
        let is_empty = hub.is_empty();
        if is_empty && hubs.get(hub.database()).is_some_and(|current| Arc::ptr_eq(current, hub)) {
            hubs.remove(hub.database());
        }
        is_empty
    }

    /// Hubs that read at present.
    pub(crate) fn hubs(&self) -> usize {
        self.hubs.lock().len()
    }

    fn note_read_error(&self) {
        self.read_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the log could not be read.
    pub(crate) fn read_errors(&self) -> u64 {
        self.read_errors.load(Ordering::Relaxed)
    }

    /// Becomes true when everything that follows is to end.
    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Ends all that follows.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

//! What the disk has to do with the folder's health: how much room there is, and whether writes are refused.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use platform::{DiskSpace, Platform};
use store::{CheckStatus, Store, StoreError};

/// How often the disk is looked at.
const LOOK_EVERY_NS: u64 = 5_000_000_000;

/// A disk is nearly full below the smaller of these: a share of it, and bytes.
const NEARLY_FULL_SHARE: u64 = 20;
const NEARLY_FULL_BYTES: u64 = 1 << 30;

/// Free bytes from which on writes may be tried again that a full disk refused.
const TRY_AGAIN_BYTES: u64 = 8 << 20;

/// Why no row can be written at present.
const DISK_FULL: &str = "the disk is full, writes are refused: make room, shorten a retention, or delete and compact";

/// Looks at the disk now and then.
pub(crate) struct Watch {
    platform: Platform,
    store: Arc<Store>,
    state: Mutex<State>,
    /// A write was refused for want of room, and none was taken since.
    is_full: AtomicBool,
}

#[derive(Default)]
struct State {
    next_look_ns: u64,
    space: Option<DiskSpace>,
    is_nearly_full: bool,
}

impl Watch {
    pub(crate) fn new(platform: &Platform, store: &Arc<Store>) -> Self {
        let watch = Self {
            platform: platform.clone(),
            store: store.clone(),
            state: Mutex::default(),
            is_full: AtomicBool::new(false),
        };
        watch.look();
        watch
    }

    /// The room of the folder's disk when it was looked at last.
    pub(crate) fn space(&self) -> Option<DiskSpace> {
        self.state.lock().space
    }

    /// Why writes are refused at present, if they are.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self.store.check_writable() {
            Err(error) => Some(error.to_string()),
            Ok(()) => self.is_full.load(Ordering::Relaxed).then(|| DISK_FULL.to_owned()),
        }
    }

    /// Takes note of how a write went.
    pub(crate) fn note(&self, error: Option<&StoreError>) {
        let was_full = self.is_full.load(Ordering::Relaxed);
        let is_full = match error {
            None => false,
            Some(StoreError::Io { error, .. }) => {
                was_full || matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
            }
            Some(_) => was_full,
        };
        self.is_full.store(is_full, Ordering::Relaxed);
        if is_full != was_full || error.is_some_and(|error| !matches!(error, StoreError::Invalid(_))) {
            self.tell();
        }
    }

    /// The work of a background thread: looks if it is time to.
    pub(crate) fn work(&self) {
        if self.platform.clock.monotonic_ns() >= self.state.lock().next_look_ns {
            self.look();
        }
    }

    fn look(&self) {
        let space = self.platform.files.disk_space(self.store.directory()).ok();
        let mut state = self.state.lock();
        state.next_look_ns = self.platform.clock.monotonic_ns() + LOOK_EVERY_NS;
        state.space = space;
        state.is_nearly_full = space.is_some_and(|space| is_nearly_full(space, state.is_nearly_full));
        let warning = state.space.filter(|_| state.is_nearly_full).map(|space| {
            let (free_mb, size_mb) = (space.free_bytes >> 20, space.size_bytes >> 20);
            let message = format!(
                "the disk of the data folder is nearly full: {free_mb} of {size_mb} MiB are free; make room, or shorten a retention"
            );
            (CheckStatus::Warn, message)
        });
        drop(state);
        self.store.health().set("disk", warning);
        if space.is_some_and(|space| space.free_bytes >= TRY_AGAIN_BYTES) {
            self.is_full.store(false, Ordering::Relaxed);
        }
        self.tell();
    }

    fn tell(&self) {
        // A log that refuses everything takes writes again once the folder is opened anew; a full disk is full after a restart, too.
        let status = if self.store.check_writable().is_err() { CheckStatus::Fail } else { CheckStatus::Warn };
        self.store.health().set("writes", self.refusal().map(|message| (status, message)));
    }
}

/// Returns whether a disk is nearly full; one that was has to have half as much again before it is not.
fn is_nearly_full(space: DiskSpace, was: bool) -> bool {
    let limit_bytes = (space.size_bytes / NEARLY_FULL_SHARE).min(NEARLY_FULL_BYTES);
    space.free_bytes < if was { limit_bytes + limit_bytes / 2 } else { limit_bytes }
}

#[cfg(test)]
mod tests {
    use platform::sim::Simulation;
    use store::StoreOptions;

    use super::*;

    #[test]
    fn a_disk_is_nearly_full_below_a_twentieth_or_a_gibibyte() {
        let nearly = |free_bytes, size_bytes, was| is_nearly_full(DiskSpace { free_bytes, size_bytes }, was);
        assert!(nearly(4, 100, false) && !nearly(5, 100, false));
        assert!(nearly(6, 100, true) && !nearly(7, 100, true));
        assert!(nearly((1 << 30) - 1, 1 << 50, false) && !nearly(1 << 30, 1 << 50, false));
    }

    #[test]
    fn a_log_that_takes_no_more_writes_fails_the_check() {
        let simulation = Simulation::new(2);
        let platform = simulation.platform();
        let store = Arc::new(Store::open(platform.clone(), StoreOptions::new("data")).unwrap());
        let watch = Watch::new(&platform, &store);
        let status = || store.health().checks().iter().find(|check| check.name == "writes").map(|check| check.status);
        watch.look();
        assert_eq!(status(), None);
        let policy = store::DatabasePolicy { retention_ns: 7, ..Default::default() };
        store.set_policy("one", &policy).unwrap();
        simulation.fail_syncs_after(0);
        // The name of a new database goes through the log.
        assert!(store.set_policy("another", &policy).is_err());
        watch.look();
        assert_eq!(status(), Some(CheckStatus::Fail));
        assert!(watch.refusal().unwrap().contains("until the data folder is opened again"));
        // A restart helps.
        drop((watch, store));
        simulation.crash();
        let store = Arc::new(Store::open(simulation.platform(), StoreOptions::new("data")).unwrap());
        let watch = Watch::new(&simulation.platform(), &store);
        assert_eq!((watch.refusal(), store.health().checks()), (None, Vec::new()));
    }

    #[test]
    fn a_full_disk_is_told_until_there_is_room() {
        let simulation = Simulation::new(1);
        let platform = simulation.platform();
        let store = Arc::new(Store::open(platform.clone(), StoreOptions::new("data")).unwrap());
        let watch = Watch::new(&platform, &store);
        assert_eq!(watch.refusal(), None);
        let names = || store.health().checks().iter().map(|check| check.name).collect::<Vec<_>>();
        simulation.limit_room(Some(100));
        let full = io::Error::from(io::ErrorKind::StorageFull);
        watch.note(Some(&StoreError::Io { action: "write".to_owned(), error: full }));
        watch.look();
        assert!(watch.refusal().unwrap().contains("disk is full"));
        assert_eq!(names(), ["disk", "writes"]);
        assert_eq!(watch.space().unwrap().free_bytes, 0);
        watch.note(Some(&StoreError::Invalid("a row".to_owned())));
        assert!(watch.refusal().is_some(), "says nothing of the disk");
        simulation.limit_room(None);
        watch.look();
        assert_eq!((watch.refusal(), names()), (None, Vec::new()));
    }
}

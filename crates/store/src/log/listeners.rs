//! Callbacks for commits of the log.

use std::sync::Weak;

use parking_lot::Mutex;

/// Is called when more of the log is on disk.
pub trait CommitListener: Send + Sync {
    /// More is on disk. Must return at once: a writer waits.
    fn committed(&self);
}

/// The listeners of a log, as long as each is there.
#[derive(Default)]
pub(super) struct Listeners(Mutex<Vec<Weak<dyn CommitListener>>>);

impl Listeners {
    pub(super) fn add(&self, listener: Weak<dyn CommitListener>) {
        self.0.lock().push(listener);
    }

    pub(super) fn call(&self) {
        self.0.lock().retain(|listener| listener.upgrade().inspect(|listener| listener.committed()).is_some());
    }
}

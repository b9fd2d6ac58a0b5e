//! Clients that wait for samples of a key (`TS.READ … BLOCK`). No thread waits with them: the server polls, and runs the request again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::CommandError;

/// Says that samples of a key were written.
#[derive(Debug, Default)]
struct Signal(Mutex<(bool, Option<Waker>)>);

impl Signal {
    fn set(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if std::mem::take(&mut state.0) {
            return Poll::Ready(());
        }
        state.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The clients that wait for samples of the keys of a database.
#[derive(Debug)]
pub(crate) struct Waiters {
    by_key: Mutex<HashMap<Arc<str>, Vec<Arc<Signal>>>>,
    /// How many there are.
    count: AtomicUsize,
    /// How many there are of all databases.
    all: Arc<AtomicUsize>,
}

impl Waiters {
    pub(crate) fn new(all: Arc<AtomicUsize>) -> Self {
        Self { by_key: Mutex::default(), count: AtomicUsize::new(0), all }
    }

    /// Returns whether no client waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Wakes the clients that wait for samples of a key.
    pub(crate) fn wake(&self, key: &str) {
        if let Some(signals) = self.by_key.lock().get(key) {
            signals.iter().for_each(|signal| signal.set());
        }
    }

    /// One client more, until a time of the monotonic clock. What is written from now on wakes it.
    pub(crate) fn add(self: &Arc<Self>, key: &str, until_ns: u64, most: usize) -> Result<Waiting, CommandError> {
        let add = |all: usize| Some(all + 1).filter(|all| *all <= most);
        self.all.try_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| {
            CommandError::other(format!(
                "TSDB: {most} clients wait for samples already (waiting_max): ask again without BLOCK"
            ))
        })?;
        self.count.fetch_add(1, Ordering::Relaxed);
        let (key, signal): (Arc<str>, _) = (key.into(), Arc::new(Signal::default()));
        self.by_key.lock().entry(key.clone()).or_default().push(signal.clone());
        Ok(Waiting { waiters: self.clone(), key, signal, until_ns, from_ms: None, done: 0 })
    }
}

/// A client that waits, until it is dropped.
#[derive(Debug)]
pub struct Waiting {
    waiters: Arc<Waiters>,
    key: Arc<str>,
    signal: Arc<Signal>,
    until_ns: u64,
    /// The time of the first sample that it waits for, milliseconds; `None` until the cursor was looked at.
    pub(super) from_ms: Option<i64>,
    /// Requests of the last run that are done.
    pub(super) done: usize,
}

impl Waiting {
    /// How many requests of the last run are done. The others, the one that waits first, are to be run once samples were written, or at the end.
    pub const fn done(&self) -> usize {
        self.done
    }

    /// When it ends, by the monotonic clock; never: the largest.
    pub const fn until_ns(&self) -> u64 {
        self.until_ns
    }

    /// Waits for samples that this protocol writes. That others were written the caller sees by the log's sequence id.
    pub fn poll_written(&self, context: &Context<'_>) -> Poll<()> {
        self.signal.poll(context)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut by_key = self.waiters.by_key.lock();
        if let Some(signals) = by_key.get_mut(&self.key) {
            signals.retain(|signal| !Arc::ptr_eq(signal, &self.signal));
            if signals.is_empty() {
                by_key.remove(&self.key);
            }
        }
        drop(by_key);
        self.waiters.count.fetch_sub(1, Ordering::Relaxed);
        self.waiters.all.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_woken_once_and_forgotten_when_they_go() {
        let all = Arc::new(AtomicUsize::new(0));
        let waiters = Arc::new(Waiters::new(all.clone()));
        let context = Context::from_waker(Waker::noop());
        let (one, other) = (waiters.add("a", 1, 2).unwrap(), waiters.add("b", 1, 2).unwrap());
        assert!(waiters.add("a", 1, 2).is_err());
        waiters.wake("a");
        assert!(one.poll_written(&context).is_ready() && one.poll_written(&context).is_pending());
        assert!(other.poll_written(&context).is_pending());
        drop(one);
        waiters.wake("a");
        assert!(!waiters.is_empty());
        drop(other);
        assert!(waiters.is_empty() && waiters.by_key.lock().is_empty());
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}

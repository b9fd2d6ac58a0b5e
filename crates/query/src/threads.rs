//! Threads that help with a query's reading.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::QueryError;

/// Samples that a query reads by itself before it asks for help: starting a thread costs as much as some ten thousand.
const SAMPLES_ALONE: u64 = 50_000;

/// How many threads may help running queries, all together. A query's own thread always works; it gets the helpers that are
/// free when it turns out to be long.
#[derive(Debug)]
pub struct Helpers {
    free: AtomicUsize,
}

/// Helpers that were given, free again when dropped.
struct Lent<'h> {
    helpers: &'h Helpers,
    count: usize,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.helpers.free.fetch_add(self.count, Ordering::AcqRel);
    }
}

/// Numbered pieces of work that threads take one after the other.
struct Queue<'w> {
    next: AtomicUsize,
    count: usize,
    samples: AtomicU64,
    failed: AtomicBool,
    error: Mutex<Option<QueryError>>,
    work: &'w (dyn Fn(usize) -> Result<u64, QueryError> + Sync),
}

impl Queue<'_> {
    /// Takes pieces until none is left, one fails, or so many samples were read.
    fn work_off(&self, samples_max: u64) {
        while self.samples.load(Ordering::Relaxed) < samples_max && !self.failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return;
            }
            match (self.work)(number) {
                Ok(samples) => {
                    self.samples.fetch_add(samples, Ordering::Relaxed);
                }
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        }
    }

    fn left(&self) -> usize {
        if self.failed.load(Ordering::Relaxed) {
            return 0;
        }
        self.count.saturating_sub(self.next.load(Ordering::Relaxed))
    }
}

impl Helpers {
    /// So many threads; with none, each query works alone.
    pub const fn new(threads: usize) -> Self {
        Self { free: AtomicUsize::new(threads) }
    }

    fn lend(&self, wanted: usize) -> Lent<'_> {
        let take = |free: usize| Some(free - free.min(wanted));
        let before = self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).unwrap_or_default();
        Lent { helpers: self, count: before.min(wanted) }
    }

    /// Does the pieces of work with numbers below `count`, in order but several at once. Each says how many samples it read.
    /// After a failure no further one is begun.
    pub(crate) fn run(
        &self,
        count: usize,
        work: &(dyn Fn(usize) -> Result<u64, QueryError> + Sync),
    ) -> Result<(), QueryError> {
        let (next, samples, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let queue = Queue { next, count, samples, failed, error: Mutex::new(None), work };
        queue.work_off(SAMPLES_ALONE);
        if queue.left() > 0 {
            let lent = self.lend(queue.left() - 1);
            std::thread::scope(|scope| {
                for _ in 0..lent.count {
                    let help = || queue.work_off(u64::MAX);
                    // Without the thread the others do its work.
                    if std::thread::Builder::new().name("query".to_owned()).spawn_scoped(scope, help).is_err() {
                        break;
                    }
                }
                queue.work_off(u64::MAX);
            });
        }
        queue.error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_piece_is_done_once_whoever_helps() {
        for threads in [0, 1, 7] {
            let helpers = Helpers::new(threads);
            let done = Mutex::new(BTreeSet::new());
            let work = |number| {
                assert!(done.lock().unwrap().insert(number));
                Ok(SAMPLES_ALONE / 10)
            };
            helpers.run(100, &work).unwrap();
            assert_eq!(*done.lock().unwrap(), (0..100).collect());
            assert_eq!(helpers.free.load(Ordering::Relaxed), threads);
        }
    }

    #[test]
    fn a_failure_ends_the_work() {
        let helpers = Helpers::new(3);
        let done = AtomicUsize::new(0);
        let work = |number| {
            done.fetch_add(1, Ordering::Relaxed);
            if number == 3 { Err(QueryError::Execution("no".to_owned())) } else { Ok(SAMPLES_ALONE) }
        };
        assert_eq!(helpers.run(1_000_000, &work), Err(QueryError::Execution("no".to_owned())));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}

//! Threads that help with a query's reading.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};

use crate::budget::Joined;
use crate::{Budget, QueryError};

/// Samples that a query reads by itself before it asks for help: starting a thread costs as much as some ten thousand.
const SAMPLES_ALONE: u64 = 50_000;

/// How many threads may help running queries, all together. A query's own thread always works; it gets the helpers that are
/// free once it turned out to have much to read. They stop, between pieces of work, when there are more threads than cores.
/// For queries with a schedule that decides whether one is free.
#[derive(Debug)]
pub struct Helpers {
    all: usize,
    free: AtomicUsize,
}

/// A helper that was given, free again when dropped.
enum Lent<'h> {
    Counted(&'h Helpers),
    Scheduled(Joined<'h>),
}

impl Lent<'_> {
    /// To be called on the helper's thread.
    fn begin(&self) {
        if let Self::Scheduled(joined) = self {
            joined.begin();
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Self::Counted(helpers) = self {
            helpers.free.fetch_add(1, Ordering::AcqRel);
        }
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
    /// Does the next piece. Whether there was one, and nothing failed.
    fn work_one_off(&self) -> bool {
        if self.failed.load(Ordering::Relaxed) {
            return false;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return false;
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
        true
    }

    /// The loop of a helping thread: it takes pieces until none is left or it is to stop.
    fn help(&self, budget: &Budget) {
        while !budget.gives_way() && self.work_one_off() {}
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
        Self { all: threads, free: AtomicUsize::new(threads) }
    }

    /// How many there are, free or not.
    pub const fn all(&self) -> usize {
        self.all
    }

    fn lend<'h>(&'h self, budget: &'h Budget) -> Option<Lent<'h>> {
        if budget.is_scheduled() {
            return if self.all > 0 { budget.join().map(Lent::Scheduled) } else { None };
        }
        let take = |free: usize| free.checked_sub(1);
        self.free.fetch_update(Ordering::AcqRel, Ordering::Acquire, take).ok()?;
        Some(Lent::Counted(self))
    }

    /// Does the pieces of work with numbers below `count`, in order but several at once. Each says how many samples it read.
    /// After a failure no further one is begun.
    pub(crate) fn run(
        &self,
        count: usize,
        budget: &Budget,
        work: &(dyn Fn(usize) -> Result<u64, QueryError> + Sync),
    ) -> Result<(), QueryError> {
        let (next, samples, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let queue = Queue { next, count, samples, failed, error: Mutex::new(None), work };
        while queue.samples.load(Ordering::Relaxed) < SAMPLES_ALONE && queue.work_one_off() {}
        if queue.left() > 0 {
            std::thread::scope(|scope| {
                self.send(&queue, budget, scope);
                while queue.work_one_off() {
                    self.send(&queue, budget, scope);
                }
            });
        }
        queue.error.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Sends the helpers that are free, if there is something for them to do. Without them the query's own thread does the work.
    fn send<'s, 'e>(&'e self, queue: &'e Queue<'e>, budget: &'e Budget, scope: &'s Scope<'s, 'e>) {
        while queue.left() > 1 && !budget.gives_way() {
            let Some(lent) = self.lend(budget) else { break };
            let help = move || {
                lent.begin();
                queue.help(budget);
                drop(lent);
            };
            if Builder::new().name("query".to_owned()).spawn_scoped(scope, help).is_err() {
                break;
            }
        }
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
            helpers.run(100, &Budget::new(0), &work).unwrap();
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
        assert_eq!(helpers.run(1_000_000, &Budget::new(0), &work), Err(QueryError::Execution("no".to_owned())));
        assert!(done.load(Ordering::Relaxed) < 1_000_000);
    }
}

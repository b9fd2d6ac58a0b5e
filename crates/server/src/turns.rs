//! Who goes first when queries want more than the machine has: one that has run for long keeps out of the way of those that have not.
//!
//! ```text
//! each check of a query ──► short yet? goes on
//!                      └──► long: nobody short runs? goes on
//!                               └──► one of LONG places free? takes it, for a slice of time
//!                                        └──► waits, for a moment at most
//! ```
//!
//! Long queries have all cores but one between them while short ones run, and all of them otherwise. Waits are bounded, so that whoever
//! holds a place and waits for somebody without one delays both and stops neither.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use query::Pace;

/// From then on a query counts as long.
const LONG_AFTER: Duration = Duration::from_millis(100);
/// How long a thread keeps a place that others wait for.
const SLICE: Duration = Duration::from_millis(10);
/// A place whose thread has not been seen for so long is free: it has ended, or waits for something else.
const UNSEEN_MAX: Duration = Duration::from_millis(20);
/// No check takes longer.
const WAIT_MAX: Duration = Duration::from_millis(100);
/// Checks between looks at the clock.
const CHECKS: u64 = 8;

/// All queries' turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Queries that run and are not long yet.
    short: AtomicUsize,
    places: Mutex<Places>,
    freed: Condvar,
}

/// What threads of long queries share while short ones run.
#[derive(Debug)]
struct Places {
    count: usize,
    taken: Vec<Taken>,
    waiting: usize,
}

#[derive(Debug)]
struct Taken {
    thread: ThreadId,
    since: Instant,
    seen: Instant,
}

/// One query's.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    started: Instant,
    is_long: AtomicBool,
    checks: AtomicU64,
}

/// Ends a query's turn when it is dropped.
#[derive(Debug)]
pub(crate) struct InTurn(Arc<Turn>);

impl Places {
    /// Whether a thread may go on; it has a place then.
    fn take(&mut self, thread: ThreadId, now: Instant) -> bool {
        self.taken.retain(|taken| now.saturating_duration_since(taken.seen) < UNSEEN_MAX);
        if let Some(place) = self.taken.iter().position(|taken| taken.thread == thread) {
            let is_over = |taken: &Taken| now.saturating_duration_since(taken.since) >= SLICE;
            if self.waiting > 0 && self.taken.get(place).is_some_and(is_over) {
                self.taken.swap_remove(place);
                return false;
            }
            if let Some(taken) = self.taken.get_mut(place) {
                taken.seen = now;
            }
            return true;
        }
        let is_free = self.taken.len() < self.count;
        if is_free {
            self.taken.push(Taken { thread, since: now, seen: now });
        }
        is_free
    }
}

impl Turns {
    pub(crate) fn new(cores: usize) -> Arc<Self> {
        let places = Places { count: cores.saturating_sub(1).max(1), taken: Vec::new(), waiting: 0 };
        Arc::new(Self { short: AtomicUsize::new(0), places: Mutex::new(places), freed: Condvar::new() })
    }

    /// A query begins: what its budget is to keep to, and what ends it.
    pub(crate) fn begin(self: &Arc<Self>) -> (Arc<Turn>, InTurn) {
        self.short.fetch_add(1, Ordering::Relaxed);
        let (turns, started) = (self.clone(), Instant::now());
        let turn = Arc::new(Turn { turns, started, is_long: AtomicBool::new(false), checks: AtomicU64::new(0) });
        (turn.clone(), InTurn(turn))
    }

    fn is_crowded(&self) -> bool {
        self.short.load(Ordering::Relaxed) > 0
    }

    /// Waits for a place among long ones, while short ones run and not for long.
    fn wait(&self) {
        let (thread, begun) = (thread::current().id(), Instant::now());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        while !places.take(thread, Instant::now()) {
            // Whoever has just given a place back is the last to get one.
            self.freed.notify_one();
            if !self.is_crowded() || begun.elapsed() >= WAIT_MAX {
                return;
            }
            places.waiting += 1;
            places = self.freed.wait_timeout(places, SLICE).unwrap_or_else(PoisonError::into_inner).0;
            places.waiting -= 1;
        }
    }
}

impl Turn {
    /// The query is not short any more, or not there.
    fn leave_short(&self) {
        if !self.is_long.swap(true, Ordering::Relaxed) && self.turns.short.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.turns.freed.notify_all();
        }
    }
}

impl Pace for Turn {
    fn go_on(&self) {
        if !self.checks.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHECKS) {
            return;
        }
        if !self.is_long.load(Ordering::Relaxed) {
            if self.started.elapsed() < LONG_AFTER {
                return;
            }
            self.leave_short();
        }
        if self.turns.is_crowded() {
            self.turns.wait();
        }
    }
}

impl Drop for InTurn {
    fn drop(&mut self) {
        self.0.leave_short();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(count: usize) -> Vec<ThreadId> {
        (0..count).map(|_| thread::spawn(|| thread::current().id()).join().unwrap()).collect()
    }

    #[test]
    fn places_go_round() {
        let (threads, begun) = (threads(3), Instant::now());
        let mut places = Places { count: 1, taken: Vec::new(), waiting: 0 };
        let at = |ms: u64| begun + Duration::from_millis(ms);
        assert!(places.take(threads[0], at(0)));
        assert!(!places.take(threads[1], at(1)));
        places.waiting = 1;
        // For a slice; then those who wait come first.
        assert!(places.take(threads[0], at(9)));
        assert!(!places.take(threads[0], at(10)));
        assert!(places.take(threads[1], at(10)));
        assert!(!places.take(threads[0], at(11)));
        // Whoever does not come back loses the place.
        assert!(places.take(threads[2], at(31)));
        // Nobody waits: it may be kept.
        places.waiting = 0;
        assert!(places.take(threads[2], at(45)));
    }

    #[test]
    fn long_queries_wait_for_short_ones_only() {
        let turns = Turns::new(2);
        let (long, long_ends) = turns.begin();
        assert!(turns.is_crowded());
        long.leave_short();
        assert!(!turns.is_crowded());
        let (_, short_ends) = turns.begin();
        assert!(turns.is_crowded());
        drop(short_ends);
        drop(long_ends);
        assert!(!turns.is_crowded());
        assert_eq!(turns.short.load(Ordering::Relaxed), 0);
    }

    /// Two threads of long queries get through, though there is one place and a short query never ends.
    #[test]
    fn all_get_through() {
        let turns = Turns::new(2);
        let (_short, _ends) = turns.begin();
        let long: Vec<_> = (0..4)
            .map(|_| {
                let (turn, ends) = turns.begin();
                turn.leave_short();
                thread::spawn(move || {
                    for _ in 0..20 * CHECKS {
                        turn.go_on();
                    }
                    drop(ends);
                })
            })
            .collect();
        long.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(turns.is_crowded());
    }
}

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

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use platform::Clock;
use query::Pace;

const NS_PER_MS: u64 = 1_000_000;

/// From then on a query counts as long.
const LONG_AFTER_NS: u64 = 100 * NS_PER_MS;
/// How long a thread keeps a place that others wait for.
const SLICE_NS: u64 = 10 * NS_PER_MS;
/// A place whose thread has not been seen for so long is free: it has ended, or waits for something else.
const UNSEEN_NS_MAX: u64 = 20 * NS_PER_MS;
/// No check takes longer.
const WAIT_NS_MAX: u64 = 100 * NS_PER_MS;
/// Checks between looks at the clock.
const CHECKS: u64 = 8;

/// All queries' turns.
pub(crate) struct Turns {
    clock: Arc<dyn Clock>,
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
    since_ns: u64,
    seen_ns: u64,
}

/// One query's.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    started_ns: u64,
    is_long: AtomicBool,
    checks: AtomicU64,
}

impl fmt::Debug for Turn {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Turn").field("is_long", &self.is_long).finish_non_exhaustive()
    }
}

/// Ends a query's turn when it is dropped.
pub(crate) struct InTurn(Arc<Turn>);

impl Places {
    /// Whether a thread may go on; it has a place then.
    fn take(&mut self, thread: ThreadId, now_ns: u64) -> bool {
        self.taken.retain(|taken| now_ns.saturating_sub(taken.seen_ns) < UNSEEN_NS_MAX);
        if let Some(place) = self.taken.iter().position(|taken| taken.thread == thread) {
            let is_over = |taken: &Taken| now_ns.saturating_sub(taken.since_ns) >= SLICE_NS;
            if self.waiting > 0 && self.taken.get(place).is_some_and(is_over) {
                self.taken.swap_remove(place);
                return false;
            }
            if let Some(taken) = self.taken.get_mut(place) {
                taken.seen_ns = now_ns;
            }
            return true;
        }
        let is_free = self.taken.len() < self.count;
        if is_free {
            self.taken.push(Taken { thread, since_ns: now_ns, seen_ns: now_ns });
        }
        is_free
    }
}

impl Turns {
    pub(crate) fn new(cores: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let places = Places { count: cores.saturating_sub(1).max(1), taken: Vec::new(), waiting: 0 };
        Arc::new(Self { clock, short: AtomicUsize::new(0), places: Mutex::new(places), freed: Condvar::new() })
    }

    /// A query begins: what its budget is to keep to, and what ends it.
    pub(crate) fn begin(self: &Arc<Self>) -> (Arc<Turn>, InTurn) {
        self.short.fetch_add(1, Ordering::Relaxed);
        let (turns, started_ns) = (self.clone(), self.clock.monotonic_ns());
        let turn = Arc::new(Turn { turns, started_ns, is_long: AtomicBool::new(false), checks: AtomicU64::new(0) });
        (turn.clone(), InTurn(turn))
    }

    fn is_crowded(&self) -> bool {
        self.short.load(Ordering::Relaxed) > 0
    }

    /// Waits for a place among long ones, while short ones run and not for long.
    fn wait(&self) {
        let (thread, begun_ns) = (thread::current().id(), self.clock.monotonic_ns());
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut now_ns = begun_ns;
        while !places.take(thread, now_ns) {
            // Whoever has just given a place back is the last to get one.
            self.freed.notify_one();
            if !self.is_crowded() || now_ns.saturating_sub(begun_ns) >= WAIT_NS_MAX {
                return;
            }
            places.waiting += 1;
            places = self
                .freed
                .wait_timeout(places, Duration::from_nanos(SLICE_NS))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            places.waiting -= 1;
            now_ns = self.clock.monotonic_ns();
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
            if self.turns.clock.monotonic_ns().saturating_sub(self.started_ns) < LONG_AFTER_NS {
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
        let threads = threads(3);
        let mut places = Places { count: 1, taken: Vec::new(), waiting: 0 };
        let at = |ms: u64| ms * NS_PER_MS;
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
        let turns = Turns::new(2, platform::Platform::real().clock);
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
        let turns = Turns::new(2, platform::Platform::real().clock);
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

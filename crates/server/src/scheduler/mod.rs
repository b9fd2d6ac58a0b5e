//! How much CPU time each query has had, and what follows from it: its threads' priority, its slot, its helpers.
//!
//! ```text
//! each check of a query ──► which level has it come to, by the CPU time of all its threads?
//!                              ├──► the calling thread gets that level's niceness (threads.rs)
//!                              ├──► no light one: it leaves its slot to queries that may be (running.rs)
//!                              └──► helpers join while threads at its level and below leave a core free
//! ```
//!
//! Which thread has a core is the operating system's decision. Without measuring anything beforehand, niceness that grows with the CPU time
//! used comes near to shortest first: least attained service (Nuyens and Wierman, The foreground-background queue, 2008). What counts is CPU
//! time, not the time since a query began: on a busy machine every query takes long. No query waits for another one while it runs.

pub(crate) mod running;
pub(crate) mod tenants;
pub(crate) mod threads;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use platform::Clock;
use query::Schedule;

use crate::scheduler::running::AdmissionPermit;

const NS_PER_MS: u64 = 1_000_000;

/// The CPU time in which a query is at the first level. At each further one it is for twice as much.
const FIRST_LEVEL_NS: u64 = 20 * NS_PER_MS;
const LEVELS: usize = 16;
/// A thread's checks between its looks at the clock.
const CHECKS: u32 = 8;

/// All running queries' threads.
pub(crate) struct Scheduler {
    clock: Arc<dyn Clock>,
    cores: usize,
    /// Threads that work on queries of each level.
    threads: [AtomicUsize; LEVELS],
}

/// The level of a query and its threads, as far as they are counted in [`Scheduler::threads`].
#[derive(Debug)]
struct QueryRank {
    level: usize,
    threads: usize,
}

/// One query's.
pub(crate) struct QuerySchedule {
    scheduler: Arc<Scheduler>,
    /// Among all queries of the process.
    number: u64,
    /// CPU time of its threads, up to their last looks at the clock.
    ran_ns: AtomicU64,
    rank: Mutex<QueryRank>,
    slot: Arc<AdmissionPermit>,
}

/// A thread's last look at the clock.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// The query that it worked on.
    number: u64,
    cpu_ns: u64,
    /// Checks since.
    checks: u32,
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static LAST_LOOK: Cell<Look> = const { Cell::new(Look { number: 0, cpu_ns: 0, checks: 0 }) };
}

/// The level of a query that has had so much CPU time.
fn level(ran_ns: u64) -> usize {
    ((ran_ns / FIRST_LEVEL_NS + 1).ilog2() as usize).min(LEVELS - 1)
}

impl fmt::Debug for QuerySchedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("QuerySchedule").field("rank", &self.rank).finish_non_exhaustive()
    }
}

/// Ends a query's schedule when it is dropped.
pub(crate) struct ScheduleGuard(Arc<QuerySchedule>);

impl Scheduler {
    pub(crate) fn new(cores: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, cores: cores.max(1), threads: [const { AtomicUsize::new(0) }; LEVELS] })
    }

    /// A query begins in a slot, with one thread.
    pub(crate) fn begin(self: &Arc<Self>, slot: Arc<AdmissionPermit>) -> (Arc<QuerySchedule>, ScheduleGuard) {
        let schedule = Arc::new(QuerySchedule {
            scheduler: self.clone(),
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
            ran_ns: AtomicU64::new(0),
            rank: Mutex::new(QueryRank { level: 0, threads: 0 }),
            slot,
        });
        schedule.change(|rank| rank.threads = 1);
        (schedule.clone(), ScheduleGuard(schedule))
    }

    /// Threads that work on queries of a level or of those below it.
    fn threads_up_to(&self, level: usize) -> usize {
        self.threads.iter().take(level + 1).map(|threads| threads.load(Ordering::Relaxed)).sum()
    }
}

impl QuerySchedule {
    fn level(&self) -> usize {
        level(self.ran_ns.load(Ordering::Relaxed))
    }

    fn rank(&self) -> MutexGuard<'_, QueryRank> {
        self.rank.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the query's rank, and counts its threads anew.
    fn change(&self, change: impl FnOnce(&mut QueryRank)) {
        let (mut rank, threads) = (self.rank(), &self.scheduler.threads);
        threads[rank.level].fetch_sub(rank.threads, Ordering::Relaxed);
        change(&mut rank);
        threads[rank.level].fetch_add(rank.threads, Ordering::Relaxed);
    }

    /// Counts a check of the calling thread; every few, and with its first, it looks how much CPU time it has had.
    fn count_check(&self) {
        let last = LAST_LOOK.get();
        if last.number == self.number && last.checks + 1 < CHECKS {
            LAST_LOOK.set(Look { checks: last.checks + 1, ..last });
            return;
        }
        let cpu_ns = self.scheduler.clock.thread_cpu_ns();
        LAST_LOOK.set(Look { number: self.number, cpu_ns, checks: 0 });
        if last.number == self.number {
            let more_ns = cpu_ns.saturating_sub(last.cpu_ns);
            let before_ns = self.ran_ns.fetch_add(more_ns, Ordering::Relaxed);
            let reached = level(before_ns.saturating_add(more_ns));
            if reached > level(before_ns) {
                self.change(|rank| rank.level = rank.level.max(reached));
            }
            self.slot.make_room(before_ns.saturating_add(more_ns));
        }
    }
}

impl Schedule for QuerySchedule {
    fn note_check(&self) {
        self.count_check();
        threads::fall_to(self.level());
    }

    fn join(&self) -> bool {
        // Another query's thread may join at the same time: one too many leaves again at its next piece of work.
        let is_free = self.scheduler.threads_up_to(self.level()) < self.scheduler.cores;
        if is_free {
            self.change(|rank| rank.threads += 1);
        }
        is_free
    }

    fn begin(&self) {
        threads::may_fall();
    }

    fn leave(&self) {
        self.change(|rank| rank.threads = rank.threads.saturating_sub(1));
    }

    fn gives_way(&self) -> bool {
        self.scheduler.threads_up_to(self.level()) > self.scheduler.cores
    }
}

impl Drop for ScheduleGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_take_twice_as_long_each() {
        let at = |ms: u64| level(ms * NS_PER_MS);
        assert_eq!([0, 19, 20, 59, 60, 139, 140].map(at), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(level(u64::MAX), LEVELS - 1);
    }

    /// A clock that is set by hand.
    #[derive(Default)]
    struct Hand(AtomicU64);

    impl Clock for Hand {
        fn now_ns(&self) -> i64 {
            self.monotonic_ns() as i64
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// Checks until the query has looked at the clock.
    fn look(schedule: &QuerySchedule) {
        (0..CHECKS).for_each(|_| schedule.note_check());
    }

    #[test]
    fn helpers_join_while_queries_that_had_no_more_leave_a_core() {
        let clock = Arc::new(Hand::default());
        let scheduler = Scheduler::new(2, clock.clone());
        let (old, old_ends) = scheduler.begin(AdmissionPermit::lone());
        assert!(old.join() && !old.join());
        look(&old);
        clock.0.store(FIRST_LEVEL_NS, Ordering::Relaxed);
        look(&old);
        assert_eq!((old.level(), old.gives_way()), (1, false));
        let (new, new_ends) = scheduler.begin(AdmissionPermit::lone());
        assert_eq!([&old, &new].map(|schedule| schedule.gives_way()), [true, false]);
        // Threads of later levels do not count.
        assert!(!old.join() && new.join());
        new.leave();
        old.leave();
        assert!(!old.gives_way());
        // What the thread did for others does not count.
        clock.0.fetch_add(1_000 * NS_PER_MS, Ordering::Relaxed);
        look(&new);
        clock.0.fetch_add(FIRST_LEVEL_NS - 1, Ordering::Relaxed);
        look(&new);
        assert_eq!(new.level(), 0);
        drop(old_ends);
        drop(new_ends);
        assert_eq!(scheduler.threads_up_to(LEVELS - 1), 0);
    }
}

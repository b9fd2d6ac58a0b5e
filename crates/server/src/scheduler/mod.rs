//! Which queries go first when they want more than the machine has: those that have used least CPU so far.
//!
//! ```text
//! each check of a query ──► which level has it come to, by the CPU time that it has had?
//!                      └──► no query is ahead, at a lower level or earlier at the same: goes on
//!                               └──► one of the slots free? takes it, for a slice of time
//!                                        └──► waits, for a moment at most
//! ```
//!
//! The cores that no thread ahead has are a query's to take; if there are none, one core for a share of the time, so that it ends at some
//! time whatever else is asked. Waits are bounded, so that a query that holds a slot and waits for a query without one delays both and
//! stops neither. Without measuring anything beforehand, this comes near to shortest first: least attained service (Nuyens and Wierman,
//! The foreground-background queue, 2008). What counts is what a query's threads have had of the cores, not how long it is since it began:
//! on a busy machine every query takes long. Alike queries would all end late if they shared all along: beyond the first level those that
//! came earlier go first, and give back sooner what they hold.

pub(crate) mod running;
pub(crate) mod threads;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use platform::Clock;
use query::Pace;

use crate::scheduler::running::AdmissionPermit;

const NS_PER_MS: u64 = 1_000_000;

/// The CPU time in which a query is at the first level. At each further one it is for twice as much.
const FIRST_LEVEL_NS: u64 = 20 * NS_PER_MS;
/// From this level on, after 60 ms of CPU time, a query is a heavy one: it leaves its slot to those that may be light.
const HEAVY_LEVEL: usize = 2;
/// From there on there are no more.
const LEVELS: usize = 16;
/// How long a thread keeps a slot that others wait for.
const SLICE_NS: u64 = 10 * NS_PER_MS;
/// While queries of lower levels have all cores, the others have one of them for a slice of each period.
const PERIOD_NS: u64 = 5 * SLICE_NS;
/// A slot whose thread has not been seen for so long is free: it has ended, or waits for something else.
const UNSEEN_NS_MAX: u64 = 20 * NS_PER_MS;
/// No check takes longer.
const WAIT_NS_MAX: u64 = 5 * PERIOD_NS;
/// A thread's checks between its looks at the clock.
const CHECKS: u32 = 8;

/// All queries' turns.
pub(crate) struct Scheduler {
    clock: Arc<dyn Clock>,
    cores: usize,
    /// In the order in which they came.
    running: Mutex<Vec<Arc<QueryRank>>>,
    slots: Mutex<Slots>,
    freed: Condvar,
    waited_ns: AtomicU64,
}

/// What threads share while there are some at lower levels.
#[derive(Debug, Default)]
struct Slots {
    occupied: Vec<OccupiedSlot>,
    waiting: usize,
}

#[derive(Debug)]
struct OccupiedSlot {
    thread: ThreadId,
    since_ns: u64,
    seen_ns: u64,
}

/// Where a query stands among the others. Changed only under the lock of all.
#[derive(Debug, Default)]
struct QueryRank {
    level: AtomicUsize,
    /// Threads that work on it.
    threads: AtomicUsize,
    /// Threads that work on queries that go first.
    ahead: AtomicUsize,
    /// Threads that work on those, on it and on its like.
    abreast: AtomicUsize,
}

/// One query's.
pub(crate) struct QuerySchedule {
    turns: Arc<Scheduler>,
    /// Among all that the program has had.
    number: u64,
    /// CPU time of its threads, as far as they have looked.
    ran_ns: AtomicU64,
    /// How long it waited.
    waited_ns: AtomicU64,
    rank: Arc<QueryRank>,
    slot: Arc<AdmissionPermit>,
}

/// What a thread knows of its last look at the clock.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// The query that it worked on.
    number: u64,
    cpu_ns: u64,
    /// Checks since.
    checks: u32,
}

static TURNS_BEGUN: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static LAST_LOOK: Cell<Look> = const { Cell::new(Look { number: 0, cpu_ns: 0, checks: 0 }) };
}

impl QueryRank {
    fn level(&self) -> usize {
        self.level.load(Ordering::Relaxed).min(LEVELS - 1)
    }

    fn threads(&self) -> usize {
        self.threads.load(Ordering::Relaxed)
    }

    fn ahead(&self) -> usize {
        self.ahead.load(Ordering::Relaxed)
    }
}

/// Counts who is ahead of whom, of queries in the order in which they came.
fn line_up(running: &[Arc<QueryRank>]) {
    let mut by_level = [0; LEVELS];
    for rank in running {
        by_level[rank.level()] += rank.threads();
    }
    let mut earlier = [0; LEVELS];
    for rank in running {
        let level = rank.level();
        let lower: usize = by_level[..level].iter().sum();
        let ahead = if level == 0 { 0 } else { lower + earlier[level] };
        earlier[level] += rank.threads();
        let abreast = if level == 0 { by_level[0] } else { lower + earlier[level] };
        rank.ahead.store(ahead, Ordering::Relaxed);
        rank.abreast.store(abreast, Ordering::Relaxed);
    }
}

/// How many threads may run while so many ahead do.
fn free(cores: usize, ahead: usize, now_ns: u64) -> usize {
    let own_share = usize::from(now_ns % PERIOD_NS < SLICE_NS);
    cores.saturating_sub(ahead).max(own_share)
}

/// How long a query may still wait, at a level: at each twice as many times as long as it has had a core. So those that are a little longer than
/// others end in time however many of these come, and those that are much longer delay no other.
fn wait_left_ns(level: usize, ran_ns: u64, waited_ns: u64) -> u64 {
    ran_ns.saturating_mul(1 << level.min(LEVELS)).saturating_sub(waited_ns).min(WAIT_NS_MAX)
}

/// How long to wait for one of so many slots until looking again: they are not told when a thread that has one is not seen any more.
fn patience_ns(count: usize, now_ns: u64) -> u64 {
    if count > 0 { SLICE_NS / 2 } else { PERIOD_NS - now_ns % PERIOD_NS }
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

/// Ends a query's turn when it is dropped.
pub(crate) struct ScheduleGuard(Arc<QuerySchedule>);

/// Whether a thread may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotGrant {
    /// It has a slot.
    Granted,
    /// It had one, which is free for another now.
    GivenBack,
    None,
}

impl Slots {
    /// Takes a slot for a thread, of so many.
    fn take(&mut self, thread: ThreadId, count: usize, now_ns: u64) -> SlotGrant {
        self.occupied.retain(|occupied| now_ns.saturating_sub(occupied.seen_ns) < UNSEEN_NS_MAX);
        if let Some(slot) = self.occupied.iter().position(|occupied| occupied.thread == thread) {
            let is_over = |occupied: &OccupiedSlot| now_ns.saturating_sub(occupied.since_ns) >= SLICE_NS;
            let is_wanted = self.waiting > 0 && self.occupied.get(slot).is_some_and(is_over);
            if is_wanted || self.occupied.len() > count {
                self.occupied.swap_remove(slot);
                return if self.occupied.len() < count { SlotGrant::GivenBack } else { SlotGrant::None };
            }
            if let Some(occupied) = self.occupied.get_mut(slot) {
                occupied.seen_ns = now_ns;
            }
            return SlotGrant::Granted;
        }
        if self.occupied.len() >= count {
            return SlotGrant::None;
        }
        self.occupied.push(OccupiedSlot { thread, since_ns: now_ns, seen_ns: now_ns });
        SlotGrant::Granted
    }
}

impl Scheduler {
    pub(crate) fn new(cores: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (running, slots) = (Mutex::default(), Mutex::default());
        let (freed, waited_ns) = (Condvar::new(), AtomicU64::new(0));
        Arc::new(Self { clock, cores: cores.max(1), running, slots, freed, waited_ns })
    }

    /// A query begins in a slot: what its budget is to keep to, and what ends it.
    pub(crate) fn begin(self: &Arc<Self>, slot: Arc<AdmissionPermit>) -> (Arc<QuerySchedule>, ScheduleGuard) {
        let (turns, number) = (self.clone(), TURNS_BEGUN.fetch_add(1, Ordering::Relaxed));
        let [ran_ns, waited_ns] = [const { AtomicU64::new(0) }; 2];
        let rank = Arc::new(QueryRank { threads: AtomicUsize::new(1), ..QueryRank::default() });
        self.running().push(rank.clone());
        let turn = Arc::new(QuerySchedule { turns, number, ran_ns, waited_ns, rank, slot });
        turn.change(|_| {});
        (turn.clone(), ScheduleGuard(turn))
    }

    fn running(&self) -> MutexGuard<'_, Vec<Arc<QueryRank>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has those that wait look again.
    fn wake(&self) {
        // A thread that is about to wait holds the lock from its check until it waits.
        drop(self.slots.lock().unwrap_or_else(PoisonError::into_inner));
        self.freed.notify_all();
    }

    /// Waits for a slot while other queries are ahead, at most for the given time. Returns how long it waited.
    fn wait(&self, rank: &QueryRank, wait_ns_max: u64) -> u64 {
        let (thread, begun_ns) = (thread::current().id(), self.clock.monotonic_ns());
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut now_ns, mut ahead) = (begun_ns, rank.ahead());
        let waited_ns = |now_ns: u64| now_ns.saturating_sub(begun_ns);
        while ahead > 0 && waited_ns(now_ns) < wait_ns_max {
            let count = free(self.cores, ahead, now_ns);
            match slots.take(thread, count, now_ns) {
                SlotGrant::Granted => break,
                // The thread that has just given a slot back is the last to get one.
                SlotGrant::GivenBack => self.freed.notify_one(),
                SlotGrant::None => {}
            }
            slots.waiting += 1;
            let patience_ns = patience_ns(count, now_ns).min(wait_ns_max.saturating_sub(waited_ns(now_ns)));
            let patience = Duration::from_nanos(patience_ns);
            slots = self.freed.wait_timeout(slots, patience).unwrap_or_else(PoisonError::into_inner).0;
            slots.waiting -= 1;
            (now_ns, ahead) = (self.clock.monotonic_ns(), rank.ahead());
        }
        self.waited_ns.fetch_add(waited_ns(now_ns), Ordering::Relaxed);
        waited_ns(now_ns)
    }

    /// Seconds that threads have waited so far, added up.
    pub(crate) fn waited_s(&self) -> f64 {
        self.waited_ns.load(Ordering::Relaxed) as f64 / 1e9
    }
}

impl QuerySchedule {
    /// Changes where the query stands, and so who is ahead of whom.
    fn change<T>(&self, change: impl FnOnce(&QueryRank) -> T) -> T {
        let running = self.turns.running();
        let changed = change(&self.rank);
        line_up(&running);
        drop(running);
        changed
    }

    /// Counts a check of the calling thread; every few, and with its first, it looks how much CPU time it has had.
    fn count_check(&self) {
        let last = LAST_LOOK.get();
        if last.number == self.number && last.checks + 1 < CHECKS {
            LAST_LOOK.set(Look { checks: last.checks + 1, ..last });
            return;
        }
        let cpu_ns = self.turns.clock.thread_cpu_ns();
        LAST_LOOK.set(Look { number: self.number, cpu_ns, checks: 0 });
        if last.number == self.number {
            let more_ns = cpu_ns.saturating_sub(last.cpu_ns);
            let ran_ns = self.ran_ns.fetch_add(more_ns, Ordering::Relaxed).saturating_add(more_ns);
            self.rise_to(level(ran_ns));
        }
    }

    fn rise_to(&self, level: usize) {
        if level > self.rank.level() {
            self.change(|rank| rank.level.fetch_max(level, Ordering::Relaxed));
            self.turns.wake();
        }
        if level >= HEAVY_LEVEL {
            self.slot.leave_to_light();
        }
    }
}

impl Pace for QuerySchedule {
    fn go_on(&self) {
        self.count_check();
        threads::fall_to(self.rank.level());
        if self.rank.ahead() > 0 {
            let [ran_ns, waited_ns] = [&self.ran_ns, &self.waited_ns].map(|time_ns| time_ns.load(Ordering::Relaxed));
            let wait_ns_max = wait_left_ns(self.rank.level(), ran_ns, waited_ns);
            let waited_ns = self.turns.wait(&self.rank, wait_ns_max);
            // Of several threads that wait at the same time each counts for its part.
            let threads = self.rank.threads().max(1) as u64;
            self.waited_ns.fetch_add(waited_ns / threads, Ordering::Relaxed);
        }
    }

    fn join(&self) -> bool {
        let cores = self.turns.cores;
        let has_room = |rank: &QueryRank| rank.abreast.load(Ordering::Relaxed) < cores;
        // Most that ask are told no: they need no lock for it.
        has_room(&self.rank)
            && self.change(|rank| {
                let joins = has_room(rank);
                rank.threads.fetch_add(usize::from(joins), Ordering::Relaxed);
                joins
            })
    }

    fn begin(&self) {
        threads::may_fall();
    }

    fn leave(&self) {
        self.change(|rank| rank.threads.fetch_sub(1, Ordering::Relaxed));
        self.turns.wake();
    }

    fn gives_way(&self) -> bool {
        self.rank.ahead() > 0
    }
}

impl Drop for ScheduleGuard {
    fn drop(&mut self) {
        self.0.turns.running().retain(|rank| !Arc::ptr_eq(rank, &self.0.rank));
        self.0.leave();
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
        let mut slots = Slots::default();
        let mut take = |thread: usize, waiting: usize, ms: u64| {
            slots.waiting = waiting;
            slots.take(threads[thread], 1, ms * NS_PER_MS)
        };
        assert_eq!([take(0, 0, 0), take(1, 0, 1)], [SlotGrant::Granted, SlotGrant::None]);
        // For a slice; then those who wait come first.
        assert_eq!([take(0, 1, 9), take(0, 1, 10)], [SlotGrant::Granted, SlotGrant::GivenBack]);
        assert_eq!([take(1, 1, 10), take(0, 1, 11)], [SlotGrant::Granted, SlotGrant::None]);
        // A thread that does not come back loses its slot.
        assert_eq!(take(2, 1, 31), SlotGrant::Granted);
        // No thread waits: the slot may be kept.
        assert_eq!(take(2, 0, 45), SlotGrant::Granted);
        // There is none any more.
        assert_eq!(slots.take(threads[2], 0, 46 * NS_PER_MS), SlotGrant::None);
    }

    #[test]
    fn waits_end_when_there_may_be_a_place() {
        assert_eq!([0, 1, PERIOD_NS + 1].map(|ns| patience_ns(0, ns)), [PERIOD_NS, PERIOD_NS - 1, PERIOD_NS - 1]);
        assert_eq!(patience_ns(1, 3), SLICE_NS / 2);
    }

    #[test]
    fn the_longer_a_query_has_run_the_more_it_waits() {
        let left_ms =
            |level, ran_ms, waited_ms| wait_left_ns(level, ran_ms * NS_PER_MS, waited_ms * NS_PER_MS) / NS_PER_MS;
        assert_eq!([left_ms(1, 20, 0), left_ms(1, 20, 30), left_ms(1, 20, 40), left_ms(1, 20, 41)], [40, 10, 0, 0]);
        assert_eq!([left_ms(2, 40, 100), left_ms(9, 6_000, 100_000)], [60, WAIT_NS_MAX / NS_PER_MS]);
        assert_eq!(wait_left_ns(LEVELS - 1, u64::MAX, 0), WAIT_NS_MAX);
    }

    #[test]
    fn levels_take_twice_as_long_each() {
        let at = |ms: u64| level(ms * NS_PER_MS);
        assert_eq!([0, 19, 20, 59, 60, 139, 140].map(at), [0, 0, 1, 1, 2, 2, 3]);
        assert_eq!(level(u64::MAX), LEVELS - 1);
    }

    #[test]
    fn cores_that_lower_levels_leave_are_free() {
        let closed_ns = SLICE_NS;
        assert_eq!([0, 1, 3, 4, 9].map(|lower| free(4, lower, closed_ns)), [4, 3, 1, 0, 0]);
        assert_eq!([0, 3, 4, 9].map(|lower| free(4, lower, 0)), [4, 1, 1, 1]);
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
    fn look(turn: &QuerySchedule) {
        (0..CHECKS).for_each(|_| turn.go_on());
    }

    #[test]
    fn those_that_had_less_or_came_first_are_ahead() {
        let rank = |level: usize, threads: usize| {
            let (level, threads) = (AtomicUsize::new(level), AtomicUsize::new(threads));
            Arc::new(QueryRank { level, threads, ..QueryRank::default() })
        };
        let running = [rank(2, 1), rank(0, 3), rank(2, 4), rank(1, 2), rank(0, 1), rank(LEVELS + 7, 1)];
        line_up(&running);
        assert_eq!(running.each_ref().map(|rank| rank.ahead()), [6, 0, 7, 4, 0, 11]);
        let abreast = running.each_ref().map(|rank| rank.abreast.load(Ordering::Relaxed));
        // At the first level all are alike.
        assert_eq!(abreast, [7, 4, 11, 6, 4, 12]);
    }

    #[test]
    fn queries_rise_wait_and_get_help() {
        let clock = Arc::new(Hand::default());
        let turns = Scheduler::new(2, clock.clone());
        let (old, old_ends) = turns.begin(AdmissionPermit::lone());
        assert!(old.join() && !old.join());
        look(&old);
        clock.0.store(FIRST_LEVEL_NS, Ordering::Relaxed);
        look(&old);
        assert_eq!((old.rank.level(), old.gives_way()), (1, false));
        let (new, new_ends) = turns.begin(AdmissionPermit::lone());
        assert_eq!([&old, &new].map(|turn| turn.rank.ahead()), [1, 0]);
        // Those of later levels do not count.
        assert!(!old.join() && new.join());
        assert_eq!(old.rank.ahead(), 2);
        new.leave();
        old.leave();
        // What the thread did for others does not count.
        clock.0.fetch_add(1_000 * NS_PER_MS, Ordering::Relaxed);
        look(&new);
        clock.0.fetch_add(FIRST_LEVEL_NS - 1, Ordering::Relaxed);
        look(&new);
        assert_eq!((new.rank.level(), old.gives_way()), (0, true));
        // At the same level the older one goes first.
        new.rise_to(1);
        assert_eq!([&old, &new].map(|turn| turn.gives_way()), [false, true]);
        drop(old_ends);
        assert!(!new.gives_way() && new.join());
        drop(new_ends);
        assert!(turns.running().is_empty());
    }

    /// Threads of long queries get through, though there is less than a slot for each and a short query never ends.
    #[test]
    fn all_get_through() {
        let turns = Scheduler::new(2, platform::Platform::real().clock);
        let (_short, _short_ends) = turns.begin(AdmissionPermit::lone());
        let long: Vec<_> = (0..4)
            .map(|_| {
                let (turn, ends) = turns.begin(AdmissionPermit::lone());
                // So long that it waits as long as it may.
                turn.ran_ns.store(FIRST_LEVEL_NS << (LEVELS + 1), Ordering::Relaxed);
                turn.rise_to(LEVELS - 1);
                thread::spawn(move || {
                    for _ in 0..20 * CHECKS {
                        turn.go_on();
                    }
                    drop(ends);
                })
            })
            .collect();
        long.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(turns.running().len(), 1);
        assert!(turns.waited_s() > 0.0);
    }
}

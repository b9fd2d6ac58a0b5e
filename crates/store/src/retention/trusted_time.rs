//! The time that retention goes by. The wall clock is evidence, not truth: nothing is deleted or hidden because of a jump of it.
//!
//! The trusted time advances with the monotonic clock. It follows the wall clock once that has run steadily beside the monotonic
//! one for an hour since the folder was opened or since its last jump; until then only what earlier openings wrote speaks for a
//! later time, once and in bounds. It is never after the wall clock, so that a clock that is set back hides nothing either.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};

use platform::Clock;
use tracing_mutex::parkinglot::Mutex;

use crate::upkeep::health::CheckStatus;

const SECOND_NS: i64 = 1_000_000_000;
const MINUTE_NS: i64 = 60 * SECOND_NS;
const HOUR_NS: i64 = 60 * MINUTE_NS;
const DAY_NS: i64 = 24 * HOUR_NS;

/// How far the two clocks may drift apart within [`BELIEVED_AFTER_NS`]; more is a jump.
const JUMP_NS: i64 = MINUTE_NS;

/// How long the wall clock must run steadily to be believed.
const BELIEVED_AFTER_NS: i64 = HOUR_NS;

/// How long it must run steadily until data of earlier openings counts: a server that starts over and over proves nothing.
const DATA_COUNTS_AFTER_NS: i64 = 10 * MINUTE_NS;

/// How far data of earlier openings may move the time, at most: a machine that runs for minutes a day keeps up with that.
const DATA_ADVANCE_NS_MAX: i64 = DAY_NS;

/// That limit as a share of the shortest retention: were the data wrong, little of what is kept would go too early.
const DATA_ADVANCE_SHARE: i64 = 8;

/// How far data may move the time at most, where rows may be so far ahead and the shortest retention is so long (0: there is none).
pub(crate) fn data_advance_ns_max(ahead_ms_max: u64, shortest_retention_ns: i64) -> i64 {
    let ahead_ns = i64::try_from(ahead_ms_max).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let share_ns = if shortest_retention_ns > 0 { shortest_retention_ns / DATA_ADVANCE_SHARE } else { i64::MAX };
    ahead_ns.min(share_ns).min(DATA_ADVANCE_NS_MAX)
}

/// How far the wall clock may be after the trusted time at an opening without an operator being told.
const PAUSE_NS: i64 = DAY_NS;

/// A step back of the trusted time that caches of results must be told of.
const STEP_BACK_NS: i64 = SECOND_NS;

/// How much the time may advance until it is made durable again.
const SAVE_EACH_NS: i64 = 10 * MINUTE_NS;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) wall_ns: i64,
    pub(crate) monotonic_ns: i64,
}

impl Reading {
    pub(crate) fn new(clock: &dyn Clock) -> Self {
        Self { wall_ns: clock.now_ns(), monotonic_ns: i64::try_from(clock.monotonic_ns()).unwrap_or(i64::MAX) }
    }

    /// How far the wall clock is after the monotonic one: the same as long as it runs steadily.
    const fn offset_ns(&self) -> i64 {
        self.wall_ns.saturating_sub(self.monotonic_ns)
    }
}

/// Evidence of the time when a folder is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opening {
    /// The time that the manifest says was trusted.
    pub(crate) saved_ns: Option<i64>,
    /// The newest data that is not after the wall clock.
    pub(crate) newest_data_ns: Option<i64>,
    /// How far data may move the time, at most.
    pub(crate) advance_ns_max: i64,
}

/// What an observation changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Observed {
    /// By how much the wall clock jumped just now, if it did.
    pub(crate) jump_ns: Option<i64>,
    /// The time that was trusted before, if the trusted time went back.
    pub(crate) went_back_from_ns: Option<i64>,
}

/// Decides which time is trusted: a state machine without I/O.
#[derive(Debug)]
pub(crate) struct Observer {
    /// The trusted time less the monotonic clock.
    offset_ns: i64,
    /// What the wall clock is compared with, renewed each hour: a slow drift is no jump.
    reference: Reading,
    /// Since when it has run steadily, on the monotonic clock.
    steady_since_ns: i64,
    /// The last jump, until the wall clock is believed again.
    jump_ns: Option<i64>,
    /// True if it was believed since the opening or its last jump.
    is_believed: bool,
    /// The offset of the time that readers saw last.
    shown_offset_ns: i64,
    /// Data of earlier openings, and how far it may move the time; used once.
    data: Option<(i64, i64)>,
    jumps_total: u64,
}

impl Observer {
    pub(crate) fn new(opening: &Opening, now: Reading) -> Self {
        // A folder without data has nothing to lose: its clock is believed as it is.
        let start_ns = opening.saved_ns.or(opening.newest_data_ns).unwrap_or(now.wall_ns);
        let data = opening.saved_ns.and(opening.newest_data_ns);
        let offset_ns = start_ns.saturating_sub(now.monotonic_ns);
        Self {
            offset_ns,
            reference: now,
            steady_since_ns: now.monotonic_ns,
            jump_ns: None,
            is_believed: false,
            shown_offset_ns: offset_ns.min(now.offset_ns()),
            data: data.map(|newest_ns| (newest_ns, opening.advance_ns_max)),
            jumps_total: 0,
        }
    }

    /// Takes a look at both clocks.
    pub(crate) fn observe(&mut self, now: Reading) -> Observed {
        let mut observed = Observed::default();
        let drift_ns = now.offset_ns().saturating_sub(self.reference.offset_ns());
        if drift_ns.saturating_abs() > JUMP_NS {
            self.jumps_total += 1;
            (self.reference, self.steady_since_ns, self.is_believed) = (now, now.monotonic_ns, false);
            self.jump_ns = Some(drift_ns);
            observed.jump_ns = Some(drift_ns);
        } else if now.monotonic_ns.saturating_sub(self.reference.monotonic_ns) >= BELIEVED_AFTER_NS {
            self.reference = now;
        }
        let steady_ns = now.monotonic_ns.saturating_sub(self.steady_since_ns);
        if steady_ns >= BELIEVED_AFTER_NS {
            (self.offset_ns, self.is_believed, self.jump_ns, self.data) = (now.offset_ns(), true, None, None);
        } else if steady_ns >= DATA_COUNTS_AFTER_NS
            && let Some((newest_ns, advance_ns_max)) = self.data.take()
        {
            let trusted_ns = self.offset_ns.saturating_add(now.monotonic_ns);
            let by_data_ns = newest_ns.min(now.wall_ns).min(trusted_ns.saturating_add(advance_ns_max));
            self.offset_ns = self.offset_ns.max(by_data_ns.saturating_sub(now.monotonic_ns));
        }
        let shown_offset_ns = self.offset_ns.min(now.offset_ns());
        if shown_offset_ns < self.shown_offset_ns.saturating_sub(STEP_BACK_NS) {
            observed.went_back_from_ns = Some(self.shown_offset_ns.saturating_add(now.monotonic_ns));
        }
        self.shown_offset_ns = shown_offset_ns;
        observed
    }

    /// What operators should know of the clock, if something.
    pub(crate) fn warning(&self, now: Reading) -> Option<String> {
        if self.is_believed {
            return None;
        }
        let behind_ns = now.offset_ns().saturating_sub(self.offset_ns);
        let what = match self.jump_ns {
            Some(jump_ns) if jump_ns > 0 => format!("the clock jumped {} ahead", Span(jump_ns)),
            Some(jump_ns) => format!("the clock jumped {} back, or stood still", Span(jump_ns)),
            None if behind_ns > PAUSE_NS => {
                format!("the clock is {} ahead of the time at which this folder was last in use", Span(behind_ns))
            }
            None if behind_ns < -JUMP_NS => {
                format!("the clock is {} behind the time at which this folder was last in use", Span(behind_ns))
            }
            None => return None,
        };
        let left_ns = BELIEVED_AFTER_NS - now.monotonic_ns.saturating_sub(self.steady_since_ns);
        Some(format!(
            "{what}: retention and folds do not follow it until it has run steadily for an hour ({} to go); check the machine's \
             clock",
            Span(left_ns)
        ))
    }
}

/// A length of time for people.
struct Span(i64);

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.saturating_abs();
        let (days, hours, minutes, seconds) =
            (ns / DAY_NS, ns % DAY_NS / HOUR_NS, ns % HOUR_NS / MINUTE_NS, ns % MINUTE_NS / SECOND_NS);
        match (days, hours, minutes) {
            (1.., ..) => write!(formatter, "{days} d {hours} h"),
            (_, 1.., _) => write!(formatter, "{hours} h {minutes} min"),
            (_, _, 1..) => write!(formatter, "{minutes} min {seconds} s"),
            _ => write!(formatter, "{seconds} s"),
        }
    }
}

/// The trusted time of an open folder. Reading it takes no lock.
#[derive(Debug)]
pub(crate) struct TrustedTime {
    offset_ns: AtomicI64,
    /// What the manifest says.
    saved_ns: AtomicI64,
    observer: Mutex<Observer>,
}

impl TrustedTime {
    pub(crate) fn new(opening: &Opening, now: Reading) -> Self {
        let observer = Observer::new(opening, now);
        Self {
            offset_ns: AtomicI64::new(observer.offset_ns),
            saved_ns: AtomicI64::new(opening.saved_ns.unwrap_or(i64::MIN)),
            observer: Mutex::new(observer),
        }
    }

    /// The trusted time, whatever the wall clock says.
    pub(crate) fn unbounded_ns(&self, now: Reading) -> i64 {
        self.offset_ns.load(Ordering::Relaxed).saturating_add(now.monotonic_ns)
    }

    /// The trusted time: not after the wall clock.
    pub(crate) fn now_ns(&self, now: Reading) -> i64 {
        self.unbounded_ns(now).min(now.wall_ns)
    }

    /// Takes a look at both clocks. With what changed, what to say of the clock.
    pub(crate) fn observe(&self, now: Reading) -> (Observed, Option<(CheckStatus, String)>) {
        let mut observer = self.observer.lock();
        let changed = observer.observe(now);
        self.offset_ns.store(observer.offset_ns, Ordering::Relaxed);
        (changed, observer.warning(now).map(|message| (CheckStatus::Warn, message)))
    }

    /// Returns whether it is time to make it durable.
    pub(crate) fn is_save_due(&self, now: Reading) -> bool {
        let (trusted_ns, saved_ns) = (self.unbounded_ns(now), self.saved_ns.load(Ordering::Relaxed));
        trusted_ns >= saved_ns.saturating_add(SAVE_EACH_NS) || trusted_ns < saved_ns.saturating_sub(JUMP_NS)
    }

    /// The manifest says it now.
    pub(crate) fn saved(&self, trusted_ns: i64) {
        self.saved_ns.store(trusted_ns, Ordering::Relaxed);
    }

    /// Jumps of the wall clock since the opening.
    pub(crate) fn jumps_total(&self) -> u64 {
        self.observer.lock().jumps_total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that was last in use at `SAVED`, on a machine that has been up for a while.
    const SAVED: i64 = 1_700_000_000 * SECOND_NS;
    const BOOT: i64 = 5 * SECOND_NS;

    struct Machine {
        observer: Observer,
        now: Reading,
    }

    impl Machine {
        fn start(saved_ns: Option<i64>, newest_data_ns: Option<i64>, wall_ns: i64) -> Self {
            let now = Reading { wall_ns, monotonic_ns: BOOT };
            let opening = Opening { saved_ns, newest_data_ns, advance_ns_max: data_advance_ns_max(32 * 86_400_000, 0) };
            Self { observer: Observer::new(&opening, now), now }
        }

        /// Time passes, observed each minute; the wall clock runs at a rate.
        fn run(&mut self, minutes: i64, wall_minutes_each: i64) {
            for _ in 0..minutes {
                self.now.monotonic_ns += MINUTE_NS;
                self.now.wall_ns += wall_minutes_each * MINUTE_NS;
                self.observer.observe(self.now);
            }
        }

        fn jump(&mut self, by_ns: i64) -> Observed {
            self.now.wall_ns += by_ns;
            self.observer.observe(self.now)
        }

        fn trusted_ns(&self) -> i64 {
            (self.observer.offset_ns + self.now.monotonic_ns).min(self.now.wall_ns)
        }
    }

    #[test]
    fn a_jump_ahead_is_not_followed_until_it_has_lasted_an_hour() {
        let mut machine = Machine::start(Some(SAVED), None, SAVED);
        machine.run(90, 1);
        assert_eq!((machine.trusted_ns(), machine.observer.warning(machine.now)), (SAVED + 90 * MINUTE_NS, None));
        assert_eq!(machine.jump(40 * DAY_NS), Observed { jump_ns: Some(40 * DAY_NS), went_back_from_ns: None });
        assert_eq!(machine.trusted_ns(), SAVED + 90 * MINUTE_NS);
        machine.run(59, 1);
        assert_eq!(machine.trusted_ns(), SAVED + 149 * MINUTE_NS);
        let said = machine.observer.warning(machine.now).unwrap();
        assert!(said.starts_with("the clock jumped 40 d 0 h ahead: ") && said.contains("(1 min 0 s to go)"), "{said}");
        machine.run(1, 1);
        assert_eq!((machine.trusted_ns(), machine.observer.warning(machine.now)), (machine.now.wall_ns, None));
        assert_eq!(machine.observer.jumps_total, 1);
    }

    #[test]
    fn a_jump_for_a_moment_leaves_nothing_behind() {
        let mut machine = Machine::start(Some(SAVED), None, SAVED);
        for by_ns in [40 * DAY_NS, -40 * DAY_NS, 20_000 * DAY_NS] {
            machine.jump(by_ns);
            machine.jump(-by_ns);
            machine.run(30, 1);
        }
        assert_eq!(machine.trusted_ns(), SAVED + 90 * MINUTE_NS);
    }

    #[test]
    fn a_clock_that_is_set_back_hides_nothing_and_is_believed_in_the_end() {
        let mut machine = Machine::start(Some(SAVED), None, SAVED);
        machine.run(70, 1);
        let before_ns = machine.trusted_ns();
        let back = machine.jump(-10 * DAY_NS);
        assert_eq!(back, Observed { jump_ns: Some(-10 * DAY_NS), went_back_from_ns: Some(before_ns) });
        assert_eq!(machine.trusted_ns(), before_ns - 10 * DAY_NS);
        machine.run(60, 1);
        // It was wrong until now, or is from now on: later rows are kept either way.
        assert_eq!(machine.observer.offset_ns + machine.now.monotonic_ns, machine.now.wall_ns);
    }

    #[test]
    fn frozen_and_wild_clocks_are_never_believed() {
        for minutes_each in [0, 2, -1, 1000] {
            let mut machine = Machine::start(Some(SAVED), None, SAVED);
            machine.run(3 * 60, minutes_each);
            assert!(machine.trusted_ns() <= SAVED + 3 * HOUR_NS, "{minutes_each}");
            assert!(machine.observer.jumps_total > 10 && machine.observer.warning(machine.now).is_some());
        }
        // A drift that no jump makes is followed.
        let mut machine = Machine::start(Some(SAVED), None, SAVED);
        for _ in 0..100 {
            machine.now.wall_ns += SECOND_NS / 2;
            machine.run(1, 1);
        }
        assert_eq!((machine.trusted_ns(), machine.observer.jumps_total), (machine.now.wall_ns, 0));
    }

    #[test]
    fn a_machine_that_was_off_believes_its_clock_after_an_hour() {
        let mut machine = Machine::start(Some(SAVED), None, SAVED + 30 * DAY_NS);
        let said = machine.observer.warning(machine.now).unwrap();
        assert!(said.starts_with("the clock is 30 d 0 h ahead of the time at which"), "{said}");
        machine.run(59, 1);
        assert_eq!(machine.trusted_ns(), SAVED + 59 * MINUTE_NS);
        machine.run(1, 1);
        assert_eq!(machine.trusted_ns(), machine.now.wall_ns);
        // A short stop needs no report.
        let stopped = Machine::start(Some(SAVED), None, SAVED + HOUR_NS);
        assert_eq!(stopped.observer.warning(stopped.now), None);
        let wrong = Machine::start(Some(SAVED), None, 0);
        let said = wrong.observer.warning(wrong.now).unwrap();
        assert!(said.contains(" behind the time at which") && wrong.trusted_ns() == 0, "{said}");
    }

    #[test]
    fn data_of_earlier_openings_counts_once_and_in_bounds() {
        // It runs for a quarter of an hour each day.
        let mut saved_ns = SAVED;
        for day in 1..40 {
            let mut machine = Machine::start(Some(saved_ns), Some(SAVED + (day - 1) * DAY_NS), SAVED + day * DAY_NS);
            machine.run(9, 1);
            assert_eq!(machine.trusted_ns(), saved_ns + 9 * MINUTE_NS);
            machine.run(6, 1);
            saved_ns = machine.trusted_ns();
            assert!(saved_ns >= SAVED + (day - 1) * DAY_NS && saved_ns <= machine.now.wall_ns, "{day}");
        }
        // Data far ahead, written while the clock was wrong.
        let mut machine = Machine::start(Some(SAVED), Some(SAVED + 40 * DAY_NS), SAVED + 40 * DAY_NS);
        machine.run(30, 1);
        assert_eq!(machine.trusted_ns(), SAVED + DAY_NS + 30 * MINUTE_NS);
        assert_eq!(data_advance_ns_max(5, 0), 5_000_000);
        assert_eq!(data_advance_ns_max(u64::MAX, 8 * HOUR_NS), HOUR_NS);
        // A folder from before the time was saved, and a new one.
        assert_eq!(Machine::start(None, Some(SAVED), SAVED + 40 * DAY_NS).trusted_ns(), SAVED);
        assert_eq!(Machine::start(None, None, SAVED).trusted_ns(), SAVED);
    }
}

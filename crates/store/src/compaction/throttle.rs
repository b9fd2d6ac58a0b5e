//! How fast merges may write, so that they leave a slow disk to those who wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use platform::Clock;

/// What a merge may write ahead of its rate, as time at that rate.
const BURST_NS: u64 = 100_000_000;

/// Makes merges wait while they are ahead of a rate and no caller waits for them.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// 0: no limit.
    bytes_per_second_max: u64,
    state: Mutex<State>,
    hurried: Condvar,
    waited_ns: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// When what was written so far has been paid for, on the monotonic clock.
    paid_at_ns: u64,
    /// How many wait for merges to be done.
    hurrying: u64,
}

/// Merges do not wait until it is dropped.
pub(crate) struct Hurry<'a>(&'a Throttle);

impl Throttle {
    pub(crate) fn new(bytes_per_second_max: u64) -> Self {
        Self { bytes_per_second_max, state: Mutex::default(), hurried: Condvar::new(), waited_ns: AtomicU64::new(0) }
    }

    /// Counts what a merge has written, and returns when it may write more.
    pub(crate) fn wrote(&self, bytes: u64, clock: &dyn Clock) {
        if self.bytes_per_second_max == 0 {
            return;
        }
        let mut state = self.state.lock();
        let begun_ns = clock.monotonic_ns();
        state.paid_at_ns = pay(state.paid_at_ns, begun_ns, bytes, self.bytes_per_second_max);
        let until_ns = state.paid_at_ns;
        let mut now_ns = begun_ns;
        while state.hurrying == 0 && now_ns < until_ns {
            self.hurried.wait_for(&mut state, Duration::from_nanos(until_ns - now_ns));
            now_ns = clock.monotonic_ns();
        }
        self.waited_ns.fetch_add(now_ns - begun_ns, Ordering::Relaxed);
    }

    /// Ends all waiting until what is returned is dropped.
    pub(crate) fn hurry(&self) -> Hurry<'_> {
        self.state.lock().hurrying += 1;
        self.hurried.notify_all();
        Hurry(self)
    }

    /// Ends all waiting for good.
    pub(crate) fn lift(&self) {
        std::mem::forget(self.hurry());
    }

    /// How long merges have waited, in nanoseconds.
    pub(crate) fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Hurry<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.hurrying = state.hurrying.saturating_sub(1);
    }
}

/// When bytes that were just written have been paid for. What was not written in the past cannot be made up for later.
fn pay(paid_at_ns: u64, now_ns: u64, bytes: u64, bytes_per_second: u64) -> u64 {
    let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
    let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
    paid_at_ns.max(now_ns.saturating_sub(BURST_NS)).saturating_add(cost_ns)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Moves on a second whenever it is looked at, so that waiting ends without any.
    struct Ticking(AtomicU64);

    impl Ticking {
        fn new() -> Self {
            Self(AtomicU64::new(10 * SECOND_NS))
        }
    }

    impl Clock for Ticking {
        fn now_ns(&self) -> i64 {
            0
        }

        fn monotonic_ns(&self) -> u64 {
            self.0.fetch_add(SECOND_NS, Ordering::Relaxed)
        }
    }

    /// Never moves.
    struct Stopped;

    impl Clock for Stopped {
        fn now_ns(&self) -> i64 {
            0
        }

        fn monotonic_ns(&self) -> u64 {
            SECOND_NS
        }
    }

    #[test]
    fn bytes_cost_time_at_the_rate() {
        let cases = [
            // (paid at, now, bytes, rate) and when those are paid for
            ((0, SECOND_NS, 0, 100), SECOND_NS - BURST_NS),
            ((0, SECOND_NS, 100, 100), 2 * SECOND_NS - BURST_NS),
            ((5 * SECOND_NS, SECOND_NS, 50, 100), 5 * SECOND_NS + SECOND_NS / 2),
            ((0, 0, u64::MAX, 1), u64::MAX),
        ];
        for ((paid_at_ns, now_ns, bytes, rate), expected) in cases {
            assert_eq!(pay(paid_at_ns, now_ns, bytes, rate), expected, "{paid_at_ns} {now_ns} {bytes} {rate}");
        }
    }

    #[test]
    fn who_is_ahead_waits() {
        let throttle = Throttle::new(1 << 30);
        throttle.wrote(1 << 20, &Ticking::new());
        assert_eq!(throttle.waited_ns(), 0, "within what may be ahead");
        throttle.wrote(1 << 30, &Ticking::new());
        assert!(throttle.waited_ns() >= SECOND_NS, "{}", throttle.waited_ns());
        let unlimited = Throttle::new(0);
        unlimited.wrote(u64::MAX, &Stopped);
        assert_eq!(unlimited.waited_ns(), 0);
    }

    #[test]
    fn who_hurries_ends_waiting_and_lets_it_begin_again() {
        let throttle = Arc::new(Throttle::new(1));
        let done = Arc::new(AtomicBool::new(false));
        let writer = {
            let (throttle, done) = (throttle.clone(), done.clone());
            std::thread::spawn(move || {
                throttle.wrote(1 << 40, &Stopped);
                done.store(true, Ordering::SeqCst);
            })
        };
        while throttle.state.lock().paid_at_ns == 0 {
            std::thread::yield_now();
        }
        assert!(!done.load(Ordering::SeqCst), "34,000 years have passed");
        let hurry = throttle.hurry();
        writer.join().expect("the writer goes on");
        drop(hurry);
        assert_eq!(throttle.state.lock().hurrying, 0);
        throttle.lift();
        throttle.wrote(1 << 40, &Stopped);
    }
}

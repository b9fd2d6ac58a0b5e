//! The machine's clock: it jumps, stands still and begins in 1970, while time passes. Nothing within the retention of the time that has really
//! passed may go or be hidden because of that.

use store::Store;

use crate::world::{HOUR_NS, MINUTE_NS, SECOND_NS, World};

/// How long the wall clock is wrong at most: shorter than it takes to be believed.
const CLOCK_WRONG_NS: i64 = 9 * MINUTE_NS;

impl World {
    /// The time, whatever the machine's clock says: that of those who write rows.
    pub(crate) fn now_ns(&self) -> i64 {
        self.simulation.honest_ns()
    }

    /// The time that the store goes by. It must never be ahead of the time.
    pub(crate) fn kept_now_ns(&self) -> i64 {
        self.store().map_or(i64::MIN, Store::trusted_now_ns)
    }

    /// Lets time pass; a clock that has been wrong for long is set right before.
    pub(crate) fn advance_ns(&mut self, nanoseconds: i64) {
        if self.clock_right_at_ns.is_some_and(|right_at_ns| self.now_ns() + nanoseconds >= right_at_ns) {
            self.set_clock_right();
            // The server looks at the clock ten times a second: it sees the clock right before it is set wrong by as much again.
            let _ = self.store().map(Store::maintain_heads);
        }
        self.simulation.advance_ns(nanoseconds);
    }

    pub(crate) fn set_clock_right(&mut self) {
        self.simulation.set_clock_ns(self.now_ns());
        self.clock_right_at_ns = None;
    }

    pub(crate) fn set_clock_wrong(&mut self, wrong: impl FnOnce(&Self)) {
        wrong(self);
        self.report.clock_faults += 1;
        let right_at_ns = self.now_ns() + CLOCK_WRONG_NS;
        self.clock_right_at_ns.get_or_insert(right_at_ns);
    }

    pub(crate) fn disturb_clock(&mut self) {
        let now_ns = self.now_ns();
        match self.below(6) {
            0 => self.set_clock_wrong(|world| world.simulation.freeze_clock()),
            1 => self.set_clock_right(),
            kind => {
                let wall_ns = match kind {
                    2 => SECOND_NS,
                    3 => now_ns - self.below(1_000 * HOUR_NS as u64) as i64,
                    4 => now_ns + 1_000_000 * HOUR_NS,
                    _ => now_ns + self.below(1_000 * HOUR_NS as u64) as i64,
                };
                self.set_clock_wrong(|world| world.simulation.set_clock_ns(wall_ns));
            }
        }
    }

    /// Nothing within the retention of the time may go or be hidden.
    pub(crate) fn check_time(&mut self) -> Result<(), String> {
        let (kept_ns, now_ns) = (self.kept_now_ns(), self.now_ns());
        if kept_ns > now_ns {
            return Err(format!("the store goes by the time {kept_ns}, which is {} ns ahead", kept_ns - now_ns));
        }
        self.oracles.values_mut().for_each(|oracle| oracle.pass(kept_ns));
        Ok(())
    }

    /// A clock that is right for long enough is followed.
    pub(crate) fn believe_clock(&mut self) -> Result<(), String> {
        self.set_clock_right();
        for minutes in [0, 61] {
            self.advance_ns(minutes * MINUTE_NS);
            self.store()?.maintain().map_err(|error| format!("maintaining: {error}"))?;
        }
        match (self.kept_now_ns(), self.now_ns()) {
            (kept_ns, now_ns) if kept_ns == now_ns => self.check_time(),
            (kept_ns, now_ns) => Err(format!("after an hour the store goes by {kept_ns}, not by {now_ns}")),
        }
    }
}

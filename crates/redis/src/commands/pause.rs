//! When what failed is tried again.

/// How long after a failure, in nanoseconds: twice as long each time, up to the most.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 300_000_000_000;

/// A pause after failures, by the monotonic clock.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// How long it is, and until when; both 0 if the last try went well.
    pause_ns: u64,
    until_ns: u64,
}

impl Pause {
    /// Returns whether it is time to try.
    pub(crate) const fn is_over(&self, now_ns: u64) -> bool {
        self.until_ns <= now_ns
    }

    /// Notes a failure: the next try waits.
    pub(crate) fn fail(&mut self, now_ns: u64) {
        self.pause_ns = self.pause_ns.saturating_mul(2).clamp(PAUSE_NS, PAUSE_NS_MAX);
        self.until_ns = now_ns.saturating_add(self.pause_ns);
    }

    /// Notes that all went well that was tried.
    pub(crate) const fn succeed(&mut self) {
        (self.pause_ns, self.until_ns) = (0, 0);
    }

    /// Notes that all went well, and that there is more: others come first.
    pub(crate) const fn rest(&mut self, now_ns: u64) {
        (self.pause_ns, self.until_ns) = (0, now_ns.saturating_add(PAUSE_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_and_end_with_success() {
        let mut pause = Pause::default();
        assert!(pause.is_over(0));
        pause.fail(7);
        assert!(!pause.is_over(PAUSE_NS + 6) && pause.is_over(PAUSE_NS + 7));
        (0..20).for_each(|_| pause.fail(0));
        assert!(!pause.is_over(PAUSE_NS_MAX - 1) && pause.is_over(PAUSE_NS_MAX));
        pause.succeed();
        assert!(pause.is_over(0));
        pause.fail(0);
        assert!(pause.is_over(PAUSE_NS));
    }
}

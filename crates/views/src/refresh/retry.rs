//! How long a view that could not be refreshed waits until it is tried again.

/// The first wait; each is twice as long as the one before.
const WAIT_NS_MIN: u64 = 1_000_000_000;
/// The longest wait.
const WAIT_NS_MAX: u64 = 300_000_000_000;

/// The wait of a view, by the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Retry {
    wait_ns: u64,
    not_before_ns: u64,
}

impl Retry {
    /// Returns whether it is too early to try again.
    pub(super) const fn is_waiting(&self, now_ns: u64) -> bool {
        now_ns < self.not_before_ns
    }

    /// Notes a failure.
    pub(super) fn fail(&mut self, now_ns: u64) {
        self.wait_ns = self.wait_ns.saturating_mul(2).clamp(WAIT_NS_MIN, WAIT_NS_MAX);
        self.not_before_ns = now_ns.saturating_add(self.wait_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_minutes() {
        let mut retry = Retry::default();
        assert!(!retry.is_waiting(0));
        retry.fail(10);
        assert!(retry.is_waiting(WAIT_NS_MIN));
        assert!(!retry.is_waiting(10 + WAIT_NS_MIN));
        retry.fail(0);
        assert!(retry.is_waiting(2 * WAIT_NS_MIN - 1) && !retry.is_waiting(2 * WAIT_NS_MIN));
        (0..70).for_each(|_| retry.fail(0));
        assert!(retry.is_waiting(WAIT_NS_MAX - 1) && !retry.is_waiting(WAIT_NS_MAX));
    }
}

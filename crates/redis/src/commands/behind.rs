//! Keys with buckets of rules that could not be computed when they were over, and when that is tried again.

use std::collections::BTreeSet;
use std::sync::Arc;

/// How long after a failure it is tried again, in nanoseconds: twice as long each time, up to the most.
const PAUSE_NS: u64 = 1_000_000_000;
const PAUSE_NS_MAX: u64 = 300_000_000_000;

/// Keys whose rules are behind; which buckets is part of the rules.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    sources: BTreeSet<Arc<str>>,
    /// How long it waits, and until when, by the monotonic clock; both 0 if the last try went well.
    pause_ns: u64,
    until_ns: u64,
}

impl Behind {
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    pub(crate) fn insert(&mut self, source: Arc<str>) {
        self.sources.insert(source);
    }

    pub(crate) fn remove(&mut self, source: &str) {
        self.sources.remove(source);
    }

    pub(crate) fn sources(&self) -> Vec<Arc<str>> {
        self.sources.iter().cloned().collect()
    }

    /// Returns whether it is time to try again.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        !self.sources.is_empty() && self.until_ns <= now_ns
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
}

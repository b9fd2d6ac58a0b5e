//! Keys with buckets of rules that could not be computed when they were over, and when that is tried again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::pause::Pause;

/// Keys whose rules are behind; which buckets is part of the rules.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    sources: BTreeSet<Arc<str>>,
    pub(crate) pause: Pause,
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
        !self.sources.is_empty() && self.pause.is_over(now_ns)
    }
}

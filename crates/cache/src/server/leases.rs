//! Queries in flight: the first client that is told that an answer is missing fetches it, others wait for that.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::{Key, Span};

/// Leases at a time; beyond it requests do not wait.
const LEASES_MAX: usize = 1 << 16;

/// Missing spans that are being fetched, and when the wait for each ends, in nanoseconds of the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Leases {
    leased: Mutex<HashMap<(Key, Span), u64>>,
    ended: Condvar,
}

impl Leases {
    /// Takes the lease for a span, until so long from now. `false` if another client has it.
    pub(super) fn take(&self, key: Key, span: Span, now_ns: u64, wait_ms: u64) -> bool {
        let mut taken = self.leased.lock();
        if taken.len() >= LEASES_MAX {
            taken.retain(|_, until| *until > now_ns);
        }
        if taken.get(&(key, span)).is_some_and(|until| *until > now_ns) {
            return false;
        }
        if taken.len() < LEASES_MAX {
            taken.insert((key, span), now_ns.saturating_add(wait_ms.saturating_mul(1_000_000)));
        }
        true
    }

    /// Waits until the lease for a span is over, at most so long.
    pub(super) fn wait(&self, key: Key, span: Span, wait_ms: u64) {
        let mut taken = self.leased.lock();
        let is_taken = |taken: &mut HashMap<(Key, Span), u64>| taken.contains_key(&(key, span));
        self.ended.wait_while_for(&mut taken, is_taken, Duration::from_millis(wait_ms));
    }

    /// An answer came, or will not come: all leases for parts of the span are over.
    pub(super) fn end(&self, key: Key, span: Span) {
        let mut taken = self.leased.lock();
        let before = taken.len();
        taken.retain(|(other, part), _| *other != key || !part.overlaps(&span));
        if taken.len() < before {
            self.ended.notify_all();
        }
    }
}

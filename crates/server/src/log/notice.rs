//! Warnings about single clients, at most one a second: connections that were closed because of what they sent, slow queries.

use std::sync::Mutex;

use crate::log;

/// At most one notice in this time: a client that sends nonsense cannot fill a disk with logs.
const PAUSE_NS: u64 = 1_000_000_000;

/// Tells, and counts what it does not tell.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    /// When one was told, and how many were not since.
    last: Mutex<(i64, u64)>,
}

impl Notices {
    pub(crate) fn tell(&self, now_ns: i64, message: impl FnOnce() -> String) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0.abs_diff(now_ns) < PAUSE_NS {
            last.1 += 1;
            return;
        }
        let untold = match last.1 {
            0 => String::new(),
            count => format!(" ({count} more before it were not told)"),
        };
        *last = (now_ns, 0);
        drop(last);
        write(&format!("{}{untold}", message()));
    }
}

/// Warns without a bound on how often: for what says itself how often it is told.
pub(crate) fn write(message: &str) {
    log::warn(message);
}

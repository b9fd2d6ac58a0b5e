//! What the operator is told on stderr: connections that were closed because of what they sent.

use std::io::Write;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// At most one notice in this time: whoever sends nonsense cannot fill a disk with logs.
const PAUSE: Duration = Duration::from_secs(1);

/// Tells, and counts what it does not tell.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    last: Mutex<(Option<Instant>, u64)>,
}

impl Notices {
    pub(crate) fn tell(&self, message: impl FnOnce() -> String) {
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if last.0.is_some_and(|told| told.elapsed() < PAUSE) {
            last.1 += 1;
            return;
        }
        let untold = match last.1 {
            0 => String::new(),
            count => format!(" ({count} more before it were not told)"),
        };
        *last = (Some(Instant::now()), 0);
        drop(last);
        // Nobody reads it: nothing to be done.
        let _ = writeln!(std::io::stderr(), "thalweg: {}{untold}", message());
    }
}

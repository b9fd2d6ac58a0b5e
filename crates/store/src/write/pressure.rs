//! How writers give way to a flush: the fuller the heads are, the less they may be ahead of what is being written, so that they wait
//! often and shortly instead of once and long.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

/// How far the flush that is under way has come; writers wait on it.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    /// Of a thousand; `None` if no flush is under way.
    progress: Mutex<Option<u32>>,
    changed: Condvar,
    /// True if a writer has waited for this flush, or the last if none is under way, and for the one before.
    is_awaited: AtomicBool,
    was_awaited: AtomicBool,
}

/// A flush that is under way, until it is dropped.
pub(crate) struct RunningFlush<'a>(&'a Pressure);

/// What a writer does about a head of so many bytes, of which it may have `bytes_max` before it is flushed, while a flush has come
/// so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// There is room.
    Enter,
    /// There will be when the flush has come further.
    Wait,
    /// No other thread flushes, and the head is far over its share.
    Flush,
}

/// Cells of a request that waits for no flush as long as there is room for small ones.
const SMALL_CELLS_MAX: usize = 256;

/// How full a head is for a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fullness {
    pub(crate) head_bytes: usize,
    /// Bytes that it may have before it is flushed.
    pub(crate) bytes_max: usize,
    /// How far the flush that is under way has come; `None` if there is none.
    pub(crate) progress: Option<u32>,
}

/// Returns whether a request of so many cells is a small one: an eighth of a head is for those alone, so that few rows of one writer do not wait
/// for the many of another.
pub(crate) const fn is_small(cells: usize) -> bool {
    cells <= SMALL_CELLS_MAX
}

/// Half as much again as is waiting for a flush anyway may come in while it runs, twice as much at its end.
pub(crate) fn admit(fullness: Fullness, is_small: bool) -> Admission {
    let Fullness { head_bytes, bytes_max, progress } = fullness;
    let for_small = if is_small { bytes_max / 8 } else { 0 };
    let ahead = match progress {
        None if head_bytes > bytes_max.saturating_mul(2).saturating_add(for_small) => return Admission::Flush,
        None => return Admission::Enter,
        Some(progress) => (bytes_max / 2).saturating_add(bytes_max / 2000 * progress as usize),
    };
    let most = bytes_max.saturating_add(ahead).saturating_add(for_small);
    if head_bytes <= most { Admission::Enter } else { Admission::Wait }
}

impl Pressure {
    /// Says that a flush begins.
    pub(crate) fn begin(&self) -> RunningFlush<'_> {
        *self.progress.lock() = Some(0);
        self.was_awaited.store(self.is_awaited.swap(false, Ordering::Relaxed), Ordering::Relaxed);
        RunningFlush(self)
    }

    /// Returns whether the flush that is under way should be over soon: writers wait for it, or have waited for the one before.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed) || self.was_awaited.load(Ordering::Relaxed)
    }

    pub(crate) fn progress(&self) -> Option<u32> {
        *self.progress.lock()
    }

    /// Returns when the flush has come further than that, or has ended.
    pub(crate) fn wait(&self, seen: Option<u32>) {
        let mut progress = self.progress.lock();
        if progress.is_some() && *progress == seen {
            self.is_awaited.store(true, Ordering::Relaxed);
            self.changed.wait(&mut progress);
        }
    }

    /// Says that so many of all pieces are done.
    pub(crate) fn report(&self, done: usize, all: usize) {
        let share = done.saturating_mul(1000).checked_div(all).unwrap_or(0) as u32;
        let mut progress = self.progress.lock();
        if let Some(known) = progress.as_mut().filter(|known| **known < share) {
            *known = share;
            self.changed.notify_all();
        }
    }
}

impl Drop for RunningFlush<'_> {
    fn drop(&mut self) {
        *self.0.progress.lock() = None;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_may_be_ahead_of_a_flush_by_as_much_as_it_has_done() {
        let of = |head_bytes, progress| Fullness { head_bytes, bytes_max: 10_000, progress };
        let check = |head_bytes, progress, expected| assert_eq!(admit(of(head_bytes, progress), false), expected);
        check(20_000, None, Admission::Enter);
        check(20_001, None, Admission::Flush);
        check(15_000, Some(0), Admission::Enter);
        check(15_001, Some(0), Admission::Wait);
        check(17_500, Some(500), Admission::Enter);
        check(20_001, Some(1000), Admission::Wait);
        let check = |head_bytes, progress, expected| assert_eq!(admit(of(head_bytes, progress), true), expected);
        check(16_250, Some(0), Admission::Enter);
        check(16_251, Some(0), Admission::Wait);
        check(21_250, None, Admission::Enter);
        check(21_251, None, Admission::Flush);
    }

    #[test]
    fn waiting_writers_are_woken_by_progress_and_by_the_end() {
        let pressure = Pressure::default();
        let flush = pressure.begin();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                while let Some(seen) = pressure.progress() {
                    pressure.wait(Some(seen));
                }
            });
            while !pressure.is_awaited() {
                std::thread::yield_now();
            }
            (0..10).for_each(|done| pressure.report(done, 10));
            drop(flush);
            waiting.join().unwrap();
        });
        // The next one knows of it, the one after that does not.
        drop(pressure.begin());
        assert!(pressure.is_awaited());
        drop(pressure.begin());
        assert!(!pressure.is_awaited());
    }
}

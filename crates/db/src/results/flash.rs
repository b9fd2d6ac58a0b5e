//! Kept steps and bins on flash: what was evaluated goes there in the background, what leaves memory before at once, and comes back when it is asked
//! for, after a restart, too.
//!
//! ```text
//!  evaluated ──► memory ──► after a while, or when it leaves ──► flash, stamped with a sequence id of the log
//!                  ▲                                               │
//!                  └──────────── what the journal says still holds ◄─┘
//! ```
//!
//! Memory's snapshots mean nothing to another process. What goes to flash is stamped with the last mark of the journal that is not behind its
//! snapshot ([`store::Journal::marked_at`]), and only once all that its steps show is durable. What is asked for is held against everything
//! that came behind the mark; keys have the journal's identity in them, so that nothing is found that another journal knows of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cache::{Cache, CacheEntry, Key, Portion as _, Request, Span};
use parking_lot::Mutex;
use platform::Platform;
use store::{Store, StoreError};

use super::Portions;
use super::range::next_on_grid;
use super::slab_form::{answer_of, portion_of};

/// Steps and bins that are newer than this are not written yet: they may well change.
const SETTLED_NS: i64 = 6 * 60 * 1_000_000_000;
/// From one look at what is to be written to the next.
const SAVE_NS: u64 = 10 * 1_000_000_000;
/// How long what was written may lie in memory before it fills a slab.
const SEAL_NS: u64 = 60 * 1_000_000_000;
/// Spans of one key that are not written yet; more become one.
const SPANS_MAX: usize = 64;
/// Stretches of flash that a query looks at.
const EXTENTS_MAX: usize = 256;

type Portion = CacheEntry<Portions>;

/// The units of a key's spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Steps at milliseconds.
    Steps,
    /// Bins of nanoseconds; a part of one says nothing.
    Bins { width_ns: i64, offset_ns: i64 },
}

impl Unit {
    /// The end of what has ended by a time.
    fn end_by(self, time_ns: i64) -> i64 {
        match self {
            Self::Steps => time_ns / 1_000_000,
            Self::Bins { width_ns, offset_ns } => {
                next_on_grid(time_ns.saturating_sub(width_ns).saturating_add(1), offset_ns, width_ns)
            }
        }
    }
}

/// The parts of a key's answer that are only in memory.
struct Unwritten {
    unit: Unit,
    spans: Vec<Span>,
}

/// Portions to write.
#[derive(Default)]
struct Pending {
    /// Evaluated steps and bins that are in memory alone, by key.
    spans: HashMap<Key, Unwritten>,
    /// Entries that left memory.
    leaving: Vec<(Key, Portion)>,
    leaving_bytes: usize,
}

/// When what was done last, on the monotonic clock.
#[derive(Default)]
struct Done {
    saved_ns: u64,
    sealed_ns: u64,
}

/// Kept steps and bins on flash.
pub(super) struct Flash {
    cache: Cache,
    platform: Platform,
    journal_id: u64,
    /// The most bytes of entries that left memory and are not written yet; more are dropped.
    leaving_bytes_max: usize,
    pending: Mutex<Pending>,
    done: Mutex<Done>,
    /// True if anything was written that is in no slab yet.
    is_open: AtomicBool,
}

/// The parts of a span that flash had.
pub(super) type OnFlash = Vec<(Arc<Portions>, Span)>;

impl Flash {
    pub(super) fn open(platform: &Platform, options: cache::Options, store: &Store) -> std::io::Result<Self> {
        let leaving_bytes_max = options.open_bytes_max;
        let cache = Cache::open(platform, options)?;
        // Stamps that the log has not reached are those of another history of the folder.
        let present = store.mark();
        if cache.stamp_max().is_some_and(|stamp| stamp > present) {
            cache.clear()?;
        }
        let (pending, done, is_open) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        let (platform, journal_id) = (platform.clone(), store.journal().id());
        Ok(Self { cache, platform, journal_id, leaving_bytes_max, pending, done, is_open })
    }

    pub(super) fn stats(&self) -> cache::Stats {
        self.cache.stats()
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let stats = self.cache.stats();
        stats.open_bytes + stats.index_bytes + self.pending.lock().leaving_bytes as u64
    }

    fn key(&self, key: Key) -> Key {
        // Another version might compute something else.
        Key::of_statement(&format!("{} {:x} {key}", env!("CARGO_PKG_VERSION"), self.journal_id))
    }

    /// Says that steps or bins were evaluated.
    pub(super) fn note(&self, key: Key, span: Span, unit: Unit) {
        let mut pending = self.pending.lock();
        let spans = &mut pending.spans.entry(key).or_insert(Unwritten { unit, spans: Vec::new() }).spans;
        match spans.last_mut().filter(|last| last.end == span.start) {
            Some(last) => last.end = span.end,
            None => spans.push(span),
        }
        if let (true, Some(first), Some(last)) = (
            spans.len() > SPANS_MAX,
            spans.iter().map(|span| span.start).min(),
            spans.iter().map(|span| span.end).max(),
        ) {
            *spans = vec![Span::new(first, last)];
        }
    }

    /// Takes what left memory.
    pub(super) fn take(&self, evicted: Vec<(Key, Vec<Portion>)>) {
        let mut pending = self.pending.lock();
        for (key, portions) in evicted {
            let Some(Unwritten { spans, .. }) = pending.spans.remove(&key) else { continue };
            for portion in portions {
                let is_new = spans.iter().any(|span| span.overlaps(&portion.span));
                let bytes = portion.answer.memory_bytes();
                if is_new && pending.leaving_bytes + bytes <= self.leaving_bytes_max {
                    pending.leaving_bytes += bytes;
                    pending.leaving.push((key, portion));
                }
            }
        }
    }

    /// What there is for a span, if it holds: `holds` says of a stretch and its stamp which of its steps or bins do.
    pub(super) fn find(
        &self,
        key: Key,
        span: Span,
        unit: Unit,
        holds: &mut dyn FnMut(Span, u64) -> Vec<Span>,
    ) -> OnFlash {
        let key = self.key(key);
        let mut extents = self.cache.extents(key, span);
        extents.truncate(EXTENTS_MAX);
        let mut runs: Vec<Span> = Vec::new();
        for (extent, stamp) in &extents {
            for part in holds(extent.intersect(&span), *stamp) {
                match runs.last_mut().filter(|last| last.end == part.start) {
                    Some(last) => last.end = part.end,
                    None => runs.push(part),
                }
            }
        }
        let read = |run: Span| {
            // What was put in their place meanwhile was not looked at.
            let is_known = |extent: Span, stamp: u64| extents.contains(&(extent, stamp));
            // Whole steps may reach beyond the last extent, which ends where what was settled then did: between two steps.
            let covered = extents.iter().map(|(extent, _)| extent.intersect(&run)).filter(|part| !part.is_empty());
            let wanted = Span::new(run.start, covered.map(|part| part.end).max()?);
            let request = Request { key, span: wanted, partial_bytes_min: Some(usize::MAX), holds: &is_known };
            let found = self.cache.find(&request).filter(|found| found.span == wanted)?;
            Some((Arc::new(portion_of(&found.answer, unit)?), run))
        };
        runs.into_iter().filter_map(read).collect()
    }

    /// Writes what is due. Whether there may be more to do. For a thread of its own.
    pub(super) fn work(&self, store: &Store, memory: &cache::Front<Portions>) -> Result<bool, StoreError> {
        let now_ns = self.platform.clock.monotonic_ns();
        let is_full = self.pending.lock().leaving_bytes > self.leaving_bytes_max / 2;
        if is_full || now_ns.saturating_sub(self.done.lock().saved_ns) >= SAVE_NS {
            self.save(store, memory, false)?;
            self.done.lock().saved_ns = now_ns;
        }
        self.cache.maintain().map_err(failed)
    }

    /// Writes what is in memory alone; `all` also what may well change, and so that it outlives the process.
    pub(super) fn save(&self, store: &Store, memory: &cache::Front<Portions>, all: bool) -> Result<(), StoreError> {
        store.save_journal()?;
        let settled_ns = self.platform.clock.now_ns() - SETTLED_NS;
        let mut portions = self.due(Some(settled_ns).filter(|_| !all), memory);
        if !portions.is_empty() {
            // A crash must not take back what their steps show.
            store.commit_seen()?;
        }
        for (key, span, portion) in portions.drain(..) {
            if let Some(stamp) = store.journal().marked_at(portion.stamp) {
                self.write(self.key(key), span, &portion.answer, stamp).map_err(failed)?;
            }
        }
        let now_ns = self.platform.clock.monotonic_ns();
        let is_time = all || now_ns.saturating_sub(self.done.lock().sealed_ns) >= SEAL_NS;
        if is_time && self.is_open.swap(false, Ordering::Relaxed) {
            self.cache.flush().and_then(|()| self.cache.sync()).map_err(failed)?;
            self.done.lock().sealed_ns = now_ns;
        }
        Ok(())
    }

    /// The portions to write that had ended by a time; `None` for all.
    fn due(&self, settled_ns: Option<i64>, memory: &cache::Front<Portions>) -> Vec<(Key, Span, Portion)> {
        let mut pending = self.pending.lock();
        pending.leaving_bytes = 0;
        let leaving = std::mem::take(&mut pending.leaving);
        let mut due: Vec<(Key, Span, Portion)> =
            leaving.into_iter().map(|(key, portion)| (key, portion.span, portion)).collect();
        let mut spans: Vec<(Key, Span)> = Vec::new();
        pending.spans.retain(|key, Unwritten { unit, spans: unwritten }| {
            let end = settled_ns.map_or(i64::MAX, |settled_ns| unit.end_by(settled_ns));
            let (early, late) = (Span::new(i64::MIN, end), Span::new(end, i64::MAX));
            spans.extend(
                unwritten.iter().map(|span| (*key, span.intersect(&early))).filter(|(_, span)| !span.is_empty()),
            );
            *unwritten = unwritten.iter().map(|span| span.intersect(&late)).filter(|span| !span.is_empty()).collect();
            !unwritten.is_empty()
        });
        drop(pending);
        for (key, span) in spans {
            let portions = memory.peek(key, span).into_iter();
            due.extend(portions.map(|portion| (key, portion.span.intersect(&span), portion)));
        }
        due
    }

    /// Puts steps or bins in place of what there is of their span.
    fn write(&self, key: Key, span: Span, portion: &Portions, stamp: u64) -> std::io::Result<()> {
        if !self.cache.extents(key, span).is_empty() {
            self.cache.delete(key, span)?;
        }
        let Some(answer) = answer_of(portion, span) else { return Ok(()) };
        match self.cache.set_stamped(key, &answer, span, stamp) {
            Err(cache::SetError::Io(error)) => Err(error),
            // One that does not fit into slabs is in memory alone.
            Err(cache::SetError::TooLarge(_) | cache::SetError::Invalid(_)) => Ok(()),
            Ok(()) => {
                self.is_open.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

fn failed(error: std::io::Error) -> StoreError {
    StoreError::Io { action: "keep answers on flash".to_owned(), error }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_by_a_time_is_whole() {
        let bins = Unit::Bins { width_ns: 10, offset_ns: 3 };
        let ends: Vec<i64> = [12, 13, 14, 22, 23, -7, -8].map(|time_ns| bins.end_by(time_ns)).to_vec();
        assert_eq!(ends, [3, 13, 13, 13, 23, -7, -17]);
        assert_eq!(Unit::Steps.end_by(5_999_999), 5);
    }
}

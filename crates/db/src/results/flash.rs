//! Kept steps on flash: what was evaluated goes there in the background, what leaves memory before at once, and comes back when it is asked
//! for, after a restart, too.
//!
//! ```text
//!  evaluated ──► memory ──► after a while, or when it leaves ──► flash, stamped with a sequence id of the log
//!                  ▲                                               │
//!                  └──────────── what the journal says still holds ◄─┘
//! ```
//!
//! Memory's snapshots mean nothing to another process. What goes to flash is stamped with the last mark of the journal that is not behind its
//! snapshot ([`store::Store::marked_at`]), and only once all that its steps show is durable. What is asked for is held against everything
//! that came behind the mark; keys have the journal's identity in them, so that nothing is found that another journal knows of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cache::{Cache, FieldPoints, Kept, Key, Points, Portion as _, Request, Span, Values};
use model::Labels;
use parking_lot::Mutex;
use platform::Platform;
use promql::{StepInfo, Stretch};
use store::{Store, StoreError};

use super::Portions;

/// The one field that answers have.
const FIELD: &str = "value";
/// Steps that are newer than this are not written yet: they may well change.
const SETTLED_MS: i64 = 6 * 60 * 1000;
/// From one look at what is to be written to the next.
const SAVE_NS: u64 = 10 * 1_000_000_000;
/// How long what was written may lie in memory before it fills a slab.
const SEAL_NS: u64 = 60 * 1_000_000_000;
/// Spans of one key that are not written yet; more become one.
const SPANS_MAX: usize = 64;
/// Stretches of flash that a query looks at.
const EXTENTS_MAX: usize = 256;

type Portion = Kept<Portions>;

/// What is to be written.
#[derive(Default)]
struct Pending {
    /// Evaluated steps that are in memory alone, by key.
    spans: HashMap<Key, Vec<Span>>,
    /// What left memory.
    leaving: Vec<(Key, Portion)>,
    leaving_bytes: usize,
}

/// When what was done last, on the monotonic clock.
#[derive(Default)]
struct Done {
    saved_ns: u64,
    sealed_ns: u64,
}

/// Kept steps on flash.
pub(super) struct Flash {
    cache: Cache,
    platform: Platform,
    journal_id: u64,
    /// What left memory and is not written yet may take; more is given up.
    leaving_bytes_max: usize,
    pending: Mutex<Pending>,
    done: Mutex<Done>,
    /// Whether anything was written that is in no slab yet.
    is_open: AtomicBool,
}

/// What flash had of a span.
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
        let (platform, journal_id) = (platform.clone(), store.journal_id());
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

    pub(super) fn clear(&self) -> std::io::Result<()> {
        *self.pending.lock() = Pending::default();
        self.cache.clear()
    }

    fn key(&self, key: Key) -> Key {
        // Another version might compute something else.
        Key::of_statement(&format!("{} {:x} {key}", env!("CARGO_PKG_VERSION"), self.journal_id))
    }

    /// Says that steps were evaluated.
    pub(super) fn note(&self, key: Key, span: Span) {
        let mut pending = self.pending.lock();
        let spans = pending.spans.entry(key).or_default();
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
            let Some(spans) = pending.spans.remove(&key) else { continue };
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

    /// What there is for a span, if it holds: `holds` says of a stretch and its stamp which of its steps do.
    pub(super) fn find(&self, key: Key, span: Span, holds: &mut dyn FnMut(Span, u64) -> Vec<Span>) -> OnFlash {
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
            Some((Arc::new(Portions::Steps(stretch_of(&found.answer)?)), run))
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
        store.keep_journal()?;
        let settled_ms = self.platform.clock.now_ns() / 1_000_000 - SETTLED_MS;
        let mut portions = self.due(if all { i64::MAX } else { settled_ms }, memory);
        if !portions.is_empty() {
            // A crash must not take back what their steps show.
            store.commit_seen()?;
        }
        for (key, span, portion) in portions.drain(..) {
            if let (Some(stamp), Portions::Steps(stretch)) = (store.marked_at(portion.stamp), &*portion.answer) {
                self.write(self.key(key), span, stretch, stamp).map_err(failed)?;
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

    /// What is to be written of steps up to a time.
    fn due(&self, end_ms: i64, memory: &cache::Front<Portions>) -> Vec<(Key, Span, Portion)> {
        let mut pending = self.pending.lock();
        pending.leaving_bytes = 0;
        let leaving = std::mem::take(&mut pending.leaving);
        let mut due: Vec<(Key, Span, Portion)> =
            leaving.into_iter().map(|(key, portion)| (key, portion.span, portion)).collect();
        let mut spans: Vec<(Key, Span)> = Vec::new();
        pending.spans.retain(|key, unwritten| {
            let (early, late) = (Span::new(i64::MIN, end_ms), Span::new(end_ms, i64::MAX));
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

    /// Puts steps in place of what there is of their span.
    fn write(&self, key: Key, span: Span, stretch: &Stretch, stamp: u64) -> std::io::Result<()> {
        if !self.cache.extents(key, span).is_empty() {
            self.cache.delete(key, span)?;
        }
        let Some(answer) = answer_of(stretch, span) else { return Ok(()) };
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

/// A stretch's steps in a span, in the form of slabs. `None` if infos go with some of them: those stay in memory.
fn answer_of(stretch: &Stretch, span: Span) -> Option<cache::Answer> {
    let overlaps = |info: &StepInfo| info.steps.iter().any(|(first, last)| *first < span.end && *last >= span.start);
    if stretch.infos.values().any(overlaps) {
        return None;
    }
    let mut series: Vec<Arc<str>> = Vec::new();
    let mut all: Vec<(i64, u32, f64)> = Vec::new();
    for (labels, values) in &stretch.series {
        let first = values.partition_point(|(time_ms, _)| *time_ms < span.start);
        let end = values.partition_point(|(time_ms, _)| *time_ms < span.end);
        let inside = values.get(first..end).filter(|inside| !inside.is_empty());
        let number = u32::try_from(series.len()).ok()?;
        all.extend(inside.unwrap_or_default().iter().map(|(time_ms, value)| (*time_ms, number, *value)));
        series.extend(inside.map(|_| Arc::from(text_of(labels))));
    }
    all.sort_by_key(|(time_ms, number, _)| (*time_ms, *number));
    let points = Points {
        timestamps: all.iter().map(|(time_ms, ..)| *time_ms).collect(),
        series: all.iter().map(|(_, number, _)| *number).collect(),
        values: Values::F64(all.iter().map(|(.., value)| *value).collect()),
    };
    // The field is there even without points: a key has the same fields always.
    Some(cache::Answer { series, fields: vec![FieldPoints { name: Arc::from(FIELD), points }] })
}

/// The same, back. `None` if it is not what [`answer_of`] makes.
fn stretch_of(answer: &cache::Answer) -> Option<Stretch> {
    let mut values: Vec<Vec<(i64, f64)>> = vec![Vec::new(); answer.series.len()];
    for field in &answer.fields {
        let Values::F64(column) = &field.points.values else { return None };
        let times = field.points.timestamps.iter().zip(&field.points.series);
        for ((time_ms, number), value) in times.zip(column) {
            values.get_mut(*number as usize)?.push((*time_ms, *value));
        }
    }
    let mut series = Vec::with_capacity(values.len());
    for (text, mut values) in answer.series.iter().zip(values).filter(|(_, values)| !values.is_empty()) {
        if !values.is_sorted_by_key(|(time_ms, _)| *time_ms) {
            values.sort_by_key(|(time_ms, _)| *time_ms);
        }
        series.push((labels_of(text)?, values));
    }
    series.sort_by(|(a, _), (b, _)| a.cmp(b));
    Some(Stretch { series, ..Stretch::default() })
}

/// Labels as a series' name: each text behind its length and a colon.
fn text_of(labels: &Labels) -> String {
    let mut text = String::new();
    for part in labels.iter().flat_map(|(name, value)| [name, value]) {
        text.push_str(&part.len().to_string());
        text.push(':');
        text.push_str(part);
    }
    text
}

fn labels_of(mut text: &str) -> Option<Labels> {
    let mut next = || {
        let (length, rest) = text.split_once(':')?;
        let (part, rest) = rest.split_at_checked(length.parse().ok()?)?;
        text = rest;
        Some(part)
    };
    let mut pairs = Vec::new();
    while let Some(name) = next() {
        pairs.push((name, next()?));
    }
    text.is_empty().then(|| Labels::from_pairs(pairs).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(stretch: &Stretch) -> Vec<(Labels, Vec<(i64, u64)>)> {
        let plain = |values: &[(i64, f64)]| values.iter().map(|(time, value)| (*time, value.to_bits())).collect();
        stretch.series.iter().map(|(labels, values)| (labels.clone(), plain(values))).collect()
    }

    proptest! {
        #[test]
        fn steps_come_back_as_they_were(
            series in prop::collection::btree_map(
                prop::collection::btree_map("[a-z:0-9]{0,4}", "\\PC{1,6}", 0..4),
                prop::collection::btree_map(-50i64..50, any::<u64>(), 1..20),
                0..6,
            ),
            (start, end) in (-60i64..60, -60i64..60),
        ) {
            let mut stretch = Stretch::default();
            for (labels, values) in &series {
                let values = values.iter().map(|(time, bits)| (*time, f64::from_bits(*bits))).collect();
                stretch.series.push((Labels::from_pairs(labels).unwrap(), values));
            }
            stretch.series.sort_by(|(a, _), (b, _)| a.cmp(b));
            let span = Span::new(start, end.max(start + 1));
            let back = stretch_of(&answer_of(&stretch, span).unwrap()).unwrap();
            let expected = Stretch::join(&[(&stretch, span.start, span.end - 1)]);
            prop_assert_eq!(bits(&back), bits(&expected));
        }
    }
}

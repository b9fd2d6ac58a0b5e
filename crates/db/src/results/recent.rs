//! The newest samples of selectors, as they were read: a dashboard that slides forward evaluates its newest step on them, and reads what was
//! written since. Panels that select the same share them.
//!
//! What is kept of a selector is what a query would read between two times. Before it is used, the journal says from when on that may have
//! changed: from there on it is read again. Where the index changed, where several groups share a series, and where there are histograms, all
//! is read from the store as ever.

use std::collections::HashMap;
use std::sync::Arc;

use cache::Key;
use model::{Labels, Matcher};
use parking_lot::Mutex;
use query::{
    Budget, Chosen, LastSampleSink, Plan, Projection, QueryError, Selection, Series, SeriesSink, Source, StoreSource,
    TextSink, Trace, ViewedWindows, WindowSelection, WindowSeries, WindowSink,
};
use store::Store;

use super::validity::Watch;

const NS_PER_MS: i64 = 1_000_000;
/// How long before the newest sample of a selector the oldest may be.
const SPAN_MS_MAX: i64 = 2 * 60 * 60 * 1000;
/// Selectors of which something is known.
const SELECTORS_MAX: usize = 256;
/// Places whose series are handed over together.
const PLACES_AT_ONCE: usize = 256;
/// Bytes of a series beside its samples.
const SERIES_BYTES: usize = 120;

/// The cached samples of a selector.
struct Recent {
    chosen: Chosen,
    /// The snapshot up to which it holds.
    stamp: u64,
    /// All samples from the first to the last of these milliseconds are there.
    range_ms: (i64, i64),
    /// How much time was asked for at once.
    span_ms: i64,
    /// By place.
    series: Vec<Vec<Series>>,
}

/// One selector's; held while it is brought up to date, so that many who ask at once read once.
#[derive(Default)]
struct Slot {
    recent: Mutex<Option<Arc<Recent>>>,
}

#[derive(Default)]
struct Slots {
    /// With when they were asked for last, and their bytes.
    by_key: HashMap<Key, (Arc<Slot>, u64, usize)>,
    last_used: u64,
}

/// The newest samples of selectors, in so many bytes of memory at most.
pub(crate) struct Recents {
    slots: Mutex<Slots>,
    bytes_max: usize,
}

/// A source that has them.
pub(crate) struct RecentSource<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: u32,
    pub(crate) inner: &'a StoreSource<'a>,
    pub(crate) recents: &'a Recents,
}

impl Recents {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { slots: Mutex::default(), bytes_max }
    }

    /// Bytes that are held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slots.lock().by_key.values().map(|(_, _, bytes)| bytes).sum()
    }

    fn slot(&self, key: Key) -> Arc<Slot> {
        let mut slots = self.slots.lock();
        slots.last_used += 1;
        let last_used = slots.last_used;
        let (slot, last, _) = slots.by_key.entry(key).or_default();
        *last = last_used;
        slot.clone()
    }

    /// Says what a selector takes now, and lets those go that were not asked for longest if all together take too much.
    fn account(&self, key: Key, bytes: usize) {
        let mut slots = self.slots.lock();
        if let Some((_, _, known)) = slots.by_key.get_mut(&key) {
            *known = bytes;
        }
        while slots.by_key.len() > SELECTORS_MAX
            || slots.by_key.values().map(|(_, _, bytes)| bytes).sum::<usize>() > self.bytes_max
        {
            let oldest = slots.by_key.iter().min_by_key(|(_, (_, last, _))| *last).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            slots.by_key.remove(&oldest);
        }
    }
}

impl RecentSource<'_> {
    /// The cached series of a selection; none if it is to be read from the store.
    fn recent(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Option<Arc<Recent>>, QueryError> {
        // Its few whole labels are read later.
        if selection.is_numbered {
            return Ok(None);
        }
        let is_long = selection.end_ms.saturating_sub(selection.start_ms) > SPAN_MS_MAX;
        if is_long || self.store.has_folds_in(&selection.nanoseconds()) {
            return Ok(None);
        }
        // To put whole labels of so many series together costs more than to read their samples.
        if let Some(projection) = selection.projection
            && let Some(groups) = self.inner.projected_groups(selection.matchers, projection, budget)?
            && groups * SERIES_BYTES > self.recents.bytes_max
        {
            return Ok(None);
        }
        let scope = budget.scope_text(self.inner.database());
        let key = Key::of_statement(&format!("{} {scope}{:?}", self.database, selection.matchers));
        let slot = self.recents.slot(key);
        let mut known = slot.recent.lock();
        // Before anything is read: what comes later has a larger number.
        let (snapshot, index_changes) = (self.store.journal().snapshot(), self.store.index_changes());
        if self.inner.chosen(selection.matchers).is_some_and(|chosen| chosen.index_changes() != index_changes) {
            // Something new came during the query, which goes on without it: what it reads is nothing for others.
            return Ok(None);
        }
        let is_current = |recent: &Arc<Recent>| recent.chosen.index_changes() == index_changes;
        let before = known.take().filter(is_current);
        if let Some(recent) = &before {
            self.inner.adopt(selection.matchers, &recent.chosen);
        }
        let changed_ms = before.as_ref().and_then(|recent| self.changed_from_ms(recent, selection.matchers));
        let Some(kept) = before.zip(changed_ms) else {
            return self.fill(selection, snapshot, 0, (key, &mut known), budget);
        };
        let (recent, changed_ms) = kept;
        let (from_ms, to_ms) = recent.range_ms;
        let (is_older, is_newer) = (selection.start_ms < from_ms, selection.end_ms > to_ms);
        if !is_older && selection.end_ms < changed_ms {
            *known = Some(recent.clone());
            return Ok(Some(recent));
        }
        if !is_older && changed_ms > from_ms {
            let recent = self.renew(recent, changed_ms, selection, snapshot, budget)?;
            return Ok(self.insert(recent, (key, &mut known)));
        }
        if is_newer || changed_ms <= from_ms || selection.end_ms == to_ms {
            let span_ms = recent.span_ms;
            return self.fill(selection, snapshot, span_ms, (key, &mut known), budget);
        }
        // A query that looks far back: its samples are not cached, and do not displace those that are.
        *known = Some(recent);
        Ok(None)
    }

    /// From when on what is kept may be different now; `None` if that is unknown.
    fn changed_from_ms(&self, recent: &Recent, matchers: &[Matcher]) -> Option<i64> {
        let from_ns = recent.range_ms.0.saturating_mul(NS_PER_MS);
        if self.store.oldest_retained_ns(self.database) > from_ns {
            return None;
        }
        let reads = promql::ReadInterval { first_ms: 0, last_ms: 0 };
        let mut watch = Watch::new(self.store, self.database, vec![matchers.to_vec()], reads);
        let changed_ns = watch.changed_from_ns(recent.stamp, from_ns);
        let behind_ms = recent.range_ms.1.saturating_add(1);
        changed_ns.map(|changed_ns| changed_ns.div_euclid(NS_PER_MS).min(behind_ms))
    }

    /// Reads all of a selection anew, and as much before it as was asked for at once.
    fn fill(
        &self,
        selection: &Selection<'_>,
        stamp: u64,
        span_ms: i64,
        (key, known): (Key, &mut Option<Arc<Recent>>),
        budget: &Budget,
    ) -> Result<Option<Arc<Recent>>, QueryError> {
        let chosen = self.inner.choose(selection.matchers, budget)?;
        if !chosen.is_simple() || chosen.sets() * SERIES_BYTES > self.recents.bytes_max {
            return Ok(None);
        }
        let span_ms = span_ms.max(selection.end_ms - selection.start_ms);
        let range_ms = (selection.end_ms - span_ms, selection.end_ms);
        let series = self.read(selection.matchers, range_ms, chosen.sets(), budget)?;
        let recent = Recent { chosen, stamp, range_ms, span_ms, series };
        Ok(self.insert(recent, (key, known)))
    }

    /// Reads again from a time on, and puts that behind what was before.
    fn renew(
        &self,
        recent: Arc<Recent>,
        changed_ms: i64,
        selection: &Selection<'_>,
        stamp: u64,
        budget: &Budget,
    ) -> Result<Recent, QueryError> {
        let end_ms = selection.end_ms.max(recent.range_ms.1);
        let read = self.read(selection.matchers, (changed_ms, end_ms), recent.chosen.sets(), budget)?;
        // Nothing is copied unless another query still reads it.
        let mut recent = Arc::try_unwrap(recent).unwrap_or_else(|shared| shared.copied());
        recent.span_ms = recent.span_ms.max(selection.end_ms - selection.start_ms);
        // What is too old goes once it is as much as the rest.
        let is_long = end_ms - recent.range_ms.0 > recent.span_ms.saturating_mul(2);
        let from_ms = if is_long { end_ms - recent.span_ms } else { recent.range_ms.0 };
        let first_ms = is_long.then_some(from_ms);
        for (kept, read) in recent.series.iter_mut().zip(read) {
            kept.iter_mut().for_each(|series| series.cut(first_ms, changed_ms));
            if kept.is_empty() {
                *kept = read;
                continue;
            }
            for series in read {
                match kept.iter_mut().find(|known| known.labels == series.labels) {
                    Some(known) => {
                        Arc::make_mut(&mut known.timestamps_ms).extend_from_slice(&series.timestamps_ms);
                        known.values.extend_from_slice(&series.values);
                        known.histograms.extend(series.histograms);
                        known.folds.extend(series.folds);
                    }
                    // Its place among the others is not known.
                    None => return self.anew(recent, (from_ms, end_ms), selection.matchers, stamp, budget),
                }
            }
        }
        Ok(Recent { stamp, range_ms: (from_ms, end_ms), ..recent })
    }

    fn anew(
        &self,
        recent: Recent,
        range_ms: (i64, i64),
        matchers: &[Matcher],
        stamp: u64,
        budget: &Budget,
    ) -> Result<Recent, QueryError> {
        let series = self.read(matchers, range_ms, recent.chosen.sets(), budget)?;
        Ok(Recent { stamp, range_ms, series, ..recent })
    }

    fn insert(&self, recent: Recent, (key, known): (Key, &mut Option<Arc<Recent>>)) -> Option<Arc<Recent>> {
        if recent.series.iter().flatten().any(|series| !series.histograms.is_empty() || !series.folds.is_empty()) {
            return None;
        }
        let bytes = recent.memory_bytes();
        let recent = Arc::new(recent);
        if bytes <= self.recents.bytes_max {
            *known = Some(recent.clone());
            self.recents.account(key, bytes);
        }
        Some(recent)
    }

    /// The series between two times, by place.
    fn read(
        &self,
        matchers: &[Matcher],
        (start_ms, end_ms): (i64, i64),
        places: usize,
        budget: &Budget,
    ) -> Result<Vec<Vec<Series>>, QueryError> {
        let read = Placed(Mutex::new(vec![Vec::new(); places]));
        let selection = Selection { matchers, start_ms, end_ms, projection: None, is_numbered: false };
        self.inner.scan(&selection, budget, &read)?;
        let read = read.0.into_inner();
        // They are counted among the bytes of what is kept.
        budget.give_back(read.iter().flatten().map(Series::samples).sum());
        Ok(read)
    }
}

/// Series by their places.
struct Placed(Mutex<Vec<Vec<Series>>>);

impl SeriesSink for Placed {
    fn take(&self, place: usize, series: Vec<Series>) -> Result<(), QueryError> {
        if let Some(known) = self.0.lock().get_mut(place) {
            *known = series;
        }
        Ok(())
    }
}

impl Recent {
    fn memory_bytes(&self) -> usize {
        let of_series =
            |series: &Series| SERIES_BYTES + series.timestamps_ms.capacity() * 8 + series.values.capacity() * 8;
        let labels = |series: &Series| series.labels.packed_bytes();
        self.series.iter().flatten().map(|series| of_series(series) + labels(series)).sum()
    }

    fn copied(&self) -> Self {
        Self { chosen: self.chosen.clone(), series: self.series.clone(), ..*self }
    }

    /// Hands what a selection chooses to a sink, as the store would.
    fn give(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn SeriesSink) -> Result<(), QueryError> {
        let within = |series: &Series| series.floats_between(selection.start_ms, selection.end_ms);
        // Many at once: their order is what counts.
        self.series.chunks(PLACES_AT_ONCE).enumerate().try_for_each(|(place, series)| {
            let given: Vec<Series> = series.iter().flatten().filter_map(within).collect();
            budget.take(given.iter().map(Series::samples).sum())?;
            sink.take(place, given)
        })
    }
}

impl Source for RecentSource<'_> {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        self.inner.select(selection, budget)
    }

    fn scan(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn SeriesSink) -> Result<(), QueryError> {
        match self.recent(selection, budget)? {
            Some(recent) => recent.give(selection, budget, sink),
            None => self.inner.scan(selection, budget, sink),
        }
    }

    /// The last samples alone cost less than to cache all.
    fn scan_last(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn LastSampleSink,
    ) -> Result<(), QueryError> {
        self.inner.scan_last(selection, budget, sink)
    }

    fn scan_texts(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn TextSink) -> Result<(), QueryError> {
        self.inner.scan_texts(selection, budget, sink)
    }

    fn scan_windows(
        &self,
        selection: &WindowSelection<'_>,
        budget: &Budget,
        sink: &dyn WindowSink,
    ) -> Result<(), QueryError> {
        self.inner.scan_windows(selection, budget, sink)
    }

    fn windows_by_view(
        &self,
        asked: &ViewedWindows<'_>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        self.inner.windows_by_view(asked, budget)
    }

    fn plan_by_view(&self, asked: &ViewedWindows<'_>, budget: &Budget) -> Result<Option<Plan>, QueryError> {
        self.inner.plan_by_view(asked, budget)
    }

    fn labels_of(
        &self,
        matchers: &[Matcher],
        projection: Projection<'_>,
        numbers: &[u32],
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        self.inner.labels_of(matchers, projection, numbers, budget)
    }

    fn trace(&self) -> Option<&Trace<'_>> {
        self.inner.trace()
    }
}

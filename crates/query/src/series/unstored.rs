//! Windows of views that are to be stored by now and are not stored as they are: a query of PromQL that names them computes them, as other languages do.
//!
//! ```text
//!  selectors ──► views whose columns they name ──► expanded scans: ranges that are stored, and others
//!                                                    no others: series are read as they are stored
//!                                                    else: series of these views without their samples there, and with the computed ones
//! ```
//!
//! A sample of PromQL does not change while time passes, so that windows which are under way, or within the view's lag, are none yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use index::{CompiledMatcher, compile};
use model::{Cell, Labels, METRIC_NAME, MatchOp, Matcher, TimeRange, metric_name};
use store::SelectedGroup;

use super::read_views::{ReadViews, UnstoredView};
use super::store_source::{StoreSource, join};
use super::texts::TextSample;
use crate::plan::{Scan, Selector, TableColumns};
use crate::views::{View, ViewCatalog, intersect, subtract};
use crate::{
    Budget, Frame, Plan, QueryError, Selection, Series, SeriesSink, Session, SessionHost, StoreSession, TextSeries,
    TextSink, Trace, ViewUse,
};

const NS_PER_MS: i64 = 1_000_000;

/// Views by the names of their tables, with fields, and whether a selector has the name itself.
type NamedViews = BTreeMap<String, (Arc<View>, BTreeSet<String>, bool)>;

/// Reads the series of groups.
type ReadGroups<'a, T> = dyn Fn(&[SelectedGroup]) -> Result<Vec<T>, QueryError> + 'a;

/// A series of a selection that may have computed samples.
pub(super) trait Overlaid: Sized {
    fn labels(&self) -> &Labels;
    fn samples(&self) -> usize;
    /// Leaves out samples in ranges.
    fn cut(&mut self, ranges: &[TimeRange]);
    /// Joins with one of other times, or, where both have samples, of more weight.
    fn join(self, later: Self) -> Self;
    fn of_column(labels: Labels, frame: &Frame, field: &str) -> Self;
}

/// The computed samples of the views that a selection names.
pub(super) struct Computed<T> {
    views: Vec<ComputedView>,
    /// By the view's place and the series' labels: those that are not given yet.
    series: Mutex<HashMap<(usize, Labels), T>>,
}

struct ComputedView {
    target: String,
    metrics: BTreeSet<String>,
    ranges: Vec<TimeRange>,
}

impl StoreSource<'_> {
    /// Finds the views whose columns selectors name, and those of their windows in a range that are to be stored by now and are not. The query computes these: what
    /// looks at [`StoreSource::unstored_ranges`] is not to be kept, as the journal does not tell what changes it. Returns how often windows of the views were
    /// deleted to be written again before, as [`StoreSource::view_rewrites`].
    ///
    /// # Errors
    /// Of matchers that cannot be compiled, and of reading the store.
    pub fn find_unstored(
        &self,
        selectors: &[&[Matcher]],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<u64, QueryError> {
        // What was chosen for an attempt before may lack series.
        self.forget_chosen();
        *self.read_views.lock().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        let Some((host, catalog)) = self.viewed_by_name(budget) else { return Ok(0) };
        let named = named_views(catalog, self.database, selectors)?;
        let exact = named.iter().filter(|(_, (_, _, is_exact))| *is_exact);
        let mut found =
            ReadViews { targets: exact.map(|(target, _)| target.clone()).collect(), ..ReadViews::default() };
        let rewrites = self.rewrites_of(&found);
        let session = StoreSession::new(host, budget);
        for (view, fields, is_exact) in named.into_values() {
            match self.unstored(view, fields, range, (host, &session)) {
                Ok(unstored) => found.unstored.extend(unstored),
                // One that the query's sender may not read has no series for it; another one was dropped meanwhile.
                Err(QueryError::Forbidden(_) | QueryError::Execution(_)) => {}
                // A pattern is not for this one: it has what is stored.
                Err(QueryError::Invalid(_)) if !is_exact => {}
                Err(error) => return Err(error),
            }
        }
        *self.read_views.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        Ok(rewrites)
    }

    /// The times of windows that are computed for this query.
    pub fn unstored_ranges(&self) -> Vec<TimeRange> {
        self.read_views().unstored.iter().flat_map(|unstored| unstored.ranges.iter().copied()).collect()
    }

    /// How often windows of the views that the query names, not by patterns, were deleted to be written again: if that changes while they are read, some may
    /// have been missed.
    pub fn view_rewrites(&self) -> u64 {
        self.rewrites_of(&self.read_views())
    }

    /// Returns whether windows of views are computed for a selection.
    pub(super) fn is_unstored(&self, selection: &Selection<'_>) -> Result<bool, QueryError> {
        let read = self.read_views();
        if read.unstored.is_empty() {
            return Ok(false);
        }
        let (names, range) = (compiled_names(selection.matchers)?, selection.nanoseconds());
        let is_needed = |unstored: &UnstoredView| {
            unstored.ranges.iter().any(|unstored| unstored.overlaps(&range))
                && !named_fields(&unstored.view, &names).is_empty()
        };
        Ok(read.unstored.iter().any(is_needed))
    }

    fn rewrites_of(&self, read: &ReadViews) -> u64 {
        let Some(catalog) = self.host.and_then(|host| host.views) else { return 0 };
        read.targets.iter().map(|target| catalog.rewrites(self.database, target)).sum()
    }

    fn read_views(&self) -> Arc<ReadViews> {
        self.read_views.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn viewed_by_name(&self, budget: &Budget) -> Option<(SessionHost<'_>, &dyn ViewCatalog)> {
        let is_computed = budget.view_use() != ViewUse::Stored && !budget.reads_names_as_stored();
        let host = self.host.filter(|_| is_computed && self.regular().is_none())?;
        host.views.map(|catalog| (host, catalog))
    }

    /// A view, if some of its windows in a range are to be computed.
    fn unstored(
        &self,
        view: Arc<View>,
        fields: BTreeSet<String>,
        range: &TimeRange,
        (host, session): (SessionHost<'_>, &StoreSession<'_>),
    ) -> Result<Option<UnstoredView>, QueryError> {
        let is_told = view.definition.options.materialized_only && session.budget().view_use() == ViewUse::All;
        let newest_ns = if is_told { i64::MIN } else { view.newest_window(host.store.window_now_ns()) };
        let end_ns = newest_ns.max(view.state.watermark_ns);
        let range = TimeRange { end_ns: range.end_ns.min(end_ns.saturating_sub(1)), ..*range };
        if range.start_ns > range.end_ns {
            return Ok(None);
        }
        let target = view.definition.target.clone();
        let expanded =
            session.expanded(self.database, &scan(&target, fields.into_iter().collect(), Vec::new(), range))?;
        let stored = |plan: &Plan| match plan {
            Plan::Scan(stored) if stored.table.as_ref().is_some_and(|table| table.name == target) => Some(stored.range),
            _ => None,
        };
        let stored: Vec<TimeRange> = match &expanded {
            Plan::View(read) => read.parts.iter().filter_map(|part| stored(&part.plan)).collect(),
            plan => stored(plan).into_iter().collect(),
        };
        let ranges = subtract(&[range], &stored);
        Ok((!ranges.is_empty()).then_some(UnstoredView { view, ranges }))
    }

    /// Computes the windows that a selection needs of views that are not all stored; `None` if it names none.
    pub(super) fn computed<T: Overlaid>(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
    ) -> Result<Option<Computed<T>>, QueryError> {
        let read = self.read_views();
        let (Some(host), false) = (self.host, read.unstored.is_empty()) else { return Ok(None) };
        let names = compiled_names(selection.matchers)?;
        let labels = selection.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME);
        let selectors: Vec<Selector> = labels.map(selector).collect();
        let session = StoreSession::new(host, budget);
        let (mut views, mut found) = (Vec::new(), HashMap::new());
        for unstored in &read.unstored {
            let columns = named_fields(&unstored.view, &names);
            let ranges = unstored.ranges.iter().map(|range| intersect(range, &selection.nanoseconds()));
            let ranges: Vec<TimeRange> = ranges.filter(|range| range.start_ns <= range.end_ns).collect();
            if columns.is_empty() || ranges.is_empty() {
                continue;
            }
            let target = unstored.view.definition.target.clone();
            let fields: Vec<String> = columns.iter().map(|(_, field)| field.clone()).collect();
            for range in &ranges {
                let plan = scan(&target, fields.clone(), selectors.clone(), *range);
                self.compute(&session, &plan, &columns, &mut |series| add(&mut found, views.len(), series, budget))?;
            }
            views.push(ComputedView {
                target,
                metrics: columns.into_iter().map(|(metric, _)| metric).collect(),
                ranges,
            });
        }
        self.summed.lock().unwrap_or_else(PoisonError::into_inner).merge(&session.reads());
        Ok((!views.is_empty()).then(|| Computed { views, series: Mutex::new(found) }))
    }

    /// Runs a plan of a view's rows, and gives each column of its frames as a series.
    fn compute<T: Overlaid>(
        &self,
        session: &StoreSession<'_>,
        plan: &Plan,
        columns: &[(String, String)],
        take: &mut dyn FnMut(T) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let (budget, started_ns) = (session.budget(), self.trace.map(Trace::begin));
        let held = budget.samples();
        let outcome = session.run_once(self.database, plan)?;
        let charged = budget.samples().saturating_sub(held) as usize;
        for frame in &outcome.frames {
            budget.check()?;
            for (metric, field) in columns {
                take(T::of_column(frame.labels.with(METRIC_NAME, metric), frame, field))?;
            }
        }
        budget.give_back(charged);
        if let Some((trace, started_ns)) = self.trace.zip(started_ns) {
            let rows = outcome.frames.iter().map(Frame::rows).sum();
            trace.end(started_ns, Some("windows of a view"), outcome.frames.len(), rows);
        }
        Ok(())
    }

    /// The series of one set, with computed samples in the place of those that are stored where they are computed.
    pub(super) fn overlaid<T: Overlaid>(
        &self,
        set: &[SelectedGroup],
        computed: &Computed<T>,
        budget: &Budget,
        read: &ReadGroups<'_, T>,
    ) -> Result<Vec<T>, QueryError> {
        let mut elsewhere = Vec::new();
        let mut of_views: Vec<T> = Vec::new();
        for group in set {
            let name = self.store.measurement_name(group.measurement());
            match computed.views.iter().position(|view| view.target == name) {
                None => elsewhere.push(group.clone()),
                Some(place) => {
                    let series = read(std::slice::from_ref(group))?;
                    of_views.extend(series.into_iter().map(|series| computed.lay_over(place, series, budget)));
                }
            }
        }
        let elsewhere = if elsewhere.is_empty() { Vec::new() } else { read(&elsewhere)? };
        let mut found: Vec<T> = elsewhere.into_iter().map(|series| computed.with_same(series, budget)).collect();
        for series in of_views {
            put(&mut found, series, budget);
        }
        Ok(found)
    }

    /// Hands a sink the series that a selection chooses, with computed samples.
    pub(super) fn scan_overlaid(
        &self,
        computed: &Computed<Series>,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn SeriesSink,
    ) -> Result<(), QueryError> {
        let range = selection.nanoseconds();
        self.each_set(selection.matchers, budget, &|place, set| {
            let mut series = self.overlaid(set, computed, budget, &|groups| self.read(groups, &range, budget))?;
            series.retain(|series| Series::samples(series) > 0);
            let samples = self.count_read(set.len(), 0, &series);
            sink.take(place, series)?;
            Ok(samples)
        })?;
        let sets = self.choose(selection.matchers, budget)?.sets();
        let rest = computed.rest(budget).into_iter().enumerate();
        rest.into_iter().try_for_each(|(place, series)| sink.take(sets + place, vec![series]))
    }

    /// As [`StoreSource::scan_overlaid`], with texts.
    pub(super) fn scan_overlaid_texts(
        &self,
        computed: &Computed<TextSeries>,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn TextSink,
    ) -> Result<(), QueryError> {
        let range = selection.nanoseconds();
        self.each_set(selection.matchers, budget, &|_, set| {
            let mut series = self.overlaid(set, computed, budget, &|groups| self.read_texts(groups, &range, budget))?;
            series.retain(|series| !series.samples.is_empty());
            let samples: usize = series.iter().map(TextSeries::samples).sum();
            self.note_reads(set.len(), samples);
            series.into_iter().try_for_each(|series| sink.take(series))?;
            Ok(samples as u64)
        })?;
        computed.rest(budget).into_iter().try_for_each(|series| sink.take(series))
    }
}

impl<T: Overlaid> Computed<T> {
    /// A view's stored series with the computed samples.
    fn lay_over(&self, place: usize, mut series: T, budget: &Budget) -> T {
        let Some(view) = self.views.get(place) else { return series };
        if !series.labels().get(METRIC_NAME).is_some_and(|metric| view.metrics.contains(metric)) {
            return series;
        }
        let before = series.samples();
        series.cut(&view.ranges);
        budget.give_back(before.saturating_sub(series.samples()));
        let key = (place, series.labels().clone());
        match self.series.lock().unwrap_or_else(PoisonError::into_inner).remove(&key) {
            Some(computed) => joined(series, computed, budget),
            None => series,
        }
    }

    /// Another table's series with the computed samples of the same labels.
    fn with_same(&self, mut series: T, budget: &Budget) -> T {
        let metric = series.labels().get(METRIC_NAME).unwrap_or_default().to_owned();
        for (place, _) in self.views.iter().enumerate().filter(|(_, view)| view.metrics.contains(&metric)) {
            let key = (place, series.labels().clone());
            let computed = self.series.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
            if let Some(computed) = computed {
                series = joined(series, computed, budget);
            }
        }
        series
    }

    /// The series of which nothing is stored, in order of labels.
    fn rest(&self, budget: &Budget) -> Vec<T> {
        let series = std::mem::take(&mut *self.series.lock().unwrap_or_else(PoisonError::into_inner));
        let mut rest: Vec<T> = Vec::new();
        let mut series: Vec<((usize, Labels), T)> = series.into_iter().collect();
        series.sort_by(|(a, _), (b, _)| (&a.1, a.0).cmp(&(&b.1, b.0)));
        for (_, series) in series.into_iter().filter(|(_, series)| series.samples() > 0) {
            match rest.pop_if(|last| last.labels() == series.labels()) {
                Some(last) => rest.push(joined(last, series, budget)),
                None => rest.push(series),
            }
        }
        rest
    }
}

/// Adds computed samples to those of their series.
fn add<T: Overlaid>(
    found: &mut HashMap<(usize, Labels), T>,
    place: usize,
    series: T,
    budget: &Budget,
) -> Result<(), QueryError> {
    budget.take(series.samples())?;
    let key = (place, series.labels().clone());
    let series = match found.remove(&key) {
        Some(before) => joined(before, series, budget),
        None => series,
    };
    found.insert(key, series);
    Ok(())
}

/// Puts a series among others, where one may have its labels.
fn put<T: Overlaid>(found: &mut Vec<T>, series: T, budget: &Budget) {
    let series = match found.iter().position(|known| known.labels() == series.labels()) {
        Some(place) => joined(found.swap_remove(place), series, budget),
        None => series,
    };
    found.push(series);
}

fn joined<T: Overlaid>(before: T, after: T, budget: &Budget) -> T {
    let samples = before.samples() + after.samples();
    let joined = before.join(after);
    budget.give_back(samples.saturating_sub(joined.samples()));
    joined
}

fn named_views(catalog: &dyn ViewCatalog, database: &str, selectors: &[&[Matcher]]) -> Result<NamedViews, QueryError> {
    let mut found = NamedViews::new();
    for matchers in selectors {
        let names = compiled_names(matchers)?;
        let exact = equal_name(matchers);
        let candidates = match exact {
            Some(name) => prefixes(name).filter_map(|table| catalog.view_of_table(database, table)).collect(),
            None => catalog.views(database),
        };
        let labels: Vec<Matcher> = matchers.iter().filter(|matcher| matcher.name != METRIC_NAME).cloned().collect();
        let compiled = compile(&labels)?;
        for view in candidates.into_iter().filter(|view| view.definition.is_exposed()) {
            // A label that the view does not have is empty.
            let has = |label: &Matcher| view.definition.labels().contains(&label.name);
            if labels.iter().zip(&compiled).any(|(label, compiled)| !has(label) && !compiled.matches("")) {
                continue;
            }
            let fields: BTreeSet<String> = named_fields(&view, &names).into_iter().map(|(_, field)| field).collect();
            if !fields.is_empty() {
                let target = view.definition.target.clone();
                let (_, known, is_exact) = found.entry(target).or_insert_with(|| (view, BTreeSet::new(), false));
                known.extend(fields);
                *is_exact |= exact.is_some();
            }
        }
    }
    Ok(found)
}

/// A name, and what is before each underscore in it: the tables that may have a metric of the name.
fn prefixes(name: &str) -> impl Iterator<Item = &str> {
    let before = name.match_indices('_').filter_map(|(at, _)| name.get(..at));
    before.chain([name]).filter(|table| !table.is_empty())
}

fn equal_name(matchers: &[Matcher]) -> Option<&str> {
    let named = matchers.iter().find(|matcher| matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal);
    named.map(|matcher| &*matcher.value).filter(|name| !name.is_empty())
}

fn compiled_names(matchers: &[Matcher]) -> Result<Vec<CompiledMatcher>, QueryError> {
    let names: Vec<Matcher> = matchers.iter().filter(|matcher| matcher.name == METRIC_NAME).cloned().collect();
    Ok(compile(&names)?)
}

/// The metrics and fields of a view whose metrics have a name.
fn named_fields(view: &View, names: &[CompiledMatcher]) -> Vec<(String, String)> {
    let fields = view.definition.shown_fields();
    let columns = fields.map(|(field, _)| (metric_name(&view.definition.target, field), field.clone()));
    columns.filter(|(metric, _)| names.iter().all(|name| name.matches(metric))).collect()
}

fn selector(matcher: &Matcher) -> Selector {
    Selector { name: matcher.name.clone(), op: matcher.op, values: vec![matcher.value.clone()] }
}

fn scan(target: &str, fields: Vec<String>, selectors: Vec<Selector>, range: TimeRange) -> Plan {
    let table = TableColumns { name: target.to_owned(), fields, every_row: false };
    Plan::Scan(Scan { table: Some(table), selectors, tokens: Vec::new(), range })
}

/// The values of a column with their times in milliseconds; windows begin on different ones.
fn cells<'a>(frame: &'a Frame, field: &str) -> impl Iterator<Item = (i64, Cell<'a>)> {
    let column = frame.column(field);
    let times_ms = frame.timestamps_ns.iter().map(|time_ns| time_ns.div_euclid(NS_PER_MS)).enumerate();
    times_ms.filter_map(move |(row, time_ms)| column.map(|column| (time_ms, column.cell(row))))
}

/// Returns whether a millisecond is that of a window in some ranges. The window after a range may begin in the millisecond in which that ends.
fn is_in(ranges: &[TimeRange], time_ms: i64) -> bool {
    let millisecond = |time_ns: i64| time_ns.div_euclid(NS_PER_MS);
    let is_before_end = |end_ns: i64| end_ns == i64::MAX || time_ms < millisecond(end_ns + 1);
    ranges.iter().any(|range| millisecond(range.start_ns) <= time_ms && is_before_end(range.end_ns))
}

impl Overlaid for Series {
    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn samples(&self) -> usize {
        Self::samples(self)
    }

    fn cut(&mut self, ranges: &[TimeRange]) {
        if !self.timestamps_ms.iter().any(|time_ms| is_in(ranges, *time_ms)) {
            return;
        }
        let samples = self.timestamps_ms.iter().copied().zip(self.values.iter().copied());
        let (timestamps_ms, values): (Vec<i64>, Vec<f64>) =
            samples.filter(|(time_ms, _)| !is_in(ranges, *time_ms)).unzip();
        (self.timestamps_ms, self.values) = (Arc::new(timestamps_ms), values);
    }

    fn join(self, later: Self) -> Self {
        join(&self, &later)
    }

    fn of_column(labels: Labels, frame: &Frame, field: &str) -> Self {
        let numbers = cells(frame, field).filter_map(|(time_ms, cell)| cell.number().map(|value| (time_ms, value)));
        let (timestamps_ms, values): (Vec<i64>, Vec<f64>) = numbers.unzip();
        Self { labels, timestamps_ms: Arc::new(timestamps_ms), values, ..Self::empty() }
    }
}

impl Overlaid for TextSeries {
    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn samples(&self) -> usize {
        Self::samples(self)
    }

    fn cut(&mut self, ranges: &[TimeRange]) {
        self.samples.retain(|(time_ms, _)| !is_in(ranges, *time_ms));
    }

    fn join(mut self, later: Self) -> Self {
        self.append(later);
        self
    }

    fn of_column(labels: Labels, frame: &Frame, field: &str) -> Self {
        let samples = cells(frame, field).filter_map(|(time_ms, cell)| match cell {
            Cell::Null => None,
            Cell::Text(text) => Some((time_ms, TextSample::Text(text.to_owned()))),
            _ => Some((time_ms, TextSample::Other)),
        });
        Self { labels, samples: samples.collect(), is_folded: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_that_begin_in_the_millisecond_of_an_end_are_not_in_a_range() {
        let minutes = |start_ns: i64, count: i64| TimeRange::new(start_ns, start_ns + count * 60_000_000_000 - 1);
        for (range, inside, outside) in [
            (minutes(0, 2), [0, 60_000], [-1, 120_000]),
            (minutes(1, 2), [0, 60_000], [-1, 120_000]),
            (minutes(1_000_000, 1), [1, 60_000], [0, 60_001]),
            (TimeRange::new(0, i64::MAX), [0, i64::MAX], [-1, i64::MIN]),
        ] {
            assert!(inside.iter().all(|time_ms| is_in(&[range], *time_ms)), "{range:?}");
            assert!(!outside.iter().any(|time_ms| is_in(&[range], *time_ms)), "{range:?}");
        }
    }

    #[test]
    fn tables_of_a_metric_are_before_its_underscores() {
        for (name, expected) in [("cpu", vec!["cpu"]), ("a_b_c", vec!["a", "a_b", "a_b_c"]), ("_x", vec!["_x"])] {
            assert_eq!(prefixes(name).collect::<Vec<_>>(), expected);
        }
    }
}

//! Windows of views that are over, and not stored as they are now: a query of PromQL that names them computes them, as other languages do.
//!
//! ```text
//!  selectors ──► views whose columns they name ──► expanded scans: parts that are stored, parts that are computed
//!                                                    none is computed: series are read as they are stored
//!                                                    else: series of these views come from the plan, all others from the store
//! ```
//!
//! A sample of PromQL does not change while time passes, so the window that is under way is none yet.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError};

use index::{CompiledMatcher, compile};
use model::{Cell, Labels, METRIC_NAME, MatchOp, Matcher, TimeRange, metric_name};
use store::SelectedGroup;

use super::read_views::{ReadViews, UnstoredView};
use super::store_source::{StoreSource, join};
use super::texts::TextSample;
use crate::plan::{Scan, Selector, TableColumns};
use crate::views::{View, ViewCatalog};
use crate::{
    Budget, Frame, Plan, QueryError, Selection, Series, SeriesSink, Session, SessionHost, StoreSession, TextSeries,
    TextSink, Trace, ViewUse,
};

const NS_PER_MS: i64 = 1_000_000;

/// The columns of a view that a selection names, with the names of their metrics.
struct SelectedView<'a> {
    unstored: &'a UnstoredView,
    /// Metrics and fields.
    columns: Vec<(String, String)>,
}

/// Series that are put together by their labels.
struct BySeries<T> {
    series: Vec<T>,
    place_by_labels: HashMap<Labels, usize>,
}

/// Views by the names of their tables, with fields.
type NamedViews = BTreeMap<String, (Arc<View>, BTreeSet<String>)>;

impl StoreSource<'_> {
    /// Finds the views whose columns selectors name, and those of their windows in a range that are over and not stored as they are now. The query computes
    /// these: what looks at [`StoreSource::unstored_ranges`] is not to be kept, as the journal does not tell what changes it.
    ///
    /// # Errors
    /// Of matchers that cannot be compiled, and of reading the store.
    pub fn find_unstored(
        &self,
        selectors: &[&[Matcher]],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        let mut found = ReadViews::default();
        if let Some((host, catalog)) = self.viewed_by_name(budget) {
            let session = StoreSession::new(host, budget);
            for (target, (view, fields)) in named_views(catalog, self.database, selectors)? {
                found.unstored.extend(self.unstored(view, fields, range, (host, &session))?);
                found.targets.push(target);
            }
        }
        *self.read_views.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        Ok(())
    }

    /// The times of windows that are computed for this query.
    pub fn unstored_ranges(&self) -> Vec<TimeRange> {
        self.read_views().unstored.iter().flat_map(|unstored| unstored.ranges.iter().copied()).collect()
    }

    /// Returns whether windows of views are computed for a selection.
    pub(super) fn is_unstored(&self, matchers: &[Matcher]) -> Result<bool, QueryError> {
        Ok(!selected(&self.read_views(), matchers)?.is_empty())
    }

    /// How often windows of the views that the query names were deleted to be written again: if that changes while they are read, some may have been missed.
    pub fn view_rewrites(&self) -> u64 {
        let Some(catalog) = self.host.and_then(|host| host.views) else { return 0 };
        self.read_views().targets.iter().map(|target| catalog.rewrites(self.database, target)).sum()
    }

    fn read_views(&self) -> Arc<ReadViews> {
        self.read_views.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn viewed_by_name(&self, budget: &Budget) -> Option<(SessionHost<'_>, &dyn ViewCatalog)> {
        let host = self.host.filter(|_| budget.view_use() != ViewUse::Stored && self.regular().is_none())?;
        host.views.map(|catalog| (host, catalog))
    }

    /// A view, if some of its windows in a range are to be computed. One that the query's sender may not read has no series for it.
    fn unstored(
        &self,
        view: Arc<View>,
        fields: BTreeSet<String>,
        range: &TimeRange,
        (host, session): (SessionHost<'_>, &StoreSession<'_>),
    ) -> Result<Option<UnstoredView>, QueryError> {
        let end_ns = view.bins.start_of(host.clock.now_ns()).max(view.state.watermark_ns);
        let range = TimeRange { end_ns: range.end_ns.min(end_ns.saturating_sub(1)), ..*range };
        if range.start_ns > range.end_ns {
            return Ok(None);
        }
        let target = view.definition.target.clone();
        let plan = scan(&target, fields.into_iter().collect(), Vec::new(), range);
        let read = match session.expanded(self.database, &plan) {
            Ok(Plan::View(read)) => read,
            // Or it was dropped meanwhile.
            Ok(_) | Err(QueryError::Forbidden(_) | QueryError::Execution(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_stored = |plan: &Plan| matches!(plan, Plan::Scan(stored) if stored.table.as_ref().is_some_and(|table| table.name == target));
        let computed = read.parts.iter().filter(|part| !is_stored(&part.plan));
        let ranges: Vec<TimeRange> = computed.map(|part| part.range).collect();
        Ok((!ranges.is_empty()).then_some(UnstoredView { view, end_ns, ranges }))
    }

    /// Hands a selection's series to a sink if windows of some of them are computed; returns whether they are.
    pub(super) fn scan_unstored(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn SeriesSink,
    ) -> Result<bool, QueryError> {
        let read = self.read_views();
        let views = selected(&read, selection.matchers)?;
        if views.is_empty() {
            return Ok(false);
        }
        let range = selection.nanoseconds();
        let mut found = BySeries::default();
        for set in self.sets_elsewhere(&views, selection.matchers, budget)? {
            found.series.extend(self.read(&set, &range, budget)?);
        }
        found.note_places(|series| &series.labels);
        self.each_column(&views, selection, budget, &mut |labels, frame, field| {
            let series = to_series(labels, frame, field);
            budget.take(series.samples())?;
            found.add(series, |series| &series.labels, &mut |before, series| {
                let joined = join(before, &series);
                budget.give_back((before.samples() + series.samples()).saturating_sub(joined.samples()));
                *before = joined;
            });
            Ok(())
        })?;
        found.series.sort_by(|a, b| a.labels.cmp(&b.labels));
        self.give_series(found.series, budget, sink)?;
        Ok(true)
    }

    /// As [`StoreSource::scan_unstored`], with texts.
    pub(super) fn scan_unstored_texts(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn TextSink,
    ) -> Result<bool, QueryError> {
        let read = self.read_views();
        let views = selected(&read, selection.matchers)?;
        if views.is_empty() {
            return Ok(false);
        }
        let range = selection.nanoseconds();
        let mut found = BySeries::default();
        for set in self.sets_elsewhere(&views, selection.matchers, budget)? {
            found.series.extend(self.read_texts(&set, &range, budget)?);
        }
        found.note_places(|series: &TextSeries| &series.labels);
        self.each_column(&views, selection, budget, &mut |labels, frame, field| {
            let series = to_texts(labels, frame, field);
            budget.take(series.samples())?;
            found.add(series, |series| &series.labels, &mut |before, series| {
                let samples = before.samples() + series.samples();
                before.append(series);
                budget.give_back(samples.saturating_sub(before.samples()));
            });
            Ok(())
        })?;
        let mut series = found.series.into_iter();
        let taken =
            series.by_ref().filter(|series| !series.samples.is_empty()).try_for_each(|series| sink.take(series));
        budget.give_back(series.map(|series| series.samples()).sum());
        taken.map(|()| true)
    }

    /// The groups that matchers choose in other tables than those of views.
    fn sets_elsewhere(
        &self,
        views: &[SelectedView<'_>],
        matchers: &[Matcher],
        budget: &Budget,
    ) -> Result<Vec<Vec<SelectedGroup>>, QueryError> {
        let chosen = self.choose(matchers, budget)?;
        let (mut is_of_view, mut sets) = (HashMap::new(), Vec::new());
        for set in chosen.sets_of_groups() {
            let mut elsewhere = Vec::new();
            for group in set {
                let is_of_view = is_of_view.entry(group.measurement()).or_insert_with(|| {
                    let name = self.store.measurement_name(group.measurement());
                    views.iter().any(|selected| selected.unstored.view.definition.target == name)
                });
                if !*is_of_view {
                    elsewhere.push(group.clone());
                }
            }
            if !elsewhere.is_empty() {
                sets.push(elsewhere);
            }
        }
        Ok(sets)
    }

    /// Gives each column of the rows of views as a series' labels and a frame's column.
    fn each_column(
        &self,
        views: &[SelectedView<'_>],
        selection: &Selection<'_>,
        budget: &Budget,
        take: &mut dyn FnMut(Labels, &Frame, &str) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let Some(host) = self.host else { return Ok(()) };
        let labels = selection.matchers.iter().filter(|matcher| matcher.name != METRIC_NAME);
        let selectors: Vec<Selector> = labels.map(selector).collect();
        let session = StoreSession::new(host, budget);
        for selected in views {
            let started_ns = self.trace.map(Trace::begin);
            let UnstoredView { view, end_ns, .. } = selected.unstored;
            let all = selection.nanoseconds();
            let range = TimeRange { end_ns: all.end_ns.min(end_ns.saturating_sub(1)), ..all };
            if range.start_ns > range.end_ns {
                continue;
            }
            let fields = selected.columns.iter().map(|(_, field)| field.clone()).collect();
            let held = budget.samples();
            let outcome =
                session.run(self.database, &scan(&view.definition.target, fields, selectors.clone(), range))?;
            let charged = budget.samples().saturating_sub(held) as usize;
            for frame in &outcome.frames {
                budget.check()?;
                for (metric, field) in &selected.columns {
                    take(frame.labels.with(METRIC_NAME, metric), frame, field)?;
                }
            }
            if let Some((trace, started_ns)) = self.trace.zip(started_ns) {
                let rows = outcome.frames.iter().map(Frame::rows).sum();
                trace.end(started_ns, Some("windows of a view"), outcome.frames.len(), rows);
            }
            budget.give_back(charged);
        }
        self.summed.lock().unwrap_or_else(PoisonError::into_inner).merge(&session.reads());
        Ok(())
    }
}

impl<T> Default for BySeries<T> {
    fn default() -> Self {
        Self { series: Vec::new(), place_by_labels: HashMap::new() }
    }
}

impl<T> BySeries<T> {
    fn note_places(&mut self, labels_of: impl Fn(&T) -> &Labels) {
        self.place_by_labels =
            self.series.iter().enumerate().map(|(place, series)| (labels_of(series).clone(), place)).collect();
    }

    /// Adds a series, or joins it with one of its labels.
    fn add(&mut self, series: T, labels_of: impl Fn(&T) -> &Labels, join: &mut dyn FnMut(&mut T, T)) {
        match self.place_by_labels.get(labels_of(&series)).and_then(|place| self.series.get_mut(*place)) {
            Some(before) => join(before, series),
            None => {
                self.place_by_labels.insert(labels_of(&series).clone(), self.series.len());
                self.series.push(series);
            }
        }
    }
}

/// The views whose columns a selection names.
fn selected<'a>(read: &'a ReadViews, matchers: &[Matcher]) -> Result<Vec<SelectedView<'a>>, QueryError> {
    if read.unstored.is_empty() {
        return Ok(Vec::new());
    }
    let names = compiled_names(matchers)?;
    let views = read.unstored.iter().map(|unstored| {
        let columns = named_fields(&unstored.view, &names);
        SelectedView { unstored, columns }
    });
    Ok(views.filter(|selected| !selected.columns.is_empty()).collect())
}

fn named_views(catalog: &dyn ViewCatalog, database: &str, selectors: &[&[Matcher]]) -> Result<NamedViews, QueryError> {
    let mut found = NamedViews::new();
    for matchers in selectors {
        let names = compiled_names(matchers)?;
        let candidates = match equal_name(matchers) {
            Some(name) => prefixes(name).filter_map(|table| catalog.view_of_table(database, table)).collect(),
            None => catalog.views(database),
        };
        for view in candidates.into_iter().filter(|view| view.definition.is_exposed()) {
            let fields: BTreeSet<String> = named_fields(&view, &names).into_iter().map(|(_, field)| field).collect();
            if !fields.is_empty() {
                let target = view.definition.target.clone();
                found.entry(target).or_insert_with(|| (view, BTreeSet::new())).1.extend(fields);
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

fn to_series(labels: Labels, frame: &Frame, field: &str) -> Series {
    let numbers = cells(frame, field).filter_map(|(time_ms, cell)| cell.number().map(|value| (time_ms, value)));
    let (timestamps_ms, values): (Vec<i64>, Vec<f64>) = numbers.unzip();
    Series { labels, timestamps_ms: Arc::new(timestamps_ms), values, ..Series::empty() }
}

fn to_texts(labels: Labels, frame: &Frame, field: &str) -> TextSeries {
    let samples = cells(frame, field).filter_map(|(time_ms, cell)| match cell {
        Cell::Null => None,
        Cell::Text(text) => Some((time_ms, TextSample::Text(text.to_owned()))),
        _ => Some((time_ms, TextSample::Other)),
    });
    TextSeries { labels, samples: samples.collect(), is_folded: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_a_metric_are_before_its_underscores() {
        for (name, expected) in [("cpu", vec!["cpu"]), ("a_b_c", vec!["a", "a_b", "a_b_c"]), ("_x", vec!["_x"])] {
            assert_eq!(prefixes(name).collect::<Vec<_>>(), expected);
        }
    }
}

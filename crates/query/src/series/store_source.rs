//! The store as a source of series.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use index::{Projection, compile};
use model::{Labels, Matcher, NativeHistogram, SampleColumn, Summary, TimeRange, ValueType};
use store::{ByMillisecond, GroupReader, SelectedColumn, SelectedGroup, Store, to_milliseconds};

use super::projected::{Batches, KnownBatches, by_block, may_share_series, put_in_turns};
use super::read_views::ReadViews;
use super::regular::RegularSource;
use crate::series::selection;
use crate::{
    Budget, Helpers, LastSampleSink, Plan, QueryError, Reads, Selection, Series, SeriesSink, SessionHost, Source,
    TextSink, Trace, ViewedWindows, WindowSelection, WindowSeries, WindowSink, scan_without_texts,
};

const NS_PER_MS: i64 = 1_000_000;

/// Groups between two looks at how much memory reading takes.
const UNCHARGED_SETS_MAX: usize = 64;

/// Groups that are read together; more than one where several make up the same labels.
type SeriesGroups = Vec<SelectedGroup>;

/// The groups that matchers select in a store: valid for later queries as long as [`Store::index_changes`] gives the same number.
#[derive(Debug, Clone)]
pub struct Chosen {
    sets: Arc<Vec<SeriesGroups>>,
    /// As it was before they were looked for: what is newer may be among them, or not.
    index_changes: u64,
}

impl Chosen {
    /// How many sets of groups there are: a [`SeriesSink`] gets each by its index.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    /// The index that they were chosen in, by [`Store::index_changes`].
    pub const fn index_changes(&self) -> u64 {
        self.index_changes
    }

    /// Returns whether all are floats and no two groups share a series, so that those of a place have the same order whenever they are read.
    pub fn is_simple(&self) -> bool {
        let is_float = |column: &SelectedColumn| column.value_type != ValueType::Histogram;
        self.sets.iter().all(|set| matches!(set.as_slice(), [group] if group.columns.iter().all(is_float)))
    }
}

/// Matchers, and what they chose.
type Resolved = (Vec<Matcher>, Chosen);

/// One database of a store, for one query. Numbers and booleans (as 0 and 1) are series; texts are for [`Source::scan_texts`] alone.
pub struct StoreSource<'a> {
    pub(super) store: &'a Store,
    pub(super) database: &'a str,
    pub(super) helpers: &'a Helpers,
    pub(super) reader: GroupReader<'a>,
    /// What matchers chose, in the order in which it is read: each set of matchers is looked up once in a query.
    resolved: Mutex<Vec<Resolved>>,
    /// What matchers chose of which not all labels are needed.
    batches: Mutex<Vec<KnownBatches>>,
    pub(super) trace: Option<&'a Trace<'a>>,
    /// What views answer with, if they may.
    pub(super) host: Option<SessionHost<'a>>,
    /// The views that it reads by the names of metrics.
    pub(super) read_views: Mutex<Arc<ReadViews>>,
    /// Groups and samples that were read.
    read_counts: [AtomicU64; 2],
    /// Counts of what was read for windows.
    pub(super) summed: Mutex<Reads>,
    /// Bytes of the reader that were charged to the budget.
    charged_bytes: AtomicU64,
}

impl<'a> StoreSource<'a> {
    /// A database, by name; one that does not exist has no series.
    pub fn new(store: &'a Store, database: &'a str, helpers: &'a Helpers) -> Self {
        Self {
            store,
            database,
            helpers,
            reader: store.reader(),
            resolved: Mutex::new(Vec::new()),
            batches: Mutex::new(Vec::new()),
            trace: None,
            host: None,
            read_views: Mutex::default(),
            read_counts: [const { AtomicU64::new(0) }; 2],
            summed: Mutex::new(Reads::default()),
            charged_bytes: AtomicU64::new(0),
        }
    }

    /// Makes the source report to a trace what evaluation takes.
    #[must_use]
    pub const fn traced(mut self, trace: &'a Trace<'a>) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The database that it reads.
    pub const fn database(&self) -> &str {
        self.database
    }

    /// Its epochs, if the database is regular.
    pub(super) fn regular(&self) -> Option<RegularSource<'_>> {
        RegularSource::of_database(self.store, self.database)
    }

    /// Labels of the series that satisfy all matchers and may have samples in the range, by group.
    pub fn series_labels(
        &self,
        matchers: &[Matcher],
        range: &TimeRange,
        budget: &Budget,
        visit: &mut dyn FnMut(Labels) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        if let Some(source) = self.regular() {
            return source.series(matchers, range, budget)?.into_iter().try_for_each(visit);
        }
        for group in self.groups(matchers, range, budget)? {
            for column in group.columns.iter() {
                visit(column.series_labels(&group.labels))?;
            }
        }
        Ok(())
    }

    /// Counts of what was read so far.
    pub fn reads(&self) -> Reads {
        let [groups, samples] = self.read_counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let mut reads = Reads { groups, samples, origins: self.reader.origins(), ..Reads::default() };
        reads.merge(&self.summed.lock().unwrap_or_else(PoisonError::into_inner));
        reads
    }

    /// Charges what the reader holds by now.
    pub(super) fn charge_reader(&self, budget: &Budget) -> Result<(), QueryError> {
        let bytes = self.reader.memory_bytes() as u64;
        let before = self.charged_bytes.fetch_max(bytes, Ordering::Relaxed);
        budget.hold_bytes(bytes.saturating_sub(before))
    }

    /// The groups that satisfy the matchers and may have samples in the range.
    pub fn groups(
        &self,
        matchers: &[Matcher],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<SelectedGroup>, QueryError> {
        let compiled = compile(matchers)?;
        let mut groups = Vec::new();
        for group in selection::select(self.store, self.database, &compiled, budget)? {
            budget.check()?;
            if self.store.has_rows(&group, range)? {
                groups.push(group);
            }
        }
        Ok(groups)
    }

    /// The groups that matchers chose for this query before; they choose the same until its end.
    pub fn chosen(&self, matchers: &[Matcher]) -> Option<Chosen> {
        let resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.iter().find(|(known, _)| known == matchers).map(|(_, chosen)| chosen.clone())
    }

    /// Takes it that matchers choose what they did for another query, unless they chose already.
    pub fn adopt(&self, matchers: &[Matcher], chosen: &Chosen) {
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        if !resolved.iter().any(|(known, _)| known == matchers) {
            resolved.push((matchers.to_vec(), chosen.clone()));
        }
    }

    /// The groups that matchers choose.
    pub fn choose(&self, matchers: &[Matcher], budget: &Budget) -> Result<Chosen, QueryError> {
        if let Some(chosen) = self.chosen(matchers) {
            return Ok(chosen);
        }
        let compiled = compile(matchers)?;
        let index_changes = self.store.index_changes();
        let groups = selection::select(self.store, self.database, &compiled, budget)?;
        let chosen = Chosen { sets: Arc::new(sets_of(groups)), index_changes };
        let mut resolved = self.resolved.lock().unwrap_or_else(PoisonError::into_inner);
        resolved.push((matchers.to_vec(), chosen.clone()));
        Ok(chosen)
    }

    /// The batches of a selection with a projection, unless it needs whole labels, or samples were folded.
    fn batches_of(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Option<Arc<Batches>>, QueryError> {
        if self.store.has_folds_in(&selection.nanoseconds()) {
            return Ok(None);
        }
        let Some(projection) = selection.projection else { return Ok(None) };
        self.batches(selection.matchers, projection, budget)
    }

    /// Does something with each set that matchers choose; it says how many samples that took.
    pub(super) fn each_set(
        &self,
        matchers: &[Matcher],
        budget: &Budget,
        work: &(dyn Fn(usize, &SeriesGroups) -> Result<u64, QueryError> + Sync),
    ) -> Result<(), QueryError> {
        let sets = self.choose(matchers, budget)?.sets;
        self.helpers.run(sets.len(), budget, &|place| {
            let Some(set) = sets.get(place) else { return Ok(0) };
            let samples = work(place, set)?;
            if place % UNCHARGED_SETS_MAX == UNCHARGED_SETS_MAX - 1 {
                self.charge_reader(budget)?;
            }
            Ok(samples)
        })?;
        self.charge_reader(budget)
    }

    /// Hands the samples of a set to a sink.
    fn give(
        &self,
        place: usize,
        set: &SeriesGroups,
        range: &TimeRange,
        budget: &Budget,
        sink: &(impl SeriesSink + ?Sized),
    ) -> Result<u64, QueryError> {
        let series = self.read(set, range, budget)?;
        let samples = self.count_read(set.len(), 0, &series);
        sink.take(place, series)?;
        Ok(samples)
    }

    /// Hands a sink series that were read before, in their order.
    pub(super) fn give_series(
        &self,
        series: Vec<Series>,
        budget: &Budget,
        sink: &(impl SeriesSink + ?Sized),
    ) -> Result<(), QueryError> {
        let mut series = series.into_iter().enumerate();
        let taken = series.try_for_each(|(place, series)| {
            self.note_reads(1, series.samples());
            sink.take(place, vec![series])
        });
        budget.give_back(series.map(|(_, series)| series.samples()).sum());
        taken
    }

    /// Forgets what matchers chose: series may have come since.
    pub(super) fn forget_chosen(&self) {
        self.resolved.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.lock_batches().clear();
    }

    /// Counts what was read, last samples and series; returns the samples.
    pub(super) fn count_read(&self, groups: usize, last: usize, series: &[Series]) -> u64 {
        let samples = last + series.iter().map(Series::samples).sum::<usize>();
        self.note_reads(groups, samples);
        samples as u64
    }

    /// Counts what was read.
    pub(super) fn note_reads(&self, groups: usize, samples: usize) {
        for (count, more) in self.read_counts.iter().zip([groups, samples]) {
            count.fetch_add(more as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn lock_batches(&self) -> MutexGuard<'_, Vec<KnownBatches>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The series of one set.
    pub(super) fn read(
        &self,
        set: &[SelectedGroup],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<Series>, QueryError> {
        let mut found: Vec<Series> = Vec::new();
        for group in set {
            budget.check()?;
            let columns = self.reader.read_by_millisecond(group, range)?;
            let mut folds = self.reader.folds(group, range)?.into_iter();
            // Floats and histograms of a metric are two columns.
            let is_shared =
                set.len() > 1 || group.columns.iter().any(|column| column.value_type == ValueType::Histogram);
            for (column, selected) in columns.into_iter().zip(group.columns.iter()) {
                let folds = folds.next().unwrap_or_default();
                let Some(series) = to_series(|| selected.series_labels(&group.labels), column) else { continue };
                let series = Series { folds: more_than_one(&folds), ..series };
                budget.take(series.samples())?;
                let same = if is_shared { place_of(&found, &series.labels) } else { None };
                let Some(before) = same.and_then(|place| found.get_mut(place)) else {
                    found.push(series);
                    continue;
                };
                let joined = join(before, &series);
                budget.give_back((before.samples() + series.samples()).saturating_sub(joined.samples()));
                *before = joined;
            }
        }
        Ok(found)
    }
}

fn place_of(series: &[Series], labels: &Labels) -> Option<usize> {
    series.iter().position(|series| series.labels == *labels)
}

/// A sink that collects all series.
#[derive(Default)]
struct Collected(Mutex<Vec<Series>>);

impl SeriesSink for Collected {
    fn take(&self, _: usize, series: Vec<Series>) -> Result<(), QueryError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(series);
        Ok(())
    }
}

impl Source for StoreSource<'_> {
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError> {
        let collected = Collected::default();
        self.scan(selection, budget, &collected)?;
        Ok(collected.0.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn scan(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn SeriesSink) -> Result<(), QueryError> {
        if let Some(source) = self.regular() {
            return self.give_series(source.select(selection, budget)?, budget, sink);
        }
        if let Some(computed) = self.computed(selection, budget)? {
            return self.scan_overlaid(&computed, selection, budget, sink);
        }
        let range = selection.nanoseconds();
        if let Some(batches) = self.batches_of(selection, budget)? {
            return self.scan_batches(&batches, selection, budget, sink);
        }
        self.each_set(selection.matchers, budget, &|place, set| self.give(place, set, &range, budget, sink))
    }

    fn scan_texts(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn TextSink) -> Result<(), QueryError> {
        match self.regular() {
            Some(_) => scan_without_texts(self, selection, budget, sink),
            None => match self.computed(selection, budget)? {
                Some(computed) => self.scan_overlaid_texts(&computed, selection, budget, sink),
                None => self.scan_store_texts(selection, budget, sink),
            },
        }
    }

    fn windows_by_view(
        &self,
        asked: &ViewedWindows<'_>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        self.viewed(asked, budget)
    }

    fn plan_by_view(&self, asked: &ViewedWindows<'_>, budget: &Budget) -> Result<Option<Plan>, QueryError> {
        self.view_plan(asked, budget)
    }

    fn scan_last(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn LastSampleSink,
    ) -> Result<(), QueryError> {
        let is_whole = self.regular().is_some() || self.is_unstored(selection)?;
        let batches = if is_whole { None } else { self.batches_of(selection, budget)? };
        match batches {
            Some(batches) => self.scan_last_of_batches(&batches, selection, budget, sink),
            None => self.scan(selection, budget, sink),
        }
    }

    fn scan_windows(
        &self,
        selection: &WindowSelection<'_>,
        budget: &Budget,
        sink: &dyn WindowSink,
    ) -> Result<(), QueryError> {
        let samples = selection.samples();
        let range = samples.nanoseconds();
        let is_summed = self.regular().is_none() && !self.is_unstored(&samples)? && !self.store.has_folds_in(&range);
        let grid = selection.grid().filter(|_| is_summed);
        let Some(grid) = grid else { return self.scan(&samples, budget, sink) };
        self.each_set(selection.matchers, budget, &|place, set| {
            if let [group] = set.as_slice() {
                let (held, mut reads) = (grid.samples() * group.columns.len(), Reads::default());
                budget.take(held)?;
                let values = selection.of_group(&grid, self.store, group, &mut reads);
                budget.give_back(held);
                self.summed.lock().unwrap_or_else(PoisonError::into_inner).merge(&reads);
                if let Some(values) = values? {
                    self.read_counts[0].fetch_add(1, Ordering::Relaxed);
                    sink.take_values(place, values)?;
                    return Ok(reads.window_rows + reads.nodes);
                }
            }
            self.give(place, set, &range, budget, sink)
        })
    }

    fn labels_of(
        &self,
        matchers: &[Matcher],
        projection: Projection<'_>,
        numbers: &[u32],
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        match self.batches(matchers, projection, budget)? {
            Some(batches) => self.labels_by_number(&batches, numbers, budget),
            None => Err(QueryError::Execution("series were numbered that share their labels".to_owned())),
        }
    }

    fn trace(&self) -> Option<&Trace<'_>> {
        self.trace
    }
}

/// The groups in the order in which they are read, those together that make up the same labels. Where none do it is the index's order, as that of
/// [`Batches`]: sums of floats depend on it, and must not depend on which way series are read.
fn sets_of(groups: Vec<SelectedGroup>) -> Vec<SeriesGroups> {
    let mut blocks = by_block(groups);
    if !may_share_series(blocks.iter()) {
        put_in_turns(&mut blocks);
        return blocks.into_iter().map(|group| vec![group]).collect();
    }
    let mut groups: Vec<(usize, SelectedGroup)> = blocks.into_iter().enumerate().collect();
    groups.sort_by(|(_, a), (_, b)| a.labels.cmp(&b.labels).then_with(|| first_metric(a).cmp(first_metric(b))));
    together(groups)
}

fn first_metric(group: &SelectedGroup) -> &str {
    group.columns.first().map_or("", |column| &column.metric)
}

/// Puts groups that share a series into one set, at the place of its first; in it they keep the order of their numbers, by
/// which the later one's samples count.
fn together(groups: Vec<(usize, SelectedGroup)>) -> Vec<SeriesGroups> {
    let mut owners: HashMap<Labels, usize> = HashMap::new();
    let mut sets: Vec<Vec<(usize, SelectedGroup)>> = Vec::new();
    let mut moved: Vec<usize> = Vec::new();
    for (number, group) in groups {
        let labels: Vec<Labels> = group.columns.iter().map(|column| column.series_labels(&group.labels)).collect();
        let shared = labels.iter().filter_map(|labels| owners.get(labels).map(|place| root(&moved, *place)));
        let shared: HashSet<usize> = shared.collect();
        let place = shared.iter().copied().min().unwrap_or(sets.len());
        if place == sets.len() {
            sets.push(Vec::new());
            moved.push(place);
        }
        for other in shared.into_iter().filter(|other| *other != place) {
            let groups = sets.get_mut(other).map(std::mem::take).unwrap_or_default();
            if let (Some(set), Some(target)) = (sets.get_mut(place), moved.get_mut(other)) {
                set.extend(groups);
                *target = place;
            }
        }
        owners.extend(labels.into_iter().map(|labels| (labels, place)));
        if let Some(set) = sets.get_mut(place) {
            set.push((number, group));
        }
    }
    let in_order = |mut set: Vec<(usize, SelectedGroup)>| {
        set.sort_by_key(|(number, _)| *number);
        set.into_iter().map(|(_, group)| group).collect()
    };
    sets.into_iter().map(in_order).collect()
}

/// Where the groups of a set went.
fn root(moved: &[usize], mut place: usize) -> usize {
    while let Some(next) = moved.get(place).filter(|next| **next != place) {
        place = *next;
    }
    place
}

/// Samples by the millisecond: the last of each. `None` for texts and for no samples.
pub(super) fn to_series(labels: impl FnOnce() -> Labels, column: ByMillisecond) -> Option<Series> {
    let (mut timestamps_ms, mut values, mut histograms) = (Arc::default(), Vec::new(), Vec::new());
    let column = match column {
        ByMillisecond::Floats { times_ms, values } => {
            let has_samples = !values.is_empty();
            return has_samples.then(|| Series {
                labels: labels(),
                timestamps_ms: times_ms,
                values,
                ..Series::empty()
            });
        }
        ByMillisecond::Column(column) => column,
    };
    if let SampleColumn::Histogram(timestamps_ns, read) = column {
        for (nanoseconds, histogram) in timestamps_ns.iter().zip(read) {
            let time_ms = nanoseconds.div_euclid(NS_PER_MS);
            if histograms.last().is_some_and(|(last_ms, _)| *last_ms == time_ms) {
                histograms.pop();
            }
            histograms.push((time_ms, histogram));
        }
    } else {
        let (times_ms, read) = to_samples(column)?;
        (timestamps_ms, values) = (Arc::new(times_ms), read);
    }
    if values.is_empty() && histograms.is_empty() {
        return None;
    }
    Some(Series { labels: labels(), timestamps_ms, values, histograms, folds: Vec::new() })
}

/// The folds that stand for more than their last samples.
fn more_than_one(folds: &[Summary]) -> Vec<Summary> {
    folds.iter().filter(|fold| fold.count > 1).map(Summary::as_floats).collect()
}

/// Samples by the millisecond: the last of each. `None` for texts and for no samples.
fn to_samples(column: SampleColumn) -> Option<(Vec<i64>, Vec<f64>)> {
    let (mut timestamps, mut values): (Vec<i64>, Vec<f64>) = match column {
        SampleColumn::F64(timestamps, values) => (timestamps, values),
        SampleColumn::I64(timestamps, values) => (timestamps, values.iter().map(|value| *value as f64).collect()),
        SampleColumn::U64(timestamps, values) => (timestamps, values.iter().map(|value| *value as f64).collect()),
        SampleColumn::Bool(timestamps, values) => {
            (timestamps, values.iter().map(|value| f64::from(u8::from(*value))).collect())
        }
        SampleColumn::String(..) | SampleColumn::Histogram(..) => return None,
    };
    if to_milliseconds(&mut timestamps) {
        keep_last(&mut timestamps, &mut values);
    }
    (!timestamps.is_empty()).then_some((timestamps, values))
}

/// Leaves the last of samples of one time.
fn keep_last(timestamps_ms: &mut Vec<i64>, values: &mut Vec<f64>) {
    let is_last = |place: usize| timestamps_ms.get(place) != timestamps_ms.get(place + 1);
    let places: Vec<usize> = (0..timestamps_ms.len()).filter(|place| is_last(*place)).collect();
    *values = places.iter().filter_map(|place| values.get(*place).copied()).collect();
    timestamps_ms.dedup();
}

/// Two columns that make up the same labels, as one series. Where both have a sample, the later registered one counts.
pub(super) fn join(before: &Series, after: &Series) -> Series {
    let mut joined: Vec<(i64, u8, f64)> = Vec::with_capacity(before.values.len() + after.values.len());
    joined.extend(before.timestamps_ms.iter().zip(&before.values).map(|(timestamp, value)| (*timestamp, 1, *value)));
    joined.extend(after.timestamps_ms.iter().zip(&after.values).map(|(timestamp, value)| (*timestamp, 0, *value)));
    joined.sort_by_key(|(timestamp, age, _)| (*timestamp, *age));
    joined.dedup_by_key(|(timestamp, ..)| *timestamp);
    let (timestamps_ms, values): (Vec<i64>, _) =
        joined.into_iter().map(|(timestamp, _, value)| (timestamp, value)).unzip();
    let mut histograms: Vec<(i64, NativeHistogram)> =
        after.histograms.iter().chain(&before.histograms).cloned().collect();
    histograms.sort_by_key(|(timestamp, _)| *timestamp);
    histograms.dedup_by_key(|(timestamp, _)| *timestamp);
    let mut folds = [before.folds.as_slice(), &after.folds].concat();
    folds.sort_by_key(|fold| fold.last.0);
    Series { labels: after.labels.clone(), timestamps_ms: Arc::new(timestamps_ms), values, histograms, folds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_of_a_millisecond_counts() {
        let column = SampleColumn::I64(vec![-1, 0, 999_999, 1_000_000], vec![1, 2, 3, 4]);
        assert_eq!(to_samples(column), Some((vec![-1, 0, 1], vec![1.0, 3.0, 4.0])));
        assert_eq!(to_samples(SampleColumn::String(vec![1], vec!["a".into()])), None);
    }

    #[test]
    fn columns_of_one_name_become_one_series() {
        let series = |timestamps_ms: &[i64], values: &[f64]| Series {
            timestamps_ms: Arc::new(timestamps_ms.to_vec()),
            values: values.to_vec(),
            ..Series::empty()
        };
        let joined = join(&series(&[1, 2, 3], &[1.0, 1.0, 1.0]), &series(&[2, 4], &[2.0, 2.0]));
        assert_eq!(joined, series(&[1, 2, 3, 4], &[1.0, 2.0, 1.0, 2.0]));
    }
}

//! Scans that need few labels: what an aggregation selects. Groups are read in the order of the index, many at once, and labels are put together
//! once for each combination of values; nothing is sorted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use index::{Projection, compile};
use model::{Labels, Matcher, TimeRange, ValueType, is_stale_bits};
use store::{LastSample, SelectedColumn, SelectedGroup};

use super::selection;
use super::store_source::StoreSource;
use crate::{Budget, LastSampleSink, QueryError, Selection, Series, SeriesSink};

const NS_PER_MS: i64 = 1_000_000;

/// Groups that are read together, and groups of a shard that are read before those of the next one.
const BATCH_GROUPS_MAX: usize = 64;

/// Samples of series that are handed over together; with more, they would leave the processor's caches before they are used.
const SAMPLES_TOGETHER: usize = 4096;

/// Work on the groups of a batch, by its place; returns how many samples it took.
type BatchWork<'w> = dyn Fn(usize, &[SelectedGroup]) -> Result<u64, QueryError> + Sync + 'w;

/// Groups with some of their labels, in batches of one shard and the same columns.
#[derive(Debug)]
pub(super) struct Batches {
    groups: Vec<SelectedGroup>,
    ranges: Vec<Range<usize>>,
}

impl Batches {
    /// `None` where several groups may make up the same series, which only whole labels tell.
    fn new(groups: Vec<SelectedGroup>) -> Option<Self> {
        let mut groups = by_block(groups);
        if may_share_series(groups.iter()) {
            return None;
        }
        put_in_turns(&mut groups);
        let (mut ranges, mut from) = (Vec::new(), 0);
        for alike in groups.chunk_by(|a, b| a.is_of_shard_of(b) && Arc::ptr_eq(&a.columns, &b.columns)) {
            for batch in alike.chunks(BATCH_GROUPS_MAX) {
                ranges.push(from..from + batch.len());
                from += batch.len();
            }
        }
        Some(Self { groups, ranges })
    }

    /// The first group of a batch, among all.
    fn first(&self, place: usize) -> usize {
        self.ranges.get(place).map_or(0, |range| range.start)
    }

    fn get(&self, place: usize) -> &[SelectedGroup] {
        self.ranges.get(place).and_then(|range| self.groups.get(range.clone())).unwrap_or_default()
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.groups.len()
    }
}

/// Groups of different shards in turns, some of each: queries that began together would go through the shards in step, and wait for one another.
pub(super) fn put_in_turns(groups: &mut [SelectedGroup]) {
    for of_shard in groups.chunk_by_mut(SelectedGroup::is_of_shard_of) {
        for (turn, groups) in (0..).zip(of_shard.chunks_mut(BATCH_GROUPS_MAX)) {
            groups.iter_mut().for_each(|group| group.rank = turn);
        }
    }
    // In place, and the groups of a turn stay in their order.
    groups.sort_by_cached_key(|group| group.rank);
}

/// Groups whose columns are of one member block each. They are copied only where some have more: there may be millions.
pub(super) fn by_block(groups: Vec<SelectedGroup>) -> Vec<SelectedGroup> {
    if groups.iter().all(SelectedGroup::is_of_one_block) {
        return groups;
    }
    groups.into_iter().flat_map(SelectedGroup::by_block).collect()
}

/// Returns whether several of some groups may make up the same series: not where each metric is of one measurement, in which groups differ, and
/// columns have no labels of their own.
pub(super) fn may_share_series<'g>(groups: impl Iterator<Item = &'g SelectedGroup>) -> bool {
    let mut measurements: HashMap<&str, u32> = HashMap::new();
    let mut last: Option<&Arc<Vec<SelectedColumn>>> = None;
    for group in groups {
        // Neighbours mostly have the same columns.
        if last.is_some_and(|last| Arc::ptr_eq(last, &group.columns)) {
            continue;
        }
        last = Some(&group.columns);
        for column in group.columns.iter() {
            let measurement = *measurements.entry(&column.metric).or_insert_with(|| group.measurement());
            if measurement != group.measurement() || !column.labels.is_empty() {
                return true;
            }
        }
    }
    false
}

/// What matchers chose with a projection, for one query.
#[derive(Debug)]
pub(super) struct KnownBatches {
    matchers: Vec<Matcher>,
    names: Vec<String>,
    is_without: bool,
    batches: Option<Arc<Batches>>,
}

impl KnownBatches {
    fn is_of(&self, matchers: &[Matcher], projection: Projection<'_>) -> bool {
        self.matchers == matchers && self.names == projection.names && self.is_without == projection.is_without
    }
}

/// Labels of series by those of their groups, which many share unless they are whole.
#[derive(Default)]
struct SeriesLabels {
    is_numbered: bool,
    are_whole: bool,
    last: Option<(*const u8, *const SelectedColumn, Labels)>,
    by_place: HashMap<(*const u8, *const SelectedColumn), Labels>,
}

impl SeriesLabels {
    fn new(selection: &Selection<'_>) -> Self {
        let are_whole = selection.projection.is_none_or(|projection| projection.keeps_all());
        Self { is_numbered: selection.is_numbered, are_whole, ..Self::default() }
    }

    /// The labels of a group's column; the group's number is that among all of its batches.
    fn get(&mut self, number: usize, group: &SelectedGroup, column: &SelectedColumn) -> Labels {
        let labels = if self.are_whole { column.series_labels(&group.labels) } else { self.shared(group, column) };
        if self.is_numbered { labels.with("", &number.to_string()) } else { labels }
    }

    fn shared(&mut self, group: &SelectedGroup, column: &SelectedColumn) -> Labels {
        // Labels of a projection live as long as the batch, and so do columns: their addresses tell them apart.
        let key = (group.labels.packed().as_ptr(), std::ptr::from_ref(column));
        if let Some((packed, of, labels)) = &self.last
            && (*packed, *of) == key
        {
            return labels.clone();
        }
        let labels = match self.by_place.entry(key) {
            Entry::Occupied(entry) => entry.get().clone(),
            Entry::Vacant(entry) => entry.insert(column.series_labels(&group.labels)).clone(),
        };
        self.last = Some((key.0, key.1, labels.clone()));
        labels
    }
}

/// The end of a series, as far as it was read.
enum Last {
    /// Its labels, the last sample's time in milliseconds, and its value.
    Sample(Labels, i64, f64),
    Series(Series),
}

impl Last {
    fn samples(&self) -> usize {
        match self {
            Self::Sample(..) => 1,
            Self::Series(series) => series.samples(),
        }
    }

    fn has_histograms(&self) -> bool {
        matches!(self, Self::Series(series) if !series.histograms.is_empty())
    }

    fn into_series(self) -> Series {
        match self {
            Self::Sample(labels, time_ms, value) => {
                Series { labels, timestamps_ms: Arc::new(vec![time_ms]), values: vec![value], ..Series::empty() }
            }
            Self::Series(series) => series,
        }
    }

    /// The last float; `None` if that is a stale marker.
    fn into_sample(self) -> Option<(Labels, i64, f64)> {
        match self {
            Self::Sample(labels, time_ms, value) => Some((labels, time_ms, value)),
            Self::Series(series) => {
                let (time_ms, value) = (*series.timestamps_ms.last()?, *series.values.last()?);
                (!is_stale_bits(value)).then_some((series.labels, time_ms, value))
            }
        }
    }
}

impl StoreSource<'_> {
    /// The batches that matchers choose; `None` where whole labels are needed.
    pub(super) fn batches(
        &self,
        matchers: &[Matcher],
        projection: Projection<'_>,
        budget: &Budget,
    ) -> Result<Option<Arc<Batches>>, QueryError> {
        let known = self
            .lock_batches()
            .iter()
            .find(|known| known.is_of(matchers, projection))
            .map(|known| known.batches.clone());
        if let Some(batches) = known {
            return Ok(batches);
        }
        let compiled = compile(matchers)?;
        let groups = selection::select_projected((self.store, self.database), &compiled, projection, budget)?;
        let batches = Batches::new(groups).map(Arc::new);
        self.lock_batches().push(KnownBatches {
            matchers: matchers.to_vec(),
            names: projection.names.to_vec(),
            is_without: projection.is_without,
            batches: batches.clone(),
        });
        Ok(batches)
    }

    /// How many groups matchers choose, as far as a projection may be used.
    pub fn projected_groups(
        &self,
        matchers: &[Matcher],
        projection: Projection<'_>,
        budget: &Budget,
    ) -> Result<Option<usize>, QueryError> {
        Ok(self.batches(matchers, projection, budget)?.map(|batches| batches.groups()))
    }

    /// The whole labels of the first series of groups, by their numbers among all of the batches that were chosen with a projection.
    pub(super) fn labels_by_number(
        &self,
        batches: &Batches,
        numbers: &[u32],
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        let lost = || QueryError::Storage("a series was removed while it was read".to_owned());
        let whole = |number: &u32| {
            budget.check()?;
            let group = batches.groups.get(*number as usize).ok_or_else(lost)?;
            let (labels, column) = (self.store.group_labels(group)?, group.columns.first());
            let labels = labels.zip(column).map(|(labels, column)| column.series_labels(&labels));
            labels.ok_or_else(lost)
        };
        numbers.iter().map(whole).collect()
    }

    /// Hands the series of all batches to a sink.
    pub(super) fn scan_batches(
        &self,
        batches: &Batches,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &(impl SeriesSink + ?Sized),
    ) -> Result<(), QueryError> {
        let range = selection.nanoseconds();
        self.each_batch(batches, budget, &|place, groups| {
            let first = batches.first(place);
            let (mut labels, mut found) = (SeriesLabels::new(selection), Vec::new());
            let (mut from, mut held, mut read) = (first, 0, 0);
            for (end, group) in (first + 1..).zip(groups) {
                let before = found.len();
                self.read_projected((end - 1, group), &range, &mut labels, budget, &mut found)?;
                held += found.iter().skip(before).map(Series::samples).sum::<usize>();
                if held >= SAMPLES_TOGETHER || end == first + groups.len() {
                    read += self.count_read(end - from, 0, &found);
                    sink.take_places(from..end, std::mem::take(&mut found))?;
                    (from, held) = (end, 0);
                }
            }
            Ok(read)
        })
    }

    /// Hands the last samples of all batches to a sink, or series if there are histograms among them; in the order of the groups.
    pub(super) fn scan_last_of_batches(
        &self,
        batches: &Batches,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn LastSampleSink,
    ) -> Result<(), QueryError> {
        let range = selection.nanoseconds();
        self.each_batch(batches, budget, &|place, groups| {
            budget.check()?;
            let labels = SeriesLabels::new(selection);
            let last = self.last_of_batch((batches.first(place), groups), labels, &range, budget)?;
            let given = last.iter().map(Last::samples).sum();
            let read = self.count_read(groups.len(), given, &[]);
            if last.iter().any(Last::has_histograms) {
                sink.take(place, last.into_iter().map(Last::into_series).collect())?;
                return Ok(read);
            }
            let samples = last.into_iter().filter_map(Last::into_sample).collect();
            let taken = sink.take_last(place, samples);
            budget.give_back(given);
            taken?;
            Ok(read)
        })
    }

    /// The last samples of a batch; of groups of which the last row does not tell, all that they have in the range.
    fn last_of_batch(
        &self,
        (first, groups): (usize, &[SelectedGroup]),
        mut labels: SeriesLabels,
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<Last>, QueryError> {
        let is_number = |value_type| !matches!(value_type, ValueType::Histogram | ValueType::String);
        let samples = match groups.first().map(|group| group.columns.as_slice()) {
            Some([column]) if is_number(column.value_type) => self.reader.last_samples(groups, range)?,
            _ => vec![LastSample::Unknown; groups.len()],
        };
        let (mut series, mut last) = (Vec::new(), Vec::with_capacity(groups.len()));
        for ((number, group), sample) in (first..).zip(groups).zip(samples) {
            match sample {
                LastSample::None => {}
                LastSample::Number { time_ns, value } => {
                    let Some(column) = group.columns.first() else { continue };
                    last.push(Last::Sample(labels.get(number, group, column), time_ns.div_euclid(NS_PER_MS), value));
                }
                LastSample::Unknown => {
                    self.read_projected((number, group), range, &mut labels, budget, &mut series)?;
                    last.extend(series.drain(..).map(Last::Series));
                }
            }
        }
        let known = last.iter().filter(|last| matches!(last, Last::Sample(..))).count();
        budget.take(known)?;
        Ok(last)
    }

    fn each_batch(&self, batches: &Batches, budget: &Budget, work: &BatchWork<'_>) -> Result<(), QueryError> {
        self.helpers.run(batches.ranges.len(), budget, &|place| {
            let samples = work(place, batches.get(place))?;
            self.charge_reader(budget)?;
            Ok(samples)
        })
    }

    fn read_projected(
        &self,
        (number, group): (usize, &SelectedGroup),
        range: &TimeRange,
        labels: &mut SeriesLabels,
        budget: &Budget,
        found: &mut Vec<Series>,
    ) -> Result<(), QueryError> {
        budget.check()?;
        if group.columns.iter().any(|column| column.value_type == ValueType::Histogram) {
            // Floats and histograms of a metric are two columns.
            found.extend(self.read(std::slice::from_ref(group), range, budget)?);
            return Ok(());
        }
        let columns = self.reader.read_by_millisecond(group, range)?;
        for (column, selected) in columns.into_iter().zip(group.columns.iter()) {
            let Some(series) = super::store_source::to_series(|| labels.get(number, group, selected), column) else {
                continue;
            };
            budget.take(series.samples())?;
            found.push(series);
        }
        Ok(())
    }
}

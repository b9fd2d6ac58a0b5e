//! Turns series into rows as they are read. The thread that reads a series also computes its row, so that the samples of all series are
//! never in memory at once. Rows are then forwarded one at a time, in an order that depends on the data alone, so that results do not
//! depend on threads.
//!
//! ```text
//!  source, several threads     series ──► row ──┐
//!                              series ──► row ──┼──► reordered ──► CollectedRows       an instant vector
//!                              series ──► row ──┘            └───► StreamAggregation   an aggregation: rows are not stored
//! ```

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use model::{Labels, Matcher};
use query::{
    Budget, LastSampleSink, Projection, QueryError, Selection, Series, SeriesSink, StepReport, Trace, WindowSelection,
    WindowSeries, WindowSink,
};

use crate::eval::annotations::Annotations;
use crate::eval::evaluator::Evaluator;
use crate::eval::rows::{Charge, Row, Vector, same_labels};
use crate::range::samples::{SampleInterval, Samples};
use crate::syntax::ast::Grouping;

/// A row with the series that it was computed from.
pub(crate) struct SeriesRow {
    pub(crate) series: Labels,
    /// The labels of its group, if an aggregation consumes it.
    pub(crate) group: Option<Labels>,
    pub(crate) row: Row,
}

impl SeriesRow {
    /// The row of a series with its group, if an aggregation consumes it; `None` if the aggregation leaves the series out.
    pub(crate) fn grouped(
        (series, row): (Labels, Row),
        grouping: Option<&Grouping>,
        budget: &Budget,
    ) -> Result<Option<Self>, QueryError> {
        let Some(grouping) = grouping else { return Ok(Some(Self { series, group: None, row })) };
        let group = grouping.group_of(&row.labels, budget)?;
        Ok(group.map(|group| Self { series, group: Some(group), row }))
    }
}

/// The destination of rows, one at a time.
pub(crate) trait RowSink: Send {
    /// Takes the next row, which is not empty.
    fn push(&mut self, made: SeriesRow) -> Result<(), QueryError>;
}

/// The step that reading series is reported as.
pub(crate) const SCAN: &str = "scan";

/// With more batches than this waiting to be forwarded, reader threads wait.
const PENDING_BATCHES_MAX: usize = 256;

/// How series become rows.
pub(crate) struct StreamOptions<'a> {
    /// The step that it is reported as.
    pub(crate) step: &'static str,
    /// Computes a row from a series' samples.
    pub(crate) make: &'a MakeRow<'a>,
    /// Computes a row from the values of a series' windows, if these are enough.
    pub(crate) windows: Option<(WindowSelection<'a>, &'a RowOfWindows<'a>)>,
    /// Computes a row from a series' last sample, if it is enough.
    pub(crate) last: Option<&'a RowOfLast<'a>>,
    pub(crate) grouping: Option<&'a Grouping>,
    /// The labels that are needed; `None`: all, and series in order of them.
    pub(crate) projection: Option<Projection<'a>>,
    /// Series get numbers, by which their other labels are to be had later.
    pub(crate) is_numbered: bool,
    /// Two rows with the same labels are an error.
    pub(crate) distinct: bool,
}

type RowOfWindows<'a> = dyn Fn(Labels, Vec<Option<f64>>) -> Row + Sync + 'a;

type RowOfLast<'a> = dyn Fn(Labels, i64, f64) -> Row + Sync + 'a;

type MakeRow<'a> = dyn Fn(Labels, Samples, &Annotations) -> Result<Row, QueryError> + Sync + 'a;

/// Rows of some series.
struct Batch<'b> {
    made: Vec<SeriesRow>,
    groups: GroupLabels,
    annotations: Annotations,
    charge: Charge<'b>,
}

/// The labels of groups, by those of series that many share: where few labels are needed. Series that are left out have none.
#[derive(Default)]
struct GroupLabels(HashMap<usize, (Labels, Option<Labels>)>);

impl GroupLabels {
    fn get(
        &mut self,
        grouping: &Grouping,
        (series, row): (&Labels, &Row),
        budget: &Budget,
    ) -> Result<Option<Labels>, QueryError> {
        let address = series.packed().as_ptr().addr();
        if let Some((_, group)) = self.0.get(&address) {
            return Ok(group.clone());
        }
        let group = grouping.group_of(&row.labels, budget)?;
        // The labels of the series are kept, so that no others get their address.
        self.0.insert(address, (series.clone(), group.clone()));
        Ok(group)
    }
}

/// Restores the order of batches. One of the reader threads forwards them while the others keep reading.
struct ReorderBuffer<'s, 'b> {
    pending: Mutex<PendingBatches<'b>>,
    /// Taken before `pending`.
    output: Mutex<DistinctSink<'s>>,
}

/// Batches that arrived early.
#[derive(Default)]
struct PendingBatches<'b> {
    next: usize,
    /// By their first places, each with the place after its last.
    batches: BTreeMap<usize, (usize, Batch<'b>)>,
    /// A thread is forwarding them.
    is_draining: bool,
}

/// Forwards rows to a sink, after a check for duplicate labels.
pub(crate) struct DistinctSink<'s> {
    /// The labels so far, if duplicates are an error.
    labels: Option<LabelSet>,
    annotations: Annotations,
    sink: &'s mut dyn RowSink,
}

/// A set of labels. They mostly arrive in order; then each is compared with the previous one only.
#[derive(Default)]
struct LabelSet {
    ascending: Vec<Labels>,
    /// All labels, from the first one that was out of order.
    all: HashSet<Labels>,
}

impl LabelSet {
    /// Adds labels; false if they are there.
    fn insert(&mut self, labels: &Labels) -> bool {
        if self.all.is_empty() {
            if self.ascending.last().is_none_or(|last| last < labels) {
                self.ascending.push(labels.clone());
                return true;
            }
            self.all = std::mem::take(&mut self.ascending).into_iter().collect();
        }
        self.all.insert(labels.clone())
    }
}

impl<'s> DistinctSink<'s> {
    pub(crate) fn new(distinct: bool, sink: &'s mut dyn RowSink) -> Self {
        Self { labels: distinct.then(LabelSet::default), annotations: Annotations::default(), sink }
    }

    pub(crate) fn push(&mut self, made: SeriesRow) -> Result<(), QueryError> {
        if made.row.is_empty() {
            return Ok(());
        }
        if self.labels.as_mut().is_some_and(|labels| !labels.insert(&made.row.labels)) {
            return Err(same_labels());
        }
        self.sink.push(made)
    }

    fn push_batch(&mut self, Batch { made, annotations, charge, .. }: Batch<'_>) -> Result<(), QueryError> {
        self.annotations.absorb(annotations);
        drop(charge);
        made.into_iter().try_for_each(|made| self.push(made))
    }
}

impl<'s, 'b> ReorderBuffer<'s, 'b> {
    fn new(output: DistinctSink<'s>) -> Self {
        Self { pending: Mutex::default(), output: Mutex::new(output) }
    }

    fn deliver(&self, places: Range<usize>, batch: Batch<'b>) -> Result<(), QueryError> {
        let mut pending = lock(&self.pending);
        pending.batches.insert(places.start, (places.end, batch));
        let is_crowded = pending.batches.len() > PENDING_BATCHES_MAX;
        let is_draining = std::mem::replace(&mut pending.is_draining, true);
        drop(pending);
        if is_draining && !is_crowded {
            return Ok(());
        }
        // A thread that reads faster than rows can be forwarded waits here.
        let mut output = lock(&self.output);
        if is_draining {
            return Ok(());
        }
        while let Some(batch) = self.next() {
            output.push_batch(batch)?;
        }
        Ok(())
    }

    /// The next batch in order; if it is missing, this thread stops forwarding.
    fn next(&self) -> Option<Batch<'b>> {
        let mut pending = lock(&self.pending);
        let sequence = pending.next;
        let found = pending.batches.remove(&sequence);
        pending.is_draining = found.is_some();
        let (next, batch) = found?;
        pending.next = next;
        Some(batch)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Times and counts for the trace of a query.
struct StreamTiming<'a> {
    trace: &'a Trace<'a>,
    started_ns: i64,
    /// Nanoseconds that computing and forwarding took.
    making_ns: AtomicI64,
    forwarding_ns: AtomicI64,
    /// Series, and samples or values: read, made.
    read: [AtomicI64; 2],
    made: [AtomicI64; 2],
}

impl<'a> StreamTiming<'a> {
    fn new(trace: &'a Trace<'a>) -> Self {
        let (making_ns, forwarding_ns) = (AtomicI64::new(0), AtomicI64::new(0));
        let [read, made] = [const { [const { AtomicI64::new(0) }; 2] }; 2];
        Self { trace, started_ns: trace.now_ns(), making_ns, forwarding_ns, read, made }
    }

    fn add(counters: &[AtomicI64; 2], series: usize, values: usize) {
        counters.iter().zip([series, values]).for_each(|(counter, more)| {
            counter.fetch_add(more as i64, Ordering::Relaxed);
        });
    }

    /// Reports reading and making; what handing on took is left to who takes it.
    fn report(self, step: &'static str) {
        let total_ns = self.trace.now_ns() - self.started_ns;
        let (making_ns, forwarding_ns) = (self.making_ns.into_inner(), self.forwarding_ns.into_inner());
        let report = |step, counters: [AtomicI64; 2], elapsed_ns| {
            let [series, rows] = counters.map(|counter| usize::try_from(counter.into_inner()).unwrap_or_default());
            self.trace.add(StepReport { step, series, rows, elapsed_ns });
        };
        report(SCAN, self.read, (total_ns - making_ns - forwarding_ns).max(0));
        report(step, self.made, making_ns);
    }
}

/// Makes rows on the threads that read.
struct RowMaker<'a, 's, 'b> {
    options: &'a StreamOptions<'a>,
    timing: Option<StreamTiming<'a>>,
    budget: &'b Budget,
    reorder: ReorderBuffer<'s, 'b>,
}

/// How much was read for a batch.
#[derive(Clone, Copy)]
struct ReadSize {
    series: usize,
    samples: usize,
}

impl SeriesSink for RowMaker<'_, '_, '_> {
    fn take(&self, place: usize, series: Vec<Series>) -> Result<(), QueryError> {
        self.take_places(place..place + 1, series)
    }

    fn take_places(&self, places: Range<usize>, series: Vec<Series>) -> Result<(), QueryError> {
        let samples = series.iter().map(Series::samples).sum();
        let read = ReadSize { series: series.len(), samples };
        self.forward(places, read, || self.make(series))
    }
}

impl WindowSink for RowMaker<'_, '_, '_> {
    fn take_values(&self, place: usize, series: Vec<WindowSeries>) -> Result<(), QueryError> {
        self.forward(place..place + 1, ReadSize { series: series.len(), samples: 0 }, || {
            let mut batch = self.batch();
            let Some((_, row_of)) = &self.options.windows else { return Ok(batch) };
            for (labels, values) in series {
                batch.add(self.options, labels.clone(), row_of(labels, values))?;
            }
            Ok(batch)
        })
    }
}

impl LastSampleSink for RowMaker<'_, '_, '_> {
    fn take_last(&self, place: usize, samples: Vec<(Labels, i64, f64)>) -> Result<(), QueryError> {
        self.forward(place..place + 1, ReadSize { series: samples.len(), samples: samples.len() }, || {
            let mut batch = self.batch();
            let Some(row_of) = self.options.last else { return Ok(batch) };
            batch.made.reserve_exact(samples.len());
            for (labels, time_ms, value) in samples {
                batch.add(self.options, labels.clone(), row_of(labels, time_ms, value))?;
            }
            Ok(batch)
        })
    }
}

impl Batch<'_> {
    fn add(&mut self, options: &StreamOptions<'_>, series: Labels, row: Row) -> Result<(), QueryError> {
        if row.is_empty() {
            return Ok(());
        }
        let (charge, budget) = (row.charge(), self.charge.budget());
        let made = match options.grouping {
            Some(grouping) if options.projection.is_some() => {
                let group = self.groups.get(grouping, (&series, &row), budget)?;
                group.map(|group| SeriesRow { series, group: Some(group), row })
            }
            grouping => SeriesRow::grouped((series, row), grouping, budget)?,
        };
        if let Some(made) = made {
            self.charge.add(charge)?;
            self.made.push(made);
        }
        Ok(())
    }
}

impl<'b> RowMaker<'_, '_, 'b> {
    fn batch(&self) -> Batch<'b> {
        Batch {
            made: Vec::new(),
            groups: GroupLabels::default(),
            annotations: Annotations::default(),
            charge: Charge::none(self.budget),
        }
    }

    /// Computes a batch of the given size and delivers it.
    fn forward(
        &self,
        places: Range<usize>,
        read: ReadSize,
        make: impl FnOnce() -> Result<Batch<'b>, QueryError>,
    ) -> Result<(), QueryError> {
        let deliver = |batch| self.reorder.deliver(places.clone(), batch);
        let Some(timing) = &self.timing else { return deliver(make()?) };
        StreamTiming::add(&timing.read, read.series, read.samples);
        let started_ns = timing.trace.now_ns();
        let batch = make()?;
        let made_ns = timing.trace.now_ns();
        StreamTiming::add(&timing.made, batch.made.len(), batch.made.iter().map(|made| made.row.len()).sum());
        deliver(batch)?;
        timing.making_ns.fetch_add(made_ns - started_ns, Ordering::Relaxed);
        timing.forwarding_ns.fetch_add(timing.trace.now_ns() - made_ns, Ordering::Relaxed);
        Ok(())
    }

    fn make(&self, series: Vec<Series>) -> Result<Batch<'b>, QueryError> {
        let mut batch = self.batch();
        let mut charge = Charge::adopt(self.budget, series.iter().map(Series::samples).sum());
        for series in series {
            self.budget.check()?;
            let count = series.samples();
            let (labels, samples) = Samples::from_series(series);
            let row = (self.options.make)(labels.clone(), samples, &batch.annotations)?;
            charge.release(count);
            batch.add(self.options, labels, row)?;
        }
        Ok(batch)
    }
}

impl Evaluator<'_> {
    /// Computes and forwards the rows of all series with samples in an interval.
    pub(crate) fn stream(
        &self,
        matchers: &[Matcher],
        interval: SampleInterval,
        options: &StreamOptions<'_>,
        sink: &mut dyn RowSink,
    ) -> Result<(), QueryError> {
        let StreamOptions { projection, is_numbered, .. } = *options;
        let selection = Selection { projection, is_numbered, ..interval.selection(matchers) };
        let output = DistinctSink::new(options.distinct, sink);
        let reorder = ReorderBuffer::new(output);
        let timing = self.source.trace().map(StreamTiming::new);
        let maker = RowMaker { options, timing, budget: self.budget, reorder };
        match &options.windows {
            Some((windows, _)) => self.source.scan_windows(windows, self.budget, &maker)?,
            None if options.last.is_some() => self.source.scan_last(&selection, self.budget, &maker)?,
            None => self.source.scan(&selection, self.budget, &maker)?,
        }
        let output = maker.reorder.output.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.annotations.absorb(output.annotations);
        if let Some(timing) = maker.timing {
            timing.report(options.step);
        }
        Ok(())
    }
}

/// Rows that become an instant vector.
pub(crate) struct CollectedRows<'b> {
    pub(crate) vector: Vector<'b>,
    /// The series of each row.
    series: Vec<Labels>,
}

impl<'b> CollectedRows<'b> {
    pub(crate) const fn new(budget: &'b Budget) -> Self {
        Self { vector: Vector::empty(budget), series: Vec::new() }
    }

    /// The vector, in order of the series' labels. Rows of the same series, which arrive in order of time, are joined.
    pub(crate) fn sorted(mut self) -> Vector<'b> {
        if self.series.is_sorted_by(|a, b| a < b) {
            return self.vector;
        }
        let mut rows: Vec<(Labels, Row)> = self.series.into_iter().zip(std::mem::take(&mut self.vector.rows)).collect();
        rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        rows.dedup_by(|(series, later), (earlier, row)| {
            let is_same = series == earlier;
            if is_same {
                row.extend(std::mem::replace(later, Row::new(Labels::empty())));
            }
            is_same
        });
        self.vector.rows = rows.into_iter().map(|(_, row)| row).collect();
        self.vector
    }
}

impl RowSink for CollectedRows<'_> {
    fn push(&mut self, made: SeriesRow) -> Result<(), QueryError> {
        self.series.push(made.series);
        self.vector.push(made.row)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Keeps the names of all rows.
    struct Names(Vec<String>);

    impl RowSink for Names {
        fn push(&mut self, made: SeriesRow) -> Result<(), QueryError> {
            self.0.push(made.series.get("n").unwrap_or_default().to_owned());
            Ok(())
        }
    }

    #[test]
    fn rows_pass_in_order_whoever_brings_them() {
        let budget = Budget::new(1_000_000);
        let count = 5_000;
        let mut names = Names(Vec::new());
        let reorder = ReorderBuffer::new(DistinctSink::new(false, &mut names));
        let next = AtomicI64::new(0);
        let batch = |number: i64| {
            let series = Labels::from_pairs([("n", &*number.to_string())]).unwrap();
            let mut row = Row::new(series.clone());
            row.push_float(0, number as f64);
            let made = vec![SeriesRow { series, group: None, row }];
            let groups = GroupLabels::default();
            Batch { made, groups, annotations: Annotations::default(), charge: Charge::none(&budget) }
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            break;
                        }
                        let place = number as usize;
                        reorder.deliver(place..place + 1, batch(number)).unwrap();
                    }
                });
            }
        });
        drop(reorder);
        assert_eq!(names.0, (0..count).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    proptest! {
        /// Against a set.
        #[test]
        fn labels_pass_once(numbers in prop_oneof![
            proptest::collection::vec(0..40u8, 0..30),
            proptest::collection::btree_set(any::<u8>(), 0..30).prop_map(|numbers| numbers.into_iter().collect()),
        ]) {
            let (mut seen, mut expected) = (LabelSet::default(), HashSet::new());
            for number in numbers {
                let labels = Labels::from_pairs([("n", &*format!("{number:03}"))]).unwrap();
                prop_assert_eq!(seen.insert(&labels), expected.insert(number));
            }
        }
    }
}

//! The seam below PromQL: series by matchers and time.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use index::{MatcherError, Projection};
use model::{Labels, Matcher, NativeHistogram, Summary, TimeRange};
use store::StoreError;

use crate::{Budget, Plan, Stop, TextSink, Trace, ViewedWindows, WindowSelection, WindowSeries};

const NS_PER_MS: i64 = 1_000_000;

/// Which series, and which stretch of them. Timestamps are milliseconds, as PromQL has them; both ends included.
#[derive(Debug, Clone)]
pub struct Selection<'a> {
    /// All must hold.
    pub matchers: &'a [Matcher],
    /// First millisecond wanted.
    pub start_ms: i64,
    /// Last millisecond wanted.
    pub end_ms: i64,
    /// The labels that are looked at, beside the metric's name: others may be left out, and several series have the same labels then, in
    /// any order. `None`: all.
    pub projection: Option<Projection<'a>>,
    /// Whether each series gets its number among those selected as the value of a label without a name ([`number_of`]), where the projection is
    /// used: the whole labels of a few of them are to be had by [`Source::labels_of`].
    pub is_numbered: bool,
}

/// The number of a series that was selected with numbers; `None` if it has whole labels.
pub fn number_of(labels: &Labels) -> Option<u32> {
    let (name, number) = labels.iter().next()?;
    if name.is_empty() { number.parse().ok() } else { None }
}

impl Selection<'_> {
    /// All nanoseconds of its milliseconds.
    pub const fn nanoseconds(&self) -> TimeRange {
        let last_ns = self.end_ms.saturating_mul(NS_PER_MS).saturating_add(NS_PER_MS - 1);
        TimeRange::new(self.start_ms.saturating_mul(NS_PER_MS), last_ns)
    }
}

/// One series and its samples in the selected stretch: sorted by time, one sample per millisecond. Stale markers are
/// among the values ([`model::is_stale_bits`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// All labels, `__name__` among them.
    pub labels: Labels,
    /// Milliseconds since the Unix epoch. Series with the same times may share them: what is found out for one holds for the others.
    pub timestamps_ms: Arc<Vec<i64>>,
    /// As many as timestamps.
    pub values: Vec<f64>,
    /// Native histograms with their times, sorted. A stale marker is one whose sum is.
    pub histograms: Vec<(i64, NativeHistogram)>,
    /// Summaries of folded samples as floats, in order of the last sample of each, which is among the samples. Some may begin before the
    /// samples or end after them.
    pub folds: Vec<Summary>,
}

impl Series {
    /// A series without labels and samples.
    pub fn empty() -> Self {
        let (timestamps_ms, values, histograms, folds) = Default::default();
        Self { labels: Labels::empty(), timestamps_ms, values, histograms, folds }
    }

    /// Leaves floats from the first of two times, if it is given, to just before the second, and no histograms from that on.
    pub fn cut(&mut self, first_ms: Option<i64>, end_ms: i64) {
        let end = first_not_before(&self.timestamps_ms, end_ms);
        let timestamps_ms = Arc::make_mut(&mut self.timestamps_ms);
        timestamps_ms.truncate(end);
        self.values.truncate(end);
        self.histograms.retain(|(time_ms, _)| *time_ms < end_ms);
        self.folds.clear();
        if let Some(first_ms) = first_ms {
            let first = timestamps_ms.partition_point(|time_ms| *time_ms < first_ms);
            timestamps_ms.drain(..first);
            self.values.drain(..first);
        }
    }

    /// Its floats from the first to the last of two times, both included; `None` if there are none. What is near the end is found soonest.
    pub fn floats_between(&self, start_ms: i64, end_ms: i64) -> Option<Self> {
        let end = first_not_before(&self.timestamps_ms, end_ms.saturating_add(1));
        let before = self.timestamps_ms.get(..end)?;
        let first = first_not_before(before, start_ms);
        let timestamps_ms = before.get(first..).filter(|times_ms| !times_ms.is_empty())?;
        let timestamps_ms = Arc::new(timestamps_ms.to_vec());
        let values = self.values.get(first..end)?.to_vec();
        Some(Self { labels: self.labels.clone(), timestamps_ms, values, ..Self::empty() })
    }

    /// The samples that the series takes out of a budget: its floats, and for each histogram as many samples as it has buckets and a few.
    pub fn samples(&self) -> usize {
        self.values.len() + self.histograms.iter().map(|(_, histogram)| histogram_samples(histogram)).sum::<usize>()
    }
}

/// The place of the first of ascending times that is not before another one. Looks from the end on, in steps that double: a binary search would
/// look at places all over, none of which is at hand.
fn first_not_before(ascending_ms: &[i64], bound_ms: i64) -> usize {
    let (mut end, mut distance) = (ascending_ms.len(), 1);
    while end > 0 {
        let start = end.saturating_sub(distance);
        if ascending_ms.get(start).is_some_and(|first_ms| *first_ms < bound_ms) {
            let inside = ascending_ms.get(start..end).unwrap_or_default();
            return start + inside.partition_point(|found_ms| *found_ms < bound_ms);
        }
        (end, distance) = (start, distance * 2);
    }
    0
}

/// The samples that a histogram takes out of a budget.
fn histogram_samples(histogram: &NativeHistogram) -> usize {
    6 + histogram.layout.positive_buckets()
        + histogram.layout.negative_buckets()
        + histogram.layout.custom_bounds.len() / 2
}

/// A sink of series as they are read.
pub trait SeriesSink: Sync {
    /// Takes some series, whose samples are charged to the budget: to be given back when they are let go. Comes once for each
    /// place from 0 on, on several threads and in any order; which series have which place depends on the data alone.
    fn take(&self, place: usize, series: Vec<Series>) -> Result<(), QueryError>;

    /// As [`SeriesSink::take`], for several places that follow one another.
    fn take_places(&self, places: Range<usize>, series: Vec<Series>) -> Result<(), QueryError> {
        self.take(places.start, series)?;
        places.skip(1).try_for_each(|place| self.take(place, Vec::new()))
    }
}

/// A sink of windows over series: of their values, or of the samples to compute them from.
pub trait WindowSink: SeriesSink {
    /// Takes the values of some series' windows, in place of their samples; places are those of [`SeriesSink::take`].
    fn take_values(&self, place: usize, series: Vec<WindowSeries>) -> Result<(), QueryError>;
}

/// A sink of the last samples of series, or of all their samples.
pub trait LastSampleSink: SeriesSink {
    /// Takes the last samples of some series: labels, milliseconds since the Unix epoch, and a number, which is no stale marker. Places are
    /// those of [`SeriesSink::take`].
    fn take_last(&self, place: usize, samples: Vec<(Labels, i64, f64)>) -> Result<(), QueryError>;
}

/// Where series come from: the store, or a test's own data.
pub trait Source: Sync {
    /// The series that satisfy all matchers and have a sample in the stretch, in no particular order, no label set twice.
    /// Samples are charged to the budget.
    fn select(&self, selection: &Selection<'_>, budget: &Budget) -> Result<Vec<Series>, QueryError>;

    /// Hands the same series to a sink, each as soon as it is read, so that not all are held at once.
    fn scan(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn SeriesSink) -> Result<(), QueryError> {
        let mut series = self.select(selection, budget)?;
        series.sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut series = series.into_iter().enumerate();
        let taken = series.try_for_each(|(place, series)| sink.take(place, vec![series]));
        budget.give_back(series.map(|(_, series)| series.samples()).sum());
        taken
    }

    /// Hands a sink the series that satisfy all matchers and have a sample in the stretch, with their texts, which no other call here gives: a
    /// source without texts calls [`scan_without_texts`](crate::scan_without_texts). There is no default, since one that is made of another source
    /// would leave out its texts.
    fn scan_texts(&self, selection: &Selection<'_>, budget: &Budget, sink: &dyn TextSink) -> Result<(), QueryError>;

    /// Hands windows to a sink: their values for the series whose summaries have them, else the samples.
    fn scan_windows(
        &self,
        selection: &WindowSelection<'_>,
        budget: &Budget,
        sink: &dyn WindowSink,
    ) -> Result<(), QueryError> {
        self.scan(&selection.samples(), budget, sink)
    }

    /// Hands the last samples of series to a sink, or of some all their samples.
    fn scan_last(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn LastSampleSink,
    ) -> Result<(), QueryError> {
        self.scan(selection, budget, sink)
    }

    /// The whole labels of series by the numbers that a selection with this projection gave them in this query.
    fn labels_of(
        &self,
        matchers: &[Matcher],
        projection: Projection<'_>,
        numbers: &[u32],
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        let _ = (matchers, projection, budget);
        Err(QueryError::Execution(format!("{} series have numbers that this source did not give", numbers.len())))
    }

    /// The values of windows as a materialised view has them, where one answers for the series and its windows are exactly these; in order of labels, and
    /// each value is charged to the budget as a sample. Sums are those of the samples within rounding.
    fn windows_by_view(
        &self,
        asked: &ViewedWindows<'_>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        let _ = (asked, budget);
        Ok(None)
    }

    /// What [`Source::windows_by_view`] reads; whether it is all that is needed shows when it is read.
    fn plan_by_view(&self, asked: &ViewedWindows<'_>, budget: &Budget) -> Result<Option<Plan>, QueryError> {
        let _ = (asked, budget);
        Ok(None)
    }

    /// The trace of the evaluation's steps, if there is one.
    fn trace(&self) -> Option<&Trace<'_>> {
        None
    }
}

/// Why a query gave no answer; chosen by what its sender can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// The text is wrong: fix it. Holds the message.
    Invalid(String),
    /// The text is right but its evaluation failed (many-to-many matching, say). Holds the message.
    Execution(String),
    /// It was stopped.
    Stopped(Stop),
    /// It needs more samples at once than it may hold: narrow it, or raise `query_samples_max`.
    TooManySamples {
        /// The limit, in samples.
        limit: u64,
    },
    /// All running queries together need more memory than they may have: try again later, or narrow it.
    TooMuchMemory {
        /// The limit for all queries, in bytes.
        limit_bytes: u64,
    },
    /// A limit of its account or its database holds it back: try again later, or have the limit raised. Holds the message, which names the limit.
    OverQuota(String),
    /// The data could not be read. Holds the message.
    Storage(String),
    /// The account that sent it may not do this. Holds the message.
    Forbidden(String),
}

impl fmt::Display for QueryError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(message)
            | Self::Execution(message)
            | Self::Storage(message)
            | Self::Forbidden(message)
            | Self::OverQuota(message) => formatter.write_str(message),
            Self::Stopped(Stop::Timeout) => formatter.write_str("query timed out in expression evaluation"),
            Self::Stopped(Stop::Cancelled) => formatter.write_str("query was canceled in expression evaluation"),
            Self::TooMuchMemory { limit_bytes } => write!(
                formatter,
                "the running queries together need more memory than the {limit_bytes} bytes that they may have (a quarter of \
                 memory_bytes_max; one query at most four times what all leave free): try again later, select fewer series or a shorter range"
            ),
            Self::TooManySamples { limit } => write!(
                formatter,
                "query processing would load too many samples into memory: the limit is {limit} (query_samples_max); \
                 select fewer series or a shorter range"
            ),
        }
    }
}

impl std::error::Error for QueryError {}

/// The error of matchers that cannot be compiled.
impl From<MatcherError> for QueryError {
    fn from(error: MatcherError) -> Self {
        Self::Invalid(error.to_string())
    }
}

/// The error of reading a store.
impl From<StoreError> for QueryError {
    fn from(error: StoreError) -> Self {
        Self::Storage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_found_from_the_end() {
        for count in 0..40i64 {
            let timestamps_ms: Arc<Vec<i64>> = Arc::new((0..count).map(|place| place * 10).collect());
            let values = timestamps_ms.iter().map(|time_ms| *time_ms as f64).collect();
            let series = Series { timestamps_ms, values, ..Series::empty() };
            for (start_ms, end_ms) in [(-5, -1), (-5, 0), (0, 0), (1, 9), (5, 155), (100, 100), (95, 1000), (391, 400)]
            {
                let inside = |time_ms: &i64| start_ms <= *time_ms && *time_ms <= end_ms;
                let expected: Vec<i64> = series.timestamps_ms.iter().copied().filter(inside).collect();
                let found = series.floats_between(start_ms, end_ms);
                assert_eq!(*found.map(|found| found.timestamps_ms).unwrap_or_default(), expected);
                let mut cut = series.clone();
                cut.cut(Some(start_ms), end_ms + 1);
                assert_eq!((cut.timestamps_ms.len(), cut.values.len()), (expected.len(), expected.len()));
            }
        }
    }
}

//! Series of texts, as PromQL reads those that hold sketches.

use std::collections::HashMap;

use model::{Labels, SampleColumn, TimeRange, is_stale_bits};
use store::SelectedGroup;

use super::store_source::StoreSource;
use crate::{Budget, QueryError, SAMPLE_BYTES, Selection, Series, Source};

const NS_PER_MS: i64 = 1_000_000;

/// A sample of a series that may hold texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextSample {
    /// A text.
    Text(String),
    /// A number or a histogram.
    Other,
    /// A stale marker: the series ends here.
    Stale,
}

impl TextSample {
    /// The samples that it takes out of a budget, with its time.
    pub const fn samples(&self) -> usize {
        let text_bytes = match self {
            Self::Text(text) => text.len(),
            Self::Other | Self::Stale => 0,
        };
        (size_of::<(i64, Self)>() + text_bytes).div_ceil(SAMPLE_BYTES)
    }
}

/// A series and its samples, texts or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextSeries {
    /// All labels, `__name__` among them.
    pub labels: Labels,
    /// Milliseconds since the Unix epoch, sorted, none twice, with samples.
    pub samples: Vec<(i64, TextSample)>,
    /// Some of the samples are what folding left of several.
    pub is_folded: bool,
}

impl TextSeries {
    /// The samples that it takes out of a budget.
    pub fn samples(&self) -> usize {
        self.samples.iter().map(|(_, sample)| sample.samples()).sum()
    }

    fn new(labels: Labels) -> Self {
        Self { labels, samples: Vec::new(), is_folded: false }
    }

    /// Adds the samples of another one, which count where both have some.
    pub(super) fn append(&mut self, later: Self) {
        self.samples.extend(later.samples);
        self.is_folded |= later.is_folded;
        self.put_in_order();
    }

    /// Makes milliseconds of nanoseconds; of the samples of one the last one counts.
    fn take_milliseconds(&mut self) {
        self.samples.sort_by_key(|(time_ns, _)| *time_ns);
        self.samples.iter_mut().for_each(|(time, _)| *time = time.div_euclid(NS_PER_MS));
        self.put_in_order();
    }

    /// Puts samples in order of time; of those of a millisecond the last one counts.
    fn put_in_order(&mut self) {
        self.samples.sort_by_key(|(time_ms, _)| *time_ms);
        self.samples.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                std::mem::swap(later, earlier);
            }
            is_same
        });
    }
}

impl From<Series> for TextSeries {
    /// A series without texts.
    fn from(series: Series) -> Self {
        let mut made = Self::new(series.labels);
        made.is_folded = !series.folds.is_empty();
        let floats = series.timestamps_ms.iter().zip(&series.values);
        made.samples.extend(floats.map(|(time_ms, value)| (*time_ms, number(*value))));
        made.samples.extend(series.histograms.iter().map(|(time_ms, histogram)| (*time_ms, number(histogram.sum))));
        made.put_in_order();
        made
    }
}

const fn number(value: f64) -> TextSample {
    if is_stale_bits(value) { TextSample::Stale } else { TextSample::Other }
}

/// A sink of series of texts as they are read.
pub trait TextSink: Sync {
    /// Takes a series, whose samples are charged to the budget: to be given back when they are let go, also after an error. Comes on several
    /// threads and in any order.
    fn take(&self, series: TextSeries) -> Result<(), QueryError>;
}

/// Hands series to a sink as a source does that has no texts.
///
/// # Errors
/// Those of the source, of the budget and of the sink.
pub fn scan_without_texts(
    source: &(impl Source + ?Sized),
    selection: &Selection<'_>,
    budget: &Budget,
    sink: &dyn TextSink,
) -> Result<(), QueryError> {
    let mut series = source.select(selection, budget)?.into_iter();
    let taken = series.by_ref().try_for_each(|series| {
        budget.give_back(series.samples());
        let series = TextSeries::from(series);
        budget.take(series.samples())?;
        sink.take(series)
    });
    budget.give_back(series.map(|series| series.samples()).sum());
    taken
}

impl StoreSource<'_> {
    /// Hands a sink the series that a selection chooses, with texts.
    pub(super) fn scan_store_texts(
        &self,
        selection: &Selection<'_>,
        budget: &Budget,
        sink: &dyn TextSink,
    ) -> Result<(), QueryError> {
        let range = selection.nanoseconds();
        self.each_set(selection.matchers, budget, &|_, set| {
            let series = self.read_texts(set, &range, budget)?;
            let samples: usize = series.iter().map(TextSeries::samples).sum();
            self.note_reads(set.len(), samples);
            let mut series = series.into_iter();
            let taken = series.by_ref().try_for_each(|series| sink.take(series));
            budget.give_back(series.map(|series| series.samples()).sum());
            taken.map(|()| samples as u64)
        })
    }

    /// The series of one set that have samples.
    pub(super) fn read_texts(
        &self,
        set: &[SelectedGroup],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<TextSeries>, QueryError> {
        let (mut found, mut places): (Vec<TextSeries>, HashMap<Labels, usize>) = Default::default();
        for group in set {
            budget.check()?;
            let columns = self.reader.read(group, range)?;
            let mut folds = self.reader.folds(group, range)?.into_iter();
            for (column, selected) in columns.into_iter().zip(group.columns.iter()) {
                let is_folded = folds.next().is_some_and(|folds| folds.iter().any(|fold| fold.count > 1));
                let labels = selected.series_labels(&group.labels);
                let place = *places.entry(labels.clone()).or_insert(found.len());
                if place == found.len() {
                    found.push(TextSeries::new(labels));
                }
                let Some(series) = found.get_mut(place) else { continue };
                let before = series.samples.len();
                extend(&mut series.samples, column);
                series.is_folded |= is_folded;
                budget.take(series.samples.iter().skip(before).map(|(_, sample)| sample.samples()).sum())?;
            }
        }
        for series in &mut found {
            let before = series.samples();
            series.take_milliseconds();
            budget.give_back(before - series.samples());
        }
        found.retain(|series| !series.samples.is_empty());
        Ok(found)
    }
}

/// Adds the samples of a column, at times in nanoseconds.
fn extend(samples: &mut Vec<(i64, TextSample)>, column: SampleColumn) {
    match column {
        SampleColumn::String(times_ns, texts) => {
            samples.extend(times_ns.into_iter().zip(texts.into_iter().map(TextSample::Text)));
        }
        SampleColumn::F64(times_ns, values) => {
            samples.extend(times_ns.into_iter().zip(values.into_iter().map(number)));
        }
        SampleColumn::Histogram(times_ns, values) => {
            samples.extend(times_ns.into_iter().zip(values.iter().map(|histogram| number(histogram.sum))));
        }
        SampleColumn::I64(times_ns, _) | SampleColumn::U64(times_ns, _) | SampleColumn::Bool(times_ns, _) => {
            samples.extend(times_ns.into_iter().map(|time_ns| (time_ns, TextSample::Other)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sample_of_a_millisecond_counts() {
        let text = |text: &str| TextSample::Text(text.to_owned());
        let mut series = TextSeries::new(Labels::empty());
        extend(
            &mut series.samples,
            SampleColumn::String(vec![-1, 0, 999_999], vec!["a".into(), "b".into(), "c".into()]),
        );
        extend(&mut series.samples, SampleColumn::I64(vec![1_000_000, 3_000_000], vec![1, 2]));
        extend(&mut series.samples, SampleColumn::String(vec![1_000_001, 5_000_009], vec!["d".into(), "e".into()]));
        extend(
            &mut series.samples,
            SampleColumn::F64(
                vec![2_000_000, 4_000_000, 5_000_001],
                vec![f64::from_bits(model::STALE_NAN_BITS), f64::NAN, 1.0],
            ),
        );
        series.take_milliseconds();
        let expected = [
            (-1, text("a")),
            (0, text("c")),
            (1, text("d")),
            (2, TextSample::Stale),
            (3, TextSample::Other),
            (4, TextSample::Other),
            (5, text("e")),
        ];
        assert_eq!(series.samples, expected);
    }
}

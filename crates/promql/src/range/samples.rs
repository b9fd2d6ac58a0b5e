//! The samples of a series, and windows that move over them.

use std::sync::Arc;

use model::{Labels, Matcher, is_stale_bits};
use query::{Selection, Series, Summary};

use crate::eval::rows::{cleaned, contain_markers};
use crate::histogram::native::Histogram;

/// A series: floats and histograms, each sorted by time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    /// Series with the same times may share them.
    pub(crate) timestamps_ms: Arc<Vec<i64>>,
    pub(crate) values: Vec<f64>,
    pub(crate) histogram_timestamps_ms: Vec<i64>,
    pub(crate) histograms: Vec<Arc<Histogram>>,
    /// As [`Series::folds`].
    pub(crate) folds: Vec<Summary>,
}

impl Samples {
    pub(crate) fn from_series(series: Series) -> (Labels, Self) {
        let (histogram_timestamps_ms, histograms) =
            series.histograms.iter().map(|(time_ms, native)| (*time_ms, Arc::new(Histogram::from(native)))).unzip();
        let Series { labels, timestamps_ms, values, folds, .. } = series;
        (labels, Self { timestamps_ms, values, histogram_timestamps_ms, histograms, folds })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty() && self.histograms.is_empty()
    }

    pub(crate) fn drop_stale(&mut self) {
        if contain_markers(&self.values) {
            let samples = self.timestamps_ms.iter().copied().zip(self.values.iter().copied());
            let samples = samples.filter(|(_, value)| !is_stale_bits(*value));
            let (times_ms, values): (Vec<i64>, _) = samples.map(|(time, value)| (time, cleaned(value))).unzip();
            (self.timestamps_ms, self.values) = (Arc::new(times_ms), values);
        }
        if self.histograms.iter().any(|histogram| histogram.is_stale()) {
            let samples = self.histogram_timestamps_ms.iter().copied().zip(self.histograms.iter().cloned());
            (self.histogram_timestamps_ms, self.histograms) =
                samples.filter(|(_, histogram)| !histogram.is_stale()).unzip();
        }
    }

    /// The samples in an interval.
    pub(crate) fn between(&self, interval: SampleInterval) -> Self {
        let SampleInterval { after_ms, to_ms } = interval;
        let bounds = |times: &[i64]| {
            let first = times.partition_point(|time_ms| *time_ms <= after_ms);
            (first, times.partition_point(|time_ms| *time_ms <= to_ms).max(first))
        };
        let (first, end) = bounds(&self.timestamps_ms);
        let (histogram_first, histogram_end) = bounds(&self.histogram_timestamps_ms);
        let part = |times: &[i64], first: usize, end: usize| times.get(first..end).unwrap_or_default().to_vec();
        Self {
            timestamps_ms: Arc::new(part(&self.timestamps_ms, first, end)),
            values: self.values.get(first..end).unwrap_or_default().to_vec(),
            histogram_timestamps_ms: part(&self.histogram_timestamps_ms, histogram_first, histogram_end),
            histograms: self.histograms.get(histogram_first..histogram_end).unwrap_or_default().to_vec(),
            folds: Vec::new(),
        }
    }
}

/// An interval that is open at its start and closed at its end, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SampleInterval {
    /// Samples are later.
    pub(crate) after_ms: i64,
    /// No sample is later.
    pub(crate) to_ms: i64,
}

impl SampleInterval {
    pub(crate) fn selection(self, matchers: &[Matcher]) -> Selection<'_> {
        Selection {
            matchers,
            start_ms: self.after_ms.saturating_add(1),
            end_ms: self.to_ms,
            projection: None,
            is_numbered: false,
        }
    }
}

/// The bounds of a window in sorted times; both only move forward.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    first: usize,
    end: usize,
}

impl Cursor {
    /// The indices of the first time after `after_ms`, and of the first after `to_ms`.
    pub(crate) fn advance(&mut self, times: &[i64], interval: SampleInterval) -> (usize, usize) {
        let SampleInterval { after_ms, to_ms } = interval;
        while times.get(self.first).is_some_and(|time_ms| *time_ms <= after_ms) {
            self.first += 1;
        }
        self.end = self.end.max(self.first);
        while times.get(self.end).is_some_and(|time_ms| *time_ms <= to_ms) {
            self.end += 1;
        }
        (self.first, self.end)
    }
}

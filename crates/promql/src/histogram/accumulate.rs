//! Sums and means of many histograms.

use crate::eval::annotations::{Annotations, HistogramOperation};
use crate::histogram::native::{CounterReset, Histogram};
use crate::histogram::sum::{CompensatedHistogram, IncompatibleBuckets};
use crate::syntax::span::Span;

/// A sum, or a mean that sums up first and divides last until the sum would overflow; from then on it is updated as a mean.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "what was seen on the way")]
pub(crate) struct HistogramAccumulator {
    total: CompensatedHistogram,
    is_mean: bool,
    is_incremental: bool,
    count: f64,
    reset_seen: bool,
    no_reset_seen: bool,
    bounds_reconciled: bool,
}

impl HistogramAccumulator {
    pub(crate) fn new(first: &Histogram, is_mean: bool) -> Self {
        let mut accumulator = Self {
            total: CompensatedHistogram::new(first),
            is_mean,
            is_incremental: false,
            count: 1.0,
            reset_seen: false,
            no_reset_seen: false,
            bounds_reconciled: false,
        };
        accumulator.record_hint(first);
        accumulator
    }

    fn record_hint(&mut self, histogram: &Histogram) {
        self.reset_seen |= histogram.hint == CounterReset::Reset;
        self.no_reset_seen |= histogram.hint == CounterReset::NoReset;
    }

    pub(crate) fn add(&mut self, histogram: &Histogram) -> Result<(), IncompatibleBuckets> {
        self.record_hint(histogram);
        self.count += 1.0;
        if !self.is_mean {
            self.bounds_reconciled |= self.total.add(histogram)?.bounds_reconciled;
            return Ok(());
        }
        if !self.is_incremental {
            let mut total = self.total.clone();
            self.bounds_reconciled |= total.add(histogram)?.bounds_reconciled;
            if !total.has_overflow() {
                self.total = total;
                return Ok(());
            }
            self.is_incremental = true;
            self.total.divide(self.count - 1.0);
        }
        self.total.multiply((self.count - 1.0) / self.count);
        let mut part = histogram.clone();
        part.divide(self.count);
        self.bounds_reconciled |= self.total.add(&part)?.bounds_reconciled;
        Ok(())
    }

    /// Adds annotations for resets and bounds that did not match.
    pub(crate) fn annotate(&self, annotations: &Annotations, span: Span) {
        if self.reset_seen && self.no_reset_seen {
            annotations.reset_conflict(HistogramOperation::Aggregation, span);
        }
        if self.bounds_reconciled {
            annotations.bounds_reconciled(HistogramOperation::Aggregation, span);
        }
    }

    pub(crate) fn finish(mut self) -> Histogram {
        if self.is_mean && !self.is_incremental {
            self.total.divide(self.count);
        }
        self.total.finish()
    }
}

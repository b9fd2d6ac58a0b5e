//! Sums and means of many histograms.

use crate::histogram::{CompensatedHistogram, CounterReset, Histogram, IncompatibleBuckets};
use crate::notes::{HistogramOperation, Notes};
use crate::syntax::span::Span;

/// A sum, or a mean that sums up first and divides last until the sum would overflow; from there on it is kept as a mean.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "what was seen on the way")]
pub(crate) struct HistogramFold {
    total: CompensatedHistogram,
    mean: bool,
    incremental: bool,
    count: f64,
    reset_seen: bool,
    no_reset_seen: bool,
    reconciled: bool,
}

impl HistogramFold {
    pub(crate) fn new(first: &Histogram, mean: bool) -> Self {
        let mut fold = Self {
            total: CompensatedHistogram::new(first),
            mean,
            incremental: false,
            count: 1.0,
            reset_seen: false,
            no_reset_seen: false,
            reconciled: false,
        };
        fold.look_at(first);
        fold
    }

    fn look_at(&mut self, histogram: &Histogram) {
        self.reset_seen |= histogram.hint == CounterReset::Reset;
        self.no_reset_seen |= histogram.hint == CounterReset::NoReset;
    }

    pub(crate) fn add(&mut self, histogram: &Histogram) -> Result<(), IncompatibleBuckets> {
        self.look_at(histogram);
        self.count += 1.0;
        if !self.mean {
            self.reconciled |= self.total.add(histogram)?.bounds_reconciled;
            return Ok(());
        }
        if !self.incremental {
            let mut total = self.total.clone();
            self.reconciled |= total.add(histogram)?.bounds_reconciled;
            if !total.has_overflow() {
                self.total = total;
                return Ok(());
            }
            self.incremental = true;
            self.total.divide(self.count - 1.0);
        }
        self.total.multiply((self.count - 1.0) / self.count);
        let mut part = histogram.clone();
        part.divide(self.count);
        self.reconciled |= self.total.add(&part)?.bounds_reconciled;
        Ok(())
    }

    /// Notes what was found on the way.
    pub(crate) fn tell(&self, notes: &Notes, span: Span) {
        if self.reset_seen && self.no_reset_seen {
            notes.reset_conflict(HistogramOperation::Aggregation, span);
        }
        if self.reconciled {
            notes.bounds_reconciled(HistogramOperation::Aggregation, span);
        }
    }

    pub(crate) fn finish(mut self) -> Histogram {
        if self.mean && !self.incremental {
            self.total.divide(self.count);
        }
        self.total.finish()
    }
}

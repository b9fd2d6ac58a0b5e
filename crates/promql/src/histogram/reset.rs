//! Detects counter resets between two histograms.

use crate::histogram::bounds;
use crate::histogram::native::{CounterReset, Histogram, IndexedCount, reduced};

impl Histogram {
    /// Returns whether this histogram cannot have grown from the earlier one: something in it is smaller, or finer, than before.
    pub(crate) fn is_reset_after(&self, before: &Self) -> bool {
        match self.hint {
            CounterReset::Reset => return true,
            CounterReset::NoReset => return false,
            CounterReset::Unknown | CounterReset::Gauge => {}
        }
        if self.count < before.count {
            return true;
        }
        if self.is_custom() {
            if !before.is_custom() {
                return true;
            }
            if self.custom_bounds != before.custom_bounds {
                return self.is_reset_at_common_bounds(before);
            }
        }
        if self.schema > before.schema || self.zero_threshold < before.zero_threshold {
            return true;
        }
        let (zero_count, threshold) = before.zero_count_at(self.zero_threshold);
        #[expect(clippy::float_cmp, reason = "thresholds are settings")]
        if threshold != self.zero_threshold || self.zero_count < zero_count {
            return true;
        }
        self.lacks(&self.positive, before, &before.positive) || self.lacks(&self.negative, before, &before.negative)
    }

    /// Returns whether a populated bucket is missing or has fewer observations than before.
    fn lacks(&self, now: &[IndexedCount], histogram_before: &Self, before: &[IndexedCount]) -> bool {
        let reduced = if histogram_before.schema > self.schema {
            reduced(before, histogram_before.schema, self.schema)
        } else {
            before.to_vec()
        };
        let counts = |index: &i32| self.is_custom() || bounds::exponential(*index, self.schema) > self.zero_threshold;
        reduced.iter().filter(|(index, _)| counts(index)).any(|(index, before)| {
            match now.binary_search_by_key(index, |(index, _)| *index) {
                Ok(position) => now.get(position).is_some_and(|(_, now)| now < before),
                Err(_) => *before != 0.0,
            }
        })
    }

    /// As [`Self::lacks`], between the bounds that both have.
    #[expect(clippy::float_cmp, reason = "bounds are settings")]
    fn is_reset_at_common_bounds(&self, before: &Self) -> bool {
        let common = self.custom_bounds.iter().filter(|bound| before.custom_bounds.iter().any(|other| other == *bound));
        let mut lower = f64::NEG_INFINITY;
        for upper in common.copied().chain([f64::INFINITY]) {
            let within = |histogram: &Self| -> f64 {
                let buckets = histogram.positive.iter().map(|counted| histogram.positive_bucket(counted));
                buckets.filter(|bucket| bucket.upper > lower && bucket.upper <= upper).map(|bucket| bucket.count).sum()
            };
            if within(self) < within(before) {
                return true;
            }
            lower = upper;
        }
        false
    }
}

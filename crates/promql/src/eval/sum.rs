//! Sums that lose little to rounding, and quantiles.

/// Neumaier's compensated sum.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CompensatedSum {
    pub(crate) sum: f64,
    pub(crate) compensation: f64,
}

impl CompensatedSum {
    pub(crate) const fn new(sum: f64) -> Self {
        Self { sum, compensation: 0.0 }
    }

    /// Without a branch, so that many sums can be added to at once.
    #[inline]
    #[must_use]
    pub(crate) fn plus(self, value: f64) -> Self {
        let sum = self.sum + value;
        let (of_sum, of_value) = ((self.sum - sum) + value, (value - sum) + self.sum);
        let lost = if self.sum.abs() >= value.abs() { of_sum } else { of_value };
        let compensation = self.compensation + lost;
        // Tests for infinity with one comparison of floats.
        Self { sum, compensation: if sum.abs() > f64::MAX { 0.0 } else { compensation } }
    }

    #[must_use]
    pub(crate) fn times(self, factor: f64) -> Self {
        Self { sum: self.sum * factor, compensation: self.compensation * factor }
    }

    pub(crate) fn value(self) -> f64 {
        self.sum + self.compensation
    }
}

/// A mean that sums up first and divides last, until the sum would overflow; from then on it is updated as a mean.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    /// The sum, or the mean if `incremental`.
    total: CompensatedSum,
    count: f64,
    incremental: bool,
}

impl Mean {
    pub(crate) const fn new(value: f64) -> Self {
        Self { total: CompensatedSum::new(value), count: 1.0, incremental: false }
    }

    pub(crate) fn add(&mut self, value: f64) {
        self.count += 1.0;
        if !self.incremental {
            let total = self.total.plus(value);
            if !total.sum.is_infinite() {
                self.total = total;
                return;
            }
            self.incremental = true;
            let before = self.count - 1.0;
            self.total =
                CompensatedSum { sum: self.total.sum / before, compensation: self.total.compensation / before };
        }
        let weight = (self.count - 1.0) / self.count;
        self.total = self.total.times(weight).plus(value / self.count);
    }

    pub(crate) fn value(&self) -> f64 {
        if self.incremental {
            return self.total.value();
        }
        self.total.sum / self.count + self.total.compensation / self.count
    }
}

/// The quantile of values, which get sorted; NaN counts as the smallest.
pub(crate) fn quantile(quantile: f64, values: &mut [f64]) -> f64 {
    if values.is_empty() || quantile.is_nan() {
        return f64::NAN;
    }
    if quantile < 0.0 {
        return f64::NEG_INFINITY;
    }
    if quantile > 1.0 {
        return f64::INFINITY;
    }
    values.sort_unstable_by(|a, b| b.is_nan().cmp(&a.is_nan()).then_with(|| a.total_cmp(b)));
    let rank = quantile * (values.len() as f64 - 1.0);
    let lower = rank.floor();
    let upper = (lower as usize + 1).min(values.len() - 1);
    let weight = rank - lower;
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    at(lower as usize) * (1.0 - weight) + at(upper) * weight
}

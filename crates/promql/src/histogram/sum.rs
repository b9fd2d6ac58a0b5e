//! Sums and differences of histograms: of different resolutions, zero buckets and custom bounds.

use std::cmp::Ordering;

use crate::eval::sum::CompensatedSum;
use crate::histogram::bounds;
use crate::histogram::native::{CounterReset, Histogram, IndexedCount, reduced, reduced_index};

/// Exponential and custom buckets cannot be combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IncompatibleBuckets;

/// The differences that a sum reconciled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct AddOutcome {
    /// One side says that there was a reset, the other that there was none.
    pub(crate) reset_conflict: bool,
    /// Custom bounds differed: only those that both sides have are left.
    pub(crate) bounds_reconciled: bool,
}

/// A bucket's index, count, and what rounding lost of it.
type CompensatedCount = (i32, CompensatedSum);

/// A sum of histograms with compensation for rounding.
#[derive(Debug, Clone)]
pub(crate) struct CompensatedHistogram {
    /// The sum without its compensation; its buckets are in `positive` and `negative`.
    total: Histogram,
    zero_count: CompensatedSum,
    count: CompensatedSum,
    sum: CompensatedSum,
    positive: Vec<CompensatedCount>,
    negative: Vec<CompensatedCount>,
}

fn compensated(buckets: &[IndexedCount]) -> Vec<CompensatedCount> {
    buckets.iter().map(|(index, count)| (*index, CompensatedSum::new(*count))).collect()
}

/// Adds buckets one by one; those that are not there yet are inserted.
fn merge<T: Copy>(
    left: &[(i32, T)],
    right: &[IndexedCount],
    insert: impl Fn(f64) -> T,
    add: impl Fn(T, f64) -> T,
) -> Vec<(i32, T)> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut left, mut right) = (left.iter().copied().peekable(), right.iter().copied().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return merged,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => a.cmp(b),
        };
        match order {
            Ordering::Less => merged.extend(left.next()),
            Ordering::Greater => merged.extend(right.next().map(|(index, count)| (index, insert(count)))),
            Ordering::Equal => {
                if let (Some((index, a)), Some((_, b))) = (left.next(), right.next()) {
                    merged.push((index, add(a, b)));
                }
            }
        }
    }
}

fn reduced_compensated(buckets: &[CompensatedCount], from: i8, to: i8) -> Vec<CompensatedCount> {
    let mut merged: Vec<CompensatedCount> = Vec::new();
    for (index, count) in buckets {
        let index = reduced_index(*index, from, to);
        match merged.last_mut() {
            Some((last, total)) if *last == index => *total = total.plus(count.sum).plus(count.compensation),
            _ => merged.push((index, *count)),
        }
    }
    merged
}

/// The hint of a sum, and whether the hints contradict each other.
fn combined_hint(left: CounterReset, right: CounterReset) -> (CounterReset, bool) {
    match (left, right) {
        (a, b) if a == b => (a, false),
        (CounterReset::Gauge, _) | (_, CounterReset::Gauge) => (CounterReset::Gauge, false),
        (CounterReset::Unknown, _) | (_, CounterReset::Unknown) => (CounterReset::Unknown, false),
        _ => (CounterReset::Unknown, true),
    }
}

impl Histogram {
    /// The zero count for a threshold that is at least this histogram's, and the threshold, which is raised to the end of
    /// the populated bucket in which it lies.
    pub(super) fn zero_count_at(&self, mut threshold: f64) -> (f64, f64) {
        #[expect(clippy::float_cmp, reason = "thresholds are settings")]
        if threshold == self.zero_threshold {
            return (self.zero_count, threshold);
        }
        'again: loop {
            let mut total = CompensatedSum::new(self.zero_count);
            for counted in &self.positive {
                let bucket = self.positive_bucket(counted);
                if bucket.lower >= threshold {
                    break;
                }
                total = total.plus(bucket.count);
                if bucket.upper > threshold {
                    if bucket.count != 0.0 {
                        threshold = bucket.upper;
                    }
                    break;
                }
            }
            for counted in &self.negative {
                let bucket = self.negative_bucket(counted);
                if bucket.upper <= -threshold {
                    break;
                }
                total = total.plus(bucket.count);
                if bucket.lower < -threshold {
                    if bucket.count != 0.0 {
                        threshold = -bucket.lower;
                        continue 'again;
                    }
                    break;
                }
            }
            return (total.sum, threshold);
        }
    }

    /// Drops buckets that the zero bucket has taken in, and empty ones.
    fn trim_zero(&mut self) {
        let (schema, threshold) = (self.schema, self.zero_threshold);
        let outside = |&(index, count): &IndexedCount| {
            count != 0.0 && bounds::exponential(index.saturating_sub(1), schema) >= threshold
        };
        self.positive.retain(outside);
        self.negative.retain(outside);
    }

    /// Widens the zero bucket until it fits that of the other; returns the other's zero count for it.
    #[expect(clippy::float_cmp, reason = "thresholds are settings")]
    fn reconcile_zero(&mut self, other: &Self) -> f64 {
        let (mut count, mut threshold) = (other.zero_count, other.zero_threshold);
        while threshold != self.zero_threshold && !threshold.is_nan() && !self.zero_threshold.is_nan() {
            if self.zero_threshold > threshold {
                (count, threshold) = other.zero_count_at(self.zero_threshold);
            }
            if threshold > self.zero_threshold {
                (self.zero_count, self.zero_threshold) = self.zero_count_at(threshold);
                self.trim_zero();
            }
        }
        count
    }

    /// The other's buckets as they are to be added to this: of at most this resolution, without those that the zero bucket
    /// has taken in.
    fn addends(&self, buckets: &[IndexedCount], schema: i8) -> Vec<IndexedCount> {
        let reduced = if schema > self.schema { reduced(buckets, schema, self.schema) } else { buckets.to_vec() };
        if self.is_custom() {
            return reduced;
        }
        let threshold = self.zero_threshold;
        reduced.into_iter().filter(|(index, _)| bounds::exponential(*index, self.schema) > threshold).collect()
    }

    fn accumulate(&mut self, other: &Self, sign: f64) -> Result<AddOutcome, IncompatibleBuckets> {
        if self.is_custom() != other.is_custom() {
            return Err(IncompatibleBuckets);
        }
        let (hint, reset_conflict) = combined_hint(self.hint, other.hint);
        self.hint = hint;
        if self.is_custom() && self.custom_bounds != other.custom_bounds {
            self.count += sign * other.count;
            self.sum += sign * other.sum;
            let bounds = common_bounds(&self.custom_bounds, &other.custom_bounds);
            let mut buckets = vec![CompensatedSum::default(); bounds.len() + 1];
            spread(&mut buckets, &compensated(&self.positive), &self.custom_bounds, &bounds, 1.0);
            spread(&mut buckets, &compensated(&other.positive), &other.custom_bounds, &bounds, sign);
            self.positive = populated(&buckets).map(|(index, count)| (index, count.sum)).collect();
            self.custom_bounds = bounds.into();
            return Ok(AddOutcome { reset_conflict, bounds_reconciled: true });
        }
        if !self.is_custom() {
            let zero_count = self.reconcile_zero(other);
            self.zero_count += sign * zero_count;
        }
        self.count += sign * other.count;
        self.sum += sign * other.sum;
        if other.schema < self.schema {
            self.positive = reduced(&self.positive, self.schema, other.schema);
            self.negative = reduced(&self.negative, self.schema, other.schema);
            self.schema = other.schema;
        }
        let (positive, negative) =
            (self.addends(&other.positive, other.schema), self.addends(&other.negative, other.schema));
        self.positive = merge(&self.positive, &positive, |count| sign * count, |a, b| a + sign * b);
        self.negative = merge(&self.negative, &negative, |count| sign * count, |a, b| a + sign * b);
        Ok(AddOutcome { reset_conflict, bounds_reconciled: false })
    }

    /// The sum of both, or their difference; `None` if their buckets have nothing in common.
    pub fn combined(&self, other: &Self, is_difference: bool) -> Option<Self> {
        let mut combined = self.clone();
        let sign = if is_difference { -1.0 } else { 1.0 };
        combined.accumulate(other, sign).ok().map(|_| combined)
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<AddOutcome, IncompatibleBuckets> {
        self.accumulate(other, 1.0)
    }

    pub(crate) fn subtract(&mut self, other: &Self) -> Result<AddOutcome, IncompatibleBuckets> {
        self.accumulate(other, -1.0)
    }
}

/// The bounds that both have.
#[expect(clippy::float_cmp, reason = "bounds are settings")]
fn common_bounds(left: &[f64], right: &[f64]) -> Vec<f64> {
    left.iter().copied().filter(|bound| right.iter().any(|other| other == bound)).collect()
}

/// Adds custom buckets to wider ones.
fn spread(target: &mut [CompensatedSum], buckets: &[CompensatedCount], from: &[f64], to: &[f64], sign: f64) {
    let last = target.len().saturating_sub(1);
    for (index, count) in buckets {
        let bound = usize::try_from(*index).ok().and_then(|index| from.get(index));
        let index = bound.map_or(last, |bound| to.partition_point(|candidate| candidate < bound));
        if let Some(cell) = target.get_mut(index) {
            *cell = cell.plus(sign * count.sum);
            if count.compensation != 0.0 {
                *cell = cell.plus(sign * count.compensation);
            }
        }
    }
}

fn populated(buckets: &[CompensatedSum]) -> impl Iterator<Item = CompensatedCount> {
    let indexed = buckets.iter().enumerate().filter(|(_, count)| count.sum != 0.0 || count.compensation != 0.0);
    indexed.map(|(index, count)| (index as i32, *count))
}

impl CompensatedHistogram {
    pub(crate) fn new(first: &Histogram) -> Self {
        Self {
            zero_count: CompensatedSum::new(first.zero_count),
            count: CompensatedSum::new(first.count),
            sum: CompensatedSum::new(first.sum),
            positive: compensated(&first.positive),
            negative: compensated(&first.negative),
            total: Histogram { positive: Vec::new(), negative: Vec::new(), ..first.clone() },
        }
    }

    /// The sum without compensation.
    fn plain(&self) -> Histogram {
        let plain = |buckets: &[CompensatedCount]| buckets.iter().map(|(index, count)| (*index, count.sum)).collect();
        Histogram {
            zero_count: self.zero_count.sum,
            count: self.count.sum,
            sum: self.sum.sum,
            positive: plain(&self.positive),
            negative: plain(&self.negative),
            ..self.total.clone()
        }
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.plain().has_overflow()
    }

    pub(crate) fn add(&mut self, other: &Histogram) -> Result<AddOutcome, IncompatibleBuckets> {
        if self.total.is_custom() != other.is_custom() {
            return Err(IncompatibleBuckets);
        }
        let (hint, reset_conflict) = combined_hint(self.total.hint, other.hint);
        self.total.hint = hint;
        let mut bounds_reconciled = false;
        if self.total.is_custom() && self.total.custom_bounds != other.custom_bounds {
            bounds_reconciled = true;
            let bounds = common_bounds(&self.total.custom_bounds, &other.custom_bounds);
            let mut buckets = vec![CompensatedSum::default(); bounds.len() + 1];
            spread(&mut buckets, &self.positive, &self.total.custom_bounds, &bounds, 1.0);
            spread(&mut buckets, &compensated(&other.positive), &other.custom_bounds, &bounds, 1.0);
            self.positive = populated(&buckets).collect();
            self.total.custom_bounds = bounds.into();
        } else {
            self.add_buckets(other);
        }
        self.count = self.count.plus(other.count);
        self.sum = self.sum.plus(other.sum);
        Ok(AddOutcome { reset_conflict, bounds_reconciled })
    }

    fn add_buckets(&mut self, other: &Histogram) {
        if !self.total.is_custom() {
            let zero_count = self.reconcile_zero(other);
            self.zero_count = self.zero_count.plus(zero_count);
        }
        if other.schema < self.total.schema {
            let (from, to) = (self.total.schema, other.schema);
            self.positive = reduced_compensated(&self.positive, from, to);
            self.negative = reduced_compensated(&self.negative, from, to);
            self.total.schema = to;
        }
        let positive = self.total.addends(&other.positive, other.schema);
        let negative = self.total.addends(&other.negative, other.schema);
        self.positive = merge(&self.positive, &positive, CompensatedSum::new, CompensatedSum::plus);
        self.negative = merge(&self.negative, &negative, CompensatedSum::new, CompensatedSum::plus);
    }

    #[expect(clippy::float_cmp, reason = "thresholds are settings")]
    fn reconcile_zero(&mut self, other: &Histogram) -> f64 {
        if self.total.zero_threshold == other.zero_threshold {
            return other.zero_count;
        }
        let mut plain = self.plain();
        let before = plain.zero_count;
        let zero_count = plain.reconcile_zero(other);
        if plain.zero_threshold != self.total.zero_threshold {
            self.total.zero_threshold = plain.zero_threshold;
            self.zero_count = self.zero_count.plus(plain.zero_count - before);
            let kept = |buckets: &[IndexedCount], index: i32| buckets.iter().any(|(kept, _)| *kept == index);
            self.positive.retain(|(index, _)| kept(&plain.positive, *index));
            self.negative.retain(|(index, _)| kept(&plain.negative, *index));
        }
        zero_count
    }

    /// Multiplies the sum and its compensation.
    fn scale(&mut self, scale: impl Fn(f64) -> f64) {
        let totals = [&mut self.zero_count, &mut self.count, &mut self.sum];
        let buckets = self.positive.iter_mut().chain(&mut self.negative).map(|(_, count)| count);
        for count in totals.into_iter().chain(buckets) {
            *count = CompensatedSum { sum: scale(count.sum), compensation: scale(count.compensation) };
        }
    }

    pub(crate) fn multiply(&mut self, factor: f64) {
        self.scale(|count| count * factor);
    }

    pub(crate) fn divide(&mut self, divisor: f64) {
        self.scale(|count| count / divisor);
    }

    /// The sum with its compensation.
    pub(crate) fn finish(&self) -> Histogram {
        let value =
            |buckets: &[CompensatedCount]| buckets.iter().map(|(index, count)| (*index, count.value())).collect();
        Histogram {
            zero_count: self.zero_count.value(),
            count: self.count.value(),
            sum: self.sum.value(),
            positive: value(&self.positive),
            negative: value(&self.negative),
            ..self.total.clone()
        }
    }
}

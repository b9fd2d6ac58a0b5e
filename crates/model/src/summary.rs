//! What a stretch of samples adds up to.

mod at_once;

use std::cmp::Ordering;

use crate::{STALE_NAN_BITS, ValueType};

/// The summary of an interval of one member's samples: enough for the aggregates over windows, and for rate.
///
/// Values are cells' bits of the member's type, which must be a number. Stale markers count apart; NaN counts as a value
/// but neither as smallest nor as largest unless there is nothing else, as in Prometheus's `min_over_time`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The type of the values.
    pub value_type: ValueType,
    /// Values, stale markers not among them.
    pub count: u64,
    /// Stale markers.
    pub stale_count: u64,
    /// Values that are NaN.
    pub nan_count: u64,
    /// Timestamp and bits of the first value; where there are only stale markers, the timestamp of one.
    pub first: (i64, u64),
    /// Timestamp and bits of the last value.
    pub last: (i64, u64),
    /// Bits of the smallest value.
    pub min: u64,
    /// Bits of the largest value.
    pub max: u64,
    /// Sum of floats, with what rounding lost of it (Neumaier's variant of Kahan's summation).
    pub sum: (f64, f64),
    /// Sum of integers.
    pub sum_integer: i128,
    /// The increase of a counter: the sum of the differences, a fall counting as a restart from zero.
    pub increase: f64,
    /// How often the value fell.
    pub resets: u64,
    /// How often the value changed.
    pub changes: u64,
}

/// The parts of a summary that are wanted. Other parts may be computed or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryParts {
    /// Everything.
    All,
    /// All but [`Summary::increase`], [`Summary::resets`] and [`Summary::changes`].
    Values,
    /// Counts, the first and the last value, and the sum.
    Totals,
}

impl Summary {
    /// No samples.
    pub const fn empty(value_type: ValueType) -> Self {
        Self {
            value_type,
            count: 0,
            stale_count: 0,
            nan_count: 0,
            first: (0, 0),
            last: (0, 0),
            min: 0,
            max: 0,
            sum: (0.0, 0.0),
            sum_integer: 0,
            increase: 0.0,
            resets: 0,
            changes: 0,
        }
    }

    /// Returns whether there is neither a value nor a stale marker.
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.stale_count == 0
    }

    /// Returns whether values of a type can be summed up.
    pub const fn takes(value_type: ValueType) -> bool {
        matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64)
    }

    /// Adds a sample that is later than all before.
    pub fn add(&mut self, timestamp_ns: i64, bits: u64) {
        if self.value_type == ValueType::F64 && bits == STALE_NAN_BITS {
            if self.is_empty() {
                (self.first.0, self.last.0) = (timestamp_ns, timestamp_ns);
            }
            self.stale_count += 1;
            return;
        }
        if self.count > 0 {
            self.add_later(timestamp_ns, bits);
            return;
        }
        let one = Self {
            count: 1,
            nan_count: u64::from(self.is_nan(bits)),
            first: (timestamp_ns, bits),
            last: (timestamp_ns, bits),
            min: bits,
            max: bits,
            sum: if self.value_type == ValueType::F64 { (f64::from_bits(bits), 0.0) } else { (0.0, 0.0) },
            sum_integer: self.integer(bits),
            ..Self::empty(self.value_type)
        };
        self.merge(&one);
    }

    /// Adds samples that are later than all before and ascend, as [`Summary::add`] of each does, to the bit, as far as it is wanted.
    pub fn add_all(&mut self, timestamps_ns: &[i64], cells: &[u64], parts: SummaryParts) {
        let summed = if self.is_empty() { at_once::summed(self.value_type, timestamps_ns, cells, parts) } else { None };
        match summed {
            Some(summed) => *self = summed,
            None => timestamps_ns.iter().zip(cells).for_each(|(timestamp_ns, bits)| self.add(*timestamp_ns, *bits)),
        }
    }

    /// As [`Summary::merge`] of one value, none of it a stale marker, to others: merges of parts come here for every sample.
    fn add_later(&mut self, timestamp_ns: i64, bits: u64) {
        let is_nan = self.is_nan(bits);
        let only_nan = self.nan_count == self.count;
        if only_nan || (!is_nan && self.less(bits, self.min)) {
            self.min = bits;
        }
        if only_nan || (!is_nan && self.less(self.max, bits)) {
            self.max = bits;
        }
        let (before, after) = (self.number(self.last.1), self.number(bits));
        let fell = after < before;
        self.increase += if fell { after } else { after - before };
        self.resets += u64::from(fell);
        let same = before.partial_cmp(&after) == Some(Ordering::Equal) || (before.is_nan() && after.is_nan());
        self.changes += u64::from(!same);
        self.count += 1;
        self.nan_count += u64::from(is_nan);
        self.last = (timestamp_ns, bits);
        if self.value_type == ValueType::F64 {
            add_compensated(&mut self.sum, after);
        } else {
            self.sum_integer = self.sum_integer.saturating_add(self.integer(bits));
        }
    }

    /// Adds a summary whose samples are all later than those before.
    pub fn merge(&mut self, later: &Self) {
        if self.count == 0 && (later.count > 0 || self.stale_count == 0) {
            *self = Self { stale_count: self.stale_count + later.stale_count, ..*later };
            return;
        }
        self.stale_count += later.stale_count;
        if later.count == 0 {
            return;
        }
        if self.nan_count == self.count || (later.nan_count < later.count && self.less(later.min, self.min)) {
            self.min = later.min;
        }
        if self.nan_count == self.count || (later.nan_count < later.count && self.less(self.max, later.max)) {
            self.max = later.max;
        }
        let (before, after) = (self.number(self.last.1), self.number(later.first.1));
        let fell = after < before;
        self.increase += later.increase + if fell { after } else { after - before };
        self.resets += later.resets + u64::from(fell);
        let same = before.partial_cmp(&after) == Some(Ordering::Equal) || (before.is_nan() && after.is_nan());
        self.changes += later.changes + u64::from(!same);
        self.count += later.count;
        self.nan_count += later.nan_count;
        self.last = later.last;
        self.sum_integer = self.sum_integer.saturating_add(later.sum_integer);
        add_compensated(&mut self.sum, later.sum.0);
        self.sum.1 += later.sum.1;
    }

    /// Adds a summary of samples that may lie among those before: what does not depend on their order is exact. Of samples of one time, which are of several
    /// series, the larger is the first, or the last.
    pub fn merge_unordered(&mut self, other: &Self) {
        let ends = (self.count > 0 && other.count > 0).then(|| {
            let of_one_time = |a: (i64, u64), b: (i64, u64)| (a.0 == b.0).then(|| (a.0, self.larger(a.1, b.1)));
            (of_one_time(self.first, other.first), of_one_time(self.last, other.last))
        });
        let (earlier, later) = match (self.count, other.count) {
            (_, 0) | (0, _) => (*self, *other),
            _ if other.first.0 < self.first.0 => (*other, *self),
            _ => (*self, *other),
        };
        let last = if earlier.count > 0 && later.last.0 < earlier.last.0 { Some(earlier.last) } else { None };
        *self = earlier;
        self.merge(&later);
        self.last = last.unwrap_or(self.last);
        if let Some((first, last)) = ends {
            self.first = first.unwrap_or(self.first);
            self.last = last.unwrap_or(self.last);
        }
    }

    /// The larger of two values; NaN is above all numbers.
    fn larger(&self, a: u64, b: u64) -> u64 {
        if self.is_nan(a) || self.less(b, a) { a } else { b }
    }

    /// The sum, as a float.
    pub fn total(&self) -> f64 {
        match self.value_type {
            ValueType::F64 if self.sum.0.is_finite() => self.sum.0 + self.sum.1,
            ValueType::F64 => self.sum.0,
            _ => self.sum_integer as f64,
        }
    }

    /// The summary of the values as floats.
    #[must_use]
    pub fn as_floats(&self) -> Self {
        if self.value_type == ValueType::F64 {
            return *self;
        }
        let bits = |bits: u64| self.number(bits).to_bits();
        Self {
            value_type: ValueType::F64,
            first: (self.first.0, bits(self.first.1)),
            last: (self.last.0, bits(self.last.1)),
            min: bits(self.min),
            max: bits(self.max),
            sum: (self.total(), 0.0),
            sum_integer: 0,
            ..*self
        }
    }

    /// A cell's value as a float.
    pub fn number(&self, bits: u64) -> f64 {
        match self.value_type {
            ValueType::I64 => bits as i64 as f64,
            ValueType::U64 => bits as f64,
            _ => f64::from_bits(bits),
        }
    }

    fn integer(&self, bits: u64) -> i128 {
        match self.value_type {
            ValueType::I64 => i128::from(bits as i64),
            ValueType::U64 => i128::from(bits),
            _ => 0,
        }
    }

    fn is_nan(&self, bits: u64) -> bool {
        self.value_type == ValueType::F64 && f64::from_bits(bits).is_nan()
    }

    fn less(&self, a: u64, b: u64) -> bool {
        match self.value_type {
            ValueType::I64 => (a as i64) < b as i64,
            ValueType::U64 => a < b,
            _ => f64::from_bits(a) < f64::from_bits(b),
        }
    }
}

/// Adds to a sum, keeping what is rounded off.
fn add_compensated(sum: &mut (f64, f64), value: f64) {
    let total = sum.0 + value;
    if sum.0.abs() >= value.abs() {
        sum.1 += (sum.0 - total) + value;
    } else {
        sum.1 += (value - total) + sum.0;
    }
    sum.0 = total;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn summed(value_type: ValueType, samples: &[(i64, u64)]) -> Summary {
        let mut summary = Summary::empty(value_type);
        samples.iter().for_each(|(timestamp_ns, bits)| summary.add(*timestamp_ns, *bits));
        summary
    }

    #[test]
    fn sums_up_as_defined() {
        let values = [3.0, 5.0, 1.0, 1.0, f64::NAN, f64::from_bits(STALE_NAN_BITS)];
        let samples: Vec<_> = (0..).zip(values.map(f64::to_bits)).collect();
        let summary = summed(ValueType::F64, &samples);
        assert_eq!((summary.count, summary.stale_count, summary.nan_count), (5, 1, 1));
        assert_eq!(summary.min, 1f64.to_bits());
        assert_eq!(summary.max, 5f64.to_bits());
        assert_eq!((summary.resets, summary.changes), (1, 3));
        let counter = summed(ValueType::I64, &[(0, 4), (1, 9), (2, 2), (3, -5i64 as u64)]);
        assert_eq!((counter.sum_integer, counter.min, counter.resets), (10, -5i64 as u64, 2));
    }

    /// Whichever series comes first.
    #[test]
    fn of_values_of_one_time_the_larger_is_the_first_and_the_last() {
        let floats = |samples: &[(i64, f64)]| {
            let samples: Vec<(i64, u64)> = samples.iter().map(|(time_ns, value)| (*time_ns, value.to_bits())).collect();
            summed(ValueType::F64, &samples)
        };
        for (a, b, first, last) in [
            (floats(&[(1, 2.0), (5, 3.0)]), floats(&[(1, 4.0), (5, -7.0)]), 4.0, 3.0),
            (floats(&[(1, 2.0), (5, 3.0)]), floats(&[(0, 1.0), (4, 9.0)]), 1.0, 3.0),
            (floats(&[(1, 2.0)]), floats(&[(1, -2.0)]), 2.0, 2.0),
            (floats(&[]), floats(&[(1, -2.0)]), -2.0, -2.0),
        ] {
            for (mut summary, other) in [(a, b), (b, a)] {
                summary.merge_unordered(&other);
                assert_eq!((f64::from_bits(summary.first.1), f64::from_bits(summary.last.1)), (first, last));
            }
        }
        let mut nan = floats(&[(1, f64::NAN)]);
        nan.merge_unordered(&floats(&[(1, 2.0)]));
        assert!(f64::from_bits(nan.first.1).is_nan() && f64::from_bits(nan.last.1).is_nan());
    }

    /// Checks that each part of a summary equals that of the whole.
    fn check_parts(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Result<(), TestCaseError> {
        let of = |parts| {
            let mut summary = Summary::empty(value_type);
            summary.add_all(timestamps_ns, cells, parts);
            summary
        };
        let all = of(SummaryParts::All);
        let values = Summary { increase: 0.0, resets: 0, changes: 0, ..all };
        let cleared = |of: Summary| Summary { increase: 0.0, resets: 0, changes: 0, ..of };
        prop_assert_eq!(format!("{:?}", cleared(of(SummaryParts::Values))), format!("{values:?}"));
        let totals = Summary { min: values.min, max: values.max, ..cleared(of(SummaryParts::Totals)) };
        prop_assert_eq!(format!("{totals:?}"), format!("{values:?}"));
        Ok(())
    }

    proptest! {
        /// A sample is added as a summary of one sample is.
        #[test]
        fn samples_are_summaries_of_one(values in proptest::collection::vec(prop_oneof![Just(f64::NAN), Just(-0.0), Just(f64::INFINITY), -9.0..9.0], 0..40), integer in any::<bool>()) {
            let value_type = if integer { ValueType::I64 } else { ValueType::F64 };
            let bits = |value: &f64| if integer { *value as i64 as u64 } else { value.to_bits() };
            let samples: Vec<_> = (0..).zip(values.iter().map(bits)).collect();
            let mut merged = Summary::empty(value_type);
            samples.iter().for_each(|sample| merged.merge(&summed(value_type, &[*sample])));
            prop_assert_eq!(format!("{merged:?}"), format!("{:?}", summed(value_type, &samples)));
        }

        /// Many at once are what they are one by one, to the bit: whole numbers, fractions, what is no number.
        #[test]
        fn many_at_once_are_as_one_by_one(
            values in proptest::collection::vec(prop_oneof![8 => (-9i32..9).prop_map(f64::from), 1 => Just(-0.0), 1 => Just(1e15)], 0..40),
            odd in proptest::option::of((0usize..40, prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(f64::from_bits(STALE_NAN_BITS)), Just(1e300), -1.0..1.0])),
            scale in prop_oneof![Just(1.0), Just(0.1)],
        ) {
            let mut samples: Vec<(i64, u64)> = (0..).zip(values.iter().map(|value| (value * scale).to_bits())).collect();
            if let Some((place, odd)) = odd && let Some(sample) = samples.get_mut(place) {
                sample.1 = odd.to_bits();
            }
            let (timestamps_ns, cells): (Vec<i64>, Vec<u64>) = samples.iter().copied().unzip();
            let mut at_once = Summary::empty(ValueType::F64);
            at_once.add_all(&timestamps_ns, &cells, SummaryParts::All);
            prop_assert_eq!(format!("{at_once:?}"), format!("{:?}", summed(ValueType::F64, &samples)));
            check_parts(ValueType::F64, &timestamps_ns, &cells)?;
        }

        /// As above, for integers, small ones and ones too large for floats.
        #[test]
        fn many_integers_at_once_are_as_one_by_one(
            values in proptest::collection::vec(-9i64..9, 0..40),
            odd in proptest::option::of((0usize..40, prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(1 << 52), -(1i64 << 51)..1 << 51])),
            signed in any::<bool>(),
        ) {
            let mut values = values;
            if let Some((place, odd)) = odd && let Some(value) = values.get_mut(place) {
                *value = odd;
            }
            let value_type = if signed { ValueType::I64 } else { ValueType::U64 };
            let samples: Vec<(i64, u64)> = (0..).zip(values.iter().map(|value| *value as u64)).collect();
            let (timestamps_ns, cells): (Vec<i64>, Vec<u64>) = samples.iter().copied().unzip();
            let mut at_once = Summary::empty(value_type);
            at_once.add_all(&timestamps_ns, &cells, SummaryParts::All);
            prop_assert_eq!(format!("{at_once:?}"), format!("{:?}", summed(value_type, &samples)));
            check_parts(value_type, &timestamps_ns, &cells)?;
        }

        #[test]
        fn parts_add_up_to_the_whole(values in proptest::collection::vec(-1000i32..1000, 0..40), cut in 0usize..40) {
            let samples: Vec<_> = (0..).zip(values.iter().map(|value| f64::from(*value).to_bits())).collect();
            let cut = cut.min(samples.len());
            let mut joined = summed(ValueType::F64, &samples[..cut]);
            joined.merge(&summed(ValueType::F64, &samples[cut..]));
            prop_assert_eq!(joined, summed(ValueType::F64, &samples));
        }
    }
}

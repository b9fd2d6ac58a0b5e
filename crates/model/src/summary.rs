//! What a stretch of samples adds up to.

use std::cmp::Ordering;

use crate::{STALE_NAN_BITS, ValueType};

/// What a stretch of one member's samples adds up to: enough for the aggregates over windows, and for rate.
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
    /// What a counter gained: the sum of the differences, a fall counting as a restart from zero.
    pub increase: f64,
    /// How often the value fell.
    pub resets: u64,
    /// How often the value changed.
    pub changes: u64,
}

/// What of a summary is wanted. Of what is not, nothing is said: it may be computed or not.
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

    /// Whether there is neither a value nor a stale marker.
    pub const fn is_empty(&self) -> bool {
        self.count == 0 && self.stale_count == 0
    }

    /// Whether values of a type can be summed up.
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
        let summed = match parts {
            _ if !self.is_empty() || cells.len() < MANY => None,
            SummaryParts::All => narrow_integers(self.value_type, timestamps_ns, cells)
                .or_else(|| at_once::<true, true>(self.value_type, timestamps_ns, cells)),
            SummaryParts::Values => at_once::<true, false>(self.value_type, timestamps_ns, cells),
            SummaryParts::Totals => integer_totals(self.value_type, timestamps_ns, cells)
                .or_else(|| at_once::<false, false>(self.value_type, timestamps_ns, cells)),
        };
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

    /// Adds a summary of samples that may lie among those before: what does not depend on their order is exact.
    pub fn merge_unordered(&mut self, other: &Self) {
        let (earlier, later) = match (self.count, other.count) {
            (_, 0) | (0, _) => (*self, *other),
            _ if other.first.0 < self.first.0 => (*other, *self),
            _ => (*self, *other),
        };
        let last = if earlier.count > 0 && later.last.0 < earlier.last.0 { Some(earlier.last) } else { None };
        *self = earlier;
        self.merge(&later);
        self.last = last.unwrap_or(self.last);
    }

    /// The sum, as a float.
    pub fn total(&self) -> f64 {
        match self.value_type {
            ValueType::F64 if self.sum.0.is_finite() => self.sum.0 + self.sum.1,
            ValueType::F64 => self.sum.0,
            _ => self.sum_integer as f64,
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

/// Values that are looked at side by side.
const LANES: usize = 4;

/// From so many values on that pays.
const MANY: usize = 2 * LANES;

/// From here on floats have no places for halves; integers below it add up without rounding: 2^52.
const WHOLE_MIN: f64 = 4_503_599_627_370_496.0;

/// What floats add up to if it does not matter in which order.
struct Lanes {
    min: [f64; LANES],
    max: [f64; LANES],
    sum: [f64; LANES],
    magnitude: [f64; LANES],
    increase: [f64; LANES],
    resets: [u64; LANES],
    changes: [u64; LANES],
    fractions: [u64; LANES],
    nans: [u64; LANES],
}

impl Lanes {
    fn of<const EXTREMES: bool, const STEPS: bool>(
        cells: &[u64],
        first: f64,
        number: impl Fn(u64) -> f64 + Copy,
    ) -> Self {
        let mut lanes = Self {
            min: [first; LANES],
            max: [first; LANES],
            // What adding to leaves as it is, zeros with a sign too.
            sum: [-0.0; LANES],
            magnitude: [0.0; LANES],
            increase: [0.0; LANES],
            resets: [0; LANES],
            changes: [0; LANES],
            fractions: [0; LANES],
            nans: [0; LANES],
        };
        let (before, after) = (&cells[..cells.len() - 1], &cells[1..]);
        let ((before, before_rest), (after, after_rest)) = (before.as_chunks::<LANES>(), after.as_chunks::<LANES>());
        for (before, after) in before.iter().zip(after) {
            for lane in 0..LANES {
                lanes.add::<EXTREMES, STEPS>(lane, number(before[lane]), number(after[lane]));
            }
        }
        let rest = before_rest.iter().zip(after_rest);
        rest.for_each(|(before, after)| lanes.add::<EXTREMES, STEPS>(0, number(*before), number(*after)));
        lanes
    }

    /// The smallest and the largest value, the first one among them.
    fn extremes(&self, first: f64) -> (f64, f64) {
        let min = self.min.iter().fold(first, |min, lane| if *lane < min { *lane } else { min });
        (min, self.max.iter().fold(first, |max, lane| if *lane > max { *lane } else { max }))
    }

    /// A value and the one before it.
    #[inline]
    fn add<const EXTREMES: bool, const STEPS: bool>(&mut self, lane: usize, before: f64, after: f64) {
        if EXTREMES {
            self.min[lane] = if after < self.min[lane] { after } else { self.min[lane] };
            self.max[lane] = if after > self.max[lane] { after } else { self.max[lane] };
        }
        self.sum[lane] += after;
        self.magnitude[lane] += after.abs();
        if STEPS {
            let (fell, rose) = (u64::from(after < before), u64::from(after > before));
            self.increase[lane] += if fell > 0 { after } else { after - before };
            self.resets[lane] += fell;
            self.changes[lane] += fell + rose;
        }
        self.fractions[lane] |= u64::from(!is_whole(after));
        self.nans[lane] |= u64::from(after.is_nan());
    }
}

/// Whether a float below [`WHOLE_MIN`] is an integer; larger ones are not asked for.
fn is_whole(value: f64) -> bool {
    ((value.abs() + WHOLE_MIN) - WHOLE_MIN).to_bits() == value.abs().to_bits()
}

/// Many samples, none before them: `None` where the order in which they are added has a say.
fn at_once<const EXTREMES: bool, const STEPS: bool>(
    value_type: ValueType,
    timestamps_ns: &[i64],
    cells: &[u64],
) -> Option<Summary> {
    match value_type {
        ValueType::F64 => floats::<EXTREMES, STEPS>(timestamps_ns, cells),
        ValueType::I64 => integers::<EXTREMES, STEPS>(timestamps_ns, cells, value_type, |bits| bits as i64 as f64),
        ValueType::U64 => integers::<EXTREMES, STEPS>(timestamps_ns, cells, value_type, |bits| bits as f64),
        _ => None,
    }
}

/// Count, ends and sum of integers none of which needs more than 31 bits, so that 64 hold their sum.
fn integer_totals(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    if !matches!(value_type, ValueType::I64 | ValueType::U64) || u32::try_from(cells.len()).is_err() {
        return None;
    }
    let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
    // 31 bits and a sign, moved to where they have none: others set a bit above.
    let (moved_by, width_max) = if value_type == ValueType::I64 { (1 << 31, 32) } else { (0, 31) };
    let (mut sums, mut used) = ([0_u64; LANES], [0_u64; LANES]);
    let (chunks, rest) = cells.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] = sums[lane].wrapping_add(chunk[lane]);
            used[lane] |= chunk[lane].wrapping_add(moved_by);
        }
    }
    let mut sum = sums.iter().fold(0_u64, |sum, lane| sum.wrapping_add(*lane));
    let mut all = used.iter().fold(0, |all, lane| all | lane);
    for cell in rest {
        sum = sum.wrapping_add(*cell);
        all |= cell.wrapping_add(moved_by);
    }
    if all >> width_max != 0 {
        return None;
    }
    let (count, sum_integer) = (cells.len() as u64, i128::from(sum as i64));
    Some(Summary { count, first, last, min: first.1, max: first.1, sum_integer, ..Summary::empty(value_type) })
}

/// Values that are looked at side by side where each takes half as much room.
const NARROW_LANES: usize = 2 * LANES;

/// Integers of which floats hold the increase exactly, if none needs more than 31 bits: 2^20.
const NARROW_MAX: usize = 1 << 20;

/// Everything of integers none of which needs more than 31 bits: vectors compare twice as many of them, and need not make floats of them.
fn narrow_integers(value_type: ValueType, timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    if cells.len() > NARROW_MAX {
        return None;
    }
    let totals = integer_totals(value_type, timestamps_ns, cells)?;
    let (first, last) = (totals.first.1 as i32, totals.last.1 as i32);
    let (mut min, mut max) = ([first; NARROW_LANES], [first; NARROW_LANES]);
    let (mut dropped, mut resets, mut changes) = ([0_i64; NARROW_LANES], [0_u32; NARROW_LANES], [0_u32; NARROW_LANES]);
    let mut add = |lane: usize, before: i32, after: i32| {
        let fell = after < before;
        min[lane] = if after < min[lane] { after } else { min[lane] };
        max[lane] = if after > max[lane] { after } else { max[lane] };
        dropped[lane] += i64::from(if fell { before } else { 0 });
        resets[lane] += u32::from(fell);
        changes[lane] += u32::from(after != before);
    };
    let ((before, before_rest), (after, after_rest)) =
        (cells[..cells.len() - 1].as_chunks::<NARROW_LANES>(), cells[1..].as_chunks::<NARROW_LANES>());
    for (before, after) in before.iter().zip(after) {
        for lane in 0..NARROW_LANES {
            add(lane, before[lane] as i32, after[lane] as i32);
        }
    }
    before_rest.iter().zip(after_rest).for_each(|(before, after)| add(0, *before as i32, *after as i32));
    let bits = |value: Option<&i32>| i64::from(value.copied().unwrap_or(first)) as u64;
    let count = |of_lanes: [u32; NARROW_LANES]| of_lanes.iter().copied().map(u64::from).sum();
    // All differences add up to the whole one; where the value fell, that is what it fell from less than the gain.
    let increase = i64::from(last) - i64::from(first) + dropped.iter().sum::<i64>();
    Some(Summary {
        min: bits(min.iter().min()),
        max: bits(max.iter().max()),
        increase: increase as f64,
        resets: count(resets),
        changes: count(changes),
        ..totals
    })
}

/// What floats in order of time add up to; `None` of none, or if there is a NaN among them.
fn floats<const EXTREMES: bool, const STEPS: bool>(timestamps_ns: &[i64], cells: &[u64]) -> Option<Summary> {
    let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
    let value = f64::from_bits(first.1);
    let lanes = Lanes::of::<EXTREMES, STEPS>(cells, value, f64::from_bits);
    if value.is_nan() || lanes.nans != [0; LANES] {
        return None;
    }
    let (min, max) = lanes.extremes(value);
    // Zeros of both signs are equal: the first counts.
    let first_zero = || cells.iter().copied().find(|bits| bits << 1 == 0).unwrap_or_default();
    let bits = |value: f64| if value.to_bits() << 1 == 0 { first_zero() } else { value.to_bits() };
    let all_whole = is_whole(value) && lanes.fractions == [0; LANES];
    let (sum, increase) = if all_whole && value.abs() + lanes.magnitude.iter().sum::<f64>() < WHOLE_MIN {
        ((value + lanes.sum.iter().sum::<f64>(), 0.0), lanes.increase.iter().sum())
    } else {
        in_order(value, cells)
    };
    let count = cells.len() as u64;
    Some(Summary {
        count,
        first,
        last,
        min: bits(min),
        max: bits(max),
        sum,
        increase,
        resets: lanes.resets.iter().sum(),
        changes: lanes.changes.iter().sum(),
        ..Summary::empty(ValueType::F64)
    })
}

/// What integers in order of time add up to, counted as floats; `None` of none, or if floats do not hold their sums exactly.
fn integers<const EXTREMES: bool, const STEPS: bool>(
    timestamps_ns: &[i64],
    cells: &[u64],
    value_type: ValueType,
    number: impl Fn(u64) -> f64 + Copy,
) -> Option<Summary> {
    let (first, last) = ((*timestamps_ns.first()?, *cells.first()?), (*timestamps_ns.last()?, *cells.last()?));
    let value = number(first.1);
    let lanes = Lanes::of::<EXTREMES, STEPS>(cells, value, number);
    // Of integers that a float rounds one alone is as large.
    if value.abs() + lanes.magnitude.iter().sum::<f64>() >= WHOLE_MIN {
        return None;
    }
    let (min, max) = lanes.extremes(value);
    // Positive ones have the same bits in both types.
    let bits = |value: f64| value as i64 as u64;
    Some(Summary {
        count: cells.len() as u64,
        first,
        last,
        min: bits(min),
        max: bits(max),
        sum_integer: (value + lanes.sum.iter().sum::<f64>()) as i128,
        increase: lanes.increase.iter().sum(),
        resets: lanes.resets.iter().sum(),
        changes: lanes.changes.iter().sum(),
        ..Summary::empty(value_type)
    })
}

/// Sum and increase of floats whose sums are rounded, one by one.
fn in_order(first: f64, cells: &[u64]) -> ((f64, f64), f64) {
    let (mut sum, mut increase, mut before) = ((first, 0.0), 0.0, first);
    for bits in cells.iter().skip(1) {
        let after = f64::from_bits(*bits);
        increase += if after < before { after } else { after - before };
        add_compensated(&mut sum, after);
        before = after;
    }
    (sum, increase)
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

    /// What is wanted of samples is as it is in the whole.
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

        /// The same of integers, small and too large for floats.
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

//! Exponential histograms added up: scales and zero buckets are made equal first, and what grows too wide gets coarser.
//! (<https://opentelemetry.io/docs/specs/otel/metrics/data-model/#exponentialhistogram>)

use model::histogram::EXPONENTIAL_SCHEMAS;

use super::exponential::{Buckets, Exponential};

/// Buckets of a sum on either side of zero: what OpenTelemetry's libraries have.
const SUM_BUCKETS_MAX: u64 = 160;

impl Exponential {
    /// Bytes that a bounded one takes at most.
    pub(super) const SIZE_BYTES_MAX: usize = size_of::<Self>() + 2 * SUM_BUCKETS_MAX as usize * size_of::<u64>();

    /// Count and sum.
    pub(super) fn fingerprint(&self) -> (u64, u64) {
        (self.count, self.sum.to_bits())
    }

    /// Merges buckets until there are no more than a sum may have.
    pub(super) fn bounded(mut self) -> Result<Self, String> {
        self.positive.trim();
        self.negative.trim();
        let scale = common_scale(&self, &self)?;
        self.reduce_to(scale);
        Ok(self)
    }

    /// Adds another one. If that cannot be, nothing changes.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), String> {
        let mut other = other.clone();
        other.positive.trim();
        other.negative.trim();
        let scale = common_scale(self, &other)?;
        self.reduce_to(scale);
        other.reduce_to(scale);
        if self.zero_threshold.total_cmp(&other.zero_threshold).is_ne() {
            widen_zero(self, &mut other);
        }
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.zero_count = self.zero_count.saturating_add(other.zero_count);
        self.positive.add(&other.positive);
        self.negative.add(&other.negative);
        Ok(())
    }

    fn reduce_to(&mut self, scale: i64) {
        let shift = (self.scale - scale).clamp(0, 63) as u32;
        self.positive.merge(shift);
        self.negative.merge(shift);
        self.scale = scale;
    }
}

/// The finest scale at which both together have few enough buckets.
fn common_scale(left: &Exponential, right: &Exponential) -> Result<i64, String> {
    let (lowest, highest) = (i64::from(*EXPONENTIAL_SCHEMAS.start()), i64::from(*EXPONENTIAL_SCHEMAS.end()));
    let finest = left.scale.min(right.scale).min(highest);
    let fits = |scale: i64| {
        let shift = |one: &Exponential| (one.scale - scale).clamp(0, 63) as u32;
        let sides = [(&left.positive, &right.positive), (&left.negative, &right.negative)];
        sides.iter().all(|(a, b)| union(a.range(shift(left)), b.range(shift(right))) <= SUM_BUCKETS_MAX)
    };
    (lowest..=finest).rev().find(|scale| fits(*scale)).ok_or_else(|| {
        format!("exponential histogram: more than {SUM_BUCKETS_MAX} buckets on a side even at scale {lowest}")
    })
}

/// How many buckets two stretches (first and last) span together.
fn union(left: Option<(i64, i64)>, right: Option<(i64, i64)>) -> u64 {
    let both = left.zip(right).map(|(left, right)| (left.0.min(right.0), left.1.max(right.1)));
    both.or(left).or(right).map_or(0, |(first, last)| last.abs_diff(first).saturating_add(1))
}

/// Gives two histograms of one scale the wider zero bucket; it ends where a bucket does unless that bucket is empty.
fn widen_zero(left: &mut Exponential, right: &mut Exponential) {
    let mut threshold = left.zero_threshold.max(right.zero_threshold);
    let per_octave = f64::from(left.scale as i32).exp2();
    // Buckets exclude their lower bound and include their upper one.
    let touched = ((threshold.log2() * per_octave).ceil() as i64).saturating_sub(1);
    let is_counted = [&left.positive, &left.negative, &right.positive, &right.negative]
        .iter()
        .any(|buckets| buckets.count_at(touched) > 0);
    if is_counted {
        threshold = threshold.max((touched.saturating_add(1) as f64 / per_octave).exp2());
    }
    for one in [left, right] {
        let swallowed = one.positive.take_up_to(touched).saturating_add(one.negative.take_up_to(touched));
        one.zero_count = one.zero_count.saturating_add(swallowed);
        one.zero_threshold = threshold;
    }
}

impl Buckets {
    /// Drops empty buckets at both ends.
    fn trim(&mut self) {
        let leading = self.counts.iter().take_while(|count| **count == 0).count();
        self.counts.drain(..leading);
        let trailing = self.counts.iter().rev().take_while(|count| **count == 0).count();
        self.counts.truncate(self.counts.len() - trailing);
        self.offset = if self.counts.is_empty() { 0 } else { self.offset.saturating_add_unsigned(leading as u64) };
    }

    /// First and last index once 2^`shift` buckets are one; `None` if there is none.
    fn range(&self, shift: u32) -> Option<(i64, i64)> {
        let last = self.offset.saturating_add_unsigned(self.counts.len().checked_sub(1)? as u64);
        Some((self.offset >> shift, last >> shift))
    }

    /// Makes 2^`shift` buckets one.
    fn merge(&mut self, shift: u32) {
        let Some((first, last)) = self.range(shift).filter(|_| shift > 0) else { return };
        let mut merged = vec![0u64; last.abs_diff(first) as usize + 1];
        for (place, count) in self.counts.iter().enumerate() {
            let index = self.offset.saturating_add_unsigned(place as u64) >> shift;
            if let Some(sum) = merged.get_mut(index.abs_diff(first) as usize) {
                *sum = sum.saturating_add(*count);
            }
        }
        *self = Self { offset: first, counts: merged };
    }

    fn count_at(&self, index: i64) -> u64 {
        let place = index.checked_sub(self.offset).and_then(|place| usize::try_from(place).ok());
        place.and_then(|place| self.counts.get(place)).copied().unwrap_or_default()
    }

    /// Takes out the counts of the buckets up to this one.
    fn take_up_to(&mut self, index: i64) -> u64 {
        let width = usize::try_from(index.saturating_sub(self.offset).saturating_add(1)).unwrap_or_default();
        let width = width.min(self.counts.len());
        self.offset = self.offset.saturating_add_unsigned(width as u64);
        self.counts.drain(..width).fold(0, u64::saturating_add)
    }

    /// Adds buckets of the same scale.
    fn add(&mut self, other: &Self) {
        let (Some((first, last)), Some((other_first, _))) = (self.range(0), other.range(0)) else {
            if self.counts.is_empty() {
                *self = other.clone();
            }
            return;
        };
        let before = usize::try_from(first - other_first).unwrap_or_default();
        if before > 0 {
            self.counts.splice(..0, std::iter::repeat_n(0, before));
            self.offset = other_first;
        }
        let skipped = usize::try_from(other_first - self.offset).unwrap_or_default();
        let length = (last.abs_diff(self.offset) as usize + 1).max(skipped + other.counts.len());
        self.counts.resize(length, 0);
        for (sum, count) in self.counts.iter_mut().skip(skipped).zip(&other.counts) {
            *sum = sum.saturating_add(*count);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn histogram(scale: i64, zero_threshold: f64, offset: i64, counts: &[u64]) -> Exponential {
        Exponential {
            count: counts.iter().sum(),
            sum: counts.len() as f64,
            scale,
            zero_threshold,
            positive: Buckets { offset, counts: counts.to_vec() },
            ..Exponential::default()
        }
    }

    /// Scale, zero threshold, zero count, offset and counts.
    type Shape<'a> = (i64, f64, u64, i64, &'a [u64]);

    #[track_caller]
    fn check(left: &Exponential, right: &Exponential, expected: Shape<'_>) {
        for (one, other) in [(left, right), (right, left)] {
            let mut sum = one.clone().bounded().unwrap();
            sum.add(other).unwrap();
            let Buckets { offset, counts } = &sum.positive;
            assert_eq!((sum.scale, sum.zero_threshold, sum.zero_count, *offset, counts.as_slice()), expected);
            assert_eq!(sum.count, left.count + right.count);
        }
    }

    #[test]
    fn sums_have_the_coarser_scale_and_the_wider_zero() {
        let plain = |offset, counts: &[u64]| histogram(0, 0.0, offset, counts);
        check(&plain(0, &[1, 2]), &plain(0, &[10, 20]), (0, 0.0, 0, 0, &[11, 22]));
        check(&plain(0, &[1, 2]), &plain(-2, &[0, 7]), (0, 0.0, 0, -1, &[7, 1, 2]));
        check(&plain(0, &[1]), &plain(3, &[5, 0]), (0, 0.0, 0, 0, &[1, 0, 0, 5]));
        check(&plain(0, &[1]), &plain(9, &[]), (0, 0.0, 0, 0, &[1]));
        // At scale 0 bucket 0 is (1, 2], bucket 1 (2, 4]; those of scale 1 are halves of them.
        check(&plain(0, &[1]), &histogram(1, 0.0, 0, &[1, 2, 4]), (0, 0.0, 0, 0, &[4, 4]));
        check(&plain(-1, &[1]), &histogram(1, 0.0, -2, &[1, 2]), (0, 0.0, 0, -1, &[4]));
        // What is finer than is stored.
        check(&histogram(10, 0.0, 0, &[1]), &histogram(9, 0.0, 2, &[1]), (8, 0.0, 0, 0, &[1, 1]));
        // A zero bucket that ends at a bound, within a bucket that is empty, and within one that is not.
        check(&plain(0, &[1, 2, 4]), &histogram(0, 2.0, 1, &[8]), (0, 2.0, 1, 1, &[10, 4]));
        check(&plain(0, &[1, 0, 4]), &histogram(0, 3.0, 3, &[8]), (0, 3.0, 1, 2, &[4, 8]));
        check(&plain(0, &[1, 2, 4]), &histogram(0, 3.0, 3, &[8]), (0, 4.0, 3, 2, &[4, 8]));
    }

    #[test]
    fn what_is_too_wide_gets_coarser_or_is_refused() {
        let mut sum = histogram(8, 0.0, 0, &[1]).bounded().unwrap();
        sum.add(&histogram(8, 0.0, 1 << 12, &[1])).unwrap();
        assert_eq!((sum.scale, sum.positive.counts.len()), (3, 129));
        let before = sum.clone();
        assert!(sum.add(&histogram(8, 0.0, i64::from(i32::MAX), &[1])).is_err());
        assert_eq!((sum.scale, sum.count), (before.scale, before.count));
        assert_eq!(histogram(4, 0.0, 0, &[1; 1000]).bounded().unwrap().positive.counts.len(), 125);
    }

    proptest! {
        #[test]
        fn sums_agree_with_counting_values(
            parts in vec((-2i64..9, vec((0u32..3000, 1u64..9), 0..20)), 1..6),
        ) {
            // Values are powers of 2^(1/256), which are upper bounds at scale 8.
            let index = |step: u32, scale: i64| (i64::from(step) - 1) >> (8 - scale);
            let mut sum: Option<Exponential> = None;
            for (scale, values) in &parts {
                let mut one = histogram(*scale, 0.0, index(0, *scale), &vec![0; 3100]);
                for (step, count) in values {
                    one.positive.counts[(index(*step, *scale) - one.positive.offset) as usize] += count;
                    one.count += count;
                }
                match &mut sum {
                    None => sum = Some(one.bounded().unwrap()),
                    Some(sum) => sum.add(&one).unwrap(),
                }
            }
            let sum = sum.unwrap();
            prop_assert!(sum.positive.counts.len() as u64 <= SUM_BUCKETS_MAX);
            let mut expected = std::collections::BTreeMap::new();
            for (step, count) in parts.iter().flat_map(|(_, values)| values) {
                *expected.entry(index(*step, sum.scale)).or_insert(0) += count;
            }
            let places = sum.positive.counts.iter().enumerate().filter(|(_, count)| **count > 0);
            let found: std::collections::BTreeMap<i64, u64> =
                places.map(|(place, count)| (sum.positive.offset + place as i64, *count)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

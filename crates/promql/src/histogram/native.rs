//! Native histograms as values to compute with: counts are floats, buckets are listed by their index.

use std::sync::Arc;

pub use model::histogram::CounterReset;
use model::histogram::{BucketSpan, CUSTOM_BUCKETS_SCHEMA, Counts, HistogramCounts};
use model::{NativeHistogram, is_stale_bits};

use crate::histogram::bounds;
use crate::syntax::number::{plain, short};

/// A bucket's index and its count.
pub(crate) type IndexedCount = (i32, f64);

/// A native histogram, its counts as floats.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    pub(crate) hint: CounterReset,
    pub(crate) schema: i8,
    pub(crate) zero_threshold: f64,
    pub(crate) zero_count: f64,
    pub(crate) count: f64,
    pub(crate) sum: f64,
    /// In order of the index, each once; empty ones may be among them.
    pub(crate) positive: Vec<IndexedCount>,
    pub(crate) negative: Vec<IndexedCount>,
    /// Upper bounds of custom buckets, ascending, without infinity.
    pub(crate) custom_bounds: Arc<[f64]>,
}

/// A bucket with its bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramBucket {
    /// The lower bound.
    pub lower: f64,
    /// The upper bound.
    pub upper: f64,
    /// Observations equal to the lower bound are in it.
    pub lower_inclusive: bool,
    /// Observations equal to the upper bound are in it.
    pub upper_inclusive: bool,
    /// How many observations are in it.
    pub count: f64,
}

impl HistogramBucket {
    /// The share of the bucket below a value strictly inside its finite bounds.
    pub(crate) fn fraction_below(&self, value: f64, linear: bool) -> f64 {
        if linear {
            return (value - self.lower) / (self.upper - self.lower);
        }
        let [lower, upper, at] = [self.lower, self.upper, value].map(|bound| bound.abs().log2());
        if value > 0.0 { (at - lower) / (upper - lower) } else { 1.0 - (at - upper) / (lower - upper) }
    }
}

fn indexed<T: Copy>(spans: &[BucketSpan], counts: &[T], to_float: impl Fn(T) -> f64) -> Vec<IndexedCount> {
    let mut next = 0i32;
    let indexes = spans.iter().flat_map(|span| {
        let first = next.saturating_add(span.offset);
        next = first.saturating_add(i32::try_from(span.length).unwrap_or(i32::MAX));
        first..next
    });
    indexes.zip(counts).map(|(index, count)| (index, to_float(*count))).collect()
}

impl From<&NativeHistogram> for Histogram {
    fn from(native: &NativeHistogram) -> Self {
        let layout = &*native.layout;
        let (count, zero_count, positive, negative) = match &native.counts {
            HistogramCounts::Integer(Counts { count, zero_count, positive, negative }) => (
                *count as f64,
                *zero_count as f64,
                indexed(&layout.positive_spans, positive, |count| count as f64),
                indexed(&layout.negative_spans, negative, |count| count as f64),
            ),
            HistogramCounts::Float(Counts { count, zero_count, positive, negative }) => (
                *count,
                *zero_count,
                indexed(&layout.positive_spans, positive, |count| count),
                indexed(&layout.negative_spans, negative, |count| count),
            ),
        };
        Self {
            hint: native.counter_reset,
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            zero_count,
            count,
            sum: native.sum,
            positive,
            negative,
            custom_bounds: layout.custom_bounds.as_slice().into(),
        }
    }
}

impl Histogram {
    /// Number of observations.
    pub const fn count(&self) -> f64 {
        self.count
    }

    /// Sum of the observations.
    pub const fn sum(&self) -> f64 {
        self.sum
    }

    pub(crate) fn is_stale(&self) -> bool {
        is_stale_bits(self.sum)
    }

    pub(crate) const fn is_custom(&self) -> bool {
        self.schema == CUSTOM_BUCKETS_SCHEMA
    }

    /// The charge of the histogram, in samples of 16 bytes.
    pub(crate) fn samples(&self) -> usize {
        6 + self.positive.len() + self.negative.len() + self.custom_bounds.len() / 2
    }

    /// About as many bytes as it takes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.samples() * 16
    }

    /// The upper bound of a bucket by its index; of negative ones its magnitude.
    fn bound(&self, index: i32) -> f64 {
        if !self.is_custom() {
            return bounds::exponential(index, self.schema);
        }
        match usize::try_from(index) {
            Ok(position) => self.custom_bounds.get(position).copied().unwrap_or(f64::INFINITY),
            Err(_) => f64::NEG_INFINITY,
        }
    }

    pub(super) fn positive_bucket(&self, &(index, count): &IndexedCount) -> HistogramBucket {
        let (lower, upper) = (self.bound(index.saturating_sub(1)), self.bound(index));
        let (lower_inclusive, upper_inclusive) =
            if self.is_custom() { (index == 0, true) } else { (lower < 0.0, upper > 0.0) };
        HistogramBucket { lower, upper, lower_inclusive, upper_inclusive, count }
    }

    pub(super) fn negative_bucket(&self, &(index, count): &IndexedCount) -> HistogramBucket {
        let (lower, upper) = (-self.bound(index), -self.bound(index.saturating_sub(1)));
        HistogramBucket { lower, upper, lower_inclusive: lower < 0.0, upper_inclusive: upper > 0.0, count }
    }

    pub(super) fn zero_bucket(&self) -> HistogramBucket {
        HistogramBucket {
            lower: -self.zero_threshold,
            upper: self.zero_threshold,
            lower_inclusive: true,
            upper_inclusive: true,
            count: self.zero_count,
        }
    }

    /// All buckets in order, those beside the zero bucket cut where they overlap with it.
    pub fn buckets(&self) -> Vec<HistogramBucket> {
        let threshold = self.zero_threshold;
        let mut buckets = Vec::with_capacity(self.negative.len() + self.positive.len() + 1);
        for counted in self.negative.iter().rev() {
            let mut bucket = self.negative_bucket(counted);
            if bucket.upper < 0.0 && bucket.upper > -threshold {
                bucket.upper = -threshold;
            }
            buckets.push(bucket);
        }
        if self.zero_count > 0.0 {
            buckets.push(self.zero_bucket());
        }
        for counted in &self.positive {
            let mut bucket = self.positive_bucket(counted);
            if bucket.lower > 0.0 && bucket.lower < threshold {
                bucket.lower = threshold;
            }
            buckets.push(bucket);
        }
        buckets
    }

    /// The buckets that are not empty, as they are, for the text.
    fn populated_buckets(&self) -> Vec<HistogramBucket> {
        let negative = self.negative.iter().rev().map(|counted| self.negative_bucket(counted));
        let zero = (self.zero_count != 0.0).then(|| self.zero_bucket());
        let positive = self.positive.iter().map(|counted| self.positive_bucket(counted));
        negative.chain(zero).chain(positive).filter(|bucket| bucket.count != 0.0).collect()
    }

    fn counts_mut(&mut self) -> impl Iterator<Item = &mut f64> {
        // Custom buckets have no zero bucket.
        let zero_count = (self.schema != CUSTOM_BUCKETS_SCHEMA).then_some(&mut self.zero_count);
        let totals = zero_count.into_iter().chain([&mut self.count, &mut self.sum]);
        totals.chain(self.positive.iter_mut().chain(&mut self.negative).map(|(_, count)| count))
    }

    pub(crate) fn multiply(&mut self, factor: f64) {
        self.counts_mut().for_each(|count| *count *= factor);
        if factor < 0.0 {
            self.hint = CounterReset::Gauge;
        }
    }

    /// Dividing by zero leaves no buckets.
    pub(crate) fn divide(&mut self, divisor: f64) {
        self.counts_mut().for_each(|count| *count /= divisor);
        if divisor == 0.0 {
            self.positive.clear();
            self.negative.clear();
        } else if divisor < 0.0 {
            self.hint = CounterReset::Gauge;
        }
    }

    /// Drops empty buckets.
    pub(crate) fn compact(&mut self) {
        self.positive.retain(|(_, count)| *count != 0.0);
        self.negative.retain(|(_, count)| *count != 0.0);
    }

    pub(crate) fn has_overflow(&self) -> bool {
        let counts = self.positive.iter().chain(&self.negative).map(|(_, count)| *count);
        let totals = [self.zero_count, self.count, self.sum];
        counts.chain(totals).chain(self.custom_bounds.iter().copied()).any(f64::is_infinite)
    }

    /// The histogram with fewer, wider buckets; the hint is lost, as in Prometheus.
    pub(crate) fn at_schema(&self, schema: i8) -> Self {
        if schema >= self.schema {
            return self.clone();
        }
        Self {
            hint: CounterReset::Unknown,
            schema,
            positive: reduced(&self.positive, self.schema, schema),
            negative: reduced(&self.negative, self.schema, schema),
            ..self.clone()
        }
    }

    /// Bit for bit the same data; hints do not count.
    #[expect(clippy::float_cmp, reason = "bounds are settings, not measurements")]
    pub(crate) fn same_data(&self, other: &Self) -> bool {
        let bits = |histogram: &Self| [histogram.count, histogram.sum, histogram.zero_count].map(f64::to_bits);
        let same_buckets = |a: &[IndexedCount], b: &[IndexedCount]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.0 == b.0 && a.1.to_bits() == b.1.to_bits())
        };
        self.schema == other.schema
            && bits(self) == bits(other)
            && self.zero_threshold == other.zero_threshold
            && (!self.is_custom() || self.custom_bounds == other.custom_bounds)
            && same_buckets(&self.negative, &other.negative)
            && same_buckets(&self.positive, &other.positive)
    }

    /// As Prometheus writes histograms in labels.
    pub(crate) fn text(&self) -> String {
        let mut text = format!("{{count:{}, sum:{}", short(self.count), short(self.sum));
        for bucket in self.populated_buckets() {
            let open = if bucket.lower_inclusive { "[" } else { "(" };
            let close = if bucket.upper_inclusive { "]" } else { ")" };
            let (lower, upper, count) = (short(bucket.lower), short(bucket.upper), short(bucket.count));
            text.extend([", ", open, &lower, ",", &upper, close, ":", &count]);
        }
        text.push('}');
        text
    }

    /// Parts of the histogram for tests and for wire forms: schema, zero threshold, zero count, bounds of custom buckets.
    pub fn layout(&self) -> (i8, f64, f64, &[f64]) {
        (self.schema, self.zero_threshold, self.zero_count, &self.custom_bounds)
    }

    /// Buckets of positive and of negative observations, by index.
    pub fn indexed_buckets(&self) -> [&[(i32, f64)]; 2] {
        [&self.positive, &self.negative]
    }

    /// The hint about a counter reset before this sample.
    pub const fn counter_reset(&self) -> CounterReset {
        self.hint
    }

    /// Count and sum as texts, and for each bucket that is not empty how its bounds belong to it (0: the upper one, 1: the
    /// lower one, 2: none, 3: both), the bounds and the count: what Prometheus's JSON has.
    pub fn json_parts(&self) -> (String, String, Vec<(u8, [String; 3])>) {
        let buckets = self.buckets().into_iter().filter(|bucket| bucket.count != 0.0).map(|bucket| {
            let bounds = match (bucket.lower_inclusive, bucket.upper_inclusive) {
                (false, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (true, true) => 3,
            };
            (bounds, [bucket.lower, bucket.upper, bucket.count].map(plain))
        });
        (plain(self.count), plain(self.sum), buckets.collect())
    }
}

/// The index of the bucket of a lower resolution that a bucket is part of.
pub(super) fn reduced_index(index: i32, from: i8, to: i8) -> i32 {
    ((index - 1) >> (from - to).clamp(0, 31)) + 1
}

pub(super) fn reduced(buckets: &[IndexedCount], from: i8, to: i8) -> Vec<IndexedCount> {
    let mut merged: Vec<IndexedCount> = Vec::new();
    for (index, count) in buckets {
        let index = reduced_index(*index, from, to);
        match merged.last_mut() {
            Some((last, total)) if *last == index => *total += count,
            _ => merged.push((index, *count)),
        }
    }
    merged
}

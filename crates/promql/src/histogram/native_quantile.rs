//! Quantiles, fractions and the variance of native histograms. Within a bucket observations are taken to lie evenly on a
//! logarithmic scale; in the zero bucket and in custom buckets, on a linear one.

use crate::eval::sum::CompensatedSum;
use crate::histogram::native::{Histogram, HistogramBucket};

/// An annotation of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HistogramAnnotation {
    /// The quantile lies among observations that are NaN.
    QuantileIsNan,
    /// NaN observations count as larger than all others.
    QuantileIsSkewed,
    /// NaN observations are in no fraction.
    FractionLacksNans,
}

/// Bounds of the zero bucket, which ends at zero on a side without observations.
fn clip_at_zero(histogram: &Histogram, bucket: &mut HistogramBucket) {
    if histogram.negative.is_empty() && !histogram.positive.is_empty() {
        bucket.lower = 0.0;
    } else if histogram.positive.is_empty() && !histogram.negative.is_empty() {
        bucket.upper = 0.0;
    }
}

/// The quantile, from 0 to 1.
pub(crate) fn quantile_of(quantile: f64, histogram: &Histogram) -> (f64, Option<HistogramAnnotation>) {
    if quantile < 0.0 {
        return (f64::NEG_INFINITY, None);
    }
    if quantile > 1.0 {
        return (f64::INFINITY, None);
    }
    if histogram.count == 0.0 || quantile.is_nan() {
        return (f64::NAN, None);
    }
    let sum_is_nan = histogram.sum.is_nan();
    // From the nearer end; NaN observations, if there are any, come after all buckets.
    let forward = sum_is_nan || quantile < 0.5;
    let mut buckets = histogram.buckets();
    if !forward {
        buckets.reverse();
    }
    let mut rank = if forward { quantile } else { 1.0 - quantile } * histogram.count;
    let (mut bucket, mut count) =
        (HistogramBucket { lower: 0.0, upper: 0.0, lower_inclusive: false, upper_inclusive: false, count: 0.0 }, 0.0);
    let mut rest = buckets.iter();
    for candidate in rest.by_ref() {
        bucket = *candidate;
        if bucket.count == 0.0 {
            continue;
        }
        count += bucket.count;
        if count >= rank {
            break;
        }
    }
    if !histogram.is_custom() {
        if bucket.lower < 0.0 && bucket.upper > 0.0 {
            clip_at_zero(histogram, &mut bucket);
        }
    } else if bucket.lower == f64::NEG_INFINITY {
        if bucket.upper <= 0.0 {
            return (bucket.upper, None);
        }
        bucket.lower = 0.0;
    } else if bucket.upper == f64::INFINITY {
        return (bucket.lower, None);
    }
    count = if count > histogram.count { histogram.count } else { count };
    if count < rank {
        return if sum_is_nan { (f64::NAN, Some(HistogramAnnotation::QuantileIsNan)) } else { (bucket.upper, None) };
    }
    rank = if forward { rank - (count - bucket.count) } else { count - rank };
    let mut annotation = None;
    if sum_is_nan {
        for later in rest {
            bucket = *later;
            count += bucket.count;
        }
        if count < histogram.count {
            annotation = Some(HistogramAnnotation::QuantileIsSkewed);
        }
    }
    (interpolate(histogram, &bucket, rank / bucket.count), annotation)
}

fn interpolate(histogram: &Histogram, bucket: &HistogramBucket, fraction: f64) -> f64 {
    if histogram.is_custom() || (bucket.lower <= 0.0 && bucket.upper >= 0.0) {
        return bucket.lower + (bucket.upper - bucket.lower) * fraction;
    }
    let (lower, upper) = (bucket.lower.abs().log2(), bucket.upper.abs().log2());
    if bucket.lower > 0.0 {
        return (lower + (upper - lower) * fraction).exp2();
    }
    -(upper + (lower - upper) * (1.0 - fraction)).exp2()
}

/// The share of observations between two values.
pub(crate) fn fraction_of(lower: f64, upper: f64, histogram: &Histogram) -> (f64, Option<HistogramAnnotation>) {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return (f64::NAN, None);
    }
    if lower >= upper {
        return (0.0, None);
    }
    let (mut count, mut rank) = (0.0, 0.0);
    let (mut lower_rank, mut upper_rank) = (None, None);
    let mut annotation = None;
    let buckets = histogram.buckets();
    let mut rest = buckets.iter();
    for bucket in rest.by_ref() {
        count += bucket.count;
        let mut bucket = *bucket;
        let zero = bucket.lower <= 0.0 && bucket.upper >= 0.0;
        if zero {
            clip_at_zero(histogram, &mut bucket);
        }
        let linear = histogram.is_custom() || zero;
        for (bound, bound_rank) in [(lower, &mut lower_rank), (upper, &mut upper_rank)] {
            if bound_rank.is_none() {
                *bound_rank = rank_in(&bucket, bound, rank, linear);
            }
        }
        if lower_rank.is_some() && upper_rank.is_some() {
            break;
        }
        rank += bucket.count;
    }
    if histogram.sum.is_nan() {
        count += rest.map(|bucket| bucket.count).sum::<f64>();
        if count < histogram.count {
            annotation = Some(HistogramAnnotation::FractionLacksNans);
        }
    } else {
        count = histogram.count;
    }
    let capped = |rank: Option<f64>| rank.map_or(count, |rank| if rank > count { count } else { rank });
    ((capped(upper_rank) - capped(lower_rank)) / histogram.count, annotation)
}

/// How many observations are below a bound, if that is decided by this bucket; `rank` are below the bucket.
fn rank_in(bucket: &HistogramBucket, bound: f64, rank: f64, linear: bool) -> Option<f64> {
    if bucket.lower >= bound {
        return Some(rank);
    }
    if !(bucket.lower < bound && bucket.upper > bound) {
        return None;
    }
    if linear && bucket.lower == f64::NEG_INFINITY {
        return Some(bucket.count);
    }
    Some(rank + bucket.count * bucket.fraction_below(bound, linear))
}

/// The variance, each bucket's observations taken to lie in its middle.
pub(crate) fn variance_of(histogram: &Histogram) -> f64 {
    let mean = histogram.sum / histogram.count;
    let mut variance = CompensatedSum::default();
    for bucket in histogram.buckets().iter().filter(|bucket| bucket.count != 0.0) {
        let value = if histogram.is_custom() {
            f64::midpoint(bucket.upper, bucket.lower)
        } else if bucket.lower <= 0.0 && bucket.upper >= 0.0 {
            0.0
        } else {
            let middle = (bucket.upper * bucket.lower).sqrt();
            if bucket.upper < 0.0 { -middle } else { middle }
        };
        let delta = value - mean;
        variance = variance.plus(bucket.count * delta * delta);
    }
    variance.value() / histogram.count
}

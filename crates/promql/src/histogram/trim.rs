//! Cuts off the observations above or below a value, as far as buckets allow.

use crate::histogram::native::{Histogram, HistogramBucket};

/// Which observations stay.
#[derive(Debug, Clone, Copy)]
struct Cut {
    at: f64,
    /// Those below stay, else those above.
    below: bool,
}

impl Histogram {
    /// Keeps the observations below (`below`) or above a value; where the value lies inside a bucket, a part of it. Count and
    /// sum are then estimated from the buckets left.
    #[expect(clippy::float_cmp, reason = "whether a bucket was touched at all")]
    pub(crate) fn trim(&mut self, at: f64, below: bool) {
        let cut = Cut { at, below };
        let custom = self.is_custom();
        let (mut count, mut sum, mut changed) = (0.0, 0.0, false);
        let mut keep_of = |bucket: &HistogramBucket, positive: bool| {
            let (keep, middle) = cut.bucket(bucket, positive, custom);
            count += keep;
            sum += middle * keep;
            changed |= keep != bucket.count;
            keep
        };
        let (mut positive, mut negative) = (self.positive.clone(), self.negative.clone());
        for counted in positive.iter_mut().filter(|(_, count)| *count != 0.0) {
            counted.1 = keep_of(&self.positive_bucket(counted), true);
        }
        for counted in negative.iter_mut().filter(|(_, count)| *count != 0.0) {
            counted.1 = keep_of(&self.negative_bucket(counted), false);
        }
        if self.zero_count > 0.0 {
            let populated = |buckets: &[(i32, f64)]| buckets.iter().any(|(_, count)| *count != 0.0);
            let sides = [populated(&self.negative), populated(&self.positive)];
            let (keep, middle) = cut.zero_bucket(&self.zero_bucket(), sides);
            changed |= self.zero_count != keep;
            self.zero_count = keep;
            sum += middle * keep;
            count += keep;
        }
        (self.positive, self.negative) = (positive, negative);
        if changed {
            (self.count, self.sum) = (count, sum);
            self.compact();
        }
    }
}

impl Cut {
    /// The count that remains of a bucket, and the middle of that part.
    fn bucket(self, bucket: &HistogramBucket, positive: bool, linear: bool) -> (f64, f64) {
        let (all, some) = if self.below {
            (bucket.upper <= self.at, bucket.lower < self.at)
        } else {
            (bucket.lower >= self.at, bucket.upper > self.at)
        };
        if all {
            return (bucket.count, middle(bucket.lower, bucket.upper, positive, linear));
        }
        if !some {
            return (0.0, 0.0);
        }
        if bucket.lower == f64::NEG_INFINITY || bucket.upper == f64::INFINITY {
            return self.unbounded_bucket(bucket);
        }
        let under = if self.at <= bucket.lower {
            0.0
        } else if self.at >= bucket.upper {
            bucket.count
        } else {
            bucket.count * bucket.fraction_below(self.at, linear)
        };
        if self.below {
            return (under, middle(bucket.lower, self.at, positive, linear));
        }
        (bucket.count - under, middle(self.at, bucket.upper, positive, linear))
    }

    /// A bucket that ends at infinity says nothing about where in it observations are, but for one from zero up.
    fn unbounded_bucket(self, bucket: &HistogramBucket) -> (f64, f64) {
        let finite = |bound: f64| if bound.is_infinite() { 0.0 } else { bound };
        let (at, upper, count) = (self.at, bucket.upper, bucket.count);
        if bucket.lower == f64::NEG_INFINITY {
            if self.below {
                return if at >= upper {
                    (count, 0.0)
                } else if at > 0.0 && upper > 0.0 && upper != f64::INFINITY {
                    (count * at / upper, at / 2.0)
                } else if upper <= 0.0 {
                    (count, at)
                } else {
                    (0.0, finite(upper))
                };
            }
            return if at <= bucket.lower {
                (count, 0.0)
            } else if at >= 0.0 && upper > at && upper != f64::INFINITY {
                (count * (1.0 - at / upper), f64::midpoint(at, upper))
            } else {
                (0.0, finite(upper))
            };
        }
        if !self.below && at >= bucket.lower { (count, at) } else { (0.0, finite(bucket.lower)) }
    }

    fn zero_bucket(self, bucket: &HistogramBucket, [has_negative, has_positive]: [bool; 2]) -> (f64, f64) {
        let upper = if has_negative && !has_positive { 0.0 } else { bucket.upper };
        let lower = if has_positive && !has_negative { 0.0 } else { bucket.lower };
        let whole = (bucket.count, f64::midpoint(lower, upper));
        if self.at <= lower {
            return if self.below { (0.0, 0.0) } else { whole };
        }
        if self.at >= upper {
            return if self.below { whole } else { (0.0, 0.0) };
        }
        if self.below {
            return (bucket.count * ((self.at - lower) / (upper - lower)), f64::midpoint(lower, self.at));
        }
        (bucket.count * ((upper - self.at) / (upper - lower)), f64::midpoint(self.at, upper))
    }
}

fn middle(lower: f64, upper: f64, positive: bool, linear: bool) -> f64 {
    if lower.is_infinite() {
        return if upper.is_infinite() {
            0.0
        } else if upper > 0.0 {
            upper / 2.0
        } else {
            upper
        };
    }
    if upper.is_infinite() {
        return lower;
    }
    if linear {
        return f64::midpoint(lower, upper);
    }
    let geometric = (lower * upper).abs().sqrt();
    if positive { geometric } else { -geometric }
}

//! Classic histograms: cumulative counters with an upper bound in the label `le`.

use std::collections::BTreeMap;

use model::Labels;
use query::QueryError;

use crate::ast::Expr;
use crate::eval::Evaluator;
use crate::rows::{Row, Steps, Vector, without_name};

/// The label with a bucket's upper bound.
const BOUND: &str = "le";
/// Relative differences of counts up to this are taken for rounding errors.
const COUNT_TOLERANCE: f64 = 1e-12;
/// Smallest normal number.
const MIN_NORMAL: f64 = f64::MIN_POSITIVE;

/// A bucket at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) upper_bound: f64,
    /// Of all observations up to the bound.
    pub(crate) count: f64,
}

/// The rows of one histogram, by their bounds.
struct Histogram {
    labels: Labels,
    rows: Vec<(f64, usize)>,
}

impl<'q> Evaluator<'q> {
    pub(crate) fn histogram_quantile(
        &self,
        quantile: &Expr,
        input: &Expr,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let quantiles = self.scalar(quantile, steps)?;
        self.notes.check_quantiles(&quantiles);
        self.per_histogram(input, steps, |step, buckets| {
            let (value, forced) = quantile_of(quantiles.get(step).copied().unwrap_or(f64::NAN), buckets);
            if forced {
                self.notes.forced_monotonicity();
            }
            value
        })
    }

    pub(crate) fn histogram_fraction(
        &self,
        bounds: [&Expr; 2],
        input: &Expr,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let [lower, upper] = bounds;
        let (lower, upper) = (self.scalar(lower, steps)?, self.scalar(upper, steps)?);
        let at = |values: &[f64], step: usize| values.get(step).copied().unwrap_or(f64::NAN);
        self.per_histogram(input, steps, |step, buckets| fraction_of(at(&lower, step), at(&upper, step), buckets))
    }

    /// Computes one value per histogram and step from its buckets, which come in order of their bounds.
    fn per_histogram(
        &self,
        input: &Expr,
        steps: Steps,
        compute: impl Fn(usize, &mut Vec<Bucket>) -> f64,
    ) -> Result<Vector<'q>, QueryError> {
        let input = self.vector(input, steps)?;
        let mut vector = Vector::empty(self.budget);
        let mut buckets = Vec::new();
        for histogram in self.histograms(&input.rows) {
            let mut row = Row::new(histogram.labels);
            let rows = || histogram.rows.iter().filter_map(|(bound, place)| Some((*bound, input.rows.get(*place)?)));
            let first = rows().map(|(_, row)| row.first).min().unwrap_or_default();
            let end = rows().map(|(_, row)| row.end()).max().unwrap_or_default();
            for step in first..end {
                self.budget.check()?;
                buckets.clear();
                buckets.extend(
                    rows().filter_map(|(upper_bound, row)| Some(Bucket { upper_bound, count: row.get(step)? })),
                );
                if !buckets.is_empty() {
                    row.push(step, compute(step, &mut buckets));
                }
            }
            vector.push(row)?;
        }
        vector.join_same_labels()?;
        Ok(vector)
    }

    /// Metrics of different names are different histograms, though the name goes in the end.
    fn histograms(&self, rows: &[Row]) -> Vec<Histogram> {
        let mut histograms: BTreeMap<Labels, Vec<(f64, usize)>> = BTreeMap::new();
        for (place, row) in rows.iter().enumerate() {
            let bound = row.labels.get(BOUND).unwrap_or_default();
            match bound.parse::<f64>() {
                Ok(bound) => {
                    histograms.entry(row.labels.retain(|name| name != BOUND)).or_default().push((bound, place));
                }
                Err(_) => self.notes.bad_bucket(bound),
            }
        }
        let mut found = Vec::with_capacity(histograms.len());
        for (labels, mut rows) in histograms {
            rows.sort_by(|a, b| a.0.total_cmp(&b.0));
            found.push(Histogram { labels: without_name(&labels), rows });
        }
        found
    }
}

/// The quantile by linear interpolation within its bucket, and whether counts had to be corrected for it. The buckets
/// are in order of their bounds.
fn quantile_of(quantile: f64, buckets: &mut Vec<Bucket>) -> (f64, bool) {
    if quantile.is_nan() {
        return (f64::NAN, false);
    }
    if !(0.0..=1.0).contains(&quantile) {
        return (if quantile < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY }, false);
    }
    if !ends_at_infinity(buckets) {
        return (f64::NAN, false);
    }
    coalesce(buckets);
    let forced = make_monotonic(buckets);
    let [finite @ .., last] = buckets.as_slice() else { return (f64::NAN, false) };
    let Some(highest) = finite.last() else { return (f64::NAN, false) };
    if last.count == 0.0 {
        return (f64::NAN, false);
    }
    let rank = quantile * last.count;
    // Not `partition_point`: with NaN among the counts, the search must go as a search for the first that reaches.
    let Some(place) = search(finite, |bucket| bucket.count >= rank) else { return (highest.upper_bound, forced) };
    let Some(bucket) = finite.get(place) else { return (highest.upper_bound, forced) };
    if place == 0 && bucket.upper_bound <= 0.0 {
        return (bucket.upper_bound, forced);
    }
    let below = match place.checked_sub(1).and_then(|before| finite.get(before)) {
        Some(before) => *before,
        None => Bucket { upper_bound: 0.0, count: 0.0 },
    };
    let width = bucket.upper_bound - below.upper_bound;
    (below.upper_bound + width * ((rank - below.count) / (bucket.count - below.count)), forced)
}

/// Binary search for the first bucket that satisfies a condition.
fn search(buckets: &[Bucket], reaches: impl Fn(&Bucket) -> bool) -> Option<usize> {
    let (mut low, mut high) = (0, buckets.len());
    while low < high {
        let middle = low.midpoint(high);
        if buckets.get(middle).is_some_and(&reaches) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    (low < buckets.len()).then_some(low)
}

/// The share of observations between two values.
fn fraction_of(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    if !ends_at_infinity(buckets) {
        return f64::NAN;
    }
    coalesce(buckets);
    let count = buckets.last().map_or(0.0, |last| last.count);
    if count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    (rank_of(upper, buckets).min(count) - rank_of(lower, buckets).min(count)) / count
}

/// How many observations lie below a value.
fn rank_of(value: f64, buckets: &[Bucket]) -> f64 {
    let lowest = buckets.first().map_or(0.0, |first| if first.upper_bound <= 0.0 { f64::NEG_INFINITY } else { 0.0 });
    let mut below = Bucket { upper_bound: lowest, count: 0.0 };
    for bucket in buckets {
        if below.upper_bound >= value {
            return below.count;
        }
        if bucket.upper_bound > value {
            if below.upper_bound == f64::NEG_INFINITY {
                return bucket.count;
            }
            let share = (value - below.upper_bound) / (bucket.upper_bound - below.upper_bound);
            return below.count + (bucket.count - below.count) * share;
        }
        below = *bucket;
    }
    below.count
}

fn ends_at_infinity(buckets: &[Bucket]) -> bool {
    buckets.last().is_some_and(|last| last.upper_bound == f64::INFINITY)
}

/// Adds up buckets of the same bound.
fn coalesce(buckets: &mut Vec<Bucket>) {
    #[expect(clippy::float_cmp, reason = "bounds are written numbers")]
    buckets.dedup_by(|next, kept| {
        let same = next.upper_bound == kept.upper_bound;
        if same {
            kept.count += next.count;
        }
        same
    });
}

/// Takes small differences for rounding errors, and raises counts that fall below those of lower bounds; answers
/// whether it did the latter.
fn make_monotonic(buckets: &mut [Bucket]) -> bool {
    let mut forced = false;
    let Some((first, rest)) = buckets.split_first_mut() else { return false };
    let mut reached = first.count;
    for bucket in rest {
        if almost_equal(reached, bucket.count) {
            bucket.count = reached;
        } else if bucket.count < reached {
            bucket.count = reached;
            forced = true;
        } else {
            reached = bucket.count;
        }
    }
    forced
}

#[expect(clippy::float_cmp, reason = "exactly equal numbers are a case of their own")]
fn almost_equal(a: f64, b: f64) -> bool {
    if a == b || (a.is_nan() && b.is_nan()) {
        return true;
    }
    let (total, difference) = (a.abs() + b.abs(), (a - b).abs());
    if a == 0.0 || b == 0.0 || total < MIN_NORMAL {
        return difference < COUNT_TOLERANCE * MIN_NORMAL;
    }
    difference / total.min(f64::MAX) < COUNT_TOLERANCE
}

//! `histogram_quantile` and its like, of either kind, and classic histograms: cumulative counters with an upper bound in the label `le`.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::Labels;
use query::QueryError;

use crate::eval::annotations::Correction;
use crate::eval::evaluator::Evaluator;
use crate::eval::relabel::string_argument;
use crate::eval::rows::{Row, Sample, Steps, Vector};
use crate::histogram::native::Histogram;
use crate::histogram::native_quantile::{
    HistogramAnnotation, fraction_of as native_fraction, quantile_of as native_quantile,
};
use crate::syntax::ast::Expr;
use crate::syntax::number;
use crate::syntax::span::Span;

/// The label with a bucket's upper bound.
const BOUND: &str = "le";

/// Relative differences of counts up to this are taken for rounding errors.
const COUNT_TOLERANCE: f64 = 1e-12;

/// Smallest normal number.
const MIN_NORMAL: f64 = f64::MIN_POSITIVE;

/// A bucket at one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ClassicBucket {
    pub(crate) upper_bound: f64,
    /// The number of all observations up to the bound.
    pub(crate) count: f64,
}

/// The rows of one histogram: classic ones by their bounds, or native ones.
struct HistogramGroup {
    labels: Labels,
    drop_name: bool,
    rows: Vec<(f64, usize)>,
    native: Vec<usize>,
}

/// A histogram at one step.
enum HistogramAtStep<'h> {
    Classic(&'h mut Vec<ClassicBucket>),
    Native(&'h Arc<Histogram>),
}

impl<'q> Evaluator<'q> {
    pub(crate) fn histogram_quantile(
        &self,
        quantile: &Expr,
        input: &Expr,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let quantiles = self.scalar(quantile, steps)?;
        let vector = self.vector(input, steps)?;
        for value in &quantiles {
            self.annotations.check_quantile(*value, quantile.span);
        }
        self.quantiles_of(&vector, &quantiles, input.span, steps)
    }

    /// Several quantiles at once, each named in a label.
    pub(crate) fn histogram_quantiles(
        &self,
        input: &Expr,
        label: &Expr,
        quantiles: &[Expr],
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let label = string_argument(label)?;
        let vector = self.vector(input, steps)?;
        let mut all = Vector::empty(self.budget);
        for quantile in quantiles {
            let values = self.scalar(quantile, steps)?;
            for value in &values {
                self.annotations.check_quantile(*value, quantile.span);
            }
            for row in self.quantiles_of(&vector, &values, input.span, steps)?.rows {
                let mut by_name: BTreeMap<String, Row> = BTreeMap::new();
                for (step, sample) in row.present() {
                    let name = open_metrics_number(values.get(step).copied().unwrap_or(f64::NAN));
                    let named = by_name.entry(name.clone()).or_insert_with(|| {
                        let mut named = row.emptied();
                        named.labels = row.labels.with(label, &name);
                        named
                    });
                    named.push(step, sample);
                }
                by_name.into_values().try_for_each(|row| all.push(row))?;
            }
        }
        all.join_same_labels()?;
        Ok(all)
    }

    fn quantiles_of(
        &self,
        input: &Vector<'q>,
        quantiles: &[f64],
        span: Span,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        self.per_histogram(input, span, |step, name, found| {
            let quantile = quantiles.get(step).copied().unwrap_or(f64::NAN);
            match found {
                HistogramAtStep::Native(histogram) => {
                    let (value, annotation) = native_quantile(quantile, histogram);
                    self.annotate(annotation, name, span);
                    value
                }
                HistogramAtStep::Classic(buckets) => {
                    let (value, correction) = quantile_of(quantile, buckets);
                    if let Some(correction) = correction {
                        let time_ms = steps.time_ms(step);
                        let correction = Correction { first_ms: time_ms, last_ms: time_ms, ..correction };
                        self.annotations.forced_monotonicity(name, correction, span);
                    }
                    value
                }
            }
        })
    }

    fn annotate(&self, annotation: Option<HistogramAnnotation>, name: &str, span: Span) {
        let text = match annotation {
            None => return,
            Some(HistogramAnnotation::QuantileIsNan) => {
                "input to histogram_quantile has NaN observations, result is NaN"
            }
            Some(HistogramAnnotation::QuantileIsSkewed) => {
                "input to histogram_quantile has NaN observations, result is skewed higher"
            }
            Some(HistogramAnnotation::FractionLacksNans) => {
                "input to histogram_fraction has NaN observations, which are excluded from all fractions"
            }
        };
        self.annotations.about_nans(text, name, span);
    }

    pub(crate) fn histogram_fraction(
        &self,
        bounds: [&Expr; 2],
        input: &Expr,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let [lower, upper] = bounds;
        let (lower, upper) = (self.scalar(lower, steps)?, self.scalar(upper, steps)?);
        let vector = self.vector(input, steps)?;
        let at = |values: &[f64], step: usize| values.get(step).copied().unwrap_or(f64::NAN);
        self.per_histogram(&vector, input.span, |step, name, found| match found {
            HistogramAtStep::Classic(buckets) => fraction_of(at(&lower, step), at(&upper, step), buckets),
            HistogramAtStep::Native(histogram) => {
                let (value, annotation) = native_fraction(at(&lower, step), at(&upper, step), histogram);
                self.annotate(annotation, name, input.span);
                value
            }
        })
    }

    /// Computes one value per histogram and step: from a native histogram, or from buckets, which come in order of their
    /// bounds. Where a series has both, there is none.
    fn per_histogram(
        &self,
        input: &Vector<'q>,
        span: Span,
        compute: impl Fn(usize, &str, HistogramAtStep<'_>) -> f64,
    ) -> Result<Vector<'q>, QueryError> {
        let mut vector = Vector::empty(self.budget);
        let mut buckets = Vec::new();
        for group in self.histograms(&input.rows, span) {
            let mut row = Row::new(group.labels.clone()).with_drop_name(group.drop_name);
            let name = self.name_for_annotations(&group.labels);
            let rows = || group.rows.iter().filter_map(|(bound, index)| Some((*bound, input.rows.get(*index)?)));
            let native = || group.native.iter().filter_map(|index| input.rows.get(*index));
            let all = || rows().map(|(_, row)| row).chain(native());
            let first = all().map(|row| row.first).min().unwrap_or_default();
            let end = all().map(Row::end).max().unwrap_or_default();
            for step in first..end {
                self.budget.check()?;
                buckets.clear();
                buckets.extend(
                    rows()
                        .filter_map(|(upper_bound, row)| Some(ClassicBucket { upper_bound, count: row.float(step)? })),
                );
                let histogram = native().find_map(|row| match row.get(step) {
                    Some(Sample::Histogram(histogram)) => Some(histogram),
                    _ => None,
                });
                match histogram {
                    Some(_) if !buckets.is_empty() => self.annotations.mixed_classic_and_native(name, span),
                    Some(histogram) => row.push_float(step, compute(step, name, HistogramAtStep::Native(&histogram))),
                    None if buckets.is_empty() => {}
                    None => row.push_float(step, compute(step, name, HistogramAtStep::Classic(&mut buckets))),
                }
            }
            vector.push(row)?;
        }
        self.drop_names(&mut vector)?;
        Ok(vector)
    }

    /// Metrics of different names are different histograms, though the name is dropped from the result.
    fn histograms(&self, rows: &[Row], span: Span) -> Vec<HistogramGroup> {
        let mut found: BTreeMap<Labels, HistogramGroup> = BTreeMap::new();
        let mut malformed: HashSet<&str> = HashSet::new();
        let part = |labels: &Labels, row: &Row| HistogramGroup {
            labels: labels.clone(),
            drop_name: row.drop_name,
            rows: Vec::new(),
            native: Vec::new(),
        };
        for (index, row) in rows.iter().enumerate() {
            if row.has_histograms() {
                let group = found.entry(row.labels.clone()).or_insert_with(|| part(&row.labels, row));
                group.native.push(index);
            }
            if row.floats().next().is_none() {
                continue;
            }
            let bound = row.labels.get(BOUND).unwrap_or_default();
            match parse_bound(bound) {
                Some(bound) => {
                    let labels = row.labels.retain(|name| name != BOUND);
                    let group = found.entry(labels.clone()).or_insert_with(|| part(&labels, row));
                    group.rows.push((bound, index));
                }
                None if malformed.insert(bound) => {
                    self.annotations.bad_bucket(bound, self.name_for_annotations(&row.labels), span);
                }
                None => {}
            }
        }
        let mut found: Vec<HistogramGroup> = found.into_values().collect();
        for group in &mut found {
            group.rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        found
    }
}

/// The number in a bucket's label.
fn parse_bound(text: &str) -> Option<f64> {
    let plain = !text.is_empty() && !text.starts_with('_');
    plain.then(|| text.parse().ok()).flatten()
}

/// A number with at least one digit after the point, as OpenMetrics writes quantiles.
fn open_metrics_number(value: f64) -> String {
    if !value.is_finite() {
        return number::plain(value);
    }
    let text = number::short(value);
    if text.contains(['.', 'e']) { text } else { format!("{text}.0") }
}

/// The quantile by linear interpolation within its bucket, and how counts had to be corrected for it. The buckets are in
/// order of their bounds.
fn quantile_of(quantile: f64, buckets: &mut Vec<ClassicBucket>) -> (f64, Option<Correction>) {
    if quantile.is_nan() {
        return (f64::NAN, None);
    }
    if !(0.0..=1.0).contains(&quantile) {
        return (if quantile < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY }, None);
    }
    if !ends_at_infinity(buckets) {
        return (f64::NAN, None);
    }
    coalesce(buckets);
    let correction = make_monotonic(buckets);
    let [finite @ .., last] = buckets.as_slice() else { return (f64::NAN, None) };
    let Some(highest) = finite.last() else { return (f64::NAN, correction) };
    if last.count == 0.0 {
        return (f64::NAN, correction);
    }
    let rank = quantile * last.count;
    // Not `partition_point`: with NaN among the counts, the result must be that of Go's binary search.
    let Some(index) = search(finite, |bucket| bucket.count >= rank) else { return (highest.upper_bound, correction) };
    let Some(bucket) = finite.get(index) else { return (highest.upper_bound, correction) };
    if index == 0 && bucket.upper_bound <= 0.0 {
        return (bucket.upper_bound, correction);
    }
    let below = match index.checked_sub(1).and_then(|before| finite.get(before)) {
        Some(before) => *before,
        None => ClassicBucket { upper_bound: 0.0, count: 0.0 },
    };
    let width = bucket.upper_bound - below.upper_bound;
    (below.upper_bound + width * ((rank - below.count) / (bucket.count - below.count)), correction)
}

/// Binary search for the first bucket that satisfies a condition.
fn search(buckets: &[ClassicBucket], reaches: impl Fn(&ClassicBucket) -> bool) -> Option<usize> {
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
fn fraction_of(lower: f64, upper: f64, buckets: &mut Vec<ClassicBucket>) -> f64 {
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
fn rank_of(value: f64, buckets: &[ClassicBucket]) -> f64 {
    let lowest = buckets.first().map_or(0.0, |first| if first.upper_bound <= 0.0 { f64::NEG_INFINITY } else { 0.0 });
    let mut below = ClassicBucket { upper_bound: lowest, count: 0.0 };
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

fn ends_at_infinity(buckets: &[ClassicBucket]) -> bool {
    buckets.last().is_some_and(|last| last.upper_bound == f64::INFINITY)
}

/// Adds up buckets of the same bound.
fn coalesce(buckets: &mut Vec<ClassicBucket>) {
    #[expect(clippy::float_cmp, reason = "bounds are written numbers")]
    buckets.dedup_by(|next, previous| {
        let same = next.upper_bound == previous.upper_bound;
        if same {
            previous.count += next.count;
        }
        same
    });
}

/// Takes small differences for rounding errors, and raises counts that fall below those of lower bounds; returns where it
/// did the latter.
fn make_monotonic(buckets: &mut [ClassicBucket]) -> Option<Correction> {
    let (first, rest) = buckets.split_first_mut()?;
    let mut reached = first.count;
    let mut correction = Correction {
        first_ms: 0,
        last_ms: 0,
        least_bound: f64::INFINITY,
        greatest_bound: f64::NEG_INFINITY,
        difference_max: 0.0,
        count: 0,
    };
    for bucket in rest {
        if almost_equal(reached, bucket.count) {
            bucket.count = reached;
        } else if bucket.count < reached {
            correction.difference_max = correction.difference_max.max(reached - bucket.count);
            correction.least_bound = correction.least_bound.min(bucket.upper_bound);
            correction.greatest_bound = correction.greatest_bound.max(bucket.upper_bound);
            correction.count = 1;
            bucket.count = reached;
        } else {
            reached = bucket.count;
        }
    }
    (correction.count > 0).then_some(correction)
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

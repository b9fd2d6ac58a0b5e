//! `similar` and `correlated`: the series whose windows are most like the window of one series.
//!
//! A window of PromQL is open at its start and closed at its end, and so are the bins that it is cut into; the last sample of a bin is its value.

use query::QueryError;
use similarity::{Best, Moments, Pattern, correlation_of};

use crate::eval::evaluator::Evaluator;
use crate::eval::rows::{Row, Steps, Vector};
use crate::range::selectors::{RangeSeries, RangeVector};
use crate::syntax::ast::Expr;
use crate::syntax::span::Span;

/// Series that are chosen at each step.
const COUNT_MAX: f64 = 10_000.0;

/// Bins of a window: fewer than this have no form.
const BINS_MIN: i64 = 3;
const BINS_MAX: i64 = 1 << 20;

/// The window of a series that others are compared with.
struct Reference<'s> {
    series: &'s RangeSeries,
    pattern: Pattern,
    end_ms: i64,
}

impl<'q> Evaluator<'q> {
    /// `similar(k, series[range], reference[range], step)`: at each step the k series with the smallest distances, which are the values; or the largest
    /// correlations. The seconds of the last argument are the width of a bin.
    pub(crate) fn similar(
        &self,
        [count, input, reference, width]: [&Expr; 4],
        (is_correlation, span): (bool, Span),
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let (counts, widths) = (self.scalar(count, steps)?, self.scalar(width, steps)?);
        let (input, reference) = (self.range_vector(input, steps)?, self.range_vector(reference, steps)?);
        if input.bounds.range_ms != reference.bounds.range_ms {
            return failed("the two ranges of similar and correlated are equally long".to_owned());
        }
        for range in [&input, &reference] {
            range.bounds.check_edges(if is_correlation { "correlated" } else { "similar" })?;
        }
        let mut rows: Vec<Row> = input
            .series
            .iter()
            .map(|series| Row::new(series.labels.clone()).with_drop_name(series.drop_name))
            .collect();
        for step in 0..steps.count {
            self.budget.check()?;
            let Some(count) = chosen(counts.get(step).copied().unwrap_or(f64::NAN))? else { continue };
            let bins = Bins::new(&input, widths.get(step).copied().unwrap_or(f64::NAN))?;
            let Some(own) = self.reference(&reference, step, bins, span)? else { continue };
            let found = self.nearest((&input, own), (step, count), bins, is_correlation)?;
            for (index, value) in found {
                if let Some(row) = rows.get_mut(index) {
                    row.push_float(step, value);
                }
            }
        }
        let mut vector = Vector::empty(self.budget);
        rows.into_iter().filter(|row| !row.is_empty()).try_for_each(|row| vector.push(row))?;
        Ok(vector)
    }

    /// The one series of a step that others are compared with. Nothing is like one that has gaps.
    fn reference<'s>(
        &self,
        range: &'s RangeVector<'_>,
        step: usize,
        bins: Bins,
        span: Span,
    ) -> Result<Option<Reference<'s>>, QueryError> {
        let end_ms = range.bounds.ends.at(step);
        let mut own: Option<Reference<'s>> = None;
        for series in &range.series {
            let values = bins.values(series, end_ms);
            if values.iter().all(|value| value.is_nan()) {
                continue;
            }
            match (Pattern::new(&values, true), &own) {
                (None, _) => self.annotations.gaps_in_reference(&series.labels, span),
                (Some(_), Some(known)) => {
                    let labels = [&known.series.labels, &series.labels];
                    return failed(format!(
                        "the reference is one series; {} and {} are selected",
                        labels[0], labels[1]
                    ));
                }
                (Some(pattern), None) => own = Some(Reference { series, pattern, end_ms }),
            }
        }
        Ok(own)
    }

    /// The series of one step, and their values.
    fn nearest(
        &self,
        (input, own): (&RangeVector<'_>, Reference<'_>),
        (step, count): (usize, usize),
        bins: Bins,
        is_correlation: bool,
    ) -> Result<Vec<(usize, f64)>, QueryError> {
        let end_ms = input.bounds.ends.at(step);
        let Reference { series: own, pattern, end_ms: own_ms } = own;
        if is_correlation && pattern.is_constant() {
            return Ok(Vec::new());
        }
        let mut best = Best::new(count);
        for (index, series) in input.series.iter().enumerate() {
            self.budget.check()?;
            if end_ms == own_ms && series.labels == own.labels {
                continue;
            }
            let values = bins.values(series, end_ms);
            let distance = pattern.distance_soon(&values, best.limit());
            if distance.is_finite() && !(is_correlation && Moments::from_values(&values).is_constant()) {
                best.offer(distance, index);
            }
        }
        let value = |distance| if is_correlation { correlation_of(distance, pattern.width()) } else { distance };
        Ok(best.matches().iter().map(|found| (found.key, value(found.distance))).collect())
    }
}

/// How many series a step is to choose.
fn chosen(count: f64) -> Result<Option<usize>, QueryError> {
    if count > COUNT_MAX {
        return failed(format!("{count} series are wanted at each step: at most {COUNT_MAX} are given"));
    }
    Ok((count >= 1.0).then_some(count as usize))
}

fn failed<T>(message: String) -> Result<T, QueryError> {
    Err(QueryError::Execution(message))
}

/// The bins of a window.
#[derive(Clone, Copy)]
struct Bins {
    count: usize,
    width_ms: i64,
}

impl Bins {
    fn new(range: &RangeVector<'_>, seconds: f64) -> Result<Self, QueryError> {
        let width_ms = (seconds * 1000.0).round();
        if !(1.0..=1e15).contains(&width_ms) {
            return failed(format!("bins of {seconds} s: their width is a number of seconds above 0"));
        }
        let width_ms = width_ms as i64;
        let count = range.bounds.range_ms / width_ms;
        if !(BINS_MIN..=BINS_MAX).contains(&count) {
            return failed(format!(
                "the range has {count} bins of {seconds} s: {BINS_MIN} to {BINS_MAX} can be compared"
            ));
        }
        Ok(Self { count: count as usize, width_ms })
    }

    /// The values of a series' bins up to the end of a window; NaN where there are none.
    fn values(self, series: &RangeSeries, end_ms: i64) -> Vec<f64> {
        let after_ms = end_ms - self.width_ms * self.count as i64;
        let mut values = vec![f64::NAN; self.count];
        let times_ms = &series.samples.timestamps_ms;
        let first = times_ms.partition_point(|time_ms| *time_ms <= after_ms);
        for (time_ms, value) in times_ms.iter().zip(&series.samples.values).skip(first) {
            let bin = ((time_ms - after_ms - 1) / self.width_ms) as usize;
            match values.get_mut(bin) {
                Some(of_bin) => *of_bin = *value,
                None => break,
            }
        }
        values
    }
}

//! Functions of a range of samples.

use std::sync::Arc;

use query::{QueryError, WindowValue};

use crate::eval::rows::Sample;
use crate::eval::sum::{CompensatedSum, Mean, quantile};
use crate::histogram::accumulate::HistogramAccumulator;
use crate::range::extrapolation::ChangeKind;
use crate::range::rate;
use crate::range::window::SampleWindow;
use crate::syntax::ast::Edges;
use crate::syntax::functions::RangeFunction;
use crate::syntax::number;

impl RangeFunction {
    /// The kind of change, for functions of the first and the last sample.
    pub(crate) const fn change(self) -> Option<ChangeKind> {
        match self {
            Self::Rate => Some(ChangeKind { counter: true, per_second: true }),
            Self::Increase => Some(ChangeKind { counter: true, per_second: false }),
            Self::Delta => Some(ChangeKind { counter: false, per_second: false }),
            _ => None,
        }
    }

    /// The value of a window that summaries have bit for bit; sums of floats do not, since they depend on the order of addition.
    pub(crate) const fn value(self) -> Option<WindowValue> {
        match self {
            Self::Count => Some(WindowValue::Count),
            Self::Present => Some(WindowValue::Present),
            Self::Last => Some(WindowValue::Last),
            Self::Maximum => Some(WindowValue::Max),
            Self::Minimum => Some(WindowValue::Min),
            _ => None,
        }
    }

    /// The value of a window of floats alone, for functions that need nothing else; `None` for others.
    pub(crate) fn apply_to_floats(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Average => Some(mean(values)),
            Self::Sum => Some(sum(values)),
            Self::Count => Some(values.len() as f64),
            Self::Present => Some(1.0),
            Self::First => values.first().copied(),
            Self::Last => values.last().copied(),
            Self::Maximum => first_extreme(values, |now, extreme| now > extreme),
            Self::Minimum => first_extreme(values, |now, extreme| now < extreme),
            Self::Variance => Some(variance(values)),
            Self::StandardDeviation => Some(variance(values).sqrt()),
            _ => None,
        }
    }

    /// The value for a window; `None` if it has too few samples. `scratch` is reused between calls.
    pub(crate) fn apply(self, window: &SampleWindow<'_>, scratch: &mut Vec<f64>) -> Result<Option<Sample>, QueryError> {
        if let Some(change) = self.change() {
            return Ok(rate::change_over_window(window, change));
        }
        match self {
            Self::InstantRate => Ok(rate::instant_change(window, true)),
            Self::InstantDelta => Ok(rate::instant_change(window, false)),
            Self::First => Ok(first(window)),
            Self::Last => Ok(last(window)),
            Self::Sum | Self::Average if !window.histograms.is_empty() => Ok(self.accumulate_histograms(window)),
            Self::Changes | Self::Resets if window.edges != Edges::Plain || !window.histograms.is_empty() => {
                Ok(self.count_events(window).map(Sample::Float))
            }
            Self::Count => Ok(Some(Sample::Float((window.values.len() + window.histograms.len()) as f64))),
            Self::Present => Ok(Some(Sample::Float(1.0))),
            Self::TimestampOfFirst => Ok(end_time(window, <[i64]>::first, i64::min)),
            Self::TimestampOfLast => Ok(end_time(window, <[i64]>::last, i64::max)),
            _ => Ok(self.apply_ignoring_histograms(window, scratch)?.map(Sample::Float)),
        }
    }

    /// Functions that ignore histograms.
    fn apply_ignoring_histograms(
        self,
        window: &SampleWindow<'_>,
        scratch: &mut Vec<f64>,
    ) -> Result<Option<f64>, QueryError> {
        if self == Self::DoubleExponentialSmoothing {
            check_factors(window.scalars)?;
        }
        let values = window.values;
        if values.is_empty() {
            return Ok(None);
        }
        if !window.histograms.is_empty() {
            window.annotations.ignored_in_range(window.name, window.span);
        }
        let value = match self {
            Self::Derivative => return Ok(derivative(window)),
            Self::PredictLinear => return Ok(predict(window)),
            Self::DoubleExponentialSmoothing => return Ok(smooth(window)),
            Self::TotalOfPeriod => return Ok(Some(total_of_period(window))),
            Self::TimestampOfMaximum => return Ok(time_of_extreme(window, |now, extreme| now >= extreme)),
            Self::TimestampOfMinimum => return Ok(time_of_extreme(window, |now, extreme| now <= extreme)),
            Self::Changes | Self::Resets => window.marked.count(),
            Self::Quantile => {
                window.annotations.check_quantile(window.scalars[0], window.quantile_span);
                quantile(window.scalars[0], copy_to(values, scratch))
            }
            Self::MedianAbsoluteDeviation if values.iter().any(|value| value.is_nan()) => f64::NAN,
            Self::MedianAbsoluteDeviation => {
                let median = quantile(0.5, copy_to(values, scratch));
                for value in scratch.iter_mut() {
                    *value = (*value - median).abs();
                }
                quantile(0.5, scratch)
            }
            _ => return Ok(self.apply_to_floats(values)),
        };
        Ok(Some(value))
    }

    /// Sum or mean of histograms.
    fn accumulate_histograms(self, window: &SampleWindow<'_>) -> Option<Sample> {
        let (annotations, name, span) = (window.annotations, window.name, window.span);
        if !window.values.is_empty() {
            annotations.mixed_samples(name, span);
            return None;
        }
        let (first, rest) = window.histograms.split_first()?;
        let mut accumulator = HistogramAccumulator::new(first, self == Self::Average);
        for histogram in rest {
            if accumulator.add(histogram).is_err() {
                annotations.mixed_schemas(name, span);
                return None;
            }
        }
        accumulator.annotate(annotations, span);
        Some(accumulator.finish().into())
    }

    /// Changes or resets over samples of both kinds.
    fn count_events(self, window: &SampleWindow<'_>) -> Option<f64> {
        let mut samples: Vec<(i64, Sample)> = window
            .timestamps_ms
            .iter()
            .zip(window.values)
            .map(|(time, value)| (*time, Sample::Float(*value)))
            .collect();
        let histograms = window.histogram_timestamps_ms.iter().zip(window.histograms);
        samples.extend(histograms.map(|(time, histogram)| (*time, Sample::Histogram(Arc::clone(histogram)))));
        samples.sort_by_key(|(time, _)| *time);
        if window.edges == Edges::Anchored {
            let inside = samples.partition_point(|(time, _)| *time <= window.start_ms);
            if inside == samples.len() {
                return None;
            }
            samples.drain(..inside.saturating_sub(1));
        }
        let is_event =
            |pair: &[(i64, Sample)]| match (pair.first().map(|first| &first.1), pair.last().map(|last| &last.1)) {
                (Some(Sample::Float(before)), Some(Sample::Float(now))) if self == Self::Resets => now < before,
                #[expect(clippy::float_cmp, reason = "a change of any size counts")]
                (Some(Sample::Float(before)), Some(Sample::Float(now))) => {
                    now != before && !(now.is_nan() && before.is_nan())
                }
                (Some(Sample::Histogram(before)), Some(Sample::Histogram(now))) if self == Self::Resets => {
                    now.is_reset_after(before)
                }
                (Some(Sample::Histogram(before)), Some(Sample::Histogram(now))) => !now.same_data(before),
                _ => true,
            };
        Some(samples.windows(2).filter(|pair| is_event(pair)).count() as f64)
    }
}

fn first(window: &SampleWindow<'_>) -> Option<Sample> {
    let float = window.timestamps_ms.first().zip(window.values.first());
    let histogram = window.histogram_timestamps_ms.first().zip(window.histograms.first());
    match (float, histogram) {
        (Some((time, value)), Some((other, _))) if time < other => Some(Sample::Float(*value)),
        (_, Some((_, histogram))) => Some(Sample::Histogram(Arc::clone(histogram))),
        (float, None) => float.map(|(_, value)| Sample::Float(*value)),
    }
}

fn last(window: &SampleWindow<'_>) -> Option<Sample> {
    let float = window.timestamps_ms.last().zip(window.values.last());
    let histogram = window.histogram_timestamps_ms.last().zip(window.histograms.last());
    match (float, histogram) {
        (Some((time, value)), Some((other, _))) if time > other => Some(Sample::Float(*value)),
        (_, Some((_, histogram))) => Some(Sample::Histogram(Arc::clone(histogram))),
        (float, None) => float.map(|(_, value)| Sample::Float(*value)),
    }
}

fn end_time(
    window: &SampleWindow<'_>,
    end: impl Fn(&[i64]) -> Option<&i64>,
    choose: impl Fn(i64, i64) -> i64,
) -> Option<Sample> {
    let times = [window.timestamps_ms, window.histogram_timestamps_ms];
    let time_ms = times.into_iter().filter_map(|times| end(times).copied()).reduce(choose)?;
    Some(Sample::Float(seconds(time_ms)))
}

fn copy_to<'s>(values: &[f64], scratch: &'s mut Vec<f64>) -> &'s mut [f64] {
    scratch.clear();
    scratch.extend_from_slice(values);
    scratch
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// The first value that no other surpasses; NaN only if there is nothing else.
fn first_extreme(values: &[f64], surpasses: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let better =
        |extreme: f64, value: &f64| if surpasses(*value, extreme) || extreme.is_nan() { *value } else { extreme };
    let (first, rest) = values.split_first()?;
    Some(rest.iter().fold(*first, better))
}

/// The time in seconds of the first value that no other surpasses.
fn time_of_extreme(window: &SampleWindow<'_>, surpasses: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let mut extreme = (*window.timestamps_ms.first()?, *window.values.first()?);
    for (time_ms, value) in window.timestamps_ms.iter().zip(window.values) {
        if surpasses(*value, extreme.1) || extreme.1.is_nan() {
            extreme = (*time_ms, *value);
        }
    }
    Some(seconds(extreme.0))
}

fn sum(values: &[f64]) -> f64 {
    let total = values.iter().fold(CompensatedSum::default(), |total, value| total.plus(*value));
    if total.sum.is_infinite() { total.sum } else { total.value() }
}

/// The sum since the last multiple of the range's length, as a counter of samples that are not negative. At such a multiple it is 0, so
/// that the reset is seen whatever follows, and the sample there counts from the next step on.
///
/// It is added up without compensation: then it never falls from one step to the next.
fn total_of_period(window: &SampleWindow<'_>) -> f64 {
    let period_ms = window.range_ms.max(1);
    let begin_ms = window.end_ms.div_euclid(period_ms) * period_ms;
    if begin_ms == window.end_ms {
        return 0.0;
    }
    let first = window.timestamps_ms.partition_point(|time_ms| *time_ms < begin_ms);
    window.values.get(first..).unwrap_or_default().iter().fold(0.0, |sum, value| sum + value)
}

fn mean(values: &[f64]) -> f64 {
    let Some((first, rest)) = values.split_first() else { return f64::NAN };
    let mut mean = Mean::new(*first);
    for value in rest {
        mean.add(*value);
    }
    mean.value()
}

/// The population variance, by Welford's method with compensated sums.
fn variance(values: &[f64]) -> f64 {
    let mut count = 0.0;
    let mut mean = CompensatedSum::default();
    let mut squares = CompensatedSum::default();
    for value in values {
        count += 1.0;
        let delta = value - mean.value();
        mean = mean.plus(delta / count);
        squares = squares.plus(delta * (value - mean.value()));
    }
    squares.value() / count
}

fn derivative(window: &SampleWindow<'_>) -> Option<f64> {
    // Relative to the first sample, so that the times stay small and exact.
    let (slope, _) = regression(window, *window.timestamps_ms.first()?)?;
    Some(slope)
}

fn predict(window: &SampleWindow<'_>) -> Option<f64> {
    let (slope, intercept) = regression(window, window.time_ms)?;
    Some(slope * window.scalars[0] + intercept)
}

/// Least squares: the slope per second, and the value at the given time.
fn regression(window: &SampleWindow<'_>, origin_ms: i64) -> Option<(f64, f64)> {
    let first = *window.values.first()?;
    let count = window.values.len() as f64;
    if window.values.len() < 2 {
        return None;
    }
    #[expect(clippy::float_cmp, reason = "only a line of exactly equal values has no slope at all")]
    if window.values.iter().skip(1).all(|value| *value == first) {
        return Some(if first.is_infinite() { (f64::NAN, f64::NAN) } else { (0.0, first) });
    }
    let [mut times, mut values, mut products, mut squares] = [CompensatedSum::default(); 4];
    for (time_ms, y) in window.timestamps_ms.iter().zip(window.values) {
        let x = seconds(time_ms - origin_ms);
        times = times.plus(x);
        values = values.plus(*y);
        products = products.plus(x * y);
        squares = squares.plus(x * x);
    }
    let [times, values, products, squares] = [times, values, products, squares].map(CompensatedSum::value);
    let covariance = products - times * values / count;
    let variance = squares - times * times / count;
    let slope = covariance / variance;
    Some((slope, values / count - slope * times / count))
}

fn check_factors([smoothing, trend]: [f64; 2]) -> Result<(), QueryError> {
    for (name, short, factor) in [("smoothing", "sf", smoothing), ("trend", "tf", trend)] {
        if factor <= 0.0 || factor >= 1.0 {
            let shown = if factor.is_finite() { format!("{factor:.6}") } else { number::plain(factor) };
            let message = format!("invalid {name} factor. Expected: 0 < {short} < 1, got: {shown}");
            return Err(QueryError::Execution(message));
        }
    }
    Ok(())
}

/// Holt's linear smoothing with a smoothing and a trend factor.
fn smooth(window: &SampleWindow<'_>) -> Option<f64> {
    let [smoothing, trend] = window.scalars;
    let [first, second, ..] = window.values else { return None };
    let (mut before, mut level, mut slope) = (0.0, *first, second - first);
    for (index, value) in window.values.iter().skip(1).enumerate() {
        if index > 0 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + slope);
        (before, level) = (level, next);
    }
    Some(level)
}

//! Functions of a range of samples.

use query::QueryError;

use crate::sum::{CompensatedSum, Mean, quantile};

/// A function of a range of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowFunction {
    Average,
    Changes,
    Count,
    Delta,
    Derivative,
    DoubleExponentialSmoothing,
    First,
    Increase,
    InstantDelta,
    InstantRate,
    Last,
    Maximum,
    MedianAbsoluteDeviation,
    Minimum,
    PredictLinear,
    Present,
    Quantile,
    Rate,
    Resets,
    StandardDeviation,
    Sum,
    TimestampOfFirst,
    TimestampOfLast,
    TimestampOfMaximum,
    TimestampOfMinimum,
    Variance,
}

/// The samples in a window that is open at its start and closed at its end.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    pub(crate) timestamps_ms: &'a [i64],
    /// As many as timestamps; never empty.
    pub(crate) values: &'a [f64],
    /// For functions that ask for [`Marks`]: the marked values before which something happened, in order.
    pub(crate) marked: MarkedValues<'a>,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// The time of evaluation; differs from the end by the offset.
    pub(crate) time_ms: i64,
    /// The scalar arguments at this step.
    pub(crate) scalars: [f64; 2],
}

/// Places in a series where its value drops (a counter's reset) or changes, found once per series, so that a window
/// looks at these only.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    places: Vec<usize>,
}

/// The marks inside a window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MarkedValues<'a> {
    places: &'a [usize],
    series: &'a [f64],
}

impl Marks {
    pub(crate) fn find(function: WindowFunction, values: &[f64]) -> Self {
        let marks: fn(f64, f64) -> bool = match function {
            WindowFunction::Rate | WindowFunction::Increase | WindowFunction::Resets => |before, now| now < before,
            #[expect(clippy::float_cmp, reason = "a change of any size counts")]
            WindowFunction::Changes => |before, now| now != before && !(now.is_nan() && before.is_nan()),
            _ => return Self::default(),
        };
        let pairs = values.windows(2).enumerate();
        Self { places: pairs.filter(|(_, pair)| marks(pair[0], pair[1])).map(|(place, _)| place + 1).collect() }
    }

    /// The marks between two samples of a window, given by the places of its first sample and of its end.
    pub(crate) fn within<'a>(&'a self, first: usize, end: usize, series: &'a [f64]) -> MarkedValues<'a> {
        let from = self.places.partition_point(|place| *place <= first);
        let to = self.places.partition_point(|place| *place < end);
        MarkedValues { places: self.places.get(from..to).unwrap_or_default(), series }
    }
}

impl MarkedValues<'_> {
    fn count(&self) -> f64 {
        self.places.len() as f64
    }

    /// The values just before the marks.
    fn before(&self) -> impl Iterator<Item = f64> {
        self.places.iter().filter_map(|place| self.series.get(place - 1).copied())
    }
}

impl WindowFunction {
    /// Whether the result is still the same metric.
    pub(crate) fn keeps_name(self) -> bool {
        matches!(self, Self::First | Self::Last)
    }

    /// Whether the series should be a counter.
    pub(crate) fn wants_counter(self) -> bool {
        matches!(self, Self::Rate | Self::Increase)
    }

    /// The value for a window; `None` if it has too few samples. `scratch` is reused between calls.
    pub(crate) fn apply(self, window: &Window<'_>, scratch: &mut Vec<f64>) -> Result<Option<f64>, QueryError> {
        let values = window.values;
        let (first, last) = (values.first().copied(), values.last().copied());
        let value = match self {
            Self::Rate => return Ok(extrapolate(window, true, true)),
            Self::Increase => return Ok(extrapolate(window, true, false)),
            Self::Delta => return Ok(extrapolate(window, false, false)),
            Self::InstantRate => return Ok(last_two(window, true)),
            Self::InstantDelta => return Ok(last_two(window, false)),
            Self::Derivative => return Ok(derivative(window)),
            Self::PredictLinear => return Ok(predict(window)),
            Self::DoubleExponentialSmoothing => return smooth(window),
            Self::First => return Ok(first),
            Self::Last => return Ok(last),
            Self::TimestampOfFirst => return Ok(window.timestamps_ms.first().map(|time| seconds(*time))),
            Self::TimestampOfLast => return Ok(window.timestamps_ms.last().map(|time| seconds(*time))),
            Self::TimestampOfMaximum => return Ok(extreme(window, |now, best| now >= best).map(|(time, _)| time)),
            Self::TimestampOfMinimum => return Ok(extreme(window, |now, best| now <= best).map(|(time, _)| time)),
            Self::Maximum => return Ok(extreme(window, |now, best| now > best).map(|(_, value)| value)),
            Self::Minimum => return Ok(extreme(window, |now, best| now < best).map(|(_, value)| value)),
            Self::Average => mean(values),
            Self::Sum => sum(values),
            Self::Count => values.len() as f64,
            Self::Present => 1.0,
            Self::Changes | Self::Resets => window.marked.count(),
            Self::Variance => variance(values),
            Self::StandardDeviation => variance(values).sqrt(),
            Self::Quantile => quantile(window.scalars[0], copied(values, scratch)),
            Self::MedianAbsoluteDeviation => {
                let median = quantile(0.5, copied(values, scratch));
                for value in scratch.iter_mut() {
                    *value = (*value - median).abs();
                }
                quantile(0.5, scratch)
            }
        };
        Ok(Some(value))
    }
}

fn copied<'s>(values: &[f64], scratch: &'s mut Vec<f64>) -> &'s mut [f64] {
    scratch.clear();
    scratch.extend_from_slice(values);
    scratch
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// The difference of the last and the first value, for counters with what resets took away, stretched to the whole
/// window: up to its bounds if the samples come close to them, else by half of their average distance. A counter is
/// not stretched beyond the point where it would have been zero.
fn extrapolate(window: &Window<'_>, counter: bool, per_second: bool) -> Option<f64> {
    let (first, last) = (*window.values.first()?, *window.values.last()?);
    let (first_ms, last_ms) = (*window.timestamps_ms.first()?, *window.timestamps_ms.last()?);
    if window.values.len() < 2 {
        return None;
    }
    let mut total = last - first;
    if counter {
        total = window.marked.before().fold(total, |total, before| total + before);
    }
    let sampled_s = seconds(last_ms - first_ms);
    let distance_s = sampled_s / (window.values.len() as f64 - 1.0);
    let near_s = distance_s * 1.1;
    let stretch = |gap_s: f64| if gap_s >= near_s { distance_s / 2.0 } else { gap_s };
    let mut to_start_s = stretch(seconds(first_ms - window.start_ms));
    let to_end_s = stretch(seconds(window.end_ms - last_ms));
    if counter && total > 0.0 && first >= 0.0 {
        let to_zero_s = sampled_s * (first / total);
        if to_zero_s < to_start_s {
            to_start_s = to_zero_s;
        }
    }
    let mut factor = (sampled_s + to_start_s + to_end_s) / sampled_s;
    if per_second {
        factor /= seconds(window.end_ms - window.start_ms);
    }
    Some(total * factor)
}

/// The difference of the last two values; for counters (which start from zero after a reset) per second.
fn last_two(window: &Window<'_>, counter: bool) -> Option<f64> {
    let [.., before_ms, last_ms] = window.timestamps_ms else { return None };
    let [.., before, last] = window.values else { return None };
    if last_ms == before_ms {
        return None;
    }
    let reset = counter && last < before;
    let difference = if reset { *last } else { last - before };
    Some(if counter { difference / seconds(last_ms - before_ms) } else { difference })
}

/// The first value that no other surpasses, with its time in seconds; NaN only if there is nothing else.
fn extreme(window: &Window<'_>, surpasses: impl Fn(f64, f64) -> bool) -> Option<(f64, f64)> {
    let mut best = (*window.timestamps_ms.first()?, *window.values.first()?);
    for (time_ms, value) in window.timestamps_ms.iter().zip(window.values) {
        if surpasses(*value, best.1) || best.1.is_nan() {
            best = (*time_ms, *value);
        }
    }
    Some((seconds(best.0), best.1))
}

fn sum(values: &[f64]) -> f64 {
    let total = values.iter().fold(CompensatedSum::default(), |total, value| total.plus(*value));
    if total.sum.is_infinite() { total.sum } else { total.value() }
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

fn derivative(window: &Window<'_>) -> Option<f64> {
    // Seen from the first sample, so that the times stay small and exact.
    let (slope, _) = regression(window, *window.timestamps_ms.first()?)?;
    Some(slope)
}

fn predict(window: &Window<'_>) -> Option<f64> {
    let (slope, intercept) = regression(window, window.time_ms)?;
    Some(slope * window.scalars[0] + intercept)
}

/// Least squares: the slope per second, and the value at the given time.
fn regression(window: &Window<'_>, origin_ms: i64) -> Option<(f64, f64)> {
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

/// Holt's linear smoothing with a smoothing and a trend factor.
fn smooth(window: &Window<'_>) -> Result<Option<f64>, QueryError> {
    let [smoothing, trend] = window.scalars;
    for (name, short, factor) in [("smoothing", "sf", smoothing), ("trend", "tf", trend)] {
        if factor <= 0.0 || factor >= 1.0 {
            let message = format!("invalid {name} factor. Expected: 0 < {short} < 1, got: {factor:.6}");
            return Err(QueryError::Execution(message));
        }
    }
    let [first, second, ..] = window.values else { return Ok(None) };
    let (mut before, mut level, mut slope) = (0.0, *first, second - first);
    for (place, value) in window.values.iter().skip(1).enumerate() {
        if place > 0 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + slope);
        (before, level) = (level, next);
    }
    Ok(Some(level))
}

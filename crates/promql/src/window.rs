//! Functions of a range of samples.

use std::sync::Arc;

use query::{QueryError, WindowValue};

use crate::histogram::Histogram;
use crate::histogram_fold::HistogramFold;
use crate::notes::Notes;
use crate::rate::{self, Change};
use crate::rows::Sample;
use crate::sum::{CompensatedSum, Mean, quantile};
use crate::syntax::ast::Edges;
use crate::syntax::number;
use crate::syntax::span::Span;
use crate::window_places::WindowRun;

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

/// The samples in a window that is open at its start and closed at its end. Of anchored and smoothed selectors samples
/// around it are there too.
#[derive(Debug)]
pub(crate) struct Window<'a> {
    pub(crate) timestamps_ms: &'a [i64],
    /// As many as timestamps.
    pub(crate) values: &'a [f64],
    pub(crate) histogram_timestamps_ms: &'a [i64],
    /// As many as their timestamps. There is a float or a histogram at least.
    pub(crate) histograms: &'a [Arc<Histogram>],
    /// For functions that ask for [`Marks`]: the marked values before which something happened, in order.
    pub(crate) marked: MarkedValues<'a>,
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    pub(crate) range_ms: i64,
    /// The time of evaluation; differs from the end by the offset.
    pub(crate) time_ms: i64,
    /// The scalar arguments at this step.
    pub(crate) scalars: [f64; 2],
    pub(crate) edges: Edges,
    /// The metric's name, for notes.
    pub(crate) name: &'a str,
    /// Where the window's expression is, for notes.
    pub(crate) span: Span,
    /// Where the first argument is, which for quantiles is the quantile.
    pub(crate) quantile_span: Span,
    pub(crate) notes: &'a Notes,
}

/// Places in a series where its value drops (a counter's reset) or changes, found once per series, so that a window
/// looks at these only.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    places: Vec<usize>,
    /// Whether it is known that no value is below the one before, and none is not a number.
    pub(crate) rises: bool,
}

/// The marks inside a window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkedValues<'a> {
    places: &'a [usize],
    series: &'a [f64],
}

impl Marks {
    #[expect(clippy::needless_bitwise_bool, reason = "what always runs is computed for several values at once")]
    pub(crate) fn find(function: WindowFunction, values: &[f64]) -> Self {
        match function {
            WindowFunction::Rate | WindowFunction::Increase | WindowFunction::Resets => {
                // Most counters are never reset, which is found out without looking at one value after the other.
                let pairs = values.iter().zip(values.get(1..).unwrap_or_default());
                if pairs.fold(values.len() > 1, |rises, (before, now)| rises & (now >= before)) {
                    return Self { rises: true, ..Self::default() };
                }
                Self::where_pairs(values, |before, now| now < before)
            }
            #[expect(clippy::float_cmp, reason = "a change of any size counts")]
            WindowFunction::Changes => {
                Self::where_pairs(values, |before, now| now != before && !(now.is_nan() && before.is_nan()))
            }
            _ => Self::default(),
        }
    }

    fn where_pairs(values: &[f64], marks: impl Fn(f64, f64) -> bool) -> Self {
        let pairs = || values.iter().zip(values.get(1..).unwrap_or_default());
        if !pairs().fold(false, |found, (before, now)| found | marks(*before, *now)) {
            return Self::default();
        }
        let marked = pairs().enumerate().filter(|(_, (before, now))| marks(**before, **now));
        Self { places: marked.map(|(place, _)| place + 1).collect(), rises: false }
    }

    /// Walks along them.
    pub(crate) fn walk<'a>(&'a self, series: &'a [f64]) -> MarksWalk<'a> {
        MarksWalk { rest: &self.places, series }
    }
}

/// The marks that windows which only move forward have not left behind.
pub(crate) struct MarksWalk<'a> {
    rest: &'a [usize],
    series: &'a [f64],
}

impl<'a> MarksWalk<'a> {
    /// The first window of a run, from the one with a number on, that has a mark between two of its samples. Numbers may only grow.
    pub(crate) fn next_in(&mut self, run: &WindowRun, from: usize) -> Option<usize> {
        let mut number = from;
        while number < run.count {
            let (first, end) = run.at(number);
            self.leave_behind(first);
            let place = *self.rest.first()?;
            if place < end {
                return Some(number);
            }
            // Windows that do not move never come to it.
            number += (place - end).checked_div(run.stride as usize)? + 1;
        }
        None
    }

    /// Goes past marks that are not behind a sample.
    fn leave_behind(&mut self, first: usize) {
        while let Some((_, behind)) = self.rest.split_first().filter(|(place, _)| **place <= first) {
            self.rest = behind;
        }
    }

    /// The marks between two samples of a window, given by the places of its first sample and of its end; neither may be before those of an
    /// earlier window.
    pub(crate) fn within(&mut self, first: usize, end: usize) -> MarkedValues<'a> {
        self.leave_behind(first);
        let inside = if self.rest.first().is_some_and(|place| *place < end) {
            self.rest.partition_point(|place| *place < end)
        } else {
            0
        };
        MarkedValues { places: self.rest.get(..inside).unwrap_or_default(), series: self.series }
    }
}

impl MarkedValues<'_> {
    fn count(&self) -> f64 {
        self.places.len() as f64
    }

    /// The values just before the marks.
    pub(crate) fn before(&self) -> impl Iterator<Item = f64> {
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

    /// What changes over windows it tells, if it does so from first to last sample.
    pub(crate) const fn change(self) -> Option<Change> {
        match self {
            Self::Rate => Some(Change { counter: true, per_second: true }),
            Self::Increase => Some(Change { counter: true, per_second: false }),
            Self::Delta => Some(Change { counter: false, per_second: false }),
            _ => None,
        }
    }

    /// What it tells of a window, if summaries of samples know that to the bit: sums of floats depend on how they were added up.
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

    /// The value for a window of floats alone, of functions that look at nothing else; `None` of others.
    pub(crate) fn of_values(self, values: &[f64]) -> Option<f64> {
        match self {
            Self::Average => Some(mean(values)),
            Self::Sum => Some(sum(values)),
            Self::Count => Some(values.len() as f64),
            Self::Present => Some(1.0),
            Self::First => values.first().copied(),
            Self::Last => values.last().copied(),
            Self::Maximum => extreme(values, |now, best| now > best),
            Self::Minimum => extreme(values, |now, best| now < best),
            Self::Variance => Some(variance(values)),
            Self::StandardDeviation => Some(variance(values).sqrt()),
            _ => None,
        }
    }

    /// The value for a window; `None` if it has too few samples. `scratch` is reused between calls.
    pub(crate) fn apply(self, window: &Window<'_>, scratch: &mut Vec<f64>) -> Result<Option<Sample>, QueryError> {
        if let Some(change) = self.change() {
            return Ok(rate::over_window(window, change));
        }
        match self {
            Self::InstantRate => Ok(rate::of_last_two(window, true)),
            Self::InstantDelta => Ok(rate::of_last_two(window, false)),
            Self::First => Ok(first(window)),
            Self::Last => Ok(last(window)),
            Self::Sum | Self::Average if !window.histograms.is_empty() => Ok(self.of_histograms(window)),
            Self::Changes | Self::Resets if window.edges != Edges::Plain || !window.histograms.is_empty() => {
                Ok(self.events(window).map(Sample::Float))
            }
            Self::Count => Ok(Some(Sample::Float((window.values.len() + window.histograms.len()) as f64))),
            Self::Present => Ok(Some(Sample::Float(1.0))),
            Self::TimestampOfFirst => Ok(end_time(window, <[i64]>::first, i64::min)),
            Self::TimestampOfLast => Ok(end_time(window, <[i64]>::last, i64::max)),
            _ => Ok(self.of_floats(window, scratch)?.map(Sample::Float)),
        }
    }

    /// Functions that leave out histograms.
    fn of_floats(self, window: &Window<'_>, scratch: &mut Vec<f64>) -> Result<Option<f64>, QueryError> {
        if self == Self::DoubleExponentialSmoothing {
            check_factors(window.scalars)?;
        }
        let values = window.values;
        if values.is_empty() {
            return Ok(None);
        }
        if !window.histograms.is_empty() {
            window.notes.ignored_in_range(window.name, window.span);
        }
        let value = match self {
            Self::Derivative => return Ok(derivative(window)),
            Self::PredictLinear => return Ok(predict(window)),
            Self::DoubleExponentialSmoothing => return Ok(smooth(window)),
            Self::TimestampOfMaximum => return Ok(time_of_extreme(window, |now, best| now >= best)),
            Self::TimestampOfMinimum => return Ok(time_of_extreme(window, |now, best| now <= best)),
            Self::Changes | Self::Resets => window.marked.count(),
            Self::Quantile => {
                window.notes.check_quantile(window.scalars[0], window.quantile_span);
                quantile(window.scalars[0], copied(values, scratch))
            }
            Self::MedianAbsoluteDeviation if values.iter().any(|value| value.is_nan()) => f64::NAN,
            Self::MedianAbsoluteDeviation => {
                let median = quantile(0.5, copied(values, scratch));
                for value in scratch.iter_mut() {
                    *value = (*value - median).abs();
                }
                quantile(0.5, scratch)
            }
            _ => return Ok(self.of_values(values)),
        };
        Ok(Some(value))
    }

    /// Sum or mean of histograms.
    fn of_histograms(self, window: &Window<'_>) -> Option<Sample> {
        let (notes, name, span) = (window.notes, window.name, window.span);
        if !window.values.is_empty() {
            notes.mixed_samples(name, span);
            return None;
        }
        let (first, rest) = window.histograms.split_first()?;
        let mut fold = HistogramFold::new(first, self == Self::Average);
        for histogram in rest {
            if fold.add(histogram).is_err() {
                notes.mixed_schemas(name, span);
                return None;
            }
        }
        fold.tell(notes, span);
        Some(fold.finish().into())
    }

    /// Changes or resets over samples of both kinds.
    fn events(self, window: &Window<'_>) -> Option<f64> {
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
        let happened =
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
        Some(samples.windows(2).filter(|pair| happened(pair)).count() as f64)
    }
}

fn first(window: &Window<'_>) -> Option<Sample> {
    let float = window.timestamps_ms.first().zip(window.values.first());
    let histogram = window.histogram_timestamps_ms.first().zip(window.histograms.first());
    match (float, histogram) {
        (Some((time, value)), Some((other, _))) if time < other => Some(Sample::Float(*value)),
        (_, Some((_, histogram))) => Some(Sample::Histogram(Arc::clone(histogram))),
        (float, None) => float.map(|(_, value)| Sample::Float(*value)),
    }
}

fn last(window: &Window<'_>) -> Option<Sample> {
    let float = window.timestamps_ms.last().zip(window.values.last());
    let histogram = window.histogram_timestamps_ms.last().zip(window.histograms.last());
    match (float, histogram) {
        (Some((time, value)), Some((other, _))) if time > other => Some(Sample::Float(*value)),
        (_, Some((_, histogram))) => Some(Sample::Histogram(Arc::clone(histogram))),
        (float, None) => float.map(|(_, value)| Sample::Float(*value)),
    }
}

fn end_time(
    window: &Window<'_>,
    end: impl Fn(&[i64]) -> Option<&i64>,
    choose: impl Fn(i64, i64) -> i64,
) -> Option<Sample> {
    let times = [window.timestamps_ms, window.histogram_timestamps_ms];
    let time_ms = times.into_iter().filter_map(|times| end(times).copied()).reduce(choose)?;
    Some(Sample::Float(seconds(time_ms)))
}

fn copied<'s>(values: &[f64], scratch: &'s mut Vec<f64>) -> &'s mut [f64] {
    scratch.clear();
    scratch.extend_from_slice(values);
    scratch
}

fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// The first value that no other surpasses; NaN only if there is nothing else.
fn extreme(values: &[f64], surpasses: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let better = |best: f64, value: &f64| if surpasses(*value, best) || best.is_nan() { *value } else { best };
    let (first, rest) = values.split_first()?;
    Some(rest.iter().fold(*first, better))
}

/// The time in seconds of the first value that no other surpasses.
fn time_of_extreme(window: &Window<'_>, surpasses: impl Fn(f64, f64) -> bool) -> Option<f64> {
    let mut best = (*window.timestamps_ms.first()?, *window.values.first()?);
    for (time_ms, value) in window.timestamps_ms.iter().zip(window.values) {
        if surpasses(*value, best.1) || best.1.is_nan() {
            best = (*time_ms, *value);
        }
    }
    Some(seconds(best.0))
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
fn smooth(window: &Window<'_>) -> Option<f64> {
    let [smoothing, trend] = window.scalars;
    let [first, second, ..] = window.values else { return None };
    let (mut before, mut level, mut slope) = (0.0, *first, second - first);
    for (place, value) in window.values.iter().skip(1).enumerate() {
        if place > 0 {
            slope = trend * (level - before) + (1.0 - trend) * slope;
        }
        let next = smoothing * value + (1.0 - smoothing) * (level + slope);
        (before, level) = (level, next);
    }
    Some(level)
}

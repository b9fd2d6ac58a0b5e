//! Values between samples, for `smoothed` and `anchored` selectors.

use std::sync::Arc;

use crate::eval::annotations::{AnnotationContext, HistogramOperation};
use crate::eval::rows::Sample;
use crate::histogram::native::{CounterReset, Histogram};
use crate::histogram::sum::IncompatibleBuckets;
use crate::range::samples::Samples;

/// A float and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FloatPoint {
    pub(crate) time_ms: i64,
    pub(crate) value: f64,
}

/// A histogram and its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HistogramPoint<'a> {
    pub(crate) time_ms: i64,
    pub(crate) histogram: &'a Histogram,
}

impl FloatPoint {
    /// The sample at an index.
    pub(crate) fn at(times_ms: &[i64], values: &[f64], index: usize) -> Option<Self> {
        Some(Self { time_ms: *times_ms.get(index)?, value: *values.get(index)? })
    }
}

impl<'a> HistogramPoint<'a> {
    /// The sample at an index.
    pub(crate) fn at(times_ms: &[i64], histograms: &'a [Arc<Histogram>], index: usize) -> Option<Self> {
        Some(Self { time_ms: *times_ms.get(index)?, histogram: histograms.get(index)? })
    }
}

/// On the line between two points; a counter that was reset in between starts from zero.
pub(crate) fn between(before: FloatPoint, after: FloatPoint, time_ms: i64, counter: bool) -> f64 {
    let start = if counter && after.value < before.value { 0.0 } else { before.value };
    start + (after.value - start) * (time_ms - before.time_ms) as f64 / (after.time_ms - before.time_ms) as f64
}

/// As [`between`], of histograms.
pub(crate) fn histogram_between(
    before: HistogramPoint<'_>,
    after: HistogramPoint<'_>,
    time_ms: i64,
    counter: bool,
    context: AnnotationContext<'_>,
) -> Result<Histogram, IncompatibleBuckets> {
    if time_ms == before.time_ms {
        return Ok(before.histogram.clone());
    }
    let mut result = after.histogram.clone();
    if time_ms == after.time_ms {
        return Ok(result);
    }
    let fraction = (time_ms - before.time_ms) as f64 / (after.time_ms - before.time_ms) as f64;
    if counter && after.histogram.is_reset_after(before.histogram) {
        result.multiply(fraction);
        return Ok(result);
    }
    if result.subtract(before.histogram)?.bounds_reconciled {
        context.annotations.bounds_reconciled(HistogramOperation::Subtraction, context.span);
    }
    result.multiply(fraction);
    if result.add(before.histogram)?.bounds_reconciled {
        context.annotations.bounds_reconciled(HistogramOperation::Addition, context.span);
    }
    Ok(result)
}

/// The value of a smoothed series at a time, from the samples around it.
pub(crate) fn at(samples: &Samples, time_ms: i64, context: AnnotationContext<'_>) -> Option<Sample> {
    match (samples.values.is_empty(), samples.histograms.is_empty()) {
        (false, false) => {
            context.annotations.mixed_samples(context.name, context.span);
            None
        }
        (_, true) => float_at(samples, time_ms).map(Sample::Float),
        (true, false) => histogram_at(samples, time_ms, context).map(Sample::Histogram),
    }
}

fn float_at(samples: &Samples, time_ms: i64) -> Option<f64> {
    let timestamps = &samples.timestamps_ms;
    let point = |index: usize| FloatPoint::at(timestamps, &samples.values, index);
    let index = timestamps.partition_point(|time| *time < time_ms);
    let after = point(index);
    if let Some(after) = after.filter(|after| after.time_ms == time_ms) {
        return Some(after.value);
    }
    let before = point(index.checked_sub(1)?)?;
    Some(after.map_or(before.value, |after| between(before, after, time_ms, false)))
}

fn histogram_at(samples: &Samples, time_ms: i64, context: AnnotationContext<'_>) -> Option<Arc<Histogram>> {
    let timestamps = &samples.histogram_timestamps_ms;
    let point = |index: usize| HistogramPoint::at(timestamps, &samples.histograms, index);
    let index = timestamps.partition_point(|time| *time < time_ms);
    if timestamps.get(index) == Some(&time_ms) {
        return samples.histograms.get(index).cloned();
    }
    let before = point(index.checked_sub(1)?)?;
    let Some(after) = point(index) else {
        return Some(Arc::new(Histogram { hint: CounterReset::Unknown, ..before.histogram.clone() }));
    };
    let is_gauge = |point: &HistogramPoint<'_>| point.histogram.hint == CounterReset::Gauge;
    let counter = !is_gauge(&before) || !is_gauge(&after);
    match histogram_between(before, after, time_ms, counter, context) {
        Ok(histogram) => Some(Arc::new(histogram)),
        Err(IncompatibleBuckets) => {
            context.annotations.mixed_schemas(context.name, context.span);
            None
        }
    }
}

/// The bounds of an anchored or smoothed window in its samples: the last one not later than the start (or the first), and
/// the last one (smoothed: the first not earlier than the end).
pub(crate) fn edge_samples(times: &[i64], start_ms: i64, end_ms: i64, smoothed: bool) -> Option<(usize, usize)> {
    let mut last = times.len().checked_sub(1)?;
    let inner = times.get(..last).unwrap_or_default();
    let first = inner.partition_point(|time| *time <= start_ms).saturating_sub(1);
    if smoothed {
        last = inner.partition_point(|time| *time < end_ms);
    }
    let ends_before = times.get(last).is_none_or(|time| *time <= start_ms);
    let starts_after = smoothed && times.get(first).is_none_or(|time| *time > end_ms);
    (!ends_before && !starts_after).then_some((first, last))
}

/// The value at the start of a window.
pub(crate) fn value_at_start(
    points: impl Fn(usize) -> Option<FloatPoint>,
    first: usize,
    start_ms: i64,
    smoothed: bool,
    counter: bool,
) -> Option<f64> {
    let point = points(first)?;
    if smoothed && point.time_ms < start_ms {
        return Some(between(point, points(first + 1)?, start_ms, counter));
    }
    Some(point.value)
}

/// The value at the end of a window.
pub(crate) fn value_at_end(
    points: impl Fn(usize) -> Option<FloatPoint>,
    last: usize,
    end_ms: i64,
    smoothed: bool,
    counter: bool,
) -> Option<f64> {
    let point = points(last)?;
    if smoothed && last > 0 && point.time_ms > end_ms {
        return Some(between(points(last - 1)?, point, end_ms, counter));
    }
    Some(point.value)
}

/// Puts values at both edges of a window, and drops what is outside.
pub(crate) fn extend(samples: &mut Samples, start_ms: i64, end_ms: i64, smoothed: bool) {
    let times = &samples.timestamps_ms;
    let extended = (|| {
        let last = times.len().checked_sub(1)?;
        let inner = times.get(..last).unwrap_or_default();
        let first = inner.partition_point(|time| *time <= start_ms).saturating_sub(1);
        let last = if smoothed { inner.partition_point(|time| *time < end_ms) } else { last };
        if *times.get(last)? <= start_ms {
            return None;
        }
        let point = |index: usize| FloatPoint::at(times, &samples.values, index);
        let at_start = value_at_start(point, first, start_ms, smoothed, false)?;
        let at_end = value_at_end(point, last, end_ms, smoothed, false)?;
        let inside =
            (first..=last).filter_map(point).filter(|point| point.time_ms > start_ms && point.time_ms < end_ms);
        let inside = inside.map(|point| (point.time_ms, point.value));
        Some(std::iter::once((start_ms, at_start)).chain(inside).chain([(end_ms, at_end)]).collect::<Vec<_>>())
    })();
    let (times_ms, values): (Vec<i64>, _) = extended.unwrap_or_default().into_iter().unzip();
    (samples.timestamps_ms, samples.values) = (Arc::new(times_ms), values);
}

//! Values between samples, for `smoothed` and `anchored` selectors.

use std::sync::Arc;

use crate::eval::annotations::{Annotations, HistogramOperation};
use crate::eval::rows::Sample;
use crate::histogram::native::{CounterReset, Histogram};
use crate::histogram::sum::IncompatibleBuckets;
use crate::range::samples::Samples;
use crate::syntax::span::Span;

/// A float and its time in milliseconds.
pub(crate) type Point = (i64, f64);

/// On the line between two points; a counter that was reset in between starts from zero.
pub(crate) fn between(before: Point, after: Point, time_ms: i64, counter: bool) -> f64 {
    let start = if counter && after.1 < before.1 { 0.0 } else { before.1 };
    start + (after.1 - start) * (time_ms - before.0) as f64 / (after.0 - before.0) as f64
}

/// As [`between`], of histograms.
pub(crate) fn histogram_between(
    before: (i64, &Histogram),
    after: (i64, &Histogram),
    time_ms: i64,
    counter: bool,
    (annotations, span): (&Annotations, Span),
) -> Result<Histogram, IncompatibleBuckets> {
    if time_ms == before.0 {
        return Ok(before.1.clone());
    }
    let mut result = after.1.clone();
    if time_ms == after.0 {
        return Ok(result);
    }
    let fraction = (time_ms - before.0) as f64 / (after.0 - before.0) as f64;
    if counter && after.1.is_reset_after(before.1) {
        result.multiply(fraction);
        return Ok(result);
    }
    if result.subtract(before.1)?.bounds_reconciled {
        annotations.bounds_reconciled(HistogramOperation::Subtraction, span);
    }
    result.multiply(fraction);
    if result.add(before.1)?.bounds_reconciled {
        annotations.bounds_reconciled(HistogramOperation::Addition, span);
    }
    Ok(result)
}

/// The value of a smoothed series at a time, out of the samples around it.
pub(crate) fn at(samples: &Samples, time_ms: i64, annotations: &Annotations, name: &str, span: Span) -> Option<Sample> {
    if !samples.histograms.is_empty() && !samples.values.is_empty() {
        annotations.mixed_samples(name, span);
        return None;
    }
    let (times, is_float) = if samples.histograms.is_empty() {
        (&*samples.timestamps_ms, true)
    } else {
        (&samples.histogram_timestamps_ms, false)
    };
    let index = times.partition_point(|time| *time < time_ms);
    let float = |index: usize| Some((*times.get(index)?, *samples.values.get(index)?));
    let histogram = |index: usize| Some((*times.get(index)?, &**samples.histograms.get(index)?));
    if times.get(index) == Some(&time_ms) {
        return if is_float {
            float(index).map(|(_, value)| Sample::Float(value))
        } else {
            samples.histograms.get(index).map(|histogram| Sample::Histogram(Arc::clone(histogram)))
        };
    }
    let before = index.checked_sub(1)?;
    if is_float {
        let before = float(before)?;
        let value = float(index).map_or(before.1, |after| between(before, after, time_ms, false));
        return Some(Sample::Float(value));
    }
    let before = histogram(before)?;
    let Some(after) = histogram(index) else {
        return Some(Histogram { hint: CounterReset::Unknown, ..before.1.clone() }.into());
    };
    let counter = before.1.hint != CounterReset::Gauge || after.1.hint != CounterReset::Gauge;
    match histogram_between(before, after, time_ms, counter, (annotations, span)) {
        Ok(histogram) => Some(histogram.into()),
        Err(IncompatibleBuckets) => {
            annotations.mixed_schemas(name, span);
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
    points: impl Fn(usize) -> Option<Point>,
    first: usize,
    start_ms: i64,
    smoothed: bool,
    counter: bool,
) -> Option<f64> {
    let point = points(first)?;
    if smoothed && point.0 < start_ms {
        return Some(between(point, points(first + 1)?, start_ms, counter));
    }
    Some(point.1)
}

/// The value at the end of a window.
pub(crate) fn value_at_end(
    points: impl Fn(usize) -> Option<Point>,
    last: usize,
    end_ms: i64,
    smoothed: bool,
    counter: bool,
) -> Option<f64> {
    let point = points(last)?;
    if smoothed && last > 0 && point.0 > end_ms {
        return Some(between(points(last - 1)?, point, end_ms, counter));
    }
    Some(point.1)
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
        let point = |index: usize| Some((*times.get(index)?, *samples.values.get(index)?));
        let value_at_start = value_at_start(point, first, start_ms, smoothed, false)?;
        let value_at_end = value_at_end(point, last, end_ms, smoothed, false)?;
        let inside = (first..=last).filter_map(point).filter(|(time, _)| *time > start_ms && *time < end_ms);
        Some(
            std::iter::once((start_ms, value_at_start))
                .chain(inside)
                .chain([(end_ms, value_at_end)])
                .collect::<Vec<_>>(),
        )
    })();
    let (times_ms, values): (Vec<i64>, _) = extended.unwrap_or_default().into_iter().unzip();
    (samples.timestamps_ms, samples.values) = (Arc::new(times_ms), values);
}

//! `rate`, `increase`, `delta`, `irate`, `idelta`: how much a value changes over a window.

use std::sync::Arc;

use crate::eval::annotations::{AnnotationContext, HistogramOperation};
use crate::eval::rows::Sample;
use crate::histogram::native::{CounterReset, Histogram};
use crate::histogram::sum::IncompatibleBuckets;
use crate::range::extrapolation::{ChangeKind, Extrapolation, WindowExtent, divisor_s, seconds};
use crate::range::interpolate::{self, FloatPoint, HistogramPoint};
use crate::range::marks::MarkedValues;
use crate::range::window::SampleWindow;
use crate::syntax::ast::Edges;

/// The change over the whole window.
pub(crate) fn change_over_window(window: &SampleWindow<'_>, change: ChangeKind) -> Option<Sample> {
    if !window.values.is_empty() && !window.histograms.is_empty() {
        window.annotations.mixed_samples(window.name, window.span);
        return None;
    }
    match (window.edges, window.histograms.is_empty()) {
        (Edges::Plain, true) => extrapolated_change(window, change).map(Sample::Float),
        (Edges::Plain, false) => extrapolated_histogram(window, change),
        (_, true) => change_between_edges(window, change).map(Sample::Float),
        (_, false) => histogram_change_between_edges(window, change),
    }
}

/// The change between the first and the last of some floats, for counters with what resets took away, over the whole window.
pub(crate) fn extrapolated_float_change(
    first: f64,
    last: f64,
    marked: MarkedValues<'_>,
    extrapolation: &Extrapolation,
    counter: bool,
) -> f64 {
    let mut total = last - first;
    if counter {
        total = marked.before().fold(total, |total, before| total + before);
    }
    total * extrapolation.factor(total, counter.then_some(first))
}

pub(crate) fn extrapolated_change(window: &SampleWindow<'_>, change: ChangeKind) -> Option<f64> {
    let (first, last) = (*window.values.first()?, *window.values.last()?);
    let extent = WindowExtent::new(window.start_ms, window.end_ms, window.timestamps_ms)?;
    let extrapolation = Extrapolation::new(&extent, divisor_s(change, window.range_ms));
    Some(extrapolated_float_change(first, last, window.marked, &extrapolation, change.counter))
}

fn extrapolated_histogram(window: &SampleWindow<'_>, change: ChangeKind) -> Option<Sample> {
    let extent = WindowExtent::new(window.start_ms, window.end_ms, window.histogram_timestamps_ms)?;
    let mut total = match histogram_change(window, change.counter) {
        Ok(total) => total?,
        Err(IncompatibleBuckets) => {
            window.annotations.mixed_schemas(window.name, window.span);
            return None;
        }
    };
    let first = window.histograms.first()?.count;
    let extrapolation = Extrapolation::new(&extent, divisor_s(change, window.range_ms));
    let factor = extrapolation.factor(total.count, change.counter.then_some(first));
    total.multiply(factor);
    Some(total.into())
}

/// The difference of the last and the first histogram, for counters with what resets took away.
fn histogram_change(window: &SampleWindow<'_>, counter: bool) -> Result<Option<Histogram>, IncompatibleBuckets> {
    let [first, inner @ .., last] = window.histograms else { return Ok(None) };
    let (annotations, name, span) = (window.annotations, window.name, window.span);
    let is_gauge = |histogram: &Histogram| histogram.hint == CounterReset::Gauge;
    let mut before = Arc::clone(first);
    let mut custom = first.is_custom();
    if counter {
        if is_gauge(first) || is_gauge(last) {
            annotations.not_a_counter(name, span);
        }
        let second = inner.first().unwrap_or(last);
        if second.is_reset_after(first) {
            // The first one does not count then, whatever its buckets.
            custom = second.is_custom();
            before = Arc::new(Histogram {
                hint: CounterReset::Unknown,
                schema: second.schema,
                custom_bounds: second.custom_bounds.clone(),
                zero_threshold: 0.0,
                zero_count: 0.0,
                count: 0.0,
                sum: 0.0,
                positive: Vec::new(),
                negative: Vec::new(),
            });
        }
    }
    if last.is_custom() != custom {
        return Err(IncompatibleBuckets);
    }
    let mut schema = last.schema.min(before.schema);
    if counter {
        for histogram in inner {
            if is_gauge(histogram) {
                annotations.not_a_counter(name, span);
            }
            schema = schema.min(histogram.schema);
            if histogram.is_custom() != custom {
                return Err(IncompatibleBuckets);
            }
        }
    }
    let mut total = if last.is_custom() { Histogram::clone(last) } else { last.at_schema(schema) };
    if total.subtract(&before)?.bounds_reconciled {
        annotations.bounds_reconciled(HistogramOperation::Subtraction, span);
    }
    if counter {
        for now in inner.iter().chain([last]) {
            if now.is_reset_after(&before) && total.add(&before)?.bounds_reconciled {
                annotations.bounds_reconciled(HistogramOperation::Addition, span);
            }
            before = Arc::clone(now);
        }
    } else if !is_gauge(first) || !is_gauge(last) {
        annotations.not_a_gauge(name, span);
    }
    total.hint = CounterReset::Gauge;
    total.compact();
    Ok(Some(total))
}

/// The change between the edges of an anchored or smoothed window.
fn change_between_edges(window: &SampleWindow<'_>, change: ChangeKind) -> Option<f64> {
    let smoothed = window.edges == Edges::Smoothed;
    let (mut first, mut last) =
        interpolate::edge_samples(window.timestamps_ms, window.start_ms, window.end_ms, smoothed)?;
    let point = |index: usize| FloatPoint::at(window.timestamps_ms, window.values, index);
    let left = interpolate::value_at_start(point, first, window.start_ms, smoothed, change.counter)?;
    let right = interpolate::value_at_end(point, last, window.end_ms, smoothed, change.counter)?;
    let mut total = right - left;
    if change.counter {
        if *window.timestamps_ms.get(first)? <= window.start_ms {
            first += 1;
        }
        let inside = if *window.timestamps_ms.get(last)? >= window.end_ms { last } else { last + 1 };
        last = inside.max(first);
        let (mut lost_to_resets, mut before) = (0.0, left);
        for value in window.values.get(first..last).unwrap_or_default().iter().chain([&right]) {
            if *value < before {
                lost_to_resets += before;
            }
            before = *value;
        }
        total += lost_to_resets;
    }
    Some(if change.per_second { total / seconds(window.range_ms) } else { total })
}

/// As [`change_between_edges`], of histograms.
fn histogram_change_between_edges(window: &SampleWindow<'_>, change: ChangeKind) -> Option<Sample> {
    let smoothed = window.edges == Edges::Smoothed;
    let (annotations, name, span) = (window.annotations, window.name, window.span);
    let (first, last) =
        interpolate::edge_samples(window.histogram_timestamps_ms, window.start_ms, window.end_ms, smoothed)?;
    let inside = window.histograms.get(first..=last)?;
    let custom = inside.first()?.is_custom();
    for histogram in inside {
        if histogram.is_custom() != custom {
            annotations.mixed_schemas(name, span);
            return None;
        }
        if change.counter && histogram.hint == CounterReset::Gauge {
            annotations.not_a_counter(name, span);
        }
    }
    match subtract_edges(window, change, [first, last], smoothed) {
        Ok(total) => {
            let mut total = total?;
            if change.per_second {
                total.divide(seconds(window.range_ms));
            }
            total.hint = CounterReset::Gauge;
            total.compact();
            Some(total.into())
        }
        Err(IncompatibleBuckets) => {
            annotations.mixed_schemas(name, span);
            None
        }
    }
}

fn subtract_edges(
    window: &SampleWindow<'_>,
    change: ChangeKind,
    [first, last]: [usize; 2],
    smoothed: bool,
) -> Result<Option<Histogram>, IncompatibleBuckets> {
    let (annotations, span) = (window.annotations, window.span);
    let context = AnnotationContext { annotations, name: window.name, span };
    let point = |index: usize| HistogramPoint::at(window.histogram_timestamps_ms, window.histograms, index);
    let (Some(first_point), Some(last_point)) = (point(first), point(last)) else { return Ok(None) };
    let left = match point(first + 1) {
        Some(second) if smoothed && first_point.time_ms < window.start_ms => {
            interpolate::histogram_between(first_point, second, window.start_ms, change.counter, context)?
        }
        _ => first_point.histogram.clone(),
    };
    let right = match last.checked_sub(1).and_then(point) {
        Some(before) if smoothed && last_point.time_ms > window.end_ms => {
            interpolate::histogram_between(before, last_point, window.end_ms, change.counter, context)?
        }
        _ => last_point.histogram.clone(),
    };
    let is_gauge = |histogram: &Histogram| histogram.hint == CounterReset::Gauge;
    if !change.counter && (!is_gauge(&left) || !is_gauge(&right)) {
        annotations.not_a_gauge(window.name, span);
    }
    let mut total = right.clone();
    if total.subtract(&left)?.bounds_reconciled {
        annotations.bounds_reconciled(HistogramOperation::Subtraction, span);
    }
    if !change.counter {
        return Ok(Some(total));
    }
    let (mut next, mut before) = (first + 1, &left);
    if let Some(second) = point(first + 1)
        && smoothed
        && first_point.time_ms < window.start_ms
        && second.histogram.is_reset_after(first_point.histogram)
    {
        // The reset before the second sample is in the left value already.
        (next, before) = (next + 1, second.histogram);
    }
    if next > last {
        return Ok(Some(total));
    }
    let inner = window.histograms.get(next..last).unwrap_or_default().iter().map(|histogram| &**histogram);
    let mut lost_to_resets: Option<Histogram> = None;
    for now in inner.chain([&right]) {
        if now.is_reset_after(before) {
            match &mut lost_to_resets {
                None => lost_to_resets = Some(before.clone()),
                Some(lost_to_resets) => {
                    if lost_to_resets.add(before)?.bounds_reconciled {
                        annotations.bounds_reconciled(HistogramOperation::Addition, span);
                    }
                }
            }
        }
        before = now;
    }
    if let Some(lost_to_resets) = lost_to_resets
        && total.add(&lost_to_resets)?.bounds_reconciled
    {
        annotations.bounds_reconciled(HistogramOperation::Addition, span);
    }
    Ok(Some(total))
}

/// The last two samples of a window, of both kinds, in order.
fn last_two(window: &SampleWindow<'_>) -> Option<[(i64, Sample); 2]> {
    let floats = window.timestamps_ms.iter().zip(window.values).rev().take(2);
    let histograms = window.histogram_timestamps_ms.iter().zip(window.histograms).rev().take(2);
    let mut latest: Vec<(i64, Sample)> = floats.map(|(time_ms, value)| (*time_ms, Sample::Float(*value))).collect();
    latest.extend(histograms.map(|(time_ms, histogram)| (*time_ms, Sample::Histogram(Arc::clone(histogram)))));
    latest.sort_by_key(|(time_ms, _)| std::cmp::Reverse(*time_ms));
    let mut latest = latest.into_iter();
    let (last, before) = (latest.next()?, latest.next()?);
    Some([before, last])
}

/// The difference of the last two values, for `irate` (as counters, which start from zero after a reset) per second.
pub(crate) fn instant_change(window: &SampleWindow<'_>, counter: bool) -> Option<Sample> {
    let [(before_ms, before), (last_ms, last)] = last_two(window)?;
    let (annotations, name, span) = (window.annotations, window.name, window.span);
    let interval_s = seconds(last_ms - before_ms);
    if last_ms == before_ms {
        return None;
    }
    match (before, last) {
        (Sample::Float(before), Sample::Float(last)) => {
            let difference = if counter && last < before { last } else { last - before };
            Some(Sample::Float(if counter { difference / interval_s } else { difference }))
        }
        (Sample::Histogram(before), Sample::Histogram(last)) => {
            let gauges = [&before, &last].map(|histogram| histogram.hint == CounterReset::Gauge);
            if counter && gauges != [false, false] {
                annotations.not_a_counter(name, span);
            }
            if !counter && gauges != [true, true] {
                annotations.not_a_gauge(name, span);
            }
            let mut result = Histogram::clone(&last);
            if !counter || !last.is_reset_after(&before) {
                match result.subtract(&before) {
                    Err(IncompatibleBuckets) => {
                        annotations.mixed_schemas(name, span);
                        return None;
                    }
                    Ok(outcome) if outcome.bounds_reconciled => {
                        annotations.bounds_reconciled(HistogramOperation::Subtraction, span);
                    }
                    Ok(_) => {}
                }
            }
            result.hint = CounterReset::Gauge;
            result.compact();
            if counter {
                result.divide(interval_s);
            }
            Some(result.into())
        }
        _ => {
            annotations.mixed_samples(name, span);
            None
        }
    }
}

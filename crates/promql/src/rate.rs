//! `rate`, `increase`, `delta`, `irate`, `idelta`: how much a value changes over a window.

use std::sync::Arc;

use crate::histogram::{CounterReset, Histogram, IncompatibleBuckets};
use crate::interpolate;
use crate::notes::HistogramOperation;
use crate::rows::Sample;
use crate::syntax::ast::Edges;
use crate::window::{MarkedValues, Window};

/// Which of the functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    /// The value only grows, but for resets.
    pub(crate) counter: bool,
    pub(crate) per_second: bool,
}

pub(crate) fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// The change over the whole window.
pub(crate) fn over_window(window: &Window<'_>, change: Change) -> Option<Sample> {
    if !window.values.is_empty() && !window.histograms.is_empty() {
        window.notes.mixed_samples(window.name, window.span);
        return None;
    }
    match (window.edges, window.histograms.is_empty()) {
        (Edges::Plain, true) => extrapolated(window, change).map(Sample::Float),
        (Edges::Plain, false) => extrapolated_histogram(window, change),
        (_, true) => extended(window, change).map(Sample::Float),
        (_, false) => extended_histogram(window, change),
    }
}

/// First and last time in milliseconds, and the number of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extent {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) samples: usize,
}

impl Extent {
    /// Whether samples lie in their window's bounds as those of another do in its: they have the same [`Stretch`] then.
    pub(crate) fn is_shifted(&self, bounds_ms: [i64; 2], other: &Self, other_bounds_ms: [i64; 2]) -> bool {
        let distances = |extent: &Self, [start_ms, end_ms]: [i64; 2]| {
            [extent.first_ms - start_ms, extent.last_ms - extent.first_ms, end_ms - extent.last_ms]
        };
        self.samples == other.samples && distances(self, bounds_ms) == distances(other, other_bounds_ms)
    }
}

/// By what a difference is to be multiplied so that it stands for the whole window: it is stretched up to the window's bounds
/// if the samples come close to them, else by half of their average distance, and a counter never beyond the point where
/// it would have been zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stretch {
    sampled_s: f64,
    to_start_s: f64,
    to_end_s: f64,
    /// The window's length if the change per second is asked for, else 1.
    range_s: f64,
    /// The factor but for the last rule.
    factor: f64,
}

impl Stretch {
    /// Of a window's start and end, and its samples, at least two.
    pub(crate) fn new([start_ms, end_ms]: [i64; 2], extent: &Extent, range_s: f64) -> Self {
        let mut to_start_s = seconds(extent.first_ms - start_ms);
        let mut to_end_s = seconds(end_ms - extent.last_ms);
        let sampled_s = seconds(extent.last_ms - extent.first_ms);
        let distance_s = sampled_s / (extent.samples - 1) as f64;
        let near_s = distance_s * 1.1;
        if to_start_s >= near_s {
            to_start_s = distance_s / 2.0;
        }
        if to_end_s >= near_s {
            to_end_s = distance_s / 2.0;
        }
        let stretch = Self { sampled_s, to_start_s, to_end_s, range_s, factor: 1.0 };
        Self { factor: stretch.factor_from(to_start_s), ..stretch }
    }

    fn factor_from(&self, to_start_s: f64) -> f64 {
        let sampled_s = self.sampled_s;
        let factor = if sampled_s == 0.0 { 1.0 } else { (sampled_s + to_start_s + self.to_end_s) / sampled_s };
        factor / self.range_s
    }

    /// The factor for a change; of counters the value that they started from counts.
    fn factor(&self, total: f64, started_from: Option<f64>) -> f64 {
        let Some(first) = started_from.filter(|first| self.may_reach_zero(*first, total)) else { return self.factor };
        let to_zero_s = self.sampled_s * (first / total);
        if to_zero_s < self.to_start_s { self.factor_from(to_zero_s) } else { self.factor }
    }

    /// Whether a counter that rose so much from a value might have been zero within the window. In most windows it is far from that, which is
    /// found out without a division: the margins are wider than any rounding, so that the exact rule decides where it may hold.
    fn may_reach_zero(&self, first: f64, total: f64) -> bool {
        total > 0.0 && first >= 0.0 && !self.is_far_from_zero(first, total)
    }

    fn is_far_from_zero(&self, first: f64, total: f64) -> bool {
        self.sampled_s * first > self.to_start_s * total * 1.000_001 + 1e-290
    }

    /// The changes over windows without resets, of which the first and the last values are given, appended to `changes`.
    pub(crate) fn push_changes(&self, firsts: &[f64], lasts: &[f64], kind: Values, changes: &mut Vec<f64>) {
        for (firsts, lasts) in firsts.chunks(VECTOR_WINDOWS).zip(lasts.chunks(VECTOR_WINDOWS)) {
            let totals = || firsts.iter().zip(lasts).map(|(first, last)| (*first, last - first));
            let may_reach_zero = match (kind, firsts.first(), lasts.last()) {
                (Values::Any, ..) => false,
                // No window starts lower than the first, and none rises by more than all of them together.
                (Values::Rising, Some(first), Some(last)) if self.is_far_from_zero(*first, last - first) => false,
                _ => self.one_may_reach_zero(firsts, lasts),
            };
            if may_reach_zero {
                changes.extend(totals().map(|(first, total)| total * self.factor(total, Some(first))));
            } else {
                changes.extend(totals().map(|(_, total)| total * self.factor));
            }
        }
    }

    /// Whether any counter of some windows might have been zero: not if that which comes closest is far from it. Numbers that are none
    /// come close to nothing.
    fn one_may_reach_zero(&self, firsts: &[f64], lasts: &[f64]) -> bool {
        let (mut lowest, mut steepest) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let mut look = |lane: usize, first: f64, last: f64| {
            let total = last - first;
            lowest[lane] = if first < lowest[lane] { first } else { lowest[lane] };
            steepest[lane] = if total > steepest[lane] { total } else { steepest[lane] };
        };
        let ((firsts, rest), (lasts, other_rest)) = (firsts.as_chunks::<LANES>(), lasts.as_chunks::<LANES>());
        for (firsts, lasts) in firsts.iter().zip(lasts) {
            (0..LANES).for_each(|lane| look(lane, firsts[lane], lasts[lane]));
        }
        rest.iter().zip(other_rest).for_each(|(first, last)| look(0, *first, *last));
        let lowest = lowest.into_iter().fold(f64::INFINITY, f64::min);
        let steepest = steepest.into_iter().fold(f64::NEG_INFINITY, f64::max);
        steepest > 0.0 && (lowest < 0.0 || self.may_reach_zero(lowest, steepest))
    }
}

/// What is known of the values that changes are computed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    /// They may fall.
    Any,
    /// They are a counter's.
    Counter,
    /// They are a counter's that is never below the value before, and none is not a number.
    Rising,
}

/// Numbers that are compared at once.
const LANES: usize = 4;

/// Windows that are computed together.
const VECTOR_WINDOWS: usize = 64;

/// By what a change over a window of this length is divided.
pub(crate) fn divisor_s(change: Change, range_ms: i64) -> f64 {
    if change.per_second { seconds(range_ms) } else { 1.0 }
}

/// The change between the first and the last of some floats, for counters with what resets took away, over the whole window.
pub(crate) fn extrapolated_floats(
    first: f64,
    last: f64,
    marked: MarkedValues<'_>,
    stretch: &Stretch,
    counter: bool,
) -> f64 {
    let mut total = last - first;
    if counter {
        total = marked.before().fold(total, |total, before| total + before);
    }
    total * stretch.factor(total, counter.then_some(first))
}

pub(crate) fn extrapolated(window: &Window<'_>, change: Change) -> Option<f64> {
    let (first, last) = (*window.values.first()?, *window.values.last()?);
    let extent = Extent {
        first_ms: *window.timestamps_ms.first()?,
        last_ms: *window.timestamps_ms.last()?,
        samples: window.values.len(),
    };
    if extent.samples < 2 {
        return None;
    }
    let bounds_ms = [window.start_ms, window.end_ms];
    let stretch = Stretch::new(bounds_ms, &extent, divisor_s(change, window.range_ms));
    Some(extrapolated_floats(first, last, window.marked, &stretch, change.counter))
}

fn extrapolated_histogram(window: &Window<'_>, change: Change) -> Option<Sample> {
    let extent = Extent {
        first_ms: *window.histogram_timestamps_ms.first()?,
        last_ms: *window.histogram_timestamps_ms.last()?,
        samples: window.histograms.len(),
    };
    if extent.samples < 2 {
        return None;
    }
    let mut total = match histogram_change(window, change.counter) {
        Ok(total) => total?,
        Err(IncompatibleBuckets) => {
            window.notes.mixed_schemas(window.name, window.span);
            return None;
        }
    };
    let first = window.histograms.first()?.count;
    let bounds_ms = [window.start_ms, window.end_ms];
    let stretch = Stretch::new(bounds_ms, &extent, divisor_s(change, window.range_ms));
    let factor = stretch.factor(total.count, change.counter.then_some(first));
    total.multiply(factor);
    Some(total.into())
}

/// The difference of the last and the first histogram, for counters with what resets took away.
fn histogram_change(window: &Window<'_>, counter: bool) -> Result<Option<Histogram>, IncompatibleBuckets> {
    let [first, inner @ .., last] = window.histograms else { return Ok(None) };
    let (notes, name, span) = (window.notes, window.name, window.span);
    let is_gauge = |histogram: &Histogram| histogram.hint == CounterReset::Gauge;
    let mut before = Arc::clone(first);
    let mut custom = first.is_custom();
    if counter {
        if is_gauge(first) || is_gauge(last) {
            notes.not_a_counter(name, span);
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
                notes.not_a_counter(name, span);
            }
            schema = schema.min(histogram.schema);
            if histogram.is_custom() != custom {
                return Err(IncompatibleBuckets);
            }
        }
    }
    let mut total = if last.is_custom() { Histogram::clone(last) } else { last.at_schema(schema) };
    if total.subtract(&before)?.bounds_reconciled {
        notes.bounds_reconciled(HistogramOperation::Subtraction, span);
    }
    if counter {
        for now in inner.iter().chain([last]) {
            if now.is_reset_after(&before) && total.add(&before)?.bounds_reconciled {
                notes.bounds_reconciled(HistogramOperation::Addition, span);
            }
            before = Arc::clone(now);
        }
    } else if !is_gauge(first) || !is_gauge(last) {
        notes.not_a_gauge(name, span);
    }
    total.hint = CounterReset::Gauge;
    total.compact();
    Ok(Some(total))
}

/// The change between the edges of an anchored or smoothed window.
fn extended(window: &Window<'_>, change: Change) -> Option<f64> {
    let smoothed = window.edges == Edges::Smoothed;
    let (mut first, mut last) = interpolate::bounds(window.timestamps_ms, window.start_ms, window.end_ms, smoothed)?;
    let point = |place: usize| Some((*window.timestamps_ms.get(place)?, *window.values.get(place)?));
    let left = interpolate::left(point, first, window.start_ms, smoothed, change.counter)?;
    let right = interpolate::right(point, last, window.end_ms, smoothed, change.counter)?;
    let mut total = right - left;
    if change.counter {
        if *window.timestamps_ms.get(first)? <= window.start_ms {
            first += 1;
        }
        let inside = if *window.timestamps_ms.get(last)? >= window.end_ms { last } else { last + 1 };
        last = inside.max(first);
        let (mut taken_away, mut before) = (0.0, left);
        for value in window.values.get(first..last).unwrap_or_default().iter().chain([&right]) {
            if *value < before {
                taken_away += before;
            }
            before = *value;
        }
        total += taken_away;
    }
    Some(if change.per_second { total / seconds(window.range_ms) } else { total })
}

/// As [`extended`], of histograms.
fn extended_histogram(window: &Window<'_>, change: Change) -> Option<Sample> {
    let smoothed = window.edges == Edges::Smoothed;
    let (notes, name, span) = (window.notes, window.name, window.span);
    let (first, last) = interpolate::bounds(window.histogram_timestamps_ms, window.start_ms, window.end_ms, smoothed)?;
    let inside = window.histograms.get(first..=last)?;
    let custom = inside.first()?.is_custom();
    for histogram in inside {
        if histogram.is_custom() != custom {
            notes.mixed_schemas(name, span);
            return None;
        }
        if change.counter && histogram.hint == CounterReset::Gauge {
            notes.not_a_counter(name, span);
        }
    }
    match extended_histogram_change(window, change, [first, last], smoothed) {
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
            notes.mixed_schemas(name, span);
            None
        }
    }
}

fn extended_histogram_change(
    window: &Window<'_>,
    change: Change,
    [first, last]: [usize; 2],
    smoothed: bool,
) -> Result<Option<Histogram>, IncompatibleBuckets> {
    let (notes, span) = (window.notes, window.span);
    let point = |place: usize| Some((*window.histogram_timestamps_ms.get(place)?, &**window.histograms.get(place)?));
    let (Some(first_point), Some(last_point)) = (point(first), point(last)) else { return Ok(None) };
    let left = match point(first + 1) {
        Some(second) if smoothed && first_point.0 < window.start_ms => {
            interpolate::histogram_between(first_point, second, window.start_ms, change.counter, (notes, span))?
        }
        _ => first_point.1.clone(),
    };
    let right = match last.checked_sub(1).and_then(point) {
        Some(before) if smoothed && last_point.0 > window.end_ms => {
            interpolate::histogram_between(before, last_point, window.end_ms, change.counter, (notes, span))?
        }
        _ => last_point.1.clone(),
    };
    let is_gauge = |histogram: &Histogram| histogram.hint == CounterReset::Gauge;
    if !change.counter && (!is_gauge(&left) || !is_gauge(&right)) {
        notes.not_a_gauge(window.name, span);
    }
    let mut total = right.clone();
    if total.subtract(&left)?.bounds_reconciled {
        notes.bounds_reconciled(HistogramOperation::Subtraction, span);
    }
    if !change.counter {
        return Ok(Some(total));
    }
    let (mut next, mut before) = (first + 1, &left);
    if let Some((_, second)) = point(first + 1)
        && smoothed
        && first_point.0 < window.start_ms
        && second.is_reset_after(first_point.1)
    {
        // The reset before the second sample is in the left value already.
        (next, before) = (next + 1, second);
    }
    if next > last {
        return Ok(Some(total));
    }
    let inner = window.histograms.get(next..last).unwrap_or_default().iter().map(|histogram| &**histogram);
    let mut taken_away: Option<Histogram> = None;
    for now in inner.chain([&right]) {
        if now.is_reset_after(before) {
            match &mut taken_away {
                None => taken_away = Some(before.clone()),
                Some(taken_away) => {
                    if taken_away.add(before)?.bounds_reconciled {
                        notes.bounds_reconciled(HistogramOperation::Addition, span);
                    }
                }
            }
        }
        before = now;
    }
    if let Some(taken_away) = taken_away
        && total.add(&taken_away)?.bounds_reconciled
    {
        notes.bounds_reconciled(HistogramOperation::Addition, span);
    }
    Ok(Some(total))
}

/// The last two samples of a window, of both kinds, in order.
fn last_two(window: &Window<'_>) -> Option<[(i64, Sample); 2]> {
    let floats = window.timestamps_ms.iter().zip(window.values).rev().take(2);
    let histograms = window.histogram_timestamps_ms.iter().zip(window.histograms).rev().take(2);
    let mut newest: Vec<(i64, Sample)> = floats.map(|(time_ms, value)| (*time_ms, Sample::Float(*value))).collect();
    newest.extend(histograms.map(|(time_ms, histogram)| (*time_ms, Sample::Histogram(Arc::clone(histogram)))));
    newest.sort_by_key(|(time_ms, _)| std::cmp::Reverse(*time_ms));
    let mut newest = newest.into_iter();
    let (last, before) = (newest.next()?, newest.next()?);
    Some([before, last])
}

/// The difference of the last two values, for `irate` (as counters, which start from zero after a reset) per second.
pub(crate) fn of_last_two(window: &Window<'_>, counter: bool) -> Option<Sample> {
    let [(before_ms, before), (last_ms, last)] = last_two(window)?;
    let (notes, name, span) = (window.notes, window.name, window.span);
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
                notes.not_a_counter(name, span);
            }
            if !counter && gauges != [true, true] {
                notes.not_a_gauge(name, span);
            }
            let mut result = Histogram::clone(&last);
            if !counter || !last.is_reset_after(&before) {
                match result.subtract(&before) {
                    Err(IncompatibleBuckets) => {
                        notes.mixed_schemas(name, span);
                        return None;
                    }
                    Ok(settled) if settled.bounds_reconciled => {
                        notes.bounds_reconciled(HistogramOperation::Subtraction, span);
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
            notes.mixed_samples(name, span);
            None
        }
    }
}

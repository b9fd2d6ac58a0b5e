//! Aggregates and selectors over the values in a window.

use std::collections::BTreeSet;
use std::ops::Range;

use query::Value;
use query::statistics::line::{self, distance_ns};
use query::statistics::{self, ranked};
use query::time::CalendarBins;

use crate::functions::Point;
use crate::time::TIME_MIN_NS;
use crate::value::InfluxValue;

/// Intervals of points that lie in one window, with the window's beginning. Without windows all are in one.
pub(crate) fn by_window(points: &[Point], windows: Option<&CalendarBins>, start_ns: i64) -> Vec<(i64, Range<usize>)> {
    let Some(windows) = windows else {
        let shown_ns = if start_ns == TIME_MIN_NS { 0 } else { start_ns };
        return if points.is_empty() { Vec::new() } else { vec![(shown_ns, 0..points.len())] };
    };
    let mut intervals: Vec<(i64, Range<usize>)> = Vec::new();
    let mut end_ns = i64::MIN;
    for (place, point) in points.iter().enumerate() {
        match intervals.last_mut() {
            Some((_, interval)) if point.time_ns < end_ns => interval.end = place + 1,
            _ => {
                let start_ns = windows.start_of(point.time_ns);
                end_ns = windows.next(start_ns);
                intervals.push((start_ns, place..place + 1));
            }
        }
    }
    intervals
}

/// Aggregates of a window's points that are a new value.
pub(crate) fn aggregate(function: &str, points: &[Point]) -> Option<Value> {
    let numbers = || points.iter().filter_map(|point| point.value.as_number());
    match function {
        "count" => Some(Value::Int(points.len() as i64)),
        "sum" => sum(points),
        "mean" => {
            let (sum, count) = numbers().fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
            (count > 0).then(|| Value::Float(sum / count as f64))
        }
        "median" => median(numbers().collect()),
        "stddev" => stddev(&numbers().collect::<Vec<_>>()),
        "spread" => {
            let largest = choose(points, |new, old| new.compared(old).is_some_and(std::cmp::Ordering::is_gt))?;
            let smallest = choose(points, |new, old| new.compared(old).is_some_and(std::cmp::Ordering::is_lt))?;
            let (largest, smallest) = (points.get(largest)?, points.get(smallest)?);
            Some(crate::value::apply(crate::syntax::ast::Operator::Subtract, &largest.value, &smallest.value, false))
        }
        "mode" => ranked::mode(points).cloned(),
        _ => None,
    }
}

/// The place of the point that a selector chooses.
pub(crate) fn select(function: &str, points: &[Point], share: f64) -> Option<usize> {
    use std::cmp::Ordering::{Greater, Less};
    match function {
        "max" => choose(points, |new, old| new.compared(old) == Some(Greater)),
        "min" => choose(points, |new, old| new.compared(old) == Some(Less)),
        // Of several of one time, the largest.
        "first" => {
            let time_ns = points.first()?.time_ns;
            let end = points.iter().position(|point| point.time_ns != time_ns).unwrap_or(points.len());
            choose(points.get(..end)?, |new, old| new.compared(old) == Some(Greater))
        }
        "last" => {
            let time_ns = points.last()?.time_ns;
            let start = points.partition_point(|point| point.time_ns < time_ns);
            choose(points.get(start..)?, |new, old| new.compared(old) == Some(Greater)).map(|place| start + place)
        }
        "percentile" => ranked::nearest_rank(points, share),
        _ => None,
    }
}

/// The first of the points that is better than all before it.
fn choose(points: &[Point], better: impl Fn(&Value, &Value) -> bool) -> Option<usize> {
    let mut chosen: Option<(usize, &Value)> = None;
    for (place, point) in points.iter().enumerate() {
        if chosen.is_none_or(|(_, old)| better(&point.value, old)) {
            chosen = Some((place, &point.value));
        }
    }
    chosen.map(|(place, _)| place)
}

fn sum(points: &[Point]) -> Option<Value> {
    Some(match points.first()?.value {
        Value::Int(_) => Value::Int(points.iter().fold(0i64, |sum, point| match point.value {
            Value::Int(value) => sum.wrapping_add(value),
            _ => sum,
        })),
        Value::Unsigned(_) => Value::Unsigned(points.iter().fold(0u64, |sum, point| match point.value {
            Value::Unsigned(value) => sum.wrapping_add(value),
            _ => sum,
        })),
        _ => Value::Float(points.iter().filter_map(|point| point.value.as_number()).sum()),
    })
}

fn median(mut numbers: Vec<f64>) -> Option<Value> {
    statistics::sort(&mut numbers);
    statistics::quantile(&numbers, 0.5).map(Value::Float)
}

/// Of a sample; null for a single value.
fn stddev(numbers: &[f64]) -> Option<Value> {
    match numbers {
        [] => None,
        [_] => Some(Value::Null),
        numbers => {
            let mut mean = 0.0;
            for (place, number) in numbers.iter().enumerate() {
                mean += (number - mean) / (place + 1) as f64;
            }
            let variance: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
            Some(Value::Float((variance / (numbers.len() - 1) as f64).sqrt()))
        }
    }
}

/// The area under the line through the points, window by window; the line is cut where a window ends, and what lies between windows
/// with points belongs to the later one.
pub(crate) fn integral(points: &[Point], windows: Option<&CalendarBins>, unit_ns: i64, start_ns: i64) -> Vec<Point> {
    let mut outs = Vec::new();
    let (mut area, mut before): (f64, Option<(i64, f64)>) = (0.0, None);
    let mut window: Option<(i64, i64)> = None;
    for point in points {
        let Some(value) = point.value.as_number() else { continue };
        let (time_ns, last) = match before {
            Some(before) if before.0 < point.time_ns => before,
            _ => {
                before = Some((point.time_ns, value));
                window = window.or_else(|| bounds(windows, point.time_ns));
                continue;
            }
        };
        let mut from = (time_ns, last);
        if let Some((window_ns, end_ns)) = window.filter(|(_, end_ns)| point.time_ns >= *end_ns) {
            let at_end = last + (value - last) * distance_ns(time_ns, end_ns) / distance_ns(time_ns, point.time_ns);
            area += line::area(from, (end_ns, at_end), unit_ns);
            outs.push(Point { time_ns: window_ns, value: Value::Float(area), origin: None });
            (area, from) = (0.0, (end_ns, at_end));
            window = bounds(windows, point.time_ns);
        }
        area += line::area(from, (point.time_ns, value), unit_ns);
        before = Some((point.time_ns, value));
    }
    if before.is_some() {
        let shown_ns = if start_ns == TIME_MIN_NS { 0 } else { start_ns };
        let time_ns = window.map_or(shown_ns, |(window_ns, _)| window_ns);
        outs.push(Point { time_ns, value: Value::Float(area), origin: None });
    }
    outs
}

fn bounds(windows: Option<&CalendarBins>, time_ns: i64) -> Option<(i64, i64)> {
    let start_ns = windows?.start_of(time_ns);
    Some((start_ns, windows?.next(start_ns)))
}

/// Different values, in the order in which they came; those of one time by value.
pub(crate) fn distinct(points: &[Point], time_ns: i64) -> Vec<Point> {
    let mut kept: Vec<&Point> = Vec::new();
    let mut known = BTreeSet::new();
    for point in points {
        if known.insert(format!("{:?}", point.value)) {
            kept.push(point);
        }
    }
    kept.sort_by(|a, b| a.time_ns.cmp(&b.time_ns).then_with(|| ranked::by_value(*a, *b)));
    kept.into_iter().map(|point| Point { time_ns, value: point.value.clone(), origin: None }).collect()
}

/// The values of the tags that a call names.
pub(crate) type TagsOf<'a> = &'a dyn Fn(&Point) -> Vec<Value>;

/// The largest or smallest points, in order of time; of each combination of tags one at most, if there are tags.
pub(crate) fn top(points: &[Point], count: usize, largest: bool, tags_of: Option<TagsOf<'_>>) -> Vec<Point> {
    let better = |a: &Point, b: &Point| {
        let order = a.value.sort_order(&b.value);
        let order = if largest { order.reverse() } else { order };
        order.then(a.time_ns.cmp(&b.time_ns))
    };
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| better(a, b));
    if let Some(tags_of) = tags_of {
        let mut known = BTreeSet::new();
        sorted.retain(|point| known.insert(format!("{:?}", tags_of(point))));
    }
    sorted.truncate(count);
    sorted.sort_by(|a, b| a.time_ns.cmp(&b.time_ns).then_with(|| better(a, b)));
    sorted.into_iter().cloned().collect()
}

/// So many of the points, in order of time: evenly spread, as a sample may be.
pub(crate) fn sample(points: &[Point], count: usize) -> Vec<Point> {
    let chosen = (0..count.min(points.len())).map(|number| number * points.len() / count.min(points.len()));
    chosen.filter_map(|place| points.get(place)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out(time_ns: i64, value: Value) -> Point {
        Point { time_ns, value, origin: None }
    }

    #[test]
    fn values_without_an_order_are_sorted_too() {
        let odd = [f64::NAN, 1.0, f64::INFINITY, -0.0, f64::NEG_INFINITY];
        let value = |place: i64| match place % 7 {
            5 => Value::from("x"),
            6 => Value::Int(place),
            kind => Value::Float(odd[kind as usize]),
        };
        let points: Vec<Point> = (0..500).map(|place| out(place * 7919 % 500, value(place))).collect();
        assert!(select("percentile", &points, 50.0).is_some());
        assert!(aggregate("mode", &points).is_some());
        assert_eq!(top(&points, 3, true, None).len(), 3);
        assert!(!distinct(&points, 0).is_empty());
    }

    #[test]
    fn the_ends_of_time_are_further_apart_than_64_bits() {
        let points = [out(TIME_MIN_NS, Value::Float(2.0)), out(crate::time::TIME_MAX_NS, Value::Float(2.0))];
        let areas = integral(&points, None, 1_000_000_000, 0);
        assert_eq!(areas, [out(0, Value::Float(2.0 * (u64::MAX as f64 / 1e9)))]);
        let elapsed = crate::functions::transform::transform("elapsed", &[], 1, false, &points);
        assert_eq!(elapsed, [out(crate::time::TIME_MAX_NS, Value::Int(i64::MAX))]);
        let slope = crate::functions::transform::transform("derivative", &[], 1, false, &points);
        assert_eq!(slope, [out(crate::time::TIME_MAX_NS, Value::Float(0.0))]);
    }
}

//! Transformations: functions of values in their order.

use query::Value;

use crate::functions::Point;
use crate::syntax::ast::{Expr, Operator};
use crate::value::{InfluxValue, apply};

/// Applies a transformation to values in the order of the answer; nulls are passed over.
pub(crate) fn transform(
    function: &str,
    parameters: &[Expr],
    default_unit_ns: i64,
    descending: bool,
    points: &[Point],
) -> Vec<Point> {
    let points = || points.iter().filter(|point| !point.value.is_null());
    let unit_ns = match parameters.first() {
        Some(Expr::Duration(unit_ns)) => *unit_ns,
        _ => default_unit_ns,
    };
    match function {
        "derivative" | "non_negative_derivative" => {
            let negative = function == "derivative";
            let rate = |before: &Point, point: &Point| {
                let (from, to) = if descending { (point, before) } else { (before, point) };
                let elapsed_ns = distance_ns(from.time_ns, to.time_ns);
                let difference = point.value.as_number()? - before.value.as_number()?;
                let rate = if descending { -difference } else { difference } / (elapsed_ns as f64 / unit_ns as f64);
                Some(Value::Float(if descending { -rate } else { rate }))
            };
            pairs(points(), negative, rate)
        }
        "difference" | "non_negative_difference" => {
            let difference =
                |before: &Point, point: &Point| Some(apply(Operator::Subtract, &point.value, &before.value, false));
            pairs(points(), function == "difference", difference)
        }
        "elapsed" => {
            let mut outs = Vec::new();
            let mut before: Option<i64> = None;
            for point in points() {
                if let Some(before) = before {
                    let elapsed = distance_ns(before, point.time_ns) / i128::from(unit_ns.max(1));
                    let elapsed = elapsed.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
                    outs.push(Point { time_ns: point.time_ns, value: Value::Int(elapsed), origin: None });
                }
                before = Some(point.time_ns);
            }
            outs
        }
        "cumulative_sum" => {
            let mut sum: Option<Value> = None;
            let add = |point: &Point| {
                let value = match &sum {
                    Some(sum) => apply(Operator::Add, sum, &point.value, false),
                    None => point.value.clone(),
                };
                sum = Some(value.clone());
                Point { time_ns: point.time_ns, value, origin: None }
            };
            points().map(add).collect()
        }
        "moving_average" => {
            let size = match parameters.first() {
                Some(Expr::Integer(size)) => usize::try_from(*size).unwrap_or(2),
                _ => 2,
            };
            moving_average(points(), size)
        }
        _ => Vec::new(),
    }
}

/// How far apart two times are: those at both ends of time further than 64 bits hold.
fn distance_ns(from_ns: i64, to_ns: i64) -> i128 {
    i128::from(to_ns) - i128::from(from_ns)
}

/// Something of each point and the one before. Of several points of one time only the first counts.
fn pairs<'o>(
    points: impl Iterator<Item = &'o Point>,
    negative: bool,
    of: impl Fn(&Point, &Point) -> Option<Value>,
) -> Vec<Point> {
    let mut outs = Vec::new();
    let mut before: Option<&Point> = None;
    for point in points {
        if before.is_some_and(|before| before.time_ns == point.time_ns) {
            continue;
        }
        if let Some(value) = before.and_then(|before| of(before, point))
            && (negative || value.as_number().is_some_and(|number| number >= 0.0))
        {
            outs.push(Point { time_ns: point.time_ns, value, origin: None });
        }
        before = Some(point);
    }
    outs
}

fn moving_average<'o>(points: impl Iterator<Item = &'o Point>, size: usize) -> Vec<Point> {
    let (mut window, mut sum) = (std::collections::VecDeque::new(), 0.0);
    let mut outs = Vec::new();
    for point in points {
        let Some(number) = point.value.as_number() else { continue };
        window.push_back(number);
        sum += number;
        if window.len() > size {
            sum -= window.pop_front().unwrap_or(0.0);
        }
        if window.len() == size {
            outs.push(Point { time_ns: point.time_ns, value: Value::Float(sum / size as f64), origin: None });
        }
    }
    outs
}

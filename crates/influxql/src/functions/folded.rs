//! Windows over points that stand for folded ones: the values that summaries have (the rule is at [`query::Folds`]).

use query::{Summary, Value};

use crate::functions::{Point, reduce};
use crate::value::InfluxValue;

/// What a point stands for; `None`: itself.
pub(crate) type FoldOf<'a> = dyn Fn(&Point) -> Option<&'a Summary> + 'a;

/// A value of a window, as far as it is known.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoldedPoint {
    pub(crate) point: Point,
    /// False if its value is known, but not when it was.
    pub(crate) has_time: bool,
}

/// The result of a function for a window's points; `None` if summaries do not have it.
pub(crate) fn result(function: &str, points: &[Point], fold_of: &FoldOf<'_>) -> Option<FoldedPoint> {
    let is_number = |point: &Point| point.value.as_number().is_some() && !matches!(point.value, Value::Bool(_));
    if !points.iter().all(is_number) {
        return of_others(function, points, fold_of);
    }
    let new = |value| Some(FoldedPoint { point: Point { time_ns: 0, value, origin: None }, has_time: false });
    match function {
        "count" => new(Value::Int(count(points, fold_of) as i64)),
        "sum" => new(reduce::aggregate("sum", &replaced(points, fold_of, sum_of))?),
        "mean" => {
            let total =
                |point: &Point| fold_of(point).map_or_else(|| point.value.as_number(), |fold| Some(fold.total()));
            new(Value::Float(points.iter().filter_map(total).sum::<f64>() / count(points, fold_of) as f64))
        }
        "spread" => {
            let [smallest, largest] = ["min", "max"].map(|extreme| result(extreme, points, fold_of));
            let ends = [smallest?.point, largest?.point];
            new(reduce::aggregate("spread", &ends)?)
        }
        "min" | "max" => {
            let bits = |fold: &Summary| value(fold, if function == "min" { fold.min } else { fold.max });
            let chosen = select(function, &replaced(points, fold_of, bits))?;
            let has_time = fold_of(&chosen).is_none();
            Some(FoldedPoint { point: chosen, has_time })
        }
        "first" => {
            let mut firsts = replaced(points, fold_of, |fold| value(fold, fold.first.1));
            for point in &mut firsts {
                point.time_ns = fold_of(point).map_or(point.time_ns, |fold| fold.first.0);
            }
            firsts.sort_by_key(|point| point.time_ns);
            Some(FoldedPoint { point: select(function, &firsts)?, has_time: true })
        }
        "last" => Some(FoldedPoint { point: select(function, points)?, has_time: true }),
        _ => None,
    }
}

/// Of values that are no numbers a fold knows how many there were, and which was the last.
fn of_others(function: &str, points: &[Point], fold_of: &FoldOf<'_>) -> Option<FoldedPoint> {
    match function {
        "count" => {
            let value = Value::Int(count(points, fold_of) as i64);
            Some(FoldedPoint { point: Point { time_ns: 0, value, origin: None }, has_time: false })
        }
        "last" => Some(FoldedPoint { point: select(function, points)?, has_time: true }),
        _ => None,
    }
}

fn count(points: &[Point], fold_of: &FoldOf<'_>) -> u64 {
    points.iter().map(|point| fold_of(point).map_or(1, |fold| fold.count)).sum()
}

fn select(function: &str, points: &[Point]) -> Option<Point> {
    reduce::select(function, points, 0.0).and_then(|place| points.get(place)).cloned()
}

/// The points with other values in place of those that stand for folded ones.
fn replaced(points: &[Point], fold_of: &FoldOf<'_>, value: impl Fn(&Summary) -> Value) -> Vec<Point> {
    let replace = |point: &Point| match fold_of(point) {
        Some(fold) => Point { value: value(fold), ..point.clone() },
        None => point.clone(),
    };
    points.iter().map(replace).collect()
}

fn value(fold: &Summary, bits: u64) -> Value {
    match fold.value_type {
        model::ValueType::I64 => Value::Int(bits as i64),
        model::ValueType::U64 => Value::Unsigned(bits),
        _ => Value::Float(f64::from_bits(bits)),
    }
}

/// Sums wrap around, as those of points do.
fn sum_of(fold: &Summary) -> Value {
    match fold.value_type {
        model::ValueType::I64 => Value::Int(fold.sum_integer as i64),
        model::ValueType::U64 => Value::Unsigned(fold.sum_integer as u64),
        _ => Value::Float(fold.total()),
    }
}

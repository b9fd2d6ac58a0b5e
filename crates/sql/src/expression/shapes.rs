//! Expressions of a certain shape: made, and recognized.

use jiff::tz::TimeZone;
use query::{Interval, Value};

use super::{Bound, Environment, functions, is_time, operators};
use crate::error::SqlError;
use crate::scope::Scope;

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// `a = b`
pub(crate) fn equal(a: Bound, b: Bound) -> Bound {
    Bound::Call(&operators::EQUAL, vec![a, b])
}

/// The two columns that are to be equal, the smaller place first.
pub(crate) fn equal_columns(condition: &Bound) -> Option<(usize, usize)> {
    match condition {
        Bound::Call(function, operands) if function.name == "=" => match operands.as_slice() {
            [Bound::Column(a), Bound::Column(b)] => Some((*a.min(b), *a.max(b))),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether a condition compares two columns of time.
pub(crate) fn compares_times(condition: &Bound, scope: &Scope) -> bool {
    match condition {
        Bound::Call(function, operands) if matches!(function.name, "<" | "<=" | ">" | ">=") => {
            operands.iter().all(|operand| matches!(operand, Bound::Column(place) if is_time(scope, *place)))
        }
        _ => false,
    }
}

/// The sum of two values.
pub(crate) fn sum(a: &Value, b: &Value, environment: &Environment) -> Result<Value, SqlError> {
    (operators::ADD.call)(&[a.clone(), b.clone()], environment)
}

/// The bin of a time, of a place's clock if one is named.
pub(crate) fn date_bin(width: Interval, time: Bound, origin_ns: i64, zone: Option<&str>) -> Bound {
    let mut arguments =
        vec![Bound::Constant(Value::Interval(width)), time, Bound::Constant(Value::Timestamp(origin_ns))];
    arguments.extend(zone.map(|zone| Bound::Constant(Value::text(zone))));
    // Both exist; a bin of null would be all that is lost.
    match functions::find("time_bucket") {
        Some(function) => Bound::Call(function, arguments),
        None => Bound::Constant(Value::Null),
    }
}

/// Width and offset, in nanoseconds, of the bins of a table's time that an expression means, if they all have one width.
pub(crate) fn fixed_bins(bins: &Bound, scope: &Scope, environment: &Environment) -> Option<(i64, i64)> {
    let Bound::Call(function, arguments) = bins else { return None };
    let [first, at, rest @ ..] = arguments.as_slice() else { return None };
    if !matches!(at, Bound::Column(place) if is_time(scope, *place)) {
        return None;
    }
    let is_zone = |bound: &Bound| matches!(bound, Bound::Constant(Value::Text(_)));
    if environment.time_zone != TimeZone::UTC || rest.iter().any(is_zone) || !rest.iter().all(Bound::is_constant) {
        return None;
    }
    let Bound::Constant(first) = first else { return None };
    let width_ns = match function.name {
        "time_bucket" | "time_bucket_gapfill" | "date_bin" => {
            let width = super::width(first).ok()?;
            (width.months == 0).then_some(width.ns)?
        }
        "date_trunc" => match first.to_string().to_lowercase().trim_end_matches('s') {
            "second" => 1_000_000_000,
            "minute" => 60_000_000_000,
            "hour" => 3_600_000_000_000,
            "day" => NS_PER_DAY,
            "week" => 7 * NS_PER_DAY,
            _ => return None,
        },
        _ => return None,
    };
    // Where the bin of the epoch begins says where all do.
    let mut at_epoch: Vec<Value> = vec![first.clone(), Value::Timestamp(0)];
    for option in rest {
        at_epoch.push(option.value(&[], environment).ok()?);
    }
    match (function.call)(&at_epoch, environment).ok()? {
        Value::Timestamp(start_ns) => Some((width_ns, start_ns.rem_euclid(width_ns))),
        _ => None,
    }
}

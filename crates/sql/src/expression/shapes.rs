//! Expressions of a certain shape: made, and recognized.

use jiff::tz::TimeZone;
use query::{Interval, Value};

use super::{Bound, Environment, NS_PER_DAY, is_time, operators, times};
use crate::error::SqlError;
use crate::scope::Scope;

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

/// The bin of `SAMPLE BY`, by the clock of a zone.
pub(crate) fn sample_bin(width: Interval, time: Bound, offset_ns: i64, zone: &str) -> Bound {
    let offset = Interval::of_ns(offset_ns);
    let constants = [Value::Interval(width), Value::Interval(offset), Value::text(zone)].map(Bound::Constant);
    let [width, offset, zone] = constants;
    Bound::Call(&times::SAMPLE_BY, vec![width, time, offset, zone])
}

/// Width and offset, in nanoseconds, of the bins of a table's time that an expression means, if they all have one width.
pub(crate) fn fixed_bins(bins: &Bound, scope: &Scope, environment: &Environment) -> Option<(i64, i64)> {
    let Bound::Call(function, arguments) = bins else { return None };
    let [first, at, rest @ ..] = arguments.as_slice() else { return None };
    if !matches!(at, Bound::Column(place) if is_time(scope, *place)) {
        return None;
    }
    if let Some(bins) = times::calendar_bins(bins, environment).ok()? {
        return bins.equal_bins();
    }
    if function.name != "date_trunc" || !rest.is_empty() || environment.time_zone != TimeZone::UTC {
        return None;
    }
    let Bound::Constant(unit) = first else { return None };
    let width_ns = match unit.to_string().to_lowercase().trim_end_matches('s') {
        "second" => 1_000_000_000,
        "minute" => 60_000_000_000,
        "hour" => 3_600_000_000_000,
        "day" => NS_PER_DAY,
        "week" => 7 * NS_PER_DAY,
        _ => return None,
    };
    // Where the bin of the epoch begins says where all do.
    match (function.call)(&[unit.clone(), Value::Timestamp(0)], environment).ok()? {
        Value::Timestamp(start_ns) => Some((width_ns, start_ns.rem_euclid(width_ns))),
        _ => None,
    }
}

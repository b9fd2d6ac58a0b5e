//! Expressions of a certain shape: made, and recognized.

use query::time::CalendarBins;
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

/// Takes a comparison of the times of a row and of the one that it finds as of its time out of conditions: `a.time >= b.time`, of one that is earlier
/// `a.time > b.time`, is meant anyway.
///
/// # Errors
/// If they are compared otherwise.
pub(crate) fn take_as_of(
    conditions: &mut Vec<Bound>,
    (row, found): (usize, usize),
    is_earlier: bool,
) -> Result<(), SqlError> {
    let operator = |condition: &Bound| {
        let Bound::Call(function, operands) = condition else { return None };
        let operator = [">=", ">", "<=", "<"].into_iter().find(|operator| *operator == function.name)?;
        match operands.as_slice() {
            [Bound::Column(a), Bound::Column(b)] if (*a, *b) == (row, found) => Some(operator),
            [Bound::Column(a), Bound::Column(b)] if (*a, *b) == (found, row) => Some(match operator {
                ">=" => "<=",
                ">" => "<",
                "<=" => ">=",
                _ => ">",
            }),
            _ => None,
        }
    };
    let meant = if is_earlier { ">" } else { ">=" };
    if conditions.iter().filter_map(operator).any(|operator| operator != meant) {
        return crate::error::invalid(
            "ON compares the times of both tables otherwise than the join does: ASOF JOIN finds rows by a.time >= b.time, and LT JOIN by a.time > b.time; both may be left out",
        );
    }
    conditions.retain(|condition| operator(condition).is_none());
    Ok(())
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

/// The bins of a table's time that an expression means.
pub(crate) fn time_bins(bins: &Bound, scope: &Scope, environment: &Environment) -> Option<CalendarBins> {
    let Bound::Call(function, arguments) = bins else { return None };
    let [first, at, rest @ ..] = arguments.as_slice() else { return None };
    if !matches!(at, Bound::Column(place) if is_time(scope, *place)) {
        return None;
    }
    if function.name != "date_trunc" {
        return times::calendar_bins(bins, environment).ok()?;
    }
    let zone = match rest {
        [] => environment.time_zone.clone(),
        [zone] if zone.is_constant() => times::time_zone(&zone.value(&[], environment).ok()?.to_string()).ok()?,
        _ => return None,
    };
    let Bound::Constant(unit) = first else { return None };
    let ns = Interval::of_ns;
    let (width, local_origin_ns) = match unit.to_string().to_lowercase().trim_end_matches('s') {
        "second" => (ns(1_000_000_000), 0),
        "minute" => (ns(60_000_000_000), 0),
        "hour" => (ns(3_600_000_000_000), 0),
        "day" => (ns(NS_PER_DAY), 0),
        // A week begins on a Monday; the epoch was a Thursday.
        "week" => (ns(7 * NS_PER_DAY), 4 * NS_PER_DAY),
        "month" => (Interval::of_months(1), 0),
        "quarter" => (Interval::of_months(3), 0),
        "year" => (Interval::of_months(12), 0),
        _ => return None,
    };
    Some(CalendarBins::new(width, local_origin_ns, zone))
}

/// Returns whether a time's bin begins where the expression of the bins says: where clocks change, `date_trunc` may cut otherwise than bins.
pub(crate) fn begins_at(bins: &Bound, time_ns: i64, start_ns: i64, environment: &Environment) -> bool {
    let Bound::Call(function, arguments) = bins else { return false };
    let mut values = Vec::with_capacity(arguments.len());
    for (place, argument) in arguments.iter().enumerate() {
        match if place == 1 { Ok(Value::Timestamp(time_ns)) } else { argument.value(&[], environment) } {
            Ok(value) => values.push(value),
            Err(_) => return false,
        }
    }
    matches!((function.call)(&values, environment), Ok(Value::Timestamp(found_ns)) if found_ns == start_ns)
}

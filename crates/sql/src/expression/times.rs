//! Functions of times.

use jiff::tz::TimeZone;
use query::time;
use query::{Interval, SqlType, Value};

use super::{Environment, Function, strict};
use crate::error::{SqlError, invalid};

/// 2000-01-03T00:00:00Z, a Monday: where bins of `time_bucket` begin, as in TimescaleDB.
const BUCKET_ORIGIN_NS: i64 = 946_857_600_000_000_000;
/// 2000-01-01T00:00:00Z: where bins of months begin.
const MONTHS_ORIGIN_NS: i64 = 946_684_800_000_000_000;

pub(super) static FUNCTIONS: [Function; 11] = [
    strict("now", (0, 0), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("current_timestamp", (0, 1), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("localtimestamp", (0, 1), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("systimestamp", (0, 0), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("time_bucket", (2, 4), SqlType::Timestamp, time_bucket),
    strict("time_bucket_gapfill", (2, 4), SqlType::Timestamp, time_bucket),
    strict("date_bin", (2, 3), SqlType::Timestamp, date_bin),
    strict("date_trunc", (2, 3), SqlType::Timestamp, date_trunc),
    strict("timestamp_floor", (2, 2), SqlType::Timestamp, |arguments, environment| {
        let unit = match arguments.first() {
            Some(Value::Text(unit)) => {
                if unit.starts_with(|first: char| first.is_ascii_digit()) {
                    unit.to_string()
                } else {
                    format!("1{unit}")
                }
            }
            _ => return invalid("timestamp_floor takes a unit and a timestamp"),
        };
        date_bin(
            &[Value::text(unit), arguments.get(1).cloned().unwrap_or(Value::Null), Value::Timestamp(0)],
            environment,
        )
    }),
    strict("to_timestamp", (1, 2), SqlType::Timestamp, |arguments, environment| match arguments.first() {
        Some(Value::Text(_) | Value::Timestamp(_)) => {
            super::cast(arguments[0].clone(), SqlType::Timestamp, environment)
        }
        Some(seconds) => match seconds.number().map(|seconds| seconds * 1e9).filter(|ns| ns.abs() < 9.2e18) {
            Some(ns) => Ok(Value::Timestamp(ns as i64)),
            None => invalid(format!("to_timestamp takes seconds since 1970, not {seconds}")),
        },
        None => Ok(Value::Null),
    }),
    strict("date_part", (2, 2), SqlType::Float, |arguments, environment| {
        let [Value::Text(field), at] = arguments else {
            return invalid("date_part takes the name of a part and a time");
        };
        match at {
            Value::Interval(interval) if field.eq_ignore_ascii_case("epoch") => {
                Ok(Value::Float(interval.approximate_ns() as f64 / 1e9))
            }
            at => {
                let ns = timestamp(at)?;
                let part = time::part(field, ns, &environment.time_zone);
                part.map(Value::Float)
                    .map_or_else(|| invalid(format!("unit \"{field}\" not recognized for a timestamp")), Ok)
            }
        }
    }),
];

/// A timestamp where it is: `AT TIME ZONE`.
pub(super) static AT_TIME_ZONE: Function = strict("AT TIME ZONE", (2, 2), SqlType::Timestamp, |arguments, _| {
    let [at, Value::Text(zone)] = arguments else { return invalid("AT TIME ZONE takes the name of a time zone") };
    let ns = timestamp(at)?;
    let zone = time_zone(zone)?;
    match time::civil(ns, &zone).and_then(|civil| time::timestamp(civil, &TimeZone::UTC)) {
        Some(ns) => Ok(Value::Timestamp(ns)),
        None => invalid("timestamp out of range"),
    }
});

/// A time zone by its name.
pub(crate) fn time_zone(name: &str) -> Result<TimeZone, SqlError> {
    if name.eq_ignore_ascii_case("utc") || name.eq_ignore_ascii_case("gmt") || name == "Z" {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| SqlError::Invalid(format!("time zone \"{name}\" not recognized")))
}

fn timestamp(at: &Value) -> Result<i64, SqlError> {
    match at {
        Value::Timestamp(ns) => Ok(*ns),
        Value::Text(text) => match time::parse(text) {
            Some(ns) => Ok(ns),
            None => invalid(format!("invalid input syntax for type timestamp: \"{text}\"")),
        },
        other => invalid(format!("a timestamp is wanted, not a {}", other.sql_type().name())),
    }
}

/// A width of bins.
pub(crate) fn width(value: &Value) -> Result<Interval, SqlError> {
    let width = match value {
        Value::Interval(interval) => Some(*interval),
        Value::Text(text) => time::parse_interval(text),
        _ => None,
    };
    match width {
        Some(width) if (width.months > 0 && width.ns == 0) || (width.months == 0 && width.ns > 0) => Ok(width),
        _ => invalid(format!("bins have a width of whole months or of a fixed length above zero, not \"{value}\"")),
    }
}

/// Where bins of a width begin unless it is said.
pub(crate) const fn bucket_origin_ns(width: Interval) -> i64 {
    if width.months == 0 { BUCKET_ORIGIN_NS } else { MONTHS_ORIGIN_NS }
}

/// `time_bucket(width, time [, origin | offset | time zone])`
fn time_bucket(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [by, at, rest @ ..] = arguments else { return Ok(Value::Null) };
    let (width, ns) = (width(by)?, timestamp(at)?);
    let (mut origin_ns, mut zone) = (bucket_origin_ns(width), environment.time_zone.clone());
    for option in rest {
        match option {
            Value::Interval(offset) => {
                origin_ns = time::add(origin_ns, *offset, &TimeZone::UTC).unwrap_or(origin_ns);
            }
            Value::Timestamp(origin) => origin_ns = *origin,
            Value::Text(text) => match (time::parse(text), time::parse_interval(text)) {
                (Some(origin), _) => origin_ns = origin,
                (None, Some(offset)) => {
                    origin_ns = time::add(origin_ns, offset, &TimeZone::UTC).unwrap_or(origin_ns);
                }
                (None, None) => zone = time_zone(text)?,
            },
            other => return invalid(format!("time_bucket takes an origin, an offset or a time zone, not {other}")),
        }
    }
    bin(ns, width, origin_ns, &zone)
}

/// `date_bin(width, time [, origin])`
fn date_bin(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [by, at, rest @ ..] = arguments else { return Ok(Value::Null) };
    let origin_ns = rest.first().map_or(Ok(0), timestamp)?;
    bin(timestamp(at)?, width(by)?, origin_ns, &environment.time_zone)
}

fn bin(ns: i64, width: Interval, origin_ns: i64, zone: &TimeZone) -> Result<Value, SqlError> {
    match time::bin(ns, width, origin_ns, zone) {
        Some(ns) => Ok(Value::Timestamp(ns)),
        None => invalid("timestamp out of range"),
    }
}

/// `date_trunc(unit, time [, time zone])`
fn date_trunc(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [Value::Text(unit), at, rest @ ..] = arguments else {
        return invalid("date_trunc takes the name of a unit and a timestamp");
    };
    let zone = match rest.first() {
        Some(Value::Text(zone)) => time_zone(zone)?,
        _ => environment.time_zone.clone(),
    };
    match time::truncate(unit, timestamp(at)?, &zone) {
        Some(ns) => Ok(Value::Timestamp(ns)),
        None => invalid(format!("unit \"{unit}\" not recognized for a timestamp")),
    }
}

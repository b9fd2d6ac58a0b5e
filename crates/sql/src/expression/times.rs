//! Functions of times.

use jiff::tz::TimeZone;
use query::time::{self, CalendarBins};
use query::{Interval, SqlType, Value};

use super::{Bound, Environment, Function, Returns, dates, strict};
use crate::error::{SqlError, invalid};

/// 2000-01-03T00:00:00Z, a Monday: where bins of `time_bucket` begin, as in TimescaleDB.
const BUCKET_ORIGIN_NS: i64 = 946_857_600_000_000_000;
/// 2000-01-01T00:00:00Z: where bins of months begin.
const MONTHS_ORIGIN_NS: i64 = 946_684_800_000_000_000;

pub(super) static FUNCTIONS: [Function; 11] = [
    strict("now", (0, 0), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("current_timestamp", (0, 1), SqlType::Timestamp, |_, environment| Ok(Value::Timestamp(environment.now_ns))),
    strict("localtimestamp", (0, 1), SqlType::LocalTimestamp, |_, environment| {
        super::cast(Value::Timestamp(environment.now_ns), SqlType::LocalTimestamp, environment)
    }),
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
        Some(at) if matches!(at, Value::Text(_)) || at.time_ns().is_some() => {
            super::cast(at.clone(), SqlType::Timestamp, environment)
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
            Value::Interval(interval) => match dates::interval_part(field, *interval) {
                Some(part) => Ok(Value::Float(part)),
                None => invalid(format!("unit \"{field}\" not recognized for type interval")),
            },
            at => {
                let part = part(field, timestamp(at, environment)?, zone_of(at, environment));
                part.map(Value::Float)
                    .map_or_else(|| invalid(format!("unit \"{field}\" not recognized for a timestamp")), Ok)
            }
        }
    }),
];

/// What a zone's clock shows at an instant: `AT TIME ZONE` of a `timestamptz`.
pub(super) static TO_LOCAL: Function =
    strict("AT TIME ZONE", (2, 2), SqlType::LocalTimestamp, |arguments, environment| {
        at_time_zone(arguments, environment, time::to_local).map(Value::LocalTimestamp)
    });

/// The instant at which a zone's clock shows a time: `AT TIME ZONE` of a `timestamp`.
pub(super) static FROM_LOCAL: Function =
    strict("AT TIME ZONE", (2, 2), SqlType::Timestamp, |arguments, environment| {
        at_time_zone(arguments, environment, time::from_local).map(Value::Timestamp)
    });

fn at_time_zone(
    arguments: &[Value],
    environment: &Environment,
    convert: fn(i64, &TimeZone) -> Option<i64>,
) -> Result<i64, SqlError> {
    let [at, Value::Text(zone)] = arguments else { return invalid("AT TIME ZONE takes the name of a time zone") };
    convert(timestamp(at, environment)?, &time_zone(zone)?).ok_or_else(out_of_range)
}

/// The zone on whose clock a time is read: the session's for an instant.
pub(super) fn zone_of<'a>(at: &Value, environment: &'a Environment) -> &'a TimeZone {
    const UTC: &TimeZone = &TimeZone::UTC;
    if matches!(at, Value::LocalTimestamp(_) | Value::Date(_)) { UTC } else { &environment.time_zone }
}

/// A time of a kind: an instant beside instants, else one of a clock.
fn like(at: &Value, ns: i64) -> Value {
    if matches!(at, Value::LocalTimestamp(_) | Value::Date(_)) {
        Value::LocalTimestamp(ns)
    } else {
        Value::Timestamp(ns)
    }
}

/// A part of a time, or of its zone.
fn part(field: &str, ns: i64, zone: &TimeZone) -> Option<f64> {
    let offset_s = time::offset_s(zone, ns);
    Some(match field.to_lowercase().as_str() {
        "timezone" => offset_s as f64,
        "timezone_hour" => (offset_s / 3600) as f64,
        "timezone_minute" => (offset_s / 60 % 60) as f64,
        _ => return time::part(field, ns, zone),
    })
}

/// A time zone by its name.
pub(crate) fn time_zone(name: &str) -> Result<TimeZone, SqlError> {
    time::zone(name).ok_or_else(|| SqlError::Invalid(format!("time zone \"{name}\" not recognized")))
}

fn timestamp(at: &Value, environment: &Environment) -> Result<i64, SqlError> {
    match at {
        Value::Text(text) => match time::parse_instant(text, &environment.time_zone) {
            Some(ns) => Ok(ns),
            None => invalid(format!("invalid input syntax for type timestamp: \"{text}\"")),
        },
        at => at
            .time_ns()
            .ok_or_else(|| SqlError::Invalid(format!("a timestamp is wanted, not a {}", at.sql_type().name()))),
    }
}

/// A width of bins.
pub(crate) fn width(value: &Value) -> Result<Interval, SqlError> {
    let width = match value {
        Value::Interval(interval) => Some(*interval),
        Value::Text(text) => time::parse_interval(text),
        _ => None,
    };
    match width.map(Interval::with_even_days) {
        Some(width) if (width.months > 0 && width.ns == 0) || (width.months == 0 && width.ns > 0) => Ok(width),
        _ => invalid(format!("bins have a width of whole months or of a fixed length above zero, not \"{value}\"")),
    }
}

/// `time_bucket_gapfill` with the times between which gaps are filled, which come after width and time; either may be null.
pub(super) static GAPFILL_BETWEEN: Function = Function {
    name: "time_bucket_gapfill between",
    takes: (4, 7),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Timestamp),
    call: |arguments, environment| match arguments {
        [width, at, _, _, rest @ ..] if !width.is_null() && !at.is_null() => {
            let arguments = [&[width.clone(), at.clone()], rest].concat();
            time_bucket(&arguments, environment)
        }
        _ => Ok(Value::Null),
    },
};

/// The times between which a call of `time_bucket_gapfill` fills gaps, as far as it says.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FilledRange {
    pub(crate) start_ns: Option<i64>,
    /// Not inside.
    pub(crate) finish_ns: Option<i64>,
}

/// The times between which a call fills gaps; `None` if it is not one of `time_bucket_gapfill`.
pub(crate) fn filled_range(call: &Bound, environment: &Environment) -> Result<Option<FilledRange>, SqlError> {
    let Bound::Call(function, arguments) = call else { return Ok(None) };
    let time = |bound: &Bound| match bound.value(&[], environment)? {
        Value::Null => Ok(None),
        value => timestamp(&value, environment).map(Some),
    };
    match (function.name, arguments.as_slice()) {
        ("time_bucket_gapfill", _) => Ok(Some(FilledRange::default())),
        (name, [_, _, start, finish, ..]) if name == GAPFILL_BETWEEN.name => {
            Ok(Some(FilledRange { start_ns: time(start)?, finish_ns: time(finish)? }))
        }
        _ => Ok(None),
    }
}

/// Where bins of a width begin unless it is said.
const fn bucket_origin_ns(width: Interval) -> i64 {
    if width.months == 0 { BUCKET_ORIGIN_NS } else { MONTHS_ORIGIN_NS }
}

/// `time_bucket(width, time [, origin | offset | time zone])`
fn time_bucket(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [by, at, rest @ ..] = arguments else { return Ok(Value::Null) };
    let width = width(by)?;
    start(&bucket_bins(width, bucket_origin_ns(width), rest)?, at, environment)
}

/// The bins of a call of `time_bucket`: what follows the time is an origin, an offset or a time zone. The origin where none is named is local.
/// Without a zone they are cut by UTC, as in `TimescaleDB`, whatever the session's zone.
fn bucket_bins(width: Interval, local_origin_ns: i64, options: &[Value]) -> Result<CalendarBins, SqlError> {
    let (mut origin_ns, mut offsets, mut zone) = (None, Vec::new(), TimeZone::UTC);
    for option in options {
        match option {
            Value::Interval(offset) => offsets.push(*offset),
            at if at.time_ns().is_some() => origin_ns = at.time_ns(),
            Value::Text(text) => match (time::parse(text), time::parse_interval(text)) {
                (Some(origin), _) => origin_ns = Some(origin),
                (None, Some(offset)) => offsets.push(offset),
                (None, None) => zone = time_zone(text)?,
            },
            other => return invalid(format!("time_bucket takes an origin, an offset or a time zone, not {other}")),
        }
    }
    let mut origin_ns = match origin_ns {
        Some(origin_ns) => time::to_local(origin_ns, &zone).ok_or_else(out_of_range)?,
        None => local_origin_ns,
    };
    for offset in offsets {
        origin_ns = time::add(origin_ns, offset, &TimeZone::UTC).ok_or_else(out_of_range)?;
    }
    Ok(CalendarBins::new(width, origin_ns, zone))
}

/// The bins that a call means, whose arguments but the time are constants.
pub(crate) fn calendar_bins(call: &Bound, environment: &Environment) -> Result<Option<CalendarBins>, SqlError> {
    let Bound::Call(function, arguments) = call else { return Ok(None) };
    let (by, rest) = match arguments.as_slice() {
        [by, _, _, _, rest @ ..] if function.name == GAPFILL_BETWEEN.name => (by, rest),
        [by, _, rest @ ..] => (by, rest),
        _ => return Ok(None),
    };
    if !by.is_constant() || !rest.iter().all(Bound::is_constant) {
        return Ok(None);
    }
    let width = width(&by.value(&[], environment)?)?;
    let local_origin_ns = match function.name {
        "time_bucket" | "time_bucket_gapfill" | "time_bucket_gapfill between" => bucket_origin_ns(width),
        "date_bin" | "SAMPLE BY" => 0,
        _ => return Ok(None),
    };
    let options = rest.iter().map(|option| option.value(&[], environment)).collect::<Result<Vec<_>, _>>()?;
    if options.iter().any(Value::is_null) {
        return Ok(None);
    }
    bucket_bins(width, local_origin_ns, &options).map(Some)
}

/// `date_bin(width, time [, origin])`
fn date_bin(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [by, at, rest @ ..] = arguments else { return Ok(Value::Null) };
    start(&bucket_bins(width(by)?, 0, rest)?, at, environment)
}

/// The bin of `SAMPLE BY`: width, time, offset and time zone; bins begin at the local epoch.
pub(crate) static SAMPLE_BY: Function = strict("SAMPLE BY", (4, 4), SqlType::Timestamp, date_bin);

fn start(bins: &CalendarBins, at: &Value, environment: &Environment) -> Result<Value, SqlError> {
    bins.checked_start_of(timestamp(at, environment)?).map(|ns| like(at, ns)).ok_or_else(out_of_range)
}

fn out_of_range() -> SqlError {
    SqlError::Invalid("timestamp out of range".to_owned())
}

/// `date_trunc(unit, time [, time zone])`
fn date_trunc(arguments: &[Value], environment: &Environment) -> Result<Value, SqlError> {
    let [Value::Text(unit), at, rest @ ..] = arguments else {
        return invalid("date_trunc takes the name of a unit and a timestamp");
    };
    // A date is the instant of its midnight, as in Postgres.
    let at = match at {
        Value::Date(_) => &super::cast(at.clone(), SqlType::Timestamp, environment)?,
        at => at,
    };
    let zone = match rest.first() {
        Some(Value::Text(zone)) => time_zone(zone)?,
        _ => zone_of(at, environment).clone(),
    };
    match time::truncate(unit, timestamp(at, environment)?, &zone) {
        Some(ns) => Ok(like(at, ns)),
        None => invalid(format!("unit \"{unit}\" not recognized for a timestamp")),
    }
}

//! QuestDB's functions of times.

use std::fmt::Write;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use query::{Interval, SqlType, Value, time};

use super::dates::{DAYS, MONTHS};
use super::{Environment, Function, cast, strict};
use crate::error::{SqlError, invalid};

const NS_PER_DAY: i64 = 86_400_000_000_000;

pub(super) static FUNCTIONS: [Function; 5] = [
    strict("dateadd", (3, 3), SqlType::Timestamp, |arguments, environment| {
        let [period, count, at] = arguments else { return Ok(Value::Null) };
        let count = match count {
            Value::Int(count) => *count,
            other => return invalid(format!("dateadd takes a whole number of periods, not {other}")),
        };
        let by = period_of(period)?.times(count).ok_or_else(out_of_range)?;
        let at = instant(at, environment)?;
        time::add(at, by, &TimeZone::UTC).map(Value::Timestamp).ok_or_else(out_of_range)
    }),
    // How many whole periods there are between two times, whichever is the later one.
    strict("datediff", (3, 3), SqlType::Int, |arguments, environment| {
        let [period, a, b] = arguments else { return Ok(Value::Null) };
        let (a, b) = (instant(a, environment)?, instant(b, environment)?);
        let (from_ns, to_ns) = (a.min(b), a.max(b));
        match period_of(period)? {
            Period::Fixed(ns) => {
                let periods = (i128::from(to_ns) - i128::from(from_ns)) / i128::from(ns);
                i64::try_from(periods).map(Value::Int).map_err(|_| out_of_range())
            }
            Period::Months(months) => Ok(Value::Int(whole_months(from_ns, to_ns)? / i64::from(months))),
        }
    }),
    strict("to_timezone", (2, 2), SqlType::Timestamp, |arguments, environment| {
        in_zone(arguments, environment, time::to_local)
    }),
    strict("to_utc", (2, 2), SqlType::Timestamp, |arguments, environment| {
        in_zone(arguments, environment, time::from_local)
    }),
    strict("to_str", (2, 2), SqlType::Text, |arguments, environment| {
        let [at, pattern] = arguments else { return Ok(Value::Null) };
        written(instant(at, environment)?, &pattern.to_string()).map(Value::text)
    }),
];

/// A length of time that a letter names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Period {
    Fixed(i64),
    Months(i32),
}

impl Period {
    fn times(self, count: i64) -> Option<Interval> {
        match self {
            Self::Fixed(ns) => Some(Interval::of_ns(ns.checked_mul(count)?)),
            Self::Months(months) => Some(Interval::of_months(i32::try_from(count).ok()?.checked_mul(months)?)),
        }
    }
}

fn period_of(letter: &Value) -> Result<Period, SqlError> {
    Ok(match letter.to_string().as_str() {
        "n" => Period::Fixed(1),
        "u" | "U" => Period::Fixed(1_000),
        "T" => Period::Fixed(1_000_000),
        "s" => Period::Fixed(1_000_000_000),
        "m" => Period::Fixed(60_000_000_000),
        "h" | "H" => Period::Fixed(3_600_000_000_000),
        "d" | "D" => Period::Fixed(NS_PER_DAY),
        "w" | "W" => Period::Fixed(7 * NS_PER_DAY),
        "M" => Period::Months(1),
        "y" | "Y" => Period::Months(12),
        other => return invalid(format!("a period is one of n, u, T, s, m, h, d, w, M and y, not '{other}'")),
    })
}

fn instant(at: &Value, environment: &Environment) -> Result<i64, SqlError> {
    match cast(at.clone(), SqlType::Timestamp, environment)? {
        Value::Timestamp(ns) => Ok(ns),
        other => invalid(format!("a timestamp is wanted, not \"{other}\"")),
    }
}

fn civil(ns: i64) -> Result<DateTime, SqlError> {
    time::civil(ns, &TimeZone::UTC).ok_or_else(out_of_range)
}

fn out_of_range() -> SqlError {
    SqlError::Invalid("timestamp out of range".to_owned())
}

/// Months from a time to a later one that have passed whole.
fn whole_months(from_ns: i64, to_ns: i64) -> Result<i64, SqlError> {
    let (from, to) = (civil(from_ns)?, civil(to_ns)?);
    let months = i64::from(to.year() - from.year()) * 12 + i64::from(to.month() - from.month());
    let is_short = (to.day(), to.time()) < (from.day(), from.time());
    Ok(months - i64::from(is_short && months > 0))
}

/// The zone is a name or an offset such as `+02:00`.
fn in_zone(
    arguments: &[Value],
    environment: &Environment,
    convert: fn(i64, &TimeZone) -> Option<i64>,
) -> Result<Value, SqlError> {
    let [at, zone] = arguments else { return Ok(Value::Null) };
    let zone = super::time_zone(&zone.to_string())?;
    convert(instant(at, environment)?, &zone).map(Value::Timestamp).ok_or_else(out_of_range)
}

/// A time by a pattern of Java's letters: `yyyy-MM-dd HH:mm:ss.SSSUUUNNN`; text between quotes stays.
fn written(ns: i64, pattern: &str) -> Result<String, SqlError> {
    let at = civil(ns)?;
    let letters: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut in_quotes = false;
    for run in letters.chunk_by(|a, b| a == b && *a != '\'') {
        let Some(letter) = run.first() else { continue };
        match letter {
            '\'' => in_quotes = !in_quotes,
            letter if !in_quotes && letter.is_ascii_alphabetic() => push_part(&mut out, &at, *letter, run.len())?,
            _ => out.extend(run),
        }
    }
    Ok(out)
}

fn push_part(out: &mut String, at: &DateTime, letter: char, width: usize) -> Result<(), SqlError> {
    let name = |names: &[&'static str], number: i8| {
        let name = names.get(usize::try_from(number - 1).unwrap_or_default()).copied().unwrap_or_default();
        if width > 3 { name } else { name.get(..3).unwrap_or(name) }
    };
    let subsecond = at.subsec_nanosecond();
    let number = match letter {
        'y' if width == 2 => i32::from(at.year()).rem_euclid(100),
        'y' | 'u' => at.year().into(),
        'M' if width > 2 => {
            out.push_str(name(&MONTHS, at.month()));
            return Ok(());
        }
        'M' => at.month().into(),
        'd' => at.day().into(),
        'D' => at.day_of_year().into(),
        'E' => {
            out.push_str(name(&DAYS, at.weekday().to_monday_one_offset()));
            return Ok(());
        }
        'H' => at.hour().into(),
        'h' | 'K' => (i32::from(at.hour()) + 11) % 12 + 1,
        'm' => at.minute().into(),
        's' => at.second().into(),
        'S' => subsecond / 1_000_000,
        'U' => subsecond / 1_000 % 1_000,
        'N' => subsecond % 1_000,
        'a' => {
            out.push_str(if at.hour() < 12 { "AM" } else { "PM" });
            return Ok(());
        }
        'Z' | 'z' | 'x' => {
            out.push('Z');
            return Ok(());
        }
        other => return invalid(format!("to_str does not know the letter '{other}' of the pattern")),
    };
    // Writing into a string does not fail.
    let _ = write!(out, "{number:0width$}");
    Ok(())
}

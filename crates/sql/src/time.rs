//! Times as texts, on the calendar, and lengths of time.

use jiff::civil::{Date, DateTime, Weekday};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

use crate::value::Interval;

const NS_PER_S: i64 = 1_000_000_000;
const NS_PER_DAY: i64 = 86_400 * NS_PER_S;

/// Units of lengths of time with a fixed length, in nanoseconds.
const UNITS: [(&str, i64); 29] = [
    ("ns", 1),
    ("nanosecond", 1),
    ("nanoseconds", 1),
    ("us", 1000),
    ("µs", 1000),
    ("u", 1000),
    ("microsecond", 1000),
    ("microseconds", 1000),
    ("ms", 1_000_000),
    ("t", 1_000_000),
    ("millisecond", 1_000_000),
    ("milliseconds", 1_000_000),
    ("s", NS_PER_S),
    ("sec", NS_PER_S),
    ("secs", NS_PER_S),
    ("second", NS_PER_S),
    ("seconds", NS_PER_S),
    ("m", 60 * NS_PER_S),
    ("min", 60 * NS_PER_S),
    ("mins", 60 * NS_PER_S),
    ("minute", 60 * NS_PER_S),
    ("minutes", 60 * NS_PER_S),
    ("h", 3600 * NS_PER_S),
    ("hour", 3600 * NS_PER_S),
    ("hours", 3600 * NS_PER_S),
    ("d", NS_PER_DAY),
    ("day", NS_PER_DAY),
    ("days", NS_PER_DAY),
    ("w", 7 * NS_PER_DAY),
];

/// Units of calendar months.
const MONTHS: [(&str, i32); 11] = [
    ("mo", 1),
    ("mon", 1),
    ("mons", 1),
    ("month", 1),
    ("months", 1),
    ("quarter", 3),
    ("quarters", 3),
    ("y", 12),
    ("year", 12),
    ("years", 12),
    ("yr", 12),
];

/// Reads a timestamp: RFC 3339, or a date and a time with a space between, or a date; UTC unless it says otherwise.
pub(crate) fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return i64::try_from(timestamp.as_nanosecond()).ok();
    }
    if let Ok(civil) = text.parse::<DateTime>() {
        return nanoseconds(civil);
    }
    // A date, a space, a time and an offset such as +00.
    let (date, rest) = text.split_once(' ')?;
    let place = rest.find(['+', '-', 'Z'])?;
    let (time, offset) = rest.split_at(place);
    let offset = match offset.len() {
        3 => format!("{offset}:00"),
        _ => offset.to_owned(),
    };
    let timestamp: Timestamp = format!("{date}T{}{offset}", time.trim()).parse().ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

fn nanoseconds(civil: DateTime) -> Option<i64> {
    let timestamp = civil.to_zoned(TimeZone::UTC).ok()?.timestamp();
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// The date and time of a timestamp where it is.
pub(crate) fn civil(ns: i64, zone: &TimeZone) -> Option<DateTime> {
    let timestamp = Timestamp::from_nanosecond(i128::from(ns)).ok()?;
    Some(zone.to_datetime(timestamp))
}

/// The timestamp of a date and time where it is.
pub(crate) fn timestamp(civil: DateTime, zone: &TimeZone) -> Option<i64> {
    let timestamp = zone.to_timestamp(civil).ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// `2016-01-03 18:16:22.5`
pub(crate) fn format(ns: i64) -> String {
    let Some(civil) = civil(ns, &TimeZone::UTC) else { return ns.to_string() };
    let (hour, minute, second) = (civil.hour(), civil.minute(), civil.second());
    let mut text = format!("{} {hour:02}:{minute:02}:{second:02}", civil.date());
    push_fraction(&mut text, civil.subsec_nanosecond().unsigned_abs());
    text
}

fn push_fraction(text: &mut String, nanoseconds: u32) {
    if nanoseconds > 0 {
        text.push_str(format!(".{nanoseconds:09}").trim_end_matches('0'));
    }
}

/// `2016-01-03T18:16:22.500000Z`: microseconds, as QuestDB writes it.
pub fn format_rfc3339_us(ns: i64) -> String {
    match civil(ns, &TimeZone::UTC) {
        None => ns.to_string(),
        Some(civil) => {
            let (date, time) = (civil.date(), civil.time());
            let (hour, minute, second) = (time.hour(), time.minute(), time.second());
            format!("{date}T{hour:02}:{minute:02}:{second:02}.{:06}Z", civil.subsec_nanosecond() / 1000)
        }
    }
}

/// `1 year 2 mons 3 days 04:05:06.7`
pub(crate) fn format_interval(interval: Interval) -> String {
    let mut parts = Vec::new();
    let (years, months) = (interval.months / 12, interval.months % 12);
    let plural = |count: i64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    if years != 0 {
        parts.push(plural(i64::from(years), "year"));
    }
    if months != 0 {
        parts.push(plural(i64::from(months), "mon"));
    }
    let (days, rest) = (interval.ns / NS_PER_DAY, interval.ns % NS_PER_DAY);
    if days != 0 {
        parts.push(plural(days, "day"));
    }
    if rest != 0 || parts.is_empty() {
        let seconds = rest.unsigned_abs() / NS_PER_S.unsigned_abs();
        let sign = if rest < 0 { "-" } else { "" };
        let mut time = format!("{sign}{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        push_fraction(&mut time, (rest.unsigned_abs() % NS_PER_S.unsigned_abs()) as u32);
        parts.push(time);
    }
    parts.join(" ")
}

/// Reads a length of time: `1 hour`, `90 seconds`, `1h30m`, `2 days 03:00:00`, `1 month`.
pub(crate) fn parse_interval(text: &str) -> Option<Interval> {
    let mut interval = Interval::default();
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        if let Some((ns, behind)) = clock(rest) {
            interval.ns = interval.ns.checked_add(ns)?;
            rest = behind.trim_start();
            continue;
        }
        let digits = rest.find(|character: char| !(character.is_ascii_digit() || ".-+".contains(character)))?;
        let (count, behind) = rest.split_at(digits);
        let behind = behind.trim_start();
        let end = behind.find(|character: char| !character.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        interval = add_unit(interval, count.parse().ok()?, unit)?;
        rest = behind.trim_start();
    }
    Some(interval)
}

/// `03:04:05.6` at the beginning of a text.
fn clock(text: &str) -> Option<(i64, &str)> {
    let end = text.find(' ').unwrap_or(text.len());
    let (clock, rest) = text.split_at(end);
    let mut parts = clock.split(':');
    let (hours, minutes): (i64, i64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds: f64 = parts.next().map_or(Some(0.0), |seconds| seconds.parse().ok())?;
    let sign = if clock.starts_with('-') { -1 } else { 1 };
    let whole = hours.checked_abs()?.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_mul(NS_PER_S)?;
    Some((whole.checked_add((seconds * 1e9).round() as i64)?.checked_mul(sign)?, rest))
}

/// Adds so many of a unit.
pub(crate) fn add_unit(mut interval: Interval, count: f64, unit: &str) -> Option<Interval> {
    let lower = unit.to_lowercase();
    // QuestDB writes months as a capital letter.
    if let Some((_, months)) = MONTHS.iter().find(|(name, _)| *name == lower || (unit == "M" && *name == "month")) {
        let months = count * f64::from(*months);
        if months.fract() != 0.0 || months.abs() > 1e6 {
            return None;
        }
        interval.months = interval.months.checked_add(months as i32)?;
        return Some(interval);
    }
    let weeks = matches!(lower.as_str(), "week" | "weeks");
    let unit_ns = if weeks { 7 * NS_PER_DAY } else { UNITS.iter().find(|(name, _)| *name == lower)?.1 };
    let ns = count * unit_ns as f64;
    if ns.abs() >= 9.2e18 {
        return None;
    }
    // Whole counts are exact.
    let ns = if count.fract() == 0.0 { (count as i64).checked_mul(unit_ns)? } else { ns.round() as i64 };
    interval.ns = interval.ns.checked_add(ns)?;
    Some(interval)
}

/// A timestamp and a length of time; `None` beyond what 64 bits of nanoseconds hold.
pub(crate) fn add(ns: i64, interval: Interval, zone: &TimeZone) -> Option<i64> {
    let moved = if interval.months == 0 {
        ns
    } else {
        timestamp(civil(ns, zone)?.checked_add(months(interval.months)?).ok()?, zone)?
    };
    moved.checked_add(interval.ns)
}

/// So many months; `None` beyond what the calendar has: there `months()` of numbers panics.
fn months(count: i32) -> Option<Span> {
    Span::new().try_months(count).ok()
}

/// The start of the unit that a timestamp lies in.
pub(crate) fn truncate(unit: &str, ns: i64, zone: &TimeZone) -> Option<i64> {
    let civil = civil(ns, zone)?;
    let date = civil.date();
    let midnight = |date: Date| timestamp(date.to_datetime(jiff::civil::Time::midnight()), zone);
    let first = |month: i8| Date::new(date.year(), month, 1).ok();
    match unit.to_lowercase().trim_end_matches('s') {
        "microsecond" => ns.checked_sub(ns.rem_euclid(1000)),
        "millisecond" => ns.checked_sub(ns.rem_euclid(1_000_000)),
        "second" => ns.checked_sub(ns.rem_euclid(NS_PER_S)),
        "minute" => ns.checked_sub(ns.rem_euclid(60 * NS_PER_S)),
        "hour" => {
            let time = jiff::civil::Time::new(civil.hour(), 0, 0, 0).ok()?;
            timestamp(date.to_datetime(time), zone)
        }
        "day" => midnight(date),
        "week" => midnight(date.checked_sub(i64::from(date.weekday().since(Weekday::Monday)).days()).ok()?),
        "month" => midnight(first(date.month())?),
        "quarter" => midnight(first((date.month() - 1) / 3 * 3 + 1)?),
        "year" => midnight(first(1)?),
        "decade" => midnight(Date::new(date.year().div_euclid(10) * 10, 1, 1).ok()?),
        "century" => midnight(Date::new((date.year() - 1).div_euclid(100) * 100 + 1, 1, 1).ok()?),
        _ => None,
    }
}

/// A part of a timestamp.
pub(crate) fn part(field: &str, ns: i64, zone: &TimeZone) -> Option<f64> {
    let civil = civil(ns, zone)?;
    let date = civil.date();
    let seconds = f64::from(civil.second()) + f64::from(civil.subsec_nanosecond()) / 1e9;
    Some(match field.to_lowercase().as_str() {
        "epoch" => ns as f64 / 1e9,
        "nanosecond" | "nanoseconds" => seconds * 1e9,
        "microsecond" | "microseconds" => seconds * 1e6,
        "millisecond" | "milliseconds" => seconds * 1e3,
        "second" | "seconds" => seconds,
        "minute" | "minutes" => f64::from(civil.minute()),
        "hour" | "hours" => f64::from(civil.hour()),
        "day" | "days" => f64::from(date.day()),
        "dow" | "dayofweek" => f64::from(date.weekday().to_sunday_zero_offset()),
        "isodow" => f64::from(date.weekday().to_monday_one_offset()),
        "doy" | "dayofyear" => f64::from(date.day_of_year()),
        "week" => f64::from(date.iso_week_date().week()),
        "isoyear" => f64::from(date.iso_week_date().year()),
        "month" | "months" => f64::from(date.month()),
        "quarter" => f64::from((date.month() - 1) / 3 + 1),
        "year" | "years" => f64::from(date.year()),
        "decade" => f64::from(date.year().div_euclid(10)),
        "century" => f64::from((date.year() - 1).div_euclid(100) + 1),
        _ => return None,
    })
}

/// Where the bin of a time begins: bins of a width, one of which begins at the origin.
pub(crate) fn bin(ns: i64, width: Interval, origin_ns: i64, zone: &TimeZone) -> Option<i64> {
    if width.months == 0 && *zone != TimeZone::UTC {
        // By the clock of the place: days of 23 and 25 hours are whole ones.
        let local = timestamp(civil(ns, zone)?, &TimeZone::UTC)?;
        let start = bin(local, width, origin_ns, &TimeZone::UTC)?;
        return timestamp(civil(start, &TimeZone::UTC)?, zone);
    }
    if width.months == 0 {
        let into = (i128::from(ns) - i128::from(origin_ns)).rem_euclid(i128::from(width.ns.max(1)));
        return ns.checked_sub(i64::try_from(into).ok()?);
    }
    let (here, origin) = (civil(ns, zone)?, civil(origin_ns, zone)?);
    let index = |date: Date| i32::from(date.year()) * 12 + i32::from(date.month()) - 1;
    let bins = (index(here.date()) - index(origin.date())).div_euclid(width.months);
    let mut since_origin = bins.checked_mul(width.months)?;
    loop {
        let start = timestamp(origin.checked_add(months(since_origin)?).ok()?, zone)?;
        if start <= ns {
            return Some(start);
        }
        since_origin = since_origin.checked_sub(width.months)?;
    }
}

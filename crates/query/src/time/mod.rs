//! Times as texts, on the calendar, and lengths of time.

mod calendar;
mod interval;
mod truncate;

use std::fmt::Write as _;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

pub use calendar::{CalendarBins, EqualBins, from_local, offset_s, timestamp, to_local, zone};
pub use interval::{add, add_unit, format_interval, parse_interval};
pub use truncate::truncate;

const NS_PER_S: i64 = 1_000_000_000;
const NS_PER_DAY: i64 = 86_400 * NS_PER_S;

/// Reads a timestamp: RFC 3339, a date, or a date and a time of day. Without an offset it is in the zone.
pub fn parse_in(text: &str, zone: &TimeZone) -> Option<i64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return i64::try_from(timestamp.as_nanosecond()).ok();
    }
    let timestamp = zone.to_ambiguous_timestamp(text.parse::<DateTime>().ok()?).compatible().ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// Reads a timestamp as Postgres does, too: a date, a space, a time and an offset such as `+00` or a zone; UTC unless it says otherwise.
pub fn parse(text: &str) -> Option<i64> {
    parse_instant(text, &TimeZone::UTC)
}

/// Reads a timestamp as [`parse`] does; without an offset or a zone of its own it is in this zone.
pub fn parse_instant(text: &str, zone: &TimeZone) -> Option<i64> {
    let text = text.trim();
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return i64::try_from(timestamp.as_nanosecond()).ok();
    }
    let (civil, own_zone) = parts(text)?;
    match own_zone {
        "" => timestamp(civil, zone),
        own_zone => timestamp(civil, &offset_zone(own_zone).or_else(|| calendar::zone(own_zone))?),
    }
}

/// Reads a date and time, as if it were UTC; an offset or a zone is ignored, as Postgres does.
pub fn parse_local(text: &str) -> Option<i64> {
    timestamp(parts(text.trim())?.0, &TimeZone::UTC)
}

/// The date and time of a text, and what is after it: an offset or a zone.
fn parts(text: &str) -> Option<(DateTime, &str)> {
    let clock_start = text.find([' ', 'T', 't']).map_or(text.len(), |at| at + 1);
    let clock = text.get(clock_start..)?;
    let length = clock.find(|one: char| !(one.is_ascii_digit() || matches!(one, ':' | '.'))).unwrap_or(clock.len());
    let (civil, zone) = text.split_at(clock_start + length);
    Some((civil.trim_end().parse().ok()?, zone.trim()))
}

/// A zone of one offset: `+02`, `-0330`, `+05:30` or `+00:19:32`.
fn offset_zone(text: &str) -> Option<TimeZone> {
    let sign = match text.get(..1)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    let digits = text.get(1..)?.replace(':', "");
    if !matches!(digits.len(), 1 | 2 | 4 | 6) || !digits.bytes().all(|one| one.is_ascii_digit()) {
        return None;
    }
    let part = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |part| part.parse::<i32>().ok());
    let (hours, minutes, seconds) = (part(0, digits.len().min(2))?, part(2, 4)?, part(4, 6)?);
    let seconds = sign * (hours * 3600 + minutes * 60 + seconds);
    Offset::from_seconds(seconds).ok().map(Offset::to_time_zone)
}

/// The date and time of a timestamp where it is.
pub fn civil(ns: i64, zone: &TimeZone) -> Option<DateTime> {
    let timestamp = Timestamp::from_nanosecond(i128::from(ns)).ok()?;
    Some(zone.to_datetime(timestamp))
}

/// `2016-01-03 18:16:22.5`
pub fn format(ns: i64) -> String {
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

/// `2016-01-03 18:16:22.5+01`: a timestamp on the clock of a zone, as Postgres writes it.
pub fn format_in(ns: i64, zone: &TimeZone) -> String {
    let Some(local_ns) = to_local(ns, zone) else { return format(ns) };
    let mut text = format(local_ns);
    push_offset(&mut text, offset_s(zone, ns));
    text
}

/// Appends an offset in seconds: hours, and minutes and seconds where there are some.
pub fn push_offset(text: &mut String, offset_s: i64) {
    let seconds = offset_s.abs();
    // Writing into a string does not fail.
    let _ = write!(text, "{}{:02}", if offset_s < 0 { '-' } else { '+' }, seconds / 3600);
    if seconds % 3600 != 0 {
        let _ = write!(text, ":{:02}", seconds / 60 % 60);
    }
    if seconds % 60 != 0 {
        let _ = write!(text, ":{:02}", seconds % 60);
    }
}

/// `2016-01-03`
pub fn format_date(ns: i64) -> String {
    civil(ns, &TimeZone::UTC).map_or_else(|| ns.to_string(), |civil| civil.date().to_string())
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

/// Nanoseconds as seconds. Whole microseconds are the nearest float, which 64 bits of nanoseconds would miss.
pub fn as_seconds(ns: i64) -> f64 {
    if ns % 1000 == 0 { (ns / 1000) as f64 / 1e6 } else { ns as f64 / 1e9 }
}

/// A part of a timestamp.
pub fn part(field: &str, ns: i64, zone: &TimeZone) -> Option<f64> {
    let civil = civil(ns, zone)?;
    let date = civil.date();
    let seconds = f64::from(civil.second()) + f64::from(civil.subsec_nanosecond()) / 1e9;
    Some(match field.to_lowercase().as_str() {
        "epoch" => as_seconds(ns),
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
        "millennium" => f64::from((date.year() - 1).div_euclid(1000) + 1),
        _ => return None,
    })
}

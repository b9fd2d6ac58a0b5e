//! Lengths of time: read, written and added.

use jiff::Span;
use jiff::tz::TimeZone;

use super::{NS_PER_DAY, NS_PER_S, civil, push_fraction, timestamp};
use crate::Interval;

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

/// `1 year 2 mons 3 days 04:05:06.7`
pub fn format_interval(interval: Interval) -> String {
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
pub fn parse_interval(text: &str) -> Option<Interval> {
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
pub fn add_unit(mut interval: Interval, count: f64, unit: &str) -> Option<Interval> {
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
pub fn add(ns: i64, interval: Interval, zone: &TimeZone) -> Option<i64> {
    let moved = if interval.months == 0 {
        ns
    } else {
        timestamp(civil(ns, zone)?.checked_add(months(interval.months)?).ok()?, zone)?
    };
    moved.checked_add(interval.ns)
}

/// So many months; `None` beyond what the calendar has: there `months()` of numbers panics.
pub(super) fn months(count: i32) -> Option<Span> {
    Span::new().try_months(count).ok()
}

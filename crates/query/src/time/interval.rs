//! Lengths of time: read, written and added.

use std::fmt::Write as _;

use jiff::Span;
use jiff::tz::TimeZone;

use super::{NS_PER_S, civil, push_fraction, timestamp};
use crate::Interval;

/// A part of a length of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Months(i32),
    Days(i32),
    Ns(i64),
}

/// The part that a unit stands for. Capitals count in `M` alone, QuestDB's month.
fn unit_of(unit: &str) -> Option<Part> {
    if unit == "M" {
        return Some(Part::Months(1));
    }
    Some(match unit.to_lowercase().as_str() {
        "ns" | "nanosecond" | "nanoseconds" => Part::Ns(1),
        "us" | "µs" | "u" | "microsecond" | "microseconds" | "usec" | "usecs" => Part::Ns(1000),
        "ms" | "t" | "millisecond" | "milliseconds" | "msec" | "msecs" => Part::Ns(1_000_000),
        "s" | "sec" | "secs" | "second" | "seconds" => Part::Ns(NS_PER_S),
        "m" | "min" | "mins" | "minute" | "minutes" => Part::Ns(60 * NS_PER_S),
        "h" | "hr" | "hrs" | "hour" | "hours" => Part::Ns(3600 * NS_PER_S),
        "d" | "day" | "days" => Part::Days(1),
        "w" | "week" | "weeks" => Part::Days(7),
        "mo" | "mon" | "mons" | "month" | "months" => Part::Months(1),
        "quarter" | "quarters" => Part::Months(3),
        "y" | "yr" | "yrs" | "year" | "years" => Part::Months(12),
        "decade" | "decades" => Part::Months(120),
        "century" | "centuries" => Part::Months(1200),
        _ => return None,
    })
}

/// `1 year 2 mons 3 days 04:05:06.7`, as Postgres writes it: a part after a negative one has its sign.
pub fn format_interval(interval: Interval) -> String {
    let mut text = String::new();
    let mut follows_negative = false;
    let units = [(interval.months / 12, "year"), (interval.months % 12, "mon"), (interval.days, "day")];
    for (count, unit) in units.into_iter().filter(|(count, _)| *count != 0) {
        let between = if text.is_empty() { "" } else { " " };
        let sign = if follows_negative && count > 0 { "+" } else { "" };
        // Writing into a string does not fail.
        let _ = write!(text, "{between}{sign}{count} {unit}{}", if count == 1 { "" } else { "s" });
        follows_negative = count < 0;
    }
    if interval.ns != 0 || text.is_empty() {
        let ns = interval.ns.unsigned_abs();
        let seconds = ns / NS_PER_S.unsigned_abs();
        let between = if text.is_empty() { "" } else { " " };
        let sign = match interval.ns < 0 {
            true => "-",
            false if follows_negative => "+",
            false => "",
        };
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        let _ = write!(text, "{between}{sign}{hours:02}:{minutes:02}:{:02}", seconds % 60);
        push_fraction(&mut text, (ns % NS_PER_S.unsigned_abs()) as u32);
    }
    text
}

/// Reads a length of time: `1 hour`, `90 seconds`, `1h30m`, `2 days 03:00:00`, `1 month`, `-1 day +02:00`, `1-2` (years and months), `90`
/// (seconds), `P1DT2H`; with `ago` its opposite.
pub fn parse_interval(text: &str) -> Option<Interval> {
    let text = text.trim().trim_start_matches('@').trim_start();
    if let Some(text) = text.strip_suffix("ago") {
        return parse_interval(text)?.checked_neg();
    }
    if let Some(designated) = text.strip_prefix('P') {
        return parse_designated(designated);
    }
    if text.is_empty() {
        return None;
    }
    let mut interval = Interval::default();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some((ns, behind)) = clock(rest) {
            interval.ns = interval.ns.checked_add(ns)?;
            rest = behind.trim_start();
            continue;
        }
        if let Some((months, behind)) = years_and_months(rest) {
            interval.months = interval.months.checked_add(months)?;
            rest = behind.trim_start();
            continue;
        }
        let digits = rest.find(|character: char| !(character.is_ascii_digit() || ".-+".contains(character)));
        let (count, behind) = rest.split_at(digits.unwrap_or(rest.len()));
        let behind = behind.trim_start();
        let end = behind.find(|character: char| !character.is_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        // A number without a unit at the end is one of seconds.
        let unit = if unit.is_empty() && behind.is_empty() { "s" } else { unit };
        interval = add_unit(interval, count.parse().ok()?, unit)?;
        rest = behind.trim_start();
    }
    Some(interval)
}

/// `1Y2M3DT4H5M6S`, or weeks: what is after the `P` of ISO 8601.
fn parse_designated(text: &str) -> Option<Interval> {
    let (date, time) = text.split_once('T').unwrap_or((text, ""));
    let mut interval = Interval::default();
    for (part, units) in [(date, ["Y", "M", "W", "D"].as_slice()), (time, &["H", "M", "S"])] {
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.find(|character: char| character.is_ascii_uppercase())?;
            let (count, behind) = rest.split_at(end);
            let (unit, behind) = behind.split_at(1);
            let is_minute = unit == "M" && units.len() == 3;
            let unit = if is_minute { "minute" } else { *units.iter().find(|known| **known == unit)? };
            interval = add_unit(interval, count.parse().ok()?, unit)?;
            rest = behind;
        }
    }
    Some(interval).filter(|_| !text.is_empty())
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

/// `1-2` at the beginning of a text: years and months.
fn years_and_months(text: &str) -> Option<(i32, &str)> {
    let end = text.find(' ').unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let unsigned = word.trim_start_matches(['+', '-']);
    let (years, months) = unsigned.split_once('-')?;
    let (years, months): (i32, i32) = (years.parse().ok()?, months.parse().ok().filter(|months| *months < 12)?);
    let sum = years.checked_mul(12)?.checked_add(months)?;
    Some((if word.starts_with('-') { -sum } else { sum }, rest))
}

/// Adds so many of a unit. As in Postgres a part of a year is whole months, a part of a month is one of 30 days, a part of a day one of 24 hours.
pub fn add_unit(interval: Interval, count: f64, unit: &str) -> Option<Interval> {
    let whole = |number: f64| (number.abs() < 2_147_483_648.0).then_some(number as i32);
    let rounded = |part: f64| (part * 1e6).round_ties_even() / 1e6;
    let added = match unit_of(unit)? {
        Part::Months(1) => {
            let days = rounded(count.fract() * 30.0);
            let ns = rounded(days.fract() * 86_400.0) * 1e9;
            Interval { months: whole(count.trunc())?, days: whole(days.trunc())?, ns: ns.round() as i64 }
        }
        Part::Months(months) => Interval::of_months(whole((count * f64::from(months)).round_ties_even())?),
        Part::Days(days) => {
            let days = rounded(count * f64::from(days));
            let ns = rounded(days.fract() * 86_400.0) * 1e9;
            Interval { months: 0, days: whole(days.trunc())?, ns: ns.round() as i64 }
        }
        Part::Ns(unit_ns) => {
            let ns = count * unit_ns as f64;
            if ns.abs() >= 9.2e18 {
                return None;
            }
            // Whole counts are exact.
            let is_whole = count.fract() == 0.0;
            Interval::of_ns(if is_whole { (count as i64).checked_mul(unit_ns)? } else { ns.round() as i64 })
        }
    };
    interval.checked_add(added)
}

/// A timestamp and a length of time: months and days are added on the clock of the zone. `None` beyond what 64 bits of nanoseconds hold.
pub fn add(ns: i64, interval: Interval, zone: &TimeZone) -> Option<i64> {
    let mut moved = ns;
    for span in [Span::new().try_months(interval.months), Span::new().try_days(interval.days)] {
        let span = span.ok()?;
        if !span.is_zero() {
            moved = timestamp(civil(moved, zone)?.checked_add(span).ok()?, zone)?;
        }
    }
    moved.checked_add(interval.ns)
}

/// So many months; `None` beyond what the calendar has: there `months()` of numbers panics.
pub(super) fn months(count: i32) -> Option<Span> {
    Span::new().try_months(count).ok()
}

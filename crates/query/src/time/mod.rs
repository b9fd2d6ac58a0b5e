//! Times as texts, on the calendar, and lengths of time.

mod calendar;
mod interval;
mod truncate;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

pub use calendar::{CalendarBins, from_local, timestamp, to_local, zone};
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

/// Reads a timestamp as Postgres writes it, too: a date, a space, a time and an offset such as `+00`; UTC unless it says otherwise.
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    parse_in(text, &TimeZone::UTC).or_else(|| {
        let (date, rest) = text.split_once(' ')?;
        let place = rest.find(['+', '-', 'Z'])?;
        let (time, offset) = rest.split_at(place);
        let minutes = if offset.len() == 3 { ":00" } else { "" };
        let timestamp: Timestamp = format!("{date}T{}{offset}{minutes}", time.trim()).parse().ok()?;
        i64::try_from(timestamp.as_nanosecond()).ok()
    })
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

/// A part of a timestamp.
pub fn part(field: &str, ns: i64, zone: &TimeZone) -> Option<f64> {
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

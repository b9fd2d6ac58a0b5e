//! `date_trunc`

use jiff::ToSpan;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;

use super::calendar::offset_ns;
use super::{NS_PER_S, civil, timestamp};

/// The start of the unit that a timestamp lies in, as Postgres has it: units up to an hour keep the offset of the timestamp.
pub fn truncate(unit: &str, ns: i64, zone: &TimeZone) -> Option<i64> {
    let date = civil(ns, zone)?.date();
    let midnight = |date: Date| timestamp(date.to_datetime(jiff::civil::Time::midnight()), zone);
    let first = |month: i8| Date::new(date.year(), month, 1).ok();
    let floor = |unit_ns: i64| {
        let offset_ns = offset_ns(zone, ns);
        let local_ns = ns.checked_add(offset_ns)?;
        local_ns.checked_sub(local_ns.rem_euclid(unit_ns))?.checked_sub(offset_ns)
    };
    match unit.to_lowercase().trim_end_matches('s') {
        "microsecond" => floor(1000),
        "millisecond" => floor(1_000_000),
        "second" => floor(NS_PER_S),
        "minute" => floor(60 * NS_PER_S),
        "hour" => floor(3600 * NS_PER_S),
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

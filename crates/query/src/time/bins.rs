//! Bins of time on the calendar.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::interval::months;
use super::{NS_PER_S, civil, timestamp};
use crate::Interval;

/// No bin begins earlier.
const FIRST_NS: i64 = i64::MIN + 2;

/// The start of the unit that a timestamp lies in.
pub fn truncate(unit: &str, ns: i64, zone: &TimeZone) -> Option<i64> {
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

/// Where the bin of a time begins: bins of a width, one of which begins at the origin.
pub fn bin(ns: i64, width: Interval, origin_ns: i64, zone: &TimeZone) -> Option<i64> {
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

fn offset_ns(zone: &TimeZone, time_ns: i64) -> i64 {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    let offset = SignedDuration::from_secs(i64::from(zone.to_offset(timestamp).seconds()));
    i64::try_from(offset.as_nanos()).unwrap_or(0)
}

/// Bins of one width, by the clock of a zone if there is one.
#[derive(Debug, Clone)]
pub struct CalendarBins {
    /// From one bin to the next, where the clocks stay as they are.
    pub width_ns: i64,
    /// Bins begin so much later than multiples of the width.
    pub offset_ns: i64,
    /// `None`: UTC.
    pub zone: Option<TimeZone>,
}

impl CalendarBins {
    /// Where the bin begins that a time is in.
    pub fn start_of(&self, time_ns: i64) -> i64 {
        let Some(zone) = &self.zone else {
            return self.start_of_plain(time_ns);
        };
        let offset = offset_ns(zone, time_ns);
        let start = self.start_of_plain(time_ns.saturating_add(offset)).saturating_sub(offset);
        // The clocks may have been changed since.
        let offset_then = offset_ns(zone, start);
        if offset_then == offset || self.width_ns < (offset - offset_then).abs() {
            return start;
        }
        start.saturating_add(offset - offset_then).min(time_ns)
    }

    fn start_of_plain(&self, time_ns: i64) -> i64 {
        let since = (i128::from(time_ns) - i128::from(self.offset_ns)).rem_euclid(i128::from(self.width_ns));
        let start = i128::from(time_ns) - since;
        i64::try_from(start).unwrap_or(FIRST_NS).max(FIRST_NS)
    }

    /// Where the bin after one begins.
    pub fn next(&self, start_ns: i64) -> i64 {
        let next = start_ns.saturating_add(self.width_ns);
        if self.zone.is_none() {
            return next;
        }
        // Half a width further lies in the next bin, whatever the clocks do.
        let in_next = self.start_of(next.saturating_add(self.width_ns / 2));
        if in_next > start_ns { in_next } else { next }
    }

    /// Where the bin before one begins.
    pub fn previous(&self, start_ns: i64) -> i64 {
        let previous = start_ns.saturating_sub(self.width_ns);
        if self.zone.is_none() { previous } else { self.start_of(start_ns.saturating_sub(self.width_ns / 2)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_follow_the_clock_of_a_zone() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let plain = CalendarBins { width_ns: HOUR_NS, offset_ns: 0, zone: None };
        assert_eq!((plain.start_of(-1), plain.start_of(HOUR_NS), plain.next(0)), (-HOUR_NS, HOUR_NS, HOUR_NS));
        let days =
            CalendarBins { width_ns: 24 * HOUR_NS, offset_ns: 0, zone: Some(TimeZone::get("Europe/Berlin").unwrap()) };
        // The day on which summer time begins has 23 hours.
        let start_ns = super::super::parse("2016-03-26T23:00:00Z").unwrap();
        let next_ns = super::super::parse("2016-03-27T22:00:00Z").unwrap();
        assert_eq!(days.start_of(start_ns + 12 * HOUR_NS), start_ns);
        assert_eq!(days.next(start_ns), next_ns);
        assert_eq!(days.previous(next_ns), start_ns);
    }
}

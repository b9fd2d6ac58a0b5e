//! Times: literals, zones, windows.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The first time of all; a window that begins here is shown at the epoch.
pub(crate) const TIME_MIN_NS: i64 = i64::MIN + 2;
/// The last time of all.
pub(crate) const TIME_MAX_NS: i64 = i64::MAX - 1;

/// A time zone by the name in `tz('…')`.
pub(crate) fn zone(name: &str) -> Result<TimeZone, String> {
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    TimeZone::get(name).map_err(|_| format!("unable to find time zone {name}"))
}

/// The time that a text says: RFC 3339, a date, or a date with a time of day. Without an offset it is in the zone.
pub(crate) fn parse(text: &str, zone: Option<&TimeZone>) -> Option<i64> {
    if let Ok(timestamp) = text.parse::<Timestamp>() {
        return i64::try_from(timestamp.as_nanosecond()).ok();
    }
    let local = match text.parse::<Date>() {
        Ok(date) if text.len() <= 10 => date.at(0, 0, 0, 0),
        _ => text.parse::<DateTime>().ok()?,
    };
    let zone = zone.cloned().unwrap_or(TimeZone::UTC);
    let timestamp = zone.to_ambiguous_timestamp(local).compatible().ok()?;
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// A time as RFC 3339 with as many digits as it needs.
pub(crate) fn text(time_ns: i64, zone: Option<&TimeZone>) -> String {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    match zone {
        None => timestamp.to_string(),
        Some(zone) => {
            let text = timestamp.display_with_offset(zone.to_offset(timestamp)).to_string();
            text.strip_suffix("+00:00").map_or(text.clone(), |plain| format!("{plain}Z"))
        }
    }
}

fn offset_ns(zone: &TimeZone, time_ns: i64) -> i64 {
    let timestamp = Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default();
    let offset = SignedDuration::from_secs(i64::from(zone.to_offset(timestamp).seconds()));
    i64::try_from(offset.as_nanos()).unwrap_or(0)
}

/// Windows of one width.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    pub(crate) width_ns: i64,
    /// Windows begin so much later than multiples of the width.
    pub(crate) offset_ns: i64,
    pub(crate) zone: Option<TimeZone>,
}

impl Windows {
    /// Where the window begins that a time is in.
    pub(crate) fn start_of(&self, time_ns: i64) -> i64 {
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
        i64::try_from(start).unwrap_or(TIME_MIN_NS).max(TIME_MIN_NS)
    }

    /// Where the window behind one begins.
    pub(crate) fn next(&self, start_ns: i64) -> i64 {
        let next = start_ns.saturating_add(self.width_ns);
        if self.zone.is_none() {
            return next;
        }
        // Half a width further lies in the next window, whatever the clocks do.
        let in_next = self.start_of(next.saturating_add(self.width_ns / 2));
        if in_next > start_ns { in_next } else { next }
    }

    /// Where the window before one begins.
    pub(crate) fn previous(&self, start_ns: i64) -> i64 {
        let previous = start_ns.saturating_sub(self.width_ns);
        if self.zone.is_none() { previous } else { self.start_of(start_ns.saturating_sub(self.width_ns / 2)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_texts() {
        let berlin = zone("Europe/Berlin").unwrap();
        let check = |text: &str, zone: Option<&TimeZone>, expected: Option<&str>| {
            let parsed = parse(text, zone).map(|time_ns| super::text(time_ns, None));
            assert_eq!(parsed.as_deref(), expected, "{text}");
        };
        check("2016-01-01", None, Some("2016-01-01T00:00:00Z"));
        check("2016-01-01", Some(&berlin), Some("2015-12-31T23:00:00Z"));
        check("2016-07-01 12:30:00.5", Some(&berlin), Some("2016-07-01T10:30:00.5Z"));
        check("2016-01-01T00:00:00Z", Some(&berlin), Some("2016-01-01T00:00:00Z"));
        check("2016-01-01T00:00:00.123456789+01:00", None, Some("2015-12-31T23:00:00.123456789Z"));
        check("yesterday", None, None);
        check("9999-12-31T00:00:00Z", None, None);
        assert_eq!(text(0, Some(&berlin)), "1970-01-01T01:00:00+01:00");
        assert!(zone("Nowhere/At_All").is_err());
    }

    #[test]
    fn windows_follow_the_clock_of_a_zone() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let plain = Windows { width_ns: HOUR_NS, offset_ns: 0, zone: None };
        assert_eq!((plain.start_of(-1), plain.start_of(HOUR_NS), plain.next(0)), (-HOUR_NS, HOUR_NS, HOUR_NS));
        let days = Windows { width_ns: 24 * HOUR_NS, offset_ns: 0, zone: Some(zone("Europe/Berlin").unwrap()) };
        // The day on which summer time begins has 23 hours.
        let start_ns = parse("2016-03-26T23:00:00Z", None).unwrap();
        let next_ns = parse("2016-03-27T22:00:00Z", None).unwrap();
        assert_eq!(days.start_of(start_ns + 12 * HOUR_NS), start_ns);
        assert_eq!(days.next(start_ns), next_ns);
        assert_eq!(days.previous(next_ns), start_ns);
    }
}

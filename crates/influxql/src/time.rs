//! Times: literals and zones.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The first time of all; a window that begins here is shown at the epoch.
pub(crate) const TIME_MIN_NS: i64 = i64::MIN + 2;
/// The last time of all.
pub(crate) const TIME_MAX_NS: i64 = i64::MAX - 1;

/// A time zone by the name in `tz('…')`.
pub(crate) fn zone(name: &str) -> Result<TimeZone, String> {
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    query::time::zone(name).ok_or_else(|| format!("unable to find time zone {name}"))
}

/// The time that a text says: RFC 3339, a date, or a date with a time of day. Without an offset it is in the zone.
pub(crate) fn parse(text: &str, zone: Option<&TimeZone>) -> Option<i64> {
    query::time::parse_in(text, zone.unwrap_or(&TimeZone::UTC))
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
}

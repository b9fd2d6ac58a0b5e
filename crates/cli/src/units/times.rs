//! Moments as people write them.

use jiff::{SignedDuration, Timestamp};

/// A moment: RFC 3339, Unix seconds, `now`, or relative to it, as in `-1h` or `now-1h`.
pub(crate) fn parse(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let bad = || format!("{text:?} is not a time such as now, -1h, 2026-01-01T00:00:00Z or 1767225600");
    let relative = text.strip_prefix("now").unwrap_or(text);
    if text == "now" {
        return Ok(now);
    }
    if relative.len() < text.len() || relative.ends_with(|last: char| last.is_ascii_alphabetic() && last != 'Z') {
        let (sign, duration) = match (relative.strip_prefix('-'), relative.strip_prefix('+')) {
            (Some(duration), _) => (-1, duration),
            (None, Some(duration)) => (1, duration),
            (None, None) => return Err(bad()),
        };
        let offset = SignedDuration::from_secs(sign * duration_s(duration).map_err(|_| bad())?);
        return now.checked_add(offset).map_err(|_| bad());
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return Timestamp::from_millisecond((seconds * 1000.0).round() as i64).map_err(|_| bad());
    }
    text.parse::<Timestamp>().map_err(|_| bad())
}

/// A moment as the server takes it: seconds since the epoch.
pub(crate) fn seconds(text: &str) -> Result<String, String> {
    Ok((parse(text, Timestamp::now())?.as_millisecond() as f64 / 1000.0).to_string())
}

/// A duration in seconds: `90m`, `6h`, `7d`.
pub(crate) fn duration_s(text: &str) -> Result<i64, String> {
    let bad = || format!("{text:?} is not a duration such as 30m, 6h or 7d");
    for (unit, unit_s) in [('d', 86_400), ('w', 604_800)] {
        if let Some(count) = text.strip_suffix(unit) {
            return count.parse::<i64>().ok().and_then(|count| count.checked_mul(unit_s)).ok_or_else(bad);
        }
    }
    text.parse::<SignedDuration>().map(|duration| duration.as_secs()).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_absolute_or_relative() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(parse(text, now).ok().map(Timestamp::as_millisecond), expected.map(|s| s * 1000), "{text}");
        };
        check("now", Some(1_000_000));
        check("-1h", Some(996_400));
        check("now-7d", Some(395_200));
        check("now+1m", Some(1_000_060));
        check("-60", Some(-60));
        check("60", Some(60));
        check("1970-01-01T00:01:00Z", Some(60));
        for bad in ["soon", "1h", "now 1h", "-h", "now-", "yesterdayZ", ""] {
            check(bad, None);
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration_s("90m"), Ok(5400));
        assert_eq!(duration_s("7d"), Ok(604_800));
        assert!(duration_s("soon").is_err());
    }
}

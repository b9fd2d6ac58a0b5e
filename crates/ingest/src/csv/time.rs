//! Times as CSV files write them.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::layout::GoLayout;

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TimeFormat {
    /// A number since the Unix epoch, whose size tells the unit (seconds up to the year 5138, and so on), or a date.
    #[default]
    Auto,
    /// RFC 3339; also with a blank for the `T`, and in UTC without an offset.
    Rfc3339,
    /// Seconds since the Unix epoch, with or without a fraction, as the other units.
    Seconds,
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// Nanoseconds.
    Nanoseconds,
    /// By an example, as Go has it.
    Custom(GoLayout),
}

impl TimeFormat {
    /// The format with this name: `auto`, `rfc3339`, `s`, `ms`, `us` or `ns`.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "rfc3339" => Some(Self::Rfc3339),
            "s" => Some(Self::Seconds),
            "ms" => Some(Self::Milliseconds),
            "us" => Some(Self::Microseconds),
            "ns" => Some(Self::Nanoseconds),
            _ => None,
        }
    }

    /// The time in nanoseconds since the Unix epoch, or what is wrong with it.
    pub fn parse_ns(&self, text: &str) -> Result<i64, String> {
        let timestamp_ns = match self {
            Self::Auto => parse_number_ns(text, None).or_else(|| parse_date_ns(text)),
            Self::Rfc3339 => parse_date_ns(text),
            Self::Seconds => parse_number_ns(text, Some(1_000_000_000)),
            Self::Milliseconds => parse_number_ns(text, Some(1_000_000)),
            Self::Microseconds => parse_number_ns(text, Some(1_000)),
            Self::Nanoseconds => parse_number_ns(text, Some(1)),
            Self::Custom(layout) => layout.parse_ns(text),
        };
        timestamp_ns.ok_or_else(|| match self {
            Self::Custom(layout) => format!("{text:?} is no time ({})", layout.as_str()),
            format => format!("{text:?} is no time ({format:?})"),
        })
    }
}

fn parse_date_ns(text: &str) -> Option<i64> {
    let timestamp: Timestamp = match text.parse() {
        Ok(timestamp) => timestamp,
        Err(_) => text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
    };
    i64::try_from(timestamp.as_nanosecond()).ok()
}

/// Parses a decimal number exactly; digits below the nanosecond are cut off.
fn parse_number_ns(text: &str, unit_ns: Option<i64>) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let negative = whole.starts_with('-');
    let whole: i64 = whole.parse().ok()?;
    let unit_ns = unit_ns.unwrap_or_else(|| match whole.unsigned_abs() {
        0..100_000_000_000 => 1_000_000_000,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    });
    let (mut fraction_ns, mut digit_ns) = (0, unit_ns);
    for digit in fraction.chars() {
        digit_ns /= 10;
        fraction_ns += i64::from(digit.to_digit(10)?) * digit_ns;
    }
    whole.checked_mul(unit_ns)?.checked_add(if negative { -fraction_ns } else { fraction_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_numbers_and_dates() {
        let cases = [
            (TimeFormat::Auto, "1451606400", Some(1_451_606_400_000_000_000)),
            (TimeFormat::Auto, "1451606400.25", Some(1_451_606_400_250_000_000)),
            (TimeFormat::Auto, "1451606400001", Some(1_451_606_400_001_000_000)),
            (TimeFormat::Auto, "1451606400000001", Some(1_451_606_400_000_001_000)),
            (TimeFormat::Auto, "1451606400000000001", Some(1_451_606_400_000_000_001)),
            (TimeFormat::Auto, "2016-01-01T00:00:00Z", Some(1_451_606_400_000_000_000)),
            (TimeFormat::Auto, "2016-01-01 01:00:00.5+01:00", Some(1_451_606_400_500_000_000)),
            (TimeFormat::Auto, "2016-01-01 00:00:00", Some(1_451_606_400_000_000_000)),
            (TimeFormat::Auto, "2016-01-01", Some(1_451_606_400_000_000_000)),
            (TimeFormat::Auto, "", None),
            (TimeFormat::Auto, "noon", None),
            (TimeFormat::Auto, "1.x", None),
            (TimeFormat::Rfc3339, "1451606400", None),
            (TimeFormat::Rfc3339, "9999-12-31T00:00:00Z", None),
            (TimeFormat::Seconds, "-1.5", Some(-1_500_000_000)),
            (TimeFormat::Seconds, "-0.5", Some(-500_000_000)),
            (TimeFormat::Seconds, "0.1234567891", Some(123_456_789)),
            (TimeFormat::Seconds, "9223372037", None),
            (TimeFormat::Milliseconds, "1.5", Some(1_500_000)),
            (TimeFormat::Microseconds, "1", Some(1_000)),
            (TimeFormat::Nanoseconds, "1.9", Some(1)),
            (TimeFormat::Nanoseconds, "2016-01-01", None),
        ];
        for (format, text, expected) in cases {
            assert_eq!(format.parse_ns(text).ok(), expected, "{format:?} {text}");
        }
        let error = TimeFormat::Seconds.parse_ns("noon").unwrap_err();
        assert_eq!(error, "\"noon\" is no time (Seconds)");
    }
}

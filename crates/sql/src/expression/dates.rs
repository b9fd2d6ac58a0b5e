//! `current_date`, `age` and `to_char`.

use std::fmt::Write;

use jiff::Timestamp;
use jiff::civil::{DateTime, ISOWeekDate};
use query::{Interval, SqlType, Value, time};

use super::times::zone_of;
use super::{Environment, Function, NS_PER_DAY, cast, strict};
use crate::error::{SqlError, invalid};

pub(super) static FUNCTIONS: [Function; 3] = [
    strict("current_date", (0, 0), SqlType::Date, |_, environment| today(environment)),
    strict("age", (1, 2), SqlType::Interval, |arguments, environment| {
        let at = |value: &Value| Ok::<_, SqlError>(ClockTime::new(value, environment)?.at);
        match arguments {
            [later, earlier] => Ok(age(at(later)?, at(earlier)?)),
            [earlier] => Ok(age(at(&today(environment)?)?, at(earlier)?)),
            _ => Ok(Value::Null),
        }
    }),
    strict("to_char", (2, 2), SqlType::Text, |arguments, environment| match arguments {
        [Value::Interval(_), _] => invalid("to_char takes times and numbers here"),
        [at, format] if matches!(at, Value::Text(_)) || at.time_ns().is_some() => {
            Ok(Value::text(time_text(&ClockTime::new(at, environment)?, &format.to_string())?))
        }
        [number, format] => match number.number() {
            Some(number) => number_text(number, &format.to_string()).map(Value::text),
            None => invalid("to_char takes a time or a number"),
        },
        _ => Ok(Value::Null),
    }),
];

fn today(environment: &Environment) -> Result<Value, SqlError> {
    cast(Value::Timestamp(environment.now_ns), SqlType::Date, environment)
}

/// A time on the clock that it is shown on.
struct ClockTime {
    at: DateTime,
    /// The zone's abbreviation; empty for times without one.
    zone: String,
    offset_s: i64,
}

impl ClockTime {
    /// An instant is shown on the session's clock; a text is one.
    fn new(at: &Value, environment: &Environment) -> Result<Self, SqlError> {
        let out_of_range = || SqlError::Invalid("timestamp out of range".to_owned());
        let at = match at {
            Value::Text(_) => &cast(at.clone(), SqlType::Timestamp, environment)?,
            at => at,
        };
        let Some(ns) = at.time_ns() else { return invalid(format!("a time is wanted, not {at}")) };
        let zone = zone_of(at, environment);
        let abbreviation = match (at, Timestamp::from_nanosecond(i128::from(ns))) {
            (Value::Timestamp(_), Ok(instant)) => zone.to_offset_info(instant).abbreviation().to_owned(),
            _ => String::new(),
        };
        let civil = time::civil(ns, zone).ok_or_else(out_of_range)?;
        Ok(Self { at: civil, zone: abbreviation, offset_s: time::offset_s(zone, ns) })
    }
}

/// The years, months, days and time of day between two times, as Postgres counts them: days are borrowed from the month of the earlier one.
fn age(a: DateTime, b: DateTime) -> Value {
    let (later, earlier, sign) = if a >= b { (a, b, 1) } else { (b, a, -1) };
    let day_ns = |at: DateTime| {
        let seconds = (i64::from(at.hour()) * 60 + i64::from(at.minute())) * 60 + i64::from(at.second());
        seconds * 1_000_000_000 + i64::from(at.subsec_nanosecond())
    };
    let mut ns = day_ns(later) - day_ns(earlier);
    let mut days = i32::from(later.day()) - i32::from(earlier.day());
    let mut months = (i32::from(later.year()) - i32::from(earlier.year())) * 12 + i32::from(later.month())
        - i32::from(earlier.month());
    if ns < 0 {
        ns += NS_PER_DAY;
        days -= 1;
    }
    if days < 0 {
        // Of the first month; Postgres takes that of the smaller argument.
        days += i32::from(earlier.days_in_month());
        months -= 1;
    }
    Value::Interval(Interval { months: sign * months, days: sign * days, ns: i64::from(sign) * ns })
}

/// A part of a length of time: a year has 365.25 days and a month 30, as far as seconds are asked for.
pub(super) fn interval_part(field: &str, interval: Interval) -> Option<f64> {
    const NS_PER_S: i64 = 1_000_000_000;
    let Interval { months, days, ns } = interval;
    // Summed up as Postgres does.
    let seconds = (ns / NS_PER_S % 60) as f64 + time::as_seconds(ns % NS_PER_S);
    Some(match field.to_lowercase().as_str() {
        "epoch" => {
            // Summed up as Postgres does, whose floats it has to be.
            let years = 365.25 * 86_400.0 * f64::from(months / 12);
            let rest_of_months = 30.0 * 86_400.0 * f64::from(months % 12);
            time::as_seconds(ns) + years + rest_of_months + 86_400.0 * f64::from(days)
        }
        "year" => f64::from(months / 12),
        "quarter" => f64::from(months % 12 / 3 + 1),
        "month" => f64::from(months % 12),
        "day" => f64::from(days),
        "hour" => (ns / (3600 * NS_PER_S)) as f64,
        "minute" => (ns / (60 * NS_PER_S) % 60) as f64,
        "second" => seconds,
        "millisecond" | "milliseconds" => seconds * 1e3,
        "microsecond" | "microseconds" => seconds * 1e6,
        _ => return None,
    })
}

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Patterns of times, longer ones before those that they begin with.
const PATTERNS: [&str; 47] = [
    "HH24", "HH12", "YYYY", "IYYY", "MONTH", "Month", "month", "IDDD", "A.M.", "P.M.", "a.m.", "p.m.", "MON", "Mon",
    "mon", "DAY", "Day", "day", "DDD", "SSSS", "IW", "WW", "YY", "MM", "DD", "DY", "Dy", "dy", "HH", "MI", "SS", "MS",
    "US", "AM", "PM", "am", "pm", "TZ", "tz", "OF", "CC", "ID", "Q", "D", "Y", "J", "W",
];

/// A time in a format. Names of months and days are padded unless `FM` is before them.
fn time_text(shown: &ClockTime, format: &str) -> Result<String, SqlError> {
    let mut out = String::new();
    let mut rest = format;
    while let Some(first) = rest.chars().next() {
        if first == '"' {
            let quoted = rest.get(1..).unwrap_or_default();
            let end = quoted.find('"').unwrap_or(quoted.len());
            out.push_str(quoted.get(..end).unwrap_or_default());
            rest = quoted.get(end + 1..).unwrap_or_default();
            continue;
        }
        let (is_bare, behind) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            Some(behind) => (true, behind),
            None => (false, rest),
        };
        let upper = behind.to_uppercase();
        if upper.starts_with("RM") {
            return invalid("to_char has no Roman numbers");
        }
        let exact = PATTERNS.iter().find(|pattern| behind.starts_with(**pattern));
        let pattern = exact.or_else(|| PATTERNS.iter().find(|pattern| upper.starts_with(**pattern)));
        match pattern {
            Some(pattern) => {
                push_part(&mut out, shown, pattern, is_bare);
                rest = behind.get(pattern.len()..).unwrap_or_default();
                if let Some(suffix) = ["TH", "th"].into_iter().find(|suffix| rest.starts_with(suffix)) {
                    rest = rest.get(suffix.len()..).unwrap_or_default();
                    push_ordinal(&mut out, suffix == "TH");
                }
            }
            None if is_bare => rest = behind,
            None => {
                out.push(first);
                rest = rest.get(first.len_utf8()..).unwrap_or_default();
            }
        }
        if out.len() > super::text_limit::TEXT_BYTES_MAX {
            return super::text_limit::too_long().map(|_: Value| String::new());
        }
    }
    Ok(out)
}

/// Appends `st`, `nd`, `rd` or `th` to a number; nothing to a name.
fn push_ordinal(out: &mut String, is_upper: bool) {
    let mut digits = out.chars().rev().map_while(|one| one.to_digit(10));
    let (Some(last), before) = (digits.next(), digits.next()) else { return };
    let suffix = match (before, last) {
        (Some(1), _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    out.push_str(&if is_upper { suffix.to_uppercase() } else { suffix.to_owned() });
}

fn push_part(out: &mut String, shown: &ClockTime, pattern: &str, is_bare: bool) {
    let at = shown.at;
    let week: ISOWeekDate = at.date().iso_week_date();
    let day = usize::from(at.weekday().to_monday_zero_offset().unsigned_abs());
    let name = |names: &[&'static str], index: usize| names.get(index).copied().unwrap_or_default();
    let month = name(&MONTHS, usize::from(at.month().unsigned_abs()) - 1);
    let hour12 = (at.hour() + 11) % 12 + 1;
    let micros = at.subsec_nanosecond() / 1000;
    let (number, digits) = match pattern {
        "YYYY" => (i64::from(at.year()), 4),
        "IYYY" => (i64::from(week.year()), 4),
        "YY" => (i64::from(at.year().rem_euclid(100)), 2),
        "Y" => (i64::from(at.year().rem_euclid(10)), 1),
        "MM" => (i64::from(at.month()), 2),
        "DD" => (i64::from(at.day()), 2),
        "DDD" => (i64::from(at.day_of_year()), 3),
        "IDDD" => ((i64::from(week.week()) - 1) * 7 + day as i64 + 1, 3),
        "D" => (((day + 1) % 7 + 1) as i64, 1),
        "ID" => (day as i64 + 1, 1),
        "W" => ((i64::from(at.day()) - 1) / 7 + 1, 1),
        "CC" => ((i64::from(at.year()) - 1).div_euclid(100) + 1, 2),
        "J" => (julian_day(at), 0),
        "IW" => (i64::from(week.week()), 2),
        "WW" => ((i64::from(at.day_of_year()) - 1) / 7 + 1, 2),
        "Q" => ((i64::from(at.month()) - 1) / 3 + 1, 1),
        "HH24" => (i64::from(at.hour()), 2),
        "HH12" | "HH" => (i64::from(hour12), 2),
        "MI" => (i64::from(at.minute()), 2),
        "SS" => (i64::from(at.second()), 2),
        "MS" => (i64::from(micros / 1000), 3),
        "US" => (i64::from(micros), 6),
        "SSSS" => ((i64::from(at.hour()) * 60 + i64::from(at.minute())) * 60 + i64::from(at.second()), 0),
        "TZ" => return out.push_str(&shown.zone),
        "tz" => return out.push_str(&shown.zone.to_lowercase()),
        // Without seconds, which clocks had long ago.
        "OF" => return time::push_offset(out, shown.offset_s / 60 * 60),
        _ => {
            let half = if at.hour() < 12 { "am" } else { "pm" };
            let text = match pattern.to_lowercase().as_str() {
                "month" => padded(month, is_bare),
                "mon" => month.get(..3).unwrap_or_default().to_owned(),
                "day" => padded(name(&DAYS, day), is_bare),
                "dy" => name(&DAYS, day).get(..3).unwrap_or_default().to_owned(),
                "am" | "pm" => half.to_owned(),
                _ => format!("{}.m.", half.get(..1).unwrap_or_default()),
            };
            return out.push_str(&in_case_of(pattern, &text));
        }
    };
    let digits = if is_bare { 0 } else { digits };
    // Writing into a string does not fail.
    let _ = write!(out, "{number:0digits$}");
}

/// Days since the beginning of the year 4713 before Christ.
fn julian_day(at: DateTime) -> i64 {
    let epoch = jiff::civil::date(1970, 1, 1);
    2_440_588 + at.date().duration_since(epoch).as_hours() / 24
}

fn padded(name: &str, is_bare: bool) -> String {
    if is_bare { name.to_owned() } else { format!("{name:9}") }
}

fn in_case_of(pattern: &str, text: &str) -> String {
    let mut letters = pattern.chars().filter(|letter| letter.is_alphabetic());
    match (letters.next().is_some_and(char::is_uppercase), letters.next().is_some_and(char::is_uppercase)) {
        (true, true) => text.to_uppercase(),
        (false, _) => text.to_lowercase(),
        (true, false) => text.to_owned(),
    }
}

/// A number in a format of `9`, `0`, `,` and `.`, with `FM` before it if blanks are to be left out.
fn number_text(number: f64, format: &str) -> Result<String, SqlError> {
    let (is_bare, pattern) = match format.strip_prefix("FM") {
        Some(rest) => (true, rest),
        None => (false, format),
    };
    let pattern = pattern.to_uppercase().replace('D', ".").replace('G', ",");
    if pattern.is_empty() || pattern.len() > 100 || !pattern.chars().all(|one| matches!(one, '9' | '0' | '.' | ',')) {
        return invalid(format!("to_char has formats of 9, 0, comma and point for numbers, not {format}"));
    }
    let (whole, fraction) = pattern.split_once('.').unwrap_or((&pattern, ""));
    if fraction.contains([',', '.']) {
        return invalid(format!("to_char has no commas after the point: {format}"));
    }
    let is_digit = |one: &char| matches!(one, '9' | '0');
    let decimals = fraction.chars().filter(is_digit).count();
    let text = format!("{:.decimals$}", number.abs());
    let (digits, rest) = text.split_once('.').unwrap_or((&text, ""));
    let places = whole.chars().filter(is_digit).count();
    let overflows = !number.is_finite() || (digits.len() > places && digits != "0");
    let mut left: Vec<char> = if digits == "0" && decimals > 0 { Vec::new() } else { digits.chars().collect() };
    let zeros_from = whole.find('0').unwrap_or(whole.len());
    let mut made: Vec<char> = Vec::new();
    for (index, one) in whole.char_indices().rev() {
        let has_digits = !left.is_empty() || index > zeros_from;
        made.push(match one {
            _ if overflows => '#',
            ',' => {
                if has_digits {
                    ','
                } else {
                    ' '
                }
            }
            _ => left.pop().unwrap_or(if index >= zeros_from { '0' } else { ' ' }),
        });
    }
    let sign = if number.is_sign_negative() { '-' } else { ' ' };
    let start = made.iter().rposition(|one| *one != ' ').map_or(0, |at| at + 1);
    made.insert(start, sign);
    let mut out: String = made.into_iter().rev().collect();
    if pattern.contains('.') {
        out.push('.');
        out.push_str(&if overflows { "#".repeat(decimals) } else { rest.to_owned() });
    }
    if is_bare {
        out = out.replace(' ', "");
        let kept = fraction.rfind('0').map_or(0, |at| at + 1);
        while out.ends_with('0') && out.split_once('.').is_some_and(|(_, shown)| shown.len() > kept) {
            out.pop();
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime {
        text.parse().unwrap()
    }

    /// Expectations are those of `PostgreSQL` 15.
    #[test]
    fn times_have_formats() {
        let time = ClockTime { at: at("2024-07-09T15:04:05.067089"), zone: "UTC".to_owned(), offset_s: 0 };
        for (format, expected) in [
            ("YYYY-MM-DD HH24:MI:SS", "2024-07-09 15:04:05"),
            ("YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"", "2024-07-09T15:04:05.067Z"),
            ("HH12:MI am, HH PM", "03:04 pm, 03 PM"),
            ("Mon DD, YYYY", "Jul 09, 2024"),
            ("FMMonth FMDD", "July 9"),
            ("Month|", "July     |"),
            ("DAY, dy", "TUESDAY  , tue"),
            ("US IYYY-IW Q D DDD", "067089 2024-28 3 3 191"),
            ("yyyymmdd", "20240709"),
            ("FMDDth, W ID CC J TZ OF", "9th, 2 2 21 2460501 UTC +00"),
        ] {
            assert_eq!(time_text(&time, format).unwrap(), expected, "{format}");
        }
    }

    #[test]
    fn numbers_have_formats() {
        for (number, format, expected) in [
            (1234.567, "9999.99", " 1234.57"),
            (-12.3, "999.9", " -12.3"),
            (0.5, "9.99", "  .50"),
            (0.5, "0.99", " 0.50"),
            (1_234_567.0, "9,999,999", " 1,234,567"),
            (12.0, "000", " 012"),
            (12.0, "FM000", "012"),
            (12.5, "FM999.99", "12.5"),
            (12345.0, "999", " ###"),
            (0.0, "99", "  0"),
        ] {
            assert_eq!(number_text(number, format).unwrap(), expected, "{number} {format}");
        }
        assert!(number_text(1.0, "EEEE").is_err());
    }

    #[test]
    fn ages_are_counted_in_months_and_days() {
        for (later, earlier, months, days, hours) in [
            ("2024-03-01T00:00", "2024-01-31T00:00", 1, 1, 0),
            ("2024-07-10T12:00", "2023-05-01T18:00", 14, 8, 18),
            ("2024-01-01T00:00", "2024-01-01T00:00", 0, 0, 0),
        ] {
            let expected = Interval { months, days, ns: hours * 3_600_000_000_000 };
            assert_eq!(age(at(later), at(earlier)), Value::Interval(expected), "{later} {earlier}");
        }
    }
}

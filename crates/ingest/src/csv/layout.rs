//! Layouts of times as Go's package `time` has them: the moment Mon Jan 2 15:04:05 -0700 2006, written as times are
//! (<https://pkg.go.dev/time#Layout>).

use jiff::Timestamp;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

/// Bytes that a layout may have.
const LAYOUT_BYTES_MAX: usize = 200;

/// Elements of a layout, longer ones before those that they begin with, and the directives that read them. Where there are several
/// readings, all are tried.
const ELEMENTS: [(&str, &[&str]); 32] = [
    ("January", &["%B"]),
    ("Jan", &["%b"]),
    ("Monday", &["%A"]),
    ("Mon", &["%a"]),
    ("MST", &["UTC", "GMT"]),
    ("_2006", &["_%Y"]),
    ("2006", &["%Y"]),
    ("-07:00:00", &["%:z"]),
    ("-07:00", &["%:z"]),
    ("-070000", &["%z"]),
    ("-0700", &["%z"]),
    ("-07", &["%z"]),
    ("Z07:00:00", &["%:z", "Z"]),
    ("Z07:00", &["%:z", "Z"]),
    ("Z070000", &["%z", "Z"]),
    ("Z0700", &["%z", "Z"]),
    ("Z07", &["%z", "Z"]),
    ("002", &["%j"]),
    ("01", &["%m"]),
    ("02", &["%d"]),
    ("_2", &["%e"]),
    ("03", &["%I"]),
    ("04", &["%M"]),
    // A fraction may stand behind seconds whether the layout has one or not.
    ("05", &["%S%.f"]),
    ("06", &["%y"]),
    ("15", &["%H"]),
    ("PM", &["%p"]),
    ("pm", &["%P"]),
    ("1", &["%m"]),
    ("2", &["%d"]),
    ("3", &["%I"]),
    ("4", &["%M"]),
];

/// How times are written, by an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoLayout {
    layout: String,
    /// Formats of `strptime`; the first that fits is taken.
    formats: Vec<String>,
}

impl GoLayout {
    /// Reads a layout; fails if it says nothing of the date.
    pub fn parse(layout: &str) -> Result<Self, String> {
        if layout.len() > LAYOUT_BYTES_MAX {
            return Err(format!("the layout is longer than {LAYOUT_BYTES_MAX} bytes"));
        }
        let mut formats = vec![String::new()];
        let mut rest = layout;
        while !rest.is_empty() {
            let (length, readings) = next_element(rest);
            let (element, behind) = rest.split_at(length);
            rest = behind;
            formats = match readings {
                None => formats.into_iter().map(|format| format + &element.replace('%', "%%")).collect(),
                Some(readings) => {
                    let with = |format: String| readings.iter().map(move |reading| format.clone() + reading);
                    formats.into_iter().flat_map(with).collect()
                }
            };
            if formats.len() > ELEMENTS.len() {
                return Err("the layout has too many zones".to_owned());
            }
        }
        let has = |directive: &str| formats.iter().all(|format| format.contains(directive));
        let has_day = has("%j") || (has("%m") || has("%b") || has("%B")) && (has("%d") || has("%e"));
        if !has_day || !(has("%Y") || has("%y")) {
            return Err("the layout needs year, month and day of 2006-01-02 as they are written".to_owned());
        }
        Ok(Self { layout: layout.to_owned(), formats })
    }

    /// The layout as it was given.
    pub fn as_str(&self) -> &str {
        &self.layout
    }

    /// Reads a time, in nanoseconds since the Unix epoch; without a zone it is of UTC.
    pub(super) fn parse_ns(&self, text: &str) -> Option<i64> {
        let parsed = self.formats.iter().find_map(|format| BrokenDownTime::parse(format, text).ok())?;
        let timestamp: Timestamp = match parsed.offset() {
            Some(_) => parsed.to_timestamp().ok()?,
            None => parsed.to_datetime().ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp(),
        };
        i64::try_from(timestamp.as_nanosecond()).ok()
    }
}

/// The bytes of what a layout begins with, and how it is read if it is an element.
fn next_element(rest: &str) -> (usize, Option<&'static [&'static str]>) {
    // The fraction is read with the seconds.
    if let Some(digits) = rest.strip_prefix(['.', ',']) {
        let digits_end = |digit: char| digits.find(|one| one != digit).unwrap_or(digits.len());
        let count = digits_end('0').max(digits_end('9'));
        let ends = !digits.get(count..).is_some_and(|behind| behind.starts_with(|one: char| one.is_ascii_digit()));
        if count > 0 && ends {
            return (1 + count, Some(&[""]));
        }
    }
    let found = ELEMENTS.iter().find(|(element, _)| rest.starts_with(element));
    let seconds = rest.starts_with('5').then_some((1, Some(&["%S%.f"] as &[&str])));
    let plain = (rest.chars().next().map_or(1, char::len_utf8), None);
    found.map_or(seconds.unwrap_or(plain), |(element, readings)| (element.len(), Some(*readings)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(layout: &str, text: &str, expected: &str) {
        let found = GoLayout::parse(layout).unwrap().parse_ns(text);
        let expected: Timestamp = expected.parse().unwrap();
        assert_eq!(found.map(i128::from), Some(expected.as_nanosecond()), "{layout} {text}");
    }

    #[test]
    fn times_are_read_by_example() {
        for (layout, text, expected) in [
            ("2006-01-02 15:04:05", "2024-02-29 13:14:15", "2024-02-29T13:14:15Z"),
            ("2006-01-02 15:04:05.999Z", "2024-02-29 13:14:15.25Z", "2024-02-29T13:14:15.25Z"),
            ("2006-01-02 15:04:05", "2024-02-29 13:14:15.5", "2024-02-29T13:14:15.5Z"),
            ("2006-01-02T15:04:05Z07:00", "2024-02-29T13:14:15Z", "2024-02-29T13:14:15Z"),
            ("2006-01-02T15:04:05Z07:00", "2024-02-29T13:14:15+02:00", "2024-02-29T11:14:15Z"),
            ("2006-01-02T15:04:05.000000-0700", "2024-02-29T13:14:15.000001-0130", "2024-02-29T14:44:15.000001Z"),
            ("Mon Jan _2 15:04:05 2006", "Thu Feb  1 13:14:15 2024", "2024-02-01T13:14:15Z"),
            ("Mon, 02 Jan 2006 15:04:05 MST", "Thu, 29 Feb 2024 13:14:15 GMT", "2024-02-29T13:14:15Z"),
            ("January 2, 2006 at 3:04pm", "February 9, 2024 at 1:14pm", "2024-02-09T13:14:00Z"),
            ("1/2/06 3:4:5 PM", "2/29/24 11:4:5 AM", "2024-02-29T11:04:05Z"),
            ("2006-002", "2024-060", "2024-02-29T00:00:00Z"),
            ("20060102150405", "20240229131415", "2024-02-29T13:14:15Z"),
            ("at 99% 2006/01/02", "at 99% 2024/02/29", "2024-02-29T00:00:00Z"),
        ] {
            check(layout, text, expected);
        }
        for text in ["", "2024-02-30 13:14:15", "2024-02-29", "2024-02-29 13:14:15 x"] {
            assert_eq!(GoLayout::parse("2006-01-02 15:04:05").unwrap().parse_ns(text), None, "{text}");
        }
    }

    #[test]
    fn a_layout_needs_a_date_and_has_bounds() {
        for layout in ["", "15:04:05", "yyyy-mm-dd", "2006-01", &"MST".repeat(7), &"2006-01-02".repeat(30)] {
            assert!(GoLayout::parse(layout).is_err(), "{layout}");
        }
    }
}

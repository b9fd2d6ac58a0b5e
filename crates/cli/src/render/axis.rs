//! The axes of plots: times and values at which people would put marks.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const DAY_S: i64 = 86_400;

/// Distances between marks of time, in seconds.
const STEPS_S: [i64; 24] = [
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800,
    1_209_600, 2_592_000, 7_776_000, 31_536_000,
];

/// Columns that a mark of time takes, with the space around it.
const MARK_COLUMNS: usize = 11;

/// Marks of time under a plot: each at its column, unless the one before reaches there.
pub(super) fn times(start_s: f64, end_s: f64, columns: usize) -> String {
    let length_s = (end_s - start_s).max(1.0);
    let marks = (columns / MARK_COLUMNS).max(1);
    let step_s = STEPS_S.iter().copied().find(|step_s| length_s / (*step_s as f64) <= marks as f64);
    let step_s = step_s.unwrap_or(((length_s / marks as f64) as i64 / DAY_S + 1) * DAY_S);
    let mut line = String::new();
    let mut second = (start_s as i64).div_euclid(step_s) * step_s;
    while (second as f64) <= end_s {
        let column = ((second as f64 - start_s) / length_s * columns.saturating_sub(1) as f64).round();
        if (second as f64) >= start_s {
            let gap = (column as usize).saturating_sub(line.chars().count());
            if line.is_empty() || gap > 0 {
                line.push_str(&" ".repeat(gap));
                line.push_str(&mark(second, step_s));
            }
        }
        second += step_s;
    }
    line
}

/// A time as exact as marks are apart; midnight as its date.
fn mark(second: i64, step_s: i64) -> String {
    let format = match step_s {
        2_592_000.. => "%Y-%m-%d",
        _ if second.rem_euclid(DAY_S) == 0 => "%m-%d",
        ..60 => "%H:%M:%S",
        _ => "%H:%M",
    };
    let time = Timestamp::from_second(second).map(|time| time.to_zoned(TimeZone::UTC));
    time.map_or_else(|_| second.to_string(), |time| time.strftime(format).to_string())
}

/// A value for people: six digits that count, whole numbers whole.
pub(super) fn number(value: f64) -> String {
    rounded(value, 6)
}

/// A value beside an axis: three digits that count, thousands as k, M, G, T.
pub(super) fn short(value: f64) -> String {
    let scales = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")];
    let scale = scales.into_iter().find(|(least, _)| value.is_finite() && value.abs() >= *least);
    match scale {
        Some((1e4, unit)) => rounded(value / 1e3, 4) + unit,
        Some((least, unit)) => rounded(value / least, 4) + unit,
        None => rounded(value, 4),
    }
}

fn rounded(value: f64, digits: usize) -> String {
    let size = value.abs();
    if !value.is_finite() || size == 0.0 || (value.fract() == 0.0 && size < 1e15) {
        return value.to_string();
    }
    let text = format!("{value:.*e}", digits.saturating_sub(1));
    let nearest: f64 = text.parse().unwrap_or(value);
    if (1e-4..1e15).contains(&size) { nearest.to_string() } else { format!("{nearest:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_where_people_put_them() {
        let line = times(0.0, 3600.0, 61);
        assert_eq!(line, "01-01          00:15          00:30          00:45          01:00");
        assert_eq!(times(30.0, 90.0, 61), "00:00:30       00:00:45       00:01:00       00:01:15       00:01:30");
        assert_eq!(times(0.0, 3.0 * 86_400.0, 31), "01-01               01-03");
        assert!(times(0.0, 20.0 * 365.0 * 86_400.0, 80).starts_with("1970-01-01 "));
        assert!(!times(5.0, 5.0, 1).contains('\n'));
    }

    #[test]
    fn numbers_are_rounded() {
        for (value, expected, on_axis) in [
            (0.300_000_000_000_000_04, "0.3", "0.3"),
            (1_234_567.891_23, "1234570", "1.235M"),
            (123.456_789, "123.457", "123.5"),
            (1_234_567.0, "1234567", "1.235M"),
            (12_345.0, "12345", "12.35k"),
            (1.234_567_8e-9, "1.23457e-9", "1.235e-9"),
            (-2.5e18, "-2.5e18", "-2500000T"),
            (f64::NAN, "NaN", "NaN"),
            (f64::INFINITY, "inf", "inf"),
            (0.0, "0", "0"),
        ] {
            assert_eq!((number(value).as_str(), short(value).as_str()), (expected, on_axis), "{value}");
        }
    }
}

//! Marks of both axes, where people would put them.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

use crate::scale::Scale;
use crate::unit::Unit;

/// Marks that an axis has at most.
const MARKS_MAX: usize = 40;

const NS_PER_S: i64 = 1_000_000_000;
const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3600;

/// A mark of the axis of values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ValueMark {
    pub(crate) value: f64,
    pub(crate) text: String,
}

/// A mark of the axis of times.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TimeMark {
    pub(crate) time_ns: i64,
    pub(crate) text: String,
}

/// About so many marks of values.
pub(crate) fn values(scale: Scale, unit: &Unit, count: usize) -> Vec<ValueMark> {
    match scale {
        Scale::Linear { least, greatest } => linear(least, greatest, unit, count.max(1)),
        Scale::Logarithmic { least, greatest } => logarithmic(least, greatest, unit, count.max(1)),
    }
}

fn linear(least: f64, greatest: f64, unit: &Unit, count: usize) -> Vec<ValueMark> {
    let wanted = greatest / count as f64 - least / count as f64;
    let step = unit.step(wanted);
    if !step.is_finite() || step <= 0.0 {
        return Vec::new();
    }
    let first = (least / step).ceil();
    let format = unit.for_axis(least.abs().max(greatest.abs()), step);
    let mut marks: Vec<ValueMark> = Vec::new();
    for number in 0..MARKS_MAX {
        let value = (first + number as f64) * step;
        if !value.is_finite() || value > greatest {
            break;
        }
        let mark = ValueMark { value, text: format.text(value) };
        // Where values are too near to one another to be told apart.
        if value >= least && marks.last().is_none_or(|before| before.text != mark.text) {
            marks.push(mark);
        }
    }
    marks
}

/// Powers of ten; parts of them where there are few.
fn logarithmic(least: f64, greatest: f64, unit: &Unit, count: usize) -> Vec<ValueMark> {
    let decades = greatest - least;
    let every = (decades / count as f64).ceil().max(1.0);
    let factors: &[f64] = if decades <= 2.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let mut marks: Vec<ValueMark> = Vec::new();
    let first = (least / every).floor() * every;
    for number in 0..MARKS_MAX {
        let power = first + number as f64 * every;
        for factor in factors {
            let value = factor * 10f64.powf(power);
            let is_within = (least - 1e-9..=greatest + 1e-9).contains(&(power + factor.log10()));
            if is_within && value.is_finite() && value > 0.0 {
                marks.push(ValueMark { value, text: unit.text(value) });
            }
        }
        if power > greatest {
            break;
        }
    }
    marks
}

/// Distances between marks of time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    Nanoseconds(i64),
    Days(i32),
    Months(i32),
}

const STEPS: [(i64, Step); 30] = {
    const MS: i64 = 1_000_000;
    const S: i64 = NS_PER_S;
    const H: i64 = HOUR_S * NS_PER_S;
    const D: i64 = 24 * H;
    [
        (MS, Step::Nanoseconds(MS)),
        (5 * MS, Step::Nanoseconds(5 * MS)),
        (10 * MS, Step::Nanoseconds(10 * MS)),
        (50 * MS, Step::Nanoseconds(50 * MS)),
        (100 * MS, Step::Nanoseconds(100 * MS)),
        (500 * MS, Step::Nanoseconds(500 * MS)),
        (S, Step::Nanoseconds(S)),
        (2 * S, Step::Nanoseconds(2 * S)),
        (5 * S, Step::Nanoseconds(5 * S)),
        (10 * S, Step::Nanoseconds(10 * S)),
        (15 * S, Step::Nanoseconds(15 * S)),
        (30 * S, Step::Nanoseconds(30 * S)),
        (60 * S, Step::Nanoseconds(60 * S)),
        (120 * S, Step::Nanoseconds(120 * S)),
        (300 * S, Step::Nanoseconds(300 * S)),
        (600 * S, Step::Nanoseconds(600 * S)),
        (900 * S, Step::Nanoseconds(900 * S)),
        (1800 * S, Step::Nanoseconds(1800 * S)),
        (H, Step::Nanoseconds(H)),
        (2 * H, Step::Nanoseconds(2 * H)),
        (3 * H, Step::Nanoseconds(3 * H)),
        (6 * H, Step::Nanoseconds(6 * H)),
        (12 * H, Step::Nanoseconds(12 * H)),
        (D, Step::Days(1)),
        (2 * D, Step::Days(2)),
        (7 * D, Step::Days(7)),
        (30 * D, Step::Months(1)),
        (90 * D, Step::Months(3)),
        (182 * D, Step::Months(6)),
        (365 * D, Step::Months(12)),
    ]
};

/// At most so many marks of times of a zone's clock.
pub(crate) fn times(start_ns: i64, end_ns: i64, zone: &TimeZone, count: usize) -> Vec<TimeMark> {
    let length = (i128::from(end_ns) - i128::from(start_ns)).max(1);
    let count = count.clamp(1, MARKS_MAX) as i128;
    let found = STEPS.into_iter().find(|(step_ns, _)| length <= i128::from(*step_ns) * count);
    let step = found.map_or_else(
        || {
            let years = length / count / (365 * 24 * i128::from(HOUR_S) * i128::from(NS_PER_S)) + 1;
            Step::Months(
                12 * [2, 5, 10, 20, 50, 100].into_iter().find(|step| i128::from(*step) >= years).unwrap_or(100),
            )
        },
        |(_, step)| step,
    );
    let (Some(start), Some(end)) = (civil(start_ns, zone), civil(end_ns, zone)) else { return Vec::new() };
    let Some(mut at) = first(start, step) else { return Vec::new() };
    let mut marks: Vec<TimeMark> = Vec::new();
    // Clocks that are put back come to some times twice.
    for _ in 0..4 * MARKS_MAX {
        if at > end.saturating_add(HOUR_S.seconds()) {
            break;
        }
        if let Some(time_ns) = instant(at, zone)
            && (start_ns..=end_ns).contains(&time_ns)
            && marks.last().is_none_or(|before| before.time_ns < time_ns)
        {
            marks.push(TimeMark { time_ns, text: text(at, step) });
        }
        let Some(next) = after(at, step) else { break };
        at = next;
    }
    marks
}

/// The time of a zone's clock.
pub(crate) fn civil(time_ns: i64, zone: &TimeZone) -> Option<DateTime> {
    Some(Timestamp::from_nanosecond(i128::from(time_ns)).ok()?.to_zoned(zone.clone()).datetime())
}

fn instant(at: DateTime, zone: &TimeZone) -> Option<i64> {
    let zoned = zone.to_ambiguous_zoned(at).compatible().ok()?;
    // A time that a clock passes over is another one then.
    if zoned.datetime() != at {
        return None;
    }
    i64::try_from(zoned.timestamp().as_nanosecond()).ok()
}

/// The last mark that is not after a time.
fn first(start: DateTime, step: Step) -> Option<DateTime> {
    match step {
        Step::Nanoseconds(step_ns) => {
            let time = start.time();
            let second =
                i64::from(time.hour()) * HOUR_S + i64::from(time.minute()) * MINUTE_S + i64::from(time.second());
            let since_ns = second * NS_PER_S + i64::from(time.subsec_nanosecond());
            let midnight = start.date().to_datetime(Time::midnight());
            midnight.checked_add(Span::new().nanoseconds(since_ns / step_ns * step_ns)).ok()
        }
        Step::Days(days) => {
            let date = start.date();
            let back = match days {
                // Weeks begin on Monday.
                7 => i32::from(date.weekday().to_monday_zero_offset()),
                _ => (i32::from(date.day()) - 1) % days,
            };
            Some(date.checked_sub(back.days()).ok()?.to_datetime(Time::midnight()))
        }
        Step::Months(months) => {
            let (year, month) = (i32::from(start.date().year()), i32::from(start.date().month()) - 1);
            let whole = (year * 12 + month).div_euclid(months) * months;
            let (year, month) =
                (i16::try_from(whole.div_euclid(12)).ok()?, i8::try_from(whole.rem_euclid(12) + 1).ok()?);
            Some(Date::new(year, month, 1).ok()?.to_datetime(Time::midnight()))
        }
    }
}

fn after(at: DateTime, step: Step) -> Option<DateTime> {
    match step {
        Step::Nanoseconds(step_ns) => at.checked_add(Span::new().nanoseconds(step_ns)).ok(),
        Step::Days(days) => {
            let next = at.checked_add(days.days()).ok()?;
            // Every second day counts from the first of a month.
            let is_new_month = days != 7 && next.date().month() != at.date().month();
            if is_new_month { Some(next.date().first_of_month().to_datetime(Time::midnight())) } else { Some(next) }
        }
        Step::Months(months) => at.checked_add(months.months()).ok(),
    }
}

/// A time as exact as marks are apart; midnight as its date.
fn text(at: DateTime, step: Step) -> String {
    let is_midnight = at.time() == Time::midnight();
    let format = match step {
        Step::Months(months) if months >= 12 => "%Y",
        Step::Months(_) => "%Y-%m",
        Step::Days(_) => "%m-%d",
        Step::Nanoseconds(_) if is_midnight => "%m-%d",
        Step::Nanoseconds(step_ns) if step_ns < NS_PER_S => "%H:%M:%S%.3f",
        Step::Nanoseconds(step_ns) if step_ns < MINUTE_S * NS_PER_S => "%H:%M:%S",
        Step::Nanoseconds(_) => "%H:%M",
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as i64
    }

    fn texts(from: &str, to: &str, zone: &TimeZone, count: usize) -> Vec<String> {
        times(at(from), at(to), zone, count).into_iter().map(|mark| mark.text).collect()
    }

    #[test]
    fn marks_of_time_are_round_by_the_clock_of_the_zone() {
        let india = TimeZone::fixed(Offset::from_seconds(19_800).unwrap());
        for (from, to, zone, count, expected) in [
            (
                "2026-03-01T10:00:00Z",
                "2026-03-01T11:00:00Z",
                &TimeZone::UTC,
                5,
                vec!["10:00", "10:15", "10:30", "10:45", "11:00"],
            ),
            ("2026-03-01T10:00:00Z", "2026-03-01T14:00:00Z", &india, 4, vec!["16:00", "17:00", "18:00", "19:00"]),
            (
                "2026-02-28T20:00:00Z",
                "2026-03-01T04:00:00Z",
                &TimeZone::UTC,
                4,
                vec!["20:00", "22:00", "03-01", "02:00", "04:00"],
            ),
            ("2026-02-26T00:00:00Z", "2026-03-04T00:00:00Z", &TimeZone::UTC, 3, vec!["02-27", "03-01", "03-03"]),
            (
                "2026-01-10T00:00:00Z",
                "2026-02-10T00:00:00Z",
                &TimeZone::UTC,
                6,
                vec!["01-12", "01-19", "01-26", "02-02", "02-09"],
            ),
            (
                "2025-11-15T00:00:00Z",
                "2026-03-15T00:00:00Z",
                &TimeZone::UTC,
                5,
                vec!["2025-12", "2026-01", "2026-02", "2026-03"],
            ),
            ("1990-01-01T00:00:00Z", "2026-01-01T00:00:00Z", &TimeZone::UTC, 4, vec!["1990", "2000", "2010", "2020"]),
            (
                "2026-03-01T00:00:00Z",
                "2026-03-01T00:00:01Z",
                &TimeZone::UTC,
                2,
                vec!["03-01", "00:00:00.500", "00:00:01.000"],
            ),
        ] {
            assert_eq!(texts(from, to, zone, count), expected, "{from} {to} {count}");
        }
        assert!(times(i64::MIN, i64::MAX, &TimeZone::UTC, 6).len() > 2);
        assert!(times(0, 1, &TimeZone::UTC, 6).len() <= 1);
    }

    /// On the day on which a clock is put forward an hour is missing, when it is put back one comes twice.
    #[test]
    fn marks_pass_over_hours_that_clocks_pass_over() {
        let Ok(berlin) = TimeZone::get("Europe/Berlin") else { return };
        let found = texts("2026-03-28T23:00:00Z", "2026-03-29T03:00:00Z", &berlin, 4);
        assert_eq!(found, ["03-29", "01:00", "03:00", "04:00", "05:00"]);
        let found = times(at("2026-10-24T22:00:00Z"), at("2026-10-25T03:00:00Z"), &berlin, 5);
        assert!(found.windows(2).all(|pair| pair[0].time_ns < pair[1].time_ns), "{found:?}");
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn marks_of_values_are_round() {
        let marks = |scale, unit: &str, count| -> Vec<String> {
            let found = values(scale, &Unit::named(unit).unwrap(), count);
            found.into_iter().map(|mark| mark.text).collect()
        };
        assert_eq!(marks(Scale::Linear { least: 0.0, greatest: 1.1 }, "none", 5), ["0.0", "0.5", "1.0"]);
        assert_eq!(marks(Scale::Linear { least: -3.0, greatest: 104.0 }, "percent", 5), ["0%", "50%", "100%"]);
        assert_eq!(marks(Scale::Linear { least: 0.0, greatest: 3e9 }, "bytes", 4), ["0 GiB", "1 GiB", "2 GiB"]);
        assert_eq!(
            marks(Scale::Logarithmic { least: 0.0, greatest: 4.0 }, "none", 4),
            ["1", "10", "100", "1000", "10000"]
        );
        assert_eq!(marks(Scale::Logarithmic { least: 0.0, greatest: 1.0 }, "s", 4), ["1 s", "2 s", "5 s", "10 s"]);
        for (least, greatest) in
            [(f64::MIN, f64::MAX), (0.0, 5e-324), (1e16, 1e16 + 4.0), (1e308, f64::MAX), (-5e-324, 5e-324)]
        {
            assert!(values(Scale::Linear { least, greatest }, &Unit::default(), 6).len() <= MARKS_MAX);
        }
    }
}

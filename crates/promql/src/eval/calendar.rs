//! Dates of the proleptic Gregorian calendar in UTC.

use crate::syntax::functions::DatePart;

const DAY_S: i64 = 86_400;

/// Days of 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;

/// Go counts seconds, modulo 2 to the 64th, from 1 March of the year -292277022400, so many days before the Unix epoch. Earlier times have
/// the dates of a far future. All that is infinite or no number is such a time.
const ABSOLUTE_DAYS: u64 = 292_277_022_400 / 400 * ERA_DAYS as u64 + EPOCH_DAYS as u64;

/// From 1 March of the year 0 to the Unix epoch.
const EPOCH_DAYS: i64 = 719_468;

/// Days before each month of a common year.
const DAYS_BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

struct Date {
    year: i64,
    /// From 1.
    month: i64,
    /// From 1.
    day: i64,
}

impl DatePart {
    /// The part at an instant in seconds since the Unix epoch.
    pub(crate) fn at(self, time_s: i64) -> f64 {
        let absolute_s = (time_s as u64).wrapping_add(ABSOLUTE_DAYS * DAY_S as u64);
        let days = (absolute_s / DAY_S as u64) as i64 - ABSOLUTE_DAYS as i64;
        let second = (absolute_s % DAY_S as u64) as i64;
        let date = date_of(days);
        let part = match self {
            Self::DayOfMonth => date.day,
            // The epoch was a Thursday.
            Self::DayOfWeek => (days + 4).rem_euclid(7),
            Self::DayOfYear => day_of_year(&date),
            Self::DaysInMonth => days_in_month(&date),
            Self::Hour => second / 3600,
            Self::Minute => second / 60 % 60,
            Self::Month => date.month,
            Self::Year => date.year,
        };
        part as f64
    }
}

/// An instant to the second: `2006-01-02T15:04:05Z`.
pub(crate) fn rfc3339(time_ms: i64) -> String {
    let seconds = time_ms.div_euclid(1000);
    let date = date_of(seconds.div_euclid(DAY_S));
    let second = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", date.year, date.month, date.day)
}

/// Years are counted from March, so that the leap day is the last of its year.
fn date_of(days: i64) -> Date {
    let days = days + EPOCH_DAYS;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    Date { year: era * 400 + year_of_era + i64::from(month <= 2), month, day }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn day_of_year(date: &Date) -> i64 {
    let before = DAYS_BEFORE.get(date.month as usize - 1).copied().unwrap_or_default();
    before + date.day + i64::from(date.month > 2 && is_leap(date.year))
}

fn days_in_month(date: &Date) -> i64 {
    match date.month {
        2 => 28 + i64::from(is_leap(date.year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_dates() {
        let all = [
            DatePart::Year,
            DatePart::Month,
            DatePart::DayOfMonth,
            DatePart::DayOfYear,
            DatePart::DayOfWeek,
            DatePart::DaysInMonth,
            DatePart::Hour,
            DatePart::Minute,
        ];
        let check = |time_s: i64, expected: [i64; 8]| {
            assert_eq!(all.map(|part| part.at(time_s) as i64), expected, "{time_s}");
        };
        check(0, [1970, 1, 1, 1, 4, 31, 0, 0]);
        check(-1, [1969, 12, 31, 365, 3, 31, 23, 59]);
        check(951_782_400, [2000, 2, 29, 60, 2, 29, 0, 0]);
        check(1_136_239_445, [2006, 1, 2, 2, 1, 31, 22, 4]);
        check(1_735_689_599, [2024, 12, 31, 366, 2, 31, 23, 59]);
        check(4_107_542_400, [2100, 3, 1, 60, 1, 31, 0, 0]);
    }

    #[test]
    fn the_ends_of_time_do_not_overflow() {
        for time_s in [i64::MIN, i64::MAX] {
            assert!(DatePart::Year.at(time_s).is_finite());
        }
    }
}

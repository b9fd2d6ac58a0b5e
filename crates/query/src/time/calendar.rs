//! The calendar of a time zone: bins of time, their grid, and local times as instants.
//!
//! Bins are cut by the local clock: days, weeks and months last as long as they last there. A bin that would begin in a missing hour begins when
//! the clock has been put forward. A repeated hour has bins of its own if they are no wider than it; wider bins hold it whole.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan};

use super::interval::months;
use super::{NS_PER_DAY, NS_PER_S, civil};
use crate::Interval;

/// No bin begins earlier.
const FIRST_NS: i64 = i64::MIN + 2;

/// Bins of one width by the clock of a zone.
#[derive(Debug, Clone)]
pub struct CalendarBins {
    width: Interval,
    /// Local time at which one of the bins begins, as if it were UTC.
    origin_ns: i64,
    zone: TimeZone,
    /// The zone's only offset from UTC, if its clocks never change.
    fixed_ns: Option<i64>,
}

/// A time that lies between two changes of a zone's clocks.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// Local time minus UTC.
    offset_ns: i64,
    /// When the clocks change next.
    end_ns: i64,
}

/// Whole bins one after the other, all of one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqualBins {
    /// Where the first one begins.
    pub start_ns: i64,
    /// The width of each, in nanoseconds.
    pub width_ns: i64,
    /// How many there are.
    pub count: i64,
}

impl EqualBins {
    /// The time after the last bin.
    pub const fn end_ns(&self) -> i64 {
        self.start_ns.saturating_add(self.width_ns.saturating_mul(self.count))
    }

    /// Where the bins begin beside multiples of their width.
    pub const fn offset_ns(&self) -> i64 {
        self.start_ns.rem_euclid(self.width_ns)
    }

    /// More bins right after these, if they are of the same grid.
    fn extend(&mut self, more: &Self) -> bool {
        let is_same = self.width_ns == more.width_ns && self.end_ns() == more.start_ns;
        if is_same {
            self.count += more.count;
        }
        is_same
    }
}

impl CalendarBins {
    /// The bins of a range as runs of equal ones: between changes of the clocks, and months of one length. `None` if there are more than
    /// `runs_max`, or if `begins_at(time, start)` contradicts one; it is asked at the edges of runs and around changes of the clocks.
    pub fn equal_runs(
        &self,
        (from_ns, to_ns): (i64, i64),
        runs_max: usize,
        begins_at: impl Fn(i64, i64) -> bool,
    ) -> Option<Vec<EqualBins>> {
        let mut runs: Vec<EqualBins> = Vec::new();
        let mut start_ns = self.start_of(from_ns);
        while start_ns <= to_ns {
            let run = self.run_from(start_ns, to_ns)?;
            let last_ns = run.end_ns().checked_sub(1)?;
            let last_start_ns = run.end_ns().checked_sub(run.width_ns)?;
            if !begins_at(start_ns, start_ns) || !begins_at(last_ns, last_start_ns) {
                return None;
            }
            let mut change_ns = self.segment(start_ns).end_ns;
            while change_ns < run.end_ns() {
                if !begins_at(change_ns - 1, start_ns) || !begins_at(change_ns, start_ns) {
                    return None;
                }
                change_ns = self.segment(change_ns).end_ns;
            }
            start_ns = run.end_ns();
            if !runs.last_mut().is_some_and(|known| known.extend(&run)) {
                runs.push(run);
            }
            if runs.len() > runs_max {
                return None;
            }
        }
        Some(runs)
    }

    /// The equal bins from the start of one to the next change of the clocks, or to the end of a range.
    fn run_from(&self, start_ns: i64, to_ns: i64) -> Option<EqualBins> {
        let width_ns = self.next(start_ns).checked_sub(start_ns).filter(|width_ns| *width_ns > 0)?;
        let mut count = 1;
        if self.width.months == 0 && width_ns == self.width.ns {
            let bins_until = |end_ns: i64| (i128::from(end_ns) - i128::from(start_ns)) / i128::from(width_ns);
            let all = bins_until(self.segment(start_ns).end_ns).min(bins_until(to_ns) + 1);
            count = i64::try_from(all.max(1)).ok()?;
        }
        Some(EqualBins { start_ns, width_ns, count })
    }

    /// Bins of a width, one of which begins at a local time, which is given as if it were UTC.
    pub fn new(width: Interval, origin_ns: i64, zone: TimeZone) -> Self {
        let fixed_ns = zone.to_fixed_offset().ok().map(nanoseconds);
        let width = width.with_even_days();
        let width = if width.months == 0 { Interval::of_ns(width.ns.max(1)) } else { width };
        Self { width, origin_ns, zone, fixed_ns }
    }

    /// The width: months, or nanoseconds where the clocks stay as they are.
    pub const fn width(&self) -> Interval {
        self.width
    }

    /// Local time at which one of the bins begins, as if it were UTC.
    pub const fn origin_ns(&self) -> i64 {
        self.origin_ns
    }

    /// The name of the zone; `None` for an offset that has none.
    pub fn zone_name(&self) -> Option<String> {
        if self.fixed_ns == Some(0) {
            return Some("UTC".to_owned());
        }
        self.zone.iana_name().map(str::to_owned)
    }

    /// Width and offset in nanoseconds if all bins are equally long.
    pub fn equal_bins(&self) -> Option<(i64, i64)> {
        let offset_ns = self.fixed_ns.filter(|_| self.width.months == 0)?;
        let origin_ns = i128::from(self.origin_ns) - i128::from(offset_ns);
        Some((self.width.ns, i64::try_from(origin_ns.rem_euclid(i128::from(self.width.ns))).ok()?))
    }

    /// Where the bin of a time begins; `None` if that is before all times.
    pub fn checked_start_of(&self, time_ns: i64) -> Option<i64> {
        let offset_ns = self.offset_at(time_ns);
        self.instant(self.local_start(i128::from(time_ns) + i128::from(offset_ns))?, offset_ns)
    }

    /// Where the bin of a time begins, or the first time of all.
    pub fn start_of(&self, time_ns: i64) -> i64 {
        self.checked_start_of(time_ns).unwrap_or(FIRST_NS).max(FIRST_NS)
    }

    /// Where the bin after one begins.
    pub fn next(&self, start_ns: i64) -> i64 {
        self.after(start_ns, &mut None)
    }

    /// Where the bin before one begins.
    pub fn previous(&self, start_ns: i64) -> i64 {
        let mut at_ns = self.start_of(start_ns.saturating_sub(1));
        let mut segment = None;
        loop {
            let next_ns = self.after(at_ns, &mut segment);
            if next_ns >= start_ns || next_ns <= at_ns {
                return at_ns;
            }
            at_ns = next_ns;
        }
    }

    /// All bins from the one of a time to the one of another.
    pub fn starts(&self, from_ns: i64, to_ns: i64) -> impl Iterator<Item = i64> + '_ {
        let mut segment = None;
        let first_ns = self.start_of(from_ns);
        std::iter::successors((first_ns <= to_ns).then_some(first_ns), move |start_ns| {
            let next_ns = self.after(*start_ns, &mut segment);
            (next_ns > *start_ns && next_ns <= to_ns).then_some(next_ns)
        })
    }

    /// The first bin after one: it begins at a step of the local clock, or where the clocks change.
    fn after(&self, start_ns: i64, known: &mut Option<Segment>) -> i64 {
        let mut at_ns = start_ns;
        loop {
            let segment = match *known {
                Some(segment) if at_ns < segment.end_ns => segment,
                _ => self.segment(at_ns),
            };
            *known = Some(segment);
            let step_ns = self.local_next(i128::from(at_ns) + i128::from(segment.offset_ns));
            let step_ns = step_ns.and_then(|local_ns| i64::try_from(local_ns - i128::from(segment.offset_ns)).ok());
            at_ns = step_ns.unwrap_or(i64::MAX).min(segment.end_ns);
            if at_ns == i64::MAX {
                return i64::MAX;
            }
            let found_ns = self.start_of(at_ns);
            if found_ns > start_ns {
                return found_ns;
            }
        }
    }

    fn segment(&self, time_ns: i64) -> Segment {
        let offset_ns = self.offset_at(time_ns);
        let end_ns = match self.fixed_ns {
            Some(_) => i64::MAX,
            None => {
                let next = self.zone.following(instant(time_ns)).next();
                next.and_then(|next| i64::try_from(next.timestamp().as_nanosecond()).ok()).unwrap_or(i64::MAX)
            }
        };
        Segment { offset_ns, end_ns }
    }

    fn offset_at(&self, time_ns: i64) -> i64 {
        self.fixed_ns.unwrap_or_else(|| offset_ns(&self.zone, time_ns))
    }

    /// Where the bin of a local time begins on the local clock.
    fn local_start(&self, local_ns: i128) -> Option<i128> {
        if self.width.months == 0 {
            let since_ns = (local_ns - i128::from(self.origin_ns)).rem_euclid(i128::from(self.width.ns));
            return Some(local_ns - since_ns);
        }
        let (here, origin) = (local(local_ns)?, local(i128::from(self.origin_ns))?);
        let month = |at: DateTime| i32::from(at.year()) * 12 + i32::from(at.month()) - 1;
        let mut bin = (month(here) - month(origin)).div_euclid(self.width.months);
        loop {
            let start = origin.checked_add(months(bin.checked_mul(self.width.months)?)?).ok()?;
            if start <= here {
                return as_utc(start);
            }
            bin = bin.checked_sub(1)?;
        }
    }

    /// Where the bin after that of a local time begins on the local clock.
    fn local_next(&self, local_ns: i128) -> Option<i128> {
        let start_ns = self.local_start(local_ns)?;
        if self.width.months == 0 {
            return Some(start_ns + i128::from(self.width.ns));
        }
        // Months of different lengths: the day after the last one of the shortest lies in the next bin.
        let origin_day = local(i128::from(self.origin_ns))?.day();
        let start = local(start_ns)?.with().day(1).build().ok()?;
        let next = start.checked_add(months(self.width.months)?).ok()?;
        as_utc(next.checked_add((i64::from(origin_day.min(next.date().days_in_month())) - 1).days()).ok()?)
    }

    /// The instant of a local time for a row whose clock has an offset.
    fn instant(&self, local_ns: i128, row_offset_ns: i64) -> Option<i64> {
        if let Some(offset_ns) = self.fixed_ns {
            return i64::try_from(local_ns - i128::from(offset_ns)).ok();
        }
        let offset_ns = match self.zone.to_ambiguous_timestamp(local(local_ns)?).offset() {
            AmbiguousOffset::Unambiguous { offset } => nanoseconds(offset),
            AmbiguousOffset::Gap { before, .. } => {
                let inside_ns = i64::try_from(local_ns - i128::from(nanoseconds(before))).ok()?;
                return Some(self.changed_at(inside_ns));
            }
            AmbiguousOffset::Fold { before, after } => {
                let (before, after) = (nanoseconds(before), nanoseconds(after));
                let is_apart = self.width.months == 0 && self.width.ns < NS_PER_DAY && self.width.ns <= before - after;
                if is_apart && row_offset_ns == after { after } else { before }
            }
        };
        i64::try_from(local_ns - i128::from(offset_ns)).ok()
    }

    /// When the clock was put forward over a local time, from an instant shortly after.
    fn changed_at(&self, inside_ns: i64) -> i64 {
        let offset = self.offset_at(inside_ns);
        let mut at_ns = inside_ns;
        for change in self.zone.preceding(instant(inside_ns.saturating_add(1))) {
            let Ok(change_ns) = i64::try_from(change.timestamp().as_nanosecond()) else { break };
            at_ns = change_ns;
            if self.offset_at(change_ns.saturating_sub(1)) != offset {
                break;
            }
        }
        at_ns
    }
}

fn instant(time_ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(time_ns)).unwrap_or_default()
}

fn nanoseconds(offset: Offset) -> i64 {
    i64::from(offset.seconds()) * NS_PER_S
}

/// The date and time of a local time.
fn local(local_ns: i128) -> Option<DateTime> {
    let timestamp = Timestamp::from_nanosecond(local_ns).ok()?;
    Some(TimeZone::UTC.to_datetime(timestamp))
}

/// Local time minus UTC at an instant.
pub(super) fn offset_ns(zone: &TimeZone, time_ns: i64) -> i64 {
    nanoseconds(zone.to_offset(instant(time_ns)))
}

/// Local time minus UTC at an instant, in seconds.
pub fn offset_s(zone: &TimeZone, time_ns: i64) -> i64 {
    i64::from(zone.to_offset(instant(time_ns)).seconds())
}

fn as_utc(local: DateTime) -> Option<i128> {
    Some(TimeZone::UTC.to_timestamp(local).ok()?.as_nanosecond())
}

/// The local time of an instant, as if it were UTC.
pub fn to_local(ns: i64, zone: &TimeZone) -> Option<i64> {
    ns.checked_add(offset_ns(zone, ns))
}

/// The instant of a local time, which is given as if it were UTC.
pub fn from_local(local_ns: i64, zone: &TimeZone) -> Option<i64> {
    timestamp(civil(local_ns, &TimeZone::UTC)?, zone)
}

/// The instant of a date and time in a zone. As in Postgres: a missing time is read by the clock before the change, a repeated one by the clock after it.
pub fn timestamp(civil: DateTime, zone: &TimeZone) -> Option<i64> {
    let offset = match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } => offset,
        AmbiguousOffset::Gap { before, .. } => before,
        AmbiguousOffset::Fold { after, .. } => after,
    };
    i64::try_from(as_utc(civil)? - i128::from(nanoseconds(offset))).ok()
}

/// A time zone by its name, as databases of zones and `UTC`, `GMT` and `Z` have it.
pub fn zone(name: &str) -> Option<TimeZone> {
    if ["utc", "gmt", "z"].iter().any(|utc| name.eq_ignore_ascii_case(utc)) {
        return Some(TimeZone::UTC);
    }
    TimeZone::get(name).ok()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const HOUR_NS: i64 = 3_600 * NS_PER_S;

    fn bins(width: Interval, name: &str) -> CalendarBins {
        CalendarBins::new(width, 0, zone(name).unwrap())
    }

    fn hours(hours: i64, name: &str) -> CalendarBins {
        bins(Interval::of_ns(hours * HOUR_NS), name)
    }

    fn at(text: &str) -> i64 {
        parse(text).unwrap()
    }

    #[test]
    fn days_are_as_long_as_the_zone_has_them() {
        let plain = hours(1, "UTC");
        assert_eq!((plain.start_of(-1), plain.start_of(HOUR_NS), plain.next(0)), (-HOUR_NS, HOUR_NS, HOUR_NS));
        let days = hours(24, "Europe/Berlin");
        // The day on which summer time begins has 23 hours.
        let (start_ns, next_ns) = (at("2016-03-26T23:00:00Z"), at("2016-03-27T22:00:00Z"));
        assert_eq!(days.start_of(start_ns + 12 * HOUR_NS), start_ns);
        assert_eq!(days.next(start_ns), next_ns);
        assert_eq!(days.previous(next_ns), start_ns);
    }

    #[test]
    fn runs_hold_the_bins_that_times_have() {
        let range = (at("2023-12-20T00:00:00Z"), at("2026-02-01T00:00:00Z"));
        let widths = [Interval::of_ns(HOUR_NS / 2), Interval::of_ns(7 * HOUR_NS), Interval::of_ns(24 * HOUR_NS)];
        for width in widths.into_iter().chain([1, 3].map(Interval::of_months)) {
            for name in ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana", "Asia/Kathmandu"] {
                let bins = bins(width, name);
                let runs = bins.equal_runs(range, 200, |at, start| bins.start_of(at) == start).unwrap();
                assert!(runs.is_sorted_by(|a, b| a.end_ns() == b.start_ns), "{name} {width:?}");
                for time_ns in (range.0..range.1).step_by(HOUR_NS as usize * 5 + 17) {
                    let run = runs.iter().find(|run| (run.start_ns..run.end_ns()).contains(&time_ns)).unwrap();
                    let found_ns = time_ns - (time_ns - run.offset_ns()).rem_euclid(run.width_ns);
                    assert_eq!(found_ns, bins.start_of(time_ns), "{name} {width:?} {time_ns}");
                }
            }
        }
        // Of two opinions on a bin there are no runs.
        assert_eq!(hours(24, "Europe/Berlin").equal_runs(range, 200, |at, _| at > range.1), None);
        assert_eq!(bins(Interval::of_months(1), "UTC").equal_runs(range, 3, |_, _| true), None);
    }

    #[test]
    fn bins_in_missing_and_repeated_hours() {
        // 02:00 is missing on 2017-03-26.
        let two = hours(2, "Europe/Zurich");
        let change_ns = at("2017-03-26T01:00:00Z");
        assert_eq!(two.start_of(change_ns + HOUR_NS / 2), change_ns);
        assert_eq!(
            (two.next(change_ns - 2 * HOUR_NS + HOUR_NS), two.next(change_ns)),
            (change_ns, change_ns + HOUR_NS)
        );
        // 02:00 to 03:00 is repeated on 2024-04-07.
        let one = hours(1, "Australia/Sydney");
        assert_eq!(one.start_of(at("2024-04-06T15:15:00Z")), at("2024-04-06T15:00:00Z"));
        assert_eq!(one.start_of(at("2024-04-06T16:15:00Z")), at("2024-04-06T16:00:00Z"));
        let six = hours(6, "Australia/Sydney");
        assert_eq!(six.next(at("2024-04-06T13:00:00Z")), at("2024-04-06T20:00:00Z"));
    }

    #[test]
    fn months_are_those_of_the_zone() {
        let month = bins(Interval::of_months(1), "America/New_York");
        assert_eq!(month.start_of(at("2024-07-10T00:00:00Z")), at("2024-07-01T04:00:00Z"));
        assert_eq!(month.next(at("2024-02-01T05:00:00Z")), at("2024-03-01T05:00:00Z"));
        // A date that was skipped.
        let days: Vec<i64> =
            hours(24, "Pacific/Apia").starts(at("2011-12-29T12:00:00Z"), at("2011-12-31T12:00:00Z")).collect();
        assert_eq!(days, [at("2011-12-29T10:00:00Z"), at("2011-12-30T10:00:00Z"), at("2011-12-31T10:00:00Z")]);
    }
}

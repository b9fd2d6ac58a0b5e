//! The evaluations of a rule so far: the log position that each one saw, and the results that later rows make pending.

use std::collections::VecDeque;

use model::TimeRange;
use parking_lot::Mutex;
use query::views::{merged_to, normalized, subtract};

use super::document::SavedPast;

const NS_PER_MS: i64 = 1_000_000;

/// Results of evaluations that were made so long ago are on disk, or known to be pending.
const STORED_AFTER_MS: i64 = 60_000;

/// How far the time up to which evaluations were made moves between two times that it is written.
const EVALUATED_STEP_NS: i64 = 3_600_000_000_000;

/// Evaluations of a rule of which it is known which rows they saw; of earlier ones nothing is.
const MARKS_MAX: usize = 256;

/// Ranges of results that are to be computed again; with more the oldest become one.
pub(super) const RANGES_MAX: usize = 256;

/// Ranges that are gathered before they are merged.
const UNMERGED_MAX: usize = 1_024;

/// The last evaluations of a rule, each with the log's sequence id up to which it saw rows.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    /// In order of times, of which the sequence ids are one, too.
    entries: VecDeque<(i64, u64)>,
    /// Of evaluations up to this time nothing is known; `None` before the first one.
    unknown_through_ms: Option<i64>,
}

impl Marks {
    /// Notes that before a time nothing is known.
    fn begin(&mut self, time_ms: i64) {
        self.unknown_through_ms.get_or_insert(time_ms);
    }

    fn add(&mut self, time_ms: i64, sequence: u64) {
        self.begin(time_ms - 1);
        self.unknown_through_ms = self.unknown_through_ms.map(|unknown_ms| unknown_ms.min(time_ms - 1));
        // A clock that was put back evaluates again.
        while self.entries.back().is_some_and(|(last_ms, _)| *last_ms >= time_ms) {
            self.entries.pop_back();
        }
        self.entries.push_back((time_ms, sequence));
        if self.entries.len() > MARKS_MAX
            && let Some((oldest_ms, _)) = self.entries.pop_front()
        {
            self.unknown_through_ms = Some(oldest_ms);
        }
    }

    /// The last evaluation that did not see a record.
    pub(super) fn unseen_through_ms(&self, sequence: u64) -> i64 {
        let unseen = self.entries.iter().rev().find(|(_, mark)| *mark < sequence);
        unseen.map(|(time_ms, _)| *time_ms).or(self.unknown_through_ms).unwrap_or(i64::MIN)
    }

    /// The first and the last evaluation that are remembered.
    fn evaluated(&self) -> Option<(i64, i64)> {
        self.entries.front().zip(self.entries.back()).map(|((first_ms, _), (last_ms, _))| (*first_ms, *last_ms))
    }

    /// The last evaluation, or the time of which nothing is known up to.
    pub(super) fn last_ms(&self) -> i64 {
        self.entries.back().map(|(time_ms, _)| *time_ms).or(self.unknown_through_ms).unwrap_or(i64::MIN)
    }
}

/// Ranges of results that are to be computed again, by their times.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Ranges(Vec<TimeRange>);

impl Ranges {
    pub(super) fn new(ranges: Vec<TimeRange>) -> Self {
        let mut ranges = Self(ranges);
        ranges.settle();
        ranges
    }

    pub(super) fn add(&mut self, range: TimeRange) {
        // Rows that come one after another are mostly of one range.
        match self.0.last_mut() {
            Some(last) if last.overlaps(&range) => *last = last.union(range),
            _ => self.0.push(range),
        }
        if self.0.len() > UNMERGED_MAX {
            self.settle();
        }
    }

    /// Puts them in order and merges those that overlap.
    pub(super) fn settle(&mut self) {
        self.0 = merged_to(normalized(std::mem::take(&mut self.0)), RANGES_MAX);
    }

    pub(super) fn remove(&mut self, done: &TimeRange) {
        self.0 = subtract(&self.0, &[*done]);
    }

    /// The ranges, oldest first, once they are settled.
    pub(super) fn list(&self) -> &[TimeRange] {
        &self.0
    }
}

/// Pieces that a rule fails at one after another before it goes on with older ones.
const TRIES: u32 = 3;

/// How long a range is passed over at most, in nanoseconds.
const PASSED_NS_MAX: u64 = 600_000_000_000;

/// Doublings of what is passed over.
const DOUBLINGS_MAX: u32 = 20;

/// Ranges of results that failed several times, for reasons that may pass: older ones come first for a while.
#[derive(Debug, Default)]
pub(super) struct PassedOver {
    /// Pieces that failed since one went well.
    failures: u32,
    /// Each with the time until which it is passed over, nanoseconds of the monotonic clock. A failure adds one at most, and rules
    /// pause after each.
    ranges: Vec<(TimeRange, u64)>,
}

impl PassedOver {
    /// The newest of pending ranges that is not passed over; where all are, none is any more.
    pub(super) fn newest_of(&mut self, pending: &[TimeRange], now_ns: u64) -> Option<TimeRange> {
        self.ranges.retain(|(_, until_ns)| *until_ns > now_ns);
        let passed = normalized(self.ranges.iter().map(|(range, _)| *range).collect());
        let left = subtract(pending, &passed).last().copied();
        if left.is_none() {
            self.ranges.clear();
        }
        left.or_else(|| pending.last().copied())
    }

    /// Notes that a piece at the end of a range failed. After several failures it is passed over, after each further one twice as much, so
    /// that a wide range that cannot be read is soon behind.
    pub(super) fn note_failure(&mut self, range: &TimeRange, piece_ns: i64, now_ns: u64) {
        self.failures = self.failures.saturating_add(1);
        let Some(further) = self.failures.checked_sub(TRIES) else { return };
        let width_ns = piece_ns.saturating_mul(1 << further.min(DOUBLINGS_MAX));
        let start_ns = range.end_ns.saturating_sub(width_ns).saturating_add(1).max(range.start_ns);
        self.ranges.push((TimeRange { start_ns, end_ns: range.end_ns }, now_ns.saturating_add(PASSED_NS_MAX)));
    }

    pub(super) const fn note_success(&mut self) {
        self.failures = 0;
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Counts of a rule's past since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct PastCounts {
    /// Moments whose results were computed again.
    pub evaluations: u64,
    /// Moments whose results could not be computed, and stayed as they were.
    pub failures: u64,
    /// Moments whose results were not computed, or not again, because a part of what they are made of is gone: by retention, or by `drop_input`.
    pub refused: u64,
    /// Samples that were written.
    pub samples: u64,
    /// Nanoseconds of a core that all of it took, those of threads that helped left out.
    pub cpu_ns: u64,
}

/// The past of a rule, as far as it is known and wanted.
#[derive(Debug, Default)]
pub(super) struct PastState {
    pub(super) marks: Marks,
    pub(super) pending: Ranges,
    /// Results that could not be computed for a reason that stays, and are as they were before.
    pub(super) failed: Ranges,
    /// The expression for which what was there before the rule was made pending, if it drops its input, as a hash.
    pub(super) made_pending: Option<u128>,
    /// As `made_pending`, where a result was or will be made of all of that.
    pub(super) filled: Option<u128>,
    /// How its input goes, if it drops it.
    pub(super) dropping: Option<DropReport>,
    pub(super) passed_over: PassedOver,
    /// Of what its results are made of a part before this time is gone, or was once.
    pub(super) frozen_ns: Option<i64>,
    /// Results up to this time, in milliseconds, may be those that a clock made that was ahead; `None` if there are none.
    pub(super) ahead_ms: Option<i64>,
    /// True once it is known whether a clock that was ahead made some before the start.
    pub(super) is_ahead_known: bool,
    /// Results of samples that were there before the rule, which drops them. Others may be stored among these, whose samples went
    /// elsewhere: they are written over, and neither ended nor deleted.
    pub(super) fill: Ranges,
    /// True once what was known before the start is part of this.
    pub(super) is_restored: bool,
    /// Moments that are computed together: as many as went well.
    pub(super) piece_steps: i64,
    pub(super) counts: PastCounts,
    pub(super) error: Option<String>,
}

impl PastState {
    /// Makes the results from one millisecond to another pending.
    fn make_pending(&mut self, first_ms: i64, last_ms: i64) {
        self.pending.add(TimeRange::new(first_ms.saturating_mul(NS_PER_MS), last_ms.saturating_mul(NS_PER_MS)));
        self.pending.settle();
    }

    /// Takes a range out of what is pending.
    pub(super) fn finish(&mut self, done: &TimeRange) {
        for ranges in [&mut self.pending, &mut self.failed] {
            ranges.remove(done);
        }
    }

    /// The newest part of a range that was there before the rule as a whole, or not at all, and which it is.
    pub(super) fn newest_of_one_kind(&self, range: TimeRange) -> (TimeRange, bool) {
        let parts = subtract(&[range], self.fill.list());
        match parts.last() {
            Some(part) if part.end_ns == range.end_ns => (*part, false),
            newest => (TimeRange { start_ns: newest.map_or(range.start_ns, |part| part.end_ns + 1), ..range }, true),
        }
    }

    /// Its part that is written, by the trusted time.
    pub(super) fn saved(&self, frozen_ns: Option<i64>, trusted_ns: i64) -> SavedPast {
        SavedPast {
            pending: self.pending.list().to_vec(),
            failed: self.failed.list().to_vec(),
            frozen_ns,
            evaluated_ns: self.saved_evaluated_ns(trusted_ns),
            filled: self.filled,
            fill: self.fill.list().to_vec(),
        }
    }

    /// Notes up to which time results are stored. Later than the last evaluation only a clock made them that was ahead: those of evaluations that were
    /// made since the start are computed again.
    pub(super) fn note_stored(&mut self, stored_ns: i64, now_ns: i64) {
        self.is_ahead_known = true;
        if stored_ns <= now_ns {
            return;
        }
        self.ahead_ms = self.ahead_ms.max(Some(stored_ns.div_euclid(NS_PER_MS)));
        if let Some((first_ms, last_ms)) = self.marks.evaluated() {
            self.make_pending(first_ms, last_ms);
        }
    }

    /// As [`Self::evaluated_ns`], as it is written: a clock that is ahead has evaluations of times that will come again.
    pub(super) fn saved_evaluated_ns(&self, trusted_ns: i64) -> Option<i64> {
        let evaluated_ns = self.evaluated_ns()?.min(trusted_ns);
        Some(evaluated_ns.saturating_sub(evaluated_ns.rem_euclid(EVALUATED_STEP_NS)))
    }

    /// Up to when evaluations were made and their results stored, for certain, in nanoseconds; in steps of an hour, so that it is seldom
    /// written.
    pub(super) fn evaluated_ns(&self) -> Option<i64> {
        let last_ms = Some(self.marks.last_ms()).filter(|last_ms| *last_ms > i64::MIN)?;
        let stored_ns = last_ms.saturating_sub(STORED_AFTER_MS).saturating_mul(NS_PER_MS);
        Some(stored_ns.saturating_sub(stored_ns.rem_euclid(EVALUATED_STEP_NS)))
    }
}

/// The past of a rule that is selected.
#[derive(Debug, Default)]
pub(crate) struct RulePast {
    /// Held while results are computed and written, so that the newest of the past and the present one come one after another.
    pub(crate) evaluating: Mutex<()>,
    pub(super) state: Mutex<PastState>,
}

/// How the samples go that a rule's entry drops.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DropReport {
    /// Samples before this time are gone, in nanoseconds since the Unix epoch; `None` if none are.
    pub gone_before_ns: Option<i64>,
    /// Samples from this time on are still needed; `None` if all stay.
    pub needed_from_ns: Option<i64>,
    /// Why all stay that are there, if they do.
    pub kept_because: Option<String>,
}

/// How the past of a rule is doing.
#[derive(Debug, Clone, Default)]
pub struct PastReport {
    /// Ranges of results that are to be computed again, oldest first; nanoseconds since the Unix epoch.
    pub pending: Vec<TimeRange>,
    /// Counts since the start.
    pub counts: PastCounts,
    /// Why results could not be computed or stored last, if they could not.
    pub error: Option<String>,
    /// How the samples go that its entry drops, if it does.
    pub dropping: Option<DropReport>,
}

impl RulePast {
    /// Notes that the rule is evaluated for a time now, an interval after the last one unless some were missed. `mark` says up to which sequence
    /// id readers see rows, and is asked at the right moment: where the mark is not known to those who follow the log, it is of a time after
    /// what they have read.
    pub(crate) fn evaluates(&self, (time_ms, interval_ms): (i64, i64), mark: impl FnOnce() -> u64) {
        let mut state = self.state.lock();
        let sequence = mark();
        // Before the first evaluation the clock may have stepped ahead, too: what came since the start is missed then.
        let last_ms = state.marks.last_ms();
        if last_ms > i64::MIN && last_ms.saturating_add(interval_ms) < time_ms {
            state.make_pending(last_ms + 1, time_ms - 1);
        }
        if last_ms >= time_ms {
            state.ahead_ms = state.ahead_ms.max(Some(last_ms));
        }
        if state.ahead_ms.is_some_and(|ahead_ms| time_ms <= ahead_ms) {
            // An evaluation writes over results of its own series alone: others that a clock made that was ahead are still there.
            state.make_pending(time_ms, time_ms);
        }
        state.marks.add(time_ms, sequence);
    }

    /// Notes that the evaluation for a time gave no result.
    pub(crate) fn failed(&self, time_ms: i64) {
        self.state.lock().make_pending(time_ms, time_ms);
    }

    /// Notes that an evaluation wrote nothing, because a part of what it reads is gone.
    pub(crate) fn refused(&self) {
        self.state.lock().counts.refused += 1;
    }

    /// Notes that of evaluations before a time nothing is known, unless one was made since the start.
    pub(super) fn begin(&self, time_ms: i64) {
        self.state.lock().marks.begin(time_ms);
    }

    /// How it is doing.
    pub(crate) fn report(&self) -> PastReport {
        let state = self.state.lock();
        PastReport {
            pending: state.pending.list().to_vec(),
            counts: state.counts,
            error: state.error.clone(),
            dropping: state.dropping.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_which_evaluations_saw_a_record() {
        let mut marks = Marks::default();
        assert_eq!(marks.unseen_through_ms(7), i64::MIN);
        marks.begin(90);
        assert_eq!((marks.unseen_through_ms(1), marks.last_ms()), (90, 90));
        for (time_ms, sequence) in [(100, 5), (110, 5), (120, 9)] {
            marks.add(time_ms, sequence);
        }
        for (sequence, expected) in [(4, 90), (5, 90), (6, 110), (9, 110), (10, 120)] {
            assert_eq!(marks.unseen_through_ms(sequence), expected, "{sequence}");
        }
        // The clock was put back.
        marks.add(105, 12);
        assert_eq!((marks.unseen_through_ms(12), marks.unseen_through_ms(13), marks.last_ms()), (100, 105, 105));
    }

    #[test]
    fn of_evaluations_that_are_not_remembered_nothing_is_known() {
        let mut marks = Marks::default();
        (0..1_000).for_each(|time| marks.add(time * 10, time as u64));
        let oldest_ms = marks.entries[0].0;
        assert_eq!(marks.unseen_through_ms(3), oldest_ms - 10);
        assert_eq!(marks.unseen_through_ms(999), 9_980);
    }

    #[test]
    fn evaluations_that_were_missed_or_failed_are_pending() {
        let past = RulePast::default();
        let pending = || -> Vec<(i64, i64)> {
            let ranges = past.report().pending;
            ranges.iter().map(|range| (range.start_ns / NS_PER_MS, range.end_ns / NS_PER_MS)).collect()
        };
        let hours = |ms: i64| Some(ms / 3_600_000 * EVALUATED_STEP_NS);
        assert_eq!(past.state.lock().evaluated_ns(), None);
        past.begin(3_590_000);
        for time_ms in [3_600_000, 3_610_000, 3_640_000, 3_650_000] {
            past.evaluates((time_ms, 10_000), || 1);
        }
        assert_eq!(pending(), [(3_610_001, 3_639_999)]);
        past.failed(3_650_000);
        assert_eq!(pending(), [(3_610_001, 3_639_999), (3_650_000, 3_650_000)]);
        assert_eq!(past.state.lock().evaluated_ns(), hours(0), "the last minute may not be on disk");
        past.evaluates((3_660_000, 10_000), || 1);
        assert_eq!(past.state.lock().evaluated_ns(), hours(3_600_000));
    }

    #[test]
    fn what_a_clock_made_that_was_ahead_is_computed_again() {
        let past = RulePast::default();
        for time_ms in [100, 110, 500, 120, 130] {
            past.evaluates((time_ms, 1_000), || 1);
        }
        let pending: Vec<i64> = past.report().pending.iter().map(|range| range.end_ns / NS_PER_MS).collect();
        assert_eq!(pending, [120, 130]);
        past.evaluates((510, 1_000), || 1);
        assert_eq!(past.report().pending.len(), 2);
    }

    #[test]
    fn what_was_there_before_a_rule_is_computed_by_itself() {
        let fill = Ranges::new(vec![TimeRange::new(10, 19), TimeRange::new(40, 60)]);
        let state = PastState { fill, ..PastState::default() };
        for (range, part, is_fill) in [
            ((0, 50), (40, 50), true),
            ((0, 39), (20, 39), false),
            ((12, 19), (12, 19), true),
            ((0, 19), (10, 19), true),
            ((61, 70), (61, 70), false),
            ((45, 70), (61, 70), false),
        ] {
            let of = |(start_ns, end_ns): (i64, i64)| TimeRange::new(start_ns, end_ns);
            assert_eq!(state.newest_of_one_kind(of(range)), (of(part), is_fill), "{range:?}");
        }
    }

    #[test]
    fn what_lies_between_the_start_and_a_late_first_evaluation_is_pending() {
        for (begun_ms, expected) in [
            (Some(50_000), vec![TimeRange::new(50_001 * NS_PER_MS, 99_999 * NS_PER_MS)]),
            (Some(90_000), Vec::new()),
            (None, Vec::new()),
        ] {
            let past = RulePast::default();
            begun_ms.into_iter().for_each(|time_ms| past.begin(time_ms));
            past.evaluates((100_000, 10_000), || 1);
            assert_eq!(past.report().pending, expected, "{begun_ms:?}");
        }
    }

    #[test]
    fn what_fails_again_and_again_does_not_hold_up_what_is_older() {
        let pending = [TimeRange::new(0, 99), TimeRange::new(200, 299)];
        let mut passed_over = PassedOver::default();
        for _ in 0..2 {
            assert_eq!(passed_over.newest_of(&pending, 0), Some(pending[1]));
            passed_over.note_failure(&pending[1], 10, 0);
        }
        assert!(passed_over.is_empty());
        let mut newest = Vec::new();
        for _ in 0..5 {
            let range = passed_over.newest_of(&pending, 0).unwrap();
            newest.push((range.start_ns, range.end_ns));
            passed_over.note_failure(&range, 10, 0);
        }
        assert_eq!(newest, [(200, 299), (200, 289), (200, 269), (200, 229), (0, 99)], "10, 20, 40, 80");
        assert_eq!(passed_over.newest_of(&pending, 0), Some(pending[1]), "nothing else is left");
        // What goes well lets others be tried as often as at first.
        passed_over.note_failure(&pending[1], 10, 0);
        passed_over.note_success();
        assert_eq!(passed_over.newest_of(&pending, 1).map(|range| range.end_ns), Some(99));
        passed_over.note_failure(&pending[0], 10, 1);
        assert_eq!(passed_over.newest_of(&pending, 1), Some(pending[0]));
        assert_eq!(passed_over.newest_of(&pending, PASSED_NS_MAX), Some(pending[1]), "its time is over");
    }

    #[test]
    fn ranges_are_bounded_and_lose_nothing() {
        let mut ranges = Ranges::default();
        for at in (0..5_000).rev() {
            ranges.add(TimeRange::new(at * 100, at * 100 + 10));
        }
        ranges.settle();
        assert!(ranges.list().len() <= RANGES_MAX);
        assert!((0..5_000).all(|at| ranges.list().iter().any(|range| range.contains(at * 100 + 5))));
        ranges.remove(&TimeRange::ALL);
        assert_eq!(ranges.list(), []);
    }
}

//! Which results rows of the log change.

use std::collections::HashMap;
use std::sync::Arc;

use db::{Db, LogRecord, LogSeries};
use model::TimeRange;
use promql::ReadInterval;

use super::grid::MomentGrid;
use super::past::{Marks, Ranges, RulePast};
use super::reads::RuleReads;
use crate::group::{Group, Rule};
use crate::store::RuleStore;

const NS_PER_MS: i64 = 1_000_000;

/// A delete of a longer range than this, ten years, has no bounds.
const ENDLESS_NS: i64 = 315_360_000_000_000_000;

/// Series whose readers are known; then all are looked for again.
const SERIES_MAX: usize = 200_000;

/// A rule whose results are kept right.
pub(super) struct KeptRule {
    pub(super) group: Arc<Group>,
    /// Its number in the group.
    number: usize,
    pub(super) past: Arc<RulePast>,
    pub(super) reads: Arc<RuleReads>,
    /// The times that the evaluation at time 0 reads.
    pub(super) reach: ReadInterval,
}

impl KeptRule {
    /// A rule of a group, if it is one that is selected.
    pub(super) fn new(group: &Arc<Group>, number: usize, db: &Db) -> Option<Self> {
        let rule = group.rules.get(number)?;
        let past = rule.past()?;
        let reads = rule.reads(db)?;
        let reach = reads.interval()?;
        Some(Self { group: group.clone(), number, past, reads, reach })
    }

    pub(super) fn rule(&self) -> Option<&Rule> {
        self.group.rules.get(self.number)
    }

    /// The times of the results that are stored.
    fn stored_extent(&self, store: &RuleStore) -> Result<TimeRange, String> {
        let name = self.rule().map(|rule| rule.config.name().to_owned()).unwrap_or_default();
        store.extent(&name).map_err(|error| error.to_string())
    }

    /// The times of the results that a range without bounds counts for: those that are stored. Of any other range all do.
    fn extent_of_endless(&self, range: &TimeRange, store: &RuleStore) -> Result<TimeRange, String> {
        let is_endless = range.end_ns.saturating_sub(range.start_ns) > ENDLESS_NS;
        if is_endless { self.stored_extent(store) } else { Ok(TimeRange::ALL) }
    }

    /// The time of the newest result that is stored; `i64::MIN` if none is.
    pub(super) fn newest_ns(&self, store: &RuleStore) -> Result<i64, String> {
        let name = self.rule().map(|rule| rule.config.name().to_owned()).unwrap_or_default();
        store.newest_ns(&name).map_err(|error| error.to_string())
    }

    /// The time before which a part of what its results are made of is gone, or was once; `None` if nothing is.
    pub(super) fn note_frozen(&self, store: &RuleStore) -> Option<i64> {
        let gone_ns = self.reads.gone_before_ns(store);
        let mut state = self.past.state.lock();
        state.frozen_ns = state.frozen_ns.max(gone_ns);
        state.frozen_ns
    }

    /// Has what was stored before the rule computed, which drops it, and notes it for an expression. What is from before a time cannot be computed, because
    /// others of that time are gone: it is not noted then, so that it stays.
    pub(super) fn take_what_was_there(&self, (id, extent): (Option<u128>, &TimeRange), gone_before_ns: Option<i64>) {
        let mut state = self.past.state.lock();
        let has_some = extent.start_ns <= extent.end_ns;
        if state.made_pending != id && has_some {
            let range_ms = (extent.start_ns.div_euclid(NS_PER_MS), extent.end_ns.div_euclid(NS_PER_MS));
            let results = self.results_of(range_ms, state.marks.last_ms());
            if let Some(range) = results {
                state.pending.add(range);
                state.fill.add(range);
            }
            state.pending.settle();
            state.fill.settle();
        }
        state.made_pending = id;
        if !has_some || gone_before_ns.is_none_or(|gone_ns| extent.start_ns >= gone_ns) {
            state.filled = id;
        }
    }

    /// Returns whether results of the past are pending, or are not known yet to be, of a rule that drops its input.
    pub(super) fn has_past_to_compute(&self) -> bool {
        let state = self.past.state.lock();
        state.made_pending.or(state.filled).is_none() || !state.pending.list().is_empty()
    }

    /// The time from which on its results may still change, where samples from a time on may still come: those that are pending, that failed, and
    /// that are computed again after a restart.
    pub(super) fn results_from_ms(&self, late_ms: i64, trusted_ns: i64) -> i64 {
        let state = self.past.state.lock();
        let first = |ranges: &Ranges| ranges.list().first().map(|range| range.start_ns);
        // Nothing is known of a rule that was never evaluated.
        let evaluated_ns = state.saved_evaluated_ns(trusted_ns).unwrap_or(i64::MIN);
        let open_ns = [first(&state.pending), first(&state.failed)].into_iter().flatten().fold(evaluated_ns, i64::min);
        open_ns.div_euclid(NS_PER_MS).min(self.results_of_samples_from_ms(late_ms))
    }

    /// The time from which on results may change where samples from a time on may: never later than those.
    pub(super) fn results_of_samples_from_ms(&self, samples_ms: i64) -> i64 {
        samples_ms.saturating_sub(self.reach.last_ms.max(0)).saturating_sub(1)
    }

    /// The first sample that results from a time on are made of, in milliseconds.
    pub(super) fn needed_from_ms(&self, results_ms: i64) -> i64 {
        let (any_ms, interval_ms) = self.group.result_grid();
        let first_ms = MomentGrid { any_ms, interval_ms }.first_from(results_ms);
        // A sample within a millisecond counts as one of it, whichever way it is rounded.
        first_ms.saturating_add(self.reach.first_ms).saturating_sub(1)
    }

    /// The times of results that samples of a range of time are part of, as far as evaluations did not see them.
    pub(super) fn results_of(&self, (first_ms, last_ms): (i64, i64), unseen_through_ms: i64) -> Option<TimeRange> {
        // A sample within a millisecond counts as one of it, whichever way it is rounded.
        let start_ms = first_ms.saturating_sub(self.reach.last_ms).saturating_sub(1);
        let end_ms = last_ms.saturating_sub(self.reach.first_ms).saturating_add(1).min(unseen_through_ms);
        (start_ms <= end_ms)
            .then(|| TimeRange::new(start_ms.saturating_mul(NS_PER_MS), end_ms.saturating_mul(NS_PER_MS)))
    }
}

/// Follows the log for rules, of which it knows the numbers by the series that they read. The series are held, so that their addresses name them.
#[derive(Default)]
pub(super) struct ReaderIndex {
    series: HashMap<usize, (Arc<LogSeries>, Vec<usize>)>,
}

impl ReaderIndex {
    /// Takes records that were read before now: of an evaluation that is not marked yet it is certain that it sees them.
    pub(super) fn take(&mut self, rules: &[KeptRule], records: &[LogRecord]) {
        let marks: Vec<Marks> = rules.iter().map(|rule| rule.past.state.lock().marks.clone()).collect();
        if self.series.len() > SERIES_MAX {
            self.series.clear();
        }
        for record in records {
            let unseen: Vec<i64> = marks.iter().map(|marks| marks.unseen_through_ms(record.sequence)).collect();
            let reached =
                rules.iter().zip(&unseen).map(|(rule, unseen_ms)| unseen_ms.saturating_add(rule.reach.last_ms));
            // Rows of the present change no result that there is.
            let newest_ms = reached.max().unwrap_or(i64::MIN).saturating_add(1);
            for sample in &record.samples {
                let time_ms = sample.timestamp_ns.div_euclid(NS_PER_MS);
                if time_ms > newest_ms {
                    continue;
                }
                for reader in self.readers(rules, &sample.series) {
                    let (Some(rule), Some(unseen_ms)) = (rules.get(*reader), unseen.get(*reader)) else { continue };
                    if let Some(range) = rule.results_of((time_ms, time_ms), *unseen_ms) {
                        rule.past.state.lock().pending.add(range);
                    }
                }
            }
        }
        rules.iter().for_each(|rule| rule.past.state.lock().pending.settle());
    }

    /// Takes a range of time of whose rows the log does not tell any more.
    pub(super) fn gap(rules: &[KeptRule], range: &TimeRange, store: &RuleStore) -> Result<(), String> {
        let range_ms = (range.start_ns.div_euclid(NS_PER_MS), range.end_ns.div_euclid(NS_PER_MS));
        for rule in rules {
            let known = rule.extent_of_endless(range, store)?;
            let mut state = rule.past.state.lock();
            let results = rule.results_of(range_ms, state.marks.last_ms());
            let results = results.map(|of| TimeRange { start_ns: of.start_ns.max(known.start_ns), end_ns: of.end_ns });
            if let Some(results) = results.filter(|of| of.start_ns <= of.end_ns) {
                state.pending.add(results);
                state.pending.settle();
            }
        }
        Ok(())
    }

    /// Takes the rows of a range of time that were deleted, of a table or of all.
    pub(super) fn deleted(
        rules: &[KeptRule],
        (table, range): (Option<&str>, &TimeRange),
        store: &RuleStore,
    ) -> Result<(), String> {
        let range_ms = (range.start_ns.div_euclid(NS_PER_MS), range.end_ns.div_euclid(NS_PER_MS));
        for rule in rules.iter().filter(|rule| table.is_none_or(|table| rule.reads.may_be_of_table(table))) {
            let known = rule.extent_of_endless(range, store)?;
            let mut state = rule.past.state.lock();
            // Whether the last evaluations saw them is not known.
            let results = rule.results_of(range_ms, state.marks.last_ms());
            let results = results.map(|of| TimeRange { start_ns: of.start_ns.max(known.start_ns), end_ns: of.end_ns });
            if let Some(results) = results.filter(|of| of.start_ns <= of.end_ns) {
                state.pending.add(results);
                state.pending.settle();
                // What was deleted was there, and so are the others of its windows.
                state.fill.remove(&results);
            }
        }
        Ok(())
    }

    /// The numbers of the rules that read a series.
    fn readers(&mut self, rules: &[KeptRule], series: &Arc<LogSeries>) -> &[usize] {
        let (_, readers) = self.series.entry(Arc::as_ptr(series) as usize).or_insert_with(|| {
            let readers = rules.iter().enumerate().filter(|(_, rule)| rule.reads.series(series));
            (series.clone(), readers.map(|(number, _)| number).collect())
        });
        readers
    }
}

//! Which results rows of the log change.

use std::collections::HashMap;
use std::sync::Arc;

use db::{Db, LogRecord, LogSeries};
use index::CompiledMatcher;
use model::TimeRange;
use promql::{EvaluationSettings, ReadInterval};

use super::checks::only_name;
use super::past::{Marks, RulePast};
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
    selectors: Vec<Vec<CompiledMatcher>>,
    /// The names of the metrics of selectors that are one text.
    names: Vec<Option<String>>,
    /// The times that the evaluation at time 0 reads.
    pub(super) reach: ReadInterval,
}

impl KeptRule {
    /// A rule of a group, if it is one that is selected.
    pub(super) fn new(group: &Arc<Group>, number: usize, db: &Db) -> Option<Self> {
        let rule = group.rules.get(number)?;
        let past = rule.past()?;
        let expression = db.parse(&rule.config.expr).ok()?;
        let settings = EvaluationSettings { lookback_ms: db.lookback_ms(), ..EvaluationSettings::default() };
        let reach = expression.step_read_interval(&settings)?;
        let selectors = expression.selectors().into_iter().map(|matchers| index::compile(matchers).ok());
        let selectors = selectors.collect::<Option<_>>()?;
        let names = expression.selectors().into_iter().map(only_name).collect();
        Some(Self { group: group.clone(), number, past, selectors, names, reach })
    }

    pub(super) fn rule(&self) -> Option<&Rule> {
        self.group.rules.get(self.number)
    }

    /// The times of the results that are stored.
    fn stored_extent(&self, store: &RuleStore) -> Result<TimeRange, String> {
        let name = self.rule().map(|rule| rule.config.name().to_owned()).unwrap_or_default();
        store.extent(&name).map_err(|error| error.to_string())
    }

    fn reads(&self, series: &LogSeries) -> bool {
        let value = |matcher: &CompiledMatcher| series.labels.get(matcher.name()).unwrap_or_default();
        self.selectors.iter().any(|set| set.iter().all(|matcher| matcher.matches(value(matcher))))
    }

    /// Returns whether series of a table may be among those that it reads: their names are the table's, or begin with it.
    fn may_read_table(&self, table: &str) -> bool {
        may_be_of_table(&self.names, table)
    }

    /// The time before which a part of what its results are made of is gone, or was once; `None` if nothing is.
    pub(super) fn note_frozen(&self, store: &RuleStore) -> Option<i64> {
        let gone_ns = store.gone_before_ns(&|table| self.may_read_table(table));
        let mut state = self.past.state.lock();
        state.frozen_ns = state.frozen_ns.max(gone_ns);
        state.frozen_ns
    }

    /// The times of results that samples of a range of time are part of, as far as evaluations did not see them.
    fn results_of(&self, (first_ms, last_ms): (i64, i64), unseen_through_ms: i64) -> Option<TimeRange> {
        // A sample within a millisecond counts as one of it, whichever way it is rounded.
        let start_ms = first_ms.saturating_sub(self.reach.last_ms).saturating_sub(1);
        let end_ms = last_ms.saturating_sub(self.reach.first_ms).saturating_add(1).min(unseen_through_ms);
        (start_ms <= end_ms)
            .then(|| TimeRange::new(start_ms.saturating_mul(NS_PER_MS), end_ms.saturating_mul(NS_PER_MS)))
    }
}

/// Returns whether metrics of some names, where one that is unknown may be any, may be in a table.
pub(crate) fn may_be_of_table(names: &[Option<String>], table: &str) -> bool {
    let is_of_table =
        |name: &str| name.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
    names.iter().any(|name| name.as_deref().is_none_or(is_of_table))
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
    pub(super) fn gap(rules: &[KeptRule], range: &TimeRange) {
        let range_ms = (range.start_ns.div_euclid(NS_PER_MS), range.end_ns.div_euclid(NS_PER_MS));
        for rule in rules {
            let mut state = rule.past.state.lock();
            if let Some(range) = rule.results_of(range_ms, state.marks.last_ms()) {
                state.pending.add(range);
                state.pending.settle();
            }
        }
    }

    /// Takes the rows of a range of time that were deleted, of a table or of all.
    pub(super) fn deleted(
        rules: &[KeptRule],
        (table, range): (Option<&str>, &TimeRange),
        store: &RuleStore,
    ) -> Result<(), String> {
        let range_ms = (range.start_ns.div_euclid(NS_PER_MS), range.end_ns.div_euclid(NS_PER_MS));
        for rule in rules.iter().filter(|rule| table.is_none_or(|table| rule.may_read_table(table))) {
            // Of a delete without bounds the times count that have results.
            let is_endless = range.end_ns.saturating_sub(range.start_ns) > ENDLESS_NS;
            let known = if is_endless { rule.stored_extent(store)? } else { TimeRange::ALL };
            let mut state = rule.past.state.lock();
            // Whether the last evaluations saw them is not known.
            let results = rule.results_of(range_ms, state.marks.last_ms());
            let results = results.map(|of| TimeRange { start_ns: of.start_ns.max(known.start_ns), end_ns: of.end_ns });
            if let Some(results) = results.filter(|of| of.start_ns <= of.end_ns) {
                state.pending.add(results);
                state.pending.settle();
            }
        }
        Ok(())
    }

    /// The numbers of the rules that read a series.
    fn readers(&mut self, rules: &[KeptRule], series: &Arc<LogSeries>) -> &[usize] {
        let (_, readers) = self.series.entry(Arc::as_ptr(series) as usize).or_insert_with(|| {
            let readers = rules.iter().enumerate().filter(|(_, rule)| rule.reads(series));
            (series.clone(), readers.map(|(number, _)| number).collect())
        });
        readers
    }
}

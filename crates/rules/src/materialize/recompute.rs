//! Results of the past: computing some of them, and what has to be written so that they are as computed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Labels, TimeRange};
use promql::{ResultValue, VectorSample};
use query::{Budget, QueryError};

use super::follow::KeptRule;
use super::grid::MomentGrid;
use super::past::PastState;
use super::reads::complete_from_ms;
use crate::file::RuleKind;
use crate::group::{Recorded, Rule, vector};
use crate::store::{RuleSample, RuleStore, RuleValue, StoredValue, VALUE_BYTES, stored_form};

const NS_PER_MS: i64 = 1_000_000;

/// Moments that are computed together at first, and at most; where nothing is found, at most so many.
const STEPS_FIRST: i64 = 64;
const STEPS_MAX: i64 = 1_024;
const EMPTY_STEPS_MAX: i64 = 65_536;

/// How long a piece may take, in nanoseconds: as long the rule's next evaluation may have to wait.
const PIECE_NS_MAX: u64 = 200_000_000;

/// Values by series and time.
type ByTime<T> = BTreeMap<Labels, BTreeMap<i64, T>>;

/// Computes the newest results of a rule that are to be computed again, and writes what differs.
///
/// # Errors
/// If they could not be computed or stored for a reason that may pass: they are still to be computed.
pub(super) fn compute_newest(kept: &KeptRule, store: &RuleStore) -> Result<(), String> {
    let Some(rule) = kept.rule() else { return Ok(()) };
    let _evaluating = kept.past.evaluating.lock();
    let begun_ns = store.db.clock().thread_cpu_ns();
    let computed = Work::next(kept, store, rule).map_or(Ok(()), |work| work.run());
    let cpu_ns = store.db.clock().thread_cpu_ns().saturating_sub(begun_ns);
    kept.past.state.lock().counts.cpu_ns += cpu_ns;
    computed
}

/// Results of a range of moments.
struct Work<'a> {
    followed: &'a KeptRule,
    store: &'a RuleStore,
    rule: &'a Rule,
    name: &'a str,
    grid: MomentGrid,
    /// The pending range.
    range: TimeRange,
    /// The first and the last moment that are computed.
    steps: (i64, i64),
    /// The moment after those, if it was evaluated: its result stays, but what ended before it needs a marker there.
    following_ms: Option<i64>,
    /// Moments of the range before these that cannot be computed.
    refused: u64,
    /// True if nothing of the range is left after these.
    is_rest: bool,
    /// True of what was there before the rule: others' results that are stored among these are written over, and neither ended nor deleted.
    is_fill: bool,
    /// The memory of its results, and of what is stored.
    budget: Arc<Budget>,
}

/// Why results are still to be computed.
#[derive(Debug, PartialEq)]
enum Setback {
    /// So many moments may go well.
    Fewer(i64),
    /// They could not be computed or stored for a reason that may pass.
    Failed(String),
}

impl Setback {
    /// What an error of computing so many moments holds up; nothing if it would be the same again, which is then a moment's result.
    fn from_error(error: &QueryError, count: i64) -> Option<Self> {
        match error {
            // What cannot be read for one moment does not hold up the others.
            QueryError::TooManySamples { .. } | QueryError::TooMuchMemory { .. } | QueryError::Storage(_)
                if count > 1 =>
            {
                Some(Self::Fewer(count / 4))
            }
            QueryError::Execution(_) | QueryError::Invalid(_) | QueryError::TooManySamples { .. } => None,
            QueryError::TooMuchMemory { .. }
            | QueryError::Storage(_)
            | QueryError::OverQuota(_)
            | QueryError::Forbidden(_)
            | QueryError::Stopped(_) => Some(Self::Failed(error.to_string())),
        }
    }
}

/// Results that were computed.
#[derive(Default)]
struct Results {
    values: ByTime<RuleValue>,
    /// Moments without a result, because it could not be computed.
    failed: BTreeSet<i64>,
    why: Option<String>,
}

impl<'a> Work<'a> {
    /// What comes next; moments that there is nothing to do for are taken out of what is pending.
    fn next(kept: &'a KeptRule, store: &'a RuleStore, rule: &'a Rule) -> Option<Self> {
        let RuleKind::Record(name) = &rule.config.kind else { return None };
        let frozen_ns = kept.note_frozen(store);
        let mut state = kept.past.state.lock();
        let now_ns = store.db.clock().monotonic_ns();
        let PastState { pending, passed_over, .. } = &mut *state;
        let range = passed_over.newest_of(pending.list(), now_ns)?;
        let (range, is_fill) = state.newest_of_one_kind(range);
        let (any_ms, interval_ms) = kept.group.result_grid();
        let grid = MomentGrid { any_ms, interval_ms };
        let first_ms = grid.first_from(range.start_ns.div_euclid(NS_PER_MS));
        let last_ms = grid.last_until(range.end_ns.div_euclid(NS_PER_MS));
        let possible_ms = |frozen_ns: i64| grid.first_from(complete_from_ms(frozen_ns, &kept.reach));
        let from_ms = frozen_ns.map_or(first_ms, |frozen_ns| first_ms.max(possible_ms(frozen_ns)));
        if from_ms > last_ms {
            state.counts.refused += (last_ms - first_ms + interval_ms).max(0) as u64 / interval_ms as u64;
            state.finish(&range);
            return None;
        }
        let count = if state.piece_steps == 0 { STEPS_FIRST } else { state.piece_steps };
        let start_ms = from_ms.max(last_ms.saturating_sub((count - 1).saturating_mul(interval_ms)));
        let refused = (from_ms - first_ms) as u64 / interval_ms as u64;
        let (steps, is_rest) = ((start_ms, last_ms), start_ms <= from_ms);
        let following_ms = Some(last_ms + interval_ms).filter(|next_ms| *next_ms <= state.marks.last_ms());
        Some(Self {
            followed: kept,
            store,
            rule,
            name,
            grid,
            range,
            steps,
            following_ms,
            refused,
            is_rest,
            is_fill,
            budget: store.past_budget(),
        })
    }

    fn run(&self) -> Result<(), String> {
        let begun_ns = self.store.db.clock().monotonic_ns();
        let count = (self.steps.1 - self.steps.0) / self.grid.interval_ms + 1;
        let (results, written) = match self.try_steps(count) {
            Ok(done) => done,
            Err(Setback::Fewer(fewer)) => {
                // The next piece has so many moments.
                self.followed.past.state.lock().piece_steps = fewer.max(1);
                return Ok(());
            }
            Err(Setback::Failed(why)) => {
                let piece_ns = count.saturating_mul(self.grid.interval_ms).saturating_mul(NS_PER_MS);
                let now_ns = self.store.db.clock().monotonic_ns();
                self.followed.past.state.lock().passed_over.note_failure(&self.range, piece_ns, now_ns);
                return Err(why);
            }
        };
        let is_empty = written == 0 && results.values.is_empty();
        let elapsed_ns = self.store.db.clock().monotonic_ns().saturating_sub(begun_ns);
        let mut state = self.followed.past.state.lock();
        state.piece_steps = match (elapsed_ns > PIECE_NS_MAX, is_empty) {
            (true, _) => (count / 2).max(1),
            (false, true) => (count * 2).min(EMPTY_STEPS_MAX),
            (false, false) => (count * 2).min(STEPS_MAX),
        };
        let start_ns = if self.is_rest { self.range.start_ns } else { self.steps.0.saturating_mul(NS_PER_MS) };
        let done = TimeRange { start_ns, end_ns: self.range.end_ns };
        state.finish(&done);
        results.failed_ranges(self.grid.interval_ms).into_iter().for_each(|range| state.failed.add(range));
        state.failed.settle();
        state.counts.evaluations += count as u64;
        state.counts.failures += results.failed.len() as u64;
        state.counts.samples += written;
        if self.is_rest {
            state.counts.refused += self.refused;
        }
        state.passed_over.note_success();
        // What is passed over says so as long as it is.
        if results.why.is_some() || state.passed_over.is_empty() {
            state.error = results.why;
        }
        Ok(())
    }

    /// Computes and writes results of so many moments; how many samples were written.
    fn try_steps(&self, count: i64) -> Result<(Results, u64), Setback> {
        let results = match self.by_range() {
            Ok(results) => results,
            Err(error) => match Setback::from_error(&error, count) {
                Some(setback) => return Err(setback),
                // One moment that fails does not take the others with it.
                None if count > STEPS_FIRST => return Err(Setback::Fewer(STEPS_FIRST)),
                None => self.by_moments(count)?,
            },
        };
        let stored = self.store_results(&results);
        let written = stored.map_err(|error| {
            let setback = Setback::from_error(&error, count);
            setback.unwrap_or_else(|| Setback::Failed(error.to_string()))
        })?;
        Ok((results, written))
    }

    fn moments(&self) -> impl Iterator<Item = i64> {
        let (first_ms, last_ms) = self.steps;
        let last_ms = self.following_ms.unwrap_or(last_ms);
        (first_ms..=last_ms).step_by(self.grid.interval_ms as usize)
    }

    fn recorded(&self) -> Recorded<'_> {
        Recorded::new(self.name, &self.rule.config, self.followed.group.config.limit)
    }

    fn by_range(&self) -> Result<Results, QueryError> {
        let last_ms = self.following_ms.unwrap_or(self.steps.1);
        let times = (self.steps.0, last_ms, self.grid.interval_ms);
        let found = self.store.past_range(&self.rule.config.expr, times, &self.budget)?;
        let ResultValue::Matrix(series) = found.value else {
            return Err(QueryError::Invalid("the result is not a vector or scalar".to_owned()));
        };
        let count = series.iter().map(|(_, points)| points.floats.len() + points.histograms.len()).sum::<usize>();
        self.budget.hold_bytes(count as u64 * VALUE_BYTES)?;
        let mut results = Results::default();
        for (labels, points) in series {
            let Some(labels) = self.recorded().series(&labels).map_err(QueryError::Execution)? else { continue };
            let floats = points.floats.into_iter().map(|(time_ms, value)| (time_ms, RuleValue::Float(value)));
            let histograms =
                points.histograms.into_iter().map(|(time_ms, value)| (time_ms, RuleValue::Histogram(value)));
            for (time_ms, value) in floats.chain(histograms) {
                results.add(&labels, time_ms, value);
            }
        }
        results.hold_limit(self.recorded().limit);
        Ok(results)
    }

    /// Computes one moment after another; those whose error would be the same again have none.
    fn by_moments(&self, count: i64) -> Result<Results, Setback> {
        let mut results = Results::default();
        for time_ms in self.moments() {
            match self.at_moment(time_ms) {
                Ok(Ok(samples)) => {
                    let held = self.budget.hold_bytes(samples.len() as u64 * VALUE_BYTES);
                    held.map_err(|error| {
                        Setback::from_error(&error, count).unwrap_or_else(|| Setback::Failed(error.to_string()))
                    })?;
                    samples.into_iter().for_each(|(labels, value)| results.add(&labels, time_ms, value));
                }
                Ok(Err(why)) => results.fail(time_ms, why),
                Err(error) => match Setback::from_error(&error, 1) {
                    Some(setback) => return Err(setback),
                    None => results.fail(time_ms, error.to_string()),
                },
            }
        }
        results.hold_limit(self.recorded().limit);
        Ok(results)
    }

    /// The results at a moment, or why they are none.
    fn at_moment(&self, time_ms: i64) -> Result<Result<Vec<(Labels, RuleValue)>, String>, QueryError> {
        // A budget of its own: what other moments took must not make this one too large.
        let found = self.store.past_instant(&self.rule.config.expr, time_ms, &self.store.past_budget())?;
        let labelled = |sample: VectorSample| {
            let value = sample.histogram.map_or(RuleValue::Float(sample.value), RuleValue::Histogram);
            Ok(self.recorded().series(&sample.labels)?.map(|labels| (labels, value)))
        };
        Ok(vector(found)
            .and_then(|samples| samples.into_iter().filter_map(|sample| labelled(sample).transpose()).collect()))
    }

    /// Writes what differs; how many samples.
    fn store_results(&self, results: &Results) -> Result<u64, QueryError> {
        let (before_ms, after_ms) = (self.steps.0 - self.grid.interval_ms, self.steps.1 + self.grid.interval_ms);
        let matchers = self.recorded().matchers();
        let stored = || self.store.stored(&matchers, (before_ms, after_ms), &self.budget);
        let mut known = stored()?;
        if !self.is_fill && results.failed.is_empty() && self.has_others(&known) {
            // Results of another interval: beside those that are computed they would be wrong.
            let (start_ms, end_ms) = (before_ms + 1, after_ms - 1);
            let inner = TimeRange::new(start_ms.saturating_mul(NS_PER_MS), end_ms.saturating_mul(NS_PER_MS));
            self.store.delete(&matchers, &inner).map_err(QueryError::Storage)?;
            known = stored()?;
        }
        let samples = self.changes(results, &known);
        self.store.write(&samples).map_err(QueryError::Storage)?;
        self.note_newest(results);
        Ok(samples.len() as u64)
    }

    /// Returns whether something is stored between the moments.
    fn has_others(&self, stored: &ByTime<StoredValue>) -> bool {
        let is_moment = |time_ms: &i64| (time_ms - self.steps.0).rem_euclid(self.grid.interval_ms) == 0;
        stored.values().any(|values| values.keys().any(|time_ms| !is_moment(time_ms)))
    }

    /// The samples that make what is stored the results.
    fn changes(&self, results: &Results, stored: &ByTime<StoredValue>) -> Vec<RuleSample> {
        let (no_values, nothing_stored) = (BTreeMap::new(), BTreeMap::new());
        let series: BTreeSet<&Labels> = results.values.keys().chain(stored.keys()).collect();
        let mut samples = Vec::new();
        for labels in series {
            let of_series = SeriesChanges {
                work: self,
                failed: &results.failed,
                computed: results.values.get(labels).unwrap_or(&no_values),
                stored: stored.get(labels).unwrap_or(&nothing_stored),
            };
            let sample = |(time_ms, value)| RuleSample { labels: labels.clone(), time_ms, value };
            samples.extend(of_series.list().into_iter().map(sample));
        }
        samples
    }

    /// Series of the newest moment that its evaluation had not: the next one ends them, unless it has them.
    fn note_newest(&self, results: &Results) {
        let newest_ms = self.steps.1;
        if self.following_ms.is_some() {
            return;
        }
        let is_there = |(_, values): &(&Labels, &BTreeMap<i64, RuleValue>)| values.contains_key(&newest_ms);
        let series: Vec<Labels> = results.values.iter().filter(is_there).map(|(labels, _)| labels.clone()).collect();
        self.rule.change(|state| state.outputs = state.outputs.with(&series).into());
    }
}

/// What a series has to be changed by.
struct SeriesChanges<'a> {
    work: &'a Work<'a>,
    failed: &'a BTreeSet<i64>,
    computed: &'a BTreeMap<i64, RuleValue>,
    stored: &'a BTreeMap<i64, StoredValue>,
}

impl SeriesChanges<'_> {
    fn list(&self) -> Vec<(i64, RuleValue)> {
        let mut changes = Vec::new();
        let is_possible = |time_ms: &i64| !self.failed.contains(time_ms);
        for time_ms in self.work.moments().filter(is_possible) {
            let stored = self.stored.get(&time_ms);
            let is_following = time_ms > self.work.steps.1;
            match self.computed.get(&time_ms) {
                // As it was evaluated, or missed.
                Some(_) if is_following => {}
                Some(value) if stored.is_some_and(|stored| is_same(stored, value)) => {}
                Some(value) => changes.push((time_ms, value.clone())),
                None => {
                    let has_value = stored.is_some_and(|stored| *stored != StoredValue::Stale);
                    let ends = stored.is_none() && self.has_value_before(time_ms);
                    if ends || has_value && !is_following && !self.work.is_fill {
                        changes.push((time_ms, RuleValue::Stale));
                    }
                }
            }
        }
        changes
    }

    /// Returns whether the moment before has a value once all is written.
    fn has_value_before(&self, time_ms: i64) -> bool {
        let before_ms = time_ms - self.work.grid.interval_ms;
        if self.work.is_fill && before_ms < self.work.steps.0 {
            // It may be another's; the piece before ends its own.
            return false;
        }
        if before_ms < self.work.steps.0 || self.failed.contains(&before_ms) {
            return self.stored.get(&before_ms).is_some_and(|stored| *stored != StoredValue::Stale);
        }
        self.computed.contains_key(&before_ms)
    }
}

/// Returns whether a result is stored as it was computed.
fn is_same(stored: &StoredValue, computed: &RuleValue) -> bool {
    match (stored, computed) {
        (StoredValue::Float(stored), RuleValue::Float(value)) => {
            stored.to_bits() == value.to_bits() || stored.is_nan() && value.is_nan()
        }
        (StoredValue::Histogram(stored), RuleValue::Histogram(value)) => *stored == stored_form(value),
        (StoredValue::Stale, RuleValue::Stale) => true,
        _ => false,
    }
}

impl Results {
    /// Adds a value; two of a series at one moment are none.
    fn add(&mut self, labels: &Labels, time_ms: i64, value: RuleValue) {
        let values = match self.values.get_mut(labels) {
            Some(values) => values,
            None => self.values.entry(labels.clone()).or_default(),
        };
        if values.insert(time_ms, value).is_some() {
            self.fail(time_ms, "vector contains metrics with the same labelset after applying rule labels".to_owned());
        }
    }

    fn fail(&mut self, time_ms: i64, why: String) {
        self.failed.insert(time_ms);
        self.why = Some(why);
    }

    /// The moments that have no result; those that come one after another are a range.
    fn failed_ranges(&self, interval_ms: i64) -> Vec<TimeRange> {
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        for time_ms in &self.failed {
            match ranges.last_mut() {
                Some((_, last_ms)) if last_ms.saturating_add(interval_ms) == *time_ms => *last_ms = *time_ms,
                _ => ranges.push((*time_ms, *time_ms)),
            }
        }
        let of_ms = |(first_ms, last_ms): (i64, i64)| {
            TimeRange::new(first_ms.saturating_mul(NS_PER_MS), last_ms.saturating_mul(NS_PER_MS))
        };
        ranges.into_iter().map(of_ms).collect()
    }

    /// Fails moments that have more series than they may; 0: any number.
    fn hold_limit(&mut self, limit: u64) {
        if limit == 0 {
            return;
        }
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for time_ms in self.values.values().flat_map(BTreeMap::keys) {
            *counts.entry(*time_ms).or_default() += 1;
        }
        for (time_ms, count) in counts.into_iter().filter(|(_, count)| *count > limit) {
            self.fail(time_ms, format!("exceeded limit of {limit} with {count} series"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_may_pass_are_no_results() {
        let failed = |error: &QueryError| Some(Setback::Failed(error.to_string()));
        let text = || "why".to_owned();
        for error in [QueryError::Execution(text()), QueryError::Invalid(text())] {
            assert_eq!([1, 64].map(|count| Setback::from_error(&error, count)), [None, None], "{error:?}");
        }
        for error in
            [QueryError::OverQuota(text()), QueryError::Forbidden(text()), QueryError::Stopped(query::Stop::Timeout)]
        {
            assert_eq!(
                [1, 64].map(|count| Setback::from_error(&error, count)),
                [failed(&error), failed(&error)],
                "{error:?}"
            );
        }
        let storage = QueryError::Storage(text());
        let halted = [Setback::Fewer(16), Setback::Failed(storage.to_string())].map(Some);
        assert_eq!([64, 1].map(|count| Setback::from_error(&storage, count)), halted);
        let (memory, samples) = (QueryError::TooMuchMemory { limit_bytes: 1 }, QueryError::TooManySamples { limit: 1 });
        assert_eq!(
            [&memory, &samples].map(|error| Setback::from_error(error, 64)),
            [16, 16].map(|n| Some(Setback::Fewer(n)))
        );
        assert_eq!([&memory, &samples].map(|error| Setback::from_error(error, 1)), [failed(&memory), None]);
    }

    #[test]
    fn two_values_of_a_series_and_too_many_series_are_no_result() {
        let labels = |name: &str| Labels::from_pairs([("a", name)]).unwrap();
        let mut results = Results::default();
        results.add(&labels("x"), 1, RuleValue::Float(1.0));
        results.add(&labels("x"), 2, RuleValue::Float(1.0));
        results.add(&labels("x"), 2, RuleValue::Float(2.0));
        results.add(&labels("x"), 3, RuleValue::Float(1.0));
        results.add(&labels("y"), 3, RuleValue::Float(1.0));
        assert_eq!(results.failed, [2].into());
        results.hold_limit(1);
        assert_eq!(results.failed, [2, 3].into());
        assert!(results.why.unwrap().contains("exceeded limit of 1 with 2 series"));
    }
}

//! Samples that go once no result is made of them any more: `drop_input` of stream aggregation.
//!
//! What is deleted does not come back, so that samples stay wherever one of these may still read them: results that are pending, that failed, or
//! that are computed again after a restart; results that samples change which come an hour late by the trusted time, and those of rules over
//! such results; rules whose past is left alone, as far as they look back; views.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use db::{CheckStatus, Db};
use model::{METRIC_NAME, Matcher, TimeRange, VALUE_FIELD};
use xxhash_rust::xxh3::xxh3_128;

use super::follow::KeptRule;
use super::live_reads::{LookBack, look_back};
use super::past::DropReport;
use crate::file::{DroppedInput, RuleKind};
use crate::group::{Group, Rule};
use crate::store::RuleStore;

const NS_PER_MS: i64 = 1_000_000;

/// How late a sample counts at least: after its own time, and after the end of its window.
pub(super) const LATE_MS_MAX: i64 = 3_600_000;

/// The time before which samples are gone is a multiple of this, in nanoseconds: a delete flushes, and the parts that it masks are merged.
pub(super) const STEP_NS: i64 = 900_000_000_000;

/// From one look to the next, in nanoseconds.
const LOOK_INTERVAL_NS: u64 = 60_000_000_000;
const WAITING_INTERVAL_NS: u64 = 5_000_000_000;

const ADVICE: &str = "write the entry without drop_input, and see docs/guide/prometheus.md";

/// The name of the check of the folder's health.
const CHECK: &str = "drop_input";

/// The expression of a rule for which the past of its input was made pending, as it is remembered.
pub(super) fn fill_id(rule: &Rule) -> u128 {
    xxh3_128(rule.config.expr.as_bytes())
}

/// Rules and what they write to and read from.
#[derive(Clone, Copy)]
pub(super) struct Surveyed<'a> {
    pub(super) groups: &'a [Arc<Group>],
    pub(super) rules: &'a [KeptRule],
    pub(super) store: &'a RuleStore,
}

/// A metric some of whose samples can go.
#[derive(Debug)]
pub(super) struct DueInput {
    metric: String,
    matcher_sets: Vec<Vec<Matcher>>,
    before_ns: i64,
}

/// Deletes inputs now and then.
#[derive(Debug, Default)]
pub(super) struct InputDropper {
    /// When it looked last, by the monotonic clock.
    looked_ns: Option<u64>,
    /// True if rules have to compute results of the past before more can go: they soon have.
    is_waiting: bool,
    /// The reports that rules have, by metric.
    reports: BTreeMap<String, DropReport>,
}

impl InputDropper {
    /// Returns whether it is time to look, where an entry drops its input.
    pub(super) fn is_due(&mut self, groups: &[Arc<Group>], store: &RuleStore) -> bool {
        let now_ns = store.db.clock().monotonic_ns();
        let interval_ns = if self.is_waiting { WAITING_INTERVAL_NS } else { LOOK_INTERVAL_NS };
        if self.looked_ns.is_some_and(|looked_ns| now_ns.saturating_sub(looked_ns) < interval_ns) {
            return false;
        }
        self.looked_ns = Some(now_ns);
        let drops = dropping(groups).next().is_some();
        if !drops {
            forget_health(&store.db);
        }
        drops
    }

    /// Notes that it is to look again soon: which results change was not known.
    pub(super) const fn look_again(&mut self) {
        self.is_waiting = true;
    }

    /// The inputs that can go further than they went. The log was read to its end, also what was computed before.
    pub(super) fn due(&mut self, of: Surveyed<'_>) -> Vec<DueInput> {
        let mut inputs: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for input in dropping(of.groups).filter_map(|rule| rule.config.dropped.as_ref()) {
            inputs.entry(&input.metric).or_default().extend(input.selectors.iter().map(String::as_str));
        }
        self.is_waiting = of.rules.iter().any(|rule| dropped_metric(rule).is_some() && rule.has_past_to_compute());
        let gone: BTreeMap<String, i64> = of.store.trimmed_tables().into_iter().collect();
        let from_ms = of.results_from_ms();
        let mut due = Vec::new();
        self.reports.clear();
        for (metric, selectors) in inputs {
            let gone_before_ns = gone.get(metric).copied();
            let mut report = DropReport { gone_before_ns, ..DropReport::default() };
            let needed = match gone_before_ns.filter(|gone_ns| *gone_ns > of.store.db.now_ns()) {
                None => of.needed_from_ns(metric, &from_ms),
                Some(_) => Err(format!(
                    "the clock was ahead when samples of {metric:?} went, and is not any more: until it shows that time again no results are made"
                )),
            };
            match needed.and_then(|needed_ns| Ok((needed_ns, of.matcher_sets(metric, &selectors)?))) {
                Ok((needed_ns, matcher_sets)) => {
                    report.needed_from_ns = Some(needed_ns).filter(|needed_ns| *needed_ns > i64::MIN);
                    let before_ns = needed_ns.saturating_sub(needed_ns.rem_euclid(STEP_NS));
                    if before_ns > gone_before_ns.unwrap_or(i64::MIN) {
                        due.push(DueInput { metric: metric.to_owned(), matcher_sets, before_ns });
                    }
                }
                Err(why) => report.kept_because = Some(format!("drop_input: {why}: {ADVICE}")),
            }
            self.reports.insert(metric.to_owned(), report);
        }
        self.tell(of);
        due
    }

    /// Deletes inputs. Those that go up to the same time go by one delete.
    pub(super) fn drop_inputs(&mut self, of: Surveyed<'_>, due: &[DueInput]) -> Result<(), String> {
        let store = of.store;
        // What views read goes by itself: by whole windows of these, which those of others must not hold up.
        let of_views = |input: &DueInput| Some(&input.metric).filter(|metric| store.is_read_by_views(metric)).cloned();
        let mut by_time: BTreeMap<(i64, Option<String>), Vec<&DueInput>> = BTreeMap::new();
        due.iter().for_each(|input| by_time.entry((input.before_ns, of_views(input))).or_default().push(input));
        let metrics: BTreeSet<String> = due.iter().map(|input| input.metric.clone()).collect();
        store.dropped.note(&store.db, &metrics).map_err(|error| error.to_string())?;
        for ((before_ns, _), inputs) in by_time {
            let tables = inputs.iter().map(|input| (input.metric.as_str(), input.matcher_sets.as_slice()));
            store.trim_tables(&tables.collect::<Vec<_>>(), before_ns)?;
        }
        let gone: BTreeMap<String, i64> = store.trimmed_tables().into_iter().collect();
        for (metric, report) in &mut self.reports {
            report.gone_before_ns = gone.get(metric).copied();
        }
        self.tell(of);
        Ok(())
    }

    /// Tells the state of inputs in that of the rules that drop them, and why some stay in the folder's health.
    fn tell(&self, of: Surveyed<'_>) {
        for rule in of.rules {
            let input = rule.rule().and_then(|rule| rule.config.dropped.as_ref());
            let report = input.and_then(|input| self.reports.get(&input.metric)).cloned();
            rule.past.state.lock().dropping = report;
        }
        let kept = self.reports.values().find_map(|report| report.kept_because.clone());
        of.store.db.health().set(CHECK, kept.map(|why| (CheckStatus::Warn, why)));
    }
}

/// Takes back what the folder's health says of inputs: no entry drops one.
pub(super) fn forget_health(db: &Db) {
    db.health().set(CHECK, None);
}

/// The rules whose entries drop their input.
fn dropping(groups: &[Arc<Group>]) -> impl Iterator<Item = &Rule> {
    groups.iter().flat_map(|group| &group.rules).filter(|rule| rule.config.dropped.is_some())
}

impl Surveyed<'_> {
    /// The matchers of selectors of a metric, without that of the name.
    ///
    /// # Errors
    /// If the rows of its table cannot be told apart by them.
    fn matcher_sets(self, metric: &str, selectors: &BTreeSet<&str>) -> Result<Vec<Vec<Matcher>>, String> {
        let sets: Vec<Vec<Matcher>> = selectors.iter().map(|text| matchers(text)).collect::<Result<_, String>>()?;
        if !sets.iter().any(Vec::is_empty) && self.store.has_labelled_fields(metric) {
            return Err(format!(
                "fields of the table {metric:?} have labels of their own, and rows go with all fields"
            ));
        }
        Ok(sets)
    }

    /// The rules whose past is left alone, with their groups.
    fn live_rules(&self) -> impl Iterator<Item = (&Arc<Group>, &Rule)> {
        let rules = self.groups.iter().flat_map(|group| group.rules.iter().map(move |rule| (group, rule)));
        rules.filter(|(_, rule)| rule.past().is_none())
    }

    /// Samples from this time on may still come, by a clock that is neither ahead nor behind.
    fn late_from_ms(self) -> i64 {
        let now_ns = self.store.db.now_ns().min(self.store.db.trusted_now_ns());
        now_ns.div_euclid(NS_PER_MS).saturating_sub(LATE_MS_MAX)
    }

    /// For each rule that is kept right the time from which on its results may still change.
    fn results_from_ms(self) -> Vec<i64> {
        let (late_ms, trusted_ns) = (self.late_from_ms(), self.store.db.trusted_now_ns());
        let mut from_ms: Vec<i64> = self.rules.iter().map(|rule| rule.results_from_ms(late_ms, trusted_ns)).collect();
        let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (place, rule) in self.rules.iter().enumerate() {
            written_names(rule.rule()).for_each(|name| by_name.entry(name).or_default().push(place));
        }
        let written_by = |reader: &KeptRule| -> Vec<usize> {
            let matching = by_name.iter().filter(|(name, _)| reader.reads.metric(name));
            let all = || matching.flat_map(|(_, places)| places.iter().copied()).collect();
            let writers = reader.reads.names().iter().map(|name| by_name.get(name.as_ref()?.as_str()).or(Some(NONE)));
            let writers: Option<Vec<&Vec<usize>>> = writers.collect();
            writers.map_or_else(all, |found| found.into_iter().flatten().copied().collect())
        };
        let writers: Vec<Vec<usize>> = self.rules.iter().map(written_by).collect();
        for (group, rule) in self.live_rules() {
            let live_ms = late_ms.saturating_sub(group.query_offset_ms());
            for (reader, from_ms) in self.rules.iter().zip(&mut from_ms) {
                if written_names(Some(rule)).any(|name| reader.reads.metric(name)) {
                    *from_ms = (*from_ms).min(reader.results_of_samples_from_ms(live_ms));
                }
            }
        }
        // Rules that are kept right do not read their own results: as many rounds as there are rules after one another.
        for _ in 0..self.rules.len() {
            let mut has_changed = false;
            for (place, rule) in self.rules.iter().enumerate() {
                let changed = writers.get(place).into_iter().flatten().filter_map(|writer| from_ms.get(*writer));
                let changed_ms = changed.map(|changed_ms| rule.results_of_samples_from_ms(*changed_ms)).min();
                if let (Some(changed_ms), Some(known_ms)) = (changed_ms, from_ms.get_mut(place))
                    && changed_ms < *known_ms
                {
                    (*known_ms, has_changed) = (changed_ms, true);
                }
            }
            if !has_changed {
                break;
            }
        }
        from_ms
    }

    /// The time from which on samples of a metric are still needed, where results from given times on may change.
    ///
    /// # Errors
    /// Why none can go.
    fn needed_from_ns(self, metric: &str, from_ms: &[i64]) -> Result<i64, String> {
        self.check_own_table(metric)?;
        if let Some(why) = self.store.view_hold_on(metric) {
            return Err(why);
        }
        let mut needed_ms = self.late_from_ms();
        for (rule, from_ms) in self.rules.iter().zip(from_ms).filter(|(rule, _)| rule.reads.metric(metric)) {
            needed_ms = needed_ms.min(rule.needed_from_ms(*from_ms));
        }
        for group in self.groups {
            for rule in &group.rules {
                needed_ms = needed_ms.min(self.needed_by(group, rule, metric)?);
            }
        }
        Ok(self.store.unread_by_views_before_ns(metric, needed_ms.saturating_mul(NS_PER_MS)))
    }

    /// The time from which on a rule whose past is left alone needs samples of a metric, in milliseconds. One that drops its input must have taken
    /// what was there before.
    fn needed_by(self, group: &Group, rule: &Rule, metric: &str) -> Result<i64, String> {
        let name = rule.config.name();
        let drops = rule.config.dropped.as_ref().is_some_and(|input| input.metric == metric);
        if let Some(past) = rule.past() {
            if rule.reads(&self.store.db).and_then(|reads| reads.interval()).is_none() {
                return Err(format!("what the rule {name:?} reads is not known"));
            }
            if !drops {
                return Ok(i64::MAX);
            }
            let (id, state) = (Some(fill_id(rule)), past.state.lock());
            if state.filled != id && state.made_pending == id {
                return Err(format!(
                    "samples of {metric:?} are older than those that are gone, so that the rule {name:?} gives no result of them: delete them if \
                     none is wanted, or leave them out of its selectors"
                ));
            }
            // Until it is known what it has to compute of the past all of it stays.
            return Ok(if state.filled == id { i64::MAX } else { i64::MIN });
        }
        let live_ms = self.late_from_ms().saturating_sub(group.query_offset_ms());
        let writes = written_names(Some(rule)).any(|written| written == metric);
        let needed_ms = if writes { live_ms } else { i64::MAX };
        match look_back(rule, metric, &self.store.db) {
            LookBack::Not => Ok(needed_ms),
            LookBack::From(first_ms) => Ok(needed_ms.min(live_ms.saturating_add(first_ms).saturating_sub(1))),
            LookBack::Unknown => Err(format!(
                "the rule {name:?} of the group {:?} may read {metric:?}, and how far it looks back is not known",
                group.config.name
            )),
        }
    }

    /// Fails with the reason if rows of a metric's table are not its own, or are elsewhere.
    fn check_own_table(self, metric: &str) -> Result<(), String> {
        let is_own = |field: &String| model::metric_name(metric, field) == metric;
        let fields = self.store.db_fields(metric);
        if let Some(other) = fields.iter().find(|field| !is_own(field)) {
            return Err(format!(
                "the table {metric:?} has the field {other:?} beside {VALUE_FIELD:?}, whose rows would go with those of the metric"
            ));
        }
        if let Some(field) = fields.iter().find(|field| self.store.has_text(metric, field)) {
            return Err(format!(
                "the field {field:?} of the table {metric:?} has or had text in some rows, which would go with those of the metric"
            ));
        }
        for (at, _) in metric.match_indices('_') {
            let (table, field) = (metric.get(..at).unwrap_or_default(), metric.get(at + 1..).unwrap_or_default());
            let is_field = |known: &String| known == field && model::metric_name(table, field) == metric;
            if self.store.db_fields(table).iter().any(is_field) {
                return Err(format!(
                    "{metric:?} is the field {field:?} of the table {table:?}, whose rows may have other fields"
                ));
            }
        }
        Ok(())
    }
}

const NONE: &Vec<usize> = &Vec::new();

/// The names of the metrics that a rule writes.
fn written_names(rule: Option<&Rule>) -> impl Iterator<Item = &str> {
    let record = rule.filter(|rule| matches!(rule.config.kind, RuleKind::Record(_)));
    let named = record.and_then(|rule| rule.config.labels.get(METRIC_NAME)).map(String::as_str);
    record.map(|rule| rule.config.name()).into_iter().chain(named)
}

/// The metric of what a rule drops.
fn dropped_metric(rule: &KeptRule) -> Option<&str> {
    let input: &DroppedInput = rule.rule()?.config.dropped.as_ref()?;
    Some(&input.metric)
}

/// The times of what is stored of an input; empty if nothing is.
pub(super) fn extent(input: &DroppedInput, store: &RuleStore) -> Result<TimeRange, String> {
    let mut extent = TimeRange::EMPTY;
    for text in &input.selectors {
        let of_series = store.series_extent(&input.metric, &matchers(text)?).map_err(|error| error.to_string())?;
        extent = extent.union(of_series);
    }
    Ok(extent)
}

/// The time before which samples of an input's metric are gone; `None` if none are.
pub(super) fn gone_before_ns(input: &DroppedInput, store: &RuleStore) -> Option<i64> {
    store.trimmed_tables().into_iter().find(|(table, _)| *table == input.metric).map(|(_, before_ns)| before_ns)
}

/// The matchers of a selector, without that of the name.
fn matchers(text: &str) -> Result<Vec<Matcher>, String> {
    let mut matchers = promql::parse_selector(text).map_err(|error| format!("{text}: {error}"))?;
    matchers.retain(|matcher| matcher.name != METRIC_NAME);
    Ok(matchers)
}

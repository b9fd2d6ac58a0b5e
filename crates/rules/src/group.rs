//! Evaluation of a group: its rules in order, at one timestamp.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use db::Db;
use model::{Labels as SeriesLabels, METRIC_NAME, MatchOp, Matcher};
use parking_lot::Mutex;
use promql::{EvaluationResult, ResultValue, VectorSample};
use relabel::Labels;
use xxhash_rust::xxh3::xxh3_64;

use crate::alert::{Alert, AlertResult, Alerts, SendTimes};
use crate::file::{ALERT_NAME, AlertRule, GroupConfig, RuleConfig, RuleKind};
use crate::materialize::RuleReads;
use crate::materialize::past::{PastReport, RulePast};
use crate::store::{RuleSample, RuleStore, RuleValue};
use crate::template::{self, Expansion, Template, TextMap};

/// Alerts are sent again after so long.
pub(crate) const RESEND_MS: i64 = 60_000;

/// What all groups have in common.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Surroundings {
    /// `external_labels`.
    pub external_labels: TextMap,
    /// The address by which the server is reached from outside.
    pub external_url: String,
    /// The interval of groups without their own.
    pub interval_ms: u64,
    /// The offset of groups without their own.
    pub query_offset_ms: u64,
}

/// Whether a rule's last evaluation succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RuleHealth {
    /// It was not evaluated yet.
    #[default]
    Unknown,
    /// It succeeded.
    Good,
    /// It failed, and why.
    Bad(String),
}

impl RuleHealth {
    /// Prometheus's word for it.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Good => "ok",
            Self::Bad(_) => "err",
        }
    }
}

/// A rule as it stands.
#[derive(Debug, Clone, Default)]
pub struct RuleState {
    /// The last outcome.
    pub health: RuleHealth,
    /// When it was evaluated last.
    pub evaluated_ms: Option<i64>,
    /// How long that took.
    pub duration_s: f64,
    /// Alerts, if it is an alerting rule.
    pub alerts: Alerts,
    /// What the last evaluation wrote.
    pub(crate) outputs: Arc<Outputs>,
    /// True once its alerts have been restored: before, nothing may overwrite what they are restored from.
    pub(crate) is_restored: bool,
    /// True once series that are there from before the start, and that the rule does not give any more, have ended.
    pub(crate) is_rid_of_old: bool,
    /// Its past, if its results are kept right.
    pub(crate) past: Option<Arc<RulePast>>,
}

/// The series that an evaluation of a rule wrote. The next one mostly gives the same results in the same order, whose series are known then.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// The label sets of the results, in their order; empty for alerting rules.
    results: Vec<SeriesLabels>,
    /// The label sets of what was written, of recording rules in the same order.
    series: Vec<SeriesLabels>,
}

impl Outputs {
    /// These and further series that were written.
    pub(crate) fn with(&self, series: &[SeriesLabels]) -> Self {
        let known: HashSet<&SeriesLabels> = self.series.iter().collect();
        let added = series.iter().filter(|labels| !known.contains(labels)).cloned();
        Self { results: self.results.clone(), series: self.series.iter().cloned().chain(added).collect() }
    }

    /// Samples that end the series which others do not have.
    fn ended(&self, others: &Self, time_ms: i64) -> Vec<RuleSample> {
        if self.series == others.series {
            return Vec::new();
        }
        let others: HashSet<&SeriesLabels> = others.series.iter().collect();
        let ended = self.series.iter().filter(|labels| !others.contains(labels));
        ended.map(|labels| stale(labels.clone(), time_ms)).collect()
    }
}

/// A rule that runs.
pub struct Rule {
    /// Its configuration.
    pub config: Arc<RuleConfig>,
    labels: Vec<(String, Expandable)>,
    annotations: Vec<(String, Expandable)>,
    state: Mutex<RuleState>,
    /// The series and times that its expression reads, once they are asked for.
    reads: OnceLock<Option<Arc<RuleReads>>>,
}

/// A text, parsed if it has actions.
enum Expandable {
    Plain(String),
    Template(Box<Template>),
    Invalid(String),
}

impl Expandable {
    fn new(rule: &str, text: &str) -> Self {
        if !text.contains("{{") {
            return Self::Plain(text.to_owned());
        }
        let name = format!("__alert_{rule}");
        match Template::parse(&name, &template::with_definitions(text)) {
            Ok(parsed) => Self::Template(Box::new(parsed)),
            Err(reason) => Self::Invalid(reason),
        }
    }

    fn expand(&self, expansion: &Expansion<'_>) -> String {
        let expanded = match self {
            Self::Plain(text) => return text.clone(),
            Self::Template(template) => template.expand(expansion),
            Self::Invalid(reason) => Err(reason.clone()),
        };
        expanded.unwrap_or_else(|reason| format!("<error expanding template: {reason}>"))
    }
}

impl Rule {
    fn new(config: Arc<RuleConfig>, is_restored: bool) -> Self {
        let parse = |texts: &Labels| {
            let name = config.name().to_owned();
            texts.iter().map(|(label, text)| (label.clone(), Expandable::new(&name, text))).collect::<Vec<_>>()
        };
        let (labels, annotations) = match &config.kind {
            RuleKind::Alert(alert) => (parse(&config.labels), parse(&alert.annotations)),
            RuleKind::Record(_) => (Vec::new(), Vec::new()),
        };
        let past = config.is_materialized.then(Arc::default);
        let state = RuleState { is_restored, past, ..RuleState::default() };
        Self { labels, annotations, state: Mutex::new(state), config, reads: OnceLock::new() }
    }

    /// The rule as it stands.
    pub fn state(&self) -> RuleState {
        self.state.lock().clone()
    }

    /// How its past is doing, if its results are kept right.
    pub fn past_report(&self) -> Option<PastReport> {
        self.past().map(|past| past.report())
    }

    pub(crate) fn past(&self) -> Option<Arc<RulePast>> {
        self.state.lock().past.clone()
    }

    /// The series and times that its expression reads; `None` if they are not known.
    pub(crate) fn reads(&self, db: &Db) -> Option<Arc<RuleReads>> {
        self.reads.get_or_init(|| RuleReads::new(&self.config.expr, db).map(Arc::new)).clone()
    }

    /// Changes its state.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut RuleState) -> T) -> T {
        change(&mut self.state.lock())
    }
}

/// Numbers of a group.
#[derive(Debug, Default)]
pub struct GroupCounts {
    /// Evaluations of rules.
    pub evaluations: AtomicU64,
    /// Those that failed.
    pub failures: AtomicU64,
    /// Evaluations of the group that were due.
    pub iterations: AtomicU64,
    /// Those that could not begin because one before took too long.
    pub missed: AtomicU64,
    /// Samples of the last evaluation.
    pub samples: AtomicU64,
}

/// A group that runs.
pub struct Group {
    /// Its configuration.
    pub config: GroupConfig,
    /// Settings shared by all groups.
    pub surroundings: Arc<Surroundings>,
    /// Its rules, in order.
    pub rules: Vec<Rule>,
    /// Its numbers.
    pub counts: GroupCounts,
    last: Mutex<LastEvaluation>,
    /// Series of rules that a reload took away.
    orphans: Mutex<HashSet<SeriesLabels>>,
}

/// The last evaluation of a group.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LastEvaluation {
    /// When it was.
    pub time_ms: Option<i64>,
    /// How long it took.
    pub duration_s: f64,
}

impl Group {
    /// A group that has not run. Alerts are restored first unless it is said that there is nothing to restore.
    pub fn new(config: GroupConfig, surroundings: &Arc<Surroundings>, needs_restoring: bool) -> Self {
        let is_restored = |rule: &RuleConfig| match &rule.kind {
            RuleKind::Alert(alert) => !needs_restoring || !crate::restore::is_restorable(alert),
            RuleKind::Record(_) => true,
        };
        let rules = config.rules.iter().map(|rule| Rule::new(rule.clone(), is_restored(rule))).collect();
        Self {
            rules,
            config,
            surroundings: surroundings.clone(),
            counts: GroupCounts::default(),
            last: Mutex::default(),
            orphans: Mutex::default(),
        }
    }

    /// From one evaluation to the next.
    pub fn interval_ms(&self) -> i64 {
        self.config.interval_ms.unwrap_or(self.surroundings.interval_ms).max(1) as i64
    }

    pub(crate) fn query_offset_ms(&self) -> i64 {
        self.config.query_offset_ms.unwrap_or(self.surroundings.query_offset_ms) as i64
    }

    /// The time of the evaluation that was due last: groups are spread over their intervals by a hash.
    pub fn evaluation_ms(&self, now_ms: i64) -> i64 {
        let interval_ms = self.interval_ms();
        let offset_ms = match self.config.eval_offset_ms {
            Some(offset_ms) => offset_ms as i64 % interval_ms,
            None => {
                let name = format!("{}\0{}", self.config.name, self.config.file.display());
                (xxh3_64(name.as_bytes()) % interval_ms as u64) as i64
            }
        };
        (now_ms - offset_ms).div_euclid(interval_ms) * interval_ms + offset_ms
    }

    /// A time that results of its rules have, and from one to the next, in milliseconds.
    pub(crate) fn result_grid(&self) -> (i64, i64) {
        (self.evaluation_ms(0) - self.query_offset_ms(), self.interval_ms())
    }

    /// Names the group in lists that are given page by page.
    pub fn token(&self) -> String {
        let name = format!("{};{}", self.config.file.display(), self.config.name);
        format!("{:032x}", xxhash_rust::xxh3::xxh3_128(name.as_bytes()))
    }

    /// The last evaluation.
    pub fn last(&self) -> LastEvaluation {
        *self.last.lock()
    }

    /// Goes on from a group as it was before a reload: equal rules keep their alerts and series.
    pub fn go_on_from(&self, before: &Self) {
        let mut left: Vec<&Rule> = before.rules.iter().collect();
        for rule in &self.rules {
            let is_equal =
                |old: &&Rule| old.config.name() == rule.config.name() && old.config.labels == rule.config.labels;
            if let Some(at) = left.iter().position(is_equal) {
                let state = left.remove(at).state();
                rule.change(|own| {
                    let past = own.past.take().map(|new| state.past.clone().unwrap_or(new));
                    *own = RuleState { past, ..state };
                });
            }
        }
        let mut orphans = before.orphans.lock().clone();
        orphans.extend(left.into_iter().flat_map(|rule| rule.state().outputs.series.clone()));
        *self.orphans.lock() = orphans;
    }

    /// All series of the last evaluation.
    pub(crate) fn series(&self) -> HashSet<SeriesLabels> {
        let mut all = self.orphans.lock().clone();
        for rule in &self.rules {
            all.extend(rule.state.lock().outputs.series.iter().cloned());
        }
        all
    }

    /// Evaluates all rules at a time; the alerts that are to be sent, with the expressions that they are of.
    pub fn evaluate(&self, store: &RuleStore, time_ms: i64) -> Vec<(Arc<RuleConfig>, Vec<Alert>)> {
        let begun_ns = store.db.now_ns();
        let mut to_send = Vec::new();
        let mut samples = 0;
        for rule in &self.rules {
            let rule_begun_ns = store.db.now_ns();
            self.counts.evaluations.fetch_add(1, Ordering::Relaxed);
            let outcome = self.evaluate_rule(rule, store, time_ms);
            let duration_s = seconds_since(rule_begun_ns, store);
            let health = match outcome {
                Ok(count) => {
                    samples += count;
                    RuleHealth::Good
                }
                Err(reason) => {
                    self.counts.failures.fetch_add(1, Ordering::Relaxed);
                    RuleHealth::Bad(reason)
                }
            };
            let times = SendTimes { time_ms, resend_ms: RESEND_MS, interval_ms: self.interval_ms() };
            let alerts = rule.change(|state| {
                let is_good = health == RuleHealth::Good;
                (state.health, state.duration_s, state.evaluated_ms) = (health, duration_s, Some(time_ms));
                if is_good { state.alerts.take_to_send(times) } else { Vec::new() }
            });
            if !alerts.is_empty() {
                to_send.push((rule.config.clone(), alerts));
            }
        }
        self.end_orphans(store, time_ms);
        self.counts.samples.store(samples, Ordering::Relaxed);
        *self.last.lock() = LastEvaluation { time_ms: Some(time_ms), duration_s: seconds_since(begun_ns, store) };
        to_send
    }

    fn end_orphans(&self, store: &RuleStore, time_ms: i64) {
        let orphans = std::mem::take(&mut *self.orphans.lock());
        if orphans.is_empty() {
            return;
        }
        let current = self.series();
        let time_ms = time_ms - self.query_offset_ms();
        let samples: Vec<RuleSample> =
            orphans.difference(&current).map(|labels| stale(labels.clone(), time_ms)).collect();
        if store.write(&samples).is_err() {
            *self.orphans.lock() = orphans;
        }
    }

    /// Evaluates one rule and writes its results; how many there are. What fails of a rule that is selected is pending.
    fn evaluate_rule(&self, rule: &Rule, store: &RuleStore, time_ms: i64) -> Result<u64, String> {
        let query_ms = time_ms - self.query_offset_ms();
        let past = rule.past();
        let _evaluating = past.as_ref().map(|past| past.evaluating.lock());
        if let Some(past) = &past {
            past.evaluates((query_ms, self.interval_ms()), || store.db.log_mark());
        }
        let evaluated = self.evaluate_and_write(rule, store, (time_ms, query_ms));
        if let (Err(_), Some(past)) = (&evaluated, &past) {
            past.failed(query_ms);
        }
        evaluated
    }

    fn evaluate_and_write(
        &self,
        rule: &Rule,
        store: &RuleStore,
        (time_ms, query_ms): (i64, i64),
    ) -> Result<u64, String> {
        let past = rule.past();
        let vector = vector(store.query(&rule.config.expr, query_ms, past.is_some())?)?;
        // After the query: that a part goes is written down before it does.
        let is_recording = matches!(rule.config.kind, RuleKind::Record(_));
        if rule.reads(&store.db).is_some_and(|reads| reads.lacks_dropped(store, query_ms, is_recording)) {
            let Some(past) = &past else {
                return Err(
                    "a part of the samples that it reads is gone by drop_input of stream aggregation".to_owned()
                );
            };
            past.refused();
            return Ok(0);
        }
        let (mut before, is_rid_of_old) = rule.change(|state| (state.outputs.clone(), state.is_rid_of_old));
        // The first evaluation after a start ends what was there before; if that cannot be read, a later one does.
        let mut ends_old = false;
        if let (Some(_), RuleKind::Record(name), false) = (&past, &rule.config.kind, is_rid_of_old) {
            let recorded = Recorded::new(name, &rule.config, 0);
            if let Ok(old) = store.current_series(&recorded.matchers(), query_ms) {
                (before, ends_old) = (before.with(&old).into(), true);
            }
        }
        let (mut samples, outputs) = match &rule.config.kind {
            RuleKind::Record(name) => {
                let recorded = Recorded::new(name, &rule.config, self.config.limit);
                recorded.samples(vector, query_ms, &before)?
            }
            RuleKind::Alert(alert) => {
                let found = vector.iter().map(|sample| self.expand(rule, store, sample, query_ms)).collect();
                let samples = rule.change(|state| {
                    state.alerts.update(alert, found, time_ms, self.config.limit)?;
                    Ok::<_, String>(if state.is_restored {
                        alert_samples(alert, &state.alerts, query_ms)
                    } else {
                        Vec::new()
                    })
                })?;
                let series = samples.iter().map(|sample| sample.labels.clone()).collect();
                (samples, Outputs { results: Vec::new(), series })
            }
        };
        let count = samples.len() as u64;
        samples.extend(before.ended(&outputs, query_ms));
        store.write(&samples)?;
        rule.change(|state| {
            state.outputs = Arc::new(outputs);
            state.is_rid_of_old |= ends_old;
        });
        Ok(count)
    }

    /// The alert of a result.
    fn expand(&self, rule: &Rule, store: &RuleStore, sample: &VectorSample, time_ms: i64) -> AlertResult {
        let all: TextMap = sample.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let Surroundings { external_labels, external_url, .. } = &*self.surroundings;
        let dot = template::alert_data(&all, external_labels, external_url, sample.value);
        let query = |text: &str| template::query_value(store.query(text, time_ms, false)?);
        let expansion = Expansion { dot: &dot, time_ms, external_url, query: &query };
        let mut labels = all;
        labels.remove(METRIC_NAME);
        for (name, text) in &rule.labels {
            labels.insert(name.clone(), text.expand(&expansion));
        }
        labels.insert(ALERT_NAME.to_owned(), rule.config.name().to_owned());
        labels.retain(|_, value| !value.is_empty());
        let annotations = rule.annotations.iter().map(|(name, text)| (name.clone(), text.expand(&expansion)));
        AlertResult { labels, annotations: annotations.collect(), value: sample.value }
    }
}

fn seconds_since(begun_ns: i64, store: &RuleStore) -> f64 {
    (store.db.now_ns() - begun_ns).max(0) as f64 / 1e9
}

fn stale(labels: SeriesLabels, time_ms: i64) -> RuleSample {
    RuleSample { labels, time_ms, value: RuleValue::Stale }
}

/// A result as a vector; a scalar is one without labels.
pub(crate) fn vector(result: EvaluationResult) -> Result<Vec<VectorSample>, String> {
    match result.value {
        ResultValue::Vector(samples) => Ok(samples),
        ResultValue::Scalar { time_ms, value } => {
            Ok(vec![VectorSample { labels: model::Labels::empty(), time_ms, value, histogram: None }])
        }
        ResultValue::String { .. } | ResultValue::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
    }
}

/// A recording rule.
pub(crate) struct Recorded<'a> {
    pub(crate) name: &'a str,
    /// Labels that all results get.
    labels: &'a Labels,
    relabel: &'a [relabel::Rule],
    /// The most results; 0: any number.
    pub(crate) limit: u64,
}

impl<'a> Recorded<'a> {
    /// The rule of a configuration, which records by this name.
    pub(crate) fn new(name: &'a str, config: &'a RuleConfig, limit: u64) -> Self {
        Self { name, labels: &config.labels, relabel: &config.relabel, limit }
    }

    /// Matchers of its series.
    pub(crate) fn matchers(&self) -> Vec<Matcher> {
        let own = self.labels.iter().map(|(name, value)| Matcher::new(name, MatchOp::Equal, value));
        std::iter::once(Matcher::new(METRIC_NAME, MatchOp::Equal, self.name)).chain(own).collect()
    }

    /// The samples of a result, and their series. A result at whose place the evaluation before had one of the same labels has its series.
    fn samples(
        &self,
        vector: Vec<VectorSample>,
        time_ms: i64,
        before: &Outputs,
    ) -> Result<(Vec<RuleSample>, Outputs), String> {
        let count = vector.len();
        let mut outputs = Outputs { results: Vec::with_capacity(count), series: Vec::with_capacity(count) };
        let mut samples = Vec::with_capacity(count);
        let mut is_as_before = count == before.results.len();
        for (at, found) in vector.into_iter().enumerate() {
            let labels = match (before.results.get(at), before.series.get(at)) {
                (Some(result), Some(series)) if *result == found.labels => series.clone(),
                _ => {
                    is_as_before = false;
                    let Some(labels) = self.series(&found.labels)? else { continue };
                    labels
                }
            };
            outputs.results.push(found.labels);
            outputs.series.push(labels.clone());
            let value = found.histogram.map_or(RuleValue::Float(found.value), RuleValue::Histogram);
            samples.push(RuleSample { labels, time_ms, value });
        }
        let mut distinct = HashSet::with_capacity(if is_as_before { 0 } else { count });
        if !is_as_before && !outputs.series.iter().all(|labels| distinct.insert(labels)) {
            return Err("vector contains metrics with the same labelset after applying rule labels".to_owned());
        }
        if self.limit > 0 && count as u64 > self.limit {
            return Err(format!("exceeded limit of {} with {count} series", self.limit));
        }
        Ok((samples, outputs))
    }

    /// The labels of the series of a result; `None` if relabelling drops it.
    pub(crate) fn series(&self, result: &SeriesLabels) -> Result<Option<SeriesLabels>, String> {
        let is_replaced = |name: &str| name == METRIC_NAME || self.labels.contains_key(name);
        let own = result.iter().filter(|(name, _)| !is_replaced(name));
        let given = self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let is_named = self.labels.contains_key(METRIC_NAME);
        let name = Some((METRIC_NAME, self.name)).filter(|_| !is_named);
        let labels = SeriesLabels::from_pairs(own.chain(given).chain(name)).map_err(|error| error.to_string())?;
        if self.relabel.is_empty() { Ok(Some(labels)) } else { self.relabelled(&labels) }
    }

    fn relabelled(&self, labels: &SeriesLabels) -> Result<Option<SeriesLabels>, String> {
        let mut changed: Labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        if !relabel::relabel(&mut changed, self.relabel) {
            return Ok(None);
        }
        // By its name it is known which series are the rule's.
        if changed.get(METRIC_NAME).is_none_or(|name| name != self.name) {
            return Err(format!("relabelling must not change the name {:?} of the result", self.name));
        }
        Ok(Some(packed(&changed)))
    }
}

/// `ALERTS` and `ALERTS_FOR_STATE`.
fn alert_samples(rule: &AlertRule, alerts: &Alerts, time_ms: i64) -> Vec<RuleSample> {
    let mut samples = Vec::new();
    for alert in alerts.current() {
        let mut labels = alert.labels.clone();
        labels.insert(ALERT_NAME.to_owned(), rule.name.clone());
        labels.insert(METRIC_NAME.to_owned(), crate::restore::FOR_STATE_METRIC.to_owned());
        let since_s = alert.active_at_ms.div_euclid(1000) as f64;
        samples.push(RuleSample { labels: packed(&labels), time_ms, value: RuleValue::Float(since_s) });
        labels.insert(METRIC_NAME.to_owned(), "ALERTS".to_owned());
        labels.insert("alertstate".to_owned(), alert.state.name().to_owned());
        samples.push(RuleSample { labels: packed(&labels), time_ms, value: RuleValue::Float(1.0) });
    }
    samples
}

/// Labels as series have them.
pub(crate) fn packed(labels: &Labels) -> SeriesLabels {
    let pairs = labels.iter().filter(|(_, value)| !value.is_empty());
    SeriesLabels::from_sorted(pairs.map(|(name, value)| (name.as_str(), value.as_str())))
}

//! Evaluation of a group: its rules in order, at one timestamp.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::METRIC_NAME;
use parking_lot::Mutex;
use promql::{EvaluationResult, ResultValue, VectorSample};
use scrape::relabel::Labels;
use xxhash_rust::xxh3::xxh3_64;

use crate::alert::{Alert, AlertResult, Alerts, SendTimes};
use crate::file::{ALERT_NAME, AlertRule, GroupConfig, RuleConfig, RuleKind};
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
    /// Series of the last evaluation.
    pub(crate) series: BTreeSet<Labels>,
    /// True once its alerts have been restored: before, nothing may overwrite what they are restored from.
    pub(crate) is_restored: bool,
}

/// A rule that runs.
pub struct Rule {
    /// Its configuration.
    pub config: Arc<RuleConfig>,
    labels: Vec<(String, Expandable)>,
    annotations: Vec<(String, Expandable)>,
    state: Mutex<RuleState>,
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
        let state = RuleState { is_restored, ..RuleState::default() };
        Self { labels, annotations, state: Mutex::new(state), config }
    }

    /// The rule as it stands.
    pub fn state(&self) -> RuleState {
        self.state.lock().clone()
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
    orphans: Mutex<BTreeSet<Labels>>,
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

    fn query_offset_ms(&self) -> i64 {
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
                rule.change(|own| *own = state);
            }
        }
        let mut orphans = before.orphans.lock().clone();
        orphans.extend(left.into_iter().flat_map(|rule| rule.state().series));
        *self.orphans.lock() = orphans;
    }

    /// All series of the last evaluation.
    pub(crate) fn series(&self) -> BTreeSet<Labels> {
        let mut all = self.orphans.lock().clone();
        for rule in &self.rules {
            all.extend(rule.state.lock().series.iter().cloned());
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

    /// Evaluates one rule and writes its results; how many there are.
    fn evaluate_rule(&self, rule: &Rule, store: &RuleStore, time_ms: i64) -> Result<u64, String> {
        let query_ms = time_ms - self.query_offset_ms();
        let vector = vector(store.query(&rule.config.expr, query_ms)?)?;
        let mut samples = match &rule.config.kind {
            RuleKind::Record(name) => record(name, &rule.config.labels, vector, query_ms, self.config.limit)?,
            RuleKind::Alert(alert) => {
                let found = vector.iter().map(|sample| self.expand(rule, store, sample, query_ms)).collect();
                rule.change(|state| {
                    state.alerts.update(alert, found, time_ms, self.config.limit)?;
                    Ok::<_, String>(if state.is_restored {
                        alert_samples(alert, &state.alerts, query_ms)
                    } else {
                        Vec::new()
                    })
                })?
            }
        };
        let count = samples.len() as u64;
        let series: BTreeSet<Labels> = samples.iter().map(|sample| sample.labels.clone()).collect();
        let before = rule.change(|state| state.series.clone());
        samples.extend(before.difference(&series).map(|labels| stale(labels.clone(), query_ms)));
        store.write(&samples)?;
        rule.change(|state| state.series = series);
        Ok(count)
    }

    /// The alert of a result.
    fn expand(&self, rule: &Rule, store: &RuleStore, sample: &VectorSample, time_ms: i64) -> AlertResult {
        let all: TextMap = sample.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let Surroundings { external_labels, external_url, .. } = &*self.surroundings;
        let dot = template::alert_data(&all, external_labels, external_url, sample.value);
        let query = |text: &str| template::query_value(store.query(text, time_ms)?);
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

fn stale(labels: Labels, time_ms: i64) -> RuleSample {
    RuleSample { labels, time_ms, value: RuleValue::Stale }
}

/// A result as a vector; a scalar is one without labels.
fn vector(result: EvaluationResult) -> Result<Vec<VectorSample>, String> {
    match result.value {
        ResultValue::Vector(samples) => Ok(samples),
        ResultValue::Scalar { time_ms, value } => {
            Ok(vec![VectorSample { labels: model::Labels::empty(), time_ms, value, histogram: None }])
        }
        ResultValue::String { .. } | ResultValue::Matrix(_) => Err("rule result is not a vector or scalar".to_owned()),
    }
}

/// The samples of a recording rule.
pub(crate) fn record(
    name: &str,
    labels: &Labels,
    vector: Vec<VectorSample>,
    time_ms: i64,
    limit: u64,
) -> Result<Vec<RuleSample>, String> {
    let count = vector.len();
    let mut seen = BTreeSet::new();
    let mut samples = Vec::with_capacity(count);
    for found in vector {
        let mut own: Labels = found.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        own.insert(METRIC_NAME.to_owned(), name.to_owned());
        own.extend(labels.iter().map(|(name, value)| (name.clone(), value.clone())));
        own.retain(|_, value| !value.is_empty());
        if !seen.insert(own.clone()) {
            return Err("vector contains metrics with the same labelset after applying rule labels".to_owned());
        }
        let value = found.histogram.map_or(RuleValue::Float(found.value), RuleValue::Histogram);
        samples.push(RuleSample { labels: own, time_ms, value });
    }
    if limit > 0 && count as u64 > limit {
        return Err(format!("exceeded limit of {limit} with {count} series"));
    }
    Ok(samples)
}

/// `ALERTS` and `ALERTS_FOR_STATE`.
fn alert_samples(rule: &AlertRule, alerts: &Alerts, time_ms: i64) -> Vec<RuleSample> {
    let mut samples = Vec::new();
    for alert in alerts.current() {
        let mut labels = alert.labels.clone();
        labels.insert(ALERT_NAME.to_owned(), rule.name.clone());
        labels.insert(METRIC_NAME.to_owned(), crate::restore::FOR_STATE_METRIC.to_owned());
        let since_s = alert.active_at_ms.div_euclid(1000) as f64;
        samples.push(RuleSample { labels: labels.clone(), time_ms, value: RuleValue::Float(since_s) });
        labels.insert(METRIC_NAME.to_owned(), "ALERTS".to_owned());
        labels.insert("alertstate".to_owned(), alert.state.name().to_owned());
        samples.push(RuleSample { labels, time_ms, value: RuleValue::Float(1.0) });
    }
    samples
}

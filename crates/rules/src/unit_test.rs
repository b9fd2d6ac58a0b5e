//! promtool's test files: input series, and what rules and expressions make of them.
//!
//! * `read`: the file · `values`: the notation of series · `histograms`: that of native histograms · this: running the tests in a database in memory

mod histograms;
mod read;
mod values;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use db::{Db, DbOptions};
use model::MatchOp;
use platform::Files;
use platform::sim::Simulation;
use promql::ResultValue;
use relabel::Labels;
use scrape::config::reader::Problem;

use crate::alert::AlertState;
use crate::file::{self, ALERT_NAME, GroupConfig, ReadOptions, RuleKind};
use crate::group::{Group, RuleHealth, Surroundings, packed};
use crate::store::{RuleSample, RuleStore};

use read::{AlertTest, ExpectedValue, ExpressionTest, Test, TestFile};

/// What running a file needs.
pub struct RunOptions<'a> {
    /// Files.
    pub files: &'a dyn Files,
    /// How rule files are read.
    pub read: ReadOptions,
    /// Names of tests that are run; all if there are none.
    pub only: &'a [String],
}

/// Runs a file; its failures, which are none if all is as expected.
pub fn run(path: &Path, options: &RunOptions<'_>) -> Result<Vec<String>, Vec<Problem>> {
    let file = read::read(options.files, path)?;
    let loaded = file::load(options.files, &file.rule_files, &options.read)?;
    let groups = ordered(loaded.groups, &file.group_eval_order);
    let mut failures = Vec::new();
    for test in &file.tests {
        if !options.only.is_empty() && !options.only.contains(&test.name) {
            continue;
        }
        match run_test(test, &file, &groups) {
            Ok(found) => failures.extend(found.into_iter().map(|failure| titled(test, &failure))),
            Err(reason) => failures.push(titled(test, &reason)),
        }
    }
    Ok(failures)
}

fn titled(test: &Test, failure: &str) -> String {
    if test.name.is_empty() { failure.to_owned() } else { format!("name: {},\n{failure}", test.name) }
}

/// Groups in the order that the file asks for; others after them.
fn ordered(mut groups: Vec<GroupConfig>, order: &[String]) -> Vec<GroupConfig> {
    groups.sort_by_key(|group| order.iter().position(|name| *name == group.name).unwrap_or(order.len()));
    groups
}

fn run_test(test: &Test, file: &TestFile, groups: &[GroupConfig]) -> Result<Vec<String>, String> {
    let mut options = DbOptions::new(PathBuf::from("/data"));
    options.store.shards = 1;
    let simulation = Simulation::new(0);
    let db = Arc::new(Db::open(simulation.platform(), options).map_err(|error| error.to_string())?);
    let store = RuleStore::new(db.clone(), "default");
    for series in &test.input {
        store.write(&input(series, test)?)?;
    }
    let surroundings = Arc::new(Surroundings {
        external_labels: test.external_labels.clone(),
        external_url: test.external_url.clone(),
        interval_ms: file.evaluation_interval_ms,
        query_offset_ms: 0,
    });
    let groups: Vec<Group> = groups.iter().map(|group| Group::new(group.clone(), &surroundings, false)).collect();
    let mut failures = Vec::new();
    let alert_times = test.alerts.iter().map(|alert| alert.eval_time_ms);
    let last_ms = alert_times.chain(test.expressions.iter().map(|test| test.eval_time_ms)).max().unwrap_or(0);
    let interval_ms = file.evaluation_interval_ms.max(1);
    let mut passed_ms = 0;
    while passed_ms <= last_ms {
        for group in &groups {
            group.evaluate(&store, test.start_ms + passed_ms as i64);
            failures.extend(errors(group, passed_ms));
        }
        let due = test.alerts.iter().filter(|alert| (passed_ms..passed_ms + interval_ms).contains(&alert.eval_time_ms));
        failures.extend(due.filter_map(|alert| check_alerts(alert, &groups)));
        passed_ms += interval_ms;
    }
    failures.extend(
        test.expressions
            .iter()
            .filter_map(|expression| check_expression(expression, test.start_ms, &store, file.is_fuzzy)),
    );
    // It is in memory alone.
    let _ = db.close();
    Ok(failures)
}

fn errors(group: &Group, passed_ms: u64) -> Vec<String> {
    let failed = group.rules.iter().filter_map(|rule| match rule.state().health {
        RuleHealth::Bad(reason) => Some(format!(
            "    rule: {}, time: {}, err: {reason}",
            rule.config.name(),
            scrape::config::units::duration_text(passed_ms)
        )),
        _ => None,
    });
    failed.collect()
}

fn input(series: &read::InputSeries, test: &Test) -> Result<Vec<RuleSample>, String> {
    let labels = packed(&labels_of(&series.series)?);
    let values = values::parse(&series.values).map_err(|reason| format!("{}: {reason}", series.series))?;
    let samples = values.into_iter().zip(0i64..).filter_map(|(value, at)| {
        let time_ms = test.start_ms + at * test.interval_ms as i64;
        Some(RuleSample { labels: labels.clone(), time_ms, value: value? })
    });
    Ok(samples.collect())
}

/// The labels of a series as expressions spell it.
fn labels_of(text: &str) -> Result<Labels, String> {
    if matches!(text.trim(), "" | "{}") {
        return Ok(Labels::new());
    }
    let matchers = promql::parse_selector(text).map_err(|error| format!("{text:?}: {error}"))?;
    if matchers.iter().any(|matcher| matcher.op != MatchOp::Equal) {
        return Err(format!("{text:?}: a series has labels with = alone"));
    }
    Ok(matchers.into_iter().map(|matcher| (matcher.name, matcher.value)).collect())
}

fn check_alerts(test: &AlertTest, groups: &[Group]) -> Option<String> {
    let mut got = Vec::new();
    for rule in groups.iter().flat_map(|group| &group.rules) {
        if matches!(&rule.config.kind, RuleKind::Alert(alert) if alert.name == test.alertname) {
            let state = rule.state();
            let firing = state.alerts.current().filter(|alert| alert.state == AlertState::Firing);
            got.extend(firing.map(|alert| (alert.labels.clone(), alert.annotations.clone())));
        }
    }
    let expected = test.expected.iter().map(|(labels, annotations)| {
        let mut labels = labels.clone();
        labels.insert(ALERT_NAME.to_owned(), test.alertname.clone());
        (labels, annotations.clone())
    });
    let mut expected: Vec<(Labels, Labels)> = expected.collect();
    expected.sort();
    got.sort();
    if expected == got {
        return None;
    }
    let shown = |alerts: &[(Labels, Labels)]| {
        let lines = alerts.iter().enumerate().map(|(at, (labels, annotations))| {
            format!(
                "            {at}:\n              Labels:{}\n              Annotations:{}\n",
                labels_text(labels),
                labels_text(annotations)
            )
        });
        if alerts.is_empty() { "[]".to_owned() } else { format!("[\n{}            ]", lines.collect::<String>()) }
    };
    Some(format!(
        "    alertname: {}, time: {}, \n        exp:{}, \n        got:{}",
        test.alertname,
        scrape::config::units::duration_text(test.eval_time_ms),
        shown(&expected),
        shown(&got)
    ))
}

fn labels_text(labels: &Labels) -> String {
    let pairs: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    format!("{{{}}}", pairs.join(", "))
}

fn check_expression(test: &ExpressionTest, start_ms: i64, store: &RuleStore, is_fuzzy: bool) -> Option<String> {
    let time = scrape::config::units::duration_text(test.eval_time_ms);
    let head = format!("    expr: {:?}, time: {time},", test.expr);
    let result = match store.query(&test.expr, start_ms + test.eval_time_ms as i64, false) {
        Ok(result) => result,
        Err(reason) => return Some(format!("{head} err: {reason}")),
    };
    let Some(got) = results(result.value) else { return Some(format!("{head} err: no vector")) };
    let mut expected: BTreeMap<Labels, &ExpectedValue> = BTreeMap::new();
    for sample in &test.samples {
        match labels_of(&sample.series) {
            Ok(labels) => drop(expected.insert(labels, &sample.value)),
            Err(reason) => return Some(format!("{head} err: {reason}")),
        }
    }
    let is_equal = |labels: &Labels, value: &ExpectedValue| match (got.get(labels), value) {
        (Some(Got::Float(found)), ExpectedValue::Float(value)) => are_equal(*found, *value, is_fuzzy),
        (Some(Got::Histogram(found)), ExpectedValue::Histogram(value)) => found == value,
        _ => false,
    };
    if expected.len() == got.len() && expected.iter().all(|(labels, value)| is_equal(labels, value)) {
        return None;
    }
    let shown = |samples: BTreeSet<String>| {
        if samples.is_empty() { "nil".to_owned() } else { samples.into_iter().collect::<Vec<_>>().join(", ") }
    };
    let expected = expected.iter().map(|(labels, value)| match value {
        ExpectedValue::Float(value) => format!("{} {}", series_text(labels), number_text(*value)),
        ExpectedValue::Histogram(shape) => format!("{} {shape}", series_text(labels)),
    });
    let got = got.iter().map(|(labels, value)| match value {
        Got::Float(value) => format!("{} {}", series_text(labels), number_text(*value)),
        Got::Histogram(shape) => format!("{} {shape}", series_text(labels)),
    });
    Some(format!("{head}\n        exp: {}\n        got: {}", shown(expected.collect()), shown(got.collect())))
}

/// A value that an expression gives.
enum Got {
    Float(f64),
    Histogram(String),
}

/// The samples of a result; `None` if it is no vector.
fn results(value: ResultValue) -> Option<BTreeMap<Labels, Got>> {
    let samples = match value {
        ResultValue::Vector(samples) => samples,
        ResultValue::Scalar { value, .. } => return Some(BTreeMap::from([(Labels::new(), Got::Float(value))])),
        ResultValue::String { .. } | ResultValue::Matrix(_) => return None,
    };
    let samples = samples.into_iter().map(|sample| {
        let labels = sample.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let got = match sample.histogram {
            Some(histogram) => Got::Histogram(histograms::text(&histogram)),
            None => Got::Float(sample.value),
        };
        (labels, got)
    });
    Some(samples.collect())
}

fn series_text(labels: &Labels) -> String {
    let mut others = labels.clone();
    let name = others.remove(model::METRIC_NAME).unwrap_or_default();
    if others.is_empty() && !name.is_empty() { name } else { format!("{name}{}", labels_text(&others)) }
}

fn number_text(value: f64) -> String {
    crate::template::number_text(value)
}

/// With `fuzzy_compare` numbers are equal that differ in their last digits.
fn are_equal(a: f64, b: f64, is_fuzzy: bool) -> bool {
    let is_near = is_fuzzy && (a - b).abs() <= f64::EPSILON * 4.0 * a.abs().max(b.abs());
    a.partial_cmp(&b).is_some_and(Ordering::is_eq) || a.is_nan() && b.is_nan() || is_near
}

//! Rule files. Unknown and wrong fields are errors with their positions; what vmalert has beyond Prometheus works or is a warning.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use platform::{Files, read_file};
use promql::{Expression, Features};
use relabel::{Labels, NameScheme, is_label_name, is_metric_name};
use scrape::config::reader::{Fields, Problem, Reading};
use scrape::config::yaml::Position;
use scrape::config::{glob, parse_tree};

use crate::template;

/// Bytes of a rule file.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Labels that alerting sets itself.
pub(crate) const ALERT_NAME: &str = "alertname";

/// A group of rules that are evaluated together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupConfig {
    /// Its file.
    pub file: PathBuf,
    /// Its name, once in a file.
    pub name: String,
    /// From one evaluation to the next, if it is not the global interval.
    pub interval_ms: Option<u64>,
    /// How far behind the evaluation's time queries are, if it is not the global offset.
    pub query_offset_ms: Option<u64>,
    /// Where in its interval the group is evaluated, if not where its hash says (vmalert's `eval_offset`).
    pub eval_offset_ms: Option<u64>,
    /// Series or alerts of one rule; 0: any number.
    pub limit: u64,
    /// In order of evaluation.
    pub rules: Vec<Arc<RuleConfig>>,
}

/// What a rule makes of its expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleKind {
    /// Series of this name.
    Record(String),
    /// Alerts.
    Alert(AlertRule),
}

/// The fields of an alerting rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlertRule {
    /// Its name.
    pub name: String,
    /// How long the expression must hold before the alert fires.
    pub for_ms: u64,
    /// How long the alert fires on after the expression ceased to hold.
    pub keep_firing_for_ms: u64,
    /// Templates.
    pub annotations: Labels,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleConfig {
    /// Its result: series or alerts.
    pub kind: RuleKind,
    /// PromQL.
    pub expr: String,
    /// Labels added to results, those of the group among them; templates if it is an alerting rule.
    pub labels: Labels,
    /// Steps that change the labels of a recording rule's results, but not their name: no rule file has them, but stream aggregation.
    pub relabel: Vec<relabel::Rule>,
    /// True if its results are kept right for the past, too: no file says so, but a setting ([`crate::materialize`]), and all rules of stream aggregation.
    pub is_materialized: bool,
    /// The samples that go once no result is made of them any more: no rule file says so, but stream aggregation.
    pub dropped: Option<DroppedInput>,
}

/// Samples of a metric that go once no result is made of them any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedInput {
    /// The metric.
    pub metric: String,
    /// Selectors of its series, as PromQL has them.
    pub selectors: Vec<String>,
}

impl RuleConfig {
    /// The name of the series or of the alert.
    pub fn name(&self) -> &str {
        match &self.kind {
            RuleKind::Record(name) => name,
            RuleKind::Alert(alert) => &alert.name,
        }
    }
}

/// How rule files are read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// Which names metrics and labels may have.
    pub names: NameScheme,
    /// Functions that expressions may have.
    pub features: Features,
}

/// Groups, and what has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadedRules {
    /// In order of files, and of groups in each.
    pub groups: Vec<GroupConfig>,
    /// What has no effect.
    pub warnings: Vec<Problem>,
}

/// Reads all files that patterns stand for. Errors are given all at once.
pub fn load(files: &dyn Files, patterns: &[PathBuf], options: &ReadOptions) -> Result<LoadedRules, Vec<Problem>> {
    let mut loaded = LoadedRules::default();
    let mut problems = Vec::new();
    let paths: BTreeSet<PathBuf> = patterns.iter().flat_map(|pattern| glob::expand(files, pattern)).collect();
    for path in paths {
        match load_file(files, &path, options) {
            Ok(file) => {
                loaded.groups.extend(file.groups);
                loaded.warnings.extend(file.warnings);
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(loaded) } else { Err(problems) }
}

/// Reads one file.
pub fn load_file(files: &dyn Files, path: &Path, options: &ReadOptions) -> Result<LoadedRules, Vec<Problem>> {
    let text = read_text(files, path).map_err(|problem| vec![problem])?;
    parse(path, &text, options)
}

/// The text of a file of rules.
pub(crate) fn read_text(files: &dyn Files, path: &Path) -> Result<String, Problem> {
    let problem = |message| Problem { file: path.to_owned(), position: Position::default(), message };
    let content = read_file(files, path, FILE_BYTES_MAX).map_err(|error| problem(error.to_string()))?;
    String::from_utf8(content).map_err(|_| problem("the file is not UTF-8".to_owned()))
}

/// Reads the text of a file.
pub fn parse(path: &Path, text: &str, options: &ReadOptions) -> Result<LoadedRules, Vec<Problem>> {
    let node = parse_tree(path, text).map_err(|problem| vec![problem])?;
    let reading = Reading::new(path);
    let mut groups = Vec::new();
    if let Some(fields) = reading.fields(&node) {
        groups = fields.maps("groups", |section| Some(read_group(section, path, options)));
        // For editors, as in Prometheus's documentation of vendors.
        fields.skip("namespace");
        fields.finish();
    }
    report_repeated_groups(&reading, &node, &groups);
    let (problems, warnings) = reading.finish();
    if problems.is_empty() { Ok(LoadedRules { groups, warnings }) } else { Err(problems) }
}

fn report_repeated_groups(reading: &Reading, node: &scrape::config::yaml::Node, groups: &[GroupConfig]) {
    let mut names = BTreeSet::new();
    for group in groups {
        if !names.insert(&group.name) && !group.name.is_empty() {
            reading.error(node.position, format!("groupname: {:?} is repeated in the same file", group.name));
        }
    }
}

fn read_group(fields: &Fields<'_>, path: &Path, options: &ReadOptions) -> GroupConfig {
    let name = fields.required("name");
    let labels = read_labels(fields, "labels", options);
    let delay_ms = fields.duration_ms("eval_delay");
    let kind = fields.text_or("type", "prometheus");
    if kind != "prometheus" {
        fields.reading.error(fields.position_of("type"), format!("type {kind:?}: only prometheus is there"));
    }
    for (field, why) in [
        ("concurrency", "rules of a group run in order"),
        ("eval_alignment", "evaluations are always aligned"),
        ("params", "queries go to this server's own data"),
        ("headers", "queries go to this server's own data"),
        ("notifier_headers", "set http_headers of the Alertmanager"),
        ("tenant", "a server has one database for rules"),
        ("debug", "/api/v1/rules shows each evaluation"),
    ] {
        fields.without_effect(field, why);
    }
    GroupConfig {
        file: path.to_owned(),
        name,
        interval_ms: fields.duration_ms("interval").filter(|interval_ms| *interval_ms > 0),
        query_offset_ms: fields.duration_ms("query_offset").or(delay_ms),
        eval_offset_ms: fields.duration_ms("eval_offset"),
        limit: fields.number("limit").unwrap_or(0),
        rules: fields.maps("rules", |section| Some(read_rule(section, &labels, options))),
    }
}

fn read_rule(fields: &Fields<'_>, group: &Labels, options: &ReadOptions) -> Arc<RuleConfig> {
    let record = fields.text("record").unwrap_or_default();
    let alert = fields.text("alert").unwrap_or_default();
    let expr = fields.text("expr").unwrap_or_default();
    let own = read_labels(fields, "labels", options);
    let for_ms = fields.duration_ms("for").unwrap_or(0);
    let keep_firing_for_ms = fields.duration_ms("keep_firing_for").unwrap_or(0);
    let annotations = read_labels(fields, "annotations", options);
    fields.without_effect("debug", "/api/v1/rules shows each evaluation");
    fields.without_effect("update_entries_limit", "the last evaluation is shown");
    let error = |field: &str, message: String| fields.reading.error(fields.position_of(field), message);
    let name = if record.is_empty() { &alert } else { &record };
    match (record.is_empty(), alert.is_empty()) {
        (false, false) => error("record", "only one of 'record' and 'alert' must be set".to_owned()),
        (true, true) => error("", "one of 'record' or 'alert' must be set".to_owned()),
        _ => {}
    }
    if expr.is_empty() {
        error("expr", "field 'expr' must be set in rule".to_owned());
    } else if let Err(reason) = Expression::parse_with(&expr, options.features) {
        error("expr", format!("could not parse expression of {name:?}: {reason}"));
    }
    if alert.is_empty() {
        check_recording(fields, &record, options);
    } else {
        check_templates(fields, "labels", &own);
        check_templates(fields, "annotations", &annotations);
    }
    let mut labels = group.clone();
    labels.extend(own);
    labels.retain(|_, value| !value.is_empty() || alert.is_empty());
    let kind = if alert.is_empty() {
        RuleKind::Record(record)
    } else {
        RuleKind::Alert(AlertRule { name: alert, for_ms, keep_firing_for_ms, annotations })
    };
    Arc::new(RuleConfig { kind, expr, labels, relabel: Vec::new(), is_materialized: false, dropped: None })
}

fn check_recording(fields: &Fields<'_>, record: &str, options: &ReadOptions) {
    for field in ["annotations", "for", "keep_firing_for"] {
        if fields.has(field) {
            let message = format!("invalid field '{field}' in recording rule");
            fields.reading.error(fields.position_of(field), message);
        }
    }
    if record.is_empty() {
        return;
    }
    if !is_metric_name(record, options.names) {
        fields.reading.error(fields.position_of("record"), format!("invalid recording rule name: {record}"));
    } else if record.contains(['{', '}']) {
        let message = format!("braces present in the recording rule name; should it be in expr?: {record}");
        fields.reading.error(fields.position_of("record"), message);
    }
}

fn check_templates(fields: &Fields<'_>, name: &'static str, templates: &Labels) {
    for (label, text) in templates {
        if let Err(reason) = template::Template::parse(label, &template::with_definitions(text)) {
            fields.reading.error(fields.position_of(name), format!("{name} {label:?}: {reason}"));
        }
    }
}

/// Labels of a rule or a group. `__name__` is no label of these.
fn read_labels(fields: &Fields<'_>, name: &'static str, options: &ReadOptions) -> Labels {
    let pairs = fields.text_pairs(name);
    for (label, _) in &pairs {
        if !is_label_name(label, options.names) || label == model::METRIC_NAME {
            let what = if name == "annotations" { "annotation" } else { "label" };
            fields.reading.error(fields.position_of(name), format!("invalid {what} name: {label}"));
        }
    }
    pairs.into_iter().collect()
}

/// Rules that stand more than once in files: the name and the labels of each.
pub fn duplicates(groups: &[GroupConfig]) -> Vec<(String, Labels)> {
    let mut rules: Vec<(&str, &Labels)> = Vec::new();
    for group in groups {
        rules.extend(group.rules.iter().map(|rule| (rule.name(), &rule.labels)));
    }
    rules.sort();
    let mut repeated: Vec<(String, Labels)> = Vec::new();
    for pair in rules.windows(2) {
        if let [first, second] = pair
            && first == second
            && repeated.last().is_none_or(|(name, labels)| (name.as_str(), labels) != *first)
        {
            repeated.push((first.0.to_owned(), first.1.clone()));
        }
    }
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LoadedRules, Vec<String>> {
        let parsed = parse(Path::new("r.yml"), text, &ReadOptions::default());
        parsed.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_of_prometheus_loads() {
        let text = "groups:\n- name: a\n  interval: 30s\n  limit: 5\n  query_offset: 1m\n  labels: {team: x}\n  rules:\n\
                    \x20 - record: job:up:sum\n    expr: sum by (job) (up)\n    labels: {team: y}\n\
                    \x20 - alert: Down\n    expr: up == 0\n    for: 5m\n    keep_firing_for: 1m\n    annotations: {summary: '{{ $labels.instance }} is down'}\n";
        let loaded = read(text).unwrap();
        let group = &loaded.groups[0];
        assert_eq!((group.interval_ms, group.limit, group.query_offset_ms), (Some(30_000), 5, Some(60_000)));
        assert_eq!(group.rules[0].labels["team"], "y");
        assert_eq!(group.rules[1].labels["team"], "x");
        let RuleKind::Alert(alert) = &group.rules[1].kind else { panic!("an alert") };
        assert_eq!((alert.for_ms, alert.keep_firing_for_ms), (300_000, 60_000));
    }

    #[test]
    fn errors_have_positions() {
        for (text, expected) in [
            ("groups:\n- name: a\n  rulez: []\n", "r.yml:3:3: unknown field rulez: did you mean rules?"),
            ("groups:\n- rules: []\n", "r.yml:2:3: name is missing"),
            ("groups:\n- name: a\n- name: a\n", "r.yml:1:1: groupname: \"a\" is repeated in the same file"),
            (
                "groups:\n- name: a\n  rules:\n  - record: x\n    alert: y\n    expr: up\n",
                "r.yml:4:5: only one of 'record' and 'alert' must be set",
            ),
            ("groups:\n- name: a\n  rules:\n  - record: x\n", "r.yml:4:5: field 'expr' must be set in rule"),
            (
                "groups:\n- name: a\n  rules:\n  - record: x\n    expr: up\n    for: 1m\n",
                "r.yml:6:5: invalid field 'for' in recording rule",
            ),
            (
                "groups:\n- name: a\n  rules:\n  - alert: x\n    expr: up\n    labels: {__name__: y}\n",
                "r.yml:6:5: invalid label name: __name__",
            ),
        ] {
            let problems = read(text).unwrap_err();
            assert!(problems.contains(&expected.to_owned()), "{text}: {problems:?}");
        }
        let bad = |annotation: &str| {
            read(&format!(
                "groups:\n- name: a\n  rules:\n  - alert: x\n    expr: up\n    annotations: {{a: '{annotation}'}}\n"
            ))
        };
        assert!(bad("{{ $labels.x | nope }}").unwrap_err()[0].contains("function \"nope\" not defined"));
        assert!(bad("{{ $unknown }}").unwrap_err()[0].contains("undefined variable \"$unknown\""));
        assert!(
            read("groups:\n- name: a\n  rules:\n  - record: x\n    expr: sum(\n").unwrap_err()[0].contains(":5:5: ")
        );
    }

    #[test]
    fn fields_of_vmalert_load() {
        let text = "groups:\n- name: a\n  concurrency: 4\n  eval_delay: 30s\n  eval_offset: 10s\n  params: {x: [y]}\n  rules:\n  - record: x\n    expr: up\n    debug: true\n";
        let loaded = read(text).unwrap();
        assert_eq!((loaded.groups[0].query_offset_ms, loaded.groups[0].eval_offset_ms), (Some(30_000), Some(10_000)));
        assert_eq!(loaded.warnings.len(), 3);
    }

    #[test]
    fn rules_that_stand_twice() {
        let rule = "  - record: x\n    expr: up\n";
        let loaded = read(&format!("groups:\n- name: a\n  rules:\n{rule}{rule}- name: b\n  rules:\n{rule}")).unwrap();
        assert_eq!(duplicates(&loaded.groups), [("x".to_owned(), Labels::new())]);
    }
}

//! Which rules' results can be kept right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use index::CompiledMatcher;
use model::{METRIC_NAME, MatchOp, Matcher};
use promql::{EvaluationSettings, Expression};
use scrape::config::reader::Problem;
use scrape::config::yaml::Position;

use super::document;
use crate::file::{GroupConfig, RuleConfig, RuleKind};

/// A recording rule of a group.
struct Recording<'a> {
    group: &'a GroupConfig,
    rule: &'a RuleConfig,
    /// The selectors of its expression: names that are one text, and all matchers.
    selectors: Vec<(Option<String>, Vec<CompiledMatcher>)>,
}

/// Why rules that are selected cannot be kept right.
pub(super) fn problems(groups: &[GroupConfig]) -> Vec<Problem> {
    let too_large = problems_of_size(groups);
    if !too_large.is_empty() {
        return too_large;
    }
    let rules: Vec<Recording<'_>> = groups.iter().flat_map(recordings).collect();
    let mut by_name: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, recording) in rules.iter().enumerate() {
        by_name.entry(recording.rule.name()).or_default().push(place);
    }
    let mut problems = Vec::new();
    for (place, recording) in rules.iter().enumerate().filter(|(_, recording)| recording.rule.is_materialized) {
        let namesakes = by_name.get(recording.rule.name()).into_iter().flatten();
        let why = if !has_reach(recording.rule) {
            Some(
                "it does not look a fixed time around each evaluation (@, info, limitk, sort, ranges that are computed), or reads nothing",
            )
        } else if namesakes
            .filter(|other| **other != place)
            .any(|other| rules.get(*other).is_some_and(|other| may_share(recording, other)))
        {
            Some("another rule gives series of its name: tell them apart by a value of a label of both")
        } else {
            own_results(&rules, &by_name, place)
        };
        problems.extend(why.map(|why| problem(recording.group, recording.rule, why)));
    }
    problems
}

/// Why what is to be remembered of rules that are selected would not fit on disk.
fn problems_of_size(groups: &[GroupConfig]) -> Vec<Problem> {
    let (mut problems, mut count, mut total_bytes) = (Vec::new(), 0u64, 0);
    for group in groups {
        for rule in group.rules.iter().filter(|rule| rule.is_materialized) {
            let key = (group.name.clone(), rule.name().to_owned(), rule.labels.clone());
            let (bytes, with_name) = document::bytes_max(&key);
            if bytes > document::RULE_BYTES_MAX {
                let why = format!(
                    "its group, name and labels are too long: with what is remembered of it they take {bytes} bytes of {} at most",
                    document::RULE_BYTES_MAX
                );
                problems.push(problem(group, rule, &why));
            }
            (count, total_bytes) = (count + 1, total_bytes + with_name);
        }
    }
    if total_bytes > document::BYTES_MAX {
        let message = format!(
            "--materialize-rules and --stream-aggregation select {count} recording rules; what is remembered of them takes up to {total_bytes} \
             bytes of {} at most: select fewer",
            document::BYTES_MAX
        );
        problems.push(Problem { file: PathBuf::from("rule_files"), position: Position::default(), message });
    }
    problems
}

fn problem(group: &GroupConfig, rule: &RuleConfig, why: &str) -> Problem {
    let name = rule.name();
    let file = group.file.clone();
    let group = &group.name;
    let message = format!(
        "the results of the rule {name:?} of the group {group:?} are to stay right (--materialize-rules, --stream-aggregation), but {why}"
    );
    Problem { file, position: Position::default(), message }
}

fn recordings(group: &GroupConfig) -> impl Iterator<Item = Recording<'_>> {
    let recording = |rule: &'_ RuleConfig| {
        let expression = Expression::parse(&rule.expr).ok()?;
        let compiled = |matchers: &&[Matcher]| Some((only_name(matchers), index::compile(matchers).ok()?));
        Some(expression.selectors().iter().filter_map(compiled).collect::<Vec<_>>())
    };
    let is_recording = |rule: &&RuleConfig| matches!(rule.kind, RuleKind::Record(_));
    let rules = group.rules.iter().map(|rule| &**rule).filter(is_recording);
    rules.map(move |rule| Recording { group, rule, selectors: recording(rule).unwrap_or_default() })
}

/// The name of the metric that matchers choose, if it is one text.
pub(crate) fn only_name(matchers: &[Matcher]) -> Option<String> {
    let is_name = |matcher: &&Matcher| matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal;
    matchers.iter().find(is_name).map(|matcher| matcher.value.clone())
}

/// Returns whether it is known which times an evaluation reads.
fn has_reach(rule: &RuleConfig) -> bool {
    let expression = Expression::parse(&rule.expr);
    expression.is_ok_and(|expression| expression.step_read_interval(&EvaluationSettings::default()).is_some())
}

/// Returns whether two rules of one name may give the same series: unless a label has other values in both.
fn may_share(one: &Recording<'_>, other: &Recording<'_>) -> bool {
    one.rule.labels.iter().all(|(name, value)| other.rule.labels.get(name).is_none_or(|known| known == value))
}

/// Why a rule reads its own results, if it does, itself or by way of others that are selected.
fn own_results(rules: &[Recording<'_>], by_name: &BTreeMap<&str, Vec<usize>>, place: usize) -> Option<&'static str> {
    let read_by = |reader: usize| rules.get(reader).map(|reader| reads(reader, rules, by_name)).unwrap_or_default();
    let (mut seen, mut next) = (BTreeSet::new(), read_by(place));
    if next.contains(&place) {
        return Some("it reads its own results");
    }
    while let Some(read) = next.pop() {
        if read == place {
            return Some("it reads its own results, by way of others");
        }
        if seen.insert(read) {
            next.extend(read_by(read));
        }
    }
    None
}

/// The rules that are selected and whose results a rule may read.
fn reads(reader: &Recording<'_>, rules: &[Recording<'_>], by_name: &BTreeMap<&str, Vec<usize>>) -> Vec<usize> {
    let mut found = Vec::new();
    for (name, matchers) in &reader.selectors {
        let candidates: Vec<usize> = match name {
            Some(name) => by_name.get(name.as_str()).cloned().unwrap_or_default(),
            None => (0..rules.len()).collect(),
        };
        let may_read =
            |place: &usize| rules.get(*place).is_some_and(|of| of.rule.is_materialized && may_match(matchers, of.rule));
        found.extend(candidates.into_iter().filter(may_read));
    }
    found
}

/// Returns whether series of a rule may satisfy all matchers, judging by its name and its own labels.
fn may_match(matchers: &[CompiledMatcher], rule: &RuleConfig) -> bool {
    matchers.iter().all(|matcher| match matcher.name() {
        METRIC_NAME => matcher.matches(rule.name()),
        name => rule.labels.get(name).is_none_or(|value| matcher.matches(value)),
    })
}

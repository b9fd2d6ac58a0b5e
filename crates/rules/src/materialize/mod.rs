//! Recording rules whose results are kept right for the past, too.
//!
//! A rule is evaluated once for each moment, and rows that come later than that change nothing of its result. Of rules that a setting selects
//! every row of the log is looked at: the results that it changes, and that were computed without it, are computed again, and what differs is
//! written. The rows of one moment reach as far as the expression looks; expressions of which that is not known are refused.
//!
//! * this file: which rules are selected · [`checks`]: which can be · [`past`]: what is known of a rule's evaluations and what is to be done again
//! * [`reads`]: which series, and which times around an evaluation · [`follow`]: the log · [`recompute`]: computing results of the past
//! * [`keeper`]: passes · [`document`]: what outlives a restart
//! * [`drop_input`]: samples that no result is made of any more, with [`live_reads`] of rules whose past is left alone · [`dropped_inputs`]: of which metrics some
//!   went

mod checks;
mod document;
mod drop_input;
mod dropped_inputs;
mod follow;
mod grid;
mod keeper;
mod live_reads;
pub(crate) mod past;
mod reads;
mod recompute;

use std::path::PathBuf;
use std::sync::Arc;

use scrape::config::reader::Problem;
use scrape::config::yaml::Position;

use crate::file::{GroupConfig, RuleKind};

pub(crate) use dropped_inputs::DroppedInputs;
pub(crate) use keeper::RuleKeeper;
pub use past::{DropReport, PastCounts, PastReport};
pub(crate) use reads::{RuleReads, complete_from_ms};

/// Patterns of recording rules: `GROUP` or `GROUP/NAME`, where `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RulePatterns(Vec<RulePattern>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct RulePattern {
    text: String,
    group: String,
    name: String,
}

impl RulePatterns {
    /// Reads patterns. What is after the last `/` is the name.
    ///
    /// # Errors
    /// If a pattern names no group, or nothing after its `/`.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        let pattern = |text: &String| {
            let (group, name) = text.rsplit_once('/').unwrap_or((text, "*"));
            if group.is_empty() || name.is_empty() {
                return Err(format!(
                    "{text:?} is no pattern of rules such as GROUP or GROUP/NAME: * stands for any text"
                ));
            }
            Ok(RulePattern { text: text.clone(), group: group.to_owned(), name: name.to_owned() })
        };
        texts.iter().map(pattern).collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether a text is as a pattern says, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else { return rest.is_empty() };
    for piece in pieces {
        let Some(at) = rest.find(piece) else { return false };
        rest = rest.get(at + piece.len()..).unwrap_or_default();
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// Selects rules of loaded groups; what is the matter with the patterns, without which rules run all the same.
///
/// # Errors
/// Rules that are selected and whose results cannot be kept right.
pub fn select(groups: &mut [GroupConfig], patterns: &RulePatterns) -> Result<Vec<Problem>, Vec<Problem>> {
    let mut warnings = Vec::new();
    for RulePattern { text, group: wanted, name } in &patterns.0 {
        let mut is_used = false;
        for group in groups.iter_mut().filter(|group| matches(wanted, &group.name)) {
            for rule in &mut group.rules {
                if matches!(rule.kind, RuleKind::Record(_)) && matches(name, rule.name()) {
                    is_used = true;
                    Arc::make_mut(rule).is_materialized = true;
                }
            }
        }
        if !is_used {
            let message = format!("--materialize-rules {text}: no recording rule has such a group and name");
            warnings.push(Problem { file: PathBuf::from("rule_files"), position: Position::default(), message });
        }
    }
    let problems = checks::problems(groups);
    if problems.is_empty() { Ok(warnings) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::file::{ReadOptions, parse};

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "ac", true),
            ("aa*aa", "aaa", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    /// The names of the rules that patterns select, and problems or warnings.
    fn selected(text: &str, patterns: &[&str]) -> (Vec<String>, String) {
        let mut groups = parse(Path::new("r.yml"), text, &ReadOptions::default()).unwrap().groups;
        let patterns: Vec<String> = patterns.iter().map(|text| (*text).to_owned()).collect();
        let found = select(&mut groups, &RulePatterns::parse(&patterns).unwrap());
        let told = found.unwrap_or_else(|problems| problems);
        let told: Vec<String> = told.iter().map(|problem| problem.message.clone()).collect();
        let rules = groups.iter().flat_map(|group| &group.rules).filter(|rule| rule.is_materialized);
        (rules.map(|rule| rule.name().to_owned()).collect(), told.join("\n"))
    }

    #[test]
    fn groups_and_names_select_recording_rules() {
        let text = "groups:\n- name: api\n  rules:\n  - {record: 'job:a', expr: sum(a)}\n  - {record: 'job:b', expr: sum(b)}\n  - {alert: C, expr: c > 1}\n\
                    - name: other\n  rules:\n  - {record: 'job:d', expr: sum(d)}\n";
        let names = |patterns: &[&str]| selected(text, patterns).0.join(" ");
        assert_eq!(names(&[]), "");
        assert_eq!(names(&["api"]), "job:a job:b");
        assert_eq!(names(&["api/job:b", "o*"]), "job:b job:d");
        assert_eq!(names(&["*/job:*"]), "job:a job:b job:d");
        let (_, told) = selected(text, &["api/C"]);
        assert!(told.contains("--materialize-rules api/C: no recording rule"), "{told}");
        for wrong in ["/a", "a/", ""] {
            assert!(RulePatterns::parse(&[wrong.to_owned()]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn more_rules_than_can_be_remembered_are_refused() {
        let rules = |count: usize, length: usize| {
            let rule = |at| format!("  - {{record: 'r{at}{}', expr: sum(a)}}\n", "x".repeat(length));
            format!("groups:\n- name: g\n  rules:\n{}", (0..count).map(rule).collect::<String>())
        };
        assert_eq!(selected(&rules(2_000, 0), &["*"]).1, "");
        let (_, told) = selected(&rules(12_000, 0), &["*"]);
        assert!(
            told.starts_with("--materialize-rules and --stream-aggregation select 12000 recording rules"),
            "{told}"
        );
        assert_eq!(selected(&rules(12_000, 0), &["g/r11*"]).1, "", "others do not count");
        let (_, told) = selected(&rules(1, 40_000), &["*"]);
        assert!(told.contains("its group, name and labels are too long"), "{told}");
    }

    #[test]
    fn rules_that_cannot_be_kept_right_are_refused() {
        for (rules, expected) in [
            ("{record: r, expr: a @ 5}", "it does not look a fixed time around each evaluation"),
            ("{record: r, expr: 'vector(1)'}", "it does not look a fixed time around each evaluation"),
            ("{record: r, expr: 'limitk(1, a)'}", "it does not look a fixed time around each evaluation"),
            ("{record: r, expr: a + r}", "it reads its own results"),
            ("{record: r, expr: 'sum({job=\"x\"})'}", "it reads its own results"),
            (
                "{record: r, expr: sum(s)}, {record: s, expr: sum(r offset 1m)}",
                "it reads its own results, by way of others",
            ),
            ("{record: r, expr: sum(a)}, {record: r, expr: sum(b)}", "another rule gives series of its name"),
            (
                "{record: r, expr: sum(a), labels: {x: '1'}}, {record: r, expr: sum(b), labels: {y: '1'}}",
                "another rule",
            ),
        ] {
            let text = format!("groups:\n- name: g\n  rules: [{rules}]\n");
            let (_, told) = selected(&text, &["g"]);
            assert!(told.contains(expected) && told.contains("\"r\""), "{rules}: {told}");
        }
        for rules in [
            "{record: r, expr: sum(a)}, {record: s, expr: sum(r)}",
            "{record: r, expr: sum(a), labels: {x: '1'}}, {record: r, expr: sum(b), labels: {x: '2'}}",
            "{record: r, expr: 'sum(r{x=\"2\"})', labels: {x: '1'}}",
            "{record: r, expr: 'rate(a[5m] offset -1m) / on () group_left () b'}",
        ] {
            let text = format!("groups:\n- name: g\n  rules: [{rules}]\n");
            assert_eq!(selected(&text, &["g"]).1, "", "{rules}");
        }
    }
}

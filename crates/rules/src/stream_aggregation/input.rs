//! `input_relabel_configs`: steps that leave series out are conditions on what is read, and those that take labels away say which labels are left.
//! What else a step may do gives samples labels that no series has, and is refused.

use std::collections::BTreeSet;

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::{Action, NameScheme, Rule, RuleText};
use scrape::config::read_rules;
use scrape::config::reader::Fields;

use super::entry::may_rename;
use super::matching::{self, label_alternatives};
use super::outputs::AggregationGrouping;

pub(super) const FIELD: &str = "input_relabel_configs";

/// The steps of an entry that relabel samples before they are aggregated: conditions on their series, and the labels that are left.
#[derive(Debug)]
pub(super) struct AggregationInput {
    /// Hold for the series that count, whose names are among their labels.
    conditions: Vec<Matcher>,
    /// The labels that their samples keep.
    pub(super) left: AggregationGrouping,
}

impl AggregationInput {
    /// Reads the steps, which come after some labels were dropped.
    pub(super) fn read(fields: &Fields<'_>, dropped: &BTreeSet<String>) -> Self {
        let left = AggregationGrouping::Without(dropped.clone());
        let left = if dropped.is_empty() { AggregationGrouping::Each } else { left };
        let mut input = Self { conditions: Vec::new(), left };
        for rule in read_rules(fields, FIELD, NameScheme::Utf8) {
            if let Err(why) = input.add(&rule) {
                fields.reading.error(fields.position_of(FIELD), format!("{FIELD}: {why}"));
            }
        }
        input
    }

    /// The selectors of a metric's series that count; `None` if none of the metric's do.
    pub(super) fn selectors(&self, metric: &str, selectors: &[String]) -> Option<Vec<String>> {
        let (of_name, others): (Vec<&Matcher>, Vec<&Matcher>) =
            self.conditions.iter().partition(|matcher| matcher.name == METRIC_NAME);
        if !of_name.iter().all(|matcher| matches(matcher, metric)) {
            return None;
        }
        let narrowed = |selector: &String| {
            let matchers = promql::parse_selector(selector).ok()?;
            let own = matchers.iter().filter(|matcher| matcher.name != METRIC_NAME);
            Some(matching::written(metric, &own.chain(others.iter().copied()).collect::<Vec<_>>()))
        };
        selectors.iter().map(narrowed).collect()
    }

    fn push(&mut self, condition: Matcher) -> Result<(), String> {
        index::compile(std::slice::from_ref(&condition)).map_err(|error| error.to_string())?;
        self.conditions.push(condition);
        Ok(())
    }

    fn add(&mut self, rule: &Rule) -> Result<(), String> {
        let text = rule.text();
        let action = text.action.name();
        match text.action {
            Action::Keep | Action::Drop => {
                for matcher in conditions(text)? {
                    if self.left.lacks(&matcher.name) {
                        let name = &matcher.name;
                        return Err(format!(
                            "a step looks at {name}, which samples have lost before, by a step or by drop_input_labels: put it before the step, or take \
                             {name} out of drop_input_labels"
                        ));
                    }
                    self.push(matcher)?;
                }
                Ok(())
            }
            Action::KeepMetrics | Action::DropMetrics if text.conditions.is_empty() => {
                self.push(of_regex(METRIC_NAME, text, text.action == Action::KeepMetrics))
            }
            Action::LabelDrop | Action::LabelKeep if may_rename(rule) => {
                Err(format!("{action} takes the names of metrics, __name__, by which results are named. Leave them"))
            }
            Action::LabelDrop | Action::LabelKeep if text.conditions.is_empty() => {
                let names = text.regex.as_deref().and_then(label_alternatives).ok_or_else(|| {
                    format!("{action} names labels one by one, pod|instance: which others a pattern means is not known before they come")
                })?;
                let names: BTreeSet<String> = names.into_iter().filter(|name| name != METRIC_NAME).collect();
                let step = match text.action {
                    Action::LabelKeep => AggregationGrouping::By(names),
                    _ => AggregationGrouping::Without(names),
                };
                self.left = step.after(&self.left);
                Ok(())
            }
            Action::KeepMetrics | Action::DropMetrics | Action::LabelDrop | Action::LabelKeep => {
                Err(format!("{action} has no condition (if) here: write an entry of its own for those series"))
            }
            _ => Err(format!(
                "a step with the action {action} gives samples labels that their series do not have. There are keep, drop, keep_metrics, drop_metrics, \
                 labeldrop and labelkeep; set labels of the results by output_relabel_configs, or of samples before they are stored \
                 (metric_relabel_configs of the scrape)"
            )),
        }
    }
}

/// How series are chosen by conditions that a step does not have.
const IN_MATCH: &str = "write in match which series are left, a selector for each way, such as ['m{a!=\"x\"}', 'm{b!=\"y\"}'] where those are left out \
                        that have both";

/// Returns whether a condition holds for a value of its label.
fn matches(matcher: &Matcher, value: &str) -> bool {
    let compiled = index::compile(std::slice::from_ref(matcher));
    compiled.is_ok_and(|compiled| compiled.iter().all(|matcher| matcher.matches(value)))
}

/// The condition that a label matches a step's expression, or that it does not.
fn of_regex(label: &str, text: &RuleText, keeps: bool) -> Matcher {
    let op = if keeps { MatchOp::Regex } else { MatchOp::NotRegex };
    Matcher::new(label, op, text.regex.as_deref().unwrap_or("(.*)"))
}

/// The opposite of a condition.
fn opposite(matcher: &Matcher) -> Matcher {
    let op = match matcher.op {
        MatchOp::Equal => MatchOp::NotEqual,
        MatchOp::NotEqual => MatchOp::Equal,
        MatchOp::Regex => MatchOp::NotRegex,
        MatchOp::NotRegex => MatchOp::Regex,
    };
    Matcher::new(&*matcher.name, op, &*matcher.value)
}

/// The conditions of a step that keeps or drops series, all of which must hold.
fn conditions(text: &RuleText) -> Result<Vec<Matcher>, String> {
    let (action, keeps) = (text.action.name(), text.action == Action::Keep);
    let selectors: Result<Vec<Vec<Matcher>>, String> =
        text.conditions.iter().map(|condition| Ok(condition.matchers.clone())).collect();
    let selectors = selectors?;
    let is_of_labels = text.regex.is_some() || !text.source_labels.is_empty();
    let of_label = match text.source_labels.as_slice() {
        _ if !is_of_labels => None,
        [label] => Some(of_regex(label, text, keeps)),
        _ if keeps => {
            return Err("keep looks at one label here, source_labels: [job]: write a step for each".to_owned());
        }
        _ => return Err(format!("drop looks at one label here, source_labels: [job]: {IN_MATCH}")),
    };
    match (selectors.as_slice(), of_label) {
        ([], Some(of_label)) => Ok(vec![of_label]),
        ([], None) => Err(format!("{action} needs source_labels and regex, or if")),
        ([selector], of_label) if keeps => Ok(selector.iter().cloned().chain(of_label).collect()),
        (selectors, None) if !keeps && selectors.iter().all(|selector| selector.len() == 1) => {
            Ok(selectors.iter().flatten().map(opposite).collect())
        }
        _ => Err(format!("the conditions (if) of {action} are not those of one selector: {IN_MATCH}")),
    }
}

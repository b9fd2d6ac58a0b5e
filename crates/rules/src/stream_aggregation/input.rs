//! `input_relabel_configs`: steps that leave series out are conditions on what is read, and those that take labels away say which labels are left.
//! From the first step on that is neither of these, the steps are part of how series are grouped: PromQL relabels them there.

use std::collections::BTreeSet;

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::{Action, HashKind, NameScheme, Rule, RuleText};
use scrape::config::read_rules;
use scrape::config::reader::Fields;

use super::entry::may_rename;
use super::matching::{self, label_alternatives};
use super::outputs::AggregationGrouping;

pub(super) const FIELD: &str = "input_relabel_configs";

/// The steps of an entry that relabel samples before they are aggregated: conditions on their series, the labels that are left, and the steps
/// that look at labels one series at a time.
#[derive(Debug)]
pub(super) struct AggregationInput {
    /// Hold for the series that count, whose names are among their labels.
    conditions: Vec<Matcher>,
    /// The labels that their samples keep before the steps.
    pub(super) left: AggregationGrouping,
    steps: Vec<Rule>,
}

impl AggregationInput {
    /// Reads the steps, which come after some labels were dropped.
    pub(super) fn read(fields: &Fields<'_>, dropped: &BTreeSet<String>) -> Self {
        let left = AggregationGrouping::Without(dropped.clone());
        let left = if dropped.is_empty() { AggregationGrouping::Each } else { left };
        let mut input = Self { conditions: Vec::new(), left, steps: Vec::new() };
        for rule in read_rules(fields, FIELD, NameScheme::Utf8) {
            if let Err(why) = as_agent(rule).and_then(|rule| input.add(rule)) {
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

    /// The steps as PromQL writes them for series of a metric, those before them that take labels away among them; `None` without any.
    pub(super) fn relabelling(&self, metric: &str) -> Option<String> {
        if self.steps.is_empty() {
            return None;
        }
        let before = loss(&self.left).map(|text| step(&text));
        let steps = before.into_iter().chain(self.steps.iter().map(|rule| step(rule.text())));
        let parts: Vec<String> = std::iter::once(matching::quoted(metric)).chain(steps).collect();
        Some(format!("relabelled ({})", parts.join(", ")))
    }

    /// Returns whether series become those of the results by steps.
    pub(super) const fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Returns whether steps change labels, so that several series may become one.
    pub(super) fn changes_labels(&self) -> bool {
        self.steps.iter().any(|rule| !chooses(rule.text().action))
    }

    /// The action of a step that leaves out series which no selector leaves out.
    pub(super) fn choice(&self) -> Option<&'static str> {
        self.steps.iter().map(|rule| rule.text().action).find(|action| chooses(*action)).map(Action::name)
    }

    /// Returns whether a step sets this label by name.
    pub(super) fn sets(&self, label: &str) -> bool {
        self.steps.iter().map(Rule::text).any(|text| match text.action {
            Action::Graphite => text.graphite_labels.iter().any(|(name, _)| name == label),
            action => !chooses(action) && text.target_label == label,
        })
    }

    fn push(&mut self, condition: Matcher) -> Result<(), String> {
        index::compile(std::slice::from_ref(&condition)).map_err(|error| error.to_string())?;
        self.conditions.push(condition);
        Ok(())
    }

    /// Adds a step: to the conditions and the labels that are left as long as these say all of it, else to the steps.
    fn add(&mut self, rule: Rule) -> Result<(), String> {
        let text = rule.text();
        let action = text.action.name();
        match text.action {
            Action::LabelDrop | Action::LabelKeep if may_rename(&rule) => {
                return Err(format!(
                    "{action} takes the names of metrics, __name__, by which results are named. Leave them"
                ));
            }
            _ if renames(text) => {
                return Err(format!(
                    "{action} changes the names of metrics, __name__, by which results are named. Let it change other labels alone"
                ));
            }
            Action::Keep | Action::Drop if text.source_labels.is_empty() && text.conditions.is_empty() => {
                return Err(format!("{action} needs source_labels and regex, or if"));
            }
            Action::Keep | Action::Drop => {
                let is_known = |matcher: &Matcher| {
                    // No step changes a name.
                    matcher.name == METRIC_NAME || self.steps.is_empty() && !self.left.lacks(&matcher.name)
                };
                if let Some(matchers) = conditions(text).filter(|matchers| matchers.iter().all(is_known)) {
                    return matchers.into_iter().try_for_each(|matcher| self.push(matcher));
                }
            }
            Action::KeepMetrics | Action::DropMetrics if text.conditions.is_empty() => {
                return self.push(of_regex(METRIC_NAME, text, text.action == Action::KeepMetrics));
            }
            Action::LabelDrop | Action::LabelKeep if text.conditions.is_empty() && self.steps.is_empty() => {
                if let Some(names) = text.regex.as_deref().and_then(label_alternatives) {
                    let names: BTreeSet<String> = names.into_iter().filter(|name| name != METRIC_NAME).collect();
                    let step = match text.action {
                        Action::LabelKeep => AggregationGrouping::By(names),
                        _ => AggregationGrouping::Without(names),
                    };
                    self.left = step.after(&self.left);
                    return Ok(());
                }
            }
            _ => {}
        }
        self.steps.push(rule);
        Ok(())
    }
}

/// The step as VictoriaMetrics's agent takes it, where Prometheus takes it otherwise.
fn as_agent(rule: Rule) -> Result<Rule, String> {
    let text = rule.text();
    match text.action {
        Action::HashMod => Rule::new(RuleText { hash: HashKind::XxHash64, ..text.clone() }),
        Action::Replace if text.replacement.as_deref().is_some_and(|replacement| replacement.contains("{{")) => Err(
            "replacement: {{label}} stands for the value of a label there, which it does not here. Write source_labels: [label] and $1".to_owned(),
        ),
        _ => Ok(rule),
    }
}

/// Returns whether an action leaves series out, and changes no labels.
const fn chooses(action: Action) -> bool {
    match action {
        Action::Keep
        | Action::Drop
        | Action::KeepEqual
        | Action::DropEqual
        | Action::KeepMetrics
        | Action::DropMetrics
        | Action::KeepIfEqual
        | Action::DropIfEqual
        | Action::KeepIfContains
        | Action::DropIfContains => true,
        Action::Replace
        | Action::HashMod
        | Action::LabelMap
        | Action::LabelDrop
        | Action::LabelKeep
        | Action::Lowercase
        | Action::Uppercase
        | Action::ReplaceAll
        | Action::LabelMapAll
        | Action::Graphite => false,
    }
}

/// Returns whether a step that sets labels changes the name of a metric, by what it says of names. Whether one does by what labels have in them,
/// PromQL notices.
fn renames(text: &RuleText) -> bool {
    match text.action {
        Action::LabelMap => text.replacement.as_deref() == Some(METRIC_NAME),
        Action::LabelMapAll => {
            let mut labels = relabel::Labels::from([(METRIC_NAME.to_owned(), "m".to_owned())]);
            let rule = Rule::new(RuleText { conditions: Vec::new(), ..text.clone() });
            rule.is_ok_and(|rule| relabel::relabel(&mut labels, &[rule]) && !labels.contains_key(METRIC_NAME))
        }
        Action::Graphite => text.graphite_labels.iter().any(|(name, _)| name == METRIC_NAME),
        action => !chooses(action) && text.target_label == METRIC_NAME,
    }
}

/// The step that leaves these labels.
fn loss(left: &AggregationGrouping) -> Option<RuleText> {
    let (action, names) = match left {
        AggregationGrouping::Each => return None,
        AggregationGrouping::By(names) => (Action::LabelKeep, names),
        AggregationGrouping::Without(names) => (Action::LabelDrop, names),
    };
    let name = (action == Action::LabelKeep).then(|| METRIC_NAME.to_owned());
    let names: Vec<String> = name.into_iter().chain(names.iter().map(|name| regex::escape(name))).collect();
    Some(RuleText { action, regex: Some(names.join("|")), ..RuleText::default() })
}

/// A step as PromQL writes it.
fn step(text: &RuleText) -> String {
    let fields = text.fields();
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{}={}", matching::label(name), matching::quoted(value))).collect();
    format!("{{{}}}", fields.join(","))
}

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

/// The conditions of a step that keeps or drops series, all of which must hold; `None` if it has others.
fn conditions(text: &RuleText) -> Option<Vec<Matcher>> {
    let keeps = text.action == Action::Keep;
    let of_label = match text.source_labels.as_slice() {
        [] if text.regex.is_none() => None,
        [label] => Some(of_regex(label, text, keeps)),
        _ => return None,
    };
    match (text.conditions.as_slice(), of_label) {
        ([], Some(of_label)) => Some(vec![of_label]),
        ([condition], of_label) if keeps => Some(condition.matchers.iter().cloned().chain(of_label).collect()),
        (conditions, None) if !keeps && conditions.iter().all(|condition| condition.matchers.len() == 1) => {
            Some(conditions.iter().flat_map(|condition| &condition.matchers).map(opposite).collect())
        }
        _ => None,
    }
}

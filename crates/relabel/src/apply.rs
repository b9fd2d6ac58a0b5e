//! What a step does to labels.

use md5::{Digest, Md5};
use model::METRIC_NAME;
use xxhash_rust::xxh64::xxh64;

use super::{Action, HashKind, Labels, Rule, is_label_name};

/// A step and the labels after it; `None` if it dropped them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The step's number, from 0.
    pub number: usize,
    /// The labels.
    pub labels: Option<Labels>,
}

/// Applies steps in order; returns whether the labels are kept.
pub fn relabel(labels: &mut Labels, rules: &[Rule]) -> bool {
    rules.iter().all(|rule| rule.apply(labels))
}

/// As [`relabel`], with the labels after each step, to the first that drops them.
pub fn relabel_steps(labels: &Labels, rules: &[Rule]) -> Vec<Step> {
    let mut labels = labels.clone();
    let mut steps = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        let is_kept = rule.apply(&mut labels);
        steps.push(Step { number, labels: is_kept.then(|| labels.clone()) });
        if !is_kept {
            break;
        }
    }
    steps
}

fn value<'a>(labels: &'a Labels, name: &str) -> &'a str {
    labels.get(name).map(String::as_str).unwrap_or_default()
}

/// Sets a label; an empty value removes it.
fn set(labels: &mut Labels, name: &str, value: String) {
    if value.is_empty() {
        labels.remove(name);
    } else {
        labels.insert(name.to_owned(), value);
    }
}

impl Rule {
    /// Applies the step; returns whether the labels are kept.
    pub(super) fn apply(&self, labels: &mut Labels) -> bool {
        if !self.conditions.is_empty() && !self.conditions.iter().any(|selector| selector.matches(labels)) {
            // As in VictoriaMetrics's agent: what a condition does not select is not kept, and not changed.
            return !matches!(self.text.action, Action::Keep | Action::KeepMetrics);
        }
        let text = &self.text;
        let joined = self.joined(labels);
        match text.action {
            // With a condition alone the condition decides.
            Action::Keep => self.regex.is_match(&joined),
            Action::Drop if !self.conditions.is_empty() && text.source_labels.is_empty() => false,
            Action::Drop => !self.regex.is_match(&joined),
            Action::KeepEqual => value(labels, &text.target_label) == joined,
            Action::DropEqual => value(labels, &text.target_label) != joined,
            Action::KeepMetrics => self.regex.is_match(value(labels, METRIC_NAME)),
            Action::DropMetrics => !self.regex.is_match(value(labels, METRIC_NAME)),
            Action::KeepIfEqual => self.are_sources_equal(labels),
            Action::DropIfEqual => !self.are_sources_equal(labels),
            Action::KeepIfContains => self.target_contains_sources(labels),
            Action::DropIfContains => !self.target_contains_sources(labels),
            _ => {
                self.change(labels, &joined);
                true
            }
        }
    }

    /// The values of the source labels.
    pub(super) fn joined(&self, labels: &Labels) -> String {
        let values: Vec<&str> = self.text.source_labels.iter().map(|name| value(labels, name)).collect();
        values.join(&self.separator)
    }

    fn are_sources_equal(&self, labels: &Labels) -> bool {
        let mut values = self.text.source_labels.iter().map(|name| value(labels, name));
        let first = values.next();
        values.all(|value| Some(value) == first)
    }

    fn target_contains_sources(&self, labels: &Labels) -> bool {
        let target = value(labels, &self.text.target_label);
        self.text.source_labels.iter().all(|name| target.contains(value(labels, name)))
    }

    fn change(&self, labels: &mut Labels, joined: &str) {
        let text = &self.text;
        let target = text.target_label.as_str();
        match text.action {
            Action::Replace => self.replace(labels, joined),
            Action::HashMod => set(labels, target, (hash(joined, text.hash) % text.modulus).to_string()),
            Action::Lowercase => set(labels, target, joined.to_lowercase()),
            Action::Uppercase => set(labels, target, joined.to_uppercase()),
            Action::LabelMap => {
                let renamed = |name: &str| self.regex.replace(name, self.replacement.as_str()).into_owned();
                let matching = labels.iter().filter(|(name, _)| self.regex.is_match(name));
                let copies: Vec<(String, String)> =
                    matching.map(|(name, value)| (renamed(name), value.clone())).collect();
                copies.into_iter().for_each(|(name, value)| set(labels, &name, value));
            }
            Action::LabelDrop => labels.retain(|name, _| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name, _| self.regex.is_match(name)),
            Action::ReplaceAll => {
                if let Some(inner) = &self.inner {
                    let replaced = inner.replace_all(joined, self.replacement.as_str());
                    // As in VictoriaMetrics's agent: where nothing is replaced, the label stays as it is.
                    if replaced != joined {
                        set(labels, target, replaced.into_owned());
                    }
                }
            }
            Action::LabelMapAll => {
                if let Some(inner) = &self.inner {
                    let renamed = |name: String| inner.replace_all(&name, self.replacement.as_str()).into_owned();
                    *labels = std::mem::take(labels).into_iter().map(|(name, value)| (renamed(name), value)).collect();
                }
            }
            Action::Graphite => {
                let parts = self.pattern.as_ref().and_then(|pattern| pattern.parts(value(labels, METRIC_NAME)));
                for (name, template) in parts.iter().flat_map(|_| &text.graphite_labels) {
                    set(labels, name, super::graphite::fill(template, parts.as_deref().unwrap_or_default()));
                }
            }
            _ => {}
        }
    }

    fn replace(&self, labels: &mut Labels, joined: &str) {
        let Some(captures) = self.regex.captures(joined) else { return };
        let mut target = String::new();
        captures.expand(&self.text.target_label, &mut target);
        if !is_label_name(&target, self.text.names) {
            return;
        }
        let mut value = String::new();
        captures.expand(&self.replacement, &mut value);
        set(labels, &target, value);
    }
}

fn hash(text: &str, kind: HashKind) -> u64 {
    match kind {
        HashKind::Md5 => {
            let sum = Md5::digest(text.as_bytes());
            sum.iter().skip(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
        }
        HashKind::XxHash64 => xxh64(text.as_bytes(), 0),
    }
}

//! Steps of those who are not trusted: references such as `$1$1` double a value with each step, so that labels have a limit, and a step is
//! refused before it makes them.

use std::fmt;

use model::METRIC_NAME;
use regex::Regex;

use super::{Action, Labels, Rule};

/// Letters of another case have so many times the bytes at most.
const CASE_GROWTH_MAX: usize = 3;

/// The digits of a hash.
const HASH_BYTES_MAX: usize = 20;

/// A step that could make labels larger than they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepTooLarge {
    /// The step's number, from 0.
    pub number: usize,
    /// Bytes of all names and values that there could be after it.
    pub bytes: usize,
    /// The limit.
    pub bytes_max: usize,
}

impl fmt::Display for StepTooLarge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, bytes, bytes_max } = self;
        write!(formatter, "step {} could make labels of {bytes} bytes; the limit is {bytes_max}", number + 1)
    }
}

/// As [`relabel`](super::relabel), for labels of so many bytes at most, names and values together.
///
/// # Errors
/// The first step that could make them larger, which is not applied.
pub fn relabel_within(labels: &mut Labels, rules: &[Rule], bytes_max: usize) -> Result<bool, StepTooLarge> {
    for (number, rule) in rules.iter().enumerate() {
        let bytes = rule.bytes_after_max(labels, bytes_max);
        if bytes > bytes_max {
            return Err(StepTooLarge { number, bytes, bytes_max });
        }
        if !rule.apply(labels) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The bytes of a template in which each reference stands for so many bytes at most.
fn filled_max(template: &str, referred_bytes: usize) -> usize {
    template.len() + template.matches('$').count().saturating_mul(referred_bytes)
}

/// The bytes of a text in which each match is replaced.
fn replaced_max(inner: Option<&Regex>, text: &str, replacement: &str) -> usize {
    let matches = inner.map_or(0, |inner| inner.find_iter(text).count());
    let literal = matches.saturating_mul(replacement.len());
    // What all matches have together is no longer than the text.
    text.len() + literal + replacement.matches('$').count().saturating_mul(text.len())
}

impl Rule {
    /// The bytes of names and values that there are after the step at most, and of what it joins on its way; of the latter alone if that is more
    /// than the limit already.
    fn bytes_after_max(&self, labels: &Labels, bytes_max: usize) -> usize {
        let text = &self.text;
        let value = |name: &str| labels.get(name).map(String::as_str).unwrap_or_default();
        let before: usize = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        let joined: usize = text.source_labels.iter().map(|name| value(name).len() + self.separator.len()).sum();
        let target = text.target_label.len();
        if before + joined > bytes_max {
            return before + joined;
        }
        let made = match text.action {
            Action::Replace => filled_max(&text.target_label, joined) + filled_max(&self.replacement, joined),
            Action::HashMod => target + HASH_BYTES_MAX,
            Action::Lowercase | Action::Uppercase => target + CASE_GROWTH_MAX * joined,
            Action::ReplaceAll => target + replaced_max(self.inner.as_ref(), &self.joined(labels), &self.replacement),
            Action::LabelMap => {
                labels.iter().map(|(name, value)| filled_max(&self.replacement, name.len()) + value.len()).sum()
            }
            Action::LabelMapAll => {
                labels.keys().map(|name| replaced_max(self.inner.as_ref(), name, &self.replacement)).sum()
            }
            Action::Graphite => {
                let name = value(METRIC_NAME).len();
                text.graphite_labels.iter().map(|(label, template)| label.len() + filled_max(template, name)).sum()
            }
            _ => 0,
        };
        before + joined + made
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::RuleText;
    use super::*;

    fn rule(action: Action, replacement: &str, regex: &str) -> Rule {
        Rule::new(RuleText {
            action,
            source_labels: vec!["a".to_owned(), "ß".to_owned(), "a".to_owned()],
            target_label: "a".to_owned(),
            regex: Some(regex.to_owned()),
            replacement: Some(replacement.to_owned()),
            ..RuleText::default()
        })
        .unwrap()
    }

    fn bytes(labels: &Labels) -> usize {
        labels.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    #[test]
    fn a_value_that_doubles_ends_at_the_limit() {
        let double = rule(Action::Replace, "$1$1", "(.*);;.*");
        let mut labels = Labels::from([("a".to_owned(), "x".to_owned())]);
        let steps = vec![double; 64];
        let told = relabel_within(&mut labels, &steps, 10_000).unwrap_err();
        assert!(told.bytes > 10_000 && told.number > 5 && bytes(&labels) <= 10_000, "{told:?}");
        assert!(told.to_string().contains("the limit is 10000"), "{told}");
        // Nothing is made before it is known to be small: a million sources of a long value.
        let sources = vec!["a".to_owned(); 1_000_000];
        let text = RuleText {
            action: Action::ReplaceAll,
            source_labels: sources,
            target_label: "b".to_owned(),
            ..RuleText::default()
        };
        let mut labels = Labels::from([("a".to_owned(), "x".repeat(9_000))]);
        let told = relabel_within(&mut labels, &[Rule::new(text).unwrap()], 10_000).unwrap_err();
        assert!(told.bytes > 9_000_000_000, "{told:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn no_step_makes_more_than_it_is_said_to(
            values in prop::collection::btree_map("[a-cß__]{1,3}", "[a-dIıΐß.]{0,12}", 0..6),
            action in prop::sample::select(vec![
                Action::Replace, Action::ReplaceAll, Action::LabelMap, Action::LabelMapAll, Action::Lowercase, Action::Uppercase,
            ]),
            replacement in "[$1a{}0]{0,8}",
            regex in prop::sample::select(vec!["(.*)", "", "a", "(.)", "(a)|b", "[a-c]*", "(.+?);.*"]),
        ) {
            let rule = rule(action, &replacement, regex);
            let mut labels: Labels = values;
            let bytes_max = rule.bytes_after_max(&labels, usize::MAX);
            rule.apply(&mut labels);
            prop_assert!(bytes(&labels) <= bytes_max, "{labels:?} are more than {bytes_max} bytes by {rule:?}");
        }
    }
}

//! Which metrics an entry is of, and which series of each.

use std::collections::BTreeMap;

use model::{METRIC_NAME, MatchOp, Matcher};
use relabel::{NameScheme, is_label_name, is_metric_name};

/// Selectors of PromQL by the names of their metrics; a series is of the entry if one of them selects it.
pub(super) type MetricSelectors = BTreeMap<String, Vec<String>>;

/// Adds a selector as an entry has it.
pub(super) fn add(selection: &mut MetricSelectors, text: &str) -> Result<(), String> {
    let matchers = promql::parse_selector(text).map_err(|error| error.to_string())?;
    let (names, others): (Vec<&Matcher>, Vec<&Matcher>) =
        matchers.iter().partition(|matcher| matcher.name == METRIC_NAME);
    let metrics = match names.as_slice() {
        [name] if name.op == MatchOp::Equal => Some(vec![name.value.clone()]),
        [name] if name.op == MatchOp::Regex => alternatives(&name.value),
        _ => None,
    };
    let metrics = metrics.ok_or_else(|| {
        format!(
            "{text:?} does not say by name which metrics it selects: write one selector for each, or names with | between them \
             ({{__name__=~\"a|b\"}}), because each metric has rules of its own, which are made when the file is read"
        )
    })?;
    for metric in metrics {
        let selector = written(&metric, &others);
        let plain = written(&metric, &[]);
        let selectors = selection.entry(metric).or_default();
        if selector == plain {
            // All of its series: others select none beside.
            *selectors = vec![plain];
        } else if !selectors.contains(&plain) && !selectors.contains(&selector) {
            selectors.push(selector);
        }
    }
    Ok(())
}

/// The names that a regular expression stands for, if it is a list of plain ones.
fn alternatives(regex: &str) -> Option<Vec<String>> {
    listed(regex, is_metric_name)
}

/// The labels that a regular expression stands for, likewise.
pub(super) fn label_alternatives(regex: &str) -> Option<Vec<String>> {
    listed(regex, is_label_name)
}

fn listed(regex: &str, is_name: fn(&str, NameScheme) -> bool) -> Option<Vec<String>> {
    let inner = regex.strip_prefix("(?:").or_else(|| regex.strip_prefix('('));
    let inner = inner.and_then(|rest| rest.strip_suffix(')')).unwrap_or(regex);
    let names = inner.split('|').map(|name| is_name(name, NameScheme::Legacy).then(|| name.to_owned()));
    names.collect()
}

/// A selector of PromQL.
pub(super) fn written(metric: &str, matchers: &[&Matcher]) -> String {
    let mut inner: Vec<String> = matchers.iter().map(|matcher| condition(matcher)).collect();
    if is_metric_name(metric, NameScheme::Legacy) {
        let braces = if inner.is_empty() { String::new() } else { format!("{{{}}}", inner.join(",")) };
        return format!("{metric}{braces}");
    }
    inner.insert(0, quoted(metric));
    format!("{{{}}}", inner.join(","))
}

fn condition(matcher: &Matcher) -> String {
    let operator = match matcher.op {
        MatchOp::Equal => "=",
        MatchOp::NotEqual => "!=",
        MatchOp::Regex => "=~",
        MatchOp::NotRegex => "!~",
    };
    format!("{}{operator}{}", label(&matcher.name), quoted(&matcher.value))
}

/// The name of a label as PromQL writes it.
pub(super) fn label(name: &str) -> String {
    if is_label_name(name, NameScheme::Legacy) { name.to_owned() } else { quoted(name) }
}

/// A text of PromQL.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

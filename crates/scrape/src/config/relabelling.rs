//! Relabelling's section.

use relabel::{Action, Condition, HashKind, Labels, NameScheme, Rule, RuleText, Selector, is_label_name};

use super::reader::Fields;

/// A list of relabelling steps.
pub fn read_rules(fields: &Fields<'_>, name: &'static str, names: NameScheme) -> Vec<Rule> {
    fields.maps(name, |step| read_rule(step, names))
}

fn read_rule(fields: &Fields<'_>, names: NameScheme) -> Option<Rule> {
    let action = fields.parsed("action", Action::parse).unwrap_or_default();
    // VictoriaMetrics's agent writes long expressions as a list of alternatives.
    let expression = fields.node("regex").and_then(|node| match &node.value {
        super::yaml::Value::List(items) => {
            let texts: Option<Vec<String>> = items.iter().map(|item| fields.reading.text(item)).collect();
            Some(texts?.join("|"))
        }
        _ => fields.reading.text(node),
    });
    let condition = fields.node("if").map(|node| match &node.value {
        super::yaml::Value::List(items) => items.iter().filter_map(|item| fields.reading.text(item)).collect(),
        _ => fields.reading.text(node).into_iter().collect::<Vec<_>>(),
    });
    let conditions = condition.unwrap_or_default().into_iter().map(read_condition).collect::<Result<Vec<_>, _>>();
    let text = RuleText {
        action,
        source_labels: fields.texts("source_labels"),
        separator: fields.has("separator").then(|| fields.text_or("separator", "")),
        target_label: fields.text_or("target_label", ""),
        regex: expression,
        modulus: fields.number("modulus").unwrap_or(0),
        hash: HashKind::default(),
        replacement: fields.has("replacement").then(|| fields.text_or("replacement", "")),
        conditions: Vec::new(),
        graphite_match: fields.text_or("match", ""),
        graphite_labels: fields.text_pairs("labels"),
        names,
    };
    let rule = conditions.and_then(|conditions| Rule::new(RuleText { conditions, ..text }));
    rule.map_err(|message| fields.reading.error(fields.position, message)).ok()
}

fn read_condition(text: String) -> Result<Condition, String> {
    let matchers = promql::parse_conditions(&text).map_err(|reason| format!("if {text:?}: {reason}"))?;
    Ok(Condition { text, matchers })
}

/// Reads a selector as PromQL writes it, such as `up{job="a"}`.
///
/// # Errors
/// The text is no selector, or one that selects everything.
pub fn read_selector(text: &str) -> Result<Selector, String> {
    Selector::new(&promql::parse_selector(text).map_err(|error| error.to_string())?)
}

/// Labels of a target or of all series: names are checked.
pub fn read_labels(fields: &Fields<'_>, name: &'static str, names: NameScheme) -> Labels {
    let pairs = fields.text_pairs(name);
    for (label, _) in &pairs {
        if !is_label_name(label, names) {
            fields.reading.error(fields.position_of(name), format!("{label:?} is no name of a label"));
        }
    }
    pairs.into_iter().collect()
}

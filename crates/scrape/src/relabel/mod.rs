//! Relabelling: steps that change, keep or drop a set of labels. One implementation for targets, metrics, alerts and forwarded samples.
//!
//! * `rule`: a step as it is configured, checked and compiled · `apply`: what it does
//! * `graphite`: VictoriaMetrics's patterns of Graphite's names

mod apply;
mod graphite;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use apply::{Step, relabel, relabel_steps};
pub use rule::{Action, Rule, RuleText, Selector};

/// A set of labels while it is changed, `__name__` among them.
pub type Labels = BTreeMap<String, String>;

/// Which names metrics and labels may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameScheme {
    /// Any text.
    #[default]
    Utf8,
    /// Letters, digits and underscores.
    Legacy,
}

/// Returns whether a label may have this name.
pub fn is_label_name(name: &str, names: NameScheme) -> bool {
    match names {
        NameScheme::Utf8 => !name.is_empty(),
        NameScheme::Legacy => is_legacy_name(name),
    }
}

fn is_legacy_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(allowed) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
}

/// Returns whether a metric may have this name.
pub fn is_metric_name(name: &str, names: NameScheme) -> bool {
    match names {
        NameScheme::Utf8 => !name.is_empty(),
        NameScheme::Legacy => {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
            name.bytes().all(allowed) && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
        }
    }
}

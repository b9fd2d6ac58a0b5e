//! Relabelling: steps that change, keep or drop a set of labels. One implementation for targets, metrics, alerts, forwarded samples, and the
//! samples that stream aggregation reads.
//!
//! ```text
//! configuration, PromQL ──► RuleText ──► Rule: checked, compiled ──► apply: labels ──► labels, or dropped
//!                              ▲ │                                     ▲
//!                              │ ▼                                     │
//!                           fields: names and values                 bounds: how large a step makes them at most
//! ```
//!
//! * `rule`: a step as it is configured, checked and compiled · `apply`: what it does
//! * `fields`: the fields of a step as texts, and back · `bounds`: steps of those who are not trusted
//! * `graphite`: VictoriaMetrics's patterns of Graphite's names
//!
//! Selectors (`if`) come as matchers: the crates that read PromQL stand above.

mod apply;
mod bounds;
mod fields;
mod graphite;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use apply::{Step, relabel, relabel_steps};
pub use bounds::{StepTooLarge, relabel_within};
pub use rule::{Action, Condition, HashKind, Rule, RuleText, Selector};

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

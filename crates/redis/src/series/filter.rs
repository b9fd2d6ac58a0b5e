//! The conditions of `FILTER`: `label=value`, `label!=value`, `label=(a,b)`, `label=`, `label!=`.

use std::collections::BTreeMap;
use std::sync::Arc;

/// A condition on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// The label.
    pub label: String,
    /// True for `!=`.
    pub is_negated: bool,
    /// Its values, sorted; none: that there is no such label.
    pub values: Vec<String>,
}

impl Filter {
    /// Reads a condition; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let at = text.find('=')?;
        let (label, rest) = (text.get(..at)?, text.get(at + 1..)?);
        let (label, is_negated) = label.strip_suffix('!').map_or((label, false), |label| (label, true));
        if label.is_empty() {
            return None;
        }
        let mut values = match rest.strip_prefix('(') {
            Some(list) => values(list.strip_suffix(')')?)?,
            None if rest.is_empty() => Vec::new(),
            None => vec![unquoted(rest)?],
        };
        values.sort_unstable();
        Some(Self { label: label.to_owned(), is_negated, values })
    }

    /// Returns whether it chooses keys by values that they must have.
    pub fn is_positive(&self) -> bool {
        !self.is_negated && !self.values.is_empty()
    }

    /// Returns whether labels satisfy it.
    pub fn matches(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        let found = labels.get(self.label.as_str());
        let holds = if self.values.is_empty() {
            found.is_none()
        } else {
            found.is_some_and(|value| self.values.binary_search_by(|wanted| wanted.as_str().cmp(value)).is_ok())
        };
        holds != self.is_negated
    }
}

/// The values of a list, without the quotes that some may have.
fn values(list: &str) -> Option<Vec<String>> {
    let (mut values, mut rest) = (Vec::new(), list);
    loop {
        let end = match rest.chars().next() {
            Some(quote @ ('"' | '\'')) => rest.get(1..)?.find(quote)? + 2,
            _ => rest.find(',').unwrap_or(rest.len()),
        };
        values.push(unquoted(rest.get(..end)?.trim())?);
        rest = rest.get(end..)?.trim_start();
        match rest.strip_prefix(',') {
            Some(next) => rest = next.trim_start(),
            None if rest.is_empty() => return Some(values),
            None => return None,
        }
    }
}

fn unquoted(value: &str) -> Option<String> {
    let inner = |quote: char| value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
    let value = inner('"').or_else(|| inner('\'')).unwrap_or(value);
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read() {
        let cases = [
            ("a=b", false, vec!["b"]),
            ("a!=b", true, vec!["b"]),
            ("a=", false, vec![]),
            ("a!=", true, vec![]),
            ("a=(b,c d,\"e,f\")", false, vec!["b", "c d", "e,f"]),
            ("a!=(b)", true, vec!["b"]),
            ("a=b=c", false, vec!["b=c"]),
        ];
        for (text, is_negated, values) in cases {
            let values = values.into_iter().map(str::to_owned).collect();
            assert_eq!(Filter::parse(text), Some(Filter { label: "a".to_owned(), is_negated, values }), "{text}");
        }
        for text in ["", "a", "=b", "!=b", "a=(b", "a=(\"b)", "a=()"] {
            assert_eq!(Filter::parse(text), None, "{text}");
        }
    }

    #[test]
    fn conditions_hold_as_redis_says() {
        let labels: BTreeMap<Arc<str>, Arc<str>> = [("a".into(), "b".into())].into();
        let holds = |text: &str| Filter::parse(text).unwrap().matches(&labels);
        let cases = ["a=b", "a!=c", "a!=", "x=", "a=(b,c)", "a!=(c,d)", "x!=y"];
        assert!(cases.into_iter().all(holds));
        let cases = ["a=c", "a!=b", "a=", "x!=", "x=y", "a!=(b,c)"];
        assert!(!cases.into_iter().any(holds));
    }
}

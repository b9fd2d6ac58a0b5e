//! Conditions on labels.

use std::fmt;

/// How a matcher compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MatchOp {
    /// `=`
    Equal,
    /// `!=`
    NotEqual,
    /// `=~`, anchored at both ends
    Regex,
    /// `!~`, anchored at both ends
    NotRegex,
}

/// A condition on one label. A missing label has the empty value, as in Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Matcher {
    /// The label's name; `__name__` is the joined metric name.
    pub name: String,
    /// How to compare.
    pub op: MatchOp,
    /// The value, or the regular expression (RE2 syntax).
    pub value: String,
}

impl Matcher {
    /// A matcher from its parts.
    pub fn new(name: impl Into<String>, op: MatchOp, value: impl Into<String>) -> Self {
        Self { name: name.into(), op, value: value.into() }
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let op = match self.op {
            MatchOp::Equal => "=",
            MatchOp::NotEqual => "!=",
            MatchOp::Regex => "=~",
            MatchOp::NotRegex => "!~",
        };
        write!(formatter, "{}{op}{:?}", self.name, self.value)
    }
}

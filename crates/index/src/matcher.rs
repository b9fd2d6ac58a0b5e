//! Matchers, ready to be tried.

use std::fmt;

use model::{MatchOp, Matcher};
use regex::{Regex, RegexBuilder};

/// Bytes that one compiled regular expression may occupy.
const REGEX_BYTES_MAX: usize = 4 << 20;

/// A matcher whose regular expression is compiled.
#[derive(Debug, Clone)]
pub struct CompiledMatcher {
    name: String,
    negated: bool,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Exact(String),
    /// An alternation of plain texts, sorted.
    OneOf(Vec<String>),
    Regex(Regex),
}

/// A matcher that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatcherError {
    /// The matcher as written.
    pub matcher: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for MatcherError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "bad matcher {}: {}", self.matcher, self.reason)
    }
}

impl std::error::Error for MatcherError {}

/// Compiles all matchers.
pub fn compile(matchers: &[Matcher]) -> Result<Vec<CompiledMatcher>, MatcherError> {
    matchers.iter().map(CompiledMatcher::new).collect()
}

impl CompiledMatcher {
    /// Compiles one matcher. Regular expressions are anchored, and `.` matches line ends too, as in Prometheus.
    pub fn new(matcher: &Matcher) -> Result<Self, MatcherError> {
        let test = match matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => Test::Exact(matcher.value.clone()),
            MatchOp::Regex | MatchOp::NotRegex => match plain_alternatives(&matcher.value) {
                Some(texts) => Test::OneOf(texts),
                None => Test::Regex(compile_regex(matcher)?),
            },
        };
        let negated = matches!(matcher.op, MatchOp::NotEqual | MatchOp::NotRegex);
        Ok(Self { name: matcher.name.clone(), negated, test })
    }

    /// The label's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a label with this value (empty if missing) satisfies the matcher.
    pub fn matches(&self, value: &str) -> bool {
        self.negated != self.test_matches(value)
    }

    /// The only values that can satisfy the matcher, where they are few and known.
    pub(crate) fn candidates(&self) -> Option<&[String]> {
        match &self.test {
            _ if self.negated => None,
            Test::Exact(text) => Some(std::slice::from_ref(text)),
            Test::OneOf(texts) => Some(texts),
            Test::Regex(_) => None,
        }
    }

    fn test_matches(&self, value: &str) -> bool {
        match &self.test {
            Test::Exact(text) => text == value,
            Test::OneOf(texts) => texts.binary_search_by(|text| text.as_str().cmp(value)).is_ok(),
            Test::Regex(regex) => regex.is_match(value),
        }
    }
}

fn compile_regex(matcher: &Matcher) -> Result<Regex, MatcherError> {
    // Compiled alone first: a value such as `a)(b` must not become valid by what is put around it.
    let build = |text: &str| RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).dot_matches_new_line(true).build();
    build(&matcher.value)
        .and_then(|_| build(&format!("^(?:{})$", matcher.value)))
        .map_err(|error| MatcherError { matcher: matcher.to_string(), reason: error.to_string() })
}

/// The texts of `a|b|c` when none has a special character.
fn plain_alternatives(pattern: &str) -> Option<Vec<String>> {
    let special = |character: char| r"\.+*?()[]{}^$".contains(character);
    if pattern.contains(special) {
        return None;
    }
    let mut texts: Vec<String> = pattern.split('|').map(str::to_owned).collect();
    texts.sort();
    Some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(op: MatchOp, pattern: &str, yes: &[&str], no: &[&str]) {
        let matcher = CompiledMatcher::new(&Matcher::new("l", op, pattern)).unwrap();
        for value in yes {
            assert!(matcher.matches(value), "{op:?} {pattern:?} should match {value:?}");
        }
        for value in no {
            assert!(!matcher.matches(value), "{op:?} {pattern:?} should not match {value:?}");
        }
    }

    #[test]
    fn matches_as_prometheus_does() {
        check(MatchOp::Equal, "", &[""], &["a"]);
        check(MatchOp::NotEqual, "a", &["", "b"], &["a"]);
        check(MatchOp::Regex, "a|b|", &["a", "b", ""], &["ab", "c"]);
        check(MatchOp::Regex, "a.*", &["a", "ab", "a\nb"], &["ba", ""]);
        check(MatchOp::Regex, "a.?|b", &["a", "ax", "b"], &["axb", "bx"]);
        check(MatchOp::Regex, ".*", &["", "x"], &[]);
        check(MatchOp::NotRegex, ".+", &[""], &["x"]);
        check(MatchOp::NotRegex, "a|b", &["", "c"], &["a", "b"]);
    }

    #[test]
    fn bad_expressions_are_errors_that_show_them() {
        for pattern in ["a)(b", "(", "[", "(?:x{1000}){1000}", "a++b\\"] {
            let error = CompiledMatcher::new(&Matcher::new("l", MatchOp::Regex, pattern)).unwrap_err();
            assert_eq!(error.matcher, format!("l=~{pattern:?}"));
        }
    }
}

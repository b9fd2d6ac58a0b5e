//! Matchers, ready to be tried.

pub(crate) mod search;

use std::fmt;

use model::{MatchOp, Matcher};
use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, HirKind};

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
    Regex {
        regex: Regex,
        /// What every text that it matches begins with.
        prefix: String,
    },
}

/// The test of a matcher before it is negated, as the index uses it.
pub(crate) enum Search<'a> {
    /// The values that pass, the empty one perhaps among them.
    Values(&'a [String]),
    /// Whatever the expression matches, all of which begins with the prefix.
    Regex { regex: &'a Regex, prefix: &'a str },
}

/// A matcher that cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatcherError {
    /// The matcher as written.
    pub matcher: String,
    /// Why it cannot be compiled.
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
                None => compile_regex(matcher)?,
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
            Test::Regex { .. } => None,
        }
    }

    /// Whether what [`CompiledMatcher::search`] finds is what does not satisfy the matcher.
    pub(crate) const fn is_negated(&self) -> bool {
        self.negated
    }

    /// The test, not negated.
    pub(crate) fn search(&self) -> Search<'_> {
        match &self.test {
            Test::Exact(text) => Search::Values(std::slice::from_ref(text)),
            Test::OneOf(texts) => Search::Values(texts),
            Test::Regex { regex, prefix } => Search::Regex { regex, prefix },
        }
    }

    fn test_matches(&self, value: &str) -> bool {
        match &self.test {
            Test::Exact(text) => text == value,
            Test::OneOf(texts) => texts.binary_search_by(|text| text.as_str().cmp(value)).is_ok(),
            Test::Regex { regex, .. } => regex.is_match(value),
        }
    }
}

fn compile_regex(matcher: &Matcher) -> Result<Test, MatcherError> {
    let failed = |reason: String| MatcherError { matcher: matcher.to_string(), reason };
    let build = |text: &str| RegexBuilder::new(text).size_limit(REGEX_BYTES_MAX).dot_matches_new_line(true).build();
    // Compiled alone first: a value such as `a)(b` must not become valid by what is put around it.
    build(&matcher.value).map_err(|error| failed(error.to_string()))?;
    let parsed = ParserBuilder::new().dot_matches_new_line(true).build().parse(&matcher.value);
    let parsed = parsed.map_err(|error| failed(error.to_string()))?;
    let begins = Extractor::new().extract(&parsed);
    if begins.is_exact() && parsed.properties().look_set().is_empty() {
        let texts = begins.literals().unwrap_or_default().iter();
        let texts = texts.map(|literal| String::from_utf8(literal.as_bytes().to_vec()).ok());
        if let Some(mut texts) = texts.collect::<Option<Vec<String>>>() {
            texts.sort();
            texts.dedup();
            return Ok(Test::OneOf(texts));
        }
    }
    let prefix = begins.longest_common_prefix().unwrap_or_default();
    // Of a prefix that ends within a character, what is whole.
    let prefix = prefix.utf8_chunks().next().map_or("", |chunk| chunk.valid()).to_owned();
    let regex = build(&anchored(&parsed)).map_err(|error| failed(error.to_string()))?;
    Ok(Test::Regex { regex, prefix })
}

/// The expression for whole texts. Where it begins or ends with `.*` it is left open instead, which is the same and lets
/// the search use what is between.
fn anchored(parsed: &Hir) -> String {
    let is_anything = |hir: &Hir| match hir.kind() {
        HirKind::Repetition(repetition) => {
            let any = Hir::dot(regex_syntax::hir::Dot::AnyChar);
            repetition.min == 0 && repetition.max.is_none() && *repetition.sub == any
        }
        _ => false,
    };
    let HirKind::Concat(parts) = parsed.kind() else {
        return format!("^(?:{parsed})$");
    };
    let open_start = parts.first().is_some_and(is_anything);
    let open_end = parts.len() > 1 && parts.last().is_some_and(is_anything);
    let kept = parts.get(usize::from(open_start)..parts.len() - usize::from(open_end)).unwrap_or_default();
    let (start, end) = (if open_start { "" } else { "^" }, if open_end { "" } else { "$" });
    format!("{start}(?:{}){end}", Hir::concat(kept.to_vec()))
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
        check(MatchOp::Regex, r"10\.0|x(y|z)", &["10.0", "xy", "xz"], &["1000", "x", "10.0x"]);
        check(MatchOp::Regex, ".*b.*", &["b", "abc", "\nb\n"], &["", "ac"]);
        check(MatchOp::Regex, ".*b", &["b", "ab"], &["ba", ""]);
        check(MatchOp::Regex, "b.*c|d", &["bc", "bxc", "d"], &["bcx", "dx", "xd"]);
        check(MatchOp::Regex, "(?i)ab.+", &["ABc", "abC"], &["ab", "xabc"]);
        check(MatchOp::Regex, r"a\b", &["a"], &["ab", "a "]);
        check(MatchOp::Regex, "ü(a|ö).", &["üax", "üöü"], &["ü", "üx"]);
    }

    #[test]
    fn what_matches_begin_with_is_known() {
        for (pattern, expected) in [
            ("app-7-.*", "app-7-"),
            ("app-(1|2|3)[0-9]-.*", "app-"),
            (".*x", ""),
            (r"10\.0\.[0-9]+", "10.0."),
            ("a*", ""),
        ] {
            let matcher = CompiledMatcher::new(&Matcher::new("l", MatchOp::Regex, pattern)).unwrap();
            let Search::Regex { prefix, .. } = matcher.search() else { panic!("{pattern} is an expression") };
            assert_eq!(prefix, expected, "{pattern}");
        }
    }

    #[test]
    fn bad_expressions_are_errors_that_show_them() {
        for pattern in ["a)(b", "(", "[", "(?:x{1000}){1000}", "a++b\\"] {
            let error = CompiledMatcher::new(&Matcher::new("l", MatchOp::Regex, pattern)).unwrap_err();
            assert_eq!(error.matcher, format!("l=~{pattern:?}"));
        }
    }
}

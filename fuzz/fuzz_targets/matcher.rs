//! Matchers with regular expressions, an expression and behind a line end the value: what the index makes of them matches what the plain
//! expression does.
#![no_main]

use index::CompiledMatcher;
use libfuzzer_sys::fuzz_target;
use model::{MatchOp, Matcher};
use regex::RegexBuilder;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    let Some((pattern, value)) = text.split_once('\n') else { return };
    let Ok(matcher) = CompiledMatcher::new(&Matcher::new("x", MatchOp::Regex, pattern)) else { return };
    let whole = format!("^(?:{pattern})$");
    // Without a limit of size: the matcher has its own.
    let plain = RegexBuilder::new(&whole).dot_matches_new_line(true).size_limit(64 << 20).build();
    if let Ok(plain) = plain {
        assert_eq!(matcher.matches(value), plain.is_match(value), "{pattern:?} on {value:?}");
    }
});

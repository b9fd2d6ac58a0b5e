//! PromQL: a text is an expression or an error, and an expression as text, on one line or several, is read back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use promql::Expression;
use thalweg_fuzz as _;

fuzz_target!(|text: &str| {
    let _ = promql::parse_selector(text);
    let Ok(expression) = Expression::parse(text) else { return };
    let (line, _) = (expression.line(), expression.tree_json());
    for printed in [&line, &expression.pretty()] {
        let again = Expression::parse(printed).unwrap_or_else(|error| panic!("{printed}: {error}"));
        assert_eq!(again.line(), line);
    }
});

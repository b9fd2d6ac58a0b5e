//! Hostile text gets an error, never a crash.
#![allow(clippy::unwrap_used, clippy::panic, reason = "the lints do not see that helpers of tests are tests")]

mod support;

use proptest::prelude::*;
use query::sketch::DistinctSketch;
use query::{Budget, QueryError, Stop, TextSample};
use support::Memory;
use thalweg_promql::{
    Evaluation, EvaluationSettings, Expression, Features, QueryTimes, evaluate_instant, evaluate_range, parse_selector,
};

fn refused(text: &str, reason: &str) {
    match Expression::parse(text) {
        Err(QueryError::Invalid(message)) => {
            assert!(message.contains(reason), "{message}");
            assert!(message.len() < 1000, "a message of {} bytes", message.len());
        }
        other => panic!("{:?} gave {other:?}", text.chars().take(40).collect::<String>()),
    }
}

#[test]
fn deep_nesting_is_refused() {
    let deep = "nests deeper";
    for depth in [201, 1000, 20_000] {
        refused(&format!("{}1{}", "(".repeat(depth), ")".repeat(depth)), deep);
        refused(&format!("{}x{}", "abs(".repeat(depth), ")".repeat(depth)), deep);
        refused(&format!("{}x{}", "sum by (a) (".repeat(depth), ")".repeat(depth)), deep);
        refused(&format!("{}x", "-".repeat(depth)), deep);
        refused(&format!("{}x", "- ".repeat(depth)), deep);
        refused(&format!("1{}", "^1".repeat(depth)), deep);
        refused(&format!("{}x{}", "(x or ".repeat(depth), ")".repeat(depth)), deep);
        refused(&format!("x{}", "[1m:1m]".repeat(depth)), deep);
        refused(&format!("{}x", "(-".repeat(depth)), deep);
    }
}

#[test]
fn what_is_just_not_too_deep_is_evaluated() {
    let (source, settings, budget) = (Memory::default(), EvaluationSettings::default(), Budget::new(1000));
    for text in [
        format!("{}1{}", "(".repeat(198), ")".repeat(198)),
        format!("{}x{}", "abs(".repeat(198), ")".repeat(198)),
        format!("{}x", "-".repeat(198)),
        format!("1{}", "^1".repeat(198)),
        format!("x{}", " or x".repeat(198)),
        format!("{}x{}", "sum(".repeat(198), ")".repeat(198)),
    ] {
        let expression = Expression::parse(&text).unwrap();
        evaluate_instant(&expression, 0, &Evaluation::new(&source, &settings, &budget)).unwrap();
        evaluate_range(
            &expression,
            QueryTimes { start_ms: 0, end_ms: 1000, step_ms: 100 },
            &Evaluation::new(&source, &settings, &budget),
        )
        .unwrap();
        let _ = format!("{:?}", expression.clone());
    }
}

/// As long a chain as anyone writes, on the stack of a thread: it is no nesting.
#[test]
fn long_chains_of_operators_are_evaluated() {
    let mut source = Memory::default();
    let labels = |name: &str| model::Labels::from_pairs([("__name__", name)]).unwrap();
    source.series.insert(labels("x"), vec![(0, 1.0)]);
    source.series.insert(labels("y"), vec![(0, 5.0)]);
    let (settings, budget) = (EvaluationSettings::default(), Budget::new(1_000_000));
    let times = QueryTimes { start_ms: 0, end_ms: 1000, step_ms: 100 };
    for length in [1000, 10_000] {
        for (text, expected) in [
            (format!("x{}", " + x".repeat(length)), length as f64 + 1.0),
            (format!("x{}", " or x".repeat(length)), 1.0),
            (format!("1{} + x", " + 1".repeat(length - 1)), length as f64 + 1.0),
            (format!("x{}", " * 1 - 0 unless z".repeat(length / 3)), 1.0),
            (format!("x == 1 {}", "or x + y ".repeat(length - 1)), 1.0),
        ] {
            let expression = Expression::parse(&text).unwrap();
            let evaluation = Evaluation::new(&source, &settings, &budget);
            let result = format!("{:?}", evaluate_instant(&expression, 0, &evaluation).unwrap());
            assert!(result.contains(&format!("{expected:?}")), "{}: {result}", &text[..40]);
            evaluate_range(&expression, times, &evaluation).unwrap();
            assert_eq!(Expression::parse(&expression.line()).unwrap().line(), expression.line());
            assert!(expression.pretty().len() >= text.len() / 2);
            assert!(expression.tree_json().matches("binaryExpr").count() >= length / 3 * 3 - 1);
            assert!(!thalweg_promql::explain_instant(&expression, 0, &evaluation).unwrap().is_empty());
            drop(expression.clone());
        }
    }
    refused(&format!("1{}", "+1".repeat(10_001)), "more than 10000 operators in a row");
}

#[test]
fn what_is_too_large_is_refused() {
    refused(&format!("x{{a=\"{}\"}}", "a".repeat(300_000)), "bytes");
    refused("x{a=~\"(a{1000}){1000}\"}", "too large");
    refused("x{a=~\"((((a{100}){100}){100}){100}){100}\"}", "too large");
    refused(&format!("x{{{}}}", "a=~\"b\",".repeat(300)), "regular expressions");
    refused("x{a=~\"(\"}", "invalid regular expression");
    for duration in ["1e300", "99999999999999999999", "inf", "nan", "1e18"] {
        refused(&format!("x offset {duration}"), "");
        refused(&format!("x offset -{duration}"), "");
        refused(&format!("x[{duration}]"), "");
        refused(&format!("x[1m:{duration}]"), "");
        refused(&format!("x @ {duration}"), "");
    }
    refused("x[0]", "");
}

#[test]
fn steps_samples_and_time_are_bounded() {
    let mut source = Memory::default();
    for number in 0..10 {
        let labels = model::Labels::from_pairs([("__name__", "x".to_owned()), ("n", number.to_string())]).unwrap();
        source.series.insert(labels, (0..100).map(|place| (place * 1000, 1.0)).collect());
    }
    let settings = EvaluationSettings { steps_max: 1000, ..EvaluationSettings::default() };
    let range = |text: &str, end_ms: i64, budget: &Budget| {
        evaluate_range(
            &Expression::parse(text).unwrap(),
            QueryTimes { start_ms: 0, end_ms, step_ms: 1000 },
            &Evaluation::new(&source, &settings, budget),
        )
    };
    let plenty = Budget::new(100_000);
    assert!(range("x", 999_000, &plenty).is_ok());
    assert!(matches!(range("x", 1_000_000, &plenty), Err(QueryError::Execution(text)) if text.contains("steps_max")));
    let error = range("max_over_time(x[1000s:1ms])", 0, &plenty).unwrap_err();
    assert!(error.to_string().contains("steps_max"), "{error}");
    for time_ms in [i64::MAX, i64::MIN] {
        let expression = Expression::parse("rate(x[1y] offset 1y)").unwrap();
        let answer = evaluate_instant(&expression, time_ms, &Evaluation::new(&source, &settings, &plenty));
        assert!(matches!(answer, Err(QueryError::Invalid(_))));
    }
    // 10 series of 100 samples, and some for each row; values take the place of one series after the other, groups' sums need more.
    assert!(range("x", 99_000, &Budget::new(1_100)).is_ok());
    let tight = Budget::new(1_500);
    let error = range("sum by (n) (x)", 99_000, &tight).unwrap_err();
    assert_eq!(error, QueryError::TooManySamples { limit: 1_500 });
    assert_eq!(tight.samples(), 0);
    // Rows of one value are mostly labels; `count_values` holds a value with its group and its step.
    assert_eq!(range("x", 0, &Budget::new(50)).unwrap_err(), QueryError::TooManySamples { limit: 50 });
    let counted = |samples_max| range("count_values(\"v\", x + time())", 99_000, &Budget::new(samples_max)).map(drop);
    assert_eq!(counted(2_000), Err(QueryError::TooManySamples { limit: 2_000 }));
    assert_eq!(counted(4_000), Ok(()));
    // All samples, those of one window, and a row for each quantile.
    let ranked = |budget: &Budget| {
        range("quantiles_of_samples(\"q\", 0, 0.2, 0.4, 0.6, 0.8, 1, x[1000s])", 99_000, budget).map(drop)
    };
    let tight = Budget::new(2_000);
    assert_eq!(ranked(&tight), Err(QueryError::TooManySamples { limit: 2_000 }));
    assert_eq!(tight.samples(), 0);
    assert_eq!(ranked(&Budget::new(5_000)), Ok(()));
    let stopped = Budget::new(100_000);
    stopped.stop(Stop::Timeout);
    assert_eq!(range("x", 0, &stopped).unwrap_err(), QueryError::Stopped(Stop::Timeout));
    assert_eq!(range("1", 0, &stopped).unwrap_err(), QueryError::Stopped(Stop::Timeout));
}

/// Steps with all fields, and with texts and names that need quotes; the guide's example among them.
#[test]
fn steps_are_read_back_as_they_are_written() {
    let guide = include_str!("../../../docs/guide/promql.md");
    let example = guide.split_once("```promql\n").unwrap().1.split_once("```").unwrap().0.trim();
    for text in [
        example,
        r#"max(x) by () relabelled ({action="hashmod",source_label="a.b",source_label="c",separator="",target_label="by",modulus="7",hash="xxhash64"})"#,
        r#"topk without (a) relabelled ('m"\n', {"action"="graphite","match"="*.é","labels.by"="$1","labels.a b"='${1}"'}) (2, x)"#,
        r#"last_of_samples by (if) relabelled ({action="drop",if="{a=~\"b|c\"}",if='d{e!="f"}'}, {action="labeldrop",regex="\\d+"}) (x[5m], y[5m])"#,
        r#"sum(max by (a) relabelled ({target_label="a",replacement=""}) (x)) by (b) relabelled ({action="keepequal",source_label="a",target_label="b"})"#,
    ] {
        let expression = Expression::parse(text).unwrap();
        let line = expression.line();
        assert!(expression.tree_json().contains(r#""relabelled":"relabelled ("#), "{text}");
        for printed in [&line, &expression.pretty()] {
            assert_eq!(Expression::parse(printed).unwrap().line(), line);
        }
        let plain = Features { experimental_functions: false, ..Features::default() };
        let told = Expression::parse_with(text, plain).unwrap_err().to_string();
        assert!(told.contains("not enabled"), "{told}");
    }
}

/// Steps double a value each, and there are as many as there may be.
#[test]
fn steps_that_relabel_have_limits() {
    let mut source = Memory::default();
    let labels = model::Labels::from_pairs([("__name__", "x"), ("a", "abcdefgh")]).unwrap();
    source.series.insert(labels, vec![(0, 1.0)]);
    let (settings, budget) = (EvaluationSettings::default(), Budget::new(1000));
    let double = r#"{source_label="a",target_label="a",replacement="$1$1"}"#;
    let sum = |steps: usize| format!("sum by (a) relabelled ({}) (x)", vec![double; steps].join(","));
    for (steps, is_small) in [(8, true), (60, false), (200, false)] {
        let expression = Expression::parse(&sum(steps)).unwrap();
        let found = evaluate_instant(&expression, 0, &Evaluation::new(&source, &settings, &budget));
        match found {
            Ok(_) => assert!(is_small, "{steps}"),
            Err(error) => {
                let told = error.to_string();
                assert!(!is_small && told.contains("the limit is 65536") && told.contains("step 1"), "{steps}: {told}");
            }
        }
    }
    refused(&sum(201), "more than 200 steps and regular expressions");
    refused(&format!("{} + {}", sum(150), sum(51)), "more than 200 steps and regular expressions");
    refused(&sum(1).replace("$1$1\"", "b\",regex=\"(\\\\w{50}){50}\""), "too large");
}

/// Of many series of large sketches those are held that the steps need, and one series.
#[test]
fn sketches_are_merged_as_they_come() {
    let mut source = Memory::default();
    let numbers: Vec<f64> = (0..2_000).map(f64::from).collect();
    let text = DistinctSketch::of_numbers(&numbers).encode();
    assert!(text.len() > 4_096);
    for number in 0..100 {
        let labels = [("__name__", "x".to_owned()), ("n", number.to_string())];
        let samples = (0..20).map(|place| (place * 1000, TextSample::Text(text.clone()))).collect();
        source.texts.insert(model::Labels::from_pairs(labels).unwrap(), samples);
    }
    let settings = EvaluationSettings::default();
    let range = |text: &str, samples_max: u64| {
        let budget = Budget::new(samples_max);
        let times = QueryTimes { start_ms: 0, end_ms: 19_000, step_ms: 1000 };
        let answer =
            evaluate_range(&Expression::parse(text).unwrap(), times, &Evaluation::new(&source, &settings, &budget));
        assert_eq!(budget.samples(), 0, "{text}");
        answer.map(|_| budget.samples_peak())
    };
    let sample = 4_200 / 16;
    let series = 20 * sample;
    for (text, cells) in
        [("approx_count_distinct(x[1m])", 20), ("approx_count_distinct(x[2s])", 20), ("approx_count_distinct(x)", 20)]
    {
        let peak = range(text, 1_000_000).unwrap();
        assert!(peak < series + (cells + 6) * sample, "{text}: {peak}");
        assert_eq!(range(text, peak / 2), Err(QueryError::TooManySamples { limit: peak / 2 }), "{text}");
    }
    let each = "approx_count_distinct without () (x)";
    assert_eq!(range(each, 100_000), Err(QueryError::TooManySamples { limit: 100_000 }));
}

#[test]
fn labels_are_bounded() {
    let mut source = Memory::default();
    let labels = model::Labels::from_pairs([("__name__", "x"), ("a", "0123456789")]).unwrap();
    source.series.insert(labels, vec![(0, 1.0)]);
    let ask = |text: &str| {
        let expression = Expression::parse(text).unwrap();
        evaluate_instant(&expression, 0, &Evaluation::new(&source, &EvaluationSettings::default(), &Budget::new(1000)))
    };
    let nested = |head: &str, tail: &str, depth: usize| format!("{}x{}", head.repeat(depth), tail.repeat(depth));
    for (head, tail) in
        [("label_replace(", ", \"a\", \"$1$1\", \"a\", \"(.*)\")"), ("label_join(", ", \"a\", \"\", \"a\", \"a\")")]
    {
        ask(&nested(head, tail, 12)).unwrap();
        let error = ask(&nested(head, tail, 60)).unwrap_err();
        assert!(error.to_string().contains("the limit is 65536"), "{error}");
    }
    let error = ask(&format!("label_replace(x, \"a\", \"{}\", \"a\", \"(.*)\")", "$1".repeat(100_000))).unwrap_err();
    assert!(error.to_string().contains("label of 1200000 bytes"), "{error}");
}

#[test]
fn selectors_for_match_parameters() {
    let matchers = parse_selector(r#"up{job=~"a.*", i!="2"}"#).unwrap();
    let shown: Vec<String> = matchers.iter().map(ToString::to_string).collect();
    assert_eq!(shown, [r#"job=~"a.*""#, r#"i!="2""#, r#"__name__="up""#]);
    for text in ["up[5m]", "up offset 5m", "up @ 0", "sum(up)", "1", "{}", "{job=~\".*\"}", "{job!=\"x\"}", "", "up{"] {
        assert!(matches!(parse_selector(text), Err(QueryError::Invalid(_))), "{text:?}");
    }
    let expression = Expression::parse(r#"rate(a[5m]) / on() sum(b{c="d"})"#).unwrap();
    assert_eq!(expression.selectors().iter().map(|matchers| matchers.len()).collect::<Vec<_>>(), [1, 2]);
}

/// Pieces of expressions, to be put together in any order.
const PIECES: &[&str] = &[
    "x",
    "sum",
    "rate",
    "abs",
    "time",
    "label_replace",
    "topk",
    "distinct_of_samples",
    "approx_percentile",
    "approx_count_distinct by (x)",
    "quantiles_of_samples",
    "by (a) relabelled (",
    "{action=\"labelmap\"}",
    "{source_label=\"a\",target_label=\"a\",replacement=\"$1$1\"}",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "5m",
    "1h30m",
    ":",
    ",",
    "@",
    "start()",
    "end",
    "offset",
    "-",
    "+",
    "*",
    "/",
    "^",
    "%",
    "==",
    "!=",
    "=~",
    "!~",
    "<",
    ">=",
    "and",
    "or",
    "unless",
    "atan2",
    "bool",
    "on",
    "ignoring",
    "group_left",
    "by",
    "without",
    "1",
    "0x1f",
    "0x",
    "1e",
    "1e999",
    "017",
    "089",
    "NaN",
    "Inf",
    ".5",
    "\"a\"",
    "'b'",
    "`c`",
    "\"\\x\"",
    "\"\\u12\"",
    "\"",
    "'",
    "\\",
    "#",
    "\n",
    " ",
    "é",
    "a:b",
    "fill",
    "fill_left",
    "a=\"b\"",
    "ms",
    "99999999999999999999y",
    "__name__",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_text_crashes_the_parser(places in proptest::collection::vec((0..PIECES.len(), any::<bool>()), 0..24)) {
        let text: String = places.iter().flat_map(|(place, space)| [PIECES[*place], if *space { " " } else { "" }]).collect();
        if let Ok(expression) = Expression::parse(&text) {
            let (source, settings, budget) = (Memory::default(), EvaluationSettings::default(), Budget::new(100_000));
            let _ = evaluate_instant(&expression, 1_000_000, &Evaluation::new(&source, &settings, &budget));
            prop_assert_eq!(budget.samples(), 0);
        }
    }

    #[test]
    fn no_characters_crash_the_parser(text in "\\PC{0,40}") {
        let _ = Expression::parse(&text);
    }
}

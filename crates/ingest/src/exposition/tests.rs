//! The formats as tables, and hostile input.

use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Protocol;
use crate::batch::render::{HASHER, render};

fn parse_text(body: &[u8], format: Format, extra_labels: &[(String, String)], limits: &Limits) -> String {
    let options = Options { hasher: HASHER.scope(Protocol::Exposition, 1), format, now_ns: 77, extra_labels, limits };
    let parsed = parse(body, &options).unwrap();
    let metadata: Vec<String> = parsed
        .batch
        .metadata
        .iter()
        .map(|one| format!("{} {} {:?} {:?}\n", one.family, one.kind.name(), one.help, one.unit))
        .collect();
    render(&parsed) + &metadata.concat()
}

#[track_caller]
fn check(body: &str, expected: &[&str]) {
    let text = parse_text(body.as_bytes(), Format::Text, &[], &Limits::default());
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{body}");
}

#[track_caller]
fn check_openmetrics(body: &str, expected: &[&str]) {
    let text = parse_text(body.as_bytes(), Format::OpenMetrics, &[], &Limits::default());
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{body}");
}

#[test]
fn reads_samples() {
    check("up 1", &["1 up{} value=1.0 @77"]);
    check("up 1 5\r\n\n  up\t2   6  \n", &["1 up{} value=1.0 @5000000", "3 up{} value=2.0 @6000000"]);
    check(r#"a:b{c="d",e="f",} 1e3 -1"#, &[r#"1 a:b{c="d", e="f"} value=1000.0 @-1000000"#]);
    check(r#"m { a = "1" , b="2" } +Inf"#, &[r#"1 m{a="1", b="2"} value=inf @77"#]);
    check("m{}-Inf", &["1 m{} value=-inf @77"]);
    check("m NaN", &["1 m{} value=NaN @77"]);
    check(r#"m{a="x\\y\"z\n} #",e=""} 0.5"#, &[r#"1 m{a="x\\y\"z\n} #"} value=0.5 @77"#]);
    check(r#"{"my.metric","a.b"="c",d="e"} 1"#, &[r#"1 my.metric{a.b="c", d="e"} value=1.0 @77"#]);
    check(r#"m{a="ü"} 1"#, &[r#"1 m{a="ü"} value=1.0 @77"#]);
}

/// The hash of a body's comments, which are not read, and how many rows and pieces of metadata there are.
fn hash_comments(body: &str) -> (u64, usize, usize) {
    let limits = Limits::default();
    let hasher = HASHER.scope(Protocol::Exposition, 1);
    let options = Options { hasher, format: Format::OpenMetrics, now_ns: 77, extra_labels: &[], limits: &limits };
    let mut hash = 0;
    let parsed = parse_samples(body.as_bytes(), &options, &mut hash).unwrap();
    assert!(parsed.errors.first.is_empty());
    (hash, parsed.batch.blocks.iter().map(|block| block.keys.len()).sum(), parsed.batch.metadata.len())
}

#[test]
fn comments_may_be_hashed_only() {
    let (hash, rows, metadata) = hash_comments("# HELP m Says.\n# TYPE m counter\nm 1\n# EOF\n");
    assert_eq!((rows, metadata), (1, 0));
    assert_eq!(hash_comments("# HELP m Says.\n# TYPE m counter\nm 2\nn 5\n# EOF\n"), (hash, 2, 0));
    for other in ["# HELP m Tells.\n# TYPE m counter\n", "# TYPE m counter\n# HELP m Says.\n", "# HELP m Says.\n", ""] {
        assert_ne!(hash_comments(&format!("{other}m 1\n# EOF\n")).0, hash, "{other}");
    }
}

#[test]
fn reads_metadata() {
    check(
        "# HELP m Says \\\\ and\\nmore.\n# TYPE m counter\nm 1\n# just words\n#TYPE x gauge\n# TYPE y untyped\n# HELP z",
        &[
            "3 m{} value=1.0 @77",
            r#"m counter "Says \\ and\nmore." """#,
            r#"x gauge "" """#,
            r#"y unknown "" """#,
            r#"z unknown "" """#,
        ],
    );
    check(r#"# HELP "my.metric" Dots."#, &[r#"my.metric unknown "Dots." """#]);
    check_openmetrics(
        "# TYPE s stateset\n# UNIT s seconds\n# HELP s \\\"hi\\\"\n# TYPE i info\n# EOF\n",
        &[r#"s stateset "\"hi\"" "seconds""#, r#"i info "" """#],
    );
}

#[test]
fn reads_openmetrics() {
    check_openmetrics(
        "m_total 5 1520879607.789 # {trace=\"KOO\"} 0.67\nm 1 -1\n# EOF\nm 2",
        &["1 m_total{} value=5.0 @1520879607789000000", "2 m{} value=1.0 @-1000000000", "4 ! text behind '# EOF'"],
    );
    check_openmetrics("m 1 NaN\nm 1 1e300", &["1 ! invalid timestamp", "2 ! timestamp out of range"]);
    assert_eq!(Format::from_content_type("application/openmetrics-text; version=1.0.0"), Format::OpenMetrics);
    assert_eq!(Format::from_content_type("text/plain; version=0.0.4"), Format::Text);
}

/// As `promtool tsdb dump` writes them.
#[test]
fn reads_names_among_labels() {
    check(
        "{__name__=\"up\", job=\"a\"} 1 1700000000000\n{__name__=\"up\"} +Inf 1",
        &["1 up{job=\"a\"} value=1.0 @1700000000000000000", "2 up{} value=inf @1000000"],
    );
}

#[test]
fn says_what_is_wrong_and_keeps_the_rest() {
    let cases = [
        ("m", "missing value"),
        ("m x", "invalid value: expected a number"),
        ("m 1 x", "invalid timestamp"),
        ("m 1 1.5", "invalid timestamp"),
        ("m 1 9223372036854775807", "timestamp out of range"),
        ("m 1 1 1", "text behind the timestamp"),
        ("{} 1", "key: missing metric name"),
        ("{a=\"b\"} 1", "key: missing metric name"),
        ("m{a=\"b\" 1", "missing '}'"),
        ("m{a=\"b} 1", "unbalanced quotes"),
        ("m{a=b} 1", "key: the value of label \"a\" is not in quotes"),
        ("m{a} 1", "key: expected '=' behind label \"a\""),
        ("m{a=\"b\"c=\"d\"} 1", "key: expected ',' or '}' behind a label"),
        ("m{,} 1", "key: invalid label name \"\""),
        ("m{a=\"1\",a=\"1\"} 1", "key: label \"a\" is given twice"),
        ("m{1a=\"1\"} 1", "key: invalid label name \"1a\""),
        ("m{__name__=\"1\"} 1", "key: two metric names"),
        ("m{\"__name__\"=\"1\"} 1", "key: a label cannot have the name \"__name__\""),
        ("m{\"\"=\"1\"} 1", "key: a label cannot have the name \"\""),
        ("m{\"n\"} 1", "key: two metric names"),
        ("1m 1", "key: invalid metric name \"1m\""),
        ("m-n 1", "key: invalid metric name \"m-n\""),
        ("# TYPE m what", "unknown metric type 'what'"),
        ("# TYPE", "missing metric name"),
        ("# HELP \"m", "unbalanced quotes"),
    ];
    for (bad, reason) in cases {
        let expected =
            ["1 good{} value=1.0 @1000000".to_owned(), format!("2 ! {reason}"), "3 good{} value=2.0 @77".to_owned()];
        check(&format!("good 1 1\n{bad}\ngood 2"), &expected.each_ref().map(String::as_str));
    }
    let text = parse_text(b"m{a=\"\xff\"} 1\nm\xff 1", Format::Text, &[], &Limits::default());
    assert_eq!(text, "1 ! key: invalid UTF-8 in a name or label value\n2 ! key: invalid metric name \"m\u{fffd}\"\n");
}

#[test]
fn extra_labels_replace_others() {
    let extra = [("job".to_owned(), "a\"b\\\n".to_owned()), ("x.y".to_owned(), "1".to_owned())];
    let body = b"m{job=\"old\",z=\"1\"} 1\nm 2\n{\"my.metric\"} 3\nm{job=\"1\",job=\"2\"} 4";
    let labels = r#"job="a\"b\\\n", x.y="1""#;
    let expected = format!(
        "1 m{{{labels}, z=\"1\"}} value=1.0 @77\n2 m{{{labels}}} value=2.0 @77\n3 my.metric{{{labels}}} value=3.0 @77\n\
         4 ! key: label \"job\" is given twice\n"
    );
    assert_eq!(parse_text(body, Format::Text, &extra, &Limits::default()), expected);
}

#[test]
fn limits_hold() {
    let limits = Limits {
        line_bytes_max: 50,
        tags_max: 2,
        name_bytes_max: 10,
        key_bytes_max: 40,
        keys_bytes_max: 1000,
        histograms_max: 1,
        exemplars_max: 1,
        rows_max: 1,
        metadata_max: 1,
        ..Limits::default()
    };
    let long = "x".repeat(60);
    for (body, expected) in [
        ("m{a=\"1\",b=\"2\"} 1".to_owned(), "1 m{a=\"1\", b=\"2\"} value=1.0 @77\n"),
        ("m{a=\"1\",b=\"2\",c=\"3\"} 1".to_owned(), "1 ! more than 2 labels (tags_max)\n"),
        ("mmmmmmmmmmm 1".to_owned(), "1 ! a name is longer than 10 bytes (name_bytes_max)\n"),
        (format!("m{{a=\"{}\"}} 1", &long[..40]), "1 ! name and labels take more than 40 bytes (key_bytes_max)\n"),
        (format!("m{{a=\"{long}\"}} 1"), "1 ! the line is longer than 50 bytes (line_bytes_max)\n"),
        ("m 1\nm 2".to_owned(), "1 m{} value=1.0 @77\n2 ! the request has more than 1 rows (rows_max); split it\n"),
        (
            "# TYPE a gauge\n# TYPE b gauge".to_owned(),
            "2 ! more than 1 metric families (metadata_max)\na gauge \"\" \"\"\n",
        ),
    ] {
        assert_eq!(parse_text(body.as_bytes(), Format::Text, &[], &limits), expected, "{body}");
    }
}

proptest! {
    #[test]
    fn what_is_spelled_is_read_back(
        series in vec((proptest::collection::btree_map("[a-z_]{1,5}", ".{0,9}", 0..4), any::<f64>(), any::<Option<i32>>()), 0..5),
    ) {
        let (mut body, mut expected) = (String::new(), String::new());
        for (place, (labels, value, timestamp_ms)) in series.iter().enumerate() {
            let escaped: Vec<String> = labels
                .iter()
                .map(|(name, value)| (name, value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")))
                .map(|(name, value)| format!("{name}=\"{value}\""))
                .collect();
            let time = timestamp_ms.map(|timestamp_ms| format!(" {timestamp_ms}")).unwrap_or_default();
            body = body + "m{" + &escaped.join(",") + "} " + &value.to_string() + &time + "\n";
            let timestamp_ns = timestamp_ms.map_or(77, |timestamp_ms| i64::from(timestamp_ms) * 1_000_000);
            let labels = Labels::from_pairs(labels).unwrap();
            writeln!(expected, "{} m{labels} value={value:?} @{timestamp_ns}", place + 1).unwrap();
        }
        prop_assert_eq!(parse_text(body.as_bytes(), Format::Text, &[], &Limits::default()), expected);
    }

    #[test]
    fn no_bytes_break_it(body in vec(prop::sample::select(b"ab{}=\"\\, \t\n\r#1.eHELPTYUNIOF\xff".to_vec()), 0..200)) {
        for format in [Format::Text, Format::OpenMetrics] {
            parse_text(&body, format, &[("a".to_owned(), "b".to_owned())], &Limits::default());
        }
    }
}

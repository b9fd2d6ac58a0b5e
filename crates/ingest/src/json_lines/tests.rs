//! Lines as a table, and hostile ones.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Protocol;
use crate::batch::render::{HASHER, render};

fn parse_text(body: &[u8], limits: &Limits) -> String {
    render(&parse(body, &Options { hasher: HASHER.scope(Protocol::JsonLines, 1), limits }).unwrap())
}

#[track_caller]
fn check(body: &str, expected: &str) {
    assert_eq!(parse_text(body.as_bytes(), &Limits::default()), expected, "{body}");
}

#[test]
fn reads_series() {
    check(
        "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,-0.5],\"timestamps\":[1000,2000]}\n\n\
         {\"timestamps\":[3],\"values\":[\"Infinity\"],\"metric\":{\"b\":\"\\u00fc\",\"a\":\"\",\"__name__\":\"m\"},\"more\":{}}\r\n",
        "1 up{job=\"a\"} value=1.0 @1000000000\n1 up{job=\"a\"} value=-0.5 @2000000000\n3 m{b=\"ü\"} value=inf @3000000\n",
    );
    check(
        r#"{"metric":{"__name__":"m"},"values":[null,"NaN"],"timestamps":[1,2]}"#,
        "1 m{} value=NaN @1000000\n1 m{} value=NaN @2000000\n",
    );
    check(r#"{"metric":{"__name__":"m"},"values":[],"timestamps":[]}"#, "");
}

#[test]
fn tells_what_is_wrong() {
    for (line, reason) in [
        (r#"{"metric":{"__name__":"m"},"values":[1],"timestamps":[1,2]}"#, "1 values but 2 timestamps"),
        (r#"{"metric":{"__name__":"m"},"values":[1],"timestamps":[9223372036854775]}"#, "timestamp out of range"),
        (
            r#"{"metric":{"a":"m"},"values":[1],"timestamps":[1]}"#,
            "key: the series has no metric name (label \"__name__\")",
        ),
        (r#"{"metric":{"__name__":"m","":"x"},"values":[1],"timestamps":[1]}"#, "key: a label without a name"),
        (
            r#"{"metric":7,"values":[1],"timestamps":[1]}"#,
            "key: invalid \"metric\": invalid type: integer `7`, expected a map at line 1 column 1",
        ),
        (r#"{"values":[1],"timestamps":[1]}"#, "missing field `metric` at line 1 column 31"),
        ("[", "EOF while parsing a list at line 1 column 1"),
        (r#"{"metric":{"__name__":"m"},"values":["x"],"timestamps":[1]}"#, "\"x\" is not a number at line 1 column 40"),
    ] {
        check(line, &format!("1 ! {reason}\n"));
    }
    // One bad sample takes its line, not the line before.
    check(
        "{\"metric\":{\"__name__\":\"m\"},\"values\":[1],\"timestamps\":[1]}\n{\"metric\":{\"__name__\":\"m\"},\"values\":[1,2],\"timestamps\":[1,9223372036854775807]}",
        "1 m{} value=1.0 @1000000\n2 ! timestamp out of range\n",
    );
}

#[test]
fn limits_hold_and_depth_does_not_matter() {
    let limits = Limits { tags_max: 1, name_bytes_max: 5, key_bytes_max: 60, rows_max: 2, ..Limits::default() };
    for (line, expected) in [
        (
            r#"{"metric":{"__name__":"m","a":"b","c":"d"},"values":[1],"timestamps":[1]}"#,
            "1 ! more than 1 labels (tags_max)\n",
        ),
        (
            r#"{"metric":{"__name__":"mmmmmm"},"values":[1],"timestamps":[1]}"#,
            "1 ! a name is longer than 5 bytes (name_bytes_max)\n",
        ),
        (
            r#"{"metric":{"__name__":"m"},"values":[1,2,3],"timestamps":[1,2,3]}"#,
            "1 ! the request has more than 2 rows (rows_max); split it\n",
        ),
        (
            &format!(r#"{{"metric":{{"__name__":"m","a":"{}"}},"values":[1],"timestamps":[1]}}"#, "x".repeat(60)),
            "1 ! the labels take more than 60 bytes (key_bytes_max)\n",
        ),
    ] {
        assert_eq!(parse_text(line.as_bytes(), &limits), expected);
    }
    for deep in ["{\"metric\":", "[", "{\"x\":["] {
        assert!(parse_text(deep.repeat(50_000).as_bytes(), &Limits::default()).starts_with("1 ! "));
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        labels in proptest::collection::btree_map("[a-z]{1,4}", ".{1,6}", 0..4),
        samples in vec((any::<f64>().prop_filter("finite", |value| value.is_finite()), -1_000_000i64..1 << 41), 1..5),
    ) {
        let mut object: BTreeMap<&str, &str> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        object.insert("__name__", "m");
        let values: Vec<f64> = samples.iter().map(|(value, _)| *value).collect();
        let times: Vec<i64> = samples.iter().map(|(_, time)| *time).collect();
        let text = |value: &dyn Fn() -> serde_json::Result<String>| value().unwrap();
        let body = format!(
            r#"{{"metric":{},"values":{},"timestamps":{}}}"#,
            text(&|| serde_json::to_string(&object)),
            text(&|| serde_json::to_string(&values)),
            text(&|| serde_json::to_string(&times)),
        );
        let labels = Labels::from_pairs(&labels).unwrap();
        let rows: Vec<String> = samples.iter().map(|(value, time)| format!("1 m{labels} value={value:?} @{}\n", time * NS_PER_MS)).collect();
        prop_assert_eq!(parse_text(body.as_bytes(), &Limits::default()), rows.concat());
    }

    #[test]
    fn edits_break_nothing(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        let mut body = br#"{"metric":{"__name__":"m","a":"b"},"values":[1,"NaN"],"timestamps":[1,2]}"#.to_vec();
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        parse_text(&body, &Limits::default());
    }
}

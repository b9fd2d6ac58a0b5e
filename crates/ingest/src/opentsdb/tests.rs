//! Both protocols as tables, and hostile input.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Protocol;
use crate::batch::render::{HASHER, render};

fn with_options<T>(limits: &Limits, parse: impl FnOnce(&Options<'_>) -> T) -> T {
    parse(&Options { hasher: HASHER.scope(Protocol::Opentsdb, 1), limits })
}

fn telnet_text(body: &[u8], limits: &Limits) -> String {
    with_options(limits, |options| render(&parse_telnet(body, options).unwrap().0))
}

fn json_text(body: &[u8]) -> Result<String, String> {
    let text = |options: &Options<'_>| parse_json(body, options).map(|parsed| render(&parsed));
    with_options(&Limits::default(), text).map_err(|error| error.to_string())
}

#[test]
fn reads_puts() {
    for (line, expected) in [
        (
            "put sys.cpu.user 1356998400 42.5 host=webserver01 cpu=0",
            "1 sys.cpu.user{cpu=\"0\", host=\"webserver01\"} value=42.5 @1356998400000000000\n",
        ),
        ("put m 1356998400250 1 a=b\r\n", "1 m{a=\"b\"} value=1.0 @1356998400250000000\n"),
        ("put  m  1356998400.25  1\ta=b ", "1 m{a=\"b\"} value=1.0 @1356998400250000000\n"),
        ("put m 1356998400.250 -1e3", "1 m{} value=-1000.0 @1356998400250000000\n"),
        ("\nversion\nput m 1 1", "3 m{} value=1.0 @1000000000\n"),
        ("put m 1 1 a=b c=d a=e", "1 ! key: duplicate tag: a\n"),
        ("put m 1 1 a", "1 ! key: invalid tag: a\n"),
        ("put m 1 1 a=", "1 ! key: invalid tag value: it is empty\n"),
        ("put m! 1 1 a=b", "1 ! key: invalid metric name (\"m!\"): illegal character: !\n"),
        ("put m 1", "1 ! not enough arguments (need at least 3: metric, timestamp, value)\n"),
        ("put m soon 1", "1 ! invalid timestamp\n"),
        ("put m -1 1", "1 ! invalid timestamp\n"),
        ("put m 1.1234 1", "1 ! invalid timestamp\n"),
        ("put m 1.-1 1", "1 ! invalid timestamp\n"),
        ("put m 9223372036854775807 1", "1 ! timestamp out of range\n"),
        ("put m 1 one", "1 ! invalid value: expected a number\n"),
        ("putt m 1 1", "1 ! unknown command: putt\n"),
        ("GET / HTTP/1.1", "1 ! unknown command: GET\n"),
    ] {
        assert_eq!(telnet_text(line.as_bytes(), &Limits::default()), expected, "{line}");
    }
    let commands = |body: &[u8]| with_options(&Limits::default(), |options| parse_telnet(body, options).unwrap().1);
    assert_eq!(commands(b"version\nput m 1 1\nstats"), Commands { questions: 2, exit: false });
    assert_eq!(commands(b"exit\nversion\nput m 1 1"), Commands { questions: 0, exit: true });
}

#[test]
fn limits_hold() {
    let limits = Limits {
        line_bytes_max: 60,
        tags_max: 2,
        name_bytes_max: 5,
        key_bytes_max: 20,
        rows_max: 1,
        ..Limits::default()
    };
    for (line, expected) in [
        ("put m 1 1 a=b c=d", "1 m{a=\"b\", c=\"d\"} value=1.0 @1000000000\n"),
        ("put m 1 1 a=b c=d e=f", "1 ! more than 2 tags (tags_max)\n"),
        ("put mmmmmm 1 1", "1 ! a name is longer than 5 bytes (name_bytes_max)\n"),
        ("put m 1 1 a=bbbbbbbbbbbbbbbbbbbbbbb", "1 ! metric and tags take more than 20 bytes (key_bytes_max)\n"),
        (
            "put m 1 1\nput m 1 1",
            "1 m{} value=1.0 @1000000000\n2 ! the request has more than 1 rows (rows_max); split it\n",
        ),
        (&"x".repeat(61), "1 ! the line is longer than 60 bytes (line_bytes_max)\n"),
    ] {
        assert_eq!(telnet_text(line.as_bytes(), &limits), expected, "{line}");
    }
}

#[test]
fn reads_json() {
    let point = r#"{"metric":"sys.cpu.nice","timestamp":1346846400,"value":18,"tags":{"host":"web01","dc":"lga"}}"#;
    let row = r#"sys.cpu.nice{dc="lga", host="web01"} value=18.0 @1346846400000000000"#;
    assert_eq!(json_text(point.as_bytes()).unwrap(), format!("1 {row}\n"));
    assert_eq!(json_text(format!("[{point},{point}]").as_bytes()).unwrap(), format!("1 {row}\n2 {row}\n"));
    for (body, expected) in [
        (
            r#"{"metric":"m","timestamp":1346846400250,"value":"1.5","tags":{"n":1,"t":true}}"#,
            "1 m{n=\"1\", t=\"true\"} value=1.5 @1346846400250000000\n",
        ),
        (r#"{"metric":"\u006d","timestamp":"1","value":1,"tags":null,"more":[{}]}"#, "1 m{} value=1.0 @1000000000\n"),
        (
            r#"[{"timestamp":1,"value":1},{"metric":"m","value":1}]"#,
            "1 ! Metric name was empty\n2 ! Invalid timestamp\n",
        ),
        (
            r#"[{"metric":"m","timestamp":1,"value":"x"},{"metric":"m","timestamp":-1,"value":1}]"#,
            "1 ! Unable to parse value to a number\n2 ! Invalid timestamp\n",
        ),
        (
            r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a b":"c"}}"#,
            "1 ! invalid name or value (\"a b\"): illegal character:  \n",
        ),
        (r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":null}}"#, "1 ! key: invalid tag value: it is empty\n"),
        ("[]", ""),
    ] {
        assert_eq!(json_text(body.as_bytes()).as_deref(), Ok(expected), "{body}");
    }
    let deep = "[".repeat(100_000);
    for bad in ["", "1", "[1]", "{", r#"{"metric":1}"#, r#"{"metric":"m"} x"#, "{\"metric\":\"\u{1}\"}", &deep] {
        let error = json_text(bad.as_bytes()).unwrap_err();
        assert!(error.starts_with("unable to parse the given JSON: "), "{bad}: {error}");
    }
    assert!(json_text(b"{\"metric\":\"\xc3\"}").is_err());
}

#[test]
fn both_protocols_hash_a_series_alike() {
    let json = br#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b","c":"d"}}"#;
    with_options(&Limits::default(), |options| {
        let hash = |batch: &model::Batch<'_>| batch.blocks[0].keys[0].hash;
        let (telnet, _) = parse_telnet(b"put m 1 1 a=b c=d", options).unwrap();
        assert_eq!(hash(&telnet.batch), hash(&parse_json(json, options).unwrap().batch));
    });
}

proptest! {
    #[test]
    fn noise_breaks_nothing(body in vec(prop::sample::select(b"put m1.=\n\t\r-e\"{}[]:,\xff\xc3".to_vec()), 0..200)) {
        telnet_text(&body, &Limits::default());
        telnet_text(&[b"put ", body.as_slice()].concat(), &Limits::default());
        let _ = json_text(&body);
    }

    #[test]
    fn edits_of_json_break_nothing(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6)) {
        let mut body = br#"[{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}},{"metric":"n","timestamp":2,"value":"3"}]"#.to_vec();
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let _ = json_text(&body);
    }
}

//! The protocol as tables, and hostile lines.

use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Protocol;
use crate::batch::render::{HASHER, render};

fn parse_text(body: &[u8], limits: &Limits) -> String {
    render(&parse(body, &Options { hasher: HASHER.scope(Protocol::Graphite, 1), now_ns: 77, limits }).unwrap())
}

#[track_caller]
fn check(body: &[u8], expected: &str) {
    assert_eq!(parse_text(body, &Limits::default()), expected, "{}", String::from_utf8_lossy(body));
}

#[test]
fn reads_samples() {
    check(b"a.b.c 12.5 1700000000\n", "1 a.b.c{} value=12.5 @1700000000000000000\n");
    check(b"a;k=v;b=c 1 1", "1 a{b=\"c\", k=\"v\"} value=1.0 @1000000000\n");
    check(b"  a \t 1e3   2.25  \r\n\n#x 1 3", "1 a{} value=1000.0 @2250000000\n3 #x{} value=1.0 @3000000000\n");
    check(
        b"a 1 -1\na 2 N\na 3\na -4 -2.5",
        "1 a{} value=1.0 @77\n2 a{} value=2.0 @77\n3 a{} value=3.0 @77\n4 a{} value=-4.0 @-2500000000\n",
    );
    check(b"a 0.1234567890123456789 1.0000000019", "1 a{} value=0.12345678901234568 @1000000001\n");
    check("ä.ö;ü=ß 1 1".as_bytes(), "1 ä.ö{ü=\"ß\"} value=1.0 @1000000000\n");
    check(b"a inf 1\na -Infinity 1", "1 a{} value=inf @1000000000\n2 a{} value=-inf @1000000000\n");
}

#[test]
fn tells_what_is_wrong() {
    for (line, reason) in [
        (&b"a"[..], "missing value"),
        (b"a nan 1", "invalid value: expected a number"),
        (b"a 1x 1", "invalid value: expected a number"),
        (b"a 1 soon", "invalid timestamp"),
        (b"a 1 1 1", "invalid timestamp"),
        (b"a 1 1.-5", "invalid timestamp"),
        (b"a 1 9223372037", "timestamp out of range"),
        (b";a=b 1 1", "key: missing metric path"),
        (b"m;a 1 1", "key: tag \"a\" is not name=value"),
        (b"m;=a 1 1", "key: a tag cannot have the name \"\""),
        (b"m;__name__=a 1 1", "key: a tag cannot have the name \"__name__\""),
        (b"m;a!=b 1 1", "key: a tag cannot have the name \"a!\""),
        (b"m;a= 1 1", "key: tag \"a\" cannot have the value \"\""),
        (b"m;a=~b 1 1", "key: tag \"a\" cannot have the value \"~b\""),
        (b"m;a=b;a=c 1 1", "key: label \"a\" is given twice"),
        (b"m\xff 1 1", "key: a path is not valid UTF-8: 'm\u{fffd}'"),
    ] {
        check(line, &format!("1 ! {reason}\n"));
    }
}

#[test]
fn limits_hold() {
    let limits = Limits {
        line_bytes_max: 60,
        tags_max: 2,
        name_bytes_max: 5,
        key_bytes_max: 20,
        rows_max: 2,
        ..Limits::default()
    };
    for (body, expected) in [
        ("m;a=b;c=d 1 1", "1 m{a=\"b\", c=\"d\"} value=1.0 @1000000000\n"),
        ("m;a=b;c=d;e=f 1 1", "1 ! more than 2 tags (tags_max)\n"),
        ("mmmmmm 1 1", "1 ! a name is longer than 5 bytes (name_bytes_max)\n"),
        ("m;aaaaaa=b 1 1", "1 ! a name is longer than 5 bytes (name_bytes_max)\n"),
        ("m;a=bbbbbbbbbbbbbbbbbbbbbbb 1 1", "1 ! path and tags take more than 20 bytes (key_bytes_max)\n"),
        (&format!("m {}1 1", " ".repeat(60)), "1 ! the line is longer than 60 bytes (line_bytes_max)\n"),
    ] {
        assert_eq!(parse_text(body.as_bytes(), &limits), expected);
    }
    let text = parse_text(b"m 1 1\nm 1 2\nm 1 3", &limits);
    assert!(text.ends_with("3 ! the request has more than 2 rows (rows_max); split it\n"), "{text}");
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        rows in vec(("[a-z.ä]{1,20}", proptest::collection::btree_map("[a-z]{1,5}", "[a-z ,=]{1,5}", 0..4), any::<f64>(), 0i64..1 << 33), 0..9),
    ) {
        let (mut body, mut expected) = (String::new(), String::new());
        for (place, (path, tags, value, seconds)) in rows.iter().enumerate() {
            let (value, spelled) = (if value.is_nan() { 0.0 } else { *value }, |text: &String| text.replace([' ', '~'], "_"));
            let tags: Vec<(&String, String)> = tags.iter().map(|(name, value)| (name, spelled(value))).collect();
            let text = tags.iter().map(|(name, value)| format!(";{name}={value}")).collect::<Vec<_>>().concat();
            writeln!(body, "{path}{text} {value:?} {seconds}").unwrap();
            let labels = Labels::from_pairs(tags).unwrap();
            writeln!(expected, "{} {path}{labels} value={value:?} @{}", place + 1, seconds * NS_PER_S).unwrap();
        }
        prop_assert_eq!(parse_text(body.as_bytes(), &Limits::default()), expected);
    }

    #[test]
    fn noise_breaks_nothing(body in vec(prop::sample::select(b"ab.;=~ \t\n\r01-+.eNi\xff\xc3".to_vec()), 0..200)) {
        parse_text(&body, &Limits::default());
    }
}

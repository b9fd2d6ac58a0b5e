//! The grammar as tables, round trips, and hostile input.

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::Protocol;
use crate::batch::render::{HASHER, render};

const NOW_NS: i64 = 7_000_000_123;

fn with_parsed<T>(body: &[u8], precision: Precision, limits: &Limits, use_it: impl FnOnce(&Parsed<'_>) -> T) -> T {
    let options = Options { hasher: HASHER.scope(Protocol::Line, 1), precision, now_ns: NOW_NS, limits };
    use_it(&parse(body, &options).unwrap())
}

fn parsed_text(body: &[u8]) -> String {
    with_parsed(body, Precision::Nanosecond, &Limits::default(), render)
}

#[track_caller]
fn check(body: &str, expected: &[&str]) {
    let text = parsed_text(body.as_bytes());
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{body}");
    // The same again behind a line of its own, whose layout was met before: the guess must change nothing.
    let twice = format!("{body}\n{body}");
    let shift = body.bytes().filter(|byte| *byte == b'\n').count() as u32 + 1;
    let text = parsed_text(twice.as_bytes());
    let again: Vec<String> = text.lines().filter_map(|line| shift_line(line, shift)).collect();
    if !expected.iter().any(|line| line.contains("unbalanced")) {
        assert_eq!(again, expected, "again: {body}");
    }
}

/// The line with its number moved back, if it is behind the first copy of the body.
fn shift_line(line: &str, shift: u32) -> Option<String> {
    let (number, rest) = line.split_once(' ')?;
    let number: u32 = number.parse().ok()?;
    Some(format!("{} {rest}", number.checked_sub(shift).filter(|number| *number > 0)?))
}

#[test]
fn reads_points() {
    check("cpu,host=a,region=eu usage=1.5,idle=2i 10", &[r#"1 cpu{host="a", region="eu"} usage=1.5 idle=2i @10"#]);
    check("cpu value=1", &["1 cpu{} value=1.0 @7000000123"]);
    check("cpu value=1 \r\n", &["1 cpu{} value=1.0 @7000000123"]);
    check("cpu value=1\r\ncpu value=2 5\r\n", &["1 cpu{} value=1.0 @7000000123", "2 cpu{} value=2.0 @5"]);
    check("cpu value=1 -5  \t \n", &["1 cpu{} value=1.0 @-5"]);
    check("  \tcpu   value=1   5", &["1 cpu{} value=1.0 @5"]);
    check("\n\n# a comment, with = signs\n \t# another\ncpu v=1 1", &["5 cpu{} v=1.0 @1"]);
    check(
        "cpu,b=2,a=1 v=1 1\ncpu,a=1,b=2 v=2 1",
        &[r#"1 cpu{a="1", b="2"} v=1.0 @1"#, r#"2 cpu{a="1", b="2"} v=2.0 @1"#],
    );
    check("Größe,straße=länge höhe=1 1", &[r#"1 Größe{straße="länge"} höhe=1.0 @1"#]);
    check("", &[]);
    check("#only", &[]);
}

#[test]
fn reads_every_kind_of_value() {
    check(
        "m a=1,b=-2.5,c=.5,d=5.,e=1e3,f=-1.5E-3,g=12345678901234567890 1",
        &["1 m{} a=1.0 b=-2.5 c=0.5 d=5.0 e=1000.0 f=-0.0015 g=1.2345678901234567e19 @1"],
    );
    check(
        "m a=1i,b=-9223372036854775808i,c=0u,d=18446744073709551615u 1",
        &["1 m{} a=1i b=-9223372036854775808i c=0u d=18446744073709551615u @1"],
    );
    check(
        "m a=t,b=T,c=true,d=True,e=TRUE,f=f,g=F,h=false,i=False,j=FALSE 1",
        &["1 m{} a=true b=true c=true d=true e=true f=false g=false h=false i=false j=false @1"],
    );
    check(
        r#"m a="",b="x y, z=1",c="say \"hi\"",d="back\\slash",e="lit\eral" 1"#,
        &[r#"1 m{} a="" b="x y, z=1" c="say \"hi\"" d="back\\slash" e="lit\\eral" @1"#],
    );
    check("m a=\"two\nlines\" 1\nm a=\"x\" 2", &[r#"1 m{} a="two\nlines" @1"#, r#"3 m{} a="x" @2"#]);
    check(r#"m a="ends in a backslash \\" 1"#, &[r#"1 m{} a="ends in a backslash \\" @1"#]);
    check(r#"m a="ünï" 1"#, &[r#"1 m{} a="ünï" @1"#]);
}

#[test]
fn takes_escapes_as_influxdb_does() {
    check(
        r"my\ meas\,ure,tag\ key\,\==val\ ue\,\= field\ key\,\=\'=1 1",
        &[r#"1 my meas,ure{tag key,=="val ue,="} field key,=\'=1.0 @1"#],
    );
    // Other backslashes stay; an equals sign needs none in a measurement.
    check(r"a\b=c,t\g=v\w f\d=1 1", &[r#"1 a\b=c{t\g="v\\w"} f\d=1.0 @1"#]);
    // Two backslashes do not cancel out: the comma is escaped.
    check(r"a\\,b=c v=1 1", &[r"1 a\,b=c{} v=1.0 @1"]);
    check("m \"quoted\"=1 1", &[r#"1 m{} "quoted"=1.0 @1"#]);
    check("m,t=\"quoted\" v=1 1", &[r#"1 m{t="\"quoted\""} v=1.0 @1"#]);
}

#[test]
fn repeated_fields_leave_the_last() {
    check(
        "m a=1,b=2,a=3 1\nm a=4,b=5 1\nm a=6,b=7,a=8 2\nm a=9,b=10,a=11 3",
        &["1 m{} b=2.0 a=3.0 @1", "2 m{} a=4.0 b=5.0 @1", "3 m{} b=7.0 a=8.0 @2", "4 m{} b=10.0 a=11.0 @3"],
    );
    check("m a=1,a=2i 1", &["1 m{} a=2i @1"]);
    check("m x\\ y=1,x\\ y=2 1", &["1 m{} x y=2.0 @1"]);
}

#[test]
fn layouts_that_alternate_go_to_their_blocks() {
    let body = "cpu a=1,b=2 1\nmem a=1 1\ncpu a=3,b=4 2\nmem a=2 2\ncpu a=5i,b=6 3\ncpu b=7,a=8 4\ncpux a=1,b=2 5\ncpu,h=x a=9,b=1 6";
    check(
        body,
        &[
            "1 cpu{} a=1.0 b=2.0 @1",
            "2 mem{} a=1.0 @1",
            "3 cpu{} a=3.0 b=4.0 @2",
            "4 mem{} a=2.0 @2",
            "5 cpu{} a=5i b=6.0 @3",
            "6 cpu{} b=7.0 a=8.0 @4",
            "7 cpux{} a=1.0 b=2.0 @5",
            r#"8 cpu{h="x"} a=9.0 b=1.0 @6"#,
        ],
    );
    with_parsed(body.as_bytes(), Precision::Nanosecond, &Limits::default(), |parsed| {
        let blocks: Vec<_> =
            parsed.batch.blocks.iter().map(|block| (block.measurement.as_deref(), block.rows())).collect();
        assert_eq!(blocks, [(Some("cpu"), 3), (Some("mem"), 2), (Some("cpu"), 1), (Some("cpu"), 1), (Some("cpux"), 1)]);
    });
}

/// Writes the batch as the store does, block by block, and compares with the lines one by one.
#[track_caller]
fn check_later_wins(lines: &[(u8, u8, u8)]) {
    let mut body = String::new();
    let mut expected = BTreeMap::new();
    for (number, (host, time, fields)) in lines.iter().enumerate() {
        write!(body, "m,h={host}").unwrap();
        for (place, field) in (0..3).filter(|field| fields >> field & 1 == 1).enumerate() {
            let comma = if place == 0 { ' ' } else { ',' };
            write!(body, "{comma}f{field}={number}i").unwrap();
            expected.insert((format!("m,h={host}"), i64::from(*time), format!("f{field}")), number as u64);
        }
        writeln!(body, " {time}").unwrap();
    }
    with_parsed(body.as_bytes(), Precision::Nanosecond, &Limits::default(), |parsed| {
        assert_eq!(parsed.batch.rows(), lines.len());
        let mut found = BTreeMap::new();
        for block in &parsed.batch.blocks {
            assert!(block.lines.is_sorted());
            for row in 0..block.rows() {
                let key = String::from_utf8_lossy(parsed.batch.text(block.keys[row].text)).into_owned();
                for (field, cell) in block.fields.iter().zip(block.row(row)) {
                    found.insert((key.clone(), block.timestamps_ns[row], field.name.clone()), *cell);
                }
            }
        }
        assert_eq!(found, expected, "{body}");
    });
}

#[test]
fn later_lines_win_whatever_their_fields() {
    check_later_wins(&[(0, 1, 0b001), (0, 1, 0b011), (0, 1, 0b001)]);
    check_later_wins(&[(0, 1, 0b001), (1, 1, 0b011), (0, 1, 0b111), (0, 2, 0b001), (1, 1, 0b001), (0, 1, 0b011)]);
}

#[test]
fn says_what_is_wrong_and_keeps_the_rest() {
    let cases = [
        (",host=a v=1 1", "missing measurement"),
        ("cpu", "missing fields"),
        ("cpu ", "missing fields"),
        ("cpu,host=a", "missing fields"),
        ("cpu,host=a  ", "missing fields"),
        ("cpu,host=\"a", "missing fields"),
        ("cpu, v=1", "key: missing tag key"),
        ("cpu,=a v=1", "key: missing tag key"),
        ("cpu,host v=1", "key: missing tag value"),
        ("cpu,host= v=1", "key: missing tag value"),
        ("cpu,host=,a=b v=1", "key: missing tag value"),
        ("cpu,host==a v=1", "key: invalid tag format"),
        ("cpu,host=a=b v=1", "key: invalid tag format"),
        ("cpu,a=1,a=2 v=1", "key: duplicate tags: 'a' is given twice"),
        ("cpu,time=1 v=1", "key: the tag name 'time' is reserved"),
        ("cpu,__name__=x v=1", "key: the tag name '__name__' is reserved"),
        ("cpu time=1", "the field name 'time' is reserved"),
        ("cpu =1", "missing field key"),
        ("cpu a=1,=2", "missing field key"),
        ("cpu a", "invalid field format: a field without '='"),
        ("cpu a=1,b", "invalid field format: a field without '='"),
        ("cpu a=1,", "invalid field format: a field without '='"),
        ("cpu a=", "missing field value"),
        ("cpu a=,b=1", "missing field value"),
        ("cpu a= 1", "missing field value"),
        ("cpu a=1.5i", "invalid number"),
        ("cpu a=1.2.3", "invalid number"),
        ("cpu a=1x", "invalid number"),
        ("cpu a=-", "invalid number"),
        ("cpu a=0x10", "invalid number"),
        ("cpu a=-inf", "invalid number"),
        ("cpu a=1e999", "float out of range"),
        ("cpu a=9223372036854775808i", "integer out of range"),
        ("cpu a=-1u", "invalid number: an unsigned integer has no sign"),
        ("cpu a=NaN", "invalid field value: expected a number, a boolean or a quoted string"),
        ("cpu a=+Inf", "invalid field value: expected a number, a boolean or a quoted string"),
        ("cpu a=hello", "invalid field value: expected a number, a boolean or a quoted string"),
        ("cpu a=tru", "invalid boolean"),
        ("cpu a=truex", "invalid boolean"),
        ("cpu a=\"x\"y", "invalid field format: text behind a closing quote"),
        ("cpu a=1 1x", "bad timestamp"),
        ("cpu a=1 1.5", "bad timestamp"),
        ("cpu a=1 1 2", "bad timestamp"),
        ("cpu a=1 9223372036854775808", "bad timestamp"),
        ("cpu a=\"over\ntwo lines\",b=x 1", "invalid field value: expected a number, a boolean or a quoted string"),
    ];
    for (bad, reason) in cases {
        let lines_before = bad.bytes().filter(|byte| *byte == b'\n').count() + 2;
        let last = format!("{} good{{}} v=2.0 @2", lines_before + 1);
        let expected = ["1 good{} v=1.0 @1".to_owned(), format!("2 ! {reason}"), last];
        check(&format!("good v=1 1\n{bad}\ngood v=2 2"), &expected.each_ref().map(String::as_str));
    }
}

#[test]
fn an_unclosed_quote_costs_its_own_line_only() {
    check("a v=1 1\nb s=\"open 2\na v=3 3\n", &["1 a{} v=1.0 @1", "2 ! unbalanced quotes", "3 a{} v=3.0 @3"]);
    check("b s=\"open\\\" 2", &["1 ! unbalanced quotes"]);
}

#[test]
fn refuses_broken_text() {
    for (body, reason) in [
        (&b"m\xff v=1 1"[..], "1 ! invalid UTF-8 in measurement 'm\u{fffd}'\n"),
        (b"m,t\xff=1 v=1 1", "1 ! key: invalid UTF-8 in tag name 't\u{fffd}'\n"),
        (b"m,t=\xff v=1 1", "1 ! key: invalid UTF-8 in tag value '\u{fffd}'\n"),
        (b"m v\xff=1 1", "1 ! invalid UTF-8 in field name 'v\u{fffd}'\n"),
        (b"m v=\"\xff\" 1", "1 ! invalid UTF-8 in a string\n"),
        (b"m v=\xff 1", "1 ! invalid field value: expected a number, a boolean or a quoted string\n"),
    ] {
        assert_eq!(parsed_text(body), reason);
    }
}

#[test]
fn times_are_scaled_and_checked() {
    let cases = [
        (Precision::Nanosecond, "1", "@1", "@7000000123"),
        (Precision::Microsecond, "1", "@1000", "@7000000000"),
        (Precision::Millisecond, "-1", "@-1000000", "@7000000000"),
        (Precision::Second, "1", "@1000000000", "@7000000000"),
        (Precision::Minute, "1", "@60000000000", "@0"),
        (Precision::Hour, "2", "@7200000000000", "@0"),
    ];
    for (precision, time, expected, now) in cases {
        let body = format!("m v=1 {time}\nm v=2 {time}\nm v=3");
        let text = with_parsed(body.as_bytes(), precision, &Limits::default(), render);
        assert_eq!(text, format!("1 m{{}} v=1.0 {expected}\n2 m{{}} v=2.0 {expected}\n3 m{{}} v=3.0 {now}\n"));
    }
    let body = "m v=1 1\nm v=2 9223372036854775\nm v=3 9223372036854775807\nn v=3 9223372036854775807";
    let text = with_parsed(body.as_bytes(), Precision::Microsecond, &Limits::default(), render);
    let reason = "time outside range -9223372036854775808 - 9223372036854775807 ns";
    assert_eq!(text, format!("1 m{{}} v=1.0 @1000\n2 m{{}} v=2.0 @9223372036854775000\n3 ! {reason}\n4 ! {reason}\n"));
}

#[test]
fn precisions_have_the_names_of_both_interfaces() {
    for (names, precision) in [
        (&["ns", "n"][..], Precision::Nanosecond),
        (&["us", "u", "µ"], Precision::Microsecond),
        (&["ms"], Precision::Millisecond),
        (&["s"], Precision::Second),
        (&["m"], Precision::Minute),
        (&["h"], Precision::Hour),
    ] {
        for name in names {
            assert_eq!(Precision::from_name(name), Some(precision));
        }
    }
    assert_eq!(Precision::from_name("d"), None);
}

#[test]
fn limits_hold() {
    let limits = Limits {
        line_bytes_max: 60,
        tags_max: 2,
        fields_max: 3,
        name_bytes_max: 10,
        key_bytes_max: 40,
        keys_bytes_max: 1000,
        histograms_max: 1,
        exemplars_max: 1,
        layouts_max: 3,
        rows_max: 4,
        metadata_max: 1,
        errors_max: 2,
    };
    let check = |body: &str, expected: &str| {
        let text = with_parsed(body.as_bytes(), Precision::Nanosecond, &limits, render);
        assert_eq!(text, expected, "{body}");
    };
    check("m,a=1,b=2 v=1 1", "1 m{a=\"1\", b=\"2\"} v=1.0 @1\n");
    check("m v=1 1\nm,a=1,b=2,c=3 v=1 1", "1 m{} v=1.0 @1\n2 ! more than 2 tags (tags_max)\n");
    check("m a=1,b=1,c=1 1", "1 m{} a=1.0 b=1.0 c=1.0 @1\n");
    check("m a=1,b=1,c=1,d=1 1", "1 ! more than 3 fields (fields_max)\n");
    check("mmmmmmmmmmm v=1 1", "1 ! the measurement is longer than 10 bytes (name_bytes_max)\n");
    check("m,ttttttttttt=1 v=1 1", "1 ! a tag's name is longer than 10 bytes (name_bytes_max)\n");
    check("m fffffffffff=1 1", "1 ! a field's name is longer than 10 bytes (name_bytes_max)\n");
    let long = "x".repeat(40);
    check(&format!("m,t={long} v=1 1"), "1 ! measurement and tags take more than 40 bytes (key_bytes_max)\n");
    let text = format!("m v=\"x\" 1\nm v=\"{long}{long}\" 1\nm v=\"x\" 2");
    check(&text, "1 m{} v=\"x\" @1\n2 ! the line is longer than 60 bytes (line_bytes_max)\n3 m{} v=\"x\" @2\n");
    let reason = "the request has more than 3 sets of fields (layouts_max); split it";
    check(
        "a v=1 1\nb v=1 1\nc v=1 1\nd v=1 1\na v=2 2",
        &format!("1 a{{}} v=1.0 @1\n2 b{{}} v=1.0 @1\n3 c{{}} v=1.0 @1\n4 ! {reason}\n5 a{{}} v=2.0 @2\n"),
    );
    check(
        "m v=1 1\nm v=1 2\nm v=1 3\nm v=1 4\nm v=1 5",
        "1 m{} v=1.0 @1\n2 m{} v=1.0 @2\n3 m{} v=1.0 @3\n4 m{} v=1.0 @4\n5 ! the request has more than 4 rows (rows_max); split it\n",
    );
    with_parsed(b"x\nx\nx\nx\n", Precision::Nanosecond, &limits, |parsed| {
        assert_eq!((parsed.errors.first.len(), parsed.errors.total), (2, 4));
    });
}

#[test]
fn a_body_of_bad_lines_takes_linear_time() {
    // Each of these once made, or could make, a parser look at the rest of the body again for every line.
    for line in ["a b=\"\\\" \n", "a b=\"\n", "a b=x\"\n", "a\\ \n", "a b=1,\"=\"\n", "\\\n", "a b=\"x\\\n"] {
        let body = line.repeat((1 << 22) / line.len());
        let lines = with_parsed(body.as_bytes(), Precision::Nanosecond, &Limits::default(), |parsed| {
            parsed.errors.total + parsed.batch.rows() as u64
        });
        assert!(lines > 0, "{line:?}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Zä,= \"'\\\\/#.]{1,12}"
        .prop_filter("has a spelling", |name| !name.ends_with('\\') && name != "time" && !name.starts_with(['#', '\t']))
}

fn value() -> impl Strategy<Value = FieldValue<'static>> {
    prop_oneof![
        any::<f64>().prop_filter("finite", |value| value.is_finite()).prop_map(FieldValue::F64),
        any::<i64>().prop_map(FieldValue::I64),
        any::<u64>().prop_map(FieldValue::U64),
        any::<bool>().prop_map(FieldValue::Bool),
        "[a-zä,= \"\\\\\n\r]{0,12}".prop_map(|text| FieldValue::String(text.into())),
    ]
}

type OwnedPoint = (String, Vec<(String, String)>, Vec<(String, FieldValue<'static>)>, Option<i64>);

fn point() -> impl Strategy<Value = OwnedPoint> {
    let unique_tags = vec((name(), name()), 0..4).prop_map(|mut tags| {
        tags.sort();
        tags.dedup_by(|a, b| a.0 == b.0);
        tags
    });
    let unique_fields = vec((name(), value()), 1..5).prop_map(|mut fields| {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        fields.dedup_by(|a, b| a.0 == b.0);
        fields
    });
    (name(), unique_tags, unique_fields, any::<Option<i64>>())
}

fn expected_row(line: usize, (measurement, tags, fields, time): &OwnedPoint) -> String {
    let labels = model::Labels::from_pairs(tags.iter().map(|(name, value)| (name, value))).unwrap();
    let mut text = format!("{line} {measurement}{labels}");
    for (name, value) in fields {
        match value {
            FieldValue::F64(value) => write!(text, " {name}={value:?}"),
            FieldValue::I64(value) => write!(text, " {name}={value}i"),
            FieldValue::U64(value) => write!(text, " {name}={value}u"),
            FieldValue::Bool(value) => write!(text, " {name}={value}"),
            FieldValue::String(value) => write!(text, " {name}={value:?}"),
        }
        .unwrap();
    }
    format!("{text} @{}\n", time.unwrap_or(NOW_NS))
}

fn encode(points: &[OwnedPoint]) -> Vec<u8> {
    let mut body = Vec::new();
    for (measurement, tags, fields, timestamp_ns) in points {
        let tags: Vec<(&str, &str)> = tags.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let fields: Vec<(&str, FieldValue<'_>)> =
            fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
        encode_point(&mut body, &Point { measurement, tags: &tags, fields: &fields, timestamp_ns: *timestamp_ns })
            .unwrap();
    }
    body
}

proptest! {
    #[test]
    fn later_lines_always_win(lines in vec((0..3u8, 0..3u8, 1..8u8), 0..30)) {
        check_later_wins(&lines);
    }

    #[test]
    fn what_is_written_is_read_back(points in vec(point(), 1..6)) {
        // Twice, so that guessed layouts are met too.
        let points = [points.clone(), points].concat();
        let body = encode(&points);
        let mut line = 1;
        let mut expected = String::new();
        for point in &points {
            expected += &expected_row(line, point);
            line += memchr_iter(b'\n', &encode(std::slice::from_ref(point))).count();
        }
        prop_assert_eq!(parsed_text(&body), expected);
    }

    #[test]
    fn batches_are_written_back(points in vec(point(), 1..6)) {
        let points: Vec<OwnedPoint> = points.into_iter().map(|(m, t, f, time)| (m, t, f, Some(time.unwrap_or(1)))).collect();
        let body = encode(&points);
        let (written, count) = with_parsed(&body, Precision::Nanosecond, &Limits::default(), |parsed| {
            let mut out = Vec::new();
            let count = encode_batch(&mut out, &parsed.batch).unwrap();
            (out, count)
        });
        prop_assert_eq!(count, points.len() as u64);
        let sorted = |text: &str| {
            let mut rows: Vec<String> = text.lines().map(|row| row.split_once(' ').unwrap().1.to_owned()).collect();
            rows.sort();
            rows
        };
        prop_assert_eq!(sorted(&parsed_text(&written)), sorted(&parsed_text(&body)));
    }

    #[test]
    fn no_bytes_break_it(
        points in vec(point(), 0..3),
        edits in vec((any::<prop::sample::Index>(), prop_oneof![any::<u8>(), prop::sample::select(b" ,=\"\\\n\r#-.eiutf0".to_vec())]), 0..12),
    ) {
        let mut body = encode(&points);
        body.extend_from_slice(b"tail v=1 1");
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        parsed_text(&body);
    }

    #[test]
    fn noise_breaks_nothing(body in vec(prop::sample::select(b"ab ,=\"\\\n\r#-.eiut01\xff\xc3".to_vec()), 0..200)) {
        parsed_text(&body);
    }
}

#[test]
fn what_has_no_spelling_is_refused() {
    let value = [("v", FieldValue::F64(1.0))];
    let point = Point { measurement: "m", tags: &[], fields: &value, timestamp_ns: Some(1) };
    let no_spelling = |name: &str| EncodeError::NoSpelling(name.to_owned());
    let cases = [
        (Point { measurement: "", ..point.clone() }, no_spelling("")),
        (Point { measurement: "#m", ..point.clone() }, no_spelling("#m")),
        (Point { fields: &[("\ta", FieldValue::Bool(true))], ..point.clone() }, no_spelling("\ta")),
        (Point { measurement: "a\nb", ..point.clone() }, no_spelling("a\nb")),
        (Point { tags: &[("a\\", "b")], ..point.clone() }, no_spelling("a\\")),
        (Point { tags: &[("a", "b\\")], ..point.clone() }, no_spelling("b\\")),
        (Point { tags: &[("time", "b")], ..point.clone() }, no_spelling("time")),
        (Point { fields: &[], ..point.clone() }, EncodeError::NoFields),
        (
            Point { fields: &[("v", FieldValue::F64(f64::NAN))], ..point.clone() },
            EncodeError::NotFinite("v".to_owned()),
        ),
    ];
    for (point, expected) in cases {
        let mut out = b"before".to_vec();
        assert_eq!(encode_point(&mut out, &point), Err(expected));
        assert_eq!(out, b"before");
    }
}

//! Good, bad and hostile write requests.

use std::fmt::Write;

use model::{Labels, MetricKind, MetricMetadata};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::protobuf::{write_bytes, write_varint};
use crate::render::render;
use crate::{KEY_SECRET_BYTES, KeyHasher, Parsed, Protocol};

fn parse_text(body: &[u8], limits: &Limits) -> Result<String, BodyError> {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let options = Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits };
    let request = parse(body, &options)?;
    let metadata: Vec<String> = request.batch.metadata.iter().map(|one| format!("{one:?}\n")).collect();
    let metadata = metadata.concat();
    Ok(render(&Parsed { batch: request.batch, errors: request.errors }) + &metadata)
}

#[track_caller]
fn check(body: &[u8], expected: &str) {
    assert_eq!(parse_text(body, &Limits::default()).unwrap(), expected);
}

fn label(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut label = Vec::new();
    write_bytes(&mut label, 1, name);
    write_bytes(&mut label, 2, value);
    field(1, &label)
}

fn field(number: u32, content: &[u8]) -> Vec<u8> {
    let mut field = Vec::new();
    write_bytes(&mut field, number, content);
    field
}

fn sample(timestamp_ms: i64, value: f64) -> Vec<u8> {
    let mut sample = vec![9];
    sample.extend_from_slice(&value.to_le_bytes());
    sample.push(16);
    write_varint(&mut sample, timestamp_ms as u64);
    field(2, &sample)
}

fn series(parts: &[Vec<u8>]) -> Vec<u8> {
    field(1, &parts.concat())
}

#[test]
fn reads_series_and_metadata() {
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let metadata = [MetricMetadata {
        family: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: "Whether it is up.".to_owned(),
        unit: String::new(),
    }];
    let body = encode(
        &[
            Series { labels: &[("__name__", "up"), ("job", "x")], samples: &[(1, 1.0), (-2, 0.5)] },
            Series { labels: &[("A", "b"), ("__name__", "down"), ("e", "")], samples: &[(3, stale)] },
        ],
        &metadata,
    );
    check(
        &body,
        concat!(
            "1 up{job=\"x\"} value=1.0 @1000000\n",
            "1 up{job=\"x\"} value=0.5 @-2000000\n",
            "2 down{A=\"b\"} value=NaN @3000000\n",
            "MetricMetadata { family: \"up\", kind: Gauge, help: \"Whether it is up.\", unit: \"\" }\n",
        ),
    );
    check(b"", "");
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits: &limits };
    let request = parse(&body, &options).unwrap();
    assert_eq!(request.batch.blocks[0].cells[2], model::STALE_NAN_BITS);
    assert_eq!(request.batch.blocks[0].measurement, None);
}

#[test]
fn labels_in_pieces_are_put_together() {
    let body =
        series(&[label(b"__name__", b"m"), sample(1, 2.0), label(b"a", b"1"), label(b"b", b"2"), sample(2, 3.0)]);
    check(&body, "1 m{a=\"1\", b=\"2\"} value=2.0 @1000000\n1 m{a=\"1\", b=\"2\"} value=3.0 @2000000\n");
}

#[test]
fn a_bad_series_does_not_hurt_the_others() {
    let name = label(b"__name__", b"m");
    let good = series(&[name.clone(), sample(9, 9.0)]);
    let cases: [(Vec<Vec<u8>>, &str); 10] = [
        (vec![], "! key: the series has no metric name (label \"__name__\")"),
        (vec![label(b"a", b"b")], "! key: the series has no metric name (label \"__name__\")"),
        (vec![label(b"__name__", b"")], "! key: the series has no metric name (label \"__name__\")"),
        (vec![name.clone(), label(b"", b"b")], "! key: a label without a name"),
        (
            vec![name.clone(), label(b"b", b"1"), label(b"a", b"1")],
            "! key: labels are not sorted: \"a\" stands behind \"b\"",
        ),
        (vec![name.clone(), label(b"b", b"1"), label(b"b", b"1")], "! key: label \"b\" is given twice"),
        (vec![name.clone(), label(b"b", b"\xff")], "! key: a label is not valid UTF-8: '\u{fffd}'"),
        (vec![name.clone(), label(b"\xff", b"x")], "! key: a label is not valid UTF-8: '\u{fffd}'"),
        (
            vec![name.clone(), field(1, b"\x0a\x7fx")],
            "! key: not a protobuf message: a length beyond its message at byte 17",
        ),
        (vec![name.clone(), label(b"a", &[b'x'; 70_000])], "! the labels take more than 65535 bytes (key_bytes_max)"),
    ];
    for (mut parts, expected) in cases {
        parts.push(sample(1, 1.0));
        let body = [good.clone(), series(&parts), good.clone()].concat();
        check(&body, &format!("1 m{{}} value=9.0 @9000000\n2 {expected}\n3 m{{}} value=9.0 @9000000\n"));
    }
    let body = series(&[name, sample(i64::MAX, 1.0), sample(1, 1.0)]);
    check(&body, "1 m{} value=1.0 @1000000\n1 ! timestamp 9223372036854775807 ms is out of range\n");
}

#[test]
fn what_is_not_stored_is_counted() {
    let body = series(&[label(b"__name__", b"m"), field(3, b""), field(4, b""), field(4, b"")]);
    check(&body, "not stored: 2 native histogram samples and 1 exemplars");
}

#[test]
fn a_broken_message_is_refused_as_a_whole() {
    for (body, what) in [
        (&b"\x0a"[..], "a varint that does not end at byte 1"),
        (b"\x0a\x05abc", "a length beyond its message at byte 0"),
        (b"\x0b\x05", "an unknown wire type at byte 0"),
        (b"\x02\x00", "a field number out of range at byte 0"),
        (b"\x0a\x02\x12\x05", "a length beyond its message at byte 2"),
        (b"\x0a\x04\x12\x02\x09\x00", "a truncated number at byte 5"),
        (b"\x0a\x04\x12\x02\x08\x00", "a sample of the wrong type at byte 4"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a varint that does not end at byte 0"),
    ] {
        let expected = BodyError::Malformed(format!("not a protobuf message: {what}"));
        assert_eq!(parse_text(body, &Limits::default()), Err(expected));
    }
}

#[test]
fn limits_hold() {
    let limits = Limits {
        tags_max: 2,
        name_bytes_max: 12,
        key_bytes_max: 50,
        keys_bytes_max: 1000,
        histograms_max: 1,
        exemplars_max: 1,
        rows_max: 2,
        metadata_max: 1,
        ..Limits::default()
    };
    let cases: [(&[(&str, &str)], &str); 4] = [
        (&[("__name__", "m"), ("a", "b")], "1 m{a=\"b\"} value=1.0 @0\n"),
        (&[("__name__", "m"), ("a", "b"), ("c", "d")], "1 ! more than 2 labels (tags_max)\n"),
        (&[("__name__", "m"), ("aaaaaaaaaaaaa", "b")], "1 ! a name is longer than 12 bytes (name_bytes_max)\n"),
        (&[("__name__", "mmmmmmmmmmmmm")], "1 ! a name is longer than 12 bytes (name_bytes_max)\n"),
    ];
    for (labels, expected) in cases {
        let body = encode(&[Series { labels, samples: &[(0, 1.0)] }], &[]);
        assert_eq!(parse_text(&body, &limits).unwrap(), expected);
    }
    let body = encode(&[Series { labels: &[("__name__", "m")], samples: &[(0, 1.0); 3] }], &[]);
    let row = "1 m{} value=1.0 @0\n";
    let expected = format!("{row}{row}1 ! the request has more than 2 rows (rows_max); split it\n");
    assert_eq!(parse_text(&body, &limits).unwrap(), expected);
}

#[test]
fn unpacks_within_the_bound_and_no_further() {
    let body = vec![b'x'; 10_000];
    let packed = compress(&body);
    assert_eq!(decompress(packed.clone(), 10_000).unwrap(), body);
    assert!(matches!(decompress(packed.clone(), 9_999), Err(BodyError::TooLarge { size_bytes_max: 9_999, .. })));
    for bad in [&b""[..], b"\xff\xff\xff\xff\x0f", &packed[..packed.len() - 1], b"plain text"] {
        assert!(decompress(bad.to_vec(), 1 << 20).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        all in vec((proptest::collection::btree_map("[a-zä]{1,5}", ".{1,9}", 0..5), vec((-1_000_000i64..1 << 40, any::<f64>()), 0..4)), 0..5),
    ) {
        let mut expected = String::new();
        let mut message = Vec::new();
        for (place, (labels, samples)) in all.iter().enumerate() {
            let mut pairs = vec![("__name__", "m")];
            pairs.extend(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
            message.extend(encode(&[Series { labels: &pairs, samples }], &[]));
            let labels = Labels::from_pairs(labels).unwrap();
            for (timestamp_ms, value) in samples {
                writeln!(expected, "{} m{labels} value={value:?} @{}", place + 1, timestamp_ms * 1_000_000).unwrap();
            }
        }
        prop_assert_eq!(parse_text(&message, &Limits::default()).unwrap(), expected);
    }

    #[test]
    fn no_bytes_break_it(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
        let mut body = encode(
            &[Series { labels: &[("__name__", "up"), ("job", "x")], samples: &[(1, 1.0), (2, 2.0)] }; 2],
            &[MetricMetadata { family: "up".to_owned(), ..MetricMetadata::default() }],
        );
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let _ = parse_text(&body, &Limits::default());
        let _ = decompress(body.clone(), 1 << 16);
    }
}

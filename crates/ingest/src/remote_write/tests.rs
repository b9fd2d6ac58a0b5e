//! Good, bad and hostile write requests.

use std::fmt::Write;
use std::sync::Arc;

use model::histogram::{
    BucketSpan, CUSTOM_BUCKETS_SCHEMA, CounterReset, Counts, HistogramCounts, HistogramLayout, NativeHistogram,
};
use model::{Exemplar, Labels, MetricKind, MetricMetadata};
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::batch::render::{HASHER, render};
use crate::protobuf::{write_bytes, write_varint};
use crate::{Parsed, Protocol};

fn parse_text(body: &[u8], limits: &Limits) -> Result<String, BodyError> {
    let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits, dropped_label: None };
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
    let limits = Limits::default();
    let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
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
fn version_1_brings_histograms_and_exemplars() {
    let exemplar = [label(b"trace_id", b"x"), b"\x11\0\0\0\0\0\0\xf8\x3f\x18\x02".to_vec()].concat();
    let sample = encode_histogram(&integer_histogram(), 7);
    let body = series(&[label(b"__name__", b"m"), field(3, &exemplar), field(4, &sample)]);
    let limits = Limits::default();
    let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
    let request = parse(&body, &options).unwrap();
    assert_eq!(request.accepted, AcceptedSamples { samples: 0, histograms: 1, exemplars: 1 });
    assert_eq!(request.batch.histograms, [integer_histogram()]);
    let exemplar = &request.batch.exemplars[0].exemplar;
    assert_eq!(
        (exemplar.labels.to_string().as_str(), exemplar.value, exemplar.timestamp_ns),
        ("{trace_id=\"x\"}", 1.5, 2_000_000)
    );
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

fn histogram(counts: HistogramCounts) -> NativeHistogram {
    let layout = HistogramLayout {
        schema: 3,
        zero_threshold: 1e-9,
        positive_spans: vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }],
        negative_spans: vec![BucketSpan { offset: 1, length: 1 }],
        custom_bounds: Vec::new(),
    };
    NativeHistogram { layout: Arc::new(layout), counter_reset: CounterReset::NoReset, sum: 12.5, counts }
}

fn integer_histogram() -> NativeHistogram {
    histogram(HistogramCounts::Integer(Counts { count: 12, zero_count: 1, positive: vec![5, 2, 3], negative: vec![1] }))
}

fn parse_v2_with<T>(body: &[u8], limits: &Limits, look: impl FnOnce(&WriteRequest<'_>) -> T) -> Result<T, BodyError> {
    parse_v2(body, &Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits, dropped_label: None })
        .map(|request| look(&request))
}

fn text_v2(body: &[u8], limits: &Limits) -> Result<String, BodyError> {
    let request =
        parse_v2(body, &Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits, dropped_label: None })?;
    Ok(render(&Parsed { batch: request.batch, errors: request.errors }))
}

#[test]
fn version_2_brings_everything_at_once() {
    let float = histogram(HistogramCounts::Float(Counts {
        count: 11.5,
        zero_count: 0.5,
        positive: vec![5.0, 2.0, 3.0],
        negative: vec![1.0],
    }));
    let custom = NativeHistogram {
        layout: Arc::new(HistogramLayout {
            schema: CUSTOM_BUCKETS_SCHEMA,
            positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
            custom_bounds: vec![0.5, 1.0],
            ..HistogramLayout::default()
        }),
        counter_reset: CounterReset::Gauge,
        sum: 1.0,
        counts: HistogramCounts::Integer(Counts { count: 3, zero_count: 0, positive: vec![1, 2], negative: vec![] }),
    };
    let exemplar =
        Exemplar { labels: Labels::from_pairs([("trace_id", "abc")]).unwrap(), value: 0.25, timestamp_ns: 3_000_000 };
    let metadata = MetricMetadata {
        family: "lat".to_owned(),
        kind: MetricKind::Histogram,
        help: "Latency.".to_owned(),
        unit: "seconds".to_owned(),
    };
    let labels = [("__name__", "lat"), ("job", "a")];
    let histograms = [(1, integer_histogram()), (2, float), (3, custom)];
    let body = encode_v2(&[
        SeriesV2 {
            labels: &labels,
            histograms: &histograms,
            exemplars: std::slice::from_ref(&exemplar),
            start_ms: 1,
            metadata: Some(&metadata),
            ..SeriesV2::default()
        },
        SeriesV2 { labels: &[("__name__", "up")], samples: &[(5, 1.0), (6, 0.0)], ..SeriesV2::default() },
        SeriesV2 {
            labels: &[("__name__", "lat_bucket")],
            samples: &[(5, 1.0)],
            metadata: Some(&metadata),
            ..SeriesV2::default()
        },
    ]);
    parse_v2_with(&body, &Limits::default(), |request| {
        let batch = &request.batch;
        assert!(request.errors.is_empty(), "{:?}", request.errors);
        assert_eq!(request.accepted, AcceptedSamples { samples: 3, histograms: 3, exemplars: 1 });
        assert_eq!(batch.histograms, histograms.clone().map(|(_, histogram)| histogram));
        assert_eq!(batch.blocks[1].timestamps_ns, [1_000_000, 2_000_000, 3_000_000]);
        assert_eq!(batch.exemplars[0].exemplar, exemplar);
        assert_eq!(batch.start_timestamps[0].start_ns, 1_000_000);
        assert_eq!(batch.metadata, std::slice::from_ref(&metadata), "the family of both series, once");
        let identity = decode_key(batch.text(batch.exemplars[0].key.text)).unwrap();
        assert_eq!((identity.measurement.as_str(), identity.labels.to_string().as_str()), ("lat", r#"{job="a"}"#));
    })
    .unwrap();
}

#[test]
fn both_versions_hash_a_series_alike() {
    for value in ["x".to_owned(), "x".repeat(59), "x".repeat(60), "x".repeat(200), "x".repeat(20_000)] {
        let labels = [("__name__", "up"), ("job", value.as_str())];
        let v1 = encode(&[Series { labels: &labels, samples: &[(1, 1.0)] }], &[]);
        let v2 = encode_v2(&[SeriesV2 { labels: &labels, samples: &[(1, 1.0)], ..SeriesV2::default() }]);
        let limits = Limits::default();
        let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
        let key = |request: WriteRequest<'_>| request.batch.blocks[0].keys[0].hash;
        assert_eq!(key(parse(&v1, &options).unwrap()), key(parse_v2(&v2, &options).unwrap()));
    }
}

#[test]
fn version_2_tells_what_is_wrong() {
    let good: &[(&str, &str)] = &[("__name__", "m"), ("a", "b")];
    let of = |labels| encode_v2(&[SeriesV2 { labels, samples: &[(1, 1.0)], ..SeriesV2::default() }]);
    assert_eq!(text_v2(&of(good), &Limits::default()).unwrap(), "1 m{a=\"b\"} value=1.0 @1000000\n");
    let sample = sample(1, 1.0);
    let series =
        |references: &[u8]| [field(4, b""), field(5, &[field(1, references), sample.clone()].concat())].concat();
    for (body, reason) in [
        (of(&[("a", "b")]), "key: the series has no metric name (label \"__name__\")"),
        (of(&[("a", "b"), ("__name__", "m")]), "key: labels are not sorted: \"__name__\" stands behind \"a\""),
        (series(&[0]), "a label reference without a value"),
        (series(&[0, 9]), "a label refers to a symbol beyond the table's 1"),
        (series(b""), "key: the series has no metric name (label \"__name__\")"),
    ] {
        assert_eq!(text_v2(&body, &Limits::default()).unwrap(), format!("1 ! {reason}\n"));
    }
    let tight = Limits { tags_max: 2, name_bytes_max: 12, key_bytes_max: 60, keys_bytes_max: 100, ..Limits::default() };
    for (labels, reason) in [
        (&[("__name__", "m"), ("a", "b"), ("c", "d")][..], "more than 2 labels (tags_max)"),
        (&[("__name__", "mmmmmmmmmmmmm")], "a name is longer than 12 bytes (name_bytes_max)"),
        (
            &[("__name__", "m"), ("a", "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")],
            "the labels take more than 60 bytes (key_bytes_max)",
        ),
    ] {
        assert_eq!(text_v2(&of(labels), &tight).unwrap(), format!("1 ! {reason}\n"));
    }
    let many = encode_v2(&vec![SeriesV2 { labels: good, samples: &[(1, 1.0)], ..SeriesV2::default() }; 5]);
    assert!(text_v2(&many, &tight).unwrap().ends_with("(keys_bytes_max); split it\n"));
}

#[test]
fn version_2_tells_what_it_drops() {
    let labels: &[(&str, &str)] = &[("__name__", "m")];
    let told = |change: &dyn Fn(&mut SeriesV2<'_>)| {
        let mut series = SeriesV2 { labels, samples: &[(1, 1.0)], ..SeriesV2::default() };
        change(&mut series);
        text_v2(&encode_v2(&[series]), &Limits::default()).unwrap()
    };
    assert_eq!(told(&|series| series.samples = &[]), "1 ! the series has neither samples nor histograms\n");
    let long = [Exemplar {
        labels: Labels::from_pairs([("a", "x".repeat(128).as_str())]).unwrap(),
        value: 1.0,
        timestamp_ns: 0,
    }];
    let body = encode_v2(&[SeriesV2 { labels, samples: &[(1, 1.0)], exemplars: &long, ..SeriesV2::default() }]);
    let found = text_v2(&body, &Limits::default()).unwrap();
    assert!(found.contains("1 ! an exemplar was dropped: its labels have more than 128 characters"), "{found}");

    let symbols = [field(4, b""), field(4, b"__name__"), field(4, b"m")].concat();
    let series =
        |more: &[u8]| [&symbols[..], &field(5, &[&field(1, &[1, 2]), &sample(1, 1.0)[..], more].concat())].concat();
    for (more, dropped) in [
        (field(4, &field(1, &[1, 9])), "an exemplar was dropped: its labels cannot be read"),
        (field(4, &field(1, &[1])), "an exemplar was dropped: its labels cannot be read"),
        (field(5, b"\x08\x01\x18\x09"), "metadata was dropped: it refers to a symbol beyond the table"),
    ] {
        let found = text_v2(&series(&more), &Limits::default()).unwrap();
        assert!(found.contains(&format!("1 ! {dropped}\n")) && found.contains("1 m{} value=1.0"), "{found}");
    }
}

#[test]
fn histograms_that_contradict_themselves_are_told() {
    let told = |change: &dyn Fn(&mut NativeHistogram)| {
        let mut one = integer_histogram();
        change(&mut one);
        let body =
            encode_v2(&[SeriesV2 { labels: &[("__name__", "m")], histograms: &[(1, one)], ..SeriesV2::default() }]);
        text_v2(&body, &Limits::default()).unwrap()
    };
    let counts = |change: fn(&mut Counts<u64>)| {
        move |one: &mut NativeHistogram| {
            if let HistogramCounts::Integer(counts) = &mut one.counts {
                change(counts);
            }
        }
    };
    assert!(told(&|_| {}).starts_with("1 m{} native_histogram="));
    let expected = "1 ! native histogram: 12 observations in buckets, but a count of 13\n";
    assert_eq!(told(&counts(|counts| counts.count = 13)), expected);
    assert!(
        told(&counts(|counts| counts.positive.push(1))).starts_with("1 ! native histogram: number of bucket counts")
    );
    let fine_schema = |one: &mut NativeHistogram| Arc::make_mut(&mut one.layout).schema = 9;
    assert!(told(&fine_schema).starts_with("1 m{} native_histogram="));
    let bad_schema = |one: &mut NativeHistogram| Arc::make_mut(&mut one.layout).schema = 53;
    assert_eq!(told(&bad_schema), "1 ! native histogram: no such schema\n");
    // A stale marker has no counts that could add up.
    let stale = |one: &mut NativeHistogram| one.sum = f64::from_bits(model::STALE_NAN_BITS);
    assert!(
        told(&|one| {
            stale(one);
            counts(|counts| counts.count = 99)(one);
        })
        .starts_with("1 m{} native_histogram=")
    );
    // Spans that claim more buckets than there are bytes cost nothing.
    let huge = |one: &mut NativeHistogram| Arc::make_mut(&mut one.layout).positive_spans[0].length = u32::MAX;
    assert!(told(&huge).starts_with("1 ! native histogram: "));
}

proptest! {
    #[test]
    fn no_bytes_break_version_2(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
        let metadata = MetricMetadata { help: "h".to_owned(), ..MetricMetadata::default() };
        let exemplars = [Exemplar { labels: Labels::empty(), value: 1.0, timestamp_ns: 0 }];
        let mut body = encode_v2(&[SeriesV2 {
            labels: &[("__name__", "up"), ("job", "x")],
            samples: &[(1, 1.0)],
            histograms: &[(1, integer_histogram())],
            exemplars: &exemplars,
            start_ms: 1,
            metadata: Some(&metadata),
        }]);
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let _ = text_v2(&body, &Limits::default());
    }

    #[test]
    fn version_2_is_read_back(
        all in vec((proptest::collection::btree_map("[a-zä]{1,5}", ".{1,9}", 0..5), vec((-1_000_000i64..1 << 40, any::<f64>()), 1..4)), 0..5),
    ) {
        let pairs: Vec<Vec<(&str, &str)>> = all.iter().map(|(labels, _)| {
            std::iter::once(("__name__", "m")).chain(labels.iter().map(|(name, value)| (name.as_str(), value.as_str()))).collect()
        }).collect();
        let series: Vec<SeriesV2<'_>> = all.iter().zip(&pairs).map(|((_, samples), labels)| SeriesV2 { labels, samples, ..SeriesV2::default() }).collect();
        let v1: Vec<Series<'_>> = all.iter().zip(&pairs).map(|((_, samples), labels)| Series { labels, samples }).collect();
        let expected = parse_text(&encode(&v1, &[]), &Limits::default()).unwrap();
        prop_assert_eq!(text_v2(&encode_v2(&series), &Limits::default()).unwrap(), expected);
    }
}

/// Both versions find the replica in the first series, and series lose its label.
#[test]
fn replicas_are_found_and_their_label_is_dropped() {
    let labels = ReplicaLabels { cluster: "cluster".to_owned(), replica: "__replica__".to_owned() };
    let limits = Limits::default();
    let with_label = |pairs: &[(&str, &str)], dropped_label| {
        let options = Options { hasher: HASHER.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label };
        let v1 = encode(&[Series { labels: pairs, samples: &[(1, 2.0)] }], &[]);
        let v2 = encode_v2(&[SeriesV2 { labels: pairs, samples: &[(1, 2.0)], ..SeriesV2::default() }]);
        let text = |request: WriteRequest<'_>| render(&Parsed { batch: request.batch, errors: request.errors });
        let texts = [text(parse(&v1, &options).unwrap()), text(parse_v2(&v2, &options).unwrap())];
        let found = [replica(&v1, &labels).unwrap(), replica_v2(&v2, &labels).unwrap()];
        let found = found.map(|found| found.map(|one| format!("{} {}", one.cluster, one.name)));
        assert_eq!((&texts[0], &found[0]), (&texts[1], &found[1]));
        (texts[0].clone(), found[0].clone())
    };
    let all = [("__name__", "up"), ("__replica__", "a"), ("cluster", "one"), ("why", "__replica__")];
    let kept: Vec<(&str, &str)> = all.iter().copied().filter(|(name, _)| *name != "__replica__").collect();
    let (dropped, found) = with_label(&all, Some("__replica__"));
    assert_eq!((dropped, found.as_deref()), (with_label(&kept, None).0, Some("one a")));
    let (as_sent, found) = with_label(&kept, Some("__replica__"));
    assert_eq!((as_sent, found), (with_label(&kept, None).0, None), "one label alone tells nothing");
    assert_ne!(with_label(&all, None).0, with_label(&kept, None).0);
    assert_eq!((replica(b"", &labels), replica_v2(b"", &labels)), (Ok(None), Ok(None)));
}

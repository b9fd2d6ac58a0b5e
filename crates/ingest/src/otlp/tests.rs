//! Requests as OpenTelemetry's JSON, what becomes of them, and hostile ones.

use std::fmt::Write;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::batch::render::{HASHER, render};
use crate::protobuf::write_bytes;
use crate::{BodyError, Parsed, Protocol};

fn with_request<T>(
    body: &[u8],
    settings: &Settings,
    limits: &Limits,
    look: impl FnOnce(Request<'_>) -> T,
) -> Result<T, BodyError> {
    let deltas = Deltas::new(settings.delta_limits);
    let options = Options { hasher: HASHER.scope(Protocol::Otlp, 1), settings, deltas: &deltas, now_ns: 77, limits };
    parse(body, &options).map(look)
}

fn text_of(body: &[u8], settings: &Settings, limits: &Limits) -> String {
    let text = |request: Request<'_>| {
        let metadata = request.batch.metadata.clone();
        let exemplars: Vec<String> = request
            .batch
            .exemplars
            .iter()
            .map(|one| {
                let identity = decode_key(request.batch.text(one.key.text)).unwrap();
                let exemplar = &one.exemplar;
                format!(
                    "exemplar {}{} {}{} @{}\n",
                    identity.measurement, identity.labels, exemplar.value, exemplar.labels, exemplar.timestamp_ns
                )
            })
            .collect();
        let rows = render(&Parsed { batch: request.batch, errors: request.errors });
        let metadata: Vec<String> = metadata
            .iter()
            .map(|one| format!("{} {} {:?} {:?}\n", one.family, one.kind.name(), one.help, one.unit))
            .collect();
        rows + &exemplars.concat() + &metadata.concat()
    };
    with_request(body, settings, limits, text).unwrap()
}

/// One metric of a service `shop/cart` on host `a`, of a scope `lib` 1.0.
fn request(metric: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[
            {{"key":"service.name","value":{{"stringValue":"cart"}}}},
            {{"key":"service.namespace","value":{{"stringValue":"shop"}}}},
            {{"key":"service.instance.id","value":{{"stringValue":"i1"}}}},
            {{"key":"host.name","value":{{"stringValue":"a"}}}}]}},
          "scopeMetrics":[{{"scope":{{"name":"lib","version":"1.0"}},"metrics":[{metric}]}}]}}]}}"#
    );
    json_to_protobuf(json.as_bytes()).unwrap()
}

/// Without scope labels, to have short lines.
#[track_caller]
fn check(metric: &str, expected: &[&str]) {
    let settings = Settings { scope_labels: false, ..Settings::default() };
    let text = text_of(&request(metric), &settings, &Limits::default());
    let text = text.replace(r#"instance="i1", job="shop/cart""#, "J");
    assert_eq!(text.lines().collect::<Vec<_>>(), expected, "{metric}");
}

#[test]
fn scopes_are_told_apart_by_all_that_identifies_them() {
    let metric = r#"{"name":"m","gauge":{"dataPoints":[{"timeUnixNano":"9","asInt":"1"}]}}"#;
    let scope = |scope: &str, url: &str| {
        format!(r#"{{"scope":{{"name":"lib",{scope}}},"schemaUrl":"{url}","metrics":[{metric}]}}"#)
    };
    let scopes = [
        scope(
            r#""attributes":[{"key":"shard.id","value":{"intValue":"1"}},{"key":"name","value":{"stringValue":"x"}}]"#,
            "",
        ),
        scope(r#""attributes":[{"key":"shard.id","value":{"intValue":"2"}}]"#, ""),
        scope(r#""version":"1""#, "https://a/1"),
    ];
    let json = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{}]}}]}}"#, scopes.join(","));
    let body = json_to_protobuf(json.as_bytes()).unwrap();
    let rows = |settings: &Settings| text_of(&body, settings, &Limits::default());
    let text = rows(&Settings::default());
    assert_eq!(
        text.lines().take(3).collect::<Vec<_>>(),
        [
            r#"1 m{otel_scope_name="lib", otel_scope_shard_id="1"} value=1.0 @9"#,
            r#"2 m{otel_scope_name="lib", otel_scope_shard_id="2"} value=1.0 @9"#,
            r#"3 m{otel_scope_name="lib", otel_scope_schema_url="https://a/1", otel_scope_version="1"} value=1.0 @9"#,
        ]
    );
    let text = rows(&Settings { scope_labels: false, ..Settings::default() });
    assert!(text.starts_with("1 m{} value=1.0 @9\n2 m{} value=1.0 @9\n"), "{text}");
}

const TARGET: &str = r#"1 target_info{host_name="a", J} value=1.0 @9"#;

#[test]
fn gauges_and_sums_are_series() {
    check(
        r#"{"name":"memory.usage","unit":"By","description":"Used.","gauge":{"dataPoints":[{"timeUnixNano":"9","asInt":"-5","attributes":[{"key":"kind","value":{"stringValue":"rss"}}]}]}}"#,
        &[
            r#"1 memory_usage_bytes{J, kind="rss"} value=-5.0 @9"#,
            TARGET,
            r#"memory_usage_bytes gauge "Used." "bytes""#,
        ],
    );
    check(
        r#"{"name":"http.requests","unit":"{request}","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[{"startTimeUnixNano":"3","timeUnixNano":"9","asDouble":1.5}]}}"#,
        &["1 http_requests_total{J} value=1.5 @9", TARGET, r#"http_requests_total counter "" """#],
    );
    check(
        r#"{"name":"queue","sum":{"aggregation_temporality":"AGGREGATION_TEMPORALITY_CUMULATIVE","data_points":[{"time_unix_nano":9,"as_int":7}]}}"#,
        &["1 queue{J} value=7.0 @9", TARGET, r#"queue gauge "" """#],
    );
    check(
        r#"{"name":"gone","gauge":{"dataPoints":[{"timeUnixNano":"9","flags":1},{"timeUnixNano":"8"},{"timeUnixNano":"9","asDouble":"NaN"}]}}"#,
        &[
            "1 gone{J} value=NaN @9",
            "2 ! a data point without a value",
            "3 gone{J} value=NaN @9",
            &TARGET.replace('1', "3").replace("=3.0", "=1.0"),
            r#"gone gauge "" """#,
        ],
    );
}

#[test]
fn histograms_and_summaries_are_classic_series() {
    check(
        r#"{"name":"d","unit":"s","histogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"9","count":"6","sum":2.5,"bucketCounts":["1","2","3"],"explicitBounds":[0.5,1],
            "exemplars":[{"timeUnixNano":"8","asDouble":0.7,"spanId":"00ff","traceId":"AB12","filteredAttributes":[{"key":"u.v","value":{"boolValue":true}}]}]}]}}"#,
        &[
            "1 d_seconds_sum{J} value=2.5 @9",
            "1 d_seconds_count{J} value=6.0 @9",
            r#"1 d_seconds_bucket{J, le="0.5"} value=1.0 @9"#,
            r#"1 d_seconds_bucket{J, le="1"} value=3.0 @9"#,
            r#"1 d_seconds_bucket{J, le="+Inf"} value=6.0 @9"#,
            TARGET,
            r#"exemplar d_seconds_bucket{J, le="1"} 0.7{span_id="00ff", trace_id="ab12", u_v="true"} @8"#,
            r#"d_seconds histogram "" "seconds""#,
        ],
    );
    check(
        r#"{"name":"s","summary":{"dataPoints":[{"timeUnixNano":"9","count":"6","sum":2.5,"quantileValues":[{"quantile":0.5,"value":1.25},{"quantile":1,"value":3}]}]}}"#,
        &[
            "1 s_sum{J} value=2.5 @9",
            "1 s_count{J} value=6.0 @9",
            r#"1 s{J, quantile="0.5"} value=1.25 @9"#,
            r#"1 s{J, quantile="1"} value=3.0 @9"#,
            TARGET,
            r#"s summary "" """#,
        ],
    );
    check(
        r#"{"name":"d","histogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"9","count":"6","bucketCounts":["1","2"],"explicitBounds":[0.5,1]},{"timeUnixNano":"9","count":"3","bucketCounts":["1","2","0"],"explicitBounds":[1,0.5]},{"timeUnixNano":"9","count":"3"}]}}"#,
        &[
            "1 ! histogram: 2 counts of buckets, 2 bounds; there is one count more than ascending bounds",
            "2 ! histogram: 3 counts of buckets, 2 bounds; there is one count more than ascending bounds",
            "3 d_count{J} value=3.0 @9",
            r#"3 d_bucket{J, le="+Inf"} value=3.0 @9"#,
            &TARGET.replacen('1', "3", 1),
            r#"d histogram "" """#,
        ],
    );
}

#[test]
fn exponential_histograms_are_native_ones() {
    let metric = r#"{"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"9","startTimeUnixNano":"4","count":"6","sum":2.5,"scale":3,"zeroCount":1,
        "positive":{"offset":-1,"bucketCounts":["2",3]},"negative":{"bucketCounts":[]}},{"timeUnixNano":"9","count":"7","scale":3,"zeroCount":1}]}}"#;
    with_request(&request(metric), &Settings::default(), &Limits::default(), |request| {
        let histogram = &request.batch.histograms[0];
        let spans = &histogram.layout.positive_spans;
        assert_eq!((histogram.layout.schema, spans[0].offset, spans[0].length), (3, 0, 2));
        assert_eq!(request.batch.start_timestamps[0].start_ns, 4);
        assert_eq!(request.errors.first[0].reason, "native histogram: 1 observations in buckets, but a count of 7");
        assert_eq!((request.points, request.errors.total), (2, 1));
    })
    .unwrap();
}

#[test]
fn delta_temporality_is_refused_or_kept_if_settings_say_so() {
    let metric = r#"{"name":"n","sum":{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[{"timeUnixNano":"9","asInt":"1"},{"timeUnixNano":"9","asInt":"2"}]}}"#;
    let reason = r#"! metric "n" is of delta temporality: send cumulative ones, or set otlp_delta = "cumulate""#;
    let reject = Settings { delta: DeltaPolicy::Reject, ..Settings::default() };
    assert_eq!(text_of(&request(metric), &reject, &Limits::default()), format!("1 {reason}\n2 {reason}\n"));
    let keep = Settings { delta: DeltaPolicy::Keep, scope_labels: false, ..Settings::default() };
    assert!(text_of(&request(metric), &keep, &Limits::default()).starts_with("1 n_total{"));
    check(
        r#"{"name":"n","sum":{"dataPoints":[{"timeUnixNano":"9","asInt":"1"}]}}"#,
        &[r#"1 ! metric "n" has no temporality"#],
    );
}

#[test]
fn settings_decide_on_labels() {
    let metric = r#"{"name":"m.x","unit":"s","gauge":{"dataPoints":[{"timeUnixNano":"9","asInt":"1","attributes":[
        {"key":"a.b","value":{"stringValue":"1"}},{"key":"a_b","value":{"intValue":"2"}},{"key":"empty","value":{}}]}]}}"#;
    let first = |settings: &Settings| {
        let text = text_of(&request(metric), settings, &Limits::default());
        text.lines().next().unwrap().to_owned()
    };
    let common = r#"instance="i1", job="shop/cart""#;
    let scope = r#"otel_scope_name="lib", otel_scope_version="1.0""#;
    assert_eq!(first(&Settings::default()), format!(r#"1 m_x_seconds{{a_b="1;2", {common}, {scope}}} value=1.0 @9"#));
    let promoting = Settings { promoted_attributes: vec!["host.name".to_owned()], ..Settings::default() };
    assert_eq!(
        first(&promoting),
        format!(r#"1 m_x_seconds{{a_b="1;2", host_name="a", {common}, {scope}}} value=1.0 @9"#)
    );
    let plain = Settings { translation: Translation::NoTranslation, scope_labels: false, ..Settings::default() };
    assert_eq!(first(&plain), format!(r#"1 m.x{{a.b="1", a_b="2", {common}}} value=1.0 @9"#));
}

#[test]
fn a_point_without_a_time_is_of_now_and_limits_hold() {
    let metric = |attributes: &str| {
        format!(r#"{{"name":"m","gauge":{{"dataPoints":[{{"asInt":1,"attributes":[{attributes}]}}]}}}}"#)
    };
    let attribute = |name: &str, value: &str| format!(r#"{{"key":"{name}","value":{{"stringValue":"{value}"}}}}"#);
    let limits = Limits { tags_max: 4, name_bytes_max: 12, key_bytes_max: 300, ..Limits::default() };
    let first = |attributes: &str| {
        let text = text_of(&request(&metric(attributes)), &Settings::default(), &limits);
        text.lines().next().unwrap().to_owned()
    };
    assert!(first("").ends_with("@77"));
    let many: Vec<String> = (0..5).map(|place| attribute(&format!("a{place}"), "b")).collect();
    assert_eq!(first(&many.join(",")), "1 ! more than 4 attributes (tags_max)");
    assert_eq!(first(&attribute("aaaaaaaaaaaaa", "b")), "1 ! a name is longer than 12 bytes (name_bytes_max)");
    assert_eq!(first(&attribute("a", &"b".repeat(300))), "1 ! the labels take more than 300 bytes (key_bytes_max)");
    assert!(first(&attribute("", "b")).ends_with("key: an attribute without a name"));
    let tight = Limits { rows_max: 1, keys_bytes_max: 1 << 20, ..Limits::default() };
    let text = text_of(&request(&metric("")), &Settings::default(), &tight);
    assert!(text.contains("! target_info: the request has more than 1 rows (rows_max); split it"), "{text}");
}

#[test]
fn json_has_to_be_json_of_the_right_shape() {
    for bad in [
        "",
        "[]",
        "{",
        r#"{"resourceMetrics":1}"#,
        r#"{"resourceMetrics":[{"resource":"x"}]}"#,
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":7}]}]}]}"#,
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[{"timeUnixNano":"soon"}]}}]}]}]}"#,
        r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"gauge":{"dataPoints":[{"timeUnixNano":18446744073709551616}]}}]}]}]}"#,
        &(r#"{"resourceMetrics":"#.to_owned() + &"[".repeat(100_000)),
        &format!(
            r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"value":{}"#,
            r#"{"arrayValue":{"values":["#.repeat(50_000)
        ),
    ] {
        let error = json_to_protobuf(bad.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("not OTLP's JSON: "), "{error}");
    }
    assert_eq!(json_to_protobuf(br#"{"other":[{"x":[1,2]}],"resourceMetrics":null}"#).unwrap(), b"");
}

#[test]
fn answers_are_as_the_specification_has_them() {
    let partial = Answer { points_rejected: 2, message: "a \"b\"".to_owned() };
    let json = r#"{"partialSuccess":{"rejectedDataPoints":"2","errorMessage":"a \"b\""}}"#;
    assert_eq!((partial.to_json().as_str(), Answer::default().to_json().as_str()), (json, "{}"));
    assert_eq!(partial.to_protobuf(), b"\x0a\x09\x08\x02\x12\x05a \"b\"");
    assert_eq!(Answer::default().to_protobuf(), b"");
}

proptest! {
    #[test]
    fn gauges_are_read_back(
        points in vec((proptest::collection::btree_map("[a-z]{1,4}", ".{1,6}", 0..4), any::<f64>(), 1u64..1 << 60), 1..6),
    ) {
        let attributes: Vec<Vec<(&str, &str)>> = points.iter().map(|(labels, ..)| {
            labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
        }).collect();
        let encoded: Vec<NumberPoint<'_>> = points.iter().zip(&attributes).map(|((_, value, time_ns), attributes)| {
            NumberPoint { attributes, time_ns: *time_ns, value: *value }
        }).collect();
        let body = encode_gauge(&[], "", "m", "", &encoded);
        let mut expected = String::new();
        for (place, (labels, value, time_ns)) in points.iter().enumerate() {
            let labels = model::Labels::from_pairs(labels).unwrap();
            writeln!(expected, "{} m{labels} value={value:?} @{time_ns}", place + 1).unwrap();
        }
        expected += "m gauge \"\" \"\"\n";
        prop_assert_eq!(text_of(&body, &Settings::default(), &Limits::default()), expected);
    }

    #[test]
    fn no_bytes_break_it(edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
        let mut body = request(
            r#"{"name":"d","histogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"9","count":"6","sum":2.5,"bucketCounts":["1","2","3"],"explicitBounds":[0.5,1],"exemplars":[{"asInt":1,"spanId":"00"}]}]}},
               {"name":"e","exponentialHistogram":{"aggregationTemporality":2,"dataPoints":[{"timeUnixNano":"9","count":"5","scale":20,"positive":{"offset":-1,"bucketCounts":["2","3"]}}]}},
               {"name":"s","summary":{"dataPoints":[{"timeUnixNano":"9","quantileValues":[{"quantile":0.5,"value":1.25}]}]}}"#,
        );
        for (place, byte) in edits {
            let place = place.index(body.len());
            body[place] = byte;
        }
        let _ = with_request(&body, &Settings::default(), &Limits::default(), |request| {
            let keys = request.batch.blocks.iter().flat_map(|block| &block.keys);
            keys.filter(|key| decode_key(request.batch.text(key.text)).is_ok()).count()
        });
    }

    #[test]
    fn no_key_breaks_the_decoder(key in vec(any::<u8>(), 0..60)) {
        let _ = decode_key(&key);
    }
}

#[test]
fn attributes_nested_without_end_are_refused() {
    let mut value = Vec::new();
    for _ in 0..2000 {
        let mut outer = Vec::new();
        write_bytes(&mut outer, 1, &value);
        let mut list = Vec::new();
        write_bytes(&mut list, 5, &outer);
        value = list;
    }
    let mut pair = b"\x0a\x01k".to_vec();
    write_bytes(&mut pair, 2, &value);
    let mut key = vec![4, 0, 10, 1, b'm'];
    write_bytes(&mut key, 7, &pair);
    assert_eq!(decode_key(&key).unwrap_err(), "an attribute is nested more than 16 levels deep");
}

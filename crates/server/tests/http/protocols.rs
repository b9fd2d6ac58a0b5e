//! Protocols of HTTP: OpenTelemetry, remote write 2.0, InfluxDB 3, OpenTSDB, lines of JSON, CSV.

use ingest::otlp::{DeltaPolicy, NumberPoint, encode_gauge};
use ingest::remote_write::{SeriesV2, compress, encode_v2};
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout, NativeHistogram};
use model::{Exemplar, Labels};

use crate::harness::{Answer, Running};

#[track_caller]
fn check(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status, answer.body.as_str()), (status, body));
}

const REMOTE_WRITE_2: [(&str, &str); 3] = [
    ("content-encoding", "snappy"),
    ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
    ("x-prometheus-remote-write-version", "2.0.0"),
];

fn written(answer: &Answer) -> [&str; 3] {
    ["samples", "histograms", "exemplars"]
        .map(|kind| answer.header(&format!("x-prometheus-remote-write-{kind}-written")))
}

#[test]
fn remote_write_2_tells_what_it_wrote() {
    let server = Running::start();
    let layout = HistogramLayout {
        schema: 0,
        zero_threshold: 1e-9,
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        ..HistogramLayout::default()
    };
    let counts = Counts { count: 3, zero_count: 0, positive: vec![1, 2], negative: Vec::new() };
    let histogram = NativeHistogram {
        layout: std::sync::Arc::new(layout),
        counter_reset: CounterReset::Unknown,
        sum: 4.5,
        counts: HistogramCounts::Integer(counts),
    };
    let exemplars = [Exemplar {
        labels: Labels::from_pairs([("trace_id", "t1")]).unwrap(),
        value: 1.5,
        timestamp_ns: 1_000_000_000,
    }];
    let up = SeriesV2 { labels: &[("__name__", "up"), ("job", "a")], samples: &[(1000, 1.0)], ..SeriesV2::default() };
    let latency = [(1000, histogram)];
    let mixed = SeriesV2 {
        labels: &[("__name__", "mixed")],
        samples: &[(500, 1.0), (1500, 2.0)],
        histograms: &latency,
        ..SeriesV2::default()
    };
    let latency = SeriesV2 {
        labels: &[("__name__", "latency")],
        histograms: &latency,
        exemplars: &exemplars,
        start_ms: 500,
        ..SeriesV2::default()
    };
    let body = compress(&encode_v2(&[up.clone(), latency, mixed]));
    let answer = server.send("POST", "/api/v1/write", &REMOTE_WRITE_2, body);
    check(&answer, 204, "");
    assert_eq!(written(&answer), ["3", "2", "1"]);
    assert!(server.result("default", "up", 1).contains(r#""job":"a""#));
    for name in ["latency", "mixed", "{__name__=~\"lat.*\"}"] {
        let found = server.result("default", name, 1);
        assert!(found.contains(r#""histogram":[1,{"count":"3","sum":"4.5""#), "{name}: {found}");
    }
    let count = r#"[{"metric":{},"value":[2,"3"]}]"#;
    assert_eq!(server.result("default", "count_over_time(mixed[5s])", 2), count);

    let nameless = SeriesV2 { labels: &[("job", "a")], samples: &[(1000, 1.0), (2000, 1.0)], ..SeriesV2::default() };
    let answer = server.send("POST", "/api/v1/write", &REMOTE_WRITE_2, compress(&encode_v2(&[nameless, up])));
    assert_eq!((answer.status, written(&answer)), (400, ["1", "0", "0"]));
    assert!(answer.body.contains("partial write: line 1: the series has no metric name"), "{}", answer.body);
}

#[test]
fn line_protocol_of_influxdb_3() {
    let server = Running::start();
    let path = "/api/v3/write_lp?db=three";
    // The unit of each line follows from its size.
    check(
        &server.post(path, "a v=1 1700000000\na v=2 1700000001000\na v=3 1700000002000000\na v=4 1700000003000000000"),
        204,
        "",
    );
    for (second, value) in [(1_700_000_000, 1), (1_700_000_001, 2), (1_700_000_002, 3), (1_700_000_003, 4)] {
        assert!(server.result("three", "a_v", second).contains(&format!(r#""{value}""#)));
    }
    check(&server.post(&format!("{path}&precision=second&no_sync=true"), "b v=1 5"), 204, "");
    assert!(server.result("three", "b_v", 5).contains(r#""1""#));
    let line = r#"{"original_line":"bad v=","line_number":2,"error_message":"missing field value"}"#;
    let answer = server.post(path, "c v=1 1700000000\nbad v=");
    check(&answer, 400, &format!(r#"{{"error":"partial write of line protocol occurred","data":[{line}]}}"#));
    assert!(server.result("three", "c_v", 1_700_000_000).contains(r#""1""#));
    let answer = server.post(&format!("{path}&accept_partial=false"), "d v=1 1700000000\nbad v=");
    check(&answer, 400, &format!(r#"{{"error":"parsing failed for write_lp endpoint","data":[{line}]}}"#));
    assert_eq!(server.result("three", "d_v", 1_700_000_000), "[]");
    check(&server.post("/api/v3/write_lp", "a v=1"), 400, r#"{"error":"invalid parameter \"db\": it is missing"}"#);
    assert_eq!(server.post(&format!("{path}&precision=fortnight"), "a v=1").status, 400);
}

#[test]
fn opentelemetry_by_protobuf_and_json() {
    let server = Running::start();
    let point = NumberPoint { attributes: &[("http.route", "/x")], time_ns: 1_000_000_000, value: 2.5 };
    let resource = [("service.name", "cart"), ("host.name", "h1")];
    let body = encode_gauge(&resource, "lib", "queue.length", "1", &[point]);
    let protobuf = [("content-type", "application/x-protobuf")];
    for path in ["/v1/metrics", "/api/v1/otlp/v1/metrics?db=other"] {
        let answer = server.send("POST", path, &protobuf, &body);
        check(&answer, 200, "");
        assert_eq!(answer.header("content-type"), "application/x-protobuf");
    }
    let expected = r#"[{"metric":{"__name__":"queue_length_ratio","http_route":"/x","job":"cart","otel_scope_name":"lib"},"value":[1,"2.5"]}]"#;
    assert_eq!(server.result("default", "queue_length_ratio", 1), expected);
    assert_eq!(server.result("other", "queue_length_ratio", 1), expected);
    let info = r#"[{"metric":{"__name__":"target_info","host_name":"h1","job":"cart"},"value":[1,"1"]}]"#;
    assert_eq!(server.result("default", "target_info", 1), info);

    let json = [("content-type", "application/json; charset=utf-8")];
    let metric = |temporality: u8| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"n","sum":{{"aggregationTemporality":{temporality},"isMonotonic":true,"dataPoints":[{{"timeUnixNano":"2000000000","asInt":"7"}}]}}}}]}}]}}]}}"#
        )
    };
    let answer = server.send("POST", "/v1/metrics", &json, metric(2));
    check(&answer, 200, "{}");
    assert!(server.result("default", "n_total", 2).contains(r#""7""#));
    let answer = server.send("POST", "/v1/metrics", &json, metric(0));
    assert_eq!(answer.status, 200);
    assert!(
        answer.body.starts_with(r#"{"partialSuccess":{"rejectedDataPoints":"1","errorMessage":"data point 1: metric "#),
        "{}",
        answer.body
    );

    let answer = server.send("POST", "/v1/metrics", &json, "{");
    assert_eq!(answer.status, 400);
    assert!(answer.body.starts_with(r#"{"code":3,"message":"not OTLP's JSON: "#), "{}", answer.body);
    assert_eq!(server.send("POST", "/v1/metrics", &protobuf, "\x0a\x05").status, 400);
    assert_eq!(server.send("POST", "/v1/metrics", &[("content-type", "text/plain")], "x").status, 415);
}

/// A request of a sum of delta temporality, by JSON.
fn delta(start_s: u64, time_s: u64, value: u32) -> String {
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"name":"n","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[
          {{"startTimeUnixNano":"{start_s}000000000","timeUnixNano":"{time_s}000000000","asInt":"{value}"}}]}}}}]}}]}}]}}"#
    )
}

#[test]
fn opentelemetry_deltas_are_added_up() {
    let server = Running::start();
    let json = [("content-type", "application/json")];
    let send = |body: String| server.send("POST", "/v1/metrics", &json, body);
    for (start_s, time_s, value) in [(100, 110, 5), (110, 120, 7), (110, 120, 7), (130, 140, 1)] {
        check(&send(delta(start_s, time_s, value)), 200, "{}");
    }
    let answer = send(delta(100, 110, 5));
    assert!(
        answer.body.contains("data point 1: a delta from 100000000000 to 110000000000 came after"),
        "{}",
        answer.body
    );
    for (time_s, total) in [(110, "5"), (120, "12"), (140, "13")] {
        let result = server.result("default", "n_total", time_s);
        assert!(result.contains(&format!(r#","{total}"]"#)), "{result}");
    }
    let metrics = server.get("/metrics").body;
    for line in ["series 1", "gaps_total 1", "out_of_order_total 1", "stale_total 0"] {
        assert!(metrics.contains(&format!("\nthalweg_otlp_delta_{line}\n")), "{line}");
    }
    // Another database has sums of its own.
    let answer = server.send("POST", "/v1/metrics?db=other", &json, delta(100, 110, 2));
    check(&answer, 200, "{}");
    assert!(server.result("other", "n_total", 110).contains(r#""2""#));
}

#[test]
fn opentelemetry_deltas_are_kept_or_refused_if_settings_say_so() {
    let json = [("content-type", "application/json")];
    for (policy, expected) in [(DeltaPolicy::Keep, "{}"), (DeltaPolicy::Reject, "otlp_delta")] {
        let server = Running::start_with(|settings| settings.otlp.delta = policy);
        for value in [5, 7] {
            let answer = server.send("POST", "/v1/metrics", &json, delta(100, 110 + u64::from(value), value));
            assert!(answer.body.contains(expected), "{}", answer.body);
        }
        let is_kept = server.result("default", "n_total", 117).contains(r#""7""#);
        assert_eq!(is_kept, policy == DeltaPolicy::Keep);
    }
}

#[test]
fn opentelemetry_deltas_of_many_connections_add_up() {
    let server = Running::start();
    std::thread::scope(|scope| {
        for series in 0..4 {
            let server = &server;
            scope.spawn(move || {
                for step in 0..25 {
                    let body = delta(100 + step, 101 + step, 2).replace(r#""n""#, &format!(r#""n{series}""#));
                    let json = [("content-type", "application/json")];
                    check(&server.send("POST", "/v1/metrics", &json, body), 200, "{}");
                }
            });
        }
    });
    for series in 0..4 {
        assert!(server.result("default", &format!("n{series}_total"), 125).contains(r#""50""#));
    }
}

#[test]
fn opentsdb_answers_as_much_as_is_asked() {
    let server = Running::start();
    let good = r#"{"metric":"sys.load","timestamp":1,"value":1.5,"tags":{"host":"a"}}"#;
    let bad = r#"{"metric":"sys.load","timestamp":1,"value":"x","tags":{"host":"a"}}"#;
    check(&server.post("/api/put", good), 204, "");
    check(&server.post("/api/put?summary", format!("[{good},{good}]")), 200, r#"{"failed":0,"success":2}"#);
    let answer = server.post("/api/put?details", format!("[{good},{bad}]"));
    let error = r#"{"datapoint":2,"error":"Unable to parse value to a number"}"#;
    check(&answer, 400, &format!(r#"{{"errors":[{error}],"failed":1,"success":1}}"#));
    let answer = server.post("/api/put", bad);
    assert_eq!(answer.status, 400);
    assert!(
        answer.body.starts_with(r#"{"error":{"code":400,"message":"One or more data points had errors""#),
        "{}",
        answer.body
    );
    assert!(answer.body.ends_with("}}"));
    assert_eq!(server.post("/api/put", "{").status, 400);
    let expected = r#"[{"metric":{"__name__":"sys.load","host":"a"},"value":[1,"1.5"]}]"#;
    assert_eq!(server.result("default", r#"{__name__="sys.load"}"#, 1), expected);
}

#[test]
fn json_lines_and_csv_are_imported() {
    let server = Running::start();
    let lines =
        "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"values\":[1,0],\"timestamps\":[1000,2000]}\nnonsense\n";
    let answer = server.post("/api/v1/import", lines);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("partial write: line 2: expected ident"), "{}", answer.body);
    assert!(server.result("default", "up", 2).contains(r#""0""#));

    let csv = "when,station,level\n1,north,2.5\n2,north,x\n2,south,3.5\n";
    let path = "/api/v1/import/csv?measurement=river&time=when&time_format=s&tag=station";
    let answer = server.post(&format!("{path}&field=level:float"), csv);
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("line 3"), "{}", answer.body);
    let expected = r#"[{"metric":{"__name__":"river_level","station":"south"},"value":[2,"3.5"]}]"#;
    assert_eq!(server.result("default", "river_level{station=\"south\"}", 2), expected);
    assert_eq!(server.post("/api/v1/import/csv", csv).status, 400);
}

/// In each protocol's way: the row that retention would take at once is told, the other one is written.
#[test]
fn rows_beyond_the_retention_are_told_in_every_protocol() {
    let server = Running::start();
    assert_eq!(server.send("PUT", "/api/v1/admin/databases/short", &[], r#"{"retention":"1d"}"#).status, 200);
    let now_s = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let old_s = now_s - 3 * 86_400;
    let requests = [
        ("/write?db=short&precision=s", format!("line v=1 {old_s}\nline v=2 {now_s}"), 400),
        ("/api/put?db=short&details", opentsdb(&[old_s, now_s]), 400),
        ("/api/v1/import/prometheus?db=short", format!("text 1 {old_s}000\ntext 2 {now_s}000\n"), 400),
        (
            "/api/v1/import/csv?db=short&measurement=csv&time=t&time_format=s&field=v",
            format!("t,v\n{old_s},1\n{now_s},2\n"),
            400,
        ),
    ];
    for (rejected, (path, body, status)) in (1..).zip(requests) {
        let answer = server.post(path, body);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains("points beyond retention policy"), "{path}: {}", answer.body);
        server.wait_for_metric(&format!("thalweg_rejected_total{{reason=\"row refused by the store\"}} {rejected}"));
    }
    for metric in ["line_v", "sent", "text", "csv_v"] {
        let counted = server.result("short", &format!("count_over_time({metric}[7d])"), now_s as i64 + 1);
        assert!(counted.contains(r#","1"]"#), "{metric}: {counted}");
    }
    let answer = server.post("/write?db=short&precision=s", format!("line v=1 {old_s}"));
    assert!(!answer.body.contains("unable to parse"), "its spelling is right: {}", answer.body);
}

/// Points of one metric, of OpenTSDB's form.
fn opentsdb(seconds: &[u64]) -> String {
    let point = |second: &u64| format!(r#"{{"metric":"sent","timestamp":{second},"value":1,"tags":{{"host":"a"}}}}"#);
    format!("[{}]", seconds.iter().map(point).collect::<Vec<_>>().join(","))
}

#[test]
fn limits_are_named_and_counted() {
    let server = Running::start_with(|settings| {
        settings.ahead_ms_max = 1000;
        settings.unpacked_ratio_max = 2;
        settings.bodies_bytes_max = 4 << 20;
    });
    let answer = server.post("/write", format!("late v=1 1\nearly v=1 {}", i64::MAX));
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("ahead of the server's clock (ahead_ms_max)"), "{}", answer.body);
    server.wait_for_metric("thalweg_rejected_total{reason=\"ahead_ms_max\"} 1");
    let tags = (0..200).map(|tag| format!(",t{tag}=x")).collect::<Vec<_>>().concat();
    assert!(server.post("/write", format!("m{tags} v=1")).body.contains("(tags_max)"));
    server.wait_for_metric("thalweg_rejected_total{reason=\"tags_max\"} 1");

    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, &vec![b'\n'; 2 << 20]).unwrap();
    let answer = server.send("POST", "/write", &[("content-encoding", "gzip")], packed.finish().unwrap());
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("unpacked_ratio_max"), "{}", answer.body);

    let answer = server.post("/write", vec![b'\n'; 5 << 20]);
    assert_eq!(answer.status, 413, "alone it is more than all may have: it would never be taken");
    assert!(answer.body.contains("bodies_bytes_max"), "{}", answer.body);
    assert_eq!(server.post("/write", "small v=1").status, 204, "what was held is given back");
}

#[test]
fn bodies_may_be_packed_by_zstd() {
    let server = Running::start();
    // `zstd` of "a v=1 1000000000", as its program writes it without a checksum: one raw block.
    let text = b"a v=1 1000000000";
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x20, text.len() as u8];
    let header = 1 | (text.len() as u32) << 3;
    frame.extend_from_slice(&header.to_le_bytes()[..3]);
    frame.extend_from_slice(text);
    check(&server.send("POST", "/write", &[("content-encoding", "zstd")], frame), 204, "");
    assert!(server.result("default", "a_v", 1).contains(r#""1""#));
}

#[test]
fn without_partial_writes_a_conflict_of_types_writes_nothing() {
    let server = Running::start();
    let path = "/api/v3/write_lp?db=whole&precision=second&accept_partial=false";
    assert_eq!(server.post(path, "m a=1,b=2i 1").status, 204);
    for (body, reason) in [
        ("n v=1 1\nm a=2,b=2.5 2", "already exists as type"),
        ("n v=1 1\nm new=1,b=\"x\" 2", "already exists as type"),
        ("n v=1 1\nn v=2i 2", "earlier in the request"),
    ] {
        let answer = server.post(path, body);
        assert_eq!(answer.status, 400, "{body}: {}", answer.body);
        assert!(answer.body.contains("field type conflict") && answer.body.contains(reason), "{}", answer.body);
        assert_eq!(server.result("whole", "{__name__=~\"n_v|m_new\"}", 3), "[]", "{body}");
    }
    assert_eq!(server.post(path, "n v=1 1").status, 204);
    assert_ne!(server.result("whole", "n_v", 3), "[]");
}

#[test]
fn csv_by_places_as_victoriametrics_has_it() {
    let server = Running::start();
    let format = "1:label:station,2:metric:level,3:metric:flow,4:time:unix_s";
    let format: String = form_urlencoded::byte_serialize(format.as_bytes()).collect();
    let path = format!("/api/v1/import/csv?format={format}&extra_label=river=rhine");
    assert_eq!(server.post(&path, "north,3,1.5,100\nsouth,4,,100\n").status, 204);
    let flow = r#"[{"metric":{"__name__":"flow","river":"rhine","station":"north"},"value":[100,"1.5"]}]"#;
    assert_eq!(server.result("default", "flow", 100), flow);
    assert!(server.result("default", "sum(level)", 100).contains(r#""7""#));
    let answer = server.post(&path, "north,3,1.5,120\nsouth,four,,120\n");
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("line 2: column"), "{}", answer.body);
    assert!(server.result("default", "sum(level)", 120).contains(r#""7""#), "the good row is written");
    let long = format!("format=1:metric:{}", "a".repeat(2000));
    for bad in ["format=1:label:a", "format=1:metric:a,2:time:noon", "format=1:metric:a&extra_label=b", &long] {
        let answer = server.post(&format!("/api/v1/import/csv?{bad}"), "1\n");
        assert_eq!(answer.status, 400, "{bad}");
    }
}

//! The rest of Prometheus's API: samples as they are, and what the server tells of itself.

use std::fmt::Write;

use ingest::remote_write::{SeriesV2, compress, encode_v2};
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout, NativeHistogram};
use serde_json::{Value, json};

use crate::harness::Running;

fn encoded(text: &str) -> String {
    let mut out = String::new();
    text.bytes().for_each(|byte| write!(out, "%{byte:02X}").unwrap());
    out
}

fn data(server: &Running, path: &str) -> Value {
    let answer = server.get(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    serde_json::from_str::<Value>(&answer.body).unwrap()["data"].clone()
}

fn histogram() -> NativeHistogram {
    let layout = HistogramLayout {
        schema: 0,
        zero_threshold: 1e-9,
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        ..HistogramLayout::default()
    };
    NativeHistogram {
        layout: layout.into(),
        counter_reset: CounterReset::Unknown,
        sum: 4.5,
        counts: HistogramCounts::Integer(Counts {
            count: 3,
            zero_count: 0,
            positive: vec![1, 2],
            negative: Vec::new(),
        }),
    }
}

/// Floats of all kinds, a stale marker, a native histogram, and names beyond the old alphabet.
fn write_samples(server: &Running, at_ms: i64) {
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let histograms = [(at_ms, histogram())];
    let series = [
        SeriesV2 {
            labels: &[("__name__", "up"), ("job", "a\"b\\\n")],
            samples: &[(at_ms - 2000, 0.1), (at_ms - 1000, f64::INFINITY), (at_ms, -2.5)],
            ..SeriesV2::default()
        },
        SeriesV2 {
            labels: &[("__name__", "up"), ("job", "gone")],
            samples: &[(at_ms - 1000, 1.0), (at_ms, stale)],
            ..SeriesV2::default()
        },
        SeriesV2 {
            labels: &[("__name__", "läuft.gut"), ("läbel", "x")],
            samples: &[(at_ms, 3.0)],
            ..SeriesV2::default()
        },
        SeriesV2 { labels: &[("__name__", "latency")], histograms: &histograms, ..SeriesV2::default() },
    ];
    let headers = [
        ("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
        ("content-encoding", "snappy"),
    ];
    let answer = server.send("POST", "/api/v1/write", &headers, compress(&encode_v2(&series)));
    assert_eq!(answer.status, 204, "{}", answer.body);
}

#[test]
fn exports_are_imported_again() {
    let server = Running::start();
    write_samples(&server, 10_000);
    let all = encoded("{__name__=~\".+\"}");
    let lines = server.get(&format!("/api/v1/export?match[]={all}"));
    let up = r#"{"metric":{"__name__":"up","job":"a\"b\\\n"},"values":[0.1,"Infinity",-2.5],"timestamps":[8000,9000,10000]}"#;
    assert!(lines.body.lines().any(|line| line == up), "{}", lines.body);
    assert_eq!(lines.body.lines().count(), 3, "{}", lines.body);
    let part = server.get("/api/v1/export?match[]=up&start=8.5&end=9");
    let [first, second] = part.body.lines().collect::<Vec<_>>().try_into().unwrap();
    assert!(first.ends_with(r#""values":["Infinity"],"timestamps":[9000]}"#), "{first}");
    assert!(second.ends_with(r#""values":[1],"timestamps":[9000]}"#), "{second}");
    assert_eq!(server.post("/api/v1/import?db=lines", &lines.body).status, 204);
    let again = server.get(&format!("/api/v1/export?db=lines&match[]={all}"));
    assert_eq!(again.body, lines.body);

    let native = server.get_bytes(&format!("/api/v1/export/native?match[]={all}"));
    assert_eq!(server.post("/api/v1/import/native?db=native", &native).status, 204);
    assert_eq!(server.get_bytes(&format!("/api/v1/export/native?db=native&match[]={all}")), native);
    let found = server.result("native", "latency", 10);
    assert!(found.contains(r#""histogram":[10,{"count":"3","sum":"4.5""#), "{found}");
    // The stale marker came along.
    assert_eq!(server.result("native", "up{job=\"gone\"}", 10), "[]");
    assert_eq!(server.result("native", "count({__name__=~\".+\"})", 10), r#"[{"metric":{},"value":[10,"3"]}]"#);
    let cut = server.post("/api/v1/import/native?db=native", &native[..native.len() - 1]);
    assert_eq!(cut.status, 400);
    assert!(cut.body.contains("the block at byte 0 is cut off"), "{}", cut.body);
    for path in ["/api/v1/export", "/api/v1/export/native", "/federate"] {
        assert_eq!(server.get(path).status, 400, "{path}");
    }
}

#[test]
fn rows_of_csv_are_imported_again() {
    let server = Running::start();
    write_samples(&server, 10_000);
    let (selector, format) = (encoded("up{job!=\"gone\"}"), encoded("job,__value__,__timestamp__:unix_ms"));
    let answer = server.get(&format!("/api/v1/export/csv?match[]={selector}&format={format}"));
    assert!(answer.header("content-type").starts_with("text/csv"));
    let job = "\"a\"\"b\\\n\"";
    assert_eq!(answer.body, format!("{job},0.1,8000\n{job},+Inf,9000\n{job},-2.5,10000\n"));
    let line = r#"{"metric":{"__name__":"up","job":"a,b"},"values":[1.5,-2],"timestamps":[8000,9000]}"#;
    assert_eq!(server.post("/api/v1/import?db=one", format!("{line}\n")).status, 204);
    let rows = server.get(&format!("/api/v1/export/csv?db=one&match[]=up&format={format}"));
    assert_eq!(rows.body, "\"a,b\",1.5,8000\n\"a,b\",-2,9000\n");
    let mapping = encoded("1:label:job,2:metric:up,3:time:unix_ms");
    let answer = server.post(&format!("/api/v1/import/csv?db=csv&format={mapping}"), &rows.body);
    assert_eq!(answer.status, 204, "{}", answer.body);
    assert_eq!(server.get("/api/v1/export?db=csv&match[]=up").body, format!("{line}\n"));
    for query in ["match[]=up", "format=job", "match[]=up&format=job,,", "match[]=up&format=__timestamp__:x"] {
        assert_eq!(server.get(&format!("/api/v1/export/csv?{query}")).status, 400, "{query}");
    }
}

#[test]
fn federation_shows_the_newest_samples() {
    let server = Running::start();
    let now_ms = server.db.now_ns() / 1_000_000;
    write_samples(&server, now_ms);
    let path = format!("/federate?match[]=up&match[]={}", encoded("{__name__=~\"l.*|up\"}"));
    let accept = [("accept", "text/plain;version=0.0.4;escaping=allow-utf-8")];
    let answer = server.send("GET", &path, &accept, b"");
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let expected = format!(
        "# TYPE \"läuft.gut\" untyped\n{{\"läuft.gut\",\"läbel\"=\"x\",instance=\"\"}} 3 {now_ms}\n# TYPE up untyped\nup{{job=\"a\\\"b\\\\\\n\",instance=\"\"}} -2.5 {now_ms}\n"
    );
    assert_eq!(answer.body, expected);
    let federated = server.post("/api/v1/import/prometheus?db=federated", &answer.body);
    assert_eq!((federated.status, federated.body.as_str()), (204, ""));
    let up = server.result("federated", "up", now_ms / 1000 + 1);
    assert!(up.contains(r#""-2.5""#), "{up}");
}

/// A request of remote read for one query: times, a matcher on the name, accepted types.
fn read_request(name: &str, accepted: &[u8]) -> Vec<u8> {
    let bytes = |field: u8, bytes: &[u8]| [&[field << 3 | 2, bytes.len() as u8], bytes].concat();
    let matcher = [bytes(2, b"__name__"), bytes(3, name.as_bytes())].concat();
    let query = [vec![8, 0, 16, 0xe0, 0xd4, 3], bytes(3, &matcher)].concat();
    let types = if accepted.is_empty() { Vec::new() } else { bytes(2, accepted) };
    compress(&[bytes(1, &query), types].concat())
}

#[test]
fn remote_read_answers_samples_or_chunks() {
    let server = Running::start();
    write_samples(&server, 10_000);
    let read = |name: &str, accepted: &[u8]| {
        let headers = [("content-type", "application/x-protobuf"), ("content-encoding", "snappy")];
        let answer = server.send_for_bytes("POST", "/api/v1/read", &headers, read_request(name, accepted));
        (answer.0, answer.1, answer.2)
    };
    for accepted in [&[][..], &[0], &[0, 1]] {
        let (status, content_type, body) = read("up", accepted);
        assert_eq!((status, content_type.as_str()), (200, "application/x-protobuf"));
        let unpacked = snap::raw::Decoder::new().decompress_vec(&body).unwrap();
        let text = String::from_utf8_lossy(&unpacked).into_owned();
        assert!(text.contains("gone") && text.contains("a\"b\\\n"), "{text:?}");
        // The stale marker is in it, bit by bit.
        let stale = model::STALE_NAN_BITS.to_le_bytes();
        assert!(unpacked.windows(8).any(|bytes| bytes == stale));
    }
    let (status, content_type, body) = read("up", &[1, 0]);
    let streamed = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse";
    assert_eq!((status, content_type.as_str()), (200, streamed));
    let (mut at, mut frames) = (0, 0);
    while at < body.len() {
        let length = usize::from(body[at]);
        let message = &body[at + 5..at + 5 + length];
        assert_eq!(body[at + 1..at + 5], crc32c::crc32c(message).to_be_bytes());
        (at, frames) = (at + 5 + length, frames + 1);
    }
    assert_eq!(frames, 2);
    // A frame of one chunk of histograms.
    let (status, content_type, body) = read("latency", &[1]);
    assert_eq!((status, content_type.as_str()), (200, streamed));
    let message = &body[5..];
    assert_eq!((usize::from(body[0]), &body[1..5]), (message.len(), &crc32c::crc32c(message).to_be_bytes()[..]));
    assert!(message.windows(2).any(|bytes| bytes == [0x18, 2]), "its encoding");
    assert_eq!(read("latency", &[0, 1]).1, "application/x-protobuf");
    let (status, ..) = server.send_for_bytes("POST", "/api/v1/read", &[], b"nonsense");
    assert_eq!(status, 400);
}

#[test]
fn the_server_tells_of_itself() {
    let server = Running::start_with(|settings| settings.flags = vec![("shards".to_owned(), "2".to_owned())]);
    server.write("cpu,host=a,dc=x user=1,system=2 1000000000\ncpu,host=b,dc=x user=1,system=2 1000000000\nmem free=3 1000000000\n");
    let tsdb = data(&server, "/api/v1/status/tsdb?limit=2");
    assert_eq!(
        (&tsdb["headStats"]["numSeries"], &tsdb["headStats"]["numLabelPairs"]),
        (&json!(5), &json!(3)),
        "{tsdb}"
    );
    assert_eq!(tsdb["seriesCountByMetricName"], json!([{"name":"cpu","value":4},{"name":"mem","value":1}]));
    assert_eq!(tsdb["labelValueCountByLabelName"], json!([{"name":"host","value":2},{"name":"dc","value":1}]));
    assert_eq!(tsdb["seriesCountByLabelValuePair"][0], json!({"name":"dc=x","value":2}));
    assert_eq!(data(&server, "/api/v1/status/tsdb?db=none")["headStats"]["numSeries"], 0);
    assert_eq!(server.get("/api/v1/status/tsdb?limit=100000").status, 400);

    let info = data(&server, "/api/v1/status/runtimeinfo");
    for name in ["startTime", "serverTime", "lastConfigTime"] {
        assert!(info[name].as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{info}");
    }
    assert_eq!(info["CWD"], server.db.directory().to_str().unwrap());
    let flags = data(&server, "/api/v1/status/flags");
    for (name, value) in
        [("query.timeout", "2m"), ("query.max-samples", "50000000"), ("query.lookback-delta", "5m"), ("shards", "2")]
    {
        assert_eq!(flags[name], value, "{flags}");
    }
    assert_eq!(data(&server, "/api/v1/status/buildinfo")["version"], "3.15.0");
}

#[test]
fn snapshots_are_backups_in_the_data_folder() {
    let server = Running::start();
    server.write("m v=1 1000000000\n");
    let answer = server.post("/api/v1/admin/tsdb/snapshot", "");
    assert_eq!(answer.status, 200, "{}", answer.body);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    let folder = server.db.directory().join("snapshots");
    let objects = platform::Platform::real().objects;
    let objects = objects.open(folder.to_str().unwrap(), &platform::objects::ObjectOptions::default()).unwrap();
    assert_eq!(db::backups(&*objects).unwrap(), [answer["data"]["name"].as_str().unwrap()]);
}

#[test]
fn queries_say_what_they_took() {
    let server = Running::start();
    server.write("m v=1 1000000000\nm v=2 2000000000\nm v=3 3000000000\n");
    let stats = data(&server, "/api/v1/query?query=sum_over_time(m_v[1m])&time=4&stats=all")["stats"].clone();
    assert_eq!(stats["samples"]["totalQueryableSamples"], 3, "{stats}");
    assert!(stats["samples"]["peakSamples"].as_u64().unwrap() >= 3, "{stats}");
    assert!(stats["timings"]["evalTotalTime"].as_f64().unwrap() > 0.0, "{stats}");
    assert!(data(&server, "/api/v1/query?query=m_v&time=4")["stats"].is_null());
    let counts = |query: &str, names: [&str; 2]| {
        let stats = data(&server, &format!("/api/v1/query_range?query={query}&start=2&end=4&step=1&stats=all"));
        names.map(|name| stats["stats"]["samples"][name].to_string())
    };
    // Windows that overlap count whole, and read what is new in them; what is pinned to a time is read once.
    for (query, sums, queryable, read) in [
        ("m_v", ["3", "3"], "[[2.0,1],[3.0,1],[4.0,1]]", "[[2.0,1],[3.0,1],[4.0,1]]"),
        ("sum_over_time(m_v[2s])", ["5", "3"], "[[2.0,2],[3.0,2],[4.0,1]]", "[[2.0,2],[3.0,1],[4.0,0]]"),
        ("m_v%20@%203", ["3", "1"], "[[2.0,1],[3.0,1],[4.0,1]]", "[[2.0,1],[3.0,0],[4.0,0]]"),
        ("sum_over_time(m_v[2s:1s])", ["6", "4"], "[[2.0,2],[3.0,2],[4.0,2]]", "[[2.0,2],[3.0,1],[4.0,1]]"),
    ] {
        assert_eq!(counts(query, ["totalQueryableSamples", "samplesRead"]), sums, "{query}");
        let by_step = ["totalQueryableSamplesPerStep", "samplesReadPerStep"];
        assert_eq!(counts(query, by_step), [queryable, read], "{query}");
    }
    let old = server.get("/api/v1/query?query=m_v&time=4&stats=some");
    let old: Value = serde_json::from_str(&old.body).unwrap();
    assert!(old["warnings"][0].as_str().unwrap().contains("deprecated"), "{old}");
    assert!(old["data"]["stats"]["samples"]["samplesReadPerStep"].is_null(), "{old}");
}

#[test]
fn texts_are_formatted_and_parsed() {
    let server = Running::start();
    for (text, expected) in [
        ("foo/bar", "foo / bar"),
        ("sum(  rate(foo{a='b'}[5m]) )by(x)", "sum by (x) (rate(foo{a=\"b\"}[5m]))"),
        ("-1^2", "-1 ^ 2"),
    ] {
        for path in ["/api/v1/format_query", "/api/v1/format_query?db=x"] {
            let mark = if path.contains('?') { '&' } else { '?' };
            assert_eq!(data(&server, &format!("{path}{mark}query={}", encoded(text))), expected, "{text}");
        }
    }
    let tree = data(&server, &format!("/api/v1/parse_query?query={}", encoded("foo{a=\"b\"} > bool 1")));
    assert_eq!((&tree["type"], &tree["op"], &tree["bool"]), (&json!("binaryExpr"), &json!(">"), &json!(true)));
    assert_eq!(tree["lhs"]["type"], "vectorSelector");
    assert_eq!((&tree["lhs"]["name"], &tree["rhs"]["val"]), (&json!("foo"), &json!("1")));
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.send("POST", "/api/v1/format_query", &form, "query=foo%2Bbar");
    assert_eq!((answer.status, answer.body.as_str()), (200, r#"{"status":"success","data":"foo + bar"}"#));
    for path in ["/api/v1/format_query", "/api/v1/parse_query"] {
        let answer = server.get(&format!("{path}?query={}", encoded("foo bar")));
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("1:5"), "{}", answer.body);
    }
}

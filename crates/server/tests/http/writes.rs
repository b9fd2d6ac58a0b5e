//! Line protocol, remote write, text exposition.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use ingest::remote_write::{Series, compress, encode};
use model::{MetricKind, MetricMetadata};

use crate::harness::{Answer, Running};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[track_caller]
fn check(answer: &Answer, status: u16, body: &str) {
    assert_eq!((answer.status, answer.body.as_str()), (status, body));
}

#[test]
fn lines_are_written_and_found() {
    let server = Running::start();
    for (path, body, database, second) in [
        ("/write", "a,host=x v=1 1000000000", "default", 1),
        ("/write?db=other&u=me&p=secret&rp=autogen&consistency=all", "a,host=x v=1 1000000000", "other", 1),
        ("/write?precision=s", "a,host=x v=1 2", "default", 2),
        ("/write?precision=m", "a,host=x v=1 1", "default", 60),
        ("/write?precision=h", "a,host=x v=1 1", "default", 3600),
        ("/write?precision=ms", "a,host=x v=1 4000", "default", 4),
        ("/write?precision=u", "a,host=x v=1 5000000", "default", 5),
        ("/write?precision=n", "a,host=x v=1 6000000000", "default", 6),
        ("/api/v2/write?bucket=b2&org=o", "a,host=x v=1 1000000000", "b2", 1),
        ("/api/v2/write?bucket=b1%2Fautogen", "a,host=x v=1 1000000000", "b1", 1),
        ("/api/v2/write?bucket=b2&precision=us", "a,host=x v=1 2000000", "b2", 2),
    ] {
        check(&server.post(path, body), 204, "");
        let found = server.result(database, "timestamp(a_v)", second);
        let expected = format!(r#"[{{"metric":{{"host":"x"}},"value":[{second},"{second}"]}}]"#);
        assert_eq!(found, expected, "{path}");
    }
    // A point without a time is written now.
    check(&server.post("/write?precision=s", "now v=1"), 204, "");
    let now_s = server.db.now_ns() / 1_000_000_000;
    assert!(server.result("default", "now_v", now_s).contains(r#""1""#));
    check(&server.post("/write", ""), 204, "");
}

#[test]
fn later_lines_of_a_request_win_whatever_their_fields() {
    let server = Running::start();
    server
        .write("m a=1 1000000000\nm a=2,b=1 1000000000\nm a=3 1000000000\nm b=5,a=4 2000000000\nm a=6,b=7 2000000000");
    assert_eq!(server.result("default", "m_a", 1), r#"[{"metric":{"__name__":"m_a"},"value":[1,"3"]}]"#);
    assert_eq!(server.result("default", "m_a + m_b", 2), r#"[{"metric":{},"value":[2,"13"]}]"#);
}

#[test]
fn bodies_may_be_packed() {
    let server = Running::start();
    let headers = [("content-encoding", "gzip")];
    check(&server.send("POST", "/write", &headers, gzip(b"a v=1 1000000000")), 204, "");
    assert_eq!(server.result("default", "a_v", 1), r#"[{"metric":{"__name__":"a_v"},"value":[1,"1"]}]"#);
    let answer = server.send("POST", "/write", &headers, "a v=1");
    assert_eq!(answer.status, 400);
    assert!(answer.body.starts_with(r#"{"error":"not a gzip body: "#), "{}", answer.body);
    let answer = server.send("POST", "/write", &[("content-encoding", "br")], "a v=1");
    check(
        &answer,
        415,
        r#"{"error":"content encoding \"br\" is not supported; use gzip, deflate, zstd, snappy or none"}"#,
    );
}

#[test]
fn bad_lines_are_told_as_influxdb_tells_them() {
    let server = Running::start();
    let answer = server.post("/write", "good v=1 1000000000\nbad v=\ngood v=2 2000000000\nworse,t v=1");
    let text = r"partial write: unable to parse 'bad v=': missing field value (line 2)\nunable to parse 'worse,t v=1': missing tag value (line 4) dropped=2";
    check(&answer, 400, &format!(r#"{{"error":"{text}"}}"#));
    assert_eq!(answer.header("x-influxdb-error"), text.replace(r"\n", " "));
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(server.result("default", "good_v", 2), r#"[{"metric":{"__name__":"good_v"},"value":[2,"2"]}]"#);

    let answer = server.post("/api/v2/write?bucket=default", "bad v=");
    check(&answer, 400, r#"{"code":"invalid","message":"unable to parse 'bad v=': missing field value (line 1)"}"#);

    let answer = server.post("/write", "good v=\"text\" 3000000000\ngood v=3 3000000000");
    let text = r#"partial write: field type conflict: input field \"v\" on measurement \"good\" is type string, already exists as type float (line 1) dropped=1"#;
    check(&answer, 400, &format!(r#"{{"error":"{text}"}}"#));
    assert_eq!(server.result("default", "good_v", 3), r#"[{"metric":{"__name__":"good_v"},"value":[3,"3"]}]"#);
}

#[test]
fn parameters_of_writes_are_checked() {
    let server = Running::start();
    let answer = server.post("/write?precision=d", "a v=1");
    check(&answer, 400, r#"{"error":"invalid precision \"d\" (use ns, us, ms, s, m or h)"}"#);
    let answer = server.post("/api/v2/write?precision=d", "a v=1");
    check(&answer, 400, r#"{"code":"invalid","message":"invalid precision \"d\" (use ns, us, ms, s, m or h)"}"#);
    for path in ["/write", "/api/v2/write", "/api/v1/write", "/api/v1/import/prometheus"] {
        assert_eq!(server.get(path).status, 405, "{path}");
    }
}

#[test]
fn bodies_have_a_limit() {
    let server = Running::start_with(|settings| {
        settings.body_bytes_max = 1000;
        settings.unpacked_bytes_max = 5000;
    });
    let long = "a v=1 1\n".repeat(200);
    let answer = server.post("/write", &long);
    check(&answer, 413, r#"{"error":"the body has more than 1000 bytes (body_bytes_max)"}"#);
    let bomb = gzip("a v=1 1\n".repeat(2000).as_bytes());
    assert!(bomb.len() < 1000);
    let answer = server.send("POST", "/write", &[("content-encoding", "gzip")], &bomb);
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("unpacked_bytes_max"), "{}", answer.body);
    let answer = server.post("/api/v1/write", compress(&vec![b'x'; 6000]));
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("unpacked_bytes_max"), "{}", answer.body);
}

const REMOTE_WRITE: [(&str, &str); 3] = [
    ("content-encoding", "snappy"),
    ("content-type", "application/x-protobuf"),
    ("x-prometheus-remote-write-version", "0.1.0"),
];

#[test]
fn remote_writes_are_written_and_found() {
    let server = Running::start();
    let stale = f64::from_bits(model::STALE_NAN_BITS);
    let series = [
        Series { labels: &[("__name__", "up"), ("job", "a")], samples: &[(1000, 1.0), (2000, 0.0)] },
        Series { labels: &[("__name__", "up"), ("job", "b")], samples: &[(1000, 1.0), (2000, stale)] },
        Series { labels: &[("__name__", "load")], samples: &[(1000, f64::NAN)] },
    ];
    let metadata = MetricMetadata {
        family: "up".to_owned(),
        kind: MetricKind::Gauge,
        help: "Is it \"up\"?".to_owned(),
        unit: String::new(),
    };
    let body = compress(&encode(&series, &[metadata]));
    check(&server.send("POST", "/api/v1/write", &REMOTE_WRITE, &body), 204, "");
    let a = r#"[{"metric":{"__name__":"up","job":"a"},"value":[2,"0"]}]"#;
    assert_eq!(server.result("default", "up", 2), a, "a stale marker ends the other series");
    assert_eq!(server.result("default", "count(up)", 1), r#"[{"metric":{},"value":[1,"2"]}]"#);
    assert_eq!(server.result("default", "load", 2), r#"[{"metric":{"__name__":"load"},"value":[2,"NaN"]}]"#);
    let up = r#"{"status":"success","data":{"up":[{"type":"gauge","help":"Is it \"up\"?","unit":""}]}}"#;
    check(&server.get("/api/v1/metadata"), 200, up);
    check(&server.get("/api/v1/metadata?metric=down"), 200, r#"{"status":"success","data":{}}"#);

    let other = [("x-thalweg-database", "other")];
    check(&server.send("POST", "/api/v1/write", &[&REMOTE_WRITE[..], &other].concat(), &body), 204, "");
    assert!(server.result("other", "up", 1).contains(r#""job":"a""#));
}

#[test]
fn bad_remote_writes_are_not_to_be_repeated() {
    let server = Running::start();
    let good = Series { labels: &[("__name__", "up"), ("job", "a")], samples: &[(1000, 1.0)] };
    let bad = Series { labels: &[("job", "a")], samples: &[(1000, 1.0)] };
    let answer = server.send("POST", "/api/v1/write", &REMOTE_WRITE, compress(&encode(&[bad, good], &[])));
    let message = r#"partial write: line 1: the series has no metric name (label \"__name__\") dropped=1"#;
    check(&answer, 400, &format!(r#"{{"status":"error","errorType":"bad_data","error":"{message}"}}"#));
    assert!(server.result("default", "up", 1).contains(r#""job":"a""#));

    let message = |body: &[u8]| server.send("POST", "/api/v1/write", &REMOTE_WRITE, body);
    for (body, expected) in
        [(b"no snappy".to_vec(), "not a snappy block"), (compress(b"\x0a\x05"), "not a protobuf message")]
    {
        let answer = message(&body);
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains(expected), "{}", answer.body);
    }
    for (name, value) in [
        ("content-encoding", "zstd"),
        ("content-type", "text/plain"),
        ("content-type", "application/x-protobuf;proto=io.prometheus.write.v3.Request"),
    ] {
        assert_eq!(server.send("POST", "/api/v1/write", &[(name, value)], "x").status, 415, "{value}");
    }
}

#[test]
fn expositions_are_written_and_found() {
    let server = Running::start();
    let text = "# HELP req Requests.\n# TYPE req counter\nreq{code=\"200\"} 5 1000\nreq{code=\"500\"} 1\n";
    let path = "/api/v1/import/prometheus?timestamp=2000&extra_label=job=web&extra_label=code=x";
    check(&server.post("/api/v1/import/prometheus?timestamp=2000", text), 204, "");
    assert_eq!(
        server.result("default", "timestamp(req)", 2),
        r#"[{"metric":{"code":"200"},"value":[2,"1"]},{"metric":{"code":"500"},"value":[2,"2"]}]"#
    );
    check(&server.send("POST", path, &[("content-encoding", "gzip")], gzip(b"job_up 1")), 204, "");
    let expected = r#"[{"metric":{"__name__":"job_up","code":"x","job":"web"},"value":[2,"1"]}]"#;
    assert_eq!(server.result("default", "job_up", 2), expected);
    let answer = server.get("/api/v1/metadata?metric=req");
    check(&answer, 200, r#"{"status":"success","data":{"req":[{"type":"counter","help":"Requests.","unit":""}]}}"#);
    let openmetrics = [("content-type", "application/openmetrics-text; version=1.0.0")];
    check(&server.send("POST", "/api/v1/import/prometheus", &openmetrics, "om 1 1.5\n# EOF\n"), 204, "");
    assert_eq!(server.result("default", "timestamp(om)", 2), r#"[{"metric":{},"value":[2,"1.5"]}]"#);
}

#[test]
fn bad_expositions_are_told_by_line() {
    let server = Running::start();
    let answer = server.post("/api/v1/import/prometheus?timestamp=1000", "good 1\nbad{ 1\nworse{a=b} 2\n");
    let message = r#"partial write: line 2: missing '}'\nline 3: the value of label \"a\" is not in quotes dropped=2"#;
    check(&answer, 400, &format!(r#"{{"status":"error","errorType":"bad_data","error":"{message}"}}"#));
    assert!(server.result("default", "good", 1).contains(r#""1""#));
    for (parameters, message) in [
        ("timestamp=soon", r#"invalid parameter \"timestamp\": \"soon\" is not a time in milliseconds"#),
        ("extra_label=job", r#"invalid parameter \"extra_label\": \"job\" is not name=value"#),
    ] {
        let answer = server.post(&format!("/api/v1/import/prometheus?{parameters}"), "good 1");
        check(&answer, 400, &format!(r#"{{"status":"error","errorType":"bad_data","error":"{message}"}}"#));
    }
}

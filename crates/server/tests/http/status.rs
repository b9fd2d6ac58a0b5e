//! Signs of life, the server's numbers, the page, the host.

use std::io::Read;
use std::time::{Duration, Instant};

use thalweg_server::Compression;

use crate::harness::Running;

#[test]
fn signs_of_life() {
    let server = Running::start();
    for method in ["GET", "HEAD"] {
        let answer = server.send(method, "/ping", &[], "");
        assert_eq!((answer.status, answer.body.as_str()), (204, ""));
        assert!(answer.header("x-influxdb-version").starts_with("1.8"));
    }
    let answer = server.get("/ping?verbose=true");
    assert_eq!(answer.status, 200);
    assert!(answer.body.starts_with(r#"{"version":"1.8"#), "{}", answer.body);
    let answer = server.get("/health");
    assert_eq!(answer.status, 200);
    let expected =
        r#"{"name":"thalweg","message":"ready for queries and writes","status":"pass","checks":[],"version":""#;
    assert!(answer.body.starts_with(expected), "{}", answer.body);
    assert_eq!(server.get("/ready").status, 200);
}

#[test]
fn own_numbers() {
    let server = Running::start();
    server.write("m v=1 1000000000");
    server.post("/write", "m v=");
    server.get("/nowhere");
    server.get("/sql?query=SELECT%201");
    server.get("/api/v1/label/job/values");
    server.get("/sql/further");
    let text = server.get("/metrics").body;
    for line in [
        "thalweg_http_requests_total{route=\"/write\",status=\"204\"} 1",
        "thalweg_http_requests_total{route=\"/write\",status=\"400\"} 1",
        "thalweg_http_requests_total{route=\"other\",status=\"404\"} 2",
        "thalweg_http_requests_total{route=\"/sql\",status=\"200\"} 1",
        "thalweg_http_requests_total{route=\"/api/v1/label/{name}/values\",status=\"200\"} 1",
        "thalweg_rows_written_total 1",
        "thalweg_rejected_total{reason=\"unreadable line\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    for name in ["thalweg_log_", "thalweg_level_parts", "process_resident_memory_bytes ", "process_cpu_seconds_total "]
    {
        assert!(text.lines().any(|found| found.starts_with(name)), "{name} is missing in\n{text}");
    }
    // Its own parser takes it.
    let answer = server.post("/api/v1/import/prometheus", &text);
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
}

/// The rules of `promtool check metrics`.
#[test]
fn own_numbers_are_named_as_prometheus_wants_them() {
    let server = Running::start();
    server.write("m v=1 1000000000");
    for path in ["/api/v1/query?query=1", "/-/healthy", "/", "/federate?match[]=m_v"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let text = server.get("/metrics").body;
    let (mut kinds, mut helped) = (std::collections::BTreeMap::new(), std::collections::BTreeSet::new());
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|line| line.split_once(' ')) {
            assert!(!help.is_empty() && helped.insert(name), "{name} has no help, or twice");
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) {
            assert!(helped.contains(name) && kinds.insert(name, kind).is_none(), "{line}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
            let words =
                ["ns", "ms", "us", "s", "sec", "b", "kb", "mb", "milliseconds", "counter", "gauge", "histogram"];
            assert!(!name.split('_').any(|word| words.contains(&word)), "{name}");
            let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
            assert!(name.bytes().all(is_plain), "{name}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
            let family = if kinds.contains_key(family) { family } else { name };
            assert!(kinds.contains_key(family), "{line} is of no family");
            assert!(family == name || kinds[family] == "histogram", "{line}");
        }
    }
    assert!(!text.contains("route=\"other\""), "{text}");
}

#[test]
fn the_page() {
    let server = Running::start();
    let answer = server.get("/");
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-type").starts_with("text/html"));
    assert!(answer.body.contains("Thalweg"));
    let answer = server.send("GET", "/", &[("if-none-match", answer.header("etag"))], "");
    assert_eq!(answer.status, 304);
    assert_eq!(server.post("/", "x").status, 404);
}

#[test]
fn answers_are_packed_for_those_who_ask_from_elsewhere() {
    let server = Running::start();
    let lines: Vec<String> = (0..200).map(|host| format!("m,host=host{host} v=1 1000000000\n")).collect();
    server.write(&lines.concat());
    let path = "/api/v1/series?match[]=m_v";
    let near = server.send("GET", path, &[("accept-encoding", "gzip")], "");
    assert_eq!((near.status, near.header("content-encoding")), (200, ""));
    // A proxy on this machine asks for somebody else.
    let headers = [("accept-encoding", "gzip"), ("x-forwarded-for", "192.0.2.1")];
    let answer = server.send("GET", path, &headers, "");
    assert_eq!((answer.status, answer.header("content-encoding")), (200, "gzip"));
    let plain = server.send("GET", path, &[("x-forwarded-for", "192.0.2.1")], "");
    assert_eq!((plain.status, plain.header("content-encoding")), (200, ""));
    let (_, _, packed) = server.send_for_bytes("GET", path, &headers, "");
    // The header says it: at the fastest level, since an answer is packed for one reader.
    assert_eq!(packed.get(8), Some(&4));
    let mut unpacked = String::new();
    flate2::read::GzDecoder::new(packed.as_slice()).read_to_string(&mut unpacked).unwrap();
    assert_eq!((unpacked.as_str(), near.body.as_str()), (plain.body.as_str(), plain.body.as_str()));
}

#[test]
fn whose_answers_are_packed_can_be_set() {
    let (near, far) = (("x-from", "here"), ("via", "1.1 proxy"));
    for (setting, from, expected) in [(Compression::Always, near, "gzip"), (Compression::Never, far, "")] {
        let server = Running::start_with(|settings| settings.http_compression = setting);
        server.write("m,host=a_name_that_is_long_enough_to_be_packed v=1 1000000000\n");
        let answer = server.send("GET", "/api/v1/series?match[]=m_v", &[("accept-encoding", "gzip"), from], "");
        assert_eq!((answer.status, answer.header("content-encoding")), (200, expected), "{setting:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_host_is_sampled_at_once() {
    let server = Running::start_with(|settings| settings.host_metrics_interval_ms = Some(5_000));
    let deadline = Instant::now() + Duration::from_secs(20);
    for query in ["node_load1{job=\"host\"}", "process_resident_memory_bytes{job=\"thalweg\"}"] {
        loop {
            let now_s = server.db.now_ns() / 1_000_000_000;
            if server.result("default", query, now_s + 1).contains("\"metric\"") {
                break;
            }
            assert!(Instant::now() < deadline, "no {query}");
            std::thread::yield_now();
        }
    }
    assert!(server.get("/api/v1/metadata?metric=node_load1").body.contains("Load average over 1 minute."));
}

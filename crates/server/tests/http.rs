//! Every endpoint over a real socket, with good and with bad input.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use db::{Db, DbOptions};
use ingest::remote_write;
use thalweg_server::{Server, ServerSettings};
use tokio::sync::oneshot;

/// A server of the test's own, on a free port and a folder that goes with it.
struct TestServer {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    folder: PathBuf,
}

impl TestServer {
    fn start(name: &str) -> Self {
        Self::start_with(name, |_| {})
    }

    fn start_with(name: &str, change: impl FnOnce(&mut ServerSettings)) -> Self {
        let folder = std::env::temp_dir().join(format!("thalweg-http-{name}-{}", std::process::id()));
        let mut options = DbOptions::new(&folder);
        options.store.log_segment_bytes = 1 << 20;
        let mut settings = ServerSettings::new("127.0.0.1:0".parse().unwrap());
        settings.host_metrics_interval_ms = None;
        change(&mut settings);
        let db = Arc::new(Db::open(platform::Platform::real(), options).unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(db.clone(), settings).await.unwrap();
                tell.send(server.address()).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
            db.close().unwrap();
        });
        Self { address: told.recv().unwrap(), stop: Some(stop), thread: Some(thread), folder }
    }

    fn agent() -> ureq::Agent {
        ureq::Agent::config_builder().http_status_as_error(false).build().into()
    }

    fn get(&self, path: &str) -> (u16, String) {
        let mut response = Self::agent().get(format!("http://{}{path}", self.address)).call().unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    fn post(&self, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
        let mut request = Self::agent().post(format!("http://{}{path}", self.address));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut response = request.send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    }

    /// What an instant query at a second gives, without the envelope.
    fn query(&self, expression: &str, second: u64) -> String {
        let encoded: String = form_urlencoded::byte_serialize(expression.as_bytes()).collect();
        let (status, body) = self.get(&format!("/api/v1/query?query={encoded}&time={second}"));
        assert_eq!(status, 200, "{body}");
        let result = body.split_once(r#""result":"#).unwrap().1;
        result.strip_suffix("}}").unwrap().to_owned()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn line_protocol_in_both_versions_of_influxdb() {
    let server = TestServer::start("line");
    let ok = (204, String::new());
    assert_eq!(server.post("/write?db=default&u=me&p=secret&precision=s", &[], b"cpu,host=a v=1 100"), ok);
    assert_eq!(server.post("/api/v2/write?bucket=default&org=o&precision=ms", &[], b"cpu,host=b v=2 100000"), ok);
    assert_eq!(server.post("/write", &[("content-encoding", "gzip")], &gzip(b"cpu,host=c v=3i 100000000000")), (400,
        r#"{"error":"line 1: field type conflict: input field \"v\" on measurement \"cpu\" is type integer, already exists as type float dropped=1"}"#.to_owned()));
    assert_eq!(server.post("/write", &[("content-encoding", "gzip")], &gzip(b"cpu,host=c v=3 100000000000")), ok);
    assert_eq!(
        server.query("cpu_v", 100),
        r#"[{"metric":{"__name__":"cpu_v","host":"a"},"value":[100,"1"]},{"metric":{"__name__":"cpu_v","host":"b"},"value":[100,"2"]},{"metric":{"__name__":"cpu_v","host":"c"},"value":[100,"3"]}]"#
    );
    assert_eq!(server.post("/write?db=other&precision=s", &[], b"cpu,host=z v=9 100"), ok);
    assert!(!server.query("cpu_v", 100).contains("\"z\""), "databases are apart");
    let (_, elsewhere) = server.get("/api/v1/query?query=cpu_v&time=100&db=other");
    assert!(elsewhere.contains("\"z\""), "{elsewhere}");
}

#[test]
fn bad_lines_are_told_with_their_numbers_and_good_ones_kept() {
    let server = TestServer::start("partial");
    let body = b"cpu v=1 1000000000\ncpu v= 2000000000\ncpu,x v=1 3000000000\ncpu v=4 4000000000";
    let (status, answer) = server.post("/write", &[], body);
    assert_eq!(status, 400);
    assert!(answer.starts_with(r#"{"error":"partial write: line 2: "#), "{answer}");
    assert!(answer.contains("; line 3: ") && answer.contains("dropped=2"), "{answer}");
    assert!(server.query("count_over_time(cpu_v[1m])", 5).contains(r#""2""#));
    let (status, answer) = server.post("/api/v2/write?precision=d", &[], b"cpu v=1");
    let expected = r#"{"code":"invalid","message":"invalid precision \"d\" (use ns, us, ms, s, m or h)"}"#;
    assert_eq!((status, answer.as_str()), (400, expected));
    assert_eq!(server.post("/write", &[("content-encoding", "gzip")], b"no gzip").0, 400);
    assert_eq!(server.post("/write", &[("content-encoding", "br")], b"x v=1").0, 415);
    assert_eq!(server.get("/write").0, 405);
}

#[test]
fn bodies_are_bounded_as_sent_and_unpacked() {
    let server = TestServer::start_with("bounds", |settings| {
        settings.body_bytes_max = 1000;
        settings.unpacked_bytes_max = 2000;
    });
    let (status, answer) = server.post("/write", &[], &[b'#'; 1001]);
    assert_eq!(status, 413);
    assert!(answer.contains("body_bytes_max"), "{answer}");
    let (status, answer) = server.post("/write", &[("content-encoding", "gzip")], &gzip(&[b'#'; 2001]));
    assert_eq!(status, 413);
    assert!(answer.contains("unpacked_bytes_max"), "{answer}");
    let bomb = remote_write::compress(&[0; 2001]);
    assert_eq!(server.post("/api/v1/write", &[], &bomb).0, 413);
}

#[test]
fn remote_write_with_metadata_and_stale_markers() {
    let server = TestServer::start("remote");
    let series = [
        remote_write::Series {
            labels: &[("__name__", "up"), ("job", "j")],
            samples: &[(100_000, 1.0), (160_000, f64::from_bits(model::STALE_NAN_BITS))],
        },
        remote_write::Series { labels: &[("__name__", "load"), ("job", "j")], samples: &[(100_000, f64::NAN)] },
    ];
    let metadata = model::MetricMetadata {
        family: "up".to_owned(),
        kind: model::MetricKind::Gauge,
        help: "Is it \"up\"?".to_owned(),
        unit: String::new(),
    };
    let body = remote_write::compress(&remote_write::encode(&series, &[metadata]));
    let headers = [
        ("content-encoding", "snappy"),
        ("content-type", "application/x-protobuf"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ];
    assert_eq!(server.post("/api/v1/write", &headers, &body), (204, String::new()));
    assert_eq!(server.query("up", 159), r#"[{"metric":{"__name__":"up","job":"j"},"value":[159,"1"]}]"#);
    assert_eq!(server.query("up", 161), "[]", "a stale marker ends the series");
    assert!(server.query("load", 120).contains(r#"[120,"NaN"]"#));
    let expected = r#"{"status":"success","data":{"up":[{"type":"gauge","help":"Is it \"up\"?","unit":""}]}}"#;
    assert_eq!(server.get("/api/v1/metadata"), (200, expected.to_owned()));
    assert_eq!(server.get("/api/v1/metadata?metric=down").1, r#"{"status":"success","data":{}}"#);
    assert_eq!(server.post("/api/v1/write", &headers, b"\x05garbage").0, 400);
    let v2 = [("content-type", "application/x-protobuf;proto=io.prometheus.write.v2.Request")];
    assert_eq!(server.post("/api/v1/write", &v2, &body).0, 415, "a sender of 2.0 falls back to 1.0");
}

#[test]
fn text_exposition_with_extra_labels() {
    let server = TestServer::start("exposition");
    let body = b"# HELP a_total Things.\n# TYPE a_total counter\na_total{x=\"1\"} 5 100000\nb 2\nc{ 1\n";
    let (status, answer) = server.post("/api/v1/import/prometheus?timestamp=101&extra_label=job=j", &[], body);
    assert_eq!(status, 400);
    assert!(answer.contains("line 5: "), "{answer}");
    assert_eq!(
        server.query("a_total", 101),
        r#"[{"metric":{"__name__":"a_total","job":"j","x":"1"},"value":[101,"5"]}]"#
    );
    assert!(server.query("b", 101).contains(r#"[101,"2"]"#));
    assert!(server.get("/api/v1/metadata").1.contains(r#""type":"counter","help":"Things.""#));
    assert_eq!(server.post("/api/v1/import/prometheus?extra_label=nonsense", &[], b"a 1").0, 400);
}

#[test]
fn names_and_series() {
    let server = TestServer::start("names");
    server.post("/write?precision=s", &[], b"cpu,host=a,os=x usage=1,idle=2 100\nmem,host=b used=3 9000");
    let data = |path: &str| {
        let (status, body) = server.get(path);
        assert_eq!(status, 200, "{body}");
        body.strip_prefix(r#"{"status":"success","data":"#).unwrap().strip_suffix('}').unwrap().to_owned()
    };
    assert_eq!(data("/api/v1/labels"), r#"["__name__","host","os"]"#);
    assert_eq!(data("/api/v1/label/__name__/values"), r#"["cpu_idle","cpu_usage","mem_used"]"#);
    assert_eq!(data("/api/v1/label/host/values?match[]=mem_used"), r#"["b"]"#);
    assert_eq!(data("/api/v1/label/host/values?start=8000&end=9500"), r#"["b"]"#);
    assert_eq!(data("/api/v1/label/nothing/values"), "[]");
    assert_eq!(
        data("/api/v1/series?match[]=cpu_usage&match[]=mem_used"),
        r#"[{"__name__":"cpu_usage","host":"a","os":"x"},{"__name__":"mem_used","host":"b"}]"#
    );
    let (_, cut) = server.get("/api/v1/label/__name__/values?limit=2");
    let expected =
        r#"{"status":"success","data":["cpu_idle","cpu_usage"],"warnings":["results truncated due to limit"]}"#;
    assert_eq!(cut, expected);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let (status, body) = server.post("/api/v1/series", &form, b"match[]=%7Bhost%3D%22b%22%7D");
    assert_eq!((status, body.contains("mem_used")), (200, true));
    for bad in
        ["/api/v1/series", "/api/v1/series?match[]={}", "/api/v1/labels?start=2&end=1", "/api/v1/labels?limit=-1"]
    {
        let (status, body) = server.get(bad);
        assert_eq!(status, 400, "{bad}");
        assert!(body.starts_with(r#"{"status":"error","errorType":"bad_data","error":"#), "{body}");
    }
}

#[test]
fn queries_good_and_bad() {
    let server = TestServer::start("queries");
    server.post("/write?precision=s", &[], b"m v=1 100\nm v=2 110\nm v=4 120");
    let ok = |path: &str, expected: &str| {
        assert_eq!(server.get(path), (200, format!(r#"{{"status":"success","data":{expected}}}"#)), "{path}");
    };
    ok("/api/v1/query?query=1%2B1&time=5", r#"{"resultType":"scalar","result":[5,"2"]}"#);
    ok("/api/v1/query?query=%22a%22&time=5", r#"{"resultType":"string","result":[5,"a"]}"#);
    ok(
        "/api/v1/query?query=m_v[30s]&time=121",
        r#"{"resultType":"matrix","result":[{"metric":{"__name__":"m_v"},"values":[[100,"1"],[110,"2"],[120,"4"]]}]}"#,
    );
    ok(
        "/api/v1/query_range?query=m_v&start=100&end=120&step=10",
        r#"{"resultType":"matrix","result":[{"metric":{"__name__":"m_v"},"values":[[100,"1"],[110,"2"],[120,"4"]]}]}"#,
    );
    ok(
        "/api/v1/query_range?query=sum(m_v)&start=1970-01-01T00:01:55Z&end=120&step=5s",
        r#"{"resultType":"matrix","result":[{"metric":{},"values":[[115,"2"],[120,"4"]]}]}"#,
    );
    let form = [("content-type", "application/x-www-form-urlencoded")];
    let (status, body) = server.post("/api/v1/query", &form, b"query=m_v&time=120");
    assert_eq!((status, body.contains(r#"[120,"4"]"#)), (200, true));
    for (path, status, kind) in [
        ("/api/v1/query", 400, "bad_data"),
        ("/api/v1/query?query=sum(", 400, "bad_data"),
        ("/api/v1/query?query=m&time=x", 400, "bad_data"),
        ("/api/v1/query_range?query=m&start=0&end=1", 400, "bad_data"),
        ("/api/v1/query_range?query=m&start=0&end=1&step=0", 400, "bad_data"),
        ("/api/v1/query_range?query=m&start=1&end=0&step=1", 400, "bad_data"),
        ("/api/v1/query_range?query=m&start=0&end=100000&step=1", 400, "bad_data"),
        ("/api/v1/query_range?query=m[5m]&start=0&end=1&step=1", 400, "bad_data"),
        ("/api/v1/query?query=m_v%20%2B%20on()%20group_left()%20m_v%20%2B%20limitk(1,m_v)&time=120", 400, "bad_data"),
        ("/api/v1/query?query=m_v&time=120&timeout=soon", 400, "bad_data"),
        ("/api/v1/nothing", 404, "not_found"),
    ] {
        let (found, body) = server.get(path);
        assert_eq!(found, status, "{path}: {body}");
        assert!(body.contains(&format!(r#""errorType":"{kind}""#)), "{path}: {body}");
    }
}

#[test]
fn a_query_beyond_its_budget_is_stopped() {
    let server = TestServer::start_with("budget", |settings| settings.query_samples_max = 50);
    let lines: Vec<String> = (0..100).map(|second| format!("m v=1 {second}")).collect();
    server.post("/write?precision=s", &[], lines.join("\n").as_bytes());
    let (status, body) = server.get("/api/v1/query?query=sum_over_time(m_v[200s])&time=100");
    assert_eq!(status, 422);
    assert!(body.contains("query_samples_max"), "{body}");
}

#[test]
fn signs_of_life() {
    let server = TestServer::start("life");
    assert_eq!(server.get("/ping").0, 204);
    assert_eq!(server.get("/ping?verbose=true").0, 200);
    let (status, health) = server.get("/health");
    assert_eq!((status, health.contains(r#""status":"pass""#)), (200, true));
    assert_eq!(server.get("/ready").0, 200);
    assert!(server.get("/api/v1/status/buildinfo").1.contains(r#""application":"thalweg""#));
    server.post("/write", &[], b"m v=1");
    let (_, metrics) = server.get("/metrics");
    for line in [
        "thalweg_rows_written_total 1",
        "thalweg_http_requests_total{route=\"/write\",status=\"204\"} 1",
        "# TYPE process_resident_memory_bytes gauge",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    for (path, part) in
        [("/api/v1/rules", "groups"), ("/api/v1/alerts", "alerts"), ("/api/v1/targets", "activeTargets")]
    {
        assert!(server.get(path).1.contains(part));
    }
    let (status, page) = server.get("/");
    assert_eq!(status, 200);
    assert!(page.contains("<html"), "{page}");
}

#[test]
fn silent_and_broken_clients_are_dropped() {
    let server = TestServer::start_with("slow", |settings| {
        settings.head_timeout_ms = 200;
        settings.body_timeout_ms = 200;
    });
    let mut silent = TcpStream::connect(server.address).unwrap();
    silent.write_all(b"GET /ping HT").unwrap();
    let mut rest = Vec::new();
    let _ = silent.read_to_end(&mut rest);
    let mut slow = TcpStream::connect(server.address).unwrap();
    slow.write_all(b"POST /write HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nm v").unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert_eq!(server.get("/ping").0, 204, "others are served");
}

#[test]
fn the_host_is_sampled_through_the_ordinary_write_path() {
    let server = TestServer::start_with("host", |settings| settings.host_metrics_interval_ms = Some(20));
    // The first sample is taken at once; until it is there, ask again. The deadline is the test's, not the product's.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    loop {
        let (_, body) =
            server.get("/api/v1/query?query=count(node_cpu_seconds_total)%20and%20on()%20process_cpu_seconds_total");
        if body.contains("value") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "no sample of the host: {body}");
    }
    assert!(server.get("/api/v1/metadata?metric=node_load1").1.contains("Load average over 1 minute."));
}

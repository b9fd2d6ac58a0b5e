//! What `/health` and `/ready` say: before the data folder is open, while writes are refused, and when something is wrong.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use db::{CheckStatus, Damage, Db, DbOptions, OpeningProgress};
use platform::sim::Simulation;
use thalweg_server::{Front, ServerSettings};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::harness::Running;

/// Asks on a connection that stays open; status, head and body.
fn ask(stream: &mut TcpStream, method: &str, path: &str, body: &str) -> (u16, String, String) {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head, String::from_utf8(body).unwrap())
}

/// A server that listens and whose data folder is not open, and a connection to it.
fn front() -> (Runtime, Front, TcpStream) {
    front_with(Arc::default())
}

/// As [`front`], of a folder whose opening reports its progress.
fn front_with(opening: Arc<OpeningProgress>) -> (Runtime, Front, TcpStream) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut settings = ServerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
    settings.host_metrics_interval_ms = None;
    settings.opening = opening;
    let front = runtime.block_on(Front::bind(settings)).unwrap();
    let stream = TcpStream::connect(front.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    (runtime, front, stream)
}

#[test]
fn http_answers_before_the_folder_is_open_and_goes_on_after() {
    let (runtime, front, mut stream) = front();
    let (status, _, body) = ask(&mut stream, "GET", "/health", "");
    assert!(status == 200 && body.contains(r#""status":"warn""#) && body.contains("recovering"), "{body}");
    for (method, path) in [("GET", "/ready"), ("GET", "/api/v1/query?query=1"), ("POST", "/write"), ("GET", "/")] {
        let (status, head, body) = ask(&mut stream, method, path, if method == "POST" { "m v=1" } else { "" });
        assert!(status == 503 && head.contains("retry-after: ") && body.contains("recovering"), "{path} {head}{body}");
    }
    let simulation = Simulation::new(1);
    let db = Arc::new(Db::open(simulation.platform(), DbOptions::new("data")).unwrap());
    let server = runtime.block_on(front.open(db.clone())).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async { drop(stopped.await) }));
    assert_eq!(ask(&mut stream, "GET", "/ready", "").0, 200, "on the same connection");
    assert_eq!(ask(&mut stream, "POST", "/write", "m v=1 1").0, 204);
    // After a failed sync it is not known what the disk has.
    simulation.fail_syncs_after(0);
    assert_eq!(ask(&mut stream, "POST", "/write", "m v=2 2").0, 503);
    let (status, _, body) = ask(&mut stream, "GET", "/ready", "");
    assert!(status == 503 && body.contains("writes are refused"), "{body}");
    let (status, _, body) = ask(&mut stream, "GET", "/health", "");
    assert!(status == 503 && body.contains(r#""name":"writes","status":"fail""#), "a restart helps: {body}");
    drop(stop);
    runtime.block_on(running).unwrap();
}

#[test]
fn the_progress_of_opening_is_in_health_and_ready() {
    let simulation = Simulation::new(3);
    let mut options = DbOptions::new("data");
    let db = Db::open(simulation.platform(), options.clone()).unwrap();
    db.write_lines("default", b"m v=1 1").unwrap();
    // Without closing: the row stays in the log.
    drop(db);
    let progress = Arc::new(OpeningProgress::default());
    let (_runtime, _front, mut stream) = front_with(progress.clone());
    for path in ["/health", "/ready"] {
        let (_, _, body) = ask(&mut stream, "GET", path, "");
        assert!(body.contains("the manifest, the index and parts are being read"), "{body}");
    }
    options.store.progress = progress.clone();
    let db = Db::open(simulation.platform(), options).unwrap();
    assert!(db.recovery().log_rows == 1 && progress.log_bytes() > 0, "{:?}", db.recovery());
    let (status, _, body) = ask(&mut stream, "GET", "/metrics", "");
    assert!(status == 200 && body.contains(&format!("thalweg_opening_log_bytes {}\n", progress.log_bytes())), "{body}");
    let expected = format!("{0} of {0} bytes of the log are replayed", progress.log_bytes());
    for path in ["/health", "/ready"] {
        let (_, _, body) = ask(&mut stream, "GET", path, "");
        assert!(body.contains(&expected), "{body}");
    }
}

#[test]
fn a_full_disk_is_not_ready_for_writes() {
    let (runtime, front, mut stream) = front();
    let simulation = Simulation::new(2);
    let mut options = DbOptions::new("data");
    options.store.log_segment_bytes = 64 << 10;
    let db = Arc::new(Db::open(simulation.platform(), options).unwrap());
    let server = runtime.block_on(front.open(db)).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let running = runtime.spawn(server.run(async { drop(stopped.await) }));
    simulation.limit_room(Some(simulation.used_bytes()));
    // Segments of the log that are there already still take some.
    let refused = (0..1000).any(|second| ask(&mut stream, "POST", "/write", &format!("m v=1 {second}")).0 == 503);
    assert!(refused, "the disk is full");
    let (status, _, body) = ask(&mut stream, "GET", "/ready", "");
    assert!(status == 503 && body.contains("the disk is full"), "{body}");
    simulation.limit_room(None);
    assert_eq!(ask(&mut stream, "POST", "/write", "m v=1 1").0, 204);
    assert_eq!(ask(&mut stream, "GET", "/ready", "").0, 200);
    drop(stop);
    runtime.block_on(running).unwrap();
}

#[test]
fn only_what_a_restart_helps_is_a_failure() {
    let server = Running::start();
    let health = server.db.health().clone();
    assert!(server.get("/health").body.contains(r#""status":"pass","checks":[]"#));
    health.set("objects", Some((CheckStatus::Warn, "the object store is away".to_owned())));
    let answer = server.get("/health");
    let check = r#"{"name":"objects","status":"warn","message":"the object store is away"}"#;
    assert!(answer.status == 200 && answer.body.contains(check), "{}", answer.body);
    assert_eq!(server.get("/ready").status, 200);
    health.set("flush", Some((CheckStatus::Fail, "panicked".to_owned())));
    let answer = server.get("/health");
    assert!(answer.status == 503 && answer.body.contains(r#""status":"fail","checks":["#), "{}", answer.body);
    let damage = Damage { file: "a.part".to_owned(), offset: 7, message: "wrong checksum".to_owned() };
    health.report_damage(damage.clone());
    health.report_damage(damage);
    server.wait_for_metric("thalweg_damaged_blocks_total 1");
    let text = server.get("/metrics").body;
    assert!(text.contains("\nthalweg_disk_free_bytes ") && text.contains(r#"thalweg_health_checks{check="damage"} 1"#));
}

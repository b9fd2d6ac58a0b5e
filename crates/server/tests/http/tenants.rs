//! Limits of databases and accounts by every protocol, and what one tenant leaves to others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use thalweg_server::{Listener, ServerSettings};

use crate::certificates::block_on;
use crate::harness::{Answer, Running};

fn free() -> Listener {
    Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true }
}

/// A server with two databases, `a` and `b`.
fn start(change: impl FnOnce(&mut ServerSettings)) -> Running {
    let server = Running::start_listening(|settings| {
        (settings.control, settings.ingest, settings.postgres) = (Some(free()), Some(free()), Some(free()));
        "a".clone_into(&mut settings.line_database);
        change(settings);
    });
    for database in ["a", "b"] {
        assert_eq!(server.post(&format!("/write?db={database}"), "m v=1 1000000000").status, 204);
    }
    server
}

fn limit(server: &Running, database: &str, quota: &str) {
    let set = server.send("PUT", &format!("/api/v1/admin/limits/{database}"), &[], quota);
    assert_eq!(set.status, 200, "{}", set.body);
}

/// Calls until an answer is 429.
fn until_refused(call: impl Fn() -> Answer) -> Answer {
    (0..100).map(|_| call()).find(|answer| answer.status == 429).expect("a limit of ten at once")
}

#[test]
fn limits_of_a_database_hold_for_all_and_for_it_alone() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"requests_per_s":1}"#);
    let query = |database: &str| server.get(&format!("/api/v1/query?db={database}&query=m_v&time=1"));
    let refused = until_refused(|| query("a"));
    assert!(refused.body.contains("the database a") && refused.body.contains("requests_per_s"), "{}", refused.body);
    assert_eq!(refused.header("retry-after"), "1");
    for path in ["/write?db=a", "/api/v2/write?bucket=a", "/api/v2/write?bucket=a/x"] {
        until_refused(|| server.post(path, "m v=2 2000000000"));
    }
    assert!((0..50).all(|_| query("b").status == 200));
    assert_eq!(server.post("/write?db=b", "m v=2 2000000000").status, 204);
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("thalweg_database_refused_total{database=\"a\"}"), "{metrics}");
    assert!(
        metrics.lines().any(|line| line.starts_with("thalweg_database_requests_total{database=\"b\"} 5")),
        "{metrics}"
    );
    // None any more; and they are kept.
    limit(&server, "a", "{}");
    assert_eq!(query("a").status, 200);
    limit(&server, "a", r#"{"samples_per_s":7}"#);
    assert!(server.get("/api/v1/admin/limits/a").body.contains(r#""samples_per_s":7"#));
    assert_eq!(server.send("PUT", "/api/v1/admin/limits/none", &[], "{}").status, 404);
    let wrong = server.send("PUT", "/api/v1/admin/limits/a", &[], r#"{"sample_per_s":7}"#);
    assert!(wrong.status == 400 && wrong.body.contains("sample_per_s"), "{}", wrong.body);
}

#[test]
fn requests_count_for_the_database_that_they_write() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"requests_per_s":1}"#);
    let row = "m v=2 2000000000";
    let named = [("x-thalweg-database", "a")];
    for path in
        ["/write?db=b&bucket=a", "/api/v2/write?bucket=b&db=a", "/api/v3/write_lp?db=b&bucket=a&precision=nanosecond"]
    {
        assert!((0..20).all(|_| server.send("POST", path, &named, row).status == 204), "{path}");
    }
    for path in
        ["/write?db=a&bucket=b", "/api/v2/write?bucket=a&db=b", "/api/v3/write_lp?db=a&bucket=b&precision=nanosecond"]
    {
        until_refused(|| server.post(path, row));
    }
    // A database that is made anew has no limits of one that was dropped.
    assert!(server.get("/api/v1/admin/limits/a").body.contains("requests_per_s\":1"));
    let dropped = (0..100).map(|_| server.post("/query?q=DROP%20DATABASE%20a", "")).find(|answer| answer.status == 200);
    assert!(dropped.is_some());
    assert!(!server.get("/api/v1/admin/limits/a").body.contains("requests_per_s\":1"));
    assert!((0..20).all(|_| server.post("/write?db=a", row).status == 204));
    // Whatever language dropped it.
    limit(&server, "a", r#"{"samples_per_s":7}"#);
    let dropped = server.post("/sql", "DROP DATABASE a");
    assert_eq!(dropped.status, 200, "{}", dropped.body);
    assert_eq!(server.post("/write?db=a", row).status, 204);
    assert!(!server.get("/api/v1/admin/limits/a").body.contains("samples_per_s\":7"));
}

#[test]
fn new_series_are_limited_and_known_ones_are_not() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"new_series_per_hour":3}"#);
    let write = |database: &str, hosts: std::ops::Range<u32>| {
        let rows: Vec<String> = hosts.map(|host| format!("n,host=h{host} v=1 1000000000\n")).collect();
        server.post(&format!("/write?db={database}"), rows.concat())
    };
    assert_eq!(write("a", 0..3).status, 204);
    let refused = write("a", 2..5);
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(
        refused.body.contains("new_series_per_hour") && !refused.header("retry-after").is_empty(),
        "{}",
        refused.body
    );
    assert_eq!(write("a", 0..3).status, 204, "they are known");
    assert_eq!(write("b", 0..30).status, 204);
    let counted = server.get("/api/v1/query?db=a&query=count(n_v)&time=1").body;
    assert!(counted.contains(r#""3""#), "{counted}");
    let options = client::Options {
        control: server.at("--control"),
        ingest: server.at("--ingest"),
        ..client::Options::default()
    };
    let mut wire = client::Client::connect(options).unwrap();
    let labels = |host: &str| model::Labels::from_pairs([("host", host)]).unwrap();
    let refused = wire.register_series("a", &[("w", labels("x"))]).unwrap_err().to_string();
    assert!(refused.contains("new_series_per_hour"), "{refused}");
    assert!(wire.register_series("b", &[("w", labels("x"))]).is_ok());
}

#[test]
fn queries_of_a_database_hold_as_much_memory_as_it_may() {
    let server = start(|_| {});
    let rows: Vec<String> = (0..10_000).map(|host| format!("n,host=h{host} v=1 1000000000\n")).collect();
    for database in ["a", "b"] {
        assert_eq!(server.post(&format!("/write?db={database}"), rows.concat()).status, 204);
    }
    limit(&server, "a", r#"{"query_memory_bytes_max":100000}"#);
    let query =
        |database: &str, text: &str| server.get(&format!("/api/v1/query?db={database}&query={text}&time=1&nocache=1"));
    let refused = query("a", "n_v*2");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("query_memory_bytes_max"), "{}", refused.body);
    assert_eq!(query("a", "m_v").status, 200);
    assert_eq!(query("b", "n_v*2").status, 200);
    server.wait_for_metric("thalweg_database_query_memory_bytes{database=\"a\"} 0");
}

#[test]
fn statements_of_postgres_are_counted() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"requests_per_s":1}"#);
    let address = server.at("--postgres");
    block_on(async {
        let text = format!("host=127.0.0.1 port={} user=any dbname=a", address.port());
        let (session, connection) = tokio_postgres::connect(&text, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut refused = None;
        for _ in 0..50 {
            if let Err(error) = session.simple_query("SELECT 1").await {
                refused = error.as_db_error().map(|error| (error.code().code().to_owned(), error.message().to_owned()));
                break;
            }
        }
        let (code, message) = refused.expect("a burst of ten");
        assert!(code == "53400" && message.contains("requests_per_s"), "{code} {message}");
    });
}

#[test]
fn lines_over_a_limit_are_held_back_and_not_lost() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"samples_per_s":20}"#);
    let rows: Vec<String> = (0..220).map(|row| format!("held v={row} {row}000000\n")).collect();
    let begun = Instant::now();
    // 200 may come at once, 20 each second after that; each piece is one of its own.
    for piece in [&rows[..200], &rows[200..]] {
        let mut stream = TcpStream::connect(server.at("--line")).unwrap();
        stream.write_all(piece.concat().as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    let count = server.get("/api/v1/query?db=a&query=count_over_time(held_v[1m])&time=1").body;
    assert!(count.contains(r#""220""#), "{count}");
    assert!(begun.elapsed() > Duration::from_millis(500), "it was not held back: {:?}", begun.elapsed());
    assert!(server.get("/metrics").body.contains("thalweg_database_refused_total{database=\"a\"}"));
}

#[test]
fn a_tenant_with_all_slots_leaves_one_to_the_others() {
    // One slot of eight is left to others; a client that does not read its answer keeps its own until the time is up.
    let server = start(|settings| {
        settings.query_concurrency_max = 8;
        settings.query_queue_timeout_ms = 60_000;
        settings.query_timeout_ms = 20_000;
    });
    let rows: Vec<String> = (0..500).map(|host| format!("n,host=h{host} v={host} 1000000000\n")).collect();
    assert_eq!(server.post("/write?db=a", rows.concat()).status, 204);
    let slow = "/api/v1/query_range?db=a&query=quantile_over_time(0.5,n_v[1h:1s])&start=1&end=3601&step=1&nocache=1";
    let mut flood: Vec<TcpStream> = (0..40)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(format!("GET {slow} HTTP/1.1\r\nhost: localhost\r\n\r\n").as_bytes()).unwrap();
            stream
        })
        .collect();
    let begun = Instant::now();
    let waits = |line: &str| line.strip_prefix("thalweg_queries_waiting ").is_some_and(|count| count != "0");
    while !server.get("/metrics").body.lines().any(waits) {
        assert!(begun.elapsed() < Duration::from_secs(20), "no query waits");
        std::thread::yield_now();
    }
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(server.get("/api/v1/query?db=b&query=m_v&time=1&nocache=1").status, 200);
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    }
    flood.clear();
}

fn binary_client(server: &Running) -> client::Client {
    client::Client::connect(client::Options {
        control: server.at("--control"),
        ingest: server.at("--ingest"),
        reconnect_timeout_ms: 1,
        ..client::Options::default()
    })
    .unwrap()
}

fn register(client: &mut client::Client) -> u64 {
    let labels = model::Labels::from_pairs([("host", "a")]).unwrap();
    client.register_series("a", &[("up", labels)]).unwrap()[0]
}

/// Sends a batch of so many samples; the error of its answer, or of the connection.
fn send_samples(client: &mut client::Client, token: u64, samples: std::ops::Range<i64>) -> Result<(), String> {
    let timestamps_ns: Vec<i64> = samples.map(|row| row * 1_000_000).collect();
    let (tokens, values) = (vec![token; timestamps_ns.len()], vec![1.0; timestamps_ns.len()]);
    let columns = [(client::Values::F64(&values), [].as_slice())];
    let (measurement, slots) = (0, [].as_slice());
    let block =
        client::Outgoing { measurement, slots, tokens: &tokens, timestamps_ns: &timestamps_ns, columns: &columns };
    client.send(&[block]).map_err(|error| error.to_string())?;
    let exceptions = client.flush().map_err(|error| error.to_string())?;
    exceptions.is_empty().then_some(()).ok_or_else(|| format!("{exceptions:?}"))
}

/// Waits until a line of the metrics is as wanted.
fn until_metric(server: &Running, wanted: impl Fn(&str) -> bool) {
    let started = Instant::now();
    while !server.get("/metrics").body.lines().any(&wanted) {
        assert!(started.elapsed() < Duration::from_secs(30), "{}", server.get("/metrics").body);
    }
}

/// A batch of the binary protocol is counted for the databases of its tokens; after one that goes over a limit the connection is held back until nothing is
/// owed, also if it was parked in between.
#[test]
fn limits_of_a_database_hold_for_the_binary_protocol() {
    for park_after_ms in [1, 60_000] {
        let server = start(|settings| settings.park_after_ms = park_after_ms);
        // Ten seconds' worth may come at once.
        limit(&server, "a", r#"{"samples_per_s":1000}"#);
        let mut client = binary_client(&server);
        let token = register(&mut client);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for batch in 0..4 {
                    send_samples(&mut client, token, batch * 9_000..(batch + 1) * 9_000).unwrap();
                }
            });
            until_metric(&server, |line| {
                let refused = line.strip_prefix("thalweg_database_refused_total{database=\"a\"} ");
                refused.is_some_and(|refused| refused != "0")
            });
            limit(&server, "a", "{}");
        });
        until_metric(&server, |line| line == "thalweg_database_samples_total{database=\"a\"} 36001");
    }
}

/// Nor is a limit lost by another connection: while a database owes something, the first batch of one is refused and may be sent again.
#[test]
fn another_connection_of_the_binary_protocol_owes_what_the_last_one_did() {
    let server = start(|_| {});
    limit(&server, "a", r#"{"samples_per_s":1}"#);
    let mut client = binary_client(&server);
    let token = register(&mut client);
    send_samples(&mut client, token, 0..1_000).unwrap();
    drop(client);
    for _ in 0..3 {
        let refused = send_samples(&mut binary_client(&server), token, 1_000..2_000).unwrap_err();
        assert!(refused.contains("samples_per_s") && refused.contains("the database a"), "{refused}");
    }
    limit(&server, "a", "{}");
    send_samples(&mut binary_client(&server), token, 1_000..2_000).unwrap();
    until_metric(&server, |line| line == "thalweg_database_samples_total{database=\"a\"} 2001");
}

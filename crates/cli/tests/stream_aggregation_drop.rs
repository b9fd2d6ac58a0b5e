//! `drop_input` in the real program: the samples go, and what was made of them stays.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::expect_used, clippy::float_cmp, reason = "tests")]

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Folder, TestServer, run, text};

const ENTRY: &str =
    "- match: 'visits{job!=\"kept\"}'\n  interval: 1m\n  by: [job]\n  outputs: [sum_samples]\n  drop_input: true\n";

const HOUR_S: i64 = 3_600;

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_mins(1), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn now_s() -> i64 {
    std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64
}

fn write(server: &TestServer, job: &str, seconds: &[i64]) {
    let times: Vec<i64> = seconds.iter().map(|second| second * 1_000).collect();
    let values = vec![1; times.len()];
    let line =
        json!({ "metric": { "__name__": "visits", "job": job }, "values": values, "timestamps": times }).to_string();
    let (status, body) = server.post("/api/v1/import", line.as_bytes());
    assert!(matches!(status, 200 | 204), "{status} {body}");
}

/// The first value of a query, 0 if there is none.
fn ask(server: &TestServer, query: &str) -> f64 {
    let query =
        form_urlencoded::Serializer::new(String::new()).extend_pairs([("query", query), ("nocache", "1")]).finish();
    let found: Value = serde_json::from_str(&server.get(&format!("/api/v1/query?{query}")).1).unwrap();
    found["data"]["result"][0]["value"][1].as_str().map_or(0.0, |value| value.parse().unwrap())
}

fn sql(server: &TestServer, statement: &str) -> String {
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", statement).finish();
    let (status, body) = server.post(&format!("/sql?{query}"), b"");
    assert_eq!(status, 200, "{body}");
    body
}

fn rule(server: &TestServer) -> Value {
    let rules: Value = serde_json::from_str(&server.get("/api/v1/rules").1).unwrap();
    rules["data"]["groups"][0]["rules"][0]["materialized"].clone()
}

const RESULTS: &str = "sum(sum_over_time(visits:1m_by_job_sum_samples[9h]))";
const SOURCE: &str = "sum(count_over_time(visits{job!=\"kept\"}[9h]))";

#[test]
fn the_source_goes_and_the_results_stay() {
    let folder = Folder::new("drop-input");
    let file = folder.file("aggregation.yml", ENTRY.as_bytes());
    let checked = run(&["check", "stream-aggregation", file.to_str().unwrap()]);
    let said = text(&checked.stdout);
    assert!(said.contains("the samples of visits{job!=\"kept\"} go in steps of 15m"), "{said}");
    let data = folder.0.join("data");
    // Before there is an entry.
    let server = TestServer::start(&data, &["--no-host-metrics"]);
    let begun_s = now_s();
    let old: Vec<i64> = (0..120).map(|at| begun_s - 6 * HOUR_S + at * 30).collect();
    write(&server, "a", &old);
    write(&server, "kept", &old);
    sql(
        &server,
        "CREATE MATERIALIZED VIEW v AS SELECT time_bucket('10 minutes', time) AS bucket, count(value) AS n FROM visits GROUP BY 1",
    );
    server.stop();
    let flags = ["--no-host-metrics", "--stream-aggregation", file.to_str().unwrap()];
    let server = TestServer::start(&data, &flags);
    wait_until("the past is computed", || ask(&server, RESULTS) == 120.0);
    wait_until("the source goes", || ask(&server, SOURCE) == 0.0);
    assert_eq!((ask(&server, RESULTS), ask(&server, "count_over_time(visits[9h])")), (120.0, 120.0));
    let counted = |server: &TestServer| sql(server, "SELECT sum(n) AS n FROM v");
    assert!(counted(&server).contains("240"), "{}", counted(&server));
    let state = rule(&server);
    assert!(state["dropInput"]["goneBefore"].is_string() && state["dropInput"]["lastError"].is_null(), "{state}");
    // A late sample counts, one that comes too late does not.
    write(&server, "a", &[begun_s - 600]);
    wait_until("a late sample counts", || ask(&server, RESULTS) == 121.0);
    write(&server, "a", &[begun_s - 6 * HOUR_S + 15]);
    wait_until("it comes too late", || rule(&server)["refused"].as_u64() > Some(0));
    assert_eq!(ask(&server, RESULTS), 121.0);
    server.stop();
    let server = TestServer::start(&data, &flags);
    write(&server, "b", &[begun_s - 500]);
    wait_until("after a restart", || ask(&server, RESULTS) == 122.0);
    assert!(counted(&server).contains("242"), "{}", counted(&server));
    server.kill();
    let server = TestServer::start(&data, &flags);
    wait_until("after the program was killed", || ask(&server, RESULTS) == 122.0);
}

#[test]
fn a_table_with_other_fields_stays_whole() {
    let folder = Folder::new("drop-input-fields");
    let file = folder.file("aggregation.yml", ENTRY.as_bytes());
    let flags = ["--no-host-metrics", "--stream-aggregation", file.to_str().unwrap()];
    let server = TestServer::start(&folder.0.join("data"), &flags);
    let line = format!("visits,job=a value=1,bytes=7 {}000000000", now_s() - 6 * HOUR_S);
    assert_eq!(server.post("/write", line.as_bytes()).0, 204);
    wait_until("the reason is told", || {
        rule(&server)["dropInput"]["lastError"].as_str().is_some_and(|why| why.contains("has the field \"bytes\""))
    });
    assert_eq!((ask(&server, SOURCE), ask(&server, "count_over_time(visits_bytes[9h])")), (1.0, 1.0));
}

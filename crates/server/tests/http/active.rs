//! Queries that run: listed, ended, bounded.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::harness::{Answer, Running};

fn instant(query: &str) -> String {
    let parameters = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
    format!("/api/v1/query?time=1&{parameters}")
}

/// A query that takes as long as it is let: a subquery over a million steps.
const LONG: &str = "sum_over_time(sum_over_time(vector(1)[100000s:1s])[900000s:1s])";

/// Asks in a thread of its own, and returns once the query is listed.
fn ask_long(server: &Arc<Running>) -> (std::thread::JoinHandle<Answer>, String) {
    let asking = server.clone();
    let thread = std::thread::spawn(move || asking.get(&instant(LONG)));
    loop {
        let listed: serde_json::Value =
            serde_json::from_str(&server.get("/api/v1/status/active_queries").body).unwrap();
        if let Some(query) = listed["data"].as_array().unwrap().first() {
            assert_eq!(
                (&query["query"], &query["database"], &query["kind"]),
                (&LONG.into(), &"default".into(), &"instant".into())
            );
            assert!(query["remote"].as_str().unwrap().starts_with("127.0.0.1:"), "{query}");
            return (thread, query["id"].as_str().unwrap().to_owned());
        }
        assert!(!thread.is_finished(), "{:?}", thread.join());
    }
}

#[test]
fn queries_that_run_are_listed_and_can_be_ended() {
    let server = Arc::new(Running::start());
    let (asking, id) = ask_long(&server);
    assert_eq!(server.post(&format!("/api/v1/status/active_queries/{id}/kill"), "").status, 200);
    let answer = asking.join().unwrap();
    assert_eq!((answer.status, answer.body.contains(r#""errorType":"canceled""#)), (503, true), "{}", answer.body);
    assert_eq!(server.get("/api/v1/status/active_queries").body, r#"{"status":"success","data":[]}"#);
    for unknown in [&id, "x", "18446744073709551616"] {
        let answer = server.post(&format!("/api/v1/status/active_queries/{unknown}/kill"), "");
        assert_eq!(answer.status, 404, "{}", answer.body);
    }
    let metrics = server.get("/metrics").body;
    for line in [
        "thalweg_queries_running 0",
        "thalweg_queries_total{kind=\"instant\",outcome=\"cancelled\"} 1",
        "thalweg_query_duration_seconds_count{kind=\"instant\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "no line {line}");
    }
}

/// The niceness of each of this process's threads that work on queries.
#[cfg(target_os = "linux")]
fn query_threads() -> Vec<i32> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let stats = threads.filter_map(|thread| std::fs::read_to_string(thread.unwrap().path().join("stat")).ok());
    let of_queries = stats.filter_map(|stat| stat.split_once(" (query) ").map(|(_, fields)| fields.to_owned()));
    // The 19th field of all; those behind the name begin with the third.
    of_queries.map(|fields| fields.split(' ').nth(16).unwrap().parse().unwrap()).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn threads_of_long_queries_fall_behind_those_of_others() {
    let server = Arc::new(Running::start());
    let (asking, id) = ask_long(&server);
    let own = rustix::process::getpriority_process(None).unwrap();
    while query_threads().iter().all(|niceness| *niceness <= own) {
        assert!(!asking.is_finished(), "{:?}", asking.join());
        std::thread::yield_now();
    }
    server.post(&format!("/api/v1/status/active_queries/{id}/kill"), "");
    assert_eq!(asking.join().unwrap().status, 503);
}

#[test]
fn more_queries_than_may_run_wait_or_are_refused() {
    let server = Arc::new(Running::start_with(|settings| {
        (settings.query_concurrency_max, settings.query_queue_max) = (1, 1);
        settings.query_queue_timeout_ms = 500;
    }));
    // Four run as heavy ones, since they left the only slot to the one after them; the fifth stays in it.
    let mut asking = Vec::new();
    for running in 1..=5 {
        let asker = server.clone();
        asking.push(std::thread::spawn(move || asker.get(&instant(LONG))));
        while active(&server).len() < running {
            assert!(!asking.iter().any(std::thread::JoinHandle::is_finished), "{:?}", asking.pop().unwrap().join());
        }
    }
    let answer = server.get("/api/v1/query?query=1");
    assert_eq!(answer.status, 429);
    assert!(answer.body.contains("query_queue_timeout_ms"), "{}", answer.body);
    for id in active(&server) {
        server.post(&format!("/api/v1/status/active_queries/{id}/kill"), "");
    }
    asking.into_iter().for_each(|asking| drop(asking.join().unwrap()));
    assert_eq!(server.get("/api/v1/query?query=1").status, 200);
    assert!(server.get("/metrics").body.contains("thalweg_queries_refused_total 1\n"));
}

/// The ids of the queries that run.
fn active(server: &Running) -> Vec<String> {
    let listed: serde_json::Value = serde_json::from_str(&server.get("/api/v1/status/active_queries").body).unwrap();
    let listed = listed["data"].as_array().unwrap().clone();
    listed.iter().map(|query| query["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_plain_query_is_answered_among_a_thousand_hostile_ones() {
    let server = Arc::new(Running::start_with(|settings| {
        settings.query_timeout_ms = 30_000;
        settings.query_samples_max = 200_000;
    }));
    let mut lines = String::new();
    for series in 0..300 {
        let _ = writeln!(lines, "many,a={series} value=1 1000000000");
    }
    server.write(&lines);
    let hostile = [
        instant(&format!("{{a=~\"{}\"}}", "(x+x+)+".repeat(40))),
        instant("{__name__=~\"((((.{1000}){1000}){1000}){1000})\"}"),
        "/api/v1/query_range?start=0&end=1000000000&step=1&query=many".to_owned(),
        instant(LONG),
        instant("many * on() group_left() many"),
        instant("sum_over_time((many + on(a) many + on(a) many)[10000s:1s])"),
        instant(&format!("{}1{}", "(".repeat(5000), ")".repeat(5000))),
    ];
    let samples_held_max = Arc::new(AtomicU64::new(0));
    let askers: Vec<_> = (0..20)
        .map(|asker| {
            let (server, hostile) = (server.clone(), hostile.clone());
            std::thread::spawn(move || {
                for number in 0..50 {
                    let answer = server.get(&format!("{}&timeout=100ms", hostile[(asker + number) % hostile.len()]));
                    assert!([400, 422, 429, 503, 200].contains(&answer.status), "{}", answer.body);
                }
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    let mut answered = 0;
    while !askers.iter().all(std::thread::JoinHandle::is_finished) {
        let started = Instant::now();
        let answer = server.get(&instant("count(many)"));
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert!(answer.body.contains(r#""300""#), "{}", answer.body);
        (slowest, answered) = (slowest.max(started.elapsed()), answered + 1);
        samples_held_max.fetch_max(server.db.stats().memory.queries, Ordering::Relaxed);
    }
    askers.into_iter().for_each(|asker| asker.join().unwrap());
    // None of the queries that run at the same time holds more than 200,000 samples of 16 bytes.
    let held_bytes = samples_held_max.load(Ordering::Relaxed);
    let bound_bytes = 16 * 200_000 * 2 * std::thread::available_parallelism().unwrap().get().max(4) as u64;
    assert!(held_bytes <= bound_bytes, "{held_bytes} bytes held");
    assert!(answered > 0 && slowest < Duration::from_secs(30), "{answered} answered, the slowest after {slowest:?}");
    assert_eq!(server.db.stats().memory.queries, 0);
}

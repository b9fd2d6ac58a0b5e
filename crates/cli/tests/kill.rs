//! SIGKILL under load: what was acknowledged is there once, nothing is there in part.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use support::{Folder, TestServer, agent};

const ROUNDS: u32 = 50;
const WRITERS: u64 = 4;

/// Series that a batch touches: on several shards, with several fields.
const HOSTS: u64 = 5;

/// What became of the batches that were sent.
#[derive(Default)]
struct Book {
    next: AtomicU64,
    acknowledged: Mutex<Vec<u64>>,
    unanswered: Mutex<Vec<u64>>,
}

/// Batch n: a point at second n for each host, with two fields that both hold n.
fn lines(batch: u64) -> String {
    let line = |host: u64| format!("kill,host=h{host} a={batch},b={batch}i {batch}\n");
    (0..HOSTS).map(line).collect::<Vec<_>>().concat()
}

fn write_until(url: &str, book: &Book, stop: &AtomicBool) {
    let agent = agent();
    while !stop.load(Ordering::Relaxed) {
        let batch = book.next.fetch_add(1, Ordering::Relaxed) + 1;
        let answer = agent.post(format!("{url}/write?precision=s")).send(lines(batch).as_bytes());
        let to = match answer {
            Ok(answer) if answer.status() == 204 => &book.acknowledged,
            Ok(answer) => panic!("batch {batch} was answered {}", answer.status()),
            Err(_) => &book.unanswered,
        };
        to.lock().unwrap().push(batch);
    }
}

/// Seconds and values of every sample of a metric, by host.
fn samples(server: &TestServer, metric: &str, batches: u64) -> BTreeMap<String, Vec<(u64, u64)>> {
    let (status, body) = server.get(&format!("/api/v1/query?query={metric}[{batches}s]&time={batches}"));
    assert_eq!(status, 200, "{body}");
    let parsed: serde_json::Value = serde_json::from_str(&body).unwrap();
    let series = parsed["data"]["result"].as_array().unwrap().iter().map(|series| {
        let sample = |pair: &serde_json::Value| (pair[0].as_u64().unwrap(), pair[1].as_str().unwrap().parse().unwrap());
        let host = series["metric"]["host"].as_str().unwrap().to_owned();
        (host, series["values"].as_array().unwrap().iter().map(sample).collect())
    });
    series.collect()
}

/// All series must hold the same batches, each once, every acknowledged one among them.
fn check(server: &TestServer, book: &Book, round: u32) {
    let batches = book.next.load(Ordering::Relaxed) + 1;
    let mut found: Option<Vec<u64>> = None;
    for metric in ["kill_a", "kill_b"] {
        let by_host = samples(server, metric, batches);
        // A kill may come before anything was acknowledged.
        let nothing = by_host.is_empty() && book.acknowledged.lock().unwrap().is_empty();
        assert!(nothing || by_host.len() as u64 == HOSTS, "round {round}: {} of {HOSTS} series", by_host.len());
        for (host, samples) in by_host {
            assert!(
                samples.iter().all(|(second, value)| second == value),
                "round {round}, {metric} {host}: a wrong value"
            );
            let batches: Vec<u64> = samples.into_iter().map(|(second, _)| second).collect();
            assert!(batches.is_sorted_by(|a, b| a < b), "round {round}, {metric} {host}: a batch is there twice");
            let first = found.get_or_insert_with(|| batches.clone());
            assert_eq!(*first, batches, "round {round}, {metric} {host}: a batch is there in part");
        }
    }
    let found = found.unwrap_or_default();
    for batch in book.acknowledged.lock().unwrap().iter() {
        assert!(found.binary_search(batch).is_ok(), "round {round}: acknowledged batch {batch} is lost");
    }
    let sent = book.acknowledged.lock().unwrap().len() + book.unanswered.lock().unwrap().len();
    assert!(found.len() <= sent, "round {round}: more batches than were sent");
}

#[test]
fn fifty_kills_lose_nothing_acknowledged() {
    let seed =
        std::env::var("THALWEG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    eprintln!("THALWEG_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = Folder::new("kill");
    // Small sizes, so that kills also hit flushes, merges and new log segments.
    let flags = ["--no-host-metrics", "--shards", "3", "--head-bytes-max", "20000", "--log-bytes-max", "40000000"];
    let book = Book::default();
    for round in 0..ROUNDS {
        let server = TestServer::start(&folder.0, &flags);
        if round > 0 {
            check(&server, &book, round);
        }
        let stop = AtomicBool::new(false);
        let url = server.url().to_owned();
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                let (url, book, stop) = (&url, &book, &stop);
                scope.spawn(move || write_until(url, book, stop));
            }
            std::thread::sleep(Duration::from_millis(random.u64(5..120)));
            // The writers go on while the server dies; what they send from then on is not answered.
            server.kill();
            stop.store(true, Ordering::Relaxed);
        });
    }
    let server = TestServer::start(&folder.0, &flags);
    check(&server, &book, ROUNDS);
    let (acknowledged, unanswered) = (book.acknowledged.lock().unwrap().len(), book.unanswered.lock().unwrap().len());
    eprintln!("{acknowledged} batches acknowledged, {unanswered} not answered");
    assert!(acknowledged > 1000 && unanswered >= ROUNDS as usize, "the kills did not meet writers");
}

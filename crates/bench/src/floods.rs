//! The cases of `thalweg bench hostile` that are no queries: clients that send too much, too slowly, or never what they announced.
//!
//! Each case gets a server of its own with little memory. While the attack goes on, one client asks a cheap query and another writes a cheap
//! row, again and again.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use comfy_table::{Table, presets};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

use super::load::OwnServer;
use super::storage::quantile;
use crate::measure::process::{begin_peak, usage};
use client::http::HttpClient;

/// How long each attack goes on.
const ATTACK: Duration = Duration::from_secs(8);
/// How long a client of an attack waits for bytes or for room to send some.
const SOCKET_PATIENCE: Duration = Duration::from_secs(2);
/// Between two cheap requests of a client.
const CHEAP_PAUSE: Duration = Duration::from_millis(5);
/// Series that are there before.
const SERIES: usize = 50_000;
/// Bytes that a bomb unpacks to.
const BOMB_BYTES: usize = 270 << 20;
const MIB: f64 = (1 << 20) as f64;

/// Where a case's server listens.
#[derive(Clone, Copy)]
struct Target<'a> {
    url: &'a str,
    http: SocketAddr,
    control: SocketAddr,
    postgres: SocketAddr,
}

/// One client of an attack; it ends soon after it is told.
type Attack = fn(Target<'_>, &AtomicBool, &Prepared);

struct Case {
    name: &'static str,
    clients: usize,
    attack: Attack,
}

/// Bodies that many clients send.
struct Prepared {
    bomb: Vec<u8>,
    form: Vec<u8>,
    /// How long each bomb that is sent alone took to be refused.
    refusals_ms: Mutex<Vec<f64>>,
}

const CASES: [Case; 10] = [
    Case { name: "nothing", clients: 0, attack: |_, _, _| {} },
    Case { name: "one gzip bomb after another", clients: 1, attack: timed_bomb },
    Case { name: "64 gzip bombs at a time", clients: 64, attack: gzip_bomb },
    Case { name: "400 announced frames", clients: 400, attack: announced_frame },
    Case { name: "40 held COPY", clients: 40, attack: held_copy },
    Case { name: "300 half-sent bodies", clients: 300, attack: half_sent_body },
    Case { name: "4 forms of 60 MiB", clients: 4, attack: large_form },
    Case {
        name: "8 lists of all series",
        clients: 8,
        attack: |target, stop, _| ask(target, stop, "/api/v1/series?match[]={__name__!=%22%22}"),
    },
    Case { name: "8 lists of all labels", clients: 8, attack: |target, stop, _| ask(target, stop, "/api/v1/labels") },
    Case { name: "16 heavy queries", clients: 16, attack: |target, stop, _| ask(target, stop, HEAVY) },
];

/// Sorts and groups everything, again and again.
const HEAVY: &str = "/api/v1/query_range?query=sort(count_values%20without()(%22v%22,wide*rand_free))%20or%20quantile_over_time(0.5,wide[1h:1s])&start=1700000000&end=1700003600&step=1&nocache=1";

/// What came of one case.
#[derive(Debug, Serialize)]
pub(super) struct Outcome {
    case: &'static str,
    resident_peak_bytes: u64,
    /// What the attack added to the memory before it, at most.
    attack_bytes: u64,
    /// Median and 99 of 100, where refusals are measured.
    refusal_ms: Option<[f64; 2]>,
    query_ms: [f64; 2],
    write_ms: [f64; 2],
    queries: usize,
    writes: usize,
    refused: usize,
    alive: bool,
}

pub(super) fn measure(data: &Path, memory_bytes_max: u64) -> Result<Vec<Outcome>, String> {
    let prepared = Prepared { bomb: bomb()?, form: form(), refusals_ms: Mutex::default() };
    CASES.iter().map(|case| run_case(case, &prepared, &data.join("flood"), memory_bytes_max)).collect()
}

fn run_case(case: &Case, prepared: &Prepared, data: &Path, memory_bytes_max: u64) -> Result<Outcome, String> {
    // Left by the case before.
    let _ = std::fs::remove_dir_all(data);
    let (server, [control, postgres]) = start(data, memory_bytes_max)?;
    let http = server.url.trim_start_matches("http://").trim_end_matches('/').parse();
    let http = http.map_err(|error| format!("the server's address {}: {error}", server.url))?;
    let target = Target { url: &server.url, http, control, postgres };
    fill(&HttpClient::new(target.url))?;
    begin_peak(server.child.id());
    let before = usage(server.child.id());
    let stop = AtomicBool::new(false);
    let (queries, writes) = thread::scope(|scope| {
        let attackers: Vec<_> =
            (0..case.clients).map(|_| scope.spawn(|| (case.attack)(target, &stop, prepared))).collect();
        let query = scope.spawn(|| repeat(&stop, || cheap_query(target.url)));
        let write = scope.spawn(|| repeat(&stop, || cheap_write(target.url)));
        thread::sleep(ATTACK);
        stop.store(true, Ordering::Relaxed);
        attackers.into_iter().for_each(|attacker| drop(attacker.join()));
        (query.join().unwrap_or_default(), write.join().unwrap_or_default())
    });
    let used = usage(server.child.id());
    let alive = HttpClient::new(target.url).get("/health", &[]).is_ok_and(|answer| answer.status == 200);
    let [(query_ms, query_count, query_refused), (write_ms, write_count, write_refused)] =
        [queries, writes].map(|(mut latencies_ms, refused)| {
            let count = latencies_ms.len();
            ([0.5, 0.99].map(|share| quantile(&mut latencies_ms, share)), count, refused)
        });
    let mut refusals_ms = std::mem::take(&mut *prepared.refusals_ms.lock().unwrap_or_else(PoisonError::into_inner));
    let measured = !refusals_ms.is_empty();
    Ok(Outcome {
        case: case.name,
        attack_bytes: used.resident_peak_bytes.saturating_sub(before.resident_bytes),
        refusal_ms: measured.then(|| [0.5, 0.99].map(|share| quantile(&mut refusals_ms, share))),
        resident_peak_bytes: used.resident_peak_bytes,
        query_ms,
        write_ms,
        queries: query_count,
        writes: write_count,
        refused: query_refused + write_refused,
        alive,
    })
}

/// Starts a server; where its control plane and Postgres's protocol are. Another program may take a port that was free.
fn start(data: &Path, memory_bytes_max: u64) -> Result<(OwnServer, [SocketAddr; 2]), String> {
    let mut tries_left = 3;
    loop {
        let ports = free_ports().map_err(|error| format!("no free port: {error}"))?;
        let [control, postgres] = ports.map(|port| port.to_string());
        let memory = memory_bytes_max.to_string();
        let flags = ["--memory-bytes-max", &memory, "--control", &control, "--postgres", &postgres];
        tries_left -= 1;
        match OwnServer::start_with(data, &flags) {
            Err(_) if tries_left > 0 => {}
            started => return Ok((started?, ports)),
        }
    }
}

/// Two ports that are free now.
fn free_ports() -> io::Result<[SocketAddr; 2]> {
    let ports = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    let [control, postgres] = &ports;
    Ok([control.local_addr()?, postgres.local_addr()?])
}

/// Calls until the attack is over: milliseconds of each call that was answered as it should be, and how many were not.
fn repeat(stop: &AtomicBool, call: impl Fn() -> bool) -> (Vec<f64>, usize) {
    let (mut latencies_ms, mut refused) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        if call() {
            latencies_ms.push(start.elapsed().as_secs_f64() * 1000.0);
        } else {
            refused += 1;
        }
        thread::sleep(CHEAP_PAUSE);
    }
    (latencies_ms, refused)
}

fn cheap_query(url: &str) -> bool {
    let parameters = [("query", "sum(cheap)"), ("nocache", "1")];
    HttpClient::new(url).get("/api/v1/query", &parameters).is_ok_and(|answer| answer.status == 200)
}

fn cheap_write(url: &str) -> bool {
    HttpClient::new(url).post("/write", &[], b"cheap,host=a value=1").is_ok_and(|answer| answer.status == 204)
}

fn fill(client: &HttpClient) -> Result<(), String> {
    let mut lines = String::new();
    for series in 0..SERIES {
        let _ = writeln!(lines, "wide,pod=pod-{series},job=j{} value={series}", series % 50);
    }
    lines += "cheap,host=a value=1\n";
    let answer = client.post("/write", &[], lines.as_bytes())?;
    if answer.status == 204 { Ok(()) } else { Err(format!("writing failed with {}: {}", answer.status, answer.body)) }
}

fn bomb() -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let lines = "m v=1 1\n".repeat(1 << 14);
    for _ in 0..BOMB_BYTES / lines.len() {
        encoder.write_all(lines.as_bytes()).map_err(|error| error.to_string())?;
    }
    encoder.finish().map_err(|error| error.to_string())
}

fn form() -> Vec<u8> {
    let mut form = b"query=sum(cheap)".to_vec();
    while form.len() < 60 << 20 {
        form.extend_from_slice(b"&a=%41");
    }
    form
}

fn gzip_bomb(target: Target<'_>, stop: &AtomicBool, prepared: &Prepared) {
    let client = HttpClient::new(target.url);
    while !stop.load(Ordering::Relaxed) {
        let _ = client.post_as("/write", &[("content-encoding", "gzip")], &prepared.bomb);
    }
}

/// Sends bombs one at a time, and measures until each is refused.
fn timed_bomb(target: Target<'_>, stop: &AtomicBool, prepared: &Prepared) {
    let client = HttpClient::new(target.url);
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let answer = client.post_as("/write", &[("content-encoding", "gzip")], &prepared.bomb);
        if answer.is_ok_and(|answer| [413, 429, 503].contains(&answer.status)) {
            let refusal_ms = start.elapsed().as_secs_f64() * 1000.0;
            prepared.refusals_ms.lock().unwrap_or_else(PoisonError::into_inner).push(refusal_ms);
        }
    }
}

fn large_form(target: Target<'_>, stop: &AtomicBool, prepared: &Prepared) {
    let client = HttpClient::new(target.url);
    let form = [("content-type", "application/x-www-form-urlencoded")];
    while !stop.load(Ordering::Relaxed) {
        let _ = client.post_as("/api/v1/query", &form, &prepared.form);
    }
}

fn ask(target: Target<'_>, stop: &AtomicBool, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target.http);
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(target.http) else { continue };
        if stream.write_all(request.as_bytes()).is_err() {
            continue;
        }
        let mut buffer = vec![0; 64 << 10];
        while !stop.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(count) if count > 0 => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                _ => break,
            }
        }
    }
}

fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, SOCKET_PATIENCE).ok()?;
    stream.set_read_timeout(Some(SOCKET_PATIENCE)).ok()?;
    stream.set_write_timeout(Some(SOCKET_PATIENCE)).ok()?;
    Some(stream)
}

/// Holds a connection until the attack is over.
fn hold(stop: &AtomicBool, stream: Option<TcpStream>) {
    while !stop.load(Ordering::Relaxed) {
        thread::sleep(CHEAP_PAUSE);
    }
    drop(stream);
}

/// Announces a message of 8 MiB and sends nothing of it.
fn announced_frame(target: Target<'_>, stop: &AtomicBool, _: &Prepared) {
    let stream = connect(target.control).and_then(|mut stream| {
        let frame = [&b"THALWEGC\x01\0\0\0\0\0\0\0"[..], &(8u32 << 20).to_le_bytes(), &[0; 4]].concat();
        stream.write_all(&frame).ok()?;
        Some(stream)
    });
    hold(stop, stream);
}

/// Sends 60 MiB of rows and never says that they are all.
fn held_copy(target: Target<'_>, stop: &AtomicBool, _: &Prepared) {
    let stream = connect(target.postgres).and_then(|mut stream| {
        let message = |kind: &[u8], body: &[u8]| [kind, &(body.len() as u32 + 4).to_be_bytes(), body].concat();
        stream.write_all(&message(b"", b"\0\x03\0\0user\0bench\0database\0default\0\0")).ok()?;
        stream.write_all(&message(b"Q", b"COPY wide (time, pod, value) FROM STDIN\0")).ok()?;
        let rows = message(b"d", &b"2024-01-01 00:00:00\tp\t1\n".repeat(40_000));
        for _ in 0..60 {
            stream.write_all(&rows).ok()?;
        }
        Some(stream)
    });
    hold(stop, stream);
}

/// Sends 3.5 MiB of a body of 60.
fn half_sent_body(target: Target<'_>, stop: &AtomicBool, _: &Prepared) {
    let stream = connect(target.http).and_then(|mut stream| {
        let head = format!("POST /write HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n", target.http, 60 << 20);
        stream.write_all(head.as_bytes()).ok()?;
        stream.write_all(&b"m v=1 1\n".repeat(7 << 16)).ok()?;
        Some(stream)
    });
    hold(stop, stream);
}

pub(super) fn render(outcomes: &[Outcome]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "attack",
        "memory, MiB",
        "of the attack",
        "refusal, ms",
        "cheap query, ms",
        "cheap write, ms",
        "refused",
        "",
    ]);
    for outcome in outcomes {
        let pair = |[median, p99]: [f64; 2], count: usize| format!("{median:.1} / {p99:.1} ({count})");
        table.add_row([
            outcome.case.to_owned(),
            format!("{:.0}", outcome.resident_peak_bytes as f64 / MIB),
            format!("{:.0}", outcome.attack_bytes as f64 / MIB),
            outcome.refusal_ms.map_or_else(String::new, |[median, p99]| format!("{median:.1} / {p99:.1}")),
            pair(outcome.query_ms, outcome.queries),
            pair(outcome.write_ms, outcome.writes),
            outcome.refused.to_string(),
            if outcome.alive { String::new() } else { "does not answer".to_owned() },
        ]);
    }
    format!("{table}\nmedian / 99 of 100 (how many)")
}

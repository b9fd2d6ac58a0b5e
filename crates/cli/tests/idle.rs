//! Many connections that say nothing.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Folder, PROGRAM};

const CONNECTIONS: u64 = 10_000;

/// What this test opens beside the connections.
const OTHER_FILES: u64 = 200;

/// What they may take at most, whatever they speak.
const BYTES_MAX: u64 = 100 << 20;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Raises the soft limit of open files as far as the hard one allows; how many connections it leaves.
fn connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let open_max = limit.maximum.unwrap_or(u64::MAX).min(CONNECTIONS + OTHER_FILES);
    let open_max = open_max.max(limit.current.unwrap_or(u64::MAX));
    setrlimit(Resource::Nofile, Rlimit { current: Some(open_max), maximum: limit.maximum }).unwrap();
    CONNECTIONS.min(open_max.saturating_sub(OTHER_FILES))
}

fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// The program, where it serves HTTP and where it takes lines. It starts with the few open files that a shell allows: more it has
/// to ask for itself.
fn start(folder: &Folder) -> (Ended, String, SocketAddr) {
    let local = "127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 256; exec \"$@\"", "sh", PROGRAM]);
    command.args(["serve", "--no-host-metrics", "--http", local, "--line", local]);
    for flag in ["--control", "--ingest", "--graphite", "--opentsdb", "--otlp-grpc", "--postgres"] {
        command.args([flag, "off"]);
    }
    command.arg("--data").arg(folder.0.join("data"));
    let mut server = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let errors = BufReader::new(server.0.stderr.take().unwrap()).lines();
    let line = errors.map_while(Result::ok).find_map(|told| told.strip_prefix("thalweg: --line ")?.parse().ok());
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let url = ready.trim().rsplit(' ').next().unwrap().to_owned();
    (server, url, line.unwrap())
}

/// Waits until a line of the server's own numbers stands there.
fn wait_for(url: &str, wanted: &str) {
    let started = Instant::now();
    loop {
        let text = support::agent().get(format!("{url}metrics")).call().unwrap().body_mut().read_to_string().unwrap();
        if text.lines().any(|line| line == wanted) {
            return;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "{wanted} not in {text}");
        std::thread::yield_now();
    }
}

#[track_caller]
fn check(kind: &str, connections: u64, before: u64, now: u64) -> String {
    let taken = now.saturating_sub(before);
    assert!(taken * CONNECTIONS <= BYTES_MAX * connections, "{taken} bytes for {connections} connections of {kind}");
    format!("{connections} silent connections of {kind} take {} KiB, {} KiB in all", taken >> 10, now >> 10)
}

#[test]
fn ten_thousand_silent_connections_take_little_memory() {
    let connections = connections();
    if connections < CONNECTIONS {
        eprintln!("only {connections} connections: the hard limit of open files allows no more");
    }
    let folder = Folder::new("idle");
    let (server, url, line) = start(&folder);
    let streams = |count: u64| wait_for(&url, &format!("thalweg_streams{{protocol=\"line\"}} {count}"));
    drop(TcpStream::connect(line).unwrap());
    streams(0);
    let before = resident_bytes(server.0.id());

    let open: Vec<TcpStream> = (0..connections).map(|_| TcpStream::connect(line).unwrap()).collect();
    streams(connections);
    let told = check("lines", connections, before, resident_bytes(server.0.id()));
    println!("{told}");
    drop(open);
    streams(0);

    // Each has asked once, as those of a pool have. Whoever asks for the numbers has a connection, too.
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    let before = resident_bytes(server.0.id());
    let open: Vec<TcpStream> = (0..connections).map(|_| asked_once(address)).collect();
    let awake = resident_bytes(server.0.id());
    wait_for(&url, &format!("thalweg_connections_parked {connections}"));
    let told = check("HTTP", connections, before, resident_bytes(server.0.id()));
    println!("{told}; {} KiB before the last had been silent for long", awake.saturating_sub(before) >> 10);
    drop(open);
}

fn asked_once(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: thalweg\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&answer));
    stream
}

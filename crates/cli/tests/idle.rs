//! Many connections that say nothing.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Folder, PROGRAM};

const CONNECTIONS: u64 = 10_000;

/// What the program and this test open beside the connections.
const OTHER_FILES: u64 = 200;

const BYTES_MAX: u64 = 100 << 20;

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Raises the soft limit of open files, which the program inherits, as far as the hard one allows; how many connections it leaves.
fn connections() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = CONNECTIONS + OTHER_FILES;
    let open_max = limit.maximum.unwrap_or(u64::MAX).min(wanted).max(limit.current.unwrap_or(u64::MAX));
    setrlimit(Resource::Nofile, Rlimit { current: Some(open_max), maximum: limit.maximum }).unwrap();
    CONNECTIONS.min(open_max.saturating_sub(OTHER_FILES))
}

fn resident_bytes(pid: u32) -> u64 {
    Process::new(pid.cast_signed()).unwrap().status().unwrap().vmrss.unwrap() * 1024
}

#[test]
fn ten_thousand_silent_connections_take_little_memory() {
    let connections = connections();
    if connections < CONNECTIONS {
        eprintln!("only {connections} connections: the hard limit of open files allows no more");
    }
    let folder = Folder::new("idle");
    let local = "127.0.0.1:0";
    let mut command = Command::new(PROGRAM);
    command.args([
        "serve",
        "--no-host-metrics",
        "--http",
        local,
        "--line",
        local,
        "--control",
        "off",
        "--ingest",
        "off",
    ]);
    command.args(["--graphite", "off", "--opentsdb", "off", "--otlp-grpc", "off", "--data"]);
    let server = command.arg(folder.0.join("data")).stdout(Stdio::piped()).spawn().unwrap();
    let mut server = Ended(server);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (url, line) = (last_word(), last_word().parse::<SocketAddr>().unwrap());
    let count = |wanted: u64| {
        let started = Instant::now();
        let wanted = format!("thalweg_streams{{protocol=\"line\"}} {wanted}");
        loop {
            let text =
                support::agent().get(format!("{url}metrics")).call().unwrap().body_mut().read_to_string().unwrap();
            if text.lines().any(|line| line == wanted) {
                return;
            }
            assert!(started.elapsed() < Duration::from_mins(1), "{wanted} not in {text}");
            std::thread::yield_now();
        }
    };
    drop(TcpStream::connect(line).unwrap());
    count(0);
    let before = resident_bytes(server.0.id());
    let open: Vec<TcpStream> = (0..connections).map(|_| TcpStream::connect(line).unwrap()).collect();
    count(connections);
    let taken = resident_bytes(server.0.id()).saturating_sub(before);
    println!("{connections} silent connections take {} KiB", taken >> 10);
    assert!(taken * CONNECTIONS <= BYTES_MAX * connections, "{taken} bytes for {connections} connections");
    drop(open);
    count(0);
}

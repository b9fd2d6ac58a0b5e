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
use wire::data::{self, Hello};
use wire::frame::{HEADER_BYTES, MessageBuffer, Plane, message_bytes, preface};

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

/// The program, where it serves HTTP and where it takes lines, batches and SQL. It starts with the few open files that a shell
/// allows: more it has to ask for itself.
fn start(folder: &Folder) -> (Ended, String, [SocketAddr; 3]) {
    let local = "127.0.0.1:0";
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 256; exec \"$@\"", "sh", PROGRAM]);
    command.args(["serve", "--no-host-metrics", "--http", local]);
    let listening = ["--line", "--ingest", "--postgres"];
    for flag in ["--control", "--graphite", "--opentsdb", "--otlp-grpc"] {
        command.args([flag, "off"]);
    }
    for flag in listening {
        command.args([flag, local]);
    }
    command.arg("--data").arg(folder.0.join("data"));
    let mut server = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut errors = BufReader::new(server.0.stderr.take().unwrap()).lines().map_while(Result::ok);
    // They are told in this order.
    let addresses = listening
        .map(|flag| errors.find_map(|told| told.split_once(&format!("listening: {flag} "))?.1.parse().ok()).unwrap());
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let url = ready.trim().rsplit(' ').next().unwrap().to_owned();
    (server, url, addresses)
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
    let (server, url, [line, ..]) = start(&folder);
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
    drop(server);

    // One that has not had memory for others. Each has sent a batch and waits for a reason to send another.
    let folder = Folder::new("idle-wire");
    let (server, url, [_, ingest, postgres]) = start(&folder);
    let before = resident_bytes(server.0.id());
    let open: Vec<TcpStream> = (0..connections).map(|_| sent_once(ingest)).collect();
    wait_for(&url, &format!("thalweg_connections_parked {connections}"));
    let told = check("the binary protocol", connections, before, resident_bytes(server.0.id()));
    println!("{told}, {} threads", std::fs::read_dir(format!("/proc/{}/task", server.0.id())).unwrap().count());
    drop(open);

    // What a client says that it will send is not made room for.
    let before = resident_bytes(server.0.id());
    let open: Vec<TcpStream> = (0..CLAIMS).map(|_| claimed(postgres)).collect();
    let taken = resident_bytes(server.0.id()).saturating_sub(before);
    assert!(taken < (CLAIMS * 512) << 10, "{} KiB for {CLAIMS} claims of 900 MB", taken >> 10);
    drop(open);
}

/// Clients that claim to send a huge statement.
const CLAIMS: u64 = 40;

/// A client that was greeted and whose batch was acknowledged.
fn sent_once(ingest: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(ingest).unwrap();
    let mut bytes = preface(Plane::Data).to_vec();
    data::encode_hello(&Hello::default(), &mut bytes);
    data::Encoder::default().batch(1, &[], &mut bytes).unwrap();
    stream.write_all(&bytes).unwrap();
    for _ in 0..2 {
        let mut header = [0; HEADER_BYTES];
        stream.read_exact(&mut header).unwrap();
        let mut buffer = MessageBuffer::default();
        stream.read_exact(buffer.resize(message_bytes(header, 1 << 20).unwrap())).unwrap();
        assert!(!matches!(data::decode_answer(buffer.bytes()).unwrap(), data::Answer::Refused(_)));
    }
    stream
}

/// A client of Postgres's port that has begun to send what it was refused for.
fn claimed(postgres: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(postgres).unwrap();
    stream.write_all(b"\0\0\0\x11\0\x03\0\0user\0me\0\0Q\x35\xa4\xe9\0").unwrap();
    // The server may have closed before it has read this.
    let _ = stream.write_all(&vec![b' '; 1 << 20]);
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(String::from_utf8_lossy(&said).contains("postgres_message_bytes_max"));
    stream
}

fn asked_once(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&answer));
    stream
}

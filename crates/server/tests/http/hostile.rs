//! Clients that are slow, rude or gone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::Running;

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Sends bytes and reads until the server closes.
fn exchange(server: &Running, request: &[u8]) -> String {
    let mut stream = connect(server);
    // The server may close before it has read everything.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_slow_head_is_not_waited_for() {
    let server = Running::start_with(|settings| settings.head_timeout_ms = 100);
    let started = Instant::now();
    let answer = exchange(&server, b"GET /ping HTTP/1.1\r\nHost: localhost");
    assert!(!answer.contains(" 204 ") && started.elapsed() < Duration::from_secs(10), "{answer}");
}

#[test]
fn a_slow_body_is_not_waited_for() {
    let server = Running::start_with(|settings| settings.body_timeout_ms = 100);
    let head = b"POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 100\r\n\r\na v=1";
    let answer = exchange(&server, head);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout_ms"), "{answer}");
}

#[test]
fn a_lying_length_and_noise_hurt_nobody() {
    let server = Running::start();
    for request in [
        &b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n"[..],
        b"POST /write HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        "A".repeat(1 << 20).as_bytes(),
    ] {
        let answer = exchange(&server, request);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(server.get("/health").status, 200);
}

#[test]
fn a_client_that_leaves_frees_its_place() {
    let server = Running::start_with(|settings| settings.connections_max = 2);
    for _ in 0..10 {
        let mut stream = connect(&server);
        stream.write_all(b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\na").unwrap();
    }
    // It may take the server a moment to see that they have left.
    let started = Instant::now();
    while server.get("/health").status != 200 {
        assert!(started.elapsed() < Duration::from_secs(20), "the places are still taken");
        std::thread::yield_now();
    }
}

#[test]
fn a_stop_finishes_what_is_under_way() {
    let mut server = Running::start();
    let mut idle = connect(&server);
    idle.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(15), "an idle connection held up the stop");
    assert!(TcpStream::connect(server.address).is_err(), "it still listens");
}

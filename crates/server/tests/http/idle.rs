//! Connections that have not signed in are not left idle for long, whatever they speak; and what is read of them is little.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::Request;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::Labels;
use thalweg_server::Listener;
use wire::control::{self, Registration};
use wire::frame::{self, Plane};

use crate::certificates::block_on;
use crate::harness::Running;

fn free() -> Listener {
    Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true }
}

/// A server on which a client that has not signed in has a second, and one that has a minute.
fn start() -> (Running, String) {
    let server = Running::start_listening(|settings| {
        (settings.control, settings.ingest) = (Some(free()), Some(free()));
        settings.sign_in_required = true;
        settings.head_timeout_ms = 1_000;
        settings.park_after_ms = 20;
        (settings.http_idle_timeout_ms, settings.streams.idle_timeout_ms) = (60_000, 60_000);
        settings.idle_timeout_ms = 60_000;
    });
    let token = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    (server, token.trim().to_owned())
}

/// Reads until the server closes; `None` if it does not within four seconds.
fn read_to_end(stream: &mut TcpStream) -> Option<Vec<u8>> {
    stream.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Some(all),
            Ok(count) => all.extend_from_slice(&piece[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return None,
            Err(_) => return Some(all),
        }
    }
}

#[test]
fn requests_without_a_sign_in_do_not_keep_a_connection() {
    let (server, token) = start();
    let ask = |headers: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "GET /api/v1/labels HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n").unwrap();
        read_to_end(&mut stream)
    };
    assert!(ask("").is_some_and(|answer| answer.starts_with(b"HTTP/1.1 401")));
    assert_eq!(ask(&format!("authorization: Bearer {token}\r\n")), None, "it stays open");
}

#[test]
fn calls_without_a_sign_in_do_not_keep_a_connection() {
    let (server, token) = start();
    let address = server.at("--otlp-grpc");
    let stays = |token: Option<&str>| {
        block_on(async {
            let stream = tokio::net::TcpStream::connect(address).await.unwrap();
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            let connection = tokio::spawn(connection);
            let mut request = Request::post(format!("http://{address}/x")).header("content-type", "application/grpc");
            if let Some(token) = token {
                request = request.header("authorization", format!("Bearer {token}"));
            }
            sender.send_request(request.body(Body::empty()).unwrap()).await.unwrap();
            tokio::time::timeout(Duration::from_secs(8), connection).await.is_err()
        })
    };
    assert!(!stays(None));
    assert!(stays(Some(&token)));
}

#[test]
fn lines_and_frames_without_a_sign_in_do_not_keep_a_connection() {
    let (server, token) = start();
    for (flag, sent) in [("--line", String::new()), ("--line", "aut".to_owned()), ("--graphite", String::new())] {
        let mut stream = TcpStream::connect(server.at(flag)).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        assert!(read_to_end(&mut stream).is_some(), "{flag} {sent:?}");
    }
    let mut stream = TcpStream::connect(server.at("--line")).unwrap();
    stream.write_all(format!("auth {token}\n").as_bytes()).unwrap();
    assert_eq!(read_to_end(&mut stream), None, "it stays open");
    for (flag, plane) in [("--control", Plane::Control), ("--ingest", Plane::Data)] {
        let mut stream = TcpStream::connect(server.at(flag)).unwrap();
        stream.write_all(&frame::preface(plane)).unwrap();
        assert!(read_to_end(&mut stream).is_some(), "{flag}");
    }
}

#[test]
fn a_large_registration_is_not_read_before_its_sender_is_known() {
    let (server, token) = start();
    let request = |token: &str| {
        let series = (0..40_000).map(|number| {
            let labels = Labels::from_pairs([("host", format!("h{number}").as_str())]).unwrap();
            ("level".to_owned(), labels)
        });
        let what = Registration::Series(series.collect());
        let request = control::Request { id: 1, database: String::new(), token: token.to_owned(), what };
        let mut bytes = frame::preface(Plane::Control).to_vec();
        control::encode_request(&request, &mut bytes).unwrap();
        bytes
    };
    // Of a wrong token's request the beginning is enough for the answer, in which the longest token of a provider lies.
    let wrong = request("thw_wrong");
    assert!(wrong.len() > 1 << 20);
    let mut stream = TcpStream::connect(server.at("--control")).unwrap();
    stream.write_all(&wrong[..20 << 10]).unwrap();
    let begun = Instant::now();
    let answer = read_to_end(&mut stream).expect("it is refused and closed");
    assert!(String::from_utf8_lossy(&answer).contains("token"), "{answer:?} after {:?}", begun.elapsed());
    let mut stream = TcpStream::connect(server.at("--control")).unwrap();
    stream.write_all(&request(&token)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut header = [0; frame::HEADER_BYTES];
    stream.read_exact(&mut header).unwrap();
    let bytes = frame::message_bytes(header, 64 << 20).unwrap();
    let mut buffer = frame::MessageBuffer::default();
    stream.read_exact(buffer.resize(bytes)).unwrap();
    let registered = control::decode_answer(buffer.bytes()).unwrap().registered.unwrap();
    assert_eq!(registered.tokens.len(), 40_000);
}

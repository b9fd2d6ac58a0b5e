//! Clients of Postgres's port that say what they like.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use thalweg_server::{Listener, ServerSettings};

use crate::harness::Running;

fn start(change: impl FnOnce(&mut ServerSettings)) -> Running {
    let free = Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true };
    Running::start_with(|settings| {
        settings.postgres = Some(free);
        change(settings);
    })
}

/// A client that says what it likes.
pub(crate) struct Raw(TcpStream);

impl Raw {
    pub(crate) fn new(server: &Running) -> Self {
        let stream = TcpStream::connect(server.at("--postgres")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    /// One that has a session.
    pub(crate) fn started(server: &Running) -> Self {
        let mut raw = Self::new(server);
        raw.start(b"user\0me\0");
        while raw.message().0 != b'Z' {}
        raw
    }

    /// Sends the packet that starts a session, with these names and values.
    pub(crate) fn start(&mut self, settings: &[u8]) {
        let length = (settings.len() as u32 + 9).to_be_bytes();
        self.0.write_all(&[&length[..], b"\0\x03\0\0", settings, b"\0"].concat()).unwrap();
    }

    /// The next message of a kind.
    pub(crate) fn until(&mut self, kind: u8) -> String {
        loop {
            if let (found, body) = self.message()
                && found == kind
            {
                return String::from_utf8_lossy(&body).into_owned();
            }
        }
    }

    /// The kinds of messages until the session is ready again.
    pub(crate) fn kinds(&mut self) -> Vec<u8> {
        let mut kinds = Vec::new();
        while kinds.last() != Some(&b'Z') {
            kinds.push(self.message().0);
        }
        kinds
    }

    pub(crate) fn send(&mut self, kind: u8, body: &[u8]) {
        let length = (body.len() as u32 + 4).to_be_bytes();
        self.0.write_all(&[&[kind], &length[..], body].concat()).unwrap();
    }

    fn message(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).unwrap();
        let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().unwrap()) as usize - 4];
        self.0.read_exact(&mut body).unwrap();
        (head[0], body)
    }

    /// The error that comes next among messages.
    fn error(&mut self) -> String {
        loop {
            if let (b'E', body) = self.message() {
                return String::from_utf8_lossy(&body).into_owned();
            }
        }
    }

    /// The error with which the connection ends.
    #[track_caller]
    fn check_ended(mut self, expected: &str) {
        let error = self.error();
        assert!(error.contains(expected) && error.contains("FATAL"), "{error}");
        let mut rest = Vec::new();
        let _ = self.0.shutdown(Shutdown::Write);
        self.0.read_to_end(&mut rest).unwrap();
    }
}

#[test]
fn messages_of_postgres_clients_are_bounded_and_whole() {
    let server = start(|settings| {
        (settings.postgres_message_bytes_max, settings.body_timeout_ms) = (100_000, 1_000);
    });
    // Nothing of 900 MB needs to come.
    let mut raw = Raw::started(&server);
    raw.0.write_all(b"Q\x35\xa4\xe9\0").unwrap();
    raw.check_ended("900000000 bytes; at most 100000 are taken (postgres_message_bytes_max)");
    let mut raw = Raw::started(&server);
    raw.0.write_all(b"Q\xff\xff\xff\xff").unwrap();
    raw.check_ended("postgres_message_bytes_max");
    let mut raw = Raw::new(&server);
    raw.0.write_all(b"\0\x01\0\0\0\x03\0\0").unwrap();
    raw.check_ended("startup packet of 65536 bytes");
    let mut raw = Raw::new(&server);
    raw.0.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    raw.check_ended("startup packet");
    // What a decoder would read beyond its end.
    let mut raw = Raw::started(&server);
    raw.send(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff");
    raw.check_ended("malformed message");
    // What came before is answered first.
    let mut raw = Raw::started(&server);
    raw.0.write_all(b"Q\0\0\0\x0dSELECT 7\0Q\x7f\xff\xff\xff").unwrap();
    let mut seen = Vec::new();
    while !seen.contains(&b'D') {
        seen.push(raw.message().0);
    }
    raw.check_ended("postgres_message_bytes_max");
    // One that stalls within a message; one that is silent between two is not held to that.
    let silent = Raw::started(&server);
    let mut slow = Raw::started(&server);
    slow.0.write_all(b"Q\0\0\0\x0dSELECT").unwrap();
    slow.check_ended("body_timeout_ms");
    let mut silent = silent;
    // In the largest message that there may be, in pieces.
    let text = format!("SELECT '{}'\0", "x".repeat(100_000 - 4 - 10));
    let (first, second) = text.as_bytes().split_at(40_000);
    silent.0.write_all(&[b"Q\0\x01\x86\xa0", first].concat()).unwrap();
    silent.0.write_all(second).unwrap();
    let row = loop {
        let (kind, body) = silent.message();
        assert_ne!(kind, b'E', "{}", String::from_utf8_lossy(&body));
        if kind == b'D' {
            break body;
        }
    };
    assert_eq!(row.len(), 2 + 4 + 99_986);
    // Many statements are too much, too; closing them helps.
    let mut raw = Raw::started(&server);
    let statement = |name: u8| [&[name, 0][..], format!("SELECT '{}'\0\0\0", "x".repeat(3_000)).as_bytes()].concat();
    raw.send(b'P', &statement(b'a'));
    raw.send(b'P', &statement(b'b'));
    raw.send(b'P', &statement(b'c'));
    raw.send(b'S', b"");
    assert!(raw.error().contains("prepared statements and portals"));
    while raw.message().0 != b'Z' {}
    raw.send(b'C', b"Sa\0");
    raw.send(b'P', &statement(b'c'));
    raw.send(b'S', b"");
    let mut seen = Vec::new();
    while seen.last() != Some(&b'Z') {
        seen.push(raw.message().0);
    }
    assert_eq!(seen, b"31Z");
}

#[test]
fn large_messages_count_among_the_bodies_that_are_held() {
    let server = start(|settings| settings.bodies_bytes_max = 1 << 20);
    let mut raw = Raw::started(&server);
    raw.0.write_all(b"Q\0\x10\0\0").unwrap();
    raw.check_ended("bodies_bytes_max");
    // What was taken is given back, again and again.
    let mut raw = Raw::started(&server);
    for _ in 0..20 {
        raw.send(b'Q', format!("SELECT '{}'\0", "x".repeat(100_000)).as_bytes());
        while raw.message().0 != b'Z' {}
    }
}

#[test]
fn forms_that_do_not_fit_the_columns_are_told() {
    let server = start(|_| {});
    let mut raw = Raw::started(&server);
    raw.send(b'P', b"\0SELECT 1 AS a, 2 AS b\0\0\0");
    for message in [&b"P\0"[..], b"\0\0\0\0\0"] {
        raw.send(b'B', b"\0\0\0\0\0\0\0\x03\0\0\0\x01\0\x01");
        raw.send(if message.len() == 2 { b'D' } else { b'E' }, message);
        raw.send(b'S', b"");
        assert!(raw.error().contains("3 forms were asked for, and there are 2 columns"));
        while raw.message().0 != b'Z' {}
    }
    raw.send(b'B', b"\0\0\0\0\0\0\0\x02\0\0\0\x01");
    raw.send(b'E', b"\0\0\0\0\0");
    raw.send(b'S', b"");
    let mut seen = Vec::new();
    while seen.last() != Some(&b'Z') {
        seen.push(raw.message().0);
    }
    assert_eq!(seen, b"2DCZ");
}

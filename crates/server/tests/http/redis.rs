//! Redis's protocol over a socket: who may do what, and what hostile clients get.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::access::Guarded;
use crate::harness::Running;

/// A connection that sends lines of words.
struct Client(TcpStream);

impl Client {
    fn new(server: &Running) -> Self {
        let stream = TcpStream::connect(server.at("--redis")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    /// The first line of the reply to a line.
    fn ask(&mut self, line: &str) -> String {
        self.0.write_all(format!("{line}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// What comes until the server closes.
    fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A reset ends it, too.
        let _ = self.0.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

fn listening(settings: &mut thalweg_server::ServerSettings) {
    let address = "127.0.0.1:0".parse().unwrap();
    settings.redis.listener = Some(thalweg_server::Listener { address, required: true });
}

#[test]
fn clients_of_redis_may_do_what_their_accounts_may() {
    let guarded = Guarded::start_with(listening);
    let (reader, writer) = (
        guarded.token("reader", r#"{"grants":["read:redis"]}"#),
        guarded.token("writer", r#"{"grants":["read+write+create:redis"]}"#),
    );
    let narrowed = guarded.token("narrowed", r#"{"grants":["read:redis{room=\"1\"}"]}"#);
    guarded.token("alice", r#"{"password":"pass","grants":["read:redis"]}"#);
    let mut client = Client::new(&guarded.server);
    assert_eq!(client.ask("TS.GET a"), "-NOAUTH Authentication required.");
    assert!(client.ask(&format!("AUTH {}x", &reader[..reader.len() - 1])).starts_with("-WRONGPASS"));
    assert_eq!(client.ask(&format!("AUTH {writer}")), "+OK");
    assert_eq!(client.ask("TS.ADD a 1000 1 LABELS room 1"), ":1000");
    assert!(client.ask("FLUSHDB").starts_with("-NOPERM the account writer does not have the right admin"));
    assert!(client.ask("DEL a").starts_with("-NOPERM"));
    assert_eq!(client.ask(&format!("AUTH default {reader}")), "+OK");
    assert_eq!(client.ask("TS.GET a"), "*2");
    assert_eq!((client.line(), client.line()), (":1000".to_owned(), "+1".to_owned()));
    assert!(client.ask("TS.ADD a 2000 1").starts_with("-NOPERM the account reader does not have the right write"));
    assert!(client.ask("TS.CREATE b").starts_with("-NOPERM"));
    assert_eq!(client.ask("SELECT 1"), "+OK");
    assert!(client.ask("TS.GET a").starts_with("-NOPERM"));
    assert_eq!(client.ask(&format!("AUTH {narrowed}")), "+OK");
    assert_eq!(client.ask("SELECT 0"), "+OK");
    assert!(client.ask("TS.GET a").starts_with("-NOPERM the rights of this account are narrowed by labels"));
    assert_eq!(client.ask("RESET"), "+RESET");
    assert_eq!(client.ask("TS.GET a"), "-NOAUTH Authentication required.");
    let mut alice = Client::new(&guarded.server);
    assert!(alice.ask("HELLO 3").starts_with("-NOAUTH"));
    assert_eq!(alice.ask("HELLO 3 AUTH alice pass"), "%7");
    // A revoked account does nothing more.
    let mut other = Client::new(&guarded.server);
    assert_eq!(other.ask(&format!("AUTH {writer}")), "+OK");
    let removed = guarded.ask("DELETE", "/api/v1/admin/accounts/writer", Some(&guarded.admin), "");
    assert_eq!(removed.status, 204, "{}", removed.body);
    assert_eq!(other.ask("TS.ADD a 3000 1"), "-NOAUTH Authentication required.");
    let mut admin = Client::new(&guarded.server);
    assert_eq!(admin.ask(&format!("AUTH {}", guarded.admin)), "+OK");
    assert_eq!(admin.ask("FLUSHDB"), "+OK");
    assert_eq!(admin.ask("DBSIZE"), ":0");
}

#[test]
fn hostile_clients_of_redis_are_closed_with_a_word() {
    let server = Running::start_with(listening);
    let cases = [
        ("POST /write HTTP/1.1\r\n", "-ERR Protocol error: this is not a port of HTTP"),
        ("*1\r\n$99999999\r\n", "-ERR Protocol error: a request has at most 16777216 bytes"),
        ("*9999999\r\n", "-ERR Protocol error: 9999999 arguments are more than 1048576"),
        ("*1\r\n:5\r\n", "-ERR Protocol error: expected '$', got ':'"),
    ];
    for (sent, expected) in cases {
        let mut client = Client::new(&server);
        client.0.write_all(sent.as_bytes()).unwrap();
        let rest = client.rest();
        assert!(rest.starts_with(expected), "{sent:?}: {rest:?}");
    }
    // A request that comes byte by byte, with the next one behind it.
    let mut client = Client::new(&server);
    for byte in b"*4\r\n$6\r\nTS.ADD\r\n$1\r\na\r\n$2\r\n10\r\n$1\r\n5\r\nPING\r\n" {
        client.0.write_all(&[*byte]).unwrap();
    }
    assert_eq!((client.line(), client.line()), (":10".to_owned(), "+PONG".to_owned()));
    // Clients that have to sign in send little before they have.
    let guarded = Guarded::start_with(listening);
    let mut client = Client::new(&guarded.server);
    client.0.write_all(b"*1\r\n$20000\r\n").unwrap();
    assert!(client.rest().starts_with("-ERR Protocol error: a request has at most 16384 bytes"));
}

//! The server over a socket.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use platform::sim::Simulation;

use super::*;
use crate::{Key, Options};

const BODY: &str = r#"{"series":[{"name":"host=a","columns":["time","load"],"values":[[0,1.5],[10,2.5],[20,3.5]]}]}"#;

fn started() -> Server {
    started_with(ServerOptions { body_bytes_max: 100_000, ..ServerOptions::default() })
}

fn started_with(bounds: ServerOptions) -> Server {
    let mut options = Options::new("cache/flash", 16 << 20);
    options.partial_bytes_min = 0;
    let cache = Cache::open(&Simulation::new(1).platform(), options).unwrap();
    Server::start(Arc::new(cache), TcpListener::bind("127.0.0.1:0").unwrap(), bounds).unwrap()
}

/// Sends all of a text and gives all that comes back until the server closes.
fn talk(server: &Server, text: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn commands_of_memcached() {
    let server = started();
    let check = |text: &str, expected: &str| {
        assert_eq!(talk(&server, &text.replace('|', "\r\n")), expected.replace('|', "\r\n"));
    };
    check("get a|", "END|");
    check("set a 5 0 3|abc|get a b|", "STORED|VALUE a 5 3|abc|END|");
    check("add a 0 0 1|x|replace b 0 0 1|x|", "NOT_STORED|NOT_STORED|");
    check("append a 0 0 1|", "ERROR|");
    check(
        "set n 0 0 1|9|incr n 5|decr n 20|incr a 1|incr zz 1|",
        "STORED|14|0|CLIENT_ERROR cannot increment or decrement non-numeric value|NOT_FOUND|",
    );
    check("touch a 100|touch zz 1|delete a|delete a|", "TOUCHED|NOT_FOUND|DELETED|NOT_FOUND|");
    check("set q 0 0 1 noreply|x|get q|", "VALUE q 0 1|x|END|");
    check("set q 0 0 3|toolong|get q|", "CLIENT_ERROR bad data chunk|VALUE q 0 1|x|END|");
    check(
        "set q x 0 5|hello|version|",
        &format!("CLIENT_ERROR not a number, or not one that fits|VERSION {}|", env!("CARGO_PKG_VERSION")),
    );
    check("flush_all|get q|quit|get q|", "OK|END|");
    check("set big 0 0 100001|", "SERVER_ERROR object too large for cache|");
    let versions = talk(&server, "set v 0 0 1\r\n1\r\ngets v\r\n");
    let version = versions.lines().nth(1).unwrap().rsplit(' ').next().unwrap().to_owned();
    check(&format!("cas v 0 0 1 {version}|2|cas v 0 0 1 {version}|3|get v|"), "STORED|EXISTS|VALUE v 0 1|2|END|");
    server.stop().unwrap();
}

#[test]
fn commands_with_a_span() {
    let server = started();
    let check = |text: &str, expected: &str| {
        assert_eq!(talk(&server, &text.replace('|', "\r\n")), expected.replace('|', "\r\n"));
    };
    let part = |start, end, rows: &str| {
        format!(
            r#"{{"start":{start},"end":{end},"series":[{{"name":"host=a","columns":["time","load"],"values":[{rows}]}}]}}"#
        )
    };
    check("tget k 0 30|", "MISS|");
    check(&format!("tset k 0 30 {}|{BODY}|", BODY.len()), "STORED|");
    let whole = part(0, 30, "[0,1.5],[10,2.5],[20,3.5]");
    check("tget k 0 30|", &format!("HIT 0 30 {}|{whole}|", whole.len()));
    let head = part(10, 30, "[10,2.5],[20,3.5]");
    check("tget k 10 60|", &format!("PART 10 30 {}|{head}|", head.len()));
    check(
        "tset k 100 100 2|{}|tset k 40 50 2|{}|tget k 40 50|",
        "CLIENT_ERROR the span is empty: it ends before its end|CLIENT_ERROR the body is not an answer: missing field `series` at line 1 column 2|MISS|",
    );
    check("tdelete k 0 15|tdelete k 0 15|tget k 0 12|", "DELETED|NOT_FOUND|MISS|");
    let tail = part(15, 30, "[20,3.5]");
    check("tget k 0 30|", &format!("PART 15 30 {}|{tail}|", tail.len()));
    server.stop().unwrap();
}

#[test]
fn http() {
    let server = started();
    let ask = |method: &str, target: &str, body: &str| {
        let length = body.len();
        talk(&server, &format!("{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"))
    };
    let check = |method: &str, target: &str, body: &str, status: &str, part: &str| {
        let reply = ask(method, target, body);
        assert!(reply.starts_with(&format!("HTTP/1.1 {status}")) && reply.contains(part), "{method} {target}: {reply}");
    };
    check("GET", "/health", "", "200", "ok");
    check("GET", "/v1/answers?statement=q&start=0&end=30", "", "404", "not cached");
    check("PUT", "/v1/answers?statement=q&start=0&end=30", BODY, "204", "");
    check("GET", "/v1/answers?statement=q&start=0&end=30", "", "200", "X-Cache: hit");
    check("GET", "/v1/answers?statement=q&start=5&end=40", "", "200", r#""start":5,"end":30"#);
    let key = Key::of_statement("q");
    check("GET", &format!("/v1/answers?key={key}&start=0&end=30"), "", "200", "[20,3.5]");
    check("DELETE", "/v1/answers?statement=q&start=0&end=30", "", "204", "");
    check("GET", "/v1/answers?statement=q&start=0&end=30", "", "404", "");
    check("PUT", "/v1/answers?statement=q&start=0&end=15", BODY, "400", "outside the span");
    check("PUT", "/v1/answers?statement=q&start=0&end=x", BODY, "400", "end=x");
    check("GET", "/v1/stats", "", "200", "\"time_sets\":1");
    check("PATCH", "/v1/stats", "", "405", "");
    check("GET", "/", "", "404", "");
    let chunked = talk(&server, "PUT /v1/answers HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
    assert!(chunked.starts_with("HTTP/1.1 411"));
    server.stop().unwrap();
}

#[test]
fn answers_as_arrow() {
    let server = started();
    let (length, target) = (BODY.len(), "/v1/answers?statement=q&start=0&end=30");
    talk(&server, &format!("PUT {target} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{BODY}"));
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let accept = "Accept: application/json;q=0.5, application/vnd.apache.arrow.stream\r\nConnection: close\r\n";
    stream.write_all(format!("GET {target} HTTP/1.1\r\n{accept}\r\n").as_bytes()).unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).unwrap();
    let behind = reply.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8_lossy(&reply[..behind]);
    assert!(
        head.contains("X-Cache: hit") && head.contains("Content-Type: application/vnd.apache.arrow.stream"),
        "{head}"
    );
    let reader = arrow_ipc::reader::StreamReader::try_new(&reply[behind..], None).unwrap();
    let names: Vec<String> = reader.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names[..2], ["time", "series"]);
    assert_eq!(reader.map(|batch| batch.unwrap().num_rows()).sum::<usize>(), BODY.matches("],[").count() + 1);
    let put = format!(
        "PUT {target} HTTP/1.1\r\nContent-Type: application/vnd.apache.arrow.stream\r\nContent-Length: 1\r\n\r\nx"
    );
    assert!(talk(&server, &put).starts_with("HTTP/1.1 415"));
    server.stop().unwrap();
}

#[test]
fn the_same_answer_is_fetched_once() {
    let server = started();
    assert_eq!(talk(&server, "tget k 0 30 wait=20000\r\n"), "MISS\r\n");
    std::thread::scope(|scope| {
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| talk(&server, "tget k 0 30 wait=20000\r\n"))).collect();
        while server.service.waits.load(Ordering::SeqCst) < 8 {
            std::thread::yield_now();
        }
        assert_eq!(talk(&server, &format!("tset k 0 30 {}\r\n{BODY}\r\n", BODY.len())), "STORED\r\n");
        for reply in waiting {
            assert!(reply.join().unwrap().starts_with("HIT 0 30 "));
        }
    });
    server.stop().unwrap();
}

#[test]
fn hostile_bytes_end_connections_and_nothing_else() {
    for text in [
        "tset k 0 9 4\r\n\r\n\r\nget",
        "GET / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "\u{0}\u{0}\n",
        "set a 0 0 -1\r\n",
    ] {
        fuzz::protocol(text.as_bytes());
    }
    fuzz::protocol(&vec![b'x'; 20_000]);
    fuzz::protocol(&[0xff, 0xfe, b'\n', b'\n']);
}

/// A client of TLS that trusts a certificate.
fn tls_client(server: &Server, certificate: &str) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(rustls::pki_types::CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let config = Arc::new(config.with_no_client_auth());
    let client = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    rustls::StreamOwned::new(client, TcpStream::connect(server.address()).unwrap())
}

#[test]
fn clients_come_by_tls_and_with_the_token() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let server = started_with(ServerOptions {
        tls: Some(tls(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap()),
        token: Some(Token::new("s3cret\n").unwrap()),
        sign_in_timeout_ms: 300,
        ..ServerOptions::default()
    });
    let exchange = |sent: &str| {
        let mut stream = tls_client(&server, &certificate);
        stream.write_all(sent.as_bytes()).unwrap();
        let mut answer = String::new();
        // The connection ends with "quit", or because of what was sent.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let set = |token: &str| format!("set auth 0 0 {}\r\nany {token}\r\n", token.len() + 4);
    assert_eq!(
        exchange(&format!("{}set a 0 0 1\r\nx\r\nget a\r\nquit\r\n", set("s3cret"))),
        "STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n"
    );
    assert_eq!(exchange(&format!("{}get a\r\n", set("s3creT"))), "CLIENT_ERROR authentication failure\r\n");
    assert_eq!(exchange("get a\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(exchange("set auth 0 0 100000\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    let http =
        |path: &str, header: &str| exchange(&format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{header}\r\n"));
    assert!(http("/v1/stats", "Authorization: Bearer s3cret\r\n").starts_with("HTTP/1.1 200"));
    for wrong in ["", "Authorization: Bearer s3creT\r\n", "Authorization: Basic s3cret\r\n"] {
        assert!(http("/v1/stats", wrong).starts_with("HTTP/1.1 401"), "{wrong}");
    }
    assert!(http("/health", "").starts_with("HTTP/1.1 200"));
    // One that does not shake hands, or does not sign in, is not waited for.
    let mut silent = TcpStream::connect(server.address()).unwrap();
    // What comes before the end is TLS's goodbye.
    let mut goodbye = Vec::new();
    let _ = silent.read_to_end(&mut goodbye);
    assert!(goodbye.len() < 64, "{goodbye:?}");
    let mut waiting = tls_client(&server, &certificate);
    waiting.write_all(b"se").unwrap();
    assert!(matches!(waiting.read(&mut [0; 64]), Ok(0) | Err(_)));
    // Without TLS nothing is said.
    let mut bare = TcpStream::connect(server.address()).unwrap();
    bare.write_all(b"version\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = bare.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("VERSION"), "{answer:?}");
    server.stop().unwrap();
}

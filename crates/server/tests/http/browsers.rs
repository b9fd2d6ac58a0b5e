//! Requests that a page of another site can make a browser send: none of them may change anything.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::harness::Running;

/// Sends bytes and reads until the server closes, or has said nothing for a while after its answer.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // The server may close before it has read everything.
    let _ = stream.write_all(request.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request's status and answer; headers as lines.
fn ask(address: SocketAddr, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: {length}\r\n\r\n");
    let answer = exchange(address, &format!("{head}{body}"));
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

/// Every way to drop a database that a page may try.
const DROPS: [(&str, &str); 8] = [
    ("GET", "/sql?query=DROP%20DATABASE%20victim"),
    ("GET", "/exec?query=DROP%20DATABASE%20victim"),
    ("GET", "/exp?query=DROP%20DATABASE%20victim"),
    ("GET", "/query?q=DROP%20DATABASE%20victim"),
    ("POST", "/sql?query=DROP%20DATABASE%20victim"),
    ("POST", "/exec?query=DROP%20DATABASE%20victim"),
    ("POST", "/query?q=DROP%20DATABASE%20victim"),
    ("DELETE", "/api/v1/admin/databases/victim"),
];

#[test]
fn no_page_drops_a_database() {
    let server = Running::start();
    assert_eq!(server.post("/write?db=victim", "m v=1 1").status, 204);
    let port = server.address.port();
    let own = format!("Host: 127.0.0.1:{port}\r\n");
    let pages = [
        format!("{own}Origin: https://evil.example\r\n"),
        format!("{own}Origin: null\r\n"),
        format!("{own}Origin: http://127.0.0.1:1\r\n"),
        format!("{own}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n"),
        format!("{own}Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n"),
        format!("{own}Sec-Fetch-Site: same-site\r\n"),
        // By a name that was made to mean this machine.
        format!("Host: evil.example:{port}\r\nOrigin: http://evil.example:{port}\r\nSec-Fetch-Site: same-origin\r\n"),
        format!("Host: evil.example:{port}\r\n"),
    ];
    for (method, path) in DROPS {
        for headers in &pages {
            let (status, answer) = ask(server.address, method, path, headers, "");
            assert_eq!(status, 403, "{method} {path} {headers} {answer}");
        }
        for (hosts, expected) in [(String::new(), 400), (format!("{own}{own}"), 400)] {
            let (status, answer) = ask(server.address, method, path, &hosts, "");
            assert_eq!(status, expected, "{method} {path} {hosts} {answer}");
        }
    }
    assert!(server.db.databases().contains(&"victim".to_owned()));
}

#[test]
fn changes_need_a_post_but_by_programs_at_exec() {
    let server = Running::start();
    assert_eq!(server.post("/write?db=victim", "m v=1 1").status, 204);
    let own = format!("Host: 127.0.0.1:{}\r\n", server.address.port());
    for path in ["/sql?query=", "/exp?query=", "/query?q="] {
        // The statement that reads is not run, either.
        let statement = if path.starts_with("/query") {
            "SHOW%20DATABASES;DROP%20DATABASE%20victim"
        } else {
            "SELECT%201;DROP%20DATABASE%20victim"
        };
        for method in ["GET", "HEAD"] {
            let (status, answer) = ask(server.address, method, &format!("{path}{statement}"), &own, "");
            assert_eq!(status, 405, "{path} {answer}");
            assert!(method == "HEAD" || answer.contains("DROP DATABASE changes things: send it by POST"), "{answer}");
        }
        let read = if path.starts_with("/query") { "SHOW%20DATABASES" } else { "SELECT%201" };
        assert_eq!(ask(server.address, "GET", &format!("{path}{read}"), &own, "").0, 200, "{path}");
    }
    let exec = "/exec?query=DROP%20DATABASE%20victim";
    for browser in [
        format!("Referer: http://127.0.0.1:{}/\r\n", server.address.port()),
        "Sec-Fetch-Site: none\r\n".to_owned(),
        "Sec-Fetch-Site: same-origin\r\n".to_owned(),
        "User-Agent: Mozilla/5.0 (X11)\r\n".to_owned(),
    ] {
        let (status, answer) = ask(server.address, "GET", exec, &format!("{own}{browser}"), "");
        assert_eq!(status, 405, "{browser} {answer}");
    }
    assert!(server.db.databases().contains(&"victim".to_owned()));
    assert_eq!(ask(server.address, "GET", exec, &own, "").0, 200);
    assert!(!server.db.databases().contains(&"victim".to_owned()));
}

#[test]
fn names_and_origins_of_the_settings_are_let_in() {
    let server = Running::start_with(|settings| {
        settings.host_names = vec!["metrics.example".to_owned()];
        settings.origins = vec!["http://grafana:3000".to_owned()];
    });
    for (headers, expected) in [
        ("Host: metrics.example\r\n", 200),
        ("Host: metrics.example\r\nOrigin: https://metrics.example\r\n", 200),
        ("Host: localhost\r\nOrigin: http://grafana:3000\r\nSec-Fetch-Site: cross-site\r\n", 200),
        ("Host: localhost\r\nOrigin: http://grafana:3001\r\n", 403),
        ("Host: other.example\r\n", 403),
    ] {
        let (status, answer) = ask(server.address, "POST", "/api/v1/query?query=1", headers, "");
        assert_eq!(status, expected, "{headers} {answer}");
    }
}

#[test]
fn a_link_leads_to_the_page() {
    let server = Running::start();
    let link =
        "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    assert_eq!(ask(server.address, "GET", "/", link, "").0, 200);
    assert_eq!(ask(server.address, "GET", "/api/v1/labels", link, "").0, 403);
}

#[test]
fn line_listeners_store_nothing_of_a_browser() {
    let server = Running::start_listening(|_| {});
    for (flag, name, body) in [
        ("--line", "line", "stolen v=1 1000000000\n"),
        ("--graphite", "graphite", "stolen 1 1\n"),
        ("--opentsdb", "opentsdb", "put stolen 1 1 a=b\n"),
    ] {
        let request = format!("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{body}");
        assert_eq!(exchange(server.at(flag), &request), "", "{flag}");
        server.wait_for_metric(&format!("thalweg_streams_closed_total{{protocol=\"{name}\",reason=\"http\"}} 1"));
    }
    for name in ["stolen", "stolen_v"] {
        assert_eq!(server.result("default", name, 1), "[]");
    }
}

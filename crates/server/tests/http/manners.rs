//! What browsers, curl and Go's clients send beyond the letter of HTTP.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::Running;

/// Sends pieces with a pause between them, and reads until the server closes.
fn exchange(server: &Running, pieces: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    for (place, piece) in pieces.iter().enumerate() {
        if place > 0 {
            std::thread::sleep(Duration::from_millis(50));
        }
        // The server may close before it has read everything.
        let _ = stream.write_all(piece);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

const END: &[u8] = b"GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

#[test]
fn raw_bytes_in_a_query_are_taken() {
    let server = Running::start();
    server.write("m,host=ü v=1 1000000000");
    let raw = "GET /api/v1/query?time=1&query=m_v{host=\"ü\"}<2>0 HTTP/1.1\r\nHost: localhost\r\n\r\n".as_bytes();
    let expected = r#""metric":{"__name__":"m_v","host":"ü"},"value":[1,"1"]"#;
    for cut in [1, 30, 40, 52, 60, raw.len()] {
        let (front, back) = raw.split_at(cut);
        let answer = exchange(&server, &[front, back, END]);
        assert!(answer.contains(expected), "{cut} {answer}");
    }
    // On a connection that is kept, after a body, and after the connection was parked.
    let post = b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\nn v=1 1000000000";
    let answer = exchange(&server, &[post, raw, raw, END]);
    assert_eq!(answer.matches(expected).count(), 2, "{answer}");
    let comment = b"GET /api/v1/query?query=1#x HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = exchange(&server, &[comment, END]);
    assert!(answer.contains(r#""resultType":"scalar""#), "{answer}");
}

#[test]
fn a_body_is_never_rewritten() {
    let server = Running::start();
    let body = "m,a=x s=\"GET /\" 1000000000\nm,a=y s=\"<ü>\" 1000000000";
    let head = format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    let whole = [head.as_bytes(), body.as_bytes(), END].concat();
    for pieces in [&[head.as_bytes(), body.as_bytes(), END][..], &[&whole]] {
        let answer = exchange(&server, pieces);
        assert_eq!(answer.matches("HTTP/1.1 204").count(), 2, "{answer}");
    }
    let found = server.get("/query?db=default&q=SELECT%20s%20FROM%20m").body;
    assert!(found.contains(r#""<ü>""#) || found.contains(r#""\u003cü\u003e""#), "{found}");
}

#[test]
fn every_refusal_has_a_body() {
    let server = Running::start();
    for request in [&b"GET /a b c HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"GET / HTTP/1.1\r\nbad header\r\n\r\n"] {
        let answer = exchange(&server, &[request]);
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains(r#""errorType":"bad_data""#), "{answer}");
    }
    for (method, path) in [("GET", "/nowhere"), ("PATCH", "/api/v1/query"), ("GET", "/write")] {
        let answer = server.send(method, path, &[], b"");
        assert!((400..500).contains(&answer.status) && !answer.body.is_empty(), "{method} {path} {answer:?}");
    }
}

#[test]
fn paths_and_methods_of_other_servers() {
    let server = Running::start();
    assert!(server.get("//api/v1//query?query=1").body.contains("scalar"));
    for path in ["/-/healthy", "/-/ready"] {
        assert_eq!((server.get(path).status, server.send("HEAD", path, &[], b"").status), (200, 200), "{path}");
    }
    for path in ["/api/v1/query", "/write", "/api/v1/admin/databases/x", "/", "/nowhere"] {
        let answer = server.send("OPTIONS", path, &[], b"");
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, ""), "{path}");
    }
    for (path, data) in [
        ("targets/metadata", "[]"),
        ("scrape_pools", r#"{"scrapePools":[]}"#),
        ("features", "{}"),
        ("notifications", "[]"),
        ("status/walreplay", r#"{"min":0,"max":0,"current":0}"#),
        ("status/tsdb/blocks", r#"{"blocks":[]}"#),
        ("status/self_metrics", "[]"),
    ] {
        let answer = server.get(&format!("/api/v1/{path}"));
        assert_eq!((answer.status, answer.body), (200, format!(r#"{{"status":"success","data":{data}}}"#)), "{path}");
    }
}

#[test]
fn pages_of_listed_origins_may_read_answers() {
    let server = Running::start_with(|settings| settings.origins = vec!["http://grafana:3000".to_owned()]);
    let listed = [("origin", "http://grafana:3000"), ("access-control-request-method", "POST")];
    for (method, status) in [("OPTIONS", 204), ("GET", 200)] {
        let answer = server.send(method, "/api/v1/query?query=1", &listed, b"");
        let allowed = answer.header("access-control-allow-origin");
        assert_eq!(
            (answer.status, allowed, answer.header("vary").contains("Origin")),
            (status, "http://grafana:3000", true)
        );
        let answer = server.send(method, "/api/v1/query?query=1", &[("origin", "http://evil.example")], b"");
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (403, ""));
    }
}

#[test]
fn times_far_away_are_clipped() {
    let server = Running::start();
    server.write("m v=1 1000000000");
    let (first, last) = ("-292273086-05-16T16:47:06Z", "292277025-08-18T07:12:54.999999999Z");
    for (start, end) in [(first, last), ("-1e18", "253402300799"), ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z")]
    {
        let answer = server.get(&format!("/api/v1/series?match[]=m_v&start={start}&end={end}"));
        assert!(answer.status == 200 && answer.body.contains("m_v"), "{answer:?}");
    }
}

#[test]
fn the_time_of_imported_text_is_in_milliseconds() {
    let server = Running::start();
    assert_eq!(server.post("/api/v1/import/prometheus?timestamp=5000", "up 1").status, 204);
    assert_eq!(server.result("default", "timestamp(up)", 5), r#"[{"metric":{},"value":[5,"5"]}]"#);
    assert_eq!(server.post("/api/v1/import/prometheus?timestamp=soon", "up 1").status, 400);
}

#[test]
fn a_federating_prometheus_is_understood() {
    let server = Running::start();
    let text = "# HELP http.requests All of\\nthem.\n# TYPE http.requests counter\n{\"http.requests\",\"a.b\"=\"1\"} 5\nup{instance=\"x\"} 1\n";
    assert_eq!(server.post("/api/v1/import/prometheus", text).status, 204);
    let federated = |accept: &str| {
        let path = "/federate?match[]=%7B__name__%3D~%22.%2B%22%7D";
        let answer = server.send("GET", path, &[("accept", accept)], b"");
        let lines = answer.body.lines().map(|line| line.rsplit_once("} ").map_or(line, |(head, _)| head).to_owned());
        (answer.header("content-type").to_owned(), lines.collect::<Vec<_>>().join("\n"))
    };
    let (content_type, text) = federated("text/plain;version=0.0.4");
    assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    assert_eq!(
        text,
        "# HELP http_requests All of\\nthem.\n# TYPE http_requests counter\nhttp_requests{a_b=\"1\",instance=\"\"\n\
         # TYPE up untyped\nup{instance=\"x\""
    );
    let (content_type, text) = federated("text/plain;version=1.0.0;escaping=allow-utf-8");
    assert_eq!(content_type, "text/plain; version=1.0.0; charset=utf-8; escaping=allow-utf-8");
    assert!(text.contains("\n{\"http.requests\",\"a.b\"=\"1\",instance=\"\""), "{text}");
}

/// The rest of a body that was not read stands before the next request: a client that does not know that the connection closes sends
/// its next request into it.
#[test]
fn an_answer_that_comes_before_the_body_closes_the_connection_and_says_so() {
    let server = Running::start();
    for (path, status) in [
        ("/v1/metrics", 415),
        ("/api/v1/otlp/v1/metrics", 415),
        ("/-/reload", 400),
        ("/api/v1/status/active_queries/1/kill", 404),
        ("/nowhere", 404),
        ("/ping", 405),
    ] {
        for length in ["Transfer-Encoding: chunked", "Content-Length: 5"] {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            // The server closes, although nothing of the body has come.
            let _ = stream.read_to_end(&mut answer);
            let answer = String::from_utf8_lossy(&answer);
            let is_refused = answer.starts_with(&format!("HTTP/1.1 {status}"));
            assert!(is_refused && answer.contains("\r\nConnection: close\r\n"), "{path} {length}: {answer}");
        }
    }
}

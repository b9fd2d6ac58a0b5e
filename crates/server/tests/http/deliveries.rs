//! Live streams, triggers and subscriptions of whole servers, over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use db::DbOptions;

use crate::harness::{Answer, Running};

/// A stream of events, read off its socket.
struct Stream {
    reader: BufReader<TcpStream>,
    head: String,
}

impl Stream {
    fn open(server: &Running, query: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(server.address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(socket, "GET /api/v1/tail{query} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut stream = Self { reader: BufReader::new(socket), head: String::new() };
        while !stream.head.ends_with("\r\n\r\n") {
            stream.reader.read_line(&mut stream.head).unwrap();
        }
        stream
    }

    /// Lines of events up to one with a text.
    fn until(&mut self, text: &str) -> String {
        let mut lines = String::new();
        loop {
            let mut line = String::new();
            let read = self.reader.read_line(&mut line).unwrap_or_else(|error| panic!("{text}: {error} after {lines}"));
            assert!(read > 0, "{text} is not in {lines}");
            lines.push_str(&line);
            if line.contains(text) {
                return lines;
            }
        }
    }
}

fn sql(server: &Running, statement: &str) -> Answer {
    server.post("/sql", statement)
}

fn run(server: &Running, statement: &str) -> String {
    let answer = sql(server, statement);
    assert_eq!(answer.status, 200, "{statement}: {}", answer.body);
    answer.body
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

/// A hook on a free port: what it gets, each answered with 204.
fn hook() -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/x?key=1", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut reader = BufReader::new(socket.unwrap());
            loop {
                let (mut head, mut length) = (String::new(), 0);
                while !head.ends_with("\r\n\r\n") {
                    let mut line = String::new();
                    if reader.read_line(&mut line).unwrap_or(0) == 0 {
                        break;
                    }
                    if let Some(value) = line.to_lowercase().strip_prefix("content-length: ") {
                        length = value.trim().parse().unwrap();
                    }
                    head.push_str(&line);
                }
                if head.is_empty() {
                    break;
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                if sender.send(format!("{head}{}", String::from_utf8(body).unwrap())).is_err() {
                    return;
                }
                reader.get_mut().write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
            }
        }
    });
    (address, receiver)
}

#[test]
fn a_stream_is_served_and_resumed() {
    let mut server = Running::start();
    server.write("cpu,host=a v=1 1000000000");
    let mut stream = Stream::open(&server, "?match[]=cpu_v{host=~%22a|b%22}", "");
    assert!(stream.head.starts_with("HTTP/1.1 200") && stream.head.contains("Content-Type: text/event-stream"));
    stream.until("id: ");
    server.write("cpu,host=b v=2.5 2000000000\ncpu,host=c v=3 2000000000");
    let event = stream.until("id: ");
    let sample = r#"data: {"labels":{"__name__":"cpu_v","host":"b"},"time":"1970-01-01T00:00:02Z","value":2.5}"#;
    assert!(event.contains(sample) && !event.contains("\"c\""), "{event}");
    let id: u64 = event.lines().last().unwrap().trim_start_matches("id: ").trim().parse().unwrap();
    server.write("cpu,host=a v=4 3000000000");
    stream.until("\"value\":4}");
    for (query, headers) in
        [(format!("?since={id}"), String::new()), ("?since=0".to_owned(), format!("Last-Event-ID: {id}\r\n"))]
    {
        let resumed = Stream::open(&server, &query, &headers).until("\"value\":4}");
        assert_eq!(resumed.matches("data: ").count(), 1, "{resumed}");
    }
    for (query, part) in
        [("?since=x", "sequence id"), ("?since=99999999", "another data folder"), ("?match[]=%7B", "match[]")]
    {
        let refused = server.get(&format!("/api/v1/tail{query}"));
        assert!(refused.status == 400 && refused.body.contains(part), "{query}: {}", refused.body);
    }
    assert_eq!(server.get("/api/v1/tail?db=nosuch").status, 404);
    server.wait_for_metric("thalweg_tail_cut_off_total 0");
    // The end of the server is told, and does not wait for the client.
    server.stop();
    let end = stream.until("\"reason\":\"stopped\"");
    assert!(end.contains("event: end"), "{end}");
}

#[test]
fn streams_are_bounded() {
    let server = Running::start_with(|settings| settings.web.tail_streams_max = Some(1));
    server.write("cpu v=1");
    let mut stream = Stream::open(&server, "", "");
    stream.until("id: ");
    let refused = server.get("/api/v1/tail");
    assert!(refused.status == 429 && refused.body.contains("--tail-streams-max"), "{}", refused.body);
    drop(stream);
    server.write("cpu v=2");
    wait_until("the slot is free again", || {
        server.write("cpu v=3");
        server.get("/metrics").body.contains("\nthalweg_tail_streams 0\n")
    });
}

#[test]
fn a_stream_ends_with_its_token_and_shows_what_it_may() {
    let server = Running::start_with(|settings| settings.sign_in_required = true);
    let admin = std::fs::read_to_string(server.db.directory().join("admin-token")).unwrap();
    let ask = |method: &str, path: &str, token: &str, body: &str| {
        server.send(method, path, &[("authorization", &format!("Bearer {}", token.trim()))], body)
    };
    let write = |lines: &str| assert_eq!(ask("POST", "/write", &admin, lines).status, 204);
    write("m,env=prod v=1 1000000000");
    let made = ask("PUT", "/api/v1/admin/accounts/narrow", &admin, r#"{"grants":["read:default{env=\"prod\"}"]}"#);
    let parsed: serde_json::Value = serde_json::from_str(&made.body).unwrap();
    let token = parsed["data"]["token"].as_str().unwrap().to_owned();
    assert_eq!(ask("GET", "/api/v1/tail?db=other", &token, "").status, 403);
    let mut stream = Stream::open(&server, "", &format!("Authorization: Bearer {token}\r\n"));
    stream.until("id: ");
    write("m,env=dev v=2 2000000000\nm,env=prod v=3 2000000000");
    let event = stream.until("id: ");
    assert!(event.contains("prod") && !event.contains("dev"), "{event}");
    // Triggers and subscriptions of others are not shown, and need more rights.
    let trigger = "CREATE TRIGGER t ON m WHEN (v > 1) DO INSERT INTO n";
    assert_eq!(ask("POST", "/sql", &token, trigger).status, 403);
    assert_eq!(ask("POST", "/sql", &token, "SHOW TRIGGERS").status, 403);
    assert_eq!(ask("POST", "/sql", &admin, trigger).status, 200);
    assert!(ask("GET", "/api/v1/triggers", &admin, "").body.contains(r#""name":"t""#));
    assert!(ask("GET", "/api/v1/triggers", &token, "").body.contains(r#""data":[]"#));
    assert_eq!(ask("DELETE", "/api/v1/admin/accounts/narrow", &admin, "").status, 204);
    write("m,env=prod v=4 3000000000");
    let end = stream.until("\"reason\":");
    assert!(end.contains("forbidden") && !end.contains("\"value\":4"), "{end}");
}

#[test]
fn a_trigger_runs_by_every_way_to_write() {
    let server = Running::start();
    let (url, received) = hook();
    server.write("cpu,host=a v=0 1000000000");
    run(
        &server,
        &format!(
            "CREATE TRIGGER hot ON cpu WHEN (v > 10) DO WEBHOOK '{url}' WITH (secret = 'quiet', batch_age = '10ms')"
        ),
    );
    run(&server, "CREATE TRIGGER copy ON cpu WHEN (v > 10) DO INSERT INTO hot_cpu SELECT host, v");
    server.write("cpu,host=a v=11 2000000000\ncpu,host=b v=1 2000000000");
    let request = received.recv_timeout(Duration::from_secs(20)).unwrap();
    assert!(
        request.starts_with("POST /x?key=1 HTTP/1.1") && request.contains("x-thalweg-signature: sha256="),
        "{request}"
    );
    assert!(request.contains(r#""tags":{"host":"a"},"fields":{"v":11}"#) && !request.contains("\"b\""), "{request}");
    run(&server, "INSERT INTO cpu (time, host, v) VALUES ('1970-01-01T00:00:03Z', 'sql', 12)");
    assert!(received.recv_timeout(Duration::from_secs(20)).unwrap().contains("\"sql\""));
    wait_until("rows are copied", || sql(&server, "SELECT count(v) FROM hot_cpu").body.contains("[[2]]"));
    server.wait_for_metric(
        r#"thalweg_trigger_sent_rows_total{kind="trigger",database="default",name="copy",target="hot_cpu"} 2"#,
    );
    let hot = format!("target=\"{}\"}} 2", url.replace("key=1", "…"));
    wait_until("both are counted", || server.get("/metrics").body.contains(&hot));
    let shown = run(&server, "SHOW TRIGGERS");
    assert!(
        shown.contains("\"hot\"")
            && shown.contains("\"running\"")
            && !shown.contains("quiet")
            && !shown.contains("key=1"),
        "{shown}"
    );
    let listed = server.get("/api/v1/triggers").body;
    assert!(
        listed.contains(r#""kind":"trigger""#) && listed.contains(r#""sent_rows":2"#) && !listed.contains("quiet"),
        "{listed}"
    );
    let refused = sql(&server, "CREATE TRIGGER back ON hot_cpu WHEN (v > 1) DO INSERT INTO cpu");
    assert!(refused.status == 400 && refused.body.contains("feed itself"), "{}", refused.body);
    let get = server.get("/sql?query=DROP%20TRIGGER%20hot");
    assert_eq!(get.status, 405, "{}", get.body);
    run(&server, "ALTER TRIGGER hot DISABLE; DROP TRIGGER copy");
    assert!(run(&server, "SHOW TRIGGERS").contains("disabled"));
    assert_eq!(server.send("DELETE", "/api/v1/admin/databases/default", &[], b"").status, 204);
    assert!(server.get("/api/v1/triggers").body.contains(r#""data":[]"#), "triggers go with their database");
}

#[test]
fn only_allowed_addresses_get_hooks_and_subscriptions() {
    let server = Running::start_with(|settings| {
        settings.web.webhook_urls = views::delivery::UrlRules::parse(&["http://127.0.0.1:9/hooks".to_owned()]).unwrap();
    });
    server.write("cpu v=0 1");
    run(&server, "CREATE TRIGGER t ON cpu WHEN (v > 1) DO WEBHOOK 'http://127.0.0.1:9/hooks/x'");
    let refused = sql(&server, "CREATE TRIGGER u ON cpu WHEN (v > 1) DO WEBHOOK 'http://127.0.0.1:10/hooks/x'");
    assert!(refused.status == 400 && refused.body.contains("--webhook-urls"), "{}", refused.body);
    let statement = "CREATE%20SUBSCRIPTION%20s%20ON%20%22default%22.autogen%20DESTINATIONS%20ALL%20'udp://127.0.0.1:9'";
    let refused = server.post(&format!("/query?q={statement}"), b"");
    assert!(refused.body.contains("--webhook-urls"), "{}", refused.body);
}

#[test]
fn a_subscription_mirrors_a_database() {
    let mirror = Running::start();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    datagrams.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let udp = datagrams.local_addr().unwrap();
    let server = Running::start_on(DbOptions::new(Running::new_folder()), |_| {});
    server.write("start v=0 1000000000");
    let query = |statement: &str| {
        let statement: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
        server.post(&format!("/query?db=default&q={statement}"), b"").body
    };
    let made = query(&format!(
        "CREATE SUBSCRIPTION \"m 1\" ON \"default\".\"autogen\" DESTINATIONS ALL 'http://{}', 'udp://{udp}'",
        mirror.address
    ));
    assert_eq!(made, "{\"results\":[{\"statement_id\":0}]}\n");
    server.write("cpu,host=a v=1i,note=\"x y\" 2000000000\nother v=2 2000000000");
    wait_until("rows are mirrored", || {
        let found = mirror.post("/sql", "SELECT v, note FROM cpu").body;
        found.contains(r#"[1,"x y"]"#) && mirror.post("/sql", "SELECT v FROM other").body.contains("[[2.0]]")
            || found.contains(r#"[1,"x y"]"#) && mirror.post("/sql", "SELECT v FROM other").body.contains("[[2]]")
    });
    let mut buffer = [0; 2048];
    let mut lines: Vec<String> = Vec::new();
    while lines.len() < 2 {
        let length = datagrams.recv(&mut buffer).unwrap();
        lines.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
    }
    lines.sort();
    assert_eq!(lines, ["cpu,host=a v=1i,note=\"x y\" 2000000000", "other v=2.0 2000000000"]);
    let listed = query("SHOW SUBSCRIPTIONS");
    assert!(listed.contains(r#""columns":["retention_policy","name","mode","destinations"]"#), "{listed}");
    assert!(listed.contains(r#""autogen","m 1","ALL""#), "{listed}");
    assert!(query("DROP SUBSCRIPTION \"m 1\" ON \"default\".autogen").contains("{\"statement_id\":0}"));
    assert!(!query("SHOW SUBSCRIPTIONS").contains("autogen"));
}

#[test]
fn a_subscription_to_its_own_server_is_refused() {
    let server = Running::start();
    server.write("start v=0 1000000000");
    let statement =
        format!("CREATE SUBSCRIPTION own ON \"default\".autogen DESTINATIONS ALL 'http://{}'", server.address);
    let statement: String = form_urlencoded::byte_serialize(statement.as_bytes()).collect();
    let made = server.post(&format!("/query?db=default&q={statement}"), b"").body;
    assert_eq!(made, "{\"results\":[{\"statement_id\":0}]}\n");
    server.write("cpu v=1 2000000000");
    wait_until("it is refused", || {
        let listed = server.get("/api/v1/triggers").body;
        listed.contains("a subscription sends to its own server") && listed.contains(r#""failed_rows":1"#)
    });
    let origin = views::origin_text(server.db.incarnation());
    let write =
        |origin: &str| server.send("POST", "/write?db=default", &[(views::ORIGIN_HEADER, origin)], "m v=1 1").status;
    assert_eq!((write(&origin), write("0")), (400, 204));
}

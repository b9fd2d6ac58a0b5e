//! Limits that answer at once: connections, lengths, silent and unreading clients, new series.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use db::DbOptions;
use thalweg_server::Listener;

use crate::harness::Running;

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

fn until_closed(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = connect(address);
    let _ = stream.write_all(request.as_bytes());
    until_closed(stream)
}

/// Asks for little on a connection that stays open.
fn ping(stream: &mut TcpStream) {
    stream.write_all(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 204");
}

#[test]
fn silent_connections_make_room_and_busy_ones_do_not() {
    let server = Running::start_with(|settings| {
        settings.connections_max = 3;
        settings.park_after_ms = 1;
    });
    let started = Instant::now();
    let mut first = connect(server.address);
    ping(&mut first);
    // Only when it is known to be silent does the other one begin. The harness has a connection, too, which is awake while it asks.
    server.wait_for_metric("thalweg_connections_parked 1");
    let mut second = connect(server.address);
    ping(&mut second);
    let asked = "GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    while !exchange(server.address, asked).starts_with("HTTP/1.1 204 ") {
        assert!(started.elapsed() < Duration::from_secs(20), "no connection makes room");
    }
    until_closed(first);
    assert!(started.elapsed() < Duration::from_secs(10), "the one that was silent for longest was closed");
    drop(second);
    let head = b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n";
    let mut busy = Vec::new();
    while busy.len() < 3 {
        assert!(started.elapsed() < Duration::from_secs(20), "{} are busy", busy.len());
        let mut stream = connect(server.address);
        let _ = stream.write_all(head);
        // Once it is told to go on, its request is under way. Until then it may have to make room.
        let mut told = [0; 12];
        if stream.read_exact(&mut told).is_ok() && &told == b"HTTP/1.1 100" {
            busy.push(stream);
        }
    }
    let answer = exchange(server.address, asked);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("connections_max") && answer.contains("retry-after: 1"), "{answer}");
    assert!(started.elapsed() < Duration::from_secs(20), "it was told at once");
}

#[test]
fn a_body_has_one_length_and_a_possible_one() {
    let server = Running::start();
    for (headers, status) in [
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
        ("Transfer-Encoding: chunked\r\ncontent-length : 5\r\n", 400),
        ("Content-Length: 99999999999\r\n", 413),
        ("Transfer-Encoding: chunked\r\nX-Content-Length: 5\r\n", 204),
    ] {
        let mut stream = connect(server.address);
        let started = Instant::now();
        let head = format!("POST /write HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        if status != 413 {
            let _ = stream.write_all(b"7\r\nm v=1 1\r\n0\r\n\r\n");
        }
        let answer = until_closed(stream);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{headers} {answer}");
        assert!(started.elapsed() < Duration::from_secs(10), "{headers}: it was waited for");
    }
}

#[test]
fn a_request_that_comes_before_the_last_answer_has_one_length_too() {
    let server = Running::start();
    let post = |headers: &str| {
        format!(
            "POST /write HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{headers}\r\n7\r\nm v=1 1\r\n0\r\n\r\n"
        )
    };
    let ahead = "GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for headers in ["Content-Length: 5\r\n", ""] {
        let answers = exchange(server.address, &format!("{ahead}{}", post(headers)));
        let answers: Vec<&str> = answers.matches("HTTP/1.1 204").chain(answers.matches("HTTP/1.1 400")).collect();
        assert_eq!(answers, ["HTTP/1.1 204", "HTTP/1.1 400"], "{headers}");
    }
    let answer = exchange(server.address, &format!("\r\n\r\n{}", post("Content-Length: 5\r\n")));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    // One after another they are taken.
    let mut stream = connect(server.address);
    for _ in 0..3 {
        stream.write_all(post("").as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend(byte);
        }
        assert!(head.starts_with(b"HTTP/1.1 204"), "{}", String::from_utf8_lossy(&head));
    }
}

#[test]
fn a_client_that_never_reads_is_closed() {
    let server = Running::start_with(|settings| settings.write_timeout_ms = 300);
    let mut lines = String::new();
    for time in 0..50_000 {
        writeln!(lines, "m v={time} {time}000000").unwrap();
    }
    server.write(&lines);
    let mut stream = connect(server.address);
    let request = b"GET /sql?format=csv&query=SELECT%20*%20FROM%20m HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(&request.repeat(20)).unwrap();
    // Of the harness's own there is one.
    server.wait_for_metric("thalweg_connections 2");
    server.wait_for_metric("thalweg_connections 1");
    drop(stream);
}

#[test]
fn a_silent_session_of_postgres_is_closed_and_impossible_lengths_are_refused() {
    let free = Some(Listener { address: SocketAddr::from(([127, 0, 0, 1], 0)), required: true });
    let server = Running::start_with(|settings| {
        settings.postgres = free;
        settings.postgres_idle_timeout_ms = 200;
        settings.connections_max = 2;
    });
    let address = server.at("--postgres");
    let mut silent = connect(address);
    let parameters = b"\0\x03\0\0user\0a\0\0";
    let length = u32::try_from(parameters.len() + 4).unwrap().to_be_bytes();
    silent.write_all(&[&length[..], parameters].concat()).unwrap();
    let said = until_closed(silent);
    assert!(said.contains("57P05") && said.contains("postgres_idle_timeout_ms"), "{said}");
    for impossible in [&b"\x7f\xff\xff\xff"[..], b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let started = Instant::now();
        let mut stream = connect(address);
        stream.write_all(impossible).unwrap();
        let said = until_closed(stream);
        assert!(started.elapsed() < Duration::from_secs(5) && !said.contains("Host"), "{said}");
    }
    // Three at once are one too many, unless the first was closed as idle before the last came: then it is tried again.
    let started = Instant::now();
    while !std::array::from_fn::<_, 3, _>(|_| connect(address))
        .map(until_closed)
        .iter()
        .any(|said| said.contains("53300"))
    {
        assert!(started.elapsed() < Duration::from_secs(50), "three connections were served, two are allowed");
    }
}

#[test]
fn new_series_beyond_the_rate_are_to_be_sent_again() {
    let folder = std::env::temp_dir().join(format!("thalweg-rate-{}", std::process::id()));
    let mut options = DbOptions::new(&folder);
    options.store.new_series_per_second_max = 1;
    let server = Running::start_on(options, |_| {});
    for (number, path) in
        ["/write", "/api/v2/write", "/api/v3/write_lp?db=default", "/api/v1/import/prometheus", "/api/put"]
            .iter()
            .enumerate()
    {
        let body = match *path {
            "/api/v1/import/prometheus" => "a4 1 1000\nb4 1 1000\nc4 1 1000\n".to_owned(),
            "/api/put" => r#"[{"metric":"a5","timestamp":1,"value":1,"tags":{"h":"a"}},{"metric":"b5","timestamp":1,"value":1,"tags":{"h":"a"}},{"metric":"c5","timestamp":1,"value":1,"tags":{"h":"a"}}]"#.to_owned(),
            _ => format!("n{number},h=a v=1 1000000000\nn{number},h=b v=1 1000000000\nn{number},h=c v=1 1000000000\n"),
        };
        let answer = server.post(path, &body);
        assert_eq!(answer.status, 429, "{path} {}", answer.body);
        assert!(!answer.header("retry-after").is_empty(), "{path}");
    }
    // As a sender does that is told to come again: each time a second has begun, one gets in.
    let started = Instant::now();
    let body = "again,h=a v=1 1000000000\nagain,h=b v=1 1000000000\n";
    while server.post("/write", body).status == 429 {
        assert!(started.elapsed() < Duration::from_secs(20));
    }
    assert!(server.result("default", "sum(again_v)", 1).contains(r#""2""#));
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

const GZIP: [(&str, &str); 1] = [("content-encoding", "gzip")];

#[test]
fn bombs_of_text_are_refused_early_by_the_limit_that_they_break() {
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let lines = b"m v=1 1000000000\n".repeat(1 << 10);
    (0..12 << 10).for_each(|_| bomb.write_all(&lines).unwrap());
    let bomb = bomb.finish().unwrap();
    let folder = std::env::temp_dir().join(format!("thalweg-bomb-{}", std::process::id()));
    let mut options = DbOptions::new(&folder);
    options.store.memory_bytes_max = 64 << 20;
    let little_memory = Running::start_on(options, |settings| settings.unpacked_ratio_max = usize::MAX);
    let small = Running::start_with(|settings| {
        settings.unpacked_bytes_max = 4 << 20;
        settings.unpacked_ratio_max = usize::MAX;
    });
    let usual = Running::start_with(|settings| settings.unpacked_ratio_max = 100);
    for (server, limit) in
        [(&little_memory, "memory_bytes_max"), (&small, "unpacked_bytes_max"), (&usual, "unpacked_ratio_max")]
    {
        for path in ["/write", "/api/v1/import/prometheus", "/api/v1/import"] {
            let started = Instant::now();
            let answer = server.send("POST", path, &GZIP, &bomb);
            assert!([413, 503].contains(&answer.status), "{path} {} {}", answer.status, answer.body);
            assert!(answer.body.contains(limit), "{path} {limit}: {}", answer.body);
            assert!(started.elapsed() < Duration::from_secs(20), "{path} {limit}");
        }
        assert!(!server.get("/api/v1/query?query=m_v&time=1").body.contains("\"1\""), "{limit}");
    }
}

#[test]
fn packed_lines_are_taken_that_would_not_be_held_unpacked() {
    let server = Running::start_with(|settings| settings.bodies_bytes_max = 16 << 20);
    let (host, mut lines, mut count) = ("h".repeat(200), String::new(), 0);
    while lines.len() < 60 << 20 {
        count += 1;
        writeln!(lines, "m,host={host} v=1 {count}000000").unwrap();
    }
    let answer = server.send("POST", "/write", &GZIP, gzip(lines.as_bytes()));
    assert_eq!((answer.status, answer.body.as_str()), (204, ""));
    let found = server.get(&format!("/api/v1/query?query=sum(count_over_time(m_v[1d]))&time={}", count / 1000 + 1));
    assert!(found.body.contains(&format!("\"{count}\"")), "{}", found.body);
}

#[test]
fn packed_and_plain_lines_get_one_answer() {
    let server = Running::start();
    let mut lines = String::new();
    for row in 0..30_000 {
        writeln!(lines, "m,host=h{} v=1,note=\"a\nb\" {row}000000", row % 50).unwrap();
    }
    let lines = [&lines, "bad\n", &lines, "m v=1,note=\"never\n", &lines, "worse v=\nm v=true 1\n"].concat();
    for path in ["/write", "/api/v2/write", "/api/v3/write_lp?db=default&precision=ns"] {
        let (plain, packed) = (server.post(path, &lines), server.send("POST", path, &GZIP, gzip(lines.as_bytes())));
        assert_eq!((packed.status, &packed.body), (plain.status, &plain.body), "{path}");
        assert!(packed.body.contains("60001") || packed.body.contains("120002"), "{path} {}", packed.body);
    }
    // What is damaged at its end writes nothing, though a file of CSV is written in chunks.
    let mut rows = "time,v\n".to_owned();
    for row in 0..60_000 {
        writeln!(rows, "{row},1").unwrap();
    }
    let packed = gzip(rows.as_bytes());
    let path = "/api/v1/import/csv?measurement=c&time=time&time_format=s";
    let answer = server.send("POST", path, &GZIP, &packed[..packed.len() - 10]);
    assert!(answer.status == 400 && answer.body.contains("gzip"), "{} {}", answer.status, answer.body);
    assert_eq!(server.result("default", "count_over_time(c_v[1d])", 70_000), "[]");
    assert_eq!(server.send("POST", path, &GZIP, &packed).status, 204);
    assert!(server.result("default", "count_over_time(c_v[1d])", 70_000).contains("60000"));
}

#[test]
fn long_lists_are_sent_while_they_are_written() {
    let server = Running::start();
    let (pod, mut lines) = ("p".repeat(200), String::new());
    for series in 0..20_000 {
        writeln!(lines, "wide,pod={pod}{series:05} v=1 1000000000").unwrap();
    }
    server.write(&lines);
    for path in ["/api/v1/series?match[]=wide_v&time=1", "/api/v1/label/pod/values"] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("transfer-encoding")), (200, "chunked"), "{path}");
        assert!(answer.body.starts_with(r#"{"status":"success","data":["#) && answer.body.ends_with("]}"), "{path}");
        assert_eq!(answer.body.matches(&pod).count(), 20_000, "{path}");
        let few = server.get(&format!("{path}&limit=3").replacen("values&", "values?", 1));
        assert!(!few.header("content-length").is_empty() && few.body.contains("truncated"), "{path}");
    }
    // A client that reads nothing holds some chunks; its query ends when it leaves.
    let mut stream = connect(server.address);
    let request = "GET /api/v1/series?match[]=wide_v HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.repeat(40).as_bytes()).unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    server.wait_for_metric("thalweg_queries_running 1");
    drop(stream);
    server.wait_for_metric("thalweg_queries_running 0");
}

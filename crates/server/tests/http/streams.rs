//! Listeners of lines: TCP and UDP, good, bad, slow, greedy and many.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use crate::harness::Running;

fn connect(server: &Running, flag: &str) -> TcpStream {
    let stream = TcpStream::connect(server.at(flag)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Waits until the server closes; what it said before.
fn until_closed(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn lines_by_tcp_are_stored_wherever_they_are_cut() {
    let server = Running::start_listening(|_| {});
    let mut stream = connect(&server, "--line");
    stream.set_nodelay(true).unwrap();
    for piece in
        ["a,host=x v=1 1000", "000000\na,host=x v", "=2 2000000000\n", "a,host=x v=3 3000000000\nb v=\"ü", "\" 1\n"]
    {
        for half in piece.as_bytes().chunks(7) {
            stream.write_all(half).unwrap();
        }
    }
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 4");
    assert!(server.result("default", "a_v", 3).contains(r#""3""#));
    // A line without its end may be a number without its last digits.
    stream.write_all(b"a,host=x v=12").unwrap();
    drop(stream);
    server.wait_for_metric("thalweg_streams_closed_total{protocol=\"line\",reason=\"client left\"} 1");
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 4");
}

#[test]
fn a_bad_line_ends_a_connection_of_line_protocol_and_costs_nothing_else() {
    let server = Running::start_listening(|_| {});
    let mut stream = connect(&server, "--line");
    stream.write_all(b"good v=1 1000000000\nbad v=\ngood v=2 2000000000\n").unwrap();
    assert_eq!(until_closed(stream), "");
    assert!(server.result("default", "good_v", 2).contains(r#""2""#));
    server.wait_for_metric("thalweg_streams_closed_total{protocol=\"line\",reason=\"bad line\"} 1");
    server.wait_for_metric("thalweg_rejected_total{reason=\"unreadable line\"} 1");
    server.wait_for_metric("thalweg_streams{protocol=\"line\"} 0");
}

#[test]
fn graphite_and_opentsdb_go_on_after_bad_lines() {
    let server = Running::start_listening(|_| {});
    let mut stream = connect(&server, "--graphite");
    stream.write_all(b"servers.a.load;dc=x 1.5 1\nnonsense\nservers.a.load;dc=x 2.5 2\n").unwrap();
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"graphite\"} 2");
    let found = server.result("default", r#"{__name__="servers.a.load"}"#, 2);
    assert_eq!(found, r#"[{"metric":{"__name__":"servers.a.load","dc":"x"},"value":[2,"2.5"]}]"#);

    let mut stream = connect(&server, "--opentsdb");
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    stream.write_all(b"version\n").unwrap();
    assert!(answers.next().unwrap().unwrap().starts_with("thalweg "));
    stream.write_all(b"put sys.load 1 1.5 host=a\nput sys.load soon 2 host=a\n").unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "put: illegal argument: invalid timestamp");
    stream.write_all(b"put sys.load 2 2.5 host=a\nexit\n").unwrap();
    assert!(answers.next().is_none());
    assert!(server.result("default", r#"{__name__="sys.load"}"#, 2).contains(r#""2.5""#));
}

#[test]
fn datagrams_are_stored_or_counted() {
    let server = Running::start_listening(|settings| settings.udp_queue_bytes_max = 100);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"u v=1 1000000000\nu v=2 2000000000", server.at("--line")).unwrap();
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 2");
    socket.send_to(b"u.g 1 1\n", server.at("--graphite")).unwrap();
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"graphite\"} 1");
    socket.send_to(&[b'x'; 200], server.at("--line")).unwrap();
    server.wait_for_metric("thalweg_datagrams_total{protocol=\"line\",outcome=\"dropped\"} 1");
    socket.send_to(b"nonsense\nu v=3 3000000000\n", server.at("--line")).unwrap();
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 3");
}

#[test]
fn silent_slow_and_endless_clients_are_dropped() {
    let server = Running::start_listening(|settings| {
        settings.streams.idle_timeout_ms = 400;
        settings.streams.line_timeout_ms = 200;
        settings.streams.rest_bytes_max = 500_000;
    });
    assert_eq!(until_closed(connect(&server, "--line")), "");
    server.wait_for_metric("thalweg_streams_closed_total{protocol=\"line\",reason=\"idle\"} 1");
    // A byte now and then does not buy time.
    let mut slow = connect(&server, "--graphite");
    let mut reader = slow.try_clone().unwrap();
    reader.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    while slow.write_all(b"x").is_ok() && !matches!(reader.read(&mut [0]), Ok(0)) {}
    server.wait_for_metric("thalweg_streams_closed_total{protocol=\"graphite\",reason=\"slow line\"} 1");
    let mut endless = connect(&server, "--line");
    let _ = endless.write_all(&vec![b'x'; 2 << 20]);
    until_closed(endless);
    let metrics = server.get("/metrics").body;
    let closed = |reason: &str| metrics.contains(&format!("protocol=\"line\",reason=\"{reason}\"}} 1"));
    assert!(closed("line_bytes_max") || closed("stream_rest_bytes_max"), "{metrics}");
}

#[test]
fn a_greedy_client_does_not_starve_others() {
    let server = Running::start_listening(|settings| settings.streams.busy_max = 1);
    let greedy: Vec<_> = (0..3)
        .map(|number| {
            let mut stream = connect(&server, "--line");
            std::thread::spawn(move || {
                let lines: Vec<String> =
                    (1..20_000).map(|time| format!("greedy,n={number} v={time} {time}\n")).collect();
                stream.write_all(lines.concat().as_bytes()).unwrap();
            })
        })
        .collect();
    let mut modest = connect(&server, "--graphite");
    modest.write_all(b"modest 1 1\n").unwrap();
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"graphite\"} 1");
    for thread in greedy {
        thread.join().unwrap();
    }
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 59997");
}

#[test]
fn lines_for_which_there_is_no_memory_wait_by_tcp_and_are_counted_by_udp() {
    let server = Running::start_listening(|settings| settings.bodies_bytes_max = 1 << 20);
    let dropped = "thalweg_datagrams_total{protocol=\"graphite\",outcome=\"dropped\"}";
    // Two bodies that do not end leave little for others.
    let (memory, started) = (server.db.request_memory(), std::time::Instant::now());
    let mut held = Vec::new();
    for (bytes, together) in [(900_000, 900_000), (140_000, 1_040_000)] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let request = format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", bytes + 1);
        stream.write_all(request.as_bytes()).unwrap();
        stream.write_all(&vec![b'x'; bytes]).unwrap();
        held.push(stream);
        while memory.used_bytes() < together {
            assert!(started.elapsed() < Duration::from_secs(20), "{} bytes are held", memory.used_bytes());
            std::thread::yield_now();
        }
    }
    let mut stream = connect(&server, "--line");
    let lines: Vec<String> = (1..=1000).map(|time| format!("m,n={} v=1 {time}\n", "x".repeat(100))).collect();
    stream.write_all(lines.concat().as_bytes()).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to("a 1 1\n".repeat(5000).as_bytes(), server.at("--graphite")).unwrap();
    server.wait_for_metric(&format!("{dropped} 1"));
    drop(held);
    server.wait_for_metric("thalweg_protocol_rows_total{protocol=\"line\"} 1000");
}

/// Client and server are this process: two descriptors each. The usual limit is 1,024.
#[cfg(target_os = "linux")]
const CONNECTIONS: u64 = 400;

#[cfg(target_os = "linux")]
#[test]
fn idle_connections_cost_little_memory() {
    let resident_kib = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let server = Running::start_listening(|_| {});
    let before = resident_kib();
    let connections: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&server, "--line")).collect();
    for (place, mut stream) in connections.iter().enumerate() {
        stream.write_all(format!("idle v=1 {place}\n").as_bytes()).unwrap();
    }
    server.wait_for_metric(&format!("thalweg_protocol_rows_total{{protocol=\"line\"}} {CONNECTIONS}"));
    server.wait_for_metric(&format!("thalweg_streams{{protocol=\"line\"}} {CONNECTIONS}"));
    let grown = resident_kib().saturating_sub(before);
    // 100 MiB for 10,000 are 10 KiB each; what the first writes cost the store comes on top.
    assert!(grown < CONNECTIONS * 10 + (48 << 10), "{grown} KiB");
    drop(connections);
    server.wait_for_metric("thalweg_streams{protocol=\"line\"} 0");
}

#[test]
fn a_stop_ends_idle_connections_at_once() {
    let mut server = Running::start_listening(|_| {});
    let stream = connect(&server, "--line");
    server.wait_for_metric("thalweg_streams{protocol=\"line\"} 1");
    let started = std::time::Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(until_closed(stream), "");
}

#[test]
fn each_listener_writes_to_the_database_that_it_was_given() {
    let server = Running::start_listening(|settings| {
        settings.line_database = "lines".to_owned();
        settings.graphite_database = "carbon".to_owned();
        settings.opentsdb_database = "telnet".to_owned();
    });
    for (flag, line, database, query) in [
        ("--line", "a v=1 1000000000\n", "lines", "a_v"),
        ("--graphite", "b 2 1\n", "carbon", "b"),
        ("--opentsdb", "put c 1 3 host=x\n", "telnet", "c"),
    ] {
        connect(&server, flag).write_all(line.as_bytes()).unwrap();
        let protocol = flag.trim_start_matches('-');
        server.wait_for_metric(&format!("thalweg_protocol_rows_total{{protocol=\"{protocol}\"}} 1"));
        assert_ne!(server.result(database, query, 2), "[]", "{flag}");
        assert_eq!(server.result("default", query, 2), "[]", "{flag}");
    }
}

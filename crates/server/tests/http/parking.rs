//! Connections that are silent for a while and go on: parked and awake again, nothing may be lost, doubled or delayed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::Running;

const PING: &[u8] = b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n";

const PATIENCE: Duration = Duration::from_secs(20);

/// A server whose connections are parked after so many milliseconds.
fn start(park_after_ms: u64) -> Running {
    Running::start_with(|settings| settings.park_after_ms = park_after_ms)
}

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads up to an end, which is included.
#[track_caller]
fn read_until(stream: &mut TcpStream, end: &[u8]) -> String {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {read:?}"));
        read.extend(byte);
    }
    String::from_utf8(read).unwrap()
}

/// Reads a head and as many bytes as it announces, or as its chunks do.
#[track_caller]
fn answer(stream: &mut TcpStream) -> (u16, String) {
    let head = read_until(stream, b"\r\n\r\n").to_lowercase();
    let mut body = Vec::new();
    let mut read = |stream: &mut TcpStream, length: usize| {
        let begun = body.len();
        body.resize(begun + length, 0);
        stream.read_exact(&mut body[begun..]).unwrap();
    };
    if head.contains("transfer-encoding: chunked") {
        loop {
            let length = usize::from_str_radix(read_until(stream, b"\r\n").trim(), 16).unwrap();
            read(stream, length);
            read_until(stream, b"\r\n");
            if length == 0 {
                break;
            }
        }
    } else {
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        read(stream, length.parse().unwrap());
    }
    assert!(!head.contains("connection: close"), "{head}");
    (head[9..12].parse().unwrap(), String::from_utf8(body).unwrap())
}

/// Passes time without holding up anything that is waited for.
fn wait(duration: Duration) {
    let (_sender, receiver) = std::sync::mpsc::channel::<()>();
    let _ = receiver.recv_timeout(duration);
}

#[track_caller]
fn check_ended(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest)),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

/// The numbers are of one connection: those of the client that asks for them are counted, too.
fn parked(server: &Running) -> u64 {
    let text = server.get("/metrics").body;
    let value = text.lines().find_map(|line| line.strip_prefix("thalweg_connections_parked ")).unwrap();
    value.parse().unwrap()
}

/// Waits until so many connections are parked beside the one that asks.
fn wait_for_parked(server: &Running, count: u64) {
    let started = Instant::now();
    while parked(server) != count {
        assert!(started.elapsed() < PATIENCE, "{} parked, not {count}", parked(server));
        std::thread::yield_now();
    }
}

#[test]
fn a_parked_connection_goes_on() {
    let server = start(20);
    let mut stream = connect(&server);
    wait_for_parked(&server, 1);
    for _ in 0..3 {
        stream.write_all(PING).unwrap();
        assert_eq!(answer(&mut stream), (204, String::new()));
        wait_for_parked(&server, 1);
    }
    stream.write_all(b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 14\r\n\r\na v=1 1000000").unwrap();
    // A body in two pieces, and a silence between them that would do for parking.
    wait(Duration::from_millis(60));
    assert_eq!(parked(&server), 0);
    stream.write_all(b"\n").unwrap();
    assert_eq!(answer(&mut stream), (204, String::new()));
    wait_for_parked(&server, 1);
    drop(stream);
    wait_for_parked(&server, 0);
}

#[test]
fn a_request_at_the_very_moment_of_parking_is_answered() {
    let server = start(1);
    let threads: Vec<_> = (0..8_u32)
        .map(|thread| {
            let mut stream = connect(&server);
            std::thread::spawn(move || {
                for round in 0..400 {
                    let number = thread * 1_000 + round;
                    let body = format!("moment,n={number} v={number} 1000000");
                    let length = body.len();
                    let request =
                        format!("POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}")
                            .into_bytes();
                    // Cut anywhere, the pauses around the time that it takes to be parked.
                    let (first, second) = request.split_at((round as usize * 7) % request.len());
                    stream.write_all(first).unwrap();
                    wait(Duration::from_micros(u64::from(round % 40) * 100));
                    stream.write_all(second).unwrap();
                    assert_eq!(answer(&mut stream), (204, String::new()), "{number}");
                    wait(Duration::from_micros(u64::from(round % 23) * 150));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(server.result("default", "count(moment_v)", 1), r#"[{"metric":{},"value":[1,"3200"]}]"#);
}

#[test]
fn requests_that_come_together_are_answered_in_order() {
    let server = start(1);
    let mut stream = connect(&server);
    for round in 0..50 {
        let query =
            |number: usize| format!("GET /api/v1/query?query={number}&time=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut requests: String = (0..round).map(query).collect();
        // The last one without its end, until the others are answered and it is quiet.
        let last = query(round);
        let (begun, rest) = last.split_at(round % last.len());
        requests.push_str(begun);
        stream.write_all(requests.as_bytes()).unwrap();
        for number in 0..round {
            let (status, body) = answer(&mut stream);
            assert!(status == 200 && body.contains(&format!(r#","{number}"]"#)), "{body}");
        }
        wait(Duration::from_millis(round as u64 % 7));
        stream.write_all(rest.as_bytes()).unwrap();
        let (status, body) = answer(&mut stream);
        assert!(status == 200 && body.contains(&format!(r#","{round}"]"#)), "{body}");
        // Old clients end a body with a line end too many.
        stream.write_all(b"\r\n").unwrap();
    }
}

#[test]
fn a_client_that_reads_slowly_gets_everything() {
    let server = start(1);
    let lines: Vec<String> = (0..20_000).map(|number| format!("wide,n={number:0200} v=1 1000000")).collect();
    server.write(&lines.join("\n"));
    let mut stream = connect(&server);
    let request = b"GET /api/v1/series?match[]=wide_v&start=0&end=10 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(&request.repeat(2)).unwrap();
    for _ in 0..2 {
        // More than the sockets hold, so that the server waits with the rest.
        wait(Duration::from_millis(100));
        let (status, body) = answer(&mut stream);
        assert!(status == 200 && body.matches("wide_v").count() == 20_000, "{} bytes: {body:.200}", body.len());
    }
    stream.write_all(PING).unwrap();
    assert_eq!(answer(&mut stream), (204, String::new()));
}

#[test]
fn whoever_asks_for_an_end_gets_it() {
    let server = start(1);
    for request in ["GET /ping HTTP/1.0\r\n\r\n", "GET /ping HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"]
    {
        let mut stream = connect(&server);
        stream.write_all(request.as_bytes()).unwrap();
        let mut whole = String::new();
        stream.read_to_string(&mut whole).unwrap();
        assert!(whole.contains(" 204 "), "{whole}");
    }
    let mut stream = connect(&server);
    for _ in 0..3 {
        stream.write_all(b"GET /ping HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").unwrap();
        assert_eq!(answer(&mut stream), (204, String::new()));
        wait(Duration::from_millis(5));
    }
}

#[test]
fn silence_and_slowness_have_their_limits() {
    let server = Running::start_with(|settings| {
        (settings.park_after_ms, settings.head_timeout_ms) = (10, 200);
        settings.http_idle_timeout_ms = 4_000;
    });
    let started = Instant::now();
    let ended_after = |mut stream: TcpStream| {
        check_ended(&mut stream);
        started.elapsed()
    };
    let silent = connect(&server);
    let slow = connect(&server);
    let mut idle = connect(&server);
    let mut slow_again = connect(&server);
    (&slow).write_all(b"GET /pi").unwrap();
    for stream in [&mut idle, &mut slow_again] {
        stream.write_all(PING).unwrap();
        assert_eq!(answer(stream), (204, String::new()));
    }
    slow_again.write_all(b"GET /pi").unwrap();
    for (name, stream) in [("silent", silent), ("slow", slow), ("slow again", slow_again)] {
        let ended = ended_after(stream);
        assert!(ended < Duration::from_millis(3_900), "{name}: {ended:?}");
    }
    let ended = ended_after(idle);
    assert!(ended > Duration::from_millis(3_900) && ended < Duration::from_secs(20), "idle: {ended:?}");
}

#[test]
fn a_stop_ends_what_is_parked() {
    let mut server = start(10);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    for stream in &mut streams {
        stream.write_all(PING).unwrap();
        assert_eq!(answer(stream), (204, String::new()));
    }
    wait_for_parked(&server, 20);
    let started = Instant::now();
    server.stop();
    assert!(started.elapsed() < Duration::from_secs(15), "parked connections held up the stop");
    streams.iter_mut().for_each(check_ended);
}

//! Bodies that promise much, nest without end, or come in odd pieces: each is refused with a reason, or read as if it were whole.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::harness::Running;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

/// A frame of zstd whose content is a byte over and over, in blocks of 128 KiB of four bytes each.
fn zstd_bomb(blocks: usize) -> Vec<u8> {
    // No size of the content; a window of 128 KiB.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 7 << 3];
    for block in 1..=blocks {
        let header = u32::from(block == blocks) | 1 << 1 | (128 << 10) << 3;
        frame.extend_from_slice(&header.to_le_bytes()[..3]);
        frame.push(b'\n');
    }
    frame
}

/// A block of snappy that copies its first bytes over and over, behind the size that it claims.
fn snappy_bomb(claimed: u32, copies: usize) -> Vec<u8> {
    let mut block = Vec::new();
    push_varint(&mut block, u64::from(claimed));
    block.extend([3 << 2, b'x', b'x', b'x', b'x']);
    for _ in 0..copies {
        block.extend([63 << 2 | 2, 4, 0]);
    }
    block
}

fn push_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A field of protobuf with bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    push_varint(&mut out, bytes.len() as u64);
    out.extend(bytes);
    out
}

/// What OpenTelemetry's collectors send: a point with an attribute that is a list in a list in a list.
fn nested_attributes(depth: usize) -> Vec<u8> {
    let mut value = field(1, b"deep");
    for _ in 0..depth {
        // AnyValue.array_value, ArrayValue.values.
        value = field(5, &field(1, &value));
    }
    let attribute = [field(1, b"nested"), field(2, &value)].concat();
    // Time and value.
    let numbers = [&[3 << 3 | 1][..], &1_000_000_000u64.to_le_bytes(), &[4 << 3 | 1], &1f64.to_le_bytes()].concat();
    let gauge = field(5, &field(1, &[field(7, &attribute), numbers].concat()));
    let metric = [field(1, b"deep"), gauge].concat();
    field(1, &field(2, &field(2, &metric)))
}

#[track_caller]
fn check(server: &Running, path: &str, headers: &[(&str, &str)], body: &[u8], status: u16, expected: &str) {
    let answer = server.send("POST", path, headers, body);
    assert!(answer.status == status && answer.body.contains(expected), "{path}: {} {}", answer.status, answer.body);
}

const PROTOBUF: (&str, &str) = ("content-type", "application/x-protobuf");
const JSON: (&str, &str) = ("content-type", "application/json");

#[test]
fn bodies_that_unpack_to_much_are_refused_in_every_encoding() {
    let server = Running::start();
    let bombs = [
        ("gzip", gzip(&vec![b'\n'; 40 << 20])),
        ("zstd", zstd_bomb(400)),
        ("snappy", snappy_bomb(300 << 20, 1000)),
        ("snappy", snappy_bomb(u32::MAX, 10)),
    ];
    for (encoding, bomb) in &bombs {
        assert!(bomb.len() < 64 << 10, "{encoding}: {}", bomb.len());
        for path in ["/write", "/api/v1/import/prometheus", "/api/v1/import", "/api/v1/import/csv?measurement=m&time=t"]
        {
            check(&server, path, &[("content-encoding", encoding)], bomb, 413, "unpacked");
        }
        check(&server, "/api/v1/otlp/v1/metrics", &[("content-encoding", encoding), PROTOBUF], bomb, 413, "unpacked");
    }
    // Many members stand for one body.
    let members = gzip(&vec![b'\n'; 1 << 20]).repeat(60);
    check(&server, "/write", &[("content-encoding", "gzip")], &members, 413, "unpacked");
    let claimed = snappy_bomb(u32::MAX, 10);
    check(&server, "/api/v1/write", &[("content-encoding", "snappy"), PROTOBUF], &claimed, 413, "unpacked");
    // A window of exabytes, which a decoder would have to hold.
    let window = [&[0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff][..], &[1, 0, 0]].concat();
    assert_eq!(server.send("POST", "/write", &[("content-encoding", "zstd")], window).status / 100, 4);
    server.write("m v=1 1");
}

#[test]
fn what_nests_without_end_is_refused() {
    const DEPTH: usize = 200_000;
    let server = Running::start();
    let brackets = "[".repeat(DEPTH);
    let objects = "{\"metric\":".repeat(DEPTH);
    for body in [&brackets, &objects] {
        for path in ["/api/put", "/api/v1/import", "/api/v1/otlp/v1/metrics"] {
            let answer = server.send("POST", path, &[JSON], body);
            assert_eq!(answer.status, 400, "{path}: {}", answer.body);
        }
    }
    let tags =
        format!("{{\"metric\":\"a\",\"timestamp\":1,\"value\":1,\"tags\":{{\"a\":{brackets}{}}}}}", "]".repeat(DEPTH));
    assert_eq!(server.send("POST", "/api/put", &[JSON], tags).status, 400);
    let attribute = "{\"arrayValue\":{\"values\":[".repeat(DEPTH);
    let body = format!("{{\"resourceMetrics\":[{{\"resource\":{{\"attributes\":[{{\"key\":\"a\",\"value\":{attribute}");
    check(&server, "/api/v1/otlp/v1/metrics", &[JSON], body.as_bytes(), 400, "");
    let path = "/api/v1/otlp/v1/metrics";
    for (depth, refused) in [(3, false), (5_000, true)] {
        let answer = server.send("POST", path, &[PROTOBUF], nested_attributes(depth));
        assert_eq!(answer.body.contains("nested more than 16 levels"), refused, "{depth}: {answer:?}");
    }
    for query in ["(", "-", "sum(", "[1m:", "a + ("] {
        let text = query.repeat(100_000);
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let body: String = form_urlencoded::Serializer::new(String::new()).append_pair("query", &text).finish();
        assert_eq!(server.send("POST", "/api/v1/query", &form, &body).status, 400, "{query}");
    }
    server.write("m v=1 1");
}

#[test]
fn lengths_of_messages_that_are_not_there_are_refused() {
    let server = Running::start();
    for length in [1 << 20, u64::from(u32::MAX), u64::MAX] {
        // A time series that claims so many bytes, alone and behind a whole one.
        let mut body = vec![1 << 3 | 2];
        push_varint(&mut body, length);
        body.extend(b"few");
        let packed = ingest::remote_write::compress(&body);
        let headers = [("content-encoding", "snappy"), PROTOBUF];
        assert_eq!(server.send("POST", "/api/v1/write", &headers, &packed).status, 400, "{length}");
        assert_eq!(server.send("POST", "/api/v1/otlp/v1/metrics", &[PROTOBUF], &body).status, 400, "{length}");
    }
    let endless = [0xff; 20];
    assert_eq!(server.send("POST", "/api/v1/otlp/v1/metrics", &[PROTOBUF], endless).status, 400);
    server.write("m v=1 1");
}

/// Sends a body in chunks of so many bytes; the status.
fn in_chunks(server: &Running, path: &str, body: &[u8], chunk_bytes: usize) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    for chunk in body.chunks(chunk_bytes) {
        let framed = [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat();
        stream.write_all(&framed).unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn characters_may_be_cut_by_the_borders_of_chunks() {
    let server = Running::start();
    // One, two, three and four bytes.
    let lines =
        "fluss,ort=Köln,zeichen=€,bild=🌊 pegel=1 1000000000\nfluss,ort=Köln,zeichen=€,bild=🌊 pegel=2 2000000000";
    for chunk_bytes in 1..=7 {
        assert_eq!(in_chunks(&server, "/write", lines.as_bytes(), chunk_bytes), "HTTP/1.1 204 No Content");
        let labels = r#"{ort="Köln",zeichen="€",bild="🌊"}"#;
        let found = server.result("default", &format!("sum_over_time(fluss_pegel{labels}[1m])"), 3);
        assert!(found.contains(r#""3""#), "{chunk_bytes}: {found}");
        let broken = [&lines.as_bytes()[..12], b"\xc3 pegel=9 1000000000"].concat();
        assert_eq!(in_chunks(&server, "/write", &broken, chunk_bytes), "HTTP/1.1 400 Bad Request", "{chunk_bytes}");
    }
    assert_eq!(server.db.stats().groups, 1, "all of them are one series");
}

#[test]
fn a_body_that_trickles_is_not_waited_for() {
    let server = Running::start_with(|settings| settings.body_timeout_ms = 200);
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"POST /write HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000000\r\n\r\n").unwrap();
    // Something comes all the time, but the whole would not come in this.
    let mut reader = stream.try_clone().unwrap();
    let answered = std::thread::spawn(move || {
        let mut answer = [0; 12];
        reader.read_exact(&mut answer).map(|()| answer.to_vec())
    });
    while !answered.is_finished() {
        if stream.write_all(b"\n").is_err() {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(answered.join().unwrap().unwrap(), b"HTTP/1.1 408");
}

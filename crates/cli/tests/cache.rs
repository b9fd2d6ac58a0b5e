//! `thalweg cache` as a program, with clients over real sockets.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, text};

struct Running {
    child: Child,
    address: String,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(file: &Path) -> Running {
    start_in(Path::new("."), file)
}

/// Starts the program in a folder.
fn start_in(folder: &Path, file: &Path) -> Running {
    let mut child = Command::new(PROGRAM)
        .current_dir(folder)
        .args(["cache", "--listen", "127.0.0.1:0", "--size", "32MiB", "--partial-min", "0", "--file"])
        .arg(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Running { child, address }
}

/// Sends commands and reads so many bytes of replies.
fn ask(running: &Running, request: &str, expected: &str) {
    let mut stream = TcpStream::connect(&running.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(text(&reply), expected);
}

#[test]
fn answers_survive_a_stop_and_nothing_wrong_survives_a_kill() {
    let folder = Folder::new("cache-program");
    let file = folder.0.join("flash");
    let body = r#"{"series":[{"name":"","columns":["time","load"],"values":[[0,1.5],[10,2.5]]}]}"#;
    let whole = r#"{"start":0,"end":20,"series":[{"name":"","columns":["time","load"],"values":[[0,1.5],[10,2.5]]}]}"#;
    let hit = format!("HIT 0 20 {}\r\n{whole}\r\n", whole.len());
    let mut running = start(&file);
    ask(&running, &format!("tset q 0 20 {}\r\n{body}\r\n", body.len()), "STORED\r\n");
    ask(&running, "tget q 0 20\r\n", &hit);
    ask(&running, "set a 1 0 3\r\nabc\r\nget a\r\n", "STORED\r\nVALUE a 1 3\r\nabc\r\nEND\r\n");
    let stopped = Command::new("kill").arg(running.child.id().to_string()).status().unwrap();
    assert!(stopped.success() && running.child.wait().unwrap().success());
    let mut running = start(&file);
    ask(&running, "tget q 0 20\r\nget a\r\n", &format!("{hit}END\r\n"));
    ask(&running, "tdelete q 0 20\r\n", "DELETED\r\n");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let running = start(&file);
    ask(&running, "tget q 0 20\r\n", "MISS\r\n");
}

#[test]
fn a_file_without_a_folder_lies_in_the_current_one() {
    let folder = Folder::new("cache-bare");
    let body = r#"{"start":0,"end":20,"series":[{"name":"","columns":["time","load"],"values":[[0,1.5],[10,2.5]]}]}"#;
    let mut running = start_in(&folder.0, Path::new("flash"));
    ask(&running, &format!("tset q 0 20 {}\r\n{body}\r\n", body.len()), "STORED\r\n");
    let stopped = Command::new("kill").arg(running.child.id().to_string()).status().unwrap();
    assert!(stopped.success() && running.child.wait().unwrap().success());
    assert!(folder.0.join("flash").is_file());
    let running = start_in(&folder.0, Path::new("flash"));
    ask(&running, "tget q 0 20\r\n", &format!("HIT 0 20 {}\r\n{body}\r\n", body.len()));
}

/// Runs the program to its end, which must be an error.
fn refused(arguments: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(["cache", "--size", "32MiB"]).args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    text(&output.stderr)
}

#[test]
fn only_one_process_uses_a_file_and_only_one_of_its_own() {
    let folder = Folder::new("cache-lock");
    let file = folder.0.join("flash");
    let path = file.to_str().unwrap();
    let running = start(&file);
    let before = std::fs::read(&file).unwrap();
    let said = refused(&["--listen", "127.0.0.1:0", "--file", path, "--slab", "64KiB"]);
    assert!(said.contains("another process uses this file"), "{said}");
    let other = folder.0.join("other");
    let said = refused(&["--listen", &running.address, "--file", other.to_str().unwrap()]);
    assert!(said.contains("cannot listen on") && !other.exists(), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), before);

    let notes = folder.file("notes.txt", b"my notes");
    let said = refused(&["--listen", "127.0.0.1:0", "--file", notes.to_str().unwrap()]);
    assert!(said.contains("not a file of thalweg cache"), "{said}");
    assert_eq!(std::fs::read(&notes).unwrap(), b"my notes");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    let folder = Folder::new("cache-settings");
    let file = folder.0.join("flash");
    for (flags, reason) in [
        (["--slab", "0"], "slabs of 16 KiB"),
        (["--connections-max", "0"], "use 1 or more"),
        (["--memory", "1000TiB"], "the machine has"),
        (["--body-max", "1000TiB"], "the machine has"),
    ] {
        let said = refused(&[&flags[..], &["--listen", "127.0.0.1:0", "--file", file.to_str().unwrap()]].concat());
        assert!(said.contains(reason), "{flags:?} {said}");
    }
}

const PYTHON: &str = r#"
import sys
import thalweg.cache

calls = []

def fetch(start, end):
    calls.append((start, end))
    return [{"name": "", "columns": ["time", "load"], "values": [[t, t / 2] for t in range(start, end)]}]

with thalweg.cache.Cache(port=int(sys.argv[1])) as cache:
    for start, end in [(0, 10), (0, 10), (5, 20), (-5, 20), (0, 15)]:
        series = cache.query("q", start, end, fetch)
        assert [row[0] for row in series[0]["values"]] == list(range(start, end)), (start, end, series)
    assert calls == [(0, 10), (10, 20), (-5, 0)], calls
    for start, end in [(120, 130), (140, 199), (150, 201)]:
        series = cache.query_with_margin("q", start, end, step=100, until=250, fetch=fetch)
        assert [row[0] for row in series[0]["values"]] == list(range(start, end)), (start, end, series)
    assert calls[3:] == [(100, 200), (200, 250)], calls
    for start, end in [(1000, 1010), (995, 1015), (1012, 1022)]:
        series = cache.query_with_margin("q", start, end, share=0.5, until=1020, fetch=fetch)
        assert [row[0] for row in series[0]["values"]] == list(range(start, end)), (start, end, series)
    assert calls[5:] == [(995, 1015), (1015, 1022)], calls
    assert cache.delete("q", 0, 5) and not cache.delete("q", 0, 5)

import decimal
import time

def answer(value, times=lambda t: t, **more):
    return lambda start, end: [{"name": "", "columns": ["time", "v"], "values": [[times(t), value] for t in range(start, end)], **more}]

with thalweg.cache.Cache(port=int(sys.argv[1])) as cache, thalweg.cache.Cache(port=int(sys.argv[1])) as other:
    odd = [answer(float("inf")), answer(decimal.Decimal(1)), answer(1, times=str), answer(1, tags={"host": "a"})]
    for number, fetch_odd in enumerate(odd):
        begun = time.monotonic()
        for one in (cache, other):
            assert one.query_with_margin(f"odd{number}", 3, 9, share=0.5, until=20, fetch=fetch_odd) == fetch_odd(3, 9)
        assert time.monotonic() - begun < 5, "the second waited for what is not kept"

    def fails(start, end):
        raise RuntimeError("no database")

    begun = time.monotonic()
    try:
        cache.query("failed", 0, 5, fails)
        raise SystemExit("the failure was lost")
    except RuntimeError:
        pass
    assert other.query("failed", 0, 5, answer(1))[0]["values"][4] == [4, 1]
    assert time.monotonic() - begun < 5, "the second waited for a fetch that had failed"
assert thalweg.cache.Cache(port=1).query("q", 0, 3, fetch)[0]["values"][2] == [2, 1.0]

try:
    import pyarrow
except ImportError:
    print("without pyarrow")
else:
    import urllib.request

    series = [
        {"name": "host=a", "columns": ["time", "load", "note"], "values": [[0, 1.5, "x"], [10, -0.0, None]]},
        {"name": "host=b", "columns": ["time", "load", "up"], "values": [[0, 2, True], [5, 2**60, False]]},
    ]
    with thalweg.cache.Cache(port=int(sys.argv[1])) as cache:
        cache.set("arrow", 0, 20, series)
    url = f"http://127.0.0.1:{sys.argv[1]}/v1/answers?statement=arrow&start=0&end=20"
    request = urllib.request.Request(url, headers={"Accept": "application/vnd.apache.arrow.stream"})
    table = pyarrow.ipc.open_stream(urllib.request.urlopen(request).read()).read_all()
    table.validate(full=True)
    assert table.schema.metadata == {b"start": b"0", b"end": b"20"}, table.schema.metadata
    types = [(field.name, str(field.type)) for field in table.schema]
    assert sorted(types[2:]) == [("load", "double"), ("load", "int64"), ("note", "string"), ("up", "bool")], types
    columns = {kind: column.to_pylist() for kind, column in zip(types, table.columns)}
    names = "dictionary<values=string, indices=int32, ordered=0>"
    assert types[:2] == [("time", "int64"), ("series", names)], types
    rows = list(zip(columns[types[0]], columns[types[1]]))
    assert sorted(rows) == [(0, "host=a"), (0, "host=b"), (5, "host=b"), (10, "host=a")], rows
    assert [row[0] for row in rows] == [0, 0, 5, 10], rows
    cell = lambda name, kind, row: columns[(name, kind)][rows.index(row)]
    assert cell("load", "double", (0, "host=a")) == 1.5 and cell("load", "double", (0, "host=b")) == 2.0
    assert str(cell("load", "double", (10, "host=a"))) == "-0.0" and cell("load", "int64", (5, "host=b")) == 2**60
    assert cell("note", "string", (0, "host=a")) == "x" and cell("note", "string", (10, "host=a")) is None
    assert cell("up", "bool", (5, "host=b")) is False and cell("load", "double", (5, "host=b")) is None

try:
    from pymemcache.client.base import Client
except ImportError:
    print("without pymemcache")
    sys.exit()
client = Client(("127.0.0.1", int(sys.argv[1])))
assert client.set("k", "v", expire=100) and client.get("k") == b"v"
value, version = client.gets("k")
assert client.cas("k", "x", version, noreply=False) and client.get_many(["k", "none"]) == {"k": b"x"}
client.set("n", "5")
assert client.incr("n", 3) == 8 and client.decr("n", 2) == 6 and client.touch("n", 10, noreply=False)
assert client.delete("n", noreply=False) and client.get("n") is None
assert b"slabs" in client.stats() and client.version()
assert client.flush_all(noreply=False) and client.get("k") is None
"#;

#[test]
fn clients_of_python_and_memcached() {
    if !Command::new("python3").args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 with numpy is missing");
        return;
    }
    let folder = Folder::new("cache-python");
    let running = start(&folder.0.join("flash"));
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let port = running.address.rsplit(':').next().unwrap();
    let done = Command::new("python3").args(["-c", PYTHON, port]).env("PYTHONPATH", bindings).output().unwrap();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
}

/// Starts the program with a few more flags.
fn start_with(file: &Path, flags: &[&str]) -> Running {
    let mut child = Command::new(PROGRAM)
        .args(["cache", "--listen", "127.0.0.1:0", "--size", "32MiB", "--file"])
        .arg(file)
        .args(flags)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let address = line.rsplit(' ').next().unwrap().to_owned();
    Running { child, address }
}

fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(&running.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    stream
}

/// Sends something and reads up to the end of the connection.
fn until_closed(mut stream: &TcpStream, sent: &str) -> String {
    let _ = stream.write_all(sent.as_bytes());
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    text(&said)
}

#[test]
fn silent_connections_make_room_and_busy_ones_do_not() {
    let folder = Folder::new("cache-connections");
    let running = start_with(&folder.0.join("flash"), &["--connections-max", "2"]);
    // Served, and silent since.
    let silent: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = connect(&running);
            stream.write_all(b"get a\r\n").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
            stream
        })
        .collect();
    let started = std::time::Instant::now();
    // In the middle of a request, each in place of one that was silent. A reply is there a moment before its connection is silent.
    let mut busy = Vec::new();
    while busy.len() < 2 {
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "no silent connection makes room");
        let (mut stream, mut reply) = (connect(&running), [0; 5]);
        stream.write_all(b"get a\r\nset a 0 0 3\r\na").unwrap();
        if stream.read_exact(&mut reply).is_ok() && &reply == b"END\r\n" {
            busy.push(stream);
        }
    }
    for stream in &silent {
        assert_eq!((&*stream).read(&mut [0; 5]).unwrap(), 0, "the silent ones were closed");
    }
    for (sent, expected) in
        [("get a\r\n", "SERVER_ERROR "), ("GET /health HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 503 ")]
    {
        let said = until_closed(&connect(&running), sent);
        assert!(said.starts_with(expected) && said.contains("connections_max"), "{said}");
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(10), "they are told at once");
    drop(busy);
    while !until_closed(&connect(&running), "version\r\nquit\r\n").starts_with("VERSION") {
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "the places are still taken");
    }
}

#[test]
fn slow_requests_unread_replies_and_impossible_lengths_end() {
    let folder = Folder::new("cache-slow");
    let flags =
        ["--request-timeout-ms", "300", "--write-timeout-ms", "300", "--bodies-max", "8MiB", "--items", "64MiB"];
    let running = start_with(&folder.0.join("flash"), &flags);
    let started = std::time::Instant::now();
    // A byte now and then does not help: the request has its time.
    let mut slow = connect(&running);
    slow.write_all(b"set a 0 0 100\r\n").unwrap();
    while slow.write_all(b"x").is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "a slow request is waited for");
    }
    // One that is silent between requests is not held to that.
    let mut silent = connect(&running);
    std::thread::sleep(std::time::Duration::from_millis(500));
    silent.write_all(b"get a\r\n").unwrap();
    silent.read_exact(&mut [0; 5]).unwrap();
    for (sent, expected) in [
        ("set a 0 0 99999999999\r\n", "SERVER_ERROR object too large"),
        ("PUT /v1/answers?key=a HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "HTTP/1.1 413 "),
        ("PUT /v1/answers?key=a HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.1 411 "),
        ("PUT /v1/answers?key=a HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n", ""),
    ] {
        let said = until_closed(&connect(&running), sent);
        assert!(said.starts_with(expected) && !said.contains(" 200 "), "{sent} {said}");
    }
    // A body that would take more than all of them may.
    let body = format!("set big 0 0 {}\r\n{}\r\n", 12 << 20, "x".repeat(12 << 20));
    let said = until_closed(&connect(&running), &body);
    assert!(said.is_empty() || said.contains("bodies_bytes_max"), "{said}");
    // A client that reads nothing of a long reply is closed; it gets only what its socket holds.
    let mut unread = connect(&running);
    unread.write_all(format!("set a 0 0 1000000\r\n{}\r\n", "x".repeat(1_000_000)).as_bytes()).unwrap();
    unread.read_exact(&mut [0; 8]).unwrap();
    unread.write_all("get a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a a\r\n".as_bytes()).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(until_closed(&unread, "").len() < 32_000_000, "the reply was cut");
    assert!(until_closed(&connect(&running), "version\r\nquit\r\n").starts_with("VERSION"));
}

#[test]
fn lines_have_the_form_that_the_server_writes() {
    let folder = Folder::new("cache-lines");
    let mut child = Command::new(PROGRAM)
        .args(["cache", "--listen", "127.0.0.1:0", "--size", "32MiB", "--log-format", "json", "--file"])
        .arg(folder.0.join("flash"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(stdout.next().unwrap().unwrap().starts_with("Thalweg's cache is ready: "));
    let stopped = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(stopped.success() && child.wait().unwrap().success());
    let lines: Vec<String> = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap).collect();
    let of_lines: Vec<serde_json::Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(of_lines[0]["message"].as_str().unwrap().contains(" has 0 keys in 0 of "), "{lines:?}");
    assert_eq!(of_lines.last().unwrap()["message"], "stopped");
    assert!(of_lines.iter().all(|line| line["level"] == "info" && line["time"].is_string()), "{lines:?}");
    let wrong = Command::new(PROGRAM).args(["cache", "--log-level", "loud"]).output().unwrap();
    assert!(text(&wrong.stderr).contains("none of error, warn, info, debug"), "{}", text(&wrong.stderr));
}

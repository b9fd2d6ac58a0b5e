//! Redis's own clients against the real program: redis-cli, redis-py with its own tests, node-redis.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::print_stderr, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, text};

struct Server {
    child: Child,
    port: String,
    http: String,
    _folder: Folder,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(name: &str) -> Server {
    let folder = Folder::new(name);
    let mut child = Command::new(PROGRAM)
        .args(["serve", "--http", "127.0.0.1:0", "--no-host-metrics", "--line", "off", "--graphite", "off"])
        .args(["--opentsdb", "off", "--otlp-grpc", "off", "--control", "off", "--ingest", "off", "--postgres", "off"])
        .args(["--redis", "127.0.0.1:0", "--data"])
        .arg(folder.0.join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let [http, port] =
        [last_word(), last_word()].map(|address| address.trim_end_matches('/').rsplit(':').next().unwrap().to_owned());
    Server { child, port, http, _folder: folder }
}

/// Returns whether a test runs: its program is there. Where all are required it has to be.
fn is_there(what: &str, found: bool) -> bool {
    if !found {
        assert!(std::env::var_os("THALWEG_REDIS_TEST").is_none(), "{what} is missing, which is required here");
        eprintln!("skipped: {what} is missing");
    }
    found
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn redis_cli_asks() {
    if !is_there("redis-cli", runs("redis-cli", &["--version"])) {
        return;
    }
    let server = start("redis-cli");
    let ask = |words: &[&str]| {
        let output = Command::new("redis-cli").args(["-p", &server.port]).args(words).output().unwrap();
        text(&output.stdout).trim_end().to_owned()
    };
    assert_eq!(ask(&["PING"]), "PONG");
    assert_eq!(ask(&["TS.CREATE", "temp:1", "LABELS", "room", "a b"]), "OK");
    assert_eq!(ask(&["TS.ADD", "temp:1", "1000", "21.5"]), "1000");
    assert_eq!(ask(&["-3", "TS.GET", "temp:1"]), "1000\n21.5");
    assert_eq!(ask(&["TS.QUERYINDEX", "room=a b"]), "temp:1");
    assert_eq!(ask(&["TS.ADD", "temp:1", "x", "1"]), "TSDB: invalid timestamp");
    assert_eq!(ask(&["--scan", "--pattern", "temp:*"]), "temp:1");
    assert!(ask(&["INFO"]).contains("redis_version:"));
}

#[test]
fn the_guides_commands_answer_as_it_says() {
    if !is_there("redis-cli", runs("redis-cli", &["--version"])) {
        return;
    }
    let guide = include_str!("../../../docs/guide/redis.md");
    let block = guide.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let server = start("redis-guide");
    let mut lines = block.lines().peekable();
    let mut commands = 0;
    while let Some(command) = lines.next() {
        let expected = lines.next().unwrap().strip_prefix("# ").unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        let output = Command::new("redis-cli").args(["-p", &server.port]).args(words).output().unwrap();
        let shown = text(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(shown, expected, "{command}");
        commands += 1;
    }
    assert!(commands > 10);
}

/// Where `.ci/run` unpacked redis-py with its tests.
fn redis_py() -> Option<PathBuf> {
    std::env::var_os("REDIS_PY").map(PathBuf::from).filter(|place| place.join("tests/test_timeseries.py").exists())
}

#[test]
fn redis_pys_own_tests_of_time_series_pass() {
    let python = std::env::var("REDIS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let found = redis_py().filter(|_| runs(&python, &["-c", "import pytest, pytest_asyncio"]));
    if !is_there("redis-py's source (REDIS_PY), or pytest", found.is_some()) {
        return;
    }
    let (place, server) = (found.unwrap(), start("redis-py"));
    let url = format!("redis://127.0.0.1:{}/0", server.port);
    for protocol in ["2", "3"] {
        let output = Command::new(&python)
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_timeseries.py", "--protocol", protocol])
            .args(["--redis-url", &url, "--redis-mod-url", &url])
            .current_dir(&place)
            .env("PYTHONPATH", &place)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{printed}{}", text(&output.stderr));
        assert!(printed.contains(" passed") && !printed.contains(" failed"), "{printed}");
    }
}

#[test]
fn clients_wait_for_samples_without_threads() {
    let python = std::env::var("REDIS_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    if !is_there("redis-py's source (REDIS_PY)", redis_py().is_some()) {
        return;
    }
    let mut server = start("redis-wait");
    let mut client = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/redis_wait.py"))
        .args([&server.port, &server.http, &server.child.id().to_string()])
        .env("PYTHONPATH", redis_py().unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A client waits when the server is told to end: that ends both.
    let line = BufReader::new(client.stdout.take().unwrap()).lines().next();
    assert_eq!(line.map(Result::unwrap).as_deref(), Some("waiting"));
    assert!(runs("kill", &["-TERM", &server.child.id().to_string()]));
    assert!(server.child.wait().unwrap().success());
    assert!(client.wait().unwrap().success());
}

#[test]
fn node_redis_writes_and_reads() {
    let modules = std::env::var("REDIS_NODE_PATH").unwrap_or_default();
    let found = Command::new("node").args(["-e", "require('redis')"]).env("NODE_PATH", &modules).output();
    if !is_there("node with the package redis", found.is_ok_and(|output| output.status.success())) {
        return;
    }
    let server = start("node-redis");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/redis.js");
    let output = Command::new("node").arg(script).arg(&server.port).env("NODE_PATH", &modules).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

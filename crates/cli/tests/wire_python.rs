//! The Python client against the real program.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, text};

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_python_client_writes_what_queries_find() {
    let has_numpy = Command::new("python3").args(["-c", "import numpy"]).output();
    if !has_numpy.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 with numpy is missing");
        return;
    }
    let folder = Folder::new("wire-python");
    let local = "127.0.0.1:0";
    let child = Command::new(PROGRAM)
        .args(["serve", "--no-host-metrics", "--http", local, "--control", local, "--ingest", local, "--data"])
        .arg(folder.0.join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut server = Ended(child);
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (url, control, ingest) = (last_word(), last_word(), last_word());
    let port = |address: &str| address.rsplit(':').next().unwrap().to_owned();
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let output = Command::new("python3")
        .arg(python.join("tests/roundtrip.py"))
        .args([port(&control), port(&ingest)])
        .env("PYTHONPATH", &python)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let ask = |query: &str| {
        let answer = support::agent().get(format!("{url}api/v1/query?time=300&query={query}")).call();
        answer.unwrap().body_mut().read_to_string().unwrap()
    };
    for (query, expected) in [
        ("count(cpu_usage)", "\"99\""),
        ("sum(cpu_usage)", "\"4996.5\""),
        ("sum(cpu_delta)", "\"-4950\""),
        ("count(cpu_cores)", "\"100\""),
        ("sum(cpu_up)", "\"50\""),
        ("sum_over_time(level[10m])", "\"15\""),
    ] {
        let answer = ask(query);
        assert!(answer.contains(expected), "{query}: {answer}");
    }
}

//! Clients of Postgres that people have, against the real program: psql, and psycopg and `SQLAlchemy` in Python.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{Folder, PROGRAM, text};

struct Server {
    child: Child,
    port: String,
    _folder: Folder,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server whose table `cpu` has three rows.
fn start(name: &str) -> Server {
    let folder = Folder::new(name);
    let local = "127.0.0.1:0";
    let mut child = Command::new(PROGRAM)
        .args([
            "serve",
            "--no-host-metrics",
            "--http",
            local,
            "--line",
            "off",
            "--graphite",
            "off",
            "--opentsdb",
            "off",
        ])
        .args(["--otlp-grpc", "off", "--control", "off", "--ingest", "off", "--postgres", local, "--data"])
        .arg(folder.0.join("data"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last_word = || lines.next().unwrap().unwrap().rsplit(' ').next().unwrap().to_owned();
    let (url, postgres) = (last_word(), last_word());
    let port = postgres.rsplit(':').next().unwrap().to_owned();
    let rows = "cpu,hostname=a usage=1.5 1451606400000000000\ncpu,hostname=b usage=2.5 1451606400000000000\ncpu,hostname=c usage=3.5 1451606400000000000";
    support::agent().post(format!("{url}write")).send(rows).unwrap();
    Server { child, port, _folder: folder }
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

#[test]
fn psql_asks_and_lists() {
    if !runs("psql", &["--version"]) {
        eprintln!("skipped: psql is missing");
        return;
    }
    let server = start("psql");
    let cases = [
        ("SELECT hostname, usage FROM cpu ORDER BY hostname", "a|1.5\nb|2.5\nc|3.5\n"),
        ("SELECT count(*) FROM cpu; SELECT max(time) FROM cpu", "3\n2016-01-01 00:00:00+00\n"),
        ("\\dt", "public|cpu|table|tester\n"),
        ("\\dn", "public|tester\n"),
        ("\\du", "thalweg|Superuser, Create role, Create DB, Replication, Bypass RLS|{}\n"),
        ("\\d cpu", "time|timestamp with time zone||not null|\nhostname|text|||\nusage|double precision|||\n"),
        (
            "\\copy (SELECT hostname, usage FROM cpu ORDER BY hostname) TO STDOUT CSV HEADER",
            "hostname,usage\na,1.5\nb,2.5\nc,3.5\n",
        ),
        ("COPY (SELECT hostname, usage FROM cpu WHERE usage > 3) TO STDOUT", "c\t3.5\n"),
    ];
    for (statement, expected) in cases {
        let output = Command::new("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-h",
                "127.0.0.1",
                "-p",
                &server.port,
                "-U",
                "tester",
                "-d",
                "default",
                "-c",
                statement,
            ])
            .output()
            .unwrap();
        assert_eq!(text(&output.stdout), expected, "{statement}: {}", text(&output.stderr));
    }
}

#[test]
fn python_clients_ask_and_write() {
    if !runs("python3", &["-c", "import duckdb, psycopg, sqlalchemy"]) {
        eprintln!("skipped: python3 with duckdb, psycopg and sqlalchemy is missing");
        return;
    }
    let server = start("postgres-python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/postgres.py");
    let output =
        Command::new("python3").arg(script).arg(&server.port).env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

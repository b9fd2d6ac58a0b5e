//! Clients of Postgres that people have, against the real program: psql, those of Python, Java and Node.js.
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
        ("\\d", "public|cpu|table|tester\n"),
        ("\\dT", ""),
        ("\\dm", ""),
        ("\\l", "default|tester|UTF8|C.UTF-8|C.UTF-8||libc|\n"),
        (
            "\\d+ cpu",
            "time|timestamp with time zone||not null||plain|||\nhostname|text||||plain|||\nusage|double precision||||plain|||\n",
        ),
        ("\\sf now", ""),
        ("SELECT count(*) FROM pg_indexes", "0\n"),
        ("SELECT datname FROM pg_stat_activity", "default\n"),
        ("BEGIN; DELETE FROM cpu; ROLLBACK; SELECT count(*) FROM cpu", "BEGIN\nDELETE 3\nROLLBACK\n3\n"),
        ("\\d cpu", "time|timestamp with time zone||not null|\nhostname|text|||\nusage|double precision|||\n"),
        (
            "\\copy (SELECT hostname, usage FROM cpu ORDER BY hostname) TO STDOUT CSV HEADER",
            "hostname,usage\na,1.5\nb,2.5\nc,3.5\n",
        ),
        ("COPY (SELECT hostname, usage FROM cpu WHERE usage > 3) TO STDOUT", "c\t3.5\n"),
        (
            "CREATE MATERIALIZED VIEW m AS SELECT time_bucket('1 hour', time) AS bucket, count(*) AS n FROM cpu GROUP BY 1",
            "CREATE MATERIALIZED VIEW\n",
        ),
        ("\\dm", "public|m|materialized view|tester\n"),
        ("\\dt", "public|cpu|table|tester\n"),
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

/// Runs a file of `tests/clients` with the port of a server, by a program that takes the file after these arguments.
fn run_flows(program: &str, arguments: &[&str], file: &str) {
    let server = start(file);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file);
    let mut command = Command::new(program);
    command.args(arguments).arg(file).arg(&server.port).env("PYTHONDONTWRITEBYTECODE", "1");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Returns whether Python has these packages; in CI it must.
fn has_python(packages: &str) -> bool {
    let is_there = runs("python3", &["-c", &format!("import {packages}")]);
    let is_required = std::env::var_os("THALWEG_PYTHON_TEST").is_some_and(|value| value == "required");
    assert!(is_there || !is_required, "python3 with {packages} is missing");
    is_there
}

#[test]
fn python_clients_ask_and_write() {
    if has_python("duckdb, psycopg, sqlalchemy") {
        run_flows("python3", &[], "postgres.py");
    } else {
        eprintln!("skipped: python3 with duckdb, psycopg and sqlalchemy is missing");
    }
}

#[test]
fn python_clients_run_their_usual_flows() {
    if has_python("asyncpg, greenlet, pandas, psycopg, psycopg2, sqlalchemy") {
        run_flows("python3", &[], "postgres_flows.py");
    } else {
        eprintln!("skipped: python3 with asyncpg, greenlet, pandas, psycopg, psycopg2 and sqlalchemy is missing");
    }
}

/// With pgjdbc's archive at `PGJDBC`.
#[test]
fn the_java_driver_runs_its_usual_flows() {
    match std::env::var("PGJDBC") {
        Ok(archive) if runs("java", &["--version"]) => run_flows("java", &["-cp", &archive], "PostgresFlows.java"),
        _ => eprintln!("skipped: java, or PGJDBC with the path of the driver, is missing"),
    }
}

/// With node-pg where `NODE_PATH` says.
#[test]
fn the_node_driver_runs_its_usual_flows() {
    if runs("node", &["-e", "require('pg')"]) {
        run_flows("node", &[], "postgres_flows.js");
    } else {
        eprintln!("skipped: node with pg is missing");
    }
}

/// Where Go and its modules can be had.
#[test]
fn the_go_driver_runs_its_usual_flows() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/pgx");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pgx-flows");
    let built = Command::new("go").args(["build", "-o"]).arg(&program).arg(".").current_dir(source).output();
    if !built.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: go, or its module pgx, is missing");
        return;
    }
    let server = start("pgx");
    let output = Command::new(program).arg(&server.port).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

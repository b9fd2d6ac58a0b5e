//! `thalweg cache` in front of servers that speak Postgres's protocol, by its clients: Thalweg itself, and `PostgreSQL` where it is installed.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cache::{Answer, FieldPoints, Points, Values};
use client::answers::AnswerCache;
use support::{Folder, PROGRAM, text};

/// A program that says on its last line of so many where it listens.
struct Running {
    child: Child,
    address: String,
    _folder: Folder,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(name: &str, flags: &[&str], folder_flag: &str, lines: usize) -> Self {
        let folder = Folder::new(name);
        let data = folder.0.join("data");
        let mut command = Command::new(PROGRAM);
        let child = command.args(flags).arg(folder_flag).arg(data).stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().take(lines).last().unwrap().unwrap();
        let address = said.rsplit(' ').next().unwrap().to_owned();
        Self { child, address, _folder: folder }
    }

    fn cache(name: &str) -> Self {
        Self::start(name, &["cache", "--listen", "127.0.0.1:0", "--size", "32MiB"], "--file", 1)
    }

    /// Thalweg with Postgres's protocol.
    fn thalweg(name: &str) -> Self {
        let (local, off) = ("127.0.0.1:0", "off");
        let listeners = ["--line", off, "--graphite", off, "--opentsdb", off, "--otlp-grpc", off, "--control", off];
        let mut flags = vec!["serve", "--no-host-metrics", "--http", local, "--ingest", off, "--postgres", local];
        flags.extend(listeners);
        Self::start(name, &flags, "--data", 2)
    }

    fn port(&self) -> &str {
        self.address.rsplit(':').next().unwrap()
    }
}

/// A server of `PostgreSQL` with a folder and a socket of its own.
struct Postgres {
    programs: PathBuf,
    folder: Folder,
    is_root: bool,
}

impl Postgres {
    /// `None` where it is not installed.
    fn start(name: &str) -> Option<Self> {
        let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?.filter_map(Result::ok);
        let programs = versions.map(|version| version.path().join("bin")).find(|path| path.join("initdb").is_file())?;
        let id = Command::new("id").arg("-u").output().ok()?;
        let (is_root, folder) = (text(&id.stdout).trim() == "0", Folder::new(name));
        if is_root {
            // It refuses to run as root.
            assert!(Command::new("chown").arg("postgres").arg(&folder.0).status().unwrap().success());
        }
        let server = Self { programs, folder, is_root };
        let data = server.data();
        server.run("initdb", &["-A", "trust", "-U", "tester", "-E", "UTF8", "--no-sync", "-D", &data]);
        let options = format!("-F -h '' -k {}", server.folder.0.display());
        let log = server.folder.0.join("log").display().to_string();
        server.run("pg_ctl", &["-w", "-D", &data, "-l", &log, "-o", &options, "start"]);
        Some(server)
    }

    fn data(&self) -> String {
        self.folder.0.join("postgres").display().to_string()
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let program = self.programs.join(program);
        let mut command = if self.is_root { Command::new("runuser") } else { Command::new(&program) };
        if self.is_root {
            command.args(["-u", "postgres", "--"]).arg(&program);
        }
        // What goes on running must not hold the test's own output open.
        let done = command.args(arguments).current_dir(&self.folder.0).stdout(Stdio::null()).status().unwrap();
        assert!(done.success(), "{} {arguments:?}", program.display());
    }

    fn connection(&self) -> String {
        format!("host={} user=tester dbname=postgres", self.folder.0.display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.data();
        if Path::new(&data).join("postmaster.pid").is_file() {
            self.run("pg_ctl", &["-D", &data, "-m", "immediate", "stop"]);
        }
    }
}

fn has_psycopg() -> bool {
    let found = Command::new("python3").args(["-c", "import numpy, psycopg"]).output();
    found.is_ok_and(|output| output.status.success())
}

fn by_python(cache: &Running, connection: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/cached_postgres.py");
    let bindings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python");
    let mut command = Command::new("python3");
    command.arg(script).args([cache.port(), connection]).env("PYTHONPATH", bindings);
    let done = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
}

#[test]
fn python_in_front_of_thalweg() {
    if !has_psycopg() {
        eprintln!("skipped: python3 with numpy and psycopg is missing");
        return;
    }
    let (cache, server) = (Running::cache("cached-wire-cache"), Running::thalweg("cached-wire"));
    by_python(&cache, &format!("host=127.0.0.1 port={} user=tester dbname=default", server.port()));
}

#[test]
fn python_in_front_of_postgresql() {
    let Some(server) = has_psycopg().then(|| Postgres::start("cached-pg")).flatten() else {
        eprintln!("skipped: PostgreSQL, or python3 with numpy and psycopg, is missing");
        return;
    };
    by_python(&Running::cache("cached-pg-cache"), &server.connection());
}

/// What psql prints of a statement, a row a line, with `|` between the columns.
fn psql(connection: &str, statement: &str) -> Result<String, String> {
    let output = Command::new("psql").args(["-X", "-q", "-A", "-t", "-c", statement, connection]).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn fetch(connection: &str, (start, end): (i64, i64)) -> Result<Answer, String> {
    let statement = format!(
        "SELECT extract(epoch FROM time)::bigint, level FROM load \
         WHERE time >= to_timestamp({start}) AND time < to_timestamp({end}) ORDER BY time"
    );
    let mut points = Points { timestamps: Vec::new(), series: Vec::new(), values: Values::F64(Vec::new()) };
    for line in psql(connection, &statement)?.lines() {
        let (time, level) = line.split_once('|').ok_or(line)?;
        points.timestamps.push(time.parse().map_err(|_| time)?);
        points.series.push(0);
        if let Values::F64(levels) = &mut points.values {
            levels.push(level.parse().map_err(|_| level)?);
        }
    }
    Ok(Answer { series: vec!["".into()], fields: vec![FieldPoints { name: "level".into(), points }] })
}

#[test]
fn rust_in_front_of_postgresql() {
    let Some(server) = Postgres::start("cached-pg-rust") else {
        eprintln!("skipped: PostgreSQL is missing");
        return;
    };
    let (running, connection) = (Running::cache("cached-pg-rust-cache"), server.connection());
    psql(&connection, "CREATE TABLE load (time timestamptz, level double precision)").unwrap();
    let rows = "INSERT INTO load SELECT to_timestamp(1000 + 10 * n), sqrt(n) FROM generate_series(0, 99) AS n";
    psql(&connection, rows).unwrap();
    let mut cache = AnswerCache::new(running.address.parse().unwrap(), Duration::from_secs(30));
    let mut fetched = Vec::new();
    for (start, end, expected) in [
        (1200, 1500, Some((1200, 1500))),
        (1200, 1500, None),
        (1300, 1400, None),
        (1300, 1700, Some((1500, 1700))),
        (1000, 1700, Some((1000, 1200))),
    ] {
        fetched.clear();
        let answer = cache.query("levels", start, end, |start, end| {
            fetched.push((start, end));
            fetch(&connection, (start, end))
        });
        let (found, own) = (answer.unwrap(), fetch(&connection, (start, end)).unwrap());
        assert_eq!(found.fields, own.fields, "{start} {end}");
        assert_eq!(fetched, expected.into_iter().collect::<Vec<_>>(), "{start} {end}");
    }
    // Errors are the database's own.
    assert!(
        cache.query("levels", 0, 9, |_, _| psql(&connection, "SELECT nothing").map(|_| Answer::default())).is_err()
    );
}

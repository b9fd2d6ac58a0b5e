//! Other programs with the same work: each writes all series at each epoch, then one series is read.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use model::TimeRange;
use serde::Serialize;
use store::{EpochBatch, EpochColumn, EpochNames, EpochRows, NamesRead, RegularDefinition};

use super::data::{self, Counters};
use super::{DATABASE, EpochFlags, START_NS, Shape, open};
use crate::measure::process::folder_bytes;

const NS_PER_S: i64 = 1_000_000_000;
/// Seconds from one epoch to the next.
const STEP_S: i64 = 300;

/// The measurements of a program.
#[derive(Debug, Serialize)]
pub(super) struct PeerReport {
    name: &'static str,
    series: u32,
    epochs: u32,
    write_us_per_value: f64,
    read_ms: f64,
    bytes_per_value: f64,
    /// Why there are no figures.
    missing: Option<String>,
}

impl PeerReport {
    pub(super) fn row(&self) -> [String; 7] {
        let missing = self.missing.clone().unwrap_or_default();
        let number = |value: f64, digits: usize| {
            if self.missing.is_some() { String::new() } else { format!("{value:.digits$}") }
        };
        [
            self.name.to_owned(),
            self.series.to_string(),
            self.epochs.to_string(),
            number(self.write_us_per_value, 3),
            number(self.read_ms, 2),
            number(self.bytes_per_value, 2),
            missing,
        ]
    }
}

/// Seconds of writing everything and of reading one series, and the bytes on disk.
struct Measured {
    write: Duration,
    read: Duration,
    bytes: u64,
}

/// The work of all programs.
struct Work<'a> {
    series: u32,
    epochs: u32,
    folder: &'a Path,
    python: Option<&'a Path>,
}

impl Work<'_> {
    fn report(&self, name: &'static str, measured: Result<Measured, String>) -> PeerReport {
        let values = f64::from(self.series) * f64::from(self.epochs);
        let (found, missing) = match measured {
            Ok(found) => (found, None),
            Err(why) => (Measured { write: Duration::ZERO, read: Duration::ZERO, bytes: 0 }, Some(why)),
        };
        PeerReport {
            name,
            series: self.series,
            epochs: self.epochs,
            write_us_per_value: found.write.as_secs_f64() * 1e6 / values,
            read_ms: found.read.as_secs_f64() * 1e3,
            bytes_per_value: found.bytes as f64 / values,
            missing,
        }
    }

    fn counters(&self) -> Counters {
        Counters::new(self.series, 1.0)
    }
}

pub(super) fn thalweg(series: u32, shape: &Shape, folder: &Path) -> Result<PeerReport, String> {
    let work = Work { series, epochs: shape.epochs, folder, python: None };
    let text = |error: store::StoreError| error.to_string();
    let store = open(folder)?;
    store.define_regular(DATABASE, &RegularDefinition::new(shape.interval_ns)).map_err(text)?;
    let names: EpochNames = data::names(series);
    let mut counters = work.counters();
    let mut write = Duration::ZERO;
    for epoch in 0..shape.epochs {
        let values = EpochColumn::Int(counters.next_epoch());
        let begun = Instant::now();
        let batch = EpochBatch { time_ns: shape.time_ns(epoch), names: &names, values: &values };
        store.write_epoch(DATABASE, &batch).map_err(text)?;
        write += begun.elapsed();
    }
    let begun = Instant::now();
    let number = store.name_number(DATABASE, &data::name(series / 2)).map_err(text)?.unwrap_or_default();
    let read = NamesRead { names: &[number], range: TimeRange::ALL, rows: EpochRows::All };
    store.read_names(DATABASE, &read).map_err(text)?;
    let read = begun.elapsed();
    Ok(work.report(shape.name, Ok(Measured { write, read, bytes: folder_bytes(&folder.join("epochs")) })))
}

/// The programs that are installed.
pub(super) fn all(flags: &EpochFlags, folder: &Path) -> Vec<PeerReport> {
    let python = flags.duckdb_python.as_deref();
    let work = Work { series: flags.peer_names, epochs: flags.peer_epochs, folder, python };
    vec![
        work.report("RRDtool", rrdtool(&work)),
        work.report("SQLite", sqlite(&work)),
        work.report("DuckDB", duckdb(&work)),
        work.report("Redis lists", redis(&work)),
    ]
}

fn time_s(epoch: u32) -> i64 {
    START_NS / NS_PER_S + i64::from(epoch) * STEP_S
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    spawned.map_err(|error| format!("{}: {error}", command.get_program().display()))
}

/// Has a program read a script to its end; the time that takes.
fn run_script(
    command: &mut Command,
    script: &mut dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()>,
) -> Result<Duration, String> {
    let begun = Instant::now();
    let mut child = spawn(command)?;
    if let Some(stdin) = child.stdin.take() {
        let mut stdin = std::io::BufWriter::with_capacity(1 << 20, stdin);
        script(&mut stdin).and_then(|()| stdin.flush()).map_err(|error| error.to_string())?;
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if status.success() {
        Ok(begun.elapsed())
    } else {
        Err(format!("{} ended with {status}", command.get_program().display()))
    }
}

fn rrdtool(work: &Work<'_>) -> Result<Measured, String> {
    let folder = work.folder.join("rrd");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let (start, rows) = (time_s(0) - STEP_S, work.epochs.max(10));
    run_script(Command::new("rrdtool").arg("-").current_dir(&folder), &mut |out| {
        (0..work.series).try_for_each(|series| {
            writeln!(
                out,
                "create {series}.rrd --start {start} --step {STEP_S} DS:v:GAUGE:600:0:U RRA:LAST:0.5:1:{rows}"
            )
        })
    })?;
    let mut counters = work.counters();
    let write = run_script(Command::new("rrdtool").arg("-").current_dir(&folder), &mut |out| {
        (0..work.epochs).try_for_each(|epoch| {
            let (time_s, values) = (time_s(epoch), counters.next_epoch());
            values
                .iter()
                .enumerate()
                .try_for_each(|(series, value)| writeln!(out, "update {series}.rrd {time_s}:{value}"))
        })
    })?;
    let read = run_script(Command::new("rrdtool").arg("-").current_dir(&folder), &mut |out| {
        writeln!(out, "fetch {}.rrd LAST --start {start} --end {}", work.series / 2, time_s(work.epochs))
    })?;
    Ok(Measured { write, read, bytes: folder_bytes(&folder) })
}

fn sqlite(work: &Work<'_>) -> Result<Measured, String> {
    let file = work.folder.join("peer.sqlite");
    run_script(Command::new("sqlite3").arg(&file), &mut |out| {
        out.write_all(
            b"CREATE TABLE t (time INTEGER, name INTEGER, value INTEGER, PRIMARY KEY (name, time)) WITHOUT ROWID;\n",
        )
    })?;
    let mut counters = work.counters();
    let write = run_script(Command::new("sqlite3").arg(&file), &mut |out| {
        for epoch in 0..work.epochs {
            out.write_all(b"BEGIN;\n")?;
            for (series, value) in counters.next_epoch().iter().enumerate() {
                writeln!(out, "INSERT INTO t VALUES ({},{series},{value});", time_s(epoch))?;
            }
            out.write_all(b"COMMIT;\n")?;
        }
        Ok(())
    })?;
    let query = format!("SELECT time, value FROM t WHERE name = {} ORDER BY time;\n", work.series / 2);
    let read = run_script(Command::new("sqlite3").arg(&file), &mut |out| out.write_all(query.as_bytes()))?;
    Ok(Measured { write, read, bytes: std::fs::metadata(&file).map_or(0, |file| file.len()) })
}

/// Loads each epoch from an array, in a transaction.
const DUCKDB: &str = "
import duckdb, numpy, sys, time
file, series, epochs, start, step = sys.argv[1], *map(int, sys.argv[2:6])
db = duckdb.connect(file)
db.execute('CREATE TABLE t (time BIGINT, name INTEGER, value BIGINT)')
rng = numpy.random.default_rng(1)
means = (series / numpy.random.default_rng(2).permutation(numpy.arange(1, series + 1))) ** 0.8
names = numpy.arange(series, dtype=numpy.int32)
spent = 0.0
for epoch in range(epochs):
    values = rng.poisson(means)
    times = numpy.full(series, start + epoch * step)
    begun = time.time()
    frame = {'time': times, 'name': names, 'value': values}
    db.execute('INSERT INTO t SELECT time, name, value FROM frame')
    spent += time.time() - begun
begun = time.time()
assert len(db.execute('SELECT time, value FROM t WHERE name = ? ORDER BY time', [series // 2]).fetchall()) == epochs
print(spent, time.time() - begun)
";

fn duckdb(work: &Work<'_>) -> Result<Measured, String> {
    let python = work.python.ok_or("name a Python that has it with --duckdb-python")?;
    let file = work.folder.join("peer.duckdb");
    let numbers = [i64::from(work.series), i64::from(work.epochs), time_s(0), STEP_S].map(|number| number.to_string());
    let done = Command::new(python).args(["-c", DUCKDB]).arg(&file).args(numbers).output();
    let done = done.map_err(|error| format!("{}: {error}", python.display()))?;
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let mut seconds = text.split_whitespace().filter_map(|text| text.parse().ok());
    match (seconds.next(), seconds.next()) {
        (Some(write), Some(read)) => Ok(Measured {
            write: Duration::from_secs_f64(write),
            read: Duration::from_secs_f64(read),
            bytes: std::fs::metadata(&file).map_or(0, |file| file.len()),
        }),
        _ => Err(String::from_utf8_lossy(&done.stderr).lines().last().unwrap_or("no figures").to_owned()),
    }
}

/// A server that is stopped in the end.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A list for each series, with every write in the append-only file within a second.
fn redis(work: &Work<'_>) -> Result<Measured, String> {
    let folder = work.folder.join("redis");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let socket = folder.join("socket");
    let mut command = Command::new("redis-server");
    command
        .args(["--port", "0", "--appendonly", "yes", "--save", "", "--unixsocket"])
        .arg(&socket)
        .arg("--dir")
        .arg(&folder);
    let _server = Server(spawn(&mut command)?);
    wait_for(&socket)?;
    let client = || {
        let mut command = Command::new("redis-cli");
        command.arg("-s").arg(&socket);
        command
    };
    let mut counters = work.counters();
    let write = run_script(client().arg("--pipe"), &mut |out| {
        let mut text = String::new();
        for _ in 0..work.epochs {
            for (series, value) in counters.next_epoch().iter().enumerate() {
                text.clear();
                let (series, value) = (series.to_string(), value.to_string());
                let _ = write!(
                    text,
                    "*3\r\n$5\r\nRPUSH\r\n${}\r\n{series}\r\n${}\r\n{value}\r\n",
                    series.len(),
                    value.len()
                );
                out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    })?;
    let read = run_script(client().args(["LRANGE", &(work.series / 2).to_string(), "0", "-1"]), &mut |_| Ok(()))?;
    Ok(Measured { write, read, bytes: folder_bytes(&folder) })
}

fn wait_for(socket: &Path) -> Result<(), String> {
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err("redis-server did not answer within 10 s".to_owned());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

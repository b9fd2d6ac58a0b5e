//! `thalweg bench load`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Instant;

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::generate::{Generator, UseCase};
use super::process::{Usage, folder_bytes, thread_cpu_seconds, usage};
use crate::client::Client;

const EXAMPLES: &str = "Examples:
  thalweg bench load                                     100 hosts, 3 days at 10 s: 25.9 million values over HTTP
  thalweg bench load --connections 16 --scale 4000 --days 0.25
  thalweg bench load --in-process                        without HTTP
  thalweg bench load --settle                            also what the data takes when all of it is merged
  thalweg bench load --url http://127.0.0.1:7780         a server that runs already (its CPU and disk are not measured)";

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LoadFlags {
    /// Hosts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    scale: u32,
    /// Days of data
    #[arg(long, default_value_t = 3.0)]
    days: f64,
    /// Seconds between two rows of a host
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    interval_s: u32,
    /// What is written
    #[arg(long, value_enum, default_value = "cpu-only")]
    use_case: UseCase,
    /// The same seed gives the same data
    #[arg(long, default_value_t = 123)]
    seed: u64,
    /// Connections at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// Rows of a request
    #[arg(long, default_value_t = 5000)]
    batch_rows: u64,
    /// Write in this process, without HTTP
    #[arg(long, conflicts_with = "url")]
    in_process: bool,
    /// A server that runs already [default: one of the benchmark's own]
    #[arg(long)]
    url: Option<String>,
    /// Where the benchmark's own database is kept; must not exist [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Afterwards also kill the server and measure its restart with a log to read, then merge everything there is to merge
    #[arg(long, conflicts_with = "url")]
    settle: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
struct Report {
    rows: u64,
    values: u64,
    connections: u16,
    seconds: f64,
    rows_per_second: f64,
    values_per_second: f64,
    /// Of making the data, which is not the server's work.
    generator_cpu_seconds: f64,
    server_cpu_seconds: f64,
    values_per_server_cpu_second: f64,
    resident_bytes: u64,
    resident_peak_bytes: u64,
    disk_bytes: u64,
    part_bytes: u64,
    log_bytes: u64,
    part_bytes_per_value: f64,
    /// After a clean stop.
    restart_seconds: f64,
    /// After SIGKILL, with `--settle` and a server of the benchmark's own.
    restart_after_kill_seconds: Option<f64>,
    /// CPU of flushing and merging everything, with `--settle`.
    settle_cpu_seconds: Option<f64>,
}

impl Report {
    fn set_server_cpu(&mut self, seconds: f64) {
        self.server_cpu_seconds = seconds;
        self.values_per_server_cpu_second = if seconds > 0.0 { self.values as f64 / seconds } else { 0.0 };
    }
}

/// Where the rows go.
enum Target {
    Here(Box<db::Db>),
    Server(Client),
}

/// A server of the benchmark's own; ended when dropped.
struct OwnServer {
    child: Child,
    url: String,
}

impl OwnServer {
    fn start(data: &Path) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
        let mut child = Command::new(program)
            .args(["serve", "--http", "127.0.0.1:0", "--no-host-metrics", "--data"])
            .arg(data)
            .args(["--line", "off", "--graphite", "off", "--opentsdb", "off", "--otlp-grpc", "off"])
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a server: {error}"))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            let _ = BufReader::new(stdout).read_line(&mut line);
        }
        let url = line.trim().rsplit_once(' ').map(|(_, url)| url.to_owned());
        let url = url.ok_or("the server did not start; its message stands above")?;
        Ok(Self { child, url })
    }

    /// Asks it to stop and waits until it has.
    fn stop(mut self) -> Result<(), String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)
            .map_err(|error| format!("cannot stop the server: {error}"))?;
        self.child.wait().map(|_| ()).map_err(|error| format!("cannot wait for the server: {error}"))
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn run(flags: &LoadFlags) -> Result<ExitCode, String> {
    let own = format!("thalweg-bench-{}", std::process::id());
    let data = flags.data.clone().unwrap_or_else(|| std::env::temp_dir().join(own));
    if flags.url.is_none() && data.exists() {
        return Err(format!("{} exists; the benchmark needs a folder of its own", data.display()));
    }
    let report = measure(flags, &data);
    if flags.data.is_none() {
        let _ = std::fs::remove_dir_all(&data);
    }
    let report = report?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
    } else {
        println!("{}", render(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(flags: &LoadFlags, data: &Path) -> Result<Report, String> {
    if let Some(url) = &flags.url {
        return load(flags, &Target::Server(Client::new(url)), None);
    }
    let mut report = if flags.in_process { load_here(flags, data)? } else { load_own_server(flags, data)? };
    if flags.settle {
        report.settle_cpu_seconds = Some(settle(data)?);
    }
    add_disk(&mut report, data);
    // Started as a user would, whatever wrote the data.
    let (server, seconds) = start_and_ask(data)?;
    report.restart_seconds = seconds;
    server.stop()?;
    Ok(report)
}

fn load_here(flags: &LoadFlags, data: &Path) -> Result<Report, String> {
    let target = Target::Here(Box::new(open(data)?));
    let mut report = load(flags, &target, Some(std::process::id()))?;
    // Here the data was made by the process that is measured.
    report.set_server_cpu(report.server_cpu_seconds - report.generator_cpu_seconds);
    match target {
        Target::Here(db) => db.close().map_err(|error| error.to_string())?,
        Target::Server(_) => return Err("the target changed".to_owned()),
    }
    Ok(report)
}

fn load_own_server(flags: &LoadFlags, data: &Path) -> Result<Report, String> {
    let mut server = OwnServer::start(data)?;
    let mut report = load(flags, &Target::Server(Client::new(&server.url)), Some(server.child.id()))?;
    if flags.settle {
        // Dropping kills.
        drop(server);
        let (restarted, seconds) = start_and_ask(data)?;
        (server, report.restart_after_kill_seconds) = (restarted, Some(seconds));
    }
    server.stop()?;
    Ok(report)
}

/// Starts a server and returns with the seconds until it answered that it is well.
fn start_and_ask(data: &Path) -> Result<(OwnServer, f64), String> {
    let start = Instant::now();
    let server = OwnServer::start(data)?;
    let health = Client::new(&server.url).get("/health", &[])?;
    let seconds = start.elapsed().as_secs_f64();
    if health.status != 200 {
        return Err(format!("the restarted server is not well: {}", health.body));
    }
    Ok((server, seconds))
}

fn open(data: &Path) -> Result<db::Db, String> {
    db::Db::open(platform::Platform::real(), db::DbOptions::new(data)).map_err(|error| error.to_string())
}

/// Flushes and merges everything; returns the CPU seconds that this took.
fn settle(data: &Path) -> Result<f64, String> {
    let before = usage(std::process::id()).cpu_seconds;
    let db = open(data)?;
    db.settle().and_then(|()| db.close()).map_err(|error| error.to_string())?;
    Ok(usage(std::process::id()).cpu_seconds - before)
}

fn add_disk(report: &mut Report, data: &Path) {
    report.disk_bytes = folder_bytes(data);
    report.part_bytes = folder_bytes(&data.join("parts"));
    report.log_bytes = folder_bytes(&data.join("log"));
    report.part_bytes_per_value = report.part_bytes as f64 / report.values.max(1) as f64;
}

fn load(flags: &LoadFlags, target: &Target, pid: Option<u32>) -> Result<Report, String> {
    let steps = (flags.days * DAY_S / f64::from(flags.interval_s)).round() as i64;
    let mut generator = Generator::new(flags.use_case, flags.scale as usize, flags.interval_s, flags.seed);
    let rows = generator.rows_per_step() * steps as u64;
    let values = generator.values_per_step() * steps as u64;
    let bar = ProgressBar::new(rows);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} rows {per_sec} eta {eta}") {
        bar.set_style(style);
    }
    let measured = |usage_now: Usage| if pid.is_some() { usage_now } else { Usage::default() };
    let before = measured(usage(pid.unwrap_or(0)));
    let start = Instant::now();
    let (queue, batches) = sync_channel::<(String, u64)>(usize::from(flags.connections) * 2);
    let batches = Mutex::new(batches);
    let generator_cpu_before = thread_cpu_seconds();
    let done: Result<Vec<()>, String> = std::thread::scope(|scope| {
        let senders: Vec<_> =
            (0..flags.connections).map(|_| scope.spawn(|| send_all(target, &batches, &bar))).collect();
        loop {
            let mut text = String::new();
            let made = generator.fill(&mut text, flags.batch_rows, steps);
            if made == 0 || queue.send((text, made)).is_err() {
                break;
            }
        }
        drop(queue);
        senders
            .into_iter()
            .map(|sender| sender.join().unwrap_or_else(|_| Err("a sender ended early".to_owned())))
            .collect()
    });
    bar.finish_and_clear();
    done?;
    let seconds = start.elapsed().as_secs_f64();
    let after = measured(usage(pid.unwrap_or(0)));
    let mut report = Report {
        rows,
        values,
        connections: flags.connections,
        seconds,
        rows_per_second: rows as f64 / seconds,
        values_per_second: values as f64 / seconds,
        generator_cpu_seconds: thread_cpu_seconds() - generator_cpu_before,
        resident_bytes: after.resident_bytes,
        resident_peak_bytes: after.resident_peak_bytes,
        ..Report::default()
    };
    report.set_server_cpu(after.cpu_seconds - before.cpu_seconds);
    Ok(report)
}

fn send_all(target: &Target, batches: &Mutex<Receiver<(String, u64)>>, bar: &ProgressBar) -> Result<(), String> {
    loop {
        let batch = batches.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
        let Ok((text, rows)) = batch else {
            return Ok(());
        };
        match target {
            Target::Here(db) => {
                let (written, _) = db.write_lines("default", text.as_bytes()).map_err(|error| error.to_string())?;
                if written.rows_written != rows {
                    return Err(format!("{} of {rows} rows were written", written.rows_written));
                }
            }
            Target::Server(client) => {
                let answer = client.post("/write", &[], text.as_bytes())?;
                if answer.status != 204 {
                    return Err(format!("the server answered {}: {}", answer.status, answer.body));
                }
            }
        }
        bar.inc(rows);
    }
}

fn render(report: &Report) -> String {
    let millions = |value: f64| format!("{:.2} M", value / 1e6);
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "not measured".to_owned(), |s| format!("{s:.3} s"));
    let mib = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    for (name, value) in [
        ("rows", millions(report.rows as f64)),
        ("values", millions(report.values as f64)),
        ("connections", report.connections.to_string()),
        ("time", format!("{:.2} s", report.seconds)),
        ("rows/s", millions(report.rows_per_second)),
        ("values/s", millions(report.values_per_second)),
        ("generator CPU", format!("{:.2} s", report.generator_cpu_seconds)),
        ("server CPU", format!("{:.2} s", report.server_cpu_seconds)),
        ("values per server CPU second", millions(report.values_per_server_cpu_second)),
        ("resident memory", mib(report.resident_bytes)),
        ("resident memory, peak", mib(report.resident_peak_bytes)),
        ("on disk at the end", mib(report.disk_bytes)),
        ("of that parts", mib(report.part_bytes)),
        ("bytes per value in parts", format!("{:.3}", report.part_bytes_per_value)),
        ("of that log", mib(report.log_bytes)),
        ("restart to first answer", format!("{:.3} s", report.restart_seconds)),
        ("restart after SIGKILL", seconds(report.restart_after_kill_seconds)),
        ("CPU of merging everything", seconds(report.settle_cpu_seconds)),
    ] {
        table.add_row([name.to_owned(), value]);
    }
    table.to_string()
}

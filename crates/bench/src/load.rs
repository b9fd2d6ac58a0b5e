//! `thalweg bench load`.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::measure::latency::{Comparison, Latencies, compare};
use crate::measure::process::{Usage, folder_bytes, usage};
use crate::measure::send::{Pace, Sent, Target, send};
use crate::workload::generate::UseCase;
use crate::workload::requests::{Format, Plan, Requests};
use client::http::HttpClient;

const EXAMPLES: &str = "Examples:
  thalweg bench load                                     100 hosts, 3 days at 10 s: 25.9 million values over HTTP
  thalweg bench load --connections 16 --scale 4000 --days 0.25
  thalweg bench load --in-process                        without HTTP
  thalweg bench load --settle                            also what the data takes when all of it is merged
  thalweg bench load --format remote-write --scale 20000 --days 0.01
                                                         200,000 series by Prometheus's remote write, one sample each
  thalweg bench load --rows-per-second 200000 --compact  latencies at a steady rate while merges go on
  thalweg bench load --rows-per-second 200000 --compact --compact-phase-s 5
                                                         the same in turns with and without, compared
  thalweg bench load --url http://127.0.0.1:8086 --database bench
                                                         any server that takes the format (its CPU and disk are not measured)";

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;

#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
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
    /// Measurements and fields to write
    #[arg(long, value_enum, default_value = "cpu-only")]
    use_case: UseCase,
    /// Data follow from the seed alone
    #[arg(long, default_value_t = 123)]
    seed: u64,
    /// Connections at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    connections: u16,
    /// How the rows are spelled
    #[arg(long, value_enum, default_value = "line")]
    format: Format,
    /// Rows of a request [default: 5000; of remote write 200, that is 2000 samples of cpu-only]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batch_rows: Option<u64>,
    /// Samples that a series has in a request of remote write
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    samples: u32,
    /// Bytes of requests that are made before the first is sent, and that wait at any time
    #[arg(long, default_value_t = 1 << 30, value_name = "BYTES")]
    prepared_bytes_max: usize,
    /// Send at this rate, latencies counted from when a request was due [default: as fast as the server acknowledges]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    rows_per_second: Option<u64>,
    /// Stop sending after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds_max: Option<u64>,
    /// Merge everything over and over while sending
    #[arg(long)]
    compact: bool,
    /// Do so in every second stretch of so many seconds only, and compare acknowledgements with and without
    #[arg(long, value_name = "SECONDS", requires = "compact", value_parser = clap::value_parser!(u64).range(1..=3600))]
    compact_phase_s: Option<u64>,
    /// Database that is written to; servers that do not know the parameter ignore it or make a label of it
    #[arg(long, value_name = "NAME", conflicts_with = "in_process")]
    database: Option<String>,
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

/// The measurements.
#[derive(Debug, Default, Serialize)]
struct Report {
    rows: u64,
    values: u64,
    connections: u16,
    seconds: f64,
    rows_per_second: f64,
    values_per_second: f64,
    /// Bytes of the requests as they were sent.
    body_bytes: u64,
    /// From sending a request until its acknowledgement.
    latency_p50_ms: f64,
    latency_p99_ms: f64,
    latency_max_ms: f64,
    /// How often everything was merged meanwhile, with `--compact`.
    compactions: u64,
    /// Acknowledgements while everything was merged and otherwise, with `--compact`.
    by_merging: Option<Comparison>,
    /// Of making data while it was sent, which is not the server's work.
    generator_cpu_seconds: f64,
    /// Of this process while it sent.
    loader_cpu_seconds: f64,
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

/// A server of the benchmark's own; ended when dropped.
pub(super) struct OwnServer {
    pub(super) child: Child,
    pub(super) url: String,
}

impl OwnServer {
    pub(super) fn start(data: &Path) -> Result<Self, String> {
        Self::start_with(data, &["--control", "off", "--postgres", "off"])
    }

    /// Starts one with further flags.
    pub(super) fn start_with(data: &Path, flags: &[&str]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|error| format!("cannot find this program's file: {error}"))?;
        let mut child = Command::new(program)
            .args(["serve", "--http", "127.0.0.1:0", "--ingest", "off", "--no-host-metrics", "--data"])
            .arg(data)
            .args(["--line", "off", "--graphite", "off", "--opentsdb", "off", "--otlp-grpc", "off"])
            .args(flags)
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
    pub(super) fn stop(mut self) -> Result<(), String> {
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
        return load(flags, &server_target(flags, url), None);
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

/// Where a server takes the format, and how it is told what it gets.
fn server_target(flags: &LoadFlags, url: &str) -> Target {
    let (path, headers) = match flags.format {
        Format::Line => ("/write", vec![("content-type", "text/plain; charset=utf-8")]),
        Format::RemoteWrite => {
            let version = ("x-prometheus-remote-write-version", "0.1.0");
            ("/api/v1/write", vec![("content-type", "application/x-protobuf"), ("content-encoding", "snappy"), version])
        }
    };
    let mut path = path.to_owned();
    if let Some(database) = &flags.database {
        let query = form_urlencoded::Serializer::new(String::new()).append_pair("db", database).finish();
        path = format!("{path}?{query}");
    }
    Target::Server { url: url.to_owned(), path, headers }
}

fn load_here(flags: &LoadFlags, data: &Path) -> Result<Report, String> {
    if flags.format != Format::Line {
        return Err("--in-process takes line protocol; leave it out to send remote write".to_owned());
    }
    let target = Target::Here(Box::new(open(data)?));
    let mut report = load(flags, &target, Some(std::process::id()))?;
    // Here the data was made by the process that is measured.
    report.set_server_cpu(report.server_cpu_seconds - report.generator_cpu_seconds);
    match target {
        Target::Here(db) => db.close().map_err(|error| error.to_string())?,
        Target::Server { .. } => return Err("the target changed".to_owned()),
    }
    Ok(report)
}

fn load_own_server(flags: &LoadFlags, data: &Path) -> Result<Report, String> {
    let mut server = OwnServer::start(data)?;
    let mut report = load(flags, &server_target(flags, &server.url), Some(server.child.id()))?;
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
    let health = HttpClient::new(&server.url).get("/health", &[])?;
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
    db.compact_all().and_then(|()| db.close()).map_err(|error| error.to_string())?;
    Ok(usage(std::process::id()).cpu_seconds - before)
}

fn add_disk(report: &mut Report, data: &Path) {
    report.disk_bytes = folder_bytes(data);
    report.part_bytes = folder_bytes(&data.join("parts"));
    report.log_bytes = folder_bytes(&data.join("log"));
    report.part_bytes_per_value = report.part_bytes as f64 / report.values.max(1) as f64;
}

/// What the flags ask for.
fn plan(flags: &LoadFlags) -> (Plan, Pace) {
    let batch_rows = flags.batch_rows.unwrap_or(match flags.format {
        Format::Line => 5000,
        Format::RemoteWrite => 200,
    });
    let plan = Plan {
        format: flags.format,
        use_case: flags.use_case,
        hosts: flags.scale as usize,
        interval_s: flags.interval_s,
        seed: flags.seed,
        steps: (flags.days * DAY_S / f64::from(flags.interval_s)).round() as i64,
        batch_rows,
        samples: i64::from(flags.samples),
    };
    let pace = Pace {
        connections: usize::from(flags.connections),
        prepared_bytes_max: flags.prepared_bytes_max,
        rows_per_second: flags.rows_per_second,
        duration_max: flags.seconds_max.map(Duration::from_secs),
        compact: flags.compact,
        compact_phase: flags.compact_phase_s.map(Duration::from_secs),
    };
    (plan, pace)
}

fn load(flags: &LoadFlags, target: &Target, pid: Option<u32>) -> Result<Report, String> {
    let (plan, pace) = plan(flags);
    let mut requests = Requests::new(&plan);
    let bar = ProgressBar::new(requests.rows_per_step() * plan.steps as u64);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {human_pos}/{human_len} rows {per_sec} eta {eta}") {
        bar.set_style(style);
    }
    // Prometheus takes a series' samples in their order only.
    let lanes = if plan.format == Format::Line { 1 } else { pace.connections };
    let measured = || pid.map(usage).unwrap_or_default();
    let (mut before, mut loader_before) = (Usage::default(), Usage::default());
    let ready = || {
        (before, loader_before) = (measured(), usage(std::process::id()));
        bar.reset();
    };
    let sent = send(target, &mut requests, lanes, &pace, &bar, ready);
    bar.finish_and_clear();
    let (sent, after, loader) = (sent?, measured(), usage(std::process::id()));
    let mut report = report(&sent, &pace);
    report.loader_cpu_seconds = loader.cpu_seconds - loader_before.cpu_seconds;
    report.resident_bytes = after.resident_bytes;
    report.resident_peak_bytes = after.resident_peak_bytes;
    report.set_server_cpu(after.cpu_seconds - before.cpu_seconds);
    Ok(report)
}

fn report(sent: &Sent, pace: &Pace) -> Report {
    let all = Latencies::from_ms(sent.acknowledged.iter().map(|request| request.latency_ms).collect());
    Report {
        rows: sent.rows,
        values: sent.values,
        connections: pace.connections as u16,
        seconds: sent.seconds,
        rows_per_second: sent.rows as f64 / sent.seconds,
        values_per_second: sent.values as f64 / sent.seconds,
        body_bytes: sent.body_bytes,
        latency_p50_ms: all.p50_ms,
        latency_p99_ms: all.p99_ms,
        latency_max_ms: all.max_ms,
        compactions: sent.merges.len() as u64,
        by_merging: pace.compact.then(|| compare(&sent.acknowledged, &sent.merges)),
        generator_cpu_seconds: sent.generator_cpu_seconds,
        ..Report::default()
    }
}

fn render(report: &Report) -> String {
    let millions = |value: f64| format!("{:.2} M", value / 1e6);
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "not measured".to_owned(), |s| format!("{s:.3} s"));
    let split = |show: fn(&Comparison) -> String| report.by_merging.as_ref().map_or("not measured".to_owned(), show);
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
        ("sent", mib(report.body_bytes)),
        ("acknowledgement, median", format!("{:.2} ms", report.latency_p50_ms)),
        ("acknowledgement, 99 of 100 within", format!("{:.2} ms", report.latency_p99_ms)),
        ("acknowledgement, slowest", format!("{:.2} ms", report.latency_max_ms)),
        ("99 of 100 while everything is merged", split(|both| format!("{:.2} ms", both.merging.p99_ms))),
        ("99 of 100 otherwise", split(|both| format!("{:.2} ms", both.otherwise.p99_ms))),
        ("so many times slower while merging", split(|both| format!("{:.2}", both.p99_ratio))),
        ("merges of everything meanwhile", report.compactions.to_string()),
        ("loader CPU", format!("{:.2} s", report.loader_cpu_seconds)),
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

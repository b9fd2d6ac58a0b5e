//! `thalweg bench wide`: queries that select many lone series, by HTTP, so that other servers of Prometheus's API can be asked too.

mod data;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::load::OwnServer;
use crate::measure::process::usage;
use crate::storage::quantile;
use client::http::HttpClient;
use data::{PODS, Requests, end_ms};

/// Bytes of an answer that are looked at; it begins with its status.
const BEGINNING_BYTES: u64 = 64;

const EXAMPLES: &str = "Examples:
  thalweg bench wide                                   a million series; asked while they are in memory, and when all is compacted
  thalweg bench wide --series 5000000 --only names
  thalweg bench wide --url http://127.0.0.1:9090 --pid 4711
                                                       writes to a server that takes remote write, and asks it
  thalweg bench wide --url http://127.0.0.1:9090 --pid 4711 --no-load
                                                       asks one that has the data";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct WideFlags {
    /// Series in the database
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(30_000..=20_000_000))]
    series: u64,
    /// Samples of each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    samples: u32,
    /// Requests of each kind
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    requests: u32,
    /// Kinds whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Where the benchmark's own database is, or is made [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// A server that runs already [default: one of the benchmark's own]
    #[arg(long)]
    url: Option<String>,
    /// Process of that server, to measure its CPU time
    #[arg(long, requires = "url")]
    pid: Option<u32>,
    /// Do not write: the data is there
    #[arg(long)]
    no_load: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// A kind of request.
struct Kind {
    name: &'static str,
    /// Series that it selects; 0: all.
    selected: u64,
    request: Request,
}

/// A request, without its times.
#[derive(Clone, Copy)]
enum Request {
    /// An instant query at the end of the data.
    Instant(&'static str),
    /// A query over the hour up to the end of the data, in steps of 15 s.
    Hour(&'static str),
    /// Names or series over the whole time.
    Names(&'static str, &'static [(&'static str, &'static str)]),
}

const TEN_THOUSAND: &str = "container_cpu_usage_seconds_total";

const KINDS: [Kind; 21] = {
    use Request::{Hour, Instant, Names};
    const fn kind(name: &'static str, selected: u64, request: Request) -> Kind {
        Kind { name, selected, request }
    }
    [
        kind("10k count", PODS, Instant("count(container_cpu_usage_seconds_total)")),
        kind("10k sum by", PODS, Instant("sum by (job) (container_cpu_usage_seconds_total)")),
        kind("10k sum rate", PODS, Instant("sum by (job) (rate(container_cpu_usage_seconds_total[5m]))")),
        kind("10k topk", PODS, Instant("topk(5, container_cpu_usage_seconds_total)")),
        kind(
            "10k quantile",
            PODS,
            Instant("histogram_quantile(0.9, sum by (le, job) (rate(http_request_duration_seconds_bucket[5m])))"),
        ),
        kind(
            "10k join",
            2 * PODS,
            Instant(
                "sum by (team) (container_cpu_usage_seconds_total * on (namespace, pod) group_left (team) kube_pod_team)",
            ),
        ),
        kind("10k regex", PODS / 100, Instant("count(container_cpu_usage_seconds_total{pod=~\"app-7-.*\"})")),
        kind("10k vector", PODS, Instant("container_cpu_usage_seconds_total")),
        kind("10k hour sum by", PODS, Hour("sum by (job) (container_cpu_usage_seconds_total)")),
        kind("10k hour sum rate", PODS, Hour("sum by (job) (rate(container_cpu_usage_seconds_total[5m]))")),
        kind("100k count", 10 * PODS, Instant("count(container_memory_working_set_bytes)")),
        kind("100k sum by", 10 * PODS, Instant("sum by (namespace) (container_memory_working_set_bytes)")),
        kind("100k sum rate", 10 * PODS, Instant("sum by (job) (rate(container_memory_working_set_bytes[5m]))")),
        kind("100k topk", 10 * PODS, Instant("topk(5, container_memory_working_set_bytes)")),
        kind("all count", 0, Instant("count({__name__=~\".+\"})")),
        kind("all count by name", 0, Instant("topk(3, count by (__name__) ({__name__!=\"\"}))")),
        kind("all sum by", 0, Instant("sum by (job) ({job!=\"\"})")),
        kind("names labels", 0, Names("/api/v1/labels", &[])),
        kind("names jobs", 0, Names("/api/v1/label/job/values", &[])),
        kind("names pods", 0, Names("/api/v1/label/pod/values", &[])),
        kind("names series", PODS, Names("/api/v1/series", &[("match[]", TEN_THOUSAND)])),
    ]
};

#[derive(Debug, Serialize)]
struct Measured {
    state: &'static str,
    kind: &'static str,
    selected: u64,
    median_ms: f64,
    max_ms: f64,
    /// Of the server.
    cpu_ms_per_request: f64,
    cpu_us_per_series: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    series: u64,
    load_seconds: Option<f64>,
    load_cpu_seconds: Option<f64>,
    resident_bytes: u64,
    resident_peak_bytes: u64,
    measured: Vec<Measured>,
}

/// A server that is asked.
struct Server {
    url: String,
    pid: Option<u32>,
}

impl Server {
    fn cpu_seconds(&self) -> f64 {
        self.pid.map_or(f64::NAN, |pid| usage(pid).cpu_seconds)
    }
}

pub(crate) fn run(flags: &WideFlags) -> Result<ExitCode, String> {
    let own = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
    let data = flags.data.clone().unwrap_or_else(|| own.clone());
    let report = match &flags.url {
        Some(url) => other_server(flags, url),
        None => own_server(flags, &data),
    };
    if flags.data.is_none() {
        // With another server there is nothing to remove.
        let _ = std::fs::remove_dir_all(&own);
    }
    let report = report?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
    } else {
        println!("{}", render(&report));
    }
    Ok(ExitCode::SUCCESS)
}

fn other_server(flags: &WideFlags, url: &str) -> Result<Report, String> {
    let server = Server { url: url.to_owned(), pid: flags.pid };
    let mut report = if flags.no_load { empty_report(flags) } else { load(flags, &server)? };
    report.measured = ask_all(flags, &server, "as it is")?;
    add_memory(&mut report, &server);
    Ok(report)
}

fn own_server(flags: &WideFlags, data: &Path) -> Result<Report, String> {
    let own = OwnServer::start(data)?;
    let mut server = Server { url: own.url.clone(), pid: Some(own.child.id()) };
    let mut report = if flags.no_load { empty_report(flags) } else { load(flags, &server)? };
    let state = if flags.no_load { "reopened" } else { "in memory" };
    report.measured = ask_all(flags, &server, state)?;
    add_memory(&mut report, &server);
    if !flags.no_load {
        HttpClient::with_timeout(&server.url, None).send_api("POST", "/api/v1/admin/compact", &[], &[])?;
        own.stop()?;
        let reopened = OwnServer::start(data)?;
        server = Server { url: reopened.url.clone(), pid: Some(reopened.child.id()) };
        report.measured.extend(ask_all(flags, &server, "compacted")?);
        reopened.stop()?;
    }
    Ok(report)
}

fn add_memory(report: &mut Report, server: &Server) {
    let usage = server.pid.map(usage).unwrap_or_default();
    (report.resident_bytes, report.resident_peak_bytes) = (usage.resident_bytes, usage.resident_peak_bytes);
}

fn empty_report(flags: &WideFlags) -> Report {
    let series = Requests::new(flags.series, i64::from(flags.samples)).series();
    Report {
        series,
        load_seconds: None,
        load_cpu_seconds: None,
        resident_bytes: 0,
        resident_peak_bytes: 0,
        measured: Vec::new(),
    }
}

/// Writes all series.
fn load(flags: &WideFlags, server: &Server) -> Result<Report, String> {
    let client = HttpClient::with_timeout(&server.url, None);
    let requests = Requests::new(flags.series, i64::from(flags.samples));
    let bar = ProgressBar::new(requests.series());
    let style = ProgressStyle::with_template("writing {bar:40} {human_pos} of {human_len} series, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
        ("x-prometheus-remote-write-version", "0.1.0"),
    ];
    let (start, cpu_before) = (Instant::now(), server.cpu_seconds());
    for request in requests {
        let answer = client.post_as("/api/v1/write", &headers, &request.body)?;
        if answer.status >= 300 {
            return Err(format!("the write was answered {}: {}", answer.status, answer.body.trim()));
        }
        bar.inc(request.series);
    }
    bar.finish_and_clear();
    Ok(Report {
        load_seconds: Some(start.elapsed().as_secs_f64()),
        load_cpu_seconds: Some(server.cpu_seconds() - cpu_before),
        ..empty_report(flags)
    })
}

fn ask_all(flags: &WideFlags, server: &Server, state: &'static str) -> Result<Vec<Measured>, String> {
    let client = HttpClient::with_timeout(&server.url, None);
    let is_wanted = |kind: &&Kind| flags.only.as_ref().is_none_or(|only| kind.name.contains(only.as_str()));
    let kinds: Vec<&Kind> = KINDS.iter().filter(is_wanted).collect();
    let bar = ProgressBar::new(kinds.len() as u64);
    let style = ProgressStyle::with_template("asking {bar:40} {pos} of {len}, {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut measured = Vec::with_capacity(kinds.len());
    for kind in kinds {
        bar.set_message(kind.name);
        measured.push(ask(flags, server, &client, kind, state)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(measured)
}

fn ask(
    flags: &WideFlags,
    server: &Server,
    client: &HttpClient,
    kind: &Kind,
    state: &'static str,
) -> Result<Measured, String> {
    let end_ms = end_ms(i64::from(flags.samples));
    // The first warms up what later ones find.
    send(client, kind, end_ms)?;
    let cpu_before = server.cpu_seconds();
    let mut latencies_ms = Vec::with_capacity(flags.requests as usize);
    for _ in 0..flags.requests {
        let start = Instant::now();
        send(client, kind, end_ms)?;
        latencies_ms.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let cpu_ms_per_request = (server.cpu_seconds() - cpu_before) * 1e3 / f64::from(flags.requests);
    let selected = if kind.selected == 0 { flags.series } else { kind.selected };
    Ok(Measured {
        state,
        kind: kind.name,
        selected,
        median_ms: quantile(&mut latencies_ms, 0.5),
        max_ms: quantile(&mut latencies_ms, 1.0),
        cpu_ms_per_request,
        cpu_us_per_series: cpu_ms_per_request * 1e3 / selected as f64,
    })
}

fn send(client: &HttpClient, kind: &Kind, end_ms: i64) -> Result<(), String> {
    let seconds = |time_ms: i64| format!("{}.{:03}", time_ms / 1000, time_ms % 1000);
    let (start, end) = (seconds(end_ms - 3_600_000), seconds(end_ms));
    let (path, parameters): (&str, Vec<(&str, &str)>) = match kind.request {
        Request::Instant(query) => ("/api/v1/query", vec![("query", query), ("time", &end), ("nocache", "1")]),
        Request::Hour(query) => (
            "/api/v1/query_range",
            vec![("query", query), ("start", &start), ("end", &end), ("step", "15"), ("nocache", "1")],
        ),
        Request::Names(path, parameters) => {
            let range = [("start", start.as_str()), ("end", end.as_str())];
            (path, parameters.iter().copied().chain(range).collect())
        }
    };
    let answer = client.get_for_beginning(path, &parameters, BEGINNING_BYTES)?;
    if answer.status == 200 && answer.body.contains("success") {
        return Ok(());
    }
    Err(format!("{}: {} {}", kind.name, answer.status, answer.body))
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["state", "request", "series selected", "median ms", "max ms", "CPU ms", "CPU µs a series"]);
    for row in &report.measured {
        table.add_row([
            row.state.to_owned(),
            row.kind.to_owned(),
            row.selected.to_string(),
            format!("{:.1}", row.median_ms),
            format!("{:.1}", row.max_ms),
            format!("{:.1}", row.cpu_ms_per_request),
            format!("{:.2}", row.cpu_us_per_series),
        ]);
    }
    let mib = |bytes: u64| bytes >> 20;
    let loaded = report.load_seconds.zip(report.load_cpu_seconds).map_or_else(String::new, |(seconds, cpu_seconds)| {
        format!(" written in {seconds:.1} s with {cpu_seconds:.1} s of CPU,")
    });
    let (resident, peak) = (mib(report.resident_bytes), mib(report.resident_peak_bytes));
    format!("{} series,{loaded} {resident} MiB resident, {peak} MiB at most\n{table}", report.series)
}

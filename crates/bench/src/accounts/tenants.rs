//! `thalweg bench tenants`: a tenant that wants everything, beside one that wants little.
//!
//! Each has a database and a token of its own. The quiet one writes a few rows and asks a cheap query, again and again over kept connections:
//! first alone, then while the loud one writes new series without end, sends queries that take all there is, and bodies of many megabytes.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;
use serde_json::json;

use crate::load::OwnServer;
use crate::report;
use crate::storage::quantile;
use client::http::HttpClient;

/// Between two requests of the quiet tenant.
const PAUSE: Duration = Duration::from_millis(5);
/// New series of each body of the loud one.
const BODY_SERIES: u64 = 2_000;
/// Series that its queries read.
const LOUD_SERIES: u64 = 20_000;
/// Bytes of its large bodies.
const LARGE_BODY_BYTES: usize = 32 << 20;
/// How far the loud tenant's clients stand back.
#[cfg(target_os = "linux")]
const LOUD_NICENESS: i32 = 15;
/// Bytes of an answer that are kept; else the client would cost as much as the server.
const KEPT_BYTES_MAX: u64 = 4096;

/// How much the quiet tenant's p99 may grow.
const RATIO_MAX: f64 = 2.0;

const EXAMPLES: &str = "Examples:
  thalweg bench tenants                        on a server of its own with 512 MiB
  thalweg bench tenants --limited              the loud tenant has limits, and is at them
  thalweg bench tenants --seconds 60 --loud 32";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct TenantsFlags {
    /// For how long the quiet tenant is measured, alone and beside the loud one
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Clients of each kind that the loud tenant has
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    loud: u8,
    /// Give the loud tenant's token limits, which it is at
    #[arg(long)]
    limited: bool,
    /// Bytes of memory that the server may take
    #[arg(long, default_value_t = 512 << 20)]
    memory_bytes_max: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How long requests of a kind took.
#[derive(Debug, Serialize)]
struct Latencies {
    requests: usize,
    failed: usize,
    median_ms: f64,
    p99_ms: f64,
}

#[derive(Debug, Serialize)]
struct Compared {
    alone: Latencies,
    beside: Latencies,
}

#[derive(Debug, Serialize)]
struct Report {
    writes: Compared,
    queries: Compared,
    /// What the loud tenant sent, and how much of it was refused.
    loud_requests: u64,
    loud_refused: u64,
}

/// Clients of both tenants.
struct Clients {
    quiet: HttpClient,
    loud: HttpClient,
}

/// What the loud tenant has sent.
#[derive(Default)]
struct Loud {
    stop: AtomicBool,
    requests: AtomicU64,
    refused: AtomicU64,
    /// Series that were written, each once.
    series: AtomicU64,
}

pub(crate) fn run(flags: &TenantsFlags) -> Result<ExitCode, String> {
    report(flags.json, |data| measure(flags, data), render)
}

fn measure(flags: &TenantsFlags, data: &Path) -> Result<Report, String> {
    let memory = flags.memory_bytes_max.to_string();
    let options = ["--sign-in", "required", "--control", "off", "--postgres", "off", "--memory-bytes-max", &memory];
    let server = OwnServer::start_with(data, &options)?;
    let clients = clients(flags, &server.url, data)?;
    prepare(&clients)?;
    let length = Duration::from_secs(u64::from(flags.seconds));
    let [writes_alone, queries_alone] = quiet(&clients.quiet, length);
    let loud = Loud::default();
    let [writes_beside, queries_beside] = thread::scope(|scope| {
        for _ in 0..flags.loud {
            for attack in [new_series, death_query, large_body] {
                let (client, loud) = (&clients.loud, &loud);
                scope.spawn(move || {
                    step_back();
                    while !loud.stop.load(Ordering::Relaxed) {
                        let is_taken = attack(client, loud);
                        loud.requests.fetch_add(1, Ordering::Relaxed);
                        loud.refused.fetch_add(u64::from(!is_taken), Ordering::Relaxed);
                    }
                });
            }
        }
        let measured = quiet(&clients.quiet, length);
        loud.stop.store(true, Ordering::Relaxed);
        measured
    });
    server.stop()?;
    Ok(Report {
        writes: Compared { alone: writes_alone, beside: writes_beside },
        queries: Compared { alone: queries_alone, beside: queries_beside },
        loud_requests: loud.requests.load(Ordering::Relaxed),
        loud_refused: loud.refused.load(Ordering::Relaxed),
    })
}

/// Both tenants with tokens of their own.
fn clients(flags: &TenantsFlags, url: &str, data: &Path) -> Result<Clients, String> {
    let file = data.join("admin-token");
    let token = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let admin = HttpClient::new(url).with_token(&token);
    let tenant = |name: &str, quota: serde_json::Value| {
        let body = json!({ "grants": [format!("all:{name}")], "quota": quota }).to_string();
        let made = admin.send_api("PUT", &format!("/api/v1/admin/accounts/{name}"), &[], body.as_bytes())?;
        let token = made["token"].as_str().ok_or("the server made no token")?;
        Ok::<_, String>(HttpClient::new(url).with_token(token))
    };
    let limits = json!({
        "requests_per_s": 200, "samples_per_s": 20_000, "bytes_per_s": 8 << 20, "new_series_per_hour": 200_000, "queries_max": 2,
        "query_memory_bytes_max": 32 << 20,
    });
    let loud = tenant("loud", if flags.limited { limits } else { json!({}) })?;
    Ok(Clients { quiet: tenant("quiet", json!({}))?, loud })
}

/// Makes both databases, with something to read.
fn prepare(clients: &Clients) -> Result<(), String> {
    let mut lines = String::new();
    for series in 0..LOUD_SERIES {
        // Writing to a string cannot fail.
        let _ = writeln!(lines, "wide,pod=pod-{series},job=j{} value={series}", series % 50);
    }
    for (client, path, body) in
        [(&clients.loud, "/write?db=loud", lines.as_str()), (&clients.quiet, QUIET_WRITE, QUIET_ROWS)]
    {
        let answer = client.post(path, &[], body.as_bytes())?;
        if answer.status != 204 {
            return Err(format!("writing failed with {}: {}", answer.status, answer.body));
        }
    }
    Ok(())
}

const QUIET_WRITE: &str = "/write?db=quiet";
const QUIET_ROWS: &str = "cheap,host=a value=1\ncheap,host=b value=2\ncheap,host=c value=3";

/// The quiet tenant's writes and queries, for so long.
fn quiet(client: &HttpClient, length: Duration) -> [Latencies; 2] {
    let write = || client.post(QUIET_WRITE, &[], QUIET_ROWS.as_bytes()).is_ok_and(|answer| answer.status == 204);
    let query = || {
        let parameters = [("query", "sum(cheap)"), ("db", "quiet"), ("nocache", "1")];
        client.get("/api/v1/query", &parameters).is_ok_and(|answer| answer.status == 200)
    };
    thread::scope(|scope| {
        let writes = scope.spawn(|| repeat(length, write));
        let queries = repeat(length, query);
        [writes.join().unwrap_or_else(|_| latencies(Vec::new(), 0)), queries]
    })
}

/// The loud tenant's clients have machines of their own: here they leave the cores to the server and to the client that is measured.
fn step_back() {
    // Where it is refused they take part in the measurement.
    #[cfg(target_os = "linux")]
    if let Ok(niceness) = rustix::process::getpriority_process(None) {
        let _ = rustix::process::setpriority_process(None, niceness + LOUD_NICENESS);
    }
}

fn repeat(length: Duration, call: impl Fn() -> bool) -> Latencies {
    let (begun, mut taken_ms, mut failed) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < length {
        let start = Instant::now();
        if call() {
            taken_ms.push(start.elapsed().as_secs_f64() * 1_000.0);
        } else {
            failed += 1;
        }
        thread::sleep(PAUSE);
    }
    latencies(taken_ms, failed)
}

fn latencies(mut taken_ms: Vec<f64>, failed: usize) -> Latencies {
    let requests = taken_ms.len();
    let [median_ms, p99_ms] = [0.5, 0.99].map(|share| quantile(&mut taken_ms, share));
    Latencies { requests, failed, median_ms, p99_ms }
}

fn new_series(client: &HttpClient, loud: &Loud) -> bool {
    let first = loud.series.fetch_add(BODY_SERIES, Ordering::Relaxed);
    let mut lines = String::new();
    for series in first..first + BODY_SERIES {
        let _ = writeln!(lines, "flood,pod=pod-{series},job=j{} value={series}", series % 50);
    }
    client.post("/write?db=loud", &[], lines.as_bytes()).is_ok_and(|answer| answer.status == 204)
}

/// Sorts and groups everything.
fn death_query(client: &HttpClient, _: &Loud) -> bool {
    let query = r#"sort(count_values without() ("v", wide * 1.37)) or quantile_over_time(0.5, wide[1h:1s])"#;
    let parameters = [("query", query), ("db", "loud"), ("nocache", "1")];
    client.get_for_beginning("/api/v1/query", &parameters, KEPT_BYTES_MAX).is_ok_and(|answer| answer.status == 200)
}

/// Made once: clients do not compete with the server for the time that it takes.
static LARGE_BODY: LazyLock<String> = LazyLock::new(|| {
    let mut lines = String::with_capacity(LARGE_BODY_BYTES + 64);
    let mut time_ns = 1_700_000_000_000_000_000_u64;
    while lines.len() < LARGE_BODY_BYTES {
        time_ns += 1_000_000;
        let _ = writeln!(lines, "large,host=a value={} {time_ns}", time_ns % 1_000);
    }
    lines
});

fn large_body(client: &HttpClient, _: &Loud) -> bool {
    client.post("/write?db=loud", &[], LARGE_BODY.as_bytes()).is_ok_and(|answer| answer.status == 204)
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["the quiet tenant's", "requests", "failed", "median", "p99", "p99 to alone"]);
    let mut is_kept = true;
    for (name, compared) in [("writes", &report.writes), ("queries", &report.queries)] {
        let ratio = compared.beside.p99_ms / compared.alone.p99_ms;
        is_kept &= ratio <= RATIO_MAX;
        for (when, measured, ratio) in [("alone", &compared.alone, None), ("beside", &compared.beside, Some(ratio))] {
            table.add_row([
                format!("{name} {when}"),
                measured.requests.to_string(),
                measured.failed.to_string(),
                format!("{:.2} ms", measured.median_ms),
                format!("{:.2} ms", measured.p99_ms),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            ]);
        }
    }
    let verdict = if is_kept { "kept" } else { "broken" };
    let (sent, refused) = (report.loud_requests, report.loud_refused);
    format!(
        "{table}\nthe loud tenant sent {sent} requests, {refused} were refused; the aim of {RATIO_MAX} times is {verdict}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_whether_the_aim_is_kept() {
        let measured = |p99_ms| Latencies { requests: 10, failed: 0, median_ms: 1.0, p99_ms };
        let report = |beside_ms| Report {
            writes: Compared { alone: measured(2.0), beside: measured(3.0) },
            queries: Compared { alone: measured(2.0), beside: measured(beside_ms) },
            loud_requests: 5,
            loud_refused: 1,
        };
        assert!(render(&report(4.0)).contains("is kept") && render(&report(4.1)).contains("is broken"));
    }
}

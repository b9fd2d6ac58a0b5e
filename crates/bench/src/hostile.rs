//! `thalweg bench hostile`: queries that want too much, beside ones that do not.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::floods;
use super::load::OwnServer;
use super::report;
use super::storage::quantile;
use crate::measure::process::usage;
use crate::workload::generate::START_NS;
use client::http::HttpClient;

/// Series, and samples of each: 2 h at 15 s.
const SERIES: usize = 2_000;
const SAMPLES: i64 = 480;
const INTERVAL_S: i64 = 15;
const START_S: i64 = START_NS / 1_000_000_000;
const BATCH_SAMPLES: i64 = 60;

/// Bytes of the answer to a hostile query that are read; else the client would cost as much as the server.
const KEPT_BYTES_MAX: u64 = 4096;

const ORDINARY: &str = "sum by (mode) (rate(x{host=~\"h1[0-9]?\"}[5m]))";
/// Ordinary queries before anything hostile is sent.
const ORDINARY_ALONE: usize = 200;

const EXAMPLES: &str = "Examples:
  thalweg bench hostile                       hostile queries by 4 clients, 240 or 2 minutes of them, on a server of its own
  thalweg bench hostile --queries 1000 --seconds 1200
  thalweg bench hostile --floods              other attacks, each on a server of its own with 512 MiB";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct HostileFlags {
    /// Hostile queries, at most
    #[arg(long, default_value_t = 240, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    /// For how long they are asked, at most; those under way then are waited for
    #[arg(long, default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
    /// Who ask them at the same time
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// Attack by other means than queries: bombs, announced and half-sent bodies, held connections, huge lists
    #[arg(long, conflicts_with_all = ["queries", "seconds", "workers"])]
    floods: bool,
    /// Bytes of memory that the server of the floods may take
    #[arg(long, default_value_t = 512 << 20, requires = "floods")]
    memory_bytes_max: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One kind of hostile query: a path, and how its parameters are made of a number, so that no two are the same.
struct Kind {
    name: &'static str,
    path: &'static str,
    parameters: fn(usize) -> Vec<(&'static str, String)>,
}

#[derive(Debug, Default, Serialize)]
struct QueryCounts {
    queries: usize,
    /// How many had which status.
    statuses: BTreeMap<u16, usize>,
    longest_ms: f64,
    /// What one of those that failed was told.
    error: String,
}

#[derive(Debug, Serialize)]
struct Waiting {
    queries: usize,
    median_ms: f64,
    p99_ms: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    kinds: BTreeMap<&'static str, QueryCounts>,
    /// Ordinary queries by one client, before and meanwhile.
    alone: Waiting,
    beside: Waiting,
    server_cpu_seconds: f64,
    server_resident_peak_bytes: u64,
}

fn instant(query: String) -> Vec<(&'static str, String)> {
    vec![("query", query), ("time", (START_S + SAMPLES * INTERVAL_S).to_string()), ("nocache", "1".to_owned())]
}

fn range(query: String, step: &str) -> Vec<(&'static str, String)> {
    let (start, end) = (START_S.to_string(), (START_S + SAMPLES * INTERVAL_S).to_string());
    vec![("query", query), ("start", start), ("end", end), ("step", step.to_owned()), ("nocache", "1".to_owned())]
}

fn nested(head: &str, inner: &str, tail: &str, depth: usize) -> String {
    format!("{}{inner}{}", head.repeat(depth), tail.repeat(depth))
}

const QUERY: &str = "/api/v1/query";
const QUERY_RANGE: &str = "/api/v1/query_range";

fn kinds() -> [Kind; 12] {
    let kind = |name, path, parameters| Kind { name, path, parameters };
    [
        kind("regex-bomb", QUERY, |number| instant(format!("x{{host=~\"((a{{100}}){{100}}){{{number}}}\"}}"))),
        kind("regex-scan", QUERY, |number| instant(format!("count({{host=~\"(.*.*.*)+{number}(.*)+.*x\"}})"))),
        kind("many-steps", QUERY_RANGE, |number| range("x".to_owned(), &format!("0.000{}", 1 + number % 9))),
        kind("subquery-1e9-steps", QUERY, |number| instant(format!("max_over_time(x[{}s:1ms])", 1_000_000 + number))),
        kind("cross-match", QUERY_RANGE, |number| range(format!("x * on (mode) group_left x + {number}"), "15")),
        kind("cross-set", QUERY_RANGE, |number| {
            range(format!("(x or -x or x + {number}) unless on (cpu) (x > 1e99)"), "15")
        }),
        kind("deep-nesting", QUERY, |number| instant(nested("abs(", "x", ")", 1_000 + number))),
        kind("deep-plan", "/api/v1/plan", |number| vec![("query", nested("(->> ", "(all)", ")", 1_000 + number))]),
        kind("long-windows", QUERY_RANGE, |number| {
            range(format!("max by (mode) (quantile_over_time(0.{number}, x[2h]))"), "15")
        }),
        kind("huge-aggregation", QUERY_RANGE, |number| {
            range(format!("count_values without () (\"v\", x * {number}.37)"), "1")
        }),
        kind("label-bomb", QUERY, |number| {
            instant(nested("label_replace(", "x", ", \"host\", \"$1$1$1\", \"host\", \"(.*)\")", 40 + number % 100))
        }),
        kind("subquery-tower", QUERY, |number| {
            instant(nested("max_over_time(", &format!("x + {number}"), "[1h:1s])", 4))
        }),
    ]
}

pub(crate) fn run(flags: &HostileFlags) -> Result<ExitCode, String> {
    if flags.floods {
        return report(
            flags.json,
            |data| floods::measure(data, flags.memory_bytes_max),
            |outcomes| floods::render(outcomes),
        );
    }
    report(flags.json, |data| measure(flags, data), render)
}

fn measure(flags: &HostileFlags, data: &Path) -> Result<Report, String> {
    let server = OwnServer::start(data)?;
    let client = HttpClient::new(&server.url);
    fill(&client)?;
    let mut alone_ms = Vec::new();
    for _ in 0..ORDINARY_ALONE {
        alone_ms.push(ask_ordinary(&client)?);
    }
    let (next, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let bounds = Bounds {
        queries: flags.queries as usize,
        until: Instant::now() + Duration::from_secs(u64::from(flags.seconds)),
    };
    let (kinds, beside_ms) = std::thread::scope(|scope| {
        let hostile = || ask_hostile(&client, &next, &bounds);
        let workers: Vec<_> = (0..flags.workers).map(|_| scope.spawn(hostile)).collect();
        let ordinary = scope.spawn(|| {
            let mut latencies_ms = Vec::new();
            while !done.load(Ordering::Relaxed) {
                latencies_ms.push(ask_ordinary(&client)?);
            }
            Ok::<_, String>(latencies_ms)
        });
        let asked: Vec<Result<_, String>> =
            workers.into_iter().map(|worker| worker.join().map_err(|_| "a worker ended early")?).collect();
        done.store(true, Ordering::Relaxed);
        let beside_ms = ordinary.join().map_err(|_| "a worker ended early")??;
        Ok::<_, String>((together(asked)?, beside_ms))
    })?;
    let used = usage(server.child.id());
    Ok(Report {
        kinds,
        alone: waiting(alone_ms),
        beside: waiting(beside_ms),
        server_cpu_seconds: used.cpu_seconds,
        server_resident_peak_bytes: used.resident_peak_bytes,
    })
}

fn fill(client: &HttpClient) -> Result<(), String> {
    for first in (0..SAMPLES).step_by(BATCH_SAMPLES as usize) {
        let mut lines = String::new();
        for sample in first..(first + BATCH_SAMPLES).min(SAMPLES) {
            let timestamp_ns = START_NS + sample * INTERVAL_S * 1_000_000_000;
            for series in 0..SERIES {
                let (host, processor, mode) = (series / 64, series / 8 % 8, series % 8);
                let value = sample * (1 + series as i64 % 17);
                let _ = writeln!(lines, "x,host=h{host},cpu={processor},mode=m{mode} value={value} {timestamp_ns}");
            }
        }
        let answer = client.post("/write", &[], lines.as_bytes())?;
        if answer.status != 204 {
            return Err(format!("writing failed with {}: {}", answer.status, answer.body));
        }
    }
    Ok(())
}

/// Milliseconds that an ordinary query waits for its answer.
fn ask_ordinary(client: &HttpClient) -> Result<f64, String> {
    let parameters = range(ORDINARY.to_owned(), "60");
    let given: Vec<(&str, &str)> = parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let start = Instant::now();
    let answer = client.get(QUERY_RANGE, &given)?;
    if answer.status == 200 && answer.body.contains("\"m1\"") {
        return Ok(start.elapsed().as_secs_f64() * 1000.0);
    }
    Err(format!("an ordinary query got {}: {}", answer.status, answer.body))
}

/// How many hostile queries are asked, and how long.
struct Bounds {
    queries: usize,
    until: Instant,
}

fn ask_hostile(
    client: &HttpClient,
    next: &AtomicUsize,
    bounds: &Bounds,
) -> Result<BTreeMap<&'static str, QueryCounts>, String> {
    let kinds = kinds();
    let mut asked: BTreeMap<&'static str, QueryCounts> = BTreeMap::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= bounds.queries || Instant::now() >= bounds.until {
            return Ok(asked);
        }
        let Some(kind) = kinds.get(number % kinds.len()) else { return Ok(asked) };
        let body: Vec<String> =
            (kind.parameters)(number).iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let start = Instant::now();
        let form = [("content-type", "application/x-www-form-urlencoded")];
        let answer = client.post_for_beginning(kind.path, &form, body.join("&").as_bytes(), KEPT_BYTES_MAX)?;
        let of_kind = asked.entry(kind.name).or_default();
        of_kind.queries += 1;
        *of_kind.statuses.entry(answer.status).or_default() += 1;
        of_kind.longest_ms = of_kind.longest_ms.max(start.elapsed().as_secs_f64() * 1000.0);
        if answer.status != 200 {
            of_kind.error = answer.body.chars().take(300).collect();
        }
    }
}

/// For a form: every byte but letters and digits by its number.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

fn together(
    parts: Vec<Result<BTreeMap<&'static str, QueryCounts>, String>>,
) -> Result<BTreeMap<&'static str, QueryCounts>, String> {
    let mut all: BTreeMap<&'static str, QueryCounts> = BTreeMap::new();
    for part in parts {
        for (name, asked) in part? {
            let known = all.entry(name).or_default();
            known.queries += asked.queries;
            known.longest_ms = known.longest_ms.max(asked.longest_ms);
            for (status, count) in asked.statuses {
                *known.statuses.entry(status).or_default() += count;
            }
            if !asked.error.is_empty() {
                known.error = asked.error;
            }
        }
    }
    Ok(all)
}

fn waiting(mut latencies_ms: Vec<f64>) -> Waiting {
    let queries = latencies_ms.len();
    let [median_ms, p99_ms] = [0.5, 0.99].map(|share| quantile(&mut latencies_ms, share));
    Waiting { queries, median_ms, p99_ms }
}

fn render(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(["hostile", "queries", "statuses", "longest", "what they are told"]);
    for (name, asked) in &report.kinds {
        let statuses: Vec<String> = asked.statuses.iter().map(|(status, count)| format!("{status}: {count}")).collect();
        let error: String = asked.error.chars().take(120).collect();
        let longest = format!("{:.0} ms", asked.longest_ms);
        table.add_row([(*name).to_owned(), asked.queries.to_string(), statuses.join(", "), longest, error]);
    }
    let line = |name: &str, Waiting { queries, median_ms, p99_ms }: &Waiting| {
        format!("{name}: {queries} queries, median {median_ms:.1} ms, 99 of 100 within {p99_ms:.1} ms")
    };
    format!(
        "{table}\n{}\n{}\nserver: {:.1} CPU seconds, at most {} MiB",
        line("ordinary queries alone", &report.alone),
        line("ordinary queries beside hostile ones", &report.beside),
        report.server_cpu_seconds,
        report.server_resident_peak_bytes >> 20
    )
}

//! `thalweg bench query`: what TSBS asks VictoriaMetrics, a rate over ten thousand series, and what FrogFishDB's evaluation asks.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use clap::Args;
use comfy_table::{Table, presets};
use db::{Db, DbOptions, RangeQuery};
use serde::Serialize;

use super::plans::{self, plans};
use super::storage::quantile;
use crate::measure::process::{process_cpu_seconds, usage};
use crate::workload::generate::{Generator, START_NS, UseCase};
use crate::workload::walk::Chance;
use client::http::HttpClient;

/// The suite's queries; the form is in its first line.
const QUERIES: &str = include_str!("queries.txt");

const RATE: &str = "sum by (mode) (rate(node_cpu_seconds_total[5m]))";
/// Series of the rate, and samples of each: 6 h at 15 s.
const RATE_SERIES: usize = 10_000;
const RATE_SAMPLES: i64 = 1_440;
const RATE_INTERVAL_MS: i64 = 15_000;
/// Its name at each step.
const RATE_STEPS_MS: [(&str, i64); 2] = [("rate-10000-60s", 60_000), ("rate-10000-15s", 15_000)];

const START_MS: i64 = START_NS / 1_000_000;
const HOUR_MS: i64 = 3_600_000;
const SAMPLES_MAX: u64 = 50_000_000;
const BATCH_ROWS: u64 = 5_000;

const EXAMPLES: &str = "Examples:
  thalweg bench query                                 loads 100 hosts, 3 days at 10 s, settles, asks each kind 50 times
  thalweg bench query --data /tmp/tsbs                keeps the data there; the next time it is found
  thalweg bench query --only double --workers 1,2,4
  thalweg bench query --only plan --scale 320 --days 7  the five queries of FrogFishDB's evaluation (of 7 days or more)
  thalweg bench query --url http://127.0.0.1:8428 --parameter nocache=1
                                                      asks a server that has the data, such as VictoriaMetrics";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct QueryFlags {
    /// Hosts
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    scale: u32,
    /// Days of data
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=365))]
    days: u32,
    /// Queries of each kind
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    queries: u32,
    /// Who ask at the same time, one measurement after the other
    #[arg(long, default_value = "1,4", value_delimiter = ',')]
    workers: Vec<usize>,
    /// Data and queries follow from the seed alone
    #[arg(long, default_value_t = 123)]
    seed: u64,
    /// Kinds whose names contain this
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Where the data is, or is made [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
    /// Threads that help with long queries [default: one for each core but one]
    #[arg(long, value_name = "NUMBER")]
    helpers: Option<usize>,
    /// Ask a server that has the data already, by Prometheus's API
    #[arg(long)]
    url: Option<String>,
    /// Process of that server, to measure its CPU
    #[arg(long, requires = "url")]
    pid: Option<u32>,
    /// Further parameters of its queries, as `name=value`
    #[arg(long, requires = "url", value_name = "NAME=VALUE")]
    parameter: Vec<String>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// One kind of query.
struct Kind {
    name: &'static str,
    hours: i64,
    step_ms: i64,
    hosts: usize,
    text: &'static str,
}

/// One query.
#[derive(Clone)]
struct Question {
    database: &'static str,
    /// Whether the text is a plan, which says its range itself; else it is PromQL.
    is_plan: bool,
    text: String,
    start_ms: i64,
    end_ms: i64,
    step_ms: i64,
}

#[derive(Debug, Serialize)]
struct Measured {
    kind: String,
    workers: usize,
    queries: usize,
    median_ms: f64,
    p95_ms: f64,
    cpu_ms_per_query: f64,
    /// Of the rate: samples in the range, by CPU seconds of the query.
    samples_per_cpu_second: Option<f64>,
}

fn kinds() -> Vec<Kind> {
    let lines = QUERIES.lines().filter(|line| !line.starts_with('#'));
    let kind = |line: &'static str| {
        let mut rest = line;
        let mut word = || {
            let (word, behind) = rest.trim_start().split_once(' ')?;
            rest = behind;
            Some(word)
        };
        let (name, hours, step, hosts) = (word()?, word()?, word()?, word()?);
        let step_ms = step.parse::<i64>().ok()? * 1000;
        Some(Kind { name, hours: hours.parse().ok()?, step_ms, hosts: hosts.parse().ok()?, text: rest.trim() })
    };
    lines.filter_map(kind).collect()
}

impl Kind {
    fn ask(&self, flags: &QueryFlags, chance: &mut Chance) -> Question {
        let mut drawn: Vec<usize> = Vec::new();
        while drawn.len() < self.hosts.min(flags.scale as usize) {
            let host = chance.below(flags.scale) as usize;
            if !drawn.contains(&host) {
                drawn.push(host);
            }
        }
        let names: Vec<String> = drawn.iter().map(|host| format!("host_{host}")).collect();
        let matcher = match names.as_slice() {
            [one] => format!("hostname='{one}'"),
            _ => format!("hostname=~'{}'", names.join("|")),
        };
        let latest_ms = i64::from(flags.days) * 24 * HOUR_MS - self.hours * HOUR_MS;
        let start_ms = START_MS + i64::from(chance.below((latest_ms / 1000) as u32)) * 1000;
        let end_ms = start_ms + self.hours * HOUR_MS;
        Question {
            database: "tsbs",
            is_plan: false,
            text: self.text.replace("{hosts}", &matcher),
            start_ms,
            end_ms,
            step_ms: self.step_ms,
        }
    }
}

/// Who is asked.
enum Target {
    Here(Box<Db>),
    Server { client: HttpClient, parameters: Vec<(String, String)>, pid: Option<u32> },
}

impl Target {
    fn ask(&self, asked: &Question) -> Result<(), String> {
        match self {
            Self::Here(db) if asked.is_plan => {
                let budget = db.budget(SAMPLES_MAX);
                // What is measured is the evaluation.
                budget.compute_all();
                let outcome = db.parse_plan(&asked.text).and_then(|plan| db.run_plan(asked.database, &plan, &budget));
                match outcome.map_err(|error| format!("{}: {error}", asked.text))? {
                    outcome if outcome.frames.iter().any(|frame| !frame.timestamps_ns.is_empty()) => Ok(()),
                    _ => Err(format!("{} has no answer", asked.text)),
                }
            }
            Self::Here(db) => {
                let query = RangeQuery {
                    text: asked.text.clone(),
                    start_ms: asked.start_ms,
                    end_ms: asked.end_ms,
                    step_ms: asked.step_ms,
                    lookback_ms: None,
                    // The suite's multi-metric queries group by names.
                    name_removal: Some(promql::NameRemoval::Delayed),
                    // What is measured is the evaluation.
                    may_cache: false,
                    budget: db.budget(SAMPLES_MAX),
                };
                let answer = db.range(asked.database, &query).map_err(|error| format!("{}: {error}", asked.text))?;
                match answer.value {
                    promql::ResultValue::Matrix(matrix) if !matrix.is_empty() => Ok(()),
                    _ => Err(format!("{} has no answer", asked.text)),
                }
            }
            Self::Server { client, parameters, .. } => {
                let [start, end, step] =
                    [asked.start_ms, asked.end_ms, asked.step_ms].map(|milliseconds| (milliseconds / 1000).to_string());
                let mut given = vec![("query", asked.text.as_str()), ("start", &start), ("end", &end), ("step", &step)];
                given.extend(parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                let answer = client.get("/api/v1/query_range", &given)?;
                if answer.status == 200 { Ok(()) } else { Err(format!("{}: {}", asked.text, answer.body)) }
            }
        }
    }

    fn cpu_seconds(&self) -> f64 {
        match self {
            Self::Here(_) => process_cpu_seconds(),
            Self::Server { pid, .. } => pid.map_or(f64::NAN, |pid| usage(pid).cpu_seconds),
        }
    }
}

pub(crate) fn run(flags: &QueryFlags) -> Result<ExitCode, String> {
    let own = std::env::temp_dir().join(format!("thalweg-bench-{}", std::process::id()));
    let data = flags.data.clone().unwrap_or_else(|| own.clone());
    let measured = target(flags, &data).and_then(|target| measure(flags, &target));
    if flags.data.is_none() {
        // Without it there is nothing to remove.
        let _ = std::fs::remove_dir_all(&own);
    }
    let measured = measured?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&measured).map_err(|error| error.to_string())?);
    } else {
        println!("{}", render(&measured));
    }
    Ok(ExitCode::SUCCESS)
}

fn target(flags: &QueryFlags, data: &Path) -> Result<Target, String> {
    if let Some(url) = &flags.url {
        let parameters = flags.parameter.iter().map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| format!("{pair:?} is not name=value"))?;
            Ok((name.to_owned(), value.to_owned()))
        });
        let parameters = parameters.collect::<Result<_, String>>()?;
        return Ok(Target::Server { client: HttpClient::new(url), parameters, pid: flags.pid });
    }
    let is_new = !data.exists();
    let mut options = DbOptions::new(data);
    options.query_helpers = flags.helpers.unwrap_or(options.query_helpers);
    let db = Db::open(platform::Platform::real(), options).map_err(|error| error.to_string())?;
    if is_new {
        fill_hosts(flags, &db)?;
        fill_counters(flags.seed, &db)?;
        db.compact_all().map_err(|error| error.to_string())?;
    }
    Ok(Target::Here(Box::new(db)))
}

fn fill_hosts(flags: &QueryFlags, db: &Db) -> Result<(), String> {
    let mut generator = Generator::new(UseCase::CpuOnly, flags.scale as usize, 10, flags.seed);
    let mut text = String::new();
    while generator.fill(&mut text, BATCH_ROWS, i64::from(flags.days) * 8640) > 0 {
        db.write_lines("tsbs", text.as_bytes()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Seconds of processors by mode, in hundredths as Linux counts them.
fn fill_counters(seed: u64, db: &Db) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let mut hundredths = vec![0_u64; RATE_SERIES];
    for sample in 0..RATE_SAMPLES {
        let mut text = String::new();
        let timestamp_ns = START_NS + sample * RATE_INTERVAL_MS * 1_000_000;
        for (series, total) in hundredths.iter_mut().enumerate() {
            *total += u64::from(chance.below(1 + 1500 / (1 + series as u32 % 8)));
            let (host, processor, mode) = (series / 64, series / 8 % 8, series % 8);
            let value = *total as f64 / 100.0;
            let _ = writeln!(
                text,
                "node_cpu_seconds_total,cpu={processor},instance=node-{host}:9100,job=node,mode=mode{mode} \
                 value={value} {timestamp_ns}"
            );
        }
        db.write_lines("node", text.as_bytes()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn measure(flags: &QueryFlags, target: &Target) -> Result<Vec<Measured>, String> {
    let is_wanted = |name: &str| flags.only.as_ref().is_none_or(|only| name.contains(only.as_str()));
    let mut measured = Vec::new();
    for workers in &flags.workers {
        let mut chance = Chance::new(flags.seed);
        for kind in kinds() {
            let asked: Vec<Question> = (0..flags.queries).map(|_| kind.ask(flags, &mut chance)).collect();
            if is_wanted(kind.name) {
                measured.push(ask_all(kind.name, *workers, target, &asked)?);
            }
        }
        for (name, step_ms) in RATE_STEPS_MS.into_iter().filter(|(name, _)| is_wanted(name)) {
            let rate = Question {
                database: "node",
                is_plan: false,
                text: RATE.to_owned(),
                start_ms: START_MS,
                end_ms: START_MS + RATE_SAMPLES * RATE_INTERVAL_MS,
                step_ms,
            };
            let mut rate = ask_all(name, *workers, target, &vec![rate; flags.queries.min(10) as usize])?;
            let samples = RATE_SERIES as f64 * RATE_SAMPLES as f64;
            rate.samples_per_cpu_second = Some(samples / (rate.cpu_ms_per_query / 1000.0));
            measured.push(rate);
        }
        if let Target::Here(db) = target
            && flags.days >= plans::DAYS_MIN
        {
            for (name, text) in plans(db, "tsbs", flags.seed)?.into_iter().filter(|(name, _)| is_wanted(name)) {
                let asked = Question { database: "tsbs", is_plan: true, text, start_ms: 0, end_ms: 0, step_ms: 0 };
                measured.push(ask_all(name, *workers, target, &vec![asked; flags.queries as usize])?);
            }
        }
    }
    Ok(measured)
}

fn ask_all(kind: &str, workers: usize, target: &Target, asked: &[Question]) -> Result<Measured, String> {
    // Once before, so that files are in memory for all.
    asked.first().map_or(Ok(()), |first| target.ask(first))?;
    let (next, before) = (AtomicUsize::new(0), target.cpu_seconds());
    let work = || {
        let mut latencies_ms = Vec::new();
        while let Some(query) = asked.get(next.fetch_add(1, Ordering::Relaxed)) {
            let start = Instant::now();
            target.ask(query)?;
            latencies_ms.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        Ok::<_, String>(latencies_ms)
    };
    let done: Vec<Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..workers.max(1)).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a worker ended early".to_owned()))
        };
        threads.into_iter().map(join).collect()
    });
    let mut latencies_ms = Vec::new();
    for latencies in done {
        latencies_ms.extend(latencies?);
    }
    let cpu_ms_per_query = (target.cpu_seconds() - before) * 1000.0 / asked.len().max(1) as f64;
    let [median_ms, p95_ms] = [0.5, 0.95].map(|share| quantile(&mut latencies_ms, share));
    let (kind, queries) = (kind.to_owned(), asked.len());
    Ok(Measured { kind, workers, queries, median_ms, p95_ms, cpu_ms_per_query, samples_per_cpu_second: None })
}

fn render(measured: &[Measured]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "query",
        "workers",
        "queries",
        "median",
        "95 of 100 within",
        "CPU per query",
        "samples per CPU second",
    ]);
    for row in measured {
        let milliseconds = |value: f64| format!("{value:.2} ms");
        table.add_row([
            row.kind.clone(),
            row.workers.to_string(),
            row.queries.to_string(),
            milliseconds(row.median_ms),
            milliseconds(row.p95_ms),
            milliseconds(row.cpu_ms_per_query),
            row.samples_per_cpu_second.map_or_else(String::new, |samples| format!("{:.1} M", samples / 1e6)),
        ]);
    }
    table.to_string()
}

//! The same requests to InfluxDB alone, through `thalweg cache` in front of it, or through units of a fixed length in memcached.
//!
//! `cargo xtask cache-peers` starts the servers, runs this for each of the ways, and compares.

mod chunks;
mod data;

use std::cell::Cell;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::simulate::{Mix, Request, Workload};
use cache::{Answer, Span, Values};
use clap::Args;
use client::answers::{AnswerCache, Margin};
use comfy_table::{Table, presets};
use serde::Serialize;

use super::Spans;
use crate::measure::process::process_cpu_seconds;
use crate::storage::quantile;
use chunks::{Chunks, Units};
use client::http::HttpClient;
use data::{Data, Database, Statement};

/// How long the cache may take.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub(crate) struct RequestsFlags {
    /// The database: an InfluxDB 1.x
    #[arg(long)]
    influxdb: String,
    /// Write the data into it, and do nothing else
    #[arg(long)]
    load: bool,
    /// Ask through a `thalweg cache` at this address
    #[arg(long, conflicts_with = "memcached")]
    cache: Option<SocketAddr>,
    /// Ask through units of a fixed length in a memcached at this address
    #[arg(long)]
    memcached: Option<SocketAddr>,
    /// How long such a unit is, and a step with --whole-units
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_080))]
    unit_minutes: u32,
    /// Fetch whole units, or steps of that length where something is missing in `thalweg cache`, also beyond what is requested for; without it only units inside of what is requested for are kept
    #[arg(long)]
    whole_units: bool,
    /// Where something is missing in `thalweg cache`, fetch so many hundredths of what is requested for more at each end
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    margin_percent: u32,
    /// Spans of the requests: full (a minute to a week), small (to an hour), medium (an hour to a day), large (a day to a week)
    #[arg(long, value_enum, default_value = "full")]
    workload: Spans,
    /// How many requests
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// Requests of the same sequence to leave out at first: they were requested before, by a run of so many with the same seed
    #[arg(long, default_value_t = 0)]
    skip_requests: u64,
    /// Clients that ask at the same time
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    clients: u32,
    /// Sources of data; two queries for each, of a hundred
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sources: u32,
    /// Days of data
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    days: u32,
    /// Seconds between points
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval_s: u32,
    /// Fields of a source
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    fields: u32,
    /// What chance follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// How a client gets an answer.
enum Way {
    Database,
    Cache(AnswerCache, Margin),
    Chunks(Chunks),
}

/// What came of requests.
#[derive(Default)]
struct Counts {
    latencies_ms: Vec<f64>,
    points: u64,
    answered_bytes: u64,
    /// Points of answers that were not fetched.
    cached_points: u64,
    /// Requests for which nothing was fetched.
    hits: u64,
    database_queries: u64,
    database_points: u64,
    checksum: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    workload: Spans,
    requests: usize,
    seconds: f64,
    requests_per_second: f64,
    /// Of answers as times and values, uncompressed.
    answered_bytes: u64,
    bytes_per_second: f64,
    mean_ms: f64,
    p50_ms: f64,
    p99_ms: f64,
    /// Points that came out of the cache, of all.
    point_hit_ratio: f64,
    /// Requests that the database had nothing to do with, of all.
    hit_ratio: f64,
    database_queries: u64,
    database_points: u64,
    client_cpu_seconds: f64,
    /// Equal for equal answers.
    checksum: u64,
}

#[derive(Debug, Serialize)]
struct Loaded {
    rows: u64,
    values: u64,
    raw_bytes: u64,
}

pub(super) fn run(flags: &RequestsFlags) -> Result<ExitCode, String> {
    let data = Data { sources: flags.sources, days: flags.days, interval_s: flags.interval_s, fields: flags.fields };
    if flags.load {
        data.load(&HttpClient::new(&flags.influxdb), flags.seed)?;
        let rows = data.rows();
        let loaded = Loaded { rows, values: rows * u64::from(flags.fields), raw_bytes: data.raw_bytes() };
        println!("{}", serde_json::to_string_pretty(&loaded).map_err(|error| error.to_string())?);
        return Ok(ExitCode::SUCCESS);
    }
    let report = measure(flags, data)?;
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
    } else {
        println!("{}", table(&report));
    }
    Ok(ExitCode::SUCCESS)
}

/// Requests in their order, for all clients.
struct Queue {
    workload: Workload,
    requested: u64,
}

fn measure(flags: &RequestsFlags, data: Data) -> Result<Report, String> {
    let mut workload = Workload::of_lengths(Mix::Latest, data.minutes(), flags.workload.minutes(), flags.seed);
    for _ in 0..flags.skip_requests {
        workload.request();
    }
    let queue = Mutex::new(Queue { workload, requested: 0 });
    let next = || {
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.requested += 1;
        (queue.requested <= flags.requests).then(|| (queue.requested, queue.workload.request()))
    };
    let ways = (0..flags.clients).map(|_| way(flags)).collect::<Result<Vec<_>, _>>()?;
    let (cpu, started) = (process_cpu_seconds(), Instant::now());
    let counts = std::thread::scope(|scope| {
        let ask = |way| scope.spawn(|| client(flags, data, way, &next));
        let clients: Vec<_> = ways.into_iter().map(ask).collect();
        let mut all = Counts::default();
        for client in clients {
            all.add(client.join().map_err(|_| "a client broke down")??);
        }
        Ok::<_, String>(all)
    })?;
    Ok(report(flags.workload, counts, started.elapsed().as_secs_f64(), process_cpu_seconds() - cpu))
}

fn way(flags: &RequestsFlags) -> Result<Way, String> {
    let length_s = i64::from(flags.unit_minutes) * 60;
    Ok(match (flags.cache, flags.memcached) {
        (Some(address), _) => {
            // All data are there before the first request.
            let step = if flags.whole_units { length_s } else { 1 };
            let margin = Margin { share: f64::from(flags.margin_percent) / 100.0, step, until: i64::MAX };
            Way::Cache(AnswerCache::new(address, TIMEOUT), margin)
        }
        (None, Some(address)) => {
            let units = Units { length_s, whole: flags.whole_units };
            Way::Chunks(Chunks::connect(address, units)?)
        }
        (None, None) => Way::Database,
    })
}

fn client(
    flags: &RequestsFlags,
    data: Data,
    mut way: Way,
    next: &impl Fn() -> Option<(u64, Request)>,
) -> Result<Counts, String> {
    let database = Database::new(&flags.influxdb);
    let mut counts = Counts::default();
    while let Some((number, request)) = next() {
        let (statement, span) = (data.statement(request.query), Data::seconds(request.span));
        let started = Instant::now();
        let (answer, fetched_points) = ask(&database, &mut way, &statement, span, &mut counts)?;
        counts.latencies_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        let points = answer.points() as u64;
        counts.points += points;
        counts.cached_points += points.saturating_sub(fetched_points as u64);
        counts.answered_bytes += answer.size_bytes() as u64;
        counts.checksum = counts.checksum.wrapping_add(checksum(&answer).wrapping_mul(number | 1));
    }
    Ok(counts)
}

/// The answer, and how many of its points were fetched.
fn ask(
    database: &Database,
    way: &mut Way,
    statement: &Statement,
    span: Span,
    counts: &mut Counts,
) -> Result<(Answer, usize), String> {
    let (queries, points, inside) = (Cell::new(0), Cell::new(0), Cell::new(0));
    let fetch = |fetched: Span| {
        let answer = database.fetch(statement, fetched)?;
        queries.set(queries.get() + 1);
        points.set(points.get() + answer.points());
        inside.set(inside.get() + points_within(&answer, span));
        Ok(answer)
    };
    let (answer, fetched) = match way {
        Way::Database => (fetch(span)?, inside.get()),
        Way::Cache(cache, margin) => {
            let requested = (span.start, span.end);
            let fetch = |start, end| fetch(Span::new(start, end));
            (cache.query_with_margin(&statement.text, requested, *margin, fetch)?, inside.get())
        }
        Way::Chunks(chunks) => {
            let outcome = chunks.query(&statement.text, span, fetch)?;
            (outcome.answer, outcome.fetched_points)
        }
    };
    counts.hits += u64::from(queries.get() == 0);
    counts.database_queries += queries.get();
    counts.database_points += points.get() as u64;
    Ok((answer, fetched))
}

/// Points of an answer in a span: points that are fetched beside it were not requested.
fn points_within(answer: &Answer, span: Span) -> usize {
    let places = |field: &cache::FieldPoints| {
        let times = &field.points.timestamps;
        let [first, behind] = [span.start, span.end].map(|edge| times.partition_point(|time| *time < edge));
        behind - first
    };
    answer.fields.iter().map(places).sum()
}

/// Equal for equal points, in whatever order fields are.
fn checksum(answer: &Answer) -> u64 {
    let mix = |sum: u64, value: u64| (sum.rotate_left(7) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let field = |field: &cache::FieldPoints| {
        let name = field.name.bytes().fold(1, |sum, byte| mix(sum, u64::from(byte)));
        let times = field.points.timestamps.iter().fold(name, |sum, time| mix(sum, *time as u64));
        match &field.points.values {
            Values::F64(values) => values.iter().fold(times, |sum, value| mix(sum, value.to_bits())),
            other => mix(times, other.len() as u64),
        }
    };
    let filled = answer.fields.iter().filter(|field| !field.points.is_empty());
    filled.fold(0, |sum, one| sum.wrapping_add(field(one)))
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.latencies_ms.extend(other.latencies_ms);
        self.points += other.points;
        self.answered_bytes += other.answered_bytes;
        self.cached_points += other.cached_points;
        self.hits += other.hits;
        self.database_queries += other.database_queries;
        self.database_points += other.database_points;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }
}

fn report(workload: Spans, mut counts: Counts, seconds: f64, client_cpu_seconds: f64) -> Report {
    let requests = counts.latencies_ms.len();
    let mean_ms = counts.latencies_ms.iter().sum::<f64>() / requests.max(1) as f64;
    Report {
        workload,
        requests,
        seconds,
        requests_per_second: requests as f64 / seconds,
        answered_bytes: counts.answered_bytes,
        bytes_per_second: counts.answered_bytes as f64 / seconds,
        mean_ms,
        p50_ms: quantile(&mut counts.latencies_ms, 0.5),
        p99_ms: quantile(&mut counts.latencies_ms, 0.99),
        point_hit_ratio: counts.cached_points as f64 / counts.points.max(1) as f64,
        hit_ratio: counts.hits as f64 / requests.max(1) as f64,
        database_queries: counts.database_queries,
        database_points: counts.database_points,
        client_cpu_seconds,
        checksum: counts.checksum,
    }
}

fn table(report: &Report) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "requests/s",
        "MiB/s",
        "mean ms",
        "p50 ms",
        "p99 ms",
        "points hit %",
        "hits %",
        "database queries",
        "client CPU s",
    ]);
    table.add_row([
        format!("{:.0}", report.requests_per_second),
        format!("{:.2}", report.bytes_per_second / f64::from(1 << 20)),
        format!("{:.2}", report.mean_ms),
        format!("{:.2}", report.p50_ms),
        format!("{:.2}", report.p99_ms),
        format!("{:.1}", report.point_hit_ratio * 100.0),
        format!("{:.1}", report.hit_ratio * 100.0),
        report.database_queries.to_string(),
        format!("{:.1}", report.client_cpu_seconds),
    ]);
    table
}

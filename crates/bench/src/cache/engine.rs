//! The cache itself on a file, by policy.
//!
//! Requests are those of the simulator. Half of the queries ask for a part of what others ask for, so that results overlap. What a
//! database would answer is made up outside of the time that is measured; how long one would take is modelled.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::simulate::{Mix, Request, Workload};
use cache::{Answer, Cache, FieldPoints, Key, Lookup, Options, Points, PolicyKind, Span, Stats, Values};
use clap::Args;
use comfy_table::{Table, presets};
use serde::Serialize;

use super::Spans;

#[derive(Debug, Args)]
pub(crate) struct EngineFlags {
    /// The cache's file; it is removed before and after
    #[arg(long, default_value = "thalweg-bench-cache.flash")]
    file: PathBuf,
    /// The cache's size in MiB
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u64).range(4..))]
    size_mib: u64,
    /// Days of data in the database
    #[arg(long, default_value_t = 180, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    days: u32,
    /// Seconds between points
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    interval_s: u32,
    /// Fields of each query
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    fields: u32,
    /// Requests of each case
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// Spans of the requests: full (a minute to a week), small (to an hour), medium (an hour to a day), large (a day to a week)
    #[arg(long, value_enum, default_value = "full")]
    workload: Spans,
    /// KiB of a slab
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(16..=1024))]
    slab_kib: u64,
    /// KiB of points in memory that are not on flash yet
    #[arg(long, default_value_t = 64 << 10, value_parser = clap::value_parser!(u64).range(64..))]
    unwritten_kib: u64,
    /// Requests for new data and for a hot spot in old data, as 1:4; without it all are for recent data
    #[arg(long, value_parser = mix)]
    hot_spot: Option<Mix>,
    /// What the database takes for a query, beside its data
    #[arg(long, default_value_t = 5.0)]
    database_ms: f64,
    /// How much data it gives in a second
    #[arg(long, default_value_t = 20.0)]
    database_mib_per_s: f64,
    /// Only these cases: paper (its policy), sieve (the default), sieve-one-thread, sieve-uncompacted, lru, fifo
    #[arg(long, value_delimiter = ',')]
    cases: Vec<String>,
    /// What chance follows from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

fn mix(text: &str) -> Result<Mix, String> {
    let (new, old) = text.split_once(':').ok_or("two numbers with a colon between them, as 1:4")?;
    let number = |text: &str| text.parse().map_err(|error| format!("{text}: {error}"));
    Ok(Mix::HotSpot { new: number(new)?, old: number(old)? })
}

/// A way to run the cache.
struct Case {
    name: &'static str,
    policy: PolicyKind,
    compaction_slabs: usize,
    read_threads: usize,
}

const fn case(name: &'static str, policy: PolicyKind) -> Case {
    Case { name, policy, compaction_slabs: 16, read_threads: 4 }
}

const CASES: [Case; 6] = [
    case("paper", PolicyKind::TsCache),
    case("sieve", PolicyKind::Sieve),
    Case { read_threads: 0, ..case("sieve-one-thread", PolicyKind::Sieve) },
    Case { compaction_slabs: 0, ..case("sieve-uncompacted", PolicyKind::Sieve) },
    case("lru", PolicyKind::Lru),
    case("fifo", PolicyKind::Fifo),
];

#[derive(Debug, Serialize)]
struct Row {
    case: &'static str,
    hit_ratio: f64,
    partial_hit_ratio: f64,
    /// Bytes of points that came out of the cache, of all.
    byte_hit_ratio: f64,
    get_seconds: f64,
    set_seconds: f64,
    cpu_seconds: f64,
    /// With a database of the given speed for what was missed.
    modelled_mib_per_second: f64,
    /// Reads of the file for each request that got all or a part.
    reads_per_hit: f64,
    read_bytes: u64,
    written_bytes: u64,
    write_amplification: f64,
    /// Bytes of whole slabs for each byte that was read.
    marker_gain: f64,
    index_bytes: u64,
    index_hundredths_of_cached: f64,
    /// Bytes that slabs with points take.
    slab_bytes: u64,
    points_cached: u64,
    compactions: u64,
}

pub(super) fn run(flags: &EngineFlags) -> Result<ExitCode, String> {
    let wanted = |case: &&Case| flags.cases.is_empty() || flags.cases.iter().any(|name| name == case.name);
    let mut rows = Vec::new();
    for case in CASES.iter().filter(wanted) {
        rows.push(measure(flags, case)?);
    }
    if flags.json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())?);
    } else {
        println!("{}", table(&rows));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where time goes.
#[derive(Default)]
struct Times {
    get: Duration,
    set: Duration,
    /// CPU of making answers up.
    made_cpu: Duration,
    database_seconds: f64,
    got_bytes: usize,
    /// Of those what the cache had.
    cached_bytes: usize,
}

fn measure(flags: &EngineFlags, case: &Case) -> Result<Row, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", flags.file.display());
    let _ = std::fs::remove_file(&flags.file);
    let options = Options {
        policy: case.policy,
        compaction_slabs: case.compaction_slabs,
        read_threads: case.read_threads,
        slab_bytes: (flags.slab_kib as usize) << 10,
        open_bytes_max: (flags.unwritten_kib as usize) << 10,
        ..Options::new(&flags.file, flags.size_mib << 20)
    };
    let cache = Cache::open(&platform::Platform::real(), options).map_err(|error| failed(&error))?;
    let minutes = i64::from(flags.days) * 24 * 60;
    let mix = flags.hot_spot.unwrap_or(Mix::Latest);
    let mut workload = Workload::of_lengths(mix, minutes, flags.workload.minutes(), flags.seed);
    let mut times = Times::default();
    let cpu = cpu_time();
    for _ in 0..flags.requests {
        request(flags, &cache, &workload.request(), &mut times).map_err(|error| failed(&error))?;
    }
    let cpu_seconds = cpu_time().saturating_sub(cpu).saturating_sub(times.made_cpu).as_secs_f64();
    // What waits for a slab is cached as well, and in the index.
    cache.flush().map_err(|error| failed(&error))?;
    let stats = cache.stats();
    drop(cache);
    let _ = std::fs::remove_file(&flags.file);
    Ok(row(case, &stats, &times, cpu_seconds))
}

/// What a client does: ask the cache, ask the database for what is missing, set it.
fn request(flags: &EngineFlags, cache: &Cache, request: &Request, times: &mut Times) -> Result<(), String> {
    let key = Key::of_statement(&format!("query {}", request.query));
    // Requests come in minutes, points in seconds.
    let wanted = Span::new(request.span.start * 60, request.span.end * 60);
    let started = Instant::now();
    let found = cache.get(key, wanted);
    times.get += started.elapsed();
    let missing = match &found {
        Lookup::Hit(answer) => {
            times.got_bytes += answer.size_bytes();
            times.cached_bytes += answer.size_bytes();
            return Ok(());
        }
        Lookup::Partial { answer, span } => {
            times.got_bytes += answer.size_bytes();
            times.cached_bytes += answer.size_bytes();
            let is_head = span.start == wanted.start;
            if is_head { Span::new(span.end, wanted.end) } else { Span::new(wanted.start, span.start) }
        }
        Lookup::Miss => wanted,
    };
    let before = cpu_time();
    let made = answer(flags, request.query, missing);
    times.made_cpu += cpu_time().saturating_sub(before);
    let bytes = made.size_bytes();
    times.got_bytes += bytes;
    times.database_seconds +=
        flags.database_ms / 1000.0 + bytes as f64 / (flags.database_mib_per_s * f64::from(1 << 20));
    let started = Instant::now();
    cache.set(key, &made, missing).map_err(|error| error.to_string())?;
    while cache.maintain().map_err(|error| error.to_string())? {}
    times.set += started.elapsed();
    Ok(())
}

/// Decimals that wander slowly, the same for the same time. An odd query asks for every second point of the even one before it.
fn answer(flags: &EngineFlags, query: u32, span: Span) -> Answer {
    let interval = i64::from(flags.interval_s);
    let step = interval * i64::from(1 + query % 2);
    let first = (span.start + step - 1) / step * step;
    let times: Vec<i64> = (first..span.end).step_by(step as usize).collect();
    let field = |number: u32| {
        let level = |time: i64| {
            let slow = ((time / 600 + i64::from(query / 2 * 97 + number * 31)) as f64 / 40.0).sin() * 40.0;
            let mixed =
                (time ^ i64::from(query / 2 * 64 + number) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
            ((slow + 50.0) * 10.0 + (mixed >> 60) as f64).round() / 10.0
        };
        let values = Values::F64(times.iter().map(|time| level(*time)).collect());
        let points = Points { timestamps: times.clone(), series: vec![0; times.len()], values };
        FieldPoints { name: Arc::from(format!("field_{number}")), points }
    };
    Answer { series: vec![Arc::from("")], fields: (0..flags.fields).map(field).collect() }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn row(case: &Case, stats: &Stats, times: &Times, cpu_seconds: f64) -> Row {
    let share = |count: u64, of: u64| count as f64 / of.max(1) as f64;
    let seconds = times.get.as_secs_f64() + times.set.as_secs_f64() + times.database_seconds;
    // What the slabs' points take uncompressed: sixteen bytes each.
    let cached_bytes = stats.points * 16;
    Row {
        case: case.name,
        hit_ratio: share(stats.hits, stats.gets),
        partial_hit_ratio: share(stats.partial_hits, stats.gets),
        byte_hit_ratio: share(times.cached_bytes as u64, times.got_bytes as u64),
        get_seconds: times.get.as_secs_f64(),
        set_seconds: times.set.as_secs_f64(),
        cpu_seconds,
        modelled_mib_per_second: times.got_bytes as f64 / f64::from(1 << 20) / seconds,
        reads_per_hit: share(stats.reads, stats.hits + stats.partial_hits),
        read_bytes: stats.read_bytes,
        written_bytes: stats.written_bytes,
        write_amplification: share(stats.written_bytes, stats.sealed_bytes),
        marker_gain: share(stats.whole_slab_bytes, stats.read_bytes),
        index_bytes: stats.index_bytes,
        slab_bytes: stats.slab_bytes,
        index_hundredths_of_cached: share(stats.index_bytes * 100, cached_bytes),
        points_cached: stats.points,
        compactions: stats.compactions,
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let names = [
        "case",
        "hits %",
        "parts %",
        "points hit %",
        "get s",
        "set s",
        "CPU s",
        "MiB/s with database",
        "reads a hit",
        "MiB read",
    ];
    table.set_header(names.into_iter().chain([
        "MiB written",
        "write ampl.",
        "whole slabs / read",
        "index KB",
        "index % of cached",
        "slabs KB",
        "M points",
    ]));
    for row in rows {
        table.add_row([
            row.case.to_owned(),
            format!("{:.1}", row.hit_ratio * 100.0),
            format!("{:.1}", row.partial_hit_ratio * 100.0),
            format!("{:.1}", row.byte_hit_ratio * 100.0),
            format!("{:.2}", row.get_seconds),
            format!("{:.2}", row.set_seconds),
            format!("{:.2}", row.cpu_seconds),
            format!("{:.1}", row.modelled_mib_per_second),
            format!("{:.1}", row.reads_per_hit),
            (row.read_bytes >> 20).to_string(),
            (row.written_bytes >> 20).to_string(),
            format!("{:.2}", row.write_amplification),
            format!("{:.1}", row.marker_gain),
            (row.index_bytes / 1000).to_string(),
            format!("{:.2}", row.index_hundredths_of_cached),
            (row.slab_bytes / 1000).to_string(),
            format!("{:.2}", row.points_cached as f64 / 1e6),
        ]);
    }
    table
}

//! How fast is the fast path? A short stand-in for `thalweg bench storage insert` that compiles in a fraction of the time:
//! so many values by requests of 100,000 cells, flushes and merges in threads of their own; CPU seconds by thread.
//!
//! `cargo run --release -p thalweg-store --example insert -- [members,…] [millions of values] [decimals|doubles] [turns]`
//!
//! With turns, each case so often in a folder and in one file, one after the other, with what reading it back takes.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use index::compile;
use model::{Field, Labels, TimeRange, ValueType};
use platform::Platform;
use thalweg_store::{GroupLayout, Stats, Store, StoreError, StoreOptions, Token};

const SERIES: usize = 101_000;
const REQUEST_CELLS: usize = 100_000;
const START_NS: i64 = 1_451_606_400_000_000_000;
const STEP_NS: i64 = 10_000_000_000;

/// CPU seconds of the calling thread, by Linux.
fn thread_cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

struct Target {
    tokens: Vec<Token>,
    layout: Option<GroupLayout>,
}

fn register(store: &Store, members: usize) -> Target {
    let labels = |number: usize| Labels::from_pairs([("host", format!("host-{number}").as_str())]).unwrap();
    if members == 1 {
        let names: Vec<String> = (0..SERIES).map(|number| format!("metric_{:03}", number % 200)).collect();
        let series: Vec<_> = names.iter().enumerate().map(|(at, name)| (name.as_str(), labels(at))).collect();
        return Target { tokens: store.register_series("default", &series).unwrap(), layout: None };
    }
    let groups: Vec<Labels> = (0..SERIES / members).map(labels).collect();
    let field = |number: usize| Field { name: format!("usage_{number}"), value_type: ValueType::F64 };
    let members: Vec<_> = (0..members).map(|number| (field(number), Labels::empty())).collect();
    let (tokens, layout) = store.register_groups("default", "cpu", &groups, &members).unwrap();
    Target { tokens, layout: Some(layout) }
}

/// Walks between 0 and 100, made before.
fn walks(kind: &str) -> Vec<f64> {
    let mut state = 1u64;
    let mut value = 50.0f64;
    let mut next = || {
        let mut sum = 0.0;
        for _ in 0..4 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sum += (state >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        }
        value = (value + sum * 1.73).clamp(0.0, 100.0);
        match kind {
            "doubles" => value + sum / 1e6,
            "decimals" => (value * 100.0).round() / 100.0,
            _ => value.trunc(),
        }
    };
    (0..1 << 16).map(|_| next()).collect()
}

fn read_back(store: &Store) {
    store.compact_all().unwrap();
    for attempt in ["first", "again"] {
        let (begun, cpu) = (Instant::now(), thread_cpu_seconds());
        let reader = store.reader();
        let mut samples = 0;
        for group in store.select("default", &compile(&[]).unwrap()).unwrap() {
            samples += reader
                .read(&group, &TimeRange::ALL)
                .unwrap()
                .iter()
                .map(|read| read.timestamps_ns().len())
                .sum::<usize>();
        }
        let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), thread_cpu_seconds() - cpu);
        let millions = samples as f64 / 1e6;
        println!(
            "  read {attempt}: {millions:.0} M samples, M a second {:.1}, a CPU second {:.1}",
            millions / seconds,
            millions / cpu_seconds
        );
    }
}

fn measure(members: usize, values_max: u64, kind: &str, form: Option<&str>) {
    let name = format!("thalweg-insert-{}{}", std::process::id(), form.unwrap_or_default());
    let folder = std::env::temp_dir().join(name);
    let platform = Platform::real().with_data(&folder).unwrap();
    let store = Store::open(platform, StoreOptions::new(&folder)).unwrap();
    let target = register(&store, members);
    let walks = walks(kind);
    let is_over = AtomicBool::new(false);
    let upkeep = |work: fn(&Store) -> Result<bool, StoreError>| {
        while !is_over.load(Ordering::Relaxed) {
            if !work(&store).unwrap() {
                std::thread::park_timeout(Duration::from_millis(20));
            }
        }
        thread_cpu_seconds()
    };
    let begun = Instant::now();
    let (mut written, mut making, mut latencies) = (0u64, 0.0, Vec::new());
    let (writer, flush, merge) = std::thread::scope(|scope| {
        let flush = scope.spawn(|| upkeep(Store::maintain_heads));
        let merge = scope.spawn(|| upkeep(Store::maintain_parts));
        let start = thread_cpu_seconds();
        let rows_at_once = REQUEST_CELLS / members;
        let mut cells = vec![0; rows_at_once * members];
        let (mut row, mut step) = (0, 0);
        while written < values_max {
            let before = thread_cpu_seconds();
            let rows = rows_at_once.min(target.tokens.len() - row);
            for (place, cell) in cells.iter_mut().take(rows * members).enumerate() {
                *cell = walks[((row * members + place) * 97 + step) % walks.len()].to_bits();
            }
            making += thread_cpu_seconds() - before;
            let request = Instant::now();
            append(&store, &target, &cells[..rows * members], row, START_NS + step as i64 * STEP_NS);
            latencies.push(request.elapsed().as_secs_f64() * 1e3);
            written += (rows * members) as u64;
            row += rows;
            if row == target.tokens.len() {
                (row, step) = (0, step + 1);
            }
        }
        let writer = thread_cpu_seconds() - start - making;
        is_over.store(true, Ordering::Relaxed);
        (writer, flush.join().unwrap(), merge.join().unwrap())
    });
    let seconds = begun.elapsed().as_secs_f64();
    let stats = store.stats();
    latencies.sort_by(f64::total_cmp);
    let millions = written as f64 / 1e6;
    println!(
        "members {members}: {millions:.0} M values in {seconds:.1} s; M values a CPU second: writer {:.1}, flush {:.1}, \
         all {:.1}; CPU writer {writer:.2} flush {flush:.2} merge {merge:.2}; log {:.2} B/value; ms: p50 {:.2} p99 {:.1} max {:.1}",
        millions / writer,
        millions / flush,
        millions / (writer + flush + merge),
        stats.log.appended_bytes as f64 / written as f64,
        latencies[latencies.len() / 2],
        latencies[latencies.len() * 99 / 100],
        latencies[latencies.len() - 1],
    );
    println!("  flushes {}, merges {}; levels: {}", stats.flushes, stats.merges, levels_text(&stats));
    if let Some(form) = form {
        read_back(&store);
        println!("  in {}", if form.is_empty() { "a folder" } else { "one file" });
    }
    drop(store);
    if folder.is_file() { std::fs::remove_file(folder).unwrap() } else { std::fs::remove_dir_all(folder).unwrap() }
}

fn levels_text(stats: &Stats) -> String {
    let levels: Vec<String> = stats
        .levels
        .iter()
        .map(|level| {
            format!("{} parts, {:.1} MB, {:.1} M rows", level.parts, level.bytes as f64 / 1e6, level.rows as f64 / 1e6)
        })
        .collect();
    levels.join(" | ")
}

fn append(store: &Store, target: &Target, cells: &[u64], row: usize, timestamp_ns: i64) {
    let mut appender = store.appender();
    let width = target.layout.as_ref().map_or(1, GroupLayout::width);
    for (token, cells) in target.tokens[row..].iter().zip(cells.chunks_exact(width)) {
        match &target.layout {
            Some(layout) => appender.row(*token, layout, timestamp_ns, cells).unwrap(),
            None => appender.sample(*token, timestamp_ns, f64::from_bits(cells[0])).unwrap(),
        }
    }
    appender.commit().unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let members = arguments.first().map_or("1,10,101", String::as_str);
    let millions: u64 = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(100);
    let kind = arguments.get(2).map_or("integers", String::as_str);
    let turns: Option<usize> = arguments.get(3).and_then(|text| text.parse().ok());
    for members in members.split(',').filter_map(|text| text.parse().ok()) {
        match turns {
            None => measure(members, millions * 1_000_000, kind, None),
            Some(turns) => (0..turns)
                .flat_map(|_| ["", ".tsdb"])
                .for_each(|form| measure(members, millions * 1_000_000, kind, Some(form))),
        }
    }
}

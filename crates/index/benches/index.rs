//! Memory, speed and size of the index with series of ten labels, and of the catalog and with wide groups.
//!
//! `cargo bench -p thalweg-index` takes a million series; `THALWEG_BENCH_SERIES` says how many. Prints a table; times of
//! longer runs are the processor's, those of look-ups the best of several.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout, clippy::pedantic, reason = "a program for people")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Field, Labels, MatchOp, Matcher, ValueType};
use thalweg_index::{Catalog, CompiledMatcher, Groups, MetricColumns, Segment, cardinality};

/// Bytes of the process in memory; zero where the system does not tell.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}

/// Processor time of the program, so that a busy machine does not count; time of day where the system does not tell.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let nanoseconds = told.as_ref().and_then(|text| text.split(' ').next()?.parse().ok());
    nanoseconds.map_or_else(|| std::time::UNIX_EPOCH.elapsed().unwrap_or_default(), Duration::from_nanos)
}

/// Since when, in processor time.
struct Stopwatch(Duration);

impl Stopwatch {
    fn now() -> Self {
        Self(processor_time())
    }

    fn elapsed(&self) -> Duration {
        processor_time().saturating_sub(self.0)
    }
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ (number >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (number >> 32)
}

/// The metric's number and the labels of a series: as containers in pods on hosts have them.
fn series(number: u64) -> (u32, Labels) {
    let (instance, pod, container) = (number / 200, number / 20, number / 10);
    let host = mix(instance);
    let pairs = [
        ("container_id", format!("{:016x}{:016x}", mix(container + 7), mix(container + 11))),
        ("datacenter", format!("dc-{}", host % 27)),
        ("instance", format!("10.{}.{}.{}:9100", instance >> 16, instance >> 8 & 255, instance & 255)),
        ("job", format!("job-{}", host / 11 % 20)),
        ("os", ["linux", "windows", "freebsd"][(host % 3) as usize].to_owned()),
        ("pod", format!("app-{}-{:08x}-{:05x}", pod % 97, mix(pod) >> 32, pod)),
        ("rack", format!("{}", host / 7 % 100)),
        ("region", format!("region-{}", host % 9)),
        ("team", format!("team-{}", mix(pod) % 50)),
    ];
    let labels = Labels::from_sorted(pairs.iter().map(|(name, value)| (*name, value.as_str())));
    ((number % 200) as u32, labels)
}

fn line(what: &str, value: String) {
    println!("{what:<52} {value:>14}");
}

fn per(bytes: usize, count: u64) -> String {
    format!("{:.1} B", bytes as f64 / count as f64)
}

fn best_of<T>(times: usize, mut run: impl FnMut() -> T) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..times {
        let start = Instant::now();
        black_box(run());
        best = best.min(start.elapsed());
    }
    best
}

fn register_all(groups: &mut Groups, made: &[(u32, Labels)]) -> Duration {
    let start = Stopwatch::now();
    for (measurement, labels) in made {
        black_box(groups.register(0, *measurement, labels, &[0]).unwrap());
    }
    start.elapsed()
}

fn freeze(groups: &mut Groups, number: u64) -> (Duration, usize) {
    let start = Stopwatch::now();
    let mut bytes = Vec::new();
    groups.freeze().unwrap().write(&mut bytes).unwrap();
    let size = bytes.len();
    groups.install_frozen(Segment::open(number, Arc::new(bytes)).unwrap());
    (start.elapsed(), size)
}

fn matchers(groups: &Groups, what: &str) {
    let any: Vec<MetricColumns> =
        (0..200).map(|measurement| MetricColumns { measurement, slots: vec![0], decided: Vec::new() }).collect();
    let cases = [
        (200, "pod", MatchOp::Regex, "app-7-.*"),
        (200, "pod", MatchOp::Regex, ".*-00f.*"),
        (200, "pod", MatchOp::Regex, "app-(1|2|3)[0-9]-.*"),
        (200, "container_id", MatchOp::Regex, ".*dead.*"),
        (200, "instance", MatchOp::Regex, r"10\.0\.1[0-9]\..*"),
        (1, "region", MatchOp::Equal, "region-3"),
        (1, "region", MatchOp::NotEqual, "region-3"),
        (1, "container_id", MatchOp::Regex, ".+"),
    ];
    for (metrics, name, op, value) in cases {
        let compiled = [CompiledMatcher::new(&Matcher::new(name, op, value)).unwrap()];
        let columns = &any[..metrics];
        let start = Instant::now();
        let found = groups.select(0, columns, &compiled).unwrap().len();
        let first = start.elapsed();
        let again = best_of(5, || groups.select(0, columns, &compiled).unwrap());
        line(&format!("{what}: {} -> {found}", compiled_text(name, op, value)), format!("{first:.1?} / {again:.1?}"));
    }
    let three = [("region", "region-3"), ("os", "linux"), ("datacenter", "dc-3")];
    let three: Vec<CompiledMatcher> = three
        .iter()
        .map(|(name, value)| CompiledMatcher::new(&Matcher::new(*name, MatchOp::Equal, *value)).unwrap())
        .collect();
    line(
        &format!("{what}: name, region, os and datacenter"),
        format!("{:.1?}", best_of(20, || groups.select(0, &any[..1], &three).unwrap())),
    );
}

fn compiled_text(name: &str, op: MatchOp, value: &str) -> String {
    Matcher::new(name, op, value).to_string()
}

fn main() {
    let count: u64 = std::env::var("THALWEG_BENCH_SERIES").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let made: Vec<(u32, Labels)> = (0..count).map(series).collect();
    line("series", count.to_string());
    let before = resident_bytes();
    let mut groups = Groups::with_hash_seed(42);
    let took = register_all(&mut groups, &made);
    line("register, all in one mutable segment", format!("{:.0} k/s", count as f64 / took.as_secs_f64() / 1e3));
    line("mutable, counted", per(groups.memory_bytes(), count));
    line("mutable, by the growth of the process", per(resident_bytes() - before, count));
    matchers(&groups, "mutable");
    let (took, bytes) = freeze(&mut groups, 1);
    line("freeze", format!("{took:.1?}"));
    line("frozen, file", per(bytes, count));
    line("frozen, in memory beside the file", per(groups.memory_bytes(), count));
    matchers(&groups, "frozen");
    line(
        "register again, all known",
        format!("{:.0} k/s", count as f64 / register_all(&mut groups, &made).as_secs_f64() / 1e3),
    );
    let mut reader = groups.reader();
    let random = (0..100_000u64).map(|number| (mix(number) % count) as u32);
    let start = Stopwatch::now();
    random.for_each(|id| drop(black_box(reader.get(id).unwrap())));
    line("labels of a random group", format!("{:.2?}", start.elapsed() / 100_000));
    let start = Stopwatch::now();
    (0..100_000u32.min(count as u32)).for_each(|id| drop(black_box(reader.get(id).unwrap())));
    line("labels of the next group", format!("{:.2?}", start.elapsed() / 100_000));
    line("cardinality, top 10", format!("{:.1?}", best_of(3, || cardinality(&[&groups], 0, 10, &|_| true).unwrap())));
    drop(reader);
    drop(groups);
    in_pieces(&made);
    members(count);
}

/// A wide group: as many fields of one measurement.
fn members(count: u64) {
    let mut catalog = Catalog::default();
    let (database, _) = catalog.register_database("default");
    let (measurement, _) = catalog.register_measurement(database, "wide");
    let start = Stopwatch::now();
    for number in 0..count {
        let field = Field { name: format!("sensor_{number:07}"), value_type: ValueType::F64 };
        black_box(catalog.register_field(measurement, &field).unwrap());
    }
    line(
        "catalog: fields of one measurement",
        format!("{:.0} k/s", count as f64 / start.elapsed().as_secs_f64() / 1e3),
    );
    line("  in memory", per(catalog.memory_bytes(), count));
    let mut groups = Groups::with_hash_seed(42);
    let (id, _) = groups.register(0, measurement, &Labels::empty(), &[]).unwrap();
    let slots: Vec<u32> = (0..count as u32).collect();
    assert!(slots.chunks(1000).all(|some| groups.extend(id, some).unwrap()));
    line("  index of the group that has them all", format!("{} B", groups.memory_bytes()));
}

/// As a server does: frozen whenever it is due, merged as decided.
fn in_pieces(made: &[(u32, Labels)]) {
    let mut groups = Groups::with_hash_seed(42);
    let (mut number, mut largest) = (0, 0);
    let (mut writing, mut merged) = (Duration::ZERO, Duration::ZERO);
    let start = Stopwatch::now();
    for some in made.chunks(10_000) {
        register_all(&mut groups, some);
        largest = largest.max(groups.memory_bytes());
        if groups.freeze_due() {
            number += 1;
            writing += freeze(&mut groups, number).0;
        }
        while let Some(job) = groups.merge_due() {
            let started = Stopwatch::now();
            number += 1;
            let mut bytes = Vec::new();
            job.write(&mut bytes).unwrap();
            groups.install_merged(&job, Segment::open(number, Arc::new(bytes)).unwrap());
            merged += started.elapsed();
        }
    }
    let took = start.elapsed();
    line(
        "register with freezing and merging, all in",
        format!("{:.0} k/s", made.len() as f64 / took.as_secs_f64() / 1e3),
    );
    line("  of which freezing, merging", format!("{writing:.1?}, {merged:.1?}"));
    line("  segments at the end", groups.segments().len().to_string());
    line("  largest in memory", format!("{:.1} MiB", largest as f64 / f64::from(1 << 20)));
    let job = groups.merge_all();
    let start = Stopwatch::now();
    let mut bytes = Vec::new();
    if let Some(job) = job {
        job.write(&mut bytes).unwrap();
        line("  merge all", format!("{:.1?}, {}", start.elapsed(), per(bytes.len(), made.len() as u64)));
    }
    let start = Instant::now();
    let segment = Segment::open(1, Arc::new(bytes)).ok();
    line("  open", format!("{:.1?}", start.elapsed()));
    drop(segment);
}

//! How fast the parsers are on lines like those of the Time Series Benchmark Suite (cpu-only: ten tags, ten fields).
//! Throughput is in bytes; divide by the bytes per value that each benchmark's name gives.
#![allow(missing_docs, reason = "criterion's macros make public items")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop at once")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ingest::line::{self, Precision};

use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, Protocol, exposition, graphite, opentsdb, otlp, remote_write};
use wire::data::{Encoder, Message, Outgoing, Request, Values};
use wire::frame::{HEADER_BYTES, MessageBuffer};
use wire::rows::Rows;

const LINES: usize = 10_000;
const FIELDS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];

/// A small generator of numbers: the benchmark needs the same lines every time, not good randomness.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn key(host: usize) -> String {
    let rack = host % 100;
    format!(
        "cpu,hostname=host_{host},region=eu-central-1,datacenter=eu-central-1a,rack={rack},os=Ubuntu15.10,arch=x86,\
         team=SF,service=19,service_version=1,service_environment=test"
    )
}

fn lines(hosts: usize, mut value: impl FnMut(&mut Numbers) -> String) -> String {
    let mut numbers = Numbers(1);
    let mut text = String::new();
    for place in 0..LINES {
        text.push_str(&key(place % hosts));
        for (field, name) in FIELDS.iter().enumerate() {
            let comma = if field == 0 { ' ' } else { ',' };
            write!(text, "{comma}{name}={}", value(&mut numbers)).unwrap();
        }
        let seconds = 1_451_606_400 + place / hosts * 10;
        writeln!(text, " {seconds}000000000").unwrap();
    }
    text
}

fn line_protocol(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = line::Options {
        hasher: hasher.scope(Protocol::Line, 1),
        precision: Precision::Nanosecond,
        now_ns: 0,
        limits: &limits,
    };
    let mut group = criterion.benchmark_group("line");
    let bodies = [
        ("integers", lines(4_000, |numbers| format!("{}i", numbers.below(101)))),
        ("two decimals", lines(4_000, |numbers| format!("{}.{:02}", numbers.below(100), numbers.below(100)))),
        ("17 digits", lines(4_000, |numbers| format!("{}.{:015}", numbers.below(100), numbers.below(1 << 31)))),
    ];
    for (name, body) in bodies {
        group.throughput(Throughput::Bytes(body.len() as u64));
        let bytes_per_value = body.len() / LINES / FIELDS.len();
        group.bench_function(BenchmarkId::new(name, format!("{bytes_per_value} B a value")), |bencher| {
            bencher.iter(|| {
                let parsed = line::parse(black_box(body.as_bytes()), &options).unwrap();
                assert_eq!(parsed.batch.values(), LINES * FIELDS.len());
                parsed.batch.blocks[0].cells[7]
            });
        });
    }
    group.finish();
}

/// FrogFishDB's comparison of text and tokens: the same points as lines, as one batch of the binary protocol, and as batches
/// of one point each. Throughput is in points.
fn text_against_tokens(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = line::Options {
        hasher: hasher.scope(Protocol::Line, 1),
        precision: Precision::Nanosecond,
        now_ns: 0,
        limits: &limits,
    };
    let body = lines(4_000, |numbers| format!("{}", numbers.below(101)));
    let one_line: Vec<&str> = body.lines().collect();
    let (tokens, timestamps_ns): (Vec<u64>, Vec<i64>) =
        (0..LINES).map(|place| (place as u64 % 4_000, 1_451_606_400_000_000_000 + place as i64)).unzip();
    let mut numbers = Numbers(1);
    let columns: Vec<Vec<f64>> =
        FIELDS.iter().map(|_| (0..LINES).map(|_| numbers.below(101) as f64).collect()).collect();
    let slots: Vec<u32> = (0..FIELDS.len() as u32).collect();
    let message = |from: usize, to: usize| {
        let columns: Vec<(Values<'_>, &[u8])> =
            columns.iter().map(|column| (Values::F64(&column[from..to]), [].as_slice())).collect();
        let (tokens, timestamps_ns) = (&tokens[from..to], &timestamps_ns[from..to]);
        let block = Outgoing { measurement: 0, slots: &slots, tokens, timestamps_ns, columns: &columns };
        let mut frame = Vec::new();
        Encoder::default().batch(1, &[block], &mut frame).unwrap();
        MessageBuffer::copied_from(&frame[HEADER_BYTES..])
    };
    let (whole, single) = (message(0, LINES), (0..LINES).map(|place| message(place, place + 1)).collect::<Vec<_>>());
    let read = |buffer: &MessageBuffer, rows: &mut Rows| {
        let message = Message::new(buffer.bytes()).unwrap();
        let Request::Batch(batch) = message.request().unwrap() else { return 0 };
        let block = batch.blocks().next().unwrap().unwrap();
        block.stretches().for_each(|stretch| block.read(stretch, rows).unwrap());
        rows.cells[7]
    };
    let mut group = criterion.benchmark_group("text against tokens");
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("lines, all at once", |bencher| {
        bencher.iter(|| line::parse(black_box(body.as_bytes()), &options).unwrap().batch.values());
    });
    group.bench_function("lines, one by one", |bencher| {
        let parse = |line: &&str| line::parse(black_box(line.as_bytes()), &options).unwrap().batch.values();
        bencher.iter(|| one_line.iter().map(parse).sum::<usize>());
    });
    let mut rows = Rows::default();
    group.bench_function("tokens, all at once", |bencher| bencher.iter(|| read(black_box(&whole), &mut rows)));
    group.bench_function("tokens, one by one", |bencher| {
        bencher.iter(|| single.iter().map(|buffer| read(black_box(buffer), &mut rows)).sum::<u64>());
    });
    group.finish();
}

fn agent_labels(host: &str) -> Vec<(&str, &str)> {
    vec![
        ("__name__", "cpu_usage_user"),
        ("arch", "x86"),
        ("datacenter", "eu-central-1a"),
        ("hostname", host),
        ("os", "Ubuntu15.10"),
        ("rack", "67"),
        ("region", "eu-central-1"),
        ("service", "19"),
        ("service_environment", "test"),
        ("team", "SF"),
    ]
}

/// A thousand series of ten labels, as agents send them.
fn write_request(samples_per_series: usize) -> Vec<u8> {
    let samples: Vec<(i64, f64)> =
        (0..samples_per_series).map(|place| (1_451_606_400_000 + place as i64 * 10_000, place as f64)).collect();
    let mut body = Vec::new();
    for series in 0..1000 {
        let host = format!("host_{series}");
        let labels = agent_labels(&host);
        body.extend(remote_write::encode(&[remote_write::Series { labels: &labels, samples: &samples }], &[]));
    }
    body
}

fn remote_writes(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options =
        remote_write::Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
    let mut group = criterion.benchmark_group("remote write, packed");
    for samples_per_series in [1, 10] {
        let packed = remote_write::compress(&write_request(samples_per_series));
        group.throughput(Throughput::Elements(1000 * samples_per_series as u64));
        group.bench_function(
            BenchmarkId::from_parameter(format!("{samples_per_series} samples a series")),
            |bencher| {
                bencher.iter(|| {
                    let body = remote_write::decompress(black_box(packed.clone()), 1 << 24).unwrap();
                    remote_write::parse(&body, &options).unwrap().batch.rows()
                });
            },
        );
    }
    group.finish();
}

fn expositions(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options = exposition::Options {
        hasher: hasher.scope(Protocol::Exposition, 1),
        format: exposition::Format::Text,
        now_ns: 0,
        extra_labels: &[],
        limits: &limits,
    };
    let mut body = String::from("# HELP node_cpu_seconds_total Seconds.\n# TYPE node_cpu_seconds_total counter\n");
    for place in 0..LINES {
        writeln!(body, "node_cpu_seconds_total{{cpu=\"{place}\",mode=\"idle\"}} {place}.25").unwrap();
    }
    let mut group = criterion.benchmark_group("exposition");
    group.throughput(Throughput::Elements(LINES as u64));
    group.bench_function("samples", |bencher| {
        bencher.iter(|| exposition::parse(black_box(body.as_bytes()), &options).unwrap().batch.rows());
    });
    group.finish();
}

/// The same series as version 2 spells them, labels once in a table.
fn remote_writes_v2(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let options =
        remote_write::Options { hasher: hasher.scope(Protocol::RemoteWrite, 1), limits: &limits, dropped_label: None };
    let hosts: Vec<String> = (0..1000).map(|host| format!("host_{host}")).collect();
    let labels: Vec<Vec<(&str, &str)>> = hosts.iter().map(|host| agent_labels(host)).collect();
    let mut group = criterion.benchmark_group("remote write 2.0, packed");
    for samples_per_series in [1, 10] {
        let samples: Vec<(i64, f64)> = (0..samples_per_series).map(|place| (place * 10_000, place as f64)).collect();
        let series: Vec<remote_write::SeriesV2<'_>> = labels
            .iter()
            .map(|labels| remote_write::SeriesV2 { labels, samples: &samples, ..remote_write::SeriesV2::default() })
            .collect();
        let packed = remote_write::compress(&remote_write::encode_v2(&series));
        group.throughput(Throughput::Elements(1000 * samples_per_series as u64));
        let name = format!("{samples_per_series} samples a series");
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| {
                let body = remote_write::decompress(black_box(packed.clone()), 1 << 24).unwrap();
                remote_write::parse_v2(&body, &options).unwrap().batch.rows()
            });
        });
    }
    group.finish();
}

fn open_telemetry(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let (limits, settings) = (Limits::default(), otlp::Settings::default());
    let deltas = otlp::Deltas::default();
    let options = otlp::Options {
        hasher: hasher.scope(Protocol::Otlp, 1),
        settings: &settings,
        deltas: &deltas,
        now_ns: 0,
        limits: &limits,
    };
    let hosts: Vec<String> = (0..1000).map(|host| format!("host_{host}")).collect();
    let attributes: Vec<Vec<(&str, &str)>> = hosts.iter().map(|host| agent_labels(host)).collect();
    let points: Vec<otlp::NumberPoint<'_>> =
        attributes.iter().map(|attributes| otlp::NumberPoint { attributes, time_ns: 1, value: 2.5 }).collect();
    let body = otlp::encode_gauge(&[("service.name", "cart")], "lib", "cpu.usage", "1", &points);
    let mut group = criterion.benchmark_group("OpenTelemetry");
    group.throughput(Throughput::Elements(1000));
    group.bench_function("gauges of ten attributes", |bencher| {
        bencher.iter(|| otlp::parse(black_box(&body), &options).unwrap().batch.rows());
    });
    group.finish();
}

fn lines_of_one_value(criterion: &mut Criterion) {
    let hasher = KeyHasher::new([42; KEY_SECRET_BYTES]);
    let limits = Limits::default();
    let (mut plain, mut tagged, mut telnet) = (String::new(), String::new(), String::new());
    for place in 0..LINES {
        writeln!(plain, "servers.host_{place}.cpu.usage_user {place}.25 1700000000").unwrap();
        writeln!(tagged, "cpu.usage_user;host=host_{place};rack=67;region=eu {place}.25 1700000000").unwrap();
        writeln!(telnet, "put cpu.usage_user 1700000000 {place}.25 host=host_{place} rack=67 region=eu").unwrap();
    }
    let mut group = criterion.benchmark_group("lines of one value");
    group.throughput(Throughput::Elements(LINES as u64));
    let options = graphite::Options { hasher: hasher.scope(Protocol::Graphite, 1), now_ns: 0, limits: &limits };
    for (name, body) in [("Graphite", &plain), ("Graphite with tags", &tagged)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| graphite::parse(black_box(body.as_bytes()), &options).unwrap().batch.rows());
        });
    }
    let options = opentsdb::Options { hasher: hasher.scope(Protocol::Opentsdb, 1), limits: &limits };
    group.bench_function("OpenTSDB", |bencher| {
        bencher.iter(|| opentsdb::parse_telnet(black_box(telnet.as_bytes()), &options).unwrap().0.batch.rows());
    });
    group.finish();
}

criterion_group!(
    benches,
    text_against_tokens,
    line_protocol,
    remote_writes,
    remote_writes_v2,
    open_telemetry,
    lines_of_one_value,
    expositions
);
criterion_main!(benches);

//! Speed and size of the column schemes: `cargo bench -p thalweg-codec`. The bits a value are in each benchmark's name.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use thalweg_codec::{Reader, float, integer};

const VALUES: usize = 1024;

/// A walk with small steps, kept between two bounds, as the cpu gauges of the Time Series Benchmark Suite.
fn walk(step_of: impl Fn(u64) -> f64) -> Vec<f64> {
    let mut state = 42u64;
    let mut value = 50.0f64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        value = (value + step_of(state >> 33)).clamp(0.0, 100.0);
        value
    };
    (0..VALUES).map(|_| next()).collect()
}

fn floats(criterion: &mut Criterion) {
    let sets = [
        ("integers", walk(|random| (random % 5) as f64 - 2.0)),
        ("two decimals", walk(|random| (random % 5) as f64 - 2.0).iter().map(|value| value / 100.0).collect()),
        ("full precision", walk(|random| (random as f64 / 2e9) - 0.5)),
    ];
    let mut group = criterion.benchmark_group("float");
    group.throughput(Throughput::Elements(VALUES as u64));
    for (name, values) in sets {
        let mut out = Vec::new();
        float::encode(&values, &mut out);
        let bits = out.len() as f64 * 8.0 / VALUES as f64;
        group.bench_function(format!("encode {name}, {bits:.2} bits"), |bencher| {
            bencher.iter(|| {
                let mut out = Vec::with_capacity(VALUES * 9);
                float::encode(black_box(&values), &mut out);
                out
            });
        });
        group.bench_function(format!("decode {name}, {bits:.2} bits"), |bencher| {
            bencher.iter(|| {
                let mut values = Vec::with_capacity(VALUES);
                float::decode(&mut Reader::new(black_box(&out)), VALUES, &mut values).map(|()| values)
            });
        });
    }
}

fn timestamps(criterion: &mut Criterion) {
    let values: Vec<i64> =
        (0..VALUES as i64).map(|n| 1_700_000_000_000_000_000 + (n * 10_000 + n * 7919 % 11) * 1_000_000).collect();
    let mut out = Vec::new();
    integer::encode(&values, &mut out);
    let bits = out.len() as f64 * 8.0 / VALUES as f64;
    let mut group = criterion.benchmark_group("integer");
    group.throughput(Throughput::Elements(VALUES as u64));
    group.bench_function(format!("encode jittered timestamps, {bits:.2} bits"), |bencher| {
        bencher.iter(|| {
            let mut out = Vec::with_capacity(VALUES * 9);
            integer::encode(black_box(&values), &mut out);
            out
        });
    });
    group.bench_function(format!("decode jittered timestamps, {bits:.2} bits"), |bencher| {
        bencher.iter(|| {
            let mut values = Vec::with_capacity(VALUES);
            integer::decode(&mut Reader::new(black_box(&out)), VALUES, &mut values).map(|()| values)
        });
    });
}

criterion_group!(benches, floats, timestamps);
criterion_main!(benches);

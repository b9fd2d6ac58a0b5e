//! Time of setting and getting answers: `cargo bench -p thalweg-cache`.
#![allow(missing_docs, clippy::unwrap_used, clippy::pedantic, reason = "a program for people")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use platform::Platform;
use thalweg_cache::policy::Policy;
use thalweg_cache::{Answer, Cache, FieldPoints, Front, Key, Options, Points, PolicyKind, Request, Span, Values};

const POINTS: i64 = 1000;

fn answer(start: i64) -> Answer {
    let timestamps: Vec<i64> = (start..start + POINTS).map(|time| time * 30).collect();
    let values = Values::F64(timestamps.iter().map(|time| ((time * 7919) % 1000) as f64 / 10.0).collect());
    let points = Points { series: vec![0; timestamps.len()], timestamps, values };
    Answer { series: vec![Arc::from("")], fields: vec![FieldPoints { name: Arc::from("load"), points }] }
}

fn span(start: i64) -> Span {
    Span::new(start * 30, (start + POINTS) * 30)
}

fn engine(criterion: &mut Criterion) {
    let path = std::env::temp_dir().join(format!("thalweg-cache-bench-{}", std::process::id()));
    let options = Options::new(&path, 256 << 20);
    let cache = Cache::open(&Platform::real(), options).unwrap();
    let mut group = criterion.benchmark_group("cache");
    group.throughput(Throughput::Elements(POINTS as u64));
    let mut next = 0;
    group.bench_function("set", |bencher| {
        bencher.iter(|| {
            next += POINTS;
            let key = Key::of_statement(&(next / POINTS % 50).to_string());
            cache.set(key, &answer(next), span(next)).unwrap();
        });
    });
    let key = Key::of_statement("read");
    cache.set(key, &answer(0), span(0)).unwrap();
    cache.flush().unwrap();
    group.bench_function("get", |bencher| bencher.iter(|| black_box(cache.get(key, span(0)))));
    group.finish();
    drop(cache);
    std::fs::remove_file(&path).unwrap();
}

fn front(criterion: &mut Criterion) {
    let front = Front::new(64 << 20);
    let key = Key::of_statement("read");
    front.insert(key, answer(0), span(0), 0);
    let request = Request { key, span: span(0), partial_bytes_min: None, holds: &|_, _| true };
    criterion.bench_function("memory/get", |bencher| bencher.iter(|| black_box(front.find(&request))));
}

fn policies(criterion: &mut Criterion) {
    for kind in PolicyKind::ALL {
        let mut policy: Box<dyn Policy> = kind.policy(1000);
        (0..1000).for_each(|slab| policy.insert(slab, i64::from(slab)));
        let mut next = 1000;
        criterion.bench_function(&format!("policy/{}", kind.name()), |bencher| {
            bencher.iter(|| {
                next += 1;
                policy.touch(next % 1000);
                policy.evict();
                policy.insert(next, i64::from(next));
            });
        });
    }
}

criterion_group!(benches, engine, front, policies);
criterion_main!(benches);

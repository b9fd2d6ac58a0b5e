//! Speed and size of the columns, per set of data and effort: `cargo bench -p thalweg-codec`. The bits a value are in
//! each benchmark's name.
#![allow(missing_docs, reason = "criterion's macros make public functions")]

mod data;

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use data::{Floats, Integers};
use thalweg_codec::{Effort, Reader, float, integer};

/// Values a column, as chunks of the lower levels have them.
const VALUES: usize = 4096;

fn floats(criterion: &mut Criterion) {
    for (name, values) in data::floats(VALUES) {
        let Floats(values) = values;
        bench(
            criterion,
            &format!("float {name}"),
            |effort, out| float::encode_with(black_box(&values), effort, out),
            |bytes, values: &mut Vec<f64>| float::decode(&mut Reader::new(black_box(bytes)), VALUES, values).is_ok(),
        );
    }
}

fn integers(criterion: &mut Criterion) {
    for (name, values) in data::integers(VALUES) {
        let Integers(values) = values;
        bench(
            criterion,
            &format!("integer {name}"),
            |effort, out| integer::encode_with(black_box(&values), effort, out),
            |bytes, values| integer::decode(&mut Reader::new(black_box(bytes)), VALUES, values).is_ok(),
        );
    }
}

fn bench<T>(
    criterion: &mut Criterion,
    name: &str,
    encode: impl Fn(Effort, &mut Vec<u8>),
    decode: impl Fn(&[u8], &mut Vec<T>) -> bool,
) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(VALUES as u64));
    group.sample_size(10).warm_up_time(Duration::from_millis(50)).measurement_time(Duration::from_millis(200));
    for effort in [Effort::Fast, Effort::Small] {
        let mut bytes = Vec::new();
        encode(effort, &mut bytes);
        let label = format!("{effort:?}, tag {}, {:.3} bits", bytes[0], bytes.len() as f64 * 8.0 / VALUES as f64);
        let mut out = Vec::with_capacity(VALUES * 9);
        group.bench_function(format!("{label}, encode"), |bencher| {
            bencher.iter(|| {
                out.clear();
                encode(effort, &mut out);
            });
        });
        let mut values = Vec::with_capacity(VALUES);
        group.bench_function(format!("{label}, decode"), |bencher| {
            bencher.iter(|| {
                values.clear();
                decode(&bytes, &mut values)
            });
        });
    }
}

criterion_group!(benches, floats, integers);
criterion_main!(benches);

//! Native histograms and floats of one metric: out of the head, out of the log, out of parts.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use index::compile;
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{
    Batch, Block, Field, GroupIdentity, GroupKey, HISTOGRAM_FIELD, Labels, NativeHistogram, STALE_NAN_BITS,
    SampleColumn, TimeRange, VALUE_FIELD, ValueType,
};
use platform::sim::Simulation;
use thalweg_store::{Store, StoreError, StoreOptions};

fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let measurement = std::str::from_utf8(key).map_err(|error| error.to_string())?.to_owned();
    Ok(GroupIdentity { measurement, labels: Labels::empty() })
}

fn counted(number: u64) -> NativeHistogram {
    let layout = HistogramLayout {
        schema: 3,
        zero_threshold: 1e-128,
        positive_spans: vec![BucketSpan { offset: -2, length: 2 }, BucketSpan { offset: 3, length: 1 }],
        ..HistogramLayout::default()
    };
    let counts = Counts { count: 3 * number, zero_count: 0, positive: vec![number; 3], negative: Vec::new() };
    NativeHistogram {
        layout: Arc::new(layout),
        counter_reset: CounterReset::NoReset,
        sum: number as f64 * 0.1,
        counts: HistogramCounts::Integer(counts),
    }
}

fn fractions(number: u64) -> NativeHistogram {
    let layout = HistogramLayout {
        schema: -53,
        positive_spans: vec![BucketSpan { offset: 0, length: 2 }],
        custom_bounds: vec![0.5],
        ..HistogramLayout::default()
    };
    let counts = Counts { count: 1.5, zero_count: 0.0, positive: vec![1.0, 0.5], negative: Vec::new() };
    NativeHistogram {
        layout: Arc::new(layout),
        counter_reset: CounterReset::Gauge,
        sum: number as f64,
        counts: HistogramCounts::Float(counts),
    }
}

/// A histogram that ends its series, as Prometheus sends it.
fn stale() -> NativeHistogram {
    NativeHistogram { sum: f64::from_bits(STALE_NAN_BITS), ..counted(0) }
}

fn lone_block(name: &str, value_type: ValueType, key: GroupKey, rows: &[(i64, u64)]) -> Block {
    Block {
        measurement: None,
        fields: vec![Field { name: name.to_owned(), value_type }],
        keys: vec![key; rows.len()],
        timestamps_ns: rows.iter().map(|(timestamp_ns, _)| *timestamp_ns).collect(),
        lines: (1..).take(rows.len()).collect(),
        cells: rows.iter().map(|(_, cell)| *cell).collect(),
    }
}

/// Rows of the metric `x`: histograms, and floats under the same key.
fn batch(histograms: &[(i64, NativeHistogram)], floats: &[(i64, f64)]) -> Batch<'static> {
    let mut batch = Batch::new(&[], decode_key);
    let key = GroupKey { hash: 42, text: batch.push_text(b"x") };
    let rows: Vec<_> = histograms.iter().map(|(time, value)| (*time, batch.push_histogram(value.clone()))).collect();
    batch.blocks.push(lone_block(HISTOGRAM_FIELD, ValueType::Histogram, key, &rows));
    let rows: Vec<_> = floats.iter().map(|(time, value)| (*time, value.to_bits())).collect();
    batch.blocks.push(lone_block(VALUE_FIELD, ValueType::F64, key, &rows));
    batch
}

fn bits(value: &NativeHistogram) -> (u64, NativeHistogram) {
    (value.sum.to_bits(), NativeHistogram { sum: 0.0, ..value.clone() })
}

fn check(store: &Store, histograms: &[(i64, NativeHistogram)], floats: &[(i64, f64)]) {
    let groups = store.select("default", &compile(&[]).unwrap()).unwrap();
    assert_eq!(groups.len(), 1);
    let (mut found_histograms, mut found_floats) = (Vec::new(), Vec::new());
    for (selected, column) in groups[0].columns.iter().zip(store.read(&groups[0], &TimeRange::ALL).unwrap()) {
        assert_eq!(selected.metric, "x");
        match column {
            SampleColumn::Histogram(times, values) => found_histograms.extend(times.into_iter().zip(values)),
            SampleColumn::F64(times, values) => found_floats.extend(times.into_iter().zip(values)),
            other => assert_eq!(other, SampleColumn::empty(ValueType::F64)),
        }
    }
    let plain =
        |rows: &[(i64, NativeHistogram)]| rows.iter().map(|(time, value)| (*time, bits(value))).collect::<Vec<_>>();
    assert_eq!(plain(&found_histograms), plain(histograms));
    assert_eq!(found_floats, floats);
}

fn open(simulation: &Simulation) -> Store {
    let options = StoreOptions { log_segment_bytes: 1 << 16, ..StoreOptions::new("data") };
    Store::open(simulation.platform(), options).unwrap()
}

#[test]
fn they_come_back_from_everywhere() {
    let simulation = Simulation::new(7);
    let store = open(&simulation);
    let first: Vec<_> = (1..40).map(|number| (number * 1000, counted(number as u64))).collect();
    let second = [(40_000, fractions(7)), (41_000, stale()), (42_000, counted(3))];
    let floats = [(500, 1.5), (50_000, 2.5)];
    store.write("default", &batch(&first, &floats[..1])).unwrap();
    let both = [first.as_slice(), &second].concat();
    check(&store, &first, &floats[..1]);
    drop(store);
    let store = open(&simulation);
    check(&store, &first, &floats[..1]);
    store.flush_all().unwrap();
    check(&store, &first, &floats[..1]);
    store.write("default", &batch(&second, &floats[1..])).unwrap();
    check(&store, &both, &floats);
    store.flush_all().unwrap();
    store.compact_all().unwrap();
    check(&store, &both, &floats);
    drop(store);
    check(&open(&simulation), &both, &floats);
}

#[test]
fn one_that_contradicts_itself_is_refused_and_named() {
    let simulation = Simulation::new(8);
    let store = open(&simulation);
    let mut wrong = counted(1);
    wrong.counts = HistogramCounts::Integer(Counts { positive: vec![1], ..Counts::default() });
    let refused = store.write("default", &batch(&[(1, counted(1)), (2, wrong)], &[]));
    let Err(StoreError::Invalid(message)) = refused else { unreachable!("{refused:?}") };
    assert_eq!(message, "item 2: native histogram: number of bucket counts differs from the spans' buckets");
}

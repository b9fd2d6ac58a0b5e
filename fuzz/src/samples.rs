//! Samples that no text says: values that are not numbers, marks of ends, native histograms.

use ingest::remote_write::{SeriesV2, encode_v2};
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};
use model::{NativeHistogram, STALE_NAN_BITS};

/// A message of remote write 2.0 with such samples, every ten seconds from a time on.
pub fn odd_samples(start_ms: i64, rows: i64, step_ms: i64) -> Vec<u8> {
    let stale = f64::from_bits(STALE_NAN_BITS);
    let odd = [f64::NAN, 1.0, f64::INFINITY, stale, f64::NEG_INFINITY, -0.0, 5e-324, 1e308];
    let times = || (0..rows).map(|row| (row, start_ms + row * step_ms));
    let samples: Vec<(i64, f64)> = times().map(|(row, time_ms)| (time_ms, odd[row as usize % odd.len()])).collect();
    let exponential: Vec<_> = times().map(|(row, time_ms)| (time_ms, histogram(row, 1, &[]))).collect();
    let custom: Vec<_> = times().map(|(row, time_ms)| (time_ms, histogram(row, -53, &[0.5, 1.0, 2.0]))).collect();
    let ends: Vec<_> =
        times().map(|(row, time_ms)| (time_ms, histogram(row, if row % 2 == 0 { 8 } else { -4 }, &[]))).collect();
    encode_v2(&[
        SeriesV2 { labels: &[("__name__", "odd"), ("host", "a")], samples: &samples, ..SeriesV2::default() },
        SeriesV2 {
            labels: &[("__name__", "odd"), ("host", "b")],
            samples: &samples[..1],
            start_ms,
            ..SeriesV2::default()
        },
        SeriesV2 {
            labels: &[("__name__", "h"), ("kind", "exponential")],
            histograms: &exponential,
            ..SeriesV2::default()
        },
        SeriesV2 { labels: &[("__name__", "h"), ("kind", "custom")], histograms: &custom, ..SeriesV2::default() },
        SeriesV2 { labels: &[("__name__", "h"), ("kind", "mixed")], histograms: &ends, ..SeriesV2::default() },
    ])
}

fn histogram(row: i64, schema: i8, custom_bounds: &[f64]) -> NativeHistogram {
    let spans = vec![BucketSpan { offset: 0, length: 2 }, BucketSpan { offset: 1, length: 1 }];
    let is_custom = !custom_bounds.is_empty();
    let layout = HistogramLayout {
        schema,
        zero_threshold: if is_custom { 0.0 } else { 0.001 },
        positive_spans: spans.clone(),
        negative_spans: if is_custom { Vec::new() } else { spans },
        custom_bounds: custom_bounds.to_vec(),
    };
    let each = row as f64;
    let negative = if is_custom { Vec::new() } else { vec![each, 0.0, 1.0] };
    let zero_count = if is_custom { 0.0 } else { each / 2.0 };
    let positive = vec![1.0, each, 2.0];
    let count = zero_count + positive.iter().chain(&negative).sum::<f64>();
    let counts = HistogramCounts::Float(Counts { count, zero_count, positive, negative });
    NativeHistogram { layout: layout.into(), counter_reset: CounterReset::default(), sum: each * 3.0, counts }
}

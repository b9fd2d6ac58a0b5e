//! Native histograms between the batch, where they are values, and the bytes that log, head and chunks hold.

use std::sync::Arc;

use codec::{Reader, histogram};
use model::NativeHistogram;
use model::histogram::{BucketSpan, CounterReset, Counts, HistogramCounts, HistogramLayout};

/// Appends the bytes of a histogram that was found valid.
pub(crate) fn push_bytes(value: &NativeHistogram, out: &mut Vec<u8>) {
    // Counts that fit the layout, and no more buckets than one may have, are all that it asks for.
    let _ = histogram::encode_row(&to_codec(value), out);
}

/// A histogram from its bytes. Shares the layout of the one before it if it is the same.
pub(crate) fn from_bytes(bytes: &[u8], before: Option<&NativeHistogram>) -> Option<NativeHistogram> {
    let mut value = from_codec(&histogram::decode_row(&mut Reader::new(bytes)).ok()?)?;
    if let Some(before) = before.filter(|before| before.layout == value.layout) {
        value.layout = Arc::clone(&before.layout);
    }
    Some(value)
}

fn to_codec(value: &NativeHistogram) -> histogram::Histogram {
    let layout = &value.layout;
    let spans = |spans: &[BucketSpan]| spans.iter().map(|span| (span.offset, span.length)).collect();
    histogram::Histogram {
        layout: Arc::new(histogram::Layout {
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            positive_spans: spans(&layout.positive_spans),
            negative_spans: spans(&layout.negative_spans),
            custom_bounds: layout.custom_bounds.clone(),
        }),
        hint: value.counter_reset as u8,
        sum: value.sum,
        counts: match &value.counts {
            HistogramCounts::Integer(counts) => histogram::Counts::Integer(counts_to_codec(counts)),
            HistogramCounts::Float(counts) => histogram::Counts::Float(counts_to_codec(counts)),
        },
    }
}

fn counts_to_codec<T: Copy>(counts: &Counts<T>) -> histogram::CountsOf<T> {
    histogram::CountsOf {
        count: counts.count,
        zero_count: counts.zero_count,
        positive: counts.positive.clone(),
        negative: counts.negative.clone(),
    }
}

fn from_codec(value: &histogram::Histogram) -> Option<NativeHistogram> {
    let layout = &value.layout;
    let spans = |spans: &[(i32, u32)]| {
        spans.iter().map(|(offset, length)| BucketSpan { offset: *offset, length: *length }).collect()
    };
    Some(NativeHistogram {
        layout: Arc::new(HistogramLayout {
            schema: layout.schema,
            zero_threshold: layout.zero_threshold,
            positive_spans: spans(&layout.positive_spans),
            negative_spans: spans(&layout.negative_spans),
            custom_bounds: layout.custom_bounds.clone(),
        }),
        counter_reset: CounterReset::from_number(value.hint)?,
        sum: value.sum,
        counts: match &value.counts {
            histogram::Counts::Integer(counts) => HistogramCounts::Integer(counts_from_codec(counts)),
            histogram::Counts::Float(counts) => HistogramCounts::Float(counts_from_codec(counts)),
        },
    })
}

fn counts_from_codec<T: Copy>(counts: &histogram::CountsOf<T>) -> Counts<T> {
    Counts {
        count: counts.count,
        zero_count: counts.zero_count,
        positive: counts.positive.clone(),
        negative: counts.negative.clone(),
    }
}

//! The way back: series to a write request.

use std::collections::HashMap;

use model::histogram::HistogramCounts;
use model::{Exemplar, MetricMetadata, NativeHistogram};

use crate::protobuf::{write_bytes, write_fixed64, write_varint, write_varint_field, zigzag};

/// A series to write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series<'a> {
    /// Names and values, sorted by name, `__name__` among them. Written as they are given.
    pub labels: &'a [(&'a str, &'a str)],
    /// Milliseconds since the Unix epoch, and values.
    pub samples: &'a [(i64, f64)],
}

/// The message `prometheus.WriteRequest` of floats alone, not packed.
pub fn encode(series: &[Series<'_>], metadata: &[MetricMetadata]) -> Vec<u8> {
    let of = |series: &Series<'_>| {
        encode_series(&SeriesV2 { labels: series.labels, samples: series.samples, ..SeriesV2::default() })
    };
    encode_request(series.iter().map(of), metadata)
}

/// The message `prometheus.WriteRequest`, not packed. Start times and metadata of series have no place in it.
pub fn encode_v1(series: &[SeriesV2<'_>], metadata: &[MetricMetadata]) -> Vec<u8> {
    encode_request(series.iter().map(encode_series), metadata)
}

fn encode_request(series: impl Iterator<Item = Vec<u8>>, metadata: &[MetricMetadata]) -> Vec<u8> {
    let mut request = Vec::new();
    series.for_each(|series| write_bytes(&mut request, 1, &series));
    for MetricMetadata { family, kind, help, unit } in metadata {
        let mut message = vec![1 << 3];
        write_varint(&mut message, *kind as u64);
        write_bytes(&mut message, 2, family.as_bytes());
        write_bytes(&mut message, 4, help.as_bytes());
        write_bytes(&mut message, 5, unit.as_bytes());
        write_bytes(&mut request, 3, &message);
    }
    request
}

/// A series of version 1.
fn encode_series(series: &SeriesV2<'_>) -> Vec<u8> {
    let (mut message, mut part) = (Vec::new(), Vec::new());
    for (name, value) in series.labels {
        write_label(&mut message, &mut part, name, value);
    }
    for (timestamp_ms, value) in series.samples {
        write_sample(&mut message, &mut part, *timestamp_ms, *value);
    }
    for exemplar in series.exemplars {
        let mut body = Vec::new();
        exemplar.labels.iter().for_each(|(name, value)| write_label(&mut body, &mut part, name, value));
        write_fixed64(&mut body, 2, exemplar.value.to_bits());
        write_varint_field(&mut body, 3, (exemplar.timestamp_ns / 1_000_000) as u64);
        write_bytes(&mut message, 3, &body);
    }
    for (timestamp_ms, histogram) in series.histograms {
        write_bytes(&mut message, 4, &encode_histogram(histogram, *timestamp_ms));
    }
    message
}

/// A label: field 1 of a series, and of an exemplar.
fn write_label(message: &mut Vec<u8>, part: &mut Vec<u8>, name: &str, value: &str) {
    part.clear();
    write_bytes(part, 1, name.as_bytes());
    write_bytes(part, 2, value.as_bytes());
    write_bytes(message, 1, part);
}

/// A sample as both versions spell it: field 2 of a series.
fn write_sample(message: &mut Vec<u8>, part: &mut Vec<u8>, timestamp_ms: i64, value: f64) {
    part.clear();
    write_fixed64(part, 1, value.to_bits());
    write_varint_field(part, 2, timestamp_ms as u64);
    write_bytes(message, 2, part);
}

/// A series with all that it may have to write.
#[derive(Debug, Clone, Default)]
pub struct SeriesV2<'a> {
    /// Names and values, sorted by name, `__name__` among them. Written as they are given.
    pub labels: &'a [(&'a str, &'a str)],
    /// Milliseconds since the Unix epoch, and values.
    pub samples: &'a [(i64, f64)],
    /// Milliseconds since the Unix epoch, and native histograms.
    pub histograms: &'a [(i64, NativeHistogram)],
    /// Exemplars; their times are cut to milliseconds.
    pub exemplars: &'a [Exemplar],
    /// Since when the series counts, in milliseconds since the Unix epoch; 0 if that is not known.
    pub start_ms: i64,
    /// Metadata of its family.
    pub metadata: Option<&'a MetricMetadata>,
}

/// The message `io.prometheus.write.v2.Request`, not packed.
pub fn encode_v2(series: &[SeriesV2<'_>]) -> Vec<u8> {
    let mut symbols = Symbols::default();
    symbols.number("");
    let mut all = Vec::new();
    for series in series {
        write_bytes(&mut all, 5, &encode_series_v2(series, &mut symbols));
    }
    let mut request = Vec::new();
    for symbol in &symbols.texts {
        write_bytes(&mut request, 4, symbol.as_bytes());
    }
    request.extend_from_slice(&all);
    request
}

fn encode_series_v2(series: &SeriesV2<'_>, symbols: &mut Symbols) -> Vec<u8> {
    let mut message = Vec::new();
    write_bytes(&mut message, 1, &symbols.numbers(series.labels.iter().copied()));
    for (timestamp_ms, value) in series.samples {
        let mut part = Vec::new();
        write_fixed64(&mut part, 1, value.to_bits());
        write_varint_field(&mut part, 2, *timestamp_ms as u64);
        write_varint_field(&mut part, 3, series.start_ms as u64);
        write_bytes(&mut message, 2, &part);
    }
    for (timestamp_ms, histogram) in series.histograms {
        let mut part = encode_histogram(histogram, *timestamp_ms);
        write_varint_field(&mut part, 17, series.start_ms as u64);
        write_bytes(&mut message, 3, &part);
    }
    for exemplar in series.exemplars {
        let mut part = Vec::new();
        write_bytes(&mut part, 1, &symbols.numbers(exemplar.labels.iter()));
        write_fixed64(&mut part, 2, exemplar.value.to_bits());
        write_varint_field(&mut part, 3, (exemplar.timestamp_ns / 1_000_000) as u64);
        write_bytes(&mut message, 4, &part);
    }
    if let Some(MetricMetadata { kind, help, unit, .. }) = series.metadata {
        let mut part = Vec::new();
        write_varint_field(&mut part, 1, *kind as u64);
        write_varint_field(&mut part, 3, symbols.number(help));
        write_varint_field(&mut part, 4, symbols.number(unit));
        write_bytes(&mut message, 5, &part);
    }
    message
}

/// The message `Histogram` of both versions.
pub(crate) fn encode_histogram(histogram: &NativeHistogram, timestamp_ms: i64) -> Vec<u8> {
    let layout = &histogram.layout;
    let mut message = Vec::new();
    write_fixed64(&mut message, 3, histogram.sum.to_bits());
    write_varint_field(&mut message, 4, zigzag(i64::from(layout.schema)));
    write_fixed64(&mut message, 5, layout.zero_threshold.to_bits());
    for (number, spans) in [(8, &layout.negative_spans), (11, &layout.positive_spans)] {
        for span in spans {
            let mut part = Vec::new();
            write_varint_field(&mut part, 1, zigzag(i64::from(span.offset)));
            write_varint_field(&mut part, 2, u64::from(span.length));
            write_bytes(&mut message, number, &part);
        }
    }
    match &histogram.counts {
        HistogramCounts::Integer(counts) => {
            write_varint_field(&mut message, 1, counts.count);
            write_varint_field(&mut message, 6, counts.zero_count);
            for (number, counts) in [(9, &counts.negative), (12, &counts.positive)] {
                let mut part = Vec::new();
                let mut before = 0i64;
                for count in counts {
                    write_varint(&mut part, zigzag((*count as i64).wrapping_sub(before)));
                    before = *count as i64;
                }
                write_bytes(&mut message, number, &part);
            }
        }
        HistogramCounts::Float(counts) => {
            write_fixed64(&mut message, 2, counts.count.to_bits());
            write_fixed64(&mut message, 7, counts.zero_count.to_bits());
            for (number, counts) in [(10, &counts.negative), (13, &counts.positive)] {
                write_bytes(&mut message, number, &floats(counts));
            }
        }
    }
    write_varint_field(&mut message, 14, histogram.counter_reset as u64);
    write_varint_field(&mut message, 15, timestamp_ms as u64);
    write_bytes(&mut message, 16, &floats(&layout.custom_bounds));
    message
}

fn floats(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect()
}

/// Texts, each once.
#[derive(Default)]
struct Symbols {
    texts: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Symbols {
    /// References to names and values, packed.
    fn numbers<'a>(&mut self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
        let mut packed = Vec::new();
        for text in labels.flat_map(|(name, value)| [name, value]) {
            write_varint(&mut packed, self.number(text));
        }
        packed
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.texts.len() as u64;
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

/// Packs a message as the protocol sends it: one snappy block.
pub fn compress(message: &[u8]) -> Vec<u8> {
    // Fails only for inputs of 4 GiB, which no receiver would take; an empty block is what is left to send then.
    snap::raw::Encoder::new().compress_vec(message).unwrap_or_default()
}

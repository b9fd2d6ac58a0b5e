//! The way back: series to a write request.

use std::collections::HashMap;

use model::MetricMetadata;

use crate::protobuf::{write_bytes, write_fixed64, write_varint, write_varint_field};

/// A series to write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series<'a> {
    /// Names and values, sorted by name, `__name__` among them. Written as they are given.
    pub labels: &'a [(&'a str, &'a str)],
    /// Milliseconds since the Unix epoch, and values.
    pub samples: &'a [(i64, f64)],
}

/// The message `prometheus.WriteRequest`, not packed.
pub fn encode(series: &[Series<'_>], metadata: &[MetricMetadata]) -> Vec<u8> {
    let mut request = Vec::new();
    let (mut message, mut part) = (Vec::new(), Vec::new());
    for series in series {
        message.clear();
        for (name, value) in series.labels {
            part.clear();
            write_bytes(&mut part, 1, name.as_bytes());
            write_bytes(&mut part, 2, value.as_bytes());
            write_bytes(&mut message, 1, &part);
        }
        for (timestamp_ms, value) in series.samples {
            write_sample(&mut message, &mut part, *timestamp_ms, *value);
        }
        write_bytes(&mut request, 1, &message);
    }
    for MetricMetadata { family, kind, help, unit } in metadata {
        message.clear();
        message.push(1 << 3);
        write_varint(&mut message, *kind as u64);
        write_bytes(&mut message, 2, family.as_bytes());
        write_bytes(&mut message, 4, help.as_bytes());
        write_bytes(&mut message, 5, unit.as_bytes());
        write_bytes(&mut request, 3, &message);
    }
    request
}

/// A sample as both versions spell it: field 2 of a series.
fn write_sample(message: &mut Vec<u8>, part: &mut Vec<u8>, timestamp_ms: i64, value: f64) {
    part.clear();
    write_fixed64(part, 1, value.to_bits());
    write_varint_field(part, 2, timestamp_ms as u64);
    write_bytes(message, 2, part);
}

/// The message `io.prometheus.write.v2.Request`, not packed. Each series may bring metadata of its family.
pub fn encode_v2(series: &[(Series<'_>, Option<&MetricMetadata>)]) -> Vec<u8> {
    let mut symbols = Symbols::default();
    symbols.number("");
    let mut all = Vec::new();
    let (mut message, mut part) = (Vec::new(), Vec::new());
    for (series, metadata) in series {
        message.clear();
        part.clear();
        for text in series.labels.iter().flat_map(|(name, value)| [name, value]) {
            write_varint(&mut part, symbols.number(text));
        }
        write_bytes(&mut message, 1, &part);
        for (timestamp_ms, value) in series.samples {
            write_sample(&mut message, &mut part, *timestamp_ms, *value);
        }
        if let Some(MetricMetadata { kind, help, unit, .. }) = metadata {
            part.clear();
            write_varint_field(&mut part, 1, *kind as u64);
            write_varint_field(&mut part, 3, symbols.number(help));
            write_varint_field(&mut part, 4, symbols.number(unit));
            write_bytes(&mut message, 5, &part);
        }
        write_bytes(&mut all, 5, &message);
    }
    let mut request = Vec::new();
    for symbol in &symbols.texts {
        write_bytes(&mut request, 4, symbol.as_bytes());
    }
    request.extend_from_slice(&all);
    request
}

/// Texts, each once.
#[derive(Default)]
struct Symbols {
    texts: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Symbols {
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

//! The way back: series to a write request.

use model::MetricMetadata;

use super::wire::{write_bytes, write_varint};

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
            part.clear();
            part.push(1 << 3 | 1);
            part.extend_from_slice(&value.to_bits().to_le_bytes());
            part.push(2 << 3);
            write_varint(&mut part, *timestamp_ms as u64);
            write_bytes(&mut message, 2, &part);
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

/// Packs a message as the protocol sends it: one snappy block.
pub fn compress(message: &[u8]) -> Vec<u8> {
    // Fails only for inputs of 4 GiB, which no receiver would take; an empty block is what is left to send then.
    snap::raw::Encoder::new().compress_vec(message).unwrap_or_default()
}

//! Prometheus remote read, <https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/>: a snappy block around a
//! `prometheus.ReadRequest`, answered with samples (`prometheus.ReadResponse`, packed alike) or with frames of chunks
//! (`prometheus.ChunkedReadResponse`).
//!
//! * `xor.rs`: Prometheus's chunks of floats.
//! * `histogram.rs`: those of native histograms.

mod histogram;
#[cfg(test)]
mod tests;
mod xor;

use model::{MatchOp, Matcher, NativeHistogram};

use crate::BodyError;
use crate::protobuf::{Value, Walker, malformed, write_bytes, write_fixed64, write_varint, write_varint_field};
use crate::remote_write::encode_histogram;

/// Queries of one request.
const QUERIES_MAX: usize = 1_000;

/// Samples of a chunk, as Prometheus cuts them.
const CHUNK_SAMPLES: usize = 120;

/// The number of their encoding in `prometheus.Chunk`, of floats.
const XOR: u64 = 1;

/// Bytes of chunks that go into one frame; a frame ends behind the chunk that passes them.
const FRAME_BYTES: usize = 1 << 20;

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadRequest {
    /// Answered one by one, in order.
    pub queries: Vec<ReadQuery>,
    /// What the client takes, what it likes best first; samples, if it says nothing.
    pub accepted: Vec<ResponseType>,
}

/// Which series, and which stretch of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadQuery {
    /// First millisecond wanted.
    pub start_ms: i64,
    /// Last millisecond wanted.
    pub end_ms: i64,
    /// All must hold.
    pub matchers: Vec<Matcher>,
}

/// A form of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseType {
    /// One message with all samples.
    Samples,
    /// Frames of chunks.
    StreamedChunks,
}

/// A series of an answer.
#[derive(Debug, Clone, Copy)]
pub struct ReadSeries<'a> {
    /// Names and values, sorted by name.
    pub labels: &'a [(&'a str, &'a str)],
    /// Milliseconds since the Unix epoch, ascending.
    pub timestamps_ms: &'a [i64],
    /// As many as timestamps.
    pub values: &'a [f64],
    /// Milliseconds since the Unix epoch, and native histograms.
    pub histograms: &'a [(i64, NativeHistogram)],
}

/// Reads an unpacked request.
///
/// # Errors
///
/// If it is no such message, or has more than 1,000 queries.
pub fn parse(body: &[u8]) -> Result<ReadRequest, BodyError> {
    let mut request = ReadRequest::default();
    let mut fields = Walker::new(body, 0..body.len());
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Bytes(_)) if request.queries.len() == QUERIES_MAX => {
                return Err(BodyError::Malformed(format!("more than {QUERIES_MAX} queries in one request")));
            }
            (1, Value::Bytes(range)) => request.queries.push(read_query(body, range)?),
            (2, Value::Varint(number)) => request.accepted.extend(response_type(number)),
            (2, Value::Bytes(range)) => {
                let mut numbers = Walker::new(body, range);
                while let Some(number) = numbers.next_varint()? {
                    request.accepted.extend(response_type(number));
                }
            }
            _ => {}
        }
    }
    if request.accepted.is_empty() {
        request.accepted.push(ResponseType::Samples);
    }
    Ok(request)
}

const fn response_type(number: u64) -> Option<ResponseType> {
    match number {
        0 => Some(ResponseType::Samples),
        1 => Some(ResponseType::StreamedChunks),
        _ => None,
    }
}

fn read_query(body: &[u8], range: std::ops::Range<usize>) -> Result<ReadQuery, BodyError> {
    let mut query = ReadQuery::default();
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Varint(time_ms)) => query.start_ms = time_ms as i64,
            (2, Value::Varint(time_ms)) => query.end_ms = time_ms as i64,
            (3, Value::Bytes(range)) => query.matchers.push(read_matcher(body, range)?),
            _ => {}
        }
    }
    Ok(query)
}

fn read_matcher(body: &[u8], range: std::ops::Range<usize>) -> Result<Matcher, BodyError> {
    let at = range.start;
    let (mut op, mut name, mut value) = (MatchOp::Equal, "", "");
    let text = |range| {
        let bytes = body.get(range).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|_| malformed("a matcher that is not UTF-8", at))
    };
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Varint(number)) => {
                op = match number {
                    0 => MatchOp::Equal,
                    1 => MatchOp::NotEqual,
                    2 => MatchOp::Regex,
                    3 => MatchOp::NotRegex,
                    _ => return Err(malformed("a matcher of an unknown kind", field.start)),
                }
            }
            (2, Value::Bytes(range)) => name = text(range)?,
            (3, Value::Bytes(range)) => value = text(range)?,
            _ => {}
        }
    }
    Ok(Matcher::new(name, op, value))
}

fn write_labels(message: &mut Vec<u8>, labels: &[(&str, &str)]) {
    let mut label = Vec::new();
    for (name, value) in labels {
        label.clear();
        write_bytes(&mut label, 1, name.as_bytes());
        write_bytes(&mut label, 2, value.as_bytes());
        write_bytes(message, 1, &label);
    }
}

/// Adds a series to what will be one `prometheus.QueryResult`.
pub fn push_samples(result: &mut Vec<u8>, series: &ReadSeries<'_>) {
    let (mut message, mut sample) = (Vec::new(), Vec::new());
    write_labels(&mut message, series.labels);
    for (time_ms, value) in series.timestamps_ms.iter().zip(series.values) {
        sample.clear();
        write_fixed64(&mut sample, 1, value.to_bits());
        write_varint_field(&mut sample, 2, *time_ms as u64);
        write_bytes(&mut message, 2, &sample);
    }
    for (time_ms, histogram) in series.histograms {
        write_bytes(&mut message, 4, &encode_histogram(histogram, *time_ms));
    }
    write_bytes(result, 1, &message);
}

/// The message `prometheus.ReadResponse` of results, not packed.
pub fn read_response(results: &[Vec<u8>]) -> Vec<u8> {
    let mut response = Vec::new();
    results.iter().for_each(|result| write_bytes(&mut response, 1, result));
    response
}

/// Adds the frames of a series, its chunks in order of time: each a length, a checksum (CRC-32C, big-endian) and a `prometheus.ChunkedReadResponse`.
pub fn push_frames(out: &mut Vec<u8>, query: usize, series: &ReadSeries<'_>) {
    let mut chunks = Vec::new();
    let mut left = *series;
    while let Some(chunk) = left.take_chunk() {
        write_bytes(&mut chunks, 2, &chunk);
        if chunks.len() > FRAME_BYTES {
            push_frame(out, query, series.labels, &chunks);
            chunks.clear();
        }
    }
    if !chunks.is_empty() {
        push_frame(out, query, series.labels, &chunks);
    }
}

impl ReadSeries<'_> {
    /// Takes the message of the first chunk: as many floats or histograms as there are before one of the other kind.
    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let (float_ms, histogram_ms) =
            (self.timestamps_ms.first(), self.histograms.first().map(|(time_ms, _)| *time_ms));
        if let Some(float_ms) =
            float_ms.filter(|float_ms| histogram_ms.is_none_or(|histogram_ms| **float_ms <= histogram_ms))
        {
            let is_before =
                |time_ms: &i64| histogram_ms.is_none_or(|histogram_ms| *time_ms <= histogram_ms.max(*float_ms));
            let count = self.timestamps_ms.partition_point(is_before).min(CHUNK_SAMPLES).min(self.values.len());
            let (times_ms, later_ms) = self.timestamps_ms.split_at_checked(count)?;
            let (values, later) = self.values.split_at_checked(count)?;
            (self.timestamps_ms, self.values) = (later_ms, later);
            return Some(chunk(*times_ms.first()?, *times_ms.last()?, XOR, &xor::encode(times_ms, values)));
        }
        let before = self.histograms.partition_point(|(time_ms, _)| float_ms.is_none_or(|float_ms| time_ms < float_ms));
        let count = histogram::chunk_length(self.histograms.get(..before)?, CHUNK_SAMPLES);
        let (histograms, later) = self.histograms.split_at_checked(count)?;
        self.histograms = later;
        let ((first_ms, _), (last_ms, _)) = (histograms.first()?, histograms.last()?);
        let (encoding, bytes) = histogram::encode(histograms);
        Some(chunk(*first_ms, *last_ms, encoding, &bytes))
    }
}

/// The message `prometheus.Chunk`.
fn chunk(first_ms: i64, last_ms: i64, encoding: u64, bytes: &[u8]) -> Vec<u8> {
    let mut chunk = Vec::new();
    write_varint_field(&mut chunk, 1, first_ms as u64);
    write_varint_field(&mut chunk, 2, last_ms as u64);
    write_varint_field(&mut chunk, 3, encoding);
    write_bytes(&mut chunk, 4, bytes);
    chunk
}

fn push_frame(out: &mut Vec<u8>, query: usize, labels: &[(&str, &str)], chunks: &[u8]) {
    let mut series = Vec::new();
    write_labels(&mut series, labels);
    series.extend_from_slice(chunks);
    let mut message = Vec::new();
    write_bytes(&mut message, 1, &series);
    write_varint_field(&mut message, 2, query as u64);
    write_varint(out, message.len() as u64);
    out.extend(crc32c::crc32c(&message).to_be_bytes());
    out.extend_from_slice(&message);
}

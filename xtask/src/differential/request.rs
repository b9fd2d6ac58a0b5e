//! A request of Prometheus's remote write, version 1, packed as snappy has it. Written anew and not taken from the project, so that a
//! mistake there shows.

/// A series of one request.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// Sorted by name.
    pub(crate) labels: Vec<(String, String)>,
    /// Milliseconds and values.
    pub(crate) floats: Vec<(i64, f64)>,
    /// Milliseconds and histograms.
    pub(crate) histograms: Vec<(i64, Histogram)>,
}

/// A native histogram of schema 0 without negative buckets.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    pub(crate) sum: f64,
    pub(crate) zero_threshold: f64,
    pub(crate) zero_count: u64,
    /// Counts of the buckets from the one up to 1 on.
    pub(crate) buckets: Vec<u64>,
}

/// A message of protocol buffers, being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn double(&mut self, field: u64, value: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The body of a request.
pub(crate) fn body(series: &[Series]) -> Vec<u8> {
    let mut request = Message::default();
    for series in series {
        request.bytes(1, &series_message(series));
    }
    packed(&request.0)
}

fn series_message(series: &Series) -> Vec<u8> {
    let mut message = Message::default();
    for (name, value) in &series.labels {
        let mut label = Message::default();
        label.bytes(1, name.as_bytes());
        label.bytes(2, value.as_bytes());
        message.bytes(1, &label.0);
    }
    for (time_ms, value) in &series.floats {
        let mut sample = Message::default();
        sample.double(1, *value);
        sample.number(2, *time_ms as u64);
        message.bytes(2, &sample.0);
    }
    for (time_ms, histogram) in &series.histograms {
        message.bytes(4, &histogram_message(*time_ms, histogram));
    }
    message.0
}

fn histogram_message(time_ms: i64, histogram: &Histogram) -> Vec<u8> {
    let mut message = Message::default();
    message.number(1, histogram.zero_count + histogram.buckets.iter().sum::<u64>());
    message.double(3, histogram.sum);
    message.double(5, histogram.zero_threshold);
    message.number(6, histogram.zero_count);
    let mut span = Message::default();
    span.number(2, histogram.buckets.len() as u64);
    message.bytes(11, &span.0);
    let (mut deltas, mut before) = (Message::default(), 0);
    for count in &histogram.buckets {
        deltas.varint(zigzag(*count as i64 - before));
        before = *count as i64;
    }
    message.bytes(12, &deltas.0);
    message.number(15, time_ms as u64);
    message.0
}

/// Snappy's block format, nothing made smaller: the length, then literals of at most 64 KiB.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Message::default();
    packed.varint(bytes.len() as u64);
    for piece in bytes.chunks(1 << 16) {
        // A literal whose length less one follows in two bytes.
        packed.0.push(61 << 2);
        packed.0.extend(((piece.len() - 1) as u16).to_le_bytes());
        packed.0.extend_from_slice(piece);
    }
    packed.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_bytes_of_the_specification() {
        let series = Series {
            labels: vec![("a".to_owned(), "b".to_owned())],
            floats: vec![(300, 1.0)],
            histograms: vec![(1, Histogram { sum: 0.0, zero_threshold: 0.0, zero_count: 2, buckets: vec![3, 1] })],
        };
        let zero = [0; 8];
        let label = [&[0x0a, 6][..], b"\x0a\x01a\x12\x01b"].concat();
        let sample = [&[0x12, 12, 0x09][..], &1.0_f64.to_le_bytes(), &[0x10, 0xac, 2]].concat();
        let histogram =
            [&[8, 6, 0x19][..], &zero, &[0x29], &zero, &[0x30, 2, 0x5a, 2, 0x10, 2, 0x62, 2, 6, 3, 0x78, 1]].concat();
        let histogram = [&[0x22, histogram.len() as u8][..], &histogram].concat();
        let series_bytes = [label, sample, histogram].concat();
        assert_eq!(series_message(&series), series_bytes);
        let request = [&[0x0a, series_bytes.len() as u8][..], &series_bytes].concat();
        let head = [request.len() as u8, 61 << 2, (request.len() - 1) as u8, 0];
        assert_eq!(body(&[series]), [&head[..], &request].concat());
    }
}

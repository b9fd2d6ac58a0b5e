//! Prometheus remote write 1.0: a snappy block around the protobuf message `prometheus.WriteRequest`.
//!
//! A series' key is the run of its label fields as sent, so that labels are parsed only for series that the store does
//! not know ([`decode_key`]). All samples go into one block of lone series. Stale markers and other NaNs keep their
//! bits. Exemplars and native histograms are counted and left out.

mod encode;
#[cfg(test)]
mod tests;
mod wire;

use std::ops::Range;

use model::{
    Batch, Block, Field, GroupIdentity, GroupKey, Labels, METRIC_NAME, MetricKind, MetricMetadata, Span, VALUE_FIELD,
    ValueType,
};

pub use encode::{Series, compress, encode};

use crate::{BodyError, Limits, LineErrors, ScopedKeyHasher, check_body_size};
use wire::{Value, Walker, WireField, malformed};

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::RemoteWrite`].
    pub hasher: ScopedKeyHasher<'a>,
    /// Bounds on series.
    pub limits: &'a Limits,
}

/// What a write request holds.
#[derive(Debug)]
pub struct WriteRequest<'body> {
    /// The samples, and metadata. "Lines" are the series of the request, counted from 1.
    pub batch: Batch<'body>,
    /// Series, or single samples of them, that were left out.
    pub errors: LineErrors,
    /// Native histogram samples that were left out.
    pub histograms_dropped: u64,
    /// Exemplars that were left out.
    pub exemplars_dropped: u64,
}

impl WriteRequest<'_> {
    /// For the sender: what was left out because Thalweg does not store it yet.
    pub fn dropped_reason(&self) -> Option<String> {
        let Self { histograms_dropped, exemplars_dropped, .. } = self;
        let dropped = histograms_dropped + exemplars_dropped > 0;
        dropped.then(|| {
            format!("not stored: {histograms_dropped} native histogram samples and {exemplars_dropped} exemplars")
        })
    }
}

/// Unpacks a snappy block, refusing one that unpacks to more than `size_bytes_max`.
pub fn decompress(body: &[u8], size_bytes_max: usize) -> Result<Vec<u8>, BodyError> {
    let not_snappy = |error| BodyError::Malformed(format!("not a snappy block: {error}"));
    if snap::raw::decompress_len(body).map_err(not_snappy)? > size_bytes_max {
        return Err(BodyError::TooLarge { size_bytes_max: size_bytes_max as u64, limit: "the body, unpacked" });
    }
    snap::raw::Decoder::new().decompress_vec(body).map_err(not_snappy)
}

/// Parses an unpacked body. Fails if it is not a protobuf message; a series that is merely wrong is left out.
pub fn parse<'body>(body: &'body [u8], options: &Options<'_>) -> Result<WriteRequest<'body>, BodyError> {
    check_body_size(body)?;
    let mut parser = Parser::new(body, options);
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        match (field.number, field.value) {
            (1, Value::Bytes(range)) => parser.series(range)?,
            (3, Value::Bytes(range)) => parser.metadata(range)?,
            _ => {}
        }
    }
    Ok(parser.finish())
}

struct Parser<'body, 'options> {
    body: &'body [u8],
    options: &'options Options<'options>,
    request: WriteRequest<'body>,
    block: Block,
    series: u32,
}

impl<'body, 'options> Parser<'body, 'options> {
    fn new(body: &'body [u8], options: &'options Options<'options>) -> Self {
        let value = Field { name: VALUE_FIELD.to_owned(), value_type: ValueType::F64 };
        let batch = Batch::new(body, decode_key);
        let errors = LineErrors::default();
        Self {
            body,
            options,
            request: WriteRequest { batch, errors, histograms_dropped: 0, exemplars_dropped: 0 },
            block: Block { fields: vec![value], ..Block::default() },
            series: 0,
        }
    }

    fn finish(mut self) -> WriteRequest<'body> {
        if self.block.rows() > 0 {
            self.request.batch.blocks.push(self.block);
        }
        self.request
    }

    fn reject(&mut self, reason: impl FnOnce() -> String) {
        self.request.errors.push(self.options.limits.errors_max, self.series, reason);
    }

    fn series(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        self.series += 1;
        let rows_before = self.block.rows();
        let mut labels = LabelRun::default();
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match field {
                WireField { number: 1, value: Value::Bytes(_), start } => labels.add(self.body, start..fields.at()),
                WireField { number: 2, value: Value::Bytes(range), .. } => self.sample(range)?,
                WireField { number: 3, value: Value::Bytes(_), .. } => self.request.exemplars_dropped += 1,
                WireField { number: 4, value: Value::Bytes(_), .. } => self.request.histograms_dropped += 1,
                _ => {}
            }
        }
        let rows = self.block.rows() - rows_before;
        if rows > 0 {
            self.add_keys(&labels, rows);
        }
        Ok(())
    }

    /// Gives the newest rows their key, or takes them back if the key breaks a limit.
    fn add_keys(&mut self, labels: &LabelRun, rows: usize) {
        let raw_key = labels.text(self.body);
        if let Err(reason) = check_key(raw_key, labels.count, self.options.limits) {
            let rows_before = self.block.rows() - rows;
            self.block.timestamps_ns.truncate(rows_before);
            self.block.lines.truncate(rows_before);
            self.block.cells.truncate(rows_before);
            return self.reject(|| reason);
        }
        let hash = self.options.hasher.hash(raw_key);
        let text = match &labels.joined {
            None => Span { start: labels.run.start as u32, len: labels.run.len() as u32 },
            Some(joined) => self.request.batch.push_text(joined),
        };
        self.block.keys.extend(std::iter::repeat_n(GroupKey { hash, text }, rows));
    }

    #[inline]
    fn sample(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let (mut value_bits, mut time_ms) = (0, 0);
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, Value::Fixed64(bits)) => value_bits = bits,
                (2, Value::Varint(varint)) => time_ms = varint as i64,
                (1 | 2, _) => return Err(malformed("a sample of the wrong type", field.start)),
                _ => {}
            }
        }
        let Some(timestamp_ns) = time_ms.checked_mul(1_000_000) else {
            self.reject(|| format!("timestamp {time_ms} ms is out of range"));
            return Ok(());
        };
        let rows_max = self.options.limits.rows_max;
        if self.block.timestamps_ns.len() == rows_max {
            self.reject(|| format!("the request has more than {rows_max} samples (rows_max); split it"));
            return Ok(());
        }
        self.block.timestamps_ns.push(timestamp_ns);
        self.block.lines.push(self.series);
        self.block.cells.push(value_bits);
        Ok(())
    }

    fn metadata(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let mut metadata = MetricMetadata::default();
        let mut fields = Walker::new(self.body, range);
        let text = |range| String::from_utf8_lossy(self.body.get(range).unwrap_or_default()).into_owned();
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, Value::Varint(number)) => {
                    metadata.kind = MetricKind::ALL.get(number as usize).copied().unwrap_or_default();
                }
                (2, Value::Bytes(range)) => metadata.family = text(range),
                (4, Value::Bytes(range)) => metadata.help = text(range),
                (5, Value::Bytes(range)) => metadata.unit = text(range),
                _ => {}
            }
        }
        let all = &mut self.request.batch.metadata;
        if !metadata.family.is_empty() && all.len() < self.options.limits.metadata_max {
            all.push(metadata);
        }
        Ok(())
    }
}

/// The label fields of a series: one stretch of the body, as all known senders write them, or pieces put together.
#[derive(Default)]
struct LabelRun {
    run: Range<usize>,
    joined: Option<Vec<u8>>,
    count: usize,
}

impl LabelRun {
    #[inline]
    fn add(&mut self, body: &[u8], field: Range<usize>) {
        self.count += 1;
        if let Some(joined) = &mut self.joined {
            joined.extend_from_slice(body.get(field).unwrap_or_default());
        } else if self.run.is_empty() {
            self.run = field;
        } else if self.run.end == field.start {
            self.run.end = field.end;
        } else {
            let pieces = [body.get(self.run.clone()).unwrap_or_default(), body.get(field).unwrap_or_default()];
            self.joined = Some(pieces.concat());
        }
    }

    fn text<'a>(&'a self, body: &'a [u8]) -> &'a [u8] {
        self.joined.as_deref().or_else(|| body.get(self.run.clone())).unwrap_or_default()
    }
}

fn check_key(raw_key: &[u8], labels: usize, limits: &Limits) -> Result<(), String> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    if labels > *tags_max {
        return Err(format!("more than {tags_max} labels (tags_max)"));
    }
    if raw_key.len() > *key_bytes_max {
        return Err(format!("the labels take more than {key_bytes_max} bytes (key_bytes_max)"));
    }
    if raw_key.len() <= *name_bytes_max {
        return Ok(());
    }
    // The key is long enough to hide a long name. What is malformed in it is for the decoder to say.
    let mut fields = Walker::new(raw_key, 0..raw_key.len());
    while let Ok(Some(WireField { value: Value::Bytes(range), .. })) = fields.next_field() {
        let (name, value) = read_label(raw_key, range).unwrap_or_default();
        if name.len() > *name_bytes_max || name == METRIC_NAME && value.len() > *name_bytes_max {
            return Err(format!("a name is longer than {name_bytes_max} bytes (name_bytes_max)"));
        }
    }
    Ok(())
}

/// Parses the label fields of a series: the key decoder of remote-write batches. Labels must be sorted by name, each name
/// once, with a metric name among them.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut metric = "";
    let mut fields = Walker::new(key, 0..key.len());
    let mut last_name = None;
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { return Err("labels are not a message".to_owned()) };
        let (name, value) = read_label(key, range)?;
        if name.is_empty() {
            return Err("a label without a name".to_owned());
        }
        if last_name == Some(name) {
            return Err(format!("label {name:?} is given twice"));
        }
        if last_name > Some(name) {
            return Err(format!("labels are not sorted: {name:?} stands behind {:?}", last_name.unwrap_or_default()));
        }
        last_name = Some(name);
        if name == METRIC_NAME {
            metric = value;
        } else if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    if metric.is_empty() {
        return Err(format!("the series has no metric name (label {METRIC_NAME:?})"));
    }
    Ok(GroupIdentity { measurement: metric.to_owned(), labels: Labels::from_sorted(pairs) })
}

fn read_label(key: &[u8], range: Range<usize>) -> Result<(&str, &str), String> {
    let (mut name, mut value) = ("", "");
    let mut fields = Walker::new(key, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { continue };
        let text = || {
            let bytes = key.get(range.clone()).unwrap_or_default();
            std::str::from_utf8(bytes)
                .map_err(|_| format!("a label is not valid UTF-8: '{}'", String::from_utf8_lossy(bytes)))
        };
        match field.number {
            1 => name = text()?,
            2 => value = text()?,
            _ => {}
        }
    }
    Ok((name, value))
}

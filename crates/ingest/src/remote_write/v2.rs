//! Version 2: `io.prometheus.write.v2.Request`. Texts stand once in a table of symbols; series refer to them by number.

use std::collections::HashSet;
use std::ops::Range;

use model::{METRIC_NAME, MetricKind, MetricMetadata};

use super::collect::Collector;
use super::key::write_label;
use super::replica::{Replica, ReplicaLabels, ReplicaSearch};
use super::{Options, WriteRequest};
use crate::errors::{LimitName, Reason};
use crate::protobuf::{Value, Walker, WireField};
use crate::{BodyError, check_body_size};

/// Parses an unpacked body. Fails if it is not a protobuf message; a series that is merely wrong is left out.
pub fn parse_v2<'body>(body: &'body [u8], options: &Options<'_>) -> Result<WriteRequest<'body>, BodyError> {
    check_body_size(body)?;
    let symbols = Symbols::read(body)?;
    let mut parser = Parser {
        collector: Collector::new(body, options),
        symbols,
        key: Vec::new(),
        keys_bytes: 0,
        described: HashSet::new(),
    };
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        if let (5, Value::Bytes(range)) = (field.number, field.value) {
            parser.series(range)?;
        }
    }
    Ok(parser.collector.finish())
}

/// The replica that a body comes from, by the labels of its first series; `None` if they do not tell.
pub fn replica_v2<'body>(body: &'body [u8], labels: &ReplicaLabels) -> Result<Option<Replica<'body>>, BodyError> {
    check_body_size(body)?;
    let symbols = Symbols::read(body)?;
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        let (5, Value::Bytes(range)) = (field.number, field.value) else { continue };
        let mut search = ReplicaSearch::new(labels);
        let mut fields = Walker::new(body, range);
        while let Some(field) = fields.next_field()? {
            let (1, Value::Bytes(range)) = (field.number, field.value) else { continue };
            let mut references = Walker::new(body, range);
            while let (Some(name), Some(value)) = (references.next_varint()?, references.next_varint()?) {
                let text = |number| std::str::from_utf8(symbols.get(number)?).ok();
                if let (Some(name), Some(value)) = (text(name), text(value)) {
                    search.look_at(name, value);
                }
            }
        }
        return Ok(search.finish());
    }
    Ok(None)
}

/// Where the texts of the table lie in the body.
struct Symbols<'body> {
    body: &'body [u8],
    /// Start and length.
    offsets: Vec<(u32, u32)>,
}

impl<'body> Symbols<'body> {
    /// Reads the table ahead of the series: the order of fields is the sender's.
    fn read(body: &'body [u8]) -> Result<Self, BodyError> {
        let mut offsets = Vec::new();
        let mut request = Walker::new(body, 0..body.len());
        while let Some(field) = request.next_field()? {
            if let (4, Value::Bytes(range)) = (field.number, field.value) {
                offsets.push((range.start as u32, range.len() as u32));
            }
        }
        Ok(Self { body, offsets })
    }

    #[inline]
    fn get(&self, number: u64) -> Option<&'body [u8]> {
        let (start, length) = *self.offsets.get(usize::try_from(number).ok()?)?;
        self.body.get(start as usize..(start + length) as usize)
    }
}

struct Parser<'body, 'options> {
    collector: Collector<'body, 'options>,
    symbols: Symbols<'body>,
    /// The key of the series at hand, and the length of all of them.
    key: Vec<u8>,
    keys_bytes: usize,
    /// Families whose metadata was taken.
    described: HashSet<&'body [u8]>,
}

impl<'body> Parser<'body, '_> {
    fn series(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        self.collector.series += 1;
        let (mut references, mut metadata, mut has_samples) = (0..0, None, false);
        let mut pieces: Vec<Range<usize>> = Vec::new();
        let mut fields = Walker::new(self.collector.body, range);
        while let Some(field) = fields.next_field()? {
            match field {
                WireField { number: 1, value: Value::Bytes(range), .. } if references.is_empty() => references = range,
                WireField { number: 1, value: Value::Bytes(range), .. } => pieces.push(range),
                WireField { number: 1, value: Value::Varint(_), start } => {
                    return Err(crate::protobuf::malformed("label references that are not packed", start));
                }
                WireField { number: 2, value: Value::Bytes(range), .. } => {
                    has_samples = true;
                    self.collector.sample(range)?;
                }
                WireField { number: 3, value: Value::Bytes(range), .. } => {
                    has_samples = true;
                    self.collector.histogram(range)?;
                }
                WireField { number: 4, value: Value::Bytes(range), .. } => self.exemplar(range)?,
                WireField { number: 5, value: Value::Bytes(range), .. } => metadata = Some(range),
                // Earlier drafts of the message have it here.
                WireField { number: 6, value: Value::Varint(start), .. } => self.collector.started(start as i64),
                _ => {}
            }
        }
        let name = match self.spell_key(std::iter::once(references).chain(pieces))? {
            Ok(name) => name,
            Err(reason) => {
                self.collector.drop_series(reason);
                return Ok(());
            }
        };
        if !has_samples {
            self.collector.drop_series("the series has neither samples nor histograms");
            return Ok(());
        }
        if self.collector.has_keyless() {
            self.keys_bytes += self.key.len();
            let text = self.collector.request.batch.push_text(&self.key);
            self.collector.add_keys(&self.key, text);
        }
        match metadata {
            Some(range) => self.metadata(name, range),
            None => Ok(()),
        }
    }

    fn exemplar(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let (body, symbols) = (self.collector.body, &self.symbols);
        self.collector.exemplar(range, |field, pairs| {
            let Value::Bytes(range) = field else { return None };
            let mut references = Walker::new(body, range);
            while let Some(name) = references.next_varint().ok()? {
                let value = references.next_varint().ok()??;
                let text = |number| std::str::from_utf8(symbols.get(number)?).ok();
                pairs.push((text(name)?, text(value)?));
            }
            Some(())
        })
    }

    /// Puts the labels that the references stand for into the key; the metric's name. The inner error is the series'.
    fn spell_key(
        &mut self,
        pieces: impl Iterator<Item = Range<usize>>,
    ) -> Result<Result<&'body [u8], Reason>, BodyError> {
        let limits = self.collector.options.limits;
        self.key.clear();
        let (mut metric, mut labels) = (&b""[..], 0);
        for piece in pieces {
            let mut references = Walker::new(self.collector.body, piece);
            while let Some(name) = references.next_varint()? {
                let Some(value) = references.next_varint()? else {
                    return Ok(Err("a label reference without a value".into()));
                };
                let (Some(name), Some(value)) = (self.symbols.get(name), self.symbols.get(value)) else {
                    let symbols = self.symbols.offsets.len();
                    return Ok(Err(format!("a label refers to a symbol beyond the table's {symbols}").into()));
                };
                if self.collector.options.dropped_label.is_some_and(|dropped| dropped.as_bytes() == name) {
                    continue;
                }
                let is_metric = name == METRIC_NAME.as_bytes();
                if name.len() > limits.name_bytes_max || is_metric && value.len() > limits.name_bytes_max {
                    return Ok(Err(LimitName::NameBytes
                        .exceeded(format_args!("a name is longer than {} bytes", limits.name_bytes_max))));
                }
                if is_metric {
                    metric = value;
                }
                labels += 1;
                if labels > limits.tags_max {
                    return Ok(Err(LimitName::Tags.exceeded(format_args!("more than {} labels", limits.tags_max))));
                }
                if self.key.len() + name.len() + value.len() > limits.key_bytes_max {
                    let key_bytes_max = limits.key_bytes_max;
                    return Ok(Err(
                        LimitName::KeyBytes.exceeded(format_args!("the labels take more than {key_bytes_max} bytes"))
                    ));
                }
                write_label(&mut self.key, name, value);
            }
        }
        if self.keys_bytes + self.key.len() > limits.keys_bytes_max {
            let keys_bytes_max = limits.keys_bytes_max;
            return Ok(Err(LimitName::KeysBytes
                .exceeded(format_args!("the labels of all series take more than {keys_bytes_max} bytes"))));
        }
        Ok(Ok(metric))
    }

    /// Takes what a series says of its family, once a request.
    fn metadata(&mut self, metric: &'body [u8], range: Range<usize>) -> Result<(), BodyError> {
        let (mut kind, mut help, mut unit) = (MetricKind::Unknown, 0, 0);
        let mut fields = Walker::new(self.collector.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, Value::Varint(number)) => {
                    kind = MetricKind::ALL.get(number as usize).copied().unwrap_or_default();
                }
                (3, Value::Varint(number)) => help = number,
                (4, Value::Varint(number)) => unit = number,
                _ => {}
            }
        }
        let says_nothing = kind == MetricKind::Unknown && help == 0 && unit == 0;
        let family = family_of(metric, kind);
        let all = &mut self.collector.request.batch.metadata;
        let has_room = all.len() < self.collector.options.limits.metadata_max;
        if says_nothing || family.is_empty() || !has_room || !self.described.insert(family) {
            return Ok(());
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        // The first symbol is the empty text.
        let symbol = |number| if number == 0 { Some(&b""[..]) } else { self.symbols.get(number) };
        match (symbol(help), symbol(unit)) {
            (Some(help), Some(unit)) => {
                all.push(MetricMetadata { family: text(family), kind, help: text(help), unit: text(unit) });
            }
            _ => self.collector.reject("metadata was dropped: it refers to a symbol beyond the table"),
        }
        Ok(())
    }
}

/// The family of a series: of classic histograms and summaries the name without what tells their series apart.
fn family_of(metric: &[u8], kind: MetricKind) -> &[u8] {
    let suffixes: &[&[u8]] = match kind {
        MetricKind::Histogram | MetricKind::GaugeHistogram => &[b"_bucket", b"_count", b"_sum"],
        MetricKind::Summary => &[b"_count", b"_sum"],
        _ => &[],
    };
    suffixes.iter().find_map(|suffix| metric.strip_suffix(*suffix)).unwrap_or(metric)
}

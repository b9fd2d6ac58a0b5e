//! Version 1: `prometheus.WriteRequest`.

use std::ops::Range;

use model::{MetricKind, MetricMetadata, Span};

use super::collect::{Collector, plain_sample};
use super::key::{check_key, read_label};
use super::replica::{Replica, ReplicaLabels, ReplicaSearch, without_label};
use super::{Options, WriteRequest};
use crate::protobuf::{FieldRun, Value, Walker, WireField};
use crate::{BodyError, check_body_size};

/// Parses an unpacked body. Fails if it is not a protobuf message; a series that is merely wrong is left out.
pub fn parse<'body>(body: &'body [u8], options: &Options<'_>) -> Result<WriteRequest<'body>, BodyError> {
    check_body_size(body)?;
    let mut collector = Collector::new(body, options);
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        match (field.number, field.value) {
            (1, Value::Bytes(range)) => collector.series_v1(range)?,
            (3, Value::Bytes(range)) => collector.metadata_v1(range)?,
            _ => {}
        }
    }
    Ok(collector.finish())
}

/// The replica that a body comes from, by the labels of its first series; `None` if they do not tell.
pub fn replica<'body>(body: &'body [u8], labels: &ReplicaLabels) -> Result<Option<Replica<'body>>, BodyError> {
    let mut request = Walker::new(body, 0..body.len());
    while let Some(field) = request.next_field()? {
        let (1, Value::Bytes(range)) = (field.number, field.value) else { continue };
        let mut search = ReplicaSearch::new(labels);
        let mut fields = Walker::new(body, range);
        while let Some(field) = fields.next_field()? {
            if let (1, Value::Bytes(range)) = (field.number, field.value)
                && let Ok((name, value)) = read_label(body, range)
            {
                search.look_at(name, value);
            }
        }
        return Ok(search.finish());
    }
    Ok(None)
}

/// What labels and samples of a series begin with: fields 1 and 2, bytes.
const LABEL_TAG: u8 = 1 << 3 | 2;
const SAMPLE_TAG: u8 = 2 << 3 | 2;

impl Collector<'_, '_> {
    fn series_v1(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        self.series += 1;
        let mut labels = FieldRun::default();
        let mut fields = Walker::new(self.body, range);
        loop {
            let start = fields.at();
            let passed = fields.skip_short_fields(LABEL_TAG);
            if passed > 0 {
                labels.add_many(self.body, start..fields.at(), passed);
            }
            while let Some((value_bits, time_ms)) = fields.take_short_field(SAMPLE_TAG, plain_sample) {
                self.push_sample(value_bits, time_ms);
            }
            let Some(field) = fields.next_field()? else { break };
            match field {
                WireField { number: 1, value: Value::Bytes(_), start } => labels.add(self.body, start..fields.at()),
                WireField { number: 2, value: Value::Bytes(range), .. } => self.sample(range)?,
                WireField { number: 3, value: Value::Bytes(range), .. } => {
                    let body = self.body;
                    self.exemplar(range, |field, pairs| {
                        let Value::Bytes(range) = field else { return Some(()) };
                        let (name, value) = read_label(body, range).ok()?;
                        pairs.push((name, value));
                        Some(())
                    })?;
                }
                WireField { number: 4, value: Value::Bytes(range), .. } => self.histogram(range)?,
                _ => {}
            }
        }
        if !self.has_keyless() {
            return Ok(());
        }
        let raw_key = labels.text(self.body);
        if let Err(reason) = check_key(raw_key, labels.count, self.options.limits) {
            self.drop_series(reason);
            return Ok(());
        }
        let shortened = self.options.dropped_label.and_then(|name| without_label(raw_key, name));
        let text = match shortened.as_ref().or(labels.joined.as_ref()) {
            None => Span { start: labels.run.start as u32, len: labels.run.len() as u32 },
            Some(rewritten) => self.request.batch.push_text(rewritten),
        };
        self.add_keys(shortened.as_deref().unwrap_or(raw_key), text);
        Ok(())
    }

    fn metadata_v1(&mut self, range: Range<usize>) -> Result<(), BodyError> {
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

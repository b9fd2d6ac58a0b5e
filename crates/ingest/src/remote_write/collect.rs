//! What the parsers of both versions put into the batch.

use std::ops::Range;
use std::sync::Arc;

use model::{Batch, Exemplar, GroupKey, Labels, SeriesExemplar, Span, StartTimestamp};

use super::histogram::read_histogram;
use super::key::decode_key;
use super::{AcceptedSamples, Options, WriteRequest};
use crate::batch::lone::LoneRows;
use crate::errors::Reason;
use crate::protobuf::{Value, Walker, malformed};
use crate::{BodyError, LineErrors};

const NS_PER_MS: i64 = 1_000_000;

/// Characters that the labels of an exemplar may have, by OpenMetrics's rule.
const EXEMPLAR_CHARACTERS_MAX: usize = 128;

/// The request so far.
pub(super) struct Collector<'body, 'options> {
    pub(super) body: &'body [u8],
    pub(super) options: &'options Options<'options>,
    pub(super) request: WriteRequest<'body>,
    lone: LoneRows,
    histograms: LoneRows,
    /// Exemplars of the series at hand, and since when it counts (0: it is not said).
    exemplars: Vec<Exemplar>,
    start_ms: i64,
    /// Number of the series at hand, counted from 1.
    pub(super) series: u32,
}

impl<'body, 'options> Collector<'body, 'options> {
    pub(super) fn new(body: &'body [u8], options: &'options Options<'options>) -> Self {
        let request = WriteRequest {
            batch: Batch::new(body, decode_key),
            errors: LineErrors::default(),
            accepted: AcceptedSamples::default(),
        };
        Self {
            body,
            options,
            request,
            lone: LoneRows::floats(options.limits.rows_max),
            histograms: LoneRows::histograms(options.limits.histograms_max),
            exemplars: Vec::new(),
            start_ms: 0,
            series: 0,
        }
    }

    pub(super) fn finish(mut self) -> WriteRequest<'body> {
        self.request.accepted = AcceptedSamples {
            samples: self.lone.rows() as u64,
            histograms: self.histograms.rows() as u64,
            exemplars: self.request.batch.exemplars.len() as u64,
        };
        self.request.batch.blocks.extend(self.lone.into_block());
        self.request.batch.blocks.extend(self.histograms.into_block());
        self.request
    }

    pub(super) fn reject(&mut self, reason: impl Into<Reason>) {
        self.request.errors.push(self.options.limits.errors_max, self.series, reason);
    }

    /// Whether the series at hand brought anything that needs a key.
    pub(super) fn has_keyless(&self) -> bool {
        self.lone.has_keyless() || self.histograms.has_keyless() || !self.exemplars.is_empty()
    }

    /// Gives what the series at hand brought its key, whose bytes lie at this place.
    pub(super) fn add_keys(&mut self, raw_key: &[u8], text: Span) {
        let key = GroupKey { hash: self.options.hasher.hash(raw_key), text };
        self.lone.push_keys(key);
        let batch = &mut self.request.batch;
        // Most series have neither.
        if self.histograms.has_keyless() {
            self.histograms.push_keys(key);
        }
        if !self.exemplars.is_empty() {
            batch.exemplars.extend(self.exemplars.drain(..).map(|exemplar| SeriesExemplar { key, exemplar }));
        }
        if let Some(start_ns) = self.start_ms.checked_mul(NS_PER_MS).filter(|start_ns| *start_ns > 0) {
            batch.start_timestamps.push(StartTimestamp { key, start_ns });
        }
        self.start_ms = 0;
    }

    /// Takes back what the series at hand brought: it breaks a limit or is wrong.
    pub(super) fn drop_series(&mut self, reason: impl Into<Reason>) {
        self.lone.drop_keyless();
        let dropped = self.histograms.drop_keyless();
        let kept = self.request.batch.histograms.len() - dropped;
        self.request.batch.histograms.truncate(kept);
        self.exemplars.clear();
        self.start_ms = 0;
        self.reject(reason);
    }

    /// The series at hand counts since this time.
    pub(super) fn started(&mut self, start_ms: i64) {
        self.start_ms = self.start_ms.max(start_ms);
    }

    /// Reads a native histogram of either version; its row gets its key later.
    pub(super) fn histogram(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        let read = read_histogram(self.body, range)?;
        let checked = read.map_err(Reason::from).and_then(|sample| {
            let time_ms = sample.time_ms;
            let timestamp_ns = time_ms.checked_mul(NS_PER_MS);
            let timestamp_ns = timestamp_ns.ok_or_else(|| format!("timestamp {time_ms} ms is out of range"))?;
            self.histograms.check_room()?;
            Ok((sample, timestamp_ns))
        });
        match checked {
            Ok((mut sample, timestamp_ns)) => {
                self.started(sample.start_ms);
                if let Some(before) = self.request.batch.histograms.last()
                    && before.layout == sample.histogram.layout
                {
                    sample.histogram.layout = Arc::clone(&before.layout);
                }
                let cell = self.request.batch.push_histogram(sample.histogram);
                self.histograms.push_keyless(timestamp_ns, cell, self.series);
            }
            Err(reason) => self.reject(reason),
        }
        Ok(())
    }

    /// Reads an exemplar, whose labels `read_labels` reads from its first field.
    pub(super) fn exemplar<'text>(
        &mut self,
        range: Range<usize>,
        mut read_labels: impl FnMut(Value, &mut Vec<(&'text str, &'text str)>) -> Option<()>,
    ) -> Result<(), BodyError> {
        let (mut value, mut time_ms, mut pairs, mut readable) = (0.0, 0i64, Vec::new(), true);
        let mut fields = Walker::new(self.body, range);
        while let Some(field) = fields.next_field()? {
            match (field.number, field.value) {
                (1, labels) => readable &= read_labels(labels, &mut pairs).is_some(),
                (2, Value::Fixed64(bits)) => value = f64::from_bits(bits),
                (3, Value::Varint(varint)) => time_ms = varint as i64,
                _ => {}
            }
        }
        let characters: usize = pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum();
        let has_room = self.request.batch.exemplars.len() + self.exemplars.len() < self.options.limits.exemplars_max;
        let timestamp_ns = time_ms.checked_mul(NS_PER_MS);
        match (Labels::from_pairs(pairs), timestamp_ns) {
            _ if !has_room => {}
            (Ok(labels), Some(timestamp_ns)) if readable && characters <= EXEMPLAR_CHARACTERS_MAX => {
                self.exemplars.push(Exemplar { labels, value, timestamp_ns });
            }
            (_, None) => self.reject(format!("an exemplar was dropped: timestamp {time_ms} ms is out of range")),
            (Ok(_), _) if readable => self.reject(format!(
                "an exemplar was dropped: its labels have more than {EXEMPLAR_CHARACTERS_MAX} characters"
            )),
            _ => self.reject("an exemplar was dropped: its labels cannot be read"),
        }
        Ok(())
    }

    /// Reads a sample of either version; its row gets its key later.
    #[inline]
    pub(super) fn sample(&mut self, range: Range<usize>) -> Result<(), BodyError> {
        if let Some((value_bits, time_ms)) = plain_sample(self.body.get(range.clone()).unwrap_or_default()) {
            self.push_sample(value_bits, time_ms);
            return Ok(());
        }
        let (value_bits, time_ms, start_ms) = walk_sample(self.body, range)?;
        self.start_ms = self.start_ms.max(start_ms);
        self.push_sample(value_bits, time_ms);
        Ok(())
    }

    #[inline]
    pub(super) fn push_sample(&mut self, value_bits: u64, time_ms: i64) {
        let Some(timestamp_ns) = time_ms.checked_mul(NS_PER_MS) else {
            self.reject(format!("timestamp {time_ms} ms is out of range"));
            return;
        };
        if let Err(reason) = self.lone.check_room() {
            self.reject(reason);
            return;
        }
        self.lone.push_keyless(timestamp_ns, value_bits, self.series);
    }
}

/// Value, time and start (0: it is not said) of a sample, however it is spelled.
fn walk_sample(body: &[u8], range: Range<usize>) -> Result<(u64, i64, i64), BodyError> {
    let (mut value_bits, mut time_ms, mut start_ms) = (0, 0, 0);
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field()? {
        match (field.number, field.value) {
            (1, Value::Fixed64(bits)) => value_bits = bits,
            (2, Value::Varint(varint)) => time_ms = varint as i64,
            (3, Value::Varint(varint)) => start_ms = start_ms.max(varint as i64),
            (1 | 2, _) => return Err(malformed("a sample of the wrong type", field.start)),
            _ => {}
        }
    }
    Ok((value_bits, time_ms, start_ms))
}

/// Value and time of a sample that is spelled as senders do: a float, then a time, and nothing else.
#[inline]
pub(super) fn plain_sample(message: &[u8]) -> Option<(u64, i64)> {
    let ([0x09, value @ .., 0x10], time) = message.split_first_chunk::<10>()? else { return None };
    // What is longer than a word or empty is for the walker.
    if !(1..=8).contains(&time.len()) {
        return None;
    }
    let unused_bits = 64 - 8 * time.len() as u32;
    let word = u64::from_le_bytes(*message.last_chunk()?) >> unused_bits;
    // Each byte but the last says that another follows.
    if word & CONTINUES != CONTINUES >> unused_bits >> 8 {
        return None;
    }
    Some((u64::from_le_bytes(*value), septets(word) as i64))
}

/// The bit of each byte of a varint that says that another follows.
const CONTINUES: u64 = 0x8080_8080_8080_8080;

/// The number of which each byte has seven bits, the lowest first: bytes are put together two by two, then pairs, then fours.
const fn septets(word: u64) -> u64 {
    let pairs = (word & 0x7f00_7f00_7f00_7f00) >> 1 | word & 0x007f_007f_007f_007f;
    let fours = (pairs & 0x3fff_0000_3fff_0000) >> 2 | pairs & 0x0000_3fff_0000_3fff;
    (fours & 0x0fff_ffff_0000_0000) >> 4 | fours & 0x0000_0000_0fff_ffff
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Bytes that are samples as senders spell them, nearly, or anything.
    fn messages() -> impl Strategy<Value = Vec<u8>> {
        let varint = prop_oneof![
            vec(any::<u8>(), 0..12),
            (vec(0x80u8.., 0..11), 0u8..0x80).prop_map(|(mut bytes, last)| {
                bytes.push(last);
                bytes
            }),
        ];
        let spelled = (any::<[u8; 8]>(), varint, vec(any::<u8>(), 0..3));
        let spelled = spelled.prop_map(|(value, time, behind)| [&[9], &value[..], &[16], &time, &behind].concat());
        prop_oneof![4 => spelled, 1 => vec(any::<u8>(), 0..24)]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn the_quick_way_reads_what_the_walker_reads(message in messages()) {
            if let Some((value_bits, time_ms)) = plain_sample(&message) {
                prop_assert_eq!(walk_sample(&message, 0..message.len()), Ok((value_bits, time_ms, 0)));
            }
        }

        #[test]
        fn what_senders_write_is_read_the_quick_way(value in any::<f64>(), time_ms in (any::<i64>(), 0u32..64).prop_map(|(time_ms, shift)| time_ms >> shift)) {
            let mut message = vec![9];
            message.extend(value.to_bits().to_le_bytes());
            message.push(16);
            crate::protobuf::write_varint(&mut message, time_ms as u64);
            // Of more than 56 bits the time takes more than a word.
            let expected = Some((value.to_bits(), time_ms)).filter(|_| (0..1 << 56).contains(&time_ms));
            prop_assert_eq!(plain_sample(&message), expected);
        }
    }
}

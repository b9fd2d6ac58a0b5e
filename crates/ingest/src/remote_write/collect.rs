//! What the parsers of both versions put into the batch.

use std::ops::Range;

use model::{Batch, GroupKey, Span};

use super::key::decode_key;
use super::{Options, Taken, WriteRequest};
use crate::lone::LoneRows;
use crate::protobuf::{Value, Walker, malformed};
use crate::{BodyError, LineErrors};

/// The request so far.
pub(super) struct Collector<'body, 'options> {
    pub(super) body: &'body [u8],
    pub(super) options: &'options Options<'options>,
    pub(super) request: WriteRequest<'body>,
    pub(super) lone: LoneRows,
    /// Number of the series at hand, counted from 1.
    pub(super) series: u32,
}

impl<'body, 'options> Collector<'body, 'options> {
    pub(super) fn new(body: &'body [u8], options: &'options Options<'options>) -> Self {
        let request = WriteRequest {
            batch: Batch::new(body, decode_key),
            errors: LineErrors::default(),
            taken: Taken::default(),
            histograms_dropped: 0,
            exemplars_dropped: 0,
        };
        Self { body, options, request, lone: LoneRows::new(options.limits.rows_max), series: 0 }
    }

    pub(super) fn finish(mut self) -> WriteRequest<'body> {
        self.request.taken.samples = self.lone.rows() as u64;
        self.request.batch.blocks.extend(self.lone.into_block());
        self.request
    }

    pub(super) fn reject(&mut self, reason: impl FnOnce() -> String) {
        self.request.errors.push(self.options.limits.errors_max, self.series, reason);
    }

    /// Gives the newest rows their key, whose bytes lie at this place.
    pub(super) fn add_keys(&mut self, raw_key: &[u8], text: Span) {
        self.lone.push_keys(GroupKey { hash: self.options.hasher.hash(raw_key), text });
    }

    /// Takes back the newest rows, whose series breaks a limit or is wrong.
    pub(super) fn drop_series(&mut self, reason: String) {
        self.lone.drop_keyless();
        self.reject(|| reason);
    }

    /// Reads a sample of either version; its row gets its key later.
    #[inline]
    pub(super) fn sample(&mut self, range: Range<usize>) -> Result<(), BodyError> {
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
        if let Err(reason) = self.lone.check_room() {
            self.reject(|| reason);
            return Ok(());
        }
        self.lone.push_keyless(timestamp_ns, f64::from_bits(value_bits), self.series);
        Ok(())
    }
}

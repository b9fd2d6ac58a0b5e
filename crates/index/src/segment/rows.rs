//! The values of each group: in blocks, each row but the first as what differs from the one before.

use codec::{DecodeError, Reader, varint};

use super::BLOCK;

/// Appends rows.
#[derive(Default)]
pub(crate) struct RowsWriter {
    /// For each block its place.
    pub(crate) offsets: Vec<u8>,
    written: u64,
    rows: u32,
    schema: u32,
    last: Vec<u32>,
}

impl RowsWriter {
    /// The bytes of the next row; `None` if 4 GiB are full.
    pub(crate) fn encode(&mut self, schema: u32, values: &[u32], out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        if self.rows.is_multiple_of(BLOCK) {
            self.offsets.extend_from_slice(&u32::try_from(self.written).ok()?.to_le_bytes());
        }
        if self.rows.is_multiple_of(BLOCK) || schema != self.schema {
            values.iter().for_each(|value| varint::push(out, u64::from(*value)));
        } else {
            let mask_at = out.len();
            out.resize(mask_at + values.len().div_ceil(8), 0);
            for (place, (value, last)) in values.iter().zip(&self.last).enumerate() {
                if value != last {
                    out[mask_at + place / 8] |= 1 << (place % 8);
                    varint::push(out, u64::from(*value));
                }
            }
        }
        self.schema = schema;
        values.clone_into(&mut self.last);
        self.rows += 1;
        self.written += (out.len() - start) as u64;
        Some(())
    }
}

/// Reads the rows of a block.
pub(crate) struct RowsReader<'a> {
    reader: Reader<'a>,
    schema: Option<u32>,
    pub(crate) values: Vec<u32>,
}

impl<'a> RowsReader<'a> {
    /// At the first row of a block.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(bytes), schema: None, values: Vec::new() }
    }

    /// Takes the next row, which has so many values.
    pub(crate) fn advance(&mut self, schema: u32, count: usize) -> Result<(), DecodeError> {
        if self.schema != Some(schema) {
            self.schema = Some(schema);
            self.values.clear();
            for _ in 0..count {
                self.values.push(take_value(&mut self.reader)?);
            }
            return Ok(());
        }
        let mask = self.reader.bytes(count.div_ceil(8))?;
        for (place, value) in self.values.iter_mut().enumerate() {
            if mask.get(place / 8).is_some_and(|bits| bits >> (place % 8) & 1 == 1) {
                *value = take_value(&mut self.reader)?;
            }
        }
        Ok(())
    }
}

fn take_value(reader: &mut Reader<'_>) -> Result<u32, DecodeError> {
    u32::try_from(reader.varint()?).map_err(|_| reader.error("value beyond 32 bits"))
}

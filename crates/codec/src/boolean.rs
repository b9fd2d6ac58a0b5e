//! Booleans: eight to a byte, lowest first, without a tag; or, as a column with a tag, in the smallest of the forms that
//! `docs/formats/columns.md` lists.

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader, bits};

/// Appends a column with a tag: bits, runs, or places.
pub fn encode_with(values: &[bool], effort: Effort, out: &mut Vec<u8>) {
    if !values.is_empty() {
        bits::encode(values, effort, out);
    }
}

/// Takes a column that [`encode_with`] wrote and appends its values.
pub fn decode_tagged(reader: &mut Reader<'_>, count: usize, values: &mut Vec<bool>) -> Result<(), DecodeError> {
    if count == 0 { Ok(()) } else { bits::decode(reader, count, values) }
}

/// Appends the bits, without a tag.
pub fn encode(values: &[bool], out: &mut Vec<u8>) {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (place, bit)| byte | u8::from(*bit) << place);
    out.extend(values.chunks(8).map(byte));
}

/// Takes so many bits that [`encode`] wrote and appends them to `values`.
pub fn decode(reader: &mut Reader<'_>, count: usize, values: &mut Vec<bool>) -> Result<(), DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    let bytes = reader.bytes(count.div_ceil(8))?;
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |place| byte >> place & 1 == 1));
    values.extend(bits.take(count));
    Ok(())
}

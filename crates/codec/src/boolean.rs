//! Booleans, and any other run of bits: eight to a byte, lowest first.

use crate::{COLUMN_VALUES_MAX, DecodeError, Reader};

/// Appends the bits.
pub fn encode(values: &[bool], out: &mut Vec<u8>) {
    let byte = |bits: &[bool]| bits.iter().enumerate().fold(0, |byte, (place, bit)| byte | u8::from(*bit) << place);
    out.extend(values.chunks(8).map(byte));
}

/// Takes so many bits and appends them to `values`.
pub fn decode(reader: &mut Reader<'_>, count: usize, values: &mut Vec<bool>) -> Result<(), DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    let bytes = reader.bytes(count.div_ceil(8))?;
    let bits = bytes.iter().flat_map(|byte| (0..8).map(move |place| byte >> place & 1 == 1));
    values.extend(bits.take(count));
    Ok(())
}

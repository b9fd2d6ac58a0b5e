//! Schemes that earlier versions wrote: blocks of 128 values without exceptions.

use crate::{DecodeError, Reader, bitpack};

use super::transform::Transform;

/// Values themselves.
const FRAME: u8 = 2;
/// First, factor, differences.
const DIFFERENCES: u8 = 3;

/// Fills `values` from what is behind the tag: 2 the values, 3 first, factor and differences, 4 first, factor, first
/// difference and the differences of differences.
pub(super) fn decode(tag: u8, reader: &mut Reader<'_>, values: &mut [i64]) -> Result<(), DecodeError> {
    if tag == FRAME {
        return bitpack::decode_old_blocks(reader, values);
    }
    let (first, factor) = (reader.varint_signed()?, reader.varint_signed()?);
    let transform = match tag {
        DIFFERENCES => Transform::Differences,
        _ => Transform::SecondDifferences(reader.varint_signed()?),
    };
    let Some(rest) = values.get_mut(transform.implied()..) else {
        return Err(reader.error("second differences of one value"));
    };
    bitpack::decode_old_blocks(reader, rest)?;
    transform.undo(values, first, factor);
    Ok(())
}

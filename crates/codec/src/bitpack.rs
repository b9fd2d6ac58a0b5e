//! Unsigned integers of one width, one behind the other, lowest bits first, padded with zeros to a byte at the end.
//!
//! Eight values of width w are exactly w bytes, so both directions go by eights with the width known to the compiler:
//! every shift is then a constant and a value costs a load, a shift and a mask.

use crate::{DecodeError, Reader};

/// Widest value in bits.
pub const WIDTH_BITS_MAX: u8 = 64;

/// Values a block of the old integer schemes.
const OLD_BLOCK_VALUES: usize = 128;

/// Bytes of so many values.
pub const fn packed_bytes(count: usize, width: u8) -> usize {
    (count * width as usize).div_ceil(8)
}

/// Bits that a value needs.
pub(crate) const fn width_of(value: u64) -> u8 {
    (64 - value.leading_zeros()) as u8
}

const fn mask(width: u8) -> u64 {
    if width == 0 { 0 } else { u64::MAX >> (64 - width) }
}

/// Appends the values less `base`; what does not fit the width is cut off.
pub(crate) fn pack(values: &[i64], base: i64, width: u8, out: &mut Vec<u8>) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                0 => values.len(),
                $($width => pack_eights::<$width>(values, base, out),)*
                _ => 0,
            }
        };
    }
    let done = by_width!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
    pack_rest(values.get(done..).unwrap_or_default(), base, width, out);
}

/// Packs by eights, which are whole bytes; returns how many values are done. Widths up to 16 bits: four values are a word at
/// most.
fn pack_eights<const WIDTH: usize>(values: &[i64], base: i64, out: &mut Vec<u8>) -> usize {
    let mask = mask(WIDTH as u8);
    let eights = values.as_chunks::<8>().0;
    let start = out.len();
    // A whole word is stored each time, of which the next one overwrites what is too much.
    out.resize(start + eights.len() * WIDTH + 16, 0);
    for (eight, values) in eights.iter().enumerate() {
        let four = |from: usize| {
            let bits = |place: usize| (values[from + place].wrapping_sub(base) as u64 & mask) << (place * WIDTH);
            bits(0) | bits(1) | bits(2) | bits(3)
        };
        let bits = u128::from(four(0)) | u128::from(four(4)) << (4 * WIDTH);
        let at = start + eight * WIDTH;
        if let Some(bytes) = out.get_mut(at..at + 16) {
            bytes.copy_from_slice(&bits.to_le_bytes());
        }
    }
    out.truncate(start + eights.len() * WIDTH);
    eights.len() * 8
}

fn pack_rest(values: &[i64], base: i64, width: u8, out: &mut Vec<u8>) {
    let (width_bits, mask) = (u32::from(width), mask(width));
    let mut pending = 0u64;
    let mut pending_bits = 0u32;
    for value in values {
        let value = value.wrapping_sub(base) as u64 & mask;
        pending |= value << pending_bits;
        pending_bits += width_bits;
        if pending_bits >= 64 {
            out.extend_from_slice(&pending.to_le_bytes());
            pending_bits -= 64;
            // The bits that did not fit; none are left over where the shift would be the whole width.
            pending = value.checked_shr(width_bits - pending_bits).unwrap_or(0);
        }
    }
    let rest = pending.to_le_bytes();
    out.extend_from_slice(rest.get(..pending_bits.div_ceil(8) as usize).unwrap_or_default());
}

/// Takes as many values as `values` has places, each plus `base`.
pub(crate) fn unpack(reader: &mut Reader<'_>, width: u8, base: i64, values: &mut [i64]) -> Result<(), DecodeError> {
    if width > WIDTH_BITS_MAX {
        return Err(reader.error("values wider than 64 bits"));
    }
    // Loads run past the end of a block where bytes of what follows are there to be loaded.
    let bytes = reader.rest();
    reader.bytes(packed_bytes(values.len(), width))?;
    unpack_slice(bytes, width, base, values);
    Ok(())
}

fn unpack_slice(bytes: &[u8], width: u8, base: i64, values: &mut [i64]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match width {
                0 => {
                    values.fill(base);
                    0
                }
                $($width => unpack_eights::<$width>(bytes, base, values),)*
                _ => 0,
            }
        };
    }
    let done = by_width!(
        1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39
        40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57
    );
    if width == 0 {
        return;
    }
    let mask = mask(width);
    for (place, value) in values.iter_mut().enumerate().skip(done) {
        let bit = place * usize::from(width);
        let word = (window(bytes, bit / 8) >> (bit % 8)) as u64;
        *value = base.wrapping_add((word & mask) as i64);
    }
}

/// Unpacks eights while whole words can be loaded; returns how many values are done. Widths up to 57 bits: a value and
/// the bits before it in its first byte are one word.
fn unpack_eights<const WIDTH: usize>(bytes: &[u8], base: i64, values: &mut [i64]) -> usize {
    let mask = mask(WIDTH as u8);
    let eights = bytes.len().saturating_sub(8) / WIDTH;
    let mut done = 0;
    for (eight, chunk) in values.as_chunks_mut::<8>().0.iter_mut().take(eights).enumerate() {
        let Some(chunk_bytes) = bytes.get(eight * WIDTH..eight * WIDTH + WIDTH + 8) else {
            break;
        };
        for (place, value) in chunk.iter_mut().enumerate() {
            let bit = place * WIDTH;
            let word = chunk_bytes[bit / 8..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            *value = base.wrapping_add((word >> (bit % 8) & mask) as i64);
        }
        done += 8;
    }
    done
}

/// Sixteen bytes from an offset, zeros behind the end.
pub(crate) fn window(bytes: &[u8], offset: usize) -> u128 {
    let from = bytes.get(offset..).unwrap_or_default();
    if let Some((bytes, _)) = from.split_first_chunk::<16>() {
        return u128::from_le_bytes(*bytes);
    }
    let mut padded = [0; 16];
    padded.iter_mut().zip(from).for_each(|(to, byte)| *to = *byte);
    u128::from_le_bytes(padded)
}

/// Takes the blocks of the old integer schemes, which are written no more: smallest value, width, values less the
/// smallest. Fills `values`.
pub(crate) fn decode_old_blocks(reader: &mut Reader<'_>, values: &mut [i64]) -> Result<(), DecodeError> {
    for block in values.chunks_mut(OLD_BLOCK_VALUES) {
        let smallest = reader.varint_signed()?;
        let width = reader.byte()?;
        unpack(reader, width, smallest, block)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(values in proptest::collection::vec(any::<i64>(), 0..100), base: i64, width in 0u8..=64, behind in 0usize..20) {
            let cut: Vec<i64> = values.iter().map(|value| base.wrapping_add((*value as u64 & mask(width)) as i64)).collect();
            let mut out = Vec::new();
            pack(&cut, base, width, &mut out);
            prop_assert_eq!(out.len(), packed_bytes(cut.len(), width));
            out.resize(out.len() + behind, 0xff);
            let mut reader = Reader::new(&out);
            let mut back = vec![7; cut.len()];
            unpack(&mut reader, width, base, &mut back).unwrap();
            prop_assert_eq!(back, cut);
            prop_assert_eq!(reader.rest().len(), behind);
        }
    }
}

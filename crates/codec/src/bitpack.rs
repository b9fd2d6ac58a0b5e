//! Unsigned integers in as many bits as the largest of their block needs.
//!
//! A block holds up to [`BLOCK_VALUES`] values: its smallest value (zigzag varint), the width of the rest in bits (one
//! byte), then each value less the smallest, lowest bits first, padded to a byte at the end.

use crate::{DecodeError, Reader, varint};

/// Values a block: small enough that one outlier widens few others.
pub const BLOCK_VALUES: usize = 128;

/// Appends the values, block by block. Differences to a block's smallest wrap, so that any values fit.
pub fn encode(values: &[i64], out: &mut Vec<u8>) {
    for block in values.chunks(BLOCK_VALUES) {
        let (smallest, width) = frame(block);
        varint::push_signed(out, smallest);
        out.push(width);
        pack(block, smallest, width, out);
    }
}

/// Bytes that [`encode`] would append.
pub fn encoded_bytes(values: &[i64]) -> usize {
    let block_bytes = |block: &[i64]| {
        let (smallest, width) = frame(block);
        let smallest_bits = 64 - varint::zigzag(smallest).leading_zeros() as usize;
        smallest_bits.div_ceil(7).max(1) + 1 + (block.len() * usize::from(width)).div_ceil(8)
    };
    values.chunks(BLOCK_VALUES).map(block_bytes).sum()
}

/// Takes so many values and appends them to `values`.
pub fn decode(reader: &mut Reader<'_>, count: usize, values: &mut Vec<i64>) -> Result<(), DecodeError> {
    let mut left = count;
    while left > 0 {
        let block = left.min(BLOCK_VALUES);
        let smallest = reader.varint_signed()?;
        let width = reader.byte()?;
        if width > 64 {
            return Err(reader.error("block wider than 64 bits"));
        }
        let packed = reader.bytes((block * usize::from(width)).div_ceil(8))?;
        unpack(packed, block, smallest, width, values);
        left -= block;
    }
    Ok(())
}

fn frame(block: &[i64]) -> (i64, u8) {
    let smallest = block.iter().copied().min().unwrap_or(0);
    let largest = block.iter().copied().max().unwrap_or(0);
    let spread = largest.wrapping_sub(smallest) as u64;
    (smallest, (64 - spread.leading_zeros()) as u8)
}

fn pack(block: &[i64], smallest: i64, width: u8, out: &mut Vec<u8>) {
    if width == 0 {
        return;
    }
    let mut pending = 0u128;
    let mut pending_bits = 0u32;
    for value in block {
        pending |= u128::from(value.wrapping_sub(smallest) as u64) << pending_bits;
        pending_bits += u32::from(width);
        if pending_bits >= 64 {
            out.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            pending_bits -= 64;
        }
    }
    let rest = (pending as u64).to_le_bytes();
    out.extend(rest.iter().take(pending_bits.div_ceil(8) as usize));
}

fn unpack(packed: &[u8], count: usize, smallest: i64, width: u8, values: &mut Vec<i64>) {
    if width == 0 {
        values.resize(values.len() + count, smallest);
        return;
    }
    let mask = if width == 64 { u64::MAX } else { (1u64 << width) - 1 };
    values.extend((0..count).map(|place| {
        let bit = place * usize::from(width);
        let word = window(packed, bit / 8) >> (bit % 8);
        smallest.wrapping_add((word as u64 & mask) as i64)
    }));
}

/// Sixteen bytes from an offset, zeros behind the end.
fn window(packed: &[u8], offset: usize) -> u128 {
    let from = packed.get(offset..).unwrap_or_default();
    if let Some((bytes, _)) = from.split_first_chunk::<16>() {
        return u128::from_le_bytes(*bytes);
    }
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(from).for_each(|(to, byte)| *to = *byte);
    u128::from_le_bytes(bytes)
}

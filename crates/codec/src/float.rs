//! Floats. Null and stale cells are not among them: see [`crate::presence`].
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | constant | bits of the value (8 bytes) |
//! | 1 | decimals: integers ÷ 10^e | e (1 byte), number of exceptions, places and bits of the exceptions, an integer column |
//! | 2 | bits of old versions | is read, but written no more |
//! | 3 | ordered bits | an integer column of the bits, in the order of the values |
//! | 4 | split | width of the right part, dictionary of left parts, their ranks, right parts packed |
//!
//! Decimals follow the idea of ALP (Afroozeh, Kuffo, Boncz: Adaptive Lossless floating-Point compression, SIGMOD 2023),
//! with one exponent and a division: an integer below 2^53 divided by a power of ten up to 10^22 is rounded once, so a
//! decimal with at most 15 digits comes back exactly as its text was read. Whole numbers are decimals with the exponent
//! 0: they cost what integers cost, their common factor included. The split is that paper's scheme for real doubles.

mod bits;
pub(crate) mod decimals;

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader};

const CONSTANT: u8 = 0;
const DECIMALS: u8 = 1;
const OLD_BITS: u8 = 2;
const ORDERED_BITS: u8 = 3;
const SPLIT: u8 = 4;

/// Columns of fewer values are not tried as a split in a hurry.
const SHORT_VALUES: usize = 256;

/// Appends the column to `out`, quickly.
pub fn encode(values: &[f64], out: &mut Vec<u8>) {
    encode_with(values, Effort::Fast, out);
}

/// Appends the column to `out` in the smallest of the schemes that the effort allows.
pub fn encode_with(values: &[f64], effort: Effort, out: &mut Vec<u8>) {
    let Some(first) = values.first() else {
        return;
    };
    if values.iter().all(|value| value.to_bits() == first.to_bits()) {
        out.push(CONSTANT);
        out.extend_from_slice(&first.to_bits().to_le_bytes());
        return;
    }
    let start = out.len();
    out.push(DECIMALS);
    if decimals::encode(values, effort, out) {
        return;
    }
    out.truncate(start);
    // What a split saves on a short column its dictionary takes again.
    let is_short = effort == Effort::Fast && values.len() < SHORT_VALUES;
    let split = if is_short { None } else { bits::Split::worth_it(values, effort) };
    out.push(if split.is_some() { SPLIT } else { ORDERED_BITS });
    match split {
        Some(split) => split.encode(values, effort, out),
        None => bits::encode_ordered(values, effort, out),
    }
}

/// What a float is decoded to: itself, or its bits.
pub trait Decoded: Copy {
    /// Of a float's bits.
    fn of_bits(bits: u64) -> Self;
}

impl Decoded for f64 {
    #[inline]
    fn of_bits(bits: u64) -> Self {
        Self::from_bits(bits)
    }
}

impl Decoded for u64 {
    #[inline]
    fn of_bits(bits: u64) -> Self {
        bits
    }
}

/// Memory for intermediate results of decoding, for callers that decode many columns.
#[derive(Debug, Default)]
pub struct Scratch(Vec<i64>);

/// Takes a column of so many values and appends them to `values`.
pub fn decode<V: Decoded>(reader: &mut Reader<'_>, count: usize, values: &mut Vec<V>) -> Result<(), DecodeError> {
    decode_with(reader, count, &mut Scratch::default(), values)
}

/// As [`decode`], with memory that was used before.
pub fn decode_with<V: Decoded>(
    reader: &mut Reader<'_>,
    count: usize,
    scratch: &mut Scratch,
    values: &mut Vec<V>,
) -> Result<(), DecodeError> {
    if count == 0 {
        return Ok(());
    }
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    match reader.byte()? {
        CONSTANT => {
            let value = V::of_bits(reader.u64()?);
            values.resize(values.len() + count, value);
            Ok(())
        }
        DECIMALS => decimals::decode(reader, count, scratch, values),
        OLD_BITS => bits::decode_old(reader, count, values),
        ORDERED_BITS => bits::decode_ordered(reader, count, scratch, values),
        SPLIT => bits::decode_split(reader, count, values),
        _ => Err(reader.error("unknown float scheme")),
    }
}

#[cfg(test)]
#[path = "float/tests.rs"]
mod tests;

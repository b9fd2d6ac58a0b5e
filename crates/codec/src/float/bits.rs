//! Floats that are no decimals, by their bits.

use super::{Decoded, Scratch};
use crate::{DecodeError, Effort, Reader, bitpack, integer};

/// Right parts that are tried: without and with some of the mantissa on the left.
const RIGHT_WIDTHS: [u8; 2] = [52, 50];

/// Marks a count of a left part that is in the dictionary; a column's counts stay below it.
const SEEN: u32 = 1 << 31;

/// Values looked at, in stretches, because differences need neighbours.
const SAMPLED_STRETCHES: usize = 8;
const STRETCH_VALUES: usize = 32;

/// Bits as an integer that has the order of the values, so that neighbouring values are neighbouring integers. It is
/// its own inverse.
const fn ordered(bits: i64) -> i64 {
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// Appends an integer column of the ordered bits.
pub(super) fn encode_ordered(values: &[f64], effort: Effort, out: &mut Vec<u8>) {
    let bits: Vec<i64> = values.iter().map(|value| ordered(value.to_bits() as i64)).collect();
    integer::encode_taken(bits, effort, out);
}

pub(super) fn decode_ordered<V: Decoded>(
    reader: &mut Reader<'_>,
    count: usize,
    scratch: &mut Scratch,
    values: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let bits = integer::decode_over(reader, count, &mut scratch.0)?;
    values.extend(bits.iter().map(|bits| V::of_bits(ordered(*bits) as u64)));
    Ok(())
}

/// Takes the bits in no order, as old versions wrote them.
pub(super) fn decode_old<V: Decoded>(
    reader: &mut Reader<'_>,
    count: usize,
    values: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let mut bits = Vec::new();
    integer::decode(reader, count, &mut bits)?;
    values.extend(bits.iter().map(|bits| V::of_bits(*bits as u64)));
    Ok(())
}

/// Sign, exponent and perhaps a little of the mantissa by dictionary, the rest as it is: for noise of several magnitudes.
pub(super) struct Split {
    right_width: u8,
}

impl Split {
    /// Compares what a sample would cost.
    pub(super) fn worth_it(values: &[f64], effort: Effort) -> Option<Self> {
        let length = values.len().min(STRETCH_VALUES);
        let room = values.len() - length;
        let starts = (0..SAMPLED_STRETCHES).map(|part| room * part / (SAMPLED_STRETCHES - 1));
        let stretches: Vec<&[f64]> = starts.map(|start| &values[start..start + length]).collect();
        let ordered_bits = ordered_bits_a_value(&stretches, effort);
        // Each width more makes a table four times as large: not in a hurry.
        let widths = if effort == Effort::Fast { &RIGHT_WIDTHS[..1] } else { &RIGHT_WIDTHS };
        let split = |width: &u8| (split_bits_a_value(&stretches, *width), *width);
        let best = widths.iter().map(split).min_by(|left, right| left.0.total_cmp(&right.0))?;
        (best.0 < ordered_bits).then_some(Self { right_width: best.1 })
    }

    /// Appends the width of the right parts, the number of different left parts, those by frequency as an integer
    /// column, an integer column of ranks in it, and the right parts packed.
    pub(super) fn encode(&self, values: &[f64], effort: Effort, out: &mut Vec<u8>) {
        let width = self.right_width;
        let left = |value: &f64| (value.to_bits() >> width) as usize;
        let mut counts = vec![0u32; 1 << (64 - width)];
        for value in values {
            counts[left(value)] += 1;
        }
        let mut dictionary: Vec<i64> = Vec::new();
        for value in values {
            let count = &mut counts[left(value)];
            if *count & SEEN == 0 {
                *count |= SEEN;
                dictionary.push(left(value) as i64);
            }
        }
        dictionary.sort_by_key(|left| std::cmp::Reverse(counts[*left as usize]));
        for (rank, left) in (0..).zip(&dictionary) {
            counts[*left as usize] = rank;
        }
        let column: Vec<i64> = values.iter().map(|value| i64::from(counts[left(value)])).collect();
        out.push(width);
        crate::varint::push(out, dictionary.len() as u64);
        integer::encode_taken(dictionary, effort, out);
        integer::encode_taken(column, effort, out);
        let rights: Vec<i64> = values.iter().map(|value| value.to_bits() as i64).collect();
        bitpack::pack(&rights, 0, width, out);
    }
}

pub(super) fn decode_split<V: Decoded>(
    reader: &mut Reader<'_>,
    count: usize,
    values: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let width = reader.byte()?;
    if width >= bitpack::WIDTH_BITS_MAX {
        return Err(reader.error("right part as wide as a float"));
    }
    let distinct = reader.length(count)?;
    let (mut dictionary, mut ranks) = (Vec::new(), Vec::new());
    integer::decode(reader, distinct, &mut dictionary)?;
    integer::decode(reader, count, &mut ranks)?;
    let mut rights = vec![0; count];
    bitpack::unpack(reader, width, 0, &mut rights)?;
    let mut outside = false;
    values.extend(rights.iter().zip(&ranks).map(|(right, rank)| {
        let left = usize::try_from(*rank).ok().and_then(|rank| dictionary.get(rank)).copied();
        outside |= left.is_none();
        V::of_bits((*right | left.unwrap_or(0) << width) as u64)
    }));
    if outside { Err(reader.error("place outside the dictionary")) } else { Ok(()) }
}

/// Bits a value of the ordered bits as differences or as they are.
fn ordered_bits_a_value(stretches: &[&[f64]], effort: Effort) -> f64 {
    let mut bits = [0.0; 2];
    let mut count = 0;
    // Zeros at the end of all of them, as floats of single precision have, are part of the common factor.
    let used = stretches.iter().copied().flatten().fold(0, |used, value| used | value.to_bits());
    let zeros = used.trailing_zeros() % 64;
    let block_bits = |numbers: &[i64]| match effort {
        // Without a search for outliers.
        Effort::Fast => f64::from(crate::patched::spread_width(numbers.iter().copied())) * numbers.len() as f64,
        Effort::Small => crate::patched::block_bits(numbers) as f64,
    };
    for stretch in stretches {
        let (mut numbers, mut differences) = ([0; STRETCH_VALUES], [0; STRETCH_VALUES]);
        let numbers = &mut numbers[..stretch.len()];
        numbers.iter_mut().zip(*stretch).for_each(|(to, value)| *to = ordered(value.to_bits() as i64) >> zeros);
        let neighbours = differences.iter_mut().zip(numbers.windows(2));
        neighbours.for_each(|(to, pair)| *to = pair[1].wrapping_sub(pair[0]));
        bits[0] += block_bits(numbers);
        bits[1] += block_bits(&differences[..stretch.len().saturating_sub(1)]);
        count += stretch.len();
    }
    // Larger blocks than these stretches have less head and, of the values themselves, a wider spread.
    bits[0].min(bits[1]) / count.max(1) as f64
}

/// Bits a value of the split: entropy of the left parts, and their dictionary.
fn split_bits_a_value(stretches: &[&[f64]], width: u8) -> f64 {
    let mut lefts = [0; SAMPLED_STRETCHES * STRETCH_VALUES];
    let count = stretches.iter().map(|stretch| stretch.len()).sum();
    let values = stretches.iter().copied().flatten();
    // At least fifty bits go to the right.
    lefts.iter_mut().zip(values).for_each(|(to, value)| *to = (value.to_bits() >> width) as u16);
    let lefts = &mut lefts[..count];
    lefts.sort_unstable();
    let total = count as f64;
    let (mut entropy, mut distinct) = (0.0, 0);
    for same in lefts.chunk_by(|left, right| left == right) {
        entropy += same.len() as f64 * (total / same.len() as f64).log2();
        distinct += 1;
    }
    (entropy + f64::from(distinct) * 16.0) / total + f64::from(width)
}

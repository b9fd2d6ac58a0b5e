//! Integers in packed blocks whose few outliers are stored aside, so that a counter's reset widens nothing.
//!
//! A block holds up to [`BLOCK_VALUES`] values, each as its difference to the block's base (wrapping, so that any value
//! fits): the low bits of all of them packed, and for the few that need more, their places and the rest of their bits.
//! Blocks do not depend on one another.

use crate::{DecodeError, Effort, Reader, bitpack, varint};

/// Values a block: a place fits a byte.
pub(crate) const BLOCK_VALUES: usize = 256;

/// Bit 7 of the first byte: the block has exceptions.
const EXCEPTIONS: u8 = 0x80;

/// Up to this width a block is packed without a search for exceptions if that is to be quick.
const NARROW_BITS: u8 = 4;

/// Blocks of fewer values are packed without that search in a hurry, whatever their width.
const SHORT_VALUES: usize = 128;

/// Values looked at to find the middle of a block.
const MIDDLE_SAMPLES: usize = 9;

/// How a block is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    base: i64,
    width: u8,
    exceptions: usize,
    /// Width of what an exception has beyond the block's width.
    high_width: u8,
}

impl Plan {
    const fn bits(&self, count: usize) -> usize {
        let base_bits = (bitpack::width_of(varint::zigzag(self.base)) as usize).div_ceil(7) * 8;
        let aside = if self.exceptions == 0 { 0 } else { 16 + self.exceptions * (8 + self.high_width as usize) };
        8 + base_bits + count * self.width as usize + aside
    }
}

/// Appends the values block by block.
pub(crate) fn encode(values: &[i64], effort: Effort, out: &mut Vec<u8>) {
    for block in values.chunks(BLOCK_VALUES) {
        encode_block(block, plan(block, effort), out);
    }
}

/// Bits between the smallest and the largest of these values.
pub(crate) fn spread_width(values: impl Iterator<Item = i64>) -> u8 {
    let (smallest, largest) = bounds(values);
    bitpack::width_of(largest.wrapping_sub(smallest) as u64)
}

/// Bits that a block of these values takes.
pub(crate) fn block_bits(block: &[i64]) -> usize {
    plan(block, Effort::Small).bits(block.len())
}

/// Fills `values`.
pub(crate) fn decode(reader: &mut Reader<'_>, values: &mut [i64]) -> Result<(), DecodeError> {
    for block in values.chunks_mut(BLOCK_VALUES) {
        decode_block(reader, block)?;
    }
    Ok(())
}

/// Goes past the blocks of so many values.
pub(crate) fn skip(reader: &mut Reader<'_>, count: usize) -> Result<(), DecodeError> {
    let mut left = count;
    while left > 0 {
        let block = left.min(BLOCK_VALUES);
        let (width, exceptions, _) = block_head(reader)?;
        reader.bytes(bitpack::packed_bytes(block, width))?;
        if exceptions {
            let count = usize::from(reader.byte()?);
            let high_width = reader.byte()?;
            reader.bytes(count + bitpack::packed_bytes(count, high_width))?;
        }
        left -= block;
    }
    Ok(())
}

fn plan(block: &[i64], effort: Effort) -> Plan {
    let (smallest, largest) = bounds(block.iter().copied());
    let width = bitpack::width_of(largest.wrapping_sub(smallest) as u64);
    let plain = Plan { base: smallest, width, exceptions: 0, high_width: 0 };
    // Exceptions save a few bits a value at most of what is narrow already: no look at that in a hurry.
    let hurried = effort == Effort::Fast && (width <= NARROW_BITS || block.len() < SHORT_VALUES);
    if width == 0 || hurried {
        return plain;
    }
    let middle = middle(block);
    let Some(window_width) = window_width(block, middle) else {
        return plain;
    };
    let patched = plan_patched(block, middle, window_width);
    if patched.bits(block.len()) < plain.bits(block.len()) { patched } else { plain }
}

/// The smallest and the largest value; both 0 if there is none.
fn bounds(mut values: impl Iterator<Item = i64>) -> (i64, i64) {
    let first = values.next().unwrap_or(0);
    values.fold((first, first), |(smallest, largest), value| (smallest.min(value), largest.max(value)))
}

/// Values whose width is looked at together when a block's width is chosen.
const GROUP_VALUES: usize = 8;

/// If so many of 32 groups hold a value that is too wide, how many of 256 values are too wide when those fall anywhere:
/// 256 × (1 − (1 − groups ÷ 32)^⅛).
const TOO_WIDE: [usize; 33] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 15, 16, 18, 19, 21, 23, 25, 27, 30, 32, 35, 38, 41, 44, 48, 53, 59, 66, 75,
    90, 256,
];

/// Values outside a window around the middle of the block become exceptions.
fn plan_patched(block: &[i64], middle: i64, within: u8) -> Plan {
    let (mut base, mut last) = (0, 0);
    let mut widest = 0;
    // Distances to the middle: the window holds those whose zigzag is narrow enough.
    for value in block {
        let distance = value.wrapping_sub(middle);
        let inside = varint::zigzag(distance).checked_shr(u32::from(within)).unwrap_or(0) == 0;
        base = if inside { distance.min(base) } else { base };
        last = if inside { distance.max(last) } else { last };
    }
    let base = middle.wrapping_add(base);
    let width = bitpack::width_of(middle.wrapping_add(last).wrapping_sub(base) as u64);
    let mut exceptions = 0;
    for value in block {
        let number = value.wrapping_sub(base) as u64;
        exceptions += usize::from(number.checked_shr(u32::from(width)).unwrap_or(0) != 0);
        widest |= number;
    }
    let widest = bitpack::width_of(widest);
    if exceptions > usize::from(u8::MAX) {
        return Plan { base, width: widest, exceptions: 0, high_width: 0 };
    }
    Plan { base, width, exceptions, high_width: widest.saturating_sub(width) }
}

/// Width of the window around the middle that is likely to be cheapest; `None` if it saves less than an eighth. Widths
/// are looked at by groups of values, which vectors do, and not one by one.
fn window_width(block: &[i64], middle: i64) -> Option<u8> {
    let mut groups = [0usize; 65];
    let mut count = 0;
    for group in block.chunks(GROUP_VALUES) {
        let union = group.iter().fold(0, |union, value| union | varint::zigzag(value.wrapping_sub(middle)));
        groups[usize::from(bitpack::width_of(union))] += 1;
        count += 1;
    }
    let widest = groups.iter().rposition(|groups| *groups > 0).unwrap_or(0);
    let mut best = (usize::MAX, 0);
    let mut wider = count;
    for (width, groups) in groups.iter().enumerate().take(widest + 1) {
        wider -= groups;
        let exceptions = TOO_WIDE[(wider * (TOO_WIDE.len() - 1)).div_ceil(count.max(1)).min(TOO_WIDE.len() - 1)];
        let bits = BLOCK_VALUES * width + exceptions * (8 + widest - width);
        best = best.min((bits, width));
    }
    (best.0 * 8 <= BLOCK_VALUES * widest * 7).then_some(best.1 as u8)
}

/// The median of a few values spread over the block.
fn middle(block: &[i64]) -> i64 {
    let stride = block.len().div_ceil(MIDDLE_SAMPLES).max(1);
    let mut samples = [0; MIDDLE_SAMPLES];
    let mut count = 0;
    for (sample, value) in samples.iter_mut().zip(block.iter().step_by(stride)) {
        *sample = *value;
        count += 1;
    }
    let samples = &mut samples[..count];
    samples.sort_unstable();
    samples.get(count / 2).copied().unwrap_or(0)
}

fn encode_block(block: &[i64], plan: Plan, out: &mut Vec<u8>) {
    let Plan { base, width, exceptions, high_width } = plan;
    out.push(width | if exceptions == 0 { 0 } else { EXCEPTIONS });
    varint::push_signed(out, base);
    bitpack::pack(block, base, width, out);
    if exceptions == 0 {
        return;
    }
    out.push(exceptions as u8);
    out.push(high_width);
    let mut highs = Vec::with_capacity(exceptions);
    for (place, value) in block.iter().enumerate() {
        let high = (value.wrapping_sub(base) as u64).checked_shr(u32::from(width)).unwrap_or(0);
        if high != 0 {
            out.push(place as u8);
            highs.push(high as i64);
        }
    }
    bitpack::pack(&highs, 0, high_width, out);
}

/// Width, whether there are exceptions, base.
fn block_head(reader: &mut Reader<'_>) -> Result<(u8, bool, i64), DecodeError> {
    let head = reader.byte()?;
    let width = head & !EXCEPTIONS;
    if width > bitpack::WIDTH_BITS_MAX {
        return Err(reader.error("block wider than 64 bits"));
    }
    Ok((width, head & EXCEPTIONS != 0, reader.varint_signed()?))
}

fn decode_block(reader: &mut Reader<'_>, block: &mut [i64]) -> Result<(), DecodeError> {
    let (width, exceptions, base) = block_head(reader)?;
    bitpack::unpack(reader, width, base, block)?;
    if !exceptions {
        return Ok(());
    }
    let count = usize::from(reader.byte()?);
    let high_width = reader.byte()?;
    if count == 0 || count > block.len() || u32::from(width) + u32::from(high_width) > 64 {
        return Err(reader.error("impossible exceptions of a block"));
    }
    let places = reader.bytes(count)?;
    let mut highs = [0; BLOCK_VALUES];
    let highs = &mut highs[..count];
    bitpack::unpack(reader, high_width, 0, highs)?;
    for (place, high) in places.iter().zip(highs) {
        let Some(value) = block.get_mut(usize::from(*place)) else {
            return Err(reader.error("exception outside its block"));
        };
        *value = value.wrapping_add(high.checked_shl(u32::from(width)).unwrap_or(0));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[i64]) -> usize {
        let mut fast = Vec::new();
        encode(values, Effort::Fast, &mut fast);
        let mut back = vec![0; values.len()];
        decode(&mut Reader::new(&fast), &mut back).unwrap();
        assert_eq!(back, values);
        let mut out = Vec::new();
        encode(values, Effort::Small, &mut out);
        let bits: usize = values.chunks(BLOCK_VALUES).map(block_bits).sum();
        assert!(bits.div_ceil(8) <= out.len() + 2 * values.len().div_ceil(BLOCK_VALUES));
        let mut reader = Reader::new(&out);
        let mut back = vec![0; values.len()];
        decode(&mut reader, &mut back).unwrap();
        assert_eq!(back, values);
        assert!(reader.is_empty());
        let mut reader = Reader::new(&out);
        skip(&mut reader, values.len()).unwrap();
        assert!(reader.is_empty());
        out.len()
    }

    proptest! {
        #[test]
        fn any_values(values in proptest::collection::vec(any::<i64>(), 0..600)) {
            check(&values);
        }

        #[test]
        fn outliers(low in any::<i64>(), values in proptest::collection::vec((0i64..100, 0u8..40, any::<i64>()), 0..600)) {
            let values: Vec<i64> = values.iter().map(|(near, chance, far)| if *chance == 0 { *far } else { low.wrapping_add(*near) }).collect();
            check(&values);
        }
    }

    #[test]
    fn an_outlier_on_either_side_costs_about_ten_bytes() {
        for outlier in [i64::MIN, -1_000_000_000_000, 1_000_000_000_000, i64::MAX] {
            let mut values: Vec<i64> = (0..256).map(|n| 1000 + n * 37 % 16).collect();
            let without = check(&values);
            values[100] = outlier;
            assert!(check(&values) <= without + 12, "{outlier}");
        }
        assert!(check(&[0; 256]) <= 3);
        let mut sparse = vec![0; 256];
        sparse[9] = 7;
        assert!(check(&sparse) <= 7);
    }
}

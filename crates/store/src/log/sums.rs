//! Checksums of any range of a segment, each for little work: of what stands after damage, every eighth byte may claim to be
//! the beginning of a long record.
//!
//! A CRC is a remainder of polynomials, so that the one of a range follows from those of what ends where it begins and where it
//! ends: the first, moved on by the range's bytes, is what the second has too much.

/// Bytes from one place whose checksum is kept to the next.
const SUM_EACH_BYTES: usize = 256;

/// CRC-32C's polynomial, the highest power in the lowest bit, without that of the 32nd.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The polynomial 1 and the polynomial x to the 8th: moves on by a byte.
const ONE: u32 = 1 << 31;
const BYTE: u32 = 1 << 23;

/// Checksums of bytes.
pub(super) struct Sums<'a> {
    bytes: &'a [u8],
    /// Those of all before each block.
    before: Vec<u32>,
    /// Moves on by a byte, by two, by four, and so on.
    moves: [u32; usize::BITS as usize],
    /// Bytes that were looked at.
    pub(super) work_bytes: u64,
}

impl<'a> Sums<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut sum = 0;
        let before = std::iter::once(0)
            .chain(bytes.chunks_exact(SUM_EACH_BYTES).map(|block| {
                sum = crc32c::crc32c_append(sum, block);
                sum
            }))
            .collect();
        let mut step = BYTE;
        let moves = std::array::from_fn(|_| {
            let now = step;
            step = product(now, now);
            now
        });
        Self { bytes, before, moves, work_bytes: bytes.len() as u64 }
    }

    /// The checksum of the bytes in a range, which must lie within them.
    pub(super) fn checksum(&mut self, range: std::ops::Range<usize>) -> u32 {
        let (start, end) = (self.until(range.start), self.until(range.end));
        let mut moved = start;
        for (place, step) in self.moves.iter().enumerate() {
            if range.len() >> place & 1 == 1 {
                moved = product(*step, moved);
            }
        }
        moved ^ end
    }

    /// That of all before a place.
    fn until(&mut self, place: usize) -> u32 {
        let block = place / SUM_EACH_BYTES;
        let rest = self.bytes.get(block * SUM_EACH_BYTES..place).unwrap_or_default();
        self.work_bytes += rest.len() as u64;
        crc32c::crc32c_append(self.before.get(block).copied().unwrap_or(0), rest)
    }
}

/// The product of two remainders.
fn product(one: u32, other: u32) -> u32 {
    let (mut sum, mut shifted) = (0, other);
    for power in 0..u32::BITS {
        if one & (ONE >> power) != 0 {
            sum ^= shifted;
        }
        // Times x.
        shifted = if shifted & 1 == 1 { shifted >> 1 ^ POLYNOMIAL } else { shifted >> 1 };
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_have_the_checksums_of_their_bytes(
            bytes in prop::collection::vec(any::<u8>(), 0..3000),
            (one, other) in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let (one, other) = (one.index(bytes.len() + 1), other.index(bytes.len() + 1));
            let range = one.min(other)..one.max(other);
            prop_assert_eq!(Sums::new(&bytes).checksum(range.clone()), crc32c::crc32c(&bytes[range]));
        }
    }
}

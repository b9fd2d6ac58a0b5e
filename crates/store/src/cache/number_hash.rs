//! A hash of numbers that no client chooses, such as those of parts and blocks: a multiplication for each. A query looks them up for every
//! chunk that it reads.

use std::hash::{BuildHasherDefault, Hasher};

/// For tables whose keys are such numbers.
pub(crate) type NumberHash = BuildHasherDefault<NumberHasher>;

/// An odd number whose bits are spread evenly: 2^64 divided by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        // The high bits are the best ones; tables choose their slot by the low ones.
        self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(SPREAD).rotate_left(23);
    }

    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

//! What stands for a query.

use std::fmt;

use sha1::{Digest, Sha1};

/// Stands for a query without its time range: the SHA-1 digest of its text (FIPS 180-4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u8; 20]);

impl Key {
    /// The key of a statement. The time range is no part of it.
    pub fn of_statement(statement: &str) -> Self {
        Self(Sha1::digest(statement.as_bytes()).into())
    }

    /// Reads forty hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits: &[u8; 40] = text.as_bytes().try_into().ok()?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut key = [0; 20];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    /// Two hashes of eight bytes; digests are evenly spread, so parts of them are.
    pub(crate) fn halves(&self) -> [u64; 2] {
        let half = |place: usize| self.0.iter().skip(place).take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
        [half(0), half(8)]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Key({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sha1_digests() {
        let key = Key::of_statement("abc");
        assert_eq!(key.to_string(), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(Key::from_hex(&key.to_string()), Some(key));
        for wrong in ["", "a9", "+9993e364706816aba3e25717850c26c9cd0d89d", "zz993e364706816aba3e25717850c26c9cd0d89d"]
        {
            assert!(Key::from_hex(wrong).is_none(), "{wrong}");
        }
    }
}

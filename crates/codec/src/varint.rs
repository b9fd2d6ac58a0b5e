//! Integers of variable length: seven bits a byte, lowest first, bit 7 says that another follows (LEB128).

/// Appends an unsigned integer.
pub fn push(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed integer, zigzag: small magnitudes of either sign become short.
pub fn push_signed(out: &mut Vec<u8>, value: i64) {
    push(out, zigzag(value));
}

/// Appends text behind its length.
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    push(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// 0, -1, 1, -2, … to 0, 1, 2, 3, …
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Back from [`zigzag`].
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Reader;

    proptest! {
        #[test]
        fn round_trip(value: u64, signed: i64) {
            let mut out = Vec::new();
            push(&mut out, value);
            push_signed(&mut out, signed);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.varint().unwrap(), value);
            prop_assert_eq!(reader.varint_signed().unwrap(), signed);
            prop_assert!(reader.is_empty());
        }
    }

    #[test]
    fn refuses_more_than_64_bits() {
        let mut reader = Reader::new(&[0xff; 11]);
        assert_eq!(reader.varint().unwrap_err().what, "integer longer than 64 bits");
    }
}

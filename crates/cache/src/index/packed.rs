//! Reads what the index packs, for every request: most numbers are short.

use codec::Reader;

/// Bytes that are read from the front.
pub(super) struct Packed<'a>(pub(super) &'a [u8]);

impl Packed<'_> {
    #[inline]
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A number as [`codec::varint::push`] writes it.
    #[inline]
    pub(super) fn varint(&mut self) -> Option<u64> {
        match self.0 {
            [first, rest @ ..] if *first < 0x80 => {
                self.0 = rest;
                Some(u64::from(*first))
            }
            [first, second, rest @ ..] if *second < 0x80 => {
                self.0 = rest;
                Some(u64::from(*first & 0x7f) | u64::from(*second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Option<u64> {
        let mut reader = Reader::new(self.0);
        let value = reader.varint().ok()?;
        self.0 = reader.rest();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use codec::varint;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn numbers_of_any_length_are_read(values in prop::collection::vec(prop_oneof![0u64..300, 16_000u64..17_000, any::<u64>()], 0..20)) {
            let mut bytes = Vec::new();
            values.iter().for_each(|value| varint::push(&mut bytes, *value));
            let mut packed = Packed(&bytes);
            let read: Vec<u64> = std::iter::from_fn(|| packed.varint()).collect();
            prop_assert_eq!(read, values);
            prop_assert!(packed.byte().is_none());
        }
    }
}

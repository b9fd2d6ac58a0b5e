//! Integers of uneven frequency: each as a token of one byte, which is entropy-coded, and extra bits, which are not.
//!
//! A value is taken less a center and zigzagged, so that small numbers are those near the center. Numbers below 16 are
//! their own tokens. Of a larger one the token holds the place of its highest bit and the two bits below that, the extra
//! bits the rest: within a quarter of an octave all numbers are taken to be equally frequent. 256 tokens hold 64 bits.

use crate::{DecodeError, Reader, bitpack, tans, varint};

/// Numbers that are their own tokens.
const DIRECT: u64 = 16;

/// A token and its extra bits' number.
const fn token_of(number: u64) -> (u8, u32) {
    if number < DIRECT {
        return (number as u8, 0);
    }
    let extra = number.ilog2() - 2;
    (((extra + 2) * 4 + (number >> extra & 3) as u32) as u8, extra)
}

/// The smallest number of a token, and how many extra bits it has.
const fn number_of(token: u8) -> (u64, u32) {
    if (token as u64) < DIRECT {
        return (token as u64, 0);
    }
    let extra = token as u32 / 4 - 2;
    ((4 + token as u64 % 4) << extra, extra)
}

/// The smallest number of each token, and how many extra bits it has.
const NUMBERS: [(u64, u32); tans::SYMBOLS] = {
    let mut numbers = [(0, 0); tans::SYMBOLS];
    let mut token = 0;
    while token < tans::SYMBOLS {
        numbers[token] = number_of(token as u8);
        token += 1;
    }
    numbers
};

/// Counts tokens, to tell what integers would cost without encoding them.
pub(crate) struct Estimate {
    center: i64,
    counts: tans::Counts,
}

impl Estimate {
    pub(crate) const fn new(center: i64) -> Self {
        Self { center, counts: [0; tans::SYMBOLS] }
    }

    pub(crate) fn add(&mut self, values: &[i64]) {
        for value in values {
            let (token, _) = token_of(varint::zigzag(value.wrapping_sub(self.center)));
            self.counts[usize::from(token)] += 1;
        }
    }

    /// Bits of a column of so many times the values that were added.
    pub(crate) fn bits(&self, times: f64) -> f64 {
        let extra = |(token, count): (usize, &u32)| f64::from(*count) * f64::from(number_of(token as u8).1);
        let (token_bits, table_bits) = tans::estimated_bits(&self.counts);
        (token_bits + self.counts.iter().enumerate().map(extra).sum::<f64>()) * times + table_bits
    }
}

/// Appends the center, the entropy-coded tokens, and the extra bits.
pub(crate) fn encode(values: &[i64], center: i64, out: &mut Vec<u8>) {
    varint::push_signed(out, center);
    let mut extras = Vec::new();
    let (mut pending, mut pending_bits) = (0u128, 0);
    let token = |value: &i64| {
        let number = varint::zigzag(value.wrapping_sub(center));
        let (token, extra) = token_of(number);
        pending |= u128::from(number & ((1 << extra) - 1)) << pending_bits;
        pending_bits += extra;
        if pending_bits >= 64 {
            extras.extend_from_slice(&(pending as u64).to_le_bytes());
            pending >>= 64;
            pending_bits -= 64;
        }
        token
    };
    let tokens: Vec<u8> = values.iter().map(token).collect();
    tans::encode(&tokens, out);
    out.extend_from_slice(&extras);
    out.extend_from_slice(&(pending as u64).to_le_bytes()[..pending_bits.div_ceil(8) as usize]);
}

/// Tokens with more extra bits than this do not fit a word at any bit.
const WORD_EXTRA_MAX: u32 = 57;

/// Fills `values`.
pub(crate) fn decode(reader: &mut Reader<'_>, values: &mut [i64]) -> Result<(), DecodeError> {
    let center = reader.varint_signed()?;
    if values.is_empty() {
        return Ok(());
    }
    let coded = tans::Coded::read(reader)?;
    let missing = reader.error("entropy bits missing");
    let widest = number_of(coded.largest()).1;
    if widest == 0 {
        let number = |token: usize| center.wrapping_add(varint::unzigzag(token as u64));
        let numbers = std::array::from_fn(number);
        return if coded.decode(&numbers, values) { Ok(()) } else { Err(missing) };
    }
    let meanings = std::array::from_fn(|token| token as u8);
    let mut tokens = vec![0; values.len()];
    if !coded.decode(&meanings, &mut tokens) {
        return Err(missing);
    }
    add_extras(reader, center, widest, &tokens, values)
}

/// Fills `values` with what tokens and the extra bits behind them stand for.
fn add_extras(
    reader: &mut Reader<'_>,
    center: i64,
    widest: u32,
    tokens: &[u8],
    values: &mut [i64],
) -> Result<(), DecodeError> {
    let numbers = &NUMBERS;
    // Loads run past the end where bytes of what follows are there to be loaded.
    let bytes = reader.rest();
    let mut bit = 0;
    let mut done = 0;
    if widest <= WORD_EXTRA_MAX {
        for (value, token) in values.iter_mut().zip(tokens) {
            let Some(word) = bytes.get(bit / 8..bit / 8 + 8).and_then(|word| word.first_chunk::<8>()) else {
                break;
            };
            let (first, extra) = numbers[usize::from(*token)];
            let number = first + (u64::from_le_bytes(*word) >> (bit % 8) & ((1 << extra) - 1));
            bit += extra as usize;
            *value = center.wrapping_add(varint::unzigzag(number));
            done += 1;
        }
    }
    for (value, token) in values.iter_mut().zip(tokens).skip(done) {
        let (first, extra) = numbers[usize::from(*token)];
        let number = first + (bitpack::window(bytes, bit / 8) >> (bit % 8) & ((1 << extra) - 1)) as u64;
        bit += extra as usize;
        *value = center.wrapping_add(varint::unzigzag(number));
    }
    reader.bytes(bit.div_ceil(8)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[i64], center: i64) -> usize {
        let mut out = Vec::new();
        encode(values, center, &mut out);
        let mut reader = Reader::new(&out);
        let mut back = vec![0; values.len()];
        decode(&mut reader, &mut back).unwrap();
        assert_eq!(back, values);
        assert!(reader.is_empty());
        out.len()
    }

    proptest! {
        #[test]
        fn any_values(values in proptest::collection::vec(any::<i64>(), 0..600), center: i64) {
            check(&values, center);
        }

        #[test]
        fn near_and_far(values in proptest::collection::vec(prop_oneof![20 => -9i64..9, 3 => -999i64..999, 1 => any::<i64>()], 0..600)) {
            check(&values, 0);
        }
    }

    #[test]
    fn tokens_cover_all_numbers_in_order() {
        for token in 0..=255u8 {
            let (first, extra) = number_of(token);
            assert_eq!(token_of(first), (token, extra));
            let last = first + ((1 << extra) - 1);
            assert_eq!(token_of(last), (token, extra));
            assert_eq!(last.checked_add(1), (token < 255).then(|| number_of(token.wrapping_add(1)).0));
        }
    }
}

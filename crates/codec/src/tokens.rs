//! Integers of uneven frequency: each as a token of one byte, which is entropy-coded, and extra bits, which are not.
//!
//! A value is taken less a center and zigzagged, so that small numbers are those near the center. Numbers below 16 are
//! their own tokens. Of a larger one the token holds the place of its highest bit and the two bits below that, the extra
//! bits the rest: within a quarter of an octave all numbers are taken to be equally frequent. 256 tokens hold 64 bits.

use crate::{DecodeError, Reader, bitpack, tans, varint};

/// Numbers that are their own tokens.
const DIRECT: u64 = 16;

/// A token and its extra bits' number. Both ways are taken and one of the results is: which one, no processor can guess.
#[inline]
fn token_of(number: u64) -> (u8, u32) {
    let extra = (number | DIRECT).ilog2() - 2;
    let large = ((extra + 1) * 4) as u8 + (number >> extra) as u8;
    if number < DIRECT { (number as u8, 0) } else { (large, extra) }
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
    /// Behind the largest token.
    end: usize,
}

impl Estimate {
    pub(crate) const fn new(center: i64) -> Self {
        Self { center, counts: [0; tans::SYMBOLS], end: 0 }
    }

    pub(crate) fn add(&mut self, values: &[i64]) {
        let (tokens, union) = tokens_of(values, self.center);
        let counts = tans::counts(&tokens);
        self.end = self.end.max(usize::from(token_of(union).0) + 1);
        self.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }

    /// Bits of a column of so many times the values that were added.
    pub(crate) fn bits(&self, times: f64) -> f64 {
        let counts = self.counts.get(..self.end).unwrap_or_default();
        let extra = |(count, (_, extra)): (&u32, &(u64, u32))| u64::from(*count) * u64::from(*extra);
        let extra_bits: u64 = counts.iter().zip(&NUMBERS).map(extra).sum();
        let (token_bits, table_bits) = tans::estimated_bits(counts);
        (token_bits + extra_bits as f64) * times + table_bits
    }
}

/// Numbers below this are floats exactly: 2^52.
const FLOAT_MAX: u64 = 1 << 52;

/// The float of 2^52 and a number below that has the number as its low bits.
const FLOAT_MAX_BITS: u64 = (1023 + 52) << 52;

/// The token of a number below [`FLOAT_MAX`]. A float's exponent is the place of the highest bit, and two bits of its fraction follow that: a
/// token is what stands at the top of the float, and compilers make vectors of this.
const fn token_of_small(number: u64) -> u8 {
    let float = f64::from_bits(FLOAT_MAX_BITS | number) - FLOAT_MAX as f64;
    let large = (float.to_bits() >> 50).wrapping_sub(1023 << 2);
    (if number < DIRECT { number } else { large }) as u8
}

/// The tokens of values around a center, and the union of their numbers: the largest has as many bits.
fn tokens_of(values: &[i64], center: i64) -> (Vec<u8>, u64) {
    let number = |value: &i64| varint::zigzag(value.wrapping_sub(center));
    let union = values.iter().fold(0, |union, value| union | number(value));
    let mut tokens = vec![0; values.len()];
    let both = tokens.iter_mut().zip(values);
    if union < DIRECT {
        both.for_each(|(token, value)| *token = number(value) as u8);
    } else if union < FLOAT_MAX {
        both.for_each(|(token, value)| *token = token_of_small(number(value)));
    } else {
        both.for_each(|(token, value)| *token = token_of(number(value)).0);
    }
    (tokens, union)
}

/// Appends the center, the entropy-coded tokens, and the extra bits.
pub(crate) fn encode(values: &[i64], center: i64, out: &mut Vec<u8>) {
    varint::push_signed(out, center);
    let (tokens, union) = tokens_of(values, center);
    if union < DIRECT {
        tans::encode(&tokens, out);
        return;
    }
    let mut extras = Extras::new(values.len(), token_of(union).1);
    for (token, value) in tokens.iter().zip(values) {
        let extra = NUMBERS[usize::from(*token)].1;
        let bits = varint::zigzag(value.wrapping_sub(center)) & ((1 << extra) - 1);
        if extra > u32::BITS {
            extras.push(bits & u64::from(u32::MAX), u32::BITS);
            extras.push(bits >> u32::BITS, extra - u32::BITS);
        } else {
            extras.push(bits, extra);
        }
    }
    tans::encode(&tokens, out);
    extras.write(out);
}

/// Bits one behind the other, the first ones lowest.
struct Extras {
    words: Vec<u32>,
    /// Complete words.
    complete: usize,
    pending: u64,
    pending_bits: u32,
}

impl Extras {
    /// With room for so many times so many bits.
    fn new(count: usize, bits_max: u32) -> Self {
        let words = vec![0; count * bits_max as usize / u32::BITS as usize + 1];
        Self { words, complete: 0, pending: 0, pending_bits: 0 }
    }

    /// Up to 32 bits. A word is written whether it is complete or not: that takes less time than to ask.
    #[inline]
    fn push(&mut self, bits: u64, count: u32) {
        self.pending |= bits << self.pending_bits;
        self.pending_bits += count;
        if let Some(word) = self.words.get_mut(self.complete) {
            *word = self.pending as u32;
        }
        let is_complete = self.pending_bits / u32::BITS;
        self.complete += is_complete as usize;
        self.pending >>= is_complete * u32::BITS;
        self.pending_bits %= u32::BITS;
    }

    fn write(&self, out: &mut Vec<u8>) {
        let complete = self.words.get(..self.complete).unwrap_or_default();
        out.reserve(size_of_val(complete) + size_of::<u64>());
        complete.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        out.extend_from_slice(&self.pending.to_le_bytes()[..self.pending_bits.div_ceil(8) as usize]);
    }
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
    // Loads run past the end where bytes of what follows are there to be loaded.
    let bytes = reader.rest();
    let (mut bit, mut done) = (0, 0);
    if widest <= WORD_EXTRA_MAX {
        (done, bit) = add_words(bytes, (center, 0), tokens, values);
        // The last bytes of a column may be those of very many values that have no extra bits: of them a copy with zeros after it, made once.
        let (from, last) = (bit / 8, bytes.get(bit / 8..).unwrap_or_default());
        let mut padded = [0; 2 * size_of::<u64>()];
        if let Some(copy) = padded.get_mut(..last.len()).filter(|copy| copy.len() < size_of::<u64>()) {
            copy.copy_from_slice(last);
            let (rest, left) = (tokens.get(done..).unwrap_or_default(), values.get_mut(done..).unwrap_or_default());
            let (more, end) = add_words(&padded, (center, bit % 8), rest, left);
            (done, bit) = (done + more, from * 8 + end);
        }
    }
    let numbers = &NUMBERS;
    for (value, token) in values.iter_mut().zip(tokens).skip(done) {
        let (first, extra) = numbers[usize::from(*token)];
        let number = first + (bitpack::window(bytes, bit / 8) >> (bit % 8) & ((1 << extra) - 1)) as u64;
        bit += extra as usize;
        *value = center.wrapping_add(varint::unzigzag(number));
    }
    reader.bytes(bit.div_ceil(8)).map(|_| ())
}

/// As [`add_extras`], from a bit on, as long as there are eight bytes to be loaded at once. Returns how many values that were, and the bit after them.
#[inline]
fn add_words(bytes: &[u8], (center, mut bit): (i64, usize), tokens: &[u8], values: &mut [i64]) -> (usize, usize) {
    let numbers = &NUMBERS;
    let mut done = 0;
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
    (done, bit)
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

    /// Many values after the last one with extra bits, few, and none; and bytes that are missing.
    #[test]
    fn columns_that_end_without_extra_bits_come_back() {
        for (wide, narrow) in [(1, 2_000), (3, 900), (40, 7), (1, 0), (9, 64)] {
            for shift in [6, 17, 40, 58, 62] {
                let wide = (0..wide).map(|number| (number * 7 + 3) << shift);
                let values: Vec<i64> = wide.chain((0..narrow).map(|number| number % 7)).collect();
                check(&values, 0);
                let mut out = Vec::new();
                encode(&values, 0, &mut out);
                for cut in out.len().saturating_sub(20)..out.len() {
                    assert!(decode(&mut Reader::new(&out[..cut]), &mut vec![0; values.len()]).is_err(), "cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn tokens_cover_all_numbers_in_order() {
        for token in 0..=255u8 {
            let (first, extra) = number_of(token);
            assert_eq!(token_of(first), (token, extra));
            let last = first + ((1 << extra) - 1);
            assert_eq!(token_of(last), (token, extra));
            for number in [first, last].into_iter().filter(|number| *number < FLOAT_MAX) {
                assert_eq!(token_of_small(number), token);
            }
            assert_eq!(last.checked_add(1), (token < 255).then(|| number_of(token.wrapping_add(1)).0));
        }
    }
}

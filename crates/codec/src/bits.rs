//! Runs of bits.
//!
//! | form | | bytes behind the form |
//! |---|---|---|
//! | 0 | bits | one bit each, eight to a byte, lowest first |
//! | 1 | runs | the first bit (1 byte), number of runs, an integer column of their lengths |
//! | 2 | places | number of set bits, an integer column of their places |
//! | 3 | places | the same of the clear bits |

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader, boolean, integer, varint};

const BITS: u8 = 0;
const RUNS: u8 = 1;
const SET_PLACES: u8 = 2;
const CLEAR_PLACES: u8 = 3;

/// Appends the bits in the smallest form.
pub(crate) fn encode(bits: &[bool], effort: Effort, out: &mut Vec<u8>) {
    let plain_bytes = bits.len().div_ceil(8);
    let runs = 1 + bits.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let set = bits.iter().filter(|bit| **bit).count();
    let rarer = set.min(bits.len() - set);
    let mut smallest = vec![BITS];
    boolean::encode(bits, &mut smallest);
    let mut consider = |form: Vec<u8>| {
        if form.len() < smallest.len() {
            smallest = form;
        }
    };
    // A run or a place that costs less than two bits is rare enough to be a run.
    if runs < plain_bytes * 4 {
        consider(runs_of(bits, runs, effort));
    }
    if rarer < plain_bytes * 2 {
        consider(places_of(bits, set <= rarer, rarer, effort));
    }
    out.extend_from_slice(&smallest);
}

fn runs_of(bits: &[bool], runs: usize, effort: Effort) -> Vec<u8> {
    let mut form = vec![RUNS, u8::from(bits.first().is_some_and(|bit| *bit))];
    varint::push(&mut form, runs as u64);
    let lengths: Vec<i64> = bits.chunk_by(|left, right| left == right).map(|run| run.len() as i64).collect();
    integer::encode_with(&lengths, effort, &mut form);
    form
}

fn places_of(bits: &[bool], of_set: bool, count: usize, effort: Effort) -> Vec<u8> {
    let mut form = vec![if of_set { SET_PLACES } else { CLEAR_PLACES }];
    varint::push(&mut form, count as u64);
    let places: Vec<i64> = (0..).zip(bits).filter(|(_, bit)| **bit == of_set).map(|(place, _)| place).collect();
    integer::encode_with(&places, effort, &mut form);
    form
}

/// Takes so many bits and appends them to `bits`.
pub(crate) fn decode(reader: &mut Reader<'_>, count: usize, bits: &mut Vec<bool>) -> Result<(), DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    match reader.byte()? {
        BITS => boolean::decode(reader, count, bits),
        RUNS => decode_runs(reader, count, bits),
        form @ (SET_PLACES | CLEAR_PLACES) => {
            let of_set = form == SET_PLACES;
            let mut places = Vec::new();
            let length = reader.length(count)?;
            integer::decode(reader, length, &mut places)?;
            let start = bits.len();
            bits.resize(start + count, !of_set);
            for place in places {
                let bit = usize::try_from(place).ok().and_then(|place| bits[start..].get_mut(place));
                *bit.ok_or_else(|| reader.error("place outside the column"))? = of_set;
            }
            Ok(())
        }
        _ => Err(reader.error("unknown form of bits")),
    }
}

fn decode_runs(reader: &mut Reader<'_>, count: usize, bits: &mut Vec<bool>) -> Result<(), DecodeError> {
    let mut bit = reader.byte()? != 0;
    let runs = reader.length(count)?;
    let mut lengths = Vec::new();
    integer::decode(reader, runs, &mut lengths)?;
    let mut left = count;
    for length in lengths {
        let length = usize::try_from(length).ok().filter(|length| *length <= left);
        let length = length.ok_or_else(|| reader.error("runs longer than the column"))?;
        bits.resize(bits.len() + length, bit);
        left -= length;
        bit = !bit;
    }
    if left == 0 { Ok(()) } else { Err(reader.error("runs shorter than the column")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(bits: &[bool]) -> [usize; 2] {
        [Effort::Fast, Effort::Small].map(|effort| {
            let mut out = Vec::new();
            encode(bits, effort, &mut out);
            let mut reader = Reader::new(&out);
            let mut back = Vec::new();
            decode(&mut reader, bits.len(), &mut back).unwrap();
            assert_eq!(back, bits);
            assert!(reader.is_empty());
            out.len()
        })
    }

    proptest! {
        #[test]
        fn any_bits(runs in proptest::collection::vec((any::<bool>(), 0usize..90), 0..20), bits in proptest::collection::vec(any::<bool>(), 0..90)) {
            check(&bits);
            check(&runs.iter().flat_map(|(bit, length)| std::iter::repeat_n(*bit, *length)).collect::<Vec<_>>());
        }

        #[test]
        fn hostile_bytes_are_an_error_or_bits(form in 0u8..5, bytes in proptest::collection::vec(any::<u8>(), 0..100), count in 0usize..500) {
            let mut bits = Vec::new();
            let _ = decode(&mut Reader::new(&[&[form], bytes.as_slice()].concat()), count, &mut bits);
            prop_assert!(bits.len() <= count);
        }
    }

    #[test]
    fn sizes_in_bytes() {
        let half: Vec<bool> = (0..4096).map(|n| n > 2000).collect();
        assert!(check(&half)[0] <= 8);
        let rare: Vec<bool> = (0..4096).map(|n| n * n % 509 == 3).collect();
        assert!(check(&rare)[0] <= 60, "sixteen places cost two or three bytes each");
        let fair: Vec<bool> = (0..4096u32).map(|n| n.wrapping_mul(2_654_435_761) >> 31 == 1).collect();
        assert!(check(&fair)[0] <= 513);
    }
}

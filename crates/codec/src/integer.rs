//! Timestamps and integers.
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | constant | the value |
//! | 1 | steady: first + n × step | first, step |
//! | 2 | frame: blocks of the values | blocks of all values |
//! | 3 | differences | first, factor, blocks of the differences ÷ factor |
//! | 4 | differences of differences | first, factor, first difference ÷ factor, blocks of the rest |
//!
//! Single numbers are zigzag varints; blocks are those of [`crate::bitpack`].

use crate::{COLUMN_VALUES_MAX, DecodeError, Reader, bitpack, varint};

const CONSTANT: u8 = 0;
const STEADY: u8 = 1;
const FRAME: u8 = 2;
const DIFFERENCES: u8 = 3;
const SECOND_DIFFERENCES: u8 = 4;

/// Appends the column to `out`, in the smallest of the schemes.
pub fn encode(values: &[i64], out: &mut Vec<u8>) {
    let Some(&first) = values.first() else {
        return;
    };
    let differences = differences(values);
    if let Some(step) = steady_step(differences.as_deref()) {
        out.push(if step == 0 { CONSTANT } else { STEADY });
        varint::push_signed(out, first);
        if step != 0 {
            varint::push_signed(out, step);
        }
        return;
    }
    match differences {
        Some(differences) => encode_smallest(values, differences, out),
        None => encode_frame(values, out),
    }
}

/// Takes a column of so many values and appends them to `values`.
pub fn decode(reader: &mut Reader<'_>, count: usize, values: &mut Vec<i64>) -> Result<(), DecodeError> {
    if count == 0 {
        return Ok(());
    }
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    values.reserve(count);
    match reader.byte()? {
        CONSTANT => {
            let value = reader.varint_signed()?;
            values.resize(values.len() + count, value);
        }
        STEADY => {
            let (first, step) = (reader.varint_signed()?, reader.varint_signed()?);
            values.extend((0..count as i64).map(|place| first.wrapping_add(step.wrapping_mul(place))));
        }
        FRAME => bitpack::decode(reader, count, values)?,
        DIFFERENCES => {
            let (first, factor) = (reader.varint_signed()?, reader.varint_signed()?);
            let start = values.len();
            values.push(first);
            bitpack::decode(reader, count - 1, values)?;
            sum_up(&mut values[start..], factor);
        }
        SECOND_DIFFERENCES => decode_second(reader, count, values)?,
        _ => return Err(reader.error("unknown integer scheme")),
    }
    Ok(())
}

fn decode_second(reader: &mut Reader<'_>, count: usize, values: &mut Vec<i64>) -> Result<(), DecodeError> {
    let (first, factor) = (reader.varint_signed()?, reader.varint_signed()?);
    if count < 2 {
        return Err(reader.error("second differences of one value"));
    }
    let start = values.len();
    values.push(first);
    values.push(reader.varint_signed()?);
    bitpack::decode(reader, count - 2, values)?;
    sum_up(&mut values[start + 1..], 1);
    sum_up(&mut values[start..], factor);
    Ok(())
}

/// Turns a first value and scaled differences into values, in place.
fn sum_up(values: &mut [i64], factor: i64) {
    let mut last = 0i64;
    for (place, value) in values.iter_mut().enumerate() {
        let step = if place == 0 { *value } else { value.wrapping_mul(factor) };
        last = last.wrapping_add(step);
        *value = last;
    }
}

/// The differences between neighbours; `None` if one of them is too large for an `i64`.
fn differences(values: &[i64]) -> Option<Vec<i64>> {
    values.windows(2).map(|pair| pair[1].checked_sub(pair[0])).collect()
}

fn steady_step(differences: Option<&[i64]>) -> Option<i64> {
    match differences? {
        [] => Some(0),
        [step, rest @ ..] => rest.iter().all(|other| other == step).then_some(*step),
    }
}

fn encode_frame(values: &[i64], out: &mut Vec<u8>) {
    out.push(FRAME);
    bitpack::encode(values, out);
}

fn encode_smallest(values: &[i64], mut differences: Vec<i64>, out: &mut Vec<u8>) {
    let factor = common_factor(&differences);
    if factor > 1 {
        for difference in &mut differences {
            *difference /= factor;
        }
    }
    let second: Option<Vec<i64>> = self::differences(&differences);
    let frame_bytes = bitpack::encoded_bytes(values);
    let first_bytes = bitpack::encoded_bytes(&differences);
    let second_bytes = second.as_deref().map_or(usize::MAX, bitpack::encoded_bytes);
    // A frame decodes twice as fast as differences and any value of it can be reached directly: it may cost a bit more.
    let frame_is_close = frame_bytes <= first_bytes.min(second_bytes) + values.len() / 16;
    if frame_is_close {
        return encode_frame(values, out);
    }
    let by_second = second.filter(|_| second_bytes < first_bytes);
    out.push(if by_second.is_some() { SECOND_DIFFERENCES } else { DIFFERENCES });
    varint::push_signed(out, values[0]);
    varint::push_signed(out, factor);
    match by_second {
        Some(second) => {
            varint::push_signed(out, differences[0]);
            bitpack::encode(&second, out);
        }
        None => bitpack::encode(&differences, out),
    }
}

/// The greatest common divisor of the magnitudes: nanosecond timestamps that are whole milliseconds share a million.
fn common_factor(differences: &[i64]) -> i64 {
    let mut factor = 0u64;
    for difference in differences {
        let (mut a, mut b) = (difference.unsigned_abs(), factor);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        factor = a;
        if factor == 1 {
            return 1;
        }
    }
    i64::try_from(factor).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[i64]) -> usize {
        let mut out = Vec::new();
        encode(values, &mut out);
        let mut back = Vec::new();
        let mut reader = Reader::new(&out);
        decode(&mut reader, values.len(), &mut back).unwrap();
        assert_eq!(back, values);
        assert!(reader.is_empty());
        out.len()
    }

    proptest! {
        #[test]
        fn any_values(values in proptest::collection::vec(any::<i64>(), 0..400)) {
            check(&values);
        }

        #[test]
        fn walks(start in -1_000_000i64..1_000_000, steps in proptest::collection::vec(-20i64..20, 0..400), factor in 1i64..1_000_000) {
            let mut at = start;
            let values: Vec<i64> = steps.iter().map(|step| { at += step * factor; at }).collect();
            check(&values);
        }

        #[test]
        fn hostile_bytes_are_an_error_or_values(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..500) {
            let mut values = Vec::new();
            let _ = decode(&mut Reader::new(&bytes), count, &mut values);
            prop_assert!(values.len() <= count);
        }
    }

    #[test]
    fn sizes_in_bytes() {
        let steady: Vec<i64> = (0..1000).map(|n| 1_700_000_000_000_000_000 + n * 10_000_000_000).collect();
        assert!(check(&steady) <= 16);
        let jittered: Vec<i64> =
            (0..1000).map(|n| 1_700_000_000_000_000_000 + (n * 10_000 + n * 7919 % 11 - 5) * 1_000_000).collect();
        assert!(check(&jittered) < 1000 * 6 / 8, "milliseconds in nanoseconds lose their factor");
        assert!(check(&[i64::MIN, i64::MAX, 0, i64::MIN]) <= 44);
        assert!(check(&[7; 1000]) <= 2);
    }
}

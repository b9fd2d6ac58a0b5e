//! Floats. Null and stale cells are not among them: see [`crate::presence`].
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | constant | bits of the value (8 bytes) |
//! | 1 | decimals: integers ÷ 10^e | e (1 byte), number of exceptions, places and bits of the exceptions, an integer column |
//! | 2 | bits | an integer column of the bit patterns |
//!
//! Decimals follow the idea of ALP (Afroozeh, Kuffo, Boncz: Adaptive Lossless floating-Point compression, SIGMOD 2023),
//! with one exponent and a division: an integer below 2^53 divided by a power of ten up to 10^22 is rounded once, so a
//! decimal with at most 15 digits comes back exactly as its text was read.

use crate::{COLUMN_VALUES_MAX, DecodeError, Reader, integer, varint};

const CONSTANT: u8 = 0;
const DECIMALS: u8 = 1;
const BITS: u8 = 2;

/// Powers of ten that a double holds exactly and that are worth a try.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Values looked at to find the exponent.
const PROBES: usize = 16;

/// Appends the column to `out`.
pub fn encode(values: &[f64], out: &mut Vec<u8>) {
    let Some(first) = values.first() else {
        return;
    };
    if values.iter().all(|value| value.to_bits() == first.to_bits()) {
        out.push(CONSTANT);
        out.extend_from_slice(&first.to_bits().to_le_bytes());
        return;
    }
    if let Some(exponent) = probe_exponent(values)
        && encode_decimals(values, exponent, out)
    {
        return;
    }
    out.push(BITS);
    let bits: Vec<i64> = values.iter().map(|value| value.to_bits() as i64).collect();
    integer::encode(&bits, out);
}

/// Takes a column of so many values and appends them to `values`.
pub fn decode(reader: &mut Reader<'_>, count: usize, values: &mut Vec<f64>) -> Result<(), DecodeError> {
    if count == 0 {
        return Ok(());
    }
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    match reader.byte()? {
        CONSTANT => {
            let value = f64::from_bits(reader.u64()?);
            values.resize(values.len() + count, value);
            Ok(())
        }
        DECIMALS => decode_decimals(reader, count, values),
        BITS => {
            let mut bits = Vec::new();
            integer::decode(reader, count, &mut bits)?;
            values.extend(bits.iter().map(|bits| f64::from_bits(*bits as u64)));
            Ok(())
        }
        _ => Err(reader.error("unknown float scheme")),
    }
}

fn decode_decimals(reader: &mut Reader<'_>, count: usize, values: &mut Vec<f64>) -> Result<(), DecodeError> {
    let exponent = usize::from(reader.byte()?);
    let Some(power) = POWERS.get(exponent).copied() else {
        return Err(reader.error("exponent too large"));
    };
    let mut exceptions = Vec::new();
    for _ in 0..reader.length(count)? {
        exceptions.push((reader.length(count - 1)?, f64::from_bits(reader.u64()?)));
    }
    let mut integers = Vec::new();
    integer::decode(reader, count, &mut integers)?;
    let start = values.len();
    if exponent == 0 {
        values.extend(integers.iter().map(|integer| *integer as f64));
    } else {
        values.extend(integers.iter().map(|integer| *integer as f64 / power));
    }
    for (place, value) in exceptions {
        values[start + place] = value;
    }
    Ok(())
}

/// The smallest exponent that makes integers of nearly all of some values spread over the column.
fn probe_exponent(values: &[f64]) -> Option<usize> {
    let stride = values.len().div_ceil(PROBES);
    let needed: Vec<Option<usize>> = values.iter().step_by(stride).map(|value| exponent_of(*value)).collect();
    let fitting = needed.iter().flatten().count();
    if fitting * 8 < needed.len() * 7 {
        return None;
    }
    needed.into_iter().flatten().max()
}

fn exponent_of(value: f64) -> Option<usize> {
    (0..POWERS.len()).find(|exponent| to_integer(value, POWERS[*exponent]).is_some())
}

/// The integer that divided by the power gives back the value, to the bit.
fn to_integer(value: f64, power: f64) -> Option<i64> {
    let scaled = (value * power).round_ties_even();
    if scaled.abs() > INTEGER_MAX {
        return None;
    }
    let integer = scaled as i64;
    ((integer as f64 / power).to_bits() == value.to_bits()).then_some(integer)
}

/// Appends the values as decimals unless more than one in 32 is no decimal of this exponent.
fn encode_decimals(values: &[f64], exponent: usize, out: &mut Vec<u8>) -> bool {
    let power = POWERS[exponent];
    let mut exceptions = Vec::new();
    let mut integers = Vec::with_capacity(values.len());
    let mut last = 0;
    for (place, value) in values.iter().enumerate() {
        match to_integer(*value, power) {
            Some(integer) => last = integer,
            None => exceptions.push((place, value.to_bits())),
        }
        integers.push(last);
    }
    if exceptions.len() * 32 > values.len() + 31 {
        return false;
    }
    out.push(DECIMALS);
    out.push(exponent as u8);
    varint::push(out, exceptions.len() as u64);
    for (place, bits) in exceptions {
        varint::push(out, place as u64);
        out.extend_from_slice(&bits.to_le_bytes());
    }
    integer::encode(&integers, out);
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(values: &[f64]) -> usize {
        let mut out = Vec::new();
        encode(values, &mut out);
        let mut back = Vec::new();
        let mut reader = Reader::new(&out);
        decode(&mut reader, values.len(), &mut back).unwrap();
        let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back), bits(values));
        assert!(reader.is_empty());
        out.len()
    }

    proptest! {
        #[test]
        fn any_bits(values in proptest::collection::vec(any::<u64>().prop_map(f64::from_bits), 0..300)) {
            check(&values);
        }

        #[test]
        fn decimals_with_an_odd_one(cents in proptest::collection::vec(-1_000_000i64..1_000_000, 1..300), odd: f64) {
            let mut values: Vec<f64> = cents.iter().map(|cents| *cents as f64 / 100.0).collect();
            let middle = values.len() / 2;
            values[middle] = odd;
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
        assert_eq!(check(&[f64::NAN; 500]), 9);
        let cents: Vec<f64> = (0..1000).map(|n| f64::from(n * 37 % 400) / 100.0).collect();
        assert!(check(&cents) < 1300, "two decimals of 400 values are 9 bits each");
        assert!(check(&[0.0, -0.0, f64::INFINITY, 1e300, f64::MIN_POSITIVE]) < 60);
    }
}

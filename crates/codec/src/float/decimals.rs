//! Floats that are decimals: integers ÷ 10^e, with exceptions.

use super::{Decoded, Scratch};
use crate::{DecodeError, Effort, Reader, integer, varint};

/// Powers of ten that a double holds exactly and that are worth a try.
const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];

/// A float of this magnitude or more has no places for halves: adding it rounds to a whole number, whose integer then
/// stands in the low bits. That needs no instruction that old processors lack, and compilers make vectors of it.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Magnitudes that the rounder handles: 2^51.
const ROUNDED_MAX: f64 = 2_251_799_813_685_248.0;

/// Magnitudes of integers that become floats without an instruction that old processors lack: 2^51.
const SMALL_MAX: i64 = 1 << 51;

/// Integers up to this are floats exactly: 2^53.
const INTEGER_MAX: f64 = 9_007_199_254_740_992.0;

/// Whole floats up to this fit an `i64`, and come back to the bit although they are too large for every integer: 2^62.
const WHOLE_MAX: f64 = 4_611_686_018_427_387_904.0;

/// Values looked at to find the exponent.
const PROBES: usize = 32;

/// One in so many values may be an exception.
const EXCEPTION_SHARE: usize = 8;

/// Appends exponent, exceptions and integers; false, with bytes half written, if too many values are no decimals.
pub(super) fn encode(values: &[f64], effort: Effort, out: &mut Vec<u8>) -> bool {
    // Whole numbers are frequent, and found out while they are converted.
    if values.first().is_some_and(|first| rounded(*first).1 == 0) {
        let mut integers = Vec::with_capacity(values.len());
        let small = values.iter().fold(true, |small, value| small & (value.abs() < ROUNDED_MAX));
        if small && !convert(values, &mut integers, rounded) {
            out.extend_from_slice(&[0, 0]);
            integer::encode_taken(integers, effort, out);
            return true;
        }
    }
    let Some(exponent) = probe_exponent(values) else {
        return false;
    };
    let power = POWERS[exponent];
    let mut integers = Vec::with_capacity(values.len());
    let limit = ROUNDED_MAX / power;
    let small = values.iter().fold(true, |small, value| small & (value.abs() < limit));
    let wrong = match (small, exponent) {
        (true, 0) => convert(values, &mut integers, rounded),
        (true, _) => convert(values, &mut integers, |value| scaled(value, power)),
        (false, _) => convert(values, &mut integers, |value| any_scaled(value, power)),
    };
    let mut exceptions = Vec::new();
    if wrong {
        let is_exception = |place: &usize| any_scaled(values[*place], power).1 != 0;
        exceptions.extend((0..values.len()).filter(is_exception));
    }
    if exceptions.len() * EXCEPTION_SHARE > values.len() + EXCEPTION_SHARE - 1 {
        return false;
    }
    out.push(exponent as u8);
    varint::push(out, exceptions.len() as u64);
    for place in exceptions {
        varint::push(out, place as u64);
        out.extend_from_slice(&values[place].to_bits().to_le_bytes());
        integers[place] = place.checked_sub(1).map_or(0, |before| integers[before]);
    }
    integer::encode_taken(integers, effort, out);
    true
}

pub(super) fn decode<V: Decoded>(
    reader: &mut Reader<'_>,
    count: usize,
    scratch: &mut Scratch,
    values: &mut Vec<V>,
) -> Result<(), DecodeError> {
    let exponent = usize::from(reader.byte()?);
    let Some(power) = POWERS.get(exponent).copied() else {
        return Err(reader.error("exponent too large"));
    };
    let mut exceptions = Vec::new();
    for _ in 0..reader.length(count)? {
        exceptions.push((reader.length(count - 1)?, V::of_bits(reader.u64()?)));
    }
    let integers = integer::decode_over(reader, count, &mut scratch.0)?;
    let start = values.len();
    // All from -SMALL_MAX up to below SMALL_MAX: then, and only then, these bits are enough for what is that much more.
    let union = integers.iter().fold(0, |union, integer| union | integer.wrapping_add(SMALL_MAX) as u64);
    let is_small = union < 2 * SMALL_MAX as u64;
    let decoded = |value: f64| V::of_bits(value.to_bits());
    match (exponent, is_small) {
        (0, _) => values.extend(integers.iter().map(|integer| decoded(*integer as f64))),
        (_, true) => values.extend(integers.iter().map(|integer| decoded(small_float(*integer) / power))),
        (_, false) => values.extend(integers.iter().map(|integer| decoded(*integer as f64 / power))),
    }
    for (place, value) in exceptions {
        values[start + place] = value;
    }
    Ok(())
}

/// The smallest exponent that makes integers of nearly all of some values spread over the column. Few values need more
/// than the one before, so the search goes up from there.
fn probe_exponent(values: &[f64]) -> Option<usize> {
    let stride = values.len().div_ceil(PROBES);
    let probes = values.len().div_ceil(stride);
    let mut exponent = 0;
    let mut misses = 0;
    for value in values.iter().step_by(stride) {
        let fits = |exponent: &usize| any_scaled(*value, POWERS[*exponent]).1 == 0;
        match (exponent..POWERS.len()).find(fits) {
            Some(needed) => exponent = needed,
            None => misses += 1,
        }
        if misses * EXCEPTION_SHARE > probes {
            return None;
        }
    }
    Some(exponent)
}

/// A power of ten, if decimals may have it.
pub(crate) fn power(exponent: usize) -> Option<f64> {
    POWERS.get(exponent).copied()
}

/// The smallest exponent from one up to another that makes an integer of a value.
pub(crate) fn exponent_of(value: f64, from: usize, to: usize) -> Option<usize> {
    let powers = POWERS.iter().enumerate().take(to + 1).skip(from);
    let mut fitting = powers.filter(|(_, power)| any_scaled(value, **power).1 == 0);
    fitting.next().map(|(exponent, _)| exponent)
}

/// Fills `integers` with the values (bits of floats) × 10^exponent; whether that gives all of them back to the bit.
pub(crate) fn all_integers(values: &[u64], exponent: usize, integers: &mut [i64]) -> bool {
    let Some(power) = power(exponent) else {
        return false;
    };
    let limit = ROUNDED_MAX / power;
    match exponent {
        0 => fill(values, limit, integers, rounded),
        _ => fill(values, limit, integers, |value| scaled(value, power)),
    }
}

fn fill(values: &[u64], limit: f64, integers: &mut [i64], to_integer: impl Fn(f64) -> (i64, u64)) -> bool {
    let (mut small, mut wrong) = (true, 0);
    for (integer, bits) in integers.iter_mut().zip(values) {
        let value = f64::from_bits(*bits);
        let (number, wrong_bits) = to_integer(value);
        *integer = number;
        wrong |= wrong_bits;
        // What is not a number is below no limit.
        small &= value.abs() < limit;
    }
    small && wrong == 0
}

/// Appends the integers; whether some value was none.
fn convert(values: &[f64], integers: &mut Vec<i64>, to_integer: impl Fn(f64) -> (i64, u64)) -> bool {
    let mut wrong = 0;
    integers.extend(values.iter().map(|value| {
        let (integer, wrong_bits) = to_integer(*value);
        wrong |= wrong_bits;
        integer
    }));
    wrong != 0
}

/// The integer that is the value, and bits that are not 0 if there is none; for magnitudes below [`ROUNDED_MAX`].
fn rounded(value: f64) -> (i64, u64) {
    let rounded = value + ROUNDER;
    (rounded_integer(rounded), (rounded - ROUNDER).to_bits() ^ value.to_bits())
}

/// The integer that divided by the power is the value, as [`rounded`].
fn scaled(value: f64, power: f64) -> (i64, u64) {
    let rounded = value * power + ROUNDER;
    (rounded_integer(rounded), ((rounded - ROUNDER) / power).to_bits() ^ value.to_bits())
}

const fn rounded_integer(rounded: f64) -> i64 {
    (rounded.to_bits() as i64).wrapping_sub(ROUNDER.to_bits() as i64)
}

/// The float of an integer whose magnitude is below [`SMALL_MAX`]: what [`rounded_integer`] does, backwards.
const fn small_float(integer: i64) -> f64 {
    f64::from_bits(integer.wrapping_add(ROUNDER.to_bits() as i64) as u64) - ROUNDER
}

/// As [`scaled`] for any magnitude.
fn any_scaled(value: f64, power: f64) -> (i64, u64) {
    let scaled = value * power;
    let bound = if power < 2.0 { WHOLE_MAX } else { INTEGER_MAX };
    let magnitude = scaled.abs();
    let whole = if magnitude < ROUNDED_MAX { (scaled + ROUNDER) - ROUNDER } else { scaled };
    let integer = whole as i64;
    let wrong = (integer as f64 / power).to_bits() ^ value.to_bits();
    // Not a number is below no bound.
    (integer, if magnitude <= bound { wrong } else { u64::MAX })
}

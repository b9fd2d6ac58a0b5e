//! Timestamps and integers.
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | constant | the value |
//! | 1 | steady: first + n × step | first, step |
//! | 2, 3, 4 | blocks of old versions | are read, but written no more |
//! | 5, 6, 7, 8 | packed | first, factor, the transform's number, blocks of the rest |
//! | 9, 10, 11, 12 | entropy-coded | first, factor, the transform's number, tokens of the rest |
//!
//! A column is first scaled: (value − first) ÷ factor, where the factor is the greatest common divisor. Then one of four
//! [`Transform`]s makes its numbers small, and those are packed in blocks ([`crate::patched`]) or entropy-coded
//! ([`crate::tokens`]). All of it wraps at 64 bits, so that any values fit.

mod choice;
mod factor;
mod old;
mod transform;

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader, patched, tokens, varint};
use choice::Choice;
use transform::Transform;

const CONSTANT: u8 = 0;
const STEADY: u8 = 1;
const PACKED: u8 = 5;
const ENTROPY: u8 = 9;

/// Appends the column to `out`, quickly.
pub fn encode(values: &[i64], out: &mut Vec<u8>) {
    encode_with(values, Effort::Fast, out);
}

/// Appends the column to `out` in the smallest of the schemes that the effort allows.
pub fn encode_with(values: &[i64], effort: Effort, out: &mut Vec<u8>) {
    if !encode_steady(values, out) {
        encode_unsteady(values.to_vec(), effort, out);
    }
}

/// Appends a column whose neighbours have nothing to do with one another, such as values of different series: distances to the smallest,
/// entropy-coded where that saves something. Quicker to write than [`Effort::Small`], which looks for a trend.
pub fn encode_unordered(values: &[i64], out: &mut Vec<u8>) {
    if encode_steady(values, out) {
        return;
    }
    let mut numbers = values.to_vec();
    let first = numbers.first().copied().unwrap_or(0);
    let factor = factor::scale(&mut numbers);
    let choice = Choice::unordered(&numbers);
    encode_scaled(numbers, &Scaled { first, factor, choice }, Effort::Small, out);
}

/// As [`encode`], using up the values.
pub(crate) fn encode_taken(values: Vec<i64>, effort: Effort, out: &mut Vec<u8>) {
    if !encode_steady(&values, out) {
        encode_unsteady(values, effort, out);
    }
}

/// Appends a column that goes up by one and the same step, or has no values; whether it does.
fn encode_steady(values: &[i64], out: &mut Vec<u8>) -> bool {
    let [first, rest @ ..] = values else {
        return true;
    };
    let step = rest.first().map_or(0, |second| second.wrapping_sub(*first));
    if !values.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == step) {
        return false;
    }
    out.push(if step == 0 { CONSTANT } else { STEADY });
    varint::push_signed(out, *first);
    if step != 0 {
        varint::push_signed(out, step);
    }
    true
}

/// Appends any other column, whose memory serves on the way.
fn encode_unsteady(mut numbers: Vec<i64>, effort: Effort, out: &mut Vec<u8>) {
    let first = numbers.first().copied().unwrap_or(0);
    let factor = factor::scale(&mut numbers);
    let choice = Choice::for_numbers(&numbers, effort);
    encode_scaled(numbers, &Scaled { first, factor, choice }, effort, out);
}

/// How numbers were scaled, and how they are stored.
struct Scaled {
    first: i64,
    factor: u64,
    choice: Choice,
}

fn encode_scaled(mut numbers: Vec<i64>, scaled: &Scaled, effort: Effort, out: &mut Vec<u8>) {
    let Scaled { first, factor, choice } = *scaled;
    let transform = choice.transform;
    out.push(if choice.center.is_some() { ENTROPY } else { PACKED } + transform.number());
    varint::push_signed(out, first);
    varint::push(out, factor);
    transform.write(out);
    transform.apply_all(&mut numbers);
    match choice.center {
        Some(center) => tokens::encode(&numbers, center, out),
        None => patched::encode(&numbers, effort, out),
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
    let start = values.len();
    values.resize(start + count, 0);
    let decoded = decode_slice(reader, &mut values[start..]);
    if decoded.is_err() {
        values.truncate(start);
    }
    decoded
}

/// Takes a column of so many values over what is in some memory, which need not be cleared then.
pub(crate) fn decode_over<'m>(
    reader: &mut Reader<'_>,
    count: usize,
    memory: &'m mut Vec<i64>,
) -> Result<&'m [i64], DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    if memory.len() < count {
        memory.resize(count, 0);
    }
    let values = memory.get_mut(..count).unwrap_or_default();
    if count > 0 {
        decode_slice(reader, values)?;
    }
    Ok(values)
}

/// Fills `values`, which are not empty, whatever is in them.
fn decode_slice(reader: &mut Reader<'_>, values: &mut [i64]) -> Result<(), DecodeError> {
    match reader.byte()? {
        CONSTANT => values.fill(reader.varint_signed()?),
        STEADY => {
            let (first, step) = (reader.varint_signed()?, reader.varint_signed()?);
            let mut next = first;
            for value in values {
                *value = next;
                next = next.wrapping_add(step);
            }
        }
        tag @ 2..=4 => old::decode(tag, reader, values)?,
        tag @ PACKED..=12 => {
            let first = reader.varint_signed()?;
            let factor = reader.varint()? as i64;
            let transform = Transform::read((tag - PACKED) % 4, reader)?;
            let Some(rest) = values.get_mut(transform.implied()..) else {
                return Err(reader.error("fewer values than the transform implies"));
            };
            if tag < ENTROPY {
                patched::decode(reader, rest)?;
            } else {
                tokens::decode(reader, rest)?;
            }
            transform.undo(values, first, factor);
        }
        _ => return Err(reader.error("unknown integer scheme")),
    }
    Ok(())
}

/// Takes a column of so many values and appends those of a range of places. Of packed columns without differences only
/// the blocks are decoded that hold such values, of others all.
pub fn decode_range(
    reader: &mut Reader<'_>,
    count: usize,
    range: std::ops::Range<usize>,
    values: &mut Vec<i64>,
) -> Result<(), DecodeError> {
    let range = range.start.min(count)..range.end.min(count);
    let mut peek = reader.clone();
    let tag = if range.is_empty() || count > COLUMN_VALUES_MAX { 0 } else { peek.byte()? };
    let transform = tag.wrapping_sub(PACKED);
    if transform > Transform::LINEAR_NUMBER {
        let mut all = Vec::new();
        decode(reader, count, &mut all)?;
        values.extend_from_slice(all.get(range).unwrap_or_default());
        return Ok(());
    }
    let first = peek.varint_signed()?;
    let factor = peek.varint()? as i64;
    let transform = Transform::read(transform, &mut peek)?;
    let before = range.start / patched::BLOCK_VALUES * patched::BLOCK_VALUES;
    let behind = range.end.next_multiple_of(patched::BLOCK_VALUES).min(count);
    patched::skip(&mut peek, before)?;
    let mut blocks = vec![0; behind - before];
    patched::decode(&mut peek, &mut blocks)?;
    patched::skip(&mut peek, count - behind)?;
    transform.undo_from(before, &mut blocks, first, factor);
    values.extend_from_slice(blocks.get(range.start - before..range.end - before).unwrap_or_default());
    *reader = peek;
    Ok(())
}

#[cfg(test)]
#[path = "integer/tests.rs"]
mod tests;

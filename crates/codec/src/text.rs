//! Texts.
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | plain | an integer column of lengths, then all texts |
//! | 1 | dictionary | number of distinct texts, those as plain, then an integer column of places in it |
//! | 2 | plain, compressed | an integer column of lengths, number of compressed bytes, those |
//! | 3 | dictionary, compressed | as 1, the distinct texts as 2 |
//!
//! Compressed bytes are one LZ4 block (<https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md>) of all texts.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::{COLUMN_VALUES_MAX, DecodeError, Effort, Reader, integer, varint};

/// Bytes of all texts that a column may hold if it is compressed or has a dictionary: bounds what damaged bytes make a
/// decoder allocate. Larger columns are written plain.
pub const TEXT_BYTES_MAX: usize = 256 << 20;

/// An LZ4 block is at most so many times smaller than its contents: a byte of a length stands for 255.
const LZ4_RATIO_MAX: usize = 255;

const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;
/// Added to a tag whose texts are compressed.
const COMPRESSED: u8 = 2;

/// Appends the column to `out`, quickly.
pub fn encode(values: &[&str], out: &mut Vec<u8>) {
    encode_with(values, Effort::Fast, out);
}

/// Appends the column to `out` in the smallest of the schemes that the effort allows.
pub fn encode_with(values: &[&str], effort: Effort, out: &mut Vec<u8>) {
    let mut places: HashMap<&str, i64> = HashMap::new();
    let mut distinct = Vec::new();
    let mut column = Vec::with_capacity(values.len());
    for value in values {
        let place = *places.entry(value).or_insert(distinct.len() as i64);
        if place == distinct.len() as i64 {
            distinct.push(*value);
        }
        column.push(place);
    }
    let sum: usize = values.iter().map(|value| value.len()).sum();
    let by_dictionary = distinct.len() * 2 <= values.len() && sum <= TEXT_BYTES_MAX;
    let texts = if by_dictionary { distinct.as_slice() } else { values };
    let bytes = texts.concat().into_bytes();
    let compressed = match effort {
        Effort::Small if bytes.len() <= TEXT_BYTES_MAX => Some(lz4_flex::block::compress(&bytes)),
        _ => None,
    };
    // Less than an eighth saved is not worth the time it takes to read.
    let compressed = compressed.filter(|compressed| compressed.len() < bytes.len() / 8 * 7);
    let tag = if by_dictionary { DICTIONARY } else { PLAIN };
    out.push(tag + if compressed.is_some() { COMPRESSED } else { 0 });
    if by_dictionary {
        varint::push(out, distinct.len() as u64);
    }
    let lengths: Vec<i64> = texts.iter().map(|text| text.len() as i64).collect();
    integer::encode_with(&lengths, effort, out);
    match compressed {
        Some(compressed) => {
            varint::push(out, compressed.len() as u64);
            out.extend_from_slice(&compressed);
        }
        None => out.extend_from_slice(&bytes),
    }
    if by_dictionary {
        integer::encode_with(&column, effort, out);
    }
}

/// Takes a column of so many values.
pub fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Vec<String>, DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    let tag = reader.byte()?;
    if tag > DICTIONARY + COMPRESSED {
        return Err(reader.error("unknown text scheme"));
    }
    let distinct = if tag & DICTIONARY == 0 { count } else { reader.length(count)? };
    let mut lengths = Vec::new();
    integer::decode(reader, distinct, &mut lengths)?;
    let bytes = take_bytes(reader, &lengths, tag >= COMPRESSED)?;
    let texts = cut(reader, &bytes, &lengths)?;
    if tag & DICTIONARY == 0 {
        return Ok(texts.into_iter().map(str::to_owned).collect());
    }
    let mut column = Vec::new();
    integer::decode(reader, count, &mut column)?;
    let text = |place: &i64| usize::try_from(*place).ok().and_then(|place| texts.get(place));
    // Texts in a dictionary may be long and their places many: what they come to together is bounded before it is made.
    let sum = column.iter().map(|place| text(place).map(|text| text.len())).sum::<Option<usize>>();
    match sum {
        Some(sum) if sum <= TEXT_BYTES_MAX => {}
        Some(_) => return Err(reader.error("more bytes of text than a column may hold")),
        None => return Err(reader.error("place outside the dictionary")),
    }
    Ok(column.iter().filter_map(text).map(|text| (*text).to_owned()).collect())
}

/// The bytes of all texts.
fn take_bytes<'a>(reader: &mut Reader<'a>, lengths: &[i64], compressed: bool) -> Result<Cow<'a, [u8]>, DecodeError> {
    let sum = lengths.iter().try_fold(0usize, |sum, length| sum.checked_add(usize::try_from(*length).ok()?));
    let sum = sum.ok_or_else(|| reader.error("negative length"))?;
    if !compressed {
        return reader.bytes(sum).map(Cow::Borrowed);
    }
    let length = reader.length(reader.rest().len())?;
    let block = reader.bytes(length)?;
    if sum > TEXT_BYTES_MAX || sum / LZ4_RATIO_MAX > block.len() {
        return Err(reader.error("more bytes of text than were compressed"));
    }
    let mut bytes = vec![0; sum];
    match lz4_flex::block::decompress_into(block, &mut bytes) {
        Ok(length) if length == sum => Ok(Cow::Owned(bytes)),
        _ => Err(reader.error("damaged compressed text")),
    }
}

fn cut<'a>(reader: &Reader<'_>, bytes: &'a [u8], lengths: &[i64]) -> Result<Vec<&'a str>, DecodeError> {
    let mut bytes = Reader::new(bytes);
    let text = |length: &i64| bytes.bytes(*length as usize).ok().and_then(|text| std::str::from_utf8(text).ok());
    let texts: Option<Vec<&str>> = lengths.iter().map(text).collect();
    texts.ok_or_else(|| reader.error("text that is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(values in proptest::collection::vec("(a|b|.{0,9})", 0..60)) {
            let texts: Vec<&str> = values.iter().map(String::as_str).collect();
            for effort in [Effort::Fast, Effort::Small] {
                let mut out = Vec::new();
                encode_with(&texts, effort, &mut out);
                let mut reader = Reader::new(&out);
                prop_assert_eq!(&decode(&mut reader, texts.len()).unwrap(), &values);
                prop_assert!(reader.is_empty());
            }
        }

        #[test]
        fn hostile_bytes_are_an_error_or_values(tag in 0u8..5, bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..500) {
            let _ = decode(&mut Reader::new(&[&[tag], bytes.as_slice()].concat()), count);
        }
    }

    #[test]
    fn log_lines_are_compressed_where_there_is_time() {
        let lines: Vec<String> = (0..500)
            .map(|n| format!("GET /api/v1/query?user={} took {} ms, status 200", n * 7919 % 1009, n * 31 % 97))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let bytes = [Effort::Fast, Effort::Small].map(|effort| {
            let mut out = Vec::new();
            encode_with(&lines, effort, &mut out);
            out.len()
        });
        assert!(bytes[1] * 5 < bytes[0] * 2, "{bytes:?}");
    }

    #[test]
    fn small_bytes_do_not_become_huge_texts() {
        // One text of 100 MB, which its few compressed bytes cannot hold.
        let mut out = vec![PLAIN + COMPRESSED];
        integer::encode(&[100_000_000], &mut out);
        out.extend_from_slice(&[2, 0, 0]);
        assert_eq!(decode(&mut Reader::new(&out), 1).unwrap_err().what, "more bytes of text than were compressed");
    }
}

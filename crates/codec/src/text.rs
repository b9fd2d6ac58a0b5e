//! Texts.
//!
//! | tag | scheme | bytes behind the tag |
//! |---|---|---|
//! | 0 | plain | an integer column of lengths, then all texts |
//! | 1 | dictionary | number of distinct texts, those as plain, then an integer column of places in it |

use std::collections::HashMap;

use crate::{COLUMN_VALUES_MAX, DecodeError, Reader, integer, varint};

const PLAIN: u8 = 0;
const DICTIONARY: u8 = 1;

/// Appends the column to `out`.
pub fn encode(values: &[&str], out: &mut Vec<u8>) {
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
    if distinct.len() * 2 > values.len() {
        out.push(PLAIN);
        encode_plain(values, out);
        return;
    }
    out.push(DICTIONARY);
    varint::push(out, distinct.len() as u64);
    encode_plain(&distinct, out);
    integer::encode(&column, out);
}

/// Takes a column of so many values.
pub fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Vec<String>, DecodeError> {
    if count > COLUMN_VALUES_MAX {
        return Err(reader.error("more values than a column may hold"));
    }
    match reader.byte()? {
        PLAIN => Ok(decode_plain(reader, count)?.into_iter().map(str::to_owned).collect()),
        DICTIONARY => {
            let distinct = reader.length(count)?;
            let dictionary = decode_plain(reader, distinct)?;
            let mut column = Vec::new();
            integer::decode(reader, count, &mut column)?;
            let text = |place: i64| usize::try_from(place).ok().and_then(|place| dictionary.get(place));
            let texts: Option<Vec<String>> =
                column.into_iter().map(|place| text(place).map(|text| (*text).to_owned())).collect();
            texts.ok_or_else(|| reader.error("place outside the dictionary"))
        }
        _ => Err(reader.error("unknown text scheme")),
    }
}

fn encode_plain(values: &[&str], out: &mut Vec<u8>) {
    let lengths: Vec<i64> = values.iter().map(|value| value.len() as i64).collect();
    integer::encode(&lengths, out);
    for value in values {
        out.extend_from_slice(value.as_bytes());
    }
}

fn decode_plain<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Vec<&'a str>, DecodeError> {
    let mut lengths = Vec::new();
    integer::decode(reader, count, &mut lengths)?;
    let mut texts = Vec::with_capacity(count);
    for length in lengths {
        let length = usize::try_from(length).map_err(|_| reader.error("negative length"))?;
        let bytes = reader.bytes(length)?;
        texts.push(std::str::from_utf8(bytes).map_err(|_| reader.error("text that is not UTF-8"))?);
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn round_trip(values in proptest::collection::vec("(a|b|.{0,9})", 0..60)) {
            let texts: Vec<&str> = values.iter().map(String::as_str).collect();
            let mut out = Vec::new();
            encode(&texts, &mut out);
            let mut reader = Reader::new(&out);
            prop_assert_eq!(decode(&mut reader, texts.len()).unwrap(), values);
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn hostile_bytes_are_an_error_or_values(bytes in proptest::collection::vec(any::<u8>(), 0..200), count in 0usize..500) {
            let _ = decode(&mut Reader::new(&bytes), count);
        }
    }
}

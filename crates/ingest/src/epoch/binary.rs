//! Binary columns, all numbers little-endian: [`MAGIC`], the count of names in 4 bytes, the type of values in 4 bytes (0: integers, 1: floats), for
//! each name in 4 bytes where it ends in the text, the text, 8 bytes a value. Layout: `docs/formats/epochs.md`.

use model::{EpochColumn, EpochNames};

use super::EpochBody;

/// The first bytes of the form.
pub const MAGIC: &[u8; 8] = b"THWGEPB1";

const INT: u32 = 0;
const FLOAT: u32 = 1;

pub(super) fn parse(body: &[u8]) -> Result<EpochBody, &'static str> {
    let rest = body.strip_prefix(MAGIC.as_slice()).ok_or("the magic THWGEPB1 is missing")?;
    let (count, rest) = take_u32(rest)?;
    let (kind, rest) = take_u32(rest)?;
    let count = count as usize;
    let (ends, rest) = rest.split_at_checked(count * 4).ok_or("ends of names are missing")?;
    let ends: Vec<usize> = ends.as_chunks::<4>().0.iter().map(|end| u32::from_le_bytes(*end) as usize).collect();
    let text_bytes = ends.last().copied().unwrap_or(0);
    let (text, values) = rest.split_at_checked(text_bytes).ok_or("names are cut")?;
    let text = std::str::from_utf8(text).map_err(|_| "names are not UTF-8")?;
    let names =
        EpochNames::from_parts(text.to_owned(), ends).ok_or("ends of names do not ascend, or divide a character")?;
    if values.len() != count * 8 {
        return Err("expected 8 bytes for each value, and nothing after them");
    }
    let words = values.as_chunks::<8>().0.iter();
    let values = match kind {
        INT => EpochColumn::Int(words.map(|word| i64::from_le_bytes(*word)).collect()),
        FLOAT => EpochColumn::Float(words.map(|word| f64::from_le_bytes(*word)).collect()),
        _ => return Err("the type of values is neither 0 (integers) nor 1 (floats)"),
    };
    Ok(EpochBody { names, values })
}

fn take_u32(bytes: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    let (word, rest) = bytes.split_first_chunk::<4>().ok_or("the heading is cut")?;
    Ok((u32::from_le_bytes(*word), rest))
}

/// Writes names and values in this form; the body that clients send.
pub fn encode(names: &EpochNames, values: &EpochColumn) -> Vec<u8> {
    let mut body = MAGIC.to_vec();
    body.extend_from_slice(&(names.len() as u32).to_le_bytes());
    let kind = if matches!(values, EpochColumn::Int(_)) { INT } else { FLOAT };
    body.extend_from_slice(&kind.to_le_bytes());
    let mut end = 0;
    for name in names.iter() {
        end += name.len() as u32;
        body.extend_from_slice(&end.to_le_bytes());
    }
    names.iter().for_each(|name| body.extend_from_slice(name.as_bytes()));
    match values {
        EpochColumn::Int(values) => values.iter().for_each(|value| body.extend_from_slice(&value.to_le_bytes())),
        EpochColumn::Float(values) => values.iter().for_each(|value| body.extend_from_slice(&value.to_le_bytes())),
    }
    body
}

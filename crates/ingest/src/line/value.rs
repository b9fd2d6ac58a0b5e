//! Field values and what ends a line.

use memchr::memchr2_iter;
use model::ValueType;

use crate::number::{parse_i64, parse_number};

/// The reason when a string does not end in the text.
pub(super) const UNBALANCED_QUOTES: &str = "unbalanced quotes";

/// A field's value at the beginning of a text.
pub(super) struct Value {
    pub(super) kind: ValueType,
    /// The cell; for a string it is made from `text` by the caller that knows where the text lies.
    pub(super) cell: u64,
    /// Length in bytes, quotes and suffixes included.
    pub(super) length: usize,
    /// Whether a string has a backslash in it.
    pub(super) has_backslash: bool,
}

impl Value {
    const fn plain(kind: ValueType, cell: u64, length: usize) -> Self {
        Self { kind, cell, length, has_backslash: false }
    }
}

/// Parses the value at the beginning of the text. What follows it is for the caller to judge.
#[inline]
pub(super) fn parse_value(text: &[u8]) -> Result<Value, &'static str> {
    match text.first() {
        Some(b'0'..=b'9' | b'-' | b'.') => {
            let (kind, cell, length) = parse_number(text)?;
            Ok(Value::plain(kind, cell, length))
        }
        Some(b'"') => parse_string(text),
        Some(b't' | b'T' | b'f' | b'F') => parse_bool(text),
        Some(b',' | b' ' | b'\r' | b'\n') | None => Err("missing field value"),
        Some(_) => Err("invalid field value: expected a number, a boolean or a quoted string"),
    }
}

fn parse_string(text: &[u8]) -> Result<Value, &'static str> {
    let mut has_backslash = false;
    let mut escaped_at = 0;
    for at in memchr2_iter(b'"', b'\\', text).skip(1) {
        if at == escaped_at {
            continue;
        }
        if text.get(at) == Some(&b'"') {
            return Ok(Value { kind: ValueType::String, cell: 0, length: at + 1, has_backslash });
        }
        has_backslash = true;
        escaped_at = at + 1;
    }
    Err(UNBALANCED_QUOTES)
}

/// The text between quotes without its escapes: only quotes and backslashes have them.
pub(super) fn unescape_string(text: &[u8]) -> Vec<u8> {
    super::key::unescape(text, b"\"\\").into_owned()
}

const BOOLEANS: [(&[u8], u64); 10] = [
    (b"true", 1),
    (b"True", 1),
    (b"TRUE", 1),
    (b"t", 1),
    (b"T", 1),
    (b"false", 0),
    (b"False", 0),
    (b"FALSE", 0),
    (b"f", 0),
    (b"F", 0),
];

fn parse_bool(text: &[u8]) -> Result<Value, &'static str> {
    let (word, cell) = BOOLEANS.iter().find(|(word, _)| text.starts_with(word)).ok_or("invalid boolean")?;
    Ok(Value::plain(ValueType::Bool, *cell, word.len()))
}

/// The error when neither a comma, a space nor the line's end follows a value.
pub(super) fn bad_ending(kind: ValueType) -> &'static str {
    match kind {
        ValueType::F64 | ValueType::I64 | ValueType::U64 | ValueType::Histogram => "invalid number",
        ValueType::Bool => "invalid boolean",
        ValueType::String => "invalid field format: text behind a closing quote",
    }
}

/// What ends a line: its timestamp, if it has one, and the distance to the next line.
pub(super) struct Ending {
    pub(super) timestamp: Option<i64>,
    pub(super) length: usize,
}

/// Parses what follows the last field.
#[inline]
pub(super) fn parse_ending(text: &[u8]) -> Result<Ending, &'static str> {
    if let Some(length) = line_end(text) {
        return Ok(Ending { timestamp: None, length });
    }
    let blanks = count_blanks(text);
    if blanks == 0 {
        return Err("invalid field format");
    }
    let text = text.get(blanks..).unwrap_or_default();
    if let Some(length) = line_end(text) {
        return Ok(Ending { timestamp: None, length: blanks + length });
    }
    let (timestamp, digits) = parse_i64(text).ok_or("bad timestamp")?;
    let text = text.get(digits..).unwrap_or_default();
    let more_blanks = count_blanks(text);
    let end = line_end(text.get(more_blanks..).unwrap_or_default()).ok_or("bad timestamp")?;
    Ok(Ending { timestamp: Some(timestamp), length: blanks + digits + more_blanks + end })
}

/// Bytes of the line end at the beginning of the text, 0 at the end of the body; `None` if there is something else.
#[inline]
pub(super) fn line_end(text: &[u8]) -> Option<usize> {
    match text {
        [] => Some(0),
        [b'\n', ..] | [b'\r'] => Some(1),
        [b'\r', b'\n', ..] => Some(2),
        _ => None,
    }
}

/// How many blanks there are at the beginning of the text.
#[inline]
pub(super) fn count_blanks(text: &[u8]) -> usize {
    text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()
}

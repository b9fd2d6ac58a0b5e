//! The way back: points and batches to line protocol.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;

use model::{Batch, Block, Span, ValueType};

use super::key::{FIELD_SPECIALS, MEASUREMENT_SPECIALS, TAG_SPECIALS, TIME};

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
pub enum FieldValue<'a> {
    /// A finite float.
    F64(f64),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A boolean.
    Bool(bool),
    /// A text.
    String(Cow<'a, str>),
}

/// A point to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Point<'a> {
    /// Its measurement.
    pub measurement: &'a str,
    /// Names and values of its tags. Tags with an empty value are left out.
    pub tags: &'a [(&'a str, &'a str)],
    /// Names and values of its fields, at least one.
    pub fields: &'a [(&'a str, FieldValue<'a>)],
    /// Its time in nanoseconds; without one the server takes the time of arrival.
    pub timestamp_ns: Option<i64>,
}

/// Why a point cannot be written in line protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EncodeError {
    /// It has no field.
    NoFields,
    /// This name or tag value has no spelling: it is empty, holds a line end, ends in a backslash, is reserved, or begins
    /// with a tab (a measurement, or the first field) or like a comment (a measurement).
    NoSpelling(String),
    /// This field's value is infinite or not a number.
    NotFinite(String),
    /// A raw key of the batch cannot be read, or a cell does not lie in the batch. Holds the reason.
    BadBatch(String),
}

impl fmt::Display for EncodeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFields => formatter.write_str("the point has no field"),
            Self::NoSpelling(name) => write!(formatter, "{name:?} cannot be written in line protocol"),
            Self::NotFinite(field) => write!(formatter, "the value of field {field:?} is not finite"),
            Self::BadBatch(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for EncodeError {}

/// Appends a point and a line end. On failure nothing is appended.
pub fn encode_point(out: &mut Vec<u8>, point: &Point<'_>) -> Result<(), EncodeError> {
    let before = out.len();
    let result = write_point(out, point);
    if result.is_err() {
        out.truncate(before);
    }
    result
}

fn write_point(out: &mut Vec<u8>, point: &Point<'_>) -> Result<(), EncodeError> {
    if point.measurement.starts_with(['#', '\t']) {
        return Err(EncodeError::NoSpelling(point.measurement.to_owned()));
    }
    write_name(out, point.measurement, MEASUREMENT_SPECIALS)?;
    for (name, value) in point.tags.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(b',');
        write_field_or_tag_name(out, name, TAG_SPECIALS)?;
        out.push(b'=');
        write_name(out, value, TAG_SPECIALS)?;
    }
    if point.fields.is_empty() {
        return Err(EncodeError::NoFields);
    }
    for (place, (name, value)) in point.fields.iter().enumerate() {
        if place == 0 && name.starts_with('\t') {
            return Err(EncodeError::NoSpelling((*name).to_owned()));
        }
        out.push(if place == 0 { b' ' } else { b',' });
        write_field_or_tag_name(out, name, FIELD_SPECIALS)?;
        out.push(b'=');
        write_value(out, name, value)?;
    }
    if let Some(timestamp_ns) = point.timestamp_ns {
        write_plain(out, format_args!(" {timestamp_ns}"));
    }
    out.push(b'\n');
    Ok(())
}

pub(super) fn write_field_or_tag_name(out: &mut Vec<u8>, name: &str, specials: &[u8]) -> Result<(), EncodeError> {
    if name == TIME {
        return Err(EncodeError::NoSpelling(name.to_owned()));
    }
    write_name(out, name, specials)
}

pub(super) fn write_name(out: &mut Vec<u8>, name: &str, specials: &[u8]) -> Result<(), EncodeError> {
    if name.is_empty() || name.ends_with('\\') || name.contains('\n') {
        return Err(EncodeError::NoSpelling(name.to_owned()));
    }
    write_escaped(out, name.as_bytes(), specials);
    Ok(())
}

fn write_escaped(out: &mut Vec<u8>, text: &[u8], specials: &[u8]) {
    for byte in text {
        if specials.contains(byte) {
            out.push(b'\\');
        }
        out.push(*byte);
    }
}

fn write_value(out: &mut Vec<u8>, name: &str, value: &FieldValue<'_>) -> Result<(), EncodeError> {
    match value {
        FieldValue::F64(value) if !value.is_finite() => return Err(EncodeError::NotFinite(name.to_owned())),
        // The debug form is the shortest that reads back to the same bits, with an exponent where that is shorter.
        FieldValue::F64(value) => write_plain(out, format_args!("{value:?}")),
        FieldValue::I64(value) => write_plain(out, format_args!("{value}i")),
        FieldValue::U64(value) => write_plain(out, format_args!("{value}u")),
        FieldValue::Bool(value) => write_plain(out, format_args!("{value}")),
        FieldValue::String(text) => {
            out.push(b'"');
            write_escaped(out, text.as_bytes(), b"\"\\");
            out.push(b'"');
        }
    }
    Ok(())
}

fn write_plain(out: &mut Vec<u8>, text: fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

/// Appends all rows of a batch, block by block. Lone series become points of the field `value`; floats that line protocol
/// cannot write (stale markers among them) are left out, and rows that have no other field with them.
/// Returns how many points were written.
pub fn encode_batch(out: &mut Vec<u8>, batch: &Batch<'_>) -> Result<u64, EncodeError> {
    let mut points = 0;
    for block in &batch.blocks {
        for row in 0..block.rows() {
            points += u64::from(encode_row(out, batch, block, row)?);
        }
    }
    Ok(points)
}

fn encode_row(out: &mut Vec<u8>, batch: &Batch<'_>, block: &Block, row: usize) -> Result<bool, EncodeError> {
    let key = block.keys.get(row).ok_or_else(|| EncodeError::BadBatch(format!("row {row} has no key")))?;
    let identity = (batch.key_decoder)(batch.text(key.text)).map_err(EncodeError::BadBatch)?;
    let tags: Vec<(&str, &str)> = identity.labels.iter().collect();
    let mut fields = Vec::with_capacity(block.fields.len());
    for (field, cell) in block.fields.iter().zip(block.row(row)) {
        let value = match field.value_type {
            ValueType::F64 if !f64::from_bits(*cell).is_finite() => continue,
            ValueType::Histogram => continue,
            ValueType::F64 => FieldValue::F64(f64::from_bits(*cell)),
            ValueType::I64 => FieldValue::I64(*cell as i64),
            ValueType::U64 => FieldValue::U64(*cell),
            ValueType::Bool => FieldValue::Bool(*cell != 0),
            ValueType::String => FieldValue::String(String::from_utf8_lossy(batch.text(Span::from_cell(*cell)))),
        };
        fields.push((field.name.as_str(), value));
    }
    if fields.is_empty() {
        return Ok(false);
    }
    let timestamp_ns = block.timestamps_ns.get(row).copied();
    encode_point(out, &Point { measurement: &identity.measurement, tags: &tags, fields: &fields, timestamp_ns })?;
    Ok(true)
}

//! The labels of a series: how they are spelled, held against limits, and decoded.

use std::ops::Range;

use model::{GroupIdentity, Labels, METRIC_NAME};

use crate::Limits;
use crate::protobuf::{Value, Walker, WireField, write_bytes, write_varint};

pub(super) fn check_key(raw_key: &[u8], labels: usize, limits: &Limits) -> Result<(), String> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    if labels > *tags_max {
        return Err(format!("more than {tags_max} labels (tags_max)"));
    }
    if raw_key.len() > *key_bytes_max {
        return Err(format!("the labels take more than {key_bytes_max} bytes (key_bytes_max)"));
    }
    if raw_key.len() <= *name_bytes_max {
        return Ok(());
    }
    // The key is long enough to hide a long name. What is malformed in it is for the decoder to say.
    let mut fields = Walker::new(raw_key, 0..raw_key.len());
    while let Ok(Some(WireField { value: Value::Bytes(range), .. })) = fields.next_field() {
        // Most labels are shorter than a long name alone.
        if range.len() <= *name_bytes_max {
            continue;
        }
        let (name, value) = read_label(raw_key, range).unwrap_or_default();
        if name.len() > *name_bytes_max || name == METRIC_NAME && value.len() > *name_bytes_max {
            return Err(format!("a name is longer than {name_bytes_max} bytes (name_bytes_max)"));
        }
    }
    Ok(())
}

/// Parses the label fields of a series: the key decoder of remote-write batches. Labels must be sorted by name, each name
/// once, with a metric name among them.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let mut metric = "";
    let mut fields = Walker::new(key, 0..key.len());
    let mut last_name = None;
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { return Err("labels are not a message".to_owned()) };
        let (name, value) = read_label(key, range)?;
        if name.is_empty() {
            return Err("a label without a name".to_owned());
        }
        if last_name == Some(name) {
            return Err(format!("label {name:?} is given twice"));
        }
        if last_name > Some(name) {
            return Err(format!("labels are not sorted: {name:?} stands behind {:?}", last_name.unwrap_or_default()));
        }
        last_name = Some(name);
        if name == METRIC_NAME {
            metric = value;
        } else if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    if metric.is_empty() {
        return Err(format!("the series has no metric name (label {METRIC_NAME:?})"));
    }
    Ok(GroupIdentity { measurement: metric.to_owned(), labels: Labels::from_sorted(pairs) })
}

pub(super) fn read_label(key: &[u8], range: Range<usize>) -> Result<(&str, &str), String> {
    let (mut name, mut value) = ("", "");
    let mut fields = Walker::new(key, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { continue };
        let text = || {
            let bytes = key.get(range.clone()).unwrap_or_default();
            std::str::from_utf8(bytes)
                .map_err(|_| format!("a label is not valid UTF-8: '{}'", String::from_utf8_lossy(bytes)))
        };
        match field.number {
            1 => name = text()?,
            2 => value = text()?,
            _ => {}
        }
    }
    Ok((name, value))
}

/// Appends a label as version 1 spells it, so that series of both versions have the same keys.
#[inline]
pub(super) fn write_label(key: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    if name.len() < 64 && value.len() < 60 {
        // Lengths of one byte each, as nearly all are.
        key.extend_from_slice(&[10, (4 + name.len() + value.len()) as u8, 10, name.len() as u8]);
        key.extend_from_slice(name);
        key.extend_from_slice(&[18, value.len() as u8]);
        key.extend_from_slice(value);
        return;
    }
    key.push(10);
    write_varint(key, (bytes_field_length(name) + bytes_field_length(value)) as u64);
    write_bytes(key, 1, name);
    write_bytes(key, 2, value);
}

/// Bytes that a field of bytes takes whose number is below 16.
fn bytes_field_length(bytes: &[u8]) -> usize {
    let mut length = bytes.len();
    let mut prefix = 2;
    while length >= 128 {
        length >>= 7;
        prefix += 1;
    }
    prefix + bytes.len()
}

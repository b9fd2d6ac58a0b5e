//! The labels of a series: how they are spelled, held against limits, and decoded.

use std::ops::Range;

use model::{GroupIdentity, Labels, METRIC_NAME};

use crate::Limits;
use crate::errors::{LimitName, Reason};
use crate::protobuf::{Value, Walker, WireField, write_bytes, write_varint};

/// Labels that few series have more of.
const LABELS_USUAL: usize = 16;

pub(super) fn check_key(raw_key: &[u8], labels: usize, limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    if labels > *tags_max {
        return Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} labels")));
    }
    if raw_key.len() > *key_bytes_max {
        return Err(LimitName::KeyBytes.exceeded(format_args!("the labels take more than {key_bytes_max} bytes")));
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
            return Err(LimitName::NameBytes.exceeded(format_args!("a name is longer than {name_bytes_max} bytes")));
        }
    }
    Ok(())
}

/// Parses the label fields of a series: the key decoder of remote-write batches. Labels must be sorted by name, each name
/// once, with a metric name among them.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(LABELS_USUAL);
    let mut metric = "";
    let mut fields = Walker::new(key, 0..key.len());
    let mut last_name = None;
    // Tags and short lengths are text, too: one look at all of it says what a look at each name and value would. A long label has a
    // length that is none, and then each is looked at by itself.
    let whole = std::str::from_utf8(key).ok();
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { return Err("labels are not a message".to_owned()) };
        let message = match whole {
            Some(whole) => whole.get(range.clone()),
            None => key.get(range.clone()).and_then(|bytes| std::str::from_utf8(bytes).ok()),
        };
        let (name, value) = match message.and_then(plain_label) {
            Some(label) => label,
            None => read_label(key, range)?,
        };
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
    // Packed they take less than as they were sent.
    Ok(GroupIdentity { measurement: metric.to_owned(), labels: Labels::from_sorted_within(pairs, key.len()) })
}

pub(super) fn read_label(key: &[u8], range: Range<usize>) -> Result<(&str, &str), String> {
    let (mut name, mut value) = ("", "");
    let mut fields = Walker::new(key, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { continue };
        let bytes = key.get(range).unwrap_or_default();
        match field.number {
            1 => name = text(bytes)?,
            2 => value = text(bytes)?,
            _ => {}
        }
    }
    Ok((name, value))
}

fn text(bytes: &[u8]) -> Result<&str, String> {
    let text = std::str::from_utf8(bytes);
    text.map_err(|_| format!("a label is not valid UTF-8: '{}'", String::from_utf8_lossy(bytes)))
}

/// Name and value of a label that is spelled as senders do: a short name, then a short value, and nothing else.
#[inline]
fn plain_label(message: &str) -> Option<(&str, &str)> {
    let [10, length, ..] = message.as_bytes() else { return None };
    let (name, rest) = message.get(2..)?.split_at_checked(usize::from(*length))?;
    let [18, value_length, ..] = rest.as_bytes() else { return None };
    let value = rest.get(2..).filter(|value| value.len() == usize::from(*value_length))?;
    // What says 128 or more begins a character, so that no text begins behind it.
    Some((name, value))
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What the walker alone reads of a label.
    fn walked(message: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut name, mut value) = (Vec::new(), Vec::new());
        let mut fields = Walker::new(message, 0..message.len());
        while let Some(field) = fields.next_field().ok()? {
            match field {
                WireField { number: 1, value: Value::Bytes(range), .. } => name = message[range].to_vec(),
                WireField { number: 2, value: Value::Bytes(range), .. } => value = message[range].to_vec(),
                _ => {}
            }
        }
        Some((name, value))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn the_quick_way_reads_what_the_walker_reads(
            name in "[a-zé€]{0,60}|[a-z]{120,140}",
            value in "[a-zé€]{0,60}|[a-z]{120,140}",
            behind in vec(0u8..0x80, 0..3),
            wrong in proptest::option::of((0usize..8, any::<u8>())),
        ) {
            let mut message = Vec::new();
            write_bytes(&mut message, 1, name.as_bytes());
            write_bytes(&mut message, 2, value.as_bytes());
            message.extend_from_slice(&behind);
            if let Some((at, byte)) = wrong
                && let Some(place) = message.get_mut(at)
            {
                *place = byte;
            }
            let is_plain = wrong.is_none() && behind.is_empty() && name.len() < 0x80 && value.len() < 0x80;
            match std::str::from_utf8(&message).ok().and_then(plain_label) {
                Some((name, value)) => {
                    prop_assert_eq!(walked(&message), Some((name.as_bytes().to_vec(), value.as_bytes().to_vec())));
                }
                None => prop_assert!(!is_plain),
            }
        }
    }

    #[test]
    fn a_label_too_long_for_a_byte_changes_nothing_for_the_others() {
        let long = "x".repeat(300);
        let pairs = [(METRIC_NAME, "up"), ("a", "é€"), ("b", &long), ("c", "1")];
        for count in [2, 3, 4] {
            let mut key = Vec::new();
            pairs[..count].iter().for_each(|(name, value)| write_label(&mut key, name.as_bytes(), value.as_bytes()));
            let identity = decode_key(&key).unwrap();
            assert_eq!(
                (&*identity.measurement, identity.labels.iter().collect::<Vec<_>>()),
                ("up", pairs[1..count].to_vec())
            );
        }
        let mut key = Vec::new();
        write_label(&mut key, METRIC_NAME.as_bytes(), b"up");
        write_label(&mut key, b"a", b"\xff");
        assert!(decode_key(&key).unwrap_err().contains("not valid UTF-8"));
    }
}

//! Keys of series: what all points of a metric share, and a point's attributes as sent.
//!
//! ```text
//! key ── length of the head (varint) · head · attribute fields, as they stand in the body
//! head ─ flags (1 byte) · fields: 1 metric's name · 2 label that wins over attributes · 3 label that attributes win over
//! ```

use std::collections::BTreeMap;

use model::{GroupIdentity, Labels, METRIC_NAME};

use super::attributes::{read_attribute, value_text};
use super::names::label_name;
use super::walk::IDENTIFYING;
use crate::protobuf::{Value, Walker, write_bytes, write_varint};

/// Names of attributes are escaped.
const ESCAPES: u8 = 1;
/// The attributes are a resource's: those that became `job` and `instance` are left out.
const OF_RESOURCE: u8 = 2;

/// The shared part of keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Head(Vec<u8>);

impl Head {
    /// The labels that all series of a scope share.
    pub(super) fn new(escapes: bool, of_resource: bool) -> Self {
        Self(vec![(u8::from(escapes) * ESCAPES) | (u8::from(of_resource) * OF_RESOURCE)])
    }

    /// A label that wins over an attribute of the same name.
    pub(super) fn push_label(&mut self, name: &str, value: &str) {
        self.push(2, name, value);
    }

    /// A label that an attribute of the same name wins over.
    pub(super) fn push_weak_label(&mut self, name: &str, value: &str) {
        self.push(3, name, value);
    }

    fn push(&mut self, number: u32, name: &str, value: &str) {
        let mut label = Vec::with_capacity(name.len() + value.len() + 8);
        write_bytes(&mut label, 1, name.as_bytes());
        write_bytes(&mut label, 2, value.as_bytes());
        write_bytes(&mut self.0, number, &label);
    }
}

/// Makes a key of its parts; the name (in two parts) and the label belong to this series alone.
#[inline]
pub(super) fn write_key(
    key: &mut Vec<u8>,
    shared: &Head,
    name: [&str; 2],
    label: Option<(&str, &str)>,
    attributes: &[u8],
) {
    let name_bytes = name[0].len() + name[1].len();
    let label_bytes = label.map(|(name, value)| 2 + name.len() + varint_bytes(value.len()) + 1 + value.len());
    let own_bytes = 1 + varint_bytes(name_bytes) + name_bytes;
    let own_bytes = own_bytes + label_bytes.map_or(0, |bytes| 1 + varint_bytes(bytes) + bytes);
    key.clear();
    write_varint(key, (shared.0.len() + own_bytes) as u64);
    key.extend_from_slice(&shared.0);
    key.push(10);
    write_varint(key, name_bytes as u64);
    key.extend_from_slice(name[0].as_bytes());
    key.extend_from_slice(name[1].as_bytes());
    if let (Some((name, value)), Some(bytes)) = (label, label_bytes) {
        key.push(18);
        write_varint(key, bytes as u64);
        // `le` and `quantile`: the length is one byte.
        write_bytes(key, 1, name.as_bytes());
        write_bytes(key, 2, value.as_bytes());
    }
    key.extend_from_slice(attributes);
}

/// Bytes that a length takes.
fn varint_bytes(length: usize) -> usize {
    (usize::BITS - (length | 1).leading_zeros()).div_ceil(7) as usize
}

/// Parses a key: the key decoder of OpenTelemetry's batches. Attributes whose names become one label are joined by `;`, in
/// order of their names, as Prometheus does.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let mut outer = Walker::new(key, 0..key.len());
    let head_length = outer.next_varint().map_err(|error| error.to_string())?.unwrap_or_default();
    let head_end = outer.at().saturating_add(usize::try_from(head_length).unwrap_or(usize::MAX)).min(key.len());
    let flags = key.get(outer.at()).copied().unwrap_or_default();
    let mut labels = read_attributes(key, head_end, flags)?;
    let mut metric = "";
    let mut head = Walker::new(key, (outer.at() + 1).min(head_end)..head_end);
    while let Some(field) = head.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { continue };
        if field.number == 1 {
            metric = super::attributes::read_text(key, range)?;
            continue;
        }
        let (name, value) = read_pair(key, range)?;
        if field.number == 2 {
            labels.insert(name.to_owned(), value.to_owned());
        } else {
            labels.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    if metric.is_empty() {
        return Err("a metric without a name".to_owned());
    }
    labels.remove(METRIC_NAME);
    labels.retain(|_, value| !value.is_empty());
    let labels = Labels::from_sorted(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(GroupIdentity { measurement: metric.to_owned(), labels })
}

fn read_attributes(key: &[u8], start: usize, flags: u8) -> Result<BTreeMap<String, String>, String> {
    let mut attributes = Vec::new();
    let mut fields = Walker::new(key, start..key.len());
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        let Value::Bytes(range) = field.value else { return Err("attributes are not a message".to_owned()) };
        let attribute = read_attribute(key, range)?;
        if flags & OF_RESOURCE == 0 || !IDENTIFYING.contains(&attribute.name) {
            attributes.push((attribute.name, value_text(key, attribute.value)?));
        }
    }
    attributes.sort_by_key(|(name, _)| *name);
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in attributes {
        if name.is_empty() {
            return Err("an attribute without a name".to_owned());
        }
        labels
            .entry(label_name(name, flags & ESCAPES != 0))
            .and_modify(|joined| {
                joined.push(';');
                joined.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    Ok(labels)
}

fn read_pair(key: &[u8], range: std::ops::Range<usize>) -> Result<(&str, &str), String> {
    let (mut name, mut value) = ("", "");
    let mut fields = Walker::new(key, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        match (field.number, field.value) {
            (1, Value::Bytes(range)) => name = super::attributes::read_text(key, range)?,
            (2, Value::Bytes(range)) => value = super::attributes::read_text(key, range)?,
            _ => {}
        }
    }
    Ok((name, value))
}

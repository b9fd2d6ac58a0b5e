//! Exemplars: their ids and attributes become labels.

use std::ops::Range;

use model::{Exemplar, Labels};

use super::attributes::{read_attribute, value_text};
use super::names::label_name;
use crate::protobuf::{Value, Walker};

/// Characters that the labels of an exemplar may have, by OpenMetrics's rule.
const CHARACTERS_MAX: usize = 128;

/// Reads an exemplar; `None` if it is malformed. If ids and attributes have too many characters, the ids stay.
pub(super) fn read_exemplar(body: &[u8], range: Range<usize>, escapes: bool) -> Option<Exemplar> {
    let (mut value, mut time_ns) = (None, 0);
    let (mut ids, mut attributes) = (Vec::new(), Vec::new());
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field().ok()? {
        match (field.number, field.value) {
            (2, Value::Fixed64(time)) => time_ns = i64::try_from(time).ok()?,
            (3, Value::Fixed64(bits)) => value = Some(f64::from_bits(bits)),
            (6, Value::Fixed64(integer)) => value = Some(integer as i64 as f64),
            (4, Value::Bytes(id)) => ids.push(("span_id".to_owned(), hex(body.get(id)?))),
            (5, Value::Bytes(id)) => ids.push(("trace_id".to_owned(), hex(body.get(id)?))),
            (7, Value::Bytes(range)) => {
                let attribute = read_attribute(body, range).ok()?;
                let text = value_text(body, attribute.value).ok()?.into_owned();
                attributes.push((label_name(attribute.name, escapes), text));
            }
            _ => {}
        }
    }
    let characters = |pairs: &[(String, String)]| {
        pairs.iter().map(|(name, value)| name.chars().count() + value.chars().count()).sum::<usize>()
    };
    let fits = characters(&ids) + characters(&attributes) <= CHARACTERS_MAX;
    let ids_alone = Labels::from_pairs(ids.iter().map(|(name, value)| (name, value)))
        .ok()
        .filter(|_| characters(&ids) <= CHARACTERS_MAX);
    let all = if fits {
        Labels::from_pairs(ids.iter().chain(&attributes).map(|(name, value)| (name, value))).ok()
    } else {
        None
    };
    Some(Exemplar { labels: all.or(ids_alone)?, value: value?, timestamp_ns: time_ns })
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS.get(usize::from(half)).copied().unwrap_or_default());
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

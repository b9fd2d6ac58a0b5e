//! JSON to protobuf, by tables of the messages' fields: protobuf's JSON mapping with OTLP's exceptions (ids are hexadecimal).
//!
//! Nothing is built in between: what is read is written. The length of a message goes into room that was left for it.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::protobuf::{write_bytes, write_fixed64, write_varint, write_varint_field, zigzag};
use crate::{BodyError, check_body_size};

/// Bytes of the room for a length: enough for 32 bits.
const LENGTH_BYTES: usize = 5;

/// A message's fields.
type Message = &'static [Field];

/// A field: its name in JSON, its number, and how it is spelled on the wire. All may be repeated.
struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
}

enum Kind {
    Text,
    Base64,
    Hex,
    Bool,
    /// `int64`, `uint64`, `uint32`; an enumeration's names end in words whose place is their number.
    Varint(&'static [&'static str]),
    Zigzag,
    Fixed64,
    Double,
    Message(fn() -> Message),
}

const fn field(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind }
}

const INTEGER: Kind = Kind::Varint(&[]);
const TEMPORALITY: Kind = Kind::Varint(&[
    "AGGREGATION_TEMPORALITY_UNSPECIFIED",
    "AGGREGATION_TEMPORALITY_DELTA",
    "AGGREGATION_TEMPORALITY_CUMULATIVE",
]);

static REQUEST: [Field; 1] = [field("resourceMetrics", 1, Kind::Message(|| &RESOURCE_METRICS))];
static RESOURCE_METRICS: [Field; 2] =
    [field("resource", 1, Kind::Message(|| &RESOURCE)), field("scopeMetrics", 2, Kind::Message(|| &SCOPE_METRICS))];
static RESOURCE: [Field; 1] = [field("attributes", 1, Kind::Message(|| &KEY_VALUE))];
static SCOPE_METRICS: [Field; 3] = [
    field("scope", 1, Kind::Message(|| &SCOPE)),
    field("metrics", 2, Kind::Message(|| &METRIC)),
    field("schemaUrl", 3, Kind::Text),
];
static SCOPE: [Field; 3] = [
    field("name", 1, Kind::Text),
    field("version", 2, Kind::Text),
    field("attributes", 3, Kind::Message(|| &KEY_VALUE)),
];
static METRIC: [Field; 8] = [
    field("name", 1, Kind::Text),
    field("description", 2, Kind::Text),
    field("unit", 3, Kind::Text),
    field("gauge", 5, Kind::Message(|| &SUM)),
    field("sum", 7, Kind::Message(|| &SUM)),
    field("histogram", 9, Kind::Message(|| &HISTOGRAM)),
    field("exponentialHistogram", 10, Kind::Message(|| &EXPONENTIAL)),
    field("summary", 11, Kind::Message(|| &SUMMARY)),
];
static SUM: [Field; 3] = [
    field("dataPoints", 1, Kind::Message(|| &NUMBER_POINT)),
    field("aggregationTemporality", 2, TEMPORALITY),
    field("isMonotonic", 3, Kind::Bool),
];
static HISTOGRAM: [Field; 2] =
    [field("dataPoints", 1, Kind::Message(|| &HISTOGRAM_POINT)), field("aggregationTemporality", 2, TEMPORALITY)];
static EXPONENTIAL: [Field; 2] =
    [field("dataPoints", 1, Kind::Message(|| &EXPONENTIAL_POINT)), field("aggregationTemporality", 2, TEMPORALITY)];
static SUMMARY: [Field; 1] = [field("dataPoints", 1, Kind::Message(|| &SUMMARY_POINT))];
static NUMBER_POINT: [Field; 7] = [
    field("attributes", 7, Kind::Message(|| &KEY_VALUE)),
    field("startTimeUnixNano", 2, Kind::Fixed64),
    field("timeUnixNano", 3, Kind::Fixed64),
    field("asDouble", 4, Kind::Double),
    field("asInt", 6, Kind::Fixed64),
    field("exemplars", 5, Kind::Message(|| &EXEMPLAR)),
    field("flags", 8, INTEGER),
];
static HISTOGRAM_POINT: [Field; 9] = [
    field("attributes", 9, Kind::Message(|| &KEY_VALUE)),
    field("startTimeUnixNano", 2, Kind::Fixed64),
    field("timeUnixNano", 3, Kind::Fixed64),
    field("count", 4, Kind::Fixed64),
    field("sum", 5, Kind::Double),
    field("bucketCounts", 6, Kind::Fixed64),
    field("explicitBounds", 7, Kind::Double),
    field("exemplars", 8, Kind::Message(|| &EXEMPLAR)),
    field("flags", 10, INTEGER),
];
static EXPONENTIAL_POINT: [Field; 12] = [
    field("attributes", 1, Kind::Message(|| &KEY_VALUE)),
    field("startTimeUnixNano", 2, Kind::Fixed64),
    field("timeUnixNano", 3, Kind::Fixed64),
    field("count", 4, Kind::Fixed64),
    field("sum", 5, Kind::Double),
    field("scale", 6, Kind::Zigzag),
    field("zeroCount", 7, Kind::Fixed64),
    field("positive", 8, Kind::Message(|| &BUCKETS)),
    field("negative", 9, Kind::Message(|| &BUCKETS)),
    field("flags", 10, INTEGER),
    field("exemplars", 11, Kind::Message(|| &EXEMPLAR)),
    field("zeroThreshold", 14, Kind::Double),
];
static BUCKETS: [Field; 2] = [field("offset", 1, Kind::Zigzag), field("bucketCounts", 2, INTEGER)];
static SUMMARY_POINT: [Field; 7] = [
    field("attributes", 7, Kind::Message(|| &KEY_VALUE)),
    field("startTimeUnixNano", 2, Kind::Fixed64),
    field("timeUnixNano", 3, Kind::Fixed64),
    field("count", 4, Kind::Fixed64),
    field("sum", 5, Kind::Double),
    field("quantileValues", 6, Kind::Message(|| &QUANTILE)),
    field("flags", 8, INTEGER),
];
static QUANTILE: [Field; 2] = [field("quantile", 1, Kind::Double), field("value", 2, Kind::Double)];
static EXEMPLAR: [Field; 6] = [
    field("filteredAttributes", 7, Kind::Message(|| &KEY_VALUE)),
    field("timeUnixNano", 2, Kind::Fixed64),
    field("asDouble", 3, Kind::Double),
    field("asInt", 6, Kind::Fixed64),
    field("spanId", 4, Kind::Hex),
    field("traceId", 5, Kind::Hex),
];
static KEY_VALUE: [Field; 2] = [field("key", 1, Kind::Text), field("value", 2, Kind::Message(|| &ANY_VALUE))];
static ANY_VALUE: [Field; 7] = [
    field("stringValue", 1, Kind::Text),
    field("boolValue", 2, Kind::Bool),
    field("intValue", 3, INTEGER),
    field("doubleValue", 4, Kind::Double),
    field("arrayValue", 5, Kind::Message(|| &ARRAY_VALUE)),
    field("kvlistValue", 6, Kind::Message(|| &KEY_VALUE_LIST)),
    field("bytesValue", 7, Kind::Base64),
];
static ARRAY_VALUE: [Field; 1] = [field("values", 1, Kind::Message(|| &ANY_VALUE))];
static KEY_VALUE_LIST: [Field; 1] = [field("values", 1, Kind::Message(|| &KEY_VALUE))];

/// Writes a JSON body as protobuf. Fails if it is not JSON, or not of the right shape; unknown fields are passed over.
pub fn json_to_protobuf(body: &[u8]) -> Result<Vec<u8>, BodyError> {
    check_body_size(body)?;
    let mut out = Vec::with_capacity(body.len() / 2);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let written = Fields { message: &REQUEST, out: &mut out }.deserialize(&mut deserializer);
    let written = written.and_then(|()| deserializer.end());
    written.map_err(|error| BodyError::Malformed(format!("not OTLP's JSON: {error}")))?;
    Ok(out)
}

/// Writes an object's fields.
struct Fields<'a> {
    message: Message,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(found) = map.next_key_seed(Name { message: self.message })? {
            match found {
                Some(field) => map.next_value_seed(Content { field, out: self.out })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Finds a field by its name: `camelCase`, or `snake_case` as protobuf spells it.
struct Name {
    message: Message,
}

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Option<&'static Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Name {
    type Value = Option<&'static Field>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let same = |field: &&Field| {
            let plain = name.bytes().filter(|byte| *byte != b'_');
            field.name == name
                || name.contains('_') && plain.eq(field.name.bytes().map(|byte| byte.to_ascii_lowercase()))
        };
        Ok(self.message.iter().find(same))
    }
}

/// Writes a field's value, or each of them.
struct Content<'a> {
    field: &'static Field,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Content<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Content<'_> {
    fn integer<E: Error>(self, value: i128) -> Result<(), E> {
        let Field { number, kind, name } = self.field;
        let out_of_range = || E::custom(format!("{name}: {value} is out of range"));
        // Signed and unsigned numbers of 64 bits look alike on the wire.
        let word = i64::try_from(value).map(|value| value as u64).or_else(|_| u64::try_from(value));
        match kind {
            Kind::Varint(_) => write_varint_field(self.out, *number, word.map_err(|_| out_of_range())?),
            Kind::Fixed64 => write_fixed64(self.out, *number, word.map_err(|_| out_of_range())?),
            Kind::Zigzag => {
                let value = i64::try_from(value).map_err(|_| out_of_range())?;
                write_varint_field(self.out, *number, zigzag(value));
            }
            Kind::Double => write_fixed64(self.out, *number, (value as f64).to_bits()),
            _ => return Err(E::custom(format!("{name} is not a number"))),
        }
        Ok(())
    }

    fn bytes<E: Error>(self, bytes: Option<Vec<u8>>) -> Result<(), E> {
        let bytes = bytes.ok_or_else(|| E::custom(format!("{} is malformed", self.field.name)))?;
        write_bytes(self.out, self.field.number, &bytes);
        Ok(())
    }
}

impl<'de> Visitor<'de> for Content<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a value of {}", self.field.name)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        let Kind::Bool = self.field.kind else { return Err(E::custom(format!("{} is no truth", self.field.name))) };
        write_varint_field(self.out, self.field.number, u64::from(truth));
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.integer(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        match self.field.kind {
            Kind::Double => {
                write_fixed64(self.out, self.field.number, value.to_bits());
                Ok(())
            }
            // A whole number may be spelled with an exponent.
            _ if value.fract() == 0.0 => self.integer(value as i128),
            _ => Err(E::custom(format!("{} is not a whole number", self.field.name))),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        match &self.field.kind {
            Kind::Text => {
                write_bytes(self.out, self.field.number, text.as_bytes());
                Ok(())
            }
            Kind::Base64 => self.bytes(base64(text)),
            Kind::Hex => self.bytes(hex(text)),
            Kind::Double => match text.parse() {
                Ok(value) => self.visit_f64(value),
                Err(_) => Err(E::custom(format!("{}: {text:?} is not a number", self.field.name))),
            },
            Kind::Varint(names) if names.contains(&text) => {
                self.integer(names.iter().position(|name| *name == text).unwrap_or_default() as i128)
            }
            Kind::Varint(_) | Kind::Zigzag | Kind::Fixed64 => match text.parse() {
                Ok(value) => self.integer(value),
                Err(_) => Err(E::custom(format!("{}: {text:?} is not a whole number", self.field.name))),
            },
            Kind::Bool | Kind::Message(_) => Err(E::custom(format!("{} is not a text", self.field.name))),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Content { field: self.field, out: self.out })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let Kind::Message(message) = self.field.kind else {
            return Err(A::Error::custom(format!("{} is not an object", self.field.name)));
        };
        write_varint(self.out, u64::from(self.field.number << 3 | 2));
        let room = self.out.len();
        self.out.extend_from_slice(&[0; LENGTH_BYTES]);
        Fields { message: message(), out: self.out }.visit_map(map)?;
        let length = self.out.len() - room - LENGTH_BYTES;
        for (place, byte) in self.out.iter_mut().skip(room).take(LENGTH_BYTES).enumerate() {
            // A varint may be longer than it needs to be.
            *byte = (length >> (7 * place)) as u8 & 0x7f | if place + 1 < LENGTH_BYTES { 0x80 } else { 0 };
        }
        Ok(())
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((digit(high)? << 4 | digit(low)?) as u8),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

/// Bytes of RFC 4648's base64, of either alphabet, padded or not.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let digit = |byte: &u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' | b'-' => Some(62),
        b'/' | b'_' => Some(63),
        _ => None,
    };
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut word = 0;
        for place in 0..4 {
            word = word << 6 | chunk.get(place).map_or(Some(0), digit)?;
        }
        let whole = chunk.len().saturating_sub(1);
        bytes.extend(word.to_be_bytes().into_iter().skip(1).take(whole));
    }
    Some(bytes)
}

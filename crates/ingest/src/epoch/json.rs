//! Objects of names and values, `{"a.it": 3, "b.it": 4}`, or of one series each, `{"name": "a.it", "value": 3}`, one after another. A value `null` is
//! none.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, Visitor};

use super::{Number, Rows};

pub(super) fn parse(body: &[u8], rows: &mut Rows) -> Result<(), String> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    while deserializer.end().is_err() {
        let read = Object(&mut *rows).deserialize(&mut deserializer);
        read.map_err(|error| {
            format!("JSON: {error}; expected objects such as {{\"a.it\": 3}} or {{\"name\": \"a.it\", \"value\": 3}}")
        })?;
    }
    Ok(())
}

/// What stands behind a key.
enum Cell<'de> {
    Number(Number),
    Null,
    Text(Cow<'de, str>),
}

struct CellSeed;

impl<'de> DeserializeSeed<'de> for CellSeed {
    type Value = Cell<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cell<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CellSeed {
    type Value = Cell<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number, or null")
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(Number::Int(value)))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(i64::try_from(value).map_or(Number::Float(value as f64), Number::Int)))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Cell<'de>, E> {
        Ok(Cell::Number(Number::Float(value)))
    }

    fn visit_unit<E: de::Error>(self) -> Result<Cell<'de>, E> {
        Ok(Cell::Null)
    }

    fn visit_borrowed_str<E: de::Error>(self, value: &'de str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Cell<'de>, E> {
        Ok(Cell::Text(Cow::Owned(value.to_owned())))
    }
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Cow<'de, str>, D::Error> {
        match CellSeed.deserialize(deserializer)? {
            Cell::Text(key) => Ok(key),
            _ => Err(de::Error::custom("expected a name")),
        }
    }
}

/// Reads one object into rows.
struct Object<'r>(&'r mut Rows);

impl<'de> DeserializeSeed<'de> for Object<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (mut name, mut value) = (None, None);
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match (&*key, map.next_value_seed(CellSeed)?) {
                ("name", Cell::Text(text)) => name = Some(text),
                // Of the series, or of one with this name.
                ("value", Cell::Number(number)) => value = Some(number),
                (_, Cell::Null) => {}
                (key, Cell::Number(number)) => self.0.push(key, number),
                (key, Cell::Text(_)) => return Err(de::Error::custom(format!("the value of {key:?} is a text"))),
            }
        }
        if let Some(number) = value {
            self.0.push(name.as_deref().unwrap_or("value"), number);
        }
        Ok(())
    }
}

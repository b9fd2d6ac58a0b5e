//! The JSON of `/api/put`: one object, or an array of them.

use std::borrow::Cow;
use std::{fmt, io};

use model::{Batch, GroupKey};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use serde_json::error::Category;

use super::{Options, check_key, decode_key, whole_time_ns};
use crate::batch::lone::LoneRows;
use crate::errors::{LimitName, Reason};
use crate::{Body, BodyError, LineErrors, Parsed, check_body_size};

/// A data point as JSON.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PutItem<'a> {
    #[serde(borrow)]
    metric: Option<Cow<'a, str>>,
    timestamp: Option<Number>,
    value: Option<Number>,
    #[serde(borrow)]
    tags: Tags<'a>,
}

/// A number, in quotes or not.
#[derive(Debug, Clone, Copy)]
struct Number(f64);

/// Names and values as they came.
#[derive(Debug, Clone, Default)]
struct Tags<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

/// Parses a body: "lines" are its data points, counted from 1. Fails if it is not JSON of the right shape.
pub fn parse_json<'body>(body: impl Into<Body<'body>>, options: &Options<'_>) -> Result<Parsed<'static>, BodyError> {
    let mut collector = Collector {
        options,
        batch: Batch::new(&[], decode_key),
        errors: LineErrors::default(),
        rows: LoneRows::floats(options.limits.rows_max),
        key: Vec::new(),
        keys_bytes: 0,
        items: 0,
    };
    let read = match body.into() {
        Body::Whole(body) => {
            check_body_size(body)?;
            collector.read(&mut serde_json::Deserializer::from_slice(body))
        }
        Body::Packed(pieces) => collector.read(&mut serde_json::Deserializer::from_reader(pieces)),
    };
    read.map_err(|error| match error.classify() {
        Category::Io => BodyError::from(io::Error::from(error)),
        _ => BodyError::Malformed(format!("unable to parse the given JSON: {error}")),
    })?;
    let Collector { mut batch, errors, rows, .. } = collector;
    batch.blocks.extend(rows.into_block());
    Ok(Parsed { batch, errors })
}

struct Collector<'options> {
    options: &'options Options<'options>,
    /// Keys are copied: the body has none as they are needed.
    batch: Batch<'static>,
    errors: LineErrors,
    rows: LoneRows,
    key: Vec<u8>,
    keys_bytes: usize,
    items: u32,
}

impl Collector<'_> {
    fn read<'de, R: serde_json::de::Read<'de>>(
        &mut self,
        json: &mut serde_json::Deserializer<R>,
    ) -> serde_json::Result<()> {
        json.deserialize_any(Items { collector: self })?;
        json.end()
    }

    fn add(&mut self, item: &PutItem<'_>) {
        self.items += 1;
        if let Err(reason) = self.try_add(item) {
            self.errors.push(self.options.limits.errors_max, self.items, reason);
        }
    }

    fn try_add(&mut self, item: &PutItem<'_>) -> Result<(), Reason> {
        let limits = self.options.limits;
        let metric = item.metric.as_deref().filter(|metric| !metric.is_empty()).ok_or("Metric name was empty")?;
        let Number(time) = item.timestamp.ok_or("Invalid timestamp")?;
        let Number(value) = item.value.filter(|value| !value.0.is_nan()).ok_or("Unable to parse value to a number")?;
        if !(time.is_finite() && (0.0..9.3e15).contains(&time)) {
            return Err("Invalid timestamp".into());
        }
        let timestamp_ns = whole_time_ns(time as i64)?;
        // Blanks would change how the words of a key are counted.
        for text in item.tags.0.iter().flat_map(|(name, value)| [name, value]).map(|text| &**text).chain([metric]) {
            if let Some(blank) = text.chars().find(|character| character.is_whitespace() || *character == '=') {
                return Err(format!("invalid name or value (\"{text}\"): illegal character: {blank}").into());
            }
        }
        self.key.clear();
        self.spell(metric, &item.tags, b" ");
        check_key(&self.key, limits)?;
        self.rows.check_room()?;
        if self.keys_bytes > limits.keys_bytes_max {
            let keys_bytes_max = limits.keys_bytes_max;
            return Err(LimitName::KeysBytes
                .exceeded(format_args!("the tags of all points take more than {keys_bytes_max} bytes")));
        }
        let hash = self.options.hasher.hash(&self.key);
        self.key.clear();
        self.spell(metric, &item.tags, b" 0 0 ");
        self.keys_bytes += self.key.len();
        let text = self.batch.push_text(&self.key);
        self.rows.push(GroupKey { hash, text }, timestamp_ns, value.to_bits(), self.items);
        Ok(())
    }

    /// Metric and tags as the telnet command spells them, with this between.
    fn spell(&mut self, metric: &str, tags: &Tags<'_>, between: &[u8]) {
        self.key.extend_from_slice(metric.as_bytes());
        self.key.extend_from_slice(between);
        for (place, (name, value)) in tags.0.iter().enumerate() {
            self.key.extend_from_slice(if place == 0 { b"" } else { b" " });
            self.key.extend_from_slice(name.as_bytes());
            self.key.push(b'=');
            self.key.extend_from_slice(value.as_bytes());
        }
    }
}

/// Takes items one by one, so that none is kept.
struct Items<'a, 'options> {
    collector: &'a mut Collector<'options>,
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a data point or an array of them")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element::<PutItem<'de>>()? {
            self.collector.add(&item);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        let item = PutItem::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
        self.collector.add(&item);
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberVisitor)
    }
}

struct NumberVisitor;

impl Visitor<'_> for NumberVisitor {
    type Value = Number;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Number, E> {
        Ok(Number(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Number, E> {
        Ok(Number(value))
    }

    /// The collector reports a text that is no number: one bad point leaves the others whole.
    fn visit_str<E>(self, text: &str) -> Result<Number, E> {
        Ok(Number(text.trim().parse().unwrap_or(f64::NAN)))
    }

    fn visit_unit<E>(self) -> Result<Number, E> {
        Ok(Number(f64::NAN))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Number, E> {
        Ok(Number(f64::NAN))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Tags<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TagsVisitor)
    }
}

struct TagsVisitor;

impl<'de> Visitor<'de> for TagsVisitor {
    type Value = Tags<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of tags")
    }

    fn visit_unit<E>(self) -> Result<Tags<'de>, E> {
        Ok(Tags::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tags<'de>, A::Error> {
        let mut tags = Vec::new();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            let Text(value) = map.next_value()?;
            tags.push((name.0, value));
        }
        Ok(Tags(tags))
    }
}

/// A text, or a number or truth that stands for its spelling.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(value.to_string())))
    }

    /// A tag without a value: the decoder tells.
    fn visit_unit<E>(self) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed("")))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Text(Cow::Borrowed("")))
    }
}

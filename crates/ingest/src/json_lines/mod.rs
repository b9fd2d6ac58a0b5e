//! Series as lines of JSON, as VictoriaMetrics exports and imports them:
//! `{"metric":{"__name__":"up","job":"a"},"values":[1,0],"timestamps":[1549891472010,1549891487724]}`.
//!
//! Times are milliseconds. A series' key is the object of its labels as it stands in the body, parsed only for series that
//! the store does not know ([`decode_key`]).

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use model::{GroupIdentity, GroupKey, Labels, METRIC_NAME, Span};
use serde::Deserialize;
use serde::de::{Deserializer, Error, Visitor};
use serde_json::value::RawValue;

use crate::batch::body::{LineReader, LoneLines, TextSlice, parse_lines};
use crate::batch::lone::LoneRows;
use crate::errors::{LimitName, Reason};
use crate::{Body, BodyError, Limits, Parsed, ScopedKeyHasher};

const NS_PER_MS: i64 = 1_000_000;

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::JsonLines`].
    pub hasher: ScopedKeyHasher<'a>,
    /// Bounds on lines.
    pub limits: &'a Limits,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    metric: &'a RawValue,
    values: Vec<Value>,
    timestamps: Vec<i64>,
}

/// A number; JSON has no spelling for the infinities and NaN, so they come as text, or null for NaN.
struct Value(f64);

/// Parses a body. Fails only when it is 2 GiB or longer, or cannot be unpacked.
pub fn parse<'body>(body: impl Into<Body<'body>>, options: &Options<'_>) -> Result<Parsed<'body>, BodyError> {
    parse_lines(body.into(), Parser { options, lone: LoneLines::new(options.limits.rows_max) })
}

struct Parser<'options> {
    options: &'options Options<'options>,
    lone: LoneLines,
}

impl LineReader for Parser<'_> {
    fn read(&mut self, piece: TextSlice<'_>) -> usize {
        self.lone.texts.begin(piece.text);
        let mut at = 0;
        while let Some((line, next)) = piece.line(at) {
            let lone = &mut self.lone;
            lone.line += 1;
            if let Err(reason) = take_line(piece.text, line, lone.line, self.options, &mut lone.rows) {
                lone.rows.drop_keyless();
                lone.errors.push(self.options.limits.errors_max, lone.line, reason);
            }
            at = next;
        }
        at
    }

    fn detach(&mut self, text: &[u8]) {
        self.lone.detach(text);
    }

    fn finish(self, body: &[u8]) -> Parsed<'_> {
        self.lone.finish(body, decode_key)
    }
}

fn take_line(body: &[u8], line: &[u8], number: u32, options: &Options<'_>, rows: &mut LoneRows) -> Result<(), Reason> {
    let limits = options.limits;
    let line = line.trim_ascii();
    if line.is_empty() {
        return Ok(());
    }
    let Line { metric, values, timestamps } = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let raw_key = metric.get().as_bytes();
    if values.len() != timestamps.len() {
        return Err(format!("{} values but {} timestamps", values.len(), timestamps.len()).into());
    }
    if raw_key.len() > limits.key_bytes_max {
        return Err(
            LimitName::KeyBytes.exceeded(format_args!("the labels take more than {} bytes", limits.key_bytes_max))
        );
    }
    check_labels(raw_key, limits)?;
    for (Value(value), time_ms) in values.iter().zip(&timestamps) {
        rows.check_room()?;
        let timestamp_ns = time_ms.checked_mul(NS_PER_MS).ok_or("timestamp out of range")?;
        rows.push_keyless(timestamp_ns, value.to_bits(), number);
    }
    let start = raw_key.as_ptr() as usize - body.as_ptr() as usize;
    let text = Span { start: start as u32, len: raw_key.len() as u32 };
    rows.push_keys(GroupKey { hash: options.hasher.hash(raw_key), text });
    Ok(())
}

/// Holds labels against the limits; does no work for those too short to break one.
fn check_labels(raw_key: &[u8], limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, .. } = limits;
    // The shortest label, `"":"",`, takes six bytes.
    if raw_key.len() <= (tags_max * 6).min(*name_bytes_max) {
        return Ok(());
    }
    // What is malformed in it is for the decoder to say.
    let Ok(labels) = serde_json::from_slice::<BTreeMap<Cow<'_, str>, Cow<'_, str>>>(raw_key) else { return Ok(()) };
    if labels.len() > tags_max + 1 {
        return Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} labels")));
    }
    let is_long = |(name, value): (&Cow<'_, str>, &Cow<'_, str>)| {
        let spelled = if name == METRIC_NAME { value } else { name };
        spelled.len() > *name_bytes_max
    };
    if labels.iter().any(is_long) {
        return Err(LimitName::NameBytes.exceeded(format_args!("a name is longer than {name_bytes_max} bytes")));
    }
    Ok(())
}

/// Parses an object of labels: the key decoder of these batches.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let mut labels: BTreeMap<String, String> =
        serde_json::from_slice(key).map_err(|error| format!("invalid \"metric\": {error}"))?;
    let metric = labels.remove(METRIC_NAME).filter(|metric| !metric.is_empty());
    let measurement = metric.ok_or_else(|| format!("the series has no metric name (label {METRIC_NAME:?})"))?;
    if labels.contains_key("") {
        return Err("a label without a name".to_owned());
    }
    labels.retain(|_, value| !value.is_empty());
    let labels = Labels::from_sorted(labels.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    Ok(GroupIdentity { measurement, labels })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl Visitor<'_> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a number")
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value(f64::NAN))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        text.parse().map(Value).map_err(|_| E::custom(format!("{text:?} is not a number")))
    }
}

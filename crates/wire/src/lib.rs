//! Thalweg's own binary protocol: what is registered once is written by token (after FrogFishDB). Both directions, for the
//! server and for clients in Rust; no sockets.
//!
//! * [`frame`]: where a message begins and ends, within a bound
//! * [`control`]: it gives tokens
//! * [`data`]: greetings, batches, acknowledgements
//! * [`rows`]: a block's columns as rows; `histograms.rs`: those of native histograms
//! * `wire.capnp`: the messages; `wire_capnp.rs` is made from it by `cargo xtask capnp`
//!
//! Whole description: `docs/formats/wire.md`.

pub mod control;
pub mod data;
pub mod frame;
mod histograms;
pub mod rows;
#[cfg(test)]
mod tests;
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, clippy::pedantic, clippy::unwrap_used, reason = "generated code")]
pub(crate) mod wire_capnp;

use std::fmt;

use capnp::message::ReaderOptions;
use model::{Labels, Limits, ValueType};

/// Bytes that are no message, or a message that breaks the protocol; the text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError(pub String);

impl fmt::Display for WireError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for WireError {}

impl From<capnp::Error> for WireError {
    fn from(error: capnp::Error) -> Self {
        Self(format!("malformed message: {error}"))
    }
}

impl From<capnp::NotInSchema> for WireError {
    fn from(error: capnp::NotInSchema) -> Self {
        Self(format!("malformed message: {error}"))
    }
}

impl From<std::str::Utf8Error> for WireError {
    fn from(error: std::str::Utf8Error) -> Self {
        Self(format!("malformed message: {error}"))
    }
}

/// How deep pointers of a message may be nested; the schema needs six levels.
const NESTING_MAX: i32 = 16;

/// Words that may be looked at beside those of the message: small lists are rounded up.
const SLACK_WORDS: usize = 64;

/// Limits for a message of so many bytes. What it points at twice is read twice at most, so that few bytes cannot stand
/// for many.
fn limits(bytes: usize) -> ReaderOptions {
    let mut options = ReaderOptions::new();
    options.nesting_limit(NESTING_MAX).traversal_limit_in_words(Some(bytes / 4 + SLACK_WORDS));
    options
}

fn value_type(kind: wire_capnp::ValueType) -> ValueType {
    match kind {
        wire_capnp::ValueType::F64 => ValueType::F64,
        wire_capnp::ValueType::I64 => ValueType::I64,
        wire_capnp::ValueType::U64 => ValueType::U64,
        wire_capnp::ValueType::Bool => ValueType::Bool,
        wire_capnp::ValueType::String => ValueType::String,
        wire_capnp::ValueType::Histogram => ValueType::Histogram,
    }
}

fn wire_type(kind: ValueType) -> wire_capnp::ValueType {
    match kind {
        ValueType::F64 => wire_capnp::ValueType::F64,
        ValueType::I64 => wire_capnp::ValueType::I64,
        ValueType::U64 => wire_capnp::ValueType::U64,
        ValueType::Bool => wire_capnp::ValueType::Bool,
        ValueType::String => wire_capnp::ValueType::String,
        ValueType::Histogram => wire_capnp::ValueType::Histogram,
    }
}

fn take_labels(labels: capnp::struct_list::Reader<'_, wire_capnp::label::Owned>) -> Result<Labels, WireError> {
    let mut pairs = Vec::with_capacity(labels.len() as usize);
    let bounds = Limits::default();
    for label in labels {
        let (name, value) = (label.get_name()?.to_str()?, label.get_value()?.to_str()?);
        check_name("label", name)?;
        // A label without a value is no label, as in Prometheus.
        if !value.is_empty() {
            pairs.push((name, value));
        }
    }
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if pairs.len() > bounds.tags_max || bytes > bounds.key_bytes_max {
        let (count_max, bytes_max) = (bounds.tags_max, bounds.key_bytes_max);
        return Err(WireError(format!("more than {count_max} labels, or {bytes_max} bytes of them")));
    }
    Labels::from_pairs(pairs).map_err(|error| WireError(error.to_string()))
}

fn check_name(what: &str, name: &str) -> Result<(), WireError> {
    let bytes_max = Limits::default().name_bytes_max;
    if name.is_empty() || name.len() > bytes_max || name == model::METRIC_NAME {
        return Err(WireError(format!("a {what} needs a name of at most {bytes_max} bytes that is not __name__")));
    }
    Ok(())
}

fn push_labels(labels: &Labels, mut out: capnp::struct_list::Builder<'_, wire_capnp::label::Owned>) {
    for (place, (name, value)) in (0..).zip(labels.iter()) {
        let mut label = out.reborrow().get(place);
        label.set_name(name);
        label.set_value(value);
    }
}

/// Lists have 29 bits for their length.
fn list_length(length: usize) -> Result<u32, WireError> {
    let length = u32::try_from(length).ok().filter(|length| *length < 1 << 29);
    length.ok_or_else(|| WireError("more than 2^29 items in one list".to_owned()))
}

//! OpenTSDB's protocols, <http://opentsdb.net/docs/build/html/user_guide/writing/index.html>: telnet commands
//! (`put sys.cpu.user 1356998400 42.5 host=a cpu=0`) and the JSON of `/api/put`.
//!
//! The metric keeps its name, dots included. Times are seconds, or milliseconds where they do not fit 32 bits. A series' key
//! is metric and tags as the telnet command spells them, whichever of both brought it.

mod json;
mod telnet;
#[cfg(test)]
mod tests;

use model::{GroupIdentity, Labels, METRIC_NAME};

pub use json::parse_json;
pub use telnet::{Commands, parse_telnet};

use crate::errors::{LimitName, Reason};
use crate::{Limits, ScopedKeyHasher};

const NS_PER_MS: i64 = 1_000_000;

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Opentsdb`].
    pub hasher: ScopedKeyHasher<'a>,
    /// Bounds on lines.
    pub limits: &'a Limits,
}

/// Nanoseconds of a whole timestamp: milliseconds if it does not fit 32 bits, else seconds.
fn whole_time_ns(time: i64) -> Result<i64, Reason> {
    if time < 0 {
        return Err("invalid timestamp".into());
    }
    let unit_ns = if time > i64::from(u32::MAX) { NS_PER_MS } else { 1000 * NS_PER_MS };
    time.checked_mul(unit_ns).ok_or_else(|| "timestamp out of range".into())
}

/// Holds metric and tags, as spelled, against the limits.
fn check_key(key: &[u8], limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    // The shortest tag, ` a=b`, takes four bytes; a shorter key cannot break a limit.
    if key.len() <= (tags_max * 4).min(*name_bytes_max).min(*key_bytes_max) {
        return Ok(());
    }
    if key.len() > *key_bytes_max {
        return Err(LimitName::KeyBytes.exceeded(format_args!("metric and tags take more than {key_bytes_max} bytes")));
    }
    let words = || key.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    if words().count() > tags_max + 1 {
        return Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} tags")));
    }
    let name_length = |word: &[u8]| memchr::memchr(b'=', word).unwrap_or(word.len());
    if words().map(name_length).any(|length| length > *name_bytes_max) {
        return Err(LimitName::NameBytes.exceeded(format_args!("a name is longer than {name_bytes_max} bytes")));
    }
    Ok(())
}

/// Parses `metric time value tag=value …`, of which time and value do not matter: the key decoder of OpenTSDB's batches. So
/// a telnet line is its own key, without a copy.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let text = std::str::from_utf8(key)
        .map_err(|_| format!("metric and tags are not valid UTF-8: '{}'", String::from_utf8_lossy(key)))?;
    let mut words = text.split_ascii_whitespace();
    let metric = words.next().unwrap_or_default();
    check_characters("metric name", metric)?;
    let mut pairs = Vec::new();
    for tag in words.skip(2) {
        let (name, value) = tag.split_once('=').ok_or_else(|| format!("invalid tag: {tag}"))?;
        check_characters("tag name", name)?;
        check_characters("tag value", value)?;
        if name == METRIC_NAME {
            return Err(format!("the tag name {name:?} is reserved"));
        }
        pairs.push((name, value));
    }
    let labels = Labels::from_pairs(pairs).map_err(|duplicate| format!("duplicate tag: {}", duplicate.0))?;
    Ok(GroupIdentity { measurement: metric.to_owned(), labels })
}

/// OpenTSDB's names consist of letters, digits and `-_./`; colons are common where its API is spoken by others.
fn check_characters(what: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("invalid {what}: it is empty"));
    }
    match text.chars().find(|character| !(character.is_alphanumeric() || "-_./:".contains(*character))) {
        Some(character) => Err(format!("invalid {what} (\"{text}\"): illegal character: {character}")),
        None => Ok(()),
    }
}

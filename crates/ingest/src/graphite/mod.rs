//! Graphite's plaintext protocol: `metric.path;tag=value 12.5 1700000000`, one sample a line.
//!
//! The path stays the metric's name, dots included; tags become labels. Times are seconds, fractions allowed; `-1`, `N`
//! or none mean the time of arrival. A series' key is path and tags as spelled, parsed only for series that the store
//! does not know ([`decode_key`]).

#[cfg(test)]
mod tests;

use memchr::{memchr, memchr_iter};
use model::{Batch, GroupIdentity, GroupKey, Labels, METRIC_NAME, Span, ValueType};

use crate::batch::lone::LoneRows;
use crate::errors::{LimitName, Reason};
use crate::number::{parse_expected, parse_i64};
use crate::{BodyError, Limits, LineErrors, Parsed, ScopedKeyHasher, check_body_size};

const NS_PER_S: i64 = 1_000_000_000;

/// How to read a body.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// Hashes keys; of [`crate::Protocol::Graphite`].
    pub hasher: ScopedKeyHasher<'a>,
    /// The time of samples that bring none.
    pub now_ns: i64,
    /// Bounds on lines.
    pub limits: &'a Limits,
}

/// Parses a body. Fails only when it is 2 GiB or longer.
pub fn parse<'body>(body: &'body [u8], options: &Options<'_>) -> Result<Parsed<'body>, BodyError> {
    check_body_size(body)?;
    let mut batch = Batch::new(body, decode_key);
    let mut errors = LineErrors::default();
    let mut rows = LoneRows::floats(options.limits.rows_max);
    let (mut at, mut number) = (0, 0);
    while let Some(rest) = body.get(at..).filter(|rest| !rest.is_empty()) {
        let length = memchr(b'\n', rest).unwrap_or(rest.len());
        number += 1;
        let line = rest.get(..length).unwrap_or_default();
        if let Err(reason) = take_line(line, at, number, options, &mut rows) {
            errors.push(options.limits.errors_max, number, reason);
        }
        at += length + 1;
    }
    batch.blocks.extend(rows.into_block());
    Ok(Parsed { batch, errors })
}

/// Reads the line at `at` in the body.
#[inline]
fn take_line(line: &[u8], at: usize, number: u32, options: &Options<'_>, rows: &mut LoneRows) -> Result<(), Reason> {
    let limits = options.limits;
    let trimmed = line.trim_ascii_start();
    let start = at + line.len() - trimmed.len();
    let text = trimmed.trim_ascii_end();
    if text.is_empty() {
        return Ok(());
    }
    if line.len() > limits.line_bytes_max {
        return Err(
            LimitName::LineBytes.exceeded(format_args!("the line is longer than {} bytes", limits.line_bytes_max))
        );
    }
    let key_length = text.iter().position(|byte| matches!(byte, b' ' | b'\t')).ok_or("missing value")?;
    let (raw_key, rest) = text.split_at_checked(key_length).unwrap_or_default();
    let rest = rest.trim_ascii_start();
    let value_length = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    let (value, time) = rest.split_at_checked(value_length).unwrap_or_default();
    let value = parse_value(value).ok_or("invalid value: expected a number")?;
    let timestamp_ns = parse_time(time.trim_ascii_start(), options.now_ns)?;
    check_key(raw_key, limits)?;
    rows.check_room()?;
    let text = Span { start: start as u32, len: raw_key.len() as u32 };
    rows.push(GroupKey { hash: options.hasher.hash(raw_key), text }, timestamp_ns, value.to_bits(), number);
    Ok(())
}

/// A number in whatever spelling; NaN is what Graphite, too, leaves out.
#[inline]
pub(crate) fn parse_value(word: &[u8]) -> Option<f64> {
    match parse_expected(word, ValueType::F64) {
        Some((bits, length)) if length == word.len() => Some(f64::from_bits(bits)),
        _ => std::str::from_utf8(word).ok()?.parse().ok().filter(|value: &f64| !value.is_nan()),
    }
}

/// Seconds since the epoch, or the time of arrival.
#[inline]
fn parse_time(word: &[u8], now_ns: i64) -> Result<i64, Reason> {
    if matches!(word, b"" | b"-1" | b"N") {
        return Ok(now_ns);
    }
    let (seconds, length) = parse_i64(word).ok_or("invalid timestamp")?;
    let whole_ns = seconds.checked_mul(NS_PER_S).ok_or("timestamp out of range")?;
    let fraction = word.get(length..).unwrap_or_default();
    if fraction.is_empty() {
        return Ok(whole_ns);
    }
    let digits = fraction.strip_prefix(b".").filter(|digits| digits.iter().all(u8::is_ascii_digit));
    let digits = digits.ok_or("invalid timestamp")?;
    let fraction_ns = digits.iter().chain(std::iter::repeat(&b'0')).take(9);
    let fraction_ns = fraction_ns.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    let signed_ns = if word.starts_with(b"-") { -fraction_ns } else { fraction_ns };
    whole_ns.checked_add(signed_ns).ok_or_else(|| "timestamp out of range".into())
}

/// Holds a key against the limits, without decoding it.
#[inline]
fn check_key(raw_key: &[u8], limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    // The shortest tag, `;a=b`, takes four bytes; a shorter key cannot break a limit.
    if raw_key.len() <= (tags_max * 4).min(*name_bytes_max).min(*key_bytes_max) {
        return Ok(());
    }
    if raw_key.len() > *key_bytes_max {
        return Err(LimitName::KeyBytes.exceeded(format_args!("path and tags take more than {key_bytes_max} bytes")));
    }
    if memchr_iter(b';', raw_key).count() > *tags_max {
        return Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} tags")));
    }
    let name = |part: &[u8]| memchr(b'=', part).unwrap_or(part.len());
    let mut parts = raw_key.split(|byte| *byte == b';');
    let path = parts.next().map_or(0, <[u8]>::len);
    if parts.map(name).chain([path]).any(|length| length > *name_bytes_max) {
        return Err(LimitName::NameBytes.exceeded(format_args!("a name is longer than {name_bytes_max} bytes")));
    }
    Ok(())
}

/// Parses `path;tag=value;…`: the key decoder of Graphite's batches.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    let text = std::str::from_utf8(key)
        .map_err(|_| format!("a path is not valid UTF-8: '{}'", String::from_utf8_lossy(key)))?;
    let mut parts = text.split(';');
    let path = parts.next().unwrap_or_default();
    if path.is_empty() {
        return Err("missing metric path".to_owned());
    }
    let mut pairs = Vec::new();
    for part in parts {
        let (name, value) = part.split_once('=').ok_or_else(|| format!("tag {part:?} is not name=value"))?;
        if name.is_empty() || name.contains(['!', '^']) || name == METRIC_NAME {
            return Err(format!("a tag cannot have the name {name:?}"));
        }
        if value.is_empty() || value.starts_with('~') {
            return Err(format!("tag {name:?} cannot have the value {value:?}"));
        }
        pairs.push((name, value));
    }
    let labels = Labels::from_pairs(pairs).map_err(|error| error.to_string())?;
    Ok(GroupIdentity { measurement: path.to_owned(), labels })
}

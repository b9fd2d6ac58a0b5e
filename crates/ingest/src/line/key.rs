//! `measurement,tag=value,…`: where it ends, what it means.
//!
//! A byte is escaped when a backslash stands before it; two backslashes do not cancel out, as in InfluxDB.

use std::borrow::Cow;

use memchr::{memchr, memchr_iter, memchr2_iter, memchr3_iter};
use model::{GroupIdentity, Labels, METRIC_NAME};

use crate::Limits;
use crate::errors::{LimitName, Reason};

/// Bytes that a backslash escapes in a measurement.
pub(super) const MEASUREMENT_SPECIALS: &[u8] = b", ";
/// Bytes that a backslash escapes in a tag's name or value.
pub(super) const TAG_SPECIALS: &[u8] = b",= ";
/// Bytes that a backslash escapes in a field's name.
pub(super) const FIELD_SPECIALS: &[u8] = b",= \"";

/// Name of the timestamp column, which neither tags nor fields can have.
pub(super) const TIME: &str = "time";

/// Length of the key at the beginning of the text: up to the first unescaped space. `None` if the line ends before.
#[inline]
pub(super) fn key_length(text: &[u8]) -> Option<usize> {
    for at in memchr2_iter(b' ', b'\n', text) {
        match text.get(at) {
            Some(b' ') if is_escaped(text, at) => {}
            Some(b' ') => return Some(at),
            _ => return None,
        }
    }
    None
}

/// Length of the measurement at the beginning of a key.
pub(super) fn measurement_length(key: &[u8]) -> usize {
    memchr_iter(b',', key).find(|&at| !is_escaped(key, at)).unwrap_or(key.len())
}

/// Whether a backslash stands before this byte.
#[inline]
pub(super) fn is_escaped(text: &[u8], at: usize) -> bool {
    at > 0 && text.get(at - 1) == Some(&b'\\')
}

/// The text without the backslashes that escape one of `specials`; other backslashes stay.
pub(super) fn unescape<'a>(text: &'a [u8], specials: &[u8]) -> Cow<'a, [u8]> {
    if memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next_if(|next| specials.contains(next)) } else { None };
        plain.push(escaped.unwrap_or(byte));
    }
    Cow::Owned(plain)
}

/// The unescaped text as a string, or a reason that names what it is.
pub(super) fn to_name(text: &[u8], specials: &[u8], what: &str) -> Result<String, Reason> {
    let plain = unescape(text, specials).into_owned();
    String::from_utf8(plain).map_err(|error| {
        let shown = String::from_utf8_lossy(error.as_bytes()).into_owned();
        Reason::from(format!("invalid UTF-8 in {what} '{shown}'"))
    })
}

/// Parses a raw key into measurement and labels: the key decoder of line-protocol batches.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    decode(key).map_err(Reason::into_text)
}

fn decode(key: &[u8]) -> Result<GroupIdentity, Reason> {
    let measurement = key.get(..measurement_length(key)).unwrap_or_default();
    if measurement.is_empty() {
        return Err("missing measurement".into());
    }
    let measurement_name = to_name(measurement, MEASUREMENT_SPECIALS, "measurement")?;
    let mut pairs = Vec::new();
    for tag in Tags::of_key(key) {
        let (name, value) = tag?;
        let name = to_name(name, TAG_SPECIALS, "tag name")?;
        if name == TIME || name == METRIC_NAME {
            return Err(format!("the tag name '{name}' is reserved").into());
        }
        pairs.push((name, to_name(value, TAG_SPECIALS, "tag value")?));
    }
    match Labels::from_pairs(pairs) {
        Ok(labels) => Ok(GroupIdentity { measurement: measurement_name, labels }),
        Err(duplicate) => Err(format!("duplicate tags: '{}' is given twice", duplicate.0).into()),
    }
}

/// Holds a line that [`encode_point`](super::encode_point) wrote against the limits of its length and its key; the reason names the
/// limit. Callers that do not know that the tags may stand together have the key decoded.
pub(crate) fn check_line(line: &[u8], decodes_key: bool, limits: &Limits) -> Result<(), Reason> {
    if line.len() > limits.line_bytes_max {
        return Err(
            LimitName::LineBytes.exceeded(format_args!("the line is longer than {} bytes", limits.line_bytes_max))
        );
    }
    let key_length = key_length(line).unwrap_or_default();
    let key = line.get(..key_length).unwrap_or_default();
    if decodes_key {
        decode_key(key)?;
    }
    if key_length <= unchecked_key_bytes(limits) { Ok(()) } else { check_key(key, limits) }
}

/// Keys of no more bytes break no limit: the shortest tag, `,a=b`, takes four.
pub(super) fn unchecked_key_bytes(limits: &Limits) -> usize {
    (limits.tags_max * 4).min(limits.name_bytes_max).min(limits.key_bytes_max)
}

/// Holds a key against the limits, without decoding it.
#[cold]
pub(super) fn check_key(key: &[u8], limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    if key.len() > *key_bytes_max {
        return Err(
            LimitName::KeyBytes.exceeded(format_args!("measurement and tags take more than {key_bytes_max} bytes"))
        );
    }
    if measurement_length(key) > *name_bytes_max {
        return Err(
            LimitName::NameBytes.exceeded(format_args!("the measurement is longer than {name_bytes_max} bytes"))
        );
    }
    let mut tags = 0;
    // A malformed tag ends the list; the decoder says what is wrong with it.
    for (name, _) in Tags::of_key(key).map_while(Result::ok) {
        tags += 1;
        if name.len() > *name_bytes_max {
            return Err(
                LimitName::NameBytes.exceeded(format_args!("a tag's name is longer than {name_bytes_max} bytes"))
            );
        }
    }
    if tags > *tags_max { Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} tags"))) } else { Ok(()) }
}

/// The tags of a key as they are spelled. Ends behind the first malformed one.
struct Tags<'a> {
    /// The rest: empty, or a comma and what follows it.
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    fn of_key(key: &'a [u8]) -> Self {
        Self { rest: key.get(measurement_length(key)..).unwrap_or_default() }
    }

    /// Reads the tag at the beginning of the text and leaves the rest.
    fn split_tag(&mut self, text: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), &'static str> {
        let mut delimiters = memchr3_iter(b',', b'=', b' ', text).filter(|&at| !is_escaped(text, at));
        let name_end = delimiters.next().unwrap_or(text.len());
        if name_end == 0 {
            return Err("missing tag key");
        }
        if text.get(name_end) != Some(&b'=') {
            return Err("missing tag value");
        }
        // A delimiter directly behind the equals sign is never escaped: what stands before it is the sign.
        let value_end = delimiters.next().unwrap_or(text.len());
        if value_end == name_end + 1 {
            return Err(if text.get(value_end) == Some(&b'=') { "invalid tag format" } else { "missing tag value" });
        }
        let (name, value) = (text.get(..name_end), text.get(name_end + 1..value_end));
        if !matches!(text.get(value_end), None | Some(b',')) {
            return Err("invalid tag format");
        }
        self.rest = text.get(value_end..).unwrap_or_default();
        Ok((name.unwrap_or_default(), value.unwrap_or_default()))
    }
}

impl<'a> Iterator for Tags<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.rest.strip_prefix(b",")?;
        self.rest = b"";
        Some(self.split_tag(text))
    }
}

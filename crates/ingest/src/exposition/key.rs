//! `name{label="value",…}`: where it ends, what it means.

use std::borrow::Cow;
use std::fmt::Write;

use memchr::{memchr, memchr2};
use model::{GroupIdentity, Labels, METRIC_NAME};

use crate::Limits;
use crate::errors::{LimitName, Reason};

/// Length of the key at the beginning of a line: name, and labels in braces. Looks at no more than it needs to find
/// the end.
pub(super) fn key_length(line: &[u8]) -> Result<usize, &'static str> {
    let name_end = line.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'{')).unwrap_or(line.len());
    let behind = line.get(name_end..).unwrap_or_default();
    let blanks = behind.len() - behind.trim_ascii_start().len();
    match behind.get(blanks..) {
        Some(braces) if braces.starts_with(b"{") => Ok(name_end + blanks + braces_length(braces)?),
        _ if name_end == 0 => Err("missing metric name"),
        _ => Ok(name_end),
    }
}

/// Length of the braces at the beginning of the text, with what is between them.
fn braces_length(text: &[u8]) -> Result<usize, &'static str> {
    let mut at = 1;
    while let Some(found) = text.get(at..).and_then(|rest| memchr2(b'"', b'}', rest)) {
        at += found;
        let Some(rest) = text.get(at..).filter(|rest| rest.starts_with(b"\"")) else {
            return Ok(at + 1);
        };
        at += quoted_length(rest).ok_or("unbalanced quotes")?;
    }
    Err("missing '}'")
}

/// Length of the quoted string at the beginning of the text; `None` if it is not closed.
pub(super) fn quoted_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text.get(at) == Some(&b'"') {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// The text of a quoted string.
pub(super) fn unquote(quoted: &[u8]) -> Cow<'_, [u8]> {
    unescape(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default())
}

/// The text without escapes: `\\`, `\"` and `\n`. Other backslashes stay.
pub(super) fn unescape(text: &[u8]) -> Cow<'_, [u8]> {
    if memchr(b'\\', text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next_if(|next| matches!(next, b'\\' | b'"' | b'n')) } else { None };
        plain.push(match escaped {
            None => byte,
            Some(b'n') => b'\n',
            Some(escaped) => escaped,
        });
    }
    Cow::Owned(plain)
}

/// Holds a key against the limits, without decoding it.
pub(super) fn check_key(raw_key: &[u8], limits: &Limits) -> Result<(), Reason> {
    let Limits { tags_max, name_bytes_max, key_bytes_max, .. } = limits;
    // The shortest label, `a="",`, takes five bytes; a shorter key cannot break a limit.
    if raw_key.len() <= (tags_max * 5).min(*name_bytes_max).min(*key_bytes_max) {
        return Ok(());
    }
    if raw_key.len() > *key_bytes_max {
        return Err(LimitName::KeyBytes.exceeded(format_args!("name and labels take more than {key_bytes_max} bytes")));
    }
    // What is malformed in it is for the decoder to say.
    let Ok(series) = Spelling::parse(raw_key) else { return Ok(()) };
    let names = series.labels.iter().map(|(name, _)| name).chain(&series.metric);
    if names.max_by_key(|name| name.len()).is_some_and(|name| name.len() > *name_bytes_max) {
        return Err(LimitName::NameBytes.exceeded(format_args!("a name is longer than {name_bytes_max} bytes")));
    }
    if series.labels.len() > *tags_max {
        Err(LimitName::Tags.exceeded(format_args!("more than {tags_max} labels")))
    } else {
        Ok(())
    }
}

/// What stands before keys for these extra labels; empty if there are none.
pub(super) fn prefix(extra_labels: &[(String, String)]) -> Vec<u8> {
    if extra_labels.is_empty() {
        return Vec::new();
    }
    let mut text = String::from("{");
    for (name, value) in extra_labels {
        for (quoted, end) in [(name, '='), (value, ',')] {
            let quoted = quoted.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // Writing to a string cannot fail.
            let _ = write!(text, "\"{quoted}\"{end}");
        }
    }
    text.push('}');
    text.into_bytes()
}

/// Parses a raw key: the key decoder of exposition batches.
pub fn decode_key(key: &[u8]) -> Result<GroupIdentity, String> {
    decode(key).map_err(Reason::into_text)
}

fn decode(key: &[u8]) -> Result<GroupIdentity, Reason> {
    let (extra, series) = Spelling::parse_with_extra(key)?;
    let measurement = series.metric.ok_or("missing metric name")?;
    let mut labels = series.labels;
    labels.sort();
    if let Some(twice) = labels.windows(2).find(|pair| matches!(pair, [a, b] if a.0 == b.0)) {
        let name = twice.first().map_or("", |(name, _)| name.as_str());
        return Err(format!("label {name:?} is given twice").into());
    }
    labels.retain(|(name, _)| !extra.iter().any(|(extra_name, _)| extra_name == name));
    labels.extend(extra);
    let labels = Labels::from_pairs(labels).map_err(|error| error.to_string())?;
    Ok(GroupIdentity { measurement, labels })
}

/// A key, parsed.
#[derive(Default)]
struct Spelling {
    metric: Option<String>,
    labels: Vec<(String, String)>,
}

impl Spelling {
    /// A key that may have extra labels in front: braces with something behind them.
    fn parse_with_extra(key: &[u8]) -> Result<(Vec<(String, String)>, Self), Reason> {
        if key.starts_with(b"{")
            && let Some((extra, series)) = key.split_at_checked(braces_length(key)?)
            && !series.is_empty()
        {
            return Ok((Self::parse(extra)?.labels, Self::parse(series)?));
        }
        Ok((Vec::new(), Self::parse(key)?))
    }

    fn parse(key: &[u8]) -> Result<Self, Reason> {
        let mut series = Self::default();
        let name_end = key.iter().position(|byte| *byte == b'{').unwrap_or(key.len());
        let (name, braces) = key.split_at_checked(name_end).unwrap_or_default();
        let name = name.trim_ascii_end();
        if !name.is_empty() {
            series.set_metric(plain_name(name, true)?)?;
        }
        let mut rest = braces.strip_prefix(b"{").unwrap_or(b"}").trim_ascii_start();
        while rest != b"}" {
            rest = series.take_item(rest)?.trim_ascii_start();
            rest = match rest.strip_prefix(b",") {
                Some(rest) => rest.trim_ascii_start(),
                None if rest == b"}" => rest,
                None => return Err("expected ',' or '}' behind a label".into()),
            };
        }
        Ok(series)
    }

    fn set_metric(&mut self, name: String) -> Result<(), Reason> {
        if name.is_empty() {
            return Err("missing metric name".into());
        }
        match self.metric.replace(name) {
            None => Ok(()),
            Some(_) => Err("two metric names".into()),
        }
    }

    /// Reads a label, or a metric name in quotes, and gives back what follows.
    fn take_item<'a>(&mut self, text: &'a [u8]) -> Result<&'a [u8], Reason> {
        let quoted = text.starts_with(b"\"");
        let length = if quoted {
            quoted_length(text).ok_or("unbalanced quotes")?
        } else {
            text.iter().position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')).unwrap_or(text.len())
        };
        let (name, rest) = text.split_at_checked(length).unwrap_or_default();
        let name = if quoted { to_text(&unquote(name))? } else { plain_name(name, false)? };
        let Some(value) = rest.trim_ascii_start().strip_prefix(b"=") else {
            if !quoted {
                return Err(format!("expected '=' behind label {name:?}").into());
            }
            self.set_metric(name)?;
            return Ok(rest);
        };
        let value = value.trim_ascii_start();
        let length = if value.starts_with(b"\"") { quoted_length(value) } else { None };
        let length = length.ok_or_else(|| Reason::from(format!("the value of label {name:?} is not in quotes")))?;
        let (value, rest) = value.split_at_checked(length).unwrap_or_default();
        let value = to_text(&unquote(value))?;
        if name == METRIC_NAME && !quoted {
            // As `promtool tsdb dump` spells it.
            self.set_metric(value)?;
            return Ok(rest);
        }
        if name.is_empty() || name == METRIC_NAME {
            return Err(format!("a label cannot have the name {name:?}").into());
        }
        self.labels.push((name, value));
        Ok(rest)
    }
}

/// A name that needs no quotes. Those of metrics may hold colons.
fn plain_name(name: &[u8], is_metric: bool) -> Result<String, Reason> {
    let allowed = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || is_metric && *byte == b':';
    let is_plain = name.iter().all(allowed) && name.first().is_some_and(|byte| !byte.is_ascii_digit());
    let what = if is_metric { "metric" } else { "label" };
    if is_plain {
        return to_text(name);
    }
    Err(format!("invalid {what} name {:?}", String::from_utf8_lossy(name)).into())
}

fn to_text(bytes: &[u8]) -> Result<String, Reason> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Reason::from("invalid UTF-8 in a name or label value"))
}

//! Attributes: the messages `KeyValue` and `AnyValue`, as texts.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;

use crate::protobuf::{Value, Walker};

/// How deep lists and maps of an attribute may be nested.
const DEPTH_MAX: usize = 16;

/// An attribute: its name, and where its value lies in the body.
pub(super) struct Attribute<'a> {
    pub(super) name: &'a str,
    pub(super) value: Range<usize>,
}

/// Reads a `KeyValue`.
pub(super) fn read_attribute(body: &[u8], range: Range<usize>) -> Result<Attribute<'_>, String> {
    let mut attribute = Attribute { name: "", value: range.end..range.end };
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        match (field.number, field.value) {
            (1, Value::Bytes(range)) => attribute.name = read_text(body, range)?,
            (2, Value::Bytes(range)) => attribute.value = range,
            _ => {}
        }
    }
    Ok(attribute)
}

/// Reads a text.
pub(super) fn read_text(body: &[u8], range: Range<usize>) -> Result<&str, String> {
    let bytes = body.get(range).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| format!("invalid UTF-8 in '{}'", String::from_utf8_lossy(bytes)))
}

/// An `AnyValue` as text: texts as they are, lists and maps as JSON, bytes in base64.
pub(super) fn value_text(body: &[u8], range: Range<usize>) -> Result<Cow<'_, str>, String> {
    let mut fields = Walker::new(body, range);
    let mut text = Cow::Borrowed("");
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        text = match (field.number, field.value) {
            (1, Value::Bytes(range)) => Cow::Borrowed(read_text(body, range)?),
            (7, Value::Bytes(range)) => Cow::Owned(base64(body.get(range).unwrap_or_default())),
            (_, value) => {
                let mut out = String::new();
                push_json(&mut out, body, field.number, &value, 0)?;
                Cow::Owned(out)
            }
        };
    }
    Ok(text)
}

/// Appends one of `AnyValue`'s fields as JSON.
fn push_json(out: &mut String, body: &[u8], number: u32, value: &Value, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("an attribute is nested more than {DEPTH_MAX} levels deep"));
    }
    match (number, value) {
        (1, Value::Bytes(range)) => out.push_str(&quoted(read_text(body, range.clone())?)),
        (2, Value::Varint(truth)) => out.push_str(if *truth == 0 { "false" } else { "true" }),
        // Writing to a string cannot fail.
        (3, Value::Varint(integer)) => {
            let _ = write!(out, "{}", *integer as i64);
        }
        (4, Value::Fixed64(bits)) => {
            let _ = write!(out, "{}", f64::from_bits(*bits));
        }
        (5, Value::Bytes(range)) => {
            push_list(out, body, range.clone(), depth, "[]", |out, range| push_any(out, body, range, depth + 1))?;
        }
        (6, Value::Bytes(range)) => push_list(out, body, range.clone(), depth, "{}", |out, range| {
            let attribute = read_attribute(body, range)?;
            out.push_str(&quoted(attribute.name));
            out.push(':');
            push_any(out, body, attribute.value, depth + 1)
        })?,
        (7, Value::Bytes(range)) => out.push_str(&quoted(&base64(body.get(range.clone()).unwrap_or_default()))),
        _ => {}
    }
    Ok(())
}

/// Appends an `AnyValue` as JSON.
fn push_any(out: &mut String, body: &[u8], range: Range<usize>, depth: usize) -> Result<(), String> {
    let start = out.len();
    let mut fields = Walker::new(body, range);
    while let Some(field) = fields.next_field().map_err(|error| error.to_string())? {
        out.truncate(start);
        push_json(out, body, field.number, &field.value, depth)?;
    }
    if out.len() == start {
        out.push_str("null");
    }
    Ok(())
}

/// Appends the items of an `ArrayValue` or a `KeyValueList` between brackets.
fn push_list(
    out: &mut String,
    body: &[u8],
    range: Range<usize>,
    depth: usize,
    brackets: &str,
    push_item: impl Fn(&mut String, Range<usize>) -> Result<(), String>,
) -> Result<(), String> {
    if depth >= DEPTH_MAX {
        return Err(format!("an attribute is nested more than {DEPTH_MAX} levels deep"));
    }
    let (open, close) = brackets.split_at(1);
    out.push_str(open);
    let mut place = 0;
    let mut items = Walker::new(body, range);
    while let Some(item) = items.next_field().map_err(|error| error.to_string())? {
        if let (1, Value::Bytes(range)) = (item.number, item.value) {
            out.push_str(if place == 0 { "" } else { "," });
            push_item(out, range)?;
            place += 1;
        }
    }
    out.push_str(close);
    Ok(())
}

fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

/// Bytes as RFC 4648 spells them.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or_default());
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let digit = DIGITS.get((word >> (18 - 6 * place) & 63) as usize).copied().unwrap_or_default();
            text.push(if place <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{write_bytes, write_fixed64, write_varint_field};

    fn any(number: u32, content: &[u8]) -> Vec<u8> {
        let mut value = Vec::new();
        write_bytes(&mut value, number, content);
        value
    }

    fn text(value: &[u8]) -> Result<String, String> {
        value_text(value, 0..value.len()).map(Cow::into_owned)
    }

    #[test]
    fn values_have_texts() {
        let mut float = Vec::new();
        write_fixed64(&mut float, 4, 1.5f64.to_bits());
        let mut integer = Vec::new();
        write_varint_field(&mut integer, 3, -7i64 as u64);
        let mut truth = Vec::new();
        write_varint_field(&mut truth, 2, 1);
        let list = any(5, &[any(1, &any(1, b"a\"b")), any(1, &integer), any(1, b"")].concat());
        let pair = [any(1, b"k"), any(2, &list)].concat();
        let map = any(6, &any(1, &pair));
        for (value, expected) in [
            (any(1, b"plain \"text\""), "plain \"text\""),
            (integer, "-7"),
            (float, "1.5"),
            (truth, "true"),
            (any(7, b"\x00\xffa"), "AP9h"),
            (any(7, b"ab"), "YWI="),
            (any(7, b"a"), "YQ=="),
            (list, r#"["a\"b",-7,null]"#),
            (map, r#"{"k":["a\"b",-7,null]}"#),
            (Vec::new(), ""),
        ] {
            assert_eq!(text(&value).as_deref(), Ok(expected));
        }
        assert!(text(&any(1, b"\xff")).is_err());
    }

    #[test]
    fn depth_has_a_bound() {
        let mut value = any(1, b"x");
        for _ in 0..10_000 {
            value = any(5, &any(1, &value));
        }
        assert_eq!(text(&value), Err("an attribute is nested more than 16 levels deep".to_owned()));
    }
}

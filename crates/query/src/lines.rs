//! Rows as line protocol, for statements that write.

use std::fmt::Write;

use crate::Value;

/// Characters that a tag or the name of a field escapes.
pub const TAG_SPECIAL: [char; 3] = [',', '=', ' '];
/// Characters that a measurement escapes.
pub const MEASUREMENT_SPECIAL: [char; 2] = [',', ' '];

/// A name or a tag's value, with a backslash before each of some characters; a line has no line ends.
pub fn escaped(text: &str, special: &[char]) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if special.contains(&character) {
            out.push('\\');
        }
        out.push(if character == '\n' { ' ' } else { character });
    }
    out
}

/// Appends `name=value`, after a comma unless it is the first field; returns `false` for what cannot be written: nulls, NaN and infinity.
pub fn push_field(fields: &mut String, name: &str, value: &Value) -> bool {
    let value = match value {
        Value::Null => return false,
        Value::Float(value) if !value.is_finite() => return false,
        Value::Float(value) => format!("{value:?}"),
        Value::Int(value) | Value::Timestamp(value) | Value::LocalTimestamp(value) | Value::Date(value) => {
            format!("{value}i")
        }
        Value::Unsigned(value) => format!("{value}u"),
        Value::Bool(value) => value.to_string(),
        text @ (Value::Text(_) | Value::Interval(_)) => {
            let text = text.to_string().replace('\\', "\\\\").replace('"', "\\\"");
            format!("\"{text}\"")
        }
    };
    let between = if fields.is_empty() { "" } else { "," };
    // Writing into a string does not fail.
    let _ = write!(fields, "{between}{}={value}", escaped(name, &TAG_SPECIAL));
    true
}

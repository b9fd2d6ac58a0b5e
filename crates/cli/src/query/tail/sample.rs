//! Samples of a stream as people read them.

use std::fmt::Write;

use serde_json::Value;

/// A sample's line of JSON as `time name{labels} value`; a line that is none stays as it is.
pub(super) fn text(line: &str) -> String {
    let Ok(sample) = serde_json::from_str::<Value>(line) else { return line.to_owned() };
    let (Some(labels), Some(time)) = (sample["labels"].as_object(), sample["time"].as_str()) else {
        return line.to_owned();
    };
    let mut out = format!("{time} {}", labels.get("__name__").and_then(Value::as_str).unwrap_or_default());
    let others = labels.iter().filter(|(name, _)| *name != "__name__");
    for (index, (name, value)) in others.enumerate() {
        let between = if index == 0 { '{' } else { ',' };
        // Writing into a string does not fail.
        let _ = write!(out, "{between}{name}={value}");
    }
    if labels.len() > usize::from(labels.contains_key("__name__")) {
        out.push('}');
    }
    let value = &sample["value"];
    let _ = match (value, value.as_str()) {
        (Value::Null, _) => write!(out, " stale"),
        (_, Some(text)) => write!(out, " {text}"),
        _ => write!(out, " {value}"),
    };
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_shown_as_prometheus_writes_them() {
        for (line, shown) in [
            (
                r#"{"labels":{"__name__":"cpu","host":"a","x":"y\"z"},"time":"2026-01-01T00:00:00Z","value":1.5}"#,
                r#"2026-01-01T00:00:00Z cpu{host="a",x="y\"z"} 1.5"#,
            ),
            (r#"{"labels":{"__name__":"up"},"time":"t","value":null}"#, "t up stale"),
            (r#"{"labels":{"a":"b"},"time":"t","value":"NaN"}"#, r#"t {a="b"} NaN"#),
            ("no json", "no json"),
        ] {
            assert_eq!(text(line), shown);
        }
    }
}

//! Answers as InfluxDB's JSON.

use std::fmt::Write;

use influxql::{Series, Value};

use super::{Done, Form};
use crate::json;

/// The answer to all statements: one object, or one for each piece.
pub(super) fn json(results: &[Done], form: &Form) -> String {
    let Some(chunk_rows) = form.chunk_rows else {
        let parts: Vec<String> =
            results.iter().enumerate().map(|(number, result)| whole(number, result, form)).collect();
        return document(&parts.join(","), form.pretty);
    };
    let mut out = String::new();
    for (number, result) in results.iter().enumerate() {
        match result {
            Ok(answer) if !answer.series.is_empty() => {
                pieces(number, answer, chunk_rows, form)
                    .iter()
                    .for_each(|piece| out.push_str(&document(piece, form.pretty)));
            }
            _ => out.push_str(&document(&whole(number, result, form), form.pretty)),
        }
    }
    out
}

/// `{"results":[…]}` with a line's end, as InfluxDB has it.
fn document(results: &str, pretty: bool) -> String {
    let text = format!(r#"{{"results":[{results}]}}"#);
    let pretty = if pretty { indented(&text) } else { None };
    pretty.unwrap_or(text) + "\n"
}

fn indented(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_text, mut escaped) = (0usize, false, false);
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
    };
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if in_text {
            out.push(character);
            in_text = escaped || character != '"';
            escaped = character == '\\' && !escaped;
            continue;
        }
        match character {
            '"' => {
                in_text = true;
                out.push(character);
            }
            '{' | '[' if matches!(characters.peek(), Some('}' | ']')) => out.push(character),
            '{' | '[' => {
                depth += 1;
                out.push(character);
                line(&mut out, depth);
            }
            '}' | ']' => {
                if !out.ends_with(['{', '[']) {
                    depth = depth.checked_sub(1)?;
                    line(&mut out, depth);
                }
                out.push(character);
            }
            ',' => {
                out.push(character);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            _ => out.push(character),
        }
    }
    Some(out)
}

/// A statement's result in one piece.
fn whole(number: usize, result: &Done, form: &Form) -> String {
    match result {
        Err(error) => format!(r#"{{"statement_id":{number},"error":{}}}"#, json::text(&error.to_string())),
        Ok(answer) => {
            let mut out = format!(r#"{{"statement_id":{number}"#);
            for (place, series) in answer.series.iter().enumerate() {
                out.push_str(if place == 0 { r#","series":["# } else { "," });
                push_series(&mut out, series, &series.rows, false, form);
            }
            out.push_str(if answer.series.is_empty() { "" } else { "]" });
            out.push_str(&messages(&answer.messages));
            out.push('}');
            out
        }
    }
}

/// A statement's result in pieces of one series and so many rows each. Only the last says that nothing follows.
fn pieces(number: usize, answer: &influxql::Answer, chunk_rows: usize, form: &Form) -> Vec<String> {
    let mut pieces = Vec::new();
    for (place, series) in answer.series.iter().enumerate() {
        let is_last = place + 1 == answer.series.len();
        let mut chunks: Vec<&[Vec<Value>]> = series.rows.chunks(chunk_rows).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        for (part, rows) in chunks.iter().enumerate() {
            let more_rows = part + 1 < chunks.len();
            let mut out = format!(r#"{{"statement_id":{number},"series":["#);
            push_series(&mut out, series, rows, more_rows, form);
            out.push(']');
            if more_rows || !is_last {
                out.push_str(r#","partial":true"#);
            } else {
                out.push_str(&messages(&answer.messages));
            }
            out.push('}');
            pieces.push(out);
        }
    }
    pieces
}

fn messages(messages: &[String]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    let one = |text: &String| format!(r#"{{"level":"warning","text":{}}}"#, json::text(text));
    format!(r#","messages":[{}]"#, messages.iter().map(one).collect::<Vec<_>>().join(","))
}

fn push_series(out: &mut String, series: &Series, rows: &[Vec<Value>], partial: bool, form: &Form) {
    out.push('{');
    if !series.name.is_empty() {
        let _ = write!(out, r#""name":{},"#, json::text(&series.name));
    }
    if !series.tags.is_empty() {
        let tags: Vec<String> =
            series.tags.iter().map(|(name, value)| format!("{}:{}", json::text(name), json::text(value))).collect();
        let _ = write!(out, r#""tags":{{{}}},"#, tags.join(","));
    }
    let _ = write!(out, r#""columns":{}"#, json::texts(&series.columns));
    for (place, row) in rows.iter().enumerate() {
        out.push_str(if place == 0 { r#","values":["# } else { "," });
        for (place, value) in row.iter().enumerate() {
            out.push(if place == 0 { '[' } else { ',' });
            push_value(out, series, value, form);
        }
        out.push(']');
    }
    out.push_str(if rows.is_empty() { "" } else { "]" });
    out.push_str(if partial { r#","partial":true}"# } else { "}" });
}

fn push_value(out: &mut String, series: &Series, value: &Value, form: &Form) {
    // Writing into a string does not fail.
    match value {
        Value::Null => out.push_str("null"),
        Value::Float(value) if !value.is_finite() => out.push_str("null"),
        Value::Float(value) => {
            let _ = write_float(out, *value);
        }
        Value::Integer(value) => json::push_integer(out, *value),
        Value::Unsigned(value) => {
            let _ = write!(out, "{value}");
        }
        Value::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Text(text) => json::push_text(out, text),
        Value::Time(time_ns) => {
            let quote = if matches!(form.times, influxql::TimeFormat::Text) { "\"" } else { "" };
            out.push_str(quote);
            let _ = series.write_time(out, *time_ns, form.times);
            out.push_str(quote);
        }
    }
}

/// A float as Go's JSON has it: with an exponent if it is very small or very large.
fn write_float(out: &mut String, value: f64) -> std::fmt::Result {
    let size = value.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let sign = if exponent.starts_with('-') { "" } else { "+" };
        return write!(out, "{digits}e{sign}{exponent}");
    }
    write!(out, "{value}")
}

#[cfg(test)]
mod tests {
    use influxql::{Answer, TimeFormat};

    use super::*;

    fn answer() -> Answer {
        let rows = vec![
            vec![Value::Time(0), Value::Float(1.5), Value::Text("a\"b".into())],
            vec![Value::Time(1_500_000_000), Value::Null, Value::Text("c".into())],
        ];
        let columns = ["time", "f", "s"].map(str::to_owned).to_vec();
        let tags = vec![("h".to_owned(), "x".to_owned())];
        Answer { series: vec![Series { name: "m".to_owned(), tags, columns, rows, zone: None }], messages: Vec::new() }
    }

    fn check(form: &Form, expected: &str) {
        let failed = Err(query::QueryError::Invalid("no".to_owned()));
        assert_eq!(json(&[Ok(answer()), failed], form), expected);
    }

    #[test]
    fn answers_are_influxdbs() {
        let form = Form { times: TimeFormat::Text, pretty: false, csv: false, chunk_rows: None };
        let error = r#"{"statement_id":1,"error":"no"}"#;
        check(
            &form,
            &format!(
                "{}{error}]}}\n",
                r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"h":"x"},"columns":["time","f","s"],"values":[["1970-01-01T00:00:00Z",1.5,"a\"b"],["1970-01-01T00:00:01.5Z",null,"c"]]}]},"#
            ),
        );
        let form = Form { times: TimeFormat::Number { unit_ns: 1_000_000 }, chunk_rows: Some(1), ..form };
        check(
            &form,
            &format!(
                "{}\n{}\n{{\"results\":[{error}]}}\n",
                r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"h":"x"},"columns":["time","f","s"],"values":[[0,1.5,"a\"b"]],"partial":true}],"partial":true}]}"#,
                r#"{"results":[{"statement_id":0,"series":[{"name":"m","tags":{"h":"x"},"columns":["time","f","s"],"values":[[1500,null,"c"]]}]}]}"#
            ),
        );
    }

    #[test]
    fn pretty_json_has_four_spaces() {
        assert_eq!(
            indented(r#"{"a":["x:,\"",1],"b":{}}"#).unwrap(),
            "{\n    \"a\": [\n        \"x:,\\\"\",\n        1\n    ],\n    \"b\": {}\n}"
        );
    }

    #[test]
    fn floats_are_gos() {
        for (value, expected) in
            [(1.0, "1"), (0.1, "0.1"), (1e21, "1e+21"), (1.5e-7, "1.5e-7"), (-2.5, "-2.5"), (0.0, "0")]
        {
            let mut out = String::new();
            write_float(&mut out, value).unwrap();
            assert_eq!(out, expected);
        }
    }
}

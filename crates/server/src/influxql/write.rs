//! Answers as InfluxDB's JSON.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use influxql::{Rows, Series, TimeFormat, Value};
use query::{Cell, RowPlace};

use super::{Done, Form};
use crate::json;
use crate::read_rows::{KnownTime, ReadRows};

/// The answer to all statements: one object, or one for each piece.
pub(super) fn json(results: &[Done], form: &Form) -> String {
    let mut out = String::new();
    let Some(chunk_rows) = form.chunk_rows else {
        push_document(&mut out, form, |out| {
            for (number, result) in results.iter().enumerate() {
                out.push_str(if number == 0 { "" } else { "," });
                push_whole(out, number, result, form);
            }
        });
        return out;
    };
    for (number, result) in results.iter().enumerate() {
        match result {
            Ok(answer) if !answer.series.is_empty() => push_pieces(&mut out, number, answer, chunk_rows, form),
            _ => push_document(&mut out, form, |out| push_whole(out, number, result, form)),
        }
    }
    out
}

/// Appends `{"results":[…]}` with a line's end, as InfluxDB has it.
fn push_document(out: &mut String, form: &Form, push_results: impl FnOnce(&mut String)) {
    let begun = out.len();
    out.push_str(r#"{"results":["#);
    push_results(out);
    out.push_str("]}");
    let pretty = if form.pretty { out.get(begun..).and_then(indented) } else { None };
    if let Some(pretty) = pretty {
        out.truncate(begun);
        out.push_str(&pretty);
    }
    out.push('\n');
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
fn push_whole(out: &mut String, number: usize, result: &Done, form: &Form) {
    match result {
        Err(error) => {
            let _ = write!(out, r#"{{"statement_id":{number},"error":{}}}"#, json::text(&error.to_string()));
        }
        Ok(answer) => {
            let _ = write!(out, r#"{{"statement_id":{number}"#);
            let mut writer = Writer::new(form.times);
            for (place, series) in answer.series.iter().enumerate() {
                out.push_str(if place == 0 { r#","series":["# } else { "," });
                writer.push_series(out, series, &Ready::new(series), 0..series.rows.len(), false);
            }
            out.push_str(if answer.series.is_empty() { "" } else { "]" });
            out.push_str(&messages(&answer.messages));
            out.push('}');
        }
    }
}

/// A statement's result in pieces of one series and so many rows each. Only the last says that nothing follows.
fn push_pieces(out: &mut String, number: usize, answer: &influxql::Answer, chunk_rows: usize, form: &Form) {
    let mut writer = Writer::new(form.times);
    for (place, series) in answer.series.iter().enumerate() {
        let is_last = place + 1 == answer.series.len();
        let (ready, all) = (Ready::new(series), series.rows.len());
        let mut from = 0_usize;
        loop {
            let to = from.saturating_add(chunk_rows).min(all);
            let more_rows = to < all;
            push_document(out, form, |out| {
                let _ = write!(out, r#"{{"statement_id":{number},"series":["#);
                writer.push_series(out, series, &ready, from..to, more_rows);
                out.push(']');
                if more_rows || !is_last {
                    out.push_str(r#","partial":true"#);
                } else {
                    out.push_str(&messages(&answer.messages));
                }
                out.push('}');
            });
            if !more_rows {
                break;
            }
            from = to;
        }
    }
}

fn messages(messages: &[String]) -> String {
    if messages.is_empty() {
        return String::new();
    }
    let one = |text: &String| format!(r#"{{"level":"warning","text":{}}}"#, json::text(text));
    format!(r#","messages":[{}]"#, messages.iter().map(one).collect::<Vec<_>>().join(","))
}

/// Rows of a series, ready to be written.
enum Ready<'a> {
    Values(&'a [Vec<Value>]),
    Read(ReadRows<'a>, &'a [RowPlace]),
}

impl<'a> Ready<'a> {
    fn new(series: &'a Series) -> Self {
        match &series.rows {
            Rows::Values(rows) => Self::Values(rows),
            Rows::Read(rows) => {
                let mut ready = ReadRows::default();
                for number in (0..).take(rows.series()) {
                    ready.add(rows.shows(number), |out, tag| match tag {
                        Some(tag) => json::push_text(out, tag),
                        None => out.push_str("null"),
                    });
                }
                Self::Read(ready, rows.order())
            }
        }
    }
}

/// Writes the series of a statement's answer, which share their columns, their zone and many of their times.
struct Writer<'a> {
    times: TimeFormat,
    known: KnownTime,
    /// Names of columns, and how they are written.
    columns: Option<(&'a Arc<[String]>, String)>,
}

impl<'a> Writer<'a> {
    fn new(times: TimeFormat) -> Self {
        Self { times, known: KnownTime::default(), columns: None }
    }

    fn push_series(
        &mut self,
        out: &mut String,
        series: &'a Series,
        ready: &Ready<'_>,
        rows: Range<usize>,
        is_partial: bool,
    ) {
        self.push_head(out, series);
        if !rows.is_empty() {
            out.push_str(r#","values":["#);
            match ready {
                Ready::Values(all) => self.push_rows(out, series, all.get(rows).unwrap_or_default()),
                Ready::Read(ready, order) => {
                    let time = |out: &mut String, time_ns| self.push_time(out, series, time_ns);
                    ready.push(out, order.get(rows).unwrap_or_default(), time, push_cell);
                }
            }
            out.push(']');
        }
        out.push_str(if is_partial { r#","partial":true}"# } else { "}" });
    }

    /// All that stands before the rows.
    fn push_head(&mut self, out: &mut String, series: &'a Series) {
        out.push('{');
        if !series.name.is_empty() {
            out.push_str(r#""name":"#);
            json::push_text(out, &series.name);
            out.push(',');
        }
        for (place, (name, value)) in series.tags.iter().enumerate() {
            out.push_str(if place == 0 { r#""tags":{"# } else { "," });
            json::push_text(out, name);
            out.push(':');
            json::push_text(out, value);
        }
        out.push_str(if series.tags.is_empty() { "" } else { "}," });
        if !self.columns.as_ref().is_some_and(|(columns, _)| Arc::ptr_eq(columns, &series.columns)) {
            self.columns = Some((&series.columns, json::texts(&series.columns)));
        }
        out.push_str(r#""columns":"#);
        out.push_str(self.columns.as_ref().map_or("[]", |(_, text)| text));
    }

    fn push_rows(&mut self, out: &mut String, series: &Series, rows: &[Vec<Value>]) {
        for (place, row) in rows.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            for (place, value) in row.iter().enumerate() {
                out.push(if place == 0 { '[' } else { ',' });
                match value {
                    Value::Null => out.push_str("null"),
                    Value::Float(value) => push_float(out, *value),
                    Value::Integer(value) => json::push_integer(out, *value),
                    Value::Unsigned(value) => push_unsigned(out, *value),
                    Value::Boolean(value) => push_boolean(out, *value),
                    Value::Text(text) => json::push_text(out, text),
                    Value::Time(time_ns) => self.push_time(out, series, *time_ns),
                }
            }
            out.push(']');
        }
    }

    fn push_time(&mut self, out: &mut String, series: &Series, time_ns: i64) {
        let times = self.times;
        out.push_str(self.known.text(time_ns, |text| {
            let quote = if times == TimeFormat::Text { "\"" } else { "" };
            text.push_str(quote);
            // Writing into a string does not fail.
            let _ = series.write_time(text, time_ns, times);
            text.push_str(quote);
        }));
    }
}

fn push_cell(out: &mut String, cell: Cell<'_>) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::F64(value) => push_float(out, value),
        Cell::I64(value) => json::push_integer(out, value),
        Cell::U64(value) => push_unsigned(out, value),
        Cell::Bool(value) => push_boolean(out, value),
        Cell::Text(text) => json::push_text(out, text),
    }
}

fn push_boolean(out: &mut String, value: bool) {
    out.push_str(if value { "true" } else { "false" });
}

fn push_unsigned(out: &mut String, value: u64) {
    match i64::try_from(value) {
        Ok(value) => json::push_integer(out, value),
        Err(_) => {
            let _ = write!(out, "{value}");
        }
    }
}

fn push_float(out: &mut String, value: f64) {
    if !value.is_finite() {
        out.push_str("null");
    } else if !json::push_whole(out, value) {
        let _ = write_float(out, value);
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
    use influxql::Answer;

    use super::*;

    fn answer() -> Answer {
        let rows = vec![
            vec![Value::Time(0), Value::Float(1.5), Value::Text("a\"b".into())],
            vec![Value::Time(1_500_000_000), Value::Null, Value::Text("c".into())],
        ];
        let columns = ["time", "f", "s"].map(str::to_owned).into();
        let (tags, rows) = (vec![("h".to_owned(), "x".to_owned())], Rows::Values(rows));
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
        for (value, expected) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (1e15, "1000000000000000"),
            (0.1, "0.1"),
            (1e21, "1e+21"),
            (1.5e-7, "1.5e-7"),
            (-2.5, "-2.5"),
            (0.0, "0"),
        ] {
            let mut out = String::new();
            push_float(&mut out, value);
            assert_eq!(out, expected);
        }
    }
}

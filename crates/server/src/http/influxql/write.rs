//! Answers as InfluxDB's JSON.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use influxql::{Rows, Series, TimeFormat, Value};

use super::{Done, Form};
use crate::http::json;
use crate::http::rows_json::{Floats, ReadyRows, RowWriter};

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
    Read(ReadyRows<'a>),
}

impl<'a> Ready<'a> {
    fn new(series: &'a Series) -> Self {
        match &series.rows {
            Rows::Values(rows) => Self::Values(rows),
            Rows::Read(rows) => Self::Read(ReadyRows::new(rows, Floats::Go)),
        }
    }
}

/// Writes times of a series.
type TimeWriter<'a> = Box<dyn Fn(&mut String, i64) + 'a>;

/// Writes the series of a statement's answer, which share their columns, their zone and many of their times.
struct Writer<'a> {
    times: TimeFormat,
    /// The writer of the rows: all series of a statement have the same zone.
    rows: Option<RowWriter<TimeWriter<'a>>>,
    /// Names of columns, and how they are written.
    columns: Option<(&'a Arc<[String]>, String)>,
}

impl<'a> Writer<'a> {
    fn new(times: TimeFormat) -> Self {
        Self { times, rows: None, columns: None }
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
            let times = self.times;
            let writer = self.rows.get_or_insert_with(|| RowWriter::new(Floats::Go, time_writer(series, times)));
            match ready {
                Ready::Values(all) => writer.push_rows(out, all.get(rows).unwrap_or_default()),
                Ready::Read(ready) => writer.push_ready(out, ready, rows),
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
}

/// Times as the format says, in the series' zone; texts between quotes.
fn time_writer(series: &Series, times: TimeFormat) -> TimeWriter<'_> {
    Box::new(move |out, time_ns| {
        let quote = if times == TimeFormat::Text { "\"" } else { "" };
        out.push_str(quote);
        // Writing into a string does not fail.
        let _ = series.write_time(out, time_ns, times);
        out.push_str(quote);
    })
}

#[cfg(test)]
mod tests {
    use influxql::Answer;

    use super::*;
    use crate::http::influxql::Layout;

    fn answer() -> Answer {
        let rows = vec![
            vec![Value::Timestamp(0), Value::Float(1.5), Value::Text("a\"b".into())],
            vec![Value::Timestamp(1_500_000_000), Value::Null, Value::Text("c".into())],
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
        let form = Form { times: TimeFormat::Text, pretty: false, layout: Layout::Results, chunk_rows: None };
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
}

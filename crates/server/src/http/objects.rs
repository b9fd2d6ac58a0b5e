//! Rows as InfluxDB 3 writes them: JSON objects, CSV, or a table for people.

use query::{Cell, Value};
use sql::PARQUET_MEDIA_TYPE;

use crate::error::ApiError;
use crate::http::json;
use crate::http::rows_json::{Floats, push_cell};

/// The value of `format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectForm {
    /// An array of objects.
    Json,
    /// An object per line.
    JsonLines,
    Csv,
    /// A table for people.
    Pretty,
    Parquet,
}

impl ObjectForm {
    /// The form that a request names; JSON unless it does.
    pub(crate) fn named(format: Option<&str>) -> Result<Self, ApiError> {
        Ok(match format {
            None | Some("json") => Self::Json,
            Some("jsonl") => Self::JsonLines,
            Some("csv") => Self::Csv,
            Some("pretty") => Self::Pretty,
            Some("parquet") => Self::Parquet,
            Some(_) => {
                return Err(ApiError::invalid_parameter("format", "it is json, jsonl, csv, pretty or parquet"));
            }
        })
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::JsonLines => "application/jsonl",
            Self::Csv => "text/csv",
            Self::Pretty => "text/plain; charset=utf-8",
            Self::Parquet => PARQUET_MEDIA_TYPE,
        }
    }
}

/// Writes rows as text. Parquet is not text: its callers write it themselves.
pub(crate) fn text(columns: &[&str], rows: &[Vec<Value>], form: ObjectForm) -> String {
    match form {
        ObjectForm::Csv => csv(columns, rows),
        ObjectForm::Pretty => table(columns, rows),
        ObjectForm::Json | ObjectForm::Parquet => format!("[{}]", objects(columns, rows, ",")),
        ObjectForm::JsonLines if rows.is_empty() => String::new(),
        ObjectForm::JsonLines => objects(columns, rows, "\n") + "\n",
    }
}

/// An object per row, without members that are null.
fn objects(columns: &[&str], rows: &[Vec<Value>], between: &str) -> String {
    let names: Vec<String> = columns.iter().map(|column| json::text(column)).collect();
    let mut out = String::new();
    for (number, row) in rows.iter().enumerate() {
        out.push_str(if number == 0 { "" } else { between });
        out.push('{');
        let begun = out.len();
        for (name, value) in names.iter().zip(row).filter(|(_, value)| !matches!(value, Value::Null)) {
            out.push_str(if out.len() == begun { "" } else { "," });
            out.push_str(name);
            out.push(':');
            push_value(&mut out, value);
        }
        out.push('}');
    }
    out
}

fn push_value(out: &mut String, value: &Value) {
    let cell = match value {
        Value::Null => Cell::Null,
        Value::Bool(value) => Cell::Bool(*value),
        Value::Int(value) => Cell::I64(*value),
        Value::Unsigned(value) => Cell::U64(*value),
        Value::Float(value) => Cell::F64(*value),
        Value::Text(text) => Cell::Text(text),
        Value::Interval(_) | Value::Timestamp(_) | Value::LocalTimestamp(_) | Value::Date(_) => {
            Cell::Text(&plain(value))
        }
    };
    push_cell(out, cell, Floats::Pointed);
}

/// A value without quotes. Times have no zone: they are UTC.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Timestamp(_) | Value::LocalTimestamp(_) => value.to_string().replace(' ', "T"),
        Value::Float(number) if !number.is_finite() => String::new(),
        Value::Float(_) => {
            let mut out = String::new();
            push_value(&mut out, value);
            out
        }
        Value::Bool(value) => value.to_string(),
        other => other.to_string(),
    }
}

fn csv(columns: &[&str], rows: &[Vec<Value>]) -> String {
    let quoted = |text: String| {
        if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
    };
    let mut out = columns.iter().map(|column| quoted((*column).to_owned())).collect::<Vec<_>>().join(",");
    out.push('\n');
    for row in rows {
        for (place, value) in row.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            out.push_str(&quoted(plain(value)));
        }
        out.push('\n');
    }
    out
}

fn table(columns: &[&str], rows: &[Vec<Value>]) -> String {
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(plain).collect()).collect();
    let width = |(place, column): (usize, &&str)| {
        let in_rows = cells.iter().filter_map(|row| row.get(place)).map(|cell| cell.chars().count());
        in_rows.chain([column.chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(width).collect();
    let rule = widths.iter().fold(String::new(), |rule, width| rule + "+" + &"-".repeat(width + 2)) + "+\n";
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        cells.zip(&widths).fold(String::new(), |line, (cell, width)| line + &format!("| {cell:width$} ")) + "|\n"
    };
    let mut out = rule.clone() + &line(&mut columns.iter().copied()) + &rule;
    for row in &cells {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out + &rule
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_in_each_form() {
        let rows = [
            vec![Value::Timestamp(1_500_000_000), Value::text("a,b"), Value::Float(2.0)],
            vec![Value::Timestamp(0), Value::Null, Value::Float(f64::NAN)],
        ];
        let written = |form| text(&["time", "host", "v"], &rows, form);
        assert_eq!(
            written(ObjectForm::Json),
            r#"[{"time":"1970-01-01T00:00:01.5","host":"a,b","v":2.0},{"time":"1970-01-01T00:00:00","v":null}]"#
        );
        assert_eq!(
            written(ObjectForm::JsonLines),
            "{\"time\":\"1970-01-01T00:00:01.5\",\"host\":\"a,b\",\"v\":2.0}\n{\"time\":\"1970-01-01T00:00:00\",\"v\":null}\n"
        );
        assert_eq!(written(ObjectForm::Csv), "time,host,v\n1970-01-01T00:00:01.5,\"a,b\",2.0\n1970-01-01T00:00:00,,\n");
        let pretty = "\
+-----------------------+------+-----+
| time                  | host | v   |
+-----------------------+------+-----+
| 1970-01-01T00:00:01.5 | a,b  | 2.0 |
+-----------------------+------+-----+
";
        assert_eq!(text(&["time", "host", "v"], &rows[..1], ObjectForm::Pretty), pretty);
        assert_eq!(text(&["v"], &[], ObjectForm::JsonLines), "");
    }
}

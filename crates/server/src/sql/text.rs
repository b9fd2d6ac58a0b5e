//! Tables as JSON and CSV.

use std::fmt::Write;

use query::ResultRows;
use sql::{Column, Relation, SqlType, Value};

use crate::http::json;
use crate::http::rows_json::{Floats, ReadyRows, RowWriter};

/// How times and types are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// RFC 3339 with as many digits as there are; Postgres's names.
    Plain,
    /// Microseconds; QuestDB's names.
    QuestDb,
}

/// QuestDB's name of a type.
const fn questdb_type(sql_type: SqlType) -> &'static str {
    match sql_type {
        SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date => "TIMESTAMP",
        SqlType::Bool => "BOOLEAN",
        SqlType::Int | SqlType::Int4 => "LONG",
        SqlType::Float => "DOUBLE",
        _ => "STRING",
    }
}

/// `[{"name":…,"type":…},…]`
pub(super) fn columns(columns: &[Column], style: Style) -> String {
    let mut out = String::from("[");
    for (place, column) in columns.iter().enumerate() {
        let kind = match style {
            Style::Plain => column.sql_type.name(),
            Style::QuestDb => questdb_type(column.sql_type),
        };
        let comma = if place == 0 { "" } else { "," };
        let _ = write!(out, r#"{comma}{{"name":{},"type":"{kind}"}}"#, json::text(&column.name));
    }
    out.push(']');
    out
}

/// A writer of rows in a style.
fn writer(style: Style) -> RowWriter<impl Fn(&mut String, i64)> {
    RowWriter::new(Floats::Pointed, move |out, ns| {
        // Writing into a string does not fail.
        let _ = write!(out, "\"{}\"", time(ns, style));
    })
}

/// Appends `[[…],…]`.
pub(super) fn push_rows(out: &mut String, rows: &[Vec<Value>], style: Style) {
    out.push('[');
    writer(style).push_rows(out, rows);
    out.push(']');
}

/// Appends `[[…],…]`, as [`push_rows`] does.
pub(super) fn push_table(out: &mut String, rows: &ResultRows, style: Style) {
    out.push('[');
    writer(style).push_ready(out, &ReadyRows::new(rows, Floats::Pointed), 0..rows.order().len());
    out.push(']');
}

fn time(ns: i64, style: Style) -> String {
    match style {
        Style::QuestDb => sql::format_rfc3339_us(ns),
        Style::Plain => format!("{}Z", Value::Timestamp(ns).to_string().replace(' ', "T")),
    }
}

/// A line of names, then one for each row; texts with commas, quotes or line ends in quotes.
pub(super) fn csv(relation: &Relation, style: Style) -> String {
    let mut out = String::new();
    let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let names: Vec<String> = relation.columns.iter().map(|column| quoted(&column.name)).collect();
    out.push_str(&names.join(","));
    out.push_str("\r\n");
    for row in &relation.rows {
        for (place, value) in row.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            match value {
                Value::Null => {}
                Value::Timestamp(ns) | Value::LocalTimestamp(ns) | Value::Date(ns) => {
                    out.push_str(&quoted(&time(*ns, style)));
                }
                Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
                Value::Text(text) if style == Style::QuestDb || text.contains(['"', ',', '\n', '\r']) => {
                    out.push_str(&quoted(text));
                }
                other => {
                    let _ = write!(out, "{other}");
                }
            }
        }
        out.push_str("\r\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::rows_json::ROWS_TRIED;

    /// Cell by cell what the formatter of the standard library and serde make of values.
    #[test]
    fn rows_are_written_as_they_would_be_one_by_one() {
        let texts = ["", "a", "ä€", "a\"b", "c\\d", "e\nf\u{1}", "\u{7f}/"];
        let floats = [0.0, -0.0, 1.0, -7.0, 0.1, -2.5e-9, 1e14, 999_999_999_999_999.0, 1e15, 1.5e300, f64::MAX];
        let integers = [0, 7, -1, 10, -100, i64::MAX, i64::MIN];
        let mut cells: Vec<(Value, String)> = Vec::new();
        cells.extend(texts.map(|text| (Value::text(text), serde_json::Value::from(text).to_string())));
        cells.extend(integers.map(|integer| (Value::Int(integer), integer.to_string())));
        cells.extend(floats.map(|float| {
            let is_whole = float.fract() == 0.0 && float.abs() < 1e15;
            let text = match float {
                -2.5e-9 => "-2.5e-9".to_owned(),
                1.5e300 => "1.5e+300".to_owned(),
                f64::MAX => "1.7976931348623157e+308".to_owned(),
                _ if is_whole => format!("{float:.1}"),
                _ => format!("{float}"),
            };
            (Value::Float(float), text)
        }));
        cells.extend([f64::NAN, f64::INFINITY].map(|float| (Value::Float(float), "null".to_owned())));
        cells.extend([(Value::Bool(true), "true".to_owned()), (Value::Null, "null".to_owned())]);
        for ns in [0, 1_500_000_000, 1_500_000_000, -1] {
            cells.push((Value::Timestamp(ns), format!("\"{}\"", time(ns, Style::QuestDb))));
        }
        // More rows than are tried before memory is made room for.
        let rows: Vec<Vec<Value>> =
            (0..3 * ROWS_TRIED).map(|_| cells.iter().map(|(value, _)| value.clone()).collect()).collect();
        let row = format!("[{}]", cells.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(","));
        let mut out = String::new();
        push_rows(&mut out, &rows, Style::QuestDb);
        assert_eq!(out, format!("[{}]", vec![row; rows.len()].join(",")));
    }
}

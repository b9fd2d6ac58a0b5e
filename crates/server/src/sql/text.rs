//! Tables as JSON and CSV.

use std::fmt::Write;

use query::Cell;
use sql::{Column, Relation, Same, SqlType, TableRows, Value};

use super::single_rows::SingleRows;
use crate::json;
use crate::read_rows::{KnownTime, ReadRows, make_room};

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
        SqlType::Timestamp => "TIMESTAMP",
        SqlType::Bool => "BOOLEAN",
        SqlType::Int => "LONG",
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

/// Appends `[[…],…]`.
pub(super) fn push_rows(out: &mut String, rows: &[Vec<Value>], style: Style) {
    let (begun, mut known) = (out.len(), KnownTime::default());
    out.push('[');
    for (place, row) in rows.iter().enumerate() {
        make_room(out, begun, place, rows.len());
        out.push_str(if place == 0 { "[" } else { ",[" });
        for (place, value) in row.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            push_json(out, value, style, &mut known);
        }
        out.push(']');
    }
    out.push(']');
}

/// Appends a time between quotes.
fn push_time(out: &mut String, known: &mut KnownTime, ns: i64, style: Style) {
    out.push_str(known.text(ns, |text| {
        let _ = write!(text, "\"{}\"", time(ns, style));
    }));
}

fn push_json(out: &mut String, value: &Value, style: Style, known: &mut KnownTime) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => push_bool(out, *value),
        Value::Int(value) => json::push_integer(out, *value),
        Value::Float(value) => push_float(out, *value),
        Value::Timestamp(ns) => push_time(out, known, *ns, style),
        Value::Text(text) => json::push_text(out, text),
        Value::Interval(_) => json::push_text(out, &value.to_string()),
    }
}

fn push_bool(out: &mut String, value: bool) {
    out.push_str(if value { "true" } else { "false" });
}

fn push_float(out: &mut String, value: f64) {
    if !value.is_finite() {
        // JSON has no such numbers.
        out.push_str("null");
    } else if json::push_whole(out, value) {
        out.push_str(".0");
    } else {
        let _ = write!(out, "{value}");
    }
}

pub(super) fn push_cell(out: &mut String, cell: Cell<'_>) {
    match cell {
        Cell::Null => out.push_str("null"),
        Cell::F64(value) => push_float(out, value),
        Cell::I64(value) => json::push_integer(out, value),
        Cell::U64(value) => match i64::try_from(value) {
            Ok(value) => json::push_integer(out, value),
            // As values have them.
            Err(_) => push_float(out, value as f64),
        },
        Cell::Bool(value) => push_bool(out, value),
        Cell::Text(text) => json::push_text(out, text),
    }
}

/// Appends what is the same in all rows of a series.
fn push_same(out: &mut String, same: &Same<'_>) {
    match same {
        Same::Null => out.push_str("null"),
        Same::Tag(tag) => json::push_text(out, tag),
        Same::Number(number) => json::push_integer(out, *number),
    }
}

/// Appends `[[…],…]`, as [`push_rows`] does.
pub(super) fn push_table(out: &mut String, table: &TableRows, style: Style) {
    let mut known = KnownTime::default();
    let push_time = |out: &mut String, ns| push_time(out, &mut known, ns, style);
    out.push('[');
    if table.order().len() <= table.series() {
        SingleRows::of(table).push(out, push_time);
    } else {
        let mut rows = ReadRows::default();
        for series in (0..).take(table.series()) {
            let mut shows = Vec::new();
            table.shows(series, &mut shows);
            rows.add(shows.into_iter(), push_same);
        }
        rows.push(out, table.order(), push_time, push_cell);
    }
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
                Value::Timestamp(ns) => out.push_str(&quoted(&time(*ns, style))),
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
    use crate::read_rows::ROWS_TRIED;

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
            (Value::Float(float), if is_whole { format!("{float:.1}") } else { format!("{float}") })
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

//! Tables as JSON and CSV.

use std::fmt::Write;

use query::{Cell, FrameColumn};
use sql::{Column, Relation, Shows, SqlType, TableRows, Value};

use crate::json;

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

/// Rows whose length tells about how long all will be.
const ROWS_TRIED: usize = 64;

/// Appends `[[…],…]`.
pub(super) fn push_rows(out: &mut String, rows: &[Vec<Value>], style: Style) {
    let (begun, mut known) = (out.len(), KnownTime::default());
    out.push('[');
    for (place, row) in rows.iter().enumerate() {
        if place == ROWS_TRIED {
            // Memory that grows again and again is copied each time.
            out.reserve((out.len() - begun) / ROWS_TRIED * (rows.len() - ROWS_TRIED) / 16 * 17);
        }
        out.push_str(if place == 0 { "[" } else { ",[" });
        for (place, value) in row.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            push_json(out, value, style, &mut known);
        }
        out.push(']');
    }
    out.push(']');
}

/// The time that was written last: rows of many series share theirs.
#[derive(Default)]
struct KnownTime {
    ns: Option<i64>,
    text: String,
}

impl KnownTime {
    /// A time between quotes.
    fn text(&mut self, ns: i64, style: Style) -> &str {
        if self.ns != Some(ns) {
            *self = Self { ns: Some(ns), text: format!("\"{}\"", time(ns, style)) };
        }
        &self.text
    }
}

fn push_json(out: &mut String, value: &Value, style: Style, known: &mut KnownTime) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => push_bool(out, *value),
        Value::Int(value) => json::push_integer(out, *value),
        Value::Float(value) => push_float(out, *value),
        Value::Timestamp(ns) => out.push_str(known.text(*ns, style)),
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
    } else if value.fract() == 0.0 && value.abs() < 1e15 {
        // The sign of zero, too.
        out.push_str(if value.is_sign_negative() { "-" } else { "" });
        json::push_integer(out, value.abs() as i64);
        out.push_str(".0");
    } else {
        let _ = write!(out, "{value}");
    }
}

fn push_cell(out: &mut String, cell: Cell<'_>) {
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

/// A piece of the rows of a series.
enum Piece<'a> {
    /// The same in all of them, commas and all: where it begins and ends in the texts of all series.
    Same(usize, usize),
    Time,
    Field(&'a FrameColumn),
}

/// Appends `[[…],…]`, as [`push_rows`] does: what is the same in all rows of a series is made once.
pub(super) fn push_table(out: &mut String, table: &TableRows, style: Style) {
    let (mut texts, mut known) = (String::new(), KnownTime::default());
    let series: Vec<Vec<Piece<'_>>> = (0..).take(table.series()).map(|of| pieces(table, of, &mut texts)).collect();
    let begun = out.len();
    out.push('[');
    for (number, place) in table.order().iter().enumerate() {
        if number == ROWS_TRIED {
            out.reserve((out.len() - begun) / ROWS_TRIED * (table.order().len() - ROWS_TRIED) / 16 * 17);
        }
        out.push_str(if number == 0 { "[" } else { ",[" });
        for piece in series.get(place.series as usize).map(Vec::as_slice).unwrap_or_default() {
            match piece {
                Piece::Same(from, to) => out.push_str(texts.get(*from..*to).unwrap_or_default()),
                Piece::Time => out.push_str(known.text(place.time_ns, style)),
                Piece::Field(field) => push_cell(out, field.cell(place.row as usize)),
            }
        }
        out.push(']');
    }
    out.push(']');
}

fn pieces<'a>(table: &'a TableRows, series: u32, texts: &mut String) -> Vec<Piece<'a>> {
    let (mut pieces, mut from) = (Vec::new(), texts.len());
    for (place, shows) in table.shows(series).enumerate() {
        texts.push_str(if place == 0 { "" } else { "," });
        let piece = match shows {
            Shows::Same(value) => {
                push_json(texts, &value, Style::Plain, &mut KnownTime::default());
                continue;
            }
            Shows::Time => Piece::Time,
            Shows::Field(field) => Piece::Field(field),
        };
        pieces.push(Piece::Same(from, texts.len()));
        pieces.push(piece);
        from = texts.len();
    }
    pieces.push(Piece::Same(from, texts.len()));
    pieces
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

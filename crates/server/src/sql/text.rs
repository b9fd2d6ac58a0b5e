//! Tables as JSON and CSV.

use std::fmt::Write;

use sql::{Relation, SqlType, Value};

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
pub(super) fn columns(relation: &Relation, style: Style) -> String {
    let mut out = String::from("[");
    for (place, column) in relation.columns.iter().enumerate() {
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

/// `[[…],…]`
pub(super) fn rows(rows: &[Vec<Value>], style: Style) -> String {
    let mut out = String::with_capacity(rows.len() * 64);
    out.push('[');
    for (place, row) in rows.iter().enumerate() {
        out.push_str(if place == 0 { "[" } else { ",[" });
        for (place, value) in row.iter().enumerate() {
            out.push_str(if place == 0 { "" } else { "," });
            push_json(&mut out, value, style);
        }
        out.push(']');
    }
    out.push(']');
    out
}

fn push_json(out: &mut String, value: &Value, style: Style) {
    let _ = match value {
        // JSON has no such numbers.
        Value::Null => write!(out, "null"),
        Value::Float(number) if !number.is_finite() => write!(out, "null"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Int(value) => write!(out, "{value}"),
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => write!(out, "{value:.1}"),
        Value::Float(value) => write!(out, "{value}"),
        Value::Timestamp(ns) => write!(out, "\"{}\"", time(*ns, style)),
        Value::Text(text) => write!(out, "{}", json::text(text)),
        Value::Interval(_) => write!(out, "{}", json::text(&value.to_string())),
    };
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

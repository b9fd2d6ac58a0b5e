//! Answers as CSV: `name,tags,` and the columns, a header wherever the columns change.

use std::fmt::Write;
use std::sync::Arc;

use influxql::{Series, TimeFormat, Value};

use super::Done;

pub(super) fn csv(results: &[Done], times: TimeFormat) -> String {
    let mut out = String::new();
    for result in results {
        match result {
            Err(error) => {
                let between = if out.is_empty() { "" } else { "\n" };
                let _ = writeln!(out, "{between}error\n{}", quoted(&error.to_string()));
            }
            Ok(answer) => push_answer(&mut out, &answer.series, times),
        }
    }
    out
}

fn push_answer(out: &mut String, all: &[Series], times: TimeFormat) {
    let mut columns: Option<&Arc<[String]>> = None;
    for series in all {
        if columns != Some(&series.columns) {
            out.push_str(if out.is_empty() { "" } else { "\n" });
            let names: Vec<String> = series.columns.iter().map(|column| quoted(column)).collect();
            let _ = writeln!(out, "name,tags,{}", names.join(","));
            columns = Some(&series.columns);
        }
        let tags: Vec<String> = series.tags.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let head = format!("{},{}", quoted(&series.name), quoted(&tags.join(",")));
        for row in series.rows.values().iter() {
            out.push_str(&head);
            for value in row {
                out.push(',');
                push_value(out, series, value, times);
            }
            out.push('\n');
        }
    }
}

fn push_value(out: &mut String, series: &Series, value: &Value, times: TimeFormat) {
    let _ = match value {
        // These are of SQL alone.
        Value::Null | Value::Interval(_) | Value::LocalTimestamp(_) | Value::Date(_) => Ok(()),
        Value::Float(value) if !value.is_finite() => Ok(()),
        Value::Float(value) => write!(out, "{value}"),
        Value::Int(value) => write!(out, "{value}"),
        Value::Unsigned(value) => write!(out, "{value}"),
        Value::Bool(value) => write!(out, "{value}"),
        Value::Text(text) => out.write_str(&quoted(text)),
        Value::Timestamp(time_ns) => series.write_time(out, *time_ns, times),
    };
}

/// Between quotes, if it has to be.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) || text.starts_with([' ', '\t']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use influxql::{Answer, Rows};

    use super::*;

    #[test]
    fn headers_stand_where_columns_change() {
        let series = |name: &str, columns: &[&str], rows: Vec<Vec<Value>>| Series {
            name: name.to_owned(),
            tags: vec![("h".to_owned(), "a".to_owned()), ("r".to_owned(), "b,c".to_owned())],
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Rows::Values(rows),
            zone: None,
        };
        let first = || series("m", &["time", "v"], vec![vec![Value::Timestamp(1), Value::Text("x\"y".into())]]);
        let second = series("n", &["time", "w"], vec![vec![Value::Timestamp(2), Value::Null]]);
        let answer = Ok(Answer { series: vec![first(), first(), second], messages: Vec::new() });
        let expected = "name,tags,time,v\nm,\"h=a,r=b,c\",1,\"x\"\"y\"\nm,\"h=a,r=b,c\",1,\"x\"\"y\"\n\n\
                        name,tags,time,w\nn,\"h=a,r=b,c\",2,\n";
        assert_eq!(csv(&[answer], TimeFormat::Number { unit_ns: 1 }), expected);
    }
}

//! `INTO`: rows of an answer become rows of a measurement.

use std::fmt::Write;

use query::lines::{MEASUREMENT_SPECIAL, TAG_SPECIAL, escaped, push_field};
use query::{QueryError, Session, Value};

use crate::resolve::selection::{Column, Resolved};
use crate::select::rows::{SeriesRows, time_of};
use crate::statements::answer::{Answer, Series};
use crate::statements::request::{RequestContext, existing};
use crate::syntax::ast::Target;
use crate::value::DataType;

/// Bytes of line protocol that are written together.
const CHUNK_BYTES: usize = 4 << 20;

/// Writes rows and tells how many there were.
pub(crate) fn write(
    session: &dyn Session,
    request: &RequestContext<'_>,
    target: &Target,
    selection: &Resolved,
    rows: &[SeriesRows],
) -> Result<Answer, QueryError> {
    let database = target.database.as_deref().or(request.database).unwrap_or_default();
    existing(&session.databases(), database)?;
    let mut written = 0i64;
    let mut lines = String::new();
    for series in rows {
        let key = series_key(target.measurement.as_deref().unwrap_or(&series.name), selection, series);
        for row in series.rows.values().iter() {
            let before = lines.len();
            lines.push_str(&key);
            if push_fields(&mut lines, selection, row) {
                let _ = writeln!(lines, " {}", time_of(row));
                written += 1;
            } else {
                lines.truncate(before);
            }
            if lines.len() > CHUNK_BYTES {
                write_all(session, database, &lines)?;
                lines.clear();
            }
        }
    }
    if !lines.is_empty() {
        write_all(session, database, &lines)?;
    }
    let row = vec![Value::Timestamp(0), Value::Int(written)];
    Ok(Answer { series: vec![Series::list("result", &["time", "written"], vec![row])], messages: Vec::new() })
}

/// Writes lines; fails if one of them is refused.
fn write_all(session: &dyn Session, database: &str, lines: &str) -> Result<(), QueryError> {
    match session.write(database, lines.as_bytes())? {
        Some(refused) => Err(QueryError::Invalid(format!("partial write: {}", refused.reason))),
        None => Ok(()),
    }
}

fn series_key(measurement: &str, selection: &Resolved, series: &SeriesRows) -> String {
    let mut key = escaped(measurement, &MEASUREMENT_SPECIAL);
    for (tag, value) in selection.grouped_by.iter().zip(&series.tags).filter(|(_, value)| !value.is_empty()) {
        let _ = write!(key, ",{}={}", escaped(tag, &TAG_SPECIAL), escaped(value, &TAG_SPECIAL));
    }
    key.push(' ');
    key
}

/// Writes a row's fields, which stand after its time; returns whether there are any.
fn push_fields(lines: &mut String, selection: &Resolved, row: &[Value]) -> bool {
    // A number may fill a column of something else, which is written without it.
    let is_of_type = |column: &Column, value: &Value| {
        !matches!(column.data_type, DataType::Boolean | DataType::Text) || column.data_type.admits(value)
    };
    let mut fields = String::new();
    let cells = selection.columns.iter().zip(row.iter().skip(1));
    for (column, value) in cells.filter(|(column, value)| is_of_type(column, value)) {
        push_field(&mut fields, &column.name, value);
    }
    lines.push_str(&fields);
    !fields.is_empty()
}

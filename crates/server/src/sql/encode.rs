//! Rows as Postgres's protocol has them.

use bytes::{BufMut, BytesMut};
use jiff::tz::TimeZone;
use pgwire::api::Type;
use pgwire::api::portal::Format;
use pgwire::api::results::{FieldFormat, FieldInfo};
use pgwire::error::PgWireResult;
use pgwire::messages::data::DataRow;
use sql::{Column, Relation, Value};

use super::errors::failed;

/// The columns of an answer in the forms that a client wants.
pub(super) fn fields(columns: &[Column], format: &Format) -> PgWireResult<Vec<FieldInfo>> {
    if let Format::Individual(forms) = format
        && forms.len() != columns.len()
    {
        let (forms, columns) = (forms.len(), columns.len());
        return Err(failed("08P01", format!("{forms} forms were asked for, and there are {columns} columns")));
    }
    let field = |(place, column): (usize, &Column)| {
        let number = u32::try_from(sql::type_number(column.sql_type)).unwrap_or_default();
        let kind = Type::from_oid(number).unwrap_or(Type::TEXT);
        FieldInfo::new(column.name.clone(), None, None, kind, format.format_for(place))
    };
    Ok(columns.iter().enumerate().map(field).collect())
}

/// Rows as the protocol has them: each cell its length and its bytes, a null the length -1.
pub(super) fn encode(relation: Relation, fields: &[FieldInfo], zone: &TimeZone) -> Vec<DataRow> {
    let mut buffer = BytesMut::new();
    let columns: Vec<sql::SqlType> = relation.columns.iter().map(|column| column.sql_type).collect();
    let row = |row: Vec<Value>| {
        for ((value, field), sql_type) in row.iter().zip(fields).zip(&columns) {
            match field.format() {
                _ if value.is_null() => buffer.put_i32(-1),
                FieldFormat::Binary => sql::push_binary(&mut buffer, value, *sql_type),
                FieldFormat::Text => push_text(&mut buffer, value, zone),
            }
        }
        DataRow::new(buffer.split(), fields.len() as i16)
    };
    relation.rows.into_iter().map(row).collect()
}

fn push_text(out: &mut BytesMut, value: &Value, zone: &TimeZone) {
    let text = match microseconds(value) {
        Value::Timestamp(ns) => query::time::format_in(ns, zone),
        other => other.to_string(),
    };
    out.put_i32(text.len() as i32);
    out.put_slice(text.as_bytes());
}

/// Postgres has microseconds, and its clients read no more digits.
fn microseconds(value: &Value) -> Value {
    match value {
        Value::Timestamp(ns) => Value::Timestamp(ns.saturating_sub(ns.rem_euclid(1000))),
        Value::LocalTimestamp(ns) => Value::LocalTimestamp(ns.saturating_sub(ns.rem_euclid(1000))),
        Value::Interval(interval) => Value::Interval(sql::Interval { ns: interval.ns / 1000 * 1000, ..*interval }),
        other => other.clone(),
    }
}

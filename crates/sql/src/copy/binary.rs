//! Values in Postgres's binary form, and COPY's file of them.

use bytes::BufMut;
use query::{Interval, SqlType, Value};

use crate::error::{SqlError, invalid, refused};
use crate::relation::Relation;

/// Microseconds from the Unix epoch to Postgres's, 2000-01-01.
const EPOCH_US: i64 = 946_684_800_000_000;
const US_PER_DAY: i64 = 86_400_000_000;

/// The beginning of COPY's file: a signature, flags, and the length of an extension.
const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
const FLAGS_AND_EXTENSION: [u8; 8] = [0; 8];
/// In the place of a row's number of cells: the end.
const END: i16 = -1;

/// Appends a value in binary form after its length; a null is the length -1.
pub fn push_binary(out: &mut impl BufMut, value: &Value, sql_type: SqlType) {
    match (sql_type, value) {
        (_, Value::Null) => out.put_i32(-1),
        (SqlType::Bool, Value::Bool(value)) => {
            out.put_i32(1);
            out.put_u8(u8::from(*value));
        }
        (SqlType::Int, Value::Int(value)) => {
            out.put_i32(8);
            out.put_i64(*value);
        }
        (SqlType::Int4, Value::Int(value)) => match i32::try_from(*value) {
            Ok(value) => {
                out.put_i32(4);
                out.put_i32(value);
            }
            Err(_) => out.put_i32(-1),
        },
        (SqlType::Float, Value::Int(value)) => {
            out.put_i32(8);
            out.put_f64(*value as f64);
        }
        (SqlType::Float, Value::Float(value)) => {
            out.put_i32(8);
            out.put_f64(*value);
        }
        (SqlType::Date, Value::Date(ns)) => {
            out.put_i32(4);
            out.put_i32((ns.div_euclid(1000) - EPOCH_US).div_euclid(US_PER_DAY) as i32);
        }
        (SqlType::Timestamp, Value::Timestamp(ns)) | (SqlType::LocalTimestamp, Value::LocalTimestamp(ns)) => {
            out.put_i32(8);
            out.put_i64(ns.div_euclid(1000) - EPOCH_US);
        }
        (SqlType::Interval, Value::Interval(interval)) => {
            out.put_i32(16);
            out.put_i64(interval.ns / 1000);
            out.put_i32(interval.days);
            out.put_i32(interval.months);
        }
        // Texts are the same in both forms; a value of another type than its column says is a null rather than nonsense.
        (SqlType::Text | SqlType::Unknown, value) => {
            let text = value.to_string();
            out.put_i32(text.len() as i32);
            out.put_slice(text.as_bytes());
        }
        _ => out.put_i32(-1),
    }
}

/// Reads a value in binary form. Numbers may be shorter than those of the type.
pub fn read_binary(bytes: &[u8], sql_type: SqlType) -> Result<Value, SqlError> {
    let wrong = || SqlError::Refused("22P03", "incorrect binary data format".to_owned());
    let out_of_range = || SqlError::Refused("22008", "a time is out of range".to_owned());
    let time = |us: i64| us.checked_add(EPOCH_US).and_then(|us| us.checked_mul(1000)).ok_or_else(out_of_range);
    Ok(match sql_type {
        SqlType::Bool => match bytes {
            [byte] => Value::Bool(*byte != 0),
            _ => return Err(wrong()),
        },
        SqlType::Int | SqlType::Int4 => Value::Int(integer(bytes).ok_or_else(wrong)?),
        SqlType::Float => match bytes.len() {
            4 => Value::Float(f64::from(f32::from_be_bytes(array(bytes).ok_or_else(wrong)?))),
            _ => Value::Float(f64::from_be_bytes(array(bytes).ok_or_else(wrong)?)),
        },
        SqlType::Timestamp => Value::Timestamp(time(i64::from_be_bytes(array(bytes).ok_or_else(wrong)?))?),
        SqlType::LocalTimestamp => Value::LocalTimestamp(time(i64::from_be_bytes(array(bytes).ok_or_else(wrong)?))?),
        SqlType::Date => {
            let days = i32::from_be_bytes(array(bytes).ok_or_else(wrong)?);
            Value::Date(time(i64::from(days).checked_mul(US_PER_DAY).ok_or_else(out_of_range)?)?)
        }
        SqlType::Interval => {
            let (us, rest) = bytes.split_at_checked(8).ok_or_else(wrong)?;
            let (days, months) = rest.split_at_checked(4).ok_or_else(wrong)?;
            let us = i64::from_be_bytes(array(us).ok_or_else(wrong)?);
            let days = i32::from_be_bytes(array(days).ok_or_else(wrong)?);
            let months = i32::from_be_bytes(array(months).ok_or_else(wrong)?);
            Value::Interval(Interval { months, days, ns: us.checked_mul(1000).ok_or_else(out_of_range)? })
        }
        SqlType::Text | SqlType::Unknown => Value::text(std::str::from_utf8(bytes).map_err(|_| wrong())?),
    })
}

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

fn integer(bytes: &[u8]) -> Option<i64> {
    match bytes.len() {
        2 => array(bytes).map(|bytes| i64::from(i16::from_be_bytes(bytes))),
        4 => array(bytes).map(|bytes| i64::from(i32::from_be_bytes(bytes))),
        _ => array(bytes).map(i64::from_be_bytes),
    }
}

/// COPY's file: a message for each row, the beginning part of the first, and one for the end.
pub(super) fn messages(relation: &Relation) -> Vec<Vec<u8>> {
    let mut messages = Vec::with_capacity(relation.rows.len() + 1);
    let mut message = [SIGNATURE, &FLAGS_AND_EXTENSION].concat();
    for row in &relation.rows {
        message.put_i16(relation.columns.len() as i16);
        for (value, column) in row.iter().zip(&relation.columns) {
            push_binary(&mut message, value, column.sql_type);
        }
        messages.push(std::mem::take(&mut message));
    }
    message.put_i16(END);
    messages.push(message);
    messages
}

/// The rows of COPY's file, with columns of these types.
pub(super) fn rows(file: &[u8], types: &[SqlType]) -> Result<Vec<Vec<Value>>, SqlError> {
    let mut rest = Rest(file);
    if rest.take(SIGNATURE.len()) != Some(SIGNATURE) {
        return refused("22P04", "COPY file signature not recognized");
    }
    let mut rows = Vec::new();
    rest.rows(types, &mut rows)?;
    Ok(rows)
}

/// How many cells the first row of COPY's file has; `None` if it has none, or is no such file.
pub(super) fn columns(file: &[u8]) -> Option<usize> {
    let mut rest = Rest(file);
    rest.take(SIGNATURE.len()).filter(|signature| *signature == SIGNATURE)?;
    rest.take(4)?;
    let extension = usize::try_from(rest.i32()?).ok()?;
    rest.take(extension)?;
    let cells = rest.take(2).and_then(array).map(i16::from_be_bytes)?;
    usize::try_from(cells).ok()
}

/// The unread rest of a file.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take(4).and_then(array).map(i32::from_be_bytes)
    }

    fn rows(&mut self, types: &[SqlType], rows: &mut Vec<Vec<Value>>) -> Result<(), SqlError> {
        let ended = || SqlError::Refused("22P04", "COPY: the file ends within a row".to_owned());
        self.take(4).ok_or_else(ended)?;
        let extension = self.i32().and_then(|bytes| usize::try_from(bytes).ok()).ok_or_else(ended)?;
        self.take(extension).ok_or_else(ended)?;
        loop {
            // A file may end without its last mark.
            let Some(cells) = self.take(2).and_then(array).map(i16::from_be_bytes) else { return Ok(()) };
            if cells == END {
                return Ok(());
            }
            if usize::try_from(cells) != Ok(types.len()) {
                return invalid(format!("COPY: row {} has {cells} cells, not {}", rows.len() + 1, types.len()));
            }
            let mut row = Vec::with_capacity(types.len());
            for sql_type in types {
                let length = self.i32().ok_or_else(ended)?;
                row.push(match usize::try_from(length) {
                    Ok(length) => read_binary(self.take(length).ok_or_else(ended)?, *sql_type)?,
                    Err(_) => Value::Null,
                });
            }
            rows.push(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relation::Column;

    #[test]
    fn rows_are_read_as_they_are_written() {
        let types = [SqlType::Timestamp, SqlType::Text, SqlType::Float, SqlType::Int, SqlType::Bool, SqlType::Interval];
        let rows_of = |rows: &[Vec<Value>]| {
            let columns = types.iter().map(|sql_type| Column::new("c", *sql_type)).collect();
            messages(&Relation { columns, rows: rows.to_vec() })
        };
        let full = vec![
            Value::Timestamp(1_451_606_400_123_456_000),
            Value::text("ä"),
            Value::Float(-0.5),
            Value::Int(i64::MIN),
            Value::Bool(true),
            Value::Interval(Interval { months: 2, days: 1, ns: 5000 }),
        ];
        let nulls = vec![Value::Null; types.len()];
        let written = rows_of(&[full.clone(), nulls.clone()]);
        assert_eq!(written.len(), 3, "one for each row and the end");
        assert_eq!(rows(&written.concat(), &types).unwrap(), [full, nulls]);
        assert_eq!(rows(&rows_of(&[]).concat(), &types).unwrap(), Vec::<Vec<Value>>::new());
        let file = written.concat();
        for end in 0..file.len() {
            let _ = rows(&file[..end], &types);
        }
        assert!(rows(b"text\n", &types).is_err());
        assert!(rows(&file, &types[1..]).is_err());
    }
}

//! Batches of others (files, engines) as rows.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Date64Type, Decimal128Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    IntervalDayTimeType, IntervalMonthDayNanoType, IntervalYearMonthType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use query::{Interval, SqlType, Value};

use crate::error::{SqlError, invalid};
use crate::relation::{Column, Relation};

const NS_PER_DAY: i64 = 86_400_000_000_000;
const NS_PER_MS: i64 = 1_000_000;
/// Lists within lists.
const DEPTH_MAX: usize = 8;
/// Bytes of an item of a list but for its text: the value, what it is written into, and what a number or a time is written as.
const ITEM_BYTES: usize = size_of::<Value>() + size_of::<String>() + 32;

/// The type of a column's values here.
pub(crate) fn sql_type_of(kind: &DataType) -> SqlType {
    match kind {
        DataType::Boolean => SqlType::Bool,
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => SqlType::Timestamp,
        DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
        DataType::Decimal128(..) => SqlType::Float,
        DataType::Dictionary(_, values) => sql_type_of(values),
        DataType::Null => SqlType::Unknown,
        kind if kind.is_integer() => SqlType::Int,
        kind if kind.is_floating() => SqlType::Float,
        _ => SqlType::Text,
    }
}

/// How many cells the rows of a batch have, and the bytes of their texts at most: few bytes of a batch can stand for much. Nulls take none there,
/// and views share a text.
pub fn extent_of(batch: &RecordBatch) -> (usize, usize) {
    let texts = batch.columns().iter().map(|array| texts_bytes(array)).fold(0, usize::saturating_add);
    (batch.num_rows().saturating_mul(batch.num_columns().max(1)), texts)
}

/// Bytes of the texts of an array's cells, at most.
fn texts_bytes(array: &dyn Array) -> usize {
    match array.data_type() {
        // Cells share the texts of a dictionary.
        DataType::Dictionary(..) => {
            let values = array.as_any_dictionary().values();
            values.len().saturating_mul(size_of::<Value>()).saturating_add(texts_bytes(values))
        }
        DataType::List(_) => written_bytes(array.as_list::<i32>().values(), 0),
        DataType::LargeList(_) => written_bytes(array.as_list::<i64>().values(), 0),
        _ => text_bytes(array),
    }
}

/// Bytes that an array's cells take at most when they are read and written as items of a list.
fn written_bytes(array: &dyn Array, depth: usize) -> usize {
    let texts = match array.data_type() {
        DataType::Dictionary(..) => {
            let values = array.as_any_dictionary().values();
            array.len().saturating_mul(longest_text_bytes(values)).saturating_add(written_bytes(values, depth + 1))
        }
        DataType::List(_) if depth < DEPTH_MAX => written_bytes(array.as_list::<i32>().values(), depth + 1),
        DataType::LargeList(_) if depth < DEPTH_MAX => written_bytes(array.as_list::<i64>().values(), depth + 1),
        _ => text_bytes(array),
    };
    // Each text in quotes, all of its characters escaped by a backslash.
    array.len().saturating_mul(ITEM_BYTES).saturating_add(texts.saturating_mul(2))
}

/// Bytes of the texts that an array's cells are.
fn text_bytes(array: &dyn Array) -> usize {
    text_lengths(array, &mut |lengths| lengths.fold(0, usize::saturating_add))
}

fn longest_text_bytes(array: &dyn Array) -> usize {
    text_lengths(array, &mut |lengths| lengths.max().unwrap_or(0))
}

/// The lengths of the texts that an array's cells are; none if they are none.
fn text_lengths(array: &dyn Array, total: &mut dyn FnMut(&mut dyn Iterator<Item = usize>) -> usize) -> usize {
    match array.data_type() {
        DataType::Utf8 => total(&mut array.as_string::<i32>().offsets().lengths()),
        DataType::LargeUtf8 => total(&mut array.as_string::<i64>().offsets().lengths()),
        DataType::Utf8View => total(&mut array.as_string_view().lengths().map(|length| length as usize)),
        _ => 0,
    }
}

/// The rows of a batch.
pub(crate) fn relation_of_batch(batch: &RecordBatch) -> Result<Relation, SqlError> {
    let mut relation = Relation::default();
    let mut cells = Vec::with_capacity(batch.num_columns());
    for (field, array) in batch.schema_ref().fields().iter().zip(batch.columns()) {
        relation.columns.push(Column::new(field.name(), sql_type_of(field.data_type())));
        let values = values(array, 0).map_err(|error| match error {
            SqlError::Invalid(message) => SqlError::Invalid(format!("column \"{}\": {message}", field.name())),
            other => other,
        })?;
        cells.push(values.into_iter());
    }
    for _ in 0..batch.num_rows() {
        relation.rows.push(cells.iter_mut().map(|cells| cells.next().unwrap_or(Value::Null)).collect());
    }
    Ok(relation)
}

fn primitive<T: ArrowPrimitiveType>(array: &dyn Array, value: impl Fn(T::Native) -> Value) -> Vec<Value> {
    array.as_primitive::<T>().iter().map(|cell| cell.map_or(Value::Null, &value)).collect()
}

/// Times of a unit, in nanoseconds.
fn times<T: ArrowPrimitiveType<Native = i64>>(array: &dyn Array, ns: i64) -> Result<Vec<Value>, SqlError> {
    let time = |cell: Option<i64>| match cell {
        None => Ok(Value::Null),
        Some(count) => match count.checked_mul(ns) {
            Some(ns) => Ok(Value::Timestamp(ns)),
            None => invalid("a time lies beyond the years 1678 to 2262, which nanoseconds reach"),
        },
    };
    array.as_primitive::<T>().iter().map(time).collect()
}

fn durations<T: ArrowPrimitiveType<Native = i64>>(array: &dyn Array, ns: i64) -> Vec<Value> {
    primitive::<T>(array, |count| Value::Interval(Interval::of_ns(count.saturating_mul(ns))))
}

fn values(array: &ArrayRef, depth: usize) -> Result<Vec<Value>, SqlError> {
    let int = |value: i64| Value::Int(value);
    Ok(match array.data_type() {
        DataType::Null => vec![Value::Null; array.len()],
        DataType::Boolean => array.as_boolean().iter().map(|cell| cell.map_or(Value::Null, Value::Bool)).collect(),
        DataType::Int8 => primitive::<Int8Type>(array, |value| int(value.into())),
        DataType::Int16 => primitive::<Int16Type>(array, |value| int(value.into())),
        DataType::Int32 => primitive::<Int32Type>(array, |value| int(value.into())),
        DataType::Int64 => primitive::<Int64Type>(array, int),
        DataType::UInt8 => primitive::<UInt8Type>(array, |value| int(value.into())),
        DataType::UInt16 => primitive::<UInt16Type>(array, |value| int(value.into())),
        DataType::UInt32 => primitive::<UInt32Type>(array, |value| int(value.into())),
        DataType::UInt64 => primitive::<UInt64Type>(array, unsigned),
        DataType::Float32 => primitive::<Float32Type>(array, |value| Value::Float(value.into())),
        DataType::Float64 => primitive::<Float64Type>(array, Value::Float),
        DataType::Decimal128(_, scale) => {
            let unit = 10f64.powi(i32::from(*scale));
            primitive::<Decimal128Type>(array, |value| Value::Float(value as f64 / unit))
        }
        DataType::Utf8 => texts(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => texts(array.as_string::<i64>().iter()),
        DataType::Utf8View => texts(array.as_string_view().iter()),
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => points_in_time(array)?,
        DataType::Duration(_) | DataType::Interval(_) => lengths_of_time(array),
        DataType::Dictionary(..) => dictionary(array, depth)?,
        DataType::List(_) | DataType::LargeList(_) if depth < DEPTH_MAX => lists(array, depth)?,
        other => return invalid(format!("values of the type {other} are not read: cast them to text or numbers")),
    })
}

/// Unsigned integers beyond what signed ones hold are floats.
fn unsigned(value: u64) -> Value {
    i64::try_from(value).map_or(Value::Float(value as f64), Value::Int)
}

fn texts<'a>(cells: impl Iterator<Item = Option<&'a str>>) -> Vec<Value> {
    cells.map(|cell| cell.map_or(Value::Null, Value::text)).collect()
}

fn points_in_time(array: &dyn Array) -> Result<Vec<Value>, SqlError> {
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => times::<TimestampSecondType>(array, 1_000_000_000),
        DataType::Timestamp(TimeUnit::Millisecond, _) => times::<TimestampMillisecondType>(array, NS_PER_MS),
        DataType::Timestamp(TimeUnit::Microsecond, _) => times::<TimestampMicrosecondType>(array, 1000),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => times::<TimestampNanosecondType>(array, 1),
        DataType::Date64 => times::<Date64Type>(array, NS_PER_MS),
        // 2³¹ days are more than nanoseconds reach.
        _ => array
            .as_primitive::<Date32Type>()
            .iter()
            .map(|cell| match cell.map(|days| i64::from(days).checked_mul(NS_PER_DAY)) {
                None => Ok(Value::Null),
                Some(Some(ns)) => Ok(Value::Timestamp(ns)),
                Some(None) => invalid("a day lies beyond the years 1678 to 2262, which nanoseconds reach"),
            })
            .collect(),
    }
}

fn lengths_of_time(array: &dyn Array) -> Vec<Value> {
    let length = |months: i32, days: i32, ns: i64| Value::Interval(Interval { months, days, ns });
    match array.data_type() {
        DataType::Duration(TimeUnit::Second) => durations::<DurationSecondType>(array, 1_000_000_000),
        DataType::Duration(TimeUnit::Millisecond) => durations::<DurationMillisecondType>(array, NS_PER_MS),
        DataType::Duration(TimeUnit::Microsecond) => durations::<DurationMicrosecondType>(array, 1000),
        DataType::Duration(TimeUnit::Nanosecond) => durations::<DurationNanosecondType>(array, 1),
        DataType::Interval(IntervalUnit::YearMonth) => {
            primitive::<IntervalYearMonthType>(array, |months| length(months, 0, 0))
        }
        DataType::Interval(IntervalUnit::DayTime) => primitive::<IntervalDayTimeType>(array, |interval| {
            length(0, interval.days, i64::from(interval.milliseconds) * NS_PER_MS)
        }),
        _ => primitive::<IntervalMonthDayNanoType>(array, |interval| {
            length(interval.months, interval.days, interval.nanoseconds)
        }),
    }
}

fn dictionary(array: &dyn Array, depth: usize) -> Result<Vec<Value>, SqlError> {
    let dictionary = array.as_any_dictionary();
    if dictionary.values().is_empty() {
        return Ok(vec![Value::Null; array.len()]);
    }
    let known = values(dictionary.values(), depth)?;
    let keys = dictionary.normalized_keys();
    let value = |(row, key): (usize, &usize)| {
        let present = dictionary.keys().is_valid(row);
        known.get(*key).filter(|_| present).cloned().unwrap_or(Value::Null)
    };
    Ok(keys.iter().enumerate().map(value).collect())
}

/// Lists as Postgres writes arrays.
fn lists(array: &dyn Array, depth: usize) -> Result<Vec<Value>, SqlError> {
    let mut out = Vec::with_capacity(array.len());
    for row in 0..array.len() {
        if array.is_null(row) {
            out.push(Value::Null);
            continue;
        }
        let of_row = match array.as_list_opt::<i32>() {
            Some(lists) => lists.value(row),
            None => array.as_list::<i64>().value(row),
        };
        out.push(crate::expression::array(&values(&of_row, depth + 1)?));
    }
    Ok(out)
}

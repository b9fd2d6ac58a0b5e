//! Parameters of Postgres's protocol: values of their types in text and in binary form, as Postgres reads them.

use std::fmt::Write;

use jiff::tz::TimeZone;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::error::{PgWireError, PgWireResult};
use query::Interval;
use query::time::{parse_instant, parse_local};
use query::value::parse_bool;
use sql::{ParameterType, SqlError, SqlType, Value};

use super::errors::failed;
use super::prepared::Statements;

const NS_PER_DAY: i64 = 86_400_000_000_000;

/// A value of a type, to find out what a statement gives.
pub(super) fn sample_of(kind: Option<&Type>) -> Value {
    match kind.map(|kind| (kind, sql_type_of(kind))) {
        Some((_, Some(SqlType::Bool))) => Value::Bool(true),
        Some((_, Some(SqlType::Int | SqlType::Int4)) | (&Type::OID, _)) => Value::Int(1),
        Some((_, Some(SqlType::Float)) | (&Type::NUMERIC, _)) => Value::Float(1.0),
        Some((_, Some(SqlType::Timestamp))) => Value::Timestamp(0),
        Some((_, Some(SqlType::LocalTimestamp))) => Value::LocalTimestamp(0),
        Some((_, Some(SqlType::Date))) => Value::Date(0),
        Some((_, Some(SqlType::Interval))) => Value::Interval(Interval { days: 1, ..Interval::default() }),
        _ => Value::Null,
    }
}

/// The type that values of a type are read as in binary form; `None` for those that are read otherwise.
fn sql_type_of(kind: &Type) -> Option<SqlType> {
    Some(match *kind {
        Type::BOOL => SqlType::Bool,
        Type::INT2 | Type::INT4 | Type::INT8 => SqlType::Int,
        Type::FLOAT4 | Type::FLOAT8 => SqlType::Float,
        Type::TIMESTAMP => SqlType::LocalTimestamp,
        Type::TIMESTAMPTZ => SqlType::Timestamp,
        Type::DATE => SqlType::Date,
        Type::INTERVAL => SqlType::Interval,
        Type::TEXT | Type::VARCHAR | Type::NAME | Type::BPCHAR | Type::UNKNOWN => SqlType::Text,
        _ => return None,
    })
}

/// Arrays and the types of their elements; the first of a type is the one that parameters are said to be.
const ARRAYS: [(Type, Type); 15] = [
    (Type::BOOL_ARRAY, Type::BOOL),
    (Type::INT8_ARRAY, Type::INT8),
    (Type::INT4_ARRAY, Type::INT4),
    (Type::INT2_ARRAY, Type::INT2),
    (Type::FLOAT8_ARRAY, Type::FLOAT8),
    (Type::FLOAT4_ARRAY, Type::FLOAT4),
    (Type::NUMERIC_ARRAY, Type::NUMERIC),
    (Type::TEXT_ARRAY, Type::TEXT),
    (Type::VARCHAR_ARRAY, Type::VARCHAR),
    (Type::NAME_ARRAY, Type::NAME),
    (Type::TIMESTAMPTZ_ARRAY, Type::TIMESTAMPTZ),
    (Type::TIMESTAMP_ARRAY, Type::TIMESTAMP),
    (Type::DATE_ARRAY, Type::DATE),
    (Type::INTERVAL_ARRAY, Type::INTERVAL),
    (Type::OID_ARRAY, Type::OID),
];

/// The type that a parameter has by its use.
pub(super) fn inferred(kind: ParameterType) -> Type {
    let number = u32::try_from(sql::type_number(kind.sql_type)).unwrap_or_default();
    let element = if kind.is_oid { Type::OID } else { Type::from_oid(number).unwrap_or(Type::TEXT) };
    if !kind.is_array {
        return element;
    }
    ARRAYS.iter().find(|(_, known)| *known == element).map_or(Type::TEXT_ARRAY, |(array, _)| array.clone())
}

/// The value of a statement's argument as a parameter of a type.
pub(super) fn argument(value: Value, kind: Option<&Type>, zone: &TimeZone) -> PgWireResult<Value> {
    match (kind, value) {
        (Some(kind), Value::Timestamp(ns)) => text_parameter(&query::time::format_in(ns, zone), kind, zone),
        (Some(kind), value) if !value.is_null() => text_parameter(&value.to_string(), kind, zone),
        (_, value) => Ok(value),
    }
}

/// The value of a portal's parameter; times without an offset are in the session's zone.
pub(super) fn parameter(portal: &Portal<Statements>, index: usize, zone: &TimeZone) -> PgWireResult<Value> {
    let kind = portal.statement.parameter_types.get(index).cloned().flatten().unwrap_or(Type::TEXT);
    let Some(bytes) = portal.parameters.get(index).and_then(Option::as_ref) else { return Ok(Value::Null) };
    if portal.parameter_format.is_binary(index) {
        return binary_parameter(bytes, &kind, index);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| failed("22021", "a parameter is not UTF-8".to_owned()))?;
    without_nul(text_parameter(text, &kind, zone)?).map_err(|error| failed(error.code(), error.to_string()))
}

fn binary_parameter(bytes: &[u8], kind: &Type, index: usize) -> PgWireResult<Value> {
    let wrong = || failed("22P03", format!("incorrect binary data format in parameter {}", index + 1));
    if let Some(sql_type) = sql_type_of(kind) {
        let read = sql::read_binary(bytes, sql_type).and_then(without_nul);
        return read.map_err(|error| failed(error.code(), format!("{error} in parameter {}", index + 1)));
    }
    match *kind {
        Type::OID => Ok(Value::Int(i64::from(u32::from_be_bytes(number(bytes, wrong)?)))),
        Type::NUMERIC => Ok(Value::Float(numeric(bytes).ok_or_else(wrong)?)),
        ref other => match ARRAYS.iter().find(|(array, _)| array == other) {
            Some((_, element)) => Ok(sql::array(&elements(bytes, element, index)?)),
            None => Err(failed("0A000", format!("parameters of type {other} are not taken in binary form: send text"))),
        },
    }
}

/// Texts have no NUL in Postgres.
fn without_nul(value: Value) -> Result<Value, SqlError> {
    match &value {
        Value::Text(text) if text.contains('\0') => {
            Err(SqlError::Refused("22021", "invalid byte sequence for encoding \"UTF8\": 0x00".to_owned()))
        }
        _ => Ok(value),
    }
}

/// The elements of an array of one dimension, or of none.
fn elements(bytes: &[u8], kind: &Type, index: usize) -> PgWireResult<Vec<Value>> {
    let wrong = || failed("22P03", format!("incorrect binary data format in parameter {}", index + 1));
    let mut rest = bytes;
    let mut take = |count: usize| {
        let (taken, behind) = rest.split_at_checked(count).ok_or_else(wrong)?;
        rest = behind;
        Ok::<_, PgWireError>(taken)
    };
    let dimensions = i32::from_be_bytes(number(take(4)?, wrong)?);
    take(8)?;
    if dimensions == 0 {
        return Ok(Vec::new());
    }
    if dimensions != 1 {
        return Err(failed("0A000", "arrays of parameters have one dimension".to_owned()));
    }
    let count = i32::from_be_bytes(number(take(4)?, wrong)?);
    take(4)?;
    let mut values = Vec::new();
    for _ in 0..count {
        let length = i32::from_be_bytes(number(take(4)?, wrong)?);
        values.push(match usize::try_from(length) {
            Ok(length) => binary_parameter(take(length)?, kind, index)?,
            Err(_) => Value::Null,
        });
    }
    Ok(values)
}

fn number<const N: usize>(bytes: &[u8], wrong: impl Fn() -> PgWireError) -> PgWireResult<[u8; N]> {
    bytes.try_into().map_err(|_| wrong())
}

/// Postgres's binary form of `numeric`: digits of base 10,000 with a weight.
fn numeric(bytes: &[u8]) -> Option<f64> {
    let mut words = bytes.chunks(2).map(|word| Some(u16::from_be_bytes(word.try_into().ok()?)));
    let mut word = || words.next().flatten();
    let (digits, weight, sign, _) = (word()?, word()? as i16, word()?, word()?);
    let mut text = match sign {
        0 => String::new(),
        0x4000 => "-".to_owned(),
        0xC000 => return Some(f64::NAN),
        0xD000 => return Some(f64::INFINITY),
        0xF000 => return Some(f64::NEG_INFINITY),
        _ => return None,
    };
    text.push('0');
    for _ in 0..digits {
        let digit = word().filter(|digit| *digit < 10_000)?;
        // Writing into a string does not fail.
        let _ = write!(text, "{digit:04}");
    }
    if word().is_some() {
        return None;
    }
    let exponent = 4 * (i32::from(weight) + 1 - i32::from(digits));
    format!("{text}e{exponent}").parse().ok()
}

/// A text as the value of its type, by Postgres's rules; texts without a type stay what they are and are read as what they stand beside.
fn text_parameter(text: &str, kind: &Type, zone: &TimeZone) -> PgWireResult<Value> {
    let trimmed = text.trim();
    let (name, value) = match *kind {
        Type::BOOL => ("boolean", boolean(trimmed).map(Value::Bool)),
        Type::INT2 => ("smallint", integer(trimmed, "smallint", i16::MIN.into(), i16::MAX.into())?),
        Type::INT4 => ("integer", integer(trimmed, "integer", i32::MIN.into(), i32::MAX.into())?),
        Type::INT8 => ("bigint", integer(trimmed, "bigint", i64::MIN, i64::MAX)?),
        Type::OID => ("oid", integer(trimmed, "oid", 0, u32::MAX.into())?),
        Type::FLOAT4 => ("real", float(trimmed)),
        Type::FLOAT8 => ("double precision", float(trimmed)),
        Type::NUMERIC => ("numeric", float(trimmed)),
        Type::TIMESTAMP => ("timestamp", parse_local(trimmed).map(Value::LocalTimestamp)),
        Type::TIMESTAMPTZ => ("timestamp with time zone", parse_instant(trimmed, zone).map(Value::Timestamp)),
        Type::DATE => ("date", parse_local(trimmed).map(|ns| Value::Date(ns - ns.rem_euclid(NS_PER_DAY)))),
        Type::INTERVAL => ("interval", query::time::parse_interval(trimmed).map(Value::Interval)),
        _ => return Ok(Value::text(text)),
    };
    let code = if matches!(*kind, Type::TIMESTAMP | Type::TIMESTAMPTZ | Type::DATE | Type::INTERVAL) {
        "22007"
    } else {
        "22P02"
    };
    value.ok_or_else(|| failed(code, format!("invalid input syntax for type {name}: \"{text}\"")))
}

/// A boolean: unique beginnings of the words count.
fn boolean(text: &str) -> Option<bool> {
    let lower = text.to_ascii_lowercase();
    let is_beginning = |word: &str, least: usize| lower.len() >= least && word.starts_with(&lower);
    let words = [("true", 1, true), ("false", 1, false), ("yes", 1, true), ("no", 1, false), ("off", 2, false)];
    let found = words.iter().find(|(word, least, _)| is_beginning(word, *least));
    found.map(|(.., value)| *value).or_else(|| parse_bool(&lower))
}

fn integer(text: &str, name: &str, least: i64, most: i64) -> PgWireResult<Option<Value>> {
    let Ok(value) = text.parse::<i128>() else { return Ok(None) };
    match i64::try_from(value).ok().filter(|value| (least..=most).contains(value)) {
        Some(value) => Ok(Some(Value::Int(value))),
        None => Err(failed("22003", format!("value \"{text}\" is out of range for type {name}"))),
    }
}

fn float(text: &str) -> Option<Value> {
    text.parse().ok().map(Value::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(result: PgWireResult<Value>) -> String {
        match result {
            Err(PgWireError::UserError(error)) => error.code,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn texts_are_read_by_their_type_or_refused() {
        let texts = ["t", "TRUE", "tru", " yes ", "y", "on", "1", "f", "False", "no", "n", "of", "off", "0"];
        for (place, text) in texts.into_iter().enumerate() {
            assert_eq!(text_parameter(text, &Type::BOOL, &TimeZone::UTC).unwrap(), Value::Bool(place < 7), "{text}");
        }
        for (text, kind, expected) in [
            (" 42 ", Type::INT4, Value::Int(42)),
            ("-32768", Type::INT2, Value::Int(-32768)),
            ("1e3", Type::FLOAT8, Value::Float(1000.0)),
            ("Infinity", Type::FLOAT4, Value::Float(f64::INFINITY)),
            ("2024-07-10 12:00:00+02", Type::TIMESTAMPTZ, Value::Timestamp(1_720_605_600_000_000_000)),
            ("2024-07-10", Type::DATE, Value::Date(1_720_569_600_000_000_000)),
            (
                "1 day 02:00",
                Type::INTERVAL,
                Value::Interval(Interval { months: 0, days: 1, ns: 2 * 3_600_000_000_000 }),
            ),
            (" x", Type::TEXT, Value::text(" x")),
        ] {
            assert_eq!(text_parameter(text, &kind, &TimeZone::UTC).unwrap(), expected, "{text}");
        }
        for (text, kind, expected) in [
            ("o", Type::BOOL, "22P02"),
            ("", Type::BOOL, "22P02"),
            ("2", Type::BOOL, "22P02"),
            ("1.5", Type::INT8, "22P02"),
            ("x", Type::FLOAT8, "22P02"),
            ("32768", Type::INT2, "22003"),
            ("9223372036854775808", Type::INT8, "22003"),
            ("yesterday-ish", Type::TIMESTAMP, "22007"),
            ("1 fortnight", Type::INTERVAL, "22007"),
        ] {
            assert_eq!(code(text_parameter(text, &kind, &TimeZone::UTC)), expected, "{text}");
        }
    }

    #[test]
    fn binary_values_are_read_by_their_type_or_refused() {
        let numeric = [0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 13, 72];
        assert_eq!(binary_parameter(&numeric, &Type::NUMERIC, 0).unwrap(), Value::Float(-12.34));
        let interval = [[0; 7].as_slice(), &[5, 0, 0, 0, 1, 0, 0, 0, 2]].concat();
        let expected = Value::Interval(Interval { months: 2, days: 1, ns: 5000 });
        assert_eq!(binary_parameter(&interval, &Type::INTERVAL, 0).unwrap(), expected);
        assert_eq!(binary_parameter(&u32::MAX.to_be_bytes(), &Type::OID, 0).unwrap(), Value::Int(u32::MAX.into()));
        for (bytes, kind) in [(&[1, 2][..], Type::BOOL), (&[1], Type::INT4), (&numeric[..9], Type::NUMERIC)] {
            assert_eq!(code(binary_parameter(bytes, &kind, 0)), "22P03", "{kind}");
        }
    }
}

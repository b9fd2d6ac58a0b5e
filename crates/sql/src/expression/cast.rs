//! Values from one type to another.

use jiff::tz::TimeZone;
use query::time;
use query::value::parse_bool;
use query::{SqlType, Value};
use sqlparser::ast::DataType;

use super::{Environment, NS_PER_DAY};
use crate::context::Manner;
use crate::error::{SqlError, invalid, refused, unsupported};

/// The type that a type's name means.
pub(crate) fn sql_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    let name = data_type.to_string().to_lowercase();
    // Arrays are texts as Postgres writes them.
    if name.ends_with(']') {
        return Ok(SqlType::Text);
    }
    let base = name.split(['(', '[']).next().unwrap_or_default().trim();
    let base = base.strip_prefix("pg_catalog.").unwrap_or(base);
    Ok(match base {
        "boolean" | "bool" => SqlType::Bool,
        "bigint" | "int" | "integer" | "smallint" | "tinyint" | "int2" | "int4" | "int8" | "long" | "short"
        | "byte" | "oid" | "regclass" | "regtype" | "regproc" | "int64" | "ubigint" | "uint64" | "hugeint" => {
            SqlType::Int
        }
        "double precision" | "double" | "float" | "float4" | "float8" | "real" | "numeric" | "decimal" | "dec" => {
            SqlType::Float
        }
        "text"
        | "varchar"
        | "character varying"
        | "char"
        | "character"
        | "string"
        | "symbol"
        | "name"
        | "bpchar"
        | "uuid"
        | "json"
        | "jsonb"
        | "nvarchar"
        | "\"char\""
        | "information_schema.sql_identifier" => SqlType::Text,
        "interval" => SqlType::Interval,
        "date" => SqlType::Date,
        _ if base.starts_with("timestamptz") || name.contains("with time zone") => SqlType::Timestamp,
        _ if base.starts_with("timestamp") || base == "datetime" => SqlType::LocalTimestamp,
        _ => return unsupported(format!("the type {name}")),
    })
}

/// The type of the elements of an array's type, such as `bigint[]`.
pub(crate) fn array_element(name: &str) -> Result<SqlType, SqlError> {
    let element = name.trim_end_matches(['[', ']']).trim();
    sql_type(&DataType::Custom(vec![sqlparser::ast::Ident::new(element)].into(), Vec::new()))
}

fn out_of_range() -> SqlError {
    SqlError::Invalid("timestamp out of range".to_owned())
}

/// The text of a value: an instant has the offset of the session's zone, as in Postgres.
pub(crate) fn text_of(value: &Value, environment: &Environment) -> String {
    match value {
        Value::Timestamp(ns) if environment.manner == Manner::Postgres => time::format_in(*ns, &environment.time_zone),
        other => other.to_string(),
    }
}

/// The time that a text says, in the session's zone unless it names one.
fn time_of(text: &str, to: SqlType, environment: &Environment) -> Option<Value> {
    let zone = &environment.time_zone;
    let midnight = |days: i64| {
        let local_ns = time::to_local(environment.now_ns, zone)?;
        local_ns.checked_sub(local_ns.rem_euclid(NS_PER_DAY))?.checked_add(days * NS_PER_DAY)
    };
    let (is_instant, text) = (to == SqlType::Timestamp, text.trim());
    let local_ns = match text.to_ascii_lowercase().as_str() {
        "now" if is_instant => return Some(Value::Timestamp(environment.now_ns)),
        "epoch" if is_instant => return Some(Value::Timestamp(0)),
        "now" => time::to_local(environment.now_ns, zone)?,
        "epoch" => 0,
        "today" => midnight(0)?,
        "tomorrow" => midnight(1)?,
        "yesterday" => midnight(-1)?,
        _ if is_instant => return time::parse_instant(text, zone).map(Value::Timestamp),
        _ => time::parse_local(text)?,
    };
    let local = Value::LocalTimestamp(local_ns);
    if is_instant { time::from_local(local_ns, zone).map(Value::Timestamp) } else { Some(local) }
}

/// A time of another type, or a number of microseconds, as QuestDB has it, as a time; `None` if it is neither.
fn time_of_value(value: &Value, to: SqlType, zone: &TimeZone) -> Option<Result<Value, SqlError>> {
    let is_instant = to == SqlType::Timestamp;
    let ns = match value {
        Value::Int(us) => us.checked_mul(1000),
        Value::LocalTimestamp(ns) | Value::Date(ns) if is_instant => time::from_local(*ns, zone),
        Value::Date(ns) => Some(*ns),
        Value::Timestamp(ns) => time::to_local(*ns, zone),
        _ => return None,
    };
    let time = if is_instant { Value::Timestamp } else { Value::LocalTimestamp };
    Some(ns.map(time).ok_or_else(out_of_range))
}

/// A value as another type.
pub(crate) fn cast(value: Value, to: SqlType, environment: &Environment) -> Result<Value, SqlError> {
    let failed = |value: &Value| {
        let code = match to {
            SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date | SqlType::Interval => "22007",
            _ => "22P02",
        };
        refused(code, format!("invalid input syntax for type {}: \"{value}\"", to.name()))
    };
    if to == SqlType::Date {
        return match cast(value, SqlType::LocalTimestamp, environment)? {
            Value::LocalTimestamp(ns) => match ns.checked_sub(ns.rem_euclid(NS_PER_DAY)) {
                Some(ns) => Ok(Value::Date(ns)),
                None => invalid("date out of range"),
            },
            other => Ok(other),
        };
    }
    let zone = &environment.time_zone;
    Ok(match (to, value) {
        (_, Value::Null) => Value::Null,
        (SqlType::Text, value) => Value::text(match value {
            Value::Bool(value) => value.to_string(),
            other => text_of(&other, environment),
        }),
        (to, value) if value.sql_type() == to => value,
        (SqlType::Bool, Value::Text(text)) => match parse_bool(&text) {
            Some(value) => Value::Bool(value),
            None => return failed(&Value::Text(text)),
        },
        (SqlType::Bool, Value::Int(value)) => Value::Bool(value != 0),
        (SqlType::Int, Value::Bool(value)) => Value::Int(i64::from(value)),
        (SqlType::Int, Value::Float(value)) => {
            let rounded = value.round_ties_even();
            if !(-9.223_372_036_854_775e18..9.223_372_036_854_775e18).contains(&rounded) {
                return invalid("bigint out of range");
            }
            Value::Int(rounded as i64)
        }
        (SqlType::Int, Value::Timestamp(ns) | Value::LocalTimestamp(ns) | Value::Date(ns)) => Value::Int(ns / 1000),
        (SqlType::Int, Value::Text(text)) => match text.trim().parse() {
            Ok(value) => Value::Int(value),
            Err(_) => return failed(&Value::Text(text)),
        },
        (SqlType::Float, Value::Int(value)) => Value::Float(value as f64),
        (SqlType::Float, Value::Text(text)) => match text.trim().parse() {
            Ok(value) => Value::Float(value),
            Err(_) => return failed(&Value::Text(text)),
        },
        (SqlType::Timestamp | SqlType::LocalTimestamp, Value::Text(text)) => match time_of(&text, to, environment) {
            Some(value) => value,
            None => return failed(&Value::Text(text)),
        },
        (SqlType::Timestamp | SqlType::LocalTimestamp, value) => match time_of_value(&value, to, zone) {
            Some(ns) => ns?,
            None => return invalid(format!("cannot cast type {} to {}", value.sql_type().name(), to.name())),
        },
        (SqlType::Interval, Value::Text(text)) => match time::parse_interval(&text) {
            Some(interval) => Value::Interval(interval),
            None => return failed(&Value::Text(text)),
        },
        (SqlType::Unknown, value) => value,
        (to, value) => return invalid(format!("cannot cast type {} to {}", value.sql_type().name(), to.name())),
    })
}

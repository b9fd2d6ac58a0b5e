//! Values from one type to another.

use query::time;
use query::value::parse_bool;
use query::{SqlType, Value};
use sqlparser::ast::DataType;

use super::{Environment, NS_PER_DAY};
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

/// A value as another type.
pub(crate) fn cast(value: Value, to: SqlType, environment: &Environment) -> Result<Value, SqlError> {
    let failed = |value: &Value| {
        let code = match to {
            SqlType::Timestamp | SqlType::Interval => "22007",
            _ => "22P02",
        };
        refused(code, format!("invalid input syntax for type {}: \"{value}\"", to.name()))
    };
    if to == SqlType::LocalTimestamp {
        return cast(value, SqlType::Timestamp, environment);
    }
    if to == SqlType::Date {
        return match cast(value, SqlType::Timestamp, environment)? {
            Value::Timestamp(ns) => match ns.checked_sub(ns.rem_euclid(NS_PER_DAY)) {
                Some(ns) => Ok(Value::Timestamp(ns)),
                None => invalid("date out of range"),
            },
            other => Ok(other),
        };
    }
    Ok(match (to, value) {
        (_, Value::Null) => Value::Null,
        (SqlType::Text, value) => Value::text(match value {
            Value::Bool(value) => value.to_string(),
            other => other.to_string(),
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
        (SqlType::Int, Value::Timestamp(ns)) => Value::Int(ns / 1000),
        (SqlType::Int, Value::Text(text)) => match text.trim().parse() {
            Ok(value) => Value::Int(value),
            Err(_) => return failed(&Value::Text(text)),
        },
        (SqlType::Float, Value::Int(value)) => Value::Float(value as f64),
        (SqlType::Float, Value::Text(text)) => match text.trim().parse() {
            Ok(value) => Value::Float(value),
            Err(_) => return failed(&Value::Text(text)),
        },
        (SqlType::Timestamp, Value::Text(text)) => match text.trim() {
            "now" => Value::Timestamp(environment.now_ns),
            text => match time::parse(text) {
                Some(ns) => Value::Timestamp(ns),
                None => return failed(&Value::text(text)),
            },
        },
        // Microseconds, as QuestDB has it.
        (SqlType::Timestamp, Value::Int(us)) => match us.checked_mul(1000) {
            Some(ns) => Value::Timestamp(ns),
            None => return invalid("timestamp out of range"),
        },
        (SqlType::Interval, Value::Text(text)) => match time::parse_interval(&text) {
            Some(interval) => Value::Interval(interval),
            None => return failed(&Value::Text(text)),
        },
        (SqlType::Unknown, value) => value,
        (to, value) => return invalid(format!("cannot cast type {} to {}", value.sql_type().name(), to.name())),
    })
}

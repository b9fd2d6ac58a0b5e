//! Arithmetic and comparisons.

use std::cmp::Ordering;

use query::time;
use query::{Interval, SqlType, Value};

use super::text_limit::bounded;
use super::times::zone_of;
use super::{Environment, Function, NS_PER_DAY, Returns, text_of};
use crate::error::{SqlError, invalid};

const fn arithmetic(name: &'static str, call: fn(&[Value], &Environment) -> Result<Value, SqlError>) -> Function {
    Function { name, takes: (2, 2), is_strict: true, returns: Returns::Arithmetic, call }
}

const fn comparison(name: &'static str, call: fn(&[Value], &Environment) -> Result<Value, SqlError>) -> Function {
    Function { name, takes: (2, 2), is_strict: true, returns: Returns::Fixed(SqlType::Bool), call }
}

pub(super) static ADD: Function = arithmetic("+", |arguments, environment| compute(arguments, environment, '+'));
pub(super) static SUBTRACT: Function = arithmetic("-", |arguments, environment| compute(arguments, environment, '-'));
pub(super) static MULTIPLY: Function = arithmetic("*", |arguments, environment| compute(arguments, environment, '*'));
pub(super) static DIVIDE: Function = arithmetic("/", |arguments, environment| compute(arguments, environment, '/'));
pub(super) static REMAINDER: Function = arithmetic("%", |arguments, environment| compute(arguments, environment, '%'));
pub(super) static LESS: Function = comparison("<", |arguments, _| compare(arguments, |order| order == Ordering::Less));
pub(super) static LESS_OR_EQUAL: Function =
    comparison("<=", |arguments, _| compare(arguments, |order| order != Ordering::Greater));
pub(super) static GREATER: Function =
    comparison(">", |arguments, _| compare(arguments, |order| order == Ordering::Greater));
pub(super) static GREATER_OR_EQUAL: Function =
    comparison(">=", |arguments, _| compare(arguments, |order| order != Ordering::Less));
pub(super) static EQUAL: Function =
    comparison("=", |arguments, _| compare(arguments, |order| order == Ordering::Equal));
pub(super) static NOT_EQUAL: Function =
    comparison("<>", |arguments, _| compare(arguments, |order| order != Ordering::Equal));
pub(super) static SAME: Function = Function {
    name: "IS NOT DISTINCT FROM",
    takes: (2, 2),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Bool),
    call: |arguments, _| Ok(Value::Bool(arguments.first() == arguments.get(1))),
};
pub(super) static IS_NULL: Function = Function {
    name: "IS NULL",
    takes: (1, 1),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Bool),
    call: |arguments, _| Ok(Value::Bool(arguments.first().is_none_or(Value::is_null))),
};
pub(super) static IS_TRUE: Function = Function {
    name: "IS TRUE",
    takes: (1, 1),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Bool),
    call: |arguments, _| Ok(Value::Bool(matches!(arguments.first(), Some(Value::Bool(true))))),
};
pub(super) static IS_FALSE: Function = Function {
    name: "IS FALSE",
    takes: (1, 1),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Bool),
    call: |arguments, _| Ok(Value::Bool(matches!(arguments.first(), Some(Value::Bool(false))))),
};
pub(super) static NEGATE: Function = Function {
    name: "-",
    takes: (1, 1),
    is_strict: true,
    returns: Returns::Argument(0),
    call: |arguments, _| match arguments {
        [Value::Int(value)] => value.checked_neg().map(Value::Int).map_or_else(|| invalid("bigint out of range"), Ok),
        [Value::Interval(interval)] => interval.checked_neg().map(Value::Interval).ok_or_else(interval_out_of_range),
        [value] => match value.number() {
            Some(number) => Ok(Value::Float(-number)),
            None => invalid(format!("a {} has no opposite", value.sql_type().name())),
        },
        _ => Ok(Value::Null),
    },
};
pub(super) static CONCATENATE: Function = Function {
    name: "||",
    takes: (2, 2),
    is_strict: true,
    returns: Returns::Fixed(SqlType::Text),
    // Bounded, for queries within queries can double a text again and again.
    call: |arguments, environment| bounded(arguments.iter().map(|value| text_of(value, environment)).collect()),
};

/// The type of two values' sum, difference, product or quotient.
pub(super) fn arithmetic_type(operator: &str, a: SqlType, b: SqlType) -> Option<SqlType> {
    use SqlType::{Date, Float, Int, Int4, Interval, LocalTimestamp, Timestamp, Unknown};
    match (operator, a, b) {
        // Whole numbers beside timestamps are nanoseconds.
        ("+" | "-", Timestamp, Interval | Unknown | Int | Int4) | ("+", Interval | Unknown | Int | Int4, Timestamp) => {
            Some(Timestamp)
        }
        ("+" | "-", LocalTimestamp, Interval | Unknown | Int | Int4)
        | ("+", Interval | Unknown | Int | Int4, LocalTimestamp)
        | ("+" | "-", Date, Interval | Unknown)
        | ("+", Interval | Unknown, Date) => Some(LocalTimestamp),
        ("+" | "-", Date, Int | Int4) | ("+", Int | Int4, Date) => Some(Date),
        ("-", Date, Date) => Some(Int4),
        ("-", Timestamp | LocalTimestamp | Date, Timestamp | LocalTimestamp | Date)
        | ("+" | "-", Interval, Interval)
        | ("*" | "/", Interval, Int | Int4 | Float | Unknown)
        | ("*", Int | Int4 | Float, Interval) => Some(Interval),
        ("/", Interval, Interval) => Some(Float),
        _ => a.common_number(b),
    }
}

fn compare(arguments: &[Value], is_met: impl Fn(Ordering) -> bool) -> Result<Value, SqlError> {
    let [a, b] = arguments else { return Ok(Value::Null) };
    match a.compare(b) {
        Some(order) => Ok(Value::Bool(is_met(order))),
        None => invalid(format!("cannot compare {} \"{a}\" with {} \"{b}\"", a.sql_type().name(), b.sql_type().name())),
    }
}

fn compute(arguments: &[Value], environment: &Environment, operator: char) -> Result<Value, SqlError> {
    let [a, b] = arguments else { return Ok(Value::Null) };
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => integers(*a, *b, operator),
        (a, b) if a.time_ns().is_some() || b.time_ns().is_some() => times(a, b, environment, operator),
        (Value::Interval(a), Value::Interval(b)) if matches!(operator, '+' | '-') => {
            let b = if operator == '-' { b.checked_neg() } else { Some(*b) };
            b.and_then(|b| a.checked_add(b)).map(Value::Interval).ok_or_else(interval_out_of_range)
        }
        (Value::Interval(a), Value::Interval(b)) if operator == '/' => {
            Ok(Value::Float(a.approximate_ns() as f64 / b.approximate_ns() as f64))
        }
        (Value::Interval(interval), by) | (by, Value::Interval(interval)) if matches!(operator, '*' | '/') => {
            let Some(by) = by.number().map(|by| if operator == '/' { 1.0 / by } else { by }) else {
                return invalid(format!("cannot compute {a} {operator} {b}"));
            };
            interval.times(by).map(Value::Interval).ok_or_else(interval_out_of_range)
        }
        _ => match (a.number(), b.number()) {
            (Some(x), Some(y)) => Ok(Value::Float(match operator {
                '+' => x + y,
                '-' => x - y,
                '*' => x * y,
                '/' => x / y,
                _ => x % y,
            })),
            _ => {
                invalid(format!("operator does not exist: {} {operator} {}", a.sql_type().name(), b.sql_type().name()))
            }
        },
    }
}

fn interval_out_of_range() -> SqlError {
    SqlError::Invalid("interval out of range".to_owned())
}

/// The sum or difference of times, and of a time and a length of time: days are those of the session's calendar for instants.
fn times(a: &Value, b: &Value, environment: &Environment, operator: char) -> Result<Value, SqlError> {
    let out_of_range = || SqlError::Invalid(format!("timestamp out of range: {a} {operator} {b}"));
    if let (Some(first), Some(second), '-') = (a.time_ns(), b.time_ns(), operator) {
        let ns = first.checked_sub(second).ok_or_else(interval_out_of_range)?;
        let days = ns / NS_PER_DAY;
        return Ok(match (a, b) {
            (Value::Date(_), Value::Date(_)) => Value::Int(days),
            _ => Value::Interval(Interval { months: 0, days: days as i32, ns: ns % NS_PER_DAY }),
        });
    }
    let (at, by) = match (a.time_ns(), b.time_ns(), operator) {
        (Some(_), None, '+' | '-') => (a, b),
        (None, Some(_), '+') => (b, a),
        _ => {
            let (a, b) = (a.sql_type().name(), b.sql_type().name());
            return invalid(format!("operator does not exist: {a} {operator} {b}"));
        }
    };
    let by = match (at, by) {
        (_, Value::Interval(interval)) => Some(*interval),
        (_, Value::Text(text)) => time::parse_interval(text),
        (Value::Date(_), Value::Int(days)) => {
            i32::try_from(*days).ok().map(|days| Interval { days, ..Interval::default() })
        }
        (_, Value::Int(ns)) => Some(Interval::of_ns(*ns)),
        _ => None,
    };
    let signed = if operator == '-' { by.and_then(Interval::checked_neg) } else { by };
    let sum = signed.zip(at.time_ns()).and_then(|(by, ns)| time::add(ns, by, zone_of(at, environment)));
    let ns = sum.ok_or_else(out_of_range)?;
    Ok(match at {
        Value::Timestamp(_) => Value::Timestamp(ns),
        Value::Date(_) if matches!((a, b), (_, Value::Int(_)) | (Value::Int(_), _)) => Value::Date(ns),
        _ => Value::LocalTimestamp(ns),
    })
}

fn integers(a: i64, b: i64, operator: char) -> Result<Value, SqlError> {
    if b == 0 && matches!(operator, '/' | '%') {
        return invalid("division by zero");
    }
    let value = match operator {
        '+' => a.checked_add(b),
        '-' => a.checked_sub(b),
        '*' => a.checked_mul(b),
        '/' => a.checked_div(b),
        _ => a.checked_rem(b),
    };
    value.map(Value::Int).map_or_else(|| invalid("bigint out of range"), Ok)
}

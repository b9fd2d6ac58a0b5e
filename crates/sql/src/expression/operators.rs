//! Arithmetic and comparisons.

use std::cmp::Ordering;

use query::time;
use query::{Interval, SqlType, Value};

use super::text_limit::bounded;
use super::{Environment, Function, NS_PER_DAY, Returns};
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
        [Value::Interval(Interval { months, ns })] => {
            Ok(Value::Interval(Interval { months: months.wrapping_neg(), ns: ns.wrapping_neg() }))
        }
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
    call: |arguments, _| bounded(arguments.iter().map(ToString::to_string).collect()),
};

/// The type of two values' sum, difference, product or quotient.
pub(super) fn arithmetic_type(operator: &str, a: SqlType, b: SqlType) -> Option<SqlType> {
    use SqlType::{Date, Float, Int, Interval, LocalTimestamp, Timestamp, Unknown};
    match (operator, a, b) {
        // Whole numbers beside timestamps are nanoseconds.
        ("+" | "-", Timestamp, Interval | Unknown | Int) | ("+", Interval | Unknown | Int, Timestamp) => {
            Some(Timestamp)
        }
        ("+" | "-", LocalTimestamp, Interval | Unknown | Int)
        | ("+", Interval | Unknown | Int, LocalTimestamp)
        | ("+" | "-", Date, Interval | Unknown)
        | ("+", Interval | Unknown, Date) => Some(LocalTimestamp),
        ("-", Timestamp | LocalTimestamp | Date, Timestamp | LocalTimestamp | Date)
        | ("+" | "-", Interval, Interval)
        | ("*" | "/", Interval, Int | Float | Unknown)
        | ("*", Int | Float, Interval) => Some(Interval),
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
        (Value::Timestamp(a), Value::Timestamp(b)) if operator == '-' => {
            let ns = a.checked_sub(*b);
            ns.map_or_else(|| invalid("interval out of range"), |ns| Ok(Value::Interval(Interval { months: 0, ns })))
        }
        (Value::Timestamp(ns), by) | (by, Value::Timestamp(ns)) if matches!(operator, '+' | '-') => {
            let by = match by {
                Value::Interval(interval) => Some(*interval),
                Value::Text(text) => time::parse_interval(text),
                Value::Int(ns) => Some(Interval { months: 0, ns: *ns }),
                _ => None,
            };
            let by =
                by.map(
                    |by| if operator == '-' { Interval { months: -by.months, ns: by.ns.saturating_neg() } } else { by },
                );
            match by.and_then(|by| time::add(*ns, by, &environment.time_zone)) {
                Some(ns) => Ok(Value::Timestamp(ns)),
                None => invalid(format!("timestamp out of range: {a} {operator} {b}")),
            }
        }
        (Value::Interval(a), Value::Interval(b)) if matches!(operator, '+' | '-') => {
            let sign = if operator == '-' { -1 } else { 1 };
            let (months, ns) = (b.months.checked_mul(sign), b.ns.checked_mul(i64::from(sign)));
            let sum =
                months.and_then(|months| a.months.checked_add(months)).zip(ns.and_then(|ns| a.ns.checked_add(ns)));
            sum.map_or_else(
                || invalid("interval out of range"),
                |(months, ns)| Ok(Value::Interval(Interval { months, ns })),
            )
        }
        (Value::Interval(a), Value::Interval(b)) if operator == '/' => {
            Ok(Value::Float(a.approximate_ns() as f64 / b.approximate_ns() as f64))
        }
        (Value::Interval(interval), by) | (by, Value::Interval(interval)) if matches!(operator, '*' | '/') => {
            let Some(by) = by.number().map(|by| if operator == '/' { 1.0 / by } else { by }) else {
                return invalid(format!("cannot compute {a} {operator} {b}"));
            };
            // A part of a month is one of thirty days.
            let months = f64::from(interval.months) * by;
            let ns = interval.ns as f64 * by + (months.fract() * 30.0 * NS_PER_DAY as f64).round();
            let months = months.trunc();
            if !ns.is_finite() || ns.abs() > 9.2e18 || months.abs() > 2e9 {
                return invalid("interval out of range");
            }
            Ok(Value::Interval(Interval { months: months as i32, ns: ns as i64 }))
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

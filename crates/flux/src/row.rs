//! Functions of one row: what `filter` and `map` take.

use std::cmp::Ordering;
use std::sync::Arc;

use jiff::Timestamp;
use query::Value;
use regex::Regex;

use crate::syntax::ast::{Binary, Unary};
use crate::syntax::lex::read_time;
use crate::syntax::{FluxError, Position};

/// Bytes of a string that is made.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// An expression over the columns of a row, its variables replaced by their values.
#[derive(Debug, Clone)]
pub(crate) enum RowExpr {
    Constant(Value),
    Pattern(Regex),
    Column(Arc<str>),
    Unary(Position, Unary, Box<Self>),
    Binary(Position, Binary, Box<[Self; 2]>),
    Conditional(Box<[Self; 3]>),
    Call(Position, RowFunction, Box<Self>),
    /// `contains(value: r.host, set: ["a", "b"])`
    In(Box<Self>, Arc<[Value]>),
}

/// Functions of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowFunction {
    Float,
    Int,
    UInt,
    Text,
    Bool,
    Time,
    Number(query::plan::Function),
}

impl RowFunction {
    /// A function by its name, as a script calls it, and the name of its argument.
    pub(crate) fn find(name: &str) -> Option<(Self, &'static str)> {
        Some(match name {
            "float" => (Self::Float, "v"),
            "int" => (Self::Int, "v"),
            "uint" => (Self::UInt, "v"),
            "string" => (Self::Text, "v"),
            "bool" => (Self::Bool, "v"),
            "time" => (Self::Time, "v"),
            "math.log" => (Self::Number(query::plan::Function::Ln), "x"),
            _ => {
                let name = name.strip_prefix("math.")?;
                let (_, function) =
                    query::plan::Function::NAMED.iter().find(|(known, _)| *known == name && *known != "ln")?;
                (Self::Number(*function), "x")
            }
        })
    }

    /// Its value; `None` if it has none of this argument.
    pub(crate) fn apply(self, value: &Value) -> Option<Value> {
        let number = || match value {
            Value::Bool(value) => Some(f64::from(u8::from(*value))),
            other => other.number(),
        };
        Some(match (self, value) {
            (_, Value::Null) => Value::Null,
            (Self::Number(function), value) => Value::Float(function.apply(number_of(value)?)),
            (Self::Float, _) => Value::Float(number()?),
            (Self::Int, Value::Int(value)) => Value::Int(*value),
            (Self::Int, Value::Timestamp(ns)) => Value::Int(*ns),
            (Self::Int, Value::Unsigned(value)) => Value::Int(*value as i64),
            (Self::Int, Value::Text(text)) => Value::Int(text.trim().parse().ok()?),
            (Self::Int, _) => Value::Int(number()?.trunc() as i64),
            (Self::UInt, Value::Unsigned(value)) => Value::Unsigned(*value),
            (Self::UInt, Value::Timestamp(ns)) => Value::Unsigned(*ns as u64),
            (Self::UInt, Value::Int(value)) => Value::Unsigned(*value as u64),
            (Self::UInt, Value::Text(text)) => Value::Unsigned(text.trim().parse().ok()?),
            (Self::UInt, _) => Value::Unsigned(number()?.trunc() as u64),
            (Self::Text, value) => Value::text(text_of(value)),
            (Self::Bool, Value::Bool(value)) => Value::Bool(*value),
            (Self::Bool, Value::Text(text)) => Value::Bool(text.parse().ok()?),
            (Self::Bool, _) => match number()? {
                0.0 => Value::Bool(false),
                1.0 => Value::Bool(true),
                _ => return None,
            },
            (Self::Time, Value::Timestamp(ns) | Value::Int(ns)) => Value::Timestamp(*ns),
            (Self::Time, Value::Unsigned(ns)) => Value::Timestamp(i64::try_from(*ns).ok()?),
            (Self::Time, Value::Text(text)) => Value::Timestamp(read_time(text)?),
            (Self::Time, _) => return None,
        })
    }
}

/// A number that is one, not a text that says one.
pub(crate) fn number_of(value: &Value) -> Option<f64> {
    if matches!(value, Value::Text(_)) { None } else { value.number() }
}

/// A value as answers show it.
pub(crate) fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Timestamp(ns) => Timestamp::from_nanosecond(i128::from(*ns)).unwrap_or_default().to_string(),
        Value::Float(value) => float_text(*value),
        Value::Bool(value) => value.to_string(),
        other => other.to_string(),
    }
}

/// A float as Flux writes it.
fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-6..1e21).contains(&magnitude) {
        return format!("{value:e}");
    }
    format!("{value}")
}

/// The name of a type, for errors and annotations.
pub(crate) const fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) => "long",
        Value::Unsigned(_) => "unsignedLong",
        Value::Float(_) => "double",
        Value::Timestamp(_) | Value::LocalTimestamp(_) | Value::Date(_) => "dateTime:RFC3339",
        Value::Text(_) | Value::Interval(_) => "string",
    }
}

impl RowExpr {
    /// Its value in a row, given by the values of its columns; a column that is not there is null.
    pub(crate) fn value(&self, row: &dyn Fn(&str) -> Value) -> Result<Value, FluxError> {
        Ok(match self {
            Self::Constant(value) => value.clone(),
            Self::Pattern(_) => Value::Null,
            Self::Column(name) => row(name),
            Self::Unary(at, operator, operand) => unary(*at, *operator, &operand.value(row)?)?,
            Self::Binary(_, Binary::And, operands) => {
                let [a, b] = &**operands;
                match truth(&a.value(row)?) {
                    Some(false) => Value::Bool(false),
                    a => and(a, truth(&b.value(row)?)),
                }
            }
            Self::Binary(_, Binary::Or, operands) => {
                let [a, b] = &**operands;
                match truth(&a.value(row)?) {
                    Some(true) => Value::Bool(true),
                    a => not(&and(a.map(|a| !a), truth(&b.value(row)?).map(|b| !b))),
                }
            }
            Self::Binary(at, operator, operands) => {
                let [a, b] = &**operands;
                match (operator, b) {
                    (Binary::Matches | Binary::MatchesNot, Self::Pattern(pattern)) => match a.value(row)? {
                        Value::Text(text) => Value::Bool(pattern.is_match(&text) == (*operator == Binary::Matches)),
                        _ => Value::Null,
                    },
                    _ => binary(*at, *operator, &a.value(row)?, &b.value(row)?)?,
                }
            }
            Self::Conditional(parts) => {
                let [test, then, otherwise] = &**parts;
                let is_met = truth(&test.value(row)?) == Some(true);
                if is_met { then.value(row)? } else { otherwise.value(row)? }
            }
            Self::Call(at, function, argument) => {
                let value = argument.value(row)?;
                function.apply(&value).ok_or_else(|| {
                    FluxError::new(*at, format!("cannot convert {} {:?}", type_name(&value), text_of(&value)))
                })?
            }
            Self::In(operand, set) => match operand.value(row)? {
                Value::Null => Value::Null,
                value => Value::Bool(set.iter().any(|item| compare(&value, item) == Some(Ordering::Equal))),
            },
        })
    }

    /// Returns whether a condition holds for a row.
    pub(crate) fn holds(&self, row: &dyn Fn(&str) -> Value) -> Result<bool, FluxError> {
        Ok(truth(&self.value(row)?) == Some(true))
    }

    /// It with columns replaced by values that are known, and what follows from these computed.
    pub(crate) fn with_known(&self, known: &dyn Fn(&str) -> Option<Value>) -> Self {
        let given = |operand: &Self| Box::new(operand.with_known(known));
        let replaced = match self {
            Self::Column(name) => return known(name).map_or_else(|| self.clone(), Self::Constant),
            Self::Constant(_) | Self::Pattern(_) => return self.clone(),
            Self::Unary(at, operator, operand) => Self::Unary(*at, *operator, given(operand)),
            Self::Binary(at, operator, operands) => {
                let [a, b] = &**operands;
                let both = [a.with_known(known), b.with_known(known)];
                if let Some(decided) = decided(*operator, &both) {
                    return decided;
                }
                Self::Binary(*at, *operator, Box::new(both))
            }
            Self::Conditional(parts) => {
                let [test, then, otherwise] = &**parts;
                Self::Conditional(Box::new([
                    test.with_known(known),
                    then.with_known(known),
                    otherwise.with_known(known),
                ]))
            }
            Self::Call(at, function, argument) => Self::Call(*at, *function, given(argument)),
            Self::In(operand, set) => Self::In(given(operand), set.clone()),
        };
        if replaced.is_constant() {
            // What fails does so when rows are read.
            return replaced.value(&|_| Value::Null).map_or(replaced, Self::Constant);
        }
        replaced
    }

    fn is_constant(&self) -> bool {
        match self {
            Self::Constant(_) | Self::Pattern(_) => true,
            Self::Column(_) => false,
            Self::Unary(_, _, operand) | Self::Call(_, _, operand) | Self::In(operand, _) => operand.is_constant(),
            Self::Binary(_, _, operands) => operands.iter().all(Self::is_constant),
            Self::Conditional(parts) => parts.iter().all(Self::is_constant),
        }
    }

    /// The conditions that all have to hold.
    pub(crate) fn conjuncts(self) -> Vec<Self> {
        match self {
            Self::Binary(_, Binary::And, operands) => operands.into_iter().flat_map(Self::conjuncts).collect(),
            other => vec![other],
        }
    }
}

/// The other operand of `and` or `or` where one decides nothing, or the value where one decides all.
fn decided(operator: Binary, operands: &[RowExpr; 2]) -> Option<RowExpr> {
    let neutral = match operator {
        Binary::And => true,
        Binary::Or => false,
        _ => return None,
    };
    let [a, b] = operands;
    for (one, other) in [(a, b), (b, a)] {
        if let RowExpr::Constant(value) = one {
            match truth(value) {
                Some(value) if value == neutral => return Some(other.clone()),
                Some(value) => return Some(RowExpr::Constant(Value::Bool(value))),
                None => {}
            }
        }
    }
    None
}

const fn truth(value: &Value) -> Option<bool> {
    if let Value::Bool(value) = value { Some(*value) } else { None }
}

/// As SQL has it: false beside anything is false.
const fn and(a: Option<bool>, b: Option<bool>) -> Value {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Value::Bool(false),
        (Some(true), Some(true)) => Value::Bool(true),
        _ => Value::Null,
    }
}

fn not(value: &Value) -> Value {
    truth(value).map_or(Value::Null, |value| Value::Bool(!value))
}

fn unary(at: Position, operator: Unary, value: &Value) -> Result<Value, FluxError> {
    Ok(match (operator, value) {
        (Unary::Exists, value) => Value::Bool(!value.is_null()),
        (_, Value::Null) => Value::Null,
        (Unary::Not, Value::Bool(value)) => Value::Bool(!value),
        (Unary::Plus, value) => value.clone(),
        (Unary::Negate, Value::Int(value)) => Value::Int(value.wrapping_neg()),
        (Unary::Negate, Value::Float(value)) => Value::Float(-value),
        (_, value) => return Err(FluxError::new(at, format!("a {} has no opposite", type_name(value)))),
    })
}

/// The order of two values; `None` where there is none: of a null, and of values of different kinds.
pub(crate) fn compare(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Text(_), Value::Text(_))
        | (Value::Bool(_), Value::Bool(_))
        | (Value::Timestamp(_), Value::Timestamp(_)) => a.compare(b),
        (Value::Float(a), Value::Float(b)) => a.partial_cmp(b),
        _ if number_of(a).is_some() && number_of(b).is_some() => a.compare(b),
        _ => None,
    }
}

fn binary(at: Position, operator: Binary, a: &Value, b: &Value) -> Result<Value, FluxError> {
    if a.is_null() || b.is_null() {
        return Ok(Value::Null);
    }
    let is_met = |test: fn(Ordering) -> bool| compare(a, b).map_or(Value::Null, |order| Value::Bool(test(order)));
    Ok(match operator {
        Binary::Equal => is_met(Ordering::is_eq),
        Binary::NotEqual => is_met(Ordering::is_ne),
        Binary::Less => is_met(Ordering::is_lt),
        Binary::LessOrEqual => is_met(Ordering::is_le),
        Binary::Greater => is_met(Ordering::is_gt),
        Binary::GreaterOrEqual => is_met(Ordering::is_ge),
        _ => match (operator, a, b) {
            (Binary::Add, Value::Text(a), Value::Text(b)) if a.len() + b.len() > TEXT_BYTES_MAX => {
                return Err(FluxError::new(at, format!("a string has at most {TEXT_BYTES_MAX} bytes")));
            }
            (Binary::Add, Value::Text(a), Value::Text(b)) => Value::text(format!("{a}{b}")),
            (_, Value::Int(a), Value::Int(b)) if operator != Binary::Power => integers(at, operator, *a, *b)?,
            _ => match (number_of(a), number_of(b)) {
                (Some(a), Some(b)) => Value::Float(floats(operator, a, b)),
                _ => {
                    let (a, b, name) = (type_name(a), type_name(b), operator.name());
                    return Err(FluxError::new(at, format!("{a} {name} {b} is not defined")));
                }
            },
        },
    })
}

fn integers(at: Position, operator: Binary, a: i64, b: i64) -> Result<Value, FluxError> {
    if b == 0 && matches!(operator, Binary::Divide | Binary::Remainder) {
        return Err(FluxError::new(at, "cannot divide an integer by zero"));
    }
    Ok(Value::Int(match operator {
        Binary::Add => a.wrapping_add(b),
        Binary::Subtract => a.wrapping_sub(b),
        Binary::Multiply => a.wrapping_mul(b),
        Binary::Divide => a.wrapping_div(b),
        _ => a.wrapping_rem(b),
    }))
}

fn floats(operator: Binary, a: f64, b: f64) -> f64 {
    match operator {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::Remainder => a % b,
        _ => a.powf(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_written_as_in_go() {
        let cases =
            [(1.0, "1"), (0.1, "0.1"), (1e21, "1e21"), (1e-7, "1e-7"), (f64::INFINITY, "+Inf"), (f64::NAN, "NaN")];
        for (value, expected) in cases {
            assert_eq!(float_text(value), expected);
        }
    }

    #[test]
    fn nulls_spread_but_for_and_and_or() {
        let at = Position::default();
        let constant = |value| RowExpr::Constant(value);
        let apply = |operator, a: Value, b: Value| {
            RowExpr::Binary(at, operator, Box::new([constant(a), constant(b)])).value(&|_| Value::Null).unwrap()
        };
        assert_eq!(apply(Binary::And, Value::Null, Value::Bool(false)), Value::Bool(false));
        assert!(apply(Binary::And, Value::Null, Value::Bool(true)).is_null());
        assert_eq!(apply(Binary::Or, Value::Null, Value::Bool(true)), Value::Bool(true));
        assert!(apply(Binary::Or, Value::Null, Value::Bool(false)).is_null());
        assert!(apply(Binary::Add, Value::Null, Value::Int(1)).is_null());
        assert_eq!(apply(Binary::Divide, Value::Int(7), Value::Int(2)), Value::Int(3));
        assert_eq!(apply(Binary::Divide, Value::Float(7.0), Value::Int(2)), Value::Float(3.5));
        // A number is not compared with a text.
        assert!(apply(Binary::Less, Value::Int(7), Value::text("8")).is_null());
    }
}

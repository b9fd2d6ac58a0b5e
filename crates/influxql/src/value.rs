//! Values of rows, and what InfluxQL computes with them.

use std::cmp::Ordering;

use query::Value;

use crate::syntax::ast::Operator;

/// Types of columns; those that come first win where measurements disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataType {
    Float,
    Integer,
    Unsigned,
    Text,
    Boolean,
    Tag,
    Unknown,
}

impl DataType {
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Float | Self::Integer | Self::Unsigned)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Float => "float",
            Self::Integer => "integer",
            Self::Unsigned => "unsigned",
            Self::Text => "string",
            Self::Boolean => "boolean",
            Self::Tag => "tag",
            Self::Unknown => "unknown",
        }
    }

    /// Returns whether a cell has a value of the type.
    pub(crate) fn admits(self, cell: &Value) -> bool {
        match self {
            Self::Float => cell.as_number().is_some(),
            Self::Integer => matches!(cell, Value::Int(_)),
            Self::Unsigned => matches!(cell, Value::Unsigned(_)),
            Self::Boolean => matches!(cell, Value::Bool(_)),
            Self::Text | Self::Tag | Self::Unknown => matches!(cell, Value::Text(_)),
        }
    }
}

/// InfluxQL's own rules of values.
pub(crate) trait InfluxValue {
    /// The value, or null for NaN, which answers do not have.
    fn without_nan(self) -> Self;
    /// As a float, if it is a number.
    fn as_number(&self) -> Option<f64>;
    fn is_true(&self) -> bool;
    /// Order among values of one type; numbers of several are floats.
    fn compared(&self, other: &Self) -> Option<Ordering>;
    /// The value as another type, where that makes sense.
    fn cast(&self, to: DataType) -> Self;
}

impl InfluxValue for Value {
    fn without_nan(self) -> Self {
        match self {
            Self::Float(value) if value.is_nan() => Self::Null,
            value => value,
        }
    }

    fn as_number(&self) -> Option<f64> {
        if matches!(self, Self::Text(_)) { None } else { self.number() }
    }

    fn is_true(&self) -> bool {
        matches!(self, Self::Bool(true))
    }

    fn compared(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(_) | Self::Unsigned(_), Self::Int(_) | Self::Unsigned(_))
            | (Self::Bool(_), Self::Bool(_))
            | (Self::Text(_), Self::Text(_)) => self.compare(other),
            // Unlike in SQL, NaN has no order, and texts are no numbers.
            _ => self.as_number()?.partial_cmp(&other.as_number()?),
        }
    }

    fn cast(&self, to: DataType) -> Self {
        match (to, self) {
            (DataType::Float, value) => value.as_number().map_or(Self::Null, Self::Float),
            (DataType::Integer, Self::Float(value)) => Self::Int(*value as i64),
            (DataType::Integer, Self::Unsigned(value)) => Self::Int(*value as i64),
            (DataType::Unsigned, Self::Float(value)) => Self::Unsigned(*value as u64),
            (DataType::Unsigned, Self::Int(value)) => Self::Unsigned(*value as u64),
            (DataType::Integer, Self::Int(_))
            | (DataType::Unsigned, Self::Unsigned(_))
            | (DataType::Text | DataType::Tag, Self::Text(_))
            | (DataType::Boolean, Self::Bool(_)) => self.clone(),
            _ => Self::Null,
        }
    }
}

/// Applies an operator to two values. In conditions whole numbers divide to whole numbers.
pub(crate) fn apply(operator: Operator, left: &Value, right: &Value, in_condition: bool) -> Value {
    if operator.compares() {
        return compare(operator, left, right);
    }
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => match operator {
            Operator::BitAnd => Value::Bool(a & b),
            Operator::BitOr => Value::Bool(a | b),
            Operator::BitXor => Value::Bool(a ^ b),
            _ => Value::Null,
        },
        (Value::Int(_), Value::Int(_)) if operator == Operator::Divide && !in_condition => {
            floats(operator, left, right)
        }
        (Value::Int(a), Value::Int(b)) => integers(operator, *a, *b),
        (Value::Unsigned(a), Value::Unsigned(b)) => unsigneds(operator, *a, *b),
        // A whole number that is not negative joins an unsigned one.
        (Value::Unsigned(a), Value::Int(b)) => u64::try_from(*b).map_or(Value::Null, |b| unsigneds(operator, *a, b)),
        (Value::Int(a), Value::Unsigned(b)) => u64::try_from(*a).map_or(Value::Null, |a| unsigneds(operator, a, *b)),
        _ => floats(operator, left, right),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Value {
    let Some(order) = left.compared(right) else {
        return Value::Bool(false);
    };
    Value::Bool(match operator {
        Operator::Equal => order.is_eq(),
        Operator::NotEqual => order.is_ne(),
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        Operator::GreaterOrEqual => order.is_ge(),
        _ => false,
    })
}

fn floats(operator: Operator, left: &Value, right: &Value) -> Value {
    let (Some(a), Some(b)) = (left.as_number(), right.as_number()) else {
        return Value::Null;
    };
    Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        // As InfluxDB has it.
        Operator::Divide if b == 0.0 => 0.0,
        Operator::Divide => a / b,
        Operator::Modulo => a % b,
        _ => return Value::Null,
    })
}

fn integers(operator: Operator, a: i64, b: i64) -> Value {
    Value::Int(match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Subtract => a.wrapping_sub(b),
        Operator::Multiply => a.wrapping_mul(b),
        Operator::Divide => a.checked_div(b).unwrap_or(0),
        Operator::Modulo => a.checked_rem(b).unwrap_or(0),
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        _ => return Value::Null,
    })
}

fn unsigneds(operator: Operator, a: u64, b: u64) -> Value {
    Value::Unsigned(match operator {
        Operator::Add => a.wrapping_add(b),
        Operator::Subtract => a.wrapping_sub(b),
        Operator::Multiply => a.wrapping_mul(b),
        Operator::Divide => a.checked_div(b).unwrap_or(0),
        Operator::Modulo => a.checked_rem(b).unwrap_or(0),
        Operator::BitAnd => a & b,
        Operator::BitOr => a | b,
        Operator::BitXor => a ^ b,
        _ => return Value::Null,
    })
}

/// Functions of a row's own values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Math {
    Abs,
    Acos,
    Asin,
    Atan,
    Atan2,
    Ceil,
    Cos,
    Exp,
    Floor,
    Ln,
    Log,
    Log2,
    Log10,
    Pow,
    Round,
    Sin,
    Sqrt,
    Tan,
}

impl Math {
    /// All, with their names and how many arguments they take.
    pub(crate) const ALL: [(&'static str, Self, usize); 18] = [
        ("abs", Self::Abs, 1),
        ("acos", Self::Acos, 1),
        ("asin", Self::Asin, 1),
        ("atan", Self::Atan, 1),
        ("atan2", Self::Atan2, 2),
        ("ceil", Self::Ceil, 1),
        ("cos", Self::Cos, 1),
        ("exp", Self::Exp, 1),
        ("floor", Self::Floor, 1),
        ("ln", Self::Ln, 1),
        ("log", Self::Log, 2),
        ("log2", Self::Log2, 1),
        ("log10", Self::Log10, 1),
        ("pow", Self::Pow, 2),
        ("round", Self::Round, 1),
        ("sin", Self::Sin, 1),
        ("sqrt", Self::Sqrt, 1),
        ("tan", Self::Tan, 1),
    ];

    /// A function by its name, and how many arguments it takes.
    pub(crate) fn named(name: &str) -> Option<(Self, usize)> {
        Self::ALL.iter().find(|(known, ..)| *known == name).map(|(_, function, arguments)| (*function, *arguments))
    }

    /// Returns whether it keeps the type of whole numbers.
    pub(crate) const fn keeps_type(self) -> bool {
        matches!(self, Self::Abs | Self::Ceil | Self::Floor | Self::Round)
    }

    pub(crate) fn apply(self, arguments: &[Value]) -> Value {
        let first = arguments.first().unwrap_or(&Value::Null);
        match (self, first) {
            (Self::Abs, Value::Int(value)) => return Value::Int(value.wrapping_abs()),
            (of, Value::Int(_) | Value::Unsigned(_)) if of.keeps_type() => return first.clone(),
            (Self::Pow, Value::Int(base)) => {
                if let Some(Value::Int(power @ 0..)) = arguments.get(1) {
                    return Value::Int(base.wrapping_pow(u32::try_from(*power).unwrap_or(u32::MAX)));
                }
            }
            _ => {}
        }
        let Some(x) = first.as_number() else {
            return Value::Null;
        };
        let second = arguments.get(1).and_then(InfluxValue::as_number);
        let result = match (self, second) {
            (Self::Atan2, Some(y)) => x.atan2(y),
            (Self::Log, Some(base)) => x.ln() / base.ln(),
            (Self::Pow, Some(power)) => x.powf(power),
            (Self::Atan2 | Self::Log | Self::Pow, None) => return Value::Null,
            _ => self.of_one(x),
        };
        Value::Float(result)
    }

    fn of_one(self, x: f64) -> f64 {
        match self {
            Self::Abs => x.abs(),
            Self::Acos => x.acos(),
            Self::Asin => x.asin(),
            Self::Atan => x.atan(),
            Self::Ceil => x.ceil(),
            Self::Cos => x.cos(),
            Self::Exp => x.exp(),
            Self::Floor => x.floor(),
            Self::Ln => x.ln(),
            Self::Log2 => x.log2(),
            Self::Log10 => x.log10(),
            Self::Round => x.round(),
            Self::Sin => x.sin(),
            Self::Sqrt => x.sqrt(),
            Self::Tan => x.tan(),
            Self::Atan2 | Self::Log | Self::Pow => f64::NAN,
        }
    }
}

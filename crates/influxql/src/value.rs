//! Values of rows, and what InfluxQL computes with them.

use std::cmp::Ordering;
use std::sync::Arc;

use query::Cell;

use crate::syntax::ast::Operator;

/// A value in an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// None.
    Null,
    /// A float; what is not a number was made null.
    Float(f64),
    /// A signed integer.
    Integer(i64),
    /// An unsigned integer.
    Unsigned(u64),
    /// A boolean.
    Boolean(bool),
    /// A text.
    Text(Arc<str>),
    /// A time in nanoseconds since the Unix epoch.
    Time(i64),
}

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
}

impl From<Cell<'_>> for Value {
    fn from(cell: Cell<'_>) -> Self {
        match cell {
            Cell::Null => Self::Null,
            Cell::F64(value) => Self::Float(value),
            Cell::I64(value) => Self::Integer(value),
            Cell::U64(value) => Self::Unsigned(value),
            Cell::Bool(value) => Self::Boolean(value),
            Cell::Text(value) => Self::Text(value.into()),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl Value {
    /// The same, but null for what is not a number: answers do not have it.
    pub(crate) fn without_nan(self) -> Self {
        match self {
            Self::Float(value) if value.is_nan() => Self::Null,
            value => value,
        }
    }

    pub(crate) fn is_null(&self) -> bool {
        *self == Self::Null
    }

    /// As a float, if it is a number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            Self::Integer(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            _ => None,
        }
    }

    pub(crate) const fn is_true(&self) -> bool {
        matches!(self, Self::Boolean(true))
    }

    /// Order among values of one type; numbers of several are floats.
    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Integer(a), Self::Integer(b)) => Some(a.cmp(b)),
            (Self::Unsigned(a), Self::Unsigned(b)) => Some(a.cmp(b)),
            (Self::Integer(a), Self::Unsigned(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Unsigned(a), Self::Integer(b)) => Some(i128::from(*a).cmp(&i128::from(*b))),
            (Self::Boolean(a), Self::Boolean(b)) => Some(a.cmp(b)),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => self.number()?.partial_cmp(&other.number()?),
        }
    }

    /// An order that all values have a place in, as sorting needs it: [`Value::compare`] gives NaN, and values of several types, none.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let kind = |value: &Self| match value {
            Self::Integer(_) | Self::Unsigned(_) => 0,
            Self::Float(_) => 1,
            Self::Boolean(_) => 2,
            Self::Text(_) => 3,
            _ => 4,
        };
        // Whole numbers that are the same as floats are told apart behind that.
        let by_number = self.number().zip(other.number()).map(|(a, b)| (a + 0.0).total_cmp(&(b + 0.0)));
        let by_number = by_number.unwrap_or_else(|| self.number().is_none().cmp(&other.number().is_none()));
        let exact = || self.compare(other).unwrap_or(Ordering::Equal);
        by_number.then_with(|| kind(self).cmp(&kind(other)).then_with(exact))
    }

    /// The same as another type, where that makes sense.
    pub(crate) fn cast(&self, to: DataType) -> Self {
        match (to, self) {
            (DataType::Float, value) => value.number().map_or(Self::Null, Self::Float),
            (DataType::Integer, Self::Float(value)) => Self::Integer(*value as i64),
            (DataType::Integer, Self::Unsigned(value)) => Self::Integer(*value as i64),
            (DataType::Unsigned, Self::Float(value)) => Self::Unsigned(*value as u64),
            (DataType::Unsigned, Self::Integer(value)) => Self::Unsigned(*value as u64),
            (DataType::Integer, Self::Integer(_))
            | (DataType::Unsigned, Self::Unsigned(_))
            | (DataType::Text | DataType::Tag, Self::Text(_))
            | (DataType::Boolean, Self::Boolean(_)) => self.clone(),
            _ => Self::Null,
        }
    }
}

/// What an operator makes of two values. In conditions whole numbers divide to whole numbers.
pub(crate) fn apply(operator: Operator, left: &Value, right: &Value, in_condition: bool) -> Value {
    if operator.compares() {
        return compare(operator, left, right);
    }
    match (left, right) {
        (Value::Boolean(a), Value::Boolean(b)) => match operator {
            Operator::BitAnd => Value::Boolean(a & b),
            Operator::BitOr => Value::Boolean(a | b),
            Operator::BitXor => Value::Boolean(a ^ b),
            _ => Value::Null,
        },
        (Value::Integer(_), Value::Integer(_)) if operator == Operator::Divide && !in_condition => {
            floats(operator, left, right)
        }
        (Value::Integer(a), Value::Integer(b)) => integers(operator, *a, *b),
        (Value::Unsigned(a), Value::Unsigned(b)) => unsigneds(operator, *a, *b),
        // A whole number that is not negative joins an unsigned one.
        (Value::Unsigned(a), Value::Integer(b)) => {
            u64::try_from(*b).map_or(Value::Null, |b| unsigneds(operator, *a, b))
        }
        (Value::Integer(a), Value::Unsigned(b)) => {
            u64::try_from(*a).map_or(Value::Null, |a| unsigneds(operator, a, *b))
        }
        _ => floats(operator, left, right),
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> Value {
    let Some(order) = left.compare(right) else {
        return Value::Boolean(false);
    };
    Value::Boolean(match operator {
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
    let (Some(a), Some(b)) = (left.number(), right.number()) else {
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
    Value::Integer(match operator {
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

    /// Whether it keeps the type of whole numbers.
    pub(crate) const fn keeps_type(self) -> bool {
        matches!(self, Self::Abs | Self::Ceil | Self::Floor | Self::Round)
    }

    pub(crate) fn apply(self, arguments: &[Value]) -> Value {
        let first = arguments.first().unwrap_or(&Value::Null);
        match (self, first) {
            (Self::Abs, Value::Integer(value)) => return Value::Integer(value.wrapping_abs()),
            (of, Value::Integer(_) | Value::Unsigned(_)) if of.keeps_type() => return first.clone(),
            (Self::Pow, Value::Integer(base)) => {
                if let Some(Value::Integer(power @ 0..)) = arguments.get(1) {
                    return Value::Integer(base.wrapping_pow(u32::try_from(*power).unwrap_or(u32::MAX)));
                }
            }
            _ => {}
        }
        let Some(x) = first.number() else {
            return Value::Null;
        };
        let second = arguments.get(1).and_then(Value::number);
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

//! A selection with all names resolved: what is read, which calls are made, how columns follow from them.

use std::sync::Arc;

use jiff::tz::TimeZone;
use model::TimeRange;
use query::Value;
use query::time::CalendarBins;
use regex::Regex;

use crate::resolve::names::Schema;
use crate::resolve::validate::SELECTORS;
use crate::syntax::ast::{Cast, Expr, Fill, Limits, Operator};
use crate::value::{DataType, InfluxValue, Math};

/// A resolved selection.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) sources: Vec<From>,
    pub(crate) columns: Vec<Column>,
    pub(crate) calls: Vec<Call>,
    /// The fields and tags that columns take from rows as they are.
    pub(crate) references: Vec<Reference>,
    /// The condition on rows, time aside.
    pub(crate) condition: Option<Expr>,
    pub(crate) range: TimeRange,
    /// Windows before the range that transformations need.
    pub(crate) extra_windows: i64,
    pub(crate) windows: Option<CalendarBins>,
    /// The tags by which rows are grouped, sorted; those of the outer selections among them.
    pub(crate) grouped_by: Vec<String>,
    pub(crate) fill: Fill,
    pub(crate) descending: bool,
    pub(crate) limits: Limits,
    pub(crate) zone: Option<TimeZone>,
    /// The name of the column of times.
    pub(crate) time_name: String,
}

impl Resolved {
    /// A row of the answer: its time, and a value for each column.
    pub(crate) fn row(
        &self,
        time_ns: i64,
        calls: &dyn Fn(usize) -> Value,
        references: &dyn Fn(usize) -> Value,
    ) -> Vec<Value> {
        let value = |column: &Column| column.code.value(calls, references, false).without_nan();
        std::iter::once(Value::Timestamp(time_ns)).chain(self.columns.iter().map(value)).collect()
    }

    /// Values of a call that are wanted, the first ones.
    pub(crate) fn most(&self) -> usize {
        self.limits.of_rows().needed().unwrap_or(usize::MAX)
    }

    /// Returns whether its one call chooses rows, so that their times and other columns are known.
    pub(crate) fn selects_rows(&self) -> bool {
        matches!(self.calls.as_slice(), [call] if SELECTORS.contains(&call.function.as_str()))
    }
}

/// Where rows come from.
#[derive(Debug)]
pub(crate) enum From {
    Table { database: String, name: Arc<str>, schema: Schema },
    Subquery(Box<Resolved>),
}

/// A column of the answer.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) code: Code,
    pub(crate) data_type: DataType,
}

/// A field or tag that is taken as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reference {
    pub(crate) name: String,
    pub(crate) cast: Option<Cast>,
    pub(crate) data_type: DataType,
}

impl Reference {
    /// Returns whether values are shown as another type than the field has.
    pub(crate) const fn changes_type(&self) -> bool {
        matches!(self.cast, Some(Cast::Float | Cast::Integer | Cast::Unsigned))
    }
}

/// A call of an aggregate, selector or transformation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: String,
    pub(crate) argument: Argument,
    /// The arguments after the first.
    pub(crate) parameters: Vec<Expr>,
    pub(crate) data_type: DataType,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Argument {
    Reference(Reference),
    Call(Box<Call>),
}

/// An expression over the results of calls and references.
#[derive(Debug, Clone)]
pub(crate) enum Code {
    Value(Value),
    Call(usize),
    Reference(usize),
    Binary(Operator, Box<Code>, Box<Code>),
    Math(Math, Vec<Code>),
    /// True if a text must match a pattern, false if it must not.
    Matches(Box<Code>, Regex, bool),
    All(Vec<Code>),
    Any(Vec<Code>),
}

impl Code {
    /// Its value, given the values of calls and references.
    pub(crate) fn value(
        &self,
        calls: &dyn Fn(usize) -> Value,
        references: &dyn Fn(usize) -> Value,
        in_condition: bool,
    ) -> Value {
        match self {
            Self::Value(value) => value.clone(),
            Self::Call(place) => calls(*place),
            Self::Reference(place) => references(*place),
            Self::Binary(operator, left, right) => {
                let left = left.value(calls, references, in_condition);
                let right = right.value(calls, references, in_condition);
                crate::value::apply(*operator, &left, &right, in_condition)
            }
            Self::Math(math, operands) => {
                let values: Vec<Value> =
                    operands.iter().map(|operand| operand.value(calls, references, in_condition)).collect();
                math.apply(&values)
            }
            Self::Matches(text, pattern, wanted) => match text.value(calls, references, in_condition) {
                Value::Text(text) => Value::Bool(pattern.is_match(&text) == *wanted),
                _ => Value::Bool(false),
            },
            Self::All(operands) => {
                Value::Bool(operands.iter().all(|operand| operand.value(calls, references, in_condition).is_true()))
            }
            Self::Any(operands) => {
                Value::Bool(operands.iter().any(|operand| operand.value(calls, references, in_condition).is_true()))
            }
        }
    }
}

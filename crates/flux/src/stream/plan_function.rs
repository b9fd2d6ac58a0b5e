//! Functions of values as plans have them.

use model::ValueType;
use query::Value;
use query::plan::{Aggregate, AggregateCall};

use super::source::kind_of;

/// A function of all values of a table that plans compute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum PlanFunction {
    /// An aggregate of plans.
    One(Aggregate),
    /// The standard deviation of a sample: no number of one value, of which the plan's is null.
    StddevSample,
    /// The greatest value less the smallest one.
    Spread,
}

impl PlanFunction {
    /// The aggregates that it is made of.
    pub(crate) fn aggregates(self) -> Vec<Aggregate> {
        match self {
            Self::One(aggregate) => vec![aggregate],
            Self::StddevSample => vec![Aggregate::StddevSample, Aggregate::Count],
            Self::Spread => vec![Aggregate::Max, Aggregate::Min],
        }
    }

    /// These, of a field.
    pub(crate) fn calls(self, field: &str) -> Vec<AggregateCall> {
        self.aggregates().into_iter().map(|aggregate| AggregateCall::of_column(aggregate, field)).collect()
    }

    /// Returns whether it chooses a row, whose other columns are part of the answer.
    pub(crate) const fn is_selector(self) -> bool {
        matches!(self, Self::One(Aggregate::First | Aggregate::Last | Aggregate::Min | Aggregate::Max))
    }

    /// Returns whether it is of values of any type, and not of numbers alone.
    pub(crate) const fn is_of_any_type(self) -> bool {
        matches!(self, Self::One(Aggregate::Count | Aggregate::First | Aggregate::Last))
    }

    /// The type of what it gives of values of a type, as annotations name it.
    pub(crate) const fn kind(self, value_type: ValueType) -> &'static str {
        match self {
            Self::One(Aggregate::Count) => "long",
            Self::One(Aggregate::First | Aggregate::Last | Aggregate::Min | Aggregate::Max | Aggregate::Sum)
            | Self::Spread => kind_of(value_type),
            Self::One(_) | Self::StddevSample => "double",
        }
    }

    /// The result, from its aggregates in their order; null of no values.
    pub(crate) fn value(self, aggregates: &[Value]) -> Value {
        match (self, aggregates) {
            (Self::StddevSample, [Value::Null, count]) if !count.is_null() => Value::Float(f64::NAN),
            (Self::Spread, [Value::Int(most), Value::Int(least)]) => Value::Int(most.wrapping_sub(*least)),
            (Self::Spread, [Value::Unsigned(most), Value::Unsigned(least)]) => {
                Value::Unsigned(most.wrapping_sub(*least))
            }
            (Self::Spread, [most, least]) => match (most.number(), least.number()) {
                (Some(most), Some(least)) => Value::Float(most - least),
                _ => Value::Null,
            },
            (_, [value, ..]) => value.clone(),
            (_, []) => Value::Null,
        }
    }
}

//! Calls as the plan has them: the aggregates of a field that each is made of, and its value from theirs.

use query::plan::{Aggregate, AggregateCall, Expression, Operator as PlanOperator};
use query::{Frame, Value};

use crate::functions::sketched;
use crate::resolve::selection::{Argument, Call, Reference};
use crate::syntax::ast::{Expr, Operator};
use crate::value::{DataType, InfluxValue, apply};

/// A call as aggregates of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct PlanCall<'a> {
    field: &'a str,
    kind: Kind,
    data_type: DataType,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// One aggregate.
    One(Aggregate),
    /// The standard deviation of a sample. Of one value InfluxDB has a row without it, which their count tells.
    Deviation,
    /// The largest value less the smallest one.
    Spread,
}

impl<'a> PlanCall<'a> {
    /// `None` if no aggregates of the plan give the same.
    pub(crate) fn new(call: &'a Call) -> Option<Self> {
        let (reference, kind) = match &call.argument {
            Argument::Reference(reference) => (reference, kind_of(call, reference)?),
            Argument::Call(inner) if call.function == "count" && inner.function == "distinct" => {
                let Argument::Reference(reference) = &inner.argument else { return None };
                (reference, Kind::One(Aggregate::CountDistinct))
            }
            Argument::Call(_) => return None,
        };
        let data_type = call.data_type;
        reference.cast.is_none().then_some(Self { field: &reference.name, kind, data_type })
    }

    /// The field that it is of.
    pub(crate) const fn field(&self) -> &'a str {
        self.field
    }

    /// Returns whether it is of the first or the last value, which series together do not tell.
    pub(crate) const fn is_of_one_series(&self) -> bool {
        matches!(self.kind, Kind::One(Aggregate::First | Aggregate::Last))
    }

    /// Returns whether the aggregates take values of a type.
    pub(crate) const fn takes(&self, data_type: DataType) -> bool {
        match self.kind {
            Kind::One(
                Aggregate::Count | Aggregate::First | Aggregate::Last | Aggregate::CountDistinct | Aggregate::Mode,
            ) => true,
            Kind::One(Aggregate::Min | Aggregate::Max) => {
                data_type.is_number() || matches!(data_type, DataType::Boolean)
            }
            Kind::One(Aggregate::ApproxDistinct) => {
                data_type.is_number() || matches!(data_type, DataType::Text | DataType::Boolean)
            }
            Kind::One(_) | Kind::Deviation | Kind::Spread => data_type.is_number(),
        }
    }

    /// The aggregates that it is made of.
    pub(crate) fn aggregates(&self) -> impl Iterator<Item = AggregateCall> + use<'a> {
        let field = self.field;
        let (first, second) = match self.kind {
            Kind::One(aggregate) => (aggregate, None),
            Kind::Deviation => (Aggregate::StddevSample, Some(Aggregate::Count)),
            Kind::Spread => (Aggregate::Max, Some(Aggregate::Min)),
        };
        std::iter::once(first).chain(second).map(move |aggregate| AggregateCall::of_column(aggregate, field))
    }

    /// The plan's column that has its values, if one has them as they are.
    pub(crate) fn column(&self) -> Option<String> {
        let is_column = !matches!(self.kind, Kind::Spread);
        self.aggregates().next().filter(|_| is_column).map(|aggregate| aggregate.column_name())
    }

    /// Its value as an expression over the plan's columns.
    pub(crate) fn expression(&self) -> Expression {
        let mut columns = self.aggregates().map(|aggregate| Expression::Column(aggregate.column_name()));
        match (self.kind, columns.next(), columns.next()) {
            (Kind::Spread, Some(most), Some(least)) => Expression::Apply(PlanOperator::Difference, vec![most, least]),
            (_, Some(value), _) => value,
            (_, None, _) => Expression::Value,
        }
    }

    /// Returns whether its values are of one type, whatever the type of the field is.
    pub(crate) const fn is_of_one_type(&self) -> bool {
        !matches!(
            self.kind,
            Kind::One(
                Aggregate::Sum
                    | Aggregate::Min
                    | Aggregate::Max
                    | Aggregate::First
                    | Aggregate::Last
                    | Aggregate::NearestRank(_)
                    | Aggregate::Mode
            ) | Kind::Spread
        )
    }

    /// Returns whether it is zero where there are no values, of which InfluxQL has none.
    pub(crate) const fn is_count(&self) -> bool {
        matches!(self.kind, Kind::One(aggregate) if aggregate.is_count())
    }

    /// Its values in the rows of a frame; `None` where it is of nothing.
    pub(crate) fn values<'f>(&self, frame: &'f Frame) -> impl Iterator<Item = Option<Value>> + use<'a, 'f> {
        let mut columns = self.aggregates().map(|aggregate| frame.column(&aggregate.column_name()));
        let (first, second) = (columns.next().flatten(), columns.next().flatten());
        let (kind, data_type, is_count) = (self.kind, self.data_type, self.is_count());
        (0..frame.rows()).map(move |row| {
            let cell = |column: Option<&query::FrameColumn>| {
                column.map_or(Value::Null, |column| Value::from(column.cell(row)))
            };
            let value = match (kind, cell(first)) {
                (Kind::Spread, most) => apply(Operator::Subtract, &most, &cell(second), false),
                (Kind::Deviation, Value::Null) if cell(second).as_number().is_some_and(|count| count > 0.0) => {
                    return Some(Value::Null);
                }
                // A window that has other values of the row only.
                (_, Value::Int(0) | Value::Unsigned(0)) if is_count => Value::Null,
                (_, Value::Unsigned(count)) if is_count => Value::Int(count as i64),
                (_, value) if data_type == DataType::Float => value.as_number().map_or(Value::Null, Value::Float),
                (_, value) => value,
            };
            Some(value).filter(|value| !value.is_null())
        })
    }
}

fn kind_of(call: &Call, reference: &Reference) -> Option<Kind> {
    Some(Kind::One(match call.function.as_str() {
        "stddev" => return Some(Kind::Deviation),
        "spread" => return Some(Kind::Spread),
        // Texts are sketches, which are merged row by row.
        sketched::PERCENTILE if reference.data_type != DataType::Text => {
            Aggregate::ApproxQuantile(percent(call)? / 100.0)
        }
        "percentile" => Aggregate::NearestRank(percent(call)?),
        "mode" => Aggregate::Mode,
        "integral" => Aggregate::Integral { unit_ns: integral_unit_ns(call) },
        "approx_count_distinct" => Aggregate::ApproxDistinct,
        other => Aggregate::of_influx_function(other)?,
    }))
}

/// The unit of the time of an `integral` in nanoseconds: a second, unless the call says another one.
pub(crate) fn integral_unit_ns(call: &Call) -> i64 {
    match call.parameters.first() {
        Some(Expr::Duration(unit_ns)) => *unit_ns,
        _ => 1_000_000_000,
    }
}

/// The number that a call says in percent.
fn percent(call: &Call) -> Option<f64> {
    match call.parameters.first()? {
        Expr::Integer(percent) => Some(*percent as f64),
        Expr::Number(percent) => Some(*percent),
        _ => None,
    }
}

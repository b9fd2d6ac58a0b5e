//! Windows without a value get one.

use model::TimeRange;
use query::plan::FillWith;
use query::time::CalendarBins;
use query::{Budget, QueryError, Value, fill_gaps};

use crate::functions::Point;
use crate::resolve::selection::{Call, Reference, Resolved};
use crate::syntax::ast::Fill;
use crate::time::TIME_MIN_NS;
use crate::value::{DataType, InfluxValue};

/// How windows without a value are filled.
pub(crate) struct Filling<'a> {
    pub(crate) windows: &'a CalendarBins,
    pub(crate) fill: Fill,
    pub(crate) data_type: DataType,
    /// First and last time of the answer.
    pub(crate) range: TimeRange,
    pub(crate) descending: bool,
    /// So many values are wanted: the first ones.
    pub(crate) most: usize,
}

impl<'a> Filling<'a> {
    /// How a selection fills, for a call of no type yet; `None` if it does not.
    pub(crate) fn from_selection(selection: &'a Resolved) -> Option<Self> {
        let windows = selection.windows.as_ref()?;
        let (range, data_type, descending, most) =
            (selection.range, DataType::Unknown, selection.descending, selection.most());
        (selection.fill != Fill::None).then_some(Self {
            windows,
            fill: selection.fill,
            data_type,
            range,
            descending,
            most,
        })
    }

    /// For one of the calls: counts are 0 where there is nothing to count.
    #[must_use]
    pub(crate) fn for_call(mut self, call: &Call) -> Self {
        if self.fill == Fill::Null && call.function == "count" {
            self.fill = Fill::Integer(0);
        }
        self.data_type = call.data_type;
        self
    }

    /// Returns whether ascending times are those of all windows of the range, so that none is to be filled.
    pub(crate) fn is_full(&self, times_ns: &[i64]) -> bool {
        let (Some(first_ns), Some(last_ns)) = (times_ns.first(), times_ns.last()) else { return false };
        let start_ns =
            if self.range.start_ns <= TIME_MIN_NS { *first_ns } else { self.windows.start_of(self.range.start_ns) };
        let next_to_each_other = |pair: &[i64]| matches!(pair, [a, b] if self.windows.next(*a) == *b);
        *first_ns == start_ns
            && *last_ns == self.windows.start_of(self.range.end_ns)
            && times_ns.windows(2).all(next_to_each_other)
    }

    /// How gaps are filled, and the value that stands in them if it is the same in all.
    fn with(&self) -> (FillWith, Value) {
        match self.fill {
            Fill::Integer(value) => (FillWith::Number(value as f64), of_type(&Value::Int(value), self.data_type)),
            Fill::Number(value) => (FillWith::Number(value), of_type(&Value::Float(value), self.data_type)),
            Fill::Null | Fill::None => (FillWith::Null, Value::Null),
            Fill::Previous => (FillWith::Previous, Value::Null),
            Fill::Linear => (FillWith::Linear, Value::Null),
        }
    }

    /// Adds values for the windows that have none. Those of the answer come in its order, one for each window at most.
    pub(crate) fn fill(&self, outs: Vec<Point>, budget: &Budget) -> Result<Vec<Point>, QueryError> {
        let (Some(first), Some(last)) = (outs.first(), outs.last()) else {
            return Ok(outs);
        };
        let start_of =
            |time_ns: i64, or_ns: i64| if time_ns <= TIME_MIN_NS { or_ns } else { self.windows.start_of(time_ns) };
        let (first_ns, last_ns) = if self.descending {
            (self.windows.start_of(self.range.end_ns), start_of(self.range.start_ns, last.time_ns))
        } else {
            (start_of(self.range.start_ns, first.time_ns), self.windows.start_of(self.range.end_ns))
        };
        let mut slots: Vec<(i64, Option<Value>)> = Vec::with_capacity(outs.len());
        let mut origins = Vec::with_capacity(outs.len());
        let mut at_ns = first_ns;
        for out in outs {
            self.add_gaps(&mut slots, &mut at_ns, out.time_ns, budget)?;
            origins.resize(slots.len(), None);
            at_ns = self.after(out.time_ns);
            slots.push((out.time_ns, Some(out.value)));
            origins.push(out.origin);
            // Where enough are found the last is what gaps before it lead to.
            if slots.len() > self.most {
                break;
            }
        }
        self.add_gaps(&mut slots, &mut at_ns, self.after(last_ns), budget)?;
        origins.resize(slots.len(), None);
        let (with, constant) = self.with();
        let between = |before: &(i64, Value), next: &(i64, Value), at_ns| {
            Some(linear(before, next, at_ns, self.windows.width().ns))
        };
        fill_gaps(&mut slots, with, |_| constant.clone(), between);
        let out = |((time_ns, value), origin): ((i64, Option<Value>), _)| Point {
            time_ns,
            value: value.unwrap_or(Value::Null),
            origin,
        };
        Ok(slots.into_iter().zip(origins).take(self.most).map(out).collect())
    }

    fn after(&self, start_ns: i64) -> i64 {
        if self.descending { self.windows.previous(start_ns) } else { self.windows.next(start_ns) }
    }

    /// Adds the windows from one up to another that has a value, or is not wanted.
    fn add_gaps(
        &self,
        slots: &mut Vec<(i64, Option<Value>)>,
        at_ns: &mut i64,
        end_ns: i64,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        while slots.len() < self.most && if self.descending { *at_ns > end_ns } else { *at_ns < end_ns } {
            budget.take(1)?;
            slots.push((*at_ns, None));
            let after_ns = self.after(*at_ns);
            if after_ns == *at_ns {
                break;
            }
            *at_ns = after_ns;
        }
        Ok(())
    }
}

/// The number that fills a column, as its type; columns without numbers get false or an empty text.
fn of_type(number: &Value, data_type: DataType) -> Value {
    match data_type {
        DataType::Boolean => Value::Bool(false),
        DataType::Text => Value::from(""),
        data_type => number.cast(data_type),
    }
}

/// What stands for the fields that a row does not have, where rows are shown as they are: the number of `fill(…)`.
pub(crate) fn missing_fields(selection: &Resolved) -> Vec<Value> {
    let number = match selection.fill {
        Fill::Integer(value) => Value::Int(value),
        Fill::Number(value) => Value::Float(value),
        Fill::Null | Fill::None | Fill::Previous | Fill::Linear => Value::Null,
    };
    let of_reference = |reference: &Reference| match reference.data_type {
        DataType::Tag | DataType::Unknown => Value::Null,
        _ if number.is_null() => Value::Null,
        data_type => of_type(&number, data_type),
    };
    selection.references.iter().map(of_reference).collect()
}

/// The value between two, in proportion to the windows between them. As InfluxDB rounds it: whole numbers are cut off, which shows what a
/// slope for each nanosecond, or a share of the whole, would round to instead.
fn linear(before: &(i64, Value), next: &(i64, Value), time_ns: i64, width_ns: i64) -> Value {
    let (Some(from), Some(to)) = (before.1.as_number(), next.1.as_number()) else {
        return Value::Null;
    };
    // Times at both ends of time are further apart than 64 bits hold.
    let window = |time_ns: i64| i128::from(time_ns / width_ns.max(1));
    let since = |time_ns: i64| (window(time_ns) - window(before.0)) as f64;
    let slope = (to - from) / since(next.0);
    let value = slope * since(time_ns) + from;
    match before.1 {
        Value::Int(_) => Value::Int(value as i64),
        Value::Unsigned(_) => Value::Unsigned(value as u64),
        _ => Value::Float(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers of InfluxDB 1.6.7 to `SELECT sum(i) … GROUP BY time(1m) fill(linear)` of two points, the first of them 0.
    #[test]
    fn whole_numbers_between_two_are_those_of_influxdb() {
        let width_ns = 60_000_000_000;
        let at = |window: usize, value: i64| (window as i64 * width_ns, Value::Int(value));
        for expected in [&[0, 118, 236, 354][..], &[0, 33, 66, 99, 132, 165, 198, 231, 264, 297, 330]] {
            let last = expected.len() - 1;
            for (window, value) in expected.iter().enumerate().take(last).skip(1) {
                let found = linear(&at(0, 0), &at(last, expected[last]), at(window, 0).0, width_ns);
                assert_eq!(found, Value::Int(*value), "{window} of {last}");
            }
        }
    }
}

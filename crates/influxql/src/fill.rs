//! Windows without a value get one.

use query::{Budget, QueryError};

use crate::reduce::Out;
use crate::syntax::ast::Fill;
use crate::time::{TIME_MIN_NS, Windows};
use crate::value::{DataType, Value};

/// What is filled, and with what.
pub(crate) struct Filling<'a> {
    pub(crate) windows: &'a Windows,
    pub(crate) fill: Fill,
    pub(crate) data_type: DataType,
    /// First and last time of the answer.
    pub(crate) range: (i64, i64),
    pub(crate) descending: bool,
    /// So many values are wanted: the first ones.
    pub(crate) most: usize,
}

impl Filling<'_> {
    /// The value that stands for any gap; `None` if it depends on its neighbours.
    fn constant(&self) -> Option<Value> {
        match self.fill {
            Fill::Integer(value) => Some(self.of_type(&Value::Integer(value))),
            Fill::Number(value) => Some(self.of_type(&Value::Float(value))),
            Fill::Null | Fill::None => Some(Value::Null),
            Fill::Previous | Fill::Linear => None,
        }
    }

    /// A number as the column has it; columns without numbers get what is most like nothing.
    fn of_type(&self, number: &Value) -> Value {
        match self.data_type {
            DataType::Boolean => Value::Boolean(false),
            DataType::Text => Value::from(""),
            data_type => number.cast(data_type),
        }
    }

    /// Adds values for the windows that have none. Those of the answer come in its order, one for each window at most.
    pub(crate) fn fill(&self, outs: Vec<Out>, budget: &Budget) -> Result<Vec<Out>, QueryError> {
        let (Some(first), Some(last)) = (outs.first(), outs.last()) else {
            return Ok(outs);
        };
        let start_of =
            |time_ns: i64, or_ns: i64| if time_ns <= TIME_MIN_NS { or_ns } else { self.windows.start_of(time_ns) };
        let (first_ns, last_ns) = if self.descending {
            (self.windows.start_of(self.range.1), start_of(self.range.0, last.time_ns))
        } else {
            (start_of(self.range.0, first.time_ns), self.windows.start_of(self.range.1))
        };
        let mut filled: Vec<Out> = Vec::with_capacity(outs.len());
        let mut at_ns = first_ns;
        for out in outs {
            self.gap(&mut filled, &mut at_ns, out.time_ns, Some(&out), budget)?;
            if filled.len() >= self.most {
                break;
            }
            at_ns = self.after(out.time_ns);
            filled.push(out);
        }
        let end_ns = self.after(last_ns);
        self.gap(&mut filled, &mut at_ns, end_ns, None, budget)?;
        Ok(filled)
    }

    fn after(&self, start_ns: i64) -> i64 {
        if self.descending { self.windows.previous(start_ns) } else { self.windows.next(start_ns) }
    }

    /// Fills the windows from one up to another that is not filled itself.
    fn gap(
        &self,
        filled: &mut Vec<Out>,
        at_ns: &mut i64,
        end_ns: i64,
        next: Option<&Out>,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        if *at_ns == end_ns {
            return Ok(());
        }
        let constant = self.constant();
        let before = filled.last().cloned();
        while filled.len() < self.most && if self.descending { *at_ns > end_ns } else { *at_ns < end_ns } {
            budget.take(1)?;
            let value = match (&constant, &before) {
                (Some(constant), _) => constant.clone(),
                (None, None) => Value::Null,
                (None, Some(before)) if self.fill == Fill::Previous => before.value.clone(),
                (None, Some(before)) => next.map_or(Value::Null, |next| linear(before, next, *at_ns)),
            };
            filled.push(Out { time_ns: *at_ns, value, origin: None });
            let after_ns = self.after(*at_ns);
            if after_ns == *at_ns {
                break;
            }
            *at_ns = after_ns;
        }
        Ok(())
    }
}

/// The value between two, in proportion to time.
fn linear(before: &Out, next: &Out, time_ns: i64) -> Value {
    let (Some(from), Some(to)) = (before.value.number(), next.value.number()) else {
        return Value::Null;
    };
    // Times at both ends of time are further apart than 64 bits hold.
    let since = |to_ns: i64| (i128::from(to_ns) - i128::from(before.time_ns)) as f64;
    let share = since(time_ns) / since(next.time_ns);
    let value = from + (to - from) * share;
    match before.value {
        Value::Integer(_) => Value::Integer(value as i64),
        Value::Unsigned(_) => Value::Unsigned(value as u64),
        _ => Value::Float(value),
    }
}

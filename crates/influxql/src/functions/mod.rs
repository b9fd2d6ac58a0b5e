//! The functions of InfluxQL that the plan does not have, over points; `sketched`: approximate ones.

pub(crate) mod folded;
pub(crate) mod holt_winters;
pub(crate) mod reduce;
mod simplex;
pub(crate) mod sketched;
pub(crate) mod transform;

use query::Value;
use query::statistics::ranked::TimedValue;

/// A value that a call gave.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub(crate) time_ns: i64,
    pub(crate) value: Value,
    /// The input and the row that it was in, if it was in one.
    pub(crate) origin: Option<(usize, usize)>,
}

impl TimedValue for Point {
    fn time_ns(&self) -> i64 {
        self.time_ns
    }

    fn value(&self) -> &Value {
        &self.value
    }
}

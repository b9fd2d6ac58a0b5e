//! Approximate aggregates, of values and of sketches that views have of them. InfluxDB has none of them; SQL's are of the same names.

use query::sketch::{DistinctSketch, QuantileSketch};
use query::{QueryError, Value};

use crate::functions::Point;
use crate::value::InfluxValue;

/// Those that take a field alone.
pub(crate) const DISTINCT: [&str; 2] = ["approx_count_distinct", DISTINCT_OF_SKETCHES];
pub(crate) const DISTINCT_OF_SKETCHES: &str = "approx_count_distinct_of_sketches";
/// The one that takes a field and a share in percent.
pub(crate) const PERCENTILE: &str = "approx_percentile";

/// Returns whether a function is one of these.
pub(crate) fn is_sketched(function: &str) -> bool {
    function == PERCENTILE || DISTINCT.contains(&function)
}

/// The aggregate of a window's points; `None` if there are none.
pub(crate) fn result(function: &str, points: &[Point], percent: f64) -> Result<Option<Value>, QueryError> {
    if points.is_empty() {
        return Ok(None);
    }
    if function == PERCENTILE {
        let mut sketch = QuantileSketch::default();
        for point in points {
            match (&point.value, point.value.as_number()) {
                (Value::Text(text), _) => {
                    sketch.merge(&QuantileSketch::decode(text).map_err(|reason| no_sketch(function, &reason))?);
                }
                (_, Some(number)) => sketch.add(number),
                _ => return Err(no_sketch(function, "it is neither a number nor a text")),
            }
        }
        return Ok(sketch.quantile(percent / 100.0).map(Value::Float));
    }
    let mut sketch = DistinctSketch::default();
    for point in points {
        match (&point.value, point.value.as_number()) {
            (Value::Text(text), _) if function == DISTINCT_OF_SKETCHES => {
                sketch.merge(&DistinctSketch::decode(text).map_err(|reason| no_sketch(function, &reason))?);
            }
            _ if function == DISTINCT_OF_SKETCHES => return Err(no_sketch(function, "it is no text")),
            (Value::Text(text), _) => sketch.add_text(text),
            (_, Some(number)) => sketch.add_number(number),
            (Value::Bool(value), _) => sketch.add_number(f64::from(u8::from(*value))),
            _ => return Err(no_sketch(function, "it is neither a number, nor a boolean or a text")),
        }
    }
    Ok(Some(Value::Int(i64::try_from(sketch.estimate()).unwrap_or(i64::MAX))))
}

fn no_sketch(function: &str, reason: &str) -> QueryError {
    QueryError::Invalid(format!("{function}() cannot take a value: {reason}"))
}

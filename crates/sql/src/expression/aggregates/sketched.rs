//! Sketches and histograms of a group's values, and of sketches and histograms.

use query::sketch::{DistinctSketch, Histogram, QuantileSketch};
use query::{SAMPLE_BYTES, Value};

use super::{Accumulator, AggregateFunction};
use crate::error::{SqlError, invalid};

impl Accumulator {
    /// Adds a number, or the numbers of a sketch; returns the samples by which its own one grew.
    pub(crate) fn add_to_sketch(&mut self, value: &Value) -> Result<usize, SqlError> {
        let before = self.sketch.as_ref().map_or(0, |sketch| sketch.memory_bytes());
        let sketch = self.sketch.get_or_insert_default();
        match value {
            Value::Text(text) => match QuantileSketch::decode(text) {
                Ok(other) => sketch.merge(&other),
                Err(reason) => return invalid(reason),
            },
            value => match value.number() {
                Some(number) => sketch.add(number),
                None => return invalid(format!("a number or a sketch is wanted, not \"{value}\"")),
            },
        }
        Ok(sketch.memory_bytes().saturating_sub(before).div_ceil(SAMPLE_BYTES))
    }

    /// Adds a number, or the numbers of a histogram; returns the samples by which its own one grew, beside those that a group takes for it.
    pub(crate) fn add_to_histogram(&mut self, value: &Value, function: AggregateFunction) -> Result<usize, SqlError> {
        if let AggregateFunction::Histogram(buckets) = function {
            let Some(number) = value.number() else { return invalid(format!("a number is wanted, not \"{value}\"")) };
            self.histogram.get_or_insert_with(|| Box::new(Histogram::new(buckets))).add(buckets, number);
            return Ok(0);
        }
        let Value::Text(text) = value else { return invalid(format!("a histogram is wanted, not \"{value}\"")) };
        let more = Histogram::decode(text).or_else(invalid)?;
        match &mut self.histogram {
            Some(known) => known.add_all(&more).or_else(invalid)?,
            None => {
                let bytes = more.memory_bytes();
                self.histogram = Some(Box::new(more));
                return Ok(bytes.div_ceil(SAMPLE_BYTES));
            }
        }
        Ok(0)
    }

    /// Adds a value, or the values of a sketch.
    pub(crate) fn add_distinct(&mut self, value: &Value, of_sketches: bool) -> Result<(), SqlError> {
        let sketch = self.distinct.get_or_insert_default();
        match value {
            Value::Text(text) if of_sketches => match DistinctSketch::decode(text) {
                Ok(other) => sketch.merge(&other),
                Err(reason) => return invalid(reason),
            },
            other if of_sketches => return invalid(format!("a sketch is wanted, not \"{other}\"")),
            Value::Text(text) => sketch.add_text(text),
            Value::Bool(value) => sketch.add_number(f64::from(u8::from(*value))),
            value => match (value.number(), value.time_ns()) {
                (Some(number), _) => sketch.add_number(number),
                (None, Some(ns)) => sketch.add_time(ns),
                (None, None) => sketch.add_text(&value.to_string()),
            },
        }
        Ok(())
    }
}

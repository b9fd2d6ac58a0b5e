//! Buckets of samples, and groups of series, by the rules of `RedisTimeSeries` (`TS.RANGE`, `TS.MRANGE … GROUPBY`).

mod accumulator;
mod buckets;

pub use accumulator::Aggregator;
pub use buckets::{BucketTime, Buckets};

use std::collections::BTreeMap;

use accumulator::Accumulator;

/// A sample: milliseconds since the Unix epoch, and its value.
pub type Sample = (i64, f64);

/// A row of a reply: a time and a value for each aggregator.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// As many as aggregators; one without.
    pub values: Vec<f64>,
}

/// The values of some series at the same times, made one each: in order of time.
pub fn reduce(series: &[Vec<Row>], reducer: Aggregator) -> Vec<Row> {
    let mut by_time: BTreeMap<i64, Accumulator> = BTreeMap::new();
    for row in series.iter().flatten() {
        let value = row.values.first().copied().unwrap_or(f64::NAN);
        by_time.entry(row.time_ms).or_default().push((row.time_ms, value));
    }
    let at_times = by_time.into_iter();
    at_times.map(|(time_ms, found)| Row { time_ms, values: vec![found.value(reducer)] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_are_reduced_at_equal_times() {
        let rows = |samples: &[Sample]| {
            samples.iter().map(|(time_ms, value)| Row { time_ms: *time_ms, values: vec![*value] }).collect::<Vec<_>>()
        };
        let series = [rows(&[(1, 1.0), (2, 5.0)]), rows(&[(2, 3.0), (4, 7.0)])];
        assert_eq!(reduce(&series, Aggregator::Sum), rows(&[(1, 1.0), (2, 8.0), (4, 7.0)]));
        assert_eq!(reduce(&series, Aggregator::Range), rows(&[(1, 0.0), (2, 2.0), (4, 0.0)]));
    }
}

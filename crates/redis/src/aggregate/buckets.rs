//! Samples in buckets of time.

use super::accumulator::Accumulator;
use super::{Aggregator, Row, Sample};

/// The time that a bucket is shown at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BucketTime {
    /// Its beginning.
    #[default]
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// How samples are put into buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Buckets {
    /// A value for each in every bucket.
    pub aggregators: Vec<Aggregator>,
    /// Milliseconds; above 0.
    pub width_ms: i64,
    /// A time at which a bucket begins, in milliseconds.
    pub align_ms: i64,
    /// The time that a bucket is shown at.
    pub time: BucketTime,
    /// True if buckets without samples between others are shown.
    pub with_empty: bool,
}

/// A bucket with its sums.
struct Bucket {
    start_ms: i64,
    sums: Accumulator,
    /// Its first and last samples that are numbers, as places among all samples.
    numbers: Option<(usize, usize)>,
}

impl Buckets {
    /// The beginning of the bucket of a time.
    pub const fn start_of(&self, time_ms: i64) -> i64 {
        time_ms.saturating_sub(time_ms.saturating_sub(self.align_ms).rem_euclid(self.width_ms))
    }

    const fn shown_ms(&self, start_ms: i64) -> i64 {
        let start = if start_ms < 0 { 0 } else { start_ms };
        match self.time {
            BucketTime::Start => start,
            BucketTime::Middle => start.saturating_add(self.width_ms / 2),
            BucketTime::End => start_ms.saturating_add(self.width_ms),
        }
    }

    /// How many rows there may be between two times.
    pub fn rows_between(&self, first_ms: i64, last_ms: i64) -> u64 {
        (last_ms.saturating_sub(first_ms).max(0) / self.width_ms) as u64 + 1
    }

    /// The rows of samples that are sorted by time.
    pub fn rows(&self, samples: &[Sample]) -> Vec<Row> {
        let buckets = self.cut(samples);
        let mut rows = Vec::with_capacity(buckets.len());
        for (place, bucket) in buckets.iter().enumerate() {
            if let Some(before) = place.checked_sub(1).and_then(|place| buckets.get(place)).filter(|_| self.with_empty)
            {
                let mut start_ms = before.start_ms.saturating_add(self.width_ms);
                while start_ms < bucket.start_ms {
                    rows.push(self.empty_row(start_ms, samples, (before, bucket)));
                    start_ms = start_ms.saturating_add(self.width_ms);
                }
            }
            let value = |aggregator: &Aggregator| match aggregator {
                Aggregator::Twa => weighted(samples, bucket, self.width_ms),
                other => bucket.sums.value(*other),
            };
            rows.push(Row {
                time_ms: self.shown_ms(bucket.start_ms),
                values: self.aggregators.iter().map(value).collect(),
            });
        }
        rows
    }

    /// Buckets that have a value for one of the aggregators.
    fn cut(&self, samples: &[Sample]) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for (place, (time_ms, value)) in samples.iter().enumerate() {
            let start_ms = self.start_of(*time_ms);
            if buckets.last().is_none_or(|last| last.start_ms != start_ms) {
                buckets.push(Bucket { start_ms, sums: Accumulator::default(), numbers: None });
            }
            let Some(bucket) = buckets.last_mut() else { continue };
            bucket.sums.push((*time_ms, *value));
            if !value.is_nan() {
                bucket.numbers = Some((bucket.numbers.map_or(place, |(first, _)| first), place));
            }
        }
        buckets.retain(|bucket| self.aggregators.iter().any(|aggregator| bucket.sums.has_value(*aggregator)));
        buckets
    }

    fn empty_row(&self, start_ms: i64, samples: &[Sample], (before, after): (&Bucket, &Bucket)) -> Row {
        let last = || before.numbers.and_then(|(_, last)| samples.get(last)).copied();
        let next = || after.numbers.and_then(|(first, _)| samples.get(first)).copied();
        let value = |aggregator: &Aggregator| match aggregator {
            Aggregator::Sum | Aggregator::Count | Aggregator::CountNan | Aggregator::CountAll => 0.0,
            Aggregator::Last => last().map_or(f64::NAN, |(_, value)| value),
            Aggregator::Twa => match (last(), next()) {
                (Some(last), Some(next)) => between(last, next, start_ms as f64 + self.width_ms as f64 / 2.0),
                _ => f64::NAN,
            },
            _ => f64::NAN,
        };
        Row { time_ms: self.shown_ms(start_ms), values: self.aggregators.iter().map(value).collect() }
    }
}

/// The value at a time on the line between two samples.
fn between((from_ms, from): Sample, (to_ms, to): Sample, time_ms: f64) -> f64 {
    if from_ms == to_ms {
        return to;
    }
    from + (to - from) * (time_ms - from_ms as f64) / (to_ms - from_ms) as f64
}

/// The mean of a bucket's values weighted by time: the area below the line through its samples, and to the samples before and after it where
/// there are any, over the time that the line covers.
fn weighted(samples: &[Sample], bucket: &Bucket, width_ms: i64) -> f64 {
    let Some((first, last)) = bucket.numbers else { return f64::NAN };
    let is_number = |sample: &&Sample| !sample.1.is_nan();
    let within = samples.get(first..=last).unwrap_or_default().iter().filter(is_number);
    let mut line: Vec<(f64, f64)> = within.map(|(time_ms, value)| (*time_ms as f64, *value)).collect();
    let (start, end) = (bucket.start_ms, bucket.start_ms.saturating_add(width_ms));
    if let (Some(before), Some(own)) = (samples.iter().take(first).rev().find(is_number), samples.get(first))
        && own.0 > start
    {
        line.insert(0, (start as f64, between(*before, *own, start as f64)));
    }
    if let (Some(after), Some(own)) = (samples.iter().skip(last + 1).find(is_number), samples.get(last)) {
        line.push((end as f64, between(*own, *after, end as f64)));
    }
    let (mut area, mut covered) = (0.0, 0.0);
    for pair in line.windows(2) {
        if let [(from_ms, from), (to_ms, to)] = pair {
            area += (from + to) / 2.0 * (to_ms - from_ms);
            covered += to_ms - from_ms;
        }
    }
    if covered == 0.0 { line.first().map_or(f64::NAN, |(_, value)| *value) } else { area / covered }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: [Sample; 5] = [(15, 1.0), (17, 4.0), (51, 3.0), (73, 5.0), (75, 3.0)];

    fn buckets(aggregators: &[Aggregator], align_ms: i64) -> Buckets {
        let aggregators = aggregators.to_vec();
        Buckets { aggregators, width_ms: 10, align_ms, time: BucketTime::Start, with_empty: false }
    }

    fn rows(buckets: &Buckets, samples: &[Sample]) -> Vec<(i64, Vec<f64>)> {
        buckets.rows(samples).into_iter().map(|row| (row.time_ms, row.values)).collect()
    }

    #[test]
    fn buckets_have_the_values_that_redis_gives() {
        let max = buckets(&[Aggregator::Max, Aggregator::Count], 0);
        assert_eq!(rows(&max, &SAMPLES), [(10, vec![4.0, 2.0]), (50, vec![3.0, 1.0]), (70, vec![5.0, 2.0])]);
        let end = Buckets { time: BucketTime::End, ..buckets(&[Aggregator::Max], 0) };
        assert_eq!(rows(&end, &SAMPLES), [(20, vec![4.0]), (60, vec![3.0]), (80, vec![5.0])]);
        // Buckets before the beginning of time are shown at its beginning.
        let ones: Vec<Sample> = (0..=10).map(|time| (time, 1.0)).collect();
        assert_eq!(rows(&buckets(&[Aggregator::Count], 5), &ones), [(0, vec![5.0]), (5, vec![6.0])]);
        assert_eq!(rows(&buckets(&[Aggregator::Count], 1), &ones), [(0, vec![1.0]), (1, vec![10.0])]);
    }

    #[test]
    fn empty_buckets_are_shown_where_asked_for() {
        let sums = Buckets { with_empty: true, ..buckets(&[Aggregator::Sum, Aggregator::Last], 0) };
        let found = rows(&sums, &SAMPLES);
        let expected = [
            (10, [5.0, 4.0]),
            (20, [0.0, 4.0]),
            (30, [0.0, 4.0]),
            (40, [0.0, 4.0]),
            (50, [3.0, 3.0]),
            (60, [0.0, 3.0]),
            (70, [8.0, 3.0]),
        ];
        assert_eq!(found, expected.map(|(time_ms, values)| (time_ms, values.to_vec())));
        let min = Buckets { with_empty: true, ..buckets(&[Aggregator::Min], 0) };
        assert!(min.rows(&SAMPLES)[1].values[0].is_nan());
    }

    #[test]
    fn means_are_weighted_by_time() {
        let samples: Vec<Sample> = (0..=10).map(|time| (time, (time % 7) as f64)).collect();
        assert_eq!(rows(&buckets(&[Aggregator::Twa], 0), &samples), [(0, vec![2.55]), (10, vec![3.0])]);
        // On the line from (5, 0) to (15, 10) the bucket from 10 begins with 5.
        assert_eq!(rows(&buckets(&[Aggregator::Twa], 0), &[(5, 0.0), (15, 10.0)])[1], (10, vec![7.5]));
    }
}

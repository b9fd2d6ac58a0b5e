//! Values of points by their order: the value of the nearest rank, and the most frequent one, as InfluxQL has them.

use std::cmp::Ordering;

use crate::Value;

/// A value of a time.
pub trait TimedValue {
    /// The time in nanoseconds.
    fn time_ns(&self) -> i64;

    /// The value.
    fn value(&self) -> &Value;
}

impl TimedValue for (i64, Value) {
    fn time_ns(&self) -> i64 {
        self.0
    }

    fn value(&self) -> &Value {
        &self.1
    }
}

/// Order by value, and where that is equal by time.
pub fn by_value<P: TimedValue>(a: &P, b: &P) -> Ordering {
    a.value().sort_order(b.value()).then(a.time_ns().cmp(&b.time_ns()))
}

/// The points in order of their values.
fn sorted<P: TimedValue>(points: &[P]) -> Vec<(usize, &P)> {
    let mut sorted: Vec<(usize, &P)> = points.iter().enumerate().collect();
    sorted.sort_by(|(_, a), (_, b)| by_value(*a, *b));
    sorted
}

/// The index of the point whose value has the rank that is nearest to some percent of all; `None` if that is none of theirs.
pub fn nearest_rank<P: TimedValue>(points: &[P], percent: f64) -> Option<usize> {
    let rank = (points.len() as f64 * percent / 100.0 + 0.5).floor() - 1.0;
    if rank < 0.0 || rank >= points.len() as f64 {
        return None;
    }
    sorted(points).get(rank as usize).map(|(index, _)| *index)
}

/// The most frequent value; where no value comes twice it is the smallest, as in InfluxDB. `None` without points.
pub fn mode<P: TimedValue>(points: &[P]) -> Option<&Value> {
    let sorted = sorted(points);
    let mut best: Option<(usize, i64, &Value)> = None;
    for run in sorted.chunk_by(|(_, a), (_, b)| a.value() == b.value()) {
        let ((_, first), (_, last)) = (run.first()?, run.last()?);
        // As InfluxDB has it: of booleans that are as many, true; of others one that begins before the one found so far ends.
        let is_true = matches!(first.value(), Value::Bool(true));
        let replaces = |end_ns: i64| is_true || run.len() > 1 && first.time_ns() <= end_ns;
        if best.is_none_or(|(most, end_ns, _)| run.len() > most || run.len() == most && replaces(end_ns)) {
            best = Some((run.len(), last.time_ns(), first.value()));
        }
    }
    best.map(|(.., value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[i64]) -> Vec<(i64, Value)> {
        (0..).zip(values.iter().map(|value| Value::Int(*value))).collect()
    }

    /// By the formula of InfluxDB 1.8: `floor(n * percent / 100 + 0.5) - 1`, from 0.
    #[test]
    fn ranks_are_those_of_influxdb() {
        let values = points(&[5, 1, 4, 1 << 60, (1 << 60) + 1]);
        for (percent, expected) in [
            (0.0, None),
            (9.9, None),
            (10.0, Some(1)),
            (50.0, Some(5)),
            (69.9, Some(5)),
            (70.0, Some(1 << 60)),
            (100.0, Some((1 << 60) + 1)),
            (110.0, None),
            (-20.0, None),
        ] {
            let found = nearest_rank(&values, percent).map(|index| values[index].1.clone());
            assert_eq!(found, expected.map(Value::Int), "{percent}");
        }
        assert_eq!(nearest_rank(&points(&[]), 50.0), None);
    }

    #[test]
    fn the_most_frequent_value_is_found() {
        for (values, expected) in [(&[3, 1, 2][..], 1), (&[3, 1, 3, 2], 3), (&[2, 1, 1, 2], 2), (&[1, 1, 2, 2], 1)] {
            assert_eq!(mode(&points(values)), Some(&Value::Int(expected)), "{values:?}");
        }
        let flags = [(0, Value::Bool(false)), (1, Value::Bool(true))];
        assert_eq!(mode(&flags), Some(&Value::Bool(true)));
        assert_eq!(mode(&points(&[])), None);
    }
}

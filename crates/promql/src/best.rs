//! The best samples of a group, for `topk` and `bottomk`. Which of equal ones stay hangs on how Prometheus keeps them: in a binary heap of
//! Go's `container/heap`, the worst at the root. So it does here.

use crate::rows::Sample;

/// A row's place, and its sample.
type Placed = (usize, Sample);

/// Ranges up to this length are sorted by insertion in Go's `sort.Sort`, so that equal ones keep their order.
const INSERTION_MAX: usize = 12;

/// Leaves so many of the largest or smallest floats, best first, and no histograms.
pub(crate) fn keep_best(samples: &mut Vec<Placed>, count: usize, largest: bool) {
    let mut best = Best { samples: Vec::with_capacity(count.min(samples.len())), largest };
    for sample in samples.drain(..) {
        best.offer(sample, count);
    }
    *samples = best.sorted();
}

struct Best {
    samples: Vec<Placed>,
    largest: bool,
}

impl Best {
    fn value(&self, place: usize) -> f64 {
        self.samples.get(place).and_then(|(_, sample)| sample.float()).unwrap_or(f64::NAN)
    }

    /// Whether one lies above another in the heap: it is worse, or NaN.
    fn is_above(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.value(a), self.value(b));
        a.is_nan() || if self.largest { a < b } else { a > b }
    }

    fn offer(&mut self, sample: Placed, count: usize) {
        let Some(value) = sample.1.float().filter(|_| count > 0) else { return };
        if self.samples.len() < count {
            self.samples.push(sample);
            self.lift();
            return;
        }
        let worst = self.value(0);
        let is_better = if self.largest { worst < value } else { worst > value };
        if is_better || (worst.is_nan() && !value.is_nan()) {
            if let Some(root) = self.samples.first_mut() {
                *root = sample;
            }
            self.sink();
        }
    }

    /// Moves the last one up to its place.
    fn lift(&mut self) {
        let mut at = self.samples.len() - 1;
        while at > 0 && self.is_above(at, (at - 1) / 2) {
            self.samples.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    /// Moves the first one down to its place.
    fn sink(&mut self) {
        let (mut at, end) = (0, self.samples.len());
        while 2 * at + 1 < end {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let child = if right < end && self.is_above(right, left) { right } else { left };
            if !self.is_above(child, at) {
                return;
            }
            self.samples.swap(at, child);
            at = child;
        }
    }

    /// Best first.
    fn sorted(mut self) -> Vec<Placed> {
        if self.samples.len() > INSERTION_MAX {
            let value = |(_, sample): &Placed| sample.float().unwrap_or(f64::NAN);
            self.samples.sort_by(|a, b| crate::aggregate::compare(value(a), value(b), self.largest));
            return self.samples;
        }
        for end in 1..self.samples.len() {
            let mut at = end;
            while at > 0 && self.is_above(at - 1, at) {
                self.samples.swap(at, at - 1);
                at -= 1;
            }
        }
        self.samples
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_equal_ones_those_stay_that_prometheus_keeps() {
        for (values, count, largest, expected) in [
            (vec![1.0, 3.0, 2.0], 2, true, vec![1, 2]),
            (vec![1.0, 3.0, 2.0], 2, false, vec![0, 2]),
            (vec![5.0, 5.0, 5.0], 2, true, vec![0, 1]),
            // The first of the equal ones is the root when the larger one comes.
            (vec![5.0, 5.0, 7.0], 2, true, vec![2, 1]),
            (vec![5.0, 5.0, 3.0], 2, false, vec![2, 1]),
            (vec![f64::NAN, 1.0, f64::NAN], 2, true, vec![1, 0]),
            (vec![1.0, 2.0], 0, true, vec![]),
            (vec![1.0, 2.0], 5, true, vec![1, 0]),
        ] {
            let mut samples: Vec<Placed> =
                values.iter().enumerate().map(|(place, value)| (place, Sample::Float(*value))).collect();
            keep_best(&mut samples, count, largest);
            let kept: Vec<usize> = samples.iter().map(|(place, _)| *place).collect();
            assert_eq!(kept, expected, "{values:?} {count} {largest}");
        }
    }
}

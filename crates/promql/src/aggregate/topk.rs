//! The largest or smallest samples of a group, for `topk` and `bottomk`. Which of equal samples are selected depends on Prometheus's data
//! structure: a binary heap of Go's `container/heap`, the worst at the root.

use crate::eval::rows::Sample;

/// A row's index, and its sample.
pub(crate) type IndexedSample = (usize, Sample);

/// Ranges up to this length are sorted by insertion in Go's `sort.Sort`, so equal elements keep their order.
const INSERTION_MAX: usize = 12;

/// Keeps the `count` largest or smallest floats, best first, and no histograms.
pub(crate) fn select_topk(samples: &mut Vec<IndexedSample>, count: usize, largest: bool) {
    let mut heap = TopKHeap { samples: Vec::with_capacity(count.min(samples.len())), largest };
    for sample in samples.drain(..) {
        heap.push(sample, count);
    }
    *samples = heap.into_sorted();
}

struct TopKHeap {
    samples: Vec<IndexedSample>,
    largest: bool,
}

impl TopKHeap {
    fn value(&self, index: usize) -> f64 {
        self.samples.get(index).and_then(|(_, sample)| sample.float()).unwrap_or(f64::NAN)
    }

    /// Returns whether `a` belongs above `b` in the heap: it is worse, or NaN.
    fn is_worse(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.value(a), self.value(b));
        a.is_nan() || if self.largest { a < b } else { a > b }
    }

    fn push(&mut self, sample: IndexedSample, count: usize) {
        let Some(value) = sample.1.float().filter(|_| count > 0) else { return };
        if self.samples.len() < count {
            self.samples.push(sample);
            self.sift_up();
            return;
        }
        let root_value = self.value(0);
        let is_better = if self.largest { root_value < value } else { root_value > value };
        if is_better || (root_value.is_nan() && !value.is_nan()) {
            if let Some(root) = self.samples.first_mut() {
                *root = sample;
            }
            self.sift_down();
        }
    }

    /// Moves the last sample up to its position.
    fn sift_up(&mut self) {
        let mut index = self.samples.len() - 1;
        while index > 0 && self.is_worse(index, (index - 1) / 2) {
            self.samples.swap(index, (index - 1) / 2);
            index = (index - 1) / 2;
        }
    }

    /// Moves the root down to its position.
    fn sift_down(&mut self) {
        let (mut index, end) = (0, self.samples.len());
        while 2 * index + 1 < end {
            let (left, right) = (2 * index + 1, 2 * index + 2);
            let child = if right < end && self.is_worse(right, left) { right } else { left };
            if !self.is_worse(child, index) {
                return;
            }
            self.samples.swap(index, child);
            index = child;
        }
    }

    /// Best first.
    fn into_sorted(mut self) -> Vec<IndexedSample> {
        if self.samples.len() > INSERTION_MAX {
            let value = |(_, sample): &IndexedSample| sample.float().unwrap_or(f64::NAN);
            self.samples.sort_by(|a, b| compare(value(a), value(b), self.largest));
            return self.samples;
        }
        for end in 1..self.samples.len() {
            let mut index = end;
            while index > 0 && self.is_worse(index - 1, index) {
                self.samples.swap(index, index - 1);
                index -= 1;
            }
        }
        self.samples
    }
}

/// Best first, NaN last.
pub(crate) fn compare(a: f64, b: f64, largest: bool) -> std::cmp::Ordering {
    let by_value = a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal);
    a.is_nan().cmp(&b.is_nan()).then(if largest { by_value.reverse() } else { by_value })
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
            let mut samples: Vec<IndexedSample> =
                values.iter().enumerate().map(|(index, value)| (index, Sample::Float(*value))).collect();
            select_topk(&mut samples, count, largest);
            let kept: Vec<usize> = samples.iter().map(|(index, _)| *index).collect();
            assert_eq!(kept, expected, "{values:?} {count} {largest}");
        }
    }
}

//! The k smallest distances.

/// A distance and what has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Match<K> {
    /// The distance.
    pub distance: f64,
    /// What has it; of two with one distance the smaller key comes first.
    pub key: K,
}

/// The k smallest distances that were offered.
#[derive(Debug, Clone)]
pub struct Best<K> {
    count: usize,
    /// In order.
    matches: Vec<Match<K>>,
}

impl<K: Ord + Copy> Best<K> {
    /// So many at most.
    pub const fn new(count: usize) -> Self {
        Self { count, matches: Vec::new() }
    }

    /// A distance that is larger than this one is not among the best: infinity until there are enough.
    pub fn limit(&self) -> f64 {
        if self.count == 0 {
            return f64::NEG_INFINITY;
        }
        self.matches.get(self.count - 1).map_or(f64::INFINITY, |last| last.distance)
    }

    /// Takes a match if it is among the best; returns whether it is. One without a distance never is.
    pub fn offer(&mut self, distance: f64, key: K) -> bool {
        if !distance.is_finite() || distance > self.limit() {
            return false;
        }
        let is_before =
            |known: &Match<K>| known.distance.total_cmp(&distance).then_with(|| known.key.cmp(&key)).is_lt();
        let index = self.matches.partition_point(is_before);
        if index >= self.count {
            return false;
        }
        self.matches.insert(index, Match { distance, key });
        self.matches.truncate(self.count);
        true
    }

    /// The best, the smallest distance first.
    pub fn matches(&self) -> &[Match<K>] {
        &self.matches
    }

    /// The best of two.
    pub fn merge(&mut self, other: &Self) {
        for found in &other.matches {
            self.offer(found.distance, found.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_best_are_the_first_in_order(distances in prop::collection::vec(0..20u8, 0..60), count in 0..9usize) {
            let mut best = Best::new(count);
            for (key, distance) in distances.iter().enumerate() {
                best.offer(if *distance == 0 { f64::INFINITY } else { f64::from(*distance) }, key);
            }
            let mut expected: Vec<(u8, usize)> = distances.into_iter().zip(0..).filter(|(distance, _)| *distance > 0).collect();
            expected.sort_unstable();
            expected.truncate(count);
            let matches: Vec<(u8, usize)> = best.matches().iter().map(|found| (found.distance as u8, found.key)).collect();
            prop_assert_eq!(matches, expected);
        }
    }
}

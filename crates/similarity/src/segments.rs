//! A bound from what summaries of segments say: their means, and their smallest and largest values. How much values of a segment vary is not known, but it
//! is not more than its extremes allow (Bhatia and Davis, 2000); of all variances that are possible the one counts that would bring the window nearest.

use crate::{Pattern, distance_of};

/// Known of the values of a segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Segment {
    /// Their mean.
    pub mean: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// A pattern as segments of windows are compared with it.
#[derive(Debug, Clone)]
pub struct SegmentQuery {
    width: usize,
    /// Values of a segment.
    length: f64,
    /// The pattern's means.
    means: Vec<f64>,
    /// The length of what they leave over.
    rest: f64,
}

impl SegmentQuery {
    /// For a pattern in so many segments of one length. `None` if it is constant or not normalised, or cannot be cut so.
    pub fn new(pattern: &Pattern, segments: usize) -> Option<Self> {
        let width = pattern.width();
        if segments == 0 || width % segments != 0 || pattern.is_constant() || !pattern.is_normalised() {
            return None;
        }
        let length = width / segments;
        let means: Vec<f64> =
            pattern.values().chunks(length).map(|values| values.iter().sum::<f64>() / length as f64).collect();
        let known: f64 = means.iter().map(|mean| mean * mean * length as f64).sum();
        Some(Self { width, length: length as f64, means, rest: (width as f64 - known).max(0.0).sqrt() })
    }

    /// How many segments a window has.
    pub const fn segments(&self) -> usize {
        self.means.len()
    }

    /// The least distance that a window of these segments can have.
    pub fn bound(&self, segments: &[Segment]) -> f64 {
        if segments.len() != self.means.len() {
            return 0.0;
        }
        let mean = segments.iter().map(|segment| segment.mean).sum::<f64>() / segments.len() as f64;
        let (mut between, mut within, mut product) = (0.0, 0.0, 0.0);
        for (segment, of_pattern) in segments.iter().zip(&self.means) {
            let from_mean = segment.mean - mean;
            between += self.length * from_mean * from_mean;
            within += self.length * ((segment.max - segment.mean) * (segment.mean - segment.min)).max(0.0);
            product += self.length * from_mean * of_pattern;
        }
        let most = within.sqrt();
        // Where the derivative of the correlation is nothing.
        let varies = if product > 0.0 { (self.rest * between / product).min(most) } else { most };
        let total = (between + varies * varies).sqrt();
        let count = self.width as f64;
        let correlation = (product + self.rest * varies) / total / count.sqrt();
        if !correlation.is_finite() {
            return 0.0;
        }
        // Means are sums of many values, which rounding changes a little.
        distance_of((correlation + 1e-9).min(1.0), self.width)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn segments(window: &[f64], length: usize) -> Vec<Segment> {
        let segment = |values: &[f64]| Segment {
            mean: values.iter().sum::<f64>() / values.len() as f64,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        window.chunks(length).map(segment).collect()
    }

    proptest! {
        #[test]
        fn bounds_are_never_above_the_distance(
            pairs in prop::collection::vec((-2.0..2.0f64, prop_oneof![9 => 5.0..6.0f64, 1 => Just(9.0)]), 24), slope in -1.0..1.0f64, count in 1..=24usize,
        ) {
            prop_assume!(24 % count == 0);
            let (pattern, window): (Vec<f64>, Vec<f64>) = pairs.into_iter().zip(0..).map(|((a, b), step)| (a + slope * f64::from(step), b)).unzip();
            let pattern = Pattern::new(&pattern, true).unwrap();
            let query = SegmentQuery::new(&pattern, count).unwrap();
            let bound = query.bound(&segments(&window, 24 / count));
            let distance = pattern.distance(&window, f64::INFINITY);
            prop_assert!(bound <= distance + 1e-6, "{} {}", bound, distance);
        }
    }

    #[test]
    fn smooth_windows_are_bounded_well() {
        let wave = |phase: f64| -> Vec<f64> { (0..240).map(|step| (f64::from(step) / 40.0 + phase).sin()).collect() };
        let pattern = Pattern::new(&wave(0.0), true).unwrap();
        let query = SegmentQuery::new(&pattern, 24).unwrap();
        let distance = pattern.distance(&wave(1.5), f64::INFINITY);
        let bound = query.bound(&segments(&wave(1.5), 10));
        assert!(bound > distance * 0.8, "{bound} {distance}");
        assert_eq!(query.bound(&segments(&[1.0; 240], 10)), 0.0);
        assert!(SegmentQuery::new(&pattern, 7).is_none());
    }
}

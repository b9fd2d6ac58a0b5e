//! Patterns, and their exact distances to windows.

use crate::Moments;

/// Values between two looks at whether a sum is too large already.
const LANES: usize = 8;

/// The distance of two normalised stretches of so many values from their correlation.
pub fn distance_of(correlation: f64, width: usize) -> f64 {
    (2.0 * width as f64 * (1.0 - correlation)).max(0.0).sqrt()
}

/// The correlation of two normalised stretches of so many values from their distance.
pub fn correlation_of(distance: f64, width: usize) -> f64 {
    (1.0 - distance * distance / (2.0 * width as f64)).max(-1.0)
}

/// A pattern to be looked for.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Normalised if distances are; all 0 then if it is constant.
    values: Vec<f64>,
    is_normalised: bool,
    is_constant: bool,
    squares: f64,
}

impl Pattern {
    /// A pattern of some values, which are compared as they are, or normalised as windows are. `None` if one is not finite, or there are none.
    pub fn new(values: &[f64], is_normalised: bool) -> Option<Self> {
        let moments = Moments::from_values(values);
        if !moments.is_defined() {
            return None;
        }
        let Moments { mean, deviation } = moments;
        let is_constant = moments.is_constant();
        let values: Vec<f64> = match (is_normalised, is_constant) {
            (false, _) => values.to_vec(),
            (true, true) => vec![0.0; values.len()],
            (true, false) => values.iter().map(|value| (value - mean) / deviation).collect(),
        };
        let squares = values.iter().map(|value| value * value).sum();
        Some(Self { values, is_normalised, is_constant, squares })
    }

    /// Its values as they are compared.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// How many values it has.
    pub const fn width(&self) -> usize {
        self.values.len()
    }

    /// Returns whether it and windows are normalised before they are compared.
    pub const fn is_normalised(&self) -> bool {
        self.is_normalised
    }

    /// Returns whether all its values are the same.
    pub const fn is_constant(&self) -> bool {
        self.is_constant
    }

    /// The sum of the squares of its values as they are compared.
    pub(crate) const fn squares(&self) -> f64 {
        self.squares
    }

    /// The distance to a window of as many values; infinity if it has none, or if it is more than a limit, as is mostly known sooner.
    pub fn distance(&self, window: &[f64], limit: f64) -> f64 {
        let moments = Moments::from_values(window);
        if window.len() != self.width() || !moments.is_defined() {
            return f64::INFINITY;
        }
        self.distance_with(window, moments, limit)
    }

    /// As [`Self::distance`], given the window's moments, which are defined.
    pub(crate) fn distance_with(&self, window: &[f64], moments: Moments, limit: f64) -> f64 {
        let distance = if !self.is_normalised {
            squared(&self.values, window, (0.0, 1.0), limit).sqrt()
        } else if self.is_constant || moments.is_constant() {
            constant_distance(self.is_constant, moments.is_constant(), self.width())
        } else {
            squared(&self.values, window, (moments.mean, moments.deviation), limit).sqrt()
        };
        if distance <= limit { distance } else { f64::INFINITY }
    }

    /// Looks at a window as [`Self::distance`] does, but first at its correlation, which costs less and says of most windows that they are
    /// farther away than a limit.
    pub fn distance_soon(&self, window: &[f64], limit: f64) -> f64 {
        if !self.is_normalised || self.is_constant || window.len() != self.width() {
            return self.distance(window, limit);
        }
        let [sum, squares, product] = sums(&self.values, window);
        let count = self.width() as f64;
        let mean = sum / count;
        let (variance, scale) = (squares / count - mean * mean, squares / count);
        // What rounding may have made of the sums, relative to what is left of them.
        let slack = 1e-15 * count * scale;
        let is_clear = variance > 1e3 * slack && limit.is_finite();
        if !is_clear {
            return self.distance(window, limit);
        }
        let correlation = product / count / variance.sqrt();
        let error = 4.0 * slack / variance + 1e-12;
        if 2.0 * count * (1.0 - correlation - error) > limit * limit {
            return f64::INFINITY;
        }
        self.distance(window, limit)
    }
}

/// The distance of two normalised stretches of which one at least is constant.
pub(crate) fn constant_distance(one: bool, other: bool, width: usize) -> f64 {
    if one && other { 0.0 } else { (width as f64).sqrt() }
}

/// The sum of a window's values, of their squares, and of their products with a pattern's.
fn sums(pattern: &[f64], window: &[f64]) -> [f64; 3] {
    let [mut sum, mut squares, mut product] = [[0.0; LANES]; 3];
    let (patterns, windows) = (pattern.chunks_exact(LANES), window.chunks_exact(LANES));
    let (rest, of_window) = (patterns.remainder(), windows.remainder());
    for (pattern, window) in patterns.zip(windows) {
        for lane in 0..LANES {
            sum[lane] += window[lane];
            squares[lane] += window[lane] * window[lane];
            product[lane] += window[lane] * pattern[lane];
        }
    }
    let mut totals = [sum, squares, product].map(|lanes| lanes.iter().sum::<f64>());
    for (pattern, window) in rest.iter().zip(of_window) {
        totals[0] += window;
        totals[1] += window * window;
        totals[2] += window * pattern;
    }
    totals
}

/// The squared distance of a pattern and of a window that is normalised on the way; infinity once it is more than that of a limit.
fn squared(pattern: &[f64], window: &[f64], (mean, deviation): (f64, f64), limit: f64) -> f64 {
    const BLOCK: usize = 64;
    // Rounding must not drop what lies just at the limit.
    let most = limit * limit * (1.0 + 1e-12);
    let mut total = 0.0;
    for (pattern, window) in pattern.chunks(BLOCK).zip(window.chunks(BLOCK)) {
        let difference = |(pattern, value): (&f64, &f64)| (pattern - (value - mean) / deviation).powi(2);
        total += pattern.iter().zip(window).map(difference).sum::<f64>();
        if total > most {
            return f64::INFINITY;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition, by the letter.
    fn plain(pattern: &[f64], window: &[f64], is_normalised: bool) -> f64 {
        let normalised = |values: &[f64]| -> Vec<f64> {
            let count = values.len() as f64;
            let mean = values.iter().sum::<f64>() / count;
            let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
            values.iter().map(|value| (value - mean) / deviation).collect()
        };
        let (pattern, window) =
            if is_normalised { (normalised(pattern), normalised(window)) } else { (pattern.to_vec(), window.to_vec()) };
        pattern.iter().zip(&window).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
    }

    proptest! {
        #[test]
        fn distances_are_those_of_the_definition(
            pairs in prop::collection::vec((-9.0..9.0f64, 90.0..110.0f64), 3..150), is_normalised: bool,
        ) {
            let (pattern, window): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let expected = plain(&pattern, &window, is_normalised);
            let pattern = Pattern::new(&pattern, is_normalised).unwrap();
            for distance in [pattern.distance(&window, f64::INFINITY), pattern.distance_soon(&window, expected * 1.01)] {
                prop_assert!((distance - expected).abs() < 1e-10 * (1.0 + expected));
            }
            for distance in [pattern.distance(&window, expected * 0.99), pattern.distance_soon(&window, expected * 0.99)] {
                prop_assert_eq!(distance, f64::INFINITY);
            }
            if is_normalised {
                let width = window.len();
                prop_assert!((distance_of(correlation_of(expected, width), width) - expected).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn constants_and_gaps_are_as_stumpy_has_them() {
        let (ramp, flat) = ([1.0, 2.0, 3.0, 4.0], [7.0; 4]);
        let distance = |pattern: &[f64], window: &[f64]| {
            let pattern = Pattern::new(pattern, true).unwrap();
            let soon = pattern.distance_soon(window, 1e9);
            assert_eq!(pattern.distance(window, f64::INFINITY), soon);
            soon
        };
        assert_eq!(distance(&flat, &[9.0; 4]), 0.0);
        assert_eq!(distance(&flat, &ramp), 2.0);
        assert_eq!(distance(&ramp, &flat), 2.0);
        assert_eq!(distance(&ramp, &[1.0, f64::NAN, 3.0, 4.0]), f64::INFINITY);
        assert_eq!(distance(&ramp, &[1.0, 2.0, 3.0, f64::NEG_INFINITY]), f64::INFINITY);
        assert_eq!(distance(&ramp, &[1.0, 2.0]), f64::INFINITY);
        assert!(Pattern::new(&[1.0, f64::NAN], true).is_none());
        assert!(Pattern::new(&[], true).is_none());
    }
}

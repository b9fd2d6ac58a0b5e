//! Dynamic time warping within a Sakoe-Chiba band: the smallest Euclidean distance of two stretches of one length if values may be matched with
//! neighbours up to so many steps away. Lower bounds come first, the cheapest of them foremost.
//!
//! Bounds and the order of their use: Rakthanmanon et al., "Searching and Mining Trillions of Time Series Subsequences under Dynamic Time Warping", 2012.

use std::collections::VecDeque;

use crate::{Moments, Pattern};

/// The distance of two stretches as they are; infinity if it is more than a limit, or their lengths differ.
pub fn dtw(one: &[f64], other: &[f64], band: usize, limit: f64) -> f64 {
    let mut rows = Rows::default();
    if one.len() == other.len() { rows.distance(one, other, band, &[], limit) } else { f64::INFINITY }
}

/// A pattern to be looked for by dynamic time warping.
#[derive(Debug, Clone)]
pub struct DtwPattern {
    pattern: Pattern,
    band: usize,
    /// The largest and the smallest value within the band around each.
    upper: Vec<f64>,
    lower: Vec<f64>,
    window: Vec<f64>,
    /// What the values from each on add to the distance at least, squared.
    rest: Vec<f64>,
    rows: Rows,
}

impl DtwPattern {
    /// A pattern whose values may be matched with neighbours up to `band` steps away.
    pub fn new(pattern: Pattern, band: usize) -> Self {
        let band = band.min(pattern.width().saturating_sub(1));
        let upper = extremes(pattern.values(), band, |new, old| new >= old);
        let lower = extremes(pattern.values(), band, |new, old| new <= old);
        Self { pattern, band, upper, lower, window: Vec::new(), rest: Vec::new(), rows: Rows::default() }
    }

    /// The pattern.
    pub const fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The distance to a window of as many values; infinity if it has none, or if it is more than a limit. A constant window is normalised to zeros.
    pub fn distance(&mut self, window: &[f64], limit: f64) -> f64 {
        let Moments { mean, deviation } = Moments::from_values(window);
        if window.len() != self.pattern.width() || !deviation.is_finite() {
            return f64::INFINITY;
        }
        self.window.clear();
        match (self.pattern.is_normalised(), deviation > 0.0) {
            (false, _) => self.window.extend_from_slice(window),
            (true, false) => self.window.resize(window.len(), 0.0),
            (true, true) => self.window.extend(window.iter().map(|value| (value - mean) / deviation)),
        }
        let most = squared_limit(limit);
        if self.bound_of_ends() > most || self.bound_of_envelope() > most {
            return f64::INFINITY;
        }
        self.rows.distance(self.pattern.values(), &self.window, self.band, &self.rest, limit)
    }

    /// `LB_Kim`, as far as it is cheap: the ends are matched with one another in any case.
    fn bound_of_ends(&self) -> f64 {
        let (pattern, window) = (self.pattern.values(), self.window.as_slice());
        let (Some(first), Some(last)) = (pattern.first().zip(window.first()), pattern.last().zip(window.last())) else {
            return 0.0;
        };
        let first = (first.0 - first.1).powi(2);
        if pattern.len() == 1 { first } else { first + (last.0 - last.1).powi(2) }
    }

    /// `LB_Keogh`: what of the window is outside of all that it can be matched with.
    fn bound_of_envelope(&mut self) -> f64 {
        self.rest.clear();
        let envelope = self.upper.iter().zip(&self.lower);
        self.rest.extend(self.window.iter().zip(envelope).map(|(value, (upper, lower))| {
            let outside = (value - upper).max(lower - value).max(0.0);
            outside * outside
        }));
        let mut sum = 0.0;
        for rest in self.rest.iter_mut().rev() {
            sum += *rest;
            *rest = sum;
        }
        sum
    }
}

/// Rounding must not drop what lies just at the limit.
fn squared_limit(limit: f64) -> f64 {
    limit * limit * (1.0 + 1e-12)
}

/// The extreme value within `band` of each, by a queue of candidates (Lemire, 2009).
fn extremes(values: &[f64], band: usize, beats: impl Fn(f64, f64) -> bool) -> Vec<f64> {
    let mut queue: VecDeque<(usize, f64)> = VecDeque::new();
    let mut coming = values.iter().copied().enumerate();
    let mut all = Vec::with_capacity(values.len());
    for index in 0..values.len() {
        let reach = if index == 0 { band + 1 } else { 1 };
        for (at, value) in coming.by_ref().take(reach) {
            while queue.back().is_some_and(|(_, old)| beats(value, *old)) {
                queue.pop_back();
            }
            queue.push_back((at, value));
        }
        while queue.front().is_some_and(|(at, _)| at + band < index) {
            queue.pop_front();
        }
        all.extend(queue.front().map(|(_, value)| *value));
    }
    all
}

/// Two rows of the matrix of squared distances, of the part within the band.
#[derive(Debug, Clone, Default)]
struct Rows {
    before: Vec<f64>,
    now: Vec<f64>,
}

impl Rows {
    /// `rest` holds what the other's values from each on add at least; it may be empty.
    fn distance(&mut self, one: &[f64], other: &[f64], band: usize, rest: &[f64], limit: f64) -> f64 {
        let (count, most) = (one.len(), squared_limit(limit));
        let band = band.min(count);
        for row in [&mut self.before, &mut self.now] {
            row.clear();
            row.resize(count + 1, f64::INFINITY);
        }
        // Row and column 0 stand before the values.
        if let Some(corner) = self.before.first_mut() {
            *corner = 0.0;
        }
        for (row, value) in one.iter().enumerate() {
            let (first, end) = (row.saturating_sub(band), (row + band + 1).min(count));
            let mut left = f64::INFINITY;
            let mut smallest = f64::INFINITY;
            if let Some(outside) = self.now.get_mut(first) {
                *outside = f64::INFINITY;
            }
            let columns = self.before.get(first..=end).unwrap_or_default();
            let targets = self.now.get_mut(first + 1..=end).unwrap_or_default();
            let others = other.get(first..end).unwrap_or_default();
            for ((target, other), above) in targets.iter_mut().zip(others).zip(columns.windows(2)) {
                let [diagonal, above] = above else { continue };
                left = (value - other).powi(2) + diagonal.min(*above).min(left);
                *target = left;
                smallest = smallest.min(left);
            }
            if let Some(outside) = self.now.get_mut(end + 1) {
                *outside = f64::INFINITY;
            }
            // Columns beyond the band have not been matched with anything yet.
            let coming = rest.get(end).copied().unwrap_or(0.0);
            if smallest + coming > most {
                return f64::INFINITY;
            }
            std::mem::swap(&mut self.before, &mut self.now);
        }
        let distance = self.before.last().copied().unwrap_or(0.0).sqrt();
        if distance <= limit { distance } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The definition: the whole matrix.
    fn plain(one: &[f64], other: &[f64], band: usize) -> f64 {
        let count = one.len();
        let mut matrix = vec![vec![f64::INFINITY; count + 1]; count + 1];
        matrix[0][0] = 0.0;
        for row in 1..=count {
            for column in 1..=count {
                if row.abs_diff(column) <= band {
                    let best = matrix[row - 1][column].min(matrix[row][column - 1]).min(matrix[row - 1][column - 1]);
                    matrix[row][column] = (one[row - 1] - other[column - 1]).powi(2) + best;
                }
            }
        }
        matrix[count][count].sqrt()
    }

    fn normalised(values: &[f64]) -> Vec<f64> {
        Pattern::new(values, true).unwrap().values().to_vec()
    }

    proptest! {
        #[test]
        fn it_is_the_matrix_of_the_definition(
            pairs in prop::collection::vec((-5.0..5.0f64, 40.0..50.0f64), 1..60), band in 0..70usize, is_normalised: bool,
        ) {
            let (one, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let expected =
                if is_normalised { plain(&normalised(&one), &normalised(&other), band) } else { plain(&one, &other, band) };
            let mut pattern = DtwPattern::new(Pattern::new(&one, is_normalised).unwrap(), band);
            let distance = pattern.distance(&other, f64::INFINITY);
            prop_assert!((distance - expected).abs() <= 1e-10 * (1.0 + expected), "{} {}", distance, expected);
            // Bounds drop nothing that is within the limit, and what is beyond it is never told.
            prop_assert_eq!(pattern.distance(&other, distance), distance);
            prop_assert_eq!(pattern.distance(&other, distance * 0.999 - 1e-9), f64::INFINITY);
            if !is_normalised {
                prop_assert_eq!(dtw(&one, &other, band, f64::INFINITY), distance);
            }
        }

        #[test]
        fn extremes_are_those_within_the_band(values in prop::collection::vec(0..9u8, 0..40), band in 0..12usize) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let expected: Vec<f64> = (0..values.len())
                .map(|index| values[index.saturating_sub(band)..(index + band + 1).min(values.len())].iter().copied().fold(0.0, f64::max))
                .collect();
            prop_assert_eq!(extremes(&values, band, |new, old| new >= old), expected);
        }
    }

    #[test]
    fn gaps_have_no_distance_and_constants_are_zeros() {
        let mut pattern = DtwPattern::new(Pattern::new(&[1.0, 2.0, 3.0, 4.0], true).unwrap(), 1);
        assert_eq!(pattern.distance(&[1.0, f64::NAN, 3.0, 4.0], f64::INFINITY), f64::INFINITY);
        assert_eq!(pattern.distance(&[1.0, 2.0], f64::INFINITY), f64::INFINITY);
        assert!((pattern.distance(&[5.0; 4], f64::INFINITY) - 2.0).abs() < 1e-12);
        assert_eq!(dtw(&[], &[], 3, f64::INFINITY), 0.0);
        assert_eq!(dtw(&[1.0], &[], 3, f64::INFINITY), f64::INFINITY);
    }
}

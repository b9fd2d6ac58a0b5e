//! Mean and deviation, of one stretch and of every window of a series.

/// A window's sum of squares is computed anew once it is so many times less than it was: what is left of the larger one is rounding.
const SHRINKS_MAX: f64 = 1000.0;

/// Windows after which sums are computed anew at the latest.
const ROLLED_MAX: usize = 512;

/// Mean and deviation of a stretch. Both are NaN if one of its values is not finite, or the sums are not.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moments {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the whole population; exactly 0 of a constant stretch, and of no other.
    pub deviation: f64,
}

impl Moments {
    /// Those of a stretch that has none.
    pub const UNDEFINED: Self = Self { mean: f64::NAN, deviation: f64::NAN };

    /// Of some values; undefined of none.
    pub fn from_values(values: &[f64]) -> Self {
        let Some(first) = values.first().filter(|_| values.iter().all(|value| value.is_finite())) else {
            return Self::UNDEFINED;
        };
        if values.iter().all(|value| value == first) {
            return Self { mean: *first, deviation: 0.0 };
        }
        let count = values.len() as f64;
        let rough = values.iter().sum::<f64>() / count;
        let mean = rough + values.iter().map(|value| value - rough).sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Self::new(mean, squares, count)
    }

    /// Of a stretch that is not constant.
    fn new(mean: f64, squares: f64, count: f64) -> Self {
        // Values that differ in their last bits alone have squares that may be nothing.
        let deviation = (squares / count).sqrt().max(f64::MIN_POSITIVE);
        if mean.is_finite() && deviation.is_finite() { Self { mean, deviation } } else { Self::UNDEFINED }
    }

    /// Returns whether there is a mean and a deviation.
    pub const fn is_defined(self) -> bool {
        self.deviation.is_finite()
    }

    /// Returns whether all values are the same.
    pub const fn is_constant(self) -> bool {
        self.deviation == 0.0
    }
}

/// The moments of every window of so many values, by where it begins; none if the series is shorter.
pub fn moments_of_windows(values: &[f64], width: usize) -> Vec<Moments> {
    let Some(windows) = (values.len() + 1).checked_sub(width).filter(|_| width > 0) else { return Vec::new() };
    let mut all = Vec::with_capacity(windows);
    let mut rolling = Rolling::default();
    for (end, value) in values.iter().enumerate() {
        rolling.note(*value, end.checked_sub(1).and_then(|before| values.get(before)));
        let Some(first) = (end + 1).checked_sub(width) else { continue };
        let window = values.get(first..=end).unwrap_or_default();
        let left = first.checked_sub(1).and_then(|before| values.get(before)).copied();
        all.push(rolling.step(window, left));
    }
    all
}

/// Sums that roll along a series.
#[derive(Default)]
struct Rolling {
    /// Values up to now that are all finite, and that are all the same.
    finite: usize,
    equal: usize,
    /// Of the window before, if it had moments: mean, sum of squares around it, the largest such sum since it was computed, windows since then.
    sums: Option<(f64, f64, f64, usize)>,
}

impl Rolling {
    fn note(&mut self, value: f64, before: Option<&f64>) {
        self.finite = if value.is_finite() { self.finite + 1 } else { 0 };
        self.equal = if before == Some(&value) { self.equal + 1 } else { 1 };
    }

    /// The moments of the next window, given the value that left it.
    fn step(&mut self, window: &[f64], left: Option<f64>) -> Moments {
        if self.finite < window.len() {
            self.sums = None;
            return Moments::UNDEFINED;
        }
        let count = window.len() as f64;
        if let (Some((mean, squares, peak, rolled)), Some(left), Some(new)) = (self.sums, left, window.last()) {
            let next = mean + (new - left) / count;
            let squares = squares + (new - left) * ((new - next) + (left - mean));
            let peak = peak.max(squares);
            if squares * SHRINKS_MAX > peak && rolled < ROLLED_MAX {
                self.sums = Some((next, squares, peak, rolled + 1));
                return self.moments(window, next, squares);
            }
        }
        let exact = Moments::from_values(window);
        let squares = exact.deviation * exact.deviation * count;
        self.sums = exact.is_defined().then_some((exact.mean, squares, squares, 0));
        exact
    }

    fn moments(&self, window: &[f64], mean: f64, squares: f64) -> Moments {
        match window.first() {
            Some(first) if self.equal >= window.len() => Moments { mean: *first, deviation: 0.0 },
            _ => Moments::new(mean, squares, window.len() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Sums that roll give what each window gives by itself, whatever jumps, constant stretches and gaps there are.
        #[test]
        fn rolling_is_computing_anew(
            values in prop::collection::vec(prop_oneof![
                6 => -1.0..1.0f64, 2 => Just(3.0), 2 => 1e6..1.001e6f64, 1 => Just(1e12), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)
            ], 0..300),
            width in 1..40usize,
        ) {
            let rolled = moments_of_windows(&values, width);
            let expected: Vec<Moments> = values.windows(width).map(Moments::from_values).collect();
            prop_assert_eq!(rolled.len(), expected.len());
            for (rolled, expected) in rolled.into_iter().zip(expected) {
                prop_assert_eq!(rolled.is_defined(), expected.is_defined());
                prop_assert_eq!(rolled.is_constant(), expected.is_constant());
                if expected.is_defined() {
                    prop_assert!((rolled.mean - expected.mean).abs() <= 1e-11 * (1.0 + expected.mean.abs() + expected.deviation));
                    let scale = expected.deviation.max(expected.mean.abs() * 1e-3).max(1e-300);
                    prop_assert!((rolled.deviation - expected.deviation).abs() <= 1e-9 * scale);
                }
            }
        }
    }

    #[test]
    fn extremes_have_moments_or_none() {
        assert!(!Moments::from_values(&[]).is_defined());
        assert!(!Moments::from_values(&[f64::MAX, f64::MAX, -f64::MAX]).is_constant());
        assert_eq!(Moments::from_values(&[f64::MAX; 3]), Moments { mean: f64::MAX, deviation: 0.0 });
        let tiny = Moments::from_values(&[0.0, f64::from_bits(1)]);
        assert!(tiny.is_defined() && !tiny.is_constant());
        assert_eq!(moments_of_windows(&[1.0], 2), Vec::new());
        assert_eq!(moments_of_windows(&[1.0], 0), Vec::new());
    }
}

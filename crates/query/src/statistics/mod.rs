//! Statistics of numbers, for the aggregates of plans, SQL and InfluxQL · [`ranked`]: values by their order · [`line`]: areas under lines

pub mod line;
pub mod ranked;

/// The variance; of a sample rather than a population if one value is left `without`. `None` with too few values.
pub fn variance(values: &[f64], without: usize) -> Option<f64> {
    let divisor = values.len().checked_sub(without).filter(|divisor| *divisor > 0)?;
    Some(squared_deviations(values) / divisor as f64)
}

/// The sum of the squared deviations of values from their mean.
pub fn squared_deviations(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// How many values there are, their mean, and the sum of their squared deviations from it. Those of two sets of values make those of both (Chan,
/// Golub and `LeVeque`, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ValueMoments {
    /// How many.
    pub count: f64,
    /// Their mean.
    pub mean: f64,
    /// The sum of their squared deviations from the mean.
    pub squares: f64,
}

impl ValueMoments {
    /// Of values of which the sum is known; `None` without values.
    pub fn of_sum(count: f64, sum: f64, squares: f64) -> Option<Self> {
        (count > 0.0).then(|| Self { count, mean: sum / count, squares })
    }

    /// Adds those of other values.
    pub fn merge(&mut self, other: &Self) {
        if self.count == 0.0 {
            *self = *other;
        } else if other.count > 0.0 {
            let (count, distance) = (self.count + other.count, other.mean - self.mean);
            self.mean += distance * other.count / count;
            self.squares += other.squares + distance.powi(2) * self.count * other.count / count;
            self.count = count;
        }
    }
}

/// Sorts numbers. NaN is above all others, whatever its sign, as in SQL: zero by zero has one on some processors.
pub fn sort(values: &mut [f64]) {
    values.sort_unstable_by(|a, b| a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)));
}

/// The value below which this share of sorted values lies, between two values in proportion; `None` without values.
pub fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = share * sorted.len().saturating_sub(1) as f64;
    let (below, above) = (*sorted.get(rank.floor() as usize)?, *sorted.get(rank.ceil() as usize)?);
    // Not computed where it is a value: infinities have no difference.
    Some(if rank.fract() == 0.0 { below } else { below + (above - below) * rank.fract() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_above_all_numbers() {
        let mut values = [2.0, -f64::NAN, f64::INFINITY, f64::NAN, -1.0, -0.0, 0.0];
        sort(&mut values);
        assert_eq!(values[..5], [-1.0, -0.0, 0.0, 2.0, f64::INFINITY]);
        assert!(values[1].is_sign_negative() && values[5..].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn quantiles_lie_between_values_in_proportion() {
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.1, 1.3)] {
            let found = quantile(&[1.0, 2.0, 3.0, 4.0], share).unwrap();
            assert!((found - expected).abs() < 1e-12, "{share}: {found}");
        }
        assert!(quantile(&[], 0.5).is_none());
    }

    #[test]
    fn moments_of_parts_are_those_of_all() {
        // A mean that is large beside the deviations: sums of squares would lose them.
        let values: Vec<f64> = (0..100).map(|number| 1e9 + f64::from(number * number % 37)).collect();
        for size in [1, 7, 50, 100] {
            let mut merged = ValueMoments::default();
            for part in values.chunks(size) {
                let (count, sum) = (part.len() as f64, part.iter().sum());
                merged.merge(&ValueMoments::of_sum(count, sum, squared_deviations(part)).unwrap());
            }
            merged.merge(&ValueMoments::default());
            let expected = squared_deviations(&values);
            assert!((merged.squares - expected).abs() < expected * 1e-6, "{size}: {merged:?} {expected}");
            assert!((merged.count - 100.0).abs() < 1e-9);
        }
        assert_eq!(ValueMoments::of_sum(0.0, 0.0, 0.0), None);
    }
}

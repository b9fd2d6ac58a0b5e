//! Statistics of numbers, for the aggregates of plans, SQL and InfluxQL.

/// The variance; of a sample rather than a population if one value is left `without`. `None` with too few values.
pub fn variance(values: &[f64], without: usize) -> Option<f64> {
    let divisor = values.len().checked_sub(without).filter(|divisor| *divisor > 0)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Some(values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / divisor as f64)
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
    fn quantiles_lie_between_values_in_proportion() {
        for (share, expected) in [(0.0, 1.0), (0.5, 2.5), (1.0, 4.0), (0.1, 1.3)] {
            let found = quantile(&[1.0, 2.0, 3.0, 4.0], share).unwrap();
            assert!((found - expected).abs() < 1e-12, "{share}: {found}");
        }
        assert!(quantile(&[], 0.5).is_none());
    }
}

//! The buckets of VictoriaMetrics's histograms: eighteen for each power of ten from 1e-9 to 1e18, one below and one above. A bucket has its
//! upper bound, and not its lower one.

use std::f64::consts::LOG10_E;

const BUCKETS_PER_DECIMAL: u32 = 18;

/// Buckets with two bounds above zero.
const INNER_BUCKETS: u32 = 27 * BUCKETS_PER_DECIMAL;

const EXPONENT_MIN: f64 = -9.0;

/// What a bound is multiplied by to become the next one: the eighteenth root of ten.
const STEP: f64 = 1.136_463_666_385_724_8;

/// The number of the bucket that has a value; the first one is that of the smallest values. Values below zero and NaN are in none.
pub(crate) fn bucket_of(value: f64) -> Option<u32> {
    if value.is_nan() || value < 0.0 {
        return None;
    }
    // By the natural logarithm, as Go has the one to base ten: a value next to a bound is in the same bucket.
    let place = (value.ln() * LOG10_E - EXPONENT_MIN) * f64::from(BUCKETS_PER_DECIMAL);
    if place < 0.0 {
        return Some(0);
    }
    if place >= f64::from(INNER_BUCKETS) {
        return Some(INNER_BUCKETS + 1);
    }
    let floor = place as u32;
    #[expect(clippy::float_cmp, reason = "a value just on a bound belongs to the bucket below")]
    let is_bound = place == f64::from(floor) && floor > 0;
    Some(if is_bound { floor } else { floor + 1 })
}

/// The bounds of a bucket as a text, such as `8.799e-01...1.000e+00`.
pub(crate) fn bounds_text(bucket: u32) -> String {
    let bound = |number: u32| scientific((0..number).fold(1e-9, |bound, _| bound * STEP));
    match bucket {
        0 => format!("0...{}", scientific(1e-9)),
        inner if inner <= INNER_BUCKETS => format!("{}...{}", bound(inner - 1), bound(inner)),
        _ => format!("{}...+Inf", scientific(1e18)),
    }
}

/// With three digits after the point, and an exponent with a sign and at least two digits.
fn scientific(value: f64) -> String {
    let text = format!("{value:.3e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds_of(value: f64) -> Option<String> {
        bucket_of(value).map(bounds_text)
    }

    #[test]
    fn values_are_in_the_buckets_that_victoriametrics_puts_them_into() {
        for (value, expected) in [
            (0.0, Some("0...1.000e-09")),
            (-0.0, Some("0...1.000e-09")),
            (5e-324, Some("0...1.000e-09")),
            (9.9e-10, Some("0...1.000e-09")),
            (1.0, Some("8.799e-01...1.000e+00")),
            (1.01, Some("1.000e+00...1.136e+00")),
            (10.0, Some("8.799e+00...1.000e+01")),
            (50.0, Some("4.642e+01...5.275e+01")),
            (1e-9, Some("1.000e-09...1.136e-09")),
            (1e-8, Some("8.799e-09...1.000e-08")),
            (1e3, Some("8.799e+02...1.000e+03")),
            (1e17, Some("8.799e+16...1.000e+17")),
            (1e18, Some("1.000e+18...+Inf")),
            (2e18, Some("1.000e+18...+Inf")),
            (f64::INFINITY, Some("1.000e+18...+Inf")),
            (-1.0, None),
            (f64::NEG_INFINITY, None),
            (f64::NAN, None),
        ] {
            assert_eq!(bounds_of(value).as_deref(), expected, "{value}");
        }
    }

    #[test]
    fn buckets_follow_each_other() {
        let upper = |bucket| bounds_text(bucket).split_once("...").map(|(_, upper)| upper.to_owned());
        let lower = |bucket| bounds_text(bucket).split_once("...").map(|(lower, _)| lower.to_owned());
        for bucket in 0..=INNER_BUCKETS {
            assert_eq!(upper(bucket), lower(bucket + 1), "{bucket}");
        }
        let mut before = 0;
        for place in -1_000..2_000 {
            let bucket = bucket_of(10f64.powf(f64::from(place) / 100.0)).unwrap();
            assert!(bucket == before || bucket == before + 1, "{place}");
            before = bucket;
        }
    }
}

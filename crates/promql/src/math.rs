//! Functions of numbers where Go and Rust differ at the edges.

/// The larger number; infinity beats NaN, NaN beats the rest.
pub(crate) fn maximum(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.max(b)
    }
}

/// The smaller number; negative infinity beats NaN, NaN beats the rest.
pub(crate) fn minimum(a: f64, b: f64) -> f64 {
    if a == f64::NEG_INFINITY || b == f64::NEG_INFINITY {
        f64::NEG_INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else {
        a.min(b)
    }
}

/// The whole number, as processors convert: what is none, or too large, becomes the smallest.
pub(crate) fn whole(value: f64) -> i64 {
    if value.is_nan() || value >= i64::MAX as f64 { i64::MIN } else { value as i64 }
}

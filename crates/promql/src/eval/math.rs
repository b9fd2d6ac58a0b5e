//! Functions of one number.

use crate::syntax::functions::MathFunction;

/// The whole number, as processors convert: what is none, or too large, becomes the smallest.
pub(crate) fn whole(value: f64) -> i64 {
    if value.is_nan() || value >= i64::MAX as f64 { i64::MIN } else { value as i64 }
}

impl MathFunction {
    /// The function itself.
    pub(crate) fn apply(self) -> fn(f64) -> f64 {
        match self {
            Self::Abs => f64::abs,
            Self::Acos => f64::acos,
            Self::Acosh => f64::acosh,
            Self::Asin => f64::asin,
            Self::Asinh => f64::asinh,
            Self::Atan => f64::atan,
            Self::Atanh => f64::atanh,
            Self::Ceil => f64::ceil,
            Self::Cos => f64::cos,
            Self::Cosh => f64::cosh,
            Self::Degrees => |value| value * 180.0 / std::f64::consts::PI,
            Self::Exp => f64::exp,
            Self::Floor => f64::floor,
            Self::Ln => f64::ln,
            Self::Log10 => f64::log10,
            Self::Log2 => f64::log2,
            Self::Radians => |value| value * std::f64::consts::PI / 180.0,
            Self::Sign => sign,
            Self::Sin => f64::sin,
            Self::Sinh => f64::sinh,
            Self::SquareRoot => f64::sqrt,
            Self::Tan => f64::tan,
            Self::Tanh => f64::tanh,
        }
    }
}

/// -1, 1, or the value itself if it is zero or not a number.
fn sign(value: f64) -> f64 {
    if value < 0.0 {
        -1.0
    } else if value > 0.0 {
        1.0
    } else {
        value
    }
}

//! A few Fourier coefficients of a normalised series, and the length of what they leave over, bound its distance to another from below.
//!
//! Agrawal et al., "Efficient Similarity Search in Sequence Databases", 1993.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{RealFftPlanner, RealToComplex};

use crate::Pattern;

/// Coefficients after that of the mean, which is 0.
const COEFFICIENTS: usize = 8;

/// Makes spectra of series of one length.
pub struct Spectra {
    forward: Arc<dyn RealToComplex<f64>>,
    values: Vec<f64>,
    transformed: Vec<Complex<f64>>,
}

/// The first coefficients of a series, scaled so that distances are those of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spectrum {
    coefficients: [Complex<f64>; COEFFICIENTS],
    /// The length of what they leave over.
    rest: f64,
}

impl std::fmt::Debug for Spectra {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Spectra").field("width", &self.values.len()).finish_non_exhaustive()
    }
}

impl Spectra {
    /// Of series of so many values.
    pub fn new(width: usize) -> Self {
        let forward = RealFftPlanner::new().plan_fft_forward(width.max(1));
        let (values, transformed) = (forward.make_input_vec(), forward.make_output_vec());
        Self { forward, values, transformed }
    }

    /// The spectrum of a pattern of as many values.
    pub fn spectrum(&mut self, pattern: &Pattern) -> Spectrum {
        self.values.fill(0.0);
        self.values.iter_mut().zip(pattern.values()).for_each(|(to, from)| *to = *from);
        let _ = self.forward.process(&mut self.values, &mut self.transformed);
        let width = self.values.len() as f64;
        let mut coefficients = [Complex::new(0.0, 0.0); COEFFICIENTS];
        let mut length = 0.0;
        // Each stands for its mirror image, too; the one in the middle of an even width has none, and is counted as if it were halved.
        let scale = (2.0 / width).sqrt();
        let middle = self.values.len() / 2;
        for (number, (to, from)) in (1..).zip(coefficients.iter_mut().zip(self.transformed.iter().skip(1))) {
            let is_single = self.values.len().is_multiple_of(2) && number == middle;
            *to = from * if is_single { scale / std::f64::consts::SQRT_2 } else { scale };
            length += to.norm_sqr();
        }
        Spectrum { coefficients, rest: (pattern.squares() - length).max(0.0).sqrt() }
    }
}

impl Spectrum {
    /// The least distance that two series with these spectra can have.
    pub fn bound(&self, other: &Self) -> f64 {
        let pairs = self.coefficients.iter().zip(&other.coefficients);
        let known: f64 = pairs.map(|(one, other)| (one - other).norm_sqr()).sum();
        // Of what is left over a little may be rounding.
        let rest = ((self.rest - other.rest).abs() - 1e-6 * (1.0 + self.rest + other.rest)).max(0.0);
        (known + rest * rest).sqrt() * (1.0 - 1e-9)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bounds_are_never_above_the_distance(pairs in prop::collection::vec((-2.0..2.0f64, 5.0..6.0f64), 1..120)) {
            let (one, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let [one, other] = [one, other].map(|values| Pattern::new(&values, true).unwrap());
            let mut spectra = Spectra::new(one.width());
            let bound = spectra.spectrum(&one).bound(&spectra.spectrum(&other));
            let pairs = one.values().iter().zip(other.values());
            let distance = pairs.map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
            prop_assert!(bound <= distance + 1e-9, "{} {}", bound, distance);
            if one.width() <= 16 {
                prop_assert!(bound >= distance - 1e-4, "all coefficients are there: {} {}", bound, distance);
            }
        }
    }
}

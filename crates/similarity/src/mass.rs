//! The distances of a pattern to every window of a series: Mueen's Algorithm for Similarity Search. Dot products come from Fourier transforms of
//! overlapping blocks; those that rounding may have spoilt are computed directly.
//!
//! Mueen et al., "The Fastest Similarity Search Algorithm for Time Series Subsequences under Euclidean Distance", 2017.

use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

use crate::moments::moments_of_windows;
use crate::pattern::constant_distance;
use crate::{Moments, Pattern};

/// Patterns of fewer values are multiplied directly.
const WIDTH_MIN: usize = 48;

/// A block has so many times as many values as the pattern, and so many at least.
const BLOCK_WIDTHS: usize = 8;
const BLOCK_MIN: usize = 4096;

/// The most by which a correlation may be off: where more is possible, it is computed directly.
pub(crate) const CORRELATION_ERROR: f64 = 1e-11;

/// A pattern, ready to be compared with many series.
pub struct Mass {
    pattern: Pattern,
    /// Taken from the values of pattern and windows where they are not normalised.
    shift: f64,
    block: usize,
    forward: Arc<dyn RealToComplex<f64>>,
    inverse: Arc<dyn ComplexToReal<f64>>,
    /// Of the pattern, turned round, with 1/block in it.
    spectrum: Vec<Complex<f64>>,
    values: Vec<f64>,
    transformed: Vec<Complex<f64>>,
}

impl std::fmt::Debug for Mass {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Mass").field("pattern", &self.pattern).field("block", &self.block).finish_non_exhaustive()
    }
}

impl Mass {
    /// Prepares a pattern for series of about so many values.
    pub fn new(pattern: Pattern, series_values: usize) -> Self {
        let block = block_of(pattern.width(), series_values);
        let mut planner = RealFftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(block), planner.plan_fft_inverse(block));
        let shift = if pattern.is_normalised() { 0.0 } else { Moments::from_values(pattern.values()).mean };
        let mut values = vec![0.0; block];
        for (to, from) in values.iter_mut().zip(pattern.values().iter().rev()) {
            *to = (from - shift) / block as f64;
        }
        let mut spectrum = forward.make_output_vec();
        // Lengths are those that the plan made; there is nothing else that can fail.
        let _ = forward.process(&mut values, &mut spectrum);
        let transformed = forward.make_output_vec();
        Self { pattern, shift, block, forward, inverse, spectrum, values, transformed }
    }

    /// Bytes that it takes for a pattern and series of so many values, with what it returns.
    pub const fn memory_bytes(width: usize, series_values: usize) -> usize {
        block_of(width, series_values) * 40 + series_values * 32
    }

    /// The pattern.
    pub const fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The distance to every window of a series, by where it begins; infinity where there is none. `check` is asked whether to go on.
    ///
    /// # Errors
    /// What `check` gives.
    pub fn distances<E>(&mut self, series: &[f64], check: &dyn Fn() -> Result<(), E>) -> Result<Vec<f64>, E> {
        let width = self.pattern.width();
        check()?;
        let moments = moments_of_windows(series, width);
        if self.pattern.is_constant() && self.pattern.is_normalised() {
            let distance = |moments: &Moments| {
                if moments.is_defined() { constant_distance(true, moments.is_constant(), width) } else { f64::INFINITY }
            };
            return Ok(moments.iter().map(distance).collect());
        }
        let mut direct = Direct { check, left: 0 };
        let mut distances = Vec::with_capacity(moments.len());
        if width < WIDTH_MIN || moments.len() < width / 4 {
            for window in series.windows(width) {
                direct.note(width)?;
                distances.push(self.pattern.distance(window, f64::INFINITY));
            }
            return Ok(distances);
        }
        // A block's first windows lie in the one before: so many of its products are whole.
        let whole = self.block - width + 1;
        for (number, of_windows) in moments.chunks(whole).enumerate() {
            let first = number * whole;
            check()?;
            let error = self.multiply(series.get(first..).unwrap_or_default());
            let products = self.values.get(width - 1..).unwrap_or_default();
            for (offset, (moments, product)) in of_windows.iter().zip(products).enumerate() {
                let distance = match self.distance(*moments, *product, error) {
                    Some(distance) => distance,
                    None => {
                        direct.note(width)?;
                        let window = series.get(first + offset..first + offset + width).unwrap_or_default();
                        self.pattern.distance(window, f64::INFINITY)
                    }
                };
                distances.push(distance);
            }
        }
        Ok(distances)
    }

    /// The distance to a window, given the product and how far off that may be; `None` if it has to be computed directly.
    fn distance(&self, moments: Moments, product: f64, error: f64) -> Option<f64> {
        let count = self.pattern.width() as f64;
        let Moments { mean, deviation } = moments;
        if !moments.is_defined() {
            return Some(f64::INFINITY);
        }
        if !self.pattern.is_normalised() {
            let of_pattern = self.pattern.squares() - count * self.shift * self.shift;
            let of_window = count * (deviation * deviation + (mean - self.shift).powi(2));
            let squared = of_pattern + of_window - 2.0 * product;
            let rounding = error + 1e-15 * (self.pattern.squares() + of_window);
            return (squared >= rounding / CORRELATION_ERROR).then(|| squared.sqrt());
        }
        if moments.is_constant() {
            return Some(constant_distance(false, true, self.pattern.width()));
        }
        let is_good = error <= CORRELATION_ERROR * count * deviation;
        is_good.then(|| crate::distance_of(product / (count * deviation), self.pattern.width()))
    }

    /// Leaves the products of the pattern with the windows that end in a block of a series; returns how far off they may be.
    fn multiply(&mut self, series: &[f64]) -> f64 {
        let series = series.get(..self.block.min(series.len())).unwrap_or_default();
        let shift = if self.pattern.is_normalised() { mean_of_finite(series) } else { self.shift };
        self.values.fill(0.0);
        let mut squares = 0.0;
        for (to, from) in self.values.iter_mut().zip(series).filter(|(_, from)| from.is_finite()) {
            *to = from - shift;
            squares += *to * *to;
        }
        let _ = self.forward.process(&mut self.values, &mut self.transformed);
        for (to, factor) in self.transformed.iter_mut().zip(&self.spectrum) {
            *to *= factor;
        }
        // Of a real product these are real.
        if let Some(first) = self.transformed.first_mut() {
            first.im = 0.0;
        }
        if let Some(last) = self.transformed.last_mut() {
            last.im = 0.0;
        }
        let _ = self.inverse.process(&mut self.transformed, &mut self.values);
        let shifted = self.pattern.squares().max(1.0);
        f64::EPSILON * (self.block as f64).log2() * (squares * shifted).sqrt()
    }
}

/// Values that are compared directly until it is asked whether to go on.
const DIRECT_VALUES: usize = 1 << 22;

/// Counts values that are compared directly: that takes long where there are many.
pub(crate) struct Direct<'c, E> {
    pub(crate) check: &'c dyn Fn() -> Result<(), E>,
    pub(crate) left: usize,
}

impl<E> Direct<'_, E> {
    /// Notes that so many are compared next.
    pub(crate) fn note(&mut self, values: usize) -> Result<(), E> {
        if let Some(left) = self.left.checked_sub(values) {
            self.left = left;
            return Ok(());
        }
        self.left = DIRECT_VALUES;
        (self.check)()
    }
}

/// Values that are transformed at once.
const fn block_of(width: usize, series_values: usize) -> usize {
    let (wide, least) = ((width * BLOCK_WIDTHS).next_power_of_two(), BLOCK_MIN);
    let most = if series_values < width { width } else { series_values }.next_power_of_two();
    let most = if most < 2 * width.next_power_of_two() { 2 * width.next_power_of_two() } else { most };
    let wished = if wide < least { least } else { wide };
    if wished < most { wished } else { most }
}

fn mean_of_finite(values: &[f64]) -> f64 {
    let finite = values.iter().filter(|value| value.is_finite());
    let (sum, count) = finite.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    let mean = sum / count;
    if mean.is_finite() { mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distances(pattern: &Pattern, series: &[f64]) -> Vec<f64> {
        Mass::new(pattern.clone(), series.len()).distances(series, &|| Ok::<_, ()>(())).unwrap()
    }

    fn check(series: &[f64], pattern: &[f64], is_normalised: bool) {
        let Some(pattern) = Pattern::new(pattern, is_normalised) else { return };
        let found = distances(&pattern, series);
        let expected: Vec<f64> =
            series.windows(pattern.width()).map(|window| pattern.distance(window, f64::INFINITY)).collect();
        assert_eq!(found.len(), expected.len());
        for (offset, (found, expected)) in found.into_iter().zip(expected).enumerate() {
            if expected.is_finite() {
                let width = pattern.width() as f64;
                let scale = if is_normalised { width } else { pattern.squares() + expected * expected };
                assert!(
                    (found * found - expected * expected).abs() < 1e-10 * (1.0 + scale),
                    "{offset}: {found} {expected}"
                );
            } else {
                assert_eq!(found, expected, "{offset}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever a series has in it: levels, spikes, constant stretches, gaps.
        #[test]
        fn transforms_are_as_good_as_sums(
            series in prop::collection::vec(prop_oneof![
                20 => -1.0..1.0f64, 10 => 1e6..1.0001e6f64, 1 => Just(1e9), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY)
            ], 200..700),
            flat in 0..150usize, from in 0..100usize, width in 2..150usize, is_normalised: bool,
        ) {
            let mut series = series;
            for value in series.iter_mut().skip(120).take(flat) {
                *value = 5.0;
            }
            let pattern: Vec<f64> = series.iter().copied().filter(|value| value.is_finite()).skip(from).take(width).collect();
            check(&series, &pattern, is_normalised);
        }
    }

    #[test]
    fn what_takes_long_can_be_stopped() {
        let series: Vec<f64> = (0..24_000).map(|place| f64::from(place * place % 1009)).collect();
        let pattern = Pattern::new(&series[..20_000], true).unwrap();
        let asked = std::cell::Cell::new(0);
        let check = || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Ok(()) } else { Err("stopped") }
        };
        assert_eq!(Mass::new(pattern, series.len()).distances(&series, &check), Err("stopped"));
        // A constant pattern needs no look at the values of each window.
        let flat = Pattern::new(&vec![7.0; 20_000], true).unwrap();
        let found = distances(&flat, &series);
        assert!(found.len() == 4_001 && found.iter().all(|distance| *distance == 20_000_f64.sqrt()));
    }

    #[test]
    fn long_series_are_cut_into_blocks() {
        let series: Vec<f64> =
            (0..20_000).map(|place| f64::from(place * place % 1009) + f64::from(place) * 0.01).collect();
        for width in [48, 100, 511, 512, 513, 3000] {
            check(&series, &series[7000..7000 + width], true);
            check(&series, &series[7000..7000 + width], false);
        }
        check(&series[..60], &series[..50], true);
        assert!(distances(&Pattern::new(&series[..100], true).unwrap(), &series[..50]).is_empty());
    }
}

//! The common factor of a column: timestamps in nanoseconds that are whole milliseconds lose a million, sizes in bytes
//! that are whole pages lose 4096.

/// Makes (value − first) ÷ factor of all values, and returns the factor: the greatest common divisor of those differences. The
/// factor is 1 where a difference does not fit an `i64`; it wraps around then.
pub(super) fn scale(values: &mut [i64]) -> u64 {
    let first = values.first().copied().unwrap_or(0);
    let fit = differences_fit(values);
    values.iter_mut().for_each(|value| *value = value.wrapping_sub(first));
    if !fit {
        return 1;
    }
    let mut divisor = ExactDivisor::new(0);
    for difference in values.iter() {
        if !divisor.divides(*difference) {
            divisor = ExactDivisor::new(greatest_common_divisor(difference.unsigned_abs(), divisor.value));
            if divisor.value == 1 {
                return 1;
            }
        }
    }
    values.iter_mut().for_each(|difference| *difference = divisor.divide(*difference));
    divisor.value.max(1)
}

/// Whether the difference of any two values fits an `i64`.
fn differences_fit(values: &[i64]) -> bool {
    // Quick where all magnitudes are below 2^62, and most are.
    let magnitudes = values.iter().fold(0, |union, value| union | (value ^ (value >> 63)));
    if magnitudes >> 62 == 0 {
        return true;
    }
    let smallest = values.iter().copied().min().unwrap_or(0);
    let largest = values.iter().copied().max().unwrap_or(0);
    largest.checked_sub(smallest).is_some()
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Divides multiples by a shift and a multiplication with the inverse modulo 2^64, which is several times quicker than a
/// division.
struct ExactDivisor {
    value: u64,
    shift: u32,
    inverse: i64,
    /// Largest quotient that a magnitude can have.
    quotient_max: u64,
}

impl ExactDivisor {
    fn new(value: u64) -> Self {
        let shift = value.trailing_zeros() % 64;
        let odd = value >> shift;
        // Newton's iteration doubles the right bits: 3, 6, 12, 24, 48, 96.
        let mut inverse = odd;
        for _ in 0..5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        }
        let quotient_max = (1u64 << 63).checked_div(value).unwrap_or(0);
        Self { value, shift, inverse: inverse as i64, quotient_max }
    }

    fn divides(&self, number: i64) -> bool {
        let shifted_out = number & ((1 << self.shift) - 1);
        let divides = shifted_out == 0 && self.divide(number).unsigned_abs() <= self.quotient_max;
        if self.value == 0 { number == 0 } else { divides }
    }

    fn divide(&self, multiple: i64) -> i64 {
        (multiple >> self.shift).wrapping_mul(self.inverse)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn divides_what_is_divisible(value in 1u64..1 << 63, factor in any::<i64>(), small in 1u64..10_000) {
            for divisor in [value, small, small << 40] {
                let exact = ExactDivisor::new(divisor);
                prop_assert_eq!(exact.divides(factor), factor.unsigned_abs().is_multiple_of(divisor));
                let multiple = factor / divisor as i64 * divisor as i64;
                prop_assert_eq!(exact.divide(multiple), factor / divisor as i64);
            }
        }

        #[test]
        fn the_factor_is_found(numbers in proptest::collection::vec(-1000i64..1000, 2..50), factor in 1i64..1_000_000_000, base: i32) {
            let values: Vec<i64> = numbers.iter().map(|number| i64::from(base) + number * factor).collect();
            let mut scaled = values.clone();
            let found = scale(&mut scaled);
            prop_assert!(scaled.iter().all(|number| *number == 0) || found.is_multiple_of(factor as u64));
            for (value, number) in values.iter().zip(&scaled) {
                prop_assert_eq!(*value, values[0] + number * found as i64);
            }
        }
    }
}

//! How generated values move. Only integer arithmetic and exact floats, so that a seed means the same everywhere.

use std::fmt::Write;

/// A seeded source of chance: `SplitMix64` (Steele, Lea, Flood 2014), small and the same for ever.
#[derive(Debug, Clone)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Even between 0 and 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normal with mean 0 and deviation 1: the sum of twelve even numbers, which needs no logarithm.
    pub(crate) fn normal(&mut self) -> f64 {
        let mut sum = 0;
        for _ in 0..3 {
            let bits = self.next();
            sum += [0, 16, 32, 48].map(|shift| i64::from((bits >> shift) as u16)).iter().sum::<i64>();
        }
        (sum - 6 * 65_535) as f64 / 65_536.0
    }

    /// One of the items; they are not empty.
    pub(crate) fn one_of<'a>(&mut self, items: &[&'a str]) -> &'a str {
        let place = (self.uniform() * items.len() as f64) as usize;
        items.get(place).copied().unwrap_or_default()
    }

    /// A whole number from 0 up to, not including, `end`.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        (self.uniform() * f64::from(end)) as u32
    }
}

/// How a field moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Shape {
    /// Walks by normal steps of this deviation between bounds.
    Gauge {
        /// Lowest value.
        low: f64,
        /// Highest value.
        high: f64,
        /// Deviation of a step.
        step: f64,
    },
    /// As a gauge, but written as a float.
    Ratio {
        /// Highest value; the lowest is 0.
        high: f64,
        /// Deviation of a step.
        step: f64,
    },
    /// Goes up by the size of normal steps of this deviation.
    Counter {
        /// Deviation of a step.
        step: f64,
    },
    /// Stays.
    Constant(i64),
}

/// A field's value now.
#[derive(Debug, Clone)]
pub(crate) struct Walk {
    shape: Shape,
    value: f64,
}

impl Walk {
    pub(crate) fn new(shape: Shape, chance: &mut Chance) -> Self {
        let value = match shape {
            Shape::Gauge { low, high, .. } => low + (high - low) * chance.uniform(),
            Shape::Ratio { high, .. } => high * chance.uniform(),
            Shape::Counter { .. } => 0.0,
            Shape::Constant(value) => value as f64,
        };
        Self { shape, value }
    }

    /// Moves on.
    pub(crate) fn step(&mut self, chance: &mut Chance) {
        match self.shape {
            Shape::Gauge { low, high, step } => self.value = (self.value + chance.normal() * step).clamp(low, high),
            Shape::Ratio { high, step } => self.value = (self.value + chance.normal() * step).clamp(0.0, high),
            Shape::Counter { step } => self.value += (chance.normal() * step).abs(),
            Shape::Constant(_) => {}
        }
    }

    /// The value.
    pub(crate) fn number(&self) -> f64 {
        self.value
    }

    /// Writes the value as line protocol has it.
    pub(crate) fn write(&self, out: &mut String) {
        // Writing into a string does not fail.
        let _ = match self.shape {
            Shape::Ratio { .. } => write!(out, "{}", self.written()),
            _ => write!(out, "{}i", self.value as i64),
        };
    }

    /// The number that line protocol has for the value.
    pub(crate) fn written(&self) -> f64 {
        match self.shape {
            Shape::Ratio { .. } => (self.value * 100.0).round() / 100.0,
            _ => self.value.trunc(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_those_of_a_normal_walk() {
        let mut chance = Chance::new(1);
        let mut walk = Walk::new(Shape::Gauge { low: 0.0, high: 100.0, step: 1.0 }, &mut chance);
        let mut values = Vec::new();
        for _ in 0..100_000 {
            values.push(walk.value as i64);
            walk.step(&mut chance);
        }
        let share = |step: i64| values.windows(2).filter(|pair| pair[1] - pair[0] == step).count() as f64 / 100_000.0;
        // The suite's first differences: 37.5 % zeros, 23.9 % each of ±1, 6.6 % each of ±2.
        let shares = [share(0), share(1), share(-1), share(2)];
        let close = |seen: f64, expected: f64| (seen - expected).abs() < 0.01;
        assert!(
            shares.iter().zip([0.375, 0.239, 0.239, 0.066]).all(|(seen, expected)| close(*seen, expected)),
            "{shares:?}"
        );
    }
}

//! Counters of domains: a few with very many queries, most with very few, in no order.

use std::fmt::Write;

use store::EpochNames;

/// The smallest mean of a domain's counter: with it a quarter of the domains have no query in a day, as in the paper's table 2.
const MEAN_MIN: f64 = 0.75;

/// How steeply popularity falls with rank.
const SKEW: f64 = 0.8;

/// Counters up to this mean are drawn by inversion, larger ones as normal.
const POISSON_MAX: f64 = 12.0;

/// A domain's name.
pub(super) fn name(number: u32) -> String {
    let mut mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let length = 4 + (mixed % 9) as usize;
    let mut text = String::with_capacity(24);
    for _ in 0..length {
        text.push(char::from(b'a' + (mixed % 26) as u8));
        mixed = mixed / 26 + u64::from(number) * 7;
    }
    // Writing to a String cannot fail.
    let _ = write!(text, "{number:x}.it");
    text
}

pub(super) fn names(count: u32) -> EpochNames {
    let mut names = EpochNames::default();
    (0..count).for_each(|number| names.push(&name(number)));
    names
}

/// A number below a bound, scattered and always the same.
pub(super) fn scattered(number: u32, bound: u32) -> u32 {
    ((u64::from(number) * 2_654_435_761 + 12_345) % u64::from(bound.max(1))) as u32
}

/// The counters of all domains, epoch by epoch.
pub(super) struct Counters {
    /// Each domain's mean, and the share of epochs in which it has none.
    means: Vec<(f32, f32)>,
    state: u64,
}

impl Counters {
    pub(super) fn new(count: u32, scale: f64) -> Self {
        let mean = |number: u32| {
            // A rank of each, in no order.
            let rank = (u64::from(number) * 1_000_003 % u64::from(count)) as f64 + 1.0;
            let mean = scale * MEAN_MIN * (f64::from(count) / rank).powf(SKEW);
            (mean as f32, (-mean).exp() as f32)
        };
        Self { means: (0..count).map(mean).collect(), state: 42 }
    }

    pub(super) fn next_epoch(&mut self) -> Vec<i64> {
        let Self { means, state } = self;
        means.iter().map(|(mean, none)| draw(f64::from(*mean), f64::from(*none), state)).collect()
    }
}

/// A number between 0 and 1.
fn chance(state: &mut u64) -> f64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 11) as f64 / (1u64 << 53) as f64
}

/// A counter with a mean, as Poisson's distribution has it.
fn draw(mean: f64, none: f64, state: &mut u64) -> i64 {
    if mean > POISSON_MAX {
        let normal = (0..4).map(|_| chance(state)).sum::<f64>() - 2.0;
        return (mean + normal * 1.732 * mean.sqrt()).round().max(0.0) as i64;
    }
    let (mut left, mut share, mut count) = (chance(state) - none, none, 0);
    while left > 0.0 && count < 100 {
        count += 1;
        share *= mean / count as f64;
        left -= share;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_skewed_around_their_means() {
        let mut counters = Counters::new(10_000, 1.0);
        let epochs: Vec<Vec<i64>> = (0..20).map(|_| counters.next_epoch()).collect();
        let mut sums: Vec<i64> = (0..10_000).map(|domain| epochs.iter().map(|epoch| epoch[domain]).sum()).collect();
        sums.sort_unstable();
        assert!((15..35).contains(&sums[5_000]), "{}", sums[5_000]);
        assert!(sums[9_999] > 20_000, "{}", sums[9_999]);
        let mut all: Vec<String> = (0..10_000).map(name).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 10_000);
    }
}

//! Which transform a column gets, and whether it is entropy-coded: found on a few stretches of it.

use crate::{Effort, patched, tokens::Estimate};

use super::transform::Transform;

/// Values a stretch: a block's.
const STRETCH_VALUES: usize = patched::BLOCK_VALUES;

/// Stretches of a column that are looked at, at most.
const STRETCHES_MAX: usize = 8;

/// Transforms are tried on one in so many stretches first, but on no more than this.
const FEW_PART: usize = 4;
const FEW_STRETCHES_MAX: usize = 2;

/// What takes so much more than the best on a few stretches is not tried on the others.
const HOPELESS_SHARE: f64 = 0.06;

/// A transform without neighbours decodes faster and lets one value be reached alone: it may cost this much more.
const NEIGHBOURLESS_BONUS_BITS: f64 = 0.25;

/// Entropy-coded values decode more slowly than packed ones: they must be at least this much smaller.
const ENTROPY_SHARE_MAX: f64 = 0.97;

/// Of fewer values the table of shares takes what entropy-coding saves.
const ENTROPY_VALUES_MIN: usize = 64;

/// Numbers whose median is the center, at most: near it is near enough.
const MEDIAN_SAMPLES: usize = 64;

/// How a column is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) transform: Transform,
    /// What entropy-coded numbers lie around; `None` if they are packed.
    pub(super) center: Option<i64>,
}

impl Choice {
    /// Of scaled numbers, at least three.
    pub(super) fn for_numbers(scaled: &[i64], effort: Effort) -> Self {
        match effort {
            Effort::Fast => Self { transform: quick(scaled), center: None },
            Effort::Small => Self::smallest(scaled),
        }
    }

    /// Of scaled numbers whose neighbours have nothing to do with one another.
    pub(super) fn unordered(scaled: &[i64]) -> Self {
        Self { transform: Transform::Frame, center: Stretches::new(scaled.len()).bits(scaled, Transform::Frame).1 }
    }

    fn smallest(scaled: &[i64]) -> Self {
        let mut transforms = vec![
            Transform::Differences,
            Transform::Frame,
            Transform::SecondDifferences(scaled.get(1).copied().unwrap_or(0)),
        ];
        transforms.extend(steps(scaled).into_iter().flatten().map(Transform::Linear));
        let stretches = Stretches::new(scaled.len());
        if let Some(few) = stretches.few() {
            let bits = |transform: &Transform| few.bits(scaled, *transform).0 - bonus_bits(*transform);
            let mut probed: Vec<f64> = transforms.iter().map(bits).collect();
            let least = probed.iter().copied().fold(f64::INFINITY, f64::min);
            let mut probed = probed.drain(..);
            transforms.retain(|_| probed.next().is_some_and(|bits| bits <= least + least.abs() * HOPELESS_SHARE));
        }
        let mut best = (f64::INFINITY, Self { transform: Transform::Frame, center: None });
        for transform in transforms {
            let (bits, center) = stretches.bits(scaled, transform);
            let bits = bits - bonus_bits(transform);
            if bits < best.0 {
                best = (bits, Self { transform, center });
            }
        }
        best.1
    }
}

/// What a transform is given in advance.
fn bonus_bits(transform: Transform) -> f64 {
    if transform.number() <= Transform::LINEAR_NUMBER { NEIGHBOURLESS_BONUS_BITS } else { 0.0 }
}

/// Values of the stretches that a quick choice looks at, and how many of those.
const QUICK_VALUES: usize = 32;
const QUICK_STRETCHES: usize = 3;

/// Up to so many bits a value no other transform is tried in a hurry.
const NARROW_BITS: f64 = 2.0;

/// Columns of fewer values are not tried as distances to a grid in a hurry.
const GRID_VALUES_MIN: usize = 64;

/// The transform whose numbers are narrowest in a few short stretches, without packing any.
fn quick(scaled: &[i64]) -> Transform {
    let count = scaled.len();
    if count < GRID_VALUES_MIN {
        return quick_short(scaled);
    }
    let climbs = climbs(scaled);
    let room = count - QUICK_VALUES;
    let starts: [usize; QUICK_STRETCHES] = std::array::from_fn(|part| room * part / (QUICK_STRETCHES - 1));
    let bits = |transform: Transform| {
        let mut numbers = [0; QUICK_VALUES * QUICK_STRETCHES];
        let mut bits = 0;
        for (start, numbers) in starts.iter().zip(numbers.as_chunks_mut::<QUICK_VALUES>().0) {
            let from = (*start).max(transform.implied());
            let numbers = &mut numbers[..QUICK_VALUES.min(count - from)];
            transform.apply(scaled, from, numbers);
            bits += u32::from(patched::spread_width(numbers.iter().copied()));
        }
        // Values themselves spread further from one stretch to the next, differences do not.
        if transform == Transform::Frame {
            bits = u32::from(patched::spread_width(numbers.into_iter())) * QUICK_STRETCHES as u32;
        }
        f64::from(bits) / QUICK_STRETCHES as f64 - bonus_bits(transform)
    };
    let mut best = (bits(Transform::Frame), Transform::Frame);
    let consider = |best: &mut (f64, Transform), transform: Transform| {
        let bits = bits(transform);
        if bits < best.0 {
            *best = (bits, transform);
        }
    };
    consider(&mut best, Transform::Differences);
    // Regular timestamps with holes, for one, are narrow by now: nothing is left to gain. On a few values a grid saves about what
    // its step takes; what second differences would save on some, a merge saves.
    if climbs && best.0 > NARROW_BITS {
        consider(&mut best, Transform::SecondDifferences(scaled.get(1).copied().unwrap_or(0)));
        steps(scaled).into_iter().flatten().for_each(|step| consider(&mut best, Transform::Linear(step)));
    }
    best.1
}

/// Chooses for a short column, as lone series in a flush are, in one pass: differences, if they are narrower in its stretches. One
/// that stands out, where a counter begins anew, is that of one stretch only.
fn quick_short(scaled: &[i64]) -> Transform {
    let count = scaled.len();
    let length = if count > QUICK_VALUES { count.div_ceil(QUICK_STRETCHES) } else { count };
    let (mut bits, mut stretches) = (0, 0);
    for start in (1..count).step_by(length) {
        let values = scaled.get(start..count.min(start + length)).unwrap_or_default();
        let before = scaled.get(start - 1..).unwrap_or_default();
        let differences = values.iter().zip(before).map(|(value, last)| value.wrapping_sub(*last));
        bits += u32::from(patched::spread_width(differences));
        stretches += 1;
    }
    let frame_bits = u32::from(patched::spread_width(scaled.iter().copied()));
    if bits < frame_bits * stretches { Transform::Differences } else { Transform::Frame }
}

/// Whether values go up or down all along, as far as a few of them say.
fn climbs(scaled: &[i64]) -> bool {
    let few = || scaled.iter().step_by(scaled.len().div_ceil(16).max(1));
    few().is_sorted() || few().rev().is_sorted()
}

/// Stretches of a column that stand for all of it.
struct Stretches {
    count: usize,
    stretches: usize,
}

impl Stretches {
    fn new(count: usize) -> Self {
        Self { count, stretches: count.div_ceil(STRETCH_VALUES).clamp(1, STRETCHES_MAX) }
    }

    /// Some of them; `None` if there are not many.
    fn few(&self) -> Option<Self> {
        let few = self.stretches.div_ceil(FEW_PART).min(FEW_STRETCHES_MAX);
        (self.stretches > 2 * few).then_some(Self { count: self.count, stretches: few })
    }

    /// First places, spread evenly, both ends among them.
    fn starts(&self) -> impl Iterator<Item = usize> {
        let room = self.count.saturating_sub(STRETCH_VALUES);
        let parts = (self.stretches - 1).max(1);
        // One alone stands in the middle.
        let first = if self.stretches == 1 { room / 2 } else { 0 };
        (0..self.stretches).map(move |part| first + room * part / parts)
    }

    /// Bits a value, and the center where entropy-coding is worth it.
    fn bits(&self, scaled: &[i64], transform: Transform) -> (f64, Option<i64>) {
        let mut numbers = Vec::with_capacity(self.stretches * STRETCH_VALUES);
        let (mut packed_bits, mut packed_numbers) = (0, 0);
        for (place, start) in self.starts().enumerate() {
            let from = start.max(transform.implied());
            let to = (start + STRETCH_VALUES).min(self.count);
            let filled = numbers.len();
            numbers.resize(filled + to.saturating_sub(from), 0);
            transform.apply(scaled, from, &mut numbers[filled..]);
            // What packing takes is found by making it: every other stretch of many says it well enough.
            if place % 2 == 0 || self.stretches == 2 {
                packed_bits += patched::block_bits(&numbers[filled..]);
                packed_numbers += numbers.len() - filled;
            }
        }
        let sampled = numbers.len().max(1) as f64;
        let packed = packed_bits as f64 / packed_numbers.max(1) as f64;
        if self.count < ENTROPY_VALUES_MIN {
            return (packed, None);
        }
        let center = median(&numbers);
        let mut estimate = Estimate::new(center);
        estimate.add(&numbers);
        let entropy = estimate.bits(self.count as f64 / sampled) / self.count as f64;
        if entropy < packed * ENTROPY_SHARE_MAX { (entropy, Some(center)) } else { (packed, None) }
    }
}

fn median(numbers: &[i64]) -> i64 {
    let mut sorted: Vec<i64> = numbers.iter().step_by(numbers.len().div_ceil(MEDIAN_SAMPLES).max(1)).copied().collect();
    let middle = sorted.len() / 2;
    if sorted.is_empty() { 0 } else { *sorted.select_nth_unstable(middle).1 }
}

/// Steps worth a try for a grid: over the whole column, and, because a gap spoils that, the usual one of a stretch,
/// as it is and rounded to three digits, as intervals of scrapes are.
fn steps(scaled: &[i64]) -> [Option<i64>; 3] {
    let last = scaled.last().copied().unwrap_or(0);
    // Values that wander or fall back have no grid.
    if scaled.len() < 8 || !climbs(scaled) {
        return [None; 3];
    }
    let mean = |part: &[i64]| match part {
        [first, .., last] => last.wrapping_sub(*first) as f64 / (part.len() - 1) as f64,
        _ => 0.0,
    };
    let mut means: Vec<f64> = scaled.chunks(scaled.len().div_ceil(8).max(2)).map(mean).collect();
    means.sort_unstable_by(f64::total_cmp);
    let usual = means[means.len() / 2];
    let unit = 10f64.powi((usual.abs().max(1.0).log10().floor() as i32 - 2).max(0));
    let rounded = ((usual / unit).round() * unit) as i64;
    let overall = (last as f64 / (scaled.len() - 1) as f64).round() as i64;
    let usual = usual.round() as i64;
    let worth = |step: i64, others: &[i64]| (step != 0 && !others.contains(&step)).then_some(step);
    [worth(rounded, &[]), worth(overall, &[rounded]), worth(usual, &[rounded, overall])]
}

//! How a difference between samples stands for a whole window.

/// Which of the functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change {
    /// The value only grows, but for resets.
    pub(crate) counter: bool,
    pub(crate) per_second: bool,
}

pub(crate) fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// First and last time in milliseconds, and the number of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SampleExtent {
    pub(crate) first_ms: i64,
    pub(crate) last_ms: i64,
    pub(crate) samples: usize,
}

impl SampleExtent {
    /// Whether samples lie in their window's bounds as those of another do in its: they have the same [`Extrapolation`] then.
    pub(crate) fn has_same_margins(&self, bounds_ms: [i64; 2], other: &Self, other_bounds_ms: [i64; 2]) -> bool {
        let distances = |extent: &Self, [start_ms, end_ms]: [i64; 2]| {
            [extent.first_ms - start_ms, extent.last_ms - extent.first_ms, end_ms - extent.last_ms]
        };
        self.samples == other.samples && distances(self, bounds_ms) == distances(other, other_bounds_ms)
    }
}

/// By what a difference is to be multiplied so that it stands for the whole window: it is stretched up to the window's bounds
/// if the samples come close to them, else by half of their average distance, and a counter never beyond the point where
/// it would have been zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extrapolation {
    sampled_s: f64,
    to_start_s: f64,
    to_end_s: f64,
    /// The window's length if the change per second is asked for, else 1.
    range_s: f64,
    /// The factor but for the last rule.
    factor: f64,
}

impl Extrapolation {
    /// Of a window's start and end, and its samples, at least two.
    pub(crate) fn new([start_ms, end_ms]: [i64; 2], extent: &SampleExtent, range_s: f64) -> Self {
        let mut to_start_s = seconds(extent.first_ms - start_ms);
        let mut to_end_s = seconds(end_ms - extent.last_ms);
        let sampled_s = seconds(extent.last_ms - extent.first_ms);
        let distance_s = sampled_s / (extent.samples - 1) as f64;
        let near_s = distance_s * 1.1;
        if to_start_s >= near_s {
            to_start_s = distance_s / 2.0;
        }
        if to_end_s >= near_s {
            to_end_s = distance_s / 2.0;
        }
        let extrapolation = Self { sampled_s, to_start_s, to_end_s, range_s, factor: 1.0 };
        Self { factor: extrapolation.factor_from(to_start_s), ..extrapolation }
    }

    fn factor_from(&self, to_start_s: f64) -> f64 {
        let sampled_s = self.sampled_s;
        let factor = if sampled_s == 0.0 { 1.0 } else { (sampled_s + to_start_s + self.to_end_s) / sampled_s };
        factor / self.range_s
    }

    /// The factor for a change; of counters the value that they started from counts.
    pub(super) fn factor(&self, total: f64, started_from: Option<f64>) -> f64 {
        let Some(first) = started_from.filter(|first| self.may_reach_zero(*first, total)) else { return self.factor };
        let to_zero_s = self.sampled_s * (first / total);
        if to_zero_s < self.to_start_s { self.factor_from(to_zero_s) } else { self.factor }
    }

    /// Whether a counter that rose so much from a value might have been zero within the window. In most windows it is far from that, which is
    /// found out without a division: the margins are wider than any rounding, so that the exact rule decides where it may hold.
    fn may_reach_zero(&self, first: f64, total: f64) -> bool {
        total > 0.0 && first >= 0.0 && !self.is_far_from_zero(first, total)
    }

    fn is_far_from_zero(&self, first: f64, total: f64) -> bool {
        self.sampled_s * first > self.to_start_s * total * 1.000_001 + 1e-290
    }

    /// The changes over windows without resets, of which the first and the last values are given, appended to `changes`.
    pub(crate) fn push_changes(&self, firsts: &[f64], lasts: &[f64], kind: ValueTrend, changes: &mut Vec<f64>) {
        for (firsts, lasts) in firsts.chunks(VECTOR_WINDOWS).zip(lasts.chunks(VECTOR_WINDOWS)) {
            let totals = || firsts.iter().zip(lasts).map(|(first, last)| (*first, last - first));
            let may_reach_zero = match (kind, firsts.first(), lasts.last()) {
                (ValueTrend::Any, ..) => false,
                // No window starts lower than the first, and none rises by more than all of them together.
                (ValueTrend::Rising, Some(first), Some(last)) if self.is_far_from_zero(*first, last - first) => false,
                _ => self.any_may_reach_zero(firsts, lasts),
            };
            if may_reach_zero {
                changes.extend(totals().map(|(first, total)| total * self.factor(total, Some(first))));
            } else {
                changes.extend(totals().map(|(_, total)| total * self.factor));
            }
        }
    }

    /// Whether any counter of some windows might have been zero: not if that which comes closest is far from it. Numbers that are none
    /// come close to nothing.
    fn any_may_reach_zero(&self, firsts: &[f64], lasts: &[f64]) -> bool {
        let (mut lowest, mut steepest) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let mut observe = |lane: usize, first: f64, last: f64| {
            let total = last - first;
            lowest[lane] = if first < lowest[lane] { first } else { lowest[lane] };
            steepest[lane] = if total > steepest[lane] { total } else { steepest[lane] };
        };
        let ((firsts, tail), (lasts, last_tail)) = (firsts.as_chunks::<LANES>(), lasts.as_chunks::<LANES>());
        for (firsts, lasts) in firsts.iter().zip(lasts) {
            (0..LANES).for_each(|lane| observe(lane, firsts[lane], lasts[lane]));
        }
        tail.iter().zip(last_tail).for_each(|(first, last)| observe(0, *first, *last));
        let lowest = lowest.into_iter().fold(f64::INFINITY, f64::min);
        let steepest = steepest.into_iter().fold(f64::NEG_INFINITY, f64::max);
        steepest > 0.0 && (lowest < 0.0 || self.may_reach_zero(lowest, steepest))
    }
}

/// What is known of the values that changes are computed of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueTrend {
    /// They may fall.
    Any,
    /// They are a counter's.
    Counter,
    /// They are a counter's that is never below the value before, and none is not a number.
    Rising,
}

/// Numbers that are compared at once.
const LANES: usize = 4;

/// Windows that are computed together.
const VECTOR_WINDOWS: usize = 64;

/// By what a change over a window of this length is divided.
pub(crate) fn divisor_s(change: Change, range_ms: i64) -> f64 {
    if change.per_second { seconds(range_ms) } else { 1.0 }
}

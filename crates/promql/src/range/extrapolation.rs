//! How a difference between samples stands for a whole window.

/// Which of the functions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChangeKind {
    /// The value only grows, but for resets.
    pub(crate) counter: bool,
    pub(crate) per_second: bool,
}

pub(crate) fn seconds(time_ms: i64) -> f64 {
    time_ms as f64 / 1000.0
}

/// A window and its samples: the bounds of both in milliseconds, and the number of samples, at least two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WindowExtent {
    pub(crate) start_ms: i64,
    pub(crate) end_ms: i64,
    /// The time of the first sample.
    pub(crate) first_ms: i64,
    /// The time of the last sample.
    pub(crate) last_ms: i64,
    pub(crate) samples: usize,
}

impl WindowExtent {
    /// `None` if there are fewer than two samples.
    pub(crate) fn new(start_ms: i64, end_ms: i64, times_ms: &[i64]) -> Option<Self> {
        let [first_ms, .., last_ms] = times_ms else { return None };
        Some(Self { start_ms, end_ms, first_ms: *first_ms, last_ms: *last_ms, samples: times_ms.len() })
    }

    /// Returns whether samples lie in their window as those of another one do, so that both have the same [`Extrapolation`].
    pub(crate) fn has_same_margins(&self, other: &Self) -> bool {
        let distances = |extent: &Self| {
            let Self { start_ms, end_ms, first_ms, last_ms, .. } = *extent;
            [first_ms - start_ms, last_ms - first_ms, end_ms - last_ms]
        };
        self.samples == other.samples && distances(self) == distances(other)
    }
}

/// The factor that extends a difference between samples to the whole window: up to the window's bounds
/// if the samples come close to them, else by half of their average distance, and a counter never beyond the point where
/// it would have been zero.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Extrapolation {
    sampled_s: f64,
    to_start_s: f64,
    to_end_s: f64,
    /// The window's length for changes per second, else 1.
    range_s: f64,
    /// The factor but for the last rule.
    factor: f64,
}

impl Extrapolation {
    pub(crate) fn new(extent: &WindowExtent, range_s: f64) -> Self {
        let mut to_start_s = seconds(extent.first_ms - extent.start_ms);
        let mut to_end_s = seconds(extent.end_ms - extent.last_ms);
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

    /// Returns whether a counter that rose by `total` from `first` might have been zero within the window. In most windows it is far from that,
    /// which is checked without a division: the margins are wider than any rounding error, so the exact rule decides where it may hold.
    fn may_reach_zero(&self, first: f64, total: f64) -> bool {
        total > 0.0 && first >= 0.0 && !self.is_far_from_zero(first, total)
    }

    fn is_far_from_zero(&self, first: f64, total: f64) -> bool {
        self.sampled_s * first > self.to_start_s * total * 1.000_001 + 1e-290
    }

    /// Appends the changes over windows without resets, from their first and last values.
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

    /// Returns whether any counter of some windows might have been zero: not if the one that comes closest is far from it. NaNs do not count.
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

/// How the values behave whose changes are computed.
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

/// The divisor of a change over a window of this length.
pub(crate) fn divisor_s(change: ChangeKind, range_ms: i64) -> f64 {
    if change.per_second { seconds(range_ms) } else { 1.0 }
}

//! Where windows lie among the times of samples. Series of one target have the same times, so that what is found for one of them holds
//! for the next.

use std::sync::Arc;

use crate::range::extrapolation::{Change, Extrapolation, SampleExtent, divisor_s};
use crate::range::samples::Cursor;
use crate::range::window_bounds::WindowBounds;

/// The places of a window's first sample and of the first one behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPosition {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

/// Windows one behind another that lie alike among the times of samples: each the same number of samples behind the one before, and its
/// samples as far from its bounds. Of samples at equal distances these are nearly all windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WindowRun {
    pub(crate) count: usize,
    /// The first of them.
    pub(crate) position: WindowPosition,
    /// Samples from one window's first to that of the next.
    pub(crate) stride: u32,
    /// By what a change over one of them is multiplied; `None` of windows with fewer than two samples.
    pub(crate) extrapolation: Option<Extrapolation>,
    sample_extent: Option<SampleExtent>,
    bounds_ms: [i64; 2],
}

/// The windows of all steps, for series with the same times.
#[derive(Debug, Default)]
pub(crate) struct WindowPositions {
    times_ms: Arc<Vec<i64>>,
    /// The step of the first window with samples.
    pub(crate) first_step: usize,
    /// From there up to the last with samples. Of functions that tell a change none.
    pub(crate) windows: Vec<WindowPosition>,
    /// Of functions that tell a change: the same windows in runs.
    pub(crate) runs: Vec<WindowRun>,
}

impl WindowRun {
    fn new(position: WindowPosition, sample_extent: Option<SampleExtent>, bounds_ms: [i64; 2], range_s: f64) -> Self {
        let extrapolation = sample_extent.map(|sample_extent| Extrapolation::new(bounds_ms, &sample_extent, range_s));
        Self { count: 1, position, stride: 0, extrapolation, sample_extent, bounds_ms }
    }

    /// The places of the first sample of one of its windows, and of the first behind it.
    pub(crate) const fn at(&self, number: usize) -> (usize, usize) {
        let offset = self.stride as usize * number;
        (self.position.first as usize + offset, self.position.end as usize + offset)
    }

    /// Takes in the window behind the last one, if it lies as those do.
    fn extend(&mut self, position: WindowPosition, sample_extent: Option<SampleExtent>, bounds_ms: [i64; 2]) -> bool {
        let stride = if self.count == 1 { position.first.wrapping_sub(self.position.first) } else { self.stride };
        let offset = stride.wrapping_mul(self.count as u32);
        let follows = position.first.wrapping_sub(self.position.first) == offset
            && position.end.wrapping_sub(self.position.end) == offset;
        let margins_match = match (self.sample_extent, sample_extent) {
            (Some(first), Some(sample_extent)) => first.has_same_margins(self.bounds_ms, &sample_extent, bounds_ms),
            (None, None) => true,
            _ => false,
        };
        if follows && margins_match {
            (self.stride, self.count) = (stride, self.count + 1);
        }
        follows && margins_match
    }
}

impl WindowPositions {
    /// Finds the windows of a series with these times, unless they are those of the series before. Bounds and change must always be the
    /// same, and samples fewer than 2^32.
    pub(crate) fn find(&mut self, times_ms: &Arc<Vec<i64>>, bounds: &WindowBounds, change: Option<Change>) {
        // The same memory in nearly all cases, which is found out without a look at it.
        if Arc::ptr_eq(&self.times_ms, times_ms) || self.times_ms == *times_ms {
            return;
        }
        self.times_ms = times_ms.clone();
        self.windows.clear();
        self.runs.clear();
        let mut cursor = Cursor::default();
        let mut is_leading = true;
        for step in 0..bounds.ends.steps.count {
            let end_ms = bounds.ends.at(step);
            let start_ms = end_ms - bounds.range_ms;
            let (first, end) = cursor.advance(times_ms, start_ms, end_ms);
            if is_leading {
                if first == end {
                    continue;
                }
                (self.first_step, is_leading) = (step, false);
            }
            if first == end && first == times_ms.len() {
                // Nothing comes any more.
                break;
            }
            let position = WindowPosition { first: first as u32, end: end as u32 };
            let Some(change) = change else {
                self.windows.push(position);
                continue;
            };
            let sample_extent = sample_extent(times_ms.get(first..end).unwrap_or_default());
            let bounds_ms = [start_ms, end_ms];
            if !self.runs.last_mut().is_some_and(|run| run.extend(position, sample_extent, bounds_ms)) {
                self.runs.push(WindowRun::new(position, sample_extent, bounds_ms, divisor_s(change, bounds.range_ms)));
            }
        }
    }
}

/// `None` of fewer than two samples.
fn sample_extent(times_ms: &[i64]) -> Option<SampleExtent> {
    let [first_ms, .., last_ms] = times_ms else { return None };
    Some(SampleExtent { first_ms: *first_ms, last_ms: *last_ms, samples: times_ms.len() })
}

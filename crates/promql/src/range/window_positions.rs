//! The positions of windows in the times of samples. Series of one target have the same times, so the positions found for one series hold
//! for the next.

use std::sync::Arc;

use crate::range::extrapolation::{ChangeKind, Extrapolation, WindowExtent, divisor_s};
use crate::range::samples::{Cursor, SampleInterval};
use crate::range::window_bounds::WindowBounds;

/// The indices of a window's first sample and of the first one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPosition {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

/// Consecutive windows that lie alike among the times of samples: each the same number of samples after the previous one, with its
/// samples as far from its bounds. With samples at equal distances these are nearly all windows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WindowRun {
    pub(crate) count: usize,
    /// The first of them.
    pub(crate) position: WindowPosition,
    /// The distance from one window's first sample to that of the next.
    pub(crate) stride: u32,
    /// The factor for a change over one of them; `None` for windows with fewer than two samples.
    pub(crate) extrapolation: Option<Extrapolation>,
    extent: Option<WindowExtent>,
}

/// The windows of all steps, for series with the same times.
#[derive(Debug, Default)]
pub(crate) struct WindowPositions {
    times_ms: Arc<Vec<i64>>,
    /// The step of the first window with samples.
    pub(crate) first_step: usize,
    /// All windows up to the last with samples. Empty for functions that compute a change.
    pub(crate) windows: Vec<WindowPosition>,
    /// For functions that compute a change: the windows in runs.
    pub(crate) runs: Vec<WindowRun>,
}

impl WindowRun {
    fn new(position: WindowPosition, extent: Option<WindowExtent>, range_s: f64) -> Self {
        let extrapolation = extent.map(|extent| Extrapolation::new(&extent, range_s));
        Self { count: 1, position, stride: 0, extrapolation, extent }
    }

    /// The indices of the first sample of one of its windows, and of the first after it.
    pub(crate) const fn at(&self, number: usize) -> (usize, usize) {
        let offset = self.stride as usize * number;
        (self.position.first as usize + offset, self.position.end as usize + offset)
    }

    /// Adds the next window, if it lies like the others.
    fn extend(&mut self, position: WindowPosition, extent: Option<WindowExtent>) -> bool {
        let stride = if self.count == 1 { position.first.wrapping_sub(self.position.first) } else { self.stride };
        let offset = stride.wrapping_mul(self.count as u32);
        let follows = position.first.wrapping_sub(self.position.first) == offset
            && position.end.wrapping_sub(self.position.end) == offset;
        let margins_match = match (self.extent, extent) {
            (Some(first), Some(extent)) => first.has_same_margins(&extent),
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
    pub(crate) fn find(&mut self, times_ms: &Arc<Vec<i64>>, bounds: &WindowBounds, change: Option<ChangeKind>) {
        // Nearly always the same memory, so the times need not be compared.
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
            let (first, end) = cursor.advance(times_ms, SampleInterval { after_ms: start_ms, to_ms: end_ms });
            if is_leading {
                if first == end {
                    continue;
                }
                (self.first_step, is_leading) = (step, false);
            }
            if first == end && first == times_ms.len() {
                // There are no later samples.
                break;
            }
            let position = WindowPosition { first: first as u32, end: end as u32 };
            let Some(change) = change else {
                self.windows.push(position);
                continue;
            };
            let extent = WindowExtent::new(start_ms, end_ms, times_ms.get(first..end).unwrap_or_default());
            if !self.runs.last_mut().is_some_and(|run| run.extend(position, extent)) {
                self.runs.push(WindowRun::new(position, extent, divisor_s(change, bounds.range_ms)));
            }
        }
    }
}

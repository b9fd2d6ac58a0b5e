//! Where windows lie among the times of samples. Series of one target have the same times, so that what is found for one of them holds
//! for the next.

use crate::rate::{self, Change, Extent, Stretch};
use crate::select::{Cursor, WindowBounds};

/// The places of a window's first sample and of the first one behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WindowPlace {
    pub(crate) first: u32,
    pub(crate) end: u32,
}

/// The windows of all steps, for series with the same times.
#[derive(Debug, Default)]
pub(crate) struct WindowPlaces {
    times_ms: Vec<i64>,
    /// The step of the first window with samples.
    pub(crate) first_step: usize,
    /// From there up to the last with samples.
    pub(crate) windows: Vec<WindowPlace>,
    /// Of functions that tell a change, as many: by what it is multiplied. Nothing of windows with fewer than two samples.
    pub(crate) stretches: Vec<Stretch>,
}

impl WindowPlaces {
    /// Finds the windows of a series with these times, unless they are those of the series before. Bounds and change must always be the
    /// same, and samples fewer than 2^32.
    pub(crate) fn find(&mut self, times_ms: &[i64], bounds: &WindowBounds, change: Option<Change>) {
        if self.times_ms == times_ms {
            return;
        }
        self.times_ms.clear();
        self.times_ms.extend_from_slice(times_ms);
        self.windows.clear();
        self.stretches.clear();
        let mut cursor = Cursor::default();
        for step in 0..bounds.ends.steps.count {
            let end_ms = bounds.ends.at(step);
            let start_ms = end_ms - bounds.range_ms;
            let (first, end) = cursor.advance(times_ms, start_ms, end_ms);
            if self.windows.is_empty() {
                if first == end {
                    continue;
                }
                self.first_step = step;
            }
            self.windows.push(WindowPlace { first: first as u32, end: end as u32 });
            if let Some(change) = change {
                let extent = extent(times_ms.get(first..end).unwrap_or_default());
                let range_s = rate::divisor_s(change, bounds.range_ms);
                let stretch = extent.map(|extent| Stretch::new([start_ms, end_ms], &extent, range_s));
                self.stretches.push(stretch.unwrap_or_default());
            }
        }
        let last = self.windows.iter().rposition(|window| window.first < window.end);
        self.windows.truncate(last.map_or(0, |last| last + 1));
        self.stretches.truncate(self.windows.len());
    }
}

/// `None` of fewer than two samples.
fn extent(times_ms: &[i64]) -> Option<Extent> {
    let [first_ms, .., last_ms] = times_ms else { return None };
    Some(Extent { first_ms: *first_ms, last_ms: *last_ms, samples: times_ms.len() })
}

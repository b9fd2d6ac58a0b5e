//! Resets and changes of a series, found once for all windows.

use crate::range::window_positions::WindowRun;
use crate::syntax::functions::RangeFunction;

/// The positions in a series where its value drops (a counter's reset) or changes, found once per series, so that a window
/// looks at these only.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    indices: Vec<usize>,
    /// No value is below the previous one, and none is NaN.
    pub(crate) rises: bool,
}

/// The marks inside a window.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MarkedValues<'a> {
    indices: &'a [usize],
    series: &'a [f64],
}

impl Marks {
    #[expect(clippy::needless_bitwise_bool, reason = "what always runs is computed for several values at once")]
    pub(crate) fn find(function: RangeFunction, values: &[f64]) -> Self {
        match function {
            RangeFunction::Rate | RangeFunction::Increase | RangeFunction::Resets => {
                // Most counters are never reset. This check has no early exit, so that it is vectorized.
                let pairs = values.iter().zip(values.get(1..).unwrap_or_default());
                if pairs.fold(values.len() > 1, |rises, (before, now)| rises & (now >= before)) {
                    return Self { rises: true, ..Self::default() };
                }
                Self::where_pairs(values, |before, now| now < before)
            }
            #[expect(clippy::float_cmp, reason = "a change of any size counts")]
            RangeFunction::Changes => {
                Self::where_pairs(values, |before, now| now != before && !(now.is_nan() && before.is_nan()))
            }
            _ => Self::default(),
        }
    }

    fn where_pairs(values: &[f64], marks: impl Fn(f64, f64) -> bool) -> Self {
        let pairs = || values.iter().zip(values.get(1..).unwrap_or_default());
        if !pairs().fold(false, |found, (before, now)| found | marks(*before, *now)) {
            return Self::default();
        }
        let marked = pairs().enumerate().filter(|(_, (before, now))| marks(**before, **now));
        Self { indices: marked.map(|(index, _)| index + 1).collect(), rises: false }
    }

    /// Walks along them.
    pub(crate) fn cursor<'a>(&'a self, series: &'a [f64]) -> MarksCursor<'a> {
        MarksCursor { remaining: &self.indices, series }
    }
}

/// The marks that are ahead of a window that only moves forward.
pub(crate) struct MarksCursor<'a> {
    remaining: &'a [usize],
    series: &'a [f64],
}

impl<'a> MarksCursor<'a> {
    /// The first window of a run, from the one with a number on, that has a mark between two of its samples. Numbers may only grow.
    pub(crate) fn next_marked(&mut self, run: &WindowRun, from: usize) -> Option<usize> {
        let mut number = from;
        while number < run.count {
            let (first, end) = run.at(number);
            self.advance_past(first);
            let index = *self.remaining.first()?;
            if index < end {
                return Some(number);
            }
            // Windows that do not move never come to it.
            number += (index - end).checked_div(run.stride as usize)? + 1;
        }
        None
    }

    /// Skips marks up to a sample.
    fn advance_past(&mut self, first: usize) {
        while let Some((_, remaining)) = self.remaining.split_first().filter(|(index, _)| **index <= first) {
            self.remaining = remaining;
        }
    }

    /// The marks between two samples of a window, given by the indices of its first sample and of its end; neither may be before those of an
    /// earlier window.
    pub(crate) fn within(&mut self, first: usize, end: usize) -> MarkedValues<'a> {
        self.advance_past(first);
        let inside = if self.remaining.first().is_some_and(|index| *index < end) {
            self.remaining.partition_point(|index| *index < end)
        } else {
            0
        };
        MarkedValues { indices: self.remaining.get(..inside).unwrap_or_default(), series: self.series }
    }
}

impl MarkedValues<'_> {
    /// The number of marks.
    pub(super) fn count(&self) -> f64 {
        self.indices.len() as f64
    }

    /// The values just before the marks.
    pub(crate) fn before(&self) -> impl Iterator<Item = f64> {
        self.indices.iter().filter_map(|index| self.series.get(index - 1).copied())
    }
}

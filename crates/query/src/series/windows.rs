//! Windows that are open at their start and closed at their end, as PromQL has them, from summaries: the store's windows are closed at
//! their start and open at their end, and its nodes lie on whole multiples of time, where samples often do, too.
//!
//! ```text
//!  store   [T0 ········)[T1 ········)[T2 ········)
//!  PromQL   (T0 ········](T1 ········]             without the sample at T0 and with the one at T1
//! ```
//!
//! A summary knows its first sample. Taking it away changes neither a largest value that is larger nor the last one; where it might be the
//! largest itself, that window is read once more, from just after it on.

use index::Projection;
use model::{Labels, Matcher, Summary, ValueType};
use store::{SelectedGroup, StoreError, Windows};

use crate::{Reads, Selection};

const NS_PER_MS: i64 = 1_000_000;
/// Windows of the store narrower than this are not worth it: nodes stand for a thousand samples and more.
const WIDTH_MS_MIN: i64 = 10 * 60_000;
/// Windows of the store for one series.
const WINDOWS_MAX: i64 = 100_000;
/// Summaries that are put together for one series.
const MERGES_MAX: i64 = 10_000_000;
/// A window may be asked for once more for one of so many.
const AGAIN_SHARE: usize = 4;
/// The samples that a summary takes out of a budget.
const SUMMARY_SAMPLES: usize = size_of::<Summary>().div_ceil(16);

/// A value of the samples in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowValue {
    /// How many there are.
    Count,
    /// 1 if there is one.
    Present,
    /// The latest.
    Last,
    /// The largest; NaN only if there is nothing else.
    Max,
    /// The smallest; likewise.
    Min,
}

/// Windows over series, one for each step: the samples after `end - range_ms` and up to `end`, stale markers left out.
#[derive(Debug, Clone)]
pub struct WindowSelection<'a> {
    /// All must hold.
    pub matchers: &'a [Matcher],
    /// The value of each window.
    pub value: WindowValue,
    /// Where the first window ends.
    pub first_end_ms: i64,
    /// From one end to the next; of no meaning where there is one window.
    pub step_ms: i64,
    /// Windows; at least one.
    pub count: usize,
    /// How long each is.
    pub range_ms: i64,
    /// As [`Selection::projection`].
    pub projection: Option<Projection<'a>>,
}

/// A series' labels, and the values of its windows: `None` of those without samples.
pub type WindowSeries = (Labels, Vec<Option<f64>>);

/// Windows of the store that make up those of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    windows: Windows,
    /// Windows of the store in one of the selection, and from one of the selection to the next.
    per_range: usize,
    per_step: usize,
}

/// The value of a window as far as summaries have it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FromSummaries {
    /// Its value, if it has samples.
    Value(Option<f64>),
    /// Not enough.
    Nothing,
}

impl FromSummaries {
    const fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) => value,
            Self::Nothing => None,
        }
    }
}

impl<'a> WindowSelection<'a> {
    /// The samples of all windows.
    pub fn samples(&self) -> Selection<'a> {
        let length_ms = self.step_ms.saturating_mul(self.count.saturating_sub(1) as i64);
        Selection {
            matchers: self.matchers,
            start_ms: self.first_end_ms.saturating_sub(self.range_ms).saturating_add(1),
            end_ms: self.first_end_ms.saturating_add(length_ms),
            projection: self.projection,
            is_numbered: false,
        }
    }

    /// `None` where windows of the store would be too narrow or too many.
    pub(crate) fn grid(&self) -> Option<Grid> {
        let steps = i64::try_from(self.count.checked_sub(1)?).ok()?;
        let step_ms = if steps == 0 { self.range_ms } else { self.step_ms };
        let width_ms = common_divisor(self.range_ms, step_ms);
        if self.range_ms <= 0 || step_ms <= 0 || width_ms < WIDTH_MS_MIN {
            return None;
        }
        let count = steps.checked_mul(step_ms)?.checked_add(self.range_ms)? / width_ms;
        let (per_range, per_step) = (self.range_ms / width_ms, step_ms / width_ms);
        if count > WINDOWS_MAX || per_range.checked_mul(steps + 1)? > MERGES_MAX {
            return None;
        }
        let start_ns = self.first_end_ms.checked_sub(self.range_ms)?.checked_mul(NS_PER_MS)?;
        let windows = Windows { start_ns, width_ns: width_ms.checked_mul(NS_PER_MS)?, count: count as usize };
        start_ns.checked_add(windows.width_ns.checked_mul(count + 1)?)?;
        Some(Grid { windows, per_range: per_range as usize, per_step: per_step as usize })
    }

    /// The values of a group's columns from summaries; `None` where these do not spare most of the work or do not say it all.
    pub(crate) fn of_group(
        &self,
        grid: &Grid,
        store: &store::Store,
        group: &SelectedGroup,
        reads: &mut Reads,
    ) -> Result<Option<Vec<WindowSeries>>, StoreError> {
        let takes = |value_type| Summary::takes(value_type) || value_type == ValueType::String;
        if !group.columns.iter().all(|column| takes(column.value_type)) {
            return Ok(None);
        }
        let Some((columns, counts)) = store.aggregate_nodes(group, &grid.windows)? else { return Ok(None) };
        reads.add(&counts);
        let last = Windows { start_ns: grid.windows.start_of(grid.windows.count), width_ns: 1, count: 1 };
        let (lasts, counts) = store.aggregate(group, &last)?;
        reads.add(&counts);
        let mut series = Vec::with_capacity(columns.len());
        let mut again = Vec::new();
        for (place, (column, mut last)) in columns.into_iter().zip(lasts).enumerate() {
            let mut windows = column.windows;
            windows.append(&mut last.windows);
            if !windows.iter().all(is_of_whole_milliseconds) {
                return Ok(None);
            }
            let values = self.values(grid, &windows);
            let is_open = |(_, value): &(usize, &FromSummaries)| **value == FromSummaries::Nothing;
            again.extend(values.iter().enumerate().filter(is_open).map(|(step, _)| (place, step)));
            series.push(values.into_iter().map(FromSummaries::value).collect::<Vec<_>>());
        }
        again.sort_unstable_by_key(|(_, step)| *step);
        if again.len() > 1 && again.len() * AGAIN_SHARE > self.count * series.len() {
            return Ok(None);
        }
        for same_step in again.chunk_by(|(_, a), (_, b)| a == b) {
            let Some((_, step)) = same_step.first() else { continue };
            let (exact, counts) = store.aggregate(group, &grid.exact(*step))?;
            reads.add(&counts);
            for (place, step) in same_step {
                let summary = exact.get(*place).and_then(|column| column.windows.first());
                if let Some(value) = series.get_mut(*place).and_then(|values| values.get_mut(*step)) {
                    *value = summary.and_then(|summary| self.value.value_of(summary));
                }
            }
        }
        let labels = group.columns.iter().map(|column| column.series_labels(&group.labels));
        Ok(Some(labels.zip(series).collect()))
    }

    /// The value of each step, given the store's windows and one that holds the moment after them.
    fn values(&self, grid: &Grid, windows: &[Summary]) -> Vec<FromSummaries> {
        let value = |step: usize| {
            let first = step * grid.per_step;
            let inside = windows.get(first..first + grid.per_range).unwrap_or_default();
            let after = windows.get(first + grid.per_range);
            let bounds_ns = [first, first + grid.per_range].map(|place| grid.windows.start_of(place));
            self.value.value_of_open_windows(inside, after, bounds_ns)
        };
        (0..self.count).map(value).collect()
    }
}

impl Grid {
    /// The samples that a series takes out of a budget while its windows are put together.
    pub(crate) fn samples(&self) -> usize {
        (self.windows.count + 1) * SUMMARY_SAMPLES
    }

    /// The window of one step by itself, its start left out and its end inside.
    fn exact(&self, step: usize) -> Windows {
        let start_ns = self.windows.start_of(step * self.per_step);
        Windows { start_ns: start_ns + 1, width_ns: self.windows.width_ns * self.per_range as i64, count: 1 }
    }
}

impl WindowValue {
    /// The value of the samples that a summary stands for.
    fn value_of(self, summary: &Summary) -> Option<f64> {
        if summary.count == 0 {
            return None;
        }
        Some(match self {
            Self::Count => summary.count as f64,
            Self::Present => 1.0,
            Self::Last => summary.number(summary.last.1),
            Self::Max => summary.number(summary.max),
            Self::Min => summary.number(summary.min),
        })
    }

    /// The value of windows closed at their start and open at their end, made open and closed.
    fn value_of_open_windows(
        self,
        inside: &[Summary],
        after: Option<&Summary>,
        [start_ns, end_ns]: [i64; 2],
    ) -> FromSummaries {
        let Some(first) = inside.first() else { return FromSummaries::Value(None) };
        let mut merged = Summary::empty(first.value_type);
        inside.iter().for_each(|summary| merged.merge(summary));
        let left_out = first.count > 0 && first.first.0 == start_ns;
        let left_out_value = merged.number(first.first.1);
        if let Some(after) = after.filter(|after| after.count > 0 && after.first.0 == end_ns) {
            merged.add(end_ns, after.first.1);
        }
        if !left_out {
            return FromSummaries::Value(self.value_of(&merged));
        }
        let rest = Summary { count: merged.count - 1, ..merged };
        let is_sure = match self {
            Self::Count | Self::Present | Self::Last => true,
            Self::Max => left_out_value.is_nan() || left_out_value < merged.number(merged.max),
            Self::Min => left_out_value.is_nan() || left_out_value > merged.number(merged.min),
        };
        if is_sure || rest.count == 0 { FromSummaries::Value(self.value_of(&rest)) } else { FromSummaries::Nothing }
    }
}

/// Returns whether a summary's ends are whole milliseconds, as those of all samples are then that PromQL's protocols bring. Of others PromQL sees the
/// last in each millisecond alone, which summaries do not know.
fn is_of_whole_milliseconds(summary: &Summary) -> bool {
    summary.count == 0 || summary.first.0 % NS_PER_MS == 0 && summary.last.0 % NS_PER_MS == 0
}

fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(range_ms: i64, step_ms: i64, count: usize) -> Option<(i64, usize, usize, usize)> {
        let value = WindowValue::Max;
        let asked = WindowSelection {
            matchers: &[],
            value,
            first_end_ms: range_ms,
            step_ms,
            count,
            range_ms,
            projection: None,
        };
        let grid = asked.grid()?;
        assert_eq!(grid.windows.start_ns, 0);
        Some((grid.windows.width_ns / 60_000_000_000, grid.windows.count, grid.per_range, grid.per_step))
    }

    #[test]
    fn windows_of_the_store_make_up_those_that_are_asked_for() {
        const MINUTE: i64 = 60_000;
        const DAY: i64 = 1440 * MINUTE;
        for (range_ms, step_ms, count, expected) in [
            (DAY, DAY, 365, Some((1440, 365, 1, 1))),
            (DAY, 7, 1, Some((1440, 1, 1, 1))),
            (DAY, 60 * MINUTE, 25, Some((60, 48, 24, 1))),
            (60 * MINUTE, DAY, 2, Some((60, 25, 1, 24))),
            (90 * MINUTE, 60 * MINUTE, 3, Some((30, 7, 3, 2))),
            (DAY, DAY - 1, 3, None),
            (5 * MINUTE, 5 * MINUTE, 3, None),
            (0, DAY, 3, None),
            (i64::MAX, DAY, 3, None),
            (DAY, i64::MAX, 3, None),
            (DAY, DAY, usize::MAX, None),
            (DAY, 10 * MINUTE, 200_000, None),
        ] {
            assert_eq!(grid(range_ms, step_ms, count), expected, "{range_ms} {step_ms} {count}");
        }
    }

    /// Samples of a window, those after it, and the expected values.
    type Case = (&'static [(i64, f64)], &'static [(i64, f64)], [FromSummaries; 5]);

    #[test]
    fn the_sample_at_the_start_goes_and_the_one_at_the_end_comes() {
        let sum = |samples: &[(i64, f64)]| {
            let mut summary = Summary::empty(ValueType::F64);
            samples.iter().for_each(|(time, value)| summary.add(*time, value.to_bits()));
            summary
        };
        let all = [WindowValue::Count, WindowValue::Present, WindowValue::Last, WindowValue::Max, WindowValue::Min];
        let some = |value: f64| FromSummaries::Value(Some(value));
        let cases: [Case; 7] = [
            (&[(1, 3.0), (5, 4.0)], &[(11, 9.0)], [some(2.0), some(1.0), some(4.0), some(4.0), some(3.0)]),
            (&[(0, 3.0), (5, 4.0)], &[(10, 9.0)], [some(2.0), some(1.0), some(9.0), some(9.0), FromSummaries::Nothing]),
            (&[(0, 3.0), (5, 2.0)], &[(10, 1.0)], [some(2.0), some(1.0), some(1.0), FromSummaries::Nothing, some(1.0)]),
            (&[(0, 3.0)], &[], [FromSummaries::Value(None); 5]),
            (&[], &[(10, 3.0)], [some(1.0), some(1.0), some(3.0), some(3.0), some(3.0)]),
            (&[(0, 3.0)], &[(10, 4.0)], [some(1.0), some(1.0), some(4.0), some(4.0), FromSummaries::Nothing]),
            (&[(0, f64::NAN), (5, 2.0)], &[], [some(1.0), some(1.0), some(2.0), some(2.0), some(2.0)]),
        ];
        for (inside, after, expected) in cases {
            for (value, expected) in all.into_iter().zip(expected) {
                let found = value.value_of_open_windows(&[sum(inside)], Some(&sum(after)), [0, 10]);
                assert_eq!(found, expected, "{value:?} of {inside:?}, then {after:?}");
            }
        }
    }
}

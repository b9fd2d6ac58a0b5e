//! Windows of PromQL that a materialised view may answer, as a plan that asks for it, and the values of what that gives.
//!
//! ```text
//!  PromQL   (T0 ········](T1 ········]             samples after the beginning, up to the end
//!  view      [T0+o ······)[T1+o ······)[T2+o        rows from the beginning on, o nanoseconds after T0: the same, if 0 < o ≤ 1 ms and all times are
//!                                                   whole milliseconds
//! ```
//!
//! PromQL takes a time for its whole milliseconds, and of several samples in one the last. So the plan also asks how many times are none
//! ([`Aggregate::OffMilliseconds`]), up to the last nanosecond of the last window's end; where there are any, a view is no answer.

use model::{Matcher, Summary, TimeRange, ValueType};
use store::MetricField;

use crate::plan::{Aggregate, AggregateCall, AggregateInput, Grouping, Plan, Scan, Selector, TableColumns};
use crate::time::CalendarBins;
use crate::views::{OPEN_NS_MAX, View, normalized, subtract};
use crate::{Budget, Frame, QueryError, WindowSeries};

const NS_PER_MS: i64 = 1_000_000;
/// Bins of one series.
const BINS_MAX: i64 = 100_000;
/// Bins that are put together for one series.
const MERGES_MAX: i64 = 10_000_000;
/// The samples that the bins of a series take out of a budget.
const BIN_SAMPLES: usize = 2;

/// A value of the samples in a window, of all series of a group together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewedValue {
    /// All added up.
    Sum,
    /// How many there are.
    Count,
    /// 1 if there is one.
    Present,
    /// The smallest; NaN only if there is nothing else.
    Min,
    /// The largest; likewise.
    Max,
    /// The mean.
    Average,
}

/// The labels by which series are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ViewedLabels<'a> {
    /// These.
    By(&'a [String]),
    /// All but these and the metric's name.
    Without(&'a [String]),
}

/// Windows over series of one metric, one for each step: the samples after `end - range_ms` and up to `end`, stale markers left out.
#[derive(Debug, Clone)]
pub struct ViewedWindows<'a> {
    /// The metric.
    pub metric: &'a str,
    /// Matchers of its labels; all must hold.
    pub matchers: Vec<&'a Matcher>,
    /// The value of each window.
    pub value: ViewedValue,
    /// How series are put together.
    pub labels: ViewedLabels<'a>,
    /// Where the first window ends.
    pub first_end_ms: i64,
    /// From one end to the next; of no meaning where there is one window.
    pub step_ms: i64,
    /// Windows; at least one.
    pub count: usize,
    /// How long each is.
    pub range_ms: i64,
}

/// Bins that make up windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ViewedGrid {
    /// Where the first window begins, and with it the first bin.
    start_ns: i64,
    width_ns: i64,
    bins: usize,
    /// Bins of a window, and from one window to the next.
    per_range: usize,
    per_step: usize,
}

impl ViewedWindows<'_> {
    /// `None` where bins would be too many.
    pub(super) fn grid(&self) -> Option<ViewedGrid> {
        let steps = i64::try_from(self.count.checked_sub(1)?).ok()?;
        let step_ms = if steps == 0 { self.range_ms } else { self.step_ms };
        if self.range_ms <= 0 || step_ms <= 0 {
            return None;
        }
        let divisor_ms = common_divisor(self.range_ms, step_ms);
        let bins = steps.checked_mul(step_ms)?.checked_add(self.range_ms)? / divisor_ms;
        let (per_range, per_step) = (self.range_ms / divisor_ms, step_ms / divisor_ms);
        if bins > BINS_MAX || per_range.checked_mul(steps + 1)? > MERGES_MAX {
            return None;
        }
        let start_ns = self.first_end_ms.checked_sub(self.range_ms)?.checked_mul(NS_PER_MS)?;
        let width_ns = divisor_ms.checked_mul(NS_PER_MS)?;
        start_ns.checked_add(width_ns.checked_mul(bins + 1)?)?;
        let [bins, per_range, per_step] = [bins, per_range, per_step].map(|count| count as usize);
        Some(ViewedGrid { start_ns, width_ns, bins, per_range, per_step })
    }

    /// The aggregates of a field, those that the value is made of.
    fn aggregates(&self, field: &str) -> Vec<AggregateCall> {
        let of: &[Aggregate] = match self.value {
            ViewedValue::Sum => &[Aggregate::Sum],
            ViewedValue::Count | ViewedValue::Present => &[Aggregate::Count],
            ViewedValue::Min => &[Aggregate::Min],
            ViewedValue::Max => &[Aggregate::Max],
            ViewedValue::Average => &[Aggregate::Sum, Aggregate::Count],
        };
        of.iter().map(|aggregate| AggregateCall::of_column(*aggregate, field)).collect()
    }

    /// The plan whose bins begin so many nanoseconds after those of the grid.
    pub(super) fn plan(&self, grid: &ViewedGrid, open_ns: i64, metric: &MetricField, by: Vec<String>) -> Plan {
        let selector = |matcher: &&Matcher| Selector {
            name: matcher.name.clone(),
            op: matcher.op,
            values: vec![matcher.value.clone()],
        };
        let table = TableColumns { name: metric.table.clone(), fields: vec![metric.field.clone()], every_row: true };
        let range = TimeRange::new(grid.start_ns + open_ns, grid.end_ns() + NS_PER_MS - 1);
        let selectors = self.matchers.iter().map(selector).collect();
        let scan = Scan { table: Some(table), selectors, tokens: Vec::new(), range };
        let mut aggregates = self.aggregates(&metric.field);
        aggregates.push(off_milliseconds());
        let offset_ns = range.start_ns.rem_euclid(grid.width_ns);
        let grouping = Grouping { width_ns: Some(grid.width_ns), offset_ns, aggregates, by: Some(by), undated: false };
        Plan::GroupBy { input: Box::new(Plan::Scan(scan)), grouping }
    }

    /// The values of windows from the bins of [`ViewedWindows::plan`], which are taken out of the budget; `None` if they are not what the samples give.
    pub(super) fn series(
        &self,
        (grid, open_ns): (&ViewedGrid, i64),
        field: &str,
        frames: Vec<Frame>,
        budget: &Budget,
    ) -> Result<Option<Vec<WindowSeries>>, QueryError> {
        let names: Vec<String> = self.aggregates(field).iter().map(AggregateCall::column_name).collect();
        let off_name = off_milliseconds().column_name();
        let mut series = Vec::with_capacity(frames.len());
        for frame in frames {
            budget.check()?;
            let numbers = |name: &str, row| frame.column(name).and_then(|column| column.cell(row).number());
            if (0..frame.rows()).any(|row| numbers(&off_name, row).is_some_and(|count| count > 0.0)) {
                return Ok(None);
            }
            let taken = grid.bins * BIN_SAMPLES;
            budget.take(taken)?;
            let mut bins: Vec<[Option<f64>; 2]> = vec![[None; 2]; grid.bins];
            for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
                let place = (time_ns - grid.start_ns - open_ns).div_euclid(grid.width_ns);
                let Some(bin) = usize::try_from(place).ok().and_then(|place| bins.get_mut(place)) else { continue };
                bin.iter_mut().zip(&names).for_each(|(value, name)| *value = numbers(name, row));
            }
            budget.take(self.count)?;
            let windows = (0..self.count).map(|step| bins.get(step * grid.per_step..)?.get(..grid.per_range));
            let values: Vec<Option<f64>> = windows.map(|bins| bins.and_then(|bins| self.value.of_bins(bins))).collect();
            budget.give_back(taken);
            // In which order the samples were added tells whether a sum that is too large is infinite, or nothing at all.
            let is_sum = matches!(self.value, ViewedValue::Sum | ViewedValue::Average);
            if is_sum && values.iter().flatten().any(|value| !value.is_finite()) {
                return Ok(None);
            }
            series.push((frame.labels, values));
        }
        Ok(Some(series))
    }
}

impl ViewedGrid {
    /// Where the last window ends.
    const fn end_ns(&self) -> i64 {
        self.start_ns + self.width_ns * self.bins as i64
    }

    /// Returns whether a view has half of the windows stored, or more: others are computed of rows, for which samples are read as fast.
    pub(super) fn is_mostly_stored(&self, view: &View) -> bool {
        let asked = TimeRange::new(self.start_ns, self.end_ns());
        let stored = TimeRange { end_ns: asked.end_ns.min(view.state.watermark_ns.saturating_sub(1)), ..asked };
        if stored.start_ns > stored.end_ns {
            return false;
        }
        let pending: Vec<TimeRange> = view.state.pending.iter().map(|pending| pending.range).collect();
        let lengths = subtract(&[stored], &normalized(pending)).into_iter().map(|range| range.end_ns - range.start_ns);
        lengths.sum::<i64>() >= (asked.end_ns - asked.start_ns) / 2
    }

    /// How much later than the bins windows of a view begin, if bins are made of whole ones of them; `None` if not.
    pub(super) fn open_ns(&self, view: &CalendarBins) -> Option<i64> {
        let (width_ns, offset_ns) = view.equal_bins()?;
        let open_ns = offset_ns.checked_sub(self.start_ns)?.rem_euclid(width_ns);
        (self.width_ns % width_ns == 0 && (1..=OPEN_NS_MAX).contains(&open_ns)).then_some(open_ns)
    }
}

impl ViewedValue {
    /// The value of bins that follow one another.
    fn of_bins(self, bins: &[[Option<f64>; 2]]) -> Option<f64> {
        let summary = |place: usize| {
            let mut summary = Summary::empty(ValueType::F64);
            let values = bins.iter().filter_map(|bin| bin.get(place).copied().flatten());
            values.for_each(|value| summary.add(0, value.to_bits()));
            summary
        };
        let first = summary(0);
        if first.count == 0 {
            return None;
        }
        match self {
            Self::Sum => Some(first.total()),
            Self::Count => Some(first.total()).filter(|count| *count > 0.0),
            Self::Present => (first.total() > 0.0).then_some(1.0),
            Self::Min => Some(first.number(first.min)),
            Self::Max => Some(first.number(first.max)),
            Self::Average => Some(first.total() / summary(1).total()),
        }
    }
}

const fn off_milliseconds() -> AggregateCall {
    AggregateCall { aggregate: Aggregate::OffMilliseconds, input: AggregateInput::Time }
}

fn common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interval;

    const MINUTE: i64 = 60_000;

    fn asked(first_end_ms: i64, range_ms: i64, step_ms: i64, count: usize) -> ViewedWindows<'static> {
        let (value, labels) = (ViewedValue::Sum, ViewedLabels::By(&[]));
        ViewedWindows { metric: "m", matchers: Vec::new(), value, labels, first_end_ms, step_ms, count, range_ms }
    }

    #[test]
    fn windows_are_made_of_bins() {
        for (asked, expected) in [
            (asked(60 * MINUTE, 60 * MINUTE, 7, 1), Some((0, 60, 1, 1, 1))),
            (asked(60 * MINUTE, 60 * MINUTE, 60 * MINUTE, 24), Some((0, 60, 24, 1, 1))),
            (asked(60 * MINUTE, 60 * MINUTE, 15 * MINUTE, 3), Some((0, 15, 6, 4, 1))),
            (asked(60 * MINUTE, 15 * MINUTE, 60 * MINUTE, 3), Some((45, 15, 9, 1, 4))),
            (asked(0, 60 * MINUTE, 60 * MINUTE, 200_000), None),
            (asked(0, 0, MINUTE, 1), None),
            (asked(i64::MAX, MINUTE, MINUTE, 1), None),
            (asked(0, i64::MAX, 1, 2), None),
        ] {
            let minutes = |ns: i64| ns / NS_PER_MS / MINUTE;
            let found = asked
                .grid()
                .map(|grid| (minutes(grid.start_ns), minutes(grid.width_ns), grid.bins, grid.per_range, grid.per_step));
            assert_eq!(found, expected, "{asked:?}");
        }
    }

    #[test]
    fn windows_of_views_begin_after_those_that_are_asked_for() {
        let view = |minutes: i64, origin_ns: i64| {
            CalendarBins::new(Interval::of_ns(minutes * MINUTE * NS_PER_MS), origin_ns, jiff::tz::TimeZone::UTC)
        };
        let hourly = asked(120 * MINUTE, 60 * MINUTE, 60 * MINUTE, 3).grid().unwrap();
        let later = asked(123 * MINUTE, 60 * MINUTE, 60 * MINUTE, 3).grid().unwrap();
        for (grid, view, expected) in [
            (hourly, view(60, 1), Some(1)),
            (hourly, view(20, 1_000_000), Some(1_000_000)),
            (hourly, view(60, 0), None),
            (hourly, view(60, 1_000_001), None),
            (hourly, view(60, -1), None),
            (hourly, view(40, 1), None),
            (hourly, view(120, 1), None),
            (later, view(60, 1), None),
            (later, view(60, 3 * MINUTE * NS_PER_MS + 1000), Some(1000)),
        ] {
            assert_eq!(grid.open_ns(&view), expected, "{grid:?} {view:?}");
        }
    }
}

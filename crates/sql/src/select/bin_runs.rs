//! Bins of time that differ in length, for the plan: run by run of equal ones.

use model::TimeRange;
use query::plan::{Plan, Scan};
use query::time::CalendarBins;

use crate::error::SqlError;
use crate::expression::{Bound, begins_at};
use crate::run::Run;

/// Plans that one statement may become; with more runs of equal bins, rows are grouped one by one.
const RUNS_MAX: usize = 128;

/// The bins that the key of a group means.
pub(super) struct KeyBins<'a> {
    pub(super) expression: &'a Bound,
    pub(super) bins: CalendarBins,
}

/// A range, and width and offset of its bins; without bins all rows are one.
pub(super) type BinRun = (TimeRange, Option<(i64, i64)>);

impl Run<'_> {
    /// The range of a scan as runs of equal bins; `None` if there are too many.
    pub(super) fn bin_runs(&mut self, scan: &Scan, key: Option<KeyBins<'_>>) -> Result<Option<Vec<BinRun>>, SqlError> {
        let Some(KeyBins { expression, bins }) = key else { return Ok(Some(vec![(scan.range, None)])) };
        if let Some(equal) = bins.equal_bins() {
            return Ok(Some(vec![(scan.range, Some(equal))]));
        }
        let range = self.rows_range(scan)?;
        if range.start_ns > range.end_ns {
            return Ok(Some(Vec::new()));
        }
        let environment = self.environment.clone();
        let begins_at = |time_ns, start_ns| begins_at(expression, time_ns, start_ns, &environment);
        let runs = bins.equal_runs((range.start_ns, range.end_ns), RUNS_MAX, begins_at);
        // Whole bins: the first row that is left of a fold is its last one, and a range from there would cut the fold.
        let asked = scan.range;
        let within = |start_ns: i64, end_ns: i64| {
            TimeRange::new(start_ns.max(asked.start_ns), end_ns.saturating_sub(1).min(asked.end_ns))
        };
        let run =
            |run: &query::time::EqualBins| (within(run.start_ns, run.end_ns()), Some((run.width_ns, run.offset_ns())));
        Ok(runs.map(|runs| runs.iter().map(run).collect()))
    }

    /// The part of a scan's range that has rows, where the range is open.
    fn rows_range(&mut self, scan: &Scan) -> Result<TimeRange, SqlError> {
        let TimeRange { mut start_ns, mut end_ns } = scan.range;
        let rows = |scan: &Scan| Box::new(Plan::Scan(scan.clone()));
        if start_ns == TimeRange::ALL.start_ns {
            let first = self.plan(Plan::Limit { input: rows(scan), rows: 1, skip: 0 })?;
            start_ns = first.iter().flat_map(|frame| &frame.timestamps_ns).copied().min().unwrap_or(i64::MAX);
        }
        if end_ns == TimeRange::ALL.end_ns {
            let last = self.plan(Plan::Last { input: rows(scan), rows: 1 })?;
            end_ns = last.iter().flat_map(|frame| &frame.timestamps_ns).copied().max().unwrap_or(i64::MIN);
        }
        Ok(TimeRange::new(start_ns, end_ns))
    }
}

//! Bins that are there because there are rows in them, though nothing that is wanted has a value.

use std::collections::BTreeMap;

use model::TimeRange;
use store::{End, EndRows, SelectedGroup, WindowColumn, Windows};

use super::scan::Reader;
use crate::plan::{Grouping, Scan};
use crate::{Frame, QueryError};

/// Stretches of time without values whose rows are looked for one by one; more are looked through as one.
const STRETCHES_MAX: usize = 16;

/// Where bins begin, and the time of a first row in each.
pub(super) type Starts = BTreeMap<i64, i64>;

/// Bins by their rows, as far as values do not show them.
#[derive(Debug, Default)]
pub(super) struct RowBins {
    /// Where bins begin that have rows and no values.
    pub(super) starts: Starts,
    /// Where no values are: rows may be.
    open: Vec<TimeRange>,
}

impl RowBins {
    /// Notes windows in which no column has a value; a stale marker is a row without one.
    pub(super) fn add(&mut self, windows: &Windows, columns: &[WindowColumn], grouping: &Grouping) {
        for number in 0..windows.count {
            let of_window = |column: &WindowColumn| column.windows.get(number).copied();
            let mut summaries = columns.iter().filter_map(of_window);
            let start_ns = windows.start_of(number);
            if summaries.clone().any(|summary| summary.count > 0) {
                continue;
            }
            if let Some(stale) = summaries.find(|summary| summary.stale_count > 0) {
                add_row(&mut self.starts, grouping.bin_start(start_ns), stale.first.0);
                continue;
            }
            let end_ns = start_ns.saturating_add(windows.width_ns - 1);
            match self.open.last_mut().filter(|last| last.end_ns.checked_add(1) == Some(start_ns)) {
                Some(last) => last.end_ns = end_ns,
                None => self.open.push(TimeRange::new(start_ns, end_ns)),
            }
        }
    }
}

impl Reader<'_> {
    /// Reads the rows of the stretches in which there are no values: mostly there are none at all.
    pub(super) fn look_for_rows(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        rows: &mut RowBins,
        grouping: &Grouping,
    ) -> Result<(), QueryError> {
        let mut open = std::mem::take(&mut rows.open);
        if let (true, Some(first), Some(last)) = (open.len() > STRETCHES_MAX, open.first(), open.last()) {
            open = vec![TimeRange::new(first.start_ns, last.end_ns)];
        }
        for stretch in open {
            let is_one = grouping.bin_start(stretch.start_ns) == grouping.bin_start(stretch.end_ns);
            let frames = if is_one {
                self.end_rows(scan, group, &EndRows { range: stretch, rows: 1, end: End::Oldest })?
            } else {
                self.read_group(scan, group, &stretch)?
            };
            self.context.budget.give_back(frames.iter().map(Frame::samples).sum());
            let starts = frames.iter().flat_map(|frame| starts_of(&frame.timestamps_ns, grouping));
            starts.for_each(|(start_ns, first_ns)| add_row(&mut rows.starts, start_ns, first_ns));
        }
        Ok(())
    }
}

/// Adds a row's time to the bins.
pub(super) fn add_row(starts: &mut Starts, start_ns: i64, time_ns: i64) {
    let first_ns = starts.entry(start_ns).or_insert(time_ns);
    *first_ns = time_ns.min(*first_ns);
}

/// The bins of times, which are in order.
pub(super) fn starts_of(timestamps_ns: &[i64], grouping: &Grouping) -> Starts {
    let mut starts = Starts::new();
    let mut behind_ns = i64::MIN;
    for time_ns in timestamps_ns {
        // Times of a bin follow one another.
        if *time_ns >= behind_ns {
            let start_ns = grouping.bin_start(*time_ns);
            add_row(&mut starts, start_ns, *time_ns);
            behind_ns = grouping.width_ns.map_or(i64::MAX, |width_ns| start_ns.saturating_add(width_ns));
        }
    }
    starts
}

//! The first bins of time, or the last ones, without making all: ranges of time are grouped one after the other, from that end on, until
//! there are enough bins.

use model::TimeRange;
use store::{End, SelectedGroup};

use super::scan::Reader;
use super::{Run, cached_bins, filtered_scan, limited};
use crate::plan::{AggregateInput, Grouping, Plan, Scan};
use crate::views::intersect;
use crate::{Frame, QueryError};

/// How much longer each range is than the one before.
const RANGE_FACTOR: usize = 16;

/// Bins at one end of all time.
pub(super) struct EndBins<'a> {
    /// A scan, or a filtered one.
    input: &'a Plan,
    scan: &'a Scan,
    grouping: &'a Grouping,
    width_ns: i64,
    end: End,
}

impl<'a> EndBins<'a> {
    /// The bins of which a plan wants some at an end, if they are those of one series. The bins of several may begin at any time, and without
    /// a table names and types of columns depend on what all bins have.
    pub(super) fn new(plan: &'a Plan, end: End) -> Option<Self> {
        let Plan::GroupBy { input, grouping } = plan else { return None };
        Self::of_bins(input, grouping, end)
    }

    fn of_bins(input: &'a Plan, grouping: &'a Grouping, end: End) -> Option<Self> {
        let scan = match input {
            Plan::Scan(scan) => scan,
            other => filtered_scan(other)?.0,
        };
        let width_ns = grouping.width_ns.filter(|width_ns| *width_ns > 0)?;
        let is_one = grouping.by.as_ref().is_some_and(Vec::is_empty);
        let is_by_name =
            scan.table.is_some() && grouping.aggregates.iter().all(|call| call.input != AggregateInput::Each);
        let is_apart = !grouping.reads_bin_before();
        (is_one && is_by_name && is_apart).then_some(Self { input, scan, grouping, width_ns, end })
    }

    /// The next range of so many bins in what is left of a range, and what is left after it.
    fn next_range(&self, left: &TimeRange, bins: usize) -> (TimeRange, Option<TimeRange>) {
        let length_ns = i64::try_from(bins).unwrap_or(i64::MAX).saturating_mul(self.width_ns);
        match self.end {
            End::Oldest => {
                let behind_ns = self.grouping.bin_start(left.start_ns).saturating_add(length_ns);
                let end_ns = behind_ns.saturating_sub(1).clamp(left.start_ns, left.end_ns);
                let rest = (end_ns < left.end_ns).then(|| TimeRange::new(end_ns + 1, left.end_ns));
                (TimeRange::new(left.start_ns, end_ns), rest)
            }
            End::Newest => {
                let start_ns = self.grouping.bin_start(left.end_ns).saturating_sub(length_ns - self.width_ns);
                let start_ns = start_ns.clamp(left.start_ns, left.end_ns);
                let rest = (left.start_ns < start_ns).then(|| TimeRange::new(left.start_ns, start_ns - 1));
                (TimeRange::new(start_ns, left.end_ns), rest)
            }
        }
    }
}

/// Returns whether bins of which some at an end are wanted are looked for from there.
pub(crate) fn is_searched(input: &Plan, grouping: &Grouping, end: End) -> bool {
    EndBins::of_bins(input, grouping, end).is_some()
}

impl Run<'_> {
    /// So many bins at an end, those nearest to it first.
    pub(super) fn end_bins(&mut self, end_bins: &EndBins<'_>, rows: usize) -> Result<Vec<Frame>, QueryError> {
        let extent = self.extent_of(end_bins.scan)?.map(|extent| intersect(&extent, &end_bins.scan.range));
        let mut left = extent.filter(|range| range.start_ns <= range.end_ns);
        let groups = self.reads.groups;
        let mut ranges: Vec<(Vec<Frame>, TimeRange)> = Vec::new();
        let (mut found, mut bins) = (0, rows.max(1));
        while let Some(range) = left.filter(|_| found < rows) {
            let (range, rest) = end_bins.next_range(&range, bins);
            let frames = self.group_now(&cached_bins::within(end_bins.input, range), end_bins.grouping)?;
            found += frames.iter().map(Frame::rows).sum::<usize>();
            // A bin that the range cuts begins before it.
            let bins_from = TimeRange::new(end_bins.grouping.bin_start(range.start_ns), range.end_ns);
            ranges.push((frames, bins_from));
            (left, bins) = (rest, bins.saturating_mul(RANGE_FACTOR));
        }
        // The same groups were selected for each range.
        self.reads.groups = groups;
        ranges.sort_by_key(|(_, range)| range.start_ns);
        let all_samples: usize = ranges.iter().flat_map(|(frames, _)| frames).map(Frame::samples).sum();
        let ranges: Vec<(&[Frame], TimeRange)> =
            ranges.iter().map(|(frames, range)| (frames.as_slice(), *range)).collect();
        let cut = |frame: Frame| match end_bins.end {
            End::Newest => frame.newest_first(rows),
            End::Oldest => limited(frame, rows, 0),
        };
        let frames: Vec<Frame> = Frame::join(&ranges)?.into_iter().map(cut).filter(|frame| frame.rows() > 0).collect();
        let returned_samples: usize = frames.iter().map(Frame::samples).sum();
        self.context.budget.give_back(all_samples.saturating_sub(returned_samples));
        Ok(frames)
    }

    /// A range that holds all rows of a scan, nearly the smallest.
    fn extent_of(&mut self, scan: &Scan) -> Result<Option<TimeRange>, QueryError> {
        let extent = |reader: &mut Reader<'_>, group: &SelectedGroup| {
            reader.context.store.extent(group, &scan.range).map_err(QueryError::from)
        };
        let extents = self.of_groups(scan, &None, &extent)?.into_iter().flatten();
        let both = |a: TimeRange, b: TimeRange| TimeRange::new(a.start_ns.min(b.start_ns), a.end_ns.max(b.end_ns));
        Ok(extents.reduce(both))
    }
}

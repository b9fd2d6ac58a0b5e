//! Rows of lone series: one buffer for all series of a shard, so that a series costs nothing while it is silent.
//!
//! Rows come in order of arrival and are sorted by group in runs: when a run's worth has come, or when somebody reads. Runs of
//! like size are joined, so that a read looks into few of them.

use std::sync::Arc;

use index::GroupId;
use model::TimeRange;

use super::layouts::LayoutId;

/// Rows of a run as it is first sorted.
const RUN_ROWS: usize = 1 << 16;

/// Unsorted rows that a read goes through; more are sorted first.
const UNSORTED_ROWS: usize = 512;

/// Runs of like size that are joined into one.
const RUNS_AT_ONCE: usize = 8;

/// A row of one cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LoneRow {
    pub(crate) group: GroupId,
    /// The layout of its one column.
    pub(crate) layout: LayoutId,
    pub(crate) timestamp_ns: i64,
    pub(crate) cell: u64,
}

/// Rows sorted by group, those of a group in order of arrival.
type Run = Arc<Vec<LoneRow>>;

/// Rows of lone series.
#[derive(Debug, Default)]
pub(crate) struct LoneRows {
    /// Oldest first; each at least [`RUNS_AT_ONCE`] times as long as those far behind it.
    runs: Vec<Run>,
    unsorted: Vec<LoneRow>,
}

impl LoneRows {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let rows: usize = self.runs.iter().map(|run| run.len()).sum();
        rows * size_of::<LoneRow>() + self.unsorted.capacity() * size_of::<LoneRow>()
    }

    pub(crate) fn push(&mut self, row: LoneRow) {
        self.unsorted.push(row);
        if self.unsorted.len() >= RUN_ROWS {
            self.sort();
        }
    }

    /// Sorts what has come since the last time.
    pub(crate) fn sort(&mut self) {
        if self.unsorted.is_empty() {
            return;
        }
        let mut rows = std::mem::take(&mut self.unsorted);
        rows.sort_by_key(|row| row.group);
        self.runs.push(Arc::new(rows));
        self.join_runs();
    }

    /// Joins the newest runs while there are many of like size.
    fn join_runs(&mut self) {
        loop {
            let count = self.runs.len();
            let newest: usize = self.runs.iter().rev().take(RUNS_AT_ONCE - 1).map(|run| run.len()).sum();
            let Some(oldest) = count.checked_sub(RUNS_AT_ONCE).and_then(|place| self.runs.get(place)) else {
                return;
            };
            // The oldest of the last eight is much larger than the others: they are not of like size.
            if oldest.len() > newest.max(RUN_ROWS) {
                return;
            }
            let joined = self.runs.split_off(count - RUNS_AT_ONCE);
            let mut rows = Vec::with_capacity(joined.iter().map(|run| run.len()).sum());
            joined.iter().for_each(|run| rows.extend_from_slice(run));
            // Stable, and made for input that is a few sorted stretches.
            rows.sort_by_key(|row| row.group);
            self.runs.push(Arc::new(rows));
        }
    }

    /// Makes a following [`LoneRows::of_group`] cheap.
    pub(crate) fn prepare_read(&mut self) {
        if self.unsorted.len() > UNSORTED_ROWS {
            self.sort();
        }
    }

    /// A group's rows in a range, in order of arrival.
    pub(crate) fn of_group(&self, group: GroupId, range: &TimeRange) -> Vec<LoneRow> {
        let mut found = Vec::new();
        for run in &self.runs {
            let from = run.partition_point(|row| row.group < group);
            let of_run = run.get(from..).unwrap_or_default().iter().take_while(|row| row.group == group);
            found.extend(of_run.filter(|row| range.contains(row.timestamp_ns)));
        }
        let unsorted = self.unsorted.iter().filter(|row| row.group == group && range.contains(row.timestamp_ns));
        found.extend(unsorted);
        found
    }

    /// All rows by group.
    pub(crate) fn by_group(&self) -> RowsByGroup<'_> {
        let mut runs: Vec<&[LoneRow]> = self.runs.iter().map(|run| run.as_slice()).collect();
        runs.push(&self.unsorted);
        let groups = runs.iter().flat_map(|run| run.iter()).map(|row| row.group as usize + 1).max().unwrap_or(0);
        // A counting sort: how many rows each group has, where they start, where they go.
        let mut starts = vec![0u32; groups + 1];
        for row in runs.iter().flat_map(|run| run.iter()) {
            starts[row.group as usize + 1] += 1;
        }
        for group in 0..groups {
            starts[group + 1] += starts[group];
        }
        let mut next = starts.clone();
        let mut rows = vec![(0, 0); starts.last().map_or(0, |rows| *rows as usize)];
        for (number, run) in runs.iter().enumerate() {
            for (place, row) in run.iter().enumerate() {
                let at = &mut next[row.group as usize];
                rows[*at as usize] = (number as u32, place as u32);
                *at += 1;
            }
        }
        RowsByGroup { runs, starts, rows }
    }
}

/// Rows by group, for a flush.
pub(crate) struct RowsByGroup<'a> {
    runs: Vec<&'a [LoneRow]>,
    /// Where each group's rows start; one more at the end.
    starts: Vec<u32>,
    /// Run, place in the run.
    rows: Vec<(u32, u32)>,
}

impl RowsByGroup<'_> {
    /// The groups that have rows, ascending.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        let ends = self.starts.windows(2).enumerate();
        ends.filter(|(_, ends)| matches!(ends, [start, end] if start < end)).map(|(group, _)| group as GroupId)
    }

    /// A group's rows, in order of arrival.
    pub(crate) fn of_group(&self, group: GroupId) -> impl Iterator<Item = LoneRow> {
        let at = |group: usize| self.starts.get(group).map_or(self.rows.len(), |start| *start as usize);
        let rows = self.rows.get(at(group as usize)..at(group as usize + 1)).unwrap_or_default();
        rows.iter().filter_map(|(run, place)| self.runs.get(*run as usize)?.get(*place as usize).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_of_arrival_whatever_is_sorted_when() {
        let mut lone = LoneRows::default();
        let row = |number: i64| LoneRow { group: (number % 97) as u32, layout: 0, timestamp_ns: number, cell: 0 };
        let total = 5 * RUN_ROWS as i64;
        for number in 0..total {
            lone.push(row(number));
            if number % 5000 == 0 {
                lone.prepare_read();
            }
        }
        assert!(lone.runs.len() < 3 * RUNS_AT_ONCE, "{} runs", lone.runs.len());
        let expected: Vec<i64> = (0..total).filter(|number| number % 97 == 13).collect();
        let times = |rows: Vec<LoneRow>| rows.iter().map(|row| row.timestamp_ns).collect::<Vec<_>>();
        assert_eq!(times(lone.of_group(13, &TimeRange::ALL)), expected);
        let by_group = lone.by_group();
        assert_eq!(times(by_group.of_group(13).collect()), expected);
        assert_eq!(by_group.groups().count(), 97);
    }
}

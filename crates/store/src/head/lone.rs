//! Rows of lone series: one buffer for all series of a shard, so that a series costs nothing while it is silent.
//!
//! Rows lie in order of arrival, and each knows where the one before it of the same series is: a read goes from a series' newest row
//! back, a flush sorts all rows by counting. Nothing is sorted while rows come in.

use index::GroupId;
use model::TimeRange;

/// Rows that are kept together: what is there already never moves.
const BLOCK_ROWS: usize = 1 << 16;

/// Most rows of a buffer: their places fit 32 bits, one of which says that there is none.
const ROWS_MAX: usize = u32::MAX as usize;

/// Stands for no row.
const NONE: u32 = u32::MAX;

/// A sample of a lone series.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Sample {
    pub(crate) timestamp_ns: i64,
    pub(crate) cell: u64,
}

#[derive(Debug, Clone, Copy)]
struct LoneRow {
    group: GroupId,
    /// Where the group's row before this one is.
    previous: u32,
    sample: Sample,
}

/// Rows of lone series.
#[derive(Debug, Default)]
pub(crate) struct LoneRows {
    /// In order of arrival; all but the last block are full.
    blocks: Vec<Vec<LoneRow>>,
    count: usize,
    /// Where each group's newest row is.
    newest: Vec<u32>,
}

impl LoneRows {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.count * size_of::<LoneRow>() + self.newest.capacity() * size_of::<u32>()
    }

    /// Whether there is no room for more rows, whatever memory there is.
    pub(crate) fn is_full(&self) -> bool {
        self.count >= ROWS_MAX
    }

    pub(crate) fn push(&mut self, group: GroupId, sample: Sample) {
        let place = group as usize;
        if place >= self.newest.len() {
            self.newest.resize(place + 1, NONE);
        }
        let previous = std::mem::replace(&mut self.newest[place], self.count as u32);
        if self.count.is_multiple_of(BLOCK_ROWS) {
            // The first block grows as it is filled: a small head stays small.
            self.blocks.push(if self.count == 0 { Vec::new() } else { Vec::with_capacity(BLOCK_ROWS) });
        }
        if let Some(block) = self.blocks.last_mut() {
            block.push(LoneRow { group, previous, sample });
            self.count += 1;
        }
    }

    fn row(&self, place: u32) -> Option<&LoneRow> {
        self.blocks.get(place as usize / BLOCK_ROWS)?.get(place as usize % BLOCK_ROWS)
    }

    /// A group's samples in a range, in order of arrival.
    pub(crate) fn of_group(&self, group: GroupId, range: &TimeRange) -> Vec<Sample> {
        let mut found = Vec::new();
        let mut place = self.newest.get(group as usize).copied().unwrap_or(NONE);
        while let Some(row) = self.row(place) {
            if range.contains(row.sample.timestamp_ns) {
                found.push(row.sample);
            }
            place = row.previous;
        }
        found.reverse();
        found
    }

    /// Whether a group has a sample in a range.
    pub(crate) fn has_rows(&self, group: GroupId, range: &TimeRange) -> bool {
        let newest = self.newest.get(group as usize).copied().unwrap_or(NONE);
        let mut rows = std::iter::successors(self.row(newest), |row| self.row(row.previous));
        rows.any(|row| range.contains(row.sample.timestamp_ns))
    }

    /// All samples by group.
    pub(crate) fn by_group(&self) -> SamplesByGroup {
        let rows = || self.blocks.iter().flatten();
        // A counting sort: how many rows each group has, where they start, where they go.
        let mut starts = vec![0u32; self.newest.len() + 1];
        for row in rows() {
            starts[row.group as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        let mut next = starts.clone();
        let mut samples = vec![Sample::default(); self.count];
        for row in rows() {
            let at = &mut next[row.group as usize];
            samples[*at as usize] = row.sample;
            *at += 1;
        }
        SamplesByGroup { starts, samples }
    }
}

/// Samples by group, for a flush.
pub(crate) struct SamplesByGroup {
    /// Where each group's samples start; one more at the end.
    starts: Vec<u32>,
    samples: Vec<Sample>,
}

impl SamplesByGroup {
    /// The groups that have samples, ascending.
    pub(crate) fn groups(&self) -> impl Iterator<Item = GroupId> {
        let ends = self.starts.windows(2).enumerate();
        ends.filter(|(_, ends)| matches!(ends, [start, end] if start < end)).map(|(group, _)| group as GroupId)
    }

    /// A group's samples, in order of arrival.
    pub(crate) fn of_group(&self, group: GroupId) -> &[Sample] {
        let at = |group: usize| self.starts.get(group).map_or(self.samples.len(), |start| *start as usize);
        self.samples.get(at(group as usize)..at(group as usize + 1)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_in_order_of_arrival() {
        let mut lone = LoneRows::default();
        let total = 5 * BLOCK_ROWS as i64 / 2;
        for number in 0..total {
            lone.push((number % 97) as u32, Sample { timestamp_ns: number, cell: 0 });
        }
        let expected: Vec<i64> = (0..total).filter(|number| number % 97 == 13).collect();
        let times = |rows: &[Sample]| rows.iter().map(|row| row.timestamp_ns).collect::<Vec<_>>();
        assert_eq!(times(&lone.of_group(13, &TimeRange::ALL)), expected);
        assert_eq!(times(&lone.of_group(13, &TimeRange::new(14, 300))), [110, 207]);
        assert!(lone.has_rows(13, &TimeRange::new(14, 110)) && !lone.has_rows(13, &TimeRange::new(14, 109)));
        assert!(lone.of_group(97, &TimeRange::ALL).is_empty());
        let by_group = lone.by_group();
        assert_eq!(times(by_group.of_group(13)), expected);
        assert!(by_group.groups().eq(0..97));
    }
}

//! The last row of each series of a table: rows of many series stand side by side in the same columns.

use std::sync::{Arc, Mutex, PoisonError};

use model::{Labels, TimeRange};
use store::{End, EndRows, SelectedGroup, TableGroups};

use super::narrow::Narrowing;
use super::scan::{Reader, Reads};
use super::{Context, Outcome, Run};
use crate::plan::Scan;
use crate::result::series_labels::SeriesLabels;
use crate::{Frame, FrameColumn, QueryError};

/// Cost of finding a group's last row, as that of reading so many samples.
const LOOKUP_SAMPLES: u64 = 20;

/// The last rows of series.
#[derive(Debug, Default)]
pub struct LastRows {
    /// The series, in order of their labels.
    pub labels: SeriesLabels,
    /// The row of each.
    pub rows: Vec<LastRow>,
    /// Columns that series share, or that are one's own.
    pub frames: Vec<Vec<FrameColumn>>,
    /// Counts of what reading them took.
    pub reads: Reads,
}

/// A series' last row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRow {
    /// Nanoseconds since the Unix epoch.
    pub time_ns: i64,
    /// Which of [`LastRows::frames`] has the cells.
    pub frame: u32,
    /// The row's index in it.
    pub row: u32,
}

impl LastRows {
    /// The first row of each series of an answer.
    pub(crate) fn of_frames(outcome: Outcome) -> Self {
        let mut last = Self { reads: outcome.reads, ..Self::default() };
        for frame in outcome.frames {
            let Some(time_ns) = frame.timestamps_ns.first() else { continue };
            last.rows.push(LastRow { time_ns: *time_ns, frame: last.frames.len() as u32, row: 0 });
            last.labels.push(frame.labels);
            last.frames.push(frame.columns);
        }
        last
    }
}

/// A row of a group, given by its index, with the labels of the series if they are not the group's.
struct GroupRow {
    group: usize,
    labels: Option<Labels>,
    row: LastRow,
}

impl GroupRow {
    fn labels_in<'a>(&'a self, groups: &'a TableGroups) -> Option<&'a Labels> {
        self.labels.as_ref().or(groups.get(self.group).map(|group| &group.labels))
    }
}

/// The rows of a batch of groups.
#[derive(Default)]
struct Batch {
    /// Frames are numbered within the batch.
    rows: Vec<GroupRow>,
    frames: Vec<Vec<FrameColumn>>,
    reads: Reads,
}

/// The last row of each series that a scan of a table selects.
///
/// # Errors
///
/// As those of [`super::execute`].
pub(crate) fn last_rows(scan: &Scan, context: &Context<'_>) -> Result<LastRows, QueryError> {
    let mut run = Run { context, steps: Vec::new(), reads: Reads::default() };
    let mut last = run.last_rows(scan)?;
    last.reads = run.reads;
    Ok(last)
}

impl Run<'_> {
    fn last_rows(&mut self, scan: &Scan) -> Result<LastRows, QueryError> {
        let context = self.context;
        if let Some(source) = super::regular_source(context) {
            return self.last_rows_regular(source, scan);
        }
        let groups = self.table_groups(scan)?;
        let narrowing = Narrowing::new(&groups, &scan.wanted());
        let reader = context.store.reader();
        let batches: Vec<Mutex<Batch>> = (0..groups.batches()).map(|_| Mutex::default()).collect();
        context.helpers.run(batches.len(), context.budget, &|number| {
            let Some(target) = batches.get(number) else { return Ok(0) };
            context.budget.check()?;
            let mut reader = Reader { context, groups: &reader, reads: Reads::default(), narrowing: &narrowing };
            let batch = Batch::read(&mut reader, scan, &groups, number)?;
            let samples = batch.reads.samples + batch.rows.len() as u64 * LOOKUP_SAMPLES;
            *target.lock().unwrap_or_else(PoisonError::into_inner) = batch;
            Ok(samples)
        })?;
        self.reads.origins.merge(&reader.origins());
        let batches = batches.into_iter().map(|batch| batch.into_inner().unwrap_or_else(PoisonError::into_inner));
        let last = joined(batches, &groups);
        self.reads.merge(&last.reads);
        Ok(last)
    }

    /// The last row of each series, a frame each.
    pub(super) fn last_row_frames(&mut self, scan: &Scan) -> Result<Vec<Frame>, QueryError> {
        let last = self.last_rows(scan)?;
        let frame = |(series, row): (u32, &LastRow)| {
            let columns = last.frames.get(row.frame as usize)?;
            let columns = columns.iter().map(|column| column.pick(&[row.row as usize])).collect();
            Some(Frame::new(last.labels.get(series)?.clone(), vec![row.time_ns], columns))
        };
        Ok((0..).zip(&last.rows).filter_map(frame).collect())
    }
}

/// Puts batches together in order of labels.
fn joined(batches: impl Iterator<Item = Batch>, groups: &Arc<TableGroups>) -> LastRows {
    let mut last = LastRows::default();
    let mut rows: Vec<GroupRow> = Vec::with_capacity(groups.len());
    for batch in batches {
        let before = last.frames.len() as u32;
        let numbered = |row: GroupRow| GroupRow { row: LastRow { frame: before + row.row.frame, ..row.row }, ..row };
        rows.extend(batch.rows.into_iter().map(numbered));
        last.frames.extend(batch.frames);
        last.reads.merge(&batch.reads);
    }
    // The ranks of groups are their order by labels, but a group may have several series.
    let by_rank = by_rank(&rows, groups);
    let is_one_each = by_rank.is_some();
    last.labels = SeriesLabels::of_groups(groups.clone(), is_one_each);
    let order = by_rank.unwrap_or_else(|| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|number| rows.get(*number).and_then(|row| row.labels_in(groups)));
        order
    });
    last.rows.reserve(order.len());
    for row in order.into_iter().filter_map(|number| rows.get(number)) {
        last.labels.push_group(row.group as u32, row.labels.clone());
        last.rows.push(row.row);
    }
    last
}

/// The rows in order of the ranks of their groups; `None` if a group has several.
fn by_rank(rows: &[GroupRow], groups: &TableGroups) -> Option<Vec<usize>> {
    let mut numbers: Vec<Option<usize>> = vec![None; groups.len()];
    for (number, row) in rows.iter().enumerate() {
        let ranked = numbers.get_mut(groups.get(row.group)?.rank as usize)?;
        if ranked.replace(number).is_some() {
            return None;
        }
    }
    Some(numbers.into_iter().flatten().collect())
}

impl Batch {
    fn read(reader: &mut Reader<'_>, scan: &Scan, groups: &TableGroups, number: usize) -> Result<Self, QueryError> {
        let mut batch = Self::default();
        let (first_index, batch_groups) = groups.batch(number);
        let Some(first) = batch_groups.first() else { return Ok(batch) };
        let is_all_read = Arc::ptr_eq(&reader.narrowing.narrow(first).columns, &first.columns);
        if is_all_read && first.columns.iter().all(|column| column.labels.is_empty()) {
            batch.add_together(reader, &scan.range, groups, number)?;
        } else {
            (first_index..)
                .zip(batch_groups)
                .try_for_each(|(index, group)| batch.add_one(reader, scan, index, group))?;
        }
        batch.reads.merge(&reader.reads);
        Ok(batch)
    }

    /// Adds the rows of all groups as one frame.
    fn add_together(
        &mut self,
        reader: &mut Reader<'_>,
        range: &TimeRange,
        groups: &TableGroups,
        number: usize,
    ) -> Result<(), QueryError> {
        let Some(columns) = groups.batch(number).1.first().map(|group| group.columns.clone()) else { return Ok(()) };
        let found = reader.groups.last_rows(groups, number, range)?;
        reader.charge(found.groups.len() * columns.len())?;
        let named = found.rows.columns.into_iter().zip(columns.iter());
        let named = named.filter_map(|(cells, column)| Some(FrameColumn { name: column.field.clone(), cells: cells? }));
        let frame = self.frames.len() as u32;
        self.frames.push(named.collect());
        for ((row, group), time_ns) in (0..).zip(found.groups).zip(found.rows.timestamps_ns) {
            self.rows.push(GroupRow { group, labels: None, row: LastRow { time_ns, frame, row } });
        }
        Ok(())
    }

    /// Adds the last rows of a group's series as frames of their own.
    fn add_one(
        &mut self,
        reader: &mut Reader<'_>,
        scan: &Scan,
        index: usize,
        group: &SelectedGroup,
    ) -> Result<(), QueryError> {
        let wanted = EndRows { range: scan.range, rows: 1, end: End::Newest };
        for frame in reader.end_rows(scan, group, &wanted)? {
            let Frame { labels, timestamps_ns, columns, .. } = frame;
            let frame = self.frames.len() as u32;
            let labels = (labels != group.labels).then_some(labels);
            for (time_ns, row) in timestamps_ns.into_iter().zip(0..) {
                self.rows.push(GroupRow { group: index, labels: labels.clone(), row: LastRow { time_ns, frame, row } });
            }
            self.frames.push(columns);
        }
        Ok(())
    }
}

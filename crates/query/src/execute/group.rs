//! Rows in bins of time: from summaries where a scan is grouped, else from rows.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Folds, Labels, SummaryParts, TimeRange, ValueType};
use store::{End, EndRows, SelectedGroup, Windows};

use super::binned::{Binned, TIME, bins_name, to_frame};
use super::bins::{self, Bin, Bins};
use super::distinct;
use super::evaluate;
use super::head_bins;
use super::increase;
use super::narrow::Wanted;
use super::points::{self, PointOrder};
use super::rows::{self, RowBins, Starts};
use super::scan::{Reader, named_columns, of_table};
use super::spans::{self, RowSpan};
use super::{Run, histogram, regular_source};
use crate::plan::{Aggregate, AggregateCall, AggregateInput, Expression, Grouping, Scan};
use crate::result::frame::{Frame, FrameColumn};
use crate::{Budget, QueryError};

/// Bins between the first and the last row of a series that are asked of summaries; with more, its rows are read.
const WINDOWS_MAX: i64 = 200_000;
/// So many are asked of summaries without looking where rows are: to find that out takes as long.
const FEW_BINS: i64 = 8;
/// The samples that a bin takes out of a budget.
const BIN_SAMPLES: usize = 10;

/// How a group's rows are put into bins.
pub(super) type BinGroup<'a> = dyn Fn(&mut Reader<'_>, &SelectedGroup) -> Result<Vec<Binned>, QueryError> + Sync + 'a;

impl Run<'_> {
    /// Groups what a scan selects without reading samples where summaries stand for them.
    pub(super) fn group_scan(&mut self, scan: &Scan, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let binned = self.scan_bins(scan, grouping)?;
        self.finish(binned, grouping)
    }

    /// The bins of what a scan selects.
    pub(super) fn scan_bins(&mut self, scan: &Scan, grouping: &Grouping) -> Result<Vec<Binned>, QueryError> {
        if let Some(source) = regular_source(self.context) {
            return self.regular_bins(source, (scan, None), grouping);
        }
        let bin = |reader: &mut Reader<'_>, group: &SelectedGroup| reader.bin_group(scan, group, grouping);
        let wanted = scan.wanted_by(grouping, None);
        match head_bins::windows_of(scan, grouping) {
            Some(bin_ranges) => self.head_row_bins(scan, &wanted, &bin_ranges, grouping, &bin),
            None => self.gather(scan, &wanted, grouping, &bin),
        }
    }

    /// Groups the rows of a scan that satisfy a condition, without holding all.
    pub(super) fn group_filtered(
        &mut self,
        scan: &Scan,
        condition: &Expression,
        grouping: &Grouping,
    ) -> Result<Vec<Frame>, QueryError> {
        let binned = self.filtered_bins(scan, condition, grouping)?;
        self.finish(binned, grouping)
    }

    /// The bins of the rows of a scan that satisfy a condition.
    pub(super) fn filtered_bins(
        &mut self,
        scan: &Scan,
        condition: &Expression,
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        if let Some(source) = regular_source(self.context) {
            return self.regular_bins(source, (scan, Some(condition)), grouping);
        }
        let bin = |reader: &mut Reader<'_>, group: &SelectedGroup| {
            let mut binned = Vec::new();
            for frame in reader.read_group(scan, group, &scan.range)? {
                let budget = reader.context.budget;
                budget.give_back(frame.samples());
                let frame = evaluate::filtered(of_table(scan, frame, condition), condition, budget)?;
                if frame.rows() > 0 {
                    binned.push(bin_frame(&frame, grouping, scan.is_of_every_row(), budget)?);
                }
            }
            Ok(binned)
        };
        self.gather(scan, &scan.wanted_by(grouping, Some(condition)), grouping, &bin)
    }

    /// Puts the bins of the groups that a scan selects together.
    pub(super) fn gather(
        &mut self,
        scan: &Scan,
        wanted: &Wanted<'_>,
        grouping: &Grouping,
        bin: &BinGroup<'_>,
    ) -> Result<Vec<Binned>, QueryError> {
        let mut gathered = Gathered::new(grouping, self.context.budget);
        self.of_groups(scan, wanted, bin)?.into_iter().flatten().for_each(|binned| gathered.add(binned));
        Ok(gathered.into_binned())
    }

    /// Groups rows.
    pub(super) fn group_frames(
        &mut self,
        frames: Vec<Frame>,
        grouping: &Grouping,
        every_row: bool,
    ) -> Result<Vec<Frame>, QueryError> {
        let binned = self.frame_bins(frames, grouping, every_row)?;
        self.finish(binned, grouping)
    }

    /// The bins of rows, of which those may count in which nothing that is read has a value.
    pub(super) fn frame_bins(
        &mut self,
        frames: Vec<Frame>,
        grouping: &Grouping,
        every_row: bool,
    ) -> Result<Vec<Binned>, QueryError> {
        let mut gathered = Gathered::new(grouping, self.context.budget);
        for frame in frames {
            self.context.budget.check()?;
            let frame = frame.in_time_order();
            gathered.add(bin_frame(&frame, grouping, every_row, self.context.budget)?);
            self.context.budget.give_back(frame.samples());
        }
        Ok(gathered.into_binned())
    }

    pub(super) fn finish(&mut self, binned: Vec<Binned>, grouping: &Grouping) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::with_capacity(binned.len());
        let budget = self.context.budget;
        for series in binned {
            let held = series.held_samples();
            let asked = series.sketch_text_samples_max(grouping);
            budget.take(asked)?;
            let frame = to_frame(series, grouping).map_err(QueryError::Execution)?;
            budget.give_back(held);
            budget.take(frame.samples().saturating_sub(asked))?;
            budget.give_back(asked.saturating_sub(frame.samples()));
            frames.push(frame);
        }
        Ok(frames)
    }
}

impl Reader<'_> {
    fn bin_group(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        let every_row = scan.is_of_every_row();
        let read = self.narrowing.narrow(group);
        if every_row && grouping.width_ns.is_none() && !has_wanted(&read, grouping) && !grouping.is_of_all_rows() {
            return self.all_in_one(scan, group);
        }
        if from_summaries(scan, &read, grouping) {
            let few =
                has_few_bins(&scan.range, grouping).then(|| bin_ranges(&scan.range, &scan.range, grouping)).flatten();
            let all = match few {
                Some(few) => Some(few),
                None => {
                    let extent = self.context.store.extent(group, &scan.range)?;
                    let Some(extent) = extent else { return Ok(Vec::new()) };
                    bin_ranges(&extent, &scan.range, grouping)
                }
            };
            if let Some(bin_ranges) = all {
                return self.sum_group(scan, &read, &bin_ranges, grouping);
            }
        }
        let frames = self.read_group(scan, group, &scan.range)?;
        self.context.budget.give_back(frames.iter().map(Frame::samples).sum());
        frames.iter().map(|frame| bin_frame(frame, grouping, every_row, self.context.budget)).collect()
    }

    /// The one bin of a group that has none of the wanted columns: it exists if there is a row.
    fn all_in_one(&mut self, scan: &Scan, group: &SelectedGroup) -> Result<Vec<Binned>, QueryError> {
        let frames = self.end_rows(scan, group, &EndRows { range: scan.range, rows: 1, end: End::Oldest })?;
        self.context.budget.give_back(frames.iter().map(Frame::samples).sum());
        let binned = |frame: Frame| {
            let rows = frame.timestamps_ns.first().map(|first_ns| (0, *first_ns)).into_iter().collect();
            Binned { labels: frame.labels, columns: Vec::new(), rows }
        };
        Ok(frames.into_iter().map(binned).collect())
    }

    /// A group's windows as bins.
    fn sum_group(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        bin_ranges: &[Windows],
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        let mut columns: Vec<Bins> = vec![Bins::default(); group.columns.len()];
        let mut rows = RowBins::default();
        for windows in bin_ranges {
            let samples = windows.count * group.columns.len() * BIN_SAMPLES;
            self.context.budget.take(samples)?;
            let summed = self.context.store.aggregate_parts(group, windows, parts_of(grouping));
            let summed = summed?;
            self.reads.add(&summed.1);
            if scan.is_of_every_row() {
                rows.add(windows, &summed.0, grouping);
            }
            for (bins, column) in columns.iter_mut().zip(summed.0) {
                let filled = column.windows.into_iter().enumerate().filter(|(_, summary)| summary.count > 0);
                for (number, summary) in filled {
                    let start_ns = grouping.bin_start(windows.start_of(number));
                    bins.add(start_ns, Bin::Numbers { summary, values: Vec::new(), is_bool: false });
                }
            }
            self.context.budget.give_back(samples);
        }
        let named = named_columns(scan, group);
        if scan.is_of_every_row() {
            self.look_for_rows(scan, group, &mut rows, grouping)?;
            if named.len() > 1 {
                // Members with labels of their own share the group's rows.
                let bins = columns.iter().flat_map(Bins::iter);
                bins.for_each(|(start_ns, bin)| rows::add_row(&mut rows.starts, *start_ns, bin.first_ns()));
            }
        }
        let mut binned = Vec::new();
        for (labels, named) in named {
            let bins = named
                .into_iter()
                .map(|(place, name)| (name, columns.get_mut(place).map(std::mem::take).unwrap_or_default()));
            let columns = bins.filter(|(_, bins)| !bins.is_empty()).collect();
            binned.push(Binned { labels, columns, rows: rows.starts.clone() });
        }
        binned.retain(|series| !series.is_empty());
        Ok(binned)
    }
}

/// Series as they come: those that agree in the labels by which rows are grouped become one.
pub(super) struct Gathered<'a> {
    pub(super) grouping: &'a Grouping,
    budget: &'a Budget,
    binned: Vec<Binned>,
    /// Where the order of series matters those that are not in `binned` yet.
    waiting: Vec<Binned>,
    /// By the labels by which rows are grouped, one after the other.
    indexes: HashMap<Vec<u8>, usize>,
    /// Those that were looked up last.
    key: Vec<u8>,
}

impl<'a> Gathered<'a> {
    pub(super) fn new(grouping: &'a Grouping, budget: &'a Budget) -> Self {
        Self { grouping, budget, binned: Vec::new(), waiting: Vec::new(), indexes: HashMap::new(), key: Vec::new() }
    }

    pub(super) fn add(&mut self, series: Binned) {
        match &self.grouping.by {
            None => self.binned.push(series),
            // They come in the order in which they were made, shard by shard.
            Some(_) if self.grouping.is_of_lines() => self.waiting.push(series),
            Some(_) => self.merge(series),
        }
    }

    /// All of them.
    pub(super) fn into_binned(mut self) -> Vec<Binned> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by(|a, b| a.labels.cmp(&b.labels));
        waiting.into_iter().for_each(|series| self.merge(series));
        self.binned
    }

    /// Makes a series part of its group.
    fn merge(&mut self, series: Binned) {
        let budget = self.budget;
        let Some(target) = self.target(&series.labels) else { return };
        series.rows.into_iter().for_each(|(start_ns, first_ns)| rows::add_row(&mut target.rows, start_ns, first_ns));
        for (name, bins) in series.columns {
            let target = target.column(&name);
            let held = target.held_samples() + bins.held_samples();
            target.merge(bins);
            budget.give_back(held.saturating_sub(target.held_samples()));
        }
    }

    /// The group that a series with these labels is part of.
    pub(super) fn target(&mut self, labels: &Labels) -> Option<&mut Binned> {
        let by = self.grouping.by.as_deref().unwrap_or_default();
        let is_by = |name: &str| by.iter().any(|wanted| wanted == name);
        self.key.clear();
        for text in labels.iter().filter(|(name, _)| is_by(name)).flat_map(|(name, value)| [name, value]) {
            self.key.extend_from_slice(&text.len().to_le_bytes());
            self.key.extend_from_slice(text.as_bytes());
        }
        let place = match self.indexes.get(&self.key) {
            Some(place) => *place,
            None => {
                self.binned.push(Binned { labels: labels.retain(is_by), columns: Vec::new(), rows: Starts::new() });
                self.indexes.insert(self.key.clone(), self.binned.len() - 1);
                self.binned.len() - 1
            }
        };
        self.binned.get_mut(place)
    }
}

/// Returns whether all aggregates of a group can come from summaries.
pub(super) fn from_summaries(scan: &Scan, group: &SelectedGroup, grouping: &Grouping) -> bool {
    let is_number = |value_type: ValueType| {
        matches!(value_type, ValueType::F64 | ValueType::I64 | ValueType::U64 | ValueType::Histogram)
    };
    grouping.aggregates.iter().all(|call| call.aggregate.from_summaries() && call.input != AggregateInput::Time)
        && (scan.table.is_none() || group.columns.iter().all(|column| is_number(column.value_type)))
}

/// The parts of summaries that the aggregates need.
pub(super) fn parts_of(grouping: &Grouping) -> SummaryParts {
    let is_extreme = |call: &AggregateCall| matches!(call.aggregate, Aggregate::Min | Aggregate::Max);
    if grouping.aggregates.iter().any(is_extreme) { SummaryParts::Values } else { SummaryParts::Totals }
}

/// Returns whether a group has a column that is aggregated.
fn has_wanted(group: &SelectedGroup, grouping: &Grouping) -> bool {
    let is_kept = |field: &str| grouping.aggregates.iter().any(|call| call.reads(field));
    let is_each = grouping.aggregates.iter().any(|call| call.input == AggregateInput::Each);
    is_each || group.columns.iter().any(|column| is_kept(&column.field))
}

impl AggregateCall {
    /// Returns whether it names a field.
    pub(super) fn reads(&self, field: &str) -> bool {
        match &self.input {
            AggregateInput::Column(name) | AggregateInput::Sketches(name) => name == field,
            AggregateInput::Parts(parts) => parts.names().contains(&field),
            AggregateInput::Each | AggregateInput::Time | AggregateInput::Tag(_) => false,
        }
    }
}

impl Grouping {
    /// Returns whether an aggregate is of the rows' times.
    fn keeps_times(&self) -> bool {
        self.aggregates.iter().any(|call| call.input == AggregateInput::Time)
    }

    /// Returns whether an aggregate is of all rows, whatever they hold.
    fn is_of_all_rows(&self) -> bool {
        self.aggregates.iter().any(|call| matches!(call.input, AggregateInput::Time | AggregateInput::Tag(_)))
    }

    /// Where the bin of a time begins; without a width there is one.
    pub(super) fn bin_start(&self, time_ns: i64) -> i64 {
        match self.width_ns {
            None => 0,
            Some(width_ns) => {
                // Rarely do 64 bits not hold the distance; those of 128 take long to divide.
                let into = match time_ns.checked_sub(self.offset_ns) {
                    Some(distance) => distance.rem_euclid(width_ns),
                    None => {
                        let distance = i128::from(time_ns) - i128::from(self.offset_ns);
                        distance.rem_euclid(i128::from(width_ns)) as i64
                    }
                };
                time_ns.saturating_sub(into)
            }
        }
    }
}

/// Returns whether a range has so few bins that it is not worth knowing in which of them there are rows.
pub(super) fn has_few_bins(range: &TimeRange, grouping: &Grouping) -> bool {
    let length_ns = range.end_ns.checked_sub(range.start_ns);
    let bins = length_ns.zip(grouping.width_ns).map(|(length_ns, width_ns)| length_ns / width_ns);
    bins.is_some_and(|bins| bins < FEW_BINS)
}

/// Windows that hold every row of the extent that is in the range, each within one bin: a first and a last one that the range cuts, and those
/// between. `None` if there are too many.
pub(super) fn bin_ranges(extent: &TimeRange, range: &TimeRange, grouping: &Grouping) -> Option<Vec<Windows>> {
    let whole = |start_ns: i64, end_ns: i64| {
        let width_ns = end_ns.checked_sub(start_ns)?.checked_add(1)?;
        Some(Windows { start_ns, width_ns, count: 1 })
    };
    let Some(width_ns) = grouping.width_ns else {
        return Some(vec![whole(extent.start_ns, extent.end_ns)?]);
    };
    let floor = |time_ns: i64| {
        let into = time_ns.checked_sub(grouping.offset_ns)?.rem_euclid(width_ns);
        time_ns.checked_sub(into)
    };
    let first_bin = floor(extent.start_ns)?;
    let behind_bins = floor(extent.end_ns)?.checked_add(width_ns)?;
    let (start_ns, behind_ns) = (first_bin.max(range.start_ns), (behind_bins - 1).min(range.end_ns).checked_add(1)?);
    let full_start = if start_ns == first_bin { first_bin } else { first_bin.checked_add(width_ns)? };
    let full_behind = if behind_ns == behind_bins { behind_bins } else { behind_bins - width_ns };
    let mut bin_ranges = Vec::new();
    if full_start > full_behind {
        return Some(vec![whole(start_ns, behind_ns - 1)?]);
    }
    if start_ns < full_start {
        bin_ranges.push(whole(start_ns, full_start - 1)?);
    }
    let count = full_behind.checked_sub(full_start)? / width_ns;
    if count > WINDOWS_MAX {
        return None;
    }
    if count > 0 {
        bin_ranges.push(Windows { start_ns: full_start, width_ns, count: count as usize });
    }
    if full_behind < behind_ns {
        bin_ranges.push(whole(full_behind, behind_ns - 1)?);
    }
    Some(bin_ranges)
}

/// The bins of the columns that are wanted.
pub(super) fn bin_frame(
    frame: &Frame,
    grouping: &Grouping,
    every_row: bool,
    budget: &Budget,
) -> Result<Binned, QueryError> {
    if is_inexact(frame, grouping) {
        budget.note_folded()?;
    }
    let keeps_values = |name: &str| {
        let of = |call: &&AggregateCall| match &call.input {
            AggregateInput::Each => true,
            AggregateInput::Column(column) => **column == *name && !call.aggregate.has_own_bins(),
            AggregateInput::Time => name == TIME && !call.aggregate.has_own_bins(),
            AggregateInput::Parts(_) | AggregateInput::Sketches(_) | AggregateInput::Tag(_) => false,
        };
        grouping.aggregates.iter().filter(of).any(|call| !call.aggregate.from_summaries())
    };
    let is_wanted = |name: &str| {
        grouping.aggregates.iter().any(|call| match &call.input {
            AggregateInput::Each => true,
            AggregateInput::Column(column) => **column == *name && !call.aggregate.has_own_bins(),
            AggregateInput::Time | AggregateInput::Parts(_) | AggregateInput::Sketches(_) | AggregateInput::Tag(_) => {
                false
            }
        })
    };
    let (row_spans, parts) = (spans::row_spans(&frame.timestamps_ns, grouping), parts_of(grouping));
    let column = |column: &FrameColumn| {
        let keeps = keeps_values(&column.name);
        let bins = || spans::of_column(&frame.timestamps_ns, &column.cells, &row_spans, (parts, keeps));
        Ok((column.name.clone(), bins::within_budget(frame.rows(), keeps, budget, bins)?))
    };
    let mut columns: Vec<(Arc<str>, Bins)> =
        frame.columns.iter().filter(|column| is_wanted(&column.name)).map(column).collect::<Result<_, QueryError>>()?;
    if grouping.keeps_times() {
        let keeps = keeps_values(TIME);
        let bins = || spans::of_times(frame, &row_spans, (parts, keeps));
        columns.push((TIME.into(), bins::within_budget(frame.rows(), keeps, budget, bins)?));
    }
    for call in &grouping.aggregates {
        let name = bins_name(call);
        if columns.iter().any(|(known, _)| **known == *name) {
            continue;
        }
        if let Some(bins) = own_bins((frame, &row_spans), call, grouping, budget)? {
            columns.push((name.into(), bins));
        }
    }
    // A column without nulls has a bin wherever there is a row, and so have the times.
    let is_full = |column: &FrameColumn| column.cells.validity.is_none() && is_wanted(&column.name);
    let is_sure = !every_row || grouping.keeps_times() || frame.columns.iter().any(is_full);
    let rows = if is_sure { Starts::new() } else { rows::starts_of(&frame.timestamps_ns, grouping) };
    Ok(Binned { labels: frame.labels.clone(), columns, rows })
}

/// The bins of an aggregate that is not made of those of a column or of the times.
fn own_bins(
    (frame, row_spans): (&Frame, &[RowSpan]),
    call: &AggregateCall,
    grouping: &Grouping,
    budget: &Budget,
) -> Result<Option<Bins>, QueryError> {
    let start = |time_ns| grouping.bin_start(time_ns);
    Ok(Some(match &call.input {
        AggregateInput::Parts(parts) => bins::of_parts(frame, parts, &start),
        AggregateInput::Sketches(of) => bins::of_sketches(frame, (of, call.aggregate), &start, budget)?,
        AggregateInput::Column(of) => match call.aggregate {
            Aggregate::CountDistinct => distinct::of_column(frame, of, &start, budget)?,
            Aggregate::Histogram(buckets) => histogram::of_column(frame, (of, buckets), &start, budget)?,
            Aggregate::Increase => increase::of_column(frame, of, grouping),
            aggregate if aggregate.is_of_points() => {
                points::of_column(frame, (of, PointOrder::new(aggregate)), &start, budget)?
            }
            _ => return Ok(None),
        },
        AggregateInput::Tag(tag) => {
            distinct::of_tag(frame, (tag, call.aggregate == Aggregate::CountDistinct), &start, budget)?
        }
        AggregateInput::Time if call.aggregate == Aggregate::OffMilliseconds => {
            spans::of_off_milliseconds(frame, row_spans)
        }
        AggregateInput::Each | AggregateInput::Time => return Ok(None),
    }))
}

/// Returns whether a frame has folds that an aggregate is not made of, or that lie in several bins.
fn is_inexact(frame: &Frame, grouping: &Grouping) -> bool {
    let is_cut = |folds: &Folds| {
        let bin = |time_ns: i64| grouping.bin_start(time_ns);
        folds.iter().any(|(_, fold)| fold.count > 0 && bin(fold.first.0) != bin(fold.last.0))
    };
    let is_of = |call: &AggregateCall, column: &FrameColumn| match &call.input {
        AggregateInput::Each => true,
        AggregateInput::Column(_) | AggregateInput::Parts(_) | AggregateInput::Sketches(_) => call.reads(&column.name),
        AggregateInput::Time | AggregateInput::Tag(_) => false,
    };
    let misses = |column: &FrameColumn| {
        let of_column = || grouping.aggregates.iter().filter(|call| is_of(call, column));
        let is_missing = |call: &AggregateCall| !call.aggregate.is_of_folds(&column.cells);
        !column.cells.folds.is_empty() && (of_column().any(is_missing) || is_cut(&column.cells.folds))
    };
    frame.columns.iter().any(misses) || grouping.is_of_all_rows() && is_cut(&frame.row_folds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_hold_the_extent_and_do_not_leave_the_range() {
        type Case = (TimeRange, TimeRange, (i64, i64), &'static [(i64, i64, usize)]);
        let cases: [Case; 9] = [
            (TimeRange::new(12, 47), TimeRange::ALL, (10, 0), &[(10, 10, 4)]),
            (TimeRange::new(12, 47), TimeRange::new(12, 47), (10, 0), &[(12, 8, 1), (20, 10, 2), (40, 8, 1)]),
            (TimeRange::new(20, 39), TimeRange::new(20, 39), (10, 0), &[(20, 10, 2)]),
            (TimeRange::new(13, 15), TimeRange::new(12, 17), (10, 0), &[(12, 6, 1)]),
            (TimeRange::new(13, 25), TimeRange::new(12, 27), (10, 0), &[(12, 8, 1), (20, 8, 1)]),
            (TimeRange::new(-5, 5), TimeRange::new(-5, 100), (10, 0), &[(-5, 5, 1), (0, 10, 1)]),
            (TimeRange::new(10, 19), TimeRange::new(10, 19), (10, 0), &[(10, 10, 1)]),
            (TimeRange::new(12, 47), TimeRange::ALL, (10, 3), &[(3, 10, 5)]),
            (TimeRange::new(12, 47), TimeRange::new(12, 43), (10, 2), &[(12, 10, 3), (42, 2, 1)]),
        ];
        for (extent, range, (width_ns, offset_ns), expected) in cases {
            let grouping =
                Grouping { width_ns: Some(width_ns), offset_ns, aggregates: Vec::new(), by: None, undated: false };
            let found = bin_ranges(&extent, &range, &grouping).unwrap();
            let found: Vec<_> =
                found.iter().map(|windows| (windows.start_ns, windows.width_ns, windows.count)).collect();
            assert_eq!(found, expected, "{extent:?} of {range:?}");
        }
        let narrow = Grouping { width_ns: Some(1), offset_ns: 0, aggregates: Vec::new(), by: None, undated: false };
        assert_eq!(bin_ranges(&TimeRange::new(0, i64::MAX - 100), &TimeRange::ALL, &narrow), None);
    }
}

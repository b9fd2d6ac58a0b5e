//! Columns and labels of another table as of the times of rows: of that table what is read lies between the first row and the last, and of each series the
//! newest row before.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use index::{CompiledMatcher, compile};
use model::{Cell, Labels, Limits, MatchOp, Matcher, TimeRange};

use super::bins::samples_of;
use super::labelled::not_a_label;
use super::{Run, note_folds};
use crate::plan::{AsOf, Scan, Selector};
use crate::result::frame::FrameColumn;
use crate::{Budget, Frame, QueryError};

/// Values of a label of the rows by which less is read of the table; with more, all of its series are.
const VALUES_MAX: usize = 100;
const VALUES_BYTES_MAX: usize = 4 << 10;

/// A row of the table costs as much as so many samples to know of.
const SAMPLES_PER_ROW: usize = 2;

/// A series that is made of some rows of another one costs as much as so many samples besides.
const SAMPLES_PER_SERIES: usize = 24;

/// The labels by which rows find others.
type Key<'a> = Vec<&'a str>;

/// A row of the table.
struct TableRow<'a> {
    time_ns: i64,
    frame: &'a Frame,
    row: usize,
}

impl AsOf {
    /// The labels by which a series of the rows finds rows; `None` if it finds none.
    fn key<'a>(&self, labels: &'a Labels) -> Option<Key<'a>> {
        self.on.iter().map(|(label, _)| labels.get(label).filter(|value| !value.is_empty())).collect()
    }

    /// The labels by which a series of the table is found.
    fn table_key<'a>(&self, labels: &'a Labels) -> Option<Key<'a>> {
        self.on.iter().map(|(_, tag)| labels.get(tag).filter(|value| !value.is_empty())).collect()
    }

    /// The scan of the table for some rows, whatever their times.
    fn scan_for(&self, rows: &[Frame]) -> Scan {
        let mut scan = self.table.clone();
        if let Some(table) = &mut scan.table {
            table.fields = self.columns.iter().chain(&self.labels).map(|(_, column)| column.clone()).collect();
            table.fields.sort_unstable();
            table.fields.dedup();
        }
        let keys: Vec<Key<'_>> = rows.iter().filter_map(|frame| self.key(&frame.labels)).collect();
        for (place, (_, tag)) in self.on.iter().enumerate() {
            let values: BTreeSet<&str> = keys.iter().filter_map(|key| key.get(place)).copied().collect();
            let bytes: usize = values.iter().map(|value| value.len()).sum();
            if (1..=VALUES_MAX).contains(&values.len()) && bytes <= VALUES_BYTES_MAX {
                let values = values.into_iter().map(str::to_owned).collect();
                scan.selectors.push(Selector { name: tag.clone(), op: MatchOp::Equal, values });
            }
        }
        scan
    }

    /// The times of the table's rows of which each series' newest one is needed, and of those of which all are, for rows of a range.
    const fn ranges(&self, rows: &TimeRange) -> [TimeRange; 2] {
        let shift_ns = self.is_earlier as i64;
        let (start_ns, end_ns) = (rows.start_ns.saturating_sub(shift_ns), rows.end_ns.saturating_sub(shift_ns));
        let oldest_ns = match self.within_ns {
            Some(within_ns) => rows.start_ns.saturating_sub(within_ns),
            None => i64::MIN,
        };
        let before = TimeRange { start_ns: oldest_ns, end_ns: start_ns };
        [before, TimeRange { start_ns: start_ns.saturating_add(1), end_ns }]
    }

    /// The row that one of a time finds among those of its key, which are in order of time.
    fn newest<'f>(&self, found: &'f [TableRow<'f>], time_ns: i64) -> Option<&'f TableRow<'f>> {
        let is_early = |other: &TableRow<'_>| other.time_ns < time_ns || other.time_ns == time_ns && !self.is_earlier;
        let newest = found.get(found.partition_point(is_early).checked_sub(1)?)?;
        let age_ns = i128::from(time_ns) - i128::from(newest.time_ns);
        self.within_ns.is_none_or(|within_ns| age_ns <= i128::from(within_ns)).then_some(newest)
    }
}

impl Run<'_> {
    /// Rows with the columns of the table that they find.
    pub(super) fn as_of(&mut self, as_of: &AsOf) -> Result<Vec<Frame>, QueryError> {
        let rows = self.plan(&as_of.input)?;
        let times = rows
            .iter()
            .map(|frame| TimeRange::from_timestamps(&frame.timestamps_ns))
            .fold(TimeRange::EMPTY, TimeRange::union);
        if as_of.columns.is_empty() && as_of.labels.is_empty() || times.start_ns > times.end_ns {
            return Ok(rows);
        }
        let added = AddedLabels::new(as_of)?;
        self.timed("as of", |run| {
            let budget = run.context.budget;
            let held = budget.samples();
            let tables = run.rows_for(as_of, &rows, &times)?;
            note_folds(&tables, budget)?;
            let mut by_key: HashMap<Key<'_>, Vec<TableRow<'_>>> = HashMap::new();
            for frame in &tables {
                budget.check()?;
                let Some(key) = as_of.table_key(&frame.labels) else { continue };
                budget.take(frame.rows() * SAMPLES_PER_ROW)?;
                let found = frame.timestamps_ns.iter().enumerate();
                by_key.entry(key).or_default().extend(found.map(|(row, time_ns)| TableRow {
                    time_ns: *time_ns,
                    frame,
                    row,
                }));
            }
            // Of rows of one time the last one by labels counts, as in SQL.
            by_key.values_mut().for_each(|found| found.sort_by_key(|found| found.time_ns));
            let mut read = budget.samples().saturating_sub(held) as usize;
            let mut joined = Vec::with_capacity(rows.len());
            for frame in rows {
                budget.check()?;
                let before = frame.samples();
                let (columns, split) = {
                    let key = as_of.key(&frame.labels);
                    let found = key.and_then(|key| by_key.get(&key)).map(Vec::as_slice).unwrap_or_default();
                    let newest = frame.timestamps_ns.iter().map(|time_ns| as_of.newest(found, *time_ns));
                    let newest: Vec<Option<&TableRow<'_>>> = newest.collect();
                    let text_samples = text_samples(as_of, &newest);
                    budget.take(text_samples)?;
                    read += text_samples;
                    (columns(as_of, &newest)?, added.split(&frame.labels, &newest, budget)?)
                };
                let frame = with_columns(frame, columns);
                budget.take(frame.samples())?;
                budget.give_back(before);
                read += split.series_samples;
                split.apply(frame, budget, &mut joined)?;
            }
            budget.give_back(read);
            if as_of.labels.is_empty() { Ok(joined) } else { merged(joined, budget) }
        })
    }

    /// The rows of the table that rows of a range may find, in order of labels, those before the range first.
    fn rows_for(&mut self, as_of: &AsOf, rows: &[Frame], times: &TimeRange) -> Result<Vec<Frame>, QueryError> {
        if !as_of.on.is_empty() && rows.iter().all(|frame| as_of.key(&frame.labels).is_none()) {
            return Ok(Vec::new());
        }
        let scan = as_of.scan_for(rows);
        let of_range = |range: &TimeRange| {
            let range = crate::views::intersect(&scan.range, range);
            (range.start_ns <= range.end_ns).then(|| Scan { range, ..scan.clone() })
        };
        let [before, within] = as_of.ranges(times);
        let mut frames = Vec::new();
        if let Some(scan) = of_range(&before) {
            frames.extend(self.last_row_frames(&scan)?);
        }
        if let Some(scan) = of_range(&within) {
            frames.extend(self.scan(&scan)?);
        }
        frames.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(frames)
    }
}

/// The samples that texts of the columns are taken out of the budget for, besides their cells: each row gets one of its own.
fn text_samples(as_of: &AsOf, newest: &[Option<&TableRow<'_>>]) -> usize {
    let text_bytes = |found: Option<&TableRow<'_>>| -> usize {
        let bytes = |(_, column): &(String, String)| match cell(found, column) {
            Cell::Text(text) => size_of::<String>() + text.len(),
            _ => 0,
        };
        as_of.columns.iter().map(bytes).sum()
    };
    samples_of(newest.iter().copied().map(text_bytes).sum())
}

/// Series of which no two have the same labels: rows that found the same may be of series whose own labels were replaced.
fn merged(series: Vec<Frame>, budget: &Budget) -> Result<Vec<Frame>, QueryError> {
    let mut by_labels: BTreeMap<Labels, Vec<Frame>> = BTreeMap::new();
    for frame in series {
        by_labels.entry(frame.labels.clone()).or_default().push(frame);
    }
    let one = |(labels, mut frames): (Labels, Vec<Frame>)| match frames.pop() {
        Some(only) if frames.is_empty() => Ok(only),
        last => {
            frames.extend(last);
            let held = frames.iter().map(Frame::samples).sum();
            let names = names_of(&frames);
            let rows: usize = frames.iter().map(Frame::rows).sum();
            budget.take(rows.saturating_mul(names.len().max(1)))?;
            let merged = together(labels, &frames, &names)?;
            budget.give_back(held);
            Ok(merged)
        }
    };
    by_labels.into_iter().map(one).collect()
}

/// The rows of several series as one, in order of time.
fn together(labels: Labels, series: &[Frame], names: &BTreeSet<&str>) -> Result<Frame, QueryError> {
    let column = |name: &&str| {
        let cells: Vec<Cell<'_>> = series.iter().flat_map(|frame| cells_of(frame, name)).collect();
        FrameColumn::of_cells(name, &cells).map_err(QueryError::Execution)
    };
    let columns = names.iter().map(column).collect::<Result<_, QueryError>>()?;
    let times = series.iter().flat_map(|frame| frame.timestamps_ns.iter().copied()).collect();
    Ok(Frame::new(labels, times, columns).in_time_order())
}

/// The names of the columns of series.
fn names_of(series: &[Frame]) -> BTreeSet<&str> {
    series.iter().flat_map(|frame| &frame.columns).map(|column| &*column.name).collect()
}

fn cells_of<'f>(frame: &'f Frame, name: &str) -> Vec<Cell<'f>> {
    match frame.column(name) {
        Some(column) => (0..frame.rows()).map(|row| column.cell(row)).collect(),
        None => vec![Cell::Null; frame.rows()],
    }
}

/// The columns that rows get of those that they find.
fn columns(as_of: &AsOf, newest: &[Option<&TableRow<'_>>]) -> Result<Vec<FrameColumn>, QueryError> {
    let column = |(name, field): &(String, String)| {
        let cells: Vec<Cell<'_>> = newest.iter().map(|found| cell(*found, field)).collect();
        FrameColumn::of_cells(name, &cells).map_err(QueryError::Execution)
    };
    as_of.columns.iter().map(column).collect()
}

/// The value of a field, or of a tag, of a row that was found.
fn cell<'f>(found: Option<&TableRow<'f>>, column: &str) -> Cell<'f> {
    let Some(TableRow { frame, row, .. }) = found else { return Cell::Null };
    match (frame.column(column), frame.labels.get(column)) {
        (Some(column), _) => column.cell(*row),
        (None, Some(tag)) if !tag.is_empty() => Cell::Text(tag),
        (None, _) => Cell::Null,
    }
}

/// Labels that rows get of those that they find, and the conditions on them.
struct AddedLabels<'a> {
    as_of: &'a AsOf,
    matchers: Vec<CompiledMatcher>,
}

/// The rows of a series by the labels that they have now.
#[derive(Default)]
struct SplitRows {
    /// `None`: it stays as it is.
    by_labels: Option<BTreeMap<Labels, Vec<usize>>>,
    /// The samples that its series are taken out of the budget for, besides their rows.
    series_samples: usize,
}

impl<'a> AddedLabels<'a> {
    fn new(as_of: &'a AsOf) -> Result<Self, QueryError> {
        let matchers: Vec<Matcher> = as_of.selectors.iter().map(Selector::matcher).collect();
        Ok(Self { as_of, matchers: compile(&matchers)? })
    }

    /// Tells the rows of a series apart by what they find.
    fn split(
        &self,
        labels: &Labels,
        newest: &[Option<&TableRow<'_>>],
        budget: &Budget,
    ) -> Result<SplitRows, QueryError> {
        if self.as_of.labels.is_empty() {
            return Ok(SplitRows::default());
        }
        budget.take(newest.len())?;
        let own = labels.retain(|name| !self.as_of.adds_label(name));
        let mut by_values: HashMap<Vec<&str>, Vec<usize>> = HashMap::new();
        for (row, found) in newest.iter().enumerate() {
            let values = self.as_of.labels.iter().map(|(_, column)| self.value(*found, column));
            by_values.entry(values.collect::<Result<_, QueryError>>()?).or_default().push(row);
        }
        let label_bytes = by_values.keys().flatten().map(|value| value.len()).sum();
        let series_samples = by_values.len() * SAMPLES_PER_SERIES + samples_of(label_bytes);
        budget.take(series_samples)?;
        let with = |values: &[&str]| {
            let added = self.as_of.labels.iter().zip(values).filter(|(_, value)| !value.is_empty());
            added.fold(own.clone(), |labels, ((name, _), value)| labels.with(name, value))
        };
        let by_labels = by_values.into_iter().map(|(values, rows)| (with(&values), rows));
        let by_labels = by_labels.filter(|(labels, _)| self.is_selected(labels)).collect();
        Ok(SplitRows { by_labels: Some(by_labels), series_samples })
    }

    /// The value of a label for a row; empty if it finds none.
    fn value<'f>(&self, found: Option<&TableRow<'f>>, column: &str) -> Result<&'f str, QueryError> {
        let (table, bytes_max) = (self.as_of.table_name(), Limits::default().key_bytes_max);
        match cell(found, column) {
            Cell::Null => Ok(""),
            Cell::Text(text) if text.len() <= bytes_max => Ok(text),
            Cell::Text(text) => Err(QueryError::Execution(format!(
                "the column {column:?} of the table {table:?} holds a text of {} bytes: a label has {bytes_max} at most",
                text.len()
            ))),
            other => Err(not_a_label(table, column, &other)),
        }
    }

    fn is_selected(&self, labels: &Labels) -> bool {
        let mut selectors = self.as_of.selectors.iter().zip(&self.matchers);
        selectors.all(|(Selector { name, .. }, matcher)| matcher.matches(labels.get(name).unwrap_or_default()))
    }
}

impl SplitRows {
    /// Adds the series that are made of one, which is held; they are held afterwards.
    fn apply(self, frame: Frame, budget: &Budget, series: &mut Vec<Frame>) -> Result<(), QueryError> {
        let Some(by_labels) = self.by_labels else {
            series.push(frame);
            return Ok(());
        };
        let (rows, columns) = (frame.rows(), frame.columns.len().max(1));
        for (labels, of_labels) in by_labels {
            budget.take(of_labels.len() * columns)?;
            series.push(Frame { labels, ..frame.pick(&of_labels) });
        }
        budget.give_back(frame.samples() + rows);
        Ok(())
    }
}

/// A frame with columns in place of those of their names.
fn with_columns(mut frame: Frame, columns: Vec<FrameColumn>) -> Frame {
    frame.columns.retain(|own| !columns.iter().any(|column| column.name == own.name));
    frame.columns.extend(columns);
    frame
}

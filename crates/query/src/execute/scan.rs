//! Series from the store.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use index::compile;
use model::{Column, Labels, Matcher, TimeRange};
use store::{
    End, EndRows, GroupReader, Origins, ReadCounts, SelectedColumn, SelectedGroup, TableGroups, TableRows,
    TableSelection, Token, attach_folds,
};

use super::narrow::{Narrowing, Wanted};
use super::{Context, Run, evaluate, regular_source};
use crate::plan::{Expression, Operator, Scan, Selector};
use crate::result::frame::VALUE;
use crate::series::selection;
use crate::{Budget, Frame, FrameColumn, QueryError};

/// Columns that a condition compares are read first if there are so many times as many.
const COMPARED_SHARE: usize = 4;

/// Counts of what a plan read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Groups that were selected.
    pub groups: u64,
    /// Samples that were given on, of whole columns.
    pub samples: u64,
    /// Summaries that stood for samples.
    pub nodes: u64,
    /// Rows that were decoded for windows.
    pub window_rows: u64,
    /// Chunks that were read for windows.
    pub window_chunks: u64,
    /// Where all that lay.
    pub origins: Origins,
    /// Bins that were not made of any of that, since they were kept.
    pub cached_bins: CachedBinReads,
}

/// Rows of bins of time, by where they came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CachedBinReads {
    /// Of all series in the bins that might have been kept.
    pub rows: u64,
    /// Those that were in memory.
    pub from_memory: u64,
    /// Those that were on flash.
    pub from_flash: u64,
}

impl CachedBinReads {
    /// The line of `EXPLAIN ANALYZE`; `None` where no bins are cached.
    pub fn summary(&self) -> Option<String> {
        let Self { rows, from_memory, from_flash } = self;
        (*rows > 0).then(|| format!("bins={rows} kept_in_memory={from_memory} kept_on_flash={from_flash}"))
    }

    fn merge(&mut self, others: &Self) {
        self.rows += others.rows;
        self.from_memory += others.from_memory;
        self.from_flash += others.from_flash;
    }
}

impl Reads {
    /// Adds what else was read.
    pub fn merge(&mut self, others: &Self) {
        self.groups += others.groups;
        self.samples += others.samples;
        self.nodes += others.nodes;
        self.window_rows += others.window_rows;
        self.window_chunks += others.window_chunks;
        self.origins.merge(&others.origins);
        self.cached_bins.merge(&others.cached_bins);
    }

    pub(crate) fn add(&mut self, counts: &ReadCounts) {
        self.nodes += counts.nodes;
        self.window_rows += counts.rows;
        self.window_chunks += counts.chunks;
        self.origins.merge(&counts.origins);
    }
}

/// Reads for one thread, and counts what.
pub(super) struct Reader<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) groups: &'a GroupReader<'a>,
    pub(super) reads: Reads,
    /// Which columns of the groups are read.
    pub(super) narrowing: &'a Narrowing,
}

/// Groups that a scan selects, each with a column at least.
pub(super) enum Groups {
    /// Those of a table, which the store may hold.
    OfTable(Arc<TableGroups>),
    Apart(Vec<SelectedGroup>),
}

impl Groups {
    fn apart(mut groups: Vec<SelectedGroup>) -> Self {
        groups.retain(|group| !group.columns.is_empty());
        Self::Apart(groups)
    }
}

impl Deref for Groups {
    type Target = [SelectedGroup];

    fn deref(&self) -> &[SelectedGroup] {
        match self {
            Self::OfTable(groups) => groups,
            Self::Apart(groups) => groups,
        }
    }
}

impl Run<'_> {
    /// Makes something of each group that a scan selects, in their order, on several threads if there is much to read.
    pub(super) fn of_groups<T: Send>(
        &mut self,
        scan: &Scan,
        wanted: &Wanted<'_>,
        work: &(dyn Fn(&mut Reader<'_>, &SelectedGroup) -> Result<T, QueryError> + Sync),
    ) -> Result<Vec<T>, QueryError> {
        let groups = self.groups(scan)?;
        self.of_chosen(&groups, &Narrowing::new(&groups, wanted), work)
    }

    /// As [`Self::of_groups`], for groups that were selected before, and the columns that are read of them.
    pub(super) fn of_chosen<T: Send>(
        &mut self,
        groups: &[SelectedGroup],
        narrowing: &Narrowing,
        work: &(dyn Fn(&mut Reader<'_>, &SelectedGroup) -> Result<T, QueryError> + Sync),
    ) -> Result<Vec<T>, QueryError> {
        let made: Vec<Mutex<Option<(T, Reads)>>> = groups.iter().map(|_| Mutex::new(None)).collect();
        let context = self.context;
        let group_reader = context.store.reader();
        context.helpers.run(groups.len(), context.budget, &|place| {
            let (Some(group), Some(place)) = (groups.get(place), made.get(place)) else { return Ok(0) };
            context.budget.check()?;
            let mut reader = Reader { context, groups: &group_reader, reads: Reads::default(), narrowing };
            let done = work(&mut reader, group)?;
            let reads = reader.reads;
            *place.lock().unwrap_or_else(PoisonError::into_inner) = Some((done, reads));
            Ok(reads.samples + reads.window_rows)
        })?;
        self.reads.origins.merge(&group_reader.origins());
        let mut all = Vec::with_capacity(groups.len());
        for (done, reads) in
            made.into_iter().filter_map(|made| made.into_inner().unwrap_or_else(PoisonError::into_inner))
        {
            self.reads.merge(&reads);
            all.push(done);
        }
        Ok(all)
    }

    /// All samples, a frame for each series; or all rows, a frame for each group of a table.
    pub(super) fn scan(&mut self, scan: &Scan) -> Result<Vec<Frame>, QueryError> {
        if let Some(source) = regular_source(self.context) {
            return self.scan_regular(source, scan, None);
        }
        let read = |reader: &mut Reader<'_>, group: &SelectedGroup| {
            Ok((group.rank, reader.read_group(scan, group, &scan.range)?))
        };
        Ok(by_labels(self.of_groups(scan, &scan.wanted(), &read)?))
    }

    /// The rows for which a condition holds; the others are not held.
    pub(super) fn scan_where(&mut self, scan: &Scan, condition: &Expression) -> Result<Vec<Frame>, QueryError> {
        if let Some(source) = regular_source(self.context) {
            return self.scan_regular(source, scan, Some(condition));
        }
        let compared = scan.table.as_ref().and_then(|_| compared_columns(condition));
        let read = |reader: &mut Reader<'_>, group: &SelectedGroup| {
            let mut kept = Vec::new();
            let Some(range) = reader.range_where(scan, group, condition, compared.as_deref())? else {
                return Ok((group.rank, kept));
            };
            for frame in reader.read_group(scan, group, &range)? {
                let frame = filtered_rows(scan, frame, condition, reader.context.budget)?;
                if frame.rows() > 0 {
                    kept.push(frame);
                }
            }
            Ok((group.rank, kept))
        };
        Ok(by_labels(self.of_groups(scan, &scan.wanted(), &read)?))
    }

    /// The rows at one end of each group of a table, the newest or the oldest first.
    pub(super) fn end_rows(&mut self, scan: &Scan, rows: usize, end: End) -> Result<Vec<Frame>, QueryError> {
        if let Some(source) = regular_source(self.context) {
            return self.end_rows_regular(source, scan, (rows, end));
        }
        let wanted = EndRows { range: scan.range, rows, end };
        let read =
            |reader: &mut Reader<'_>, group: &SelectedGroup| Ok((group.rank, reader.end_rows(scan, group, &wanted)?));
        Ok(by_labels(self.of_groups(scan, &scan.wanted(), &read)?))
    }

    /// The groups of a table that a scan selects.
    pub(super) fn table_groups(&mut self, scan: &Scan) -> Result<Arc<TableGroups>, QueryError> {
        match self.groups(scan)? {
            Groups::OfTable(groups) => Ok(groups),
            Groups::Apart(_) => Err(QueryError::Invalid("rows are those of a table".to_owned())),
        }
    }

    /// The groups that a scan selects.
    pub(super) fn groups(&mut self, scan: &Scan) -> Result<Groups, QueryError> {
        let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
        let compiled = compile(&matchers)?;
        let (store, database) = (self.context.store, self.context.database);
        let groups = if let Some(table) = &scan.table {
            if !scan.tokens.is_empty() {
                let message = "rows are selected by table and tags; series by index";
                return Err(QueryError::Invalid(message.to_owned()));
            }
            let fields = if table.every_row { &[] } else { table.fields.as_slice() };
            let selection = TableSelection { database, table: &table.name, fields, matchers: &compiled };
            Groups::OfTable(selection::select_table(store, &selection, self.context.budget)?)
        } else if scan.tokens.is_empty() {
            Groups::apart(selection::select(store, database, &compiled, self.context.budget)?)
        } else {
            if !matchers.is_empty() {
                let message = "series are selected by index or by labels, not by both";
                return Err(QueryError::Invalid(message.to_owned()));
            }
            let tokens: Vec<Token> = scan.tokens.iter().map(|bits| Token::from_bits(*bits)).collect();
            let database = selection::whole_database(database, self.context.budget)?;
            Groups::apart(store.select_tokens(database, &tokens)?)
        };
        self.context.budget.check()?;
        self.reads.groups += groups.len() as u64;
        Ok(groups)
    }
}

/// The frames of groups in order of the groups' labels, where they are known in it.
fn by_labels(mut of_groups: Vec<(u32, Vec<Frame>)>) -> Vec<Frame> {
    of_groups.sort_by_key(|(rank, _)| *rank);
    of_groups.into_iter().flat_map(|(_, frames)| frames).collect()
}

/// The columns of a condition that compares columns with values and nothing else: where all of them are null it does not hold.
fn compared_columns(condition: &Expression) -> Option<Vec<&str>> {
    match condition {
        Expression::Apply(Operator::And | Operator::Or, of) => {
            let columns: Option<Vec<Vec<&str>>> = of.iter().map(compared_columns).collect();
            Some(columns?.concat())
        }
        Expression::Apply(operator, of) if operator.is_comparison() => match of.as_slice() {
            [Expression::Column(name), value] | [value, Expression::Column(name)] if value.is_constant() => {
                Some(vec![name])
            }
            _ => None,
        },
        _ => None,
    }
}

impl Reader<'_> {
    /// A range that holds all of a group's rows for which a condition holds; `None` if there are none. Of many columns those that are compared
    /// are read alone first, since mostly all rows that satisfy a condition lie in a part of the range.
    fn range_where(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        condition: &Expression,
        compared: Option<&[&str]>,
    ) -> Result<Option<TimeRange>, QueryError> {
        let Some(compared) = compared else { return Ok(Some(scan.range)) };
        let is_compared = |column: &&SelectedColumn| compared.contains(&&*column.field);
        let columns: Vec<SelectedColumn> = group.columns.iter().filter(is_compared).cloned().collect();
        if columns.len() * COMPARED_SHARE > self.narrowing.narrow(group).columns.len() {
            return Ok(Some(scan.range));
        }
        let mut found: Option<TimeRange> = None;
        for frame in self.read_group(scan, &group.with_columns(columns.into()), &scan.range)? {
            self.context.budget.give_back(frame.samples());
            let frame = evaluate::filtered(of_table(scan, frame, condition), condition, self.context.budget)?;
            if let (Some(first), Some(last)) = (frame.timestamps_ns.first(), frame.timestamps_ns.last()) {
                let known = found.unwrap_or(TimeRange::new(*first, *last));
                found = Some(TimeRange::new(known.start_ns.min(*first), known.end_ns.max(*last)));
            }
        }
        Ok(found)
    }

    /// The rows at one end of what a group of a table has in a range, so many at most.
    pub(super) fn end_rows(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        wanted: &EndRows,
    ) -> Result<Vec<Frame>, QueryError> {
        let read = self.narrowing.narrow(group);
        let rows = self.groups.end_rows(&read, wanted)?;
        let frames = frames_of_rows(scan, &read, rows);
        let read: usize = frames.iter().map(Frame::samples).sum();
        self.charge(read)?;
        let cut = |frame: Frame| match wanted.end {
            End::Newest => frame.newest_first(wanted.rows),
            End::Oldest => super::limited(frame, wanted.rows, 0),
        };
        let frames: Vec<Frame> = frames.into_iter().map(cut).collect();
        self.context.budget.give_back(read - frames.iter().map(Frame::samples).sum::<usize>());
        Ok(frames)
    }

    /// A group's samples or rows, charged to the budget.
    pub(super) fn read_group(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        range: &TimeRange,
    ) -> Result<Vec<Frame>, QueryError> {
        let frames = if scan.table.is_some() {
            let group = &*self.narrowing.narrow(group);
            let rows = self.groups.read_rows(group, range)?;
            frames_of_rows(scan, group, rows)
        } else {
            let columns = self.groups.read(group, range)?;
            let mut folds = self.groups.folds(group, range)?.into_iter();
            let named = columns.into_iter().zip(group.columns.iter());
            let series = |(samples, column): (_, &SelectedColumn)| {
                let mut frame = Frame::of_samples(column.series_labels(&group.labels), samples);
                if let (Some(frame), Some(summaries)) = (&mut frame, folds.next()) {
                    let columns = frame.columns.iter_mut();
                    columns.for_each(|column| attach_folds(&mut column.cells, &frame.timestamps_ns, &summaries));
                }
                frame
            };
            named.filter_map(series).collect()
        };
        self.charge(frames.iter().map(Frame::samples).sum())?;
        Ok(frames)
    }

    pub(super) fn charge(&mut self, samples: usize) -> Result<(), QueryError> {
        self.context.budget.take(samples)?;
        self.reads.samples += samples as u64;
        Ok(())
    }
}

/// The rows of a table's group, a frame for each set of labels that its columns have beside it.
fn frames_of_rows(scan: &Scan, group: &SelectedGroup, rows: TableRows) -> Vec<Frame> {
    let (mut columns, mut timestamps_ns) = (rows.columns, rows.timestamps_ns);
    let named = named_columns(scan, group);
    let count = named.len();
    let mut frames = Vec::with_capacity(count);
    for (number, (labels, named)) in (1..).zip(named) {
        let mut of_labels = Vec::with_capacity(named.len());
        for (place, name) in named {
            let Some(cells) = columns.get_mut(place).and_then(Option::take) else { continue };
            of_labels.push(FrameColumn { name, cells });
        }
        // The last needs no copy.
        let is_last = number == count;
        let timestamps_ns = if is_last { std::mem::take(&mut timestamps_ns) } else { timestamps_ns.clone() };
        frames.push(Frame { row_folds: rows.row_folds.clone(), ..Frame::new(labels, timestamps_ns, of_labels) });
    }
    frames.retain(|frame| frame.rows() > 0);
    frames
}

/// The rows for which a condition holds. They are charged to the budget, before and after, also for columns that the condition alone needs.
pub(super) fn filtered_rows(
    scan: &Scan,
    frame: Frame,
    condition: &Expression,
    budget: &Budget,
) -> Result<Frame, QueryError> {
    let before = frame.samples();
    let frame = evaluate::filtered(of_table(scan, frame, condition), condition, budget)?;
    budget.give_back(before.saturating_sub(frame.samples()));
    budget.take(frame.samples().saturating_sub(before))?;
    Ok(frame)
}

/// A table's rows with the columns that a condition needs: those that the group does not have are null in all of them.
pub(super) fn of_table(scan: &Scan, frame: Frame, condition: &Expression) -> Frame {
    if scan.table.is_none() { frame } else { frame.with_nulls_for(condition) }
}

impl Frame {
    /// The rows with a column of nulls for each column that an expression reads and that they do not have.
    pub(super) fn with_nulls_for(mut self, expression: &Expression) -> Self {
        let mut missing = Vec::new();
        expression.each_column(&mut |name| {
            if self.column(name).is_none() {
                missing.push(name.to_owned());
            }
        });
        for name in missing {
            if self.column(&name).is_none() {
                let cells = Column::of_nulls(self.rows());
                self.columns.push(FrameColumn { name: name.into(), cells });
            }
        }
        self
    }
}

/// Columns of a group by place and name.
type NamedColumns = Vec<(usize, Arc<str>)>;

/// Which columns of a group make up a frame. A series is one of its own; a table's row has all columns
/// that have the same labels beside the group's.
pub(super) fn named_columns(scan: &Scan, group: &SelectedGroup) -> Vec<(Labels, NamedColumns)> {
    let columns = group.columns.iter().enumerate();
    if scan.table.is_none() {
        let of_series = |(place, column): (usize, &SelectedColumn)| {
            (column.series_labels(&group.labels), vec![(place, VALUE.into())])
        };
        return columns.map(of_series).collect();
    }
    if !group.columns.is_empty() && group.columns.iter().all(|column| column.labels.is_empty()) {
        return vec![(group.labels.clone(), columns.map(|(place, column)| (place, column.field.clone())).collect())];
    }
    let mut frames: Vec<(Labels, NamedColumns)> = Vec::new();
    let mut places: HashMap<&Labels, usize> = HashMap::new();
    for (place, column) in columns {
        let frame = *places.entry(&column.labels).or_insert_with(|| {
            let own = column.labels.iter();
            frames.push((own.fold(group.labels.clone(), |labels, (name, value)| labels.with(name, value)), Vec::new()));
            frames.len() - 1
        });
        if let Some((_, named)) = frames.get_mut(frame) {
            named.push((place, column.field.clone()));
        }
    }
    frames
}

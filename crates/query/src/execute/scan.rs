//! Series from the store.

use std::collections::HashMap;

use index::compile;
use model::{Labels, Matcher, TimeRange};
use store::{ReadCounts, SelectedColumn, SelectedGroup, StoreError, Token};

use super::Run;
use crate::frame::VALUE;
use crate::plan::{Scan, Selector};
use crate::{Frame, FrameColumn, QueryError};

/// The newest rows are looked for in so much time before the end, in nanoseconds, and then in more and more.
const NEWEST_WIDTH_NS: i64 = 60_000_000_000;
/// How much more.
const NEWEST_WIDTH_FACTOR: i64 = 16;

/// What a plan read of the store.
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
}

impl Reads {
    pub(super) fn add(&mut self, counts: &ReadCounts) {
        self.nodes += counts.nodes;
        self.window_rows += counts.rows;
        self.window_chunks += counts.chunks;
    }
}

impl Run<'_> {
    /// All samples, a frame for each series; or all rows, a frame for each group of a table.
    pub(super) fn scan(&mut self, scan: &Scan) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        self.each_frame(scan, |_, frame| {
            frames.push(frame);
            Ok(())
        })?;
        Ok(frames)
    }

    /// Hands on what a scan selects, frame by frame, charged to the budget.
    pub(super) fn each_frame(
        &mut self,
        scan: &Scan,
        mut visit: impl FnMut(&mut Self, Frame) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        for group in self.groups(scan)? {
            for frame in self.read_group(scan, &group, &scan.range)? {
                visit(self, frame)?;
            }
        }
        Ok(())
    }

    /// The newest rows of each group of a table, newest first, without reading all.
    pub(super) fn newest_rows(&mut self, scan: &Scan, rows: usize) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        for group in self.groups(scan)? {
            frames.extend(self.newest_of(scan, &group, rows)?);
        }
        Ok(frames)
    }

    fn newest_of(&mut self, scan: &Scan, group: &SelectedGroup, rows: usize) -> Result<Vec<Frame>, QueryError> {
        let extent = self.context.store.extent(group, &scan.range).map_err(|error| unreadable(&error))?;
        let Some(extent) = extent else { return Ok(Vec::new()) };
        let mut width_ns = NEWEST_WIDTH_NS;
        loop {
            let start_ns = extent.end_ns.saturating_sub(width_ns).max(extent.start_ns);
            let frames = self.read_group(scan, group, &TimeRange::new(start_ns, extent.end_ns))?;
            if start_ns == extent.start_ns || frames.iter().all(|frame| frame.rows() >= rows) && !frames.is_empty() {
                return Ok(frames.into_iter().map(|frame| frame.newest_first(rows)).collect());
            }
            self.context.budget.give_back(frames.iter().map(Frame::samples).sum());
            width_ns = width_ns.saturating_mul(NEWEST_WIDTH_FACTOR);
        }
    }

    /// A group's samples or rows, charged to the budget.
    pub(super) fn read_group(
        &mut self,
        scan: &Scan,
        group: &SelectedGroup,
        range: &TimeRange,
    ) -> Result<Vec<Frame>, QueryError> {
        let (store, budget) = (self.context.store, self.context.budget);
        let mut frames = Vec::new();
        if scan.table.is_some() {
            let rows = store.read_rows(group, range).map_err(|error| unreadable(&error))?;
            let mut columns = rows.columns;
            for (labels, named) in named_columns(scan, group) {
                let mut of_labels = Vec::with_capacity(named.len());
                for (place, name) in named {
                    let Some(cells) = columns.get_mut(place).and_then(Option::take) else { continue };
                    of_labels.push(FrameColumn { name, values: cells.values, present: cells.present });
                }
                let timestamps_ns = rows.timestamps_ns.clone();
                frames.push(Frame { labels, timestamps_ns, columns: of_labels });
            }
            frames.retain(|frame| frame.rows() > 0);
        } else {
            let columns = store.read(group, range).map_err(|error| unreadable(&error))?;
            let named = columns.into_iter().zip(group.columns.iter());
            frames.extend(
                named.filter_map(|(samples, column)| Frame::of_samples(column.series_labels(&group.labels), samples)),
            );
        }
        let samples: usize = frames.iter().map(Frame::samples).sum();
        budget.take(samples)?;
        self.reads.samples += samples as u64;
        Ok(frames)
    }

    /// The groups that a scan selects.
    pub(super) fn groups(&mut self, scan: &Scan) -> Result<Vec<SelectedGroup>, QueryError> {
        let matchers: Vec<Matcher> = scan.selectors.iter().map(Selector::matcher).collect();
        let compiled = compile(&matchers).map_err(|error| QueryError::Invalid(error.to_string()))?;
        let (store, database) = (self.context.store, self.context.database);
        let mut groups = if let Some(table) = &scan.table {
            if !scan.tokens.is_empty() {
                let message = "rows are selected by table and tags; series by index";
                return Err(QueryError::Invalid(message.to_owned()));
            }
            let selected = store.select_table(database, &table.name, &table.fields, &compiled);
            selected.map_err(|error| unreadable(&error))?
        } else if scan.tokens.is_empty() {
            store.select(database, &compiled).map_err(|error| unreadable(&error))?
        } else {
            if !matchers.is_empty() {
                let message = "series are selected by index or by labels, not by both";
                return Err(QueryError::Invalid(message.to_owned()));
            }
            let tokens: Vec<Token> = scan.tokens.iter().map(|bits| Token::from_bits(*bits)).collect();
            store.select_tokens(database, &tokens).map_err(|error| unreadable(&error))?
        };
        self.context.budget.check()?;
        groups.retain(|group| !group.columns.is_empty());
        self.reads.groups += groups.len() as u64;
        Ok(groups)
    }
}

/// Which columns of a group make up a frame, by place and name. A series is one of its own; a table's row has all columns
/// that have the same labels beside the group's.
pub(super) fn named_columns(scan: &Scan, group: &SelectedGroup) -> Vec<(Labels, Vec<(usize, String)>)> {
    let columns = group.columns.iter().enumerate();
    if scan.table.is_none() {
        let of_series = |(place, column): (usize, &SelectedColumn)| {
            (column.series_labels(&group.labels), vec![(place, VALUE.to_owned())])
        };
        return columns.map(of_series).collect();
    }
    let mut frames: Vec<(Labels, Vec<(usize, String)>)> = Vec::new();
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

pub(super) fn unreadable(error: &StoreError) -> QueryError {
    QueryError::Storage(error.to_string())
}

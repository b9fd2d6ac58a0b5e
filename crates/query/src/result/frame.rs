//! Answers of plans: series with rows and named columns.

use std::collections::HashMap;
use std::sync::Arc;

use model::{Cell, Column, Folds, Labels, SampleColumn, Values, is_stale_bits};

/// A series: rows, sorted by time unless they were put in another order, and columns of as many cells each.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Its labels.
    pub labels: Labels,
    /// A time for each row, in nanoseconds since the Unix epoch.
    pub timestamps_ns: Vec<i64>,
    /// Its columns; one without a name of its own is `value`.
    pub columns: Vec<FrameColumn>,
    /// The times of rows that stand for folded ones.
    pub row_folds: Folds,
}

/// A column of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameColumn {
    /// Its name.
    pub name: Arc<str>,
    /// A cell for each row.
    pub cells: Column,
}

/// The name of a column without a name of its own.
pub(crate) const VALUE: &str = "value";

impl Frame {
    /// Rows each of which stands for itself.
    pub const fn new(labels: Labels, timestamps_ns: Vec<i64>, columns: Vec<FrameColumn>) -> Self {
        Self { labels, timestamps_ns, columns, row_folds: Folds::NONE }
    }

    /// Returns whether some rows or values stand for folded ones.
    pub fn has_folds(&self) -> bool {
        !self.row_folds.is_empty() || self.columns.iter().any(|column| !column.cells.folds.is_empty())
    }

    /// Makes every row and value stand for itself.
    pub(crate) fn drop_folds(&mut self) {
        self.row_folds = Folds::NONE;
        self.columns.iter_mut().for_each(|column| column.cells.folds = Folds::NONE);
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.timestamps_ns.len()
    }

    /// A column by its name.
    pub fn column(&self, name: &str) -> Option<&FrameColumn> {
        self.columns.iter().find(|column| *column.name == *name)
    }

    /// The column `value`, or the only one.
    pub fn value(&self) -> Option<&FrameColumn> {
        self.column(VALUE).or(match self.columns.as_slice() {
            [only] => Some(only),
            _ => None,
        })
    }

    /// The samples that it takes out of a budget: one for each cell.
    pub(crate) fn samples(&self) -> usize {
        self.rows() * self.columns.len().max(1)
    }

    /// Only these rows, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        let timestamps_ns = rows.iter().filter_map(|row| self.timestamps_ns.get(*row)).copied().collect();
        let pick = |column: &FrameColumn| FrameColumn { name: column.name.clone(), cells: column.cells.pick(rows) };
        let columns = self.columns.iter().map(pick).collect();
        Self { labels: self.labels.clone(), timestamps_ns, columns, row_folds: self.row_folds.pick(rows) }
    }

    /// As [`Self::pick`], of a frame that is not needed any more.
    #[must_use]
    pub(crate) fn into_picked(mut self, rows: &[usize]) -> Self {
        self.timestamps_ns = rows.iter().filter_map(|row| self.timestamps_ns.get(*row)).copied().collect();
        self.columns.iter_mut().for_each(|column| column.cells = column.cells.pick(rows));
        self.row_folds = self.row_folds.pick(rows);
        self
    }

    /// The last rows of one whose rows are sorted by time, latest first.
    pub(crate) fn newest_first(mut self, rows: usize) -> Self {
        self.row_folds = self.row_folds.last_reversed(self.rows(), rows);
        self.timestamps_ns.drain(..self.rows().saturating_sub(rows));
        self.timestamps_ns.reverse();
        self.columns.iter_mut().for_each(|column| column.cells.keep_last_reversed(rows));
        self
    }

    /// Sorts the rows by time.
    pub(crate) fn in_time_order(self) -> Self {
        if self.timestamps_ns.is_sorted() {
            return self;
        }
        let mut rows: Vec<usize> = (0..self.rows()).collect();
        rows.sort_by_key(|row| self.timestamps_ns.get(*row));
        self.into_picked(&rows)
    }

    /// Samples as a frame, stale markers left out; `None` for histograms and for no samples.
    pub(crate) fn of_samples(labels: Labels, column: SampleColumn) -> Option<Self> {
        let (timestamps_ns, values) = match column {
            SampleColumn::F64(mut timestamps_ns, mut values) => {
                if values.iter().any(|value| is_stale_bits(*value)) {
                    let samples = timestamps_ns.iter().zip(&values).filter(|(_, value)| !is_stale_bits(**value));
                    (timestamps_ns, values) = samples.map(|(timestamp, value)| (*timestamp, *value)).unzip();
                }
                (timestamps_ns, Values::F64(values))
            }
            SampleColumn::I64(timestamps_ns, values) => (timestamps_ns, Values::I64(values)),
            SampleColumn::U64(timestamps_ns, values) => (timestamps_ns, Values::U64(values)),
            SampleColumn::Bool(timestamps_ns, values) => (timestamps_ns, Values::Bool(values)),
            SampleColumn::String(timestamps_ns, values) => (timestamps_ns, Values::Text(values)),
            SampleColumn::Histogram(..) => return None,
        };
        if timestamps_ns.is_empty() {
            return None;
        }
        let columns = vec![FrameColumn { name: VALUE.into(), cells: Column::of_values(values) }];
        Some(Self::new(labels, timestamps_ns, columns))
    }
}

impl FrameColumn {
    /// The value of a row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        self.cells.cell(row)
    }

    /// About as many bytes as it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Arc<str>>() + self.name.len() + self.cells.size_bytes()
    }

    pub(crate) fn pick(&self, rows: &[usize]) -> Self {
        Self { name: self.name.clone(), cells: self.cells.pick(rows) }
    }

    /// A column of cells. They have one type, but that numbers of several become floats.
    pub fn of_cells(name: &str, cells: &[Cell<'_>]) -> Result<Self, String> {
        let cells = Column::of_cells(cells).map_err(|[first, other]| {
            format!("the column {name:?} would hold a {first} in one row and a {other} in another")
        })?;
        Ok(Self { name: name.into(), cells })
    }
}

/// Finds many of a frame's columns by name; fastest in the order in which they stand.
#[derive(Debug)]
pub struct ColumnFinder<'a> {
    columns: &'a [FrameColumn],
    expected: usize,
    /// Made once a column does not stand where it is expected.
    by_name: Option<HashMap<&'a str, usize>>,
}

impl<'a> ColumnFinder<'a> {
    /// A finder of these columns.
    pub const fn new(columns: &'a [FrameColumn]) -> Self {
        Self { columns, expected: 0, by_name: None }
    }

    /// The index of the column of a name.
    pub fn find(&mut self, name: &str) -> Option<usize> {
        let columns = self.columns;
        let found = if columns.get(self.expected).is_some_and(|column| *column.name == *name) {
            Some(self.expected)
        } else {
            let by_name = || columns.iter().map(|column| &*column.name).zip(0..).collect();
            self.by_name.get_or_insert_with(by_name).get(name).copied()
        };
        self.expected = found.map_or(self.expected, |index| index + 1);
        found
    }
}

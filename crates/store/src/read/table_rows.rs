//! Rows of tables: the cells of columns side by side, of one group or of several that have the same columns.

use std::ops::Range;

use index::Slot;
use model::{Column, Folds, STALE_NAN_BITS, TimeRange, ValueType, Values};

use crate::part::BLOCK_SLOTS;
use crate::part::chunk::{self, Rows, RowsColumn};
use crate::read::select::{SelectedColumn, SelectedGroup};
use crate::read::{GroupReader, KeySnapshot};
use crate::{Store, StoreError};

/// Rows of groups that have the same columns.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRows {
    /// When, in nanoseconds since the Unix epoch. Those of one group ascend, none twice.
    pub timestamps_ns: Vec<i64>,
    /// One for each of [`SelectedGroup::columns`], stale markers as nulls; `None` for histograms.
    pub columns: Vec<Option<Column>>,
    /// The times of rows that stand for folded ones.
    pub row_folds: Folds,
}

impl Store {
    /// A group's rows in a range, those in which none of the selected columns has a value too.
    pub fn read_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<TableRows, StoreError> {
        self.reader().read_rows(selected, range)
    }
}

impl GroupReader<'_> {
    /// As [`Store::read_rows`].
    pub fn read_rows(&self, selected: &SelectedGroup, range: &TimeRange) -> Result<TableRows, StoreError> {
        let mut read = TableRows::with_capacity(selected.columns.len());
        self.each_block(selected, range, |snapshot, range, wanted, slots| {
            let pieces = chunk::in_time_order(snapshot.row_blocks(range, slots, &self.context)?);
            read.add_block(&pieces, wanted, range);
            Ok(())
        })?;
        read.columns.resize(selected.columns.len(), None);
        self.attach_folds(&mut read, selected, range)?;
        Ok(read)
    }

    /// What a snapshot has of one member block.
    pub(crate) fn read_view(
        &self,
        snapshot: &KeySnapshot,
        range: &TimeRange,
        columns: &[SelectedColumn],
    ) -> Result<TableRows, StoreError> {
        let slots: Vec<Slot> = columns.iter().map(|column| column.slot).collect();
        let mut read = TableRows::with_capacity(columns.len());
        let pieces = chunk::in_time_order(snapshot.row_blocks(range, &slots, &self.context)?);
        read.add_block(&pieces, columns, range);
        Ok(read)
    }
}

/// The member block of all columns, if it is one.
pub(crate) fn only_block(columns: &[SelectedColumn]) -> Option<u32> {
    let block = columns.first()?.slot / BLOCK_SLOTS;
    // They are sorted by slot.
    (columns.last()?.slot / BLOCK_SLOTS == block).then_some(block)
}

/// The rows of a block that lie in the range.
struct RowsInRange<'a> {
    rows: &'a Rows,
    range: Range<usize>,
}

impl<'a> RowsInRange<'a> {
    fn new(rows: &'a Rows, range: &TimeRange) -> Self {
        let from = rows.timestamps_ns.partition_point(|timestamp| *timestamp < range.start_ns);
        let to = rows.timestamps_ns.partition_point(|timestamp| *timestamp <= range.end_ns);
        Self { rows, range: from..to.max(from) }
    }

    fn timestamps_ns(&self) -> &'a [i64] {
        self.rows.timestamps_ns.get(self.range.clone()).unwrap_or_default()
    }

    /// A member's column with its cells of these rows.
    fn column(&self, wanted: &SelectedColumn) -> Option<(&'a RowsColumn, &'a [u64])> {
        let is_wanted = |column: &&RowsColumn| column.slot == wanted.slot && column.value_type == wanted.value_type;
        let column = self.rows.columns.iter().find(is_wanted)?;
        Some((column, column.cells.get(self.range.clone())?))
    }
}

/// One member's cells of all pieces, one after another.
fn collect(pieces: &[RowsInRange<'_>], wanted: &SelectedColumn) -> Option<Column> {
    let mut values = Values::empty(wanted.value_type)?;
    let mut validity: Option<Vec<bool>> = None;
    let mut before = 0;
    for piece in pieces {
        let found = piece.column(wanted);
        let rows = piece.range.len();
        match found {
            Some((column, cells)) => push_cells(&mut values, column, cells),
            None => resize(&mut values, rows),
        }
        let is_stale = |cell: &u64| wanted.value_type == ValueType::F64 && *cell == STALE_NAN_BITS;
        let of_piece = match found {
            None => Some(vec![false; rows]),
            Some((column, cells)) => {
                let present = column.validity_in(&piece.range);
                let is_valid = |(row, cell)| present.get(row) != Some(&false) && !is_stale(cell);
                let has_nulls = present.contains(&false) || cells.iter().any(is_stale);
                has_nulls.then(|| cells.iter().enumerate().map(is_valid).collect::<Vec<bool>>())
            }
        };
        if let Some(of_piece) = of_piece {
            validity.get_or_insert_with(|| vec![true; before]).extend(of_piece);
        } else if let Some(validity) = &mut validity {
            validity.resize(before + rows, true);
        }
        before += rows;
    }
    Some(Column::new(values, validity))
}

/// Appends cells of a column.
fn push_cells(values: &mut Values, column: &RowsColumn, cells: &[u64]) {
    match values {
        Values::F64(values) => values.extend(cells.iter().map(|cell| f64::from_bits(*cell))),
        Values::I64(values) => values.extend(cells.iter().map(|cell| *cell as i64)),
        Values::U64(values) => values.extend_from_slice(cells),
        Values::Bool(values) => values.extend(cells.iter().map(|cell| *cell != 0)),
        // A null cell has some text too, which is never read.
        Values::Text(values) => {
            values.extend(cells.iter().map(|cell| String::from_utf8_lossy(column.text(*cell)).into_owned()));
        }
    }
}

fn resize(values: &mut Values, more: usize) {
    match values {
        Values::F64(values) => values.resize(values.len() + more, 0.0),
        Values::I64(values) => values.resize(values.len() + more, 0),
        Values::U64(values) => values.resize(values.len() + more, 0),
        Values::Bool(values) => values.resize(values.len() + more, false),
        Values::Text(values) => values.resize(values.len() + more, String::new()),
    }
}

fn push_cell(values: &mut Values, cell: u64) {
    match values {
        Values::F64(values) => values.push(f64::from_bits(cell)),
        Values::I64(values) => values.push(cell as i64),
        Values::U64(values) => values.push(cell),
        Values::Bool(values) => values.push(cell != 0),
        Values::Text(values) => values.push(String::new()),
    }
}

fn push_values(values: &mut Values, others: &Values, rows: Range<usize>) {
    match (values, others) {
        (Values::F64(values), Values::F64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::I64(values), Values::I64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::U64(values), Values::U64(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::Bool(values), Values::Bool(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        (Values::Text(values), Values::Text(others)) => values.extend_from_slice(others.get(rows).unwrap_or_default()),
        // Other types are not those of the same columns.
        (values, _) => resize(values, rows.len()),
    }
}

impl TableRows {
    /// No rows, with room for so many columns.
    fn with_capacity(columns: usize) -> Self {
        Self { timestamps_ns: Vec::new(), columns: Vec::with_capacity(columns), row_folds: Folds::NONE }
    }

    /// No rows yet, with room for some.
    pub(crate) fn new(columns: &[SelectedColumn], rows: usize) -> Self {
        let empty = |column: &SelectedColumn| {
            let mut values = Values::empty(column.value_type)?;
            values.reserve(rows);
            Some(Column::of_values(values))
        };
        let columns = columns.iter().map(empty).collect();
        Self { timestamps_ns: Vec::with_capacity(rows), columns, row_folds: Folds::NONE }
    }

    /// Adds a row of numbers; `cell` has that of each column by its index, `None` for a null.
    pub(crate) fn push(
        &mut self,
        time_ns: i64,
        columns: &[SelectedColumn],
        cell: impl Fn(&SelectedColumn, usize) -> Option<u64>,
    ) {
        let before = self.timestamps_ns.len();
        for (index, (column, wanted)) in self.columns.iter_mut().zip(columns).enumerate() {
            let Some(Column { values, validity, .. }) = column else { continue };
            let cell = cell(wanted, index);
            let cell = cell.filter(|cell| wanted.value_type != ValueType::F64 || *cell != STALE_NAN_BITS);
            push_cell(values, cell.unwrap_or_default());
            if cell.is_none() || validity.is_some() {
                validity.get_or_insert_with(|| vec![true; before]).push(cell.is_some());
            }
        }
        self.timestamps_ns.push(time_ns);
    }

    /// Adds some rows of others that have the same columns.
    pub(crate) fn extend_from(&mut self, others: &Self, rows: Range<usize>) {
        let before = self.timestamps_ns.len();
        for (column, other) in self.columns.iter_mut().zip(&others.columns) {
            let (Some(Column { values, validity, .. }), Some(other)) = (column, other) else { continue };
            push_values(values, &other.values, rows.clone());
            if other.validity.is_some() || validity.is_some() {
                let validity = validity.get_or_insert_with(|| vec![true; before]);
                match &other.validity {
                    Some(other) => validity.extend_from_slice(other.get(rows.clone()).unwrap_or_default()),
                    None => validity.resize(before + rows.len(), true),
                }
            }
        }
        self.timestamps_ns.extend_from_slice(others.timestamps_ns.get(rows).unwrap_or_default());
    }

    /// About as many bytes as it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        let rows = self.timestamps_ns.len();
        let values_bytes = |values: &Values| match values {
            Values::Text(texts) => texts.iter().map(|text| size_of::<String>() + text.capacity()).sum(),
            _ => rows * size_of::<u64>(),
        };
        let column = |column: &Column| values_bytes(&column.values) + column.validity.as_ref().map_or(0, Vec::len);
        let columns: usize = self.columns.iter().flatten().map(column).sum();
        columns + rows * size_of::<i64>() + size_of_val(&*self.columns)
    }

    /// Adds the columns of the next member block, which has timestamps of its own.
    fn add_block<C: std::borrow::Borrow<SelectedColumn>>(&mut self, pieces: &[Rows], wanted: &[C], range: &TimeRange) {
        let pieces: Vec<RowsInRange<'_>> = pieces.iter().map(|rows| RowsInRange::new(rows, range)).collect();
        let timestamps_ns: Vec<i64> = pieces.iter().flat_map(RowsInRange::timestamps_ns).copied().collect();
        let columns = wanted.iter().map(|column| collect(&pieces, column.borrow()));
        let is_same = self.columns.iter().all(Option::is_none) || self.timestamps_ns == timestamps_ns;
        if is_same {
            self.columns.extend(columns);
            self.timestamps_ns = timestamps_ns;
            return;
        }
        let mut union = [self.timestamps_ns.as_slice(), &timestamps_ns].concat();
        union.sort_unstable();
        union.dedup();
        for column in self.columns.iter_mut().flatten() {
            *column = spread(column, &self.timestamps_ns, &union);
        }
        self.columns.extend(columns.map(|column| column.map(|column| spread(&column, &timestamps_ns, &union))));
        self.timestamps_ns = union;
    }
}

/// A column on an axis that holds its own and more.
fn spread(column: &Column, own: &[i64], axis: &[i64]) -> Column {
    let mut next = 0;
    let mut indexes = Vec::with_capacity(axis.len());
    for time in axis {
        let found = own.get(next) == Some(time);
        indexes.push(found.then_some(next));
        next += usize::from(found);
    }
    let is_valid = |index: &Option<usize>| index.is_some_and(|index| column.is_valid(index));
    let validity = Some(indexes.iter().map(is_valid).collect());
    let values = match &column.values {
        Values::F64(values) => Values::F64(pick(values, &indexes)),
        Values::I64(values) => Values::I64(pick(values, &indexes)),
        Values::U64(values) => Values::U64(pick(values, &indexes)),
        Values::Bool(values) => Values::Bool(pick(values, &indexes)),
        Values::Text(values) => Values::Text(pick(values, &indexes)),
    };
    Column::new(values, validity)
}

fn pick<T: Clone + Default>(values: &[T], indexes: &[Option<usize>]) -> Vec<T> {
    indexes.iter().map(|index| index.and_then(|index| values.get(index)).cloned().unwrap_or_default()).collect()
}

//! Rows of views: as they are computed and stored, and how they are written.

use std::collections::{BTreeMap, BTreeSet};

use model::{Cell, Column, Field, Labels, ValueType, Values};
use query::views::{View, ViewDefinition};
use query::{Frame, QueryError};

use super::storage;
use crate::Db;

/// Rows that one request writes.
const ROWS_PER_WRITE: usize = 10_000;

/// Writes of rows whose series go meanwhile.
const ATTEMPTS_MAX: usize = 3;

/// Windows of one label set of a view, column by column.
#[derive(Debug, Clone, PartialEq)]
pub struct ViewRows {
    /// The labels.
    pub labels: Labels,
    /// Where each window begins, in nanoseconds since 1970.
    pub starts_ns: Vec<i64>,
    /// A cell for each window in each of the view's columns, of the column's type or null.
    pub columns: Vec<Column>,
}

impl ViewRows {
    /// The rows of a frame at their times.
    pub(super) fn from_frame(mut frame: Frame, definition: &ViewDefinition) -> Result<Self, QueryError> {
        let rows = frame.rows();
        let mut columns = Vec::with_capacity(definition.fields.len());
        for (name, value_type) in &definition.fields {
            let found = frame.columns.iter_mut().find(|column| *column.name == **name);
            columns.push(match found {
                None => Column::of_nulls(rows),
                Some(column) if column.cells.values.value_type() == *value_type => {
                    let cells = std::mem::replace(&mut column.cells, Column::of_nulls(0));
                    Column::new(cells.values, cells.validity)
                }
                Some(column) => typed(&column.cells, name, *value_type)?,
            });
        }
        Ok(Self { labels: frame.labels, starts_ns: frame.timestamps_ns, columns })
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.starts_ns.len()
    }

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.starts_ns.is_empty()
    }

    /// Some of them, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        let starts_ns = rows.iter().filter_map(|row| self.starts_ns.get(*row)).copied().collect();
        Self { labels: self.labels.clone(), starts_ns, columns: self.columns.iter().map(|of| of.pick(rows)).collect() }
    }

    /// Puts each row where its window begins, and leaves those out that are of none.
    pub fn move_to_starts(&mut self, start_of: impl Fn(i64) -> Option<i64>) {
        let placed = self.starts_ns.iter().enumerate().filter_map(|(row, time_ns)| Some((row, start_of(*time_ns)?)));
        let (rows, starts_ns): (Vec<usize>, Vec<i64>) = placed.unzip();
        if rows.len() < self.len() {
            *self = self.pick(&rows);
        }
        self.starts_ns = starts_ns;
    }

    /// Makes zeros of some columns nulls.
    pub(super) fn drop_zeros(&mut self, is_of: &[bool]) {
        for (column, _) in self.columns.iter_mut().zip(is_of).filter(|(_, is_of)| **is_of) {
            let Values::I64(values) = &column.values else { continue };
            if values.contains(&0) {
                let validity = (0..values.len()).map(|row| column.is_valid(row) && values.get(row) != Some(&0));
                column.validity = Some(validity.collect());
            }
        }
    }

    /// For each column whether a row has a value.
    fn present(&self, row: usize) -> Vec<bool> {
        self.columns.iter().map(|column| column.is_valid(row)).collect()
    }
}

/// A column of another type's cells.
fn typed(column: &Column, name: &str, value_type: ValueType) -> Result<Column, QueryError> {
    let cells: Vec<Cell<'_>> =
        (0..column.values.len()).map(|row| typed_cell(column.cell(row), name, value_type)).collect::<Result<_, _>>()?;
    let kinds = |[one, other]: [&str; 2]| QueryError::Execution(format!("a {one} and a {other} in one column"));
    Column::of_cells(&cells).map_err(kinds)
}

/// A cell as one of a column's type.
fn typed_cell<'a>(cell: Cell<'a>, name: &str, value_type: ValueType) -> Result<Cell<'a>, QueryError> {
    Ok(match (value_type, cell) {
        (_, Cell::Null) => Cell::Null,
        (ValueType::F64, cell) if cell.number().is_some() => cell.number().map_or(Cell::Null, Cell::F64),
        (ValueType::I64, Cell::U64(value)) if i64::try_from(value).is_ok() => Cell::I64(value as i64),
        (ValueType::U64, Cell::I64(value)) if value >= 0 => Cell::U64(value as u64),
        (value_type, cell) => {
            let of_sum = match (value_type, cell) {
                (ValueType::I64 | ValueType::U64, Cell::F64(_)) => {
                    ": whole numbers whose sum is 2^63 or more are summed as floats. Make the view with the sum of what is cast to double precision"
                }
                _ => "",
            };
            let (kind, held) = (cell.kind(), value_type.name());
            let message =
                format!("a {kind} does not fit into the column {name:?} of the view, which holds {held}{of_sum}");
            return Err(QueryError::Execution(message));
        }
    })
}

/// The bits of a cell that is there; texts go into `text`.
fn cell_bits(column: &Column, row: usize, text: &mut Vec<u8>) -> u64 {
    match column.cell(row) {
        Cell::F64(value) if value.is_nan() => f64::NAN.to_bits(),
        Cell::F64(value) => value.to_bits(),
        Cell::I64(value) => value as u64,
        Cell::U64(value) => value,
        Cell::Bool(value) => u64::from(value),
        Cell::Text(value) => {
            let span = model::Span { start: text.len() as u32, len: value.len() as u32 };
            text.extend_from_slice(value.as_bytes());
            span.to_cell()
        }
        Cell::Null => 0,
    }
}

/// Rows that have the same columns: which label set, and which of its rows. They are written together, for what is null is not written.
type Places = Vec<(usize, usize)>;

impl Db {
    pub(super) fn write_view_rows(&self, view: &View, rows: &[ViewRows]) -> Result<(), QueryError> {
        let into = view.definition.target_database();
        let Some(number) = self.store.database_number(into) else {
            return Err(QueryError::Invalid(format!(
                "database not found: {into}, into which the view {:?} writes: make it again, or drop the view",
                view.definition.name
            )));
        };
        if !view.definition.is_exposed() {
            // Its database may have been made again.
            self.store.keep_unfolded_for_good(into, &view.definition.target).map_err(storage)?;
        }
        let oldest_ns = self.store.oldest_retained_ns(number);
        // A window of which retention has taken the beginning has no place any more.
        let is_kept = |start_ns: i64| view.row_time(start_ns) >= oldest_ns;
        if !rows.iter().all(|of_labels| of_labels.starts_ns.iter().all(|start_ns| is_kept(*start_ns))) {
            self.views.check_kept(&view.definition)?;
        }
        let (mut by_columns, mut count): (BTreeMap<Vec<bool>, Places>, usize) = (BTreeMap::new(), 0);
        for (number, of_labels) in rows.iter().enumerate() {
            let is_full = of_labels.columns.iter().all(|column| column.validity.is_none());
            let all = vec![true; of_labels.columns.len()];
            for (row, _) in of_labels.starts_ns.iter().enumerate().filter(|(_, start_ns)| is_kept(**start_ns)) {
                let known = if is_full { by_columns.get_mut(&all) } else { None };
                match known {
                    Some(places) => places.push((number, row)),
                    None => by_columns.entry(of_labels.present(row)).or_default().push((number, row)),
                }
                count += 1;
                if count == ROWS_PER_WRITE {
                    self.write_places(view, rows, &by_columns)?;
                    by_columns.clear();
                    count = 0;
                }
            }
        }
        self.write_places(view, rows, &by_columns)
    }

    fn write_places(
        &self,
        view: &View,
        rows: &[ViewRows],
        by_columns: &BTreeMap<Vec<bool>, Places>,
    ) -> Result<(), QueryError> {
        for (present, places) in by_columns.iter().filter(|(present, _)| present.contains(&true)) {
            let mut is_written = false;
            for _ in 0..ATTEMPTS_MAX {
                is_written = self.write_places_once(view, rows, (present, places))?;
                if is_written {
                    break;
                }
            }
            if !is_written {
                let name = &view.definition.name;
                let message = format!("series of the view {name:?} were dropped while it was refreshed");
                return Err(QueryError::Storage(message));
            }
        }
        Ok(())
    }

    /// Writes rows; returns `false` if series went meanwhile of which all rows had been deleted. What is written twice is the same.
    fn write_places_once(
        &self,
        view: &View,
        rows: &[ViewRows],
        (present, places): (&[bool], &Places),
    ) -> Result<bool, QueryError> {
        let definition = &view.definition;
        let fields = definition.fields.iter().zip(present).filter(|(_, present)| **present);
        let field = |name: &String, value_type: ValueType| Field { name: name.clone(), value_type };
        let members: Vec<(Field, Labels)> =
            fields.map(|((name, value_type), _)| (field(name, *value_type), Labels::empty())).collect();
        let labels_of = |number: &usize| rows.get(*number).map(|of_labels| &of_labels.labels);
        let numbers: BTreeSet<usize> = places.iter().map(|(number, _)| *number).collect();
        let groups: Vec<Labels> =
            numbers.iter().filter_map(labels_of).collect::<BTreeSet<_>>().into_iter().cloned().collect();
        let into = definition.target_database();
        let registered = self.store.register_groups(into, &definition.target, &groups, &members);
        let (tokens, layout) = registered.map_err(storage)?;
        let tokens: BTreeMap<&Labels, u64> = groups.iter().zip(tokens.iter().map(|token| token.to_bits())).collect();
        let tokens: BTreeMap<usize, u64> =
            numbers.iter().filter_map(|number| Some((*number, *tokens.get(labels_of(number)?)?))).collect();
        let (mut of_rows, mut times, mut cells, mut text) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (number, row) in places {
            let (Some(of_labels), Some(token)) = (rows.get(*number), tokens.get(number)) else { continue };
            of_rows.push(*token);
            times.extend(of_labels.starts_ns.get(*row).map(|start_ns| view.row_time(*start_ns)));
            let columns = of_labels.columns.iter().zip(present).filter(|(_, present)| **present);
            cells.extend(columns.map(|(column, _)| cell_bits(column, *row, &mut text)));
        }
        let mut appender = self.store.appender();
        appender.push_rows(&layout, &of_rows, &times, &cells, &text).map_err(storage)?;
        let record = appender.append(None).map_err(storage)?;
        self.store.commit(&record).map_err(storage)?;
        if !record.stale.is_empty() {
            return Ok(false);
        }
        let refused = record.beyond_retention + record.folded;
        if refused > 0 {
            return Err(QueryError::Storage(format!(
                "{refused} windows of the view {:?} were refused: {} are older than the database {:?} keeps rows, {} are of time that is folded",
                definition.name, record.beyond_retention, into, record.folded
            )));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_the_types_of_columns_or_are_refused() {
        let column = |cells: &[Cell<'_>]| Column::of_cells(cells).unwrap();
        let whole = column(&[Cell::I64(3), Cell::Null]);
        assert_eq!(typed(&whole, "x", ValueType::F64).unwrap(), column(&[Cell::F64(3.0), Cell::Null]));
        assert_eq!(typed(&whole, "x", ValueType::U64).unwrap(), column(&[Cell::U64(3), Cell::Null]));
        for (cell, value_type) in [
            (Cell::I64(-1), ValueType::U64),
            (Cell::U64(u64::MAX), ValueType::I64),
            (Cell::F64(1.0), ValueType::I64),
            (Cell::Text("x"), ValueType::F64),
            (Cell::F64(1.0), ValueType::String),
        ] {
            let error = typed(&column(&[cell]), "x", value_type).unwrap_err().to_string();
            assert!(error.contains("does not fit into the column \"x\" of the view"), "{error}");
        }
        assert_eq!(typed(&column(&[Cell::Null]), "x", ValueType::String).unwrap().cell(0), Cell::Null);
    }

    #[test]
    fn rows_are_placed_and_zeros_of_counts_go() {
        let columns = vec![
            Column::of_cells(&[Cell::I64(0), Cell::I64(2), Cell::Null]).unwrap(),
            Column::of_cells(&[Cell::I64(0), Cell::I64(2), Cell::I64(0)]).unwrap(),
        ];
        let mut rows = ViewRows { labels: Labels::empty(), starts_ns: vec![11, 25, 30], columns };
        rows.drop_zeros(&[true, false]);
        let nulls = |row: usize| rows.present(row);
        assert_eq!([0, 1, 2].map(nulls), [vec![false, true], vec![true, true], vec![false, true]]);
        rows.move_to_starts(|time_ns| (time_ns % 10 != 5).then_some(time_ns - time_ns % 10));
        assert_eq!((rows.starts_ns.as_slice(), rows.columns[1].cell(1)), ([10, 30].as_slice(), Cell::I64(0)));
    }
}

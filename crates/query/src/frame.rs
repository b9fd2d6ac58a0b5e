//! What a plan gives: series with rows and named columns.

use std::sync::Arc;

use model::{Column, Labels, Values, is_stale_bits};

/// A series: rows, sorted by time unless they were put in another order, and columns of as many cells each.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// Its labels.
    pub labels: Labels,
    /// A time for each row, in nanoseconds since the Unix epoch.
    pub timestamps_ns: Vec<i64>,
    /// Its columns; `value` if it has one that nobody named.
    pub columns: Vec<FrameColumn>,
}

/// A column of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameColumn {
    /// Its name.
    pub name: Arc<str>,
    /// A value for each row; what stands for nulls does not matter.
    pub values: Values,
    /// Whether each row has a value; `None`: all have.
    pub present: Option<Vec<bool>>,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell<'a> {
    /// None.
    Null,
    /// A float.
    F64(f64),
    /// A signed integer.
    I64(i64),
    /// An unsigned integer.
    U64(u64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(&'a str),
}

/// The name of a column that nobody named.
pub(crate) const VALUE: &str = "value";

impl Frame {
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

    /// What it takes out of a budget: a sample for each cell.
    pub(crate) fn samples(&self) -> usize {
        self.rows() * self.columns.len().max(1)
    }

    /// Only these rows, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        let timestamps_ns = rows.iter().filter_map(|row| self.timestamps_ns.get(*row)).copied().collect();
        let columns = self.columns.iter().map(|column| column.pick(rows)).collect();
        Self { labels: self.labels.clone(), timestamps_ns, columns }
    }

    /// The same of a frame that is not needed any more.
    #[must_use]
    pub(crate) fn into_picked(mut self, rows: &[usize]) -> Self {
        self.timestamps_ns = pick(&self.timestamps_ns, rows);
        self.columns.iter_mut().for_each(|column| column.leave(rows));
        self
    }

    /// The last rows of one whose rows are sorted by time, latest first.
    pub(crate) fn newest_first(self, rows: usize) -> Self {
        fn leave<T>(items: &mut Vec<T>, rows: usize) {
            items.drain(..items.len().saturating_sub(rows));
            items.reverse();
        }
        let mut newest = self;
        leave(&mut newest.timestamps_ns, rows);
        for column in &mut newest.columns {
            match &mut column.values {
                Values::F64(values) => leave(values, rows),
                Values::I64(values) => leave(values, rows),
                Values::U64(values) => leave(values, rows),
                Values::Bool(values) => leave(values, rows),
                Values::Text(values) => leave(values, rows),
            }
            if let Some(present) = &mut column.present {
                leave(present, rows);
            }
        }
        newest
    }

    /// The same with rows sorted by time.
    pub(crate) fn in_time_order(self) -> Self {
        if self.timestamps_ns.is_sorted() {
            return self;
        }
        let mut rows: Vec<usize> = (0..self.rows()).collect();
        rows.sort_by_key(|row| self.timestamps_ns.get(*row));
        self.into_picked(&rows)
    }

    /// Samples as a frame, stale markers left out; `None` for histograms and for no samples.
    pub(crate) fn of_samples(labels: Labels, column: Column) -> Option<Self> {
        let (timestamps_ns, values) = match column {
            Column::F64(mut timestamps_ns, mut values) => {
                if values.iter().any(|value| is_stale_bits(*value)) {
                    let samples = timestamps_ns.iter().zip(&values).filter(|(_, value)| !is_stale_bits(**value));
                    (timestamps_ns, values) = samples.map(|(timestamp, value)| (*timestamp, *value)).unzip();
                }
                (timestamps_ns, Values::F64(values))
            }
            Column::I64(timestamps_ns, values) => (timestamps_ns, Values::I64(values)),
            Column::U64(timestamps_ns, values) => (timestamps_ns, Values::U64(values)),
            Column::Bool(timestamps_ns, values) => (timestamps_ns, Values::Bool(values)),
            Column::String(timestamps_ns, values) => (timestamps_ns, Values::Text(values)),
            Column::Histogram(..) => return None,
        };
        if timestamps_ns.is_empty() {
            return None;
        }
        let columns = vec![FrameColumn { name: VALUE.into(), values, present: None }];
        Some(Self { labels, timestamps_ns, columns })
    }
}

impl FrameColumn {
    /// The value of a row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        if self.present.as_ref().is_some_and(|present| present.get(row) != Some(&true)) {
            return Cell::Null;
        }
        let cell = match &self.values {
            Values::F64(values) => values.get(row).copied().map(Cell::F64),
            Values::I64(values) => values.get(row).copied().map(Cell::I64),
            Values::U64(values) => values.get(row).copied().map(Cell::U64),
            Values::Bool(values) => values.get(row).copied().map(Cell::Bool),
            Values::Text(values) => values.get(row).map(|text| Cell::Text(text)),
        };
        cell.unwrap_or(Cell::Null)
    }

    /// About as many bytes as it takes.
    pub(crate) fn size_bytes(&self) -> usize {
        let values = match &self.values {
            Values::F64(values) => size_of_val(values.as_slice()),
            Values::I64(values) => size_of_val(values.as_slice()),
            Values::U64(values) => size_of_val(values.as_slice()),
            Values::Bool(values) => values.len(),
            Values::Text(values) => values.iter().map(|text| size_of::<String>() + text.len()).sum(),
        };
        size_of::<Self>() + self.name.len() + values + self.present.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn pick(&self, rows: &[usize]) -> Self {
        let present = self.present.as_ref().map(|present| pick(present, rows));
        Self { name: self.name.clone(), values: picked(&self.values, rows), present }
    }

    /// Leaves these rows, in this order.
    fn leave(&mut self, rows: &[usize]) {
        self.present = self.present.as_ref().map(|present| pick(present, rows));
        self.values = picked(&self.values, rows);
    }

    /// A column of cells. They have one type, but that numbers of several become floats.
    pub fn of_cells(name: &str, cells: &[Cell<'_>]) -> Result<Self, String> {
        let present: Vec<bool> = cells.iter().map(|cell| *cell != Cell::Null).collect();
        let mut kinds = cells.iter().filter(|cell| **cell != Cell::Null).map(|cell| cell.kind());
        let first = kinds.next().unwrap_or("float");
        let mut kind = first;
        for other in kinds.filter(|other| *other != first) {
            let numbers = ["float", "integer", "unsigned integer"];
            if !numbers.contains(&other) || !numbers.contains(&first) {
                return Err(format!("the column {name:?} would hold a {first} in one row and a {other} in another"));
            }
            kind = "float";
        }
        let values = match kind {
            "integer" => {
                Values::I64(cells.iter().map(|cell| if let Cell::I64(value) = cell { *value } else { 0 }).collect())
            }
            "unsigned integer" => {
                Values::U64(cells.iter().map(|cell| if let Cell::U64(value) = cell { *value } else { 0 }).collect())
            }
            "boolean" => Values::Bool(cells.iter().map(|cell| *cell == Cell::Bool(true)).collect()),
            "text" => {
                let text =
                    |cell: &Cell<'_>| if let Cell::Text(text) = cell { (*text).to_owned() } else { String::new() };
                Values::Text(cells.iter().map(text).collect())
            }
            _ => Values::F64(cells.iter().map(|cell| cell.number().unwrap_or_default()).collect()),
        };
        let present = present.contains(&false).then_some(present);
        Ok(Self { name: name.into(), values, present })
    }
}

fn picked(values: &Values, rows: &[usize]) -> Values {
    match values {
        Values::F64(values) => Values::F64(pick(values, rows)),
        Values::I64(values) => Values::I64(pick(values, rows)),
        Values::U64(values) => Values::U64(pick(values, rows)),
        Values::Bool(values) => Values::Bool(pick(values, rows)),
        Values::Text(values) => Values::Text(pick(values, rows)),
    }
}

fn pick<T: Clone>(values: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().filter_map(|row| values.get(*row)).cloned().collect()
}

impl Cell<'_> {
    /// As a float; booleans are 0 and 1. `None` for nulls and texts.
    pub fn number(self) -> Option<f64> {
        match self {
            Self::F64(value) => Some(value),
            Self::I64(value) => Some(value as f64),
            Self::U64(value) => Some(value as f64),
            Self::Bool(value) => Some(f64::from(u8::from(value))),
            Self::Null | Self::Text(_) => None,
        }
    }

    /// As a whole number, if it is one by type.
    pub(crate) fn integer(self) -> Option<i128> {
        match self {
            Self::I64(value) => Some(i128::from(value)),
            Self::U64(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    /// What it is, for messages.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::F64(_) => "float",
            Self::I64(_) => "integer",
            Self::U64(_) => "unsigned integer",
            Self::Bool(_) => "boolean",
            Self::Text(_) => "text",
        }
    }
}

//! Columns of a table on their way out: values of one type, and which of them are there.

use std::mem::discriminant;
use std::ops::Range;

use crate::{Folds, ValueType};

/// Values of one type, one for each row of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Floats.
    F64(Vec<f64>),
    /// Signed integers.
    I64(Vec<i64>),
    /// Unsigned integers.
    U64(Vec<u64>),
    /// Booleans.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<String>),
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

/// A column some of whose cells may be null.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// A value for each row; what stands for nulls does not matter.
    pub values: Values,
    /// For each row true if it has a value; `None`: all have one.
    pub validity: Option<Vec<bool>>,
    /// Which rows' values stand for folded ones.
    pub folds: Folds,
}

/// Does one piece of work on values of any type.
macro_rules! each {
    ($values:expr, $items:ident => $work:expr) => {
        match $values {
            Values::F64($items) => $work,
            Values::I64($items) => $work,
            Values::U64($items) => $work,
            Values::Bool($items) => $work,
            Values::Text($items) => $work,
        }
    };
}

/// Values that the same work makes of those of any type.
macro_rules! map {
    ($values:expr, $items:ident => $work:expr) => {
        match $values {
            Values::F64($items) => Values::F64($work),
            Values::I64($items) => Values::I64($work),
            Values::U64($items) => Values::U64($work),
            Values::Bool($items) => Values::Bool($work),
            Values::Text($items) => Values::Text($work),
        }
    };
}

impl Values {
    /// No values of a type; `None` for histograms, which tables do not show.
    pub const fn empty(value_type: ValueType) -> Option<Self> {
        match value_type {
            ValueType::F64 => Some(Self::F64(Vec::new())),
            ValueType::I64 => Some(Self::I64(Vec::new())),
            ValueType::U64 => Some(Self::U64(Vec::new())),
            ValueType::Bool => Some(Self::Bool(Vec::new())),
            ValueType::String => Some(Self::Text(Vec::new())),
            ValueType::Histogram => None,
        }
    }

    /// Their type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::U64(_) => ValueType::U64,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::String,
        }
    }

    /// Makes room for more.
    pub fn reserve(&mut self, more: usize) {
        each!(self, items => items.reserve(more));
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        each!(self, items => items.len())
    }

    /// Returns whether there are no values.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The values of these rows, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        map!(self, items => pick(items, rows))
    }

    /// The values of some rows; `None` if there are fewer.
    pub fn slice(&self, rows: Range<usize>) -> Option<Self> {
        Some(map!(self, items => items.get(rows)?.to_vec()))
    }

    /// Appends the values of some rows of others; `None` if there are fewer, or if they are of another type.
    pub fn extend(&mut self, others: &Self, rows: Range<usize>) -> Option<()> {
        match (self, others) {
            (Self::F64(all), Self::F64(more)) => all.extend_from_slice(more.get(rows)?),
            (Self::I64(all), Self::I64(more)) => all.extend_from_slice(more.get(rows)?),
            (Self::U64(all), Self::U64(more)) => all.extend_from_slice(more.get(rows)?),
            (Self::Bool(all), Self::Bool(more)) => all.extend_from_slice(more.get(rows)?),
            (Self::Text(all), Self::Text(more)) => all.extend_from_slice(more.get(rows)?),
            _ => return None,
        }
        Some(())
    }

    /// Leaves the last values, last first.
    fn keep_last_reversed(&mut self, rows: usize) {
        each!(self, items => keep_last_reversed(items, rows));
    }

    /// About as many bytes as they take.
    fn size_bytes(&self) -> usize {
        match self {
            Self::Text(texts) => texts.iter().map(|text| size_of::<String>() + text.len()).sum(),
            other => each!(other, items => size_of_val(items.as_slice())),
        }
    }
}

impl Column {
    /// A column without nulls.
    pub const fn of_values(values: Values) -> Self {
        Self::new(values, None)
    }

    /// A column of values, some of them null.
    pub const fn new(values: Values, validity: Option<Vec<bool>>) -> Self {
        Self { values, validity, folds: Folds::NONE }
    }

    /// A column of nulls.
    pub fn of_nulls(rows: usize) -> Self {
        Self::new(Values::F64(vec![0.0; rows]), Some(vec![false; rows]))
    }

    /// A column of cells. They have one type, but that numbers of several become floats. Fails with the kinds of two that do not fit.
    pub fn of_cells(cells: &[Cell<'_>]) -> Result<Self, [&'static str; 2]> {
        let is_there = |cell: &&Cell<'_>| !matches!(cell, Cell::Null);
        let first = cells.iter().find(is_there).copied().unwrap_or(Cell::F64(0.0));
        let kind = discriminant(&first);
        let mut others = cells.iter().filter(is_there).filter(|cell| discriminant(*cell) != kind).peekable();
        let has_others = others.peek().is_some();
        if let Some(other) = others.find(|other| !other.is_number() || !first.is_number()) {
            return Err([first.kind(), other.kind()]);
        }
        let values = match first {
            Cell::I64(_) if !has_others => {
                Values::I64(cells.iter().map(|cell| if let Cell::I64(value) = cell { *value } else { 0 }).collect())
            }
            Cell::U64(_) if !has_others => {
                Values::U64(cells.iter().map(|cell| if let Cell::U64(value) = cell { *value } else { 0 }).collect())
            }
            Cell::Bool(_) => Values::Bool(cells.iter().map(|cell| matches!(cell, Cell::Bool(true))).collect()),
            Cell::Text(_) => {
                let text =
                    |cell: &Cell<'_>| if let Cell::Text(text) = cell { (*text).to_owned() } else { String::new() };
                Values::Text(cells.iter().map(text).collect())
            }
            _ => Values::F64(cells.iter().map(|cell| cell.number().unwrap_or_default()).collect()),
        };
        let is_full = cells.iter().all(|cell| is_there(&cell));
        let validity = (!is_full).then(|| cells.iter().map(|cell| is_there(&cell)).collect());
        Ok(Self::new(values, validity))
    }

    /// A column of these cells, each of which stands for itself: as [`Column::of_cells`] makes of them.
    #[must_use]
    pub fn without_folds(&self) -> Self {
        match &self.validity {
            Some(validity) if !validity.contains(&true) => Self::of_nulls(self.values.len()),
            Some(validity) if validity.contains(&false) => Self::new(self.values.clone(), Some(validity.clone())),
            _ => Self::of_values(self.values.clone()),
        }
    }

    /// Returns whether a row has a value.
    pub fn is_valid(&self, row: usize) -> bool {
        self.validity.as_ref().is_none_or(|validity| validity.get(row) == Some(&true))
    }

    /// The value of a row.
    pub fn cell(&self, row: usize) -> Cell<'_> {
        if !self.is_valid(row) {
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

    /// Returns whether some rows have all a value.
    pub fn is_full(&self, rows: Range<usize>) -> bool {
        let Some(validity) = &self.validity else { return true };
        validity.get(rows).is_some_and(|validity| !validity.contains(&false))
    }

    /// These rows, in this order.
    #[must_use]
    pub fn pick(&self, rows: &[usize]) -> Self {
        let validity = self.validity.as_ref().map(|validity| pick(validity, rows));
        Self { values: self.values.pick(rows), validity, folds: self.folds.pick(rows) }
    }

    /// Leaves the last rows, last first.
    pub fn keep_last_reversed(&mut self, rows: usize) {
        self.folds = self.folds.last_reversed(self.values.len(), rows);
        self.values.keep_last_reversed(rows);
        self.validity.iter_mut().for_each(|validity| keep_last_reversed(validity, rows));
    }

    /// About as many bytes as it takes.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.values.size_bytes() + self.validity.as_ref().map_or(0, Vec::len)
    }
}

fn pick<T: Clone>(items: &[T], rows: &[usize]) -> Vec<T> {
    rows.iter().filter_map(|row| items.get(*row)).cloned().collect()
}

/// Leaves the last items, last first.
fn keep_last_reversed<T>(items: &mut Vec<T>, count: usize) {
    items.drain(..items.len().saturating_sub(count));
    items.reverse();
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
    pub fn integer(self) -> Option<i128> {
        match self {
            Self::I64(value) => Some(i128::from(value)),
            Self::U64(value) => Some(i128::from(value)),
            _ => None,
        }
    }

    /// Returns whether it is a number by type: neither a null, nor a boolean, nor a text.
    const fn is_number(&self) -> bool {
        matches!(self, Self::F64(_) | Self::I64(_) | Self::U64(_))
    }

    /// The name of the type, for messages.
    pub const fn kind(self) -> &'static str {
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

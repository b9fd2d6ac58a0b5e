//! Results of queries: points in columns, one list for each field.

use std::ops::Range;
use std::sync::Arc;

use crate::Span;

/// The type of a field's values. A field's name together with its type is what a slab holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum ValueType {
    /// Floats.
    F64 = 0,
    /// Integers.
    I64 = 1,
    /// True or false.
    Bool = 2,
    /// Text, or any other thing that was written as text.
    Text = 3,
}

impl ValueType {
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        [Self::F64, Self::I64, Self::Bool, Self::Text].get(usize::from(number)).copied()
    }
}

/// Values of one type.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Floats; compared by their bits wherever the cache compares them.
    F64(Vec<f64>),
    /// Integers.
    I64(Vec<i64>),
    /// True or false.
    Bool(Vec<bool>),
    /// Texts.
    Text(Vec<Arc<str>>),
}

/// Runs the same code for each of the types.
macro_rules! each {
    ($values:expr, $column:ident => $code:expr) => {
        match $values {
            Values::F64($column) => $code,
            Values::I64($column) => $code,
            Values::Bool($column) => $code,
            Values::Text($column) => $code,
        }
    };
}

impl Values {
    /// No values of a type.
    pub fn new(value_type: ValueType) -> Self {
        match value_type {
            ValueType::F64 => Self::F64(Vec::new()),
            ValueType::I64 => Self::I64(Vec::new()),
            ValueType::Bool => Self::Bool(Vec::new()),
            ValueType::Text => Self::Text(Vec::new()),
        }
    }

    /// Their type.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::F64(_) => ValueType::F64,
            Self::I64(_) => ValueType::I64,
            Self::Bool(_) => ValueType::Bool,
            Self::Text(_) => ValueType::Text,
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        each!(self, column => column.len())
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends some of another's values; none if they are of another type.
    pub(crate) fn extend_from(&mut self, other: &Self, places: Range<usize>) {
        match (self, other) {
            (Self::F64(to), Self::F64(from)) => to.extend_from_slice(from.get(places).unwrap_or_default()),
            (Self::I64(to), Self::I64(from)) => to.extend_from_slice(from.get(places).unwrap_or_default()),
            (Self::Bool(to), Self::Bool(from)) => to.extend_from_slice(from.get(places).unwrap_or_default()),
            (Self::Text(to), Self::Text(from)) => to.extend_from_slice(from.get(places).unwrap_or_default()),
            _ => {}
        }
    }

    /// The values in another order.
    pub(crate) fn reordered(&self, order: &[u32]) -> Self {
        fn pick<T: Clone>(column: &[T], order: &[u32]) -> Vec<T> {
            order.iter().filter_map(|place| column.get(*place as usize).cloned()).collect()
        }
        match self {
            Self::F64(column) => Self::F64(pick(column, order)),
            Self::I64(column) => Self::I64(pick(column, order)),
            Self::Bool(column) => Self::Bool(pick(column, order)),
            Self::Text(column) => Self::Text(pick(column, order)),
        }
    }

    fn size_bytes(&self, places: Range<usize>) -> usize {
        match self {
            Self::F64(_) | Self::I64(_) => places.len() * 8,
            Self::Bool(_) => places.len(),
            Self::Text(column) => column.get(places).unwrap_or_default().iter().map(|text| text.len() + 4).sum(),
        }
    }

    fn truncate(&mut self, len: usize) {
        each!(self, column => column.truncate(len));
    }
}

/// Points of one field, by time: `timestamps`, `series` and `values` are equally long.
#[derive(Debug, Clone, PartialEq)]
pub struct Points {
    /// Times, ascending; the same time may come again with another series.
    pub timestamps: Vec<i64>,
    /// The series of each point: an index into the list of the owner of the points.
    pub series: Vec<u32>,
    /// Their values.
    pub values: Values,
}

impl Points {
    /// No points of a type.
    pub fn new(value_type: ValueType) -> Self {
        Self { timestamps: Vec::new(), series: Vec::new(), values: Values::new(value_type) }
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.timestamps.len()
    }

    /// Returns whether there are no points.
    pub fn is_empty(&self) -> bool {
        self.timestamps.is_empty()
    }

    /// About as many bytes as the points of a span take uncompressed.
    pub fn size_bytes(&self, span: Span) -> usize {
        let places = span.indexes(&self.timestamps);
        places.len() * 8 + self.values.size_bytes(places)
    }

    /// The points of a span.
    #[must_use]
    pub fn within(&self, span: Span) -> Self {
        let mut part = Self::new(self.values.value_type());
        part.extend_from(self, span.indexes(&self.timestamps));
        part
    }

    pub(crate) fn extend_from(&mut self, other: &Self, places: Range<usize>) {
        self.timestamps.extend_from_slice(other.timestamps.get(places.clone()).unwrap_or_default());
        self.series.extend_from_slice(other.series.get(places.clone()).unwrap_or_default());
        self.values.extend_from(&other.values, places);
    }

    /// Makes room for so many more.
    pub(crate) fn reserve(&mut self, more: usize) {
        self.timestamps.reserve(more);
        self.series.reserve(more);
        each!(&mut self.values, column => column.reserve(more));
    }

    /// Sorts by time, then series.
    pub(crate) fn sort(&mut self) {
        let pairs = || self.timestamps.iter().zip(&self.series);
        if pairs().zip(pairs().skip(1)).all(|(earlier, later)| earlier <= later) {
            return;
        }
        let at = |place: usize| (self.timestamps.get(place).copied(), self.series.get(place).copied());
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_by_key(|place| at(*place as usize));
        let pick_time = |place: &u32| self.timestamps.get(*place as usize).copied();
        let pick_series = |place: &u32| self.series.get(*place as usize).copied();
        *self = Self {
            timestamps: order.iter().filter_map(pick_time).collect(),
            series: order.iter().filter_map(pick_series).collect(),
            values: self.values.reordered(&order),
        };
    }

    /// Gives each point the series at its number's place in `renamed`.
    pub(crate) fn rename_series(&mut self, renamed: &[u32]) {
        let is_same = (0..).zip(renamed).all(|(number, renamed): (u32, _)| number == *renamed);
        if is_same && self.series.iter().max().is_none_or(|last| (*last as usize) < renamed.len()) {
            return;
        }
        for series in &mut self.series {
            *series = renamed.get(*series as usize).copied().unwrap_or_default();
        }
    }

    /// Cuts columns to the same length; damaged input may have made them differ.
    pub(crate) fn make_even(&mut self) {
        let len = self.timestamps.len().min(self.series.len()).min(self.values.len());
        self.timestamps.truncate(len);
        self.series.truncate(len);
        self.values.truncate(len);
    }
}

/// A field's name and points.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldPoints {
    /// The field's name.
    pub name: Arc<str>,
    /// Its points.
    pub points: Points,
}

/// The result of a query for a span of time, whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// What tells points of the same time and field apart: a tag set as the database writes it. Often one empty text.
    pub series: Vec<Arc<str>>,
    /// The fields.
    pub fields: Vec<FieldPoints>,
}

impl Answer {
    /// About as many bytes as its points take uncompressed.
    pub fn size_bytes(&self) -> usize {
        let everything = Span::new(i64::MIN, i64::MAX);
        self.fields.iter().map(|field| field.points.size_bytes(everything)).sum()
    }

    /// How many points all fields have.
    pub fn points(&self) -> usize {
        self.fields.iter().map(|field| field.points.len()).sum()
    }

    /// The answer for a part of its span.
    #[must_use]
    pub fn within(&self, span: Span) -> Self {
        let cut = |field: &FieldPoints| FieldPoints { name: field.name.clone(), points: field.points.within(span) };
        Self { series: self.series.clone(), fields: self.fields.iter().map(cut).collect() }
    }

    /// Adds the answer for a later span behind this one.
    pub fn append(&mut self, later: &Self) {
        let renamed = crate::open_slab::rename(&mut self.series, &later.series);
        for field in &later.fields {
            let mut points = field.points.clone();
            points.rename_series(&renamed);
            let value_type = points.values.value_type();
            let same =
                |known: &&mut FieldPoints| known.name == field.name && known.points.values.value_type() == value_type;
            match self.fields.iter_mut().find(same) {
                Some(known) => known.points.extend_from(&points, 0..points.len()),
                None => self.fields.push(FieldPoints { name: field.name.clone(), points }),
            }
        }
    }

    /// Every point as series, field and value by time: the form that does not depend on how series are numbered.
    #[cfg(test)]
    pub(crate) fn plain(&self) -> std::collections::BTreeMap<(i64, String, String), String> {
        let mut all = std::collections::BTreeMap::new();
        for field in &self.fields {
            let points = &field.points;
            for place in 0..points.len() {
                let series = self.series.get(points.series[place] as usize).unwrap();
                let value = match &points.values {
                    Values::F64(column) => format!("{:x}", column[place].to_bits()),
                    other => format!("{:?}", other.reordered(&[place as u32])),
                };
                let at = (points.timestamps[place], series.to_string(), field.name.to_string());
                assert!(all.insert(at, value).is_none(), "a point twice");
            }
        }
        all
    }
}

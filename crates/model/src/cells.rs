//! Columns of a table on their way out.

use crate::ValueType;

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

/// A column some of whose cells may be null.
#[derive(Debug, Clone, PartialEq)]
pub struct CellColumn {
    /// A value for each row; what stands for nulls does not matter.
    pub values: Values,
    /// Whether each row has a value; `None`: all have.
    pub present: Option<Vec<bool>>,
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

    /// Makes room for more.
    pub fn reserve(&mut self, more: usize) {
        match self {
            Self::F64(values) => values.reserve(more),
            Self::I64(values) => values.reserve(more),
            Self::U64(values) => values.reserve(more),
            Self::Bool(values) => values.reserve(more),
            Self::Text(values) => values.reserve(more),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::Text(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

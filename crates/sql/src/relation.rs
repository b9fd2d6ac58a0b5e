//! Rows with named columns.

use query::{SqlType, Value};

/// A column of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, or alias.
    pub name: String,
    /// The type of its values that are not null.
    pub sql_type: SqlType,
    /// True if it is the time of a table's rows, by its own name.
    pub(crate) is_time: bool,
}

/// Rows, all as long as the columns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Relation {
    /// The columns of the rows.
    pub columns: Vec<Column>,
    /// In order.
    pub rows: Vec<Vec<Value>>,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, sql_type: SqlType) -> Self {
        Self { name: name.into(), sql_type, is_time: false }
    }
}

impl Relation {
    /// Columns of texts and their rows: what SHOW gives.
    pub(crate) fn of_texts(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        let columns = columns.iter().map(|name| Column::new(*name, SqlType::Text)).collect();
        let rows = rows.into_iter().map(|row| row.into_iter().map(Value::text).collect()).collect();
        Self { columns, rows }
    }

    /// The samples that it takes out of a budget.
    pub(crate) fn samples(&self) -> usize {
        self.rows.len() * self.columns.len().max(1)
    }
}

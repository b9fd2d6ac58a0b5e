//! Rows of the catalog's tables.

use query::{SqlType, Value};

use crate::relation::{Column, Relation};

pub(crate) fn text(value: &str) -> Value {
    Value::text(value)
}

pub(crate) fn relation(columns: &[(&str, SqlType)], rows: Vec<Vec<Value>>) -> Relation {
    Relation { columns: columns.iter().map(|(name, sql_type)| Column::new(*name, *sql_type)).collect(), rows }
}

/// A table with further columns, the same in all rows: what clients ask for and Thalweg does not have.
pub(crate) fn with_same(mut relation: Relation, columns: &[(&str, Value)]) -> Relation {
    for (name, value) in columns {
        let sql_type = if value.is_null() { SqlType::Text } else { value.sql_type() };
        relation.columns.push(Column::new(*name, sql_type));
        relation.rows.iter_mut().for_each(|row| row.push(value.clone()));
    }
    relation
}

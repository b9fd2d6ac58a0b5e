//! `group()`: the columns whose values the rows of a table share.

use std::collections::BTreeSet;
use std::sync::Arc;

use query::{QueryError, Session};

use super::table::{FIELD, MEASUREMENT, TIME, Table, VALUE, merged, split};

/// The columns that tables are grouped by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupKey {
    pub(crate) names: Vec<Arc<str>>,
    /// True if these are the columns that it does not have.
    pub(crate) is_except: bool,
}

impl GroupKey {
    /// Returns whether a column is part of the key, if there is one of the name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| **known == *name) != self.is_except
    }

    /// The rows of tables, grouped by these columns and in the order of the tables.
    pub(crate) fn regroup(&self, session: &dyn Session, tables: Vec<Table>) -> Result<Vec<Table>, QueryError> {
        let mut grouped = Vec::new();
        for mut table in tables {
            let released: Vec<Arc<str>> = table.key.keys().filter(|name| !self.has(name)).cloned().collect();
            session.budget().take(table.rows.len() * released.len())?;
            table.release(&released);
            let into_key: Vec<Arc<str>> =
                table.columns.iter().map(|column| column.name.clone()).filter(|name| self.has(name)).collect();
            grouped.extend(split(table, &into_key));
        }
        merged(session, grouped)
    }

    /// Returns whether aggregates of the groups are to be had from each field by itself, given the fields as pairs of measurement and field: no two of
    /// them have rows in one table, and neither times nor values group rows.
    pub(crate) fn keeps_fields_apart<'a>(&self, fields: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
        let shown = |name: &str, value: &'a str| self.has(name).then_some(value);
        let mut keys = BTreeSet::new();
        let mut are_apart = fields.map(|(measurement, field)| (shown(MEASUREMENT, measurement), shown(FIELD, field)));
        !self.has(TIME) && !self.has(VALUE) && are_apart.all(|key| keys.insert(key))
    }

    /// Returns whether every column of the rows of series is part of it, but for times, values and the bounds of the range: each series is a table.
    pub(crate) fn has_series(&self, tags: &[String]) -> bool {
        self.has(MEASUREMENT) && self.has(FIELD) && tags.iter().all(|tag| self.has(tag))
    }
}

//! Tables in memory: rows that share the values of the columns that they are grouped by.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use query::{QueryError, Session, Value};

use crate::row::type_name;

pub(crate) const TIME: &str = "_time";
pub(crate) const START: &str = "_start";
pub(crate) const STOP: &str = "_stop";
pub(crate) const VALUE: &str = "_value";
pub(crate) const FIELD: &str = "_field";
pub(crate) const MEASUREMENT: &str = "_measurement";

/// A column's name and the type of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: Arc<str>,
    /// As annotations name it; values may be null.
    pub(crate) kind: &'static str,
}

/// The columns that a table is grouped by, and the values that its rows share.
pub(crate) type Key = BTreeMap<Arc<str>, Value>;

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) key: Key,
    /// The other columns.
    pub(crate) columns: Vec<Column>,
    /// A value for each of these.
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Column {
    pub(crate) fn new(name: impl Into<Arc<str>>, kind: &'static str) -> Self {
        Self { name: name.into(), kind }
    }
}

impl Table {
    /// The index of a column that is not part of the key.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| *column.name == *name)
    }

    /// The value of a column in a row; null if there is no such column.
    pub(crate) fn value(&self, row: &[Value], name: &str) -> Value {
        match self.column(name) {
            Some(column) => row.get(column).cloned().unwrap_or(Value::Null),
            None => self.key.get(name).cloned().unwrap_or(Value::Null),
        }
    }

    /// The values of all cells that it holds.
    pub(crate) fn cells(&self) -> usize {
        self.rows.len() * self.columns.len().max(1)
    }

    /// The names of all its columns.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.key.keys().chain(self.columns.iter().map(|column| &column.name))
    }

    /// Returns whether it has a column, in its key or not.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.key.contains_key(name) || self.column(name).is_some()
    }

    /// The range of time that it is of, as far as its key says.
    pub(crate) fn bounds(&self) -> Option<(i64, i64)> {
        let time = |name: &str| self.key.get(name).and_then(Value::time_ns);
        Some((time(START)?, time(STOP)?))
    }

    /// Sets a column of all rows, which may be part of the key.
    pub(crate) fn set(&mut self, name: &Arc<str>, value: &Value) {
        if self.key.contains_key(name) {
            self.key.insert(name.clone(), value.clone());
            return;
        }
        match self.column(name) {
            Some(column) => {
                self.columns.iter_mut().skip(column).take(1).for_each(|column| column.kind = type_name(value));
                let cells = self.rows.iter_mut().filter_map(|row| row.get_mut(column));
                cells.for_each(|cell| *cell = value.clone());
            }
            None => {
                self.columns.push(Column::new(name.clone(), type_name(value)));
                self.rows.iter_mut().for_each(|row| row.push(value.clone()));
            }
        }
    }

    /// Takes a column away, which may be part of the key.
    pub(crate) fn remove(&mut self, name: &str) {
        self.key.remove(name);
        if let Some(column) = self.column(name) {
            self.columns.remove(column);
            self.rows.iter_mut().filter(|row| column < row.len()).for_each(|row| drop(row.remove(column)));
        }
    }

    /// Makes columns of the key of columns of the rows.
    pub(crate) fn release(&mut self, names: &[Arc<str>]) {
        for name in names {
            if let Some(value) = self.key.remove(name) {
                self.columns.push(Column::new(name.clone(), type_name(&value)));
                self.rows.iter_mut().for_each(|row| row.push(value.clone()));
            }
        }
    }
}

/// The rows of a table by the values of columns, which become part of the key.
pub(crate) fn split(table: Table, names: &[Arc<str>]) -> Vec<Table> {
    if names.is_empty() {
        return vec![table];
    }
    let places: Vec<usize> = names.iter().filter_map(|name| table.column(name)).collect();
    let columns: Vec<Column> = table
        .columns
        .iter()
        .enumerate()
        .filter(|(place, _)| !places.contains(place))
        .map(|(_, column)| column.clone())
        .collect();
    let mut parts: Vec<(Vec<Value>, Table)> = Vec::new();
    let mut by_values: HashMap<Vec<String>, usize> = HashMap::new();
    for row in table.rows {
        let values: Vec<Value> = places.iter().map(|place| row.get(*place).cloned().unwrap_or(Value::Null)).collect();
        let key = values.iter().map(|value| format!("{}{value}", type_name(value))).collect();
        let part = *by_values.entry(key).or_insert_with(|| {
            let mut key = table.key.clone();
            key.extend(names.iter().cloned().zip(values.iter().cloned()));
            parts.push((values, Table { key, columns: columns.clone(), rows: Vec::new() }));
            parts.len() - 1
        });
        let rest = row.into_iter().enumerate().filter(|(place, _)| !places.contains(place)).map(|(_, value)| value);
        if let Some((_, part)) = parts.get_mut(part) {
            part.rows.push(rest.collect());
        }
    }
    parts.into_iter().map(|(_, part)| part).collect()
}

/// Puts tables of the same key together, in order of their keys; the columns of each are those of all of them.
pub(crate) fn merged(session: &dyn Session, tables: Vec<Table>) -> Result<Vec<Table>, QueryError> {
    let mut by_key: BTreeMap<KeyOrder, Vec<Table>> = BTreeMap::new();
    for table in tables {
        by_key.entry(KeyOrder(table.key.clone())).or_default().push(table);
    }
    by_key.into_values().map(|tables| joined(session, tables)).collect()
}

fn joined(session: &dyn Session, mut tables: Vec<Table>) -> Result<Table, QueryError> {
    let mut all = if tables.is_empty() {
        Table { key: Key::new(), columns: Vec::new(), rows: Vec::new() }
    } else {
        tables.remove(0)
    };
    for table in tables {
        session.budget().check()?;
        let mut targets = Vec::with_capacity(table.columns.len());
        for column in &table.columns {
            let target = match all.column(&column.name) {
                Some(target) => target,
                None => {
                    all.columns.push(column.clone());
                    all.rows.iter_mut().for_each(|row| row.push(Value::Null));
                    all.columns.len() - 1
                }
            };
            let known = all.columns.get_mut(target);
            if let Some(known) = known {
                let (kind, is_empty) = (known.kind, known.kind == "null");
                if is_empty {
                    known.kind = column.kind;
                } else if kind != column.kind && column.kind != "null" {
                    return Err(QueryError::Execution(format!(
                        "the column {:?} is a {kind} in one table and a {} in another of the same group: filter by _field, or convert it by toFloat() or toString()",
                        column.name, column.kind
                    )));
                }
            }
            targets.push(target);
        }
        let width = all.columns.len();
        for row in table.rows {
            let mut wide = vec![Value::Null; width];
            for (value, target) in row.into_iter().zip(&targets) {
                if let Some(cell) = wide.get_mut(*target) {
                    *cell = value;
                }
            }
            all.rows.push(wide);
        }
    }
    Ok(all)
}

/// A key by the order in which its table stands.
#[derive(Debug, Clone)]
pub(crate) struct KeyOrder(pub(crate) Key);

impl KeyOrder {
    fn compare(&self, other: &Self) -> std::cmp::Ordering {
        let value = |a: &Value, b: &Value| a.sort_order(b);
        let mut pairs = self.0.iter().zip(&other.0);
        let by_parts = pairs.find_map(|((name, a), (other_name, b))| {
            let order = name.cmp(other_name).then_with(|| value(a, b));
            order.is_ne().then_some(order)
        });
        by_parts.unwrap_or_else(|| self.0.len().cmp(&other.0.len()))
    }
}

impl PartialEq for KeyOrder {
    fn eq(&self, other: &Self) -> bool {
        self.compare(other).is_eq()
    }
}

impl Eq for KeyOrder {}

impl PartialOrd for KeyOrder {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for KeyOrder {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.compare(other)
    }
}

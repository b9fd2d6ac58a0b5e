//! `pivot`

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use query::{QueryError, Session, Value};

use crate::arguments::Arguments;
use crate::row::{text_of, type_name};
use crate::stream::table::{Column, KeyOrder, Table};

/// Columns that a pivot may make.
const COLUMNS_MAX: usize = 10_000;

/// A table that is made.
struct Pivoted {
    table: Table,
    /// Rows by the values of the row key.
    rows: HashMap<Vec<String>, usize>,
    /// Columns by their names.
    columns: HashMap<String, usize>,
}

/// `pivot(rowKey, columnKey, valueColumn)`
pub(super) fn pivot(
    session: &dyn Session,
    tables: Vec<Table>,
    mut arguments: Arguments,
) -> Result<Vec<Table>, QueryError> {
    let row_key = arguments.names("rowKey")?;
    let row_key = arguments.required("rowKey", row_key)?;
    let column_key = arguments.names("columnKey")?;
    let column_key = arguments.required("columnKey", column_key)?;
    let value = arguments.text("valueColumn")?;
    let value: Arc<str> = arguments.required("valueColumn", value)?.into();
    arguments.finish()?;
    let mut made: BTreeMap<KeyOrder, Pivoted> = BTreeMap::new();
    for table in tables {
        session.budget().check()?;
        let mut key = table.key.clone();
        key.retain(|name, _| !column_key.contains(name) && *name != value);
        let target = made.entry(KeyOrder(key.clone())).or_insert_with(|| {
            let own: Vec<Arc<str>> = row_key.iter().filter(|name| !key.contains_key(*name)).cloned().collect();
            let kind = |name: &Arc<str>| {
                table.column(name).and_then(|column| table.columns.get(column)).map_or("null", |column| column.kind)
            };
            let columns = own.iter().map(|name| Column::new(name.clone(), kind(name))).collect();
            Pivoted { table: Table { key, columns, rows: Vec::new() }, rows: HashMap::new(), columns: HashMap::new() }
        });
        let before = target.table.cells();
        for row in &table.rows {
            let names: Vec<String> = column_key.iter().map(|name| text_of(&table.value(row, name))).collect();
            let at = row_key.iter().map(|name| table.value(row, name)).collect();
            target.put(at, (names.join("_"), table.value(row, &value)), &arguments)?;
        }
        session.budget().take(target.table.cells().saturating_sub(before))?;
    }
    Ok(made.into_values().map(|pivoted| pivoted.finish(&row_key)).collect())
}

impl Pivoted {
    /// Puts a value into the column of a name, in the row of a key.
    fn put(&mut self, at: Vec<Value>, (name, value): (String, Value), arguments: &Arguments) -> Result<(), QueryError> {
        let own = self.table.columns.len() - self.columns.len();
        let key: Vec<String> = at.iter().map(|value| format!("{}{value}", type_name(value))).collect();
        let row = match self.rows.get(&key) {
            Some(row) => *row,
            None => {
                let mut cells: Vec<Value> = at.into_iter().take(own).collect();
                cells.resize(self.table.columns.len(), Value::Null);
                self.table.rows.push(cells);
                self.rows.insert(key, self.table.rows.len() - 1);
                self.table.rows.len() - 1
            }
        };
        let column = match self.columns.get(&name) {
            Some(column) => *column,
            None => {
                if self.columns.len() >= COLUMNS_MAX {
                    return Ok(arguments.error(format_args!("more than {COLUMNS_MAX} columns"))?);
                }
                self.table.columns.push(Column::new(name.as_str(), "null"));
                self.table.rows.iter_mut().for_each(|row| row.push(Value::Null));
                self.columns.insert(name, self.table.columns.len() - 1);
                self.table.columns.len() - 1
            }
        };
        if let Some(column) = self.table.columns.get_mut(column).filter(|column| column.kind == "null") {
            column.kind = type_name(&value);
        }
        if let Some(cell) = self.table.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = value;
        }
        Ok(())
    }

    /// The table, its rows in the order of their keys.
    fn finish(mut self, row_key: &[Arc<str>]) -> Table {
        let places: Vec<usize> = row_key.iter().filter_map(|name| self.table.column(name)).collect();
        self.table.rows.sort_by(|a, b| {
            let orders = places.iter().filter_map(|place| Some(a.get(*place)?.sort_order(b.get(*place)?)));
            orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        });
        self.table
    }
}

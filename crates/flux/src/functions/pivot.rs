//! `pivot`

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use query::{Budget, QueryError, Session, Value};

use crate::arguments::Arguments;
use crate::row::{text_of, type_name};
use crate::stream::table::{Column, Key, KeyOrder, Table};

/// Columns that a pivot may make.
const COLUMNS_MAX: usize = 10_000;

/// A table that is made.
struct Pivoted {
    table: Table,
    /// Places in the row key of the values that are columns: the others are in the group key.
    own: Vec<usize>,
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
            let (own, columns) = own_columns(&row_key, &key, &table);
            let table = Table { key, columns, rows: Vec::new() };
            Pivoted { table, own, rows: HashMap::new(), columns: HashMap::new() }
        });
        for row in &table.rows {
            let names: Vec<String> = column_key.iter().map(|name| text_of(&table.value(row, name))).collect();
            let at: Vec<Value> = row_key.iter().map(|name| table.value(row, name)).collect();
            let made = target.row(session.budget(), &at)?;
            let column = target.column(session.budget(), names.join("_"), &arguments)?;
            target.put(made, column, table.value(row, &value));
        }
    }
    Ok(made.into_values().map(|pivoted| pivoted.finish(&row_key)).collect())
}

/// The names of the row key that are no part of the group key: their places in it, and their columns.
fn own_columns(row_key: &[Arc<str>], key: &Key, table: &Table) -> (Vec<usize>, Vec<Column>) {
    let kind = |name: &Arc<str>| {
        table.column(name).and_then(|column| table.columns.get(column)).map_or("null", |column| column.kind)
    };
    let own = row_key.iter().enumerate().filter(|(_, name)| !key.contains_key(*name));
    own.map(|(place, name)| (place, Column::new(name.clone(), kind(name)))).unzip()
}

impl Pivoted {
    /// The row of a key, which is made if there is none.
    fn row(&mut self, budget: &Budget, at: &[Value]) -> Result<usize, QueryError> {
        let key: Vec<String> = at.iter().map(|value| format!("{}{value}", type_name(value))).collect();
        if let Some(row) = self.rows.get(&key) {
            return Ok(*row);
        }
        budget.take(self.table.columns.len() + key.len())?;
        let mut cells: Vec<Value> = self.own.iter().filter_map(|place| at.get(*place)).cloned().collect();
        cells.resize(self.table.columns.len(), Value::Null);
        self.table.rows.push(cells);
        let row = self.table.rows.len() - 1;
        self.rows.insert(key, row);
        Ok(row)
    }

    /// The column of a name, which is made if there is none.
    fn column(&mut self, budget: &Budget, name: String, arguments: &Arguments) -> Result<usize, QueryError> {
        if let Some(column) = self.columns.get(&name) {
            return Ok(*column);
        }
        if self.columns.len() >= COLUMNS_MAX {
            return Ok(arguments.error(format_args!("more than {COLUMNS_MAX} columns"))?);
        }
        budget.take(self.table.rows.len())?;
        self.table.columns.push(Column::new(name.as_str(), "null"));
        self.table.rows.iter_mut().for_each(|row| row.push(Value::Null));
        let column = self.table.columns.len() - 1;
        self.columns.insert(name, column);
        Ok(column)
    }

    /// Puts a value into a row and a column.
    fn put(&mut self, row: usize, column: usize, value: Value) {
        if let Some(column) = self.table.columns.get_mut(column).filter(|column| column.kind == "null") {
            column.kind = type_name(&value);
        }
        if let Some(cell) = self.table.rows.get_mut(row).and_then(|row| row.get_mut(column)) {
            *cell = value;
        }
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

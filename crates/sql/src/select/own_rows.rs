//! Tables as their own transaction sees them: the rows that are stored, and those that it has written or deleted.

use std::collections::HashMap;

use model::{MatchOp, ValueType};
use query::plan::{Plan, Scan, Selector};
use query::{SqlType, TableSchema, Value};
use regex::Regex;

use super::filter::lower;
use crate::error::{SqlError, invalid, refused};
use crate::expression::Typed;
use crate::pending::{DeletedRows, Kind, PendingWrite, RowChange, WrittenRows};
use crate::run::Run;

/// The rows of a table while changes are made to them: time, tags, fields, and the number of the series.
struct OwnRows<'a> {
    schema: &'a TableSchema,
    rows: Vec<Vec<Value>>,
    /// The rows by time and tags.
    by_key: HashMap<Vec<Value>, usize>,
    /// Numbers of series by their tags.
    series: HashMap<Vec<Value>, Value>,
}

impl Run<'_> {
    /// Shows the changes that the transaction has made to a table, in order.
    fn visit_pending(&self, table: &str, mut visit: impl FnMut(&RowChange)) {
        let Some(transaction) = &self.client.transaction else { return };
        transaction.visit(&mut |PendingWrite { database, change }| {
            let changed = match change {
                RowChange::Rows(WrittenRows { table, .. }) | RowChange::Delete(DeletedRows { table, .. }) => table,
            };
            if *database == self.environment.database && changed == table {
                visit(change);
            }
        });
    }

    /// Returns whether the transaction has changed a table's rows.
    pub(crate) fn has_pending_rows(&self, table: &str) -> bool {
        let mut found = false;
        self.visit_pending(table, |_| found = true);
        found
    }

    /// Refuses a materialised view of a table whose rows the transaction has changed: what it has computed and stored is of rows that are committed.
    pub(crate) fn check_views_of_own_rows(&self, table: &str) -> Result<(), SqlError> {
        if !self.client.has_pending_writes() {
            return Ok(());
        }
        let Ok(views) = self.session.views(&self.environment.database) else { return Ok(()) };
        let of =
            |table: &str| views.iter().find(|view| view.definition.target == table && view.definition.is_exposed());
        let mut read = of(table);
        while let Some(view) = read {
            let definition = &view.definition;
            let mut tables = [definition.source()].into_iter().chain(definition.joined_tables());
            if let Some(changed) = tables.find(|table| self.has_pending_rows(table)) {
                return refused(
                    "0A000",
                    format!(
                        "the transaction has changed rows of \"{changed}\", of which the materialised view \"{table}\" is: it has them after COMMIT. Commit first, or \
                         ask the view's query"
                    ),
                );
            }
            read = of(definition.source()).filter(|below| below.id != view.id);
        }
        Ok(())
    }

    /// A table's columns with those that the transaction has added.
    pub(crate) fn with_pending_columns(&self, table: &str, stored: Option<TableSchema>) -> Option<TableSchema> {
        let mut schema = stored;
        self.visit_pending(table, |change| {
            let RowChange::Rows(written) = change else { return };
            let schema = schema.get_or_insert_with(|| TableSchema {
                name: table.to_owned(),
                tags: Vec::new(),
                fields: Vec::new(),
                layout: None,
            });
            for (index, (name, kind)) in written.columns.iter().enumerate() {
                add_column(schema, name, *kind, written.rows.iter().filter_map(|row| row.get(index)));
            }
        });
        schema
    }

    /// The rows of a table with those of the transaction, in order of time: all that a condition may hold for. Of what is stored only rows
    /// of its times and tags are read, which a change of the transaction's leaves as they are.
    pub(crate) fn rows_with_pending(
        &mut self,
        schema: &TableSchema,
        condition: Option<&Typed>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let mut own = OwnRows { schema, rows: Vec::new(), by_key: HashMap::new(), series: HashMap::new() };
        if self.describes {
            return Ok(own.rows);
        }
        if let Some(stored) = self.session.table(&self.environment.database, &schema.name)? {
            let mut scan = Scan::of_table(&stored.name);
            if let Some(condition) = condition {
                // What cannot be part of the scan is tried on all rows, after they were changed.
                lower(condition.expression.clone(), &mut scan, &self.scope(schema, &schema.name));
            }
            let frames = self.plan(Plan::Scan(scan))?;
            let rows = self.rows_of_frames(frames, &stored, Vec::new())?;
            self.note_folds(&rows)?;
            let columns: Vec<Option<usize>> = own.columns_of(&stored);
            own.rows.extend(rows.made().into_iter().map(|row| {
                let cell = |from: &Option<usize>| from.and_then(|from| row.get(from)).cloned().unwrap_or(Value::Null);
                columns.iter().map(cell).collect()
            }));
        }
        own.index();
        let mut changed = Ok(());
        self.visit_pending(&schema.name, |change| {
            if changed.is_ok() {
                changed = own.change(change);
            }
        });
        changed?;
        self.charge(own.rows.len() * own.width())?;
        own.rows.sort_by_key(|row| row.first().and_then(Value::time_ns));
        Ok(own.rows)
    }
}

/// Adds a column of written rows to a schema, unless it has it. A text of a column that is new is a tag.
fn add_column<'a>(schema: &mut TableSchema, name: &str, kind: Kind, values: impl Iterator<Item = &'a Value>) {
    let is_known = schema.tags.iter().any(|tag| tag == name) || schema.fields.iter().any(|(field, _)| field == name);
    if is_known || kind == Kind::Time {
        return;
    }
    let value_type = |sql_type| match sql_type {
        SqlType::Float => ValueType::F64,
        SqlType::Bool => ValueType::Bool,
        SqlType::Interval => ValueType::String,
        _ => ValueType::I64,
    };
    match values.map(Value::sql_type).find(|sql_type| *sql_type != SqlType::Unknown) {
        None => {}
        Some(SqlType::Text) => schema.tags.push(name.to_owned()),
        Some(sql_type) => schema.fields.push((name.to_owned(), value_type(sql_type))),
    }
}

impl OwnRows<'_> {
    fn width(&self) -> usize {
        self.schema.tags.len() + self.schema.fields.len() + 2
    }

    /// The index of a column in the rows.
    fn column(&self, name: &str) -> Option<usize> {
        let tags = &self.schema.tags;
        let tag = tags.iter().position(|tag| tag == name);
        let field = || self.schema.fields.iter().position(|(field, _)| field == name).map(|field| tags.len() + field);
        tag.or_else(field).map(|index| index + 1)
    }

    /// For each column where the rows of a table as it is stored have it.
    fn columns_of(&self, stored: &TableSchema) -> Vec<Option<usize>> {
        let mut columns = vec![None; self.width()];
        let names = stored.tags.iter().chain(stored.fields.iter().map(|(name, _)| name));
        let moved = names.enumerate().map(|(from, name)| (self.column(name), from + 1));
        let ends = [(Some(0), 0), (Some(self.width() - 1), stored.tags.len() + stored.fields.len() + 1)];
        for (to, from) in moved.chain(ends) {
            if let Some(column) = to.and_then(|to| columns.get_mut(to)) {
                *column = Some(from);
            }
        }
        columns
    }

    fn key(&self, row: &[Value]) -> Vec<Value> {
        row.iter().take(1 + self.schema.tags.len()).cloned().collect()
    }

    /// Finds the rows anew by their time and tags.
    fn index(&mut self) {
        self.by_key = self.rows.iter().enumerate().map(|(place, row)| (self.key(row), place)).collect();
        for row in &self.rows {
            let tags = row.iter().skip(1).take(self.schema.tags.len()).cloned().collect();
            self.series.insert(tags, row.last().cloned().unwrap_or(Value::Null));
        }
    }

    fn change(&mut self, change: &RowChange) -> Result<(), SqlError> {
        match change {
            RowChange::Rows(written) => self.write(written),
            RowChange::Delete(deleted) => return self.delete(deleted),
        }
        Ok(())
    }

    /// Adds rows; one whose time and tags are there changes the fields that it has.
    fn write(&mut self, written: &WrittenRows) {
        let columns: Vec<Option<usize>> = written
            .columns
            .iter()
            .map(|(name, kind)| if *kind == Kind::Time { Some(0) } else { self.column(name) })
            .collect();
        for row in &written.rows {
            let mut new = vec![Value::Null; self.width()];
            for (value, column) in row.iter().zip(&columns) {
                let is_missing = value.is_null() || matches!(value, Value::Text(text) if text.is_empty());
                if let (Some(cell), false) = (column.and_then(|column| new.get_mut(column)), is_missing) {
                    *cell = value.clone();
                }
            }
            let key = self.key(&new);
            if let Some(old) = self.by_key.get(&key).and_then(|place| self.rows.get_mut(*place)) {
                for (cell, value) in old.iter_mut().zip(new).skip(key.len()).filter(|(_, value)| !value.is_null()) {
                    *cell = value;
                }
                continue;
            }
            let next = Value::Int(self.series.len() as i64);
            let series = self.series.entry(key.get(1..).unwrap_or_default().to_vec()).or_insert(next);
            if let Some(cell) = new.last_mut() {
                *cell = series.clone();
            }
            self.by_key.insert(key, self.rows.len());
            self.rows.push(new);
        }
    }

    fn delete(&mut self, deleted: &DeletedRows) -> Result<(), SqlError> {
        let patterns = deleted.selectors.iter().map(pattern).collect::<Result<Vec<_>, _>>()?;
        let tags: Vec<Option<usize>> = deleted.selectors.iter().map(|selector| self.column(&selector.name)).collect();
        let is_deleted = |row: &Vec<Value>| {
            let in_range = row.first().and_then(Value::time_ns).is_some_and(|ns| deleted.range.contains(ns));
            in_range
                && patterns.iter().zip(&tags).all(|((pattern, is_negated), tag)| {
                    let value = tag.and_then(|tag| row.get(tag)).map(Value::to_string).unwrap_or_default();
                    pattern.is_match(&value) != *is_negated
                })
        };
        self.rows.retain(|row| !is_deleted(row));
        self.index();
        Ok(())
    }
}

/// A pattern of whole values, and whether it must not match.
fn pattern(selector: &Selector) -> Result<(Regex, bool), SqlError> {
    let is_pattern = matches!(selector.op, MatchOp::Regex | MatchOp::NotRegex);
    let one = |value: &String| if is_pattern { value.clone() } else { regex::escape(value) };
    let any: Vec<String> = selector.values.iter().map(one).collect();
    match Regex::new(&format!("^(?s:{})$", any.join("|"))) {
        Ok(regex) => Ok((regex, matches!(selector.op, MatchOp::NotEqual | MatchOp::NotRegex))),
        Err(error) => invalid(format!("a condition of DELETE cannot be read: {error}")),
    }
}

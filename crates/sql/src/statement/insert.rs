//! `INSERT INTO table (time, tag, field, …) VALUES …`

use std::fmt::Write;

use query::lines::{TAG_SPECIAL, escaped, push_field};
use query::{QueryError, SqlType, Value};
use sqlparser::ast::{self, TableObject};

use crate::error::{SqlError, invalid, unsupported};
use crate::expression::cast;
use crate::run::Run;

/// How values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Time,
    Tag,
    /// Of a type that is known.
    Field(SqlType),
    /// A text of a column that does not exist yet is a tag, all else a field.
    New,
}

impl Run<'_> {
    /// Writes the rows of an INSERT; returns how many. In a table that exists columns are what they are; of new ones texts become tags.
    pub(crate) fn insert(&mut self, insert: &ast::Insert) -> Result<usize, SqlError> {
        let TableObject::TableName(name) = &insert.table else { return unsupported("INSERT INTO a function") };
        if insert.on.is_some() || insert.returning.is_some() || !insert.assignments.is_empty() {
            return unsupported("ON CONFLICT, RETURNING and SET in INSERT");
        }
        let Some(source) = &insert.source else { return invalid("INSERT takes VALUES or a query") };
        let table = name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.clone()).unwrap_or_default();
        let schema = self.table(&table)?;
        let columns: Vec<String> = if insert.columns.is_empty() {
            let Some(schema) = &schema else {
                return invalid(format!(
                    "\"{table}\" does not exist yet: name the columns, INSERT INTO {table} (time, host, usage) …"
                ));
            };
            crate::catalog::columns_of(schema, self.time_name()).into_iter().map(|(name, ..)| name).collect()
        } else {
            insert.columns.iter().filter_map(|name| Some(name.0.last()?.as_ident()?.value.clone())).collect()
        };
        let rows = self.query(source)?.rows;
        self.insert_rows(&table, &columns, rows)
    }

    /// Writes rows of named columns; returns how many.
    pub(crate) fn insert_rows(
        &mut self,
        table: &str,
        columns: &[String],
        rows: Vec<Vec<Value>>,
    ) -> Result<usize, SqlError> {
        let schema = self.table(table)?;
        let kind = |column: &String| {
            if ["time", "timestamp"].contains(&column.to_lowercase().as_str()) {
                return Kind::Time;
            }
            match &schema {
                Some(schema) if schema.tags.contains(column) => Kind::Tag,
                Some(schema) => match schema.fields.iter().find(|(name, _)| name == column) {
                    Some((_, value_type)) => Kind::Field(crate::select::sql_type(*value_type)),
                    None => Kind::New,
                },
                None => Kind::New,
            }
        };
        let kinds: Vec<Kind> = columns.iter().map(kind).collect();
        let (mut lines, count) = (String::new(), rows.len());
        for row in rows {
            if row.len() != columns.len() {
                return invalid(format!("INSERT has {} columns but {} values", columns.len(), row.len()));
            }
            self.push_line(&mut lines, table, columns, &kinds, row)?;
        }
        let written = self.session.write(&self.environment.database, lines.as_bytes());
        let kept = |error| match error {
            QueryError::Invalid(message) => QueryError::Storage(message),
            other => other,
        };
        match written.map_err(kept)? {
            Some(refused) => invalid(format!("not all rows were written: {}: {}", refused.position, refused.reason)),
            None => Ok(count),
        }
    }

    fn push_line(
        &self,
        out: &mut String,
        table: &str,
        columns: &[String],
        kinds: &[Kind],
        row: Vec<Value>,
    ) -> Result<(), SqlError> {
        let (mut tags, mut fields, mut time_ns) = (String::new(), String::new(), self.environment.now_ns);
        for ((name, kind), value) in columns.iter().zip(kinds).zip(row) {
            let kind = match (kind, &value) {
                (_, Value::Null) => continue,
                (Kind::New, Value::Text(_)) => Kind::Tag,
                (Kind::New, _) => Kind::Field(SqlType::Unknown),
                (known, _) => *known,
            };
            match kind {
                Kind::Time => {
                    if let Value::Timestamp(ns) = cast(value, SqlType::Timestamp, &self.environment)? {
                        time_ns = ns;
                    }
                }
                Kind::Tag => {
                    let value = value.to_string();
                    if !value.is_empty() {
                        let _ = write!(tags, ",{}={}", escaped(name, &TAG_SPECIAL), escaped(&value, &TAG_SPECIAL));
                    }
                }
                Kind::Field(sql_type) => {
                    let value = cast(value, sql_type, &self.environment)?;
                    if !push_field(&mut fields, name, &value) {
                        return invalid("NaN and infinity cannot be written");
                    }
                }
                // Decided above.
                Kind::New => {}
            }
        }
        if fields.is_empty() {
            return invalid("a row without a value in any field cannot be written");
        }
        let _ = writeln!(out, "{}{tags} {fields} {time_ns}", escaped(table, &TAG_SPECIAL));
        Ok(())
    }
}

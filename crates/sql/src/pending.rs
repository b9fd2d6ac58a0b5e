//! Writes that wait for the end of their transaction.

use std::fmt::{self, Write as _};

use model::TimeRange;
use query::lines::{TAG_SPECIAL, escaped, push_field};
use query::plan::Selector;
use query::{NewTable, QueryError, Session, SqlType, Value};

use crate::error::{SqlError, invalid};

/// A write of rows, or a delete.
#[derive(Debug, Clone)]
pub struct PendingWrite {
    pub(crate) database: String,
    pub(crate) change: RowChange,
}

/// A change of rows.
#[derive(Debug, Clone)]
pub(crate) enum RowChange {
    Rows(WrittenRows),
    Delete(DeletedRows),
}

/// How values of a column are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Time,
    Tag,
    /// Of a type that is known.
    Field(SqlType),
    /// A text of a column that does not exist yet is a tag, all else a field.
    New,
}

/// Rows that a statement writes.
#[derive(Debug, Clone)]
pub(crate) struct WrittenRows {
    /// The table.
    pub(crate) table: String,
    /// The names of the columns, and how their values are written.
    pub(crate) columns: Vec<(String, Kind)>,
    /// A value for each column, each row with its time.
    pub(crate) rows: Vec<Vec<Value>>,
}

/// The rows that a statement deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeletedRows {
    /// The table.
    pub(crate) table: String,
    /// Conditions on tags, all of which hold.
    pub(crate) selectors: Vec<Selector>,
    /// When.
    pub(crate) range: TimeRange,
    /// A table that stays without rows.
    pub(crate) empty_table: Option<NewTable>,
}

/// The writes of an open transaction, in order.
pub trait PendingWrites: fmt::Debug + Send + Sync {
    /// Adds a write, unless the transaction would hold more than it may.
    fn push(&self, write: PendingWrite) -> Result<(), SqlError>;

    /// All writes so far, which the transaction no longer holds.
    fn take(&self) -> Vec<PendingWrite>;

    /// Shows all writes so far, in order.
    fn visit(&self, visit: &mut dyn FnMut(&PendingWrite));
}

impl PendingWrite {
    /// The bytes that it holds, about.
    pub fn size_bytes(&self) -> usize {
        let change_bytes = match &self.change {
            RowChange::Rows(written) => {
                let texts = written.rows.iter().flatten().map(|value| match value {
                    Value::Text(text) => text.len(),
                    _ => 0,
                });
                texts.sum::<usize>() + written.rows.len() * written.columns.len() * size_of::<Value>()
            }
            RowChange::Delete(delete) => delete.table.len() + delete.selectors.len() * size_of::<Selector>(),
        };
        size_of::<Self>() + self.database.len() + change_bytes
    }

    /// Appends the rows of the next write, if both are rows of the same columns of one table; gives it back if not.
    pub fn append(&mut self, mut next: Self) -> Option<Self> {
        if let (RowChange::Rows(rows), RowChange::Rows(more)) = (&mut self.change, &mut next.change)
            && self.database == next.database
            && rows.table == more.table
            && rows.columns == more.columns
        {
            rows.rows.append(&mut more.rows);
            return None;
        }
        Some(next)
    }

    /// Makes it.
    pub(crate) fn apply(self, session: &dyn Session) -> Result<(), SqlError> {
        match self.change {
            RowChange::Rows(written) => write_lines(session, &self.database, &written.lines()),
            RowChange::Delete(DeletedRows { table, selectors, range, empty_table }) => {
                session.delete(&self.database, &table, &selectors, &range)?;
                if let Some(table) = &empty_table {
                    session.create_table(&self.database, table)?;
                }
                Ok(())
            }
        }
    }
}

/// Makes the writes of a transaction at its end. Rows of one database that follow one another are written in one go.
pub fn commit(writes: Vec<PendingWrite>, session: &dyn Session) -> Result<(), SqlError> {
    let (mut lines, mut database) = (String::new(), String::new());
    for write in writes {
        if !lines.is_empty() && (database != write.database || matches!(write.change, RowChange::Delete(_))) {
            write_lines(session, &database, &std::mem::take(&mut lines))?;
        }
        match &write.change {
            RowChange::Rows(written) => {
                lines.push_str(&written.lines());
                database = write.database;
            }
            RowChange::Delete(_) => write.apply(session)?,
        }
    }
    if lines.is_empty() { Ok(()) } else { write_lines(session, &database, &lines) }
}

/// Writes line protocol; an error if not all of it is written.
fn write_lines(session: &dyn Session, database: &str, lines: &str) -> Result<(), SqlError> {
    let stored = |error| match error {
        QueryError::Invalid(message) => QueryError::Storage(message),
        other => other,
    };
    match session.write(database, lines.as_bytes()).map_err(stored)? {
        Some(refused) => invalid(format!("not all rows were written: {}: {}", refused.position, refused.reason)),
        None => Ok(()),
    }
}

impl WrittenRows {
    /// The rows as line protocol.
    fn lines(&self) -> String {
        let mut lines = String::new();
        self.rows.iter().for_each(|row| self.push_line(&mut lines, row));
        lines
    }

    fn push_line(&self, out: &mut String, row: &[Value]) {
        let (mut tags, mut fields, mut time_ns) = (String::new(), String::new(), 0);
        for ((name, kind), value) in self.columns.iter().zip(row) {
            match (kind, value) {
                (_, Value::Null) => {}
                (Kind::Time, Value::Timestamp(ns)) => time_ns = *ns,
                (Kind::Tag | Kind::New, Value::Text(text)) => {
                    if !text.is_empty() {
                        let _ = write!(tags, ",{}={}", escaped(name, &TAG_SPECIAL), escaped(text, &TAG_SPECIAL));
                    }
                }
                (_, value) => {
                    push_field(&mut fields, name, value);
                }
            }
        }
        let _ = writeln!(out, "{}{tags} {fields} {time_ns}", escaped(&self.table, &TAG_SPECIAL));
    }
}

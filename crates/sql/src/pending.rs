//! Writes that wait for the end of their transaction.

use std::fmt;

use model::TimeRange;
use query::plan::Selector;
use query::{NewTable, QueryError, Session};

use crate::error::{SqlError, invalid};

/// A write of rows, or a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingWrite {
    pub(crate) database: String,
    pub(crate) change: RowChange,
}

/// A change of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RowChange {
    /// Rows as line protocol.
    Rows(String),
    Delete(DeletedRows),
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
}

impl PendingWrite {
    /// The bytes that it holds, about.
    pub fn size_bytes(&self) -> usize {
        let change_bytes = match &self.change {
            RowChange::Rows(lines) => lines.capacity(),
            RowChange::Delete(delete) => delete.table.len() + delete.selectors.len() * size_of::<Selector>(),
        };
        size_of::<Self>() + self.database.len() + change_bytes
    }

    /// Makes it.
    pub(crate) fn apply(self, session: &dyn Session) -> Result<(), SqlError> {
        match self.change {
            RowChange::Rows(lines) => {
                let written = session.write(&self.database, lines.as_bytes());
                let stored = |error| match error {
                    QueryError::Invalid(message) => QueryError::Storage(message),
                    other => other,
                };
                match written.map_err(stored)? {
                    Some(refused) => {
                        invalid(format!("not all rows were written: {}: {}", refused.position, refused.reason))
                    }
                    None => Ok(()),
                }
            }
            RowChange::Delete(DeletedRows { table, selectors, range, empty_table }) => {
                session.delete(&self.database, &table, &selectors, &range)?;
                if let Some(table) = &empty_table {
                    session.create_table(&self.database, table)?;
                }
                Ok(())
            }
        }
    }

    /// Appends the rows of the next write, if both are rows of one database; gives it back if not.
    fn append(&mut self, next: Self) -> Option<Self> {
        match (&mut self.change, next.change) {
            (RowChange::Rows(lines), RowChange::Rows(more)) if self.database == next.database => {
                lines.push_str(&more);
                None
            }
            (_, change) => Some(Self { database: next.database, change }),
        }
    }
}

/// Makes the writes of a transaction at its end. Rows that follow one another are written in one go.
pub fn commit(writes: Vec<PendingWrite>, session: &dyn Session) -> Result<(), SqlError> {
    let mut last: Option<PendingWrite> = None;
    for write in writes {
        let next = match &mut last {
            Some(last) => last.append(write),
            None => Some(write),
        };
        if let Some(next) = next
            && let Some(done) = last.replace(next)
        {
            done.apply(session)?;
        }
    }
    last.map_or(Ok(()), |last| last.apply(session))
}

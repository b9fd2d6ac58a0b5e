//! Writes of statements: made at once, or held until their transaction ends.

use crate::error::SqlError;
use crate::pending::{DeletedRows, PendingWrite, RowChange, WrittenRows, commit};
use crate::run::Run;

impl Run<'_> {
    /// Writes rows, or holds them until their transaction ends.
    pub(crate) fn write(&self, rows: WrittenRows) -> Result<(), SqlError> {
        self.change_rows(RowChange::Rows(rows))
    }

    /// Deletes rows, now or when the transaction ends.
    pub(crate) fn delete_rows(&self, rows: DeletedRows) -> Result<(), SqlError> {
        self.change_rows(RowChange::Delete(rows))
    }

    fn change_rows(&self, change: RowChange) -> Result<(), SqlError> {
        let write = PendingWrite { database: self.environment.database.clone(), change };
        match &self.client.transaction {
            Some(transaction) => transaction.push(write),
            None => write.apply(self.session),
        }
    }

    /// Ends the transaction's waiting before a statement that cannot be undone, and says so.
    pub(crate) fn write_pending(&self, statement: &str) -> Result<(), SqlError> {
        let Some(transaction) = &self.client.transaction else { return Ok(()) };
        let writes = transaction.take();
        let rows = if writes.is_empty() { "" } else { ", nor the writes before it in this transaction" };
        self.client.notices.push(format!("{statement} takes effect at once: ROLLBACK does not undo it{rows}"));
        commit(writes, self.session)
    }
}

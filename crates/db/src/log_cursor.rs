//! Readers of what is written: cursors of the log.

use std::sync::Weak;

use store::{CommitListener, CursorStats, LogCursor, StoreError};

use crate::Db;

impl Db {
    /// Opens a named cursor of the log, over one database or all: where it was saved last, or, if it is new, at the end of what is written.
    pub fn log_cursor(&self, name: &str, database: Option<&str>) -> Result<LogCursor, StoreError> {
        LogCursor::open(&self.store, name, database)
    }

    /// Opens a cursor without a name over a database, after a sequence id: it reads what the log still has, and holds nothing back.
    pub fn log_reader(&self, database: &str, sequence: u64) -> LogCursor {
        LogCursor::open_after(&self.store, Some(database), sequence)
    }

    /// Sequence id up to which everything is on disk.
    pub fn durable_sequence(&self) -> u64 {
        self.store.durable_sequence()
    }

    /// Notes that a cursor is done with everything up to a sequence id.
    pub fn save_log_cursor(&self, name: &str, sequence: u64) -> Result<(), StoreError> {
        self.store.save_log_cursor(name, sequence)
    }

    /// Removes a cursor; returns whether there was one.
    pub fn remove_log_cursor(&self, name: &str) -> Result<bool, StoreError> {
        self.store.remove_log_cursor(name)
    }

    /// All cursors, by name.
    pub fn log_cursors(&self) -> Vec<CursorStats> {
        self.store.log_cursors()
    }

    /// Bytes of the log that are retained for cursors alone.
    pub fn log_retained_bytes(&self) -> u64 {
        self.store.log_retained_bytes()
    }

    /// Has a listener called whenever more of the log is on disk, as long as it is there.
    pub fn listen_to_commits(&self, listener: Weak<dyn CommitListener>) {
        self.store.listen_to_commits(listener);
    }
}

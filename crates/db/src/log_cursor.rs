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

    /// Sequence id up to which readers see what is written by now, and nothing after it.
    pub fn log_mark(&self) -> u64 {
        self.store.mark()
    }

    /// The time before which rows of a database may be gone: by its retention, or by the TTL or the series' own retention of one of the tables
    /// that are asked about. `None` if all are kept.
    pub fn gone_before_ns(&self, database: &str, is_asked: &dyn Fn(&str) -> bool) -> Option<i64> {
        let number = self.store.database_number(database)?;
        let of_database = Some(self.store.past_keeping_before_ns(number)).filter(|oldest_ns| *oldest_ns > i64::MIN);
        let ttls = self.store.table_ttls(database).into_iter().filter(|(table, _)| is_asked(table));
        let now_ns = self.store.trusted_now_ns();
        let of_tables = ttls.map(|(_, ttl_ns)| now_ns.saturating_sub(ttl_ns));
        let trims = self.store.trimmed_tables(database).into_iter().filter(|(table, _)| is_asked(table));
        of_database.into_iter().chain(of_tables).chain(trims.map(|(_, before_ns)| before_ns)).max()
    }

    /// The time before which rows of a database are gone by its retention; `None` if all are kept.
    pub fn kept_from_ns(&self, database: &str) -> Option<i64> {
        let number = self.store.database_number(database)?;
        Some(self.store.oldest_retained_ns(number)).filter(|oldest_ns| *oldest_ns > i64::MIN)
    }

    /// The time before which samples of a database may be folded where that waits for views; `None` if their age alone says it.
    pub fn foldable_before_ns(&self, database: &str) -> Option<i64> {
        self.store.foldable_before_ns(database)
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

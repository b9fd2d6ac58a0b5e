//! The session of a statement in SQL, InfluxQL or a plan: this process's databases within the statement's budget.

use std::collections::BTreeMap;
use std::sync::Arc;

use ingest::admission::refuse_ahead;
use query::{Budget, Helpers, QueryError, RefusedRow, SessionHost, SessionWriter, StoreSession, StoreSource};
use store::{SeriesGate, StoreError};

use crate::{Db, WriteError};

impl Db {
    /// A session for one statement.
    pub(crate) fn session<'a>(&'a self, budget: &'a Budget) -> StoreSession<'a> {
        StoreSession::new(self.session_host(&self.helpers, budget), budget)
    }

    /// What a session works with, and views that answer PromQL.
    pub(crate) fn session_host<'a>(&'a self, helpers: &'a Helpers, budget: &Budget) -> SessionHost<'a> {
        SessionHost {
            store: &self.store,
            clock: &*self.platform.clock,
            helpers,
            bin_cache: self.bin_cache(budget),
            writer: self,
            views: Some(&*self.views),
        }
    }

    /// Series of a database for one query of PromQL, for which views may answer.
    pub(crate) fn viewing_source<'a>(
        &'a self,
        database: &'a str,
        helpers: &'a Helpers,
        budget: &Budget,
    ) -> StoreSource<'a> {
        StoreSource::new(&self.store, database, helpers).with_views(self.session_host(helpers, budget))
    }

    /// The number of a database, if there is one of that name; it is never given to another one.
    pub fn database_number(&self, name: &str) -> Option<u32> {
        self.store.database_number(name)
    }

    /// Small named documents of a kind: accounts, say. By name.
    pub fn documents(&self, kind: &str) -> Vec<(String, Arc<[u8]>)> {
        self.store.documents(kind)
    }

    /// Stores a document, in place of one of its kind and name; it is on disk when this returns.
    pub fn put_document(&self, kind: &str, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.store.put_document(kind, name, bytes)
    }

    /// Stores documents of a kind, by name, and removes those without bytes: all of it or nothing; it is on disk when this returns.
    pub fn change_documents(
        &self,
        kind: &str,
        changes: &BTreeMap<String, Option<Arc<[u8]>>>,
    ) -> Result<(), StoreError> {
        self.store.change_documents(kind, changes)
    }

    /// Removes a document; returns whether there was one.
    pub fn remove_document(&self, kind: &str, name: &str) -> Result<bool, StoreError> {
        self.store.remove_document(kind, name)
    }

    /// Fills a buffer with random bytes, fit for secrets.
    pub fn fill_random(&self, buffer: &mut [u8]) -> std::io::Result<()> {
        self.platform.random.fill(buffer)
    }

    /// Drops a database with all its rows and frees their disk space; returns whether there was one.
    pub fn drop_database(&self, database: &str) -> Result<bool, StoreError> {
        // The views first, which would be there again after a crash, and those that were made meanwhile.
        self.views.forget(database)?;
        let dropped = self.store.drop_database(database)?;
        self.views.forget(database)?;
        Ok(dropped)
    }
}

fn query_error(error: WriteError) -> QueryError {
    match error {
        WriteError::Invalid(message) => QueryError::Invalid(message),
        WriteError::Refused(message) => QueryError::Storage(message),
    }
}

impl SessionWriter for Db {
    fn write(&self, database: &str, lines: &[u8], budget: &Budget) -> Result<Option<RefusedRow>, QueryError> {
        let mut parsed = self.parse_lines(database, lines).map_err(query_error)?;
        self.refuse_outside(database, &budget.scope(), &mut parsed).map_err(query_error)?;
        let (now_ns, ahead_ms_max) = (self.latest_now_ns(), self.ahead_ms_max);
        refuse_ahead(&mut parsed.batch, &mut parsed.errors, &self.limits, now_ns, ahead_ms_max);
        if let Some(error) = parsed.errors.first.first() {
            return Ok(Some(RefusedRow::new("line", error.line, &error.reason)));
        }
        let limits = budget.write_limits();
        if let Some(limits) = limits {
            let samples: usize = parsed.batch.blocks.iter().map(|block| block.cells.len()).sum();
            limits.take_samples(database, samples as u64).map_err(QueryError::OverQuota)?;
        }
        let gate = |series| limits.map_or(Ok(()), |limits| limits.take_new_series(database, series));
        let gate: Option<SeriesGate<'_>> = if limits.is_some() { Some(&gate) } else { None };
        let report = self.write_gated(database, &parsed.batch, gate).map_err(query_error)?;
        Ok(report.rejected.first().map(|row| RefusedRow::new("row", row.line, &row.reason)))
    }

    fn make_database(&self, database: &str) -> Result<(), QueryError> {
        self.database_id(database).map(drop).map_err(|error| QueryError::Invalid(error.to_string()))
    }
}

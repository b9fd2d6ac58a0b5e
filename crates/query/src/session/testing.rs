//! Databases on a simulated machine, in memory: what tests of the languages run on. The executor and the store are the real ones.

use ingest::line::{self, Precision};
use ingest::{KEY_SECRET_BYTES, KeyHasher, Limits, LineErrors, Protocol};
use platform::Platform;
use platform::sim::Simulation;
pub use store::{EpochBatch, EpochKind};
use store::{Store, StoreError, StoreOptions, WriteReport};

use super::RefusedRow;
use super::store_session::{SessionHost, SessionWriter, StoreSession, storage};
use crate::{Budget, Helpers, QueryError};

/// A store in memory.
pub struct MemoryDatabases {
    platform: Platform,
    /// The store itself: tests flush and compact it.
    pub store: Store,
    helpers: Helpers,
    hasher: KeyHasher,
}

impl MemoryDatabases {
    /// A store without databases.
    pub fn new() -> Result<Self, StoreError> {
        Self::open(Simulation::new(1).platform())
    }

    /// The store after it was closed and opened again.
    pub fn reopened(self) -> Result<Self, StoreError> {
        let Self { platform, store, .. } = self;
        drop(store);
        Self::open(platform)
    }

    fn open(platform: Platform) -> Result<Self, StoreError> {
        let store = Store::open(platform.clone(), StoreOptions::new("/data"))?;
        Ok(Self { platform, store, helpers: Helpers::new(1), hasher: KeyHasher::new([1; KEY_SECRET_BYTES]) })
    }

    /// A session for one statement.
    pub fn session<'a>(&'a self, budget: &'a Budget) -> StoreSession<'a> {
        let Self { store, platform, helpers, .. } = self;
        let host = SessionHost { store, clock: &*platform.clock, helpers, bin_cache: None, writer: self, views: None };
        StoreSession::new(host, budget)
    }

    /// Writes line protocol with times in nanoseconds.
    pub fn write_lines(&self, database: &str, lines: &[u8]) -> Result<(WriteReport, LineErrors), QueryError> {
        let limits = Limits::default();
        let hasher = self.hasher.scope(Protocol::Line, self.store.database_id(database).map_err(storage)?);
        let now_ns = self.platform.clock.now_ns();
        let options = line::Options { hasher, precision: Precision::Nanosecond, now_ns, limits: &limits };
        let parsed = line::parse(lines, &options).map_err(|error| QueryError::Invalid(error.to_string()))?;
        Ok((self.store.write(database, &parsed.batch).map_err(storage)?, parsed.errors))
    }
}

impl SessionWriter for MemoryDatabases {
    fn write(&self, database: &str, lines: &[u8], _: &Budget) -> Result<Option<RefusedRow>, QueryError> {
        let (report, errors) = self.write_lines(database, lines)?;
        let line = errors.first.first().map(|error| RefusedRow::new("line", error.line, &error.reason));
        let row = || report.rejected.first().map(|row| RefusedRow::new("row", row.line, &row.reason));
        Ok(line.or_else(row))
    }

    fn make_database(&self, database: &str) -> Result<(), QueryError> {
        self.store.database_id(database).map(drop).map_err(storage)
    }
}

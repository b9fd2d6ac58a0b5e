//! Writing.

use std::fmt;

use access::grant::Right;
use access::scope::Scope;
use ingest::admission::refuse_ahead;
use ingest::line::{self, Precision, TableColumns};
use ingest::{BodyError, LineErrors, Parsed, Protocol};
use model::{Batch, GroupIdentity, Labels};
use store::{Rejected, SeriesGate, StoreError, WriteReport};

use crate::Db;

/// Why nothing of a batch was written; chosen by what its sender can do.
#[derive(Debug)]
pub enum WriteError {
    /// Send it again later, as it is: the storage cannot take it now.
    Refused(String),
    /// Change it before sending it again.
    Invalid(String),
}

impl fmt::Display for WriteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) | Self::Invalid(reason) => formatter.write_str(reason),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<BodyError> for WriteError {
    fn from(error: BodyError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Invalid(reason) => Self::Invalid(reason),
            error @ StoreError::ReadOnly => Self::Invalid(error.to_string()),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl Db {
    /// The number of a database; made on first use. Goes into the hashes of group keys.
    pub fn database_id(&self, database: &str) -> Result<u32, WriteError> {
        let found = self.store.database_id(database);
        // That a known name is found says nothing of the disk.
        if let Err(error) = &found {
            self.watch.note(Some(error));
        }
        Ok(found?)
    }

    /// As [`store::Store::type_conflicts`]: what would be refused, before anything is written.
    pub fn type_conflicts(&self, database: &str, batch: &Batch<'_>) -> Vec<Rejected> {
        self.store.type_conflicts(database, batch)
    }

    /// Writes a batch; returns when it is on disk.
    pub fn write(&self, database: &str, batch: &Batch<'_>) -> Result<WriteReport, WriteError> {
        self.write_gated(database, batch, None)
    }

    /// As [`Db::write`]; rows of series that are new have to pass a gate.
    pub fn write_gated(
        &self,
        database: &str,
        batch: &Batch<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<WriteReport, WriteError> {
        let written = self.store.write_gated(database, batch, gate);
        self.watch.note(written.as_ref().err());
        Ok(written?)
    }

    /// Takes rows out of a batch that a sender may not write whose rights on the database are narrowed by labels.
    pub fn refuse_outside(&self, database: &str, scope: &Scope, parsed: &mut Parsed<'_>) -> Result<(), WriteError> {
        let matchers = scope.matchers(Right::Write, database);
        if matchers.is_empty() {
            return Ok(());
        }
        let compiled = index::compile(&matchers).map_err(|error| WriteError::Invalid(error.to_string()))?;
        let may_write = |identity: &GroupIdentity| {
            compiled.iter().all(|matcher| matcher.matches(identity.labels.get(matcher.name()).unwrap_or_default()))
        };
        ingest::admission::refuse_groups(&mut parsed.batch, &mut parsed.errors, &self.limits, &may_write);
        Ok(())
    }

    /// Returns whether an account has a right on what has these labels, in a database.
    pub fn may(&self, scope: &Scope, right: Right, database: &str, labels: &Labels) -> bool {
        let matchers = match right {
            Right::Read => self.read_matchers(scope, database),
            _ => scope.matchers(right, database),
        };
        let value = |name: &str| labels.get(name).unwrap_or_default();
        let compiled = index::compile(&matchers);
        scope.may(right, database)
            && compiled.is_ok_and(|matchers| matchers.iter().all(|matcher| matcher.matches(value(matcher.name()))))
    }

    /// Writes line protocol with timestamps in nanoseconds. Good lines are written, bad ones told.
    pub fn write_lines(&self, database: &str, lines: &[u8]) -> Result<(WriteReport, LineErrors), WriteError> {
        let parsed = self.parse_lines(database, lines)?;
        Ok((self.write(database, &parsed.batch)?, parsed.errors))
    }

    /// As [`Db::write_lines`], with timestamps of a unit; lines too far ahead of the clock are left out and reported as well.
    pub fn write_lines_in(
        &self,
        database: &str,
        lines: &[u8],
        precision: Precision,
    ) -> Result<(WriteReport, LineErrors), WriteError> {
        self.write_parsed(database, self.parse_lines_in(database, lines, precision)?)
    }

    /// Writes rows of a table that come as columns, all in one record of the log. Good rows are written, bad ones reported by their number,
    /// counted from 1.
    pub fn write_columns(
        &self,
        database: &str,
        columns: &TableColumns<'_>,
    ) -> Result<(WriteReport, LineErrors), WriteError> {
        let hasher = self.key_hasher.scope(Protocol::Line, self.database_id(database)?);
        self.write_parsed(database, line::parse_columns(columns, hasher, &self.limits)?)
    }

    fn write_parsed(&self, database: &str, parsed: Parsed<'_>) -> Result<(WriteReport, LineErrors), WriteError> {
        let Parsed { mut batch, mut errors } = parsed;
        refuse_ahead(&mut batch, &mut errors, &self.limits, self.latest_now_ns(), self.ahead_ms_max);
        let report = self.write(database, &batch)?;
        ingest::recycle(batch);
        Ok((report, errors))
    }

    /// Reads line protocol with timestamps in nanoseconds.
    pub(crate) fn parse_lines<'a>(&self, database: &str, lines: &'a [u8]) -> Result<Parsed<'a>, WriteError> {
        self.parse_lines_in(database, lines, Precision::Nanosecond)
    }

    fn parse_lines_in<'a>(
        &self,
        database: &str,
        lines: &'a [u8],
        precision: Precision,
    ) -> Result<Parsed<'a>, WriteError> {
        let options = line::Options {
            hasher: self.key_hasher.scope(Protocol::Line, self.database_id(database)?),
            precision,
            now_ns: self.now_ns(),
            limits: &self.limits,
        };
        Ok(line::parse(lines, &options)?)
    }
}

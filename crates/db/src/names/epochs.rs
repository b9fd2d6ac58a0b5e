//! Regular databases: their definitions, and their epochs.

use access::grant::Right;
use access::scope::Scope;
use model::{MatchOp, Matcher, TimeRange};
use query::{Budget, QueryError, RegularSource, TopNames};
use store::{
    EpochBatch, EpochNames, EpochRow, EpochValue, EpochWritten, NameRows, NameValidity, RegularDefinition, SeriesGate,
    StoreError,
};

use crate::{Db, WriteError};

const NS_PER_MS: i64 = 1_000_000;

impl Db {
    /// How a database keeps its series, if it is regular.
    pub fn regular(&self, database: &str) -> Option<RegularDefinition> {
        self.store.regular(database)
    }

    /// Makes a database regular, or changes what may change of one that is; made if it does not exist.
    pub fn define_regular(&self, database: &str, definition: &RegularDefinition) -> Result<(), StoreError> {
        self.store.define_regular(database, definition)
    }

    /// Writes values of an epoch of a regular database; they are on disk when this returns. Names that are not valid become so.
    pub fn write_epoch(&self, database: &str, batch: &EpochBatch<'_>) -> Result<EpochWritten, WriteError> {
        self.write_epoch_gated(database, batch, None)
    }

    /// As [`Db::write_epoch`]; names that become valid are new series of the sender, which have to pass its limits.
    pub fn write_epoch_gated(
        &self,
        database: &str,
        batch: &EpochBatch<'_>,
        gate: Option<SeriesGate<'_>>,
    ) -> Result<EpochWritten, WriteError> {
        let ahead_ms_max = i64::try_from(self.ahead_ms_max).unwrap_or(i64::MAX);
        let latest_ns = self.latest_now_ns().saturating_add(ahead_ms_max.saturating_mul(NS_PER_MS));
        if batch.time_ns > latest_ns {
            return Err(WriteError::Invalid(format!(
                "the epoch of {} is more than {ahead_ms_max} ms ahead of the clock (ahead_ms_max)",
                query::time::format(batch.time_ns)
            )));
        }
        let written = self.store.write_epoch_gated(database, batch, gate);
        self.watch.note(written.as_ref().err());
        Ok(written?)
    }

    /// Ends names of a regular database before the epoch of a time: their past stays. Returns how many.
    pub fn remove_names(&self, database: &str, names: &EpochNames, time_ns: i64) -> Result<u64, WriteError> {
        let removed = self.store.remove_names(database, names, time_ns);
        self.watch.note(removed.as_ref().err());
        Ok(removed?)
    }

    /// Fails if an account may write only a part of a database: epochs are of the whole.
    pub fn check_writes_whole(&self, database: &str, scope: &Scope) -> Result<(), WriteError> {
        if scope.matchers(Right::Write, database).is_empty() {
            return Ok(());
        }
        Err(WriteError::Invalid(format!(
            "epochs are written to whole databases, and the account may write a part of {database}"
        )))
    }

    /// A series of a regular database in all epochs of a range, undefined where its name was not valid; `None` if there never was one of the
    /// name.
    pub fn name_rows(
        &self,
        database: &str,
        name: &str,
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Option<NameRows>, QueryError> {
        let found = self.regular_source(database)?.rows(&[name_is(name)], range, budget)?;
        Ok(found.into_iter().next())
    }

    /// What all series of a regular database have in the epoch of a time.
    pub fn epoch(&self, database: &str, time_ns: i64, budget: &Budget) -> Result<EpochRow, QueryError> {
        self.regular_source(database)?.epoch(time_ns, budget)
    }

    /// The names of a regular database with the largest values over some time, the largest first.
    pub fn top_names(
        &self,
        database: &str,
        request: &TopNames,
        budget: &Budget,
    ) -> Result<Vec<(String, EpochValue)>, QueryError> {
        self.regular_source(database)?.top(request, budget)
    }

    /// When names of a regular database are valid, by name and time; the names match a pattern, if one is given.
    pub fn name_validity(
        &self,
        database: &str,
        pattern: Option<&str>,
        budget: &Budget,
    ) -> Result<Vec<NameValidity>, QueryError> {
        let matchers: Vec<Matcher> =
            pattern.map(|pattern| Matcher::new(query::NAME_TAG, MatchOp::Regex, pattern)).into_iter().collect();
        self.regular_source(database)?.validity(&matchers, budget)
    }

    fn regular_source<'a>(&'a self, database: &'a str) -> Result<RegularSource<'a>, QueryError> {
        RegularSource::of_database(&self.store, database).ok_or_else(|| {
            QueryError::Invalid(format!(
                "the database {database} is not regular: CREATE DATABASE {database} WITH (interval = '5m') makes one that is"
            ))
        })
    }
}

fn name_is(name: &str) -> Matcher {
    Matcher::new(query::NAME_TAG, MatchOp::Equal, name)
}

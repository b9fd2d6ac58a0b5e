//! Names of labels and their values, from the index, within a budget.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use index::{TextSet, compile};
use model::{Matcher, TimeRange};
use store::{NameKind, NamesRequest, Store};

use super::regular::RegularSource;
use super::selection;
use super::store_source::StoreSource;
use crate::{Budget, Helpers, QueryError};

/// What a shard is taken for as work, in samples: as much as a helping thread is worth.
const SHARD_SAMPLES: u64 = 20_000;

impl StoreSource<'_> {
    /// The names of series that satisfy one of the sets of matchers and have samples in the range, sorted; of all series if there are no sets.
    /// Whether there are samples is judged by whole chunks, for very many series by whole parts.
    pub fn names(
        &self,
        kind: NameKind<'_>,
        matcher_sets: &[Vec<Matcher>],
        range: TimeRange,
        budget: &Budget,
    ) -> Result<Vec<String>, QueryError> {
        let everything = [Vec::new()];
        let matcher_sets = if matcher_sets.is_empty() { &everything[..] } else { matcher_sets };
        if let Some(source) = RegularSource::of_database(self.store, self.database) {
            let mut all = BTreeSet::new();
            for matchers in matcher_sets {
                all.extend(source.label_texts(kind, matchers, (&range, true), budget)?);
            }
            return Ok(all.into_iter().collect());
        }
        let within = NamesOf { store: self.store, database: self.database, table: None, helpers: self.helpers };
        within.find(kind, matcher_sets, range, budget)
    }
}

/// Where names are looked for.
pub(crate) struct NamesOf<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: &'a str,
    /// `None`: all tables.
    pub(crate) table: Option<&'a str>,
    pub(crate) helpers: &'a Helpers,
}

impl NamesOf<'_> {
    /// The names of series that satisfy one of the sets of matchers and have samples in the range, sorted.
    pub(crate) fn find(
        &self,
        kind: NameKind<'_>,
        matcher_sets: &[Vec<Matcher>],
        range: TimeRange,
        budget: &Budget,
    ) -> Result<Vec<String>, QueryError> {
        // Each thread has one for itself.
        let pool: Mutex<Vec<TextSet>> = Mutex::default();
        let lock = || pool.lock().unwrap_or_else(PoisonError::into_inner);
        for matchers in matcher_sets {
            let compiled = compile(matchers)?;
            let (database, matchers) = selection::reach(self.database, &compiled, budget)?;
            let request = NamesRequest { database, table: self.table, matchers: &matchers, range, kind };
            self.helpers.run(self.store.shards(), budget, &|shard| {
                let mut found = lock().pop().unwrap_or_default();
                self.add_names(shard, &request, &mut found, budget)?;
                lock().push(found);
                Ok(SHARD_SAMPLES)
            })?;
        }
        let mut all = TextSet::default();
        for found in pool.into_inner().unwrap_or_else(PoisonError::into_inner) {
            budget.check()?;
            all.merge(found);
        }
        budget.hold_bytes(all.memory_bytes() as u64)?;
        Ok(all.into_sorted())
    }

    fn add_names(
        &self,
        shard: usize,
        request: &NamesRequest<'_>,
        found: &mut TextSet,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        let (mut charged_bytes, mut refused) = (found.memory_bytes(), None);
        let mut go_on = |found: &TextSet| {
            let more_bytes = found.memory_bytes().saturating_sub(charged_bytes);
            charged_bytes = charged_bytes.max(found.memory_bytes());
            match budget.check().and_then(|()| budget.hold_bytes(more_bytes as u64)) {
                Ok(()) => true,
                Err(error) => {
                    refused = Some(error);
                    false
                }
            }
        };
        self.store.add_names(shard, request, found, &mut go_on)?;
        refused.map_or(Ok(()), Err)
    }
}

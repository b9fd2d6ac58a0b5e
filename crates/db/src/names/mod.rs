//! What there is, by name: series, label names, label values, metadata. All but metadata are queries: they keep to a budget and can be
//! stopped.

mod epochs;

use std::collections::{BTreeMap, BTreeSet};

use access::grant::Right;
use index::compile;
use model::{Exemplar, Labels, METRIC_NAME, MatchOp, Matcher, MetricMetadata, TimeRange};
use query::{Budget, NameKind, QueryError, StoreSource};

use crate::Db;

/// Bytes that a name takes in a sorted set, beside its text.
const NAME_BYTES: usize = 64;

impl Db {
    /// Label sets of the series that satisfy one of the sets of matchers and have samples in the range: sorted, at most `limit`
    /// (0: all). Whether there are samples is judged by whole chunks and by groups.
    pub fn series(
        &self,
        database: &str,
        matcher_sets: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<Labels>, QueryError> {
        let mut found = BTreeSet::new();
        let everything = [vec![Matcher::new(METRIC_NAME, MatchOp::NotEqual, "")]];
        let matcher_sets = if matcher_sets.is_empty() { &everything[..] } else { matcher_sets };
        let source = self.source(database);
        for matchers in matcher_sets {
            source.series_labels(matchers, &range, budget, &mut |series| {
                budget.hold_bytes((series.packed_bytes() + NAME_BYTES) as u64)?;
                found.insert(series);
                Ok(())
            })?;
        }
        Ok(limited(found, limit))
    }

    /// Names of labels of series that satisfy one of the sets of matchers (none: of all), sorted.
    pub fn label_names(
        &self,
        database: &str,
        matcher_sets: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<String>, QueryError> {
        let names = self.source(database).names(NameKind::Labels, matcher_sets, range, budget)?;
        Ok(limited(names, limit))
    }

    /// Values of a label of series that satisfy one of the sets of matchers (none: of all), sorted.
    pub fn label_values(
        &self,
        database: &str,
        name: &str,
        matcher_sets: &[Vec<Matcher>],
        range: TimeRange,
        limit: usize,
        budget: &Budget,
    ) -> Result<Vec<String>, QueryError> {
        let values = self.source(database).names(NameKind::Values(name), matcher_sets, range, budget)?;
        Ok(limited(values, limit))
    }

    fn source<'a>(&'a self, database: &'a str) -> StoreSource<'a> {
        StoreSource::new(&self.store, database, &self.helpers)
    }

    /// What clients said of metric families, by name; of one family if it is named.
    /// They are of whole databases: a sender whose rights are narrowed by labels gets none.
    pub fn metadata(
        &self,
        database: &str,
        metric: Option<&str>,
        budget: &Budget,
    ) -> Result<Vec<MetricMetadata>, QueryError> {
        let database = query::reach(database, &[], budget)?.0;
        let is_narrowed = !budget.scope().matchers(Right::Read, database).is_empty();
        Ok(if is_narrowed { Vec::new() } else { self.store.metadata(database, metric) })
    }

    /// Exemplars of the series that satisfy one of the sets of matchers, with timestamps in a range: by series, in order of time.
    pub fn exemplars(
        &self,
        database: &str,
        matcher_sets: &[Vec<Matcher>],
        range: &TimeRange,
        budget: &Budget,
    ) -> Result<Vec<(Labels, Vec<Exemplar>)>, QueryError> {
        let mut found = BTreeMap::new();
        for matchers in matcher_sets {
            budget.check()?;
            let compiled = compile(matchers)?;
            let (database, matchers) = query::reach(database, &compiled, budget)?;
            found.extend(self.store.exemplars(database, &matchers, range));
        }
        Ok(found.into_iter().collect())
    }

    /// Since when the series that satisfy all matchers count, in nanoseconds since the Unix epoch, as far as senders said.
    pub fn start_timestamps(
        &self,
        database: &str,
        matchers: &[Matcher],
        budget: &Budget,
    ) -> Result<Vec<(Labels, i64)>, QueryError> {
        let compiled = compile(matchers)?;
        let (database, matchers) = query::reach(database, &compiled, budget)?;
        Ok(self.store.start_timestamps(database, &matchers))
    }
}

fn limited<T>(sorted: impl IntoIterator<Item = T>, limit: usize) -> Vec<T> {
    let limit = if limit == 0 { usize::MAX } else { limit };
    sorted.into_iter().take(limit).collect()
}

//! Deletes, also those that a crash or a full disk cuts off.

use index::compile;
use model::{MatchOp, Matcher, TimeRange};
use store::StoreError;

use crate::check;
use crate::oracle::Oracle;
use crate::world::{HOUR_NS, PLAIN, SHORT, World};

impl World {
    pub(crate) fn delete(&mut self) -> Result<(), String> {
        let (database, host, metric, range) = self.random_delete();
        match self.delete_from_store(database, &host, metric, &range) {
            Ok(()) => {
                self.delete_from_oracle(database, &host, metric, &range);
                Ok(())
            }
            Err(error) if self.refused(&error) => self.accept_half_deleted(database, &host, metric, &range),
            Err(error) => Err(format!("deleting: {error}")),
        }
    }

    pub(crate) fn random_delete(&self) -> (&'static str, String, Option<&'static str>, TimeRange) {
        let database = [PLAIN, SHORT][self.below(2) as usize];
        let host = if self.below(8) == 0 { String::new() } else { format!("h{}", self.below(5)) };
        let metric = [None, Some("m_a"), Some("lone")][self.below(3) as usize];
        let end_ns = self.now_ns() - self.below(3 * HOUR_NS as u64) as i64;
        (database, host, metric, TimeRange::new(end_ns - self.below(HOUR_NS as u64) as i64, end_ns))
    }

    pub(crate) fn delete_from_store(
        &self,
        database: &str,
        host: &str,
        metric: Option<&str>,
        range: &TimeRange,
    ) -> Result<(), StoreError> {
        let mut matchers = Vec::new();
        if !host.is_empty() {
            matchers.push(Matcher::new("host", MatchOp::Equal, host));
        }
        matchers.extend(metric.map(|metric| Matcher::new(model::METRIC_NAME, MatchOp::Equal, metric)));
        let compiled = compile(&matchers).map_err(|error| StoreError::Invalid(error.to_string()))?;
        let store = self.store().map_err(StoreError::Invalid)?;
        store.delete(database, &compiled, range).map(|_| ())
    }

    fn delete_from_oracle(&mut self, database: &str, host: &str, metric: Option<&str>, range: &TimeRange) {
        if let Some(oracle) = self.oracles.get_mut(database) {
            oracle.delete(host, metric, range);
        }
    }

    /// A delete that failed may have been carried out in one shard and not in another: for each series all or nothing.
    pub(crate) fn accept_half_deleted(
        &mut self,
        database: &'static str,
        host: &str,
        metric: Option<&str>,
        range: &TimeRange,
    ) -> Result<(), String> {
        self.accept_half_gone(database, range, &|oracle| oracle.delete(host, metric, range)).map(drop)
    }

    /// What takes samples of a range out of series and failed: for each series all or nothing. Returns whether any has less than before.
    pub(crate) fn accept_half_gone(
        &mut self,
        database: &'static str,
        range: &TimeRange,
        take: &dyn Fn(&mut Oracle),
    ) -> Result<bool, String> {
        let before = self.oracles.get(database).cloned().unwrap_or_default();
        if let Some(oracle) = self.oracles.get_mut(database) {
            take(oracle);
        }
        let now_ns = self.kept_now_ns();
        if database == SHORT {
            // Of rows that are past keeping nothing tells: where they come back from the trash, they may be deleted or not.
            let hidden_before_ns = before.certain(&before.retained(&TimeRange::ALL, now_ns), now_ns).start_ns;
            self.trash.may_lack(range.end_ns.saturating_add(1).min(hidden_before_ns));
        }
        let range = before.certain(&TimeRange::ALL, now_ns);
        let found = check::read_all(self.store()?, database, &range)?;
        let Some(oracle) = self.oracles.get_mut(database) else {
            return Ok(false);
        };
        let mut has_gone = false;
        for (series, samples) in &before.series {
            let kept = before.read(series, &range, now_ns);
            if found.get(series).map_or(kept.is_empty(), |found| *found == kept) {
                oracle.series.insert(series.clone(), samples.clone());
            } else {
                has_gone = true;
            }
        }
        Ok(has_gone)
    }
}

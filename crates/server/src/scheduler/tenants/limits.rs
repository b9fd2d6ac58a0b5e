//! Limits of accounts and of databases: how much may be asked for in a second or an hour. Every protocol asks here.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use access::rate::{Counted, Exceeded, RateLimit};
use access::scope::Scope;
use db::Db;
use query::WriteLimits;

use super::{Tenant, Tenants};
use crate::error::ApiError;
use crate::sign_in::lock;

/// Who asks for something, and of which database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) tenant: &'a Tenant,
}

/// A name of a bucket: accounts and databases may have the same names.
fn bucket(kind: char, name: &str) -> String {
    format!("{kind}{name}")
}

impl Asker<'_> {
    /// The limits that hold for something, with the names of their buckets and of their owners.
    fn limits(&self, counted: Counted) -> impl Iterator<Item = (String, String, u64)> {
        let account = self
            .scope
            .quota
            .limit(counted)
            .map(|limit| (bucket('a', &self.scope.name), format!("the account {}", self.scope.name), limit));
        let database = self
            .tenant
            .quota()
            .limit(counted)
            .map(|limit| (bucket('d', &self.tenant.name), format!("the database {}", self.tenant.name), limit));
        account.into_iter().chain(database)
    }

    fn count(&self, counted: Counted, amount: u64) {
        let counts = &self.tenant.counts;
        let total = match counted {
            Counted::Requests => &counts.requests,
            Counted::Samples => &counts.samples,
            Counted::Bytes => &counts.body_bytes,
            Counted::NewSeries => &counts.new_series,
        };
        total.fetch_add(amount, Ordering::Relaxed);
    }
}

impl Tenants {
    /// Counts what a sender did already: it waits for that before the next time.
    pub(crate) fn owe(&self, asker: Asker<'_>, counted: Counted, amount: u64, now_ns: i64) {
        for (name, _, limit) in asker.limits(counted) {
            lock(&self.rates).owe(RateLimit { name: &name, counted, limit }, amount, now_ns);
        }
        asker.count(counted, amount);
    }

    /// Takes from what an account, and a database, may be asked for. Where one of the two limits refuses, the other one is not charged.
    pub(crate) fn take(&self, asker: Asker<'_>, counted: Counted, amount: u64, now_ns: i64) -> Result<(), ApiError> {
        let mut rates = None;
        let mut charged: Vec<(String, u64)> = Vec::new();
        for (name, owner, limit) in asker.limits(counted) {
            let rates = rates.get_or_insert_with(|| lock(&self.rates));
            if let Err(exceeded) = rates.take(RateLimit { name: &name, counted, limit }, amount, now_ns) {
                for (name, limit) in &charged {
                    rates.give_back(RateLimit { name, counted, limit: *limit }, amount, now_ns);
                }
                asker.tenant.note_refusal();
                return Err(over(&owner, &exceeded));
            }
            charged.push((name, limit));
        }
        asker.count(counted, amount);
        Ok(())
    }
}

fn over(owner: &str, exceeded: &Exceeded) -> ApiError {
    let retry_after = Some(exceeded.retry_after);
    ApiError { retry_after, ..ApiError::later(format!("{owner} is asked for {exceeded}")) }
}

impl Tenant {
    pub(crate) fn note_refusal(&self) {
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// The limits of what an account's statements may write.
pub(crate) struct StatementLimits {
    db: Arc<Db>,
    tenants: Arc<Tenants>,
    scope: Arc<Scope>,
    /// The tenant of the rows that are written: new series are counted under locks of the store, which must not be asked then.
    tenant: Mutex<Arc<Tenant>>,
}

impl fmt::Debug for StatementLimits {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StatementLimits").finish_non_exhaustive()
    }
}

impl StatementLimits {
    pub(crate) fn new(db: Arc<Db>, tenants: Arc<Tenants>, scope: Arc<Scope>) -> Self {
        let tenant = Mutex::new(tenants.own());
        Self { db, tenants, scope, tenant }
    }

    fn take(&self, tenant: &Tenant, counted: Counted, amount: u64) -> Result<(), String> {
        let asker = Asker { scope: &self.scope, tenant };
        self.tenants.take(asker, counted, amount, self.db.now_ns()).map_err(|error| error.message)
    }
}

impl WriteLimits for StatementLimits {
    fn take_samples(&self, database: &str, samples: u64) -> Result<(), String> {
        let tenant = self.tenants.tenant(&self.db, database, &self.scope);
        lock(&self.tenant).clone_from(&tenant);
        self.take(&tenant, Counted::Samples, samples)
    }

    fn take_new_series(&self, _: &str, series: u64) -> Result<(), String> {
        let tenant = lock(&self.tenant).clone();
        self.take(&tenant, Counted::NewSeries, series)
    }
}

/// Returns whether new series are limited, so that the store has to ask.
pub(crate) fn limits_series(scope: &Scope, tenant: &Tenant) -> bool {
    scope.quota.new_series_per_hour.is_some() || tenant.quota().new_series_per_hour.is_some()
}

//! Tenants: databases whose requests and queries are counted together, so that one cannot take what others need. Each has its share of slots
//! ([`slots`]) and of memory, and may borrow what the others leave; limits of accounts and of databases hold beside ([`limits`]).

pub(crate) mod limits;
pub(crate) mod slots;

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use access::rate::{Quota, Rates};
use access::scope::Scope;
use db::{Db, MemoryPool, TenantMemory};
use query::{QueryMemory, QueryMemoryLimit};

use self::slots::TenantName;
use crate::sign_in::lock;

/// Under which kind the limits of databases are kept among the store's documents.
pub(crate) const LIMITS: &str = "limits";

/// Tenants and accounts with limits that are known at the same time; of more, those are forgotten that nothing uses.
const NAMES_MAX: usize = 10_000;

/// A database, and what is asked of it.
#[derive(Debug)]
pub(crate) struct Tenant {
    /// The database; empty for what names none that exists, and for the server's own work.
    pub(crate) name: TenantName,
    query_memory: Arc<TenantMemory>,
    query_memory_limit: Arc<QueryMemoryLimit>,
    /// The memory that its requests hold.
    pub(crate) request_memory: Arc<TenantMemory>,
    quota: RwLock<Quota>,
    counts: Counts,
}

/// Requests to a database since the start.
#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    samples: AtomicU64,
    body_bytes: AtomicU64,
    new_series: AtomicU64,
    /// What a limit refused.
    refused: AtomicU64,
}

/// All tenants, and how far limits are used up.
pub(crate) struct Tenants {
    known: RwLock<HashMap<TenantName, Arc<Tenant>>>,
    quotas: RwLock<HashMap<String, Quota>>,
    /// Held while limits are read from the database: what was read earlier does not replace what was read later.
    reloading: Mutex<()>,
    rates: Mutex<Rates>,
    /// Limits of memory of accounts that have one.
    accounts: Mutex<HashMap<Arc<str>, Arc<QueryMemoryLimit>>>,
    queries: Arc<MemoryPool>,
    requests: Arc<MemoryPool>,
}

impl Tenants {
    /// With the limits that the database has.
    pub(crate) fn new(db: &Db) -> Self {
        let tenants = Self {
            known: RwLock::default(),
            quotas: RwLock::default(),
            reloading: Mutex::default(),
            rates: Mutex::default(),
            accounts: Mutex::default(),
            queries: db.query_memory(),
            requests: db.request_memory(),
        };
        tenants.reload(db);
        tenants
    }

    /// Reads the limits of databases anew.
    pub(crate) fn reload(&self, db: &Db) {
        let read = |(name, document): (String, Arc<[u8]>)| match serde_json::from_slice::<Quota>(&document) {
            Ok(quota) => Some((name, quota)),
            Err(error) => {
                crate::notice::write(&format!("the limits of the database {name} cannot be read: {error}"));
                None
            }
        };
        let _reloading = lock(&self.reloading);
        let quotas: HashMap<String, Quota> = db.documents(LIMITS).into_iter().filter_map(read).collect();
        // First: a tenant that is made from here on has them.
        *self.quotas.write().unwrap_or_else(PoisonError::into_inner) = quotas;
        for tenant in self.known.read().unwrap_or_else(PoisonError::into_inner).values() {
            tenant.set_quota(self.quota(&tenant.name));
        }
    }

    /// Forgets databases that were dropped: their limits, which those that are made later under their names do not have, and their counts.
    pub(crate) fn forget_dropped(&self, db: &Db) {
        let _reloading = lock(&self.reloading);
        let is_gone = |name: &str| !name.is_empty() && !db.has_database(name);
        self.known.write().unwrap_or_else(PoisonError::into_inner).retain(|name, _| !is_gone(name));
        for (name, _) in db.documents(LIMITS) {
            if !is_gone(&name) {
                continue;
            }
            self.quotas.write().unwrap_or_else(PoisonError::into_inner).remove(&name);
            if let Err(error) = db.remove_document(LIMITS, &name) {
                crate::notice::write(&format!(
                    "the limits of the database {name}, which was dropped, are kept: {error}"
                ));
            }
        }
    }

    /// The limits of a database.
    pub(crate) fn quota(&self, database: &str) -> Quota {
        self.quotas.read().unwrap_or_else(PoisonError::into_inner).get(database).copied().unwrap_or_default()
    }

    /// The tenant of a name.
    fn named(&self, name: &str) -> Arc<Tenant> {
        if let Some(known) = self.known.read().unwrap_or_else(PoisonError::into_inner).get(name) {
            return known.clone();
        }
        let mut tenants = self.known.write().unwrap_or_else(PoisonError::into_inner);
        // Read while no limits can be set for the tenants that are known: else it could miss them.
        let quota = self.quota(name);
        if tenants.len() >= NAMES_MAX {
            tenants.retain(|_, tenant| Arc::strong_count(tenant) > 1);
        }
        tenants.entry(name.into()).or_insert_with(|| Arc::new(self.make(name, quota))).clone()
    }

    fn make(&self, name: &str, quota: Quota) -> Tenant {
        let tenant = Tenant {
            name: name.into(),
            query_memory: self.queries.tenant(),
            query_memory_limit: Arc::default(),
            request_memory: self.requests.tenant(),
            quota: RwLock::default(),
            counts: Counts::default(),
        };
        tenant.set_quota(quota);
        tenant
    }

    /// The tenant of what an account asks of a database. Names that are no database's, or none that the account sees, are one tenant together,
    /// so that made-up ones gain nothing.
    pub(crate) fn tenant(&self, db: &Db, database: &str, scope: &Scope) -> Arc<Tenant> {
        let exists = scope.sees(database) && db.has_database(database);
        self.named(if exists { database } else { "" })
    }

    /// The tenant of the server's own work.
    pub(crate) fn own(&self) -> Arc<Tenant> {
        self.named("")
    }

    /// The memory of a query: of its database, within the limit of its account.
    pub(crate) fn query_memory(&self, tenant: &Tenant, scope: &Scope) -> QueryMemory {
        let mut limits = vec![tenant.query_memory_limit.clone()];
        if scope.quota.query_memory_bytes_max.is_some() {
            let mut accounts = lock(&self.accounts);
            if accounts.len() >= NAMES_MAX {
                accounts.retain(|_, limit| Arc::strong_count(limit) > 1);
            }
            let limit = accounts.entry(scope.name.clone()).or_default();
            limit.set(scope.quota.query_memory_bytes_max);
            limits.push(limit.clone());
        }
        QueryMemory { tenant: tenant.query_memory.clone(), limits }
    }

    /// The counts of each database, in Prometheus's text format.
    pub(crate) fn render(&self, out: &mut String) {
        let mut tenants: Vec<Arc<Tenant>> =
            self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        tenants.sort_by(|left, right| left.name.cmp(&right.name));
        for (name, kind, help, value) in FAMILIES {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for tenant in &tenants {
                let _ = writeln!(out, "{name}{{database={}}} {}", crate::http::json::text(&tenant.name), value(tenant));
            }
        }
    }
}

/// A family of metrics: its name, kind and description, and its value for a tenant.
type Family = (&'static str, &'static str, &'static str, fn(&Tenant) -> u64);

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

const FAMILIES: [Family; 7] = [
    (
        "thalweg_database_requests_total",
        "counter",
        "Requests, by database; the empty one: those that name none.",
        |tenant| load(&tenant.counts.requests),
    ),
    ("thalweg_database_samples_total", "counter", "Samples that were sent, by database.", |tenant| {
        load(&tenant.counts.samples)
    }),
    ("thalweg_database_body_bytes_total", "counter", "Bytes of bodies of writes, by database.", |tenant| {
        load(&tenant.counts.body_bytes)
    }),
    (
        "thalweg_database_new_series_total",
        "counter",
        "Series that limits let in, by database with a limit.",
        |tenant| load(&tenant.counts.new_series),
    ),
    ("thalweg_database_refused_total", "counter", "What a limit of an account or a database refused.", |tenant| {
        load(&tenant.counts.refused)
    }),
    ("thalweg_database_query_memory_bytes", "gauge", "Memory that running queries hold, by database.", |tenant| {
        tenant.query_memory.used_bytes()
    }),
    ("thalweg_database_request_memory_bytes", "gauge", "Memory that requests hold, by database.", |tenant| {
        tenant.request_memory.used_bytes()
    }),
];

impl Tenant {
    fn set_quota(&self, quota: Quota) {
        self.query_memory_limit.set(quota.query_memory_bytes_max);
        *self.quota.write().unwrap_or_else(PoisonError::into_inner) = quota;
    }

    /// Its limits.
    pub(crate) fn quota(&self) -> Quota {
        *self.quota.read().unwrap_or_else(PoisonError::into_inner)
    }
}

//! What has to know before rows go, or are folded.

use std::sync::{Arc, Weak};

use tracing_mutex::parkinglot::RwLock;

use crate::{Store, StoreError};

/// The rows of a database that go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Going<'a> {
    /// Those of one table, by its TTL.
    Table(&'a str),
    /// Those of all tables, by the retention.
    All,
    /// Samples, which are replaced by summaries of them.
    Folded,
}

/// Knows what is made of the rows of tables, and so when they may go by a TTL or a retention, or be folded.
pub trait ExpiryGuard: Send + Sync {
    /// The latest time up to one before which rows of a database may go; both in nanoseconds since 1970.
    fn may_go_before_ns(&self, database: &str, going: Going<'_>, before_ns: i64) -> i64;

    /// Is told before rows go that are before a time, in nanoseconds since 1970. Returns whether they may: what was allowed may not be any more.
    ///
    /// # Errors
    /// If it cannot be noted: then they stay.
    fn before_expiry(&self, database: &str, going: Going<'_>, before_ns: i64) -> Result<bool, StoreError>;
}

/// The guard of a store, which lives on its own.
pub(crate) struct Guard(RwLock<Option<Weak<dyn ExpiryGuard>>>);

impl Guard {
    pub(crate) fn none() -> Self {
        Self(RwLock::new(None))
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn ExpiryGuard>> {
        self.0.read().as_ref().and_then(Weak::upgrade)
    }
}

impl Store {
    /// Has a guard asked and told from now on when rows go by the TTL of their table or in a database whose rows go by windows, and when samples are folded
    /// of which views are made.
    pub fn guard_expiry(&self, guard: Weak<dyn ExpiryGuard>) {
        *self.retention.expiry_guard.0.write() = Some(guard);
    }
}

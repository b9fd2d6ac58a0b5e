//! Limits of accounts and databases for batches, whose databases are known once they are read: a batch is counted afterwards, and the next one waits until
//! nothing is owed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use access::rate::Counted;
use access::scope::Scope;

use crate::error::ApiError;
use crate::scheduler::tenants::Tenant;
use crate::state::State;

/// A message counts as one request, by its bytes and by its samples.
const COUNTED: [Counted; 3] = [Counted::Requests, Counted::Bytes, Counted::Samples];

/// Databases that a connection waits for; of further ones the limits are looked at once a message is read.
const DATABASES_MAX: usize = 64;

/// The databases that a connection's messages wrote: its next one waits for their limits.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<Vec<String>>);

impl Written {
    pub(super) fn new(databases: Vec<String>) -> Self {
        Self(Mutex::new(databases))
    }

    pub(super) fn databases(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a message of so many bytes, applied or refused, for the databases of its samples: its bytes for each alike, and as a request for the first.
    pub(super) fn count(&self, state: &State, scope: &Scope, (samples, bytes): (BTreeMap<String, u64>, usize)) {
        let share = (bytes as u64).div_ceil(samples.len().max(1) as u64);
        for (number, (database, samples)) in samples.iter().enumerate() {
            let tenant = state.tenant(database, scope);
            let amounts = [u64::from(number == 0), share, *samples];
            COUNTED.into_iter().zip(amounts).for_each(|count| state.owe(scope, &tenant, count));
        }
        if samples.is_empty() {
            let tenant = state.own_tenant();
            COUNTED.into_iter().zip([1, share]).for_each(|count| state.owe(scope, &tenant, count));
            return;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for database in samples.into_keys().filter(|database| !known.contains(database)).collect::<Vec<_>>() {
            if known.len() >= DATABASES_MAX {
                known.remove(0);
            }
            known.push(database);
        }
    }
}

/// Whether an account, or one of some databases, owes something; then when it may be tried again.
pub(super) fn check_owing(state: &State, scope: &Scope, databases: &[String]) -> Result<(), ApiError> {
    check_tenant(state, scope, &state.own_tenant())?;
    check_owing_of(state, scope, databases)
}

/// As [`check_owing`], of some databases alone.
pub(super) fn check_owing_of<'d>(
    state: &State,
    scope: &Scope,
    databases: impl IntoIterator<Item = &'d String>,
) -> Result<(), ApiError> {
    databases.into_iter().try_for_each(|database| check_tenant(state, scope, &state.tenant(database, scope)))
}

fn check_tenant(state: &State, scope: &Scope, tenant: &Tenant) -> Result<(), ApiError> {
    COUNTED.into_iter().try_for_each(|counted| state.take(scope, tenant, (counted, 0)))
}

//! The samples of a connection that were applied, by database, until its reader counts them among what databases and accounts may be sent.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use access::rate::Counted;
use access::scope::Scope;

use crate::error::ApiError;
use crate::scheduler::tenants::Tenant;
use crate::sign_in::lock;
use crate::state::State;

/// Samples by database that are not counted yet.
#[derive(Debug, Default)]
pub(super) struct Written(Mutex<BTreeMap<String, u64>>);

impl Written {
    pub(super) fn add(&self, samples: impl IntoIterator<Item = (String, u64)>) {
        let mut by_database = lock(&self.0);
        for (database, samples) in samples {
            *by_database.entry(database).or_default() += samples;
        }
    }

    fn take(&self) -> BTreeMap<String, u64> {
        std::mem::take(&mut lock(&self.0))
    }

    /// Counts what is left of a connection that ends.
    pub(super) fn owe(&self, state: &State, scope: &Scope) {
        for (database, samples) in self.take() {
            state.owe_samples(scope, &state.tenant(&database, scope), samples);
        }
    }
}

/// What counts of a message, and for whom.
struct Count {
    tenant: Arc<Tenant>,
    counted: Counted,
    amount: u64,
}

/// Counts the messages of a connection. What one writes is known once it is applied: its samples are counted before the next one, which itself
/// counts for the databases that were written last.
#[derive(Default)]
pub(super) struct MessageCounts {
    databases: Vec<String>,
    /// What the message at hand has still to wait for, the first at the end.
    pending: Vec<Count>,
}

impl MessageCounts {
    /// Begins with a message of so many bytes.
    pub(super) fn begin(&mut self, state: &State, scope: &Scope, (written, bytes): (&Written, usize)) {
        let samples = written.take();
        if !samples.is_empty() {
            self.databases = samples.keys().cloned().collect();
        }
        let of = |database: &String| state.tenant(database, scope);
        let mut tenants: Vec<Arc<Tenant>> = self.databases.iter().map(of).collect();
        if tenants.is_empty() {
            tenants.push(state.own_tenant());
        }
        let share = (bytes as u64).div_ceil(tenants.len() as u64);
        let first = tenants.first().cloned();
        self.pending.extend(first.map(|tenant| Count { tenant, counted: Counted::Requests, amount: 1 }));
        let bytes = tenants.into_iter().map(|tenant| Count { tenant, counted: Counted::Bytes, amount: share });
        self.pending.extend(bytes);
        let samples = samples.iter().map(|(database, samples)| Count {
            tenant: of(database),
            counted: Counted::Samples,
            amount: *samples,
        });
        self.pending.extend(samples);
    }

    /// Takes what may be taken now; an error says when it may be tried again. What was taken stays so.
    pub(super) fn take(&mut self, state: &State, scope: &Scope) -> Result<(), ApiError> {
        while let Some(Count { tenant, counted, amount }) = self.pending.last() {
            state.take(scope, tenant, (*counted, *amount))?;
            self.pending.pop();
        }
        Ok(())
    }
}

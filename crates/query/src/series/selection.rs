//! Selects groups within a query's budget: memory is reserved before it is used, and a stopped query stops here, too.

use std::cell::RefCell;
use std::sync::Arc;

use index::{Cardinality, CompiledMatcher, Projection};
use store::{SelectedGroup, Store, StoreError, TableGroups, TableSelection};

use crate::{Budget, QueryError};

/// The groups that satisfy all matchers.
pub(crate) fn select(
    store: &Store,
    database: &str,
    matchers: &[CompiledMatcher],
    budget: &Budget,
) -> Result<Vec<SelectedGroup>, QueryError> {
    within(budget, |reserve| store.select_within(database, matchers, reserve))
}

/// As [`select`], with some of the labels.
pub(crate) fn select_projected(
    (store, database): (&Store, &str),
    matchers: &[CompiledMatcher],
    projection: Projection<'_>,
    budget: &Budget,
) -> Result<Vec<SelectedGroup>, QueryError> {
    within(budget, |reserve| store.select_projected(database, matchers, Some(projection), reserve))
}

/// The groups of a table.
pub(crate) fn select_table(
    store: &Store,
    selection: &TableSelection<'_>,
    budget: &Budget,
) -> Result<Arc<TableGroups>, QueryError> {
    within(budget, |reserve| store.select_table_within(selection, reserve))
}

/// The metrics and labels that make a database large, from its index; each list holds the `top` largest. A database that does not exist has nothing.
pub fn cardinality(store: &Store, database: &str, top: usize, budget: &Budget) -> Result<Cardinality, QueryError> {
    within(budget, |reserve| store.cardinality_within(database, top, reserve))
}

fn within<T>(
    budget: &Budget,
    select: impl FnOnce(&dyn Fn(u64) -> bool) -> Result<Option<T>, StoreError>,
) -> Result<T, QueryError> {
    let refused = RefCell::new(None);
    budget.check()?;
    let reserve = |bytes| match budget.check().and_then(|()| budget.hold_bytes(bytes)) {
        Ok(()) => true,
        Err(error) => {
            refused.replace(Some(error));
            false
        }
    };
    let selected = select(&reserve)?;
    let refusal = || refused.take().unwrap_or_else(|| QueryError::Invalid("the selection was given up".to_owned()));
    selected.ok_or_else(refusal)
}

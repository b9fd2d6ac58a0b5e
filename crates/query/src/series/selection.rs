//! Selects groups within a query's budget: memory is reserved before it is used, and a stopped query stops here, too.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use access::grant::Right;
use index::{Cardinality, CompiledMatcher, Projection, compile};
use store::{SelectedGroup, Store, StoreError, TableGroups, TableSelection};

use crate::{Budget, QueryError};

/// The groups that satisfy all matchers.
pub(crate) fn select(
    store: &Store,
    database: &str,
    matchers: &[CompiledMatcher],
    budget: &Budget,
) -> Result<Vec<SelectedGroup>, QueryError> {
    let (database, matchers) = reach(database, matchers, budget)?;
    within(budget, |reserve| store.select_within(database, &matchers, reserve))
}

/// As [`select`], with some of the labels.
pub(crate) fn select_projected(
    (store, database): (&Store, &str),
    matchers: &[CompiledMatcher],
    projection: Projection<'_>,
    budget: &Budget,
) -> Result<Vec<SelectedGroup>, QueryError> {
    let (database, matchers) = reach(database, matchers, budget)?;
    within(budget, |reserve| store.select_projected(database, &matchers, Some(projection), reserve))
}

/// The groups of a table.
pub(crate) fn select_table(
    store: &Store,
    selection: &TableSelection<'_>,
    budget: &Budget,
) -> Result<Arc<TableGroups>, QueryError> {
    let (database, matchers) = reach_tables(selection.database, selection.matchers, budget)?;
    if budget.hidden(database).any(|hidden| hidden.table == selection.table) {
        return Err(QueryError::Forbidden(format!(
            "the rows of {:?} do not have the labels that the account's rights are narrowed by",
            selection.table
        )));
    }
    let selection = TableSelection { database, matchers: &matchers, ..*selection };
    within(budget, |reserve| store.select_table_within(&selection, reserve))
}

/// The metrics and labels that make a database large, from its index; each list holds the `top` largest. A database that does not exist has nothing.
/// It is of whole databases: a sender whose rights are narrowed by labels gets [`QueryError::Forbidden`].
pub fn cardinality(store: &Store, database: &str, top: usize, budget: &Budget) -> Result<Cardinality, QueryError> {
    let database = whole_database(database, budget)?;
    within(budget, |reserve| store.cardinality_within(database, top, reserve))
}

/// The name of no database.
const NO_DATABASE: &str = "";

/// The database and the matchers by which a query reads series: with those that its sender's rights add. A database that the sender may not know
/// of is taken for one that does not exist.
pub fn reach<'a>(
    database: &'a str,
    matchers: &'a [CompiledMatcher],
    budget: &Budget,
) -> Result<(&'a str, Cow<'a, [CompiledMatcher]>), QueryError> {
    let (database, matchers) = reach_tables(database, matchers, budget)?;
    let hidden: Vec<_> = budget.hidden(database).map(|hidden| hidden.others.clone()).collect();
    if hidden.is_empty() {
        return Ok((database, matchers));
    }
    Ok((database, Cow::Owned([matchers.into_owned(), compile(&hidden)?].concat())))
}

/// As [`reach`], for the groups of a table that the sender may read.
fn reach_tables<'a>(
    database: &'a str,
    matchers: &'a [CompiledMatcher],
    budget: &Budget,
) -> Result<(&'a str, Cow<'a, [CompiledMatcher]>), QueryError> {
    let scope = budget.scope();
    if !scope.may(Right::Read, database) {
        return unreadable(database, budget).map(|database| (database, Cow::Borrowed(matchers)));
    }
    let added = scope.matchers(Right::Read, database);
    if added.is_empty() {
        return Ok((database, Cow::Borrowed(matchers)));
    }
    Ok((database, Cow::Owned([matchers.to_vec(), compile(&added)?].concat())))
}

/// The database that a query reads as a whole.
pub(crate) fn whole_database<'a>(database: &'a str, budget: &Budget) -> Result<&'a str, QueryError> {
    let scope = budget.scope();
    if !scope.may(Right::Read, database) {
        return unreadable(database, budget);
    }
    if scope.matchers(Right::Read, database).is_empty() {
        return Ok(database);
    }
    Err(QueryError::Forbidden(format!(
        "this is of the whole database {database}, of which the account may read a part"
    )))
}

fn unreadable<'a>(database: &str, budget: &Budget) -> Result<&'a str, QueryError> {
    if budget.scope().sees(database) {
        return Err(QueryError::Forbidden(format!("the account may not read the database {database}")));
    }
    Ok(NO_DATABASE)
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

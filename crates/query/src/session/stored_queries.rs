//! Views of plain SQL, as a statement's sender may see and change them.

use std::sync::Arc;

use access::grant::Right;

use super::store_session::StoreSession;
use crate::QueryError;
use crate::series::selection;
use crate::views::StoredQuery;

impl StoreSession<'_> {
    /// A view, for those who may read the database.
    pub(super) fn readable_query(&self, database: &str, name: &str) -> Result<Option<Arc<StoredQuery>>, QueryError> {
        let Some(found) = self.host.views.and_then(|views| views.stored_query(database, name)) else { return Ok(None) };
        let (reached, _) = selection::reach(database, &[], self.budget)?;
        Ok((reached == database).then_some(found))
    }

    /// The views of a database, for those who may read it.
    pub(super) fn readable_queries(&self, database: &str) -> Result<Vec<Arc<StoredQuery>>, QueryError> {
        let Some(views) = self.host.views else { return Ok(Vec::new()) };
        let (database, _) = selection::reach(database, &[], self.budget)?;
        Ok(views.stored_queries(database))
    }

    /// The view of a name without regard to case, for those who may read the database.
    pub(super) fn readable_query_of_any_case(
        &self,
        database: &str,
        name: &str,
    ) -> Result<Option<Arc<StoredQuery>>, QueryError> {
        let found = self.host.views.and_then(|views| views.stored_query_of_any_case(database, name));
        let Some(found) = found else { return Ok(None) };
        let (reached, _) = selection::reach(database, &[], self.budget)?;
        Ok((reached == database).then_some(found))
    }

    pub(super) fn store_query(&self, mut query: StoredQuery, replaces: bool) -> Result<(), QueryError> {
        let views = self.changeable_views(Right::Write, &query.database)?;
        self.require(Right::Read, &query.database)?;
        let scope = self.budget.scope();
        query.matchers = scope.matchers(Right::Read, &query.database);
        query.maker = scope.name.to_string();
        query.check()?;
        if StoredQuery::is_catalog_name(&query.name) {
            return Err(QueryError::Invalid(format!(
                "the view {:?} cannot have this name: those that begin with pg_ are the catalog's",
                query.name
            )));
        }
        views.put_stored_query(query, replaces)
    }

    /// Refuses the name of a view of plain SQL for something else.
    pub(super) fn refuse_view_name(&self, database: &str, name: &str) -> Result<(), QueryError> {
        match self.host.views.and_then(|views| views.stored_query(database, name)) {
            None => Ok(()),
            Some(_) => Err(QueryError::Invalid(format!("relation {name:?} already exists: it is a view"))),
        }
    }
}

//! Materialised views, as a statement's sender may make them.

use access::grant::Right;

use super::store_session::StoreSession;
use crate::series::selection;
use crate::views::{ViewCatalog, ViewDefinition};
use crate::{QueryError, Session};

impl StoreSession<'_> {
    /// A view of windows that the account may have, narrowed to what it may read, and those that it is one of.
    pub(super) fn readable(
        &self,
        mut definition: ViewDefinition,
    ) -> Result<(&dyn ViewCatalog, ViewDefinition), QueryError> {
        let database = definition.database.clone();
        let views = self.changeable_views(Right::Write, &database)?;
        // What the maker reads by it is checked when it is made, and part of it from then on.
        let scope = self.budget.scope();
        let _ = selection::reach(&database, &[], self.budget)?;
        self.require(Right::Read, &database)?;
        definition.narrow(scope.matchers(Right::Read, &database).iter());
        definition.maker = scope.name.to_string();
        definition.check()?;
        Ok((views, definition))
    }

    /// A view that the account may make, narrowed to what it may read, and those that it is to be one of.
    pub(super) fn permitted(
        &self,
        definition: ViewDefinition,
    ) -> Result<(&dyn ViewCatalog, ViewDefinition), QueryError> {
        let (views, definition) = self.readable(definition)?;
        let database = definition.database.clone();
        if self.host.store.regular(&database).is_some() {
            let message = "materialised views of regular databases are not supported: query the database itself";
            return Err(QueryError::Invalid(message.to_owned()));
        }
        // One of the name that cannot be read is an error.
        self.readable_view(&database, &definition.name)?;
        let into = definition.target_database();
        if into != database {
            self.changeable_views(Right::Write, into)?;
            if !self.databases().iter().any(|known| known == into) {
                return Err(QueryError::Invalid(format!("database not found: {into}")));
            }
            if self.host.store.regular(into).is_some() {
                let message = format!("the database {into} is a regular one, into which views do not write");
                return Err(QueryError::Invalid(message));
            }
        }
        self.refuse_view_name(into, &definition.target)?;
        if definition.is_exposed() && self.host.store.table(&database, &definition.name)?.is_some() {
            let message = format!("relation {:?} already exists: a view has a name of its own", definition.name);
            return Err(QueryError::Invalid(message));
        }
        Ok((views, definition))
    }
}

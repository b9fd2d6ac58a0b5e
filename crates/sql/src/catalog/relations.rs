//! Tables and views of plain SQL, as the catalog lists them.

use std::sync::Arc;

use query::views::StoredQuery;
use query::{SqlType, Value};

use super::rows::{relation, text};
use super::{CatalogColumn, TABLES_FROM, columns_of};
use crate::error::SqlError;
use crate::relation::Relation;
use crate::run::Run;

/// A table, or a view of plain SQL.
pub(crate) struct ListedRelation {
    /// Its number for clients.
    pub(crate) number: i64,
    pub(crate) name: String,
    /// The view that it is, if it is one.
    pub(crate) view: Option<Arc<StoredQuery>>,
}

impl ListedRelation {
    /// As `information_schema` names what it is.
    pub(super) const fn kind(&self) -> &'static str {
        if self.view.is_some() { "VIEW" } else { "BASE TABLE" }
    }

    /// As `pg_class` names what it is.
    pub(super) const fn short_kind(&self) -> &'static str {
        if self.view.is_some() { "v" } else { "r" }
    }
}

impl Run<'_> {
    /// The tables, and after them the views of plain SQL.
    pub(crate) fn relations(&self) -> Result<Vec<ListedRelation>, SqlError> {
        let tables = self.tables()?.into_iter().map(|name| (name, None));
        let views = self.session.stored_queries(&self.environment.database)?;
        let views = views.into_iter().map(|view| (view.name.clone(), Some(view)));
        let numbered = (TABLES_FROM..).zip(tables.chain(views));
        Ok(numbered.map(|(number, (name, view))| ListedRelation { number, name, view }).collect())
    }

    /// The columns of a table or view; `None` if it cannot be read now. Within a view those of views are not listed: one that lists columns would
    /// be expanded for each view, and so would each of these.
    pub(super) fn columns_of_relation(
        &mut self,
        listed: &ListedRelation,
    ) -> Result<Option<Vec<CatalogColumn>>, SqlError> {
        Ok(match &listed.view {
            Some(_) if !self.views.is_empty() => None,
            Some(view) => self.listed_query_columns(view)?,
            None => self.table(&listed.name)?.map(|schema| columns_of(&schema, self.time_name())),
        })
    }

    /// `information_schema.views`
    pub(super) fn information_views(&self) -> Result<Relation, SqlError> {
        use SqlType::Text;
        let columns = [
            ("table_catalog", Text),
            ("table_schema", Text),
            ("table_name", Text),
            ("view_definition", Text),
            ("check_option", Text),
            ("is_updatable", Text),
            ("is_insertable_into", Text),
        ];
        let views = self.session.stored_queries(&self.environment.database)?;
        let row = |view: &Arc<StoredQuery>| {
            let mut row = vec![text(&self.environment.database), text("public"), text(&view.name)];
            row.extend([self.query_definition(view), text("NONE"), text("NO"), text("NO")]);
            row
        };
        Ok(relation(&columns, views.iter().map(row).collect()))
    }

    /// `pg_views`
    pub(super) fn pg_views(&self) -> Result<Relation, SqlError> {
        use SqlType::Text;
        let columns = [("schemaname", Text), ("viewname", Text), ("viewowner", Text), ("definition", Text)];
        let views = self.session.stored_queries(&self.environment.database)?;
        let row = |view: &Arc<StoredQuery>| -> Vec<Value> {
            let owner = if view.maker.is_empty() { "thalweg" } else { view.maker.as_str() };
            vec![text("public"), text(&view.name), text(owner), self.query_definition(view)]
        };
        Ok(relation(&columns, views.iter().map(row).collect()))
    }
}

//! Tables and views of plain SQL, as the catalog lists them.

use std::collections::HashSet;
use std::sync::Arc;

use query::views::{StoredQuery, View};
use query::{SqlType, Value};

use super::rows::{relation, text};
use super::{CatalogColumn, TABLES_FROM, columns_of};
use crate::error::SqlError;
use crate::relation::Relation;
use crate::run::Run;

/// A table, a materialised view, or a view of plain SQL.
pub(crate) struct ListedRelation {
    /// Its number for clients.
    pub(crate) number: i64,
    pub(crate) name: String,
    /// The view that it is, if it is one.
    pub(crate) view: Option<Arc<StoredQuery>>,
    /// True if it is a materialised view.
    pub(crate) is_materialized: bool,
}

impl ListedRelation {
    /// As `information_schema` names what it is.
    pub(super) const fn kind(&self) -> &'static str {
        if self.view.is_some() { "VIEW" } else { "BASE TABLE" }
    }

    /// As `pg_class` names what it is.
    pub(super) const fn short_kind(&self) -> &'static str {
        match self.view {
            Some(_) => "v",
            None if self.is_materialized => "m",
            None => "r",
        }
    }
}

/// The owner of a view, by its maker: where accounts are not needed there is none.
fn owner(maker: &str) -> &str {
    if maker.is_empty() { "thalweg" } else { maker }
}

impl Run<'_> {
    /// The tables and materialised views, and after them the views of plain SQL.
    pub(crate) fn relations(&self) -> Result<Vec<ListedRelation>, SqlError> {
        let materialized: HashSet<String> =
            self.exposed_views()?.iter().map(|view| view.definition.target.clone()).collect();
        let tables = self.tables()?.into_iter().map(|name| (name, None));
        let views = self.session.stored_queries(&self.environment.database)?;
        let views = views.into_iter().map(|view| (view.name.clone(), Some(view)));
        let listed = |(number, (name, view)): (i64, (String, Option<Arc<StoredQuery>>))| {
            let is_materialized = view.is_none() && materialized.contains(&name);
            ListedRelation { number, name, view, is_materialized }
        };
        Ok((TABLES_FROM..).zip(tables.chain(views)).map(listed).collect())
    }

    /// `pg_tables`
    pub(super) fn pg_tables(&self) -> Result<Relation, SqlError> {
        let columns = ["schemaname", "tablename", "tableowner"].map(|name| (name, SqlType::Text));
        let tables = self.relations()?.into_iter().filter(|listed| listed.short_kind() == "r");
        let row = |table: ListedRelation| vec![text("public"), text(&table.name), text("thalweg")];
        Ok(relation(&columns, tables.map(row).collect()))
    }

    /// `pg_matviews`
    pub(super) fn pg_matviews(&self) -> Result<Relation, SqlError> {
        use SqlType::{Bool, Text};
        let mut columns =
            vec![("schemaname", Text), ("matviewname", Text), ("matviewowner", Text), ("tablespace", Text)];
        columns.extend([("hasindexes", Bool), ("ispopulated", Bool), ("definition", Text)]);
        let row = |view: Arc<View>| {
            let definition = &view.definition;
            let mut row = vec![text("public"), text(&definition.name), text(owner(&definition.maker)), Value::Null];
            row.extend([Value::Bool(false), Value::Bool(true), text(&definition.statement)]);
            row
        };
        Ok(relation(&columns, self.exposed_views()?.into_iter().map(row).collect()))
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
            None => match self.table(&listed.name)? {
                Some(schema) => Some(columns_of(&schema, &self.time_name_of(&listed.name)?)),
                None => None,
            },
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
            vec![text("public"), text(&view.name), text(owner(&view.maker)), self.query_definition(view)]
        };
        Ok(relation(&columns, views.iter().map(row).collect()))
    }
}

//! The tables that the query of a materialised view reads: by their names, or as queries of columns and rows of one.

use query::TableSchema;
use query::plan::{Expression, Scan};
use sqlparser::ast::{Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, TableAlias, TableFactor};

use super::check_supported;
use super::filter::lower;
use super::from::Source;
use super::plan_aggregates::row_conditions;
use super::projections::{ProjectionSource, projections};
use super::view_source::refused;
use crate::error::{SqlError, invalid};
use crate::run::Run;
use crate::scope::{Role, Scope};

/// A table, which is not read here, and which of its rows count.
pub(super) struct ViewTable {
    pub(super) schema: TableSchema,
    /// Its columns. Those that a query leaves out have no name.
    pub(super) scope: Scope,
    /// Its rows.
    pub(super) scan: Scan,
    /// Conditions on them that the scan does not have; all must hold.
    pub(super) conditions: Vec<Expression>,
}

impl ViewTable {
    /// Returns whether the rows' time is among its columns.
    pub(super) fn has_time(&self) -> bool {
        self.scope.columns.iter().any(|column| column.role == Role::Time)
    }
}

impl Run<'_> {
    /// A table of a view's query.
    pub(super) fn view_table(&mut self, factor: &TableFactor) -> Result<ViewTable, SqlError> {
        let (TableFactor::Table { args: None, alias, .. } | TableFactor::Derived { lateral: false, alias, .. }) =
            factor
        else {
            return refused();
        };
        if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
            return invalid(
                "the query of a materialised view names columns as their tables do: name the table alone, cpu AS c",
            );
        }
        if let TableFactor::Derived { subquery, .. } = factor {
            return self.queried_table(subquery, alias.as_ref());
        }
        match self.factor(factor)? {
            (Source::Table(table), scope) => {
                Ok(ViewTable { scan: table.scan(), schema: table.schema, scope, conditions: Vec::new() })
            }
            _ => refused(),
        }
    }

    /// `(SELECT * FROM quotes WHERE venue = 'v0') q`
    fn queried_table(&mut self, query: &Query, alias: Option<&TableAlias>) -> Result<ViewTable, SqlError> {
        let Some((select, relation)) = self.plain_select(query) else { return refused_query() };
        check_supported(select)?;
        // One query within another is not this one's table.
        let TableFactor::Table { .. } = relation else { return refused_query() };
        let ViewTable { schema, mut scope, mut scan, mut conditions } = self.view_table(relation)?;
        if let Some(selection) = &select.selection {
            let lowered = lower(self.bind(&scope, selection)?.expression, &mut scan, &scope);
            conditions = lowered.conditions;
            conditions.extend(row_conditions(&lowered.rest, (&scope, &schema))?);
        }
        let mut kept = Vec::new();
        for projected in projections(&select.projection, &scope)? {
            let place = match projected.source {
                ProjectionSource::Column(place) => Some(place),
                ProjectionSource::Expression(expression @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                    self.bind(&scope, expression)?.expression.column()
                }
                ProjectionSource::Expression(_) => None,
            };
            let Some(place) =
                place.filter(|place| scope.columns.get(*place).is_some_and(|of| is_named(of, &projected.name)))
            else {
                return refused_query();
            };
            kept.push(place);
        }
        for (place, column) in scope.columns.iter_mut().enumerate() {
            column.qualifier = alias.map(|alias| alias.name.value.clone());
            if !kept.contains(&place) {
                (column.name, column.role, column.is_hidden) = (String::new(), Role::Other, true);
            }
        }
        Ok(ViewTable { schema, scope, scan, conditions })
    }

    /// The SELECT of a query that is of rows of one table, and that table; `None` if it is more than that.
    fn plain_select<'q>(&self, query: &'q Query) -> Option<(&'q Select, &'q TableFactor)> {
        let SetExpr::Select(select) = &*query.body else { return None };
        let is_whole = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.locks.is_empty();
        let is_of_rows = matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
            && select.having.is_none()
            && select.distinct.is_none()
            && self.parsed.extension(select).is_none();
        let is_listed = !select.projection.iter().any(|item| {
            matches!(item, SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options)
                if options.opt_exclude.is_some() || options.opt_except.is_some() || options.opt_replace.is_some() || options.opt_rename.is_some())
        });
        match select.from.as_slice() {
            [from] if from.joins.is_empty() && is_whole && is_of_rows && is_listed => Some((select, &from.relation)),
            _ => None,
        }
    }
}

/// Returns whether a column is shown by its name; the rows' time has two.
fn is_named(column: &crate::scope::ScopeColumn, name: &str) -> bool {
    column.name.eq_ignore_ascii_case(name)
        || column.role == Role::Time && ["time", "timestamp"].contains(&name.to_lowercase().as_str())
}

/// Refuses a query that is more than columns and rows of a table.
fn refused_query<T>() -> Result<T, SqlError> {
    invalid(
        "a query within the FROM of a materialised view is of columns of one table by their names, and of rows that WHERE chooses: (SELECT time, symbol, bid FROM quotes WHERE venue = 'v0') q",
    )
}

//! Queries that give no rows whatever their expressions say: those of tables of the catalog that are always empty here.
//!
//! Clients ask for constraints, indexes and defaults with all that Postgres has, often within conditions on the query around; as there is nothing to
//! compute it with, it need not be understood.

use query::SqlType;
use sqlparser::ast::{GroupByExpr, JoinOperator, Query, Select, SelectItem, SetExpr, TableFactor, TableWithJoins};

use super::projections::{has_aggregate, name_of};
use crate::relation::{Column, Relation};

/// The columns of such a SELECT; `None` if it may give rows.
pub(super) fn empty_answer(select: &Select) -> Option<Relation> {
    if !gives_nothing(select) {
        return None;
    }
    let column = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expression) => Some(Column::new(name_of(expression), SqlType::Text)),
        SelectItem::ExprWithAlias { alias, .. } => Some(Column::new(alias.value.as_str(), SqlType::Text)),
        // The columns of a table are not known here.
        _ => None,
    };
    let columns = select.projection.iter().map(column).collect::<Option<Vec<Column>>>()?;
    Some(Relation { columns, rows: Vec::new() })
}

fn gives_nothing(select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    // Aggregates without groups are a row of nothing.
    let has_aggregate = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
            has_aggregate(expression)
        }
        _ => false,
    });
    (is_grouped || !has_aggregate) && select.from.iter().any(is_empty)
}

/// Returns whether a table, or one that is joined to it so that both must have a row, is always empty.
fn is_empty(table: &TableWithJoins) -> bool {
    let mut is_all_empty = is_empty_factor(&table.relation);
    for join in &table.joins {
        let other = is_empty_factor(&join.relation);
        is_all_empty = match &join.join_operator {
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_) => is_all_empty || other,
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => is_all_empty,
            _ => is_all_empty && other,
        };
    }
    is_all_empty
}

fn is_empty_factor(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { name, args: None, .. } => {
            let parts: Vec<&str> =
                name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.as_str()).collect();
            match parts.as_slice() {
                [table] => table.starts_with("pg_") && crate::catalog::is_empty(table),
                [schema, table] => *schema == "pg_catalog" && crate::catalog::is_empty(table),
                _ => false,
            }
        }
        TableFactor::Derived { subquery, lateral: false, .. } => is_empty_query(subquery),
        TableFactor::NestedJoin { table_with_joins, .. } => is_empty(table_with_joins),
        _ => false,
    }
}

fn is_empty_query(query: &Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => gives_nothing(select),
        SetExpr::Query(query) => is_empty_query(query),
        _ => false,
    }
}

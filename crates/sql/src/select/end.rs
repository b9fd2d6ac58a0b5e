//! QuestDB's `LIMIT -n`: the last rows, in the order of all.

use query::RowLimit;
use sqlparser::ast::{
    Expr, GroupByExpr, LimitClause, OrderByKind, Query, Select, SelectItem, SetExpr, Statement, TableFactor,
    UnaryOperator, Value,
};

use super::{QueryOutput, has_aggregate};
use crate::error::SqlError;
use crate::run::Run;
use crate::scope::TIME;
use crate::syntax::parse::parse;

/// How many of its last rows a query asks for; `None` if it does not.
fn wanted(query: &Query) -> Option<usize> {
    let Some(LimitClause::LimitOffset { limit: Some(limit), offset: None, .. }) = &query.limit_clause else {
        return None;
    };
    let Expr::UnaryOp { op: UnaryOperator::Minus, expr } = limit else { return None };
    match &**expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => text.parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether a SELECT shows rows of one source as they are.
fn is_plain(select: &Select) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let is_shown = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
            !has_aggregate(expression)
        }
        _ => true,
    };
    from.joins.is_empty()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty())
        && select.having.is_none()
        && select.distinct.is_none()
        && select.projection.iter().all(is_shown)
}

impl Run<'_> {
    /// The output of a query that asks for its last rows; `None` for others.
    pub(crate) fn end_of(&mut self, query: &Query) -> Result<Option<QueryOutput>, SqlError> {
        let Some(rows) = wanted(query) else { return Ok(None) };
        if let SetExpr::Select(select) = &*query.body
            && query.order_by.is_none()
            && self.is_of_table(select)?
        {
            return self.newest_rows(select, rows).map(Some);
        }
        let all = Query { limit_clause: None, with: None, ..query.clone() };
        let mut relation = self.query(&all)?;
        relation.rows.drain(..relation.rows.len().saturating_sub(rows));
        Ok(Some(QueryOutput::Relation(relation)))
    }

    fn is_of_table(&mut self, select: &Select) -> Result<bool, SqlError> {
        let relation = select.from.first().map(|from| &from.relation);
        let Some(TableFactor::Table { name, args: None, .. }) = relation.filter(|_| is_plain(select)) else {
            return Ok(false);
        };
        let is_extended = self.parsed.extension(select).is_some();
        let ident = name.0.last().and_then(|part| part.as_ident());
        match ident.filter(|_| !is_extended && name.0.len() == 1) {
            Some(ident) if self.find_query(&ident.value, ident.quote_style.is_some())?.is_some() => Ok(false),
            Some(ident) => Ok(self.table(&ident.value)?.is_some()),
            None => Ok(false),
        }
    }

    /// Reads the newest rows only, and puts them in order.
    fn newest_rows(&mut self, select: &Select, rows: usize) -> Result<QueryOutput, SqlError> {
        let ordered = parse(&format!("SELECT 1 ORDER BY \"{TIME}\" DESC"))?;
        let order = match ordered.statements.first() {
            Some(Statement::Query(query)) => query.order_by.as_ref().map(|order| order.kind.clone()),
            _ => None,
        };
        let order = match order {
            Some(OrderByKind::Expressions(order)) => order,
            _ => Vec::new(),
        };
        let newest = self.select(select, &order, RowLimit { skip: 0, rows: Some(rows) })?;
        let mut relation = newest.relation();
        relation.rows.reverse();
        Ok(QueryOutput::Relation(relation))
    }
}

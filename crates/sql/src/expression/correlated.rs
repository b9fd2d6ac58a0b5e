//! Queries as values that ask for a row of the query around: `(SELECT t.x FROM t WHERE t.k = outer.k)`. They are run once, for all keys, and
//! looked up in each row.

use std::collections::HashMap;
use std::sync::Arc;

use query::{SqlType, Value};
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Query, Select, SelectItem, SetExpr, TableFactor,
};

use super::arrays::array;
use super::build::{apply, negated};
use super::operators::IS_NULL;
use super::{Binder, Bound, Function, Grouped, LookupAnswers, Returns, Typed};
use crate::error::{SqlError, unsupported};

/// A query taken apart: as it is for all keys, and what they are compared with.
struct Split {
    query: Query,
    outer: Vec<Expr>,
}

/// An array without elements where a query found none.
static OR_EMPTY: Function = Function {
    name: "or_empty",
    takes: (1, 1),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Text),
    call: |expression, _| match expression.first() {
        None | Some(Value::Null) => Ok(Value::text("{}")),
        Some(array) => Ok(array.clone()),
    },
};

/// `ARRAY(SELECT … FROM unnest(array))` of an array of the query around, as far as clients' questions need it: those are of arrays that are null.
static EMPTY_OF_EMPTY: Function = Function {
    name: "unnest",
    takes: (1, 1),
    is_strict: false,
    returns: Returns::Fixed(SqlType::Text),
    call: |arguments, _| match arguments.first() {
        None | Some(Value::Null) => Ok(Value::text("{}")),
        Some(_) => unsupported("unnest of a column of the query around"),
    },
};

impl Binder<'_> {
    /// `EXISTS (SELECT …)`
    pub(super) fn exists(
        &mut self,
        query: &Query,
        is_negated: bool,
        grouped: Option<&mut Grouped>,
    ) -> Result<Typed, SqlError> {
        let rows = match self.subqueries.rows(query) {
            Err(SqlError::UnknownColumn(message)) => {
                let found = self.correlated(query, grouped, true)?.ok_or(SqlError::UnknownColumn(message))?;
                let is_missing = apply(&IS_NULL, vec![found])?;
                return Ok(if is_negated { is_missing } else { negated(is_missing) });
            }
            rows => rows?.rows,
        };
        Ok(Typed::constant(Value::Bool(rows.is_empty() == is_negated)))
    }

    /// `ARRAY(SELECT …)`
    pub(super) fn array_of(&mut self, query: &Query, grouped: Option<&mut Grouped>) -> Result<Typed, SqlError> {
        if let Some(array) = unnested(query) {
            let array = self.expression(array, grouped)?;
            return apply(&EMPTY_OF_EMPTY, vec![array]);
        }
        if let Some(found) = self.correlated(query, grouped, true)? {
            return apply(&OR_EMPTY, vec![found]);
        }
        let rows = self.subqueries.rows(query)?.rows;
        let items: Vec<Value> = rows.into_iter().filter_map(|row| row.into_iter().next()).collect();
        Ok(Typed { expression: Bound::Constant(array(&items)), sql_type: SqlType::Text })
    }

    /// The query as something to be looked up, its one value or the array of all; `None` if it is not of that form.
    pub(super) fn correlated(
        &mut self,
        query: &Query,
        mut grouped: Option<&mut Grouped>,
        is_array: bool,
    ) -> Result<Option<Typed>, SqlError> {
        let Some(split) = split(query) else { return Ok(None) };
        let mut keys = Vec::with_capacity(split.outer.len());
        for expression in &split.outer {
            keys.push(self.expression(expression, grouped.as_deref_mut())?.expression);
        }
        let relation = self.subqueries.rows(&split.query)?;
        let sql_type = relation.columns.first().map_or(SqlType::Unknown, |column| column.sql_type);
        let mut lists: HashMap<Vec<Value>, Vec<Value>> = HashMap::new();
        for mut row in relation.rows {
            if row.is_empty() {
                continue;
            }
            let value = row.remove(0);
            // Null is equal to nothing.
            if !row.iter().any(Value::is_null) {
                lists.entry(row).or_default().push(value);
            }
        }
        let answer = |mut values: Vec<Value>| match (is_array, values.len()) {
            (true, _) => Some(array(&values)),
            (false, 1) => values.pop(),
            (false, _) => None,
        };
        let answers: LookupAnswers = lists.into_iter().map(|(keys, values)| (keys, answer(values))).collect();
        Ok(Some(Typed { expression: Bound::Lookup { keys, answers: Arc::new(answers) }, sql_type }))
    }
}

/// The array of `SELECT … FROM unnest(table.column)`.
fn unnested(query: &Query) -> Option<&Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let [table] = select.from.as_slice() else { return None };
    let TableFactor::Table { name, args: Some(arguments), .. } = &table.relation else { return None };
    let is_unnest = name.0.last()?.as_ident()?.value.eq_ignore_ascii_case("unnest");
    match arguments.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(array @ Expr::CompoundIdentifier(_)))] if is_unnest => Some(array),
        _ => None,
    }
}

fn split(query: &Query) -> Option<Split> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.limit_clause.is_none() && select.having.is_none() && select.distinct.is_none();
    let [SelectItem::UnnamedExpr(shown) | SelectItem::ExprWithAlias { expr: shown, .. }] = select.projection.as_slice()
    else {
        return None;
    };
    if !is_plain || crate::select::has_aggregate(shown) {
        return None;
    }
    let tables = names(select);
    let (mut rest, mut inner, mut outer) = (Vec::new(), Vec::new(), Vec::new());
    for condition in conjuncts(select.selection.as_ref()?) {
        let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else {
            rest.push(condition.clone());
            continue;
        };
        match (is_outer(left, &tables), is_outer(right, &tables)) {
            (false, true) => (inner.push((**left).clone()), outer.push((**right).clone())),
            (true, false) => (inner.push((**right).clone()), outer.push((**left).clone())),
            _ => (rest.push(condition.clone()), ()),
        };
    }
    if outer.is_empty() {
        return None;
    }
    let mut select = select.clone();
    select.projection.extend(inner.into_iter().map(SelectItem::UnnamedExpr));
    let and =
        |left: Expr, right| Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::And, right: Box::new(right) };
    select.selection = rest.into_iter().reduce(and);
    Some(Split { query: Query { body: Box::new(SetExpr::Select(select)), ..query.clone() }, outer })
}

/// The names of the tables of a query.
fn names(select: &Select) -> Vec<String> {
    let factors = select
        .from
        .iter()
        .flat_map(|table| std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)));
    let name = |factor: &TableFactor| match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.value.to_lowercase())
        }
        TableFactor::Table { name, .. } => Some(name.0.last()?.as_ident()?.value.to_lowercase()),
        _ => None,
    };
    factors.filter_map(name).collect()
}

/// Returns whether it is a column of a table that the query does not have.
fn is_outer(expression: &Expr, tables: &[String]) -> bool {
    let Expr::CompoundIdentifier(parts) = expression else { return false };
    let table = parts.len().checked_sub(2).and_then(|place| parts.get(place));
    table.is_some_and(|table| !tables.contains(&table.value.to_lowercase()))
}

fn conjuncts(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => [conjuncts(left), conjuncts(right)].concat(),
        Expr::Nested(expression) => conjuncts(expression),
        other => vec![other],
    }
}

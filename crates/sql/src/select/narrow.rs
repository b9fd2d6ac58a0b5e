//! Conditions of a query around a view, as conditions of the view's own query: rows that the query would leave out are not read.

use sqlparser::ast::{BinaryOperator, Expr, FunctionArguments, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr};

use super::has_aggregate;
use super::windows::window_calls;
use crate::syntax::parse::Parsed;

/// The columns that a view shows as they are: their names, and what they are in the view's query.
enum ViewColumns<'a> {
    /// All, by their own names.
    All,
    Some(Vec<(&'a str, &'a Expr)>),
}

/// A view's query with what can be said there of a condition of the query that reads it, which knows the view by a name; `None` if that is
/// nothing. The condition has to be tried on the rows all the same.
pub(crate) fn narrowed_query(
    query: &Query,
    parsed: &Parsed,
    names: &[&str],
    (condition, qualifier): (&Expr, &str),
) -> Option<Query> {
    let mut narrowed = query.clone();
    let mut body = &mut narrowed;
    while let SetExpr::Query(_) = &*body.body {
        if has_ends(body) {
            return None;
        }
        let SetExpr::Query(inner) = &mut *body.body else { return None };
        body = inner;
    }
    if has_ends(body) {
        return None;
    }
    let SetExpr::Select(select) = &mut *body.body else { return None };
    if !shows_rows(select, parsed) {
        return None;
    }
    let shown = view_columns(select, names)?;
    let mut added: Vec<Expr> = Vec::new();
    for conjunct in conjuncts(condition) {
        added.extend(Translation { columns: &shown, qualifier }.translated(conjunct));
    }
    if added.is_empty() {
        return None;
    }
    let nested = |expression: Expr| Expr::Nested(Box::new(expression));
    let own = select.selection.clone().map(nested);
    let both = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    select.selection = own.into_iter().chain(added.into_iter().map(nested)).reduce(both);
    Some(narrowed)
}

/// Returns whether a query's rows depend on how many there are.
fn has_ends(query: &Query) -> bool {
    query.limit_clause.is_some() || query.fetch.is_some()
}

/// Returns whether each row of a SELECT is one that it reads, whatever others there are.
fn shows_rows(select: &Select, parsed: &Parsed) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    let is_aggregate = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => {
            has_aggregate(expression)
        }
        _ => false,
    };
    !is_grouped
        && select.distinct.is_none()
        && select.having.is_none()
        && parsed.extension(select).is_none()
        && !select.projection.iter().any(is_aggregate)
        && window_calls(select).is_empty()
}

fn view_columns<'a>(select: &'a Select, names: &[&'a str]) -> Option<ViewColumns<'a>> {
    if let [SelectItem::Wildcard(_)] = select.projection.as_slice() {
        return names.is_empty().then_some(ViewColumns::All);
    }
    let mut shown = Vec::new();
    for (place, item) in select.projection.iter().enumerate() {
        let (own, expression) = match item {
            SelectItem::UnnamedExpr(expression) => (None, expression),
            SelectItem::ExprWithAlias { expr, alias } => (Some(alias.value.as_str()), expr),
            // It stands for columns that are not known here.
            _ => return None,
        };
        let column = match expression {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        let name = names.get(place).copied().or(own).or_else(|| column.map(|name| name.value.as_str()));
        if let (Some(name), Some(_)) = (name, column) {
            shown.push((name, expression));
        }
    }
    Some(ViewColumns::Some(shown))
}

/// The conditions that must all hold.
fn conjuncts(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => [conjuncts(left), conjuncts(right)].concat(),
        Expr::Nested(inner) => conjuncts(inner),
        other => vec![other],
    }
}

/// Expressions over a view's columns as expressions over those of its query.
struct Translation<'a> {
    columns: &'a ViewColumns<'a>,
    qualifier: &'a str,
}

impl Translation<'_> {
    /// `None` if there is something in it that the view's query may not have, or that is not the same there.
    fn translated(&self, expression: &Expr) -> Option<Expr> {
        let boxed = |expression: &Expr| self.translated(expression).map(Box::new);
        Some(match expression {
            Expr::Identifier(name) => self.column(name)?,
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, name] if table.value.eq_ignore_ascii_case(self.qualifier) => self.column(name)?,
                _ => return None,
            },
            Expr::Value(_) | Expr::TypedString(_) | Expr::Interval(_) => expression.clone(),
            Expr::Nested(inner) => Expr::Nested(boxed(inner)?),
            Expr::BinaryOp { left, op, right } => {
                Expr::BinaryOp { left: boxed(left)?, op: op.clone(), right: boxed(right)? }
            }
            Expr::UnaryOp { op, expr } => Expr::UnaryOp { op: *op, expr: boxed(expr)? },
            Expr::IsNull(of) => Expr::IsNull(boxed(of)?),
            Expr::IsNotNull(of) => Expr::IsNotNull(boxed(of)?),
            Expr::Between { expr, negated, low, high } => {
                Expr::Between { expr: boxed(expr)?, negated: *negated, low: boxed(low)?, high: boxed(high)? }
            }
            Expr::InList { expr, list, negated } => {
                let list = list.iter().map(|item| self.translated(item)).collect::<Option<Vec<_>>>()?;
                Expr::InList { expr: boxed(expr)?, list, negated: *negated }
            }
            Expr::Function(call) => {
                let is_now = call.name.to_string().eq_ignore_ascii_case("now");
                let has_none = matches!(&call.args, FunctionArguments::List(list) if list.args.is_empty());
                if !is_now || !has_none {
                    return None;
                }
                expression.clone()
            }
            _ => return None,
        })
    }

    fn column(&self, name: &Ident) -> Option<Expr> {
        let ViewColumns::Some(columns) = self.columns else { return Some(Expr::Identifier(name.clone())) };
        let exact: Vec<&Expr> = columns.iter().filter(|(shown, _)| *shown == name.value).map(|(_, of)| *of).collect();
        match exact.as_slice() {
            [of] => Some((*of).clone()),
            // Another one may be meant, by a name in other letters or twice.
            _ => None,
        }
    }
}

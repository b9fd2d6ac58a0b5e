//! What a SELECT shows, and what its GROUP BY and ORDER BY mean by a position or an alias.

use query::{SqlType, Value};
use sqlparser::ast::{Expr, GroupByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind};

use super::order::ordinal;
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Bound, Typed, is_aggregate};
use crate::relation::{Column, Relation};
use crate::run::Run;
use crate::scope::{Role, Scope};

/// Something that is shown: its name and what it is computed from.
pub(super) struct Projection<'a> {
    pub(super) name: String,
    pub(super) source: ProjectionSource<'a>,
}

pub(super) enum ProjectionSource<'a> {
    Expression(&'a Expr),
    /// A column of the source, by its index: from `*`.
    Column(usize),
}

/// The projections, `*` replaced by the columns.
pub(super) fn projections<'a>(items: &'a [SelectItem], scope: &Scope) -> Result<Vec<Projection<'a>>, SqlError> {
    let mut all = Vec::new();
    for item in items {
        match item {
            SelectItem::UnnamedExpr(expression) => {
                all.push(Projection { name: name_of(expression), source: ProjectionSource::Expression(expression) });
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                all.push(Projection { name: alias.value.clone(), source: ProjectionSource::Expression(expr) });
            }
            SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => {
                let table = match item {
                    SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                        name.0.last().and_then(|part| part.as_ident()).map(|part| part.value.to_lowercase())
                    }
                    SelectItem::QualifiedWildcard(..) => return unsupported(format!("{item}")),
                    _ => None,
                };
                let is_of_table = |qualifier: &Option<String>| {
                    table
                        .as_ref()
                        .is_none_or(|table| qualifier.as_ref().is_some_and(|found| found.to_lowercase() == *table))
                };
                let columns =
                    scope.star_columns().into_iter().filter_map(|place| Some((place, scope.columns.get(place)?)));
                let columns = columns.filter(|(_, column)| is_of_table(&column.qualifier));
                let before = all.len();
                all.extend(columns.map(|(place, column)| Projection {
                    name: column.name.clone(),
                    source: ProjectionSource::Column(place),
                }));
                if all.len() == before {
                    return invalid(format!("{item} has no columns"));
                }
            }
            SelectItem::ExprWithAliases { .. } => return unsupported("several aliases of one expression"),
        }
    }
    Ok(all)
}

/// Returns whether what is shown is the time of a table's rows, by its own name.
pub(super) fn is_own_time(scope: &Scope, name: &str, shown: &Typed) -> bool {
    let column = shown.expression.column().and_then(|place| scope.columns.get(place));
    column.is_some_and(|column| column.role == Role::Time && column.name == name)
}

/// The name of a column that has none of its own: the column's, or the function's.
pub(super) fn name_of(expression: &Expr) -> String {
    match expression {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.clone()).unwrap_or_default(),
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
            name.unwrap_or_default()
        }
        Expr::Nested(expression) | Expr::Cast { expr: expression, .. } => name_of(expression),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Case { .. } => "case".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// The expressions of GROUP BY: positions and aliases stand for projections.
pub(super) fn group_keys<'a>(select: &'a Select, projected: &[Projection<'a>]) -> Result<Vec<&'a Expr>, SqlError> {
    let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else {
        // GROUP BY ALL
        let plain = projected.iter().filter_map(|projected| match projected.source {
            ProjectionSource::Expression(expression) if !has_aggregate(expression) => Some(expression),
            _ => None,
        });
        return Ok(plain.collect());
    };
    if !modifiers.is_empty() {
        return unsupported("WITH ROLLUP and the like");
    }
    let expression = |place: usize| match projected.get(place).map(|projected| &projected.source) {
        Some(ProjectionSource::Expression(expression)) => Some(*expression),
        _ => None,
    };
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let place = match key {
            Expr::Identifier(name) => projected.iter().position(|projected| {
                let is_alias = !matches!(projected.source, ProjectionSource::Expression(Expr::Identifier(_)));
                is_alias && projected.name.eq_ignore_ascii_case(&name.value)
            }),
            _ => ordinal(key, projected.len())?,
        };
        let is_of_groups = |expression: &&Expr| !has_aggregate(expression);
        found.push(place.and_then(expression).filter(is_of_groups).unwrap_or(key));
    }
    Ok(found)
}

/// The index of the projection that an expression of ORDER BY means, by a position or an alias.
pub(super) fn projected_index(
    expression: &Expr,
    projected: &[(Column, Bound)],
    scope: &Scope,
) -> Result<Option<usize>, SqlError> {
    if let Expr::Identifier(name) = expression {
        let exact = projected.iter().position(|(column, _)| column.name == name.value);
        let loose = || projected.iter().position(|(column, _)| column.name.eq_ignore_ascii_case(&name.value));
        let is_time = || {
            // `ORDER BY time` where the bucket of it is shown by another name.
            scope
                .find(None, name)
                .ok()
                .filter(|place| scope.columns.get(*place).is_some_and(|column| column.role == Role::Time))
        };
        return Ok(exact.or_else(loose).filter(|_| exact.is_some() || is_time().is_none()));
    }
    ordinal(expression, projected.len())
}

/// Returns whether an aggregate is computed in an expression.
pub(crate) fn has_aggregate(expression: &Expr) -> bool {
    match expression {
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
            if name.as_deref().is_some_and(is_aggregate) && call.over.is_none() {
                return true;
            }
            let sqlparser::ast::FunctionArguments::List(list) = &call.args else { return false };
            list.args.iter().any(|argument| match argument {
                sqlparser::ast::FunctionArg::Unnamed(sqlparser::ast::FunctionArgExpr::Expr(expression)) => {
                    has_aggregate(expression)
                }
                _ => false,
            })
        }
        Expr::BinaryOp { left, right, .. } => has_aggregate(left) || has_aggregate(right),
        Expr::UnaryOp { expr, .. }
        | Expr::Nested(expr)
        | Expr::Cast { expr, .. }
        | Expr::IsNull(expr)
        | Expr::IsNotNull(expr)
        | Expr::Extract { expr, .. }
        | Expr::Ceil { expr, .. }
        | Expr::Floor { expr, .. }
        | Expr::AtTimeZone { timestamp: expr, .. }
        | Expr::InList { expr, .. } => has_aggregate(expr),
        Expr::Between { expr, low, high, .. } => {
            [expr, low, high].into_iter().any(|expression| has_aggregate(expression))
        }
        Expr::Case { operand, conditions, else_result, .. } => {
            operand.iter().chain(else_result).any(|expression| has_aggregate(expression))
                || conditions.iter().any(|when| has_aggregate(&when.condition) || has_aggregate(&when.result))
        }
        _ => false,
    }
}

impl Run<'_> {
    /// Rows as a list of items shows them.
    pub(crate) fn projected(
        &mut self,
        items: &[SelectItem],
        scope: &Scope,
        rows: Vec<Vec<Value>>,
    ) -> Result<Relation, SqlError> {
        let mut columns = Vec::with_capacity(items.len());
        for projection in projections(items, scope)? {
            let typed = match projection.source {
                ProjectionSource::Column(place) => of_column(scope, place),
                ProjectionSource::Expression(expression) => self.bind(scope, expression)?,
            };
            columns.push((Column::new(projection.name, typed.sql_type), typed.expression));
        }
        let rows = self.show(rows, &columns)?;
        Ok(Relation { columns: columns.into_iter().map(|(column, _)| column).collect(), rows })
    }
}

pub(super) fn of_column(scope: &Scope, place: usize) -> Typed {
    let sql_type = scope.columns.get(place).map_or(SqlType::Unknown, |column| column.sql_type);
    Typed { expression: Bound::Column(place), sql_type }
}

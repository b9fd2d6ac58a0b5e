//! SELECT: what it reads, which rows stay, how they are grouped, what is shown of them.

mod fill;
mod filter;
mod from;
mod group;
mod join;
mod latest;
mod nothing;
mod pushed;
mod sample;

pub(crate) use filter::lower;
pub(crate) use from::sql_type;

use std::collections::HashSet;

use from::Source;
use query::{ResultRows, RowLimit, Value};
use sqlparser::ast::{Distinct, Expr, GroupByExpr, OrderByExpr, Select, SelectItem, SelectItemQualifiedWildcardKind};

use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Binder, Bound, Grouped, Typed, holds};
use crate::order::{Order, sort};
use crate::parse::Extension;
use crate::relation::{Column, Relation};
use crate::run::{Run, distinct, ordinal};
use crate::scope::{Role, Scope};
use crate::table_rows::{TableRows, put_in_order, values_of};

/// Something that is shown: its name and what it is computed from.
struct Projection<'a> {
    name: String,
    of: ProjectionSource<'a>,
}

enum ProjectionSource<'a> {
    Expression(&'a Expr),
    /// A column of what is read: of `*`.
    Column(usize),
}

/// The clauses of a SELECT after FROM and WHERE.
struct Clauses<'a> {
    projections: Vec<Projection<'a>>,
    /// Of GROUP BY.
    keys: Vec<&'a Expr>,
    order: &'a [OrderByExpr],
    limit: RowLimit,
}

/// Rows as they are read or grouped, and what is shown of them.
pub(crate) struct Selected {
    rows: Rows,
    shown: Vec<(Column, Bound)>,
    order: Vec<Order>,
    /// The expressions of `DISTINCT ON`.
    distinct_on: Vec<Bound>,
}

/// Rows, of which values are made as late as may be.
pub(crate) enum Rows {
    Read(ResultRows),
    Made(Vec<Vec<Value>>),
}

impl Rows {
    pub(crate) fn made(self) -> Vec<Vec<Value>> {
        match self {
            Self::Read(read) => values_of(&read),
            Self::Made(rows) => rows,
        }
    }
}

/// The output of a query.
#[derive(Debug)]
pub(crate) enum QueryOutput {
    /// A table's rows as they were read.
    Table(TableRows),
    Relation(Relation),
}

impl QueryOutput {
    pub(crate) fn relation(self) -> Relation {
        match self {
            Self::Table(table) => table.into_relation(),
            Self::Relation(relation) => relation,
        }
    }
}

impl Run<'_> {
    /// Runs a SELECT; its output is in order and within its limit.
    pub(crate) fn select(
        &mut self,
        select: &Select,
        order: &[OrderByExpr],
        limit: RowLimit,
    ) -> Result<QueryOutput, SqlError> {
        if let Some(nothing) = nothing::of(select) {
            return Ok(QueryOutput::Relation(nothing));
        }
        check_supported(select)?;
        let extension = self.parsed.extension(select).cloned().unwrap_or_default();
        let (source, scope) = self.from(&select.from)?;
        let projections = projections(select, &scope)?;
        let keys = group_keys(select, &projections)?;
        let has_aggregate =
            |of: &Projection<'_>| matches!(of.of, ProjectionSource::Expression(of) if has_aggregate(of));
        let is_grouped = !keys.is_empty()
            || extension.sample.is_some()
            || select.having.is_some()
            || projections.iter().any(has_aggregate);
        let clauses = Clauses { projections, keys, order, limit };
        let selected = if is_grouped {
            self.grouped(select, &extension, source, &scope, &clauses)?
        } else {
            self.ungrouped(select, &extension, source, &scope, &clauses)?
        };
        self.finish(select, selected, limit)
    }

    /// The rows' own values.
    fn ungrouped(
        &mut self,
        select: &Select,
        extension: &Extension,
        source: Source,
        scope: &Scope,
        clauses: &Clauses<'_>,
    ) -> Result<Selected, SqlError> {
        let condition = select.selection.as_ref().map(|of| self.bind(scope, of)).transpose()?;
        let rows = match source {
            Source::Table(table) => match &extension.latest_by {
                Some(by) => self.latest(&table, scope, condition, by)?,
                None => {
                    let wanted = wanted_rows(select, scope, clauses.order, clauses.limit);
                    self.read_table(&table, scope, condition, wanted)?
                }
            },
            Source::Rows(rows) => {
                if extension.latest_by.is_some() {
                    return unsupported("LATEST ON of something else than a table");
                }
                Rows::Made(self.filtered(rows, condition.as_ref())?)
            }
        };
        let mut columns = Vec::with_capacity(clauses.projections.len());
        for shown in &clauses.projections {
            let typed = match shown.of {
                ProjectionSource::Column(place) => of_column(scope, place),
                ProjectionSource::Expression(of) => self.bind(scope, of)?,
            };
            columns.push((Column::new(shown.name.as_str(), typed.sql_type), typed.expression));
        }
        let mut orders = Vec::with_capacity(clauses.order.len());
        for by in clauses.order {
            let of = match shown_place(&by.expr, &columns, scope)? {
                Some(place) => columns.get(place).map_or(Bound::Constant(Value::Null), |(_, of)| of.clone()),
                None => self.bind(scope, &by.expr)?.expression,
            };
            orders.push(Order::new(of, &by.options));
        }
        let distinct_on = match &select.distinct {
            Some(Distinct::On(on)) => {
                on.iter().map(|of| Ok(self.bind(scope, of)?.expression)).collect::<Result<_, SqlError>>()?
            }
            _ => Vec::new(),
        };
        Ok(Selected { rows, shown: columns, order: orders, distinct_on })
    }

    /// Groups' keys and aggregates.
    fn grouped(
        &mut self,
        select: &Select,
        extension: &Extension,
        source: Source,
        scope: &Scope,
        clauses: &Clauses<'_>,
    ) -> Result<Selected, SqlError> {
        let condition = select.selection.as_ref().map(|of| self.bind(scope, of)).transpose()?;
        let mut grouped = Grouped::default();
        let sample = match &extension.sample {
            None => None,
            Some(sample) => Some(sample::start(sample, scope, &mut grouped)?),
        };
        self.keys(&mut grouped, scope, &clauses.keys)?;
        if clauses.keys.is_empty() && (sample.is_some() || self.manner == crate::run::Manner::QuestDb) {
            // What is shown beside aggregates is grouped by.
            let plain = clauses.projections.iter().filter_map(|shown| match shown.of {
                ProjectionSource::Expression(of) if !has_aggregate(of) => Some(of),
                _ => None,
            });
            let plain: Vec<&Expr> = plain.filter(|of| !matches!(of, Expr::Value(_))).collect();
            self.keys(&mut grouped, scope, &plain)?;
        }
        let mut columns = Vec::with_capacity(clauses.projections.len());
        for shown in &clauses.projections {
            let typed = match shown.of {
                ProjectionSource::Column(_) => return invalid("* cannot be shown of groups"),
                ProjectionSource::Expression(of) => self.bind_grouped(scope, of, &mut grouped)?,
            };
            columns.push((Column::new(shown.name.as_str(), typed.sql_type), typed.expression));
        }
        let having = select.having.as_ref().map(|of| self.bind_grouped(scope, of, &mut grouped)).transpose()?;
        let mut orders = Vec::with_capacity(clauses.order.len());
        for by in clauses.order {
            let of = match shown_place(&by.expr, &columns, scope)? {
                Some(place) => columns.get(place).map_or(Bound::Constant(Value::Null), |(_, of)| of.clone()),
                None => self.bind_grouped(scope, &by.expr, &mut grouped)?.expression,
            };
            orders.push(Order::new(of, &by.options));
        }
        let gaps = self.gaps(sample, &grouped, condition.as_ref(), scope)?;
        let is_cut = gaps.is_none() && having.is_none() && select.distinct.is_none();
        let wanted = if is_cut { wanted_groups(&orders, &grouped, clauses.limit) } else { RowsWanted::All };
        let mut rows = self.group(source, scope, condition, &grouped, wanted)?;
        if let Some(gaps) = gaps {
            rows = Rows::Made(self.fill(rows.made(), &gaps, &grouped)?);
        }
        if having.is_some() {
            rows = Rows::Made(self.filtered(rows.made(), having.as_ref())?);
        }
        Ok(Selected { rows, shown: columns, order: orders, distinct_on: Vec::new() })
    }

    fn keys(&mut self, grouped: &mut Grouped, scope: &Scope, keys: &[&Expr]) -> Result<(), SqlError> {
        for of in keys {
            let typed = self.bind(scope, of)?;
            let column = if let Bound::Column(place) = typed.expression { Some(place) } else { None };
            if column.is_some() && grouped.keys.iter().any(|key| key.column == column) {
                continue;
            }
            grouped.keys.push(crate::expression::Key { text: of.to_string(), column, of: typed });
        }
        Ok(())
    }

    fn bind_grouped(&mut self, scope: &Scope, of: &Expr, grouped: &mut Grouped) -> Result<Typed, SqlError> {
        let environment = self.environment.clone();
        let parameters = self.parameters;
        Binder { scope, environment: &environment, parameters, subqueries: self, depth: 0 }.bind_grouped(of, grouped)
    }

    /// The rows for which a condition holds.
    pub(crate) fn filtered(
        &mut self,
        mut rows: Vec<Vec<Value>>,
        condition: Option<&Typed>,
    ) -> Result<Vec<Vec<Value>>, SqlError> {
        let Some(condition) = condition else { return Ok(rows) };
        let mut error = None;
        rows.retain(|row| match holds(&condition.expression, row, &self.environment) {
            Ok(holds) => holds,
            Err(failed) => {
                error.get_or_insert(failed);
                false
            }
        });
        error.map_or(Ok(rows), Err)
    }

    /// Orders, makes distinct, cuts and shows.
    fn finish(&mut self, select: &Select, selected: Selected, limit: RowLimit) -> Result<QueryOutput, SqlError> {
        let Selected { rows, shown, order, distinct_on } = selected;
        let mut rows = match rows {
            Rows::Read(mut read) => {
                let is_in_order = select.distinct.is_none() && put_in_order(&mut read, &order);
                let places = shown.iter().map(|(_, of)| of.column()).collect::<Option<Vec<usize>>>();
                match places.filter(|_| is_in_order) {
                    Some(places) => return self.as_read(read, &shown, &places, limit).map(QueryOutput::Table),
                    None => values_of(&read),
                }
            }
            rows @ Rows::Made(_) => rows.made(),
        };
        if !order.is_empty() {
            rows = sort(rows, &order, &self.environment, &|samples| self.charge(samples))?;
        }
        if !distinct_on.is_empty() {
            let mut seen = HashSet::new();
            let mut kept = Vec::new();
            for row in rows {
                let key: Vec<Value> =
                    distinct_on.iter().map(|of| of.value(&row, &self.environment)).collect::<Result<_, _>>()?;
                let texts = key.iter().map(Value::text_samples).sum();
                if seen.insert(key) {
                    self.charge(texts)?;
                    kept.push(row);
                }
            }
            rows = kept;
        }
        let is_distinct = matches!(select.distinct, Some(Distinct::Distinct));
        if !is_distinct {
            limit.apply(&mut rows);
        }
        let mut rows = self.show(rows, &shown)?;
        if is_distinct {
            distinct(&mut rows);
            limit.apply(&mut rows);
        }
        Ok(QueryOutput::Relation(Relation { columns: shown.into_iter().map(|(column, _)| column).collect(), rows }))
    }

    /// Rows as they were read, of which columns are all that is shown.
    fn as_read(
        &self,
        mut rows: ResultRows,
        shown: &[(Column, Bound)],
        places: &[usize],
        limit: RowLimit,
    ) -> Result<TableRows, SqlError> {
        rows.limit(limit);
        self.charge(places.len().saturating_sub(rows.columns().len()) * rows.order().len())?;
        rows.project(places);
        Ok(TableRows { columns: shown.iter().map(|(column, _)| column.clone()).collect(), rows })
    }

    /// Computes the projections of rows. Columns beyond those that were read, and texts that are made here, are taken out of the budget: a function
    /// makes a long text of a short one for each row.
    fn show(&self, rows: Vec<Vec<Value>>, shown: &[(Column, Bound)]) -> Result<Vec<Vec<Value>>, SqlError> {
        let is_as_read =
            shown.iter().enumerate().all(|(place, (_, of))| matches!(of, Bound::Column(found) if *found == place));
        let is_made = |of: &Bound| !matches!(of, Bound::Column(_) | Bound::Constant(_));
        let made: Vec<usize> = (0..).zip(shown).filter(|(_, (_, of))| is_made(of)).map(|(place, _)| place).collect();
        let show = |mut row: Vec<Value>| {
            if is_as_read {
                row.truncate(shown.len());
                return Ok(row);
            }
            let values = shown.iter().map(|(_, of)| of.value(&row, &self.environment));
            let values = values.collect::<Result<Vec<Value>, SqlError>>()?;
            let texts = made.iter().filter_map(|place| values.get(*place)).map(Value::text_samples).sum::<usize>();
            self.charge(shown.len().saturating_sub(row.len()) + texts)?;
            Ok(values)
        };
        rows.into_iter().map(show).collect()
    }
}

fn check_supported(select: &Select) -> Result<(), SqlError> {
    if select.qualify.is_some() || !select.named_window.is_empty() {
        return unsupported("windows");
    }
    if select.into.is_some() {
        return unsupported("SELECT INTO; INSERT INTO … SELECT writes");
    }
    if select.top.is_some() || !select.lateral_views.is_empty() || !select.cluster_by.is_empty() {
        return unsupported("TOP, LATERAL VIEW and CLUSTER BY");
    }
    Ok(())
}

fn of_column(scope: &Scope, place: usize) -> Typed {
    let sql_type = scope.columns.get(place).map_or(query::SqlType::Unknown, |column| column.sql_type);
    Typed { expression: Bound::Column(place), sql_type }
}

/// The projections, `*` replaced by the columns.
fn projections<'a>(select: &'a Select, scope: &Scope) -> Result<Vec<Projection<'a>>, SqlError> {
    let mut all = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::UnnamedExpr(of) => {
                all.push(Projection { name: name_of(of), of: ProjectionSource::Expression(of) });
            }
            SelectItem::ExprWithAlias { expr, alias } => {
                all.push(Projection { name: alias.value.clone(), of: ProjectionSource::Expression(expr) });
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
                let columns = scope.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden);
                let columns = columns.filter(|(_, column)| is_of_table(&column.qualifier));
                let before = all.len();
                all.extend(columns.map(|(place, column)| Projection {
                    name: column.name.clone(),
                    of: ProjectionSource::Column(place),
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

/// The name of a column that has none of its own: the column's, or the function's.
fn name_of(of: &Expr) -> String {
    match of {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(names) => names.last().map(|name| name.value.clone()).unwrap_or_default(),
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
            name.unwrap_or_default()
        }
        Expr::Nested(of) | Expr::Cast { expr: of, .. } => name_of(of),
        Expr::Extract { .. } => "extract".to_owned(),
        Expr::Case { .. } => "case".to_owned(),
        Expr::Ceil { .. } => "ceil".to_owned(),
        Expr::Floor { .. } => "floor".to_owned(),
        _ => "?column?".to_owned(),
    }
}

/// The expressions of GROUP BY: positions and aliases stand for projections.
fn group_keys<'a>(select: &'a Select, shown: &[Projection<'a>]) -> Result<Vec<&'a Expr>, SqlError> {
    let GroupByExpr::Expressions(keys, modifiers) = &select.group_by else {
        // GROUP BY ALL
        let plain = shown.iter().filter_map(|shown| match shown.of {
            ProjectionSource::Expression(of) if !has_aggregate(of) => Some(of),
            _ => None,
        });
        return Ok(plain.collect());
    };
    if !modifiers.is_empty() {
        return unsupported("WITH ROLLUP and the like");
    }
    let expression = |place: usize| match shown.get(place).map(|shown| &shown.of) {
        Some(ProjectionSource::Expression(of)) => Some(*of),
        _ => None,
    };
    let mut found = Vec::with_capacity(keys.len());
    for key in keys {
        let place = match key {
            Expr::Identifier(name) => shown.iter().position(|shown| {
                let is_alias = !matches!(shown.of, ProjectionSource::Expression(Expr::Identifier(_)));
                is_alias && shown.name.eq_ignore_ascii_case(&name.value)
            }),
            _ => ordinal(key, shown.len())?,
        };
        let is_of_groups = |of: &&Expr| !has_aggregate(of);
        found.push(place.and_then(expression).filter(is_of_groups).unwrap_or(key));
    }
    Ok(found)
}

/// The place among what is shown that an expression of ORDER BY means: a position or an alias.
fn shown_place(of: &Expr, shown: &[(Column, Bound)], scope: &Scope) -> Result<Option<usize>, SqlError> {
    if let Expr::Identifier(name) = of {
        let exact = shown.iter().position(|(column, _)| column.name == name.value);
        let loose = || shown.iter().position(|(column, _)| column.name.eq_ignore_ascii_case(&name.value));
        let is_time = || {
            // `ORDER BY time` where the bucket of it is shown by another name.
            scope
                .find(None, name)
                .ok()
                .filter(|place| scope.columns.get(*place).is_some_and(|column| column.role == Role::Time))
        };
        return Ok(exact.or_else(loose).filter(|_| exact.is_some() || is_time().is_none()));
    }
    ordinal(of, shown.len())
}

/// Returns whether an aggregate is computed in an expression.
pub(crate) fn has_aggregate(of: &Expr) -> bool {
    match of {
        Expr::Function(call) => {
            let name = call.name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.to_lowercase());
            if name.as_deref().is_some_and(crate::expression::is_aggregate) && call.over.is_none() {
                return true;
            }
            let sqlparser::ast::FunctionArguments::List(list) = &call.args else { return false };
            list.args.iter().any(|argument| match argument {
                sqlparser::ast::FunctionArg::Unnamed(sqlparser::ast::FunctionArgExpr::Expr(of)) => has_aggregate(of),
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
        Expr::Between { expr, low, high, .. } => [expr, low, high].into_iter().any(|of| has_aggregate(of)),
        Expr::Case { operand, conditions, else_result, .. } => {
            operand.iter().chain(else_result).any(|of| has_aggregate(of))
                || conditions.iter().any(|when| has_aggregate(&when.condition) || has_aggregate(&when.result))
        }
        _ => false,
    }
}

/// How many of the newest or the oldest rows are enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowsWanted {
    All,
    /// So many, whichever.
    Some(usize),
    /// So many of the newest.
    Newest(usize),
}

/// How many groups are enough where their only key orders them, or nothing does.
fn wanted_groups(order: &[Order], grouped: &Grouped, limit: RowLimit) -> RowsWanted {
    let Some(rows) = limit.needed().filter(|_| grouped.keys.len() == 1) else { return RowsWanted::All };
    match order {
        [] => RowsWanted::Some(rows),
        [by] if matches!(by.of, Bound::Column(0)) && by.is_descending => RowsWanted::Newest(rows),
        [by] if matches!(by.of, Bound::Column(0)) => RowsWanted::Some(rows),
        _ => RowsWanted::All,
    }
}

fn wanted_rows(select: &Select, scope: &Scope, order: &[OrderByExpr], limit: RowLimit) -> RowsWanted {
    let Some(rows) = limit.needed().filter(|_| select.distinct.is_none()) else { return RowsWanted::All };
    let is_alias = |name: &str| {
        let alias = |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { alias, .. } if alias.value.eq_ignore_ascii_case(name));
        select.projection.iter().any(alias)
    };
    match order {
        [] => RowsWanted::Some(rows),
        [by] => {
            let place = match &by.expr {
                Expr::Identifier(name) if !is_alias(&name.value) => scope.find(None, name).ok(),
                _ => None,
            };
            let is_time = place.is_some_and(|place| crate::expression::is_time(scope, place));
            let is_descending = Order::new(Bound::Constant(Value::Null), &by.options).is_descending;
            match (is_time, is_descending) {
                (true, true) => RowsWanted::Newest(rows),
                (true, false) => RowsWanted::Some(rows),
                _ => RowsWanted::All,
            }
        }
        _ => RowsWanted::All,
    }
}

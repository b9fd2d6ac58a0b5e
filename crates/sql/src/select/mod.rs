//! SELECT: reads, filters, groups, orders and projects rows.

mod bin_runs;
mod computed;
mod end;
mod fill;
mod filter;
mod folds;
mod from;
mod group;
mod join;
mod latest;
mod narrow;
mod nothing;
pub(crate) mod order;
mod own_rows;
mod plan_aggregates;
mod projections;
mod pushed;
mod sample;
pub(crate) mod table_rows;
pub(crate) mod type_tree;
mod view;
mod view_source;
mod view_table;
pub(crate) mod windows;

pub(crate) use filter::lower;
pub(crate) use from::{sql_type, table_scope};
pub(crate) use narrow::narrowed_query;
pub(crate) use projections::has_aggregate;

use std::collections::HashSet;

use from::Source;
use projections::{Projection, ProjectionSource, group_keys, is_own_time, of_column, projected_index, projections};
use query::{ResultRows, RowLimit, Value};
use sqlparser::ast::{Distinct, Expr, OrderByExpr, Select, SelectItem};

use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Bound, Grouped, Typed, holds};
use crate::relation::{Column, Relation};
use crate::run::{Run, distinct};
use crate::scope::{Role, Scope};
use crate::select::order::{Order, sort};
use crate::select::table_rows::{TableRows, put_in_order, values_of};
use crate::syntax::parse::Extension;

/// The tags that a SELECT DISTINCT shows, if it shows nothing else and is in no other order.
fn distinct_tags<'a>(
    select: &Select,
    scope: &Scope,
    projections: &[Projection<'a>],
    order: &[OrderByExpr],
) -> Option<Vec<&'a Expr>> {
    if !matches!(select.distinct, Some(Distinct::Distinct)) {
        return None;
    }
    let tag = |projection: &Projection<'a>| match projection.source {
        ProjectionSource::Expression(expression @ Expr::Identifier(name)) => {
            let column = scope.columns.get(scope.find(None, name).ok()?)?;
            (column.role == Role::Tag).then_some(expression)
        }
        _ => None,
    };
    let tags = projections.iter().map(tag).collect::<Option<Vec<&Expr>>>()?;
    order.iter().all(|by| tags.contains(&&by.expr)).then_some(tags)
}

/// The clauses of a SELECT after FROM and WHERE.
struct Clauses<'a> {
    projections: Vec<Projection<'a>>,
    /// Of GROUP BY.
    keys: Vec<&'a Expr>,
    order: &'a [OrderByExpr],
    limit: RowLimit,
}

/// Rows as they are read or grouped, and their projection.
pub(crate) struct Selected {
    rows: Rows,
    projected: Vec<(Column, Bound)>,
    order: Vec<Order>,
    /// The expressions of `DISTINCT ON`.
    distinct_on: Vec<Bound>,
}

/// Rows; those that were read become values as late as possible.
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
        if let Some(nothing) = nothing::empty_answer(select) {
            return Ok(QueryOutput::Relation(nothing));
        }
        check_supported(select)?;
        let extension = self.parsed.extension(select).cloned().unwrap_or_default();
        let (source, scope) = self.read_from(select)?;
        let projections = projections(&select.projection, &scope)?;
        let mut keys = group_keys(select, &projections)?;
        if keys.is_empty() && extension.latest_by.is_none() && matches!(source, Source::Table(_)) {
            // Groups of tags come from the index and from summaries, whatever rows there are.
            keys = distinct_tags(select, &scope, &projections, order).unwrap_or_default();
        }
        let has_aggregate = |projection: &Projection<'_>| matches!(projection.source, ProjectionSource::Expression(expression) if has_aggregate(expression));
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

    /// Records that rows which stand for folded ones are taken for themselves.
    fn note_folds(&self, rows: &Rows) -> Result<(), SqlError> {
        if matches!(rows, Rows::Read(read) if read.has_folds()) {
            self.session.budget().note_folded()?;
        }
        Ok(())
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
        let condition = select.selection.as_ref().map(|expression| self.bind(scope, expression)).transpose()?;
        let windows = windows::window_calls(select);
        let mut rows = match source {
            Source::Table(table) => match &extension.latest_by {
                Some(by) => self.latest(&table, scope, condition, by)?,
                None => {
                    let mut wanted = wanted_rows(select, scope, clauses.order, clauses.limit);
                    if !windows.is_empty() {
                        wanted = RowsWanted::All;
                    }
                    self.read_table(&table, scope, condition, wanted)?
                }
            },
            Source::Rows(_) | Source::Changed(_) => {
                let rows = match source {
                    Source::Changed(table) => self.rows_with_pending(&table.schema, condition.as_ref())?,
                    other => self.rows_of(other, scope)?,
                };
                let rows = self.filtered(rows, condition.as_ref())?;
                Rows::Made(match &extension.latest_by {
                    Some(by) => self.latest_of_rows(rows, scope, by)?,
                    None => rows,
                })
            }
        };
        self.note_folds(&rows)?;
        let mut with_windows;
        let mut scope = scope;
        if !windows.is_empty() {
            with_windows = scope.clone();
            rows = Rows::Made(self.windows(&windows, rows.made(), &mut with_windows)?);
            scope = &with_windows;
        }
        let mut columns = Vec::with_capacity(clauses.projections.len());
        for projected in &clauses.projections {
            let typed = match projected.source {
                ProjectionSource::Column(place) => of_column(scope, place),
                ProjectionSource::Expression(expression) => self.bind(scope, expression)?,
            };
            let is_time = is_own_time(scope, &projected.name, &typed);
            let column = Column { is_time, ..Column::new(projected.name.as_str(), typed.sql_type) };
            columns.push((column, typed.expression));
        }
        let mut orders = Vec::with_capacity(clauses.order.len());
        for by in clauses.order {
            let key = match projected_index(&by.expr, &columns, scope)? {
                Some(place) => {
                    columns.get(place).map_or(Bound::Constant(Value::Null), |(_, expression)| expression.clone())
                }
                None => self.bind(scope, &by.expr)?.expression,
            };
            orders.push(Order::new(key, &by.options));
        }
        let distinct_on = match &select.distinct {
            Some(Distinct::On(on)) => on
                .iter()
                .map(|expression| Ok(self.bind(scope, expression)?.expression))
                .collect::<Result<_, SqlError>>()?,
            _ => Vec::new(),
        };
        Ok(Selected { rows, projected: columns, order: orders, distinct_on })
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
        let selection = sample::selection(select, extension.sample.as_ref());
        let condition = selection.as_ref().map(|expression| self.bind(scope, expression)).transpose()?;
        let mut grouped = Grouped::default();
        let sample = match &extension.sample {
            None => None,
            Some(sample) => {
                let first_ns = self.first_time(select, sample)?;
                Some(sample::start(sample, scope, first_ns, &mut grouped)?)
            }
        };
        self.keys(&mut grouped, scope, &clauses.keys)?;
        if clauses.keys.is_empty() && (sample.is_some() || self.manner == crate::context::Manner::QuestDb) {
            // What is shown beside aggregates is grouped by.
            let plain = clauses.projections.iter().filter_map(|projected| match projected.source {
                ProjectionSource::Expression(expression) if !has_aggregate(expression) => Some(expression),
                _ => None,
            });
            let plain: Vec<&Expr> = plain.filter(|expression| !matches!(expression, Expr::Value(_))).collect();
            self.keys(&mut grouped, scope, &plain)?;
        }
        let mut columns = Vec::with_capacity(clauses.projections.len());
        for projected in &clauses.projections {
            let typed = match projected.source {
                ProjectionSource::Column(_) => return invalid("* cannot be shown of groups"),
                ProjectionSource::Expression(expression) => self.bind_grouped(scope, expression, &mut grouped)?,
            };
            columns.push((Column::new(projected.name.as_str(), typed.sql_type), typed.expression));
        }
        let having =
            select.having.as_ref().map(|expression| self.bind_grouped(scope, expression, &mut grouped)).transpose()?;
        let mut orders = Vec::with_capacity(clauses.order.len());
        for by in clauses.order {
            let key = match projected_index(&by.expr, &columns, scope)? {
                Some(place) => {
                    columns.get(place).map_or(Bound::Constant(Value::Null), |(_, expression)| expression.clone())
                }
                None => self.bind_grouped(scope, &by.expr, &mut grouped)?.expression,
            };
            orders.push(Order::new(key, &by.options));
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
        Ok(Selected { rows, projected: columns, order: orders, distinct_on: Vec::new() })
    }

    fn keys(&mut self, grouped: &mut Grouped, scope: &Scope, keys: &[&Expr]) -> Result<(), SqlError> {
        for expression in keys {
            let typed = self.bind(scope, expression)?;
            let column = if let Bound::Column(place) = typed.expression { Some(place) } else { None };
            if column.is_some() && grouped.keys.iter().any(|key| key.column == column) {
                continue;
            }
            grouped.keys.push(crate::expression::Key { text: expression.to_string(), column, typed });
        }
        Ok(())
    }

    fn bind_grouped(&mut self, scope: &Scope, expression: &Expr, grouped: &mut Grouped) -> Result<Typed, SqlError> {
        self.binding(scope, |binder| binder.bind_grouped(expression, grouped))
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
        let Selected { rows, projected, order, distinct_on } = selected;
        let mut rows = match rows {
            Rows::Read(mut read) => {
                let is_in_order = select.distinct.is_none() && put_in_order(&mut read, &order);
                let places =
                    projected.iter().map(|(_, expression)| expression.column()).collect::<Option<Vec<usize>>>();
                match places.filter(|_| is_in_order) {
                    Some(places) => return self.as_read(read, &projected, &places, limit).map(QueryOutput::Table),
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
                let key: Vec<Value> = distinct_on
                    .iter()
                    .map(|expression| expression.value(&row, &self.environment))
                    .collect::<Result<_, _>>()?;
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
        let mut rows = self.show(rows, &projected)?;
        if is_distinct {
            distinct(&mut rows);
            limit.apply(&mut rows);
        }
        Ok(QueryOutput::Relation(Relation { columns: projected.into_iter().map(|(column, _)| column).collect(), rows }))
    }

    /// Rows as they were read, where the projection is only columns.
    fn as_read(
        &self,
        mut rows: ResultRows,
        projected: &[(Column, Bound)],
        places: &[usize],
        limit: RowLimit,
    ) -> Result<TableRows, SqlError> {
        rows.limit(limit);
        self.charge(places.len().saturating_sub(rows.columns().len()) * rows.order().len())?;
        rows.project(places);
        Ok(TableRows { columns: projected.iter().map(|(column, _)| column.clone()).collect(), rows })
    }

    /// Computes the projections of rows. Columns beyond those that were read, and texts that are made here, are taken out of the budget: a function
    /// makes a long text of a short one for each row.
    fn show(&self, rows: Vec<Vec<Value>>, projected: &[(Column, Bound)]) -> Result<Vec<Vec<Value>>, SqlError> {
        let is_as_read = projected
            .iter()
            .enumerate()
            .all(|(place, (_, expression))| matches!(expression, Bound::Column(found) if *found == place));
        let is_made = |expression: &Bound| !matches!(expression, Bound::Column(_) | Bound::Constant(_));
        let made: Vec<usize> =
            (0..).zip(projected).filter(|(_, (_, expression))| is_made(expression)).map(|(place, _)| place).collect();
        let show = |mut row: Vec<Value>| {
            if is_as_read {
                row.truncate(projected.len());
                return Ok(row);
            }
            let values = projected.iter().map(|(_, expression)| expression.value(&row, &self.environment));
            let values = values.collect::<Result<Vec<Value>, SqlError>>()?;
            let texts = made.iter().filter_map(|place| values.get(*place)).map(Value::text_samples).sum::<usize>();
            self.charge(projected.len().saturating_sub(row.len()) + texts)?;
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
        [by] if matches!(by.key, Bound::Column(0)) && by.is_descending => RowsWanted::Newest(rows),
        [by] if matches!(by.key, Bound::Column(0)) => RowsWanted::Some(rows),
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

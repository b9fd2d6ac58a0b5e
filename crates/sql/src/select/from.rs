//! FROM: tables, queries, and joins of them.

use std::sync::Arc;

use model::ValueType;
use query::plan::{Plan, Scan};
use query::views::StoredQuery;
use query::{Frame, ResultRows, SqlType, TableSchema, Value};
use sqlparser::ast::{JoinConstraint, JoinOperator, ObjectName, Select, TableAlias, TableFactor, TableWithJoins};

use super::filter::lower;
use super::{Rows, RowsWanted};
use crate::catalog::{declared_place, time_name_in};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Bound, Typed, call_by_name};
use crate::run::{Run, scope_of};
use crate::scope::{Role, Scope, ScopeColumn};
use crate::select::table_rows::{shape_of, values_of, width_of};
use crate::statement::likeness;

/// The hidden column that says which series a table's row is of.
const SERIES: &str = "#series";

/// Where rows come from.
pub(crate) enum Source {
    /// A table alone, not read yet.
    Table(Table),
    /// A table alone to which the transaction has made changes, not read yet.
    Changed(Table),
    Rows(Vec<Vec<Value>>),
}

/// A table of the database.
pub(crate) struct Table {
    pub(crate) schema: TableSchema,
}

impl Table {
    pub(crate) fn scan(&self) -> Scan {
        Scan::of_table(&self.schema.name)
    }
}

impl Run<'_> {
    pub(crate) fn from(&mut self, from: &[TableWithJoins]) -> Result<(Source, Scope), SqlError> {
        let mut tables = from.iter();
        let Some(first) = tables.next() else {
            return Ok((Source::Rows(vec![Vec::new()]), Scope::default()));
        };
        let (mut source, mut scope) = self.joined(first)?;
        for table in tables {
            let left = (self.rows_of(source, &scope)?, scope);
            let (right, right_scope) = self.joined(table)?;
            let right = (self.rows_of(right, &right_scope)?, right_scope);
            (source, scope) = self.join(left, right, &JoinOperator::CrossJoin(JoinConstraint::None), None)?;
        }
        Ok((source, scope))
    }

    /// What a SELECT reads: of a view of plain SQL not the rows that the SELECT's condition leaves out, as far as the view's query can have it.
    pub(super) fn read_from(&mut self, select: &Select) -> Result<(Source, Scope), SqlError> {
        if let ([TableWithJoins { relation, joins }], Some(condition)) = (select.from.as_slice(), &select.selection)
            && let TableFactor::Table { name, alias, args: None, .. } = relation
            && joins.is_empty()
            && alias.as_ref().is_none_or(|alias| alias.columns.is_empty())
            && let [part] = name.0.as_slice()
            && let Some(ident) = part.as_ident()
            // The catalog's tables come before views.
            && !StoredQuery::is_catalog_name(&ident.value)
            && !self.ctes.iter().any(|(name, _)| name.eq_ignore_ascii_case(&ident.value))
            && let Some(view) = self.find_query(&ident.value, ident.quote_style.is_some())?
        {
            let qualifier = alias.as_ref().map_or(ident.value.as_str(), |alias| alias.name.value.as_str());
            let relation = self.query_rows(&view, Some((condition, qualifier)))?;
            let scope = scope_of(&relation, Some(qualifier));
            return Ok((Source::Rows(relation.rows), scope));
        }
        self.from(&select.from)
    }

    fn joined(&mut self, table: &TableWithJoins) -> Result<(Source, Scope), SqlError> {
        let (mut source, mut scope) = self.factor(&table.relation)?;
        for join in &table.joins {
            let left = (self.rows_of(source, &scope)?, scope);
            let (right, right_scope) = self.factor(&join.relation)?;
            let right = (self.rows_of(right, &right_scope)?, right_scope);
            let tolerance = self.parsed.tolerance(&join.relation);
            (source, scope) = self.join(left, right, &join.join_operator, tolerance)?;
        }
        Ok((source, scope))
    }

    pub(super) fn factor(&mut self, factor: &TableFactor) -> Result<(Source, Scope), SqlError> {
        match factor {
            TableFactor::Table { name, alias, args: None, .. } => self.named(name, alias.as_ref()),
            TableFactor::Table { name, alias, args: Some(args), .. } => {
                self.table_function(name, &args.args, alias.as_ref())
            }
            TableFactor::Derived { subquery, alias, lateral: false, .. } => {
                let mut relation = self.query(subquery)?;
                rename(alias.as_ref(), relation.columns.iter_mut().map(|column| &mut column.name));
                let scope = scope_of(&relation, alias.as_ref().map(|alias| alias.name.value.as_str()));
                Ok((Source::Rows(relation.rows), scope))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.joined(table_with_joins),
            _ => unsupported(format!("{factor} in FROM")),
        }
    }

    /// A query's part by name, a table of the catalog, or one of the database.
    fn named(&mut self, name: &ObjectName, alias: Option<&TableAlias>) -> Result<(Source, Scope), SqlError> {
        let parts: Vec<&str> =
            name.0.iter().filter_map(|part| part.as_ident()).map(|part| part.value.as_str()).collect();
        let Some((table, schema)) = parts.split_last() else { return invalid(format!("{name} is no table")) };
        let qualifier = alias.map_or(*table, |alias| alias.name.value.as_str());
        if schema.is_empty()
            && let Some((_, relation)) = self.ctes.iter().rev().find(|(name, _)| name.eq_ignore_ascii_case(table))
        {
            let relation: Arc<_> = relation.clone();
            return Ok((Source::Rows(relation.rows.clone()), scope_of(&relation, Some(qualifier))));
        }
        if let Some(mut relation) = self.catalog_table(schema.last().copied(), table)? {
            rename(alias, relation.columns.iter_mut().map(|column| &mut column.name));
            let scope = scope_of(&relation, Some(qualifier));
            return Ok((Source::Rows(relation.rows), scope));
        }
        self.check_schema(name)?;
        let quoted = name.0.last().and_then(|part| part.as_ident()).is_some_and(|part| part.quote_style.is_some());
        if let Some(view) = self.find_query(table, quoted)? {
            let mut relation = self.query_rows(&view, None)?;
            rename(alias, relation.columns.iter_mut().map(|column| &mut column.name));
            let scope = scope_of(&relation, Some(qualifier));
            return Ok((Source::Rows(relation.rows), scope));
        }
        let schema = self.schema(table, quoted)?;
        self.check_views_of_own_rows(&schema.name)?;
        let mut scope = self.scope(&schema, qualifier);
        let is_changed = self.has_pending_rows(&schema.name);
        let table = Table { schema };
        let mut source = if is_changed { Source::Changed(table) } else { Source::Table(table) };
        let is_renamed = |alias: &TableAlias| {
            scope.columns.iter().zip(&alias.columns).any(|(column, alias)| column.name != alias.name.value)
        };
        if alias.is_some_and(is_renamed) {
            // Plans know columns by the names that their table has.
            source = Source::Rows(self.rows_of(source, &scope)?);
            rename(alias, scope.columns.iter_mut().map(|column| &mut column.name));
        }
        Ok((source, scope))
    }

    /// The columns of a table, found as it is written or without regard to case.
    pub(crate) fn schema(&mut self, table: &str, quoted: bool) -> Result<TableSchema, SqlError> {
        if let Some(schema) = self.table(table)? {
            return Ok(schema);
        }
        let known = self.tables()?;
        let same = known.iter().find(|known| !quoted && known.eq_ignore_ascii_case(table));
        let schema = same.map(|same| self.table(same)).transpose()?.flatten();
        schema.ok_or_else(|| {
            SqlError::UnknownTable(format!("table \"{table}\" does not exist: SHOW TABLES lists those that do"))
        })
    }

    pub(crate) fn scope(&self, schema: &TableSchema, qualifier: &str) -> Scope {
        let time_name = self.time_name_of(&schema.name).unwrap_or_else(|_| self.time_name().to_owned());
        let mut scope = table_scope(schema, &time_name, qualifier);
        scope.columns.push(ScopeColumn {
            qualifier: Some(qualifier.to_owned()),
            name: SERIES.to_owned(),
            sql_type: SqlType::Int,
            role: Role::Other,
            is_hidden: true,
            shown_at: 0,
            needs_table: false,
        });
        scope
    }

    pub(super) fn rows_of(&mut self, source: Source, scope: &Scope) -> Result<Vec<Vec<Value>>, SqlError> {
        match source {
            Source::Rows(rows) => Ok(rows),
            Source::Changed(table) => self.rows_with_pending(&table.schema, None),
            Source::Table(table) => {
                let rows = self.read_table(&table, scope, None, RowsWanted::All)?;
                self.note_folds(&rows)?;
                Ok(rows.made())
            }
        }
    }

    /// A table's rows for which a condition holds, in order of time.
    pub(crate) fn read_table(
        &mut self,
        table: &Table,
        scope: &Scope,
        condition: Option<Typed>,
        wanted: RowsWanted,
    ) -> Result<Rows, SqlError> {
        let mut scan = table.scan();
        let filter = condition.map(|condition| lower(condition.expression, &mut scan, scope)).unwrap_or_default();
        let is_all = filter.rest.is_empty();
        let plan = match wanted {
            RowsWanted::Some(rows) if is_all => Plan::Limit { input: Box::new(filter.plan(scan)), rows, skip: 0 },
            RowsWanted::Newest(rows) if is_all => Plan::Last { input: Box::new(filter.plan(scan)), rows },
            _ => filter.plan(scan),
        };
        let frames = self.plan(plan)?;
        self.rows_of_frames(frames, &table.schema, filter.rest)
    }

    /// Rows of frames: time, tags, fields, and which series they are of; those for which conditions hold.
    pub(crate) fn rows_of_frames(
        &mut self,
        frames: Vec<Frame>,
        schema: &TableSchema,
        conditions: Vec<Bound>,
    ) -> Result<Rows, SqlError> {
        let rows: usize = frames.iter().map(Frame::rows).sum();
        self.charge(rows * width_of(schema))?;
        let read = ResultRows::new(frames, shape_of(schema)).in_time_order();
        if conditions.is_empty() {
            return Ok(Rows::Read(read));
        }
        if read.has_folds() {
            self.session.budget().note_folded()?;
        }
        let mut rows = values_of(&read);
        for condition in conditions {
            rows = self.filtered(rows, Some(&Typed { expression: condition, sql_type: SqlType::Bool }))?;
        }
        Ok(Rows::Made(rows))
    }

    /// `generate_series(from, to, step)` and `long_sequence(n)`.
    fn table_function(
        &mut self,
        name: &ObjectName,
        arguments: &[sqlparser::ast::FunctionArg],
        alias: Option<&TableAlias>,
    ) -> Result<(Source, Scope), SqlError> {
        let called = name.to_string().to_lowercase();
        if likeness::is_likeness(&called) {
            let relation = self.likeness(&called, arguments)?;
            let scope = scope_of(&relation, Some(alias.map_or(called.as_str(), |alias| alias.name.value.as_str())));
            return Ok((Source::Rows(relation.rows), scope));
        }
        let mut values = Vec::new();
        for argument in arguments {
            let sqlparser::ast::FunctionArg::Unnamed(sqlparser::ast::FunctionArgExpr::Expr(expression)) = argument
            else {
                return unsupported(format!("{name}({argument})"));
            };
            values.push(self.constant(expression)?);
        }
        let called = called.strip_prefix("pg_catalog.").unwrap_or(&called);
        if called == "pg_get_keywords" {
            let columns = ["word", "catcode", "catdesc"];
            let relation = crate::relation::Relation::of_texts(&columns, []);
            return Ok((Source::Rows(Vec::new()), scope_of(&relation, Some(called))));
        }
        if let Some(relation) = self.table_list(called, &values)? {
            let scope = scope_of(&relation, Some(alias.map_or(called, |alias| alias.name.value.as_str())));
            return Ok((Source::Rows(relation.rows), scope));
        }
        let rows = match (called, values.as_slice()) {
            ("generate_series", [from, to]) => self.series(from, to, &Value::Int(1))?,
            ("generate_series", [from, to, step]) => self.series(from, to, step)?,
            ("long_sequence", [count]) => self.series(&Value::Int(1), count, &Value::Int(1))?,
            // Any function of values is a table of one row.
            (name, values) => match call_by_name(name, values, &self.environment) {
                Some(value) => vec![value?],
                None => return Err(SqlError::UnknownFunction(format!("function {name} does not exist"))),
            },
        };
        let sql_type = rows.first().map_or(SqlType::Int, Value::sql_type);
        let qualifier = alias.map_or(called, |alias| alias.name.value.as_str());
        let column = crate::relation::Column::new(qualifier, sql_type);
        let mut relation = crate::relation::Relation {
            columns: vec![column],
            rows: rows.into_iter().map(|value| vec![value]).collect(),
        };
        rename(alias, relation.columns.iter_mut().map(|column| &mut column.name));
        let scope = scope_of(&relation, Some(qualifier));
        Ok((Source::Rows(relation.rows), scope))
    }

    fn series(&mut self, from: &Value, to: &Value, step: &Value) -> Result<Vec<Value>, SqlError> {
        const VALUES_MAX: usize = 10_000_000;
        let zero = match step {
            Value::Interval(_) => Value::Interval(query::Interval::default()),
            _ => Value::Int(0),
        };
        let Some(direction) = step.compare(&zero).filter(|order| order.is_ne()) else {
            return invalid("the step of generate_series is not zero");
        };
        let mut values = Vec::new();
        let mut next = match (from, step) {
            (Value::Text(_), Value::Interval(_)) => {
                crate::expression::cast(from.clone(), SqlType::Timestamp, &self.environment)?
            }
            _ => from.clone(),
        };
        while next.compare(to).is_some_and(|order| order.is_eq() || order == direction.reverse()) {
            if values.len() >= VALUES_MAX {
                return invalid(format!("generate_series makes at most {VALUES_MAX} values"));
            }
            let after = crate::expression::sum(&next, step, &self.environment)?;
            values.push(std::mem::replace(&mut next, after));
            if values.len() % 4096 == 0 {
                self.charge(4096)?;
            }
        }
        Ok(values)
    }
}

fn rename<'a>(alias: Option<&TableAlias>, names: impl Iterator<Item = &'a mut String>) {
    if let Some(alias) = alias {
        names.zip(&alias.columns).for_each(|(name, alias)| name.clone_from(&alias.name.value));
    }
}

pub(crate) const fn sql_type(value_type: ValueType) -> SqlType {
    match value_type {
        ValueType::F64 => SqlType::Float,
        ValueType::I64 | ValueType::U64 => SqlType::Int,
        ValueType::Bool => SqlType::Bool,
        ValueType::String | ValueType::Histogram => SqlType::Text,
    }
}

/// The columns of a table's rows: time, tags, fields.
pub(crate) fn table_scope(schema: &TableSchema, time_name: &str, qualifier: &str) -> Scope {
    let column = |name: &str, sql_type, role| ScopeColumn {
        qualifier: Some(qualifier.to_owned()),
        name: name.to_owned(),
        sql_type,
        role,
        is_hidden: false,
        shown_at: 0,
        needs_table: false,
    };
    let mut columns = vec![column(time_name_in(schema, time_name), SqlType::Timestamp, Role::Time)];
    columns.extend(schema.tags.iter().map(|tag| column(tag, SqlType::Text, Role::Tag)));
    columns.extend(schema.fields.iter().map(|(name, value_type)| column(name, sql_type(*value_type), Role::Field)));
    let place = declared_place(schema);
    columns.iter_mut().for_each(|column| column.shown_at = place(&column.name, column.role == Role::Time));
    Scope { columns }
}

//! The run of a statement, and queries as wholes: CTEs, set operations, order and limit of what they give.

use std::collections::HashMap;
use std::sync::Arc;

use query::plan::{Plan, Scan};
use query::{Frame, LastRows, QueryError, RowLimit, Session, SqlType, TableSchema, Value};
use sqlparser::ast::{
    Expr, Fetch, LimitClause, OrderBy, OrderByExpr, OrderByKind, Query, SetExpr, SetOperator, SetQuantifier, Statement,
    Table, Values,
};

use crate::context::{ClientContext, Manner};
use crate::error::{SqlError, invalid, unsupported};
use crate::expression::{Binder, Environment, LookupAnswers, ParameterType, Subqueries, Typed, cast, parameter_index};
use crate::relation::{Column, Relation};
use crate::scope::{Role, Scope, ScopeColumn};
use crate::select::QueryOutput;
use crate::select::order::{Order, ordinal, sort};
use crate::syntax::parse::Parsed;

/// Queries within queries.
const DEPTH_MAX: usize = 32;

/// The run of a statement.
pub(crate) struct Run<'a> {
    pub(crate) session: &'a dyn Session,
    pub(crate) parsed: &'a Parsed,
    pub(crate) environment: Arc<Environment>,
    pub(crate) client: &'a ClientContext,
    pub(crate) parameters: &'a [Value],
    /// The types of parameters by their use, if they are wanted.
    pub(crate) parameter_types: Vec<Option<ParameterType>>,
    pub(crate) manner: Manner,
    /// True if only the answer's columns are wanted: nothing is read.
    pub(crate) describes: bool,
    /// Plans that were run, or would be.
    pub(crate) plans: Vec<Plan>,
    pub(crate) ctes: Vec<(String, Arc<Relation>)>,
    pub(crate) depth: usize,
    /// The views of plain SQL whose queries this is within, the outermost first.
    pub(crate) views: Vec<String>,
    /// Operators and levels of parentheses of the statement and of these views.
    pub(crate) operators: usize,
    /// How often views of plain SQL were expanded for the statement so far, at any depth.
    pub(crate) expansions: usize,
    /// Bytes of the statements of these views, each as often as it was expanded.
    pub(crate) expanded_bytes: usize,
    /// True if the statement's sender may not see how views are made, as it is known once one is expanded.
    pub(crate) hides_views: bool,
}

impl Subqueries for Run<'_> {
    fn rows(&mut self, query: &Query) -> Result<Relation, SqlError> {
        self.query(query)
    }

    fn is_described(&self) -> bool {
        self.describes
    }

    /// The first use that says a type counts.
    fn note_parameter(&mut self, index: usize, kind: ParameterType) {
        if kind.sql_type != SqlType::Unknown
            && let Some(noted) = self.parameter_types.get_mut(index)
        {
            noted.get_or_insert(kind);
        }
    }

    fn table_number(&mut self, table: &str) -> Result<i64, SqlError> {
        self.numbered_table(table)
    }

    fn table_names(&mut self) -> Result<LookupAnswers, SqlError> {
        self.named_tables()
    }
}

impl Run<'_> {
    /// Binds expressions to the columns of a scope.
    pub(crate) fn binding<T>(&mut self, scope: &Scope, bind: impl FnOnce(&mut Binder<'_>) -> T) -> T {
        let (environment, parameters) = (self.environment.clone(), self.parameters);
        bind(&mut Binder { scope, environment: &environment, parameters, subqueries: self, depth: 0, copies: 1 })
    }

    pub(crate) fn bind(&mut self, scope: &Scope, expression: &Expr) -> Result<Typed, SqlError> {
        self.binding(scope, |binder| binder.bind(expression))
    }

    pub(crate) fn constant(&mut self, expression: &Expr) -> Result<Value, SqlError> {
        self.binding(&Scope::default(), |binder| binder.constant(expression))
    }

    /// Runs a plan, unless only columns are wanted.
    pub(crate) fn plan(&mut self, plan: Plan) -> Result<Vec<Frame>, SqlError> {
        let mut frames = Vec::new();
        if !self.describes {
            frames = self.session.run(&self.environment.database, &plan)?.frames;
        }
        self.plans.push(plan);
        Ok(frames)
    }

    /// The last row of each series that a scan selects, unless only columns are wanted.
    pub(crate) fn last_rows(&mut self, scan: Scan) -> Result<LastRows, SqlError> {
        let mut last = LastRows::default();
        if !self.describes {
            last = self.session.last_rows(&self.environment.database, &scan)?;
        }
        self.plans.push(Plan::Last { input: Box::new(Plan::Scan(scan)), rows: 1 });
        Ok(last)
    }

    /// Names of the tables.
    pub(crate) fn tables(&self) -> Result<Vec<String>, SqlError> {
        Ok(self.session.tables(&self.environment.database)?)
    }

    /// A table's columns; `None` if there is no such table.
    pub(crate) fn table(&self, name: &str) -> Result<Option<TableSchema>, SqlError> {
        self.refuse_stored_query(name)?;
        let stored = self.session.table(&self.environment.database, name)?;
        Ok(self.with_pending_columns(name, stored))
    }

    /// Takes rows out of the budget; what a statement holds is given back when it ends.
    pub(crate) fn charge(&self, samples: usize) -> Result<(), SqlError> {
        self.session.budget().take(samples).map_err(SqlError::Query)
    }

    /// The name of a table's time.
    pub(crate) const fn time_name(&self) -> &'static str {
        match self.manner {
            Manner::Postgres => "time",
            Manner::QuestDb => "timestamp",
        }
    }

    /// The output of a query, with values.
    pub(crate) fn query(&mut self, query: &Query) -> Result<Relation, SqlError> {
        self.output(query).map(QueryOutput::relation)
    }

    /// The output of a query.
    pub(crate) fn output(&mut self, query: &Query) -> Result<QueryOutput, SqlError> {
        if self.depth >= DEPTH_MAX {
            return Err(SqlError::Query(QueryError::Invalid(format!(
                "queries within queries go {DEPTH_MAX} deep at most"
            ))));
        }
        self.depth += 1;
        let known = self.ctes.len();
        let answer = self.query_within(query);
        self.ctes.truncate(known);
        self.depth -= 1;
        answer
    }

    fn query_within(&mut self, query: &Query) -> Result<QueryOutput, SqlError> {
        if crate::select::type_tree::is_type_tree(query) {
            return Ok(QueryOutput::Relation(self.type_tree()));
        }
        if let Some(with) = &query.with {
            if with.recursive {
                return unsupported("WITH RECURSIVE");
            }
            for cte in &with.cte_tables {
                let mut relation = self.query(&cte.query)?;
                for (column, alias) in relation.columns.iter_mut().zip(&cte.alias.columns) {
                    column.name.clone_from(&alias.name.value);
                }
                self.ctes.push((cte.alias.name.value.clone(), Arc::new(relation)));
            }
        }
        if !query.pipe_operators.is_empty() {
            return unsupported("a pipe");
        }
        if let Some(last) = self.end_of(query)? {
            return Ok(last);
        }
        let limit = self.limit(query.limit_clause.as_ref(), query.fetch.as_ref())?;
        let order = order_expressions(query.order_by.as_ref())?;
        if let SetExpr::Select(select) = &*query.body {
            return self.select(select, order, limit);
        }
        let mut relation = self.body(&query.body)?;
        self.order_answer(&mut relation, order)?;
        limit.apply(&mut relation.rows);
        Ok(QueryOutput::Relation(relation))
    }

    fn body(&mut self, body: &SetExpr) -> Result<Relation, SqlError> {
        match body {
            SetExpr::Select(select) => self.select(select, &[], RowLimit::default()).map(QueryOutput::relation),
            SetExpr::Query(query) => self.query(query),
            SetExpr::Values(values) => self.values(values),
            SetExpr::Table(table) => self.whole_table(table),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                // Only what is on the left can be deep: it is the same as far as stack goes.
                self.depth += 1;
                if self.depth > DEPTH_MAX * 4 {
                    return invalid("too many set operations in one query");
                }
                let (left, right) = (self.body(left)?, self.body(right)?);
                self.depth -= 1;
                combine(left, right, (*op, *set_quantifier), &self.environment)
            }
            _ => unsupported("a statement that writes within a query"),
        }
    }

    /// `TABLE name`
    fn whole_table(&mut self, table: &Table) -> Result<Relation, SqlError> {
        let parts: Vec<&str> = table.schema_name.iter().chain(&table.table_name).map(String::as_str).collect();
        let parsed = crate::syntax::parse::parse(&format!("SELECT * FROM {}", parts.join(".")))?;
        match parsed.statements.first() {
            Some(Statement::Query(query)) => self.query(query),
            _ => invalid(format!("{} is no table", parts.join("."))),
        }
    }

    fn values(&mut self, values: &Values) -> Result<Relation, SqlError> {
        let mut relation = Relation::default();
        for row in &values.rows {
            let row =
                row.content.iter().map(|expression| self.constant(expression)).collect::<Result<Vec<Value>, _>>()?;
            if relation.columns.is_empty() {
                let column =
                    |(place, value): (usize, &Value)| Column::new(format!("column{}", place + 1), value.sql_type());
                relation.columns = row.iter().enumerate().map(column).collect();
            }
            if row.len() != relation.columns.len() {
                return invalid("VALUES lists must all be the same length");
            }
            for (column, value) in relation.columns.iter_mut().zip(&row) {
                column.sql_type = column.sql_type.unified(value.sql_type());
            }
            relation.rows.push(row);
        }
        self.charge(relation.samples())?;
        for (place, column) in relation.columns.iter().enumerate() {
            widen(&mut relation.rows, place, column.sql_type, &self.environment)?;
        }
        Ok(relation)
    }

    /// `LIMIT … OFFSET …`, `OFFSET … FETCH FIRST … ROWS ONLY`
    fn limit(&mut self, clause: Option<&LimitClause>, fetch: Option<&Fetch>) -> Result<RowLimit, SqlError> {
        let (rows, skip) = match clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
                if !limit_by.is_empty() {
                    return unsupported("LIMIT BY");
                }
                (limit.as_ref(), offset.as_ref().map(|offset| &offset.value))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => (Some(limit), Some(offset)),
        };
        let mut count = |expression: &Expr| {
            if let Some(index) = parameter_index(expression) {
                self.note_parameter(index, ParameterType::one(SqlType::Int));
            }
            match self.constant(expression)? {
                Value::Null => Ok(None),
                value => match value.number() {
                    Some(number) if number >= 0.0 => Ok(Some(number as usize)),
                    _ => invalid("LIMIT and OFFSET must not be negative"),
                },
            }
        };
        let mut rows = rows.map(&mut count).transpose()?.flatten();
        if let Some(fetch) = fetch {
            if fetch.with_ties || fetch.percent {
                return unsupported("FETCH … WITH TIES and PERCENT");
            }
            let fetched = match &fetch.quantity {
                Some(quantity) => count(quantity)?,
                None => Some(1),
            };
            rows = fetched.into_iter().chain(rows).min();
        }
        let skip = skip.map(&mut count).transpose()?.flatten().unwrap_or_default();
        Ok(RowLimit { skip, rows })
    }

    /// Orders by columns of the answer.
    fn order_answer(&mut self, relation: &mut Relation, order: &[OrderByExpr]) -> Result<(), SqlError> {
        if order.is_empty() {
            return Ok(());
        }
        let scope = scope_of(relation, None);
        let mut keys = Vec::with_capacity(order.len());
        for by in order {
            let key = match ordinal(&by.expr, relation.columns.len())? {
                Some(place) => crate::expression::Bound::Column(place),
                None => self.bind(&scope, &by.expr)?.expression,
            };
            keys.push(Order::new(key, &by.options));
        }
        let rows = std::mem::take(&mut relation.rows);
        relation.rows = sort(rows, &keys, &self.environment, &|samples| self.charge(samples))?;
        Ok(())
    }
}

/// Two tables as sets, or as they are for ALL.
fn combine(
    mut left: Relation,
    mut right: Relation,
    (op, quantifier): (SetOperator, SetQuantifier),
    environment: &Environment,
) -> Result<Relation, SqlError> {
    if left.columns.len() != right.columns.len() {
        return invalid("each UNION query must have the same number of columns");
    }
    for (place, (column, other)) in left.columns.iter_mut().zip(&right.columns).enumerate() {
        let sql_type = column.sql_type.unified(other.sql_type);
        for (rows, known) in [(&mut left.rows, column.sql_type), (&mut right.rows, other.sql_type)] {
            if known != sql_type {
                widen(rows, place, sql_type, environment)?;
            }
        }
        column.sql_type = sql_type;
    }
    let all = quantifier == SetQuantifier::All;
    let mut counts: HashMap<Vec<Value>, usize> = HashMap::new();
    match op {
        SetOperator::Union => left.rows.extend(right.rows),
        SetOperator::Intersect | SetOperator::Except | SetOperator::Minus => {
            right.rows.into_iter().for_each(|row| *counts.entry(row).or_default() += 1);
            let is_kept = |row: &Vec<Value>| {
                let found = match counts.get_mut(row) {
                    Some(0) | None => false,
                    Some(count) => {
                        *count -= usize::from(all);
                        true
                    }
                };
                found == (op == SetOperator::Intersect)
            };
            left.rows.retain(is_kept);
        }
    }
    if !all {
        distinct(&mut left.rows);
    }
    Ok(left)
}

/// Makes a column of rows what its type says, where they came of several.
fn widen(rows: &mut [Vec<Value>], place: usize, to: SqlType, environment: &Environment) -> Result<(), SqlError> {
    let is_time = matches!(to, SqlType::Timestamp | SqlType::LocalTimestamp | SqlType::Date);
    for cell in rows.iter_mut().filter_map(|row| row.get_mut(place)) {
        let value = std::mem::replace(cell, Value::Null);
        *cell = if is_time { cast(value, to, environment)? } else { value.widened(to) };
    }
    Ok(())
}

/// `ORDER BY` as a list.
fn order_expressions(order: Option<&OrderBy>) -> Result<&[OrderByExpr], SqlError> {
    match order.map(|order| &order.kind) {
        None => Ok(&[]),
        Some(OrderByKind::Expressions(expressions)) => Ok(expressions),
        Some(OrderByKind::All(_)) => unsupported("ORDER BY ALL"),
    }
}

/// The columns of a relation as names.
pub(crate) fn scope_of(relation: &Relation, qualifier: Option<&str>) -> Scope {
    let column = |column: &Column| ScopeColumn {
        qualifier: qualifier.map(str::to_owned),
        name: column.name.clone(),
        sql_type: column.sql_type,
        role: if matches!(column.sql_type, SqlType::Timestamp | SqlType::LocalTimestamp)
            && (column.is_time || ["time", "timestamp"].contains(&column.name.as_str()))
        {
            Role::Time
        } else {
            Role::Other
        },
        is_hidden: false,
        shown_at: 0,
        needs_table: false,
    };
    Scope { columns: relation.columns.iter().map(column).collect() }
}

/// Leaves the first of rows that are the same.
pub(crate) fn distinct(rows: &mut Vec<Vec<Value>>) {
    let mut seen = std::collections::HashSet::new();
    rows.retain(|row| seen.insert(row.clone()));
}

//! What the query of a materialised view reads: a table, and labels of its series that a small table says.

use query::plan::{Labelled, Lowered, Plan, Scan};
use query::{SqlType, TableSchema};
use sqlparser::ast::{JoinOperator, TableFactor, TableWithJoins};

use super::filter::{conjuncts, lower};
use super::from::Source;
use super::join::take_keys;
use super::pushed::PlanKey;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Grouped, Typed};
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

/// What a view reads.
const READ: &str = "a materialised view reads a table, or another materialised view, and may join it with one small table of labels, JOIN hosts ON cpu.host = hosts.host, \
                    or LEFT JOIN: write what others say as tags of the rows, or join the view when it is read";

/// The rows of a view's query.
pub(super) struct ViewSource {
    pub(super) schema: TableSchema,
    /// Its columns, and those of the table that it joins.
    pub(super) scope: Scope,
    joined: Option<JoinedTable>,
}

/// A table of labels.
struct JoinedTable {
    name: String,
    /// How many columns come before its own.
    columns_before: usize,
    on: Vec<(String, String)>,
    keeps_all: bool,
}

impl Run<'_> {
    /// The rows that the query of a view reads.
    pub(super) fn view_source(&mut self, from: &TableWithJoins) -> Result<ViewSource, SqlError> {
        let (schema, scope) = self.view_table(&from.relation)?;
        let join = match from.joins.as_slice() {
            [] => return Ok(ViewSource { schema, scope, joined: None }),
            [join] => join,
            _ => return invalid(READ),
        };
        let (constraint, keeps_all) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
            _ => return invalid(READ),
        };
        let (right, right_scope) = self.view_table(&join.relation)?;
        let mut both = Scope { columns: [scope.columns.clone(), right_scope.columns.clone()].concat() };
        let (mut conditions, shared) = self.join_conditions(constraint, &scope, &right_scope, &both)?;
        let keys = take_keys(&mut conditions, scope.columns.len());
        let tag = |scope: &Scope, place: usize| {
            let column = scope.columns.get(place).filter(|column| column.role == Role::Tag)?;
            Some(column.name.clone())
        };
        let on = keys.iter().map(|(a, b)| tag(&scope, *a).zip(tag(&right_scope, *b))).collect::<Option<Vec<_>>>();
        let Some(on) = on.filter(|on| !on.is_empty() && conditions.is_empty()) else {
            return invalid(
                "the join of a materialised view is by tags of both tables that are equal: ON cpu.host = hosts.host",
            );
        };
        for (_, right) in shared {
            let column = both.columns.get_mut(right);
            column.into_iter().for_each(|column| (column.is_hidden, column.needs_table) = (true, true));
        }
        let columns_before = scope.columns.len();
        let joined = Some(JoinedTable { name: right.name, columns_before, on, keeps_all });
        Ok(ViewSource { schema, scope: both, joined })
    }

    /// A table by its name, which is not read.
    fn view_table(&mut self, factor: &TableFactor) -> Result<(TableSchema, Scope), SqlError> {
        if !matches!(factor, TableFactor::Table { args: None, .. }) {
            return invalid(READ);
        }
        match self.factor(factor)? {
            (Source::Table(table), scope) => Ok((table.schema, scope)),
            _ => invalid(READ),
        }
    }
}

impl ViewSource {
    fn is_joined(&self, place: usize) -> bool {
        self.joined.as_ref().is_some_and(|joined| place >= joined.columns_before)
    }

    /// The columns that aggregates may read.
    pub(super) fn own_scope(&self) -> Scope {
        self.with_joined(|_| Role::Other)
    }

    /// The columns that groups may be by: of the joined table tags and texts.
    pub(super) fn key_scope(&self) -> Scope {
        self.with_joined(|column| match (column.role, column.sql_type) {
            (Role::Tag, _) | (Role::Field, SqlType::Text) => Role::Tag,
            _ => Role::Other,
        })
    }

    fn with_joined(&self, role: impl Fn(&ScopeColumn) -> Role) -> Scope {
        let column = |(place, column): (usize, &ScopeColumn)| {
            let role = if self.is_joined(place) { role(column) } else { column.role };
            ScopeColumn { role, ..column.clone() }
        };
        Scope { columns: self.scope.columns.iter().enumerate().map(column).collect() }
    }

    /// The labels by which groups are: names, and whether the joined table says them; `None` for the key that is of time. A label has the name of
    /// its tag, or that by which a column of the joined table is shown.
    pub(super) fn labels(
        &self,
        grouped: &Grouped,
        keys: &[PlanKey],
        columns: &[(String, Typed)],
    ) -> Result<Vec<Option<ViewLabel>>, SqlError> {
        let mut labels: Vec<Option<ViewLabel>> = Vec::with_capacity(keys.len());
        for (number, (key, bound)) in keys.iter().zip(&grouped.keys).enumerate() {
            let PlanKey::Tag(tag) = key else {
                labels.push(None);
                continue;
            };
            let is_joined = bound.typed.expression.column().is_some_and(|place| self.is_joined(place));
            let shown = columns.iter().filter(|(_, typed)| typed.expression.column() == Some(number));
            let mut shown = shown.map(|(name, _)| name);
            let name = shown.clone().next().filter(|_| is_joined).unwrap_or(tag).clone();
            if let Some(other) = shown.find(|shown| **shown != name) {
                return invalid(format!(
                    "the tag {tag:?} keeps its name in a materialised view, or the one by which it is shown first: it cannot be {other:?}"
                ));
            }
            if labels.iter().flatten().any(|label| label.name == name) {
                return invalid(format!("a materialised view has one label {name:?}: show the other by another name"));
            }
            labels.push(Some(ViewLabel { name, joined_column: is_joined.then(|| tag.clone()) }));
        }
        Ok(labels)
    }

    /// The rows of the plan: those for which a condition holds, with labels.
    pub(super) fn plan(&self, condition: Option<&Typed>, labels: &[Option<ViewLabel>]) -> Result<Plan, SqlError> {
        let conditions = condition.map(|condition| conjuncts(condition.expression.clone())).unwrap_or_default();
        let is_of_joined =
            |condition: &Bound| condition.is_of_columns(&|place| self.is_joined(place)) && !condition.is_constant();
        let (of_joined, own): (Vec<Bound>, Vec<Bound>) = conditions.into_iter().partition(is_of_joined);
        let mut scan = Scan::of_table(self.schema.name.as_str());
        let filter = lower(Bound::And(own), &mut scan, &self.scope);
        if !filter.rest.is_empty() {
            return invalid(
                "the WHERE of a materialised view compares tags, fields and the time with constants, put together by AND and OR",
            );
        }
        let input = filter.plan(scan);
        let Some(joined) = &self.joined else { return Ok(input) };
        if joined.keeps_all && !of_joined.is_empty() {
            return invalid("the WHERE of a materialised view with a LEFT JOIN is of the columns of its first table");
        }
        let mut table = Scan::of_table(joined.name.as_str());
        let of_joined: Lowered<Bound> = lower(Bound::And(of_joined), &mut table, &self.scope);
        if !of_joined.is_in_scan() {
            return invalid(
                "the WHERE of a materialised view compares tags and the time of the table that it joins with constants",
            );
        }
        let labels = labels.iter().flatten();
        let labels = labels.filter_map(|label| Some((label.name.clone(), label.joined_column.clone()?))).collect();
        let (on, keeps_all) = (joined.on.clone(), joined.keeps_all);
        Ok(Plan::Labelled(Box::new(Labelled { input, table, on, labels, keeps_all, selectors: Vec::new() })))
    }
}

/// A label of a view's rows.
pub(super) struct ViewLabel {
    pub(super) name: String,
    /// The column of the joined table that says it.
    joined_column: Option<String>,
}

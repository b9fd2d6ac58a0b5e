//! What the query of a materialised view reads: a table, and labels of its series that small tables say.

use query::plan::{Labelled, Lowered, Plan, Scan};
use query::views::FIELD_PREFIX;
use query::{SqlType, TableSchema};
use sqlparser::ast::{Join, JoinOperator, TableFactor, TableWithJoins};

use super::filter::{conjuncts, lower};
use super::from::Source;
use super::join::take_keys;
use super::pushed::PlanKey;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Grouped, Typed};
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

/// Refuses what no view reads.
fn refused<T>() -> Result<T, SqlError> {
    invalid(format!(
        "a materialised view reads a table, or another materialised view, and may join it with up to {} small tables of labels, JOIN hosts ON cpu.host = hosts.host, \
         or LEFT JOIN: write what others say as tags of the rows, or join the view when it is read",
        Labelled::TABLES_MAX
    ))
}

/// The rows of a view's query.
pub(super) struct ViewSource {
    pub(super) schema: TableSchema,
    /// Its columns, and those of the tables that it joins.
    pub(super) scope: Scope,
    joined: Vec<JoinedTable>,
}

/// A table of labels.
struct JoinedTable {
    name: String,
    /// How many columns come before its own.
    columns_before: usize,
    /// Places of columns before its own, and the tags of the table that equal them.
    on: Vec<(usize, String)>,
    keeps_all: bool,
}

impl Run<'_> {
    /// The rows that the query of a view reads.
    pub(super) fn view_source(&mut self, from: &TableWithJoins) -> Result<ViewSource, SqlError> {
        let (schema, scope) = self.view_table(&from.relation)?;
        if from.joins.len() > Labelled::TABLES_MAX {
            return refused();
        }
        let mut source = ViewSource { schema, scope, joined: Vec::new() };
        for join in &from.joins {
            self.join_view_table(&mut source, join)?;
        }
        Ok(source)
    }

    /// Adds a table of labels to what the query of a view reads.
    fn join_view_table(&mut self, source: &mut ViewSource, join: &Join) -> Result<(), SqlError> {
        let (constraint, keeps_all) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
            // What ASOF JOIN and LT JOIN were replaced by ([`crate::syntax::parse`]).
            JoinOperator::LeftSemi(_) | JoinOperator::LeftAnti(_) => {
                return invalid(
                    "a materialised view has no ASOF JOIN and no LT JOIN: it joins small tables of labels, JOIN hosts ON cpu.host = hosts.host, or LEFT JOIN; \
                     join the view as of a time when it is read",
                );
            }
            _ => return refused(),
        };
        let (table, right) = self.view_table(&join.relation)?;
        let columns_before = source.scope.columns.len();
        let mut both = Scope { columns: [source.scope.columns.clone(), right.columns.clone()].concat() };
        let (mut conditions, shared) = self.join_conditions(constraint, &source.scope, &right, &both)?;
        let keys = take_keys(&mut conditions, columns_before);
        let tag = |place: usize| {
            let column = right.columns.get(place).filter(|column| column.role == Role::Tag)?;
            Some(column.name.clone())
        };
        let key = |(a, b): &(usize, usize)| Some((source.is_key(*a).then_some(*a)?, tag(*b)?));
        let on = keys.iter().map(key).collect::<Option<Vec<_>>>();
        let Some(on) = on.filter(|on| !on.is_empty() && conditions.is_empty()) else {
            return invalid(
                "the join of a materialised view is by tags of both tables that are equal: ON cpu.host = hosts.host; of a table that is joined before also by its texts",
            );
        };
        for (_, right) in shared {
            let column = both.columns.get_mut(right);
            column.into_iter().for_each(|column| (column.is_hidden, column.needs_table) = (true, true));
        }
        source.joined.push(JoinedTable { name: table.name, columns_before, on, keeps_all });
        source.scope = both;
        Ok(())
    }

    /// A table by its name, which is not read.
    fn view_table(&mut self, factor: &TableFactor) -> Result<(TableSchema, Scope), SqlError> {
        let TableFactor::Table { args: None, alias, .. } = factor else { return refused() };
        if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
            return invalid(
                "the query of a materialised view names columns as their tables do: name the table alone, cpu AS c",
            );
        }
        match self.factor(factor)? {
            (Source::Table(table), scope) => Ok((table.schema, scope)),
            _ => refused(),
        }
    }
}

/// The role of a column of a joined table: its tags and texts are labels.
const fn joined_role(column: &ScopeColumn) -> Role {
    match (column.role, column.sql_type) {
        (Role::Tag, _) | (Role::Field, SqlType::Text) => Role::Tag,
        _ => Role::Other,
    }
}

impl ViewSource {
    /// The number of the joined table that a column is of; `None` if it is of the first table.
    fn table_of(&self, place: usize) -> Option<usize> {
        self.joined.iter().rposition(|joined| place >= joined.columns_before)
    }

    /// Returns whether tables can be joined by a column.
    fn is_key(&self, place: usize) -> bool {
        let role =
            |column: &ScopeColumn| if self.table_of(place).is_some() { joined_role(column) } else { column.role };
        self.scope.columns.get(place).is_some_and(|column| role(column) == Role::Tag)
    }

    fn name_of(&self, place: usize) -> &str {
        self.scope.columns.get(place).map_or("", |column| &column.name)
    }

    /// The columns that aggregates may read.
    pub(super) fn own_scope(&self) -> Scope {
        self.with_joined(|_| Role::Other)
    }

    /// The columns that groups may be by: of joined tables tags and texts.
    pub(super) fn key_scope(&self) -> Scope {
        self.with_joined(joined_role)
    }

    fn with_joined(&self, role: impl Fn(&ScopeColumn) -> Role) -> Scope {
        let column = |(place, column): (usize, &ScopeColumn)| {
            let role = if self.table_of(place).is_some() { role(column) } else { column.role };
            ScopeColumn { role, ..column.clone() }
        };
        Scope { columns: self.scope.columns.iter().enumerate().map(column).collect() }
    }

    /// The labels by which groups are: names, and which joined table says them; `None` for the key that is of time. A label has the name of
    /// its tag, or that by which a column of a joined table is shown.
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
            let table = bound.typed.expression.column().and_then(|place| self.table_of(place));
            let shown = columns.iter().filter(|(_, typed)| typed.expression.column() == Some(number));
            let mut shown = shown.map(|(name, _)| name);
            let name = shown.clone().next().filter(|_| table.is_some()).unwrap_or(tag).clone();
            if let Some(other) = shown.find(|shown| **shown != name) {
                return invalid(format!(
                    "the tag {tag:?} keeps its name in a materialised view, or the one by which it is shown first: it cannot be {other:?}"
                ));
            }
            if labels.iter().flatten().any(|label| label.name == name) {
                return invalid(format!("a materialised view has one label {name:?}: show the other by another name"));
            }
            let joined = table.map(|table| JoinedColumn { table, column: tag.clone() });
            labels.push(Some(ViewLabel { name, joined }));
        }
        Ok(labels)
    }

    /// The rows of the plan: those for which a condition holds, with labels.
    pub(super) fn plan(&self, condition: Option<&Typed>, labels: &[Option<ViewLabel>]) -> Result<Plan, SqlError> {
        let mut conditions = condition.map(|condition| conjuncts(condition.expression.clone())).unwrap_or_default();
        let mut tables = Vec::with_capacity(self.joined.len());
        for (number, joined) in self.joined.iter().enumerate() {
            let is_of_table = |condition: &Bound| {
                condition.is_of_columns(&|place| self.table_of(place) == Some(number)) && !condition.is_constant()
            };
            let (of_table, others): (Vec<Bound>, Vec<Bound>) = conditions.into_iter().partition(is_of_table);
            conditions = others;
            tables.push(self.joined_scan(joined, of_table)?);
        }
        let mut scan = Scan::of_table(self.schema.name.as_str());
        let filter = lower(Bound::And(conditions), &mut scan, &self.own_scope());
        if !filter.rest.is_empty() {
            return invalid(
                "the WHERE of a materialised view compares tags, fields and the time with constants, put together by AND and OR",
            );
        }
        let (mut plan, added) = (filter.plan(scan), self.added(labels)?);
        for ((joined, table), labels) in self.joined.iter().zip(tables).zip(&added) {
            let on = |(place, tag): &(usize, String)| (self.key_label(*place, &added).to_owned(), tag.clone());
            let (on, keeps_all) = (joined.on.iter().map(on).collect(), joined.keeps_all);
            let labels = labels.clone();
            plan =
                Plan::Labelled(Box::new(Labelled { input: plan, table, on, labels, keeps_all, selectors: Vec::new() }));
        }
        Ok(plan)
    }

    /// The rows of a joined table for which conditions hold.
    fn joined_scan(&self, joined: &JoinedTable, conditions: Vec<Bound>) -> Result<Scan, SqlError> {
        if joined.keeps_all && !conditions.is_empty() {
            return invalid(
                "the WHERE of a materialised view is of the columns of its first table, and of those that it joins without LEFT",
            );
        }
        let mut table = Scan::of_table(joined.name.as_str());
        let lowered: Lowered<Bound> = lower(Bound::And(conditions), &mut table, &self.scope);
        if !lowered.is_in_scan() {
            return invalid(
                "the WHERE of a materialised view compares tags and the time of the tables that it joins with constants",
            );
        }
        Ok(table)
    }

    /// The labels that each joined table says, and the columns that hold them: those by which groups are, and those by which tables after it are joined.
    fn added(&self, labels: &[Option<ViewLabel>]) -> Result<Vec<LabelColumns>, SqlError> {
        let of_groups = |number: usize| {
            let of_table = |label: &ViewLabel| {
                let joined = label.joined.as_ref().filter(|joined| joined.table == number)?;
                Some((label.name.clone(), joined.column.clone()))
            };
            labels.iter().flatten().filter_map(of_table).collect()
        };
        let mut added: Vec<LabelColumns> = (0..self.joined.len()).map(of_groups).collect();
        let keys = || self.joined.iter().flat_map(|joined| joined.on.iter().map(|(place, _)| *place));
        let own_key = |name: &str| keys().any(|place| self.table_of(place).is_none() && self.name_of(place) == name);
        for place in keys() {
            let (Some(number), column) = (self.table_of(place), self.name_of(place)) else { continue };
            // No other table has this number, and no view shows such a name unless it is asked for it.
            let mut name = format!("{FIELD_PREFIX}{}.{column}", number + 1);
            while own_key(&name)
                || labels.iter().flatten().any(|label| label.name == name)
                || added.iter().flatten().any(|(known, _)| *known == name)
            {
                name.push('_');
            }
            if let Some(of_table) = added.get_mut(number)
                && !of_table.iter().any(|(_, known)| known == column)
            {
                of_table.push((name, column.to_owned()));
            }
        }
        for (number, of_table) in added.iter().enumerate() {
            let after = || self.joined.iter().skip(number + 1);
            let hides = |name: &str| {
                after().find(|joined| {
                    joined.on.iter().any(|(place, _)| self.table_of(*place).is_none() && self.name_of(*place) == name)
                })
            };
            if let Some((name, joined)) = of_table.iter().find_map(|(name, _)| Some((name, hides(name)?))) {
                return invalid(format!(
                    "the label {name:?} has the name of the tag by which {:?} is joined after it: show it by another name, or join {:?} before",
                    joined.name, joined.name
                ));
            }
        }
        Ok(added)
    }

    /// The label by which a table is joined.
    fn key_label<'a>(&'a self, place: usize, added: &'a [LabelColumns]) -> &'a str {
        let column = self.name_of(place);
        let Some(of_table) = self.table_of(place).and_then(|number| added.get(number)) else { return column };
        of_table.iter().find(|(_, known)| known == column).map_or(column, |(name, _)| name)
    }
}

/// Labels, and the columns of a table that hold them.
type LabelColumns = Vec<(String, String)>;

/// A label of a view's rows.
pub(super) struct ViewLabel {
    pub(super) name: String,
    /// What says it, if it is no tag of the first table.
    joined: Option<JoinedColumn>,
}

/// A column of a joined table, and the table's number.
struct JoinedColumn {
    table: usize,
    column: String,
}

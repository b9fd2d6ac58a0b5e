//! What the query of a materialised view reads: a table, labels of its series that small tables say, and columns of tables as of its rows' times.

use model::{TimeRange, ValueType};
use query::plan::{Aggregate, AggregateCall, AsOf, Expression, Labelled, Lowered, Plan, Scan};
use query::views::FIELD_PREFIX;
use query::{SqlType, TableSchema, Value};
use sqlparser::ast::{Join, JoinOperator, TableFactor, TableWithJoins};

use super::filter::{conjuncts, lower};
use super::join::take_keys;
use super::plan_aggregates::{PlanAggregates, row_conditions};
use super::pushed::PlanKey;
use super::view_table::ViewTable;
use crate::error::{SqlError, invalid};
use crate::expression::{Bound, Grouped, Typed, take_as_of, width};
use crate::run::Run;
use crate::scope::{Role, Scope, ScopeColumn};

/// Refuses what no view reads.
pub(super) fn refused<T>() -> Result<T, SqlError> {
    invalid(format!(
        "a materialised view reads a table, or another materialised view, and may join it with up to {} tables: small ones of labels by JOIN hosts ON cpu.host = hosts.host, \
         or LEFT JOIN, others by ASOF JOIN or LT JOIN: write what more of them say as tags of the rows, or join the view when it is read",
        Labelled::TABLES_MAX
    ))
}

/// The rows of a view's query.
pub(super) struct ViewSource {
    pub(super) schema: TableSchema,
    /// Its columns, and those of the tables that it joins.
    pub(super) scope: Scope,
    /// Its rows, and conditions on them besides those of WHERE.
    rows: (Scan, Vec<Expression>),
    joined: Vec<JoinedTable>,
}

/// A table of labels, or one that is joined as of a time.
struct JoinedTable {
    name: String,
    /// Those of its rows that a query in its place chooses.
    scan: Scan,
    /// How many columns come before its own.
    columns_before: usize,
    /// Places of columns before its own, and the tags of the table that equal them.
    on: Vec<(usize, String)>,
    keeps_all: bool,
    as_of: Option<AsOfSaid>,
}

/// The rows of the tables that a view reads.
struct SourceRows {
    /// Those of the first table.
    plan: Plan,
    /// The scans of those that are joined.
    tables: Vec<Scan>,
    /// Conditions on columns that are joined as of a time.
    conditions: Vec<Expression>,
}

/// How a table is joined as of a time.
struct AsOfSaid {
    /// True if rows of the same time are too late.
    is_earlier: bool,
    within_ns: Option<i64>,
    /// Its fields, and its tags as texts.
    fields: Vec<(String, ValueType)>,
}

impl Run<'_> {
    /// The rows that the query of a view reads.
    pub(super) fn view_source(&mut self, from: &TableWithJoins) -> Result<ViewSource, SqlError> {
        let ViewTable { schema, scope, scan, conditions } = self.view_table(&from.relation)?;
        if from.joins.len() > Labelled::TABLES_MAX {
            return refused();
        }
        let mut source = ViewSource { schema, scope, rows: (scan, conditions), joined: Vec::new() };
        for join in &from.joins {
            self.join_view_table(&mut source, join)?;
        }
        Ok(source)
    }

    /// Adds a table to what the query of a view reads.
    fn join_view_table(&mut self, source: &mut ViewSource, join: &Join) -> Result<(), SqlError> {
        let (constraint, keeps_all, is_earlier) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false, None),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true, None),
            // What ASOF JOIN and LT JOIN were replaced by ([`crate::syntax::parse`]).
            JoinOperator::LeftSemi(constraint) => (constraint, true, Some(false)),
            JoinOperator::LeftAnti(constraint) => (constraint, true, Some(true)),
            _ => return refused(),
        };
        let table = self.view_table(&join.relation)?;
        if is_earlier.is_some() && (!table.conditions.is_empty() || table.scan.range != TimeRange::ALL) {
            return invalid(
                "the WHERE of a query that a materialised view joins as of a time compares tags of its table with constants",
            );
        }
        if !table.conditions.is_empty() {
            return invalid(
                "the WHERE of a query that a materialised view joins compares tags and the time of its table with constants",
            );
        }
        let as_of = match is_earlier {
            Some(is_earlier) => Some(self.as_of_said((&table, &join.relation), is_earlier)?),
            None => None,
        };
        let ViewTable { schema: table, scope: right, scan, .. } = table;
        let columns_before = source.scope.columns.len();
        let mut both = Scope { columns: [source.scope.columns.clone(), right.columns.clone()].concat() };
        let (mut conditions, shared) = self.join_conditions(constraint, &source.scope, &right, &both)?;
        let keys = take_keys(&mut conditions, columns_before);
        if let Some(said) = &as_of {
            let time = |scope: &Scope| scope.columns.iter().position(|column| column.role == Role::Time);
            if let (Some(row), Some(found)) = (time(&source.scope), time(&right)) {
                take_as_of(&mut conditions, (row, columns_before + found), said.is_earlier)?;
            }
        }
        let tag = |place: usize| {
            let column = right.columns.get(place).filter(|column| column.role == Role::Tag)?;
            Some(column.name.clone())
        };
        // Rows find others as of their times before they have labels of tables.
        let is_known = |place: usize| source.table_of(place).is_none_or(|number| source.as_of(number).is_some());
        let is_key = |place: usize| source.is_key(place) && (as_of.is_none() || is_known(place));
        let key = |(a, b): &(usize, usize)| Some((is_key(*a).then_some(*a)?, tag(*b)?));
        let on = keys.iter().map(key).collect::<Option<Vec<_>>>();
        let Some(on) = on.filter(|on| (!on.is_empty() || as_of.is_some()) && conditions.is_empty()) else {
            if as_of.is_some() {
                return invalid(
                    "each ASOF JOIN and LT JOIN of a materialised view is by tags of its first table, or tags and texts of one that is joined so before, that equal tags of the table that it joins: \
                     ON (symbol), or trades.symbol = quotes.symbol",
                );
            }
            return invalid(
                "the join of a materialised view is by tags of both tables that are equal: ON cpu.host = hosts.host; of a table that is joined before also by its texts",
            );
        };
        for (_, right) in shared {
            let column = both.columns.get_mut(right);
            column.into_iter().for_each(|column| (column.is_hidden, column.needs_table) = (true, true));
        }
        source.joined.push(JoinedTable { name: table.name, scan, columns_before, on, keeps_all, as_of });
        source.scope = both;
        Ok(())
    }

    /// How a table is joined as of a time.
    fn as_of_said(&self, (table, factor): (&ViewTable, &TableFactor), is_earlier: bool) -> Result<AsOfSaid, SqlError> {
        if !table.has_time() {
            return invalid("a query in an ASOF JOIN or LT JOIN shows its table's time, by which rows are found");
        }
        let within_ns = match self.parsed.tolerance(factor).map(|text| width(&Value::text(text))).transpose()? {
            None => None,
            Some(tolerance) if tolerance.months == 0 => Some(tolerance.ns),
            Some(_) => {
                return invalid("the TOLERANCE of a materialised view is of a fixed length: 30d instead of a month");
            }
        };
        let TableSchema { tags, fields, .. } = &table.schema;
        let tags = tags.iter().filter(|tag| !fields.iter().any(|(field, _)| field == *tag));
        let mut fields = fields.clone();
        fields.extend(tags.map(|tag| (tag.clone(), ValueType::String)));
        Ok(AsOfSaid { is_earlier, within_ns, fields })
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
        self.key_scope().columns.get(place).is_some_and(|column| column.role == Role::Tag)
    }

    fn name_of(&self, place: usize) -> &str {
        self.scope.columns.get(place).map_or("", |column| &column.name)
    }

    /// The columns that aggregates may read, by the names that they have in the plan.
    pub(super) fn value_scope(&self) -> Scope {
        let mut scope = self.own_scope();
        for (place, column) in self.scope.columns.iter().enumerate() {
            let number = self.table_of(place).filter(|number| self.as_of(*number).is_some());
            let is_read = matches!(column.role, Role::Field | Role::Tag);
            if let (Some(number), true, Some(of_value)) = (number, is_read, scope.columns.get_mut(place)) {
                (of_value.role, of_value.name) = (Role::Field, as_of_name(number, &column.name));
            }
        }
        scope
    }

    /// Its first table with the fields that are joined as of a time.
    pub(super) fn value_schema(&self) -> TableSchema {
        let mut schema = self.schema.clone();
        for (number, joined) in self.joined.iter().enumerate() {
            let fields = joined.as_of.iter().flat_map(|as_of| &as_of.fields);
            schema.fields.extend(fields.map(|(field, of)| (as_of_name(number, field), *of)));
        }
        schema
    }

    /// Returns whether it has columns as of the times of its rows.
    pub(super) fn has_as_of(&self) -> bool {
        self.joined.iter().any(|joined| joined.as_of.is_some())
    }

    /// Refuses the first or last value of rows of several series that are joined as of a time: of rows of one time SQL's join takes that of the last
    /// series, and a plan that of any.
    pub(super) fn check_ends(&self, calls: &[AggregateCall], labels: &[Option<ViewLabel>]) -> Result<(), SqlError> {
        let is_end = |call: &AggregateCall| matches!(call.aggregate, Aggregate::First | Aggregate::Last);
        let is_label = |tag: &String| labels.iter().flatten().any(|label| label.joined.is_none() && label.name == *tag);
        if !self.has_as_of() || !calls.iter().any(is_end) || self.schema.tags.iter().all(is_label) {
            return Ok(());
        }
        invalid(
            "first and last in a materialised view with an ASOF JOIN are by all tags of its first table: of rows of several series at one time it is not known which is the last; group by the other tags, too",
        )
    }

    fn as_of(&self, number: usize) -> Option<&AsOfSaid> {
        self.joined.get(number)?.as_of.as_ref()
    }

    /// The columns that conditions may read.
    pub(super) fn own_scope(&self) -> Scope {
        let column = |(place, column): (usize, &ScopeColumn)| {
            let role = if self.table_of(place).is_some() { Role::Other } else { column.role };
            ScopeColumn { role, ..column.clone() }
        };
        Scope { columns: self.scope.columns.iter().enumerate().map(column).collect() }
    }

    /// The columns that groups may be by: of joined tables tags and texts.
    pub(super) fn key_scope(&self) -> Scope {
        let column = |(place, column): (usize, &ScopeColumn)| {
            let role = if self.table_of(place).is_some() { joined_role(column) } else { column.role };
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
            if table.is_some_and(|table| self.as_of(table).is_some()) && self.schema.tags.contains(&name) {
                return invalid(format!(
                    "the label {name:?} of a table that a materialised view joins as of a time has the name of a tag of {:?}: show it by another name",
                    self.schema.name
                ));
            }
            let joined = table.map(|table| JoinedColumn { table, column: tag.clone() });
            labels.push(Some(ViewLabel { name, joined }));
        }
        Ok(labels)
    }

    /// The rows of the plan: those for which a condition holds, with labels, and with the columns that aggregates read.
    pub(super) fn plan(
        &self,
        condition: Option<&Typed>,
        labels: &[Option<ViewLabel>],
        aggregates: &PlanAggregates,
    ) -> Result<Plan, SqlError> {
        let (SourceRows { mut plan, tables, conditions }, added) = (self.rows(condition)?, self.added(labels)?);
        let is_read = |name: &str| {
            let mut is_read = aggregates.reads(name);
            conditions.iter().for_each(|condition| {
                condition.each_column(&mut |column| is_read |= column == name);
            });
            is_read
        };
        let on = |joined: &JoinedTable| {
            let pair = |(place, tag): &(usize, String)| (self.key_label(*place, &added).to_owned(), tag.clone());
            joined.on.iter().map(pair).collect()
        };
        for (number, ((joined, table), labels)) in self.joined.iter().zip(&tables).zip(&added).enumerate() {
            if let Some(said) = &joined.as_of {
                let (table, on, labels, selectors) = (table.clone(), on(joined), labels.clone(), Vec::new());
                let columns = self.as_of_columns((number, said), &is_read)?;
                let (input, is_earlier, within_ns) = (plan, said.is_earlier, said.within_ns);
                let as_of = AsOf { input, table, on, columns, labels, selectors, is_earlier, within_ns };
                plan = Plan::AsOf(Box::new(as_of));
            }
        }
        plan = aggregates.computed.rows(plan.filtered(&conditions), &aggregates.calls);
        let of_labels = self.joined.iter().zip(tables).zip(&added).filter(|((joined, _), _)| joined.as_of.is_none());
        for ((joined, table), labels) in of_labels {
            let (input, on, labels, selectors) = (plan, on(joined), labels.clone(), Vec::new());
            let keeps_all = joined.keeps_all;
            plan = Plan::Labelled(Box::new(Labelled { input, table, on, labels, keeps_all, selectors }));
        }
        Ok(plan)
    }

    /// The rows of the tables for which a condition holds, and what of it is left for rows that are joined as of a time.
    fn rows(&self, condition: Option<&Typed>) -> Result<SourceRows, SqlError> {
        let mut conditions = condition.map(|condition| conjuncts(condition.expression.clone())).unwrap_or_default();
        let mut tables = Vec::with_capacity(self.joined.len());
        for (number, joined) in self.joined.iter().enumerate() {
            let is_of_table = |condition: &Bound| {
                let is_of_labels = joined.as_of.is_none() && !condition.is_constant();
                is_of_labels && condition.is_of_columns(&|place| self.table_of(place) == Some(number))
            };
            let (of_table, others): (Vec<Bound>, Vec<Bound>) = conditions.into_iter().partition(is_of_table);
            conditions = others;
            tables.push(self.joined_scan(joined, of_table)?);
        }
        let (mut scan, before) = self.rows.clone();
        let mut filter = lower(Bound::And(conditions), &mut scan, &self.own_scope());
        filter.conditions.splice(0..0, before);
        let is_own = |condition: &Bound| condition.is_of_columns(&|place| self.table_of(place).is_none());
        let (own, joined): (Vec<Bound>, Vec<Bound>) = std::mem::take(&mut filter.rest).into_iter().partition(is_own);
        let (scope, schema) = (self.value_scope(), self.value_schema());
        filter.conditions.extend(row_conditions(&own, (&scope, &schema))?);
        let conditions = row_conditions(&joined, (&scope, &schema))?;
        Ok(SourceRows { plan: filter.plan(scan), tables, conditions })
    }

    /// The columns that are read of a table that is joined as of a time, and its fields.
    fn as_of_columns(
        &self,
        (number, said): (usize, &AsOfSaid),
        is_read: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<(String, String)>, SqlError> {
        let named = said.fields.iter().map(|(field, _)| (as_of_name(number, field), field.clone()));
        let columns: Vec<(String, String)> = named.filter(|(name, _)| is_read(name)).collect();
        match columns.iter().find(|(name, _)| self.schema.fields.iter().any(|(known, _)| known == name)) {
            None => Ok(columns),
            Some((name, field)) => invalid(format!(
                "{:?} has a column {name:?}, by whose name a materialised view knows the column {field:?} that it joins as of a time: join it when the view is read",
                self.schema.name
            )),
        }
    }

    /// The rows of a joined table for which conditions hold.
    fn joined_scan(&self, joined: &JoinedTable, conditions: Vec<Bound>) -> Result<Scan, SqlError> {
        if joined.keeps_all && !conditions.is_empty() {
            return invalid(
                "the WHERE of a materialised view is not of the columns of a table of labels that it joins by LEFT JOIN: join it by JOIN",
            );
        }
        let mut table = joined.scan.clone();
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

/// The name in the plan of a field of a table that is joined as of a time, by the table's number: no other column has it.
fn as_of_name(number: usize, field: &str) -> String {
    format!("{FIELD_PREFIX}{}.{field}", number + 1)
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

//! Where rows come from: tables and subqueries, read and filtered, in groups.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::TimeRange;
use query::plan::{Lowered, Scan, TableColumns};
use query::{Plan, QueryError, Session};

use crate::resolve::code::condition_code;
use crate::resolve::lower;
use crate::resolve::names::Schema;
use crate::resolve::selection::{Argument, Call, From, Resolved};
use crate::select::input::{Group, Input};
use crate::syntax::ast::{Cast, Expr};
use crate::time::TIME_MIN_NS;

/// Runs a subquery, and gives its rows as inputs.
pub(crate) type Subquery<'a> = &'a dyn Fn(&Resolved) -> Result<Vec<Input>, QueryError>;

/// The groups that a selection reads, sorted by name and tags.
pub(crate) fn groups(
    session: &dyn Session,
    selection: &Resolved,
    subquery: Subquery<'_>,
) -> Result<Vec<Group>, QueryError> {
    let mut groups: BTreeMap<(Arc<str>, Vec<String>), Vec<Input>> = BTreeMap::new();
    for source in &selection.sources {
        for input in inputs(session, selection, source, subquery)? {
            let tags =
                selection.grouped_by.iter().map(|tag| input.tags.get(tag).unwrap_or_default().to_owned()).collect();
            groups.entry((input.name.clone(), tags)).or_default().push(input);
        }
    }
    Ok(groups.into_iter().map(|((name, tags), inputs)| Group { name, tags, inputs }).collect())
}

fn inputs(
    session: &dyn Session,
    selection: &Resolved,
    source: &From,
    subquery: Subquery<'_>,
) -> Result<Vec<Input>, QueryError> {
    match source {
        From::Table { database, name, schema } => {
            let Some((plan, rest)) = table_plan(selection, name, schema) else {
                return Ok(Vec::new());
            };
            let frames = session.run(database, &plan)?.frames;
            let mut inputs: Vec<Input> =
                frames.into_iter().map(|frame| Input::from_frame(name.clone(), frame)).collect();
            filter(session, &mut inputs, rest.as_ref(), schema)?;
            Ok(inputs)
        }
        From::Subquery(inner) => {
            let mut schema = Schema::default();
            inner.columns.iter().for_each(|column| schema.add_field(&column.name, column.data_type));
            schema.tags.extend(inner.grouped_by.iter().cloned());
            let mut inputs = subquery(inner)?;
            filter(session, &mut inputs, selection.condition.as_ref(), &schema)?;
            Ok(inputs)
        }
    }
}

/// The plan that reads a table, and the condition that is left; `None` if no field of it is wanted.
pub(crate) fn table_plan(selection: &Resolved, name: &str, schema: &Schema) -> Option<(Plan, Option<Expr>)> {
    let (mut fields, mut known): (Vec<String>, HashSet<String>) = (Vec::new(), HashSet::new());
    let mut add = |name: &str, fields: &mut Vec<String>| {
        if schema.fields.contains_key(name) && known.insert(name.to_owned()) {
            fields.push(name.to_owned());
        }
    };
    selection
        .references
        .iter()
        .filter(|reference| reference.cast != Some(Cast::Tag))
        .for_each(|reference| add(&reference.name, &mut fields));
    selection.calls.iter().for_each(|call| each_field(call, &mut |name| add(name, &mut fields)));
    if fields.is_empty() {
        return None;
    }
    let is_all = fields.len() == schema.fields.len();
    let table = TableColumns { name: name.to_owned(), fields: Vec::new(), every_row: false };
    let mut scan = Scan { table: Some(table), selectors: Vec::new(), tokens: Vec::new(), range: widened(selection) };
    let lowered = lower::lower(selection.condition.as_ref(), schema, &mut scan);
    each_condition_field(&lowered, &mut |name| add(name, &mut fields));
    scan.table.iter_mut().for_each(|table| table.fields = std::mem::take(&mut fields));
    if lowered.is_in_scan() {
        return Some((last_rows(selection, Plan::Scan(scan), is_all), None));
    }
    Some((lowered.plan(scan), lower::joined(lowered.rest)))
}

/// Visits the names of fields in conditions that are not part of the scan; those of tags may be among them.
pub(crate) fn each_condition_field(lowered: &Lowered<Expr>, add: &mut impl FnMut(&str)) {
    for condition in &lowered.conditions {
        condition.each_column(&mut |name| add(name));
    }
    for rest in &lowered.rest {
        rest.walk(&mut |expr| {
            if let Expr::Reference { name, .. } = expr {
                add(name);
            }
        });
    }
}

/// Only the last rows of each series, where no others are wanted. Every row has one of the fields, as all are read.
fn last_rows(selection: &Resolved, scan: Plan, is_all: bool) -> Plan {
    if !(is_all && selection.descending && selection.limits.rows > 0 && selection.calls.is_empty()) {
        return scan;
    }
    Plan::Last { input: Box::new(scan), rows: selection.most() }
}

fn each_field(call: &Call, add: &mut impl FnMut(&str)) {
    match &call.argument {
        Argument::Reference(reference) => add(&reference.name),
        Argument::Call(inner) => each_field(inner, add),
    }
    for parameter in &call.parameters {
        if let Expr::Reference { name, .. } = parameter {
            add(name);
        }
    }
}

/// The range with the windows that transformations need before it (after it, if times fall).
fn widened(selection: &Resolved) -> TimeRange {
    let extra_ns =
        selection.windows.as_ref().map_or(0, |windows| windows.width().ns.saturating_mul(selection.extra_windows));
    let mut range = selection.range;
    if selection.descending {
        range.end_ns = range.end_ns.saturating_add(extra_ns);
    } else if range.start_ns > TIME_MIN_NS {
        range.start_ns = range.start_ns.saturating_sub(extra_ns);
    }
    range
}

/// Leaves the rows that satisfy a condition.
fn filter(
    session: &dyn Session,
    inputs: &mut Vec<Input>,
    condition: Option<&Expr>,
    schema: &Schema,
) -> Result<(), QueryError> {
    let Some(condition) = condition else { return Ok(()) };
    let mut references = Vec::new();
    let code = condition_code(condition, &mut references, schema).map_err(QueryError::Invalid)?;
    for input in inputs.iter_mut() {
        session.budget().check()?;
        // What a condition says of a fold's last value, it does not of the others.
        if input.has_folds() {
            session.budget().note_folded()?;
        }
        let before = input.samples();
        input.filter(&code, &references);
        session.budget().give_back(before - input.samples());
    }
    inputs.retain(|input| !input.times.is_empty());
    Ok(())
}

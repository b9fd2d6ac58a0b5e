//! Selections of aggregates that the plan has as they are: summaries answer them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::{Labels, Values};
use query::plan::{Aggregate, Expression, Grouping, Kept, Scan, TableColumns};
use query::{Frame, FrameColumn, Plan, QueryError, RowPlace};

use crate::engine::{Engine, TableGroup};
use crate::fill::Filling;
use crate::lower;
use crate::names::Schema;
use crate::read_rows::{ReadRows, Rows};
use crate::reduce::Out;
use crate::resolve::{Argument, Call, Code, From, Reference, Resolved};
use crate::scan::Input;
use crate::select::{self, CallResults, SeriesRows};
use crate::syntax::ast::Expr;
use crate::time::TIME_MIN_NS;
use crate::value::{DataType, Value};

/// What the calls of a selection give for one series of the answer.
pub(crate) struct Grouped {
    pub(crate) name: Arc<str>,
    tags: Vec<String>,
    frame: Frame,
}

impl Grouped {
    /// What it takes out of a budget.
    pub(crate) fn samples(&self) -> usize {
        self.frame.rows() * self.frame.columns.len().max(1)
    }
}

/// What the calls of a selection give, group by group; `None` if rows have to be looked at.
pub(crate) fn results(engine: &dyn Engine, of: &Resolved) -> Result<Option<Vec<Grouped>>, QueryError> {
    let Some(plans) = plans(engine, of)? else { return Ok(None) };
    let mut found: BTreeMap<(Arc<str>, Vec<String>), Frame> = BTreeMap::new();
    for (database, name, plan) in plans {
        for frame in engine.run(database, &plan)?.frames {
            found.insert((name.clone(), group_tags(of, &frame.labels)), frame);
        }
    }
    Ok(Some(found.into_iter().map(|((name, tags), frame)| Grouped { name, tags, frame }).collect()))
}

/// Values of the tags by which rows are grouped.
fn group_tags(of: &Resolved, labels: &Labels) -> Vec<String> {
    of.grouped_by.iter().map(|tag| labels.get(tag).unwrap_or_default().to_owned()).collect()
}

/// The rows of one series of the answer.
pub(crate) fn rows(engine: &dyn Engine, of: &Resolved, grouped: Grouped) -> Result<Option<SeriesRows>, QueryError> {
    let held = grouped.samples();
    let Grouped { name, tags, mut frame } = grouped;
    if let Some(shown) = shown_as_read(of, &mut frame) {
        let rows = Rows::Read(read_rows(of, &name, frame, shown));
        if rows.is_empty() {
            engine.budget().give_back(held);
            return Ok(None);
        }
        return Ok(Some(SeriesRows { name, tags, rows }));
    }
    let mut outs = Vec::with_capacity(of.calls.len());
    for call in &of.calls {
        outs.push(call_outs(engine, of, call, &frame)?);
    }
    engine.budget().give_back(held);
    select::joined(engine, of, CallResults { name, tags, outs }, None)
}

/// What the columns of the answer show of a frame, if its rows are those of the answer as they are.
fn shown_as_read(of: &Resolved, frame: &mut Frame) -> Option<Arc<[Reference]>> {
    of.windows.as_ref()?;
    if Filling::of(of).is_some_and(|filling| !filling.is_full(&frame.timestamps_ns)) {
        return None;
    }
    let mut shown = Vec::with_capacity(of.columns.len());
    for column in &of.columns {
        let Code::Call(place) = column.code else { return None };
        let call = of.calls.get(place)?;
        let name = column_name(call)?;
        let column = frame.columns.iter_mut().find(|column| *column.name == *name)?;
        if column.present.is_some() {
            return None;
        }
        if call.function == "count" {
            count_as_integers(column)?;
        }
        let data_type = match column.values {
            Values::F64(_) => DataType::Float,
            Values::I64(_) => DataType::Integer,
            Values::U64(_) => DataType::Unsigned,
            Values::Bool(_) => DataType::Boolean,
            Values::Text(_) => DataType::Text,
        };
        if data_type != call.data_type {
            return None;
        }
        shown.push(Reference { name, cast: None, data_type });
    }
    Some(shown.into())
}

/// Counts are integers here; `None` if there is a window that has other values of the row only.
fn count_as_integers(column: &mut FrameColumn) -> Option<()> {
    if let Values::U64(counts) = &column.values {
        column.values = Values::I64(counts.iter().map(|count| *count as i64).collect());
    }
    match &column.values {
        Values::I64(counts) if !counts.contains(&0) => Some(()),
        _ => None,
    }
}

fn read_rows(of: &Resolved, name: &Arc<str>, frame: Frame, shown: Arc<[Reference]>) -> ReadRows {
    let place = |(row, time_ns): (u32, &i64)| RowPlace { time_ns: *time_ns, series: 0, row };
    let mut order: Vec<RowPlace> = (0..).zip(&frame.timestamps_ns).map(place).collect();
    if of.descending {
        order.reverse();
    }
    let (skip, take) = select::row_limits(of);
    order.drain(..skip.min(order.len()));
    order.truncate(take);
    let input = Input {
        name: name.clone(),
        tags: Labels::empty(),
        times: frame.timestamps_ns,
        columns: frame.columns,
        every_row: true,
        in_time_order: true,
    };
    ReadRows { inputs: vec![input], shown, order }
}

/// Plans of tables, with their databases and names.
pub(crate) type Plans<'a> = Vec<(&'a str, Arc<str>, Plan)>;

/// The plans of all tables, if all calls and the condition can be said there.
pub(crate) fn plans<'a>(engine: &dyn Engine, of: &'a Resolved) -> Result<Option<Plans<'a>>, QueryError> {
    let shown_at_windows = of.windows.is_some() || !of.selects_rows();
    let plain_windows = of.windows.as_ref().is_none_or(|windows| windows.zone.is_none());
    if of.calls.is_empty() || !of.references.is_empty() || !shown_at_windows || !plain_windows || of.extra_windows > 0 {
        return Ok(None);
    }
    let mut plans: Plans<'_> = Vec::with_capacity(of.sources.len());
    for source in &of.sources {
        let From::Table { database, name, schema } = source else { return Ok(None) };
        if plans.iter().any(|(_, known, _)| known == name) {
            // Rows of several databases are one series of the answer.
            return Ok(None);
        }
        let Some(kept) = all_kept(of, schema) else { return Ok(None) };
        if kept.is_empty() {
            continue;
        }
        let Some((scan, condition)) = scan_of(of, name, schema) else { return Ok(None) };
        // Of several series' values of one time the largest counts, which the plan does not know.
        let is_of_one = |kept: &Kept| matches!(kept.aggregate, Aggregate::First | Aggregate::Last);
        if kept.iter().any(is_of_one) && !is_each_apart(engine, of, (database, schema), &scan)? {
            return Ok(None);
        }
        let mut input = Box::new(Plan::Scan(scan));
        if let Some(condition) = condition {
            input = Box::new(Plan::Where { input, condition });
        }
        let (width_ns, offset_ns) = of.windows.as_ref().map_or((None, 0), |of| (Some(of.width_ns), of.offset_ns));
        let grouping = Grouping { width_ns, offset_ns, kept, by: Some(of.grouped_by.clone()) };
        plans.push((database.as_str(), name.clone(), cut(of, Plan::GroupBy { input, grouping })));
    }
    Ok(Some(plans))
}

/// What the plan keeps of a table's fields; `None` if it cannot keep what a call wants.
fn all_kept(of: &Resolved, schema: &Schema) -> Option<Vec<Kept>> {
    let mut kept: Vec<Kept> = Vec::new();
    for call in &of.calls {
        let (aggregate, field) = kept_of(call, schema)?;
        let Some(field) = field else { continue };
        let new = Kept::of_column(aggregate, field);
        if !kept.contains(&new) {
            kept.push(new);
        }
    }
    Some(kept)
}

/// The rows that are read of a table, and what of the condition is not in their choice; `None` if the plan cannot say that.
fn scan_of(of: &Resolved, name: &str, schema: &Schema) -> Option<(Scan, Option<Expression>)> {
    let field = |call| Some(kept_of(call, schema)?.1?.to_owned());
    let mut fields: Vec<String> = of.calls.iter().filter_map(field).collect();
    let (selectors, rest) = lower::selectors(of.condition.as_ref(), schema);
    let condition = match &rest {
        None => None,
        Some(rest) => {
            rest.walk(&mut |expr| {
                if let Expr::Reference { name, .. } = expr {
                    fields.push(name.clone());
                }
            });
            Some(lower::expression(rest, schema)?)
        }
    };
    fields.sort();
    fields.dedup();
    let table = Some(TableColumns { name: name.to_owned(), fields, every_row: false });
    Some((Scan { table, selectors, tokens: Vec::new(), range: of.range }, condition))
}

/// Whether no two series of a scan are grouped together.
fn is_each_apart(
    engine: &dyn Engine,
    of: &Resolved,
    (database, schema): (&str, &Schema),
    scan: &Scan,
) -> Result<bool, QueryError> {
    if schema.tags.iter().all(|tag| of.grouped_by.contains(tag)) {
        return Ok(true);
    }
    let mut seen = HashSet::new();
    let is_apart = |group: &TableGroup| {
        let mut fields: Vec<&String> = group.fields.iter().collect();
        fields.sort_unstable();
        // Columns with labels of their own are several series.
        fields.is_sorted_by(|a, b| a != b) && seen.insert(group_tags(of, &group.tags))
    };
    Ok(engine.groups(database, scan)?.iter().all(is_apart))
}

/// Windows of all series together, no more than are wanted where there is one call: what is filled in lies between those that have values, or
/// behind them. Of several calls each has as many values as are wanted.
fn cut(of: &Resolved, plan: Plan) -> Plan {
    let is_cut = of.windows.is_some() && of.calls.len() == 1 && of.grouped_by.is_empty() && of.limits.rows > 0;
    if !is_cut {
        return plan;
    }
    if !of.descending {
        return Plan::Limit { input: Box::new(plan), rows: of.most(), skip: 0 };
    }
    let last = Plan::Last { input: Box::new(plan), rows: of.most() };
    Plan::Order { input: Box::new(last), by: Expression::Time, descending: false }
}

/// The plan's aggregate of a call, and its field if the table has it; `None` if the plan has no such aggregate.
fn kept_of<'c>(call: &'c Call, schema: &Schema) -> Option<(Aggregate, Option<&'c str>)> {
    let Argument::Reference(reference) = &call.argument else { return None };
    let aggregate = match call.function.as_str() {
        "count" => Aggregate::Count,
        "sum" => Aggregate::Sum,
        "mean" => Aggregate::Avg,
        "min" => Aggregate::Min,
        "max" => Aggregate::Max,
        "first" => Aggregate::First,
        "last" => Aggregate::Last,
        _ => return None,
    };
    if reference.cast.is_some() {
        return None;
    }
    match schema.fields.get(&reference.name) {
        None => Some((aggregate, None)),
        Some(data_type) => {
            let any_type = matches!(aggregate, Aggregate::Count | Aggregate::First | Aggregate::Last);
            (any_type || data_type.is_number()).then_some((aggregate, Some(reference.name.as_str())))
        }
    }
}

/// The plan's name for what a call gives.
fn column_name(call: &Call) -> Option<String> {
    let Argument::Reference(reference) = &call.argument else { return None };
    let aggregate = match call.function.as_str() {
        "mean" => "avg",
        other => other,
    };
    Some(format!("{aggregate} {}", reference.name))
}

/// A call's results out of a frame, in the order of the answer.
fn call_outs(engine: &dyn Engine, of: &Resolved, call: &Call, frame: &Frame) -> Result<Vec<Out>, QueryError> {
    let Some(name) = column_name(call) else { return Ok(Vec::new()) };
    let column = frame.column(&name);
    let start_ns = if of.range.start_ns == TIME_MIN_NS { 0 } else { of.range.start_ns };
    let mut outs = Vec::with_capacity(frame.rows());
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        let value = column.map_or(Value::Null, |column| Value::from(column.cell(row)));
        let value = match (call.data_type, value) {
            (DataType::Float, value) => value.number().map_or(Value::Null, Value::Float),
            // A window that has other values of the row only.
            (_, Value::Integer(0)) if call.function == "count" => Value::Null,
            (DataType::Integer, Value::Unsigned(count)) if call.function == "count" => Value::Integer(count as i64),
            (_, value) => value,
        };
        if !value.is_null() {
            let time_ns = if of.windows.is_some() { *time_ns } else { start_ns };
            outs.push(Out { time_ns, value, origin: None });
        }
    }
    if of.descending {
        outs.reverse();
    }
    match Filling::of(of) {
        Some(filling) => filling.of_call(call).fill(outs, engine.budget()),
        None => Ok(outs),
    }
}

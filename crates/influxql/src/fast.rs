//! Selections of aggregates that the plan has as they are: summaries answer them.

use std::collections::BTreeMap;
use std::sync::Arc;

use query::plan::{Aggregate, Expression, Grouping, Kept, Scan, TableColumns};
use query::{Frame, Plan, QueryError};

use crate::engine::Engine;
use crate::fill::Filling;
use crate::lower;
use crate::names::Schema;
use crate::reduce::Out;
use crate::resolve::{Argument, Call, From, Resolved};
use crate::select::CallResults;
use crate::syntax::ast::Fill;
use crate::time::TIME_MIN_NS;
use crate::value::{DataType, Value};

/// What the calls of a selection give, group by group; `None` if rows have to be looked at.
pub(crate) fn results(engine: &dyn Engine, of: &Resolved) -> Result<Option<Vec<CallResults>>, QueryError> {
    let Some(plans) = plans(of) else { return Ok(None) };
    let mut found: BTreeMap<(Arc<str>, Vec<String>), Frame> = BTreeMap::new();
    for (database, name, plan) in plans {
        for frame in engine.run(database, &plan)?.frames {
            let tags = of.grouped_by.iter().map(|tag| frame.labels.get(tag).unwrap_or_default().to_owned()).collect();
            found.insert((name.clone(), tags), frame);
        }
    }
    let mut results = Vec::with_capacity(found.len());
    for ((name, tags), frame) in found {
        let mut outs = Vec::with_capacity(of.calls.len());
        for call in &of.calls {
            outs.push(call_outs(engine, of, call, &frame)?);
        }
        engine.budget().give_back(frame.rows() * frame.columns.len().max(1));
        results.push(CallResults { name, tags, outs });
    }
    Ok(Some(results))
}

/// The plans of all tables, if all calls and the condition can be said there.
pub(crate) fn plans(of: &Resolved) -> Option<Vec<(&str, Arc<str>, Plan)>> {
    let shown_at_windows = of.windows.is_some() || !of.selects_rows();
    let plain_windows = of.windows.as_ref().is_none_or(|windows| windows.zone.is_none());
    if of.calls.is_empty() || !of.references.is_empty() || !shown_at_windows || !plain_windows || of.extra_windows > 0 {
        return None;
    }
    let mut plans = Vec::with_capacity(of.sources.len());
    for source in &of.sources {
        let From::Table { database, name, schema } = source else { return None };
        let apart = schema.tags.iter().all(|tag| of.grouped_by.contains(tag));
        let mut kept: Vec<Kept> = Vec::new();
        for call in &of.calls {
            let (aggregate, field) = kept_of(call, schema, apart)?;
            let Some(field) = field else { continue };
            let new = Kept::of_column(aggregate, field);
            if !kept.contains(&new) {
                kept.push(new);
            }
        }
        if kept.is_empty() {
            continue;
        }
        let mut fields: Vec<String> =
            of.calls.iter().filter_map(|call| Some(kept_of(call, schema, apart)?.1?.to_owned())).collect();
        let (selectors, rest) = lower::selectors(of.condition.as_ref(), schema);
        let condition = match &rest {
            None => None,
            Some(rest) => {
                rest.walk(&mut |expr| {
                    if let crate::syntax::ast::Expr::Reference { name, .. } = expr {
                        fields.push(name.clone());
                    }
                });
                Some(lower::expression(rest, schema)?)
            }
        };
        fields.sort();
        fields.dedup();
        let table = Some(TableColumns { name: name.to_string(), fields, every_row: false });
        let mut input = Box::new(Plan::Scan(Scan { table, selectors, tokens: Vec::new(), range: of.range }));
        if let Some(condition) = condition {
            input = Box::new(Plan::Where { input, condition });
        }
        let (width_ns, offset_ns) = of.windows.as_ref().map_or((None, 0), |of| (Some(of.width_ns), of.offset_ns));
        let grouping = Grouping { width_ns, offset_ns, kept, by: Some(of.grouped_by.clone()) };
        plans.push((database.as_str(), name.clone(), cut(of, Plan::GroupBy { input, grouping })));
    }
    Some(plans)
}

/// Windows of all series together, no more than are wanted where there is one call: what is filled in lies between those that have values, or
/// behind them. Of several calls each has as many values as are wanted.
fn cut(of: &Resolved, plan: Plan) -> Plan {
    let is_cut = of.windows.is_some() && of.calls.len() == 1 && of.grouped_by.is_empty() && of.limits.rows > 0;
    if !is_cut {
        return plan;
    }
    let by_time = |input, descending| Plan::Order { input: Box::new(input), by: Expression::Time, descending };
    let input = if of.descending { by_time(plan, true) } else { plan };
    let limited = Plan::Limit { input: Box::new(input), rows: of.most(), skip: 0 };
    if of.descending { by_time(limited, false) } else { limited }
}

/// The plan's aggregate of a call, and its field if the table has it; `None` if the plan has no such aggregate. `apart`: no two series
/// are grouped together.
fn kept_of<'c>(call: &'c Call, schema: &Schema, apart: bool) -> Option<(Aggregate, Option<&'c str>)> {
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
        // Of several series' values of one time the largest counts, which the plan does not know.
        Some(_) if matches!(aggregate, Aggregate::First | Aggregate::Last) && !apart => None,
        Some(data_type) => {
            let any_type = matches!(aggregate, Aggregate::Count | Aggregate::First | Aggregate::Last);
            (any_type || data_type.is_number()).then_some((aggregate, Some(reference.name.as_str())))
        }
    }
}

/// A call's results out of a frame, in the order of the answer.
fn call_outs(engine: &dyn Engine, of: &Resolved, call: &Call, frame: &Frame) -> Result<Vec<Out>, QueryError> {
    let Argument::Reference(reference) = &call.argument else { return Ok(Vec::new()) };
    let aggregate = match call.function.as_str() {
        "mean" => "avg",
        other => other,
    };
    let column = frame.column(&format!("{aggregate} {}", reference.name));
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
    let Some(windows) = &of.windows else { return Ok(outs) };
    if of.fill == Fill::None {
        return Ok(outs);
    }
    let fill = if of.fill == Fill::Null && call.function == "count" { Fill::Integer(0) } else { of.fill };
    let range = (of.range.start_ns, of.range.end_ns);
    let filling =
        Filling { windows, fill, data_type: call.data_type, range, descending: of.descending, most: of.most() };
    filling.fill(outs, engine.budget())
}

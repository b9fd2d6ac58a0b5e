//! Selections of aggregates that the plan has as they are: summaries answer them.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::{Labels, TimeRange, Values};
use query::plan::{AggregateCall, Expression, Grouping, Lowered, Scan, TableColumns};
use query::time::{CalendarBins, EqualBins};
use query::{Frame, Plan, QueryError, ResultRows, RowOrder, Session, TableGroup};

use crate::functions::Point;
use crate::resolve::lower;
use crate::resolve::names::Schema;
use crate::resolve::selection::{Call, Code, From, Reference, Resolved};
use crate::select::fill::Filling;
use crate::select::joined::{CallResults, joined};
use crate::select::plan_calls::PlanCall;
use crate::select::rows::{Rows, SeriesRows, shape_of};
use crate::select::scan;
use crate::syntax::ast::Expr;
use crate::time::TIME_MIN_NS;
use crate::value::DataType;

/// The results of a selection's calls for one series of the answer.
pub(crate) struct AggregatedSeries {
    pub(crate) name: Arc<str>,
    tags: Vec<String>,
    /// In order of time; several where windows differ in length.
    frames: Vec<Frame>,
}

impl AggregatedSeries {
    /// The samples that it takes out of a budget.
    pub(crate) fn samples(&self) -> usize {
        self.frames.iter().map(|frame| frame.rows() * frame.columns.len().max(1)).sum()
    }
}

/// The results of a selection's calls, group by group; `None` if the plan does not have them all.
pub(crate) fn results(
    session: &dyn Session,
    selection: &Resolved,
) -> Result<Option<Vec<AggregatedSeries>>, QueryError> {
    let Some(plans) = plans(session, selection)? else { return Ok(None) };
    let mut frames: BTreeMap<(Arc<str>, Vec<String>), Vec<Frame>> = BTreeMap::new();
    for (database, name, plan) in plans {
        for frame in session.run(database, &plan)?.frames {
            frames.entry((name.clone(), group_tags(selection, &frame.labels))).or_default().push(frame);
        }
    }
    Ok(Some(frames.into_iter().map(|((name, tags), frames)| AggregatedSeries { name, tags, frames }).collect()))
}

/// Values of the tags by which rows are grouped.
fn group_tags(selection: &Resolved, labels: &Labels) -> Vec<String> {
    selection.grouped_by.iter().map(|tag| labels.get(tag).unwrap_or_default().to_owned()).collect()
}

/// The rows of one series of the answer.
pub(crate) fn rows(
    session: &dyn Session,
    selection: &Resolved,
    grouped: AggregatedSeries,
) -> Result<Option<SeriesRows>, QueryError> {
    let samples = grouped.samples();
    let AggregatedSeries { name, tags, mut frames } = grouped;
    if let Some(shown) = shown_as_read(selection, &mut frames) {
        let rows = Rows::Read(read_rows(selection, frames, &shown));
        if rows.is_empty() {
            session.budget().give_back(samples);
            return Ok(None);
        }
        return Ok(Some(SeriesRows { name, tags, rows }));
    }
    let mut outs = Vec::with_capacity(selection.calls.len());
    for call in &selection.calls {
        outs.push(call_outs(session, selection, call, &frames)?);
    }
    session.budget().give_back(samples);
    joined(session, selection, CallResults { name, tags, outs }, None)
}

/// The fields that the columns show of a frame, if it is the only one and its rows are those of the answer as they are.
fn shown_as_read(selection: &Resolved, frames: &mut [Frame]) -> Option<Vec<Reference>> {
    selection.windows.as_ref()?;
    let [frame] = frames else { return None };
    if Filling::from_selection(selection).is_some_and(|filling| !filling.is_full(&frame.timestamps_ns)) {
        return None;
    }
    let mut shown = Vec::with_capacity(selection.columns.len());
    for column in &selection.columns {
        let Code::Call(number) = column.code else { return None };
        let call = selection.calls.get(number)?;
        let of_plan = PlanCall::new(call)?;
        let name = of_plan.column()?;
        let column = frame.columns.iter_mut().find(|column| *column.name == *name)?;
        if column.cells.validity.is_some() {
            return None;
        }
        if of_plan.is_count() {
            count_as_integers(&mut column.cells.values)?;
        }
        let data_type = match column.cells.values {
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
    Some(shown)
}

/// Counts are integers here; `None` if there is a window that has other values of the row only.
fn count_as_integers(values: &mut Values) -> Option<()> {
    if let Values::U64(counts) = &*values {
        *values = Values::I64(counts.iter().map(|count| *count as i64).collect());
    }
    match &*values {
        Values::I64(counts) if !counts.contains(&0) => Some(()),
        _ => None,
    }
}

fn read_rows(selection: &Resolved, frames: Vec<Frame>, shown: &[Reference]) -> ResultRows {
    let mut rows = ResultRows::new(frames, shape_of(shown));
    if selection.descending {
        rows.sort(&[RowOrder::Time { is_descending: true }]);
    }
    rows.limit(selection.limits.of_rows());
    rows
}

/// Plans of tables, with their databases and names.
pub(crate) type Plans<'a> = Vec<(&'a str, Arc<str>, Plan)>;

/// A part of a selection's range with bins of one width.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BinRange {
    /// Width and offset of the bins, in nanoseconds; `None`: all rows are one.
    pub(crate) bins: Option<(i64, i64)>,
    pub(crate) range: TimeRange,
}

/// Ranges of equal windows, at most: days of a zone are four of them in a year.
const BIN_RANGES_MAX: usize = 200;

/// The plans of all tables, if all calls and the condition can be said there: of each table one, or one for each range of equal windows.
pub(crate) fn plans<'a>(session: &dyn Session, selection: &'a Resolved) -> Result<Option<Plans<'a>>, QueryError> {
    // Where a query has windows the line of `integral` goes on from one to the next, which the plan's does not.
    if selection.calls.iter().any(|call| call.function == "integral") {
        return Ok(None);
    }
    match bin_ranges(selection.windows.as_ref(), selection.range) {
        Some(ranges) => plans_of_ranges(session, selection, &ranges),
        None => Ok(None),
    }
}

/// The ranges of equal windows that a range has, in order of time; `None` if there are too many.
fn bin_ranges(windows: Option<&CalendarBins>, range: TimeRange) -> Option<Vec<BinRange>> {
    let Some(windows) = windows else { return Some(vec![BinRange { bins: None, range }]) };
    if let Some(bins) = windows.equal_bins() {
        return Some(vec![BinRange { bins: Some(bins), range }]);
    }
    let runs = windows.equal_runs((range.start_ns, range.end_ns), BIN_RANGES_MAX, |_, _| true)?;
    let of_run = |run: &EqualBins| {
        let last_ns = run.end_ns().saturating_sub(1).min(range.end_ns);
        let range = TimeRange::new(run.start_ns.max(range.start_ns), last_ns);
        BinRange { bins: Some((run.width_ns, run.offset_ns())), range }
    };
    Some(runs.iter().map(of_run).collect())
}

/// As [`plans`], of these ranges.
pub(crate) fn plans_of_ranges<'a>(
    session: &dyn Session,
    selection: &'a Resolved,
    ranges: &[BinRange],
) -> Result<Option<Plans<'a>>, QueryError> {
    let shown_at_windows = selection.windows.is_some() || !selection.selects_rows();
    if selection.calls.is_empty()
        || !selection.references.is_empty()
        || !shown_at_windows
        || selection.extra_windows > 0
    {
        return Ok(None);
    }
    let mut plans: Plans<'_> = Vec::with_capacity(selection.sources.len());
    for source in &selection.sources {
        let From::Table { database, name, schema } = source else { return Ok(None) };
        if plans.iter().any(|(_, known, _)| known == name) {
            // Rows of several databases are one series of the answer.
            return Ok(None);
        }
        let Some(calls) = plan_calls(selection, schema) else { return Ok(None) };
        if calls.is_empty() {
            continue;
        }
        let Some((scan, lowered)) = scan_of(selection, (name, schema), &calls) else { return Ok(None) };
        // Of several series' values of one time the largest counts, which the plan does not know.
        if calls.iter().any(PlanCall::is_of_one_series) && !is_each_apart(session, selection, database, schema, &scan)?
        {
            return Ok(None);
        }
        let aggregates = all_aggregates(&calls);
        for BinRange { bins, range } in ranges {
            let input = Box::new(lowered.clone().plan(Scan { range: *range, ..scan.clone() }));
            let (width_ns, offset_ns) = bins.unzip();
            let (offset_ns, by) = (offset_ns.unwrap_or(0), Some(selection.grouped_by.clone()));
            let undated = width_ns.is_none();
            let grouping = Grouping { width_ns, offset_ns, aggregates: aggregates.clone(), by, undated };
            plans.push((database.as_str(), name.clone(), cut(selection, Plan::GroupBy { input, grouping })));
        }
    }
    Ok(Some(plans))
}

/// The calls of a table's fields; `None` if the plan has no aggregates for one.
fn plan_calls<'a>(selection: &'a Resolved, schema: &Schema) -> Option<Vec<PlanCall<'a>>> {
    let mut calls = Vec::with_capacity(selection.calls.len());
    for call in &selection.calls {
        let call = PlanCall::new(call)?;
        match schema.fields.get(call.field()) {
            None => {}
            Some(data_type) if call.takes(*data_type) => calls.push(call),
            Some(_) => return None,
        }
    }
    Some(calls)
}

/// The aggregates of calls, each once.
fn all_aggregates(calls: &[PlanCall<'_>]) -> Vec<AggregateCall> {
    let mut all: Vec<AggregateCall> = Vec::with_capacity(calls.len());
    for new in calls.iter().flat_map(PlanCall::aggregates) {
        if !all.contains(&new) {
            all.push(new);
        }
    }
    all
}

/// The rows that are read of a table, and the conditions that are not in their choice; `None` if the plan cannot have all of them.
fn scan_of(
    selection: &Resolved,
    (name, schema): (&str, &Schema),
    calls: &[PlanCall<'_>],
) -> Option<(Scan, Lowered<Expr>)> {
    let mut fields: Vec<String> = calls.iter().map(|call| call.field().to_owned()).collect();
    let table = TableColumns { name: name.to_owned(), fields: Vec::new(), every_row: false };
    let mut scan = Scan { table: Some(table), selectors: Vec::new(), tokens: Vec::new(), range: selection.range };
    let lowered = lower::lower(selection.condition.as_ref(), schema, &mut scan);
    scan::each_condition_field(&lowered, &mut |name| fields.push(name.to_owned()));
    fields.sort();
    fields.dedup();
    scan.table.iter_mut().for_each(|table| table.fields = std::mem::take(&mut fields));
    lowered.rest.is_empty().then_some((scan, lowered))
}

/// Returns whether no two series of a scan are grouped together.
fn is_each_apart(
    session: &dyn Session,
    selection: &Resolved,
    database: &str,
    schema: &Schema,
    scan: &Scan,
) -> Result<bool, QueryError> {
    if schema.tags.iter().all(|tag| selection.grouped_by.contains(tag)) {
        return Ok(true);
    }
    let mut tags = HashSet::new();
    let is_apart = |group: &TableGroup| {
        let mut fields: Vec<&String> = group.fields.iter().collect();
        fields.sort_unstable();
        // Columns with labels of their own are several series.
        fields.is_sorted_by(|a, b| a != b) && tags.insert(group_tags(selection, &group.tags))
    };
    Ok(session.groups(database, scan)?.iter().all(is_apart))
}

/// Windows of all series together, no more than are wanted where there is one call: what is filled in lies between those that have values, or
/// after them. Of several calls each has as many values as are wanted.
fn cut(selection: &Resolved, plan: Plan) -> Plan {
    let is_cut = selection.windows.is_some()
        && selection.calls.len() == 1
        && selection.grouped_by.is_empty()
        && selection.limits.rows > 0;
    if !is_cut {
        return plan;
    }
    if !selection.descending {
        return Plan::Limit { input: Box::new(plan), rows: selection.most(), skip: 0 };
    }
    let last = Plan::Last { input: Box::new(plan), rows: selection.most() };
    Plan::Order { input: Box::new(last), by: Expression::Time, descending: false }
}

/// A call's results out of frames, in the order of the answer.
fn call_outs(
    session: &dyn Session,
    selection: &Resolved,
    call: &Call,
    frames: &[Frame],
) -> Result<Vec<Point>, QueryError> {
    let Some(of_plan) = PlanCall::new(call) else { return Ok(Vec::new()) };
    let start_ns = if selection.range.start_ns == TIME_MIN_NS { 0 } else { selection.range.start_ns };
    let mut outs = Vec::with_capacity(frames.iter().map(Frame::rows).sum());
    for (time_ns, value) in frames.iter().flat_map(|frame| frame.timestamps_ns.iter().zip(of_plan.values(frame))) {
        let Some(value) = value else { continue };
        let time_ns = if selection.windows.is_some() { *time_ns } else { start_ns };
        outs.push(Point { time_ns, value, origin: None });
    }
    if selection.descending {
        outs.reverse();
    }
    match Filling::from_selection(selection) {
        Some(filling) => filling.for_call(call).fill(outs, session.budget()),
        None => Ok(outs),
    }
}

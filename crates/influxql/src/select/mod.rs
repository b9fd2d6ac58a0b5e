//! Selections: groups of rows to rows of the answer.

mod calls;
mod fill;
mod input;
mod joined;
pub(crate) mod plan_aggregates;
pub(crate) mod plan_calls;
pub(crate) mod rows;
pub(crate) mod scan;
mod subquery;

use std::sync::Arc;

use query::{QueryError, ResultRows, RowRef, Session, Value};

use crate::resolve::selection::{Reference, Resolved};
use crate::select::calls::results;
use crate::select::input::{Group, Input, ValueSource};
use crate::select::joined::{CallResults, joined};
use crate::select::rows::{Rows, SeriesRows, shape_of, shown_references};
use crate::syntax::ast::Limits;

/// The rows of a selection: series sorted by name and tags, rows by time; both the other way round if times fall.
pub(crate) fn rows(session: &dyn Session, selection: &Resolved) -> Result<Vec<SeriesRows>, QueryError> {
    let mut all = Vec::new();
    if selection.range.start_ns > selection.range.end_ns {
        return Ok(all);
    }
    let (mut counted, shown) = (SeriesCounter::default(), shown_references(selection));
    if let Some(results) = plan_aggregates::results(session, selection)? {
        for grouped in results {
            if counted.keeps(&grouped.name, selection) {
                all.extend(plan_aggregates::rows(session, selection, grouped)?);
            } else {
                session.budget().give_back(grouped.samples());
            }
        }
    } else {
        for group in scan::groups(session, selection, &|inner| subquery_inputs(session, inner))? {
            session.budget().check()?;
            if !counted.keeps(&group.name, selection) {
                continue;
            }
            let samples: usize = group.inputs.iter().map(Input::samples).sum();
            let rows = if selection.calls.is_empty() {
                plain(session, selection, group, shown.as_deref())?
            } else {
                called(session, selection, &group)?
            };
            // Rows as they were read hold what was read.
            if !rows.as_ref().is_some_and(|series| matches!(series.rows, Rows::Read(_))) {
                session.budget().give_back(samples);
            }
            all.extend(rows);
        }
    }
    if selection.descending {
        all.reverse();
    }
    Ok(all)
}

/// The rows of a subquery, as the selection around it reads them.
fn subquery_inputs(session: &dyn Session, inner: &Resolved) -> Result<Vec<Input>, QueryError> {
    let mut inputs = Vec::new();
    for series in rows(session, inner)? {
        let input = subquery::input(inner, &series);
        session.budget().take(input.samples())?;
        inputs.push(input);
    }
    Ok(inputs)
}

/// Series of each measurement, counted for `SLIMIT` and `SOFFSET`.
#[derive(Default)]
struct SeriesCounter {
    name: Option<Arc<str>>,
    series: u64,
}

impl SeriesCounter {
    /// Returns whether the next series of a measurement is wanted; measurements come one after the other.
    fn keeps(&mut self, name: &Arc<str>, selection: &Resolved) -> bool {
        if self.name.as_ref() != Some(name) {
            *self = Self { name: Some(name.clone()), series: 0 };
        }
        self.series += 1;
        let Limits { series, series_skipped, .. } = selection.limits;
        self.series > series_skipped && (series == 0 || self.series - series_skipped <= series)
    }
}

/// Rows as they are: with values, unless what was read is all that is shown.
fn plain(
    session: &dyn Session,
    selection: &Resolved,
    group: Group,
    shown: Option<&[Reference]>,
) -> Result<Option<SeriesRows>, QueryError> {
    let order = order(selection, &group);
    if order.is_empty() {
        return Ok(None);
    }
    let Group { name, tags, inputs } = group;
    if inputs.iter().any(Input::has_folds) {
        session.budget().note_folded()?;
    }
    if let Some(shown) = shown {
        let frames = inputs.into_iter().map(Input::into_frame).collect();
        let rows = Rows::Read(ResultRows::in_given_order(frames, order, shape_of(shown)));
        return Ok(Some(SeriesRows { name, tags, rows }));
    }
    let all_sources: Vec<Vec<ValueSource>> = inputs.iter().map(|input| input.sources(&selection.references)).collect();
    let missing = fill::missing_fields(selection);
    let mut rows = Vec::with_capacity(order.len());
    for place in order {
        let number = place.series as usize;
        let (Some(input), Some(sources)) = (inputs.get(number), all_sources.get(number)) else { continue };
        let value = |column: usize| {
            let found = sources.get(column).map_or(Value::Null, |source| input.value(source, place.row as usize));
            if found.is_null() { missing.get(column).cloned().unwrap_or(Value::Null) } else { found }
        };
        rows.push(selection.row(place.time_ns, &|_| Value::Null, &value));
    }
    session.budget().take(rows.len() * selection.columns.len())?;
    Ok(Some(SeriesRows { name, tags, rows: Rows::Values(rows) }))
}

/// The rows of a group that are shown, in the order of the answer: those that have one of the fields.
fn order(selection: &Resolved, group: &Group) -> Vec<RowRef> {
    let mut order: Vec<RowRef> = Vec::with_capacity(group.inputs.iter().map(|input| input.times.len()).sum());
    for (series, input) in (0..).zip(&group.inputs) {
        let fields = input.fields(&selection.references);
        let all = input.every_row || fields.iter().any(|field| input.has_all(field));
        for (row, time_ns) in (0..).zip(&input.times) {
            if all || fields.iter().any(|field| !input.value(field, row as usize).is_null()) {
                order.push(RowRef { time_ns: *time_ns, series, row });
            }
        }
    }
    if group.inputs.iter().all(|input| input.in_time_order) {
        order.sort_by_key(|place| place.time_ns);
        if selection.descending {
            order.reverse();
        }
    }
    selection.limits.of_rows().apply(&mut order);
    order
}

/// Rows of what calls give.
fn called(session: &dyn Session, selection: &Resolved, group: &Group) -> Result<Option<SeriesRows>, QueryError> {
    let mut outs = Vec::with_capacity(selection.calls.len());
    for call in &selection.calls {
        outs.push(results(session, selection, call, group, selection.range, selection.most())?);
    }
    let result = CallResults { name: group.name.clone(), tags: group.tags.clone(), outs };
    joined(session, selection, result, Some(group))
}

//! Selections: groups of rows to rows of the answer.

use std::sync::Arc;

use model::{Labels, TimeRange};
use query::{Column, FrameColumn, QueryError, ResultRows, RowRef, Session, Value, Values};

use crate::fill::Filling;
use crate::holt_winters::{self, Forecast};
use crate::plan_aggregates;
use crate::reduce::{self, Point, TagsOf};
use crate::resolve::{Argument, Call, Code, Reference, Resolved};
use crate::rows::{Rows, shape_of, shown};
use crate::scan::{self, Group, Input, ValueSource};
use crate::syntax::ast::{Expr, Fill, Limits};
use crate::transform::transform;
use crate::validate::TRANSFORMATIONS;
use crate::value::{DataType, InfluxValue};

/// The unit of `derivative` and `integral` of fields.
const SECOND_NS: i64 = 1_000_000_000;

/// Rows of one series of an answer.
#[derive(Debug)]
pub(crate) struct SeriesRows {
    pub(crate) name: Arc<str>,
    /// Values of the tags by which rows are grouped.
    pub(crate) tags: Vec<String>,
    pub(crate) rows: Rows,
}

/// The results of a selection's calls for one series, in the order of the answer.
pub(crate) struct CallResults {
    pub(crate) name: Arc<str>,
    pub(crate) tags: Vec<String>,
    pub(crate) outs: Vec<Vec<Point>>,
}

/// The rows of a selection: series sorted by name and tags, rows by time; both the other way round if times fall.
pub(crate) fn rows(session: &dyn Session, of: &Resolved) -> Result<Vec<SeriesRows>, QueryError> {
    let mut found = Vec::new();
    if of.range.start_ns > of.range.end_ns {
        return Ok(found);
    }
    let (mut counted, shown) = (SeriesCounter::default(), shown(of));
    if let Some(results) = plan_aggregates::results(session, of)? {
        for grouped in results {
            if counted.keeps(&grouped.name, of) {
                found.extend(plan_aggregates::rows(session, of, grouped)?);
            } else {
                session.budget().give_back(grouped.samples());
            }
        }
    } else {
        for group in scan::groups(session, of)? {
            session.budget().check()?;
            if !counted.keeps(&group.name, of) {
                continue;
            }
            let held: usize = group.inputs.iter().map(Input::samples).sum();
            let rows = if of.calls.is_empty() {
                plain(session, of, group, shown.as_deref())?
            } else {
                called(session, of, &group)?
            };
            // Rows as they were read hold what was read.
            if !rows.as_ref().is_some_and(|found| matches!(found.rows, Rows::Read(_))) {
                session.budget().give_back(held);
            }
            found.extend(rows);
        }
    }
    if of.descending {
        found.reverse();
    }
    Ok(found)
}

/// Series of each measurement, counted for `SLIMIT` and `SOFFSET`.
#[derive(Default)]
struct SeriesCounter {
    name: Option<Arc<str>>,
    series: u64,
}

impl SeriesCounter {
    /// Returns whether the next series of a measurement is wanted; measurements come one after the other.
    fn keeps(&mut self, name: &Arc<str>, of: &Resolved) -> bool {
        if self.name.as_ref() != Some(name) {
            *self = Self { name: Some(name.clone()), series: 0 };
        }
        self.series += 1;
        let Limits { series, series_skipped, .. } = of.limits;
        self.series > series_skipped && (series == 0 || self.series - series_skipped <= series)
    }
}

/// Rows as they are: with values, unless what was read is all that is shown.
fn plain(
    session: &dyn Session,
    of: &Resolved,
    group: Group,
    shown: Option<&[Reference]>,
) -> Result<Option<SeriesRows>, QueryError> {
    let order = order(of, &group);
    if order.is_empty() {
        return Ok(None);
    }
    let Group { name, tags, inputs } = group;
    if let Some(shown) = shown {
        let frames = inputs.into_iter().map(Input::into_frame).collect();
        let rows = Rows::Read(ResultRows::in_given_order(frames, order, shape_of(shown)));
        return Ok(Some(SeriesRows { name, tags, rows }));
    }
    let all_places: Vec<Vec<ValueSource>> = inputs.iter().map(|input| places(input, &of.references)).collect();
    let mut rows = Vec::with_capacity(order.len());
    for place in order {
        let number = place.series as usize;
        let (Some(input), Some(places)) = (inputs.get(number), all_places.get(number)) else { continue };
        let value = |of: usize| places.get(of).map_or(Value::Null, |of| input.value(of, place.row as usize));
        rows.push(values(of, place.time_ns, &|_| Value::Null, &value));
    }
    session.budget().take(rows.len() * of.columns.len())?;
    Ok(Some(SeriesRows { name, tags, rows: Rows::Values(rows) }))
}

/// The rows of a group that are shown, in the order of the answer: those that have one of the fields.
fn order(of: &Resolved, group: &Group) -> Vec<RowRef> {
    let mut order: Vec<RowRef> = Vec::with_capacity(group.inputs.iter().map(|input| input.times.len()).sum());
    for (series, input) in (0..).zip(&group.inputs) {
        let fields = input.fields(&of.references);
        let all = input.every_row || fields.iter().any(|field| input.has_all(field));
        for (row, time_ns) in (0..).zip(&input.times) {
            if all || fields.iter().any(|field| !input.value(field, row as usize).is_null()) {
                order.push(RowRef { time_ns: *time_ns, series, row });
            }
        }
    }
    if group.inputs.iter().all(|input| input.in_time_order) {
        order.sort_by_key(|place| place.time_ns);
        if of.descending {
            order.reverse();
        }
    }
    of.limits.of_rows().apply(&mut order);
    order
}

fn places(input: &Input, references: &[Reference]) -> Vec<ValueSource> {
    references.iter().map(|reference| input.place(reference, false)).collect()
}

/// A row of the answer: its time, and a value for each column.
fn values(
    of: &Resolved,
    time_ns: i64,
    calls: &dyn Fn(usize) -> Value,
    references: &dyn Fn(usize) -> Value,
) -> Vec<Value> {
    let value = |code: &Code| code.value(calls, references, false).without_nan();
    std::iter::once(Value::Timestamp(time_ns)).chain(of.columns.iter().map(|column| value(&column.code))).collect()
}

/// Rows of what calls give.
fn called(session: &dyn Session, of: &Resolved, group: &Group) -> Result<Option<SeriesRows>, QueryError> {
    let mut outs = Vec::with_capacity(of.calls.len());
    for call in &of.calls {
        outs.push(results(session, of, call, group, of.range, of.most())?);
    }
    let result = CallResults { name: group.name.clone(), tags: group.tags.clone(), outs };
    joined(session, of, result, Some(group))
}

/// The results of a call for a group, in the order of the answer.
fn results(
    session: &dyn Session,
    of: &Resolved,
    call: &Call,
    group: &Group,
    range: TimeRange,
    most: usize,
) -> Result<Vec<Point>, QueryError> {
    let function = call.function.as_str();
    if TRANSFORMATIONS.contains(&function) {
        let outs = transformed(session, of, call, group, range)?;
        if Forecast::of(call, 1).is_some() {
            // A forecast lies after the range that it is made of.
            return Ok(outs);
        }
        let within = |out: &Point| out.time_ns >= first_window(of, range.start_ns) && out.time_ns <= range.end_ns;
        return Ok(outs.into_iter().filter(within).collect());
    }
    let windows = of.windows.as_ref();
    let points = match &call.argument {
        Argument::Reference(reference) => reduce::points(group, reference, range),
        Argument::Call(inner) => {
            let mut outs = results(session, of, inner, group, range, usize::MAX)?;
            outs.sort_by_key(|out| out.time_ns);
            outs
        }
    };
    session.budget().take(points.len())?;
    let own_times = windows.is_none() && of.selects_rows();
    let mut outs = Vec::new();
    if function == "integral" {
        let unit_ns = duration(&call.parameters).unwrap_or(SECOND_NS);
        outs = reduce::integral(&points, windows, unit_ns, range.start_ns);
    }
    let stretches =
        if function == "integral" { Vec::new() } else { reduce::by_window(&points, windows, range.start_ns) };
    for (start_ns, stretch) in stretches {
        let stretch = points.get(stretch).unwrap_or_default();
        reduced(call, group, stretch, start_ns, own_times, &mut outs);
    }
    session.budget().give_back(points.len());
    if of.descending {
        outs.reverse();
    }
    let is_filled = !matches!(call.function.as_str(), "distinct" | "sample" | "top" | "bottom" | "integral");
    match Filling::of(of).filter(|_| is_filled) {
        Some(filling) => Filling { range, most, ..filling.of_call(call) }.fill(outs, session.budget()),
        None => Ok(outs),
    }
}

/// Adds the results of one window's values.
fn reduced(call: &Call, group: &Group, points: &[Point], start_ns: i64, own_times: bool, outs: &mut Vec<Point>) {
    let function = call.function.as_str();
    let count = match call.parameters.last() {
        Some(Expr::Integer(count)) => usize::try_from(*count).unwrap_or(0),
        _ => 0,
    };
    match function {
        "distinct" => outs.extend(reduce::distinct(points, start_ns)),
        "sample" => outs.extend(reduce::sample(points, count)),
        "top" | "bottom" => {
            let tags: Vec<Reference> = call.parameters.iter().filter_map(tag_reference).collect();
            let tags_of = |out: &Point| {
                let (number, row) = out.origin.unwrap_or_default();
                let Some(input) = group.inputs.get(number) else { return Vec::new() };
                tags.iter().map(|tag| input.value(&input.place(tag, false), row)).collect()
            };
            let tags_of: Option<TagsOf<'_>> = if tags.is_empty() { None } else { Some(&tags_of) };
            outs.extend(reduce::top(points, count, function == "top", tags_of));
        }
        "max" | "min" | "first" | "last" | "percentile" => {
            let share = match call.parameters.first() {
                Some(Expr::Integer(share)) => *share as f64,
                Some(Expr::Number(share)) => *share,
                _ => 0.0,
            };
            let chosen = reduce::select(function, points, share).and_then(|place| points.get(place));
            outs.extend(chosen.map(|chosen| {
                let time_ns = if own_times { chosen.time_ns } else { start_ns };
                Point { time_ns, ..chosen.clone() }
            }));
        }
        _ => {
            let value = reduce::aggregate(function, points);
            outs.extend(value.map(|value| Point { time_ns: start_ns, value, origin: None }));
        }
    }
}

fn tag_reference(parameter: &Expr) -> Option<Reference> {
    match parameter {
        Expr::Reference { name, cast } => {
            Some(Reference { name: name.clone(), cast: *cast, data_type: DataType::Unknown })
        }
        _ => None,
    }
}

fn duration(parameters: &[Expr]) -> Option<i64> {
    match parameters.first() {
        Some(Expr::Duration(duration_ns)) => Some(*duration_ns),
        _ => None,
    }
}

/// The results of a transformation: of a field's values, or of another call's results one window earlier and on.
fn transformed(
    session: &dyn Session,
    of: &Resolved,
    call: &Call,
    group: &Group,
    range: TimeRange,
) -> Result<Vec<Point>, QueryError> {
    let function = call.function.as_str();
    let (inputs, unit_ns) = match &call.argument {
        Argument::Reference(reference) => {
            let mut points = reduce::points(group, reference, range);
            if of.descending {
                points.reverse();
            }
            (points, if function == "elapsed" { 1 } else { SECOND_NS })
        }
        Argument::Call(inner) => {
            let width_ns = of.windows.as_ref().map_or(SECOND_NS, |windows| windows.width_ns);
            let earlier_ns =
                if function == "cumulative_sum" || Forecast::of(call, width_ns).is_some() { 0 } else { width_ns };
            let mut wide = range;
            if of.descending {
                wide.end_ns = wide.end_ns.saturating_add(earlier_ns);
            } else if wide.start_ns > crate::time::TIME_MIN_NS {
                wide.start_ns = wide.start_ns.saturating_sub(earlier_ns);
            }
            (results(session, of, inner, group, wide, usize::MAX)?, if function == "elapsed" { 1 } else { width_ns })
        }
    };
    session.budget().take(inputs.len())?;
    let outs = match Forecast::of(call, unit_ns) {
        Some(asked) => holt_winters::forecast(asked, &inputs, session.budget()),
        None => Ok(transform(function, &call.parameters, unit_ns, of.descending, &inputs)),
    };
    session.budget().give_back(inputs.len());
    outs
}

/// Where the first window of the answer begins.
fn first_window(of: &Resolved, start_ns: i64) -> i64 {
    match &of.windows {
        Some(windows) if start_ns > crate::time::TIME_MIN_NS => windows.start_of(start_ns),
        _ => start_ns,
    }
}

/// Rows of calls' results side by side, by time.
pub(crate) fn joined(
    session: &dyn Session,
    of: &Resolved,
    mut result: CallResults,
    group: Option<&Group>,
) -> Result<Option<SeriesRows>, QueryError> {
    result.outs.iter_mut().for_each(|outs| of.limits.of_rows().apply(outs));
    let mut places = vec![0; result.outs.len()];
    let mut current: Vec<Value> = vec![Value::Null; result.outs.len()];
    let mut beside: Vec<Value> = vec![Value::Null; of.references.len()];
    let mut rows = Vec::new();
    loop {
        let times = result.outs.iter().zip(&places).filter_map(|(outs, place)| outs.get(*place)).map(|out| out.time_ns);
        let Some(time_ns) = (if of.descending { times.max() } else { times.min() }) else { break };
        let mut origin = None;
        for (((outs, place), call), current) in result.outs.iter().zip(&mut places).zip(&of.calls).zip(&mut current) {
            let out = outs.get(*place).filter(|out| out.time_ns == time_ns);
            if let Some(out) = out {
                *place += 1;
                origin = out.origin;
            }
            become_next(current, out.map(|out| out.value.clone()), of.fill, call.data_type);
        }
        // Only a single selector has fields and tags beside it.
        let row = origin.filter(|_| of.calls.len() == 1);
        let row = row.and_then(|(number, row)| Some((group?.inputs.get(number)?, row)));
        for (current, reference) in beside.iter_mut().zip(&of.references) {
            let found = row.map(|(input, row)| input.value(&input.place(reference, false), row));
            become_next(current, found.filter(|value| !value.is_null()), of.fill, reference.data_type);
        }
        let reference = |place: usize| beside.get(place).cloned().unwrap_or(Value::Null);
        let call = |place: usize| current.get(place).cloned().unwrap_or(Value::Null);
        rows.push(values(of, time_ns, &call, &reference));
    }
    session.budget().take(rows.len() * of.columns.len())?;
    let rows = Rows::Values(rows);
    Ok((!rows.is_empty()).then_some(SeriesRows { name: result.name, tags: result.tags, rows }))
}

/// Puts a column's next value in the place of the one before; where nothing was found, what `fill` says. InfluxDB fills the fields and tags
/// beside a selector as it fills the selector.
fn become_next(current: &mut Value, found: Option<Value>, fill: Fill, data_type: DataType) {
    match (found, fill) {
        (Some(found), _) => *current = found,
        (None, Fill::Previous) => {}
        (None, Fill::Integer(value)) => *current = default(&Value::Int(value), data_type),
        (None, Fill::Number(value)) => *current = default(&Value::Float(value), data_type),
        (None, _) => *current = Value::Null,
    }
}

/// The number of `fill` where a column has nothing.
fn default(number: &Value, data_type: DataType) -> Value {
    if data_type == DataType::Unknown {
        // No measurement has the field.
        return Value::Null;
    }
    if data_type.is_number() { number.cast(data_type) } else { number.clone() }
}

/// When a row of an answer is.
pub(crate) fn time_of(row: &[Value]) -> i64 {
    if let Some(Value::Timestamp(time_ns)) = row.first() { *time_ns } else { 0 }
}

/// Rows as what a selection around this one reads.
pub(crate) fn input(of: &Resolved, rows: &SeriesRows) -> Input {
    let tags = of.grouped_by.iter().zip(&rows.tags).map(|(name, value)| (name.as_str(), value.as_str()));
    let tags = Labels::from_pairs(tags).unwrap_or_else(|_| Labels::empty());
    let mut columns = Vec::with_capacity(of.columns.len());
    let values = rows.rows.values();
    for (place, column) in (1..).zip(&of.columns) {
        let cells = || values.iter().map(|row| row.get(place).unwrap_or(&Value::Null));
        columns.push(frame_column(&column.name, column.data_type, cells));
    }
    let mut times: Vec<i64> = values.iter().map(|row| time_of(row)).collect();
    if of.descending {
        times.reverse();
        columns.iter_mut().for_each(|column| column.cells.keep_last_reversed(times.len()));
    }
    let in_time_order = of.calls.is_empty() || of.windows.is_some();
    Input { name: rows.name.clone(), tags, times, columns, every_row: true, in_time_order }
}

/// Returns whether a cell has a value of a column's type.
pub(crate) fn fits(cell: &Value, data_type: DataType) -> bool {
    match data_type {
        DataType::Float => cell.as_number().is_some(),
        DataType::Integer => matches!(cell, Value::Int(_)),
        DataType::Unsigned => matches!(cell, Value::Unsigned(_)),
        DataType::Boolean => matches!(cell, Value::Bool(_)),
        DataType::Text | DataType::Tag | DataType::Unknown => matches!(cell, Value::Text(_)),
    }
}

fn frame_column<'v, I: Iterator<Item = &'v Value>>(
    name: &str,
    data_type: DataType,
    cells: impl Fn() -> I,
) -> FrameColumn {
    let values = match data_type {
        DataType::Integer => {
            Values::I64(cells().map(|cell| if let Value::Int(value) = cell { *value } else { 0 }).collect())
        }
        DataType::Unsigned => {
            Values::U64(cells().map(|cell| if let Value::Unsigned(value) = cell { *value } else { 0 }).collect())
        }
        DataType::Boolean => Values::Bool(cells().map(InfluxValue::is_true).collect()),
        DataType::Text | DataType::Tag | DataType::Unknown => {
            let text = |cell: &Value| if let Value::Text(text) = cell { text.to_string() } else { String::new() };
            Values::Text(cells().map(text).collect())
        }
        DataType::Float => Values::F64(cells().map(|cell| cell.as_number().unwrap_or_default()).collect()),
    };
    // What fills a column beside a selector need not be of the column's type.
    let validity: Vec<bool> = cells().map(|cell| fits(cell, data_type)).collect();
    let cells = Column { values, validity: validity.contains(&false).then_some(validity) };
    FrameColumn { name: name.into(), cells }
}

//! The results of calls that the plan does not have, over the rows of a group.

use model::TimeRange;
use query::{QueryError, Session, Summary};

use crate::functions::Point;
use crate::functions::folded::{self, FoldedPoint};
use crate::functions::holt_winters::{self, Forecast};
use crate::functions::reduce::{self, TagsOf};
use crate::functions::sketched;
use crate::functions::transform::transform;
use crate::resolve::selection::{Argument, Call, Reference, Resolved};
use crate::resolve::validate::TRANSFORMATIONS;
use crate::select::fill::Filling;
use crate::select::input::{Group, Input, ValueSource};
use crate::select::plan_calls::integral_unit_ns;
use crate::syntax::ast::Expr;
use crate::value::DataType;

/// The unit of `derivative` of fields.
const SECOND_NS: i64 = 1_000_000_000;

/// The results of a call for a group, in the order of the answer.
pub(super) fn results(
    session: &dyn Session,
    selection: &Resolved,
    call: &Call,
    group: &Group,
    range: TimeRange,
    most: usize,
) -> Result<Vec<Point>, QueryError> {
    let function = call.function.as_str();
    if TRANSFORMATIONS.contains(&function) {
        let outs = transformed(session, selection, call, group, range)?;
        if Forecast::from_call(call, 1).is_some() {
            // A forecast lies after the range that it is made of.
            return Ok(outs);
        }
        let within =
            |out: &Point| out.time_ns >= first_window(selection, range.start_ns) && out.time_ns <= range.end_ns;
        return Ok(outs.into_iter().filter(within).collect());
    }
    let windows = selection.windows.as_ref();
    let points = match &call.argument {
        Argument::Reference(reference) => points(group, reference, range),
        Argument::Call(inner) => {
            let mut outs = results(session, selection, inner, group, range, usize::MAX)?;
            outs.sort_by_key(|out| out.time_ns);
            outs
        }
    };
    session.budget().take(points.len())?;
    let own_times = windows.is_none() && selection.selects_rows();
    let mut outs = Vec::new();
    if function == "integral" {
        outs = reduce::integral(&points, windows, integral_unit_ns(call), range.start_ns);
    }
    let intervals =
        if function == "integral" { Vec::new() } else { reduce::by_window(&points, windows, range.start_ns) };
    let folds = PointFolds::new(group, &call.argument);
    if function == "integral" && folds.is_some() {
        session.budget().note_folded()?;
    }
    for (start_ns, interval) in intervals {
        let interval = points.get(interval).unwrap_or_default();
        if let Some(folds) = folds.as_ref().filter(|folds| interval.iter().any(|point| folds.fold_of(point).is_some()))
        {
            let found = folded::result(function, interval, &|point| folds.fold_of(point));
            let in_window = |time_ns: i64| windows.is_none_or(|windows| windows.start_of(time_ns) == start_ns);
            let is_cut = interval.iter().filter_map(|point| folds.fold_of(point)).any(|fold| !in_window(fold.first.0));
            let is_sure = found.as_ref().is_some_and(|found| found.has_time || !own_times);
            if !is_sure || is_cut {
                session.budget().note_folded()?;
            }
            if let Some(FoldedPoint { point, .. }) = found {
                let time_ns = if own_times && point.origin.is_some() { point.time_ns } else { start_ns };
                outs.push(Point { time_ns, ..point });
                continue;
            }
        }
        reduced(call, group, interval, start_ns, own_times, &mut outs)?;
    }
    session.budget().give_back(points.len());
    if selection.descending {
        outs.reverse();
    }
    let is_filled = !matches!(call.function.as_str(), "distinct" | "sample" | "top" | "bottom" | "integral");
    match Filling::from_selection(selection).filter(|_| is_filled) {
        Some(filling) => Filling { range, most, ..filling.for_call(call) }.fill(outs, session.budget()),
        None => Ok(outs),
    }
}

/// What the points of a reference stand for.
struct PointFolds<'a> {
    inputs: Vec<(&'a Input, ValueSource)>,
}

impl<'a> PointFolds<'a> {
    /// `None` if all stand for themselves.
    fn new(group: &'a Group, argument: &Argument) -> Option<Self> {
        let Argument::Reference(reference) = argument else { return None };
        let input = |input: &'a Input| (input, input.source(reference, false));
        let inputs: Vec<(&Input, ValueSource)> = group.inputs.iter().map(input).collect();
        inputs.iter().any(|(input, _)| input.has_folds()).then_some(Self { inputs })
    }

    fn fold_of(&self, point: &Point) -> Option<&'a Summary> {
        let (number, row) = point.origin?;
        let (input, source) = self.inputs.get(number)?;
        input.fold(source, row)
    }
}

/// Adds the results of one window's values.
fn reduced(
    call: &Call,
    group: &Group,
    points: &[Point],
    start_ns: i64,
    own_times: bool,
    outs: &mut Vec<Point>,
) -> Result<(), QueryError> {
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
                tags.iter().map(|tag| input.value(&input.source(tag, false), row)).collect()
            };
            let tags_of: Option<TagsOf<'_>> = if tags.is_empty() { None } else { Some(&tags_of) };
            outs.extend(reduce::top(points, count, function == "top", tags_of));
        }
        "max" | "min" | "first" | "last" | "percentile" => {
            let chosen = reduce::select(function, points, percent(call)).and_then(|index| points.get(index));
            outs.extend(chosen.map(|chosen| {
                let time_ns = if own_times { chosen.time_ns } else { start_ns };
                Point { time_ns, ..chosen.clone() }
            }));
        }
        _ => {
            let value = if sketched::is_sketched(function) {
                sketched::result(function, points, percent(call))?
            } else {
                reduce::aggregate(function, points)
            };
            outs.extend(value.map(|value| Point { time_ns: start_ns, value, origin: None }));
        }
    }
    Ok(())
}

/// The share that a call says, in percent.
fn percent(call: &Call) -> f64 {
    match call.parameters.first() {
        Some(Expr::Integer(share)) => *share as f64,
        Some(Expr::Number(share)) => *share,
        _ => 0.0,
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

/// The results of a transformation: of a field's values, or of another call's results one window earlier and on.
fn transformed(
    session: &dyn Session,
    selection: &Resolved,
    call: &Call,
    group: &Group,
    range: TimeRange,
) -> Result<Vec<Point>, QueryError> {
    let function = call.function.as_str();
    let (inputs, unit_ns) = match &call.argument {
        Argument::Reference(reference) => {
            if PointFolds::new(group, &call.argument).is_some() {
                session.budget().note_folded()?;
            }
            let mut points = points(group, reference, range);
            if selection.descending {
                points.reverse();
            }
            (points, if function == "elapsed" { 1 } else { SECOND_NS })
        }
        Argument::Call(inner) => {
            let width_ns = selection.windows.as_ref().map_or(SECOND_NS, |windows| windows.width().ns);
            let earlier_ns = if function == "cumulative_sum" || Forecast::from_call(call, width_ns).is_some() {
                0
            } else {
                width_ns
            };
            let mut wide = range;
            if selection.descending {
                wide.end_ns = wide.end_ns.saturating_add(earlier_ns);
            } else if wide.start_ns > crate::time::TIME_MIN_NS {
                wide.start_ns = wide.start_ns.saturating_sub(earlier_ns);
            }
            (
                results(session, selection, inner, group, wide, usize::MAX)?,
                if function == "elapsed" { 1 } else { width_ns },
            )
        }
    };
    session.budget().take(inputs.len())?;
    let outs = match Forecast::from_call(call, unit_ns) {
        Some(forecast) => holt_winters::forecast(forecast, &inputs, session.budget()),
        None => Ok(transform(function, &call.parameters, unit_ns, selection.descending, &inputs)),
    };
    session.budget().give_back(inputs.len());
    outs
}

/// Where the first window of the answer begins.
fn first_window(selection: &Resolved, start_ns: i64) -> i64 {
    match &selection.windows {
        Some(windows) if start_ns > crate::time::TIME_MIN_NS => windows.start_of(start_ns),
        _ => start_ns,
    }
}

/// The values of a reference in all inputs of a group, nulls left out, in order of time; where times are equal, in order of series.
fn points(group: &Group, reference: &Reference, range: TimeRange) -> Vec<Point> {
    let mut points = Vec::new();
    for (number, input) in group.inputs.iter().enumerate() {
        let source = input.source(reference, false);
        if !matches!(source, ValueSource::Column(..)) {
            continue;
        }
        for (row, time_ns) in input.times.iter().enumerate() {
            if !range.contains(*time_ns) {
                continue;
            }
            let value = input.value(&source, row);
            if !value.is_null() {
                points.push(Point { time_ns: *time_ns, value, origin: Some((number, row)) });
            }
        }
    }
    points.sort_by_key(|point| point.time_ns);
    points
}

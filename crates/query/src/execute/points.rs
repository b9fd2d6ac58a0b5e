//! Bins of all values of a column with their times: what ranks and modes are made of.

use model::Cell;

use super::bins::{Bin, Bins, samples_of};
use crate::plan::Aggregate;
use crate::statistics::ranked;
use crate::{Budget, Frame, QueryError, Value};

/// The bins of a column of which all values are kept with their times, which are taken out of a budget: the caller gives back what [`Bins::held_samples`] says.
pub(super) fn of_column(
    frame: &Frame,
    name: &str,
    start: &impl Fn(i64) -> i64,
    budget: &Budget,
) -> Result<Bins, QueryError> {
    let mut bins = Bins::default();
    let Some(column) = frame.columns.iter().find(|column| *column.name == *name) else { return Ok(bins) };
    let cells = || frame.timestamps_ns.iter().enumerate().map(|(row, time_ns)| (*time_ns, column.cell(row)));
    let samples = |cell: &Cell<'_>| match cell {
        Cell::Null => 0,
        Cell::Text(text) => samples_of_value(text.len()),
        _ => samples_of_value(0),
    };
    let wanted: usize = cells().map(|(_, cell)| samples(&cell)).sum();
    budget.take(wanted)?;
    // Rows are in order of time: those of a bin follow one another.
    let mut rows = cells().filter(|(_, cell)| !matches!(cell, Cell::Null)).peekable();
    while let Some((first_ns, cell)) = rows.next() {
        let start_ns = start(first_ns);
        let mut points = vec![(first_ns, Value::from(cell))];
        while let Some((time_ns, cell)) = rows.next_if(|(time_ns, _)| start(*time_ns) == start_ns) {
            points.push((time_ns, Value::from(cell)));
        }
        bins.add(start_ns, Bin::Points { points, first_ns });
    }
    budget.give_back(wanted.saturating_sub(bins.held_samples()));
    Ok(bins)
}

/// The samples that a value with its time takes out of a budget, given the bytes of its text.
const fn samples_of_value(text_bytes: usize) -> usize {
    // A text stands in a piece of memory of its own, with two counts.
    let own_bytes = if text_bytes > 0 { text_bytes + 2 * size_of::<usize>() } else { 0 };
    samples_of(size_of::<(i64, Value)>() + own_bytes)
}

/// The samples that a value with its time takes out of a budget.
pub(super) fn samples(value: &Value) -> usize {
    samples_of_value(if let Value::Text(text) = value { text.len() } else { 0 })
}

/// Puts points beside others; whole numbers and floats together are floats.
pub(super) fn merge(points: &mut Vec<(i64, Value)>, mut more: Vec<(i64, Value)>) {
    let is_float = |points: &[(i64, Value)]| matches!(points.first(), Some((_, Value::Float(_))));
    let is_number = |points: &[(i64, Value)]| {
        matches!(points.first(), Some((_, Value::Float(_) | Value::Int(_) | Value::Unsigned(_))))
    };
    if is_number(points) && is_number(&more) && is_float(points) != is_float(&more) {
        for (_, value) in points.iter_mut().chain(&mut more) {
            *value = value.number().map_or(Value::Null, Value::Float);
        }
    }
    points.append(&mut more);
}

/// An aggregate of points.
pub(super) fn value(points: &[(i64, Value)], aggregate: Aggregate) -> Cell<'_> {
    let found = match aggregate {
        Aggregate::NearestRank(percent) => {
            ranked::nearest_rank(points, percent).and_then(|index| points.get(index)).map(|(_, value)| value)
        }
        _ => ranked::mode(points),
    };
    found.map_or(Cell::Null, cell_of)
}

/// A value that was a cell.
fn cell_of(value: &Value) -> Cell<'_> {
    match value {
        Value::Float(number) => Cell::F64(*number),
        Value::Int(number) => Cell::I64(*number),
        Value::Unsigned(number) => Cell::U64(*number),
        Value::Bool(value) => Cell::Bool(*value),
        Value::Text(text) => Cell::Text(text),
        _ => Cell::Null,
    }
}

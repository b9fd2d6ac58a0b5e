//! Bins of what differs: values of columns, each once, and labels of series.

use std::collections::HashSet;

use model::Cell;

use super::bins::{Bin, Bins, DistinctValue};
use crate::{Budget, Frame, QueryError};

/// The bins of the different values of a column, which are taken out of a budget: the caller gives back what [`Bins::held_samples`] says.
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
        Cell::Text(text) => DistinctValue::samples(text.len()),
        _ => DistinctValue::samples(0),
    };
    let wanted: usize = cells().map(|(_, cell)| samples(&cell)).sum();
    budget.take(wanted)?;
    // Rows are in order of time: those of a bin follow one another.
    let mut open: Option<(i64, HashSet<DistinctValue>, i64)> = None;
    let mut close = |open: &mut Option<(i64, HashSet<DistinctValue>, i64)>| {
        if let Some((start_ns, values, first_ns)) = open.take() {
            bins.add(start_ns, Bin::Distinct { values, first_ns });
        }
    };
    for (time_ns, cell) in cells() {
        let Some(value) = value_of(&cell) else { continue };
        let start_ns = start(time_ns);
        if open.as_ref().is_none_or(|(known_ns, ..)| *known_ns != start_ns) {
            close(&mut open);
        }
        open.get_or_insert_with(|| (start_ns, HashSet::new(), time_ns)).1.insert(value);
    }
    close(&mut open);
    budget.give_back(wanted.saturating_sub(bins.held_samples()));
    Ok(bins)
}

/// The bins of a label: one value in each that has rows. They are taken out of a budget as those of a column are.
pub(super) fn of_tag(
    frame: &Frame,
    (name, is_exact): (&str, bool),
    start: &impl Fn(i64) -> i64,
    budget: &Budget,
) -> Result<Bins, QueryError> {
    let mut bins = Bins::default();
    let Some(value) = frame.labels.get(name).filter(|value| !value.is_empty()) else { return Ok(bins) };
    let (mut samples, mut last_ns) = (0, None);
    for time_ns in &frame.timestamps_ns {
        let start_ns = start(*time_ns);
        if last_ns.replace(start_ns) == Some(start_ns) {
            continue;
        }
        // Of a sketch its hash is held alone.
        let wanted = if is_exact { DistinctValue::samples(value.len()) } else { 1 };
        budget.take(wanted)?;
        samples += wanted;
        let bin = if is_exact {
            let values = HashSet::from([DistinctValue::Text(value.into())]);
            Bin::Distinct { values, first_ns: *time_ns }
        } else {
            Bin::of_text(*time_ns, value, (1, true))
        };
        bins.add(start_ns, bin);
    }
    budget.give_back(samples.saturating_sub(bins.held_samples()));
    Ok(bins)
}

/// A value as it differs from others of its column: both zeros are one, and so is all that is no number.
fn value_of(cell: &Cell<'_>) -> Option<DistinctValue> {
    Some(match cell {
        Cell::Null => return None,
        Cell::F64(number) if number.is_nan() => DistinctValue::Number(f64::NAN.to_bits()),
        Cell::F64(number) => DistinctValue::Number((number + 0.0).to_bits()),
        Cell::I64(number) => DistinctValue::Number(*number as u64),
        Cell::U64(number) => DistinctValue::Number(*number),
        Cell::Bool(value) => DistinctValue::Number(u64::from(*value)),
        Cell::Text(text) => DistinctValue::Text((*text).into()),
    })
}

//! Rows for bins of time that have none. SQL and InfluxQL fill their columns by the functions here too.

use model::Cell;

use crate::plan::FillWith;
use crate::result::frame::{Frame, FrameColumn};
use crate::{Budget, QueryError};

/// Adds rows between the first and the last so that there is one for every width.
pub(super) fn fill(frame: Frame, width_ns: i64, with: FillWith, budget: &Budget) -> Result<Frame, QueryError> {
    let frame = frame.in_time_order();
    let mut timestamps_ns: Vec<i64> = Vec::with_capacity(frame.rows());
    // Of each bin its row, if there is one.
    let mut rows: Vec<Option<usize>> = Vec::with_capacity(frame.rows());
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        while let Some(next_ns) = timestamps_ns.last().and_then(|last| last.checked_add(width_ns)) {
            if next_ns >= *time_ns {
                break;
            }
            if timestamps_ns.len().is_multiple_of(1024) {
                budget.take(1024 * frame.columns.len())?;
            }
            timestamps_ns.push(next_ns);
            rows.push(None);
        }
        timestamps_ns.push(*time_ns);
        rows.push(Some(row));
    }
    let mut columns = Vec::with_capacity(frame.columns.len());
    for column in &frame.columns {
        let slot = |(time_ns, row): (&i64, &Option<usize>)| (*time_ns, row.map(|row| column.cell(row)));
        let mut slots: Vec<(i64, Option<Cell<'_>>)> = timestamps_ns.iter().zip(&rows).map(slot).collect();
        fill_gaps(&mut slots, with, Cell::F64, |(from_ns, from), (to_ns, to), at_ns| {
            Some(Cell::F64(interpolated((*from_ns, from.number()?), (*to_ns, to.number()?), at_ns)))
        });
        let cells: Vec<Cell<'_>> = slots.into_iter().map(|(_, cell)| cell.unwrap_or(Cell::Null)).collect();
        columns.push(FrameColumn::of_cells(&column.name, &cells).map_err(QueryError::Execution)?);
    }
    Ok(Frame::new(frame.labels, timestamps_ns, columns))
}

/// Fills the gaps of one column. Slots are bins in their order, each with its time and its value if it has one; `number` makes a value of a
/// number, `between` one of its neighbours.
pub fn fill_gaps<V: Clone>(
    slots: &mut [(i64, Option<V>)],
    with: FillWith,
    number: impl Fn(f64) -> V,
    between: impl Fn(&(i64, V), &(i64, V), i64) -> Option<V>,
) {
    let mut before: Option<(i64, V)> = None;
    let mut rest = slots;
    while !rest.is_empty() {
        let gaps = rest.iter().take_while(|(_, value)| value.is_none()).count();
        let (gap, others) = rest.split_at_mut(gaps);
        let next = others.first().and_then(|(ns, value)| Some((*ns, value.clone()?)));
        for (ns, value) in gap {
            *value = match with {
                FillWith::Null => None,
                FillWith::Number(with) => Some(number(with)),
                FillWith::Previous => before.as_ref().map(|(_, value)| value.clone()),
                FillWith::Linear => {
                    before.as_ref().zip(next.as_ref()).and_then(|(before, next)| between(before, next, *ns))
                }
            };
        }
        before = next;
        rest = others.get_mut(1..).unwrap_or_default();
    }
}

/// The number at a time between two others, in proportion to time.
pub fn interpolated((from_ns, from): (i64, f64), (to_ns, to): (i64, f64), at_ns: i64) -> f64 {
    // Times at both ends of time are further apart than 64 bits hold.
    let since = |ns: i64| (i128::from(ns) - i128::from(from_ns)) as f64;
    from + (to - from) * (since(at_ns) / since(to_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_filled_by_what_is_around_them() {
        let fill = |with| {
            let values = [None, Some(1.0), None, None, Some(7.0), None];
            let mut slots: Vec<(i64, Option<f64>)> = (0..).zip(values).collect();
            let between = |before: &(i64, f64), next: &(i64, f64), ns| Some(interpolated(*before, *next, ns));
            fill_gaps(&mut slots, with, |number| number, between);
            slots.into_iter().map(|(_, value)| value.unwrap_or(-1.0)).collect::<Vec<_>>()
        };
        assert_eq!(fill(FillWith::Null), [-1.0, 1.0, -1.0, -1.0, 7.0, -1.0]);
        assert_eq!(fill(FillWith::Number(0.5)), [0.5, 1.0, 0.5, 0.5, 7.0, 0.5]);
        assert_eq!(fill(FillWith::Previous), [-1.0, 1.0, 1.0, 1.0, 7.0, 7.0]);
        assert_eq!(fill(FillWith::Linear), [-1.0, 1.0, 3.0, 5.0, 7.0, -1.0]);
    }
}

//! Rows for bins that have none.

use model::Cell;

use crate::frame::{Frame, FrameColumn};
use crate::plan::FillWith;
use crate::{Budget, QueryError, fill_gaps, interpolated};

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
    Ok(Frame { labels: frame.labels, timestamps_ns, columns })
}

//! Rows for bins that have none.

use model::Cell;

use crate::frame::{Frame, FrameColumn};
use crate::plan::FillWith;
use crate::{Budget, QueryError};

/// Adds rows between the first and the last so that there is one for every width.
pub(super) fn fill(frame: Frame, width_ns: i64, with: FillWith, budget: &Budget) -> Result<Frame, QueryError> {
    let frame = frame.in_time_order();
    let mut timestamps_ns: Vec<i64> = Vec::with_capacity(frame.rows());
    // Of each row the one before that was there, and itself if it was there.
    let mut origins: Vec<(usize, bool)> = Vec::with_capacity(frame.rows());
    for (row, time_ns) in frame.timestamps_ns.iter().enumerate() {
        while let Some(next_ns) = timestamps_ns.last().and_then(|last| last.checked_add(width_ns)) {
            if next_ns >= *time_ns {
                break;
            }
            if timestamps_ns.len().is_multiple_of(1024) {
                budget.take(1024 * frame.columns.len())?;
            }
            timestamps_ns.push(next_ns);
            origins.push((row - 1, false));
        }
        timestamps_ns.push(*time_ns);
        origins.push((row, true));
    }
    let mut columns = Vec::with_capacity(frame.columns.len());
    for column in &frame.columns {
        let cell = |(place, (row, there)): (usize, &(usize, bool))| {
            if *there { column.cell(*row) } else { made(column, &frame, *row, timestamps_ns.get(place).copied(), with) }
        };
        let cells: Vec<Cell<'_>> = origins.iter().enumerate().map(cell).collect();
        columns.push(FrameColumn::of_cells(&column.name, &cells).map_err(QueryError::Execution)?);
    }
    Ok(Frame { labels: frame.labels, timestamps_ns, columns })
}

/// The value of a new row behind an old one.
fn made<'a>(column: &'a FrameColumn, frame: &Frame, before: usize, time_ns: Option<i64>, with: FillWith) -> Cell<'a> {
    match with {
        FillWith::Null => Cell::Null,
        FillWith::Previous => column.cell(before),
        FillWith::Number(number) => Cell::F64(number),
        FillWith::Linear => {
            let times = (frame.timestamps_ns.get(before), time_ns, frame.timestamps_ns.get(before + 1));
            let values = (column.cell(before).number(), column.cell(before + 1).number());
            match (times, values) {
                ((Some(from), Some(at), Some(to)), (Some(a), Some(b))) => {
                    Cell::F64(a + (b - a) * ((at - from) as f64 / (to - from) as f64))
                }
                _ => Cell::Null,
            }
        }
    }
}

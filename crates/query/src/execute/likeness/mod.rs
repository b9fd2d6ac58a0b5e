//! Plans of likeness: what is like a reference, what comes again, what never does, which series behave alike. The algorithms are those of `similarity`; here is what
//! they read, how much of it at once, and what their answers look like.
//!
//! * `grid`: bins of time · `read`: series in bins
//! * `similar`: places like a reference · `epochs`: the same for all series of a regular database, as their values lie
//! * `within`: motifs and discords of a series · `alike`: groups of series

mod alike;
mod epochs;
mod grid;
mod read;
mod similar;
mod within;

use model::Labels;

use super::Run;
use crate::plan::{Likeness, Question};
use crate::{Cell, Frame, FrameColumn, QueryError};
use grid::{Grid, invalid};

/// Places, pairs or series that an answer has at most.
const COUNT_MAX: usize = 10_000;

/// Series whose motifs or discords one query computes.
const PROFILES_MAX: usize = 100;

impl Run<'_> {
    /// The answer to a question of likeness.
    pub(super) fn likeness(&mut self, likeness: &Likeness) -> Result<Vec<Frame>, QueryError> {
        let grid = Grid::of_plan(&likeness.input, likeness, "the range of the series")?;
        match &likeness.question {
            Question::Similar(similar) => {
                checked_count(similar.count.min(similar.per_series))?;
                checked_count(similar.count)?;
                let of_reference = Grid::of_plan(&similar.reference, likeness, "the range of the reference")?;
                self.similar(&likeness.input, similar, (grid, of_reference))
            }
            Question::Motifs { count, window_ns } => {
                let (count, width) = (checked_count(*count)?, grid.width(*window_ns)?);
                self.motifs(&likeness.input, &grid, (count, width))
            }
            Question::Discords { count, window_ns } => {
                let (count, width) = (checked_count(*count)?, grid.width(*window_ns)?);
                self.discords(&likeness.input, &grid, (count, width))
            }
            Question::Alike { correlation } => {
                if !(-1.0..=1.0).contains(correlation) {
                    return invalid(format!("a correlation of {correlation}: it is between -1 and 1"));
                }
                self.alike(&likeness.input, &grid, *correlation)
            }
        }
    }
}

fn checked_count(count: usize) -> Result<usize, QueryError> {
    match count {
        0 => invalid("none are wanted: at least 1 is".to_owned()),
        1..=COUNT_MAX => Ok(count),
        _ => invalid(format!("{count} are wanted: at most {COUNT_MAX} are given")),
    }
}

/// A frame of rows of cells, each with its time.
fn frame(labels: Labels, names: &[&str], mut rows: Vec<(i64, Vec<Cell<'_>>)>) -> Result<Frame, QueryError> {
    rows.sort_by_key(|(time_ns, _)| *time_ns);
    let times_ns = rows.iter().map(|(time_ns, _)| *time_ns).collect();
    let mut columns = Vec::with_capacity(names.len());
    for (place, name) in names.iter().enumerate() {
        let cells: Vec<Cell<'_>> =
            rows.iter().map(|(_, cells)| cells.get(place).copied().unwrap_or(Cell::Null)).collect();
        columns.push(FrameColumn::of_cells(name, &cells).map_err(QueryError::Execution)?);
    }
    Ok(Frame::new(labels, times_ns, columns))
}

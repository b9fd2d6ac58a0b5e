//! Rows of materialised views.

use model::{Cell, TimeRange};

use super::{Context, Run, execute};
use crate::plan::{Plan, Scan, ViewRead};
use crate::result::frame::FrameColumn;
use crate::{Frame, QueryError, ViewUse};

impl Run<'_> {
    /// The rows of a view's parts, series by series.
    pub(super) fn view(&mut self, read: &ViewRead) -> Result<Vec<Frame>, QueryError> {
        let (mut of_parts, mut charged) = (Vec::with_capacity(read.parts.len()), 0);
        for part in &read.parts {
            let frames = self.plan(&part.plan)?;
            charged += frames.iter().map(Frame::samples).sum::<usize>();
            let frames = frames.into_iter().map(|frame| with_columns(frame, &read.columns));
            of_parts.push((frames.collect::<Result<Vec<Frame>, QueryError>>()?, part.range));
        }
        self.timed("view", |run| {
            let parts: Vec<(&[Frame], TimeRange)> =
                of_parts.iter().map(|(frames, range)| (frames.as_slice(), *range)).collect();
            let mut joined = Frame::join(&parts)?;
            if !read.every_row {
                joined = joined.into_iter().map(with_values).collect();
            }
            joined.retain(|frame| frame.rows() > 0);
            run.context.budget.take(joined.iter().map(Frame::samples).sum())?;
            run.context.budget.give_back(charged);
            Ok(joined)
        })
    }
}

/// The columns of these names, null where a frame has none.
fn with_columns(mut frame: Frame, names: &[String]) -> Result<Frame, QueryError> {
    let mut columns = Vec::with_capacity(names.len());
    for name in names {
        columns.push(match frame.columns.iter().position(|column| *column.name == **name) {
            Some(place) => frame.columns.swap_remove(place),
            None => {
                let nulls = vec![Cell::Null; frame.rows()];
                FrameColumn::of_cells(name, &nulls).map_err(QueryError::Execution)?
            }
        });
    }
    frame.columns = columns;
    Ok(frame)
}

/// Leaves the rows in which a column has a value.
fn with_values(frame: Frame) -> Frame {
    let has_value = |row: &usize| {
        let is_valid =
            |column: &FrameColumn| column.cells.validity.as_ref().is_none_or(|valid| valid.get(*row) == Some(&true));
        frame.columns.iter().any(is_valid)
    };
    let rows: Vec<usize> = (0..frame.rows()).filter(has_value).collect();
    if rows.len() == frame.rows() { frame } else { frame.into_picked(&rows) }
}

/// The first and the last time of a scan's rows; empty if it has none.
pub(super) fn extent(scan: &Scan, context: &Context<'_>) -> Result<TimeRange, QueryError> {
    let input = || Box::new(Plan::Scan(scan.clone()));
    let ends = [Plan::Limit { input: input(), rows: 1, skip: 0 }, Plan::Last { input: input(), rows: 1 }];
    let mut extent = TimeRange::EMPTY;
    for plan in ends {
        let held = context.budget.samples();
        // Of a view that is read all windows count, also if it gives stored ones alone to those who ask for it.
        let view_use = context.budget.view_use();
        if view_use == ViewUse::All {
            context.budget.use_views(ViewUse::Named);
        }
        let found = execute(&plan, context);
        context.budget.use_views(view_use);
        let found = found?;
        let times: Vec<i64> = found.frames.iter().flat_map(|frame| frame.timestamps_ns.iter().copied()).collect();
        context.budget.give_back(context.budget.samples().saturating_sub(held) as usize);
        extent = extent.union(TimeRange::from_timestamps(&times));
    }
    Ok(extent)
}

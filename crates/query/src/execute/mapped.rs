//! New columns of rows: by themselves, and of rows of a table that are grouped right after, which are not held for it.

use model::{Cell, Column};

use super::binned::Binned;
use super::bins::samples_of;
use super::evaluate;
use super::group::{Gathered, bin_frame};
use super::narrow::Wanted;
use super::scan::{Reader, of_table};
use super::{Run, filtered_scan, note_folds, regular_source};
use crate::plan::{AggregateCall, AggregateInput, Expression, Grouping, Plan, Scan};
use crate::result::frame::FrameColumn;
use crate::{Budget, Frame, QueryError};

/// Names and what they are computed from.
type NewColumns = [(String, Expression)];

/// Rows with new columns in place of their own, of a plan all of whose rows count whatever they hold.
pub(super) struct MappedRows<'a> {
    rows: &'a Plan,
    columns: &'a NewColumns,
}

impl<'a> MappedRows<'a> {
    /// The rows of a plan; `None` if it is another one.
    pub(super) fn new(plan: &'a Plan) -> Option<Self> {
        let Plan::Map { input, columns } = plan else { return None };
        has_every_row(input).then_some(Self { rows: input, columns })
    }

    /// The scan of a table whose rows they are, and the condition that these satisfy; `None` if they are made otherwise.
    fn scan(&self) -> Option<(&'a Scan, Option<&'a Expression>)> {
        match self.rows {
            Plan::Scan(scan) => Some((scan, None)),
            other => filtered_scan(other).map(|(scan, condition)| (scan, Some(condition))),
        }
    }

    /// Those of its columns that a grouping reads.
    fn read_by(&self, grouping: &Grouping) -> Vec<(String, Expression)> {
        let reads = |call: &AggregateCall, name: &str| call.input == AggregateInput::Each || call.reads(name);
        let is_read = |name: &str| grouping.aggregates.iter().any(|call| reads(call, name));
        self.columns.iter().filter(|(name, _)| is_read(name)).cloned().collect()
    }
}

/// Returns whether rows count in which nothing that is read has a value.
pub(super) fn has_every_row(plan: &Plan) -> bool {
    match plan {
        Plan::Scan(scan) => scan.is_of_every_row(),
        Plan::View(read) => read.every_row,
        Plan::Where { input, .. } => has_every_row(input),
        Plan::AsOf(as_of) => has_every_row(&as_of.input),
        _ => false,
    }
}

impl Run<'_> {
    /// The bins of rows with new columns.
    pub(super) fn mapped_bins(
        &mut self,
        mapped: &MappedRows<'_>,
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        let columns = mapped.read_by(grouping);
        let budget = self.context.budget;
        if let Some((scan, condition)) = mapped.scan().filter(|_| regular_source(self.context).is_none()) {
            let bin = |reader: &mut Reader<'_>, group: &store::SelectedGroup| {
                let mut binned = Vec::new();
                for mut frame in reader.read_group(scan, group, &scan.range)? {
                    budget.give_back(frame.samples());
                    if let Some(condition) = condition {
                        frame = evaluate::filtered(of_table(scan, frame, condition), condition, budget)?;
                    }
                    if frame.rows() > 0 {
                        binned.push(binned_with(frame, &columns, grouping, budget)?);
                    }
                }
                Ok(binned)
            };
            return self.gather(scan, &wanted(scan, condition, &columns), grouping, &bin);
        }
        let frames = self.plan(mapped.rows)?;
        let mut gathered = Gathered::new(grouping, budget);
        for frame in frames {
            budget.check()?;
            let held = frame.samples();
            gathered.add(binned_with(frame.in_time_order(), &columns, grouping, budget)?);
            budget.give_back(held);
        }
        Ok(gathered.into_binned())
    }
}

/// The fields that are read for a condition and for new columns.
fn wanted<'a>(scan: &'a Scan, condition: Option<&'a Expression>, columns: &'a NewColumns) -> Wanted<'a> {
    let mut wanted = Vec::new();
    let mut read = condition.into_iter().chain(columns.iter().map(|(_, of)| of));
    if read.all(|of| of.each_column(&mut |column| wanted.push(column))) { Some(wanted) } else { scan.wanted() }
}

/// The bins of a table's rows with new columns; of a column that they do not have they have nulls. Columns that stay as they are keep what folding left of
/// them.
fn binned_with(
    mut frame: Frame,
    columns: &NewColumns,
    grouping: &Grouping,
    budget: &Budget,
) -> Result<Binned, QueryError> {
    let asked = frame.rows().saturating_mul(columns.len());
    budget.take(asked)?;
    for (_, of) in columns {
        frame = frame.with_nulls_for(of);
    }
    if columns.iter().any(|(_, of)| evaluate::column(of, &frame).is_none()) {
        note_folds(std::slice::from_ref(&frame), budget)?;
    }
    let mut asked = asked;
    let mut made = Vec::with_capacity(columns.len());
    for new in columns {
        let (column, text_samples) = new_column(new, &frame, Column::clone, budget)?;
        asked += text_samples;
        made.push(column);
    }
    let mapped = Frame { row_folds: frame.row_folds.clone(), ..Frame::new(frame.labels, frame.timestamps_ns, made) };
    let binned = bin_frame(&mapped, grouping, true, budget)?;
    budget.give_back(asked);
    Ok(binned)
}

/// Rows with new columns in place of their own.
pub(super) fn mapped(frame: Frame, columns: &NewColumns, budget: &Budget) -> Result<Frame, QueryError> {
    let mut made = Vec::with_capacity(columns.len());
    for new in columns {
        let (column, text_samples) = new_column(new, &frame, Column::without_folds, budget)?;
        // The caller charges the frame as a whole.
        budget.give_back(text_samples);
        made.push(column);
    }
    Ok(Frame::new(frame.labels, frame.timestamps_ns, made))
}

/// A new column of rows, given what stays of one that is another by its name alone; and the samples that its texts were taken out of the budget for.
fn new_column(
    (name, of): &(String, Expression),
    frame: &Frame,
    renamed: impl Fn(&Column) -> Column,
    budget: &Budget,
) -> Result<(FrameColumn, usize), QueryError> {
    if let Some(column) = evaluate::column(of, frame) {
        return Ok((FrameColumn { name: name.as_str().into(), cells: renamed(&column.cells) }, 0));
    }
    let mut cells: Vec<Cell<'_>> = Vec::with_capacity(frame.rows());
    for row in 0..frame.rows() {
        if row.is_multiple_of(evaluate::ROWS_PER_CHECK) {
            budget.check()?;
        }
        cells.push(evaluate::cell(of, frame, row)?);
    }
    // Each row gets a text of its own.
    let text_bytes = |cell: &Cell<'_>| if let Cell::Text(text) = cell { size_of::<String>() + text.len() } else { 0 };
    let samples = samples_of(cells.iter().map(text_bytes).sum());
    budget.take(samples)?;
    let made = FrameColumn::of_cells(name, &cells).map_err(QueryError::Execution)?;
    Ok((made, samples))
}

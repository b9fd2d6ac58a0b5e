//! Plans over regular databases: their series come from epochs instead of groups.

use model::Labels;
use store::End;

use super::binned::Binned;
use super::group::{Gathered, bin_frame};
use super::scan::filtered_rows;
use super::{Context, Run, limited, ordered};
use crate::plan::{Expression, Grouping, Scan};
use crate::series::regular::RegularSource;
use crate::session::TableGroup;
use crate::{Frame, LastRows, Outcome, QueryError, Reads};

impl Run<'_> {
    /// Visits the rows of a scan for which a condition holds, if there is one, series by series. They are charged to the budget until then.
    fn each_regular(
        &mut self,
        (source, scan): (RegularSource<'_>, &Scan),
        condition: Option<&Expression>,
        visit: &mut dyn FnMut(Frame) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let (budget, reads) = (self.context.budget, &mut self.reads);
        source.each_frame(scan, budget, &mut |frame| {
            reads.groups += 1;
            reads.samples += frame.samples() as u64;
            let Some(condition) = condition else { return visit(frame) };
            let frame = filtered_rows(scan, frame, condition, budget)?;
            if frame.rows() > 0 { visit(frame) } else { Ok(()) }
        })
    }

    /// The rows of a scan for which a condition holds, if there is one, in order of labels.
    pub(super) fn scan_regular(
        &mut self,
        source: RegularSource<'_>,
        scan: &Scan,
        condition: Option<&Expression>,
    ) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        self.each_regular((source, scan), condition, &mut |frame| {
            frames.push(frame);
            Ok(())
        })?;
        frames.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(frames)
    }

    /// The rows of a scan for which a condition holds, if there is one, in bins.
    pub(super) fn regular_bins(
        &mut self,
        source: RegularSource<'_>,
        scan: (&Scan, Option<&Expression>),
        grouping: &Grouping,
    ) -> Result<Vec<Binned>, QueryError> {
        let budget = self.context.budget;
        let (scan, condition) = scan;
        let mut gathered = Gathered::new(grouping, budget);
        self.each_regular((source, scan), condition, &mut |frame| {
            gathered.add(bin_frame(&frame, grouping, scan.is_of_every_row(), budget)?);
            budget.give_back(frame.samples());
            Ok(())
        })?;
        Ok(gathered.into_binned())
    }

    /// The rows at one end of each series of a scan.
    pub(super) fn end_rows_regular(
        &mut self,
        source: RegularSource<'_>,
        scan: &Scan,
        (rows, end): (usize, End),
    ) -> Result<Vec<Frame>, QueryError> {
        let frames = self.scan_regular(source, scan, None)?;
        let cut = |frame: Frame| match end {
            End::Newest => Ok(limited(ordered(&frame, &Expression::Time, true)?, rows, 0)),
            End::Oldest => Ok(limited(frame, rows, 0)),
        };
        let before: usize = frames.iter().map(Frame::samples).sum();
        let frames: Vec<Frame> = frames.into_iter().map(cut).collect::<Result<_, QueryError>>()?;
        self.context.budget.give_back(before.saturating_sub(frames.iter().map(Frame::samples).sum()));
        Ok(frames)
    }

    /// The last row of each series of a scan.
    pub(super) fn last_rows_regular(&mut self, source: RegularSource<'_>, scan: &Scan) -> Result<LastRows, QueryError> {
        let frames = self.end_rows_regular(source, scan, (1, End::Newest))?;
        Ok(LastRows::of_frames(Outcome { frames, steps: Vec::new(), reads: Reads::default() }))
    }
}

/// The series of a scan, as groups of its table.
pub(crate) fn groups(scan: &Scan, context: &Context<'_>) -> Result<Option<Vec<TableGroup>>, QueryError> {
    let Some(source) = super::regular_source(context) else { return Ok(None) };
    let fields: Vec<String> = source.table().fields.into_iter().map(|(name, _)| name).collect();
    let tags = |name: &str| Labels::empty().with(crate::series::regular::NAME_TAG, name);
    let names = source.scanned_names(scan, context.budget)?;
    Ok(Some(names.iter().map(|(_, name)| TableGroup { tags: tags(name), fields: fields.clone() }).collect()))
}

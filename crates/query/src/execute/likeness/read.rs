//! Reading series in bins, one after another or several at once: what is held at once is bounded by the threads, not by the series.

use std::sync::{Mutex, PoisonError};

use model::{Labels, Matcher};
use store::{EpochCell, EpochRows, NamesRead, SelectedGroup};

use super::grid::{Grid, invalid};
use crate::execute::narrow::Narrowing;
use crate::execute::scan::Reader;
use crate::execute::{Run, note_folds, regular_source};
use crate::plan::{Scan, Selector};
use crate::series::regular::RegularSource;
use crate::{Frame, Plan, QueryError, Reads};

/// Cells of a regular database that a thread reads at once.
const CELLS_AT_ONCE: u64 = 1 << 20;

/// A series in bins.
#[derive(Debug, Clone)]
pub(super) struct Binned {
    /// Its labels.
    pub(super) labels: Labels,
    /// A value for each bin; NaN where there is none.
    pub(super) values: Vec<f64>,
}

/// Takes series and their numbers, which ascend in the order in which they are selected. It may be called by several threads at once.
pub(super) type Visit<'v> = dyn Fn(u64, &Binned) -> Result<(), QueryError> + Sync + 'v;

/// Series of a plan within a union that are told apart by their numbers.
const SERIES_MAX: u64 = 1 << 54;

/// Columns of a group that are told apart by their numbers.
const COLUMNS_MAX: u64 = 1 << 24;

impl Run<'_> {
    /// Visits all series of a plan.
    pub(super) fn each_binned(&mut self, plan: &Plan, grid: &Grid, visit: &Visit<'_>) -> Result<(), QueryError> {
        if let Plan::Union(plans) = plan {
            return (0..).zip(plans).try_for_each(|(place, plan): (u64, _)| {
                let visit = |number: u64, binned: &Binned| visit(place * SERIES_MAX + number, binned);
                self.each_binned(plan, grid, &visit)
            });
        }
        let Plan::Scan(scan) = plan else {
            let frames = self.plan(plan)?;
            note_folds(&frames, self.context.budget)?;
            return self.each_of_frames(&frames, grid, visit);
        };
        match regular_source(self.context) {
            Some(source) if scan.table.is_none() && scan.tokens.is_empty() => self.each_name(source, scan, grid, visit),
            Some(_) => {
                let frames = self.scan(scan)?;
                self.each_of_frames(&frames, grid, visit)
            }
            None => self.each_of_groups(scan, grid, visit),
        }
    }

    /// The only series of a plan.
    pub(super) fn one_binned(&mut self, plan: &Plan, grid: &Grid, what: &str) -> Result<Binned, QueryError> {
        let only: Mutex<Option<Binned>> = Mutex::new(None);
        self.each_binned(plan, grid, &|_, binned| {
            let mut only = only.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = &*only {
                let (known, other) = (&known.labels, &binned.labels);
                return invalid(format!("{what} is one series; {known} and {other} are selected"));
            }
            *only = Some(binned.clone());
            Ok(())
        })?;
        let only = only.into_inner().unwrap_or_else(PoisonError::into_inner);
        only.ok_or_else(|| {
            QueryError::Invalid(format!("{what} is one series; none is selected that has samples there"))
        })
    }

    fn each_of_frames(&mut self, frames: &[Frame], grid: &Grid, visit: &Visit<'_>) -> Result<(), QueryError> {
        let budget = self.context.budget;
        self.context.helpers.run(frames.len(), budget, &|place| {
            let Some(frame) = frames.get(place) else { return Ok(0) };
            visit_frame(self.context.budget, frame, grid, place as u64, visit)?;
            Ok(frame.rows() as u64)
        })?;
        budget.give_back(frames.iter().map(Frame::samples).sum());
        Ok(())
    }

    fn each_of_groups(&mut self, scan: &Scan, grid: &Grid, visit: &Visit<'_>) -> Result<(), QueryError> {
        let context = self.context;
        let groups = self.groups(scan)?;
        let narrowing = Narrowing::new(&groups, &scan.wanted());
        let group_reader = context.store.reader();
        let all_reads: Mutex<Reads> = Mutex::default();
        context.helpers.run(groups.len(), context.budget, &|place| {
            let Some(group) = groups.get(place) else { return Ok(0) };
            context.budget.check()?;
            let mut reader = Reader { context, groups: &group_reader, reads: Reads::default(), narrowing: &narrowing };
            visit_group(&mut reader, (scan, group), grid, place as u64, visit)?;
            all_reads.lock().unwrap_or_else(PoisonError::into_inner).merge(&reader.reads);
            Ok(reader.reads.samples)
        })?;
        self.reads.merge(&all_reads.into_inner().unwrap_or_else(PoisonError::into_inner));
        self.reads.origins.merge(&group_reader.origins());
        Ok(())
    }

    /// Series of a regular database, as many at once as their values lie together.
    fn each_name(
        &mut self,
        source: RegularSource<'_>,
        scan: &Scan,
        grid: &Grid,
        visit: &Visit<'_>,
    ) -> Result<(), QueryError> {
        let context = self.context;
        let names = source.names(&matchers(scan), &scan.range, context.budget)?;
        let Some((_, epochs)) = context.store.epoch_rows(context.database, &scan.range)? else { return Ok(()) };
        // In the order in which values lie; a series' number is that of its name in the order of texts.
        let mut order: Vec<(u32, u64)> = names.iter().zip(0..).map(|((number, _), place)| (*number, place)).collect();
        order.sort_unstable();
        let chunks: Vec<&[(u32, u64)]> = order.chunks((CELLS_AT_ONCE / epochs.max(1)).max(1) as usize).collect();
        let all_reads: Mutex<Reads> = Mutex::default();
        context.helpers.run(chunks.len(), context.budget, &|place| {
            let Some(chunk) = chunks.get(place) else { return Ok(0) };
            context.budget.check()?;
            let cells = epochs.saturating_mul(chunk.len() as u64).min(usize::MAX as u64) as usize;
            context.budget.take(cells)?;
            let numbers: Vec<u32> = chunk.iter().map(|(number, _)| *number).collect();
            let read = NamesRead { names: &numbers, range: scan.range, rows: EpochRows::Values };
            let rows = context.store.read_names(context.database, &read);
            context.budget.give_back(cells);
            let (mut groups, mut samples) = (0, 0);
            for (rows, (_, number)) in rows?.into_iter().zip(*chunk) {
                if rows.times_ns.is_empty() {
                    continue;
                }
                context.budget.check()?;
                context.budget.take(grid.bins)?;
                let value = |cell: &EpochCell| match cell {
                    EpochCell::Value(value) => value.to_f64(),
                    EpochCell::Undefined | EpochCell::Missing => f64::NAN,
                };
                let values = grid.fill(rows.times_ns.iter().copied().zip(rows.cells.iter().map(value)));
                let visited = visit(*number, &Binned { labels: source.labels(&rows.name, true), values });
                context.budget.give_back(grid.bins);
                visited?;
                (groups, samples) = (groups + 1, samples + rows.cells.len() as u64);
            }
            let mut reads = all_reads.lock().unwrap_or_else(PoisonError::into_inner);
            (reads.groups, reads.samples) = (reads.groups + groups, reads.samples + samples);
            Ok(samples)
        })?;
        self.reads.merge(&all_reads.into_inner().unwrap_or_else(PoisonError::into_inner));
        Ok(())
    }
}

pub(super) fn matchers(scan: &Scan) -> Vec<Matcher> {
    scan.selectors.iter().map(Selector::matcher).collect()
}

fn visit_group(
    reader: &mut Reader<'_>,
    (scan, group): (&Scan, &SelectedGroup),
    grid: &Grid,
    place: u64,
    visit: &Visit<'_>,
) -> Result<(), QueryError> {
    let budget = reader.context.budget;
    let frames = reader.read_group(scan, group, &scan.range)?;
    let samples = frames.iter().map(Frame::samples).sum();
    let visited = note_folds(&frames, budget).and_then(|()| {
        let mut numbered = (place * COLUMNS_MAX..).zip(&frames);
        numbered.try_for_each(|(number, frame)| visit_frame(budget, frame, grid, number, visit))
    });
    budget.give_back(samples);
    visited
}

fn visit_frame(
    budget: &crate::Budget,
    frame: &Frame,
    grid: &Grid,
    number: u64,
    visit: &Visit<'_>,
) -> Result<(), QueryError> {
    budget.check()?;
    budget.take(grid.bins)?;
    let visited = grid.of_frame(frame).and_then(|values| match values {
        Some(values) => visit(number, &Binned { labels: frame.labels.clone(), values }),
        None => Ok(()),
    });
    budget.give_back(grid.bins);
    visited
}

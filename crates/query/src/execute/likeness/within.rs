//! Motifs and discords: the matrix profile of each series.

use std::sync::{Mutex, PoisonError};

use similarity::{MatrixProfile, ProfileTask, discords, motifs};

use super::grid::{Grid, invalid};
use super::read::Binned;
use super::{PROFILES_MAX, frame};
use crate::execute::Run;
use crate::{Cell, Frame, Plan, QueryError, SAMPLE_BYTES};

/// Pairs of windows that cost about as much as reading a sample.
const PAIRS_PER_SAMPLE: usize = 8;

impl Run<'_> {
    /// For each series its motifs: rows at the first place of each pair, with the time of the second.
    pub(super) fn motifs(
        &mut self,
        input: &Plan,
        grid: &Grid,
        (count, width): (usize, usize),
    ) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        for Binned { labels, values } in self.all_binned(input, grid)? {
            let profile = self.profile(&values, width)?;
            let mut rows = Vec::new();
            for (rank, motif) in (1..).zip(motifs(&profile, width, count)) {
                let [time_ns, other_ns] = motif.indexes.map(|bin| grid.time_of(bin));
                rows.push((time_ns, vec![Cell::I64(rank), Cell::F64(motif.distance), Cell::I64(other_ns)]));
            }
            frames.push(frame(labels, &["rank", "distance", "other"], rows)?);
        }
        self.charged(frames, grid)
    }

    /// For each series its discords: rows at each place, with the time of what is nearest to it.
    pub(super) fn discords(
        &mut self,
        input: &Plan,
        grid: &Grid,
        (count, width): (usize, usize),
    ) -> Result<Vec<Frame>, QueryError> {
        let mut frames = Vec::new();
        for Binned { labels, values } in self.all_binned(input, grid)? {
            let profile = self.profile(&values, width)?;
            let mut rows = Vec::new();
            for (rank, (bin, nearest)) in (1..).zip(discords(&profile, width, count)) {
                let other_ns = grid.time_of(nearest.index);
                let cells = vec![Cell::I64(rank), Cell::F64(nearest.distance), Cell::I64(other_ns)];
                rows.push((grid.time_of(bin), cells));
            }
            frames.push(frame(labels, &["rank", "distance", "other"], rows)?);
        }
        self.charged(frames, grid)
    }

    /// All series of a plan, charged to the budget: so few that they can be held.
    fn all_binned(&mut self, input: &Plan, grid: &Grid) -> Result<Vec<Binned>, QueryError> {
        let budget = self.context.budget;
        let all: Mutex<Vec<(u64, Binned)>> = Mutex::default();
        self.each_binned(input, grid, &|number, binned| {
            budget.take(grid.bins)?;
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= PROFILES_MAX {
                return invalid(format!(
                    "more than {PROFILES_MAX} series are selected: every two places of each are compared"
                ));
            }
            all.push((number, binned.clone()));
            Ok(())
        })?;
        let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_by_key(|(number, _)| *number);
        Ok(all.into_iter().map(|(_, binned)| binned).collect())
    }

    /// The frames with rows, charged for in the place of the series that they are of.
    fn charged(&self, mut frames: Vec<Frame>, grid: &Grid) -> Result<Vec<Frame>, QueryError> {
        self.context.budget.give_back(frames.len() * grid.bins);
        frames.retain(|frame| frame.rows() > 0);
        self.context.budget.take(frames.iter().map(Frame::samples).sum())?;
        Ok(frames)
    }

    fn profile(&self, values: &[f64], width: usize) -> Result<MatrixProfile, QueryError> {
        let budget = self.context.budget;
        let samples = ProfileTask::memory_bytes(values.len()) / SAMPLE_BYTES;
        budget.take(samples)?;
        let task = ProfileTask::new(values, width);
        let sum = Mutex::new(task.sum());
        let done = self.context.helpers.run(task.tiles(), budget, &|tile| {
            budget.check()?;
            let found = task.run(tile);
            sum.lock().unwrap_or_else(PoisonError::into_inner).take(&found);
            Ok((task.pairs(tile) / PAIRS_PER_SAMPLE) as u64)
        });
        let profile = done.map(|()| task.finish(&sum.into_inner().unwrap_or_else(PoisonError::into_inner)));
        budget.give_back(samples);
        profile
    }
}

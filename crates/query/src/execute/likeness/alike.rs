//! Groups of series of which every two correlate.

use std::sync::{Mutex, PoisonError};

use model::Labels;
use similarity::{MEMBERS_MAX, Pattern, groups, matrix_bytes};

use super::frame;
use super::grid::{Grid, invalid};
use crate::execute::Run;
use crate::{Cell, Frame, Plan, QueryError, SAMPLE_BYTES};

impl Run<'_> {
    /// A row for each series without missing bins: its group, numbered from 1, and how many series are in it.
    pub(super) fn alike(&mut self, input: &Plan, grid: &Grid, correlation: f64) -> Result<Vec<Frame>, QueryError> {
        let budget = self.context.budget;
        let all: Mutex<Vec<(u64, Labels, Pattern)>> = Mutex::default();
        self.each_binned(input, grid, &|number, binned| {
            let Some(pattern) = Pattern::new(&binned.values, true) else { return Ok(()) };
            let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MEMBERS_MAX {
                return invalid(format!("more than {MEMBERS_MAX} series are selected: every two of them are compared"));
            }
            budget.take(grid.bins)?;
            all.push((number, binned.labels.clone(), pattern));
            Ok(())
        })?;
        let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_by_key(|(number, ..)| *number);
        let mut labels = Vec::with_capacity(all.len());
        let mut series = Vec::with_capacity(all.len());
        for (_, of_series, pattern) in all {
            labels.push(of_series);
            series.push(pattern);
        }
        let samples = matrix_bytes(series.len()) / SAMPLE_BYTES;
        budget.take(samples)?;
        let numbers = groups(&series, correlation, &mut || budget.check());
        budget.give_back(samples + series.len() * grid.bins);
        let numbers = numbers?;
        let mut members = vec![0_i64; numbers.len()];
        numbers.iter().filter_map(|number| members.get_mut(*number).map(|count| *count += 1)).for_each(drop);
        let mut frames = Vec::with_capacity(labels.len());
        for (labels, number) in labels.into_iter().zip(numbers) {
            let count = members.get(number).copied().unwrap_or(0);
            let cells = vec![Cell::I64(number as i64 + 1), Cell::I64(count)];
            frames.push(frame(labels, &["group", "members"], vec![(grid.start_ns, cells)])?);
        }
        budget.take(frames.iter().map(Frame::samples).sum())?;
        Ok(frames)
    }
}

//! Bins of time that series are put into before they are compared.

use model::TimeRange;

use crate::plan::{BinValue, Likeness};
use crate::{Frame, Plan, QueryError, Values};

/// Bins of one series.
pub(super) const BINS_MAX: usize = 1 << 20;

/// Bins of a stretch: fewer have hardly a form, and any two have the same one.
pub(super) const WIDTH_MIN: usize = 3;

/// Bins that follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grid {
    pub(super) start_ns: i64,
    pub(super) step_ns: i64,
    pub(super) bins: usize,
    pub(super) value: BinValue,
}

impl Grid {
    /// The bins of a plan's range.
    pub(super) fn of_plan(plan: &Plan, likeness: &Likeness, what: &str) -> Result<Self, QueryError> {
        let TimeRange { start_ns, end_ns } = plan.read_range();
        if start_ns == i64::MIN || end_ns == i64::MAX {
            return invalid(format!("{what} has no bounds in time: say from when to when"));
        }
        let Likeness { step_ns, bins: value, .. } = *likeness;
        if step_ns <= 0 {
            return invalid(format!("a step of {step_ns} ns: it is more than nothing"));
        }
        let bins = (i128::from(end_ns) - i128::from(start_ns) + 1).max(0) / i128::from(step_ns);
        if bins > BINS_MAX as i128 {
            return invalid(format!(
                "{what} has {bins} bins: at most {BINS_MAX} can be compared; widen the step or narrow the range"
            ));
        }
        if bins < WIDTH_MIN as i128 {
            return invalid(format!("{what} has {bins} bins: at least {WIDTH_MIN} are compared"));
        }
        Ok(Self { start_ns, step_ns, bins: bins as usize, value })
    }

    /// Bins in so many nanoseconds; an error if they are too few to be compared, or do not fit into the grid.
    pub(super) fn width(&self, window_ns: i64) -> Result<usize, QueryError> {
        let width = (window_ns / self.step_ns).max(0) as usize;
        if width < WIDTH_MIN {
            return invalid(format!("a window of {width} bins: at least {WIDTH_MIN} are compared"));
        }
        if width > self.bins {
            return invalid(format!("a window of {width} bins is longer than the range, which has {}", self.bins));
        }
        Ok(width)
    }

    /// When a bin begins.
    pub(super) const fn time_of(&self, bin: usize) -> i64 {
        self.start_ns.saturating_add(self.step_ns.saturating_mul(bin as i64))
    }

    /// The bin that begins when another grid does, if one of this step does; it may lie outside of the grid.
    pub(super) fn bin_of(&self, other: &Self) -> Option<i64> {
        let distance_ns = other.start_ns.checked_sub(self.start_ns)?;
        (distance_ns % self.step_ns == 0).then_some(distance_ns / self.step_ns)
    }

    /// Samples in order of time, in bins; NaN where there are none.
    pub(super) fn fill(&self, samples: impl Iterator<Item = (i64, f64)>) -> Vec<f64> {
        let mut values = vec![f64::NAN; self.bins];
        // A bin's number, its sum and how many samples are in it.
        let mut open = (usize::MAX, 0.0, 0.0);
        for (time_ns, sample) in samples {
            let Some(bin) = time_ns.checked_sub(self.start_ns).filter(|after_ns| *after_ns >= 0) else { continue };
            let bin = (bin / self.step_ns) as usize;
            let Some(value) = values.get_mut(bin) else { continue };
            open = if open.0 == bin { (bin, open.1 + sample, open.2 + 1.0) } else { (bin, sample, 1.0) };
            *value = match self.value {
                BinValue::Last => sample,
                BinValue::Average => open.1 / open.2,
            };
        }
        values
    }

    /// A frame's values in bins. `None` if it has no numbers; an error if it is not clear which of its columns is meant.
    pub(super) fn of_frame(&self, frame: &Frame) -> Result<Option<Vec<f64>>, QueryError> {
        let Some(column) = frame.value() else {
            let names: Vec<&str> = frame.columns.iter().map(|column| &*column.name).collect();
            return invalid(format!("series are compared by one column, not by {names:?}: select one of them"));
        };
        let times = frame.timestamps_ns.iter().copied();
        Ok(match (&column.cells.values, &column.cells.validity) {
            (Values::Text(_), _) => None,
            (Values::F64(values), None) => Some(self.fill(times.zip(values.iter().copied()))),
            _ => {
                let number = |row| match column.cell(row) {
                    model::Cell::Bool(value) => Some(f64::from(u8::from(value))),
                    cell => cell.number(),
                };
                Some(self.fill(times.zip(0..).filter_map(|(time_ns, row)| Some((time_ns, number(row)?)))))
            }
        })
    }
}

pub(super) fn invalid<T>(message: String) -> Result<T, QueryError> {
    Err(QueryError::Invalid(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_means_or_last_samples() {
        let grid = |value| Grid { start_ns: 10, step_ns: 5, bins: 3, value };
        let samples = [(9, 9.0), (10, 1.0), (14, 2.0), (20, 3.0), (20, 4.0), (25, 8.0), (30, 9.0)];
        let filled = |value| format!("{:?}", grid(value).fill(samples.into_iter()));
        assert_eq!(filled(BinValue::Average), "[1.5, NaN, 3.5]");
        assert_eq!(filled(BinValue::Last), "[2.0, NaN, 4.0]");
        assert_eq!(grid(BinValue::Last).bin_of(&Grid { start_ns: -5, ..grid(BinValue::Last) }), Some(-3));
        assert_eq!(grid(BinValue::Last).bin_of(&Grid { start_ns: 11, ..grid(BinValue::Last) }), None);
        assert_eq!(grid(BinValue::Last).time_of(2), 20);
    }
}

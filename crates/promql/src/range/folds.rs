//! Windows over folded samples: the values that summaries have (the rule is at [`query::Folds`]).
//!
//! A window is open at its start and closed at its end. A fold belongs to the window that its last sample is in; of one whose
//! first sample lies just on a bound of windows, that sample is put where it belongs.

use model::{Labels, ValueType};
use query::{QueryError, Summary};

use crate::eval::annotations::Annotations;
use crate::eval::rows::{Row, cleaned};
use crate::range::range_functions::WindowEvaluation;
use crate::range::samples::{Cursor, SampleInterval, Samples};
use crate::syntax::ast::Edges;
use crate::syntax::functions::RangeFunction;

const NS_PER_MS: i64 = 1_000_000;

impl RangeFunction {
    /// Its value, if a summary has it.
    fn of_summary(self, summary: &Summary) -> Option<f64> {
        let seconds = |time_ns: i64| time_ns.div_euclid(NS_PER_MS) as f64 / 1000.0;
        match self {
            Self::Count => Some(summary.count as f64),
            Self::Present => Some(1.0),
            Self::Sum => Some(summary.total()),
            Self::Average => Some(summary.total() / summary.count as f64),
            Self::Minimum => Some(summary.number(summary.min)),
            Self::Maximum => Some(summary.number(summary.max)),
            Self::First => Some(summary.number(summary.first.1)),
            Self::Last => Some(summary.number(summary.last.1)),
            Self::TimestampOfFirst => Some(seconds(summary.first.0)),
            Self::TimestampOfLast => Some(seconds(summary.last.0)),
            _ => None,
        }
    }

    /// Returns whether its value stays sure when the first sample of a fold is taken away.
    fn is_sure_without_first(self, fold: &Summary) -> bool {
        let first = fold.number(fold.first.1);
        match self {
            Self::Minimum => first.is_nan() || first > fold.number(fold.min),
            Self::Maximum => first.is_nan() || first < fold.number(fold.max),
            Self::First | Self::TimestampOfFirst => false,
            _ => true,
        }
    }
}

impl WindowEvaluation<'_> {
    /// Returns whether the summaries of samples that were folded have the function's values.
    pub(super) fn is_of_folds(&self, samples: &Samples) -> bool {
        let is_plain = self.bounds.edges == Edges::Plain && samples.histograms.is_empty();
        is_plain && !samples.folds.is_empty() && self.function.of_summary(&Summary::empty(ValueType::F64)).is_some()
    }

    /// The row of a series some of whose samples were folded.
    pub(super) fn row_of_folds(
        &self,
        labels: &Labels,
        samples: &Samples,
        annotations: &Annotations,
    ) -> Result<Row, QueryError> {
        let (mut row, mut floats) = (Row::new(labels.clone()), Cursor::default());
        for step in 0..self.bounds.ends.steps.count {
            self.budget.check()?;
            let interval = self.bounds.window(step);
            let (first, end) = floats.advance(&samples.timestamps_ms, interval);
            let times_ms = samples.timestamps_ms.get(first..end).unwrap_or_default();
            let values = samples.values.get(first..end).unwrap_or_default();
            let mut window = WindowSummary::new(self.function, interval);
            let mut folds = of_window(&samples.folds, interval).iter().peekable();
            for (time_ms, value) in times_ms.iter().zip(values) {
                let mut is_folded = false;
                while let Some(fold) = folds.next_if(|fold| last_ms(fold) <= *time_ms) {
                    is_folded = last_ms(fold) == *time_ms;
                    window.add_fold(fold);
                }
                if !is_folded {
                    window.add(time_ms.saturating_mul(NS_PER_MS), value.to_bits());
                }
            }
            folds.for_each(|fold| window.add_fold(fold));
            if window.is_inexact {
                annotations.folded(self.span, self.budget)?;
            }
            let value = self.function.of_summary(&window.summary).filter(|_| window.summary.count > 0);
            value.into_iter().for_each(|value| row.push_float(step, cleaned(value)));
        }
        Ok(row)
    }
}

const fn last_ms(fold: &Summary) -> i64 {
    fold.last.0.div_euclid(NS_PER_MS)
}

/// The folds that have samples in an interval, or around it.
fn of_window(folds: &[Summary], interval: SampleInterval) -> &[Summary] {
    let first = folds.partition_point(|fold| last_ms(fold) <= interval.after_ms);
    let after = folds.get(first..).unwrap_or_default();
    let begins_inside = |fold: &Summary| fold.first.0.div_euclid(NS_PER_MS) <= interval.to_ms;
    after.get(..after.partition_point(begins_inside)).unwrap_or_default()
}

/// The summary of a window's samples.
struct WindowSummary {
    function: RangeFunction,
    interval: SampleInterval,
    summary: Summary,
    /// True if the window cuts a fold.
    is_inexact: bool,
}

impl WindowSummary {
    const fn new(function: RangeFunction, interval: SampleInterval) -> Self {
        Self { function, interval, summary: Summary::empty(ValueType::F64), is_inexact: false }
    }

    fn add(&mut self, time_ns: i64, bits: u64) {
        let mut one = Summary::empty(ValueType::F64);
        one.add(time_ns, bits);
        self.summary.merge_unordered(&one);
    }

    fn add_fold(&mut self, fold: &Summary) {
        let SampleInterval { after_ms, to_ms } = self.interval;
        let (first_ms, last_ms) = (fold.first.0.div_euclid(NS_PER_MS), last_ms(fold));
        if last_ms > to_ms {
            if first_ms == to_ms {
                self.add(fold.first.0, fold.first.1);
            } else {
                self.is_inexact = true;
            }
            return;
        }
        if first_ms > after_ms {
            return self.summary.merge_unordered(fold);
        }
        self.is_inexact |= first_ms < after_ms || !self.function.is_sure_without_first(fold);
        let without_first =
            Summary { count: fold.count - 1, sum: (fold.sum.0 - fold.number(fold.first.1), fold.sum.1), ..*fold };
        self.summary.merge_unordered(if first_ms < after_ms { fold } else { &without_first });
    }
}

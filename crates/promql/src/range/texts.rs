//! Series of texts: the steps at which each of their samples counts.

use std::ops::Range;

use query::{QueryError, TextSample, TextSink};

use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::SCAN;
use crate::eval::rows::Steps;
use crate::range::window_bounds::{SelectorOutput, WindowBounds};
use crate::syntax::ast::{Expr, Node, Selector};

/// A selector and its windows.
#[derive(Clone, Copy)]
pub(crate) struct TextWindows<'e> {
    selector: &'e Selector,
    pub(crate) bounds: WindowBounds,
    /// The newest sample of each series counts alone: it is an instant selector, whose windows are its lookback.
    pub(crate) is_of_newest: bool,
}

/// A sample and the steps at which it counts; there may be none.
pub(crate) struct CountingSample<'s> {
    pub(crate) steps: Range<usize>,
    pub(crate) time_ms: i64,
    pub(crate) sample: &'s TextSample,
}

impl TextWindows<'_> {
    /// The number of the first step whose window ends at a time or later.
    fn first_step_from(&self, time_ms: i64) -> usize {
        let ends = &self.bounds.ends;
        let count = ends.steps.count;
        match time_ms.saturating_sub(ends.first_ms()) {
            ..=0 => 0,
            // All windows are the same.
            _ if ends.is_pinned() => count,
            past_ms => count.min(past_ms.unsigned_abs().div_ceil(ends.steps.step_ms.max(1).unsigned_abs()) as usize),
        }
    }

    /// The steps at which each sample of a series counts. Of those of a window that are not the newest, none does if that alone counts.
    pub(crate) fn counting<'s>(
        &self,
        samples: &'s [(i64, TextSample)],
    ) -> impl Iterator<Item = CountingSample<'s>> + use<'s, '_> {
        let next_ms = samples.iter().skip(1).map(|(time_ms, _)| Some(*time_ms)).chain([None]);
        samples.iter().zip(next_ms).map(|((time_ms, sample), next_ms)| {
            let gone = self.first_step_from(time_ms.saturating_add(self.bounds.range_ms));
            let next = next_ms.filter(|_| self.is_of_newest).map_or(gone, |next_ms| self.first_step_from(next_ms));
            CountingSample { steps: self.first_step_from(*time_ms)..gone.min(next), time_ms: *time_ms, sample }
        })
    }
}

impl Evaluator<'_> {
    /// The windows of a selector for an aggregation.
    pub(crate) fn text_windows<'e>(
        &self,
        input: &'e Expr,
        steps: Steps,
        aggregation: &str,
    ) -> Result<TextWindows<'e>, QueryError> {
        let windows = match &input.unwrapped().node {
            Node::Range(range) => {
                let bounds = self.range_bounds(range, steps);
                TextWindows { selector: &range.selector, bounds, is_of_newest: false }
            }
            Node::Selector(selector) => {
                let lookback_ms = self.settings.lookback_ms;
                let bounds = WindowBounds::instant(selector, SelectorOutput::Values, steps, lookback_ms);
                let bounds = WindowBounds { edges: selector.edges, ..bounds };
                TextWindows { selector, bounds, is_of_newest: true }
            }
            _ => return Err(QueryError::Execution(format!("expected a selector of sketches in {aggregation}"))),
        };
        windows.bounds.check_edges(aggregation)?;
        Ok(windows)
    }

    /// Hands all series that have samples in the windows to a sink, and reports what `size` says of it: series and samples.
    pub(crate) fn scan_texts<S: TextSink>(
        &self,
        windows: &TextWindows<'_>,
        sink: &S,
        size: impl FnOnce(&S) -> (usize, usize),
    ) -> Result<(), QueryError> {
        let started_ns = self.source.trace().map(query::Trace::begin);
        let selection = windows.bounds.read_interval().selection(&windows.selector.matchers);
        self.source.scan_texts(&selection, self.budget, sink)?;
        if let Some((trace, started_ns)) = self.source.trace().zip(started_ns) {
            let (series, samples) = size(sink);
            trace.end(started_ns, Some(SCAN), series, samples);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range::samples::SampleInterval;
    use crate::range::window_bounds::WindowEnds;
    use crate::syntax::ast::{Edges, Shift};

    /// Against looking into each window.
    #[test]
    fn samples_count_in_the_windows_that_they_are_in() {
        let selector =
            Selector { name: String::new(), matchers: Vec::new(), shift: Shift::default(), edges: Edges::Plain };
        let times_ms = [-7, 0, 3, 4, 10, 11, 20, 21, 38, 40, 41, 77];
        let samples: Vec<(i64, TextSample)> = times_ms.iter().map(|time_ms| (*time_ms, TextSample::Other)).collect();
        for (step_ms, count, range_ms) in [(10, 5, 10), (10, 5, 1), (7, 8, 25), (1, 40, 3), (100, 1, 60), (3, 12, 1000)]
        {
            let steps = Steps { start_ms: 1, step_ms, count };
            let bounds = WindowBounds::lookback(WindowEnds::new(&selector.shift, steps), range_ms);
            for is_of_newest in [false, true] {
                let windows = TextWindows { selector: &selector, bounds, is_of_newest };
                let found: Vec<Range<usize>> = windows.counting(&samples).map(|counting| counting.steps).collect();
                for step in 0..count {
                    let SampleInterval { after_ms, to_ms } = bounds.window(step);
                    let is_inside = |time_ms: &&i64| after_ms < **time_ms && **time_ms <= to_ms;
                    let inside: Vec<i64> = times_ms.iter().filter(is_inside).copied().collect();
                    let expected = if is_of_newest { inside.last().copied().into_iter().collect() } else { inside };
                    let counting = times_ms.iter().zip(&found).filter(|(_, steps)| steps.contains(&step));
                    let counting: Vec<i64> = counting.map(|(time_ms, _)| *time_ms).collect();
                    assert_eq!(counting, expected, "{step_ms} {count} {range_ms} {is_of_newest} {step}");
                }
            }
        }
    }
}

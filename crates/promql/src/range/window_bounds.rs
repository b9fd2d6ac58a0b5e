//! Where the windows of a selector or a subquery lie, step by step.

use model::Matcher;
use query::{QueryError, WindowSelection, WindowValue};

use crate::eval::rows::Steps;
use crate::syntax::ast::{DurationSpec, Edges, Range, Selector, Shift, Subquery};

/// How windows move over samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBounds {
    pub(crate) ends: WindowEnds,
    pub(crate) range_ms: i64,
    pub(crate) edges: Edges,
    /// How far beyond its start and its end a window looks.
    pub(crate) margin_ms: [i64; 2],
}

impl WindowBounds {
    /// Windows in which the newest sample is looked for.
    pub(crate) const fn lookback(ends: WindowEnds, lookback_ms: i64) -> Self {
        Self { ends, range_ms: lookback_ms, edges: Edges::Plain, margin_ms: [0, 0] }
    }

    /// Where a selector looks for the newest sample.
    ///
    /// `timestamp(x @ t offset d)` looks back from `t`, at samples that the same selector for itself could see: so
    /// does Prometheus, which reads them for the latter and then takes `t` alone for the time.
    pub(crate) fn instant(selector: &Selector, output: SelectorOutput, steps: Steps, lookback_ms: i64) -> Self {
        let ends = WindowEnds::new(&selector.shift, steps);
        let WindowEnds { offset_ms, pinned_ms: Some(pinned_ms), .. } = ends else {
            return Self::lookback(ends, lookback_ms);
        };
        if output != SelectorOutput::Timestamps {
            return Self::lookback(ends, lookback_ms);
        }
        let read_to_ms = pinned_ms - offset_ms + if selector.edges == Edges::Smoothed { lookback_ms } else { 0 };
        let after_ms = pinned_ms.max(pinned_ms - offset_ms) - lookback_ms;
        let to_ms = pinned_ms.min(read_to_ms).max(after_ms);
        let ends = WindowEnds { steps, offset_ms: 0, pinned_ms: Some(to_ms) };
        Self::lookback(ends, to_ms - after_ms)
    }

    /// After which and up to which time samples are looked at, all windows together.
    pub(crate) fn span_ms(&self) -> (i64, i64) {
        (self.ends.first_ms() - self.range_ms - self.margin_ms[0], self.ends.last_ms() + self.margin_ms[1])
    }

    /// After which and up to which time samples are looked at for one window.
    pub(crate) fn window_ms(&self, step: usize) -> (i64, i64) {
        let end_ms = self.ends.at(step);
        (end_ms - self.range_ms - self.margin_ms[0], end_ms + self.margin_ms[1])
    }

    /// The same windows for whoever answers them from summaries; `None` of those that look elsewhere, too.
    pub(crate) fn selection<'a>(&self, matchers: &'a [Matcher], value: WindowValue) -> Option<WindowSelection<'a>> {
        let WindowEnds { steps, pinned_ms, .. } = self.ends;
        let Steps { step_ms, count, .. } = steps;
        let is_plain = self.edges == Edges::Plain && (pinned_ms.is_none() || count == 1);
        let (first_end_ms, range_ms) = (self.ends.first_ms(), self.range_ms);
        is_plain.then_some(WindowSelection { matchers, value, first_end_ms, step_ms, count, range_ms })
    }

    /// `anchored` and `smoothed` go with some functions only.
    pub(crate) fn check_edges(&self, function: &str) -> Result<(), QueryError> {
        match self.edges.keyword_and_functions() {
            Some((word, functions)) if !functions.contains(&function) => Err(QueryError::Execution(format!(
                "{word} modifier can only be used with: {} - not with {function}",
                functions.join(", ")
            ))),
            _ => Ok(()),
        }
    }
}

/// Where windows end, step by step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowEnds {
    pub(crate) steps: Steps,
    offset_ms: i64,
    /// By `@`, the same for all steps.
    pinned_ms: Option<i64>,
}

impl WindowEnds {
    pub(crate) fn new(shift: &Shift, steps: Steps) -> Self {
        Self { steps, offset_ms: shift.offset_ms(), pinned_ms: shift.pinned_ms() }
    }

    pub(crate) fn at(&self, step: usize) -> i64 {
        self.pinned_ms.unwrap_or_else(|| self.steps.time_ms(step)) - self.offset_ms
    }

    /// Whether all windows are the same.
    pub(crate) const fn is_pinned(&self) -> bool {
        self.pinned_ms.is_some()
    }

    pub(crate) fn first_ms(&self) -> i64 {
        self.at(0)
    }

    pub(crate) fn last_ms(&self) -> i64 {
        self.at(self.steps.count.saturating_sub(1))
    }
}

/// Which side of the newest sample a selector answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelectorOutput {
    Values,
    /// Seconds, for `timestamp()`.
    Timestamps,
    /// Milliseconds, for `info()`.
    Milliseconds,
}

/// How windows of a range selector move.
pub(crate) fn range_bounds(range: &Range, steps: Steps, lookback_ms: i64) -> WindowBounds {
    let edges = range.selector.edges;
    let margin_ms = match edges {
        Edges::Plain => [0, 0],
        Edges::Anchored => [lookback_ms, 0],
        Edges::Smoothed => [lookback_ms, lookback_ms],
    };
    let ends = WindowEnds::new(&range.selector.shift, steps);
    WindowBounds { ends, range_ms: range.range.bound_ms(), edges, margin_ms }
}

/// How windows of a subquery move, when its first step is, and the time between two.
pub(crate) fn subquery_grid(subquery: &Subquery, steps: Steps, default_step_ms: i64) -> (WindowBounds, i64, i64) {
    let ends = WindowEnds::new(&subquery.shift, steps);
    let range_ms = subquery.range.bound_ms();
    let step_ms = subquery.step.as_ref().map_or(default_step_ms, DurationSpec::bound_ms).max(1);
    let after_ms = ends.first_ms() - range_ms;
    // As Prometheus: multiples of the step are found by a division that rounds towards zero.
    let mut start_ms = after_ms / step_ms * step_ms;
    if start_ms <= after_ms {
        start_ms += step_ms;
    }
    (WindowBounds { ends, range_ms, edges: Edges::Plain, margin_ms: [0, 0] }, start_ms, step_ms)
}

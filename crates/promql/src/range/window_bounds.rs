//! Where the windows of a selector or a subquery lie, step by step.

use model::Matcher;
use query::{QueryError, WindowSelection, WindowValue};

use crate::eval::rows::Steps;
use crate::range::samples::SampleInterval;
use crate::settings::EvaluationSettings;
use crate::syntax::ast::{DurationSpec, Edges, Range, Selector, Shift, Subquery};
use crate::syntax::bind_times::QueryTimes;

/// How windows move over samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowBounds {
    pub(crate) ends: WindowEnds,
    pub(crate) range_ms: i64,
    pub(crate) edges: Edges,
    pub(crate) margins: Margins,
}

/// How far before its start and after its end a window needs samples.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Margins {
    pub(crate) before_ms: i64,
    pub(crate) after_ms: i64,
}

impl WindowBounds {
    /// Windows in which an instant selector looks for the last sample.
    pub(crate) fn lookback(ends: WindowEnds, lookback_ms: i64) -> Self {
        Self { ends, range_ms: lookback_ms, edges: Edges::Plain, margins: Margins::default() }
    }

    /// The windows of an instant selector.
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

    /// The samples that all windows together need.
    pub(crate) fn read_interval(&self) -> SampleInterval {
        let after_ms = self.ends.first_ms() - self.range_ms - self.margins.before_ms;
        SampleInterval { after_ms, to_ms: self.ends.last_ms() + self.margins.after_ms }
    }

    /// The samples that the window of one step needs.
    pub(crate) fn window(&self, step: usize) -> SampleInterval {
        let end_ms = self.ends.at(step);
        SampleInterval {
            after_ms: end_ms - self.range_ms - self.margins.before_ms,
            to_ms: end_ms + self.margins.after_ms,
        }
    }

    /// The windows as a source may compute them from summaries; `None` if they depend on samples around them.
    pub(crate) fn selection<'a>(&self, matchers: &'a [Matcher], value: WindowValue) -> Option<WindowSelection<'a>> {
        let WindowEnds { steps, pinned_ms, .. } = self.ends;
        let Steps { step_ms, count, .. } = steps;
        let is_plain = self.edges == Edges::Plain && (pinned_ms.is_none() || count == 1);
        let (first_end_ms, range_ms) = (self.ends.first_ms(), self.range_ms);
        let projection = None;
        is_plain.then_some(WindowSelection { matchers, value, first_end_ms, step_ms, count, range_ms, projection })
    }

    /// Returns whether the windows are the same as others of the same steps.
    pub(crate) fn has_windows_of(&self, other: &Self) -> bool {
        let extent = |bounds: &Self| (bounds.ends.first_ms(), bounds.ends.last_ms(), bounds.range_ms);
        extent(self) == extent(other)
    }

    /// `anchored` and `smoothed` are allowed with some functions only.
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

    /// Returns whether all windows are the same.
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

/// The part of the last sample that a selector yields.
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
    let margins = match edges {
        Edges::Plain => Margins::default(),
        Edges::Anchored => Margins { before_ms: lookback_ms, after_ms: 0 },
        Edges::Smoothed => Margins { before_ms: lookback_ms, after_ms: lookback_ms },
    };
    let ends = WindowEnds::new(&range.selector.shift, steps);
    WindowBounds { ends, range_ms: range.range.bound_ms(), edges, margins }
}

/// The windows of a subquery, and the steps at which its inner expression is evaluated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SubqueryGrid {
    pub(crate) bounds: WindowBounds,
    /// From the first to the last step; there are none if the first is later.
    pub(crate) times: QueryTimes,
}

impl SubqueryGrid {
    /// The steps of the inner expression, if there are any; fails if there are too many.
    pub(crate) fn steps(&self, settings: &EvaluationSettings) -> Result<Option<Steps>, QueryError> {
        let QueryTimes { start_ms, end_ms, step_ms } = self.times;
        if start_ms > end_ms {
            return Ok(None);
        }
        Ok(Some(Steps { start_ms, step_ms, count: settings.step_count(self.times)? }))
    }
}

/// The windows and the inner steps of a subquery.
pub(crate) fn subquery_grid(subquery: &Subquery, steps: Steps, default_step_ms: i64) -> SubqueryGrid {
    let ends = WindowEnds::new(&subquery.shift, steps);
    let range_ms = subquery.range.bound_ms();
    let step_ms = subquery.step.as_ref().map_or(default_step_ms, DurationSpec::bound_ms).max(1);
    let after_ms = ends.first_ms() - range_ms;
    // As Prometheus: multiples of the step are found by a division that rounds towards zero.
    let mut start_ms = after_ms / step_ms * step_ms;
    if start_ms <= after_ms {
        start_ms += step_ms;
    }
    let bounds = WindowBounds { ends, range_ms, edges: Edges::Plain, margins: Margins::default() };
    SubqueryGrid { bounds, times: QueryTimes { start_ms, end_ms: ends.last_ms(), step_ms } }
}

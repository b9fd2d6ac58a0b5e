//! Windows that a materialised view answers: functions of a range that a sum, a count or an extreme is, of each series or of the series of a group together.

use model::{METRIC_NAME, Matcher};
use query::{QueryError, ViewedLabels, ViewedValue, ViewedWindows, WindowSeries};

use crate::eval::evaluator::Evaluator;
use crate::eval::row_stream::{RowSink, SeriesRow};
use crate::eval::rows::{ABSENT, Charge, Row, Steps, Vector, cleaned, without_name};
use crate::range::range_functions::{RangeCall, is_name};
use crate::range::window_bounds::WindowEnds;
use crate::syntax::ast::{Aggregate, Aggregation, Call, Edges, Grouping, Node, Range};
use crate::syntax::functions::{Function, RangeFunction};

impl Aggregation {
    /// The value of all series together that an aggregation of a function's values is.
    const fn of_windows(self, function: RangeFunction) -> Option<ViewedValue> {
        match (self, function) {
            (Self::Sum, RangeFunction::Sum) => Some(ViewedValue::Sum),
            (Self::Sum, RangeFunction::Count) => Some(ViewedValue::Count),
            (Self::Minimum, RangeFunction::Minimum) => Some(ViewedValue::Min),
            (Self::Maximum, RangeFunction::Maximum) => Some(ViewedValue::Max),
            (Self::Minimum | Self::Maximum | Self::Average | Self::Group, RangeFunction::Present) => {
                Some(ViewedValue::Present)
            }
            _ => None,
        }
    }
}

impl RangeFunction {
    /// The value of each series that no summaries of its samples give: what they give needs no view.
    const fn of_series(self) -> Option<ViewedValue> {
        match self {
            Self::Sum => Some(ViewedValue::Sum),
            Self::Average => Some(ViewedValue::Average),
            _ => None,
        }
    }
}

impl Call {
    /// The function and its range, if it is one of a range selector alone.
    fn of_range(&self) -> Option<(RangeFunction, &Range)> {
        match (self.signature.function, self.arguments.as_slice()) {
            (Function::Range(function), [argument]) => match &argument.unwrapped().node {
                Node::Range(range) => Some((function, range)),
                _ => None,
            },
            _ => None,
        }
    }

    /// The windows that a view may answer of each series.
    pub(crate) fn viewed(&self, steps: Steps) -> Option<ViewedWindows<'_>> {
        let (function, range) = self.of_range()?;
        windows(range, function.of_series()?, ViewedLabels::Without(&[]), steps)
    }
}

impl Aggregate {
    /// The windows that a view may answer of the series of each group together.
    pub(crate) fn viewed(&self, steps: Steps) -> Option<ViewedWindows<'_>> {
        let Node::Call(call) = &self.input.unwrapped().node else { return None };
        let (function, range) = call.of_range()?;
        let value = self.operation.of_windows(function)?;
        let Grouping { without, labels, relabelling: None } = &self.grouping else { return None };
        let labels = match without {
            true => ViewedLabels::Without(labels),
            false if labels.iter().any(|label| label == METRIC_NAME) => return None,
            false => ViewedLabels::By(labels),
        };
        windows(range, value, labels, steps)
    }
}

fn windows<'a>(
    range: &'a Range,
    value: ViewedValue,
    labels: ViewedLabels<'a>,
    steps: Steps,
) -> Option<ViewedWindows<'a>> {
    let ends = WindowEnds::new(&range.selector.shift, steps);
    if range.selector.edges != Edges::Plain || (ends.is_pinned() && steps.count > 1) {
        return None;
    }
    let (names, matchers): (Vec<&Matcher>, Vec<&Matcher>) =
        range.selector.matchers.iter().partition(|matcher| matcher.name == METRIC_NAME);
    let [name] = names.as_slice() else { return None };
    is_name(name).then(|| ViewedWindows {
        metric: &name.value,
        matchers,
        value,
        labels,
        first_end_ms: ends.first_ms(),
        step_ms: steps.step_ms,
        count: steps.count,
        range_ms: range.range.bound_ms(),
    })
}

impl<'q> Evaluator<'q> {
    /// An aggregation as a view answers it.
    pub(crate) fn aggregate_by_view(
        &self,
        aggregate: &Aggregate,
        steps: Steps,
    ) -> Result<Option<Vector<'q>>, QueryError> {
        let Some(asked) = aggregate.viewed(steps) else { return Ok(None) };
        let Some(answered) = self.source.windows_by_view(&asked, self.budget)? else { return Ok(None) };
        let mut charge = Charge::adopt(self.budget, asked.count * answered.len());
        let mut vector = Vector::empty(self.budget);
        for (labels, values) in answered {
            // The name is gone from a group's labels; that it was dropped is known of them as where samples are read.
            vector.push(row((labels, values)).with_drop_name(true))?;
            charge.release(asked.count);
        }
        Ok(Some(vector))
    }

    /// Hands the rows of a function of a range to a sink as a view answers them; returns whether one does.
    pub(crate) fn rows_by_view(&self, range_call: &RangeCall<'_>, sink: &mut dyn RowSink) -> Result<bool, QueryError> {
        let RangeCall { call, steps, needed } = *range_call;
        let Some(asked) = call.viewed(steps).filter(|_| !needed.are_numbered()) else { return Ok(false) };
        let Some(answered) = self.source.windows_by_view(&asked, self.budget)? else { return Ok(false) };
        let mut charge = Charge::adopt(self.budget, asked.count * answered.len());
        for (labels, values) in answered {
            self.budget.check()?;
            let series = labels.with(METRIC_NAME, asked.metric);
            let mut row = row((series.clone(), values)).with_drop_name(true);
            if !self.settings.name_removal.is_delayed() {
                row.labels = without_name(&row.labels);
            }
            if !row.is_empty() {
                let made = SeriesRow::grouped((series, row), needed.grouping(), self.budget)?;
                made.map_or(Ok(()), |made| sink.push(made))?;
            }
            charge.release(asked.count);
        }
        Ok(true)
    }
}

fn row((labels, values): WindowSeries) -> Row {
    let values = values.into_iter().map(|value| value.map_or(ABSENT, cleaned)).collect();
    Row::from_steps(labels, 0, values)
}

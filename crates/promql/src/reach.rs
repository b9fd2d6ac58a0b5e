//! What an expression reads, and whether each of its steps stands for itself: for whoever keeps answers.

use model::{METRIC_NAME, MatchOp};

use crate::function::Function;
use crate::plan::{Times, settle};
use crate::syntax::ast::{Aggregation, Call, Edges, Expr, Extent, Node, Selector, Shift};
use crate::{Expression, Settings};

/// A stretch of time, in milliseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reads {
    /// No older sample is looked at.
    pub first_ms: i64,
    /// No newer one is.
    pub last_ms: i64,
}

impl Reads {
    fn hull(self, other: Self) -> Self {
        Self { first_ms: self.first_ms.min(other.first_ms), last_ms: self.last_ms.max(other.last_ms) }
    }

    /// The same, so much later.
    #[must_use]
    pub const fn later(self, by_ms: i64) -> Self {
        Self { first_ms: self.first_ms.saturating_add(by_ms), last_ms: self.last_ms.saturating_add(by_ms) }
    }
}

impl Expression {
    /// The samples that a query of these times may look at: of whichever series its selectors choose. `None` if it reads nothing, if that
    /// cannot be told (`info`), or if the query is wrong.
    pub fn reads(&self, start_ms: i64, end_ms: i64, step_ms: i64, settings: &Settings) -> Option<Reads> {
        let settled = settle(&self.expr, Times { start_ms, end_ms, step_ms }).ok()?;
        let mut reads = Found::default();
        reads.add(&settled, (start_ms, end_ms), settings.lookback_ms)?;
        reads.0
    }

    /// What the step at time 0 looks at, if every step is a function of its time and of the samples around it alone: then an answer can be cut
    /// by steps, and put together of answers for parts of its range. `None` if it is not, or cannot be told.
    pub fn reads_stepwise(&self, settings: &Settings) -> Option<Reads> {
        if settings.name_removal.is_delayed() || !is_stepwise(&self.expr) {
            return None;
        }
        self.reads(0, 0, 1, settings)
    }
}

/// The same of a settled expression.
pub(crate) fn reads_of(settled: &Expr, settings: &Settings) -> Option<Reads> {
    if settings.name_removal.is_delayed() || !is_stepwise(settled) {
        return None;
    }
    let mut reads = Found::default();
    reads.add(settled, (0, 0), settings.lookback_ms)?;
    reads.0
}

/// What was found to be read so far.
#[derive(Debug, Default)]
struct Found(Option<Reads>);

impl Found {
    /// Adds what a settled expression reads at times from the first to the last. `None` if that cannot be told.
    fn add(&mut self, expr: &Expr, times: (i64, i64), lookback_ms: i64) -> Option<()> {
        match &expr.node {
            Node::Selector(selector) => self.add_selector(selector, times, 0, lookback_ms),
            Node::Range(range) => self.add_selector(&range.selector, times, range.range.settled_ms(), lookback_ms),
            Node::Subquery(subquery) => {
                let (first_ms, last_ms) = shifted(&subquery.shift, times)?;
                let first_ms = first_ms.checked_sub(subquery.range.settled_ms())?;
                self.add(&subquery.inner, (first_ms, last_ms), lookback_ms)
            }
            // Reads series that none of its selectors names.
            Node::Call(call) if call.signature.function == Function::Info => None,
            _ => expr.children().into_iter().try_for_each(|child| self.add(child, times, lookback_ms)),
        }
    }

    fn add_selector(&mut self, selector: &Selector, times: (i64, i64), range_ms: i64, lookback_ms: i64) -> Option<()> {
        let (first_ms, last_ms) = shifted(&selector.shift, times)?;
        // As far as any of its windows looks; plain ranges do not look back.
        let before_ms = range_ms.checked_add(lookback_ms)?;
        let after_ms = if selector.edges == Edges::Plain { 0 } else { lookback_ms };
        let read = Reads { first_ms: first_ms.checked_sub(before_ms)?, last_ms: last_ms.checked_add(after_ms)? };
        self.0 = Some(self.0.map_or(read, |reads| reads.hull(read)));
        Some(())
    }
}

fn shifted(shift: &Shift, (first_ms, last_ms): (i64, i64)) -> Option<(i64, i64)> {
    let (first_ms, last_ms) = shift.pinned_ms().map_or((first_ms, last_ms), |pinned_ms| (pinned_ms, pinned_ms));
    Some((first_ms.checked_sub(shift.offset_ms())?, last_ms.checked_sub(shift.offset_ms())?))
}

fn is_stepwise(expr: &Expr) -> bool {
    let itself = match &expr.node {
        Node::Selector(selector) => is_plain(&selector.shift),
        Node::Range(range) => is_plain(&range.selector.shift) && is_fixed(&range.range),
        Node::Subquery(subquery) => {
            is_plain(&subquery.shift) && is_fixed(&subquery.range) && subquery.step.as_ref().is_none_or(is_fixed)
        }
        Node::Aggregate(aggregate) => {
            // Parameters are checked for all steps together.
            let is_constant =
                |parameter: &Expr| matches!(parameter.unwrapped().node, Node::Number { .. } | Node::Text(_));
            aggregate.operation != Aggregation::LimitK && aggregate.parameter.as_ref().is_none_or(is_constant)
        }
        Node::Call(call) => is_stepwise_call(call),
        Node::Number { .. } | Node::Text(_) | Node::Parentheses(_) | Node::Sign { .. } | Node::Binary(_) => true,
    };
    itself && expr.children().into_iter().all(is_stepwise)
}

fn is_stepwise_call(call: &Call) -> bool {
    match call.signature.function {
        Function::Info
        | Function::QueryEnd
        | Function::QueryRange
        | Function::QueryStart
        | Function::QueryStep
        | Function::Sort
        | Function::SortByLabel
        | Function::SortByLabelDescending
        | Function::SortDescending => false,
        // Two metrics that become the same series without their names are a mistake even where they do not meet.
        Function::Window(function) if !function.keeps_name() => call.arguments.iter().all(has_no_two_names),
        _ => true,
    }
}

/// Whether the series of a range are different even without their names, by the form of the expression.
fn has_no_two_names(argument: &Expr) -> bool {
    match &argument.unwrapped().node {
        Node::Range(range) => has_one_name(&range.selector),
        Node::Subquery(subquery) => match &subquery.inner.unwrapped().node {
            Node::Selector(selector) => has_one_name(selector),
            Node::Call(call) => {
                matches!(call.signature.function, Function::Window(function) if !function.keeps_name())
            }
            Node::Aggregate(aggregate) => {
                let grouping = &aggregate.grouping;
                let chooses = matches!(
                    aggregate.operation,
                    Aggregation::TopK | Aggregation::BottomK | Aggregation::LimitK | Aggregation::LimitRatio
                );
                !chooses && (grouping.without || !grouping.labels.iter().any(|label| label.starts_with("__")))
            }
            _ => false,
        },
        _ => true,
    }
}

fn has_one_name(selector: &Selector) -> bool {
    let is_name = |matcher: &model::Matcher| matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal;
    selector.matchers.iter().any(is_name)
}

fn is_plain(shift: &Shift) -> bool {
    shift.at.is_none() && shift.offset.as_ref().is_none_or(is_fixed)
}

const fn is_fixed(extent: &Extent) -> bool {
    matches!(extent, Extent::Fixed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stepwise(text: &str) -> Option<(i64, i64)> {
        let reads = Expression::parse(text).unwrap().reads_stepwise(&Settings::default())?;
        Some((reads.first_ms / 60_000, reads.last_ms / 60_000))
    }

    #[test]
    fn steps_that_stand_for_themselves_say_what_they_read() {
        for (text, expected) in [
            ("up", (-5, 0)),
            ("sum by (job) (rate(up[10m])) / 2", (-15, 0)),
            ("up - up offset 1h", (-65, 0)),
            ("up offset -1h", (55, 60)),
            ("max_over_time(sum(rate(up[10m] offset 2m))[1h:1m] offset 3m)", (-80, -5)),
            ("topk(3, sum by (job) (up))", (-5, 0)),
            ("rate(up[10m] smoothed)", (-15, 5)),
        ] {
            assert_eq!(stepwise(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn others_do_not() {
        for text in [
            "1",
            "time()",
            "up @ 5",
            "up @ start()",
            "info(up)",
            "limitk(1, up)",
            "topk(scalar(up), up)",
            "up * range()",
            "sum_over_time(up[step()])",
            "rate({job=\"a\"}[5m])",
            "rate(up[5m])[10m:]",
            "max_over_time((a or b)[5m:])",
        ]
        .into_iter()
        .filter(|text| Expression::parse(text).is_ok())
        {
            let is_range = Expression::parse(text).unwrap().result_kind() == crate::ResultKind::RangeVector;
            assert!(is_range || stepwise(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_query_reads_around_its_times() {
        let reads = |text: &str| {
            let reads = Expression::parse(text).unwrap().reads(3_600_000, 7_200_000, 60_000, &Settings::default())?;
            Some((reads.first_ms / 60_000, reads.last_ms / 60_000))
        };
        assert_eq!(reads("up"), Some((55, 120)));
        assert_eq!(reads("up @ 600"), Some((5, 10)));
        assert_eq!(reads("up @ end() + limitk(1, up offset 10m)"), Some((45, 120)));
        assert_eq!(reads("info(up)"), None);
        assert_eq!(reads("1"), None);
    }
}

//! Which samples an expression reads, and whether each of its steps can be computed alone.

use model::{METRIC_NAME, MatchOp};

use crate::expression::Expression;
use crate::settings::EvaluationSettings;
use crate::syntax::ast::{Aggregation, Call, DurationSpec, Edges, Expr, Grouping, Node, Selector, Shift};
use crate::syntax::bind_times::{QueryTimes, bind_times};
use crate::syntax::functions::Function;
use crate::syntax::result_kind::ResultKind;

/// The times of the samples that an expression may read, in milliseconds, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadInterval {
    /// No older sample is read.
    pub first_ms: i64,
    /// No newer sample is read.
    pub last_ms: i64,
}

impl ReadInterval {
    fn hull(self, other: Self) -> Self {
        Self { first_ms: self.first_ms.min(other.first_ms), last_ms: self.last_ms.max(other.last_ms) }
    }

    /// The interval moved to a later time.
    #[must_use]
    pub const fn later(self, by_ms: i64) -> Self {
        Self { first_ms: self.first_ms.saturating_add(by_ms), last_ms: self.last_ms.saturating_add(by_ms) }
    }

    /// Where a selector with `offset` or `@` reads for evaluations in this interval.
    fn shifted(self, shift: &Shift) -> Option<Self> {
        let Self { first_ms, last_ms } =
            shift.pinned_ms().map_or(self, |pinned_ms| Self { first_ms: pinned_ms, last_ms: pinned_ms });
        let offset_ms = shift.offset_ms();
        Some(Self { first_ms: first_ms.checked_sub(offset_ms)?, last_ms: last_ms.checked_sub(offset_ms)? })
    }
}

impl Expression {
    /// The samples that a query of these times may read, of the series that its selectors choose. `None` if it reads nothing, if that is
    /// unknown (`info`), or if the query is wrong.
    pub fn read_interval(&self, times: QueryTimes, settings: &EvaluationSettings) -> Option<ReadInterval> {
        let bound = bind_times(&self.expr, times).ok()?;
        read_interval_of(&bound, ReadInterval { first_ms: times.start_ms, last_ms: times.end_ms }, settings)
    }

    /// The samples that the step at time 0 reads, if every step depends on its time and the samples around it alone. Then results can be cut
    /// by steps, and joined from results of parts of the range. `None` for other expressions.
    pub fn step_read_interval(&self, settings: &EvaluationSettings) -> Option<ReadInterval> {
        if settings.name_removal.is_delayed() || !is_stepwise(&self.expr) {
            return None;
        }
        self.read_interval(QueryTimes { start_ms: 0, end_ms: 0, step_ms: 1 }, settings)
    }
}

fn read_interval_of(bound: &Expr, times: ReadInterval, settings: &EvaluationSettings) -> Option<ReadInterval> {
    let mut hull = IntervalHull { interval: None, lookback_ms: settings.lookback_ms };
    hull.add(bound, times)?;
    hull.interval
}

/// The hull of what selectors read.
struct IntervalHull {
    interval: Option<ReadInterval>,
    lookback_ms: i64,
}

impl IntervalHull {
    /// Adds what an expression reads when it is evaluated at `times`. `None` if that is unknown.
    fn add(&mut self, expr: &Expr, times: ReadInterval) -> Option<()> {
        match &expr.node {
            Node::Selector(selector) => self.add_selector(selector, times, 0),
            Node::Range(range) => self.add_selector(&range.selector, times, range.range.bound_ms()),
            Node::Subquery(subquery) => {
                let ReadInterval { first_ms, last_ms } = times.shifted(&subquery.shift)?;
                let first_ms = first_ms.checked_sub(subquery.range.bound_ms())?;
                self.add(&subquery.inner, ReadInterval { first_ms, last_ms })
            }
            // Reads series that none of its selectors names.
            Node::Call(call) if call.signature.function == Function::Info => None,
            _ => expr.children().into_iter().try_for_each(|child| self.add(child, times)),
        }
    }

    fn add_selector(&mut self, selector: &Selector, times: ReadInterval, range_ms: i64) -> Option<()> {
        let ReadInterval { first_ms, last_ms } = times.shifted(&selector.shift)?;
        // As far as any of its windows looks; plain ranges do not look back.
        let before_ms = range_ms.checked_add(self.lookback_ms)?;
        let after_ms = if selector.edges == Edges::Smoothed { self.lookback_ms } else { 0 };
        let added =
            ReadInterval { first_ms: first_ms.checked_sub(before_ms)?, last_ms: last_ms.checked_add(after_ms)? };
        self.interval = Some(self.interval.map_or(added, |interval| interval.hull(added)));
        Some(())
    }
}

fn is_stepwise(expr: &Expr) -> bool {
    let is_node_stepwise = match &expr.node {
        Node::Selector(selector) => is_plain(&selector.shift),
        Node::Range(range) => is_plain(&range.selector.shift) && is_fixed(&range.range),
        Node::Subquery(subquery) => {
            is_plain(&subquery.shift) && is_fixed(&subquery.range) && subquery.step.as_ref().is_none_or(is_fixed)
        }
        // Parameters are checked for all steps together.
        Node::Aggregate(aggregate) => {
            aggregate.operation != Aggregation::LimitK && aggregate.parameter.as_ref().is_none_or(is_constant)
        }
        Node::SampleAggregate(aggregate) => {
            let is_parameter = |argument: &&Expr| argument.kind() == ResultKind::Scalar;
            aggregate.arguments.iter().filter(is_parameter).all(is_constant)
        }
        Node::Call(call) => is_stepwise_call(call),
        Node::Number { .. } | Node::Text(_) | Node::Parentheses(_) | Node::Sign { .. } | Node::Chain(_) => true,
    };
    is_node_stepwise && expr.children().into_iter().all(is_stepwise)
}

fn is_constant(parameter: &Expr) -> bool {
    matches!(parameter.unwrapped().node, Node::Number { .. } | Node::Text(_))
}

fn is_stepwise_call(call: &Call) -> bool {
    match call.signature.function {
        Function::Correlated
        | Function::Info
        | Function::QueryEnd
        | Function::QueryRange
        | Function::QueryStart
        | Function::QueryStep
        | Function::Similar
        | Function::Sort
        | Function::SortByLabel
        | Function::SortByLabelDescending
        | Function::SortDescending => false,
        // Two metrics that become the same series without their names are a mistake even where they do not meet.
        Function::Range(function) if !function.keeps_name() => call.arguments.iter().all(has_no_two_names),
        _ => true,
    }
}

/// Returns whether the series of a range differ even without their names, judging by the form of the expression.
fn has_no_two_names(argument: &Expr) -> bool {
    match &argument.unwrapped().node {
        Node::Range(range) => has_one_name(&range.selector),
        Node::Subquery(subquery) => match &subquery.inner.unwrapped().node {
            Node::Selector(selector) => has_one_name(selector),
            Node::Call(call) => {
                matches!(call.signature.function, Function::Range(function) if !function.keeps_name())
            }
            Node::SampleAggregate(aggregate) if aggregate.operation.sketch_kind().is_some() => {
                groups_without_names(&aggregate.grouping)
            }
            Node::Aggregate(aggregate) => {
                let chooses = matches!(
                    aggregate.operation,
                    Aggregation::TopK | Aggregation::BottomK | Aggregation::LimitK | Aggregation::LimitRatio
                );
                !chooses && groups_without_names(&aggregate.grouping)
            }
            _ => false,
        },
        _ => true,
    }
}

fn groups_without_names(grouping: &Grouping) -> bool {
    grouping.without || !grouping.labels.iter().any(|label| label.starts_with("__"))
}

fn has_one_name(selector: &Selector) -> bool {
    let is_name = |matcher: &model::Matcher| matcher.name == METRIC_NAME && matcher.op == MatchOp::Equal;
    selector.matchers.iter().any(is_name)
}

fn is_plain(shift: &Shift) -> bool {
    shift.at.is_none() && shift.offset.as_ref().is_none_or(is_fixed)
}

const fn is_fixed(extent: &DurationSpec) -> bool {
    matches!(extent, DurationSpec::Fixed(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stepwise(text: &str) -> Option<(i64, i64)> {
        let interval = Expression::parse(text).unwrap().step_read_interval(&EvaluationSettings::default())?;
        Some((interval.first_ms / 60_000, interval.last_ms / 60_000))
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
            ("rate(up[10m] anchored)", (-15, 0)),
            ("distinct_of_samples by (job) ({job=\"a\"}[10m] offset 1m)", (-16, -1)),
            ("quantiles_of_samples(\"q\", 0.5, max_over_time(up[2m])[10m:1m])", (-17, 0)),
            ("approx_percentile by (job) (0.5, up)", (-5, 0)),
            ("max_over_time(approx_count_distinct(up[10m] offset 1m)[4m:2m])", (-20, -1)),
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
            "distinct_of_samples(up[5m] @ 5)",
            "approx_percentile(scalar(up), up)",
            "approx_percentile(0.5, up @ 5)",
        ]
        .into_iter()
        .filter(|text| Expression::parse(text).is_ok())
        {
            let is_range = Expression::parse(text).unwrap().result_kind() == ResultKind::RangeVector;
            assert!(is_range || stepwise(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_query_reads_around_its_times() {
        let times = QueryTimes { start_ms: 3_600_000, end_ms: 7_200_000, step_ms: 60_000 };
        let interval = |text: &str| {
            let interval = Expression::parse(text).unwrap().read_interval(times, &EvaluationSettings::default())?;
            Some((interval.first_ms / 60_000, interval.last_ms / 60_000))
        };
        assert_eq!(interval("up"), Some((55, 120)));
        assert_eq!(interval("up @ 600"), Some((5, 10)));
        assert_eq!(interval("up @ end() + limitk(1, up offset 10m)"), Some((45, 120)));
        assert_eq!(interval("info(up)"), None);
        assert_eq!(interval("1"), None);
    }
}

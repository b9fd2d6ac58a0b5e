//! Aggregations that need few labels of their input, or those of few series. Series are told apart by their numbers: to read whole labels of all
//! would cost more than everything else.
//!
//! * `topk` and `bottomk` at one step: samples are compared without labels, and whole labels are read for the few series that were selected.
//! * An aggregation `by` labels over an arithmetic operator with `on`: labels that neither of them names are not read.
//!
//! Which of equal samples are selected depends on the order of the series' labels ([`topk`](crate::aggregate::topk)), as does the order of equal
//! samples in the result. Where that matters, and where histograms or NaN are among the samples, all is read again with whole labels.

use model::{METRIC_NAME, Matcher};
use query::{Projection, QueryError, number_of};

use crate::aggregate::topk::{IndexedSample, select_topk};
use crate::eval::evaluator::{Computed, Evaluator};
use crate::eval::row_stream::CollectedRows;
use crate::eval::rows::{Row, Steps, Vector};
use crate::range::range_functions::{RangeCall, is_name};
use crate::range::window_bounds::{SelectorOutput, WindowBounds};
use crate::syntax::ast::{
    Aggregate, Aggregation, Cardinality, Edges, Expr, Grouping, Link, Matching, NeededLabels, Node, Operator,
};
use crate::syntax::functions::Function;

/// With more to select, whole labels are read anyway.
const SELECTED_MAX: f64 = 1000.0;

/// The samples that are selected whatever the order of their series is; `None` if it depends on that.
fn select_without_order(samples: Vec<IndexedSample>, count: usize, largest: bool) -> Option<Vec<IndexedSample>> {
    let floats: Option<Vec<f64>> = samples.iter().map(|(_, sample)| sample.float()).collect();
    let floats = floats.filter(|floats| !floats.iter().any(|value| value.is_nan()))?;
    let mut selected = samples;
    select_topk(&mut selected, count, largest);
    let is_better = |a: f64, b: f64| if largest { a > b } else { a < b };
    let values: Vec<f64> = selected.iter().filter_map(|(_, sample)| sample.float()).collect();
    let worst = *values.last()?;
    let as_good = floats.iter().filter(|value| !is_better(worst, **value)).count();
    let is_certain = as_good == values.len() && values.is_sorted_by(|a, b| is_better(*a, *b));
    is_certain.then_some(selected)
}

/// The matchers of an expression that may be evaluated with numbers in place of labels: it selects series of one metric, and is no function that
/// summaries may answer, which have whole labels.
fn matchers_of(input: &Expr) -> Option<&[Matcher]> {
    let matchers = match &input.node {
        Node::Selector(selector) if selector.edges == Edges::Plain => &selector.matchers,
        Node::Call(call) if matches!(call.signature.function, Function::Range(function) if function.value().is_none()) => {
            call.arguments.iter().find_map(|argument| match &argument.node {
                Node::Range(range) => Some(&range.selector.matchers),
                _ => None,
            })?
        }
        _ => return None,
    };
    matchers.iter().any(is_name).then_some(matchers)
}

/// An arithmetic operator between two selections that match on some labels, for an aggregation by labels.
struct NumberedJoin<'a> {
    left: (&'a Expr, &'a [Matcher]),
    right: (&'a Expr, &'a [Matcher]),
    link: &'a Link,
    matching: &'a Matching,
    /// The labels that matching, grouping and what is taken from the other side look at.
    names: Vec<String>,
}

impl<'a> NumberedJoin<'a> {
    fn new(input: &'a Expr, grouping: &Grouping) -> Option<Self> {
        let Node::Chain(chain) = &input.node else { return None };
        let [link] = chain.links.as_slice() else { return None };
        let matching = link.matching.as_ref()?;
        let has_fill = matching.fill_left.is_some() || matching.fill_right.is_some();
        let is_arithmetic = matches!(link.operator, Operator::Arithmetic(_)) && !link.return_bool;
        if grouping.without
            || grouping.relabelling.is_some()
            || !matching.on
            || has_fill
            || !is_arithmetic
            || chain.invariant_operands() > 0
        {
            return None;
        }
        let (left, right) = ((&chain.first, matchers_of(&chain.first)?), (&link.right, matchers_of(&link.right)?));
        let names = [&matching.labels, &matching.include, &grouping.labels].into_iter().flatten().cloned().collect();
        Some(Self { left, right, link, matching, names })
    }
}

impl<'q> Evaluator<'q> {
    /// The result of `topk` or `bottomk` over all series of a metric at one step, if it can be had without all labels.
    pub(crate) fn select_by_number(
        &self,
        aggregate: &Aggregate,
        counts: &[f64],
        steps: Steps,
    ) -> Result<Option<Vector<'q>>, QueryError> {
        let largest = match aggregate.operation {
            Aggregation::TopK => true,
            Aggregation::BottomK => false,
            _ => return Ok(None),
        };
        let (Some(matchers), [count]) = (matchers_of(&aggregate.input), counts) else { return Ok(None) };
        if !aggregate.grouping.is_of_all() || !self.is_instant(steps) || !(1.0..=SELECTED_MAX).contains(count) {
            return Ok(None);
        }
        let input = self.numbered_rows(&aggregate.input, matchers, Projection::NONE, steps)?;
        let numbers: Option<Vec<u32>> = input.rows.iter().map(|row| number_of(&row.labels)).collect();
        let samples = input.rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.get(0)?))).collect();
        let selected = select_without_order(samples, *count as usize, largest);
        let (Some(numbers), Some(selected)) = (numbers, selected) else { return Ok(None) };
        let of_selected: Vec<u32> = selected.iter().filter_map(|(index, _)| numbers.get(*index).copied()).collect();
        let labels = self.source.labels_of(matchers, Projection::NONE, &of_selected, self.budget)?;
        let mut vector = Vector::empty(self.budget);
        for ((index, sample), labels) in selected.into_iter().zip(labels) {
            let Some(numbered) = input.rows.get(index) else { continue };
            let has_name = numbered.labels.get(METRIC_NAME).is_some();
            let labels = if has_name { labels } else { labels.with(METRIC_NAME, "") };
            let mut row = Row::new(labels).with_drop_name(numbered.drop_name);
            row.push(0, sample);
            vector.push(row)?;
        }
        Ok(Some(vector))
    }

    /// The rows of an operator over two selections, with the labels by which an aggregation groups them and no others but numbers; `None` if it
    /// cannot be had so. It fails in the words of whole labels: then, too, it is evaluated with these.
    pub(crate) fn joined_by_number(
        &self,
        input: &Expr,
        grouping: &Grouping,
        steps: Steps,
    ) -> Result<Option<Vector<'q>>, QueryError> {
        let Some(join) = NumberedJoin::new(input, grouping) else { return Ok(None) };
        let side = |(expr, matchers): (&Expr, &[Matcher]), names: &[String]| {
            let rows = self.numbered_rows(expr, matchers, Projection { names, is_without: false }, steps)?;
            let are_numbered = rows.rows.iter().all(|row| number_of(&row.labels).is_some());
            Ok::<_, QueryError>(are_numbered.then_some(rows))
        };
        let (Some(left), Some(right)) = (side(join.left, &join.names)?, side(join.right, &join.names)?) else {
            return Ok(None);
        };
        let many = if join.matching.cardinality == Cardinality::OneToMany { &right } else { &left };
        // Two of these series may be the same once a label is that of the other side.
        let has_included = |row: &Row| join.matching.include.iter().any(|name| row.labels.get(name).is_some());
        if many.rows.iter().any(has_included) {
            return Ok(None);
        }
        match self.link(join.link, input.span, [Computed::Vector(left), Computed::Vector(right)], steps.count) {
            Ok(Computed::Vector(joined)) => Ok(Some(joined)),
            Ok(_) | Err(QueryError::Execution(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The rows of an expression with the numbers of their series.
    fn numbered_rows(
        &self,
        input: &Expr,
        matchers: &[Matcher],
        projection: Projection<'_>,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        let (mut rows, needed) = (CollectedRows::new(self.budget), NeededLabels::Numbered(projection));
        match &input.node {
            Node::Selector(selector) => {
                let bounds = WindowBounds::instant(selector, SelectorOutput::Values, steps, self.settings.lookback_ms);
                self.instant_rows(matchers, &bounds, SelectorOutput::Values, needed, &mut rows)?;
            }
            Node::Call(call) => self.range_rows(&RangeCall { call, steps, needed }, &mut rows)?,
            _ => {}
        }
        Ok(rows.vector)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::rows::Sample;

    #[test]
    fn only_what_does_not_depend_on_the_order_is_selected() {
        for (values, count, largest, expected) in [
            (vec![1.0, 3.0, 2.0], 2, true, Some(vec![1, 2])),
            (vec![1.0, 3.0, 2.0], 2, false, Some(vec![0, 2])),
            (vec![1.0, 3.0, 2.0], 9, true, Some(vec![1, 2, 0])),
            // One of two equal ones would be left out, or come first.
            (vec![1.0, 2.0, 2.0], 1, true, None),
            (vec![1.0, 2.0, 2.0], 2, true, None),
            (vec![1.0, 1.0, 2.0], 1, true, Some(vec![2])),
            (vec![1.0, f64::NAN], 1, true, None),
            (vec![], 1, true, None),
        ] {
            let samples = values.iter().map(|value| Sample::Float(*value)).enumerate().collect();
            let selected = select_without_order(samples, count, largest);
            let indexes = selected.map(|selected| selected.into_iter().map(|(index, _)| index).collect::<Vec<_>>());
            assert_eq!(indexes, expected, "{values:?} {count} {largest}");
        }
    }
}

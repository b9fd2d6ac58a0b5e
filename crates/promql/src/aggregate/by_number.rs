//! Aggregations that need few labels of their input, or those of few series. Series are told apart by their numbers: to read whole labels of all
//! would cost more than everything else.
//!
//! * `topk` and `bottomk` at one step: samples are compared without labels, and whole labels are read for the few series that are selected or
//!   have the same sample as the worst of them: which of these are selected depends on the order of their labels.
//! * An aggregation `by` labels over an arithmetic operator with `on`: labels that neither of them names are not read.
//!
//! Where histograms or NaN are among the samples, all is read again with whole labels.

use model::{METRIC_NAME, Matcher};
use query::{Projection, QueryError, number_of};

use crate::aggregate::topk::{IndexedSample, retain_candidates, select_topk};
use crate::eval::evaluator::{Computed, Evaluator};
use crate::eval::row_stream::CollectedRows;
use crate::eval::rows::{Row, Steps, Vector};
use crate::range::range_functions::{RangeCall, is_name};
use crate::range::window_bounds::{SelectorOutput, WindowBounds};
use crate::syntax::ast::{
    Aggregate, Aggregation, Cardinality, Edges, Expr, Grouping, Link, Matching, NeededLabels, Node, Operator,
};
use crate::syntax::functions::Function;

/// With more to select, or as many that are equal, whole labels are read anyway.
const CANDIDATES_MAX: usize = 4096;

/// The samples among which those to select are, in their order; `None` if they are too many, or others than numbers are among the samples.
fn candidates_of(mut samples: Vec<IndexedSample>, count: usize, largest: bool) -> Option<Vec<IndexedSample>> {
    if samples.iter().any(|(_, sample)| sample.float().is_none_or(f64::is_nan)) {
        return None;
    }
    retain_candidates(&mut samples, count, largest);
    (samples.len() <= CANDIDATES_MAX).then_some(samples)
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
        if grouping.without || !matching.on || has_fill || !is_arithmetic || chain.invariant_operands() > 0 {
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
        let is_of_all = !aggregate.grouping.without && aggregate.grouping.labels.is_empty();
        let (Some(matchers), [count]) = (matchers_of(&aggregate.input), counts) else { return Ok(None) };
        if !is_of_all || !self.is_instant(steps) || !(1.0..=CANDIDATES_MAX as f64).contains(count) {
            return Ok(None);
        }
        let count = *count as usize;
        let input = self.numbered_rows(&aggregate.input, matchers, Projection::NONE, steps)?;
        let samples = input.rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.get(0)?))).collect();
        let Some(candidates) = candidates_of(samples, count, largest) else { return Ok(None) };
        let Some(mut rows) = self.whole_rows(&input, matchers, candidates)? else { return Ok(None) };
        // As selectors and range functions order theirs.
        rows.sort_by(|a, b| a.labels.cmp(&b.labels));
        let mut selected = rows.iter().enumerate().filter_map(|(index, row)| Some((index, row.get(0)?))).collect();
        select_topk(&mut selected, count, largest);
        let mut vector = Vector::empty(self.budget);
        for (index, sample) in selected {
            let Some(row) = rows.get(index) else { continue };
            let mut selected = row.emptied();
            selected.push(0, sample);
            vector.push(selected)?;
        }
        Ok(Some(vector))
    }

    /// Rows with whole labels of some numbered ones, in their order; `None` if these have no numbers.
    fn whole_rows(
        &self,
        input: &Vector<'q>,
        matchers: &[Matcher],
        samples: Vec<IndexedSample>,
    ) -> Result<Option<Vec<Row>>, QueryError> {
        let numbered = samples.into_iter().map(|(index, sample)| {
            let row = input.rows.get(index)?;
            Some((number_of(&row.labels)?, (row, sample)))
        });
        let Some(numbered) = numbered.collect::<Option<Vec<_>>>() else { return Ok(None) };
        let (numbers, samples): (Vec<u32>, Vec<_>) = numbered.into_iter().unzip();
        let labels = self.source.labels_of(matchers, Projection::NONE, &numbers, self.budget)?;
        let rows = samples.into_iter().zip(labels).map(|((numbered, sample), labels)| {
            let has_name = numbered.labels.get(METRIC_NAME).is_some();
            let labels = if has_name { labels } else { labels.with(METRIC_NAME, "") };
            let mut row = Row::new(labels).with_drop_name(numbered.drop_name);
            row.push(0, sample);
            row
        });
        Ok(Some(rows.collect()))
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
    fn candidates_are_the_best_and_the_equals_of_their_worst() {
        for (values, count, largest, expected) in [
            (vec![1.0, 3.0, 2.0], 2, true, Some(vec![1, 2])),
            (vec![1.0, 3.0, 2.0], 2, false, Some(vec![0, 2])),
            (vec![1.0, 3.0, 2.0], 9, true, Some(vec![0, 1, 2])),
            (vec![1.0, 2.0, 2.0], 1, true, Some(vec![1, 2])),
            (vec![1.0, 1.0, 2.0], 1, true, Some(vec![2])),
            (vec![1.0, f64::NAN], 1, true, None),
            (vec![1.0; CANDIDATES_MAX + 1], 1, true, None),
            (vec![], 1, true, Some(vec![])),
        ] {
            let samples = values.iter().map(|value| Sample::Float(*value)).enumerate().collect();
            let candidates = candidates_of(samples, count, largest);
            let indexes = candidates.map(|candidates| candidates.into_iter().map(|(index, _)| index).collect());
            assert_eq!(indexes, expected, "{values:?} {count} {largest}");
        }
    }
}

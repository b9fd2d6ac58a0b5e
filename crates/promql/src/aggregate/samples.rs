//! Aggregations over samples: of all samples in the windows of a group's series, whichever series each is of. Prometheus has none;
//! VictoriaMetrics's stream aggregation does.
//!
//! NaN and native histograms count for nothing. A series that several ranges select counts once. `sketches` has those whose samples are sketches.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};

use model::Labels;
use query::{Budget, QueryError, SAMPLE_BYTES};

use crate::aggregate::accumulate::Squares;
use crate::eval::evaluator::Evaluator;
use crate::eval::relabel::string_argument;
use crate::eval::rows::{Charge, Row, Steps, Vector, without_name};
use crate::histogram::vm_ranges;
use crate::range::samples::{Cursor, Samples};
use crate::range::selectors::RangeVector;
use crate::range::window_bounds::WindowBounds;
use crate::syntax::ast::{Expr, Node, SampleAggregate, SampleAggregation};
use crate::syntax::number::short;
use crate::syntax::result_kind::ResultKind;
use crate::syntax::span::Span;

/// The label of a bucket's bounds, as VictoriaMetrics names it.
const BUCKET_LABEL: &str = "vmrange";

/// Series and samples of windows between two looks at whether the query was stopped.
const UNCHECKED_MAX: usize = 1 << 16;

/// The charges of a series in a group and of a row, in samples.
const MEMBER_SAMPLES: usize = (size_of::<Member<'_>>() + size_of::<&Labels>()).div_ceil(SAMPLE_BYTES);
const ROW_SAMPLES: usize = size_of::<(u32, Row)>().div_ceil(SAMPLE_BYTES);

/// A series of a group, and its present window.
struct Member<'r> {
    samples: &'r Samples,
    cursor: Cursor,
    window: (usize, usize),
}

/// The series of a group.
struct SampleGroup<'r> {
    labels: Labels,
    members: Vec<Member<'r>>,
}

/// The results of a window's samples.
enum SampleFold<'a> {
    Distinct,
    Histogram,
    /// The largest of those that are the newest.
    Last,
    /// The label, and its values by the quantiles.
    Quantiles(&'a str, Vec<(f64, String)>),
    Variance,
}

impl<'a> SampleFold<'a> {
    fn new(aggregate: &'a SampleAggregate) -> Result<Self, QueryError> {
        Ok(match (aggregate.operation, aggregate.arguments.split_first()) {
            (SampleAggregation::Histogram, _) => Self::Histogram,
            (SampleAggregation::Last, _) => Self::Last,
            (SampleAggregation::Variance, _) => Self::Variance,
            (SampleAggregation::Quantiles, Some((label, others))) => {
                let number = |argument: &Expr| match argument.unwrapped().node {
                    Node::Number { value, .. } => Some((value, short(value))),
                    _ => None,
                };
                Self::Quantiles(string_argument(label)?, others.iter().filter_map(number).collect())
            }
            _ => Self::Distinct,
        })
    }

    /// The label by which several results of a group differ.
    fn label(&self) -> Option<&'a str> {
        match self {
            Self::Distinct | Self::Last | Self::Variance => None,
            Self::Histogram => Some(BUCKET_LABEL),
            Self::Quantiles(label, _) => Some(label),
        }
    }

    /// The results of at least one value, none of which is NaN, each with its number. Values get sorted.
    fn results(&self, values: &mut Vec<f64>) -> Vec<(u32, f64)> {
        if let Self::Histogram = self {
            let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
            for bucket in values.iter().filter_map(|value| vm_ranges::bucket_of(*value)) {
                *counts.entry(bucket).or_default() += 1.0;
            }
            return counts.into_iter().collect();
        }
        values.sort_unstable_by(f64::total_cmp);
        match self {
            Self::Quantiles(_, quantiles) => {
                let ranked = (0..).zip(quantiles);
                ranked.filter_map(|(number, (quantile, _))| Some((number, nearest_rank(*quantile, values)?))).collect()
            }
            Self::Variance => vec![(0, variance(values))],
            Self::Last => values.last().map(|largest| (0, *largest)).into_iter().collect(),
            Self::Distinct | Self::Histogram => {
                values.dedup();
                vec![(0, values.len() as f64)]
            }
        }
    }

    /// Puts the values of the series' windows that count into a list.
    fn collect(&self, members: &[Member<'_>], values: &mut Vec<f64>) {
        let inside = |member: &Member<'_>| member.window.0..member.window.1;
        if let Self::Last = self {
            let last = |member: &Member<'_>| {
                let values = member.samples.values.get(inside(member))?;
                let index = member.window.0 + values.iter().rposition(|value| !value.is_nan())?;
                Some((*member.samples.timestamps_ms.get(index)?, *member.samples.values.get(index)?))
            };
            let newest_ms = members.iter().filter_map(last).map(|(time_ms, _)| time_ms).max();
            let newest = members.iter().filter_map(last).filter(|(time_ms, _)| Some(*time_ms) == newest_ms);
            return values.extend(newest.map(|(_, value)| value));
        }
        for member in members {
            let inside = member.samples.values.get(inside(member)).unwrap_or_default();
            values.extend(inside.iter().copied().filter(|value| !value.is_nan()));
        }
    }

    /// The labels of a result.
    fn labels(&self, group: &Labels, number: u32) -> Labels {
        match self {
            Self::Distinct | Self::Last | Self::Variance => group.clone(),
            Self::Histogram => group.with(BUCKET_LABEL, &vm_ranges::bounds_text(number)),
            Self::Quantiles(label, quantiles) => {
                group.with(label, quantiles.get(number as usize).map_or("", |(_, text)| text))
            }
        }
    }
}

impl SampleAggregate {
    /// The labels of the group of a series; the label of the results, if they have one, takes the place of its own.
    /// `None` if the series is left out.
    pub(super) fn group_of(
        &self,
        series: &Labels,
        label: Option<&str>,
        (delays_names, budget): (bool, &Budget),
    ) -> Result<Option<Labels>, QueryError> {
        let named = if delays_names { series.clone() } else { without_name(series) };
        self.grouping.group_of_without(&named, label, budget)
    }
}

/// The sorted value whose rank is nearest to a quantile; of two, the larger one.
fn nearest_rank(quantile: f64, sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let rank = (quantile * last as f64 + 0.5) as usize;
    sorted.get(rank.min(last)).copied()
}

/// The variance of values, in their order, so that it does not depend on that of series.
fn variance(sorted: &[f64]) -> f64 {
    let mut squares: Option<Squares> = None;
    for value in sorted {
        match &mut squares {
            Some(squares) => squares.add(*value),
            None => squares = Some(Squares::new(*value)),
        }
    }
    squares.map_or(f64::NAN, Squares::variance)
}

/// Rows of a group by their numbers, charged as they grow.
struct FoldedRows<'b> {
    rows: BTreeMap<u32, Row>,
    charge: Charge<'b>,
}

impl<'b> FoldedRows<'b> {
    const fn new(budget: &'b Budget) -> Self {
        Self { rows: BTreeMap::new(), charge: Charge::none(budget) }
    }

    fn push(&mut self, number: u32, step: usize, value: f64) -> Result<(), QueryError> {
        let row = match self.rows.entry(number) {
            Entry::Occupied(occupied) => occupied.into_mut(),
            Entry::Vacant(vacant) => {
                self.charge.add(ROW_SAMPLES)?;
                vacant.insert(Row::new(Labels::empty()))
            }
        };
        let grown = if row.is_empty() { 1 } else { (step + 1).saturating_sub(row.end()) };
        self.charge.add(grown)?;
        row.push_float(step, value);
        Ok(())
    }
}

impl<'q> Evaluator<'q> {
    pub(crate) fn aggregate_samples(
        &self,
        aggregate: &SampleAggregate,
        span: Span,
        steps: Steps,
    ) -> Result<Vector<'q>, QueryError> {
        if let Some(kind) = aggregate.operation.sketch_kind() {
            return self.aggregate_sketches(aggregate, kind, steps);
        }
        let (name, fold) = (aggregate.operation.name(), SampleFold::new(aggregate)?);
        let mut ranges = Vec::new();
        for range in aggregate.arguments.iter().filter(|argument| argument.kind() == ResultKind::RangeVector) {
            let range = self.range_vector(range, steps)?;
            range.bounds.check_edges(name)?;
            ranges.push(range);
        }
        let mut vector = Vector::empty(self.budget);
        let Some(bounds) = ranges.first().map(|range| range.bounds) else { return Ok(vector) };
        if ranges.iter().any(|range| !range.bounds.has_windows_of(&bounds)) {
            let message = format!("the ranges of {name} are equally long and of the same time");
            return Err(QueryError::Execution(message));
        }
        let mut charge = Charge::none(self.budget);
        let keeps_names = self.keeps_names(&aggregate.grouping);
        for group in self.sample_groups(aggregate, &fold, &ranges, (&mut charge, span))? {
            let SampleGroup { labels, members } = group;
            for (number, mut row) in self.fold_windows(members, &fold, &bounds)?.rows {
                row.labels = fold.labels(&labels, number);
                vector.push(row.with_drop_name(!keeps_names))?;
            }
        }
        vector.rows.sort_by(|a, b| a.labels.cmp(&b.labels));
        Ok(vector)
    }

    fn sample_groups<'r>(
        &self,
        aggregate: &SampleAggregate,
        fold: &SampleFold<'_>,
        ranges: &'r [RangeVector<'q>],
        (charge, span): (&mut Charge<'q>, Span),
    ) -> Result<Vec<SampleGroup<'r>>, QueryError> {
        let delayed_names = self.settings.name_removal.is_delayed();
        let mut indices: HashMap<Labels, usize> = HashMap::new();
        let mut groups: Vec<SampleGroup<'r>> = Vec::new();
        let mut counted: HashSet<&Labels> = HashSet::new();
        for series in ranges.iter().flat_map(|range| &range.series) {
            self.budget.check()?;
            self.annotations.check_folds(&series.samples, span, self.budget)?;
            charge.add(MEMBER_SAMPLES)?;
            if ranges.len() > 1 && !counted.insert(&series.labels) {
                continue;
            }
            if !series.samples.histograms.is_empty() {
                self.annotations.ignored_in_aggregation(aggregate.operation.name(), span);
            }
            let labels = aggregate.group_of(&series.labels, fold.label(), (delayed_names, self.budget))?;
            let Some(labels) = labels else { continue };
            let index = match indices.get(&labels) {
                Some(index) => *index,
                None => {
                    charge.add(2 * labels.size_bytes().div_ceil(SAMPLE_BYTES))?;
                    indices.insert(labels.clone(), groups.len());
                    groups.push(SampleGroup { labels, members: Vec::new() });
                    groups.len() - 1
                }
            };
            let member = Member { samples: &series.samples, cursor: Cursor::default(), window: (0, 0) };
            if let Some(group) = groups.get_mut(index) {
                group.members.push(member);
            }
        }
        Ok(groups)
    }

    /// The results of all windows of a group.
    fn fold_windows(
        &self,
        mut members: Vec<Member<'_>>,
        fold: &SampleFold<'_>,
        bounds: &WindowBounds,
    ) -> Result<FoldedRows<'q>, QueryError> {
        let mut rows = FoldedRows::new(self.budget);
        let (mut values, mut charged) = (Vec::new(), Charge::none(self.budget));
        let (mut most, mut unchecked) = (0, 0);
        for step in 0..bounds.ends.steps.count {
            let interval = bounds.window(step);
            let mut count = 0;
            for member in &mut members {
                member.window = member.cursor.advance(&member.samples.timestamps_ms, interval);
                count += member.window.1 - member.window.0;
            }
            unchecked += members.len() + count;
            if unchecked > UNCHECKED_MAX {
                self.budget.check()?;
                unchecked = 0;
            }
            if count > most {
                charged.add(count - most)?;
                most = count;
            }
            values.clear();
            values.reserve_exact(count);
            fold.collect(&members, &mut values);
            if values.is_empty() {
                continue;
            }
            for (number, value) in fold.results(&mut values) {
                rows.push(number, step, value)?;
            }
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let values: Vec<f64> = (1..=10).map(f64::from).collect();
        for (quantile, expected) in
            [(0.0, 1.0), (0.05, 1.0), (0.06, 2.0), (0.5, 6.0), (0.9, 9.0), (0.95, 10.0), (1.0, 10.0)]
        {
            assert_eq!(nearest_rank(quantile, &values), Some(expected), "{quantile}");
        }
        assert_eq!(nearest_rank(0.5, &[3.0]), Some(3.0));
        assert_eq!(nearest_rank(0.5, &[]), None);
    }
}

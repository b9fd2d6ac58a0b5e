//! Streaming aggregation: rows arrive one at a time, and groups hold an accumulator per step.

use std::collections::HashMap;
use std::ops::Range;

use model::Labels;
use query::{Budget, QueryError, SAMPLE_BYTES};

use crate::aggregate::accumulators::StepAccumulators;
use crate::eval::annotations::{AnnotationContext, Annotations};
use crate::eval::row_stream::{RowSink, SeriesRow};
use crate::eval::rows::{Charge, Row, Vector, metric_name};
use crate::syntax::span::Span;

/// One group.
struct Group<C> {
    labels: Labels,
    /// The first of its series, in order of labels.
    series: Labels,
    drop_name: bool,
    /// The step of the first accumulator.
    first: usize,
    states: C,
}

/// Groups, in order of their first rows.
pub(crate) struct StreamAggregation<'b, C> {
    budget: &'b Budget,
    index_by_labels: HashMap<Labels, usize>,
    groups: Vec<Group<C>>,
    charge: Charge<'b>,
    annotations: Annotations,
    /// Names that would be dropped from the result stay.
    keeps_names: bool,
    span: Span,
}

impl<C: StepAccumulators> Group<C> {
    /// Adds accumulators for a range of steps.
    fn extend_to(&mut self, steps: Range<usize>) {
        if self.states.len() == 0 {
            self.first = steps.start;
        }
        let before = self.first.saturating_sub(steps.start);
        self.states.grow(before, steps.end.saturating_sub(self.first + self.states.len()));
        self.first -= before;
    }

    fn add(&mut self, row: &Row, annotations: &Annotations, span: Span) {
        if let Some(values) = row.all_floats() {
            self.states.add_floats(row.first - self.first, values);
            return;
        }
        let context = AnnotationContext { annotations, name: metric_name(&row.labels), span };
        for (step, sample) in row.present() {
            self.states.add_sample(step - self.first, &sample, context);
        }
    }
}

impl<'b, C: StepAccumulators> StreamAggregation<'b, C> {
    pub(crate) fn new(budget: &'b Budget, keeps_names: bool, span: Span) -> Self {
        let (charge, annotations) = (Charge::none(budget), Annotations::default());
        Self { budget, index_by_labels: HashMap::new(), groups: Vec::new(), charge, annotations, keeps_names, span }
    }

    /// The groups in order of their first series' labels.
    pub(crate) fn sorted(mut self) -> Self {
        self.groups.sort_by(|a, b| a.series.cmp(&b.series));
        self
    }

    pub(crate) fn finish(self, annotations: &Annotations) -> Result<Vector<'b>, QueryError> {
        annotations.absorb(self.annotations);
        let mut vector = Vector::empty(self.budget);
        for group in self.groups {
            let mut row = Row::new(group.labels).with_drop_name(group.drop_name);
            for (index, sample) in group.states.finish(annotations, self.span).enumerate() {
                if let Some(sample) = sample {
                    row.push(group.first + index, sample);
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }
}

impl<C: StepAccumulators> RowSink for StreamAggregation<'_, C> {
    fn push(&mut self, made: SeriesRow) -> Result<(), QueryError> {
        self.budget.check()?;
        let SeriesRow { series, group, row } = made;
        let labels = group.unwrap_or_else(Labels::empty);
        let index = *self.index_by_labels.entry(labels).or_insert_with_key(|labels| {
            let (labels, series) = (labels.clone(), series.clone());
            self.groups.push(Group { labels, series, drop_name: false, first: 0, states: C::default() });
            self.groups.len() - 1
        });
        let Some(group) = self.groups.get_mut(index) else { return Ok(()) };
        let before = group.states.len();
        group.extend_to(row.first..row.end());
        self.charge.add((group.states.len() - before) * C::BYTES_PER_STEP / SAMPLE_BYTES)?;
        group.drop_name |= row.drop_name && !self.keeps_names;
        if series < group.series {
            group.series = series;
        }
        group.add(&row, &self.annotations, self.span);
        Ok(())
    }
}

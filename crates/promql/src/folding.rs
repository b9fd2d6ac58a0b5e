//! Aggregations under way: rows come one after the other, groups hold a value for each step.

use std::collections::HashMap;
use std::ops::Range;

use model::Labels;
use query::{Budget, QueryError};

use crate::eval::name_of;
use crate::fold::Fold;
use crate::notes::Notes;
use crate::rows::{Charge, Row, Vector, is_absent};
use crate::stream::{Made, RowSink};
use crate::syntax::span::Span;

/// Bytes that a budget's sample stands for.
const SAMPLE_BYTES: usize = 16;

/// One group.
struct Group<F> {
    labels: Labels,
    /// The first of its series, in order of labels.
    series: Labels,
    drop_name: bool,
    /// The step of the first cell.
    first: usize,
    cells: Vec<Option<F>>,
}

/// Groups, in order of their first rows.
pub(crate) struct Folding<'b, F> {
    budget: &'b Budget,
    places: HashMap<Labels, usize>,
    groups: Vec<Group<F>>,
    charge: Charge<'b>,
    notes: Notes,
    /// Whether names that were to go in the end stay.
    keeps_names: bool,
    span: Span,
}

impl<F: Fold> Group<F> {
    /// Makes cells for a stretch of steps.
    fn reach(&mut self, steps: Range<usize>) {
        if self.cells.is_empty() {
            self.first = steps.start;
        }
        if let Some(before) = self.first.checked_sub(steps.start).filter(|before| *before > 0) {
            self.cells.splice(0..0, std::iter::repeat_with(|| None).take(before));
            self.first = steps.start;
        }
        let count = self.cells.len().max(steps.end - self.first);
        self.cells.resize_with(count, || None);
    }

    fn add(&mut self, row: &Row, notes: &Notes, span: Span) {
        let first = self.first;
        if let Some(values) = row.all_floats() {
            let cells = self.cells.get_mut(row.first - first..).unwrap_or_default();
            for (cell, value) in cells.iter_mut().zip(values).filter(|(_, value)| !is_absent(**value)) {
                match cell {
                    Some(cell) => cell.add(*value),
                    None => *cell = Some(F::start(*value)),
                }
            }
            return;
        }
        let name = name_of(&row.labels);
        for (step, sample) in row.present() {
            if let Some(cell) = self.cells.get_mut(step - first) {
                F::add_sample(cell, &sample, notes, name, span);
            }
        }
    }
}

impl<'b, F: Fold> Folding<'b, F> {
    pub(crate) fn new(budget: &'b Budget, keeps_names: bool, span: Span) -> Self {
        let (charge, notes) = (Charge::none(budget), Notes::default());
        Self { budget, places: HashMap::new(), groups: Vec::new(), charge, notes, keeps_names, span }
    }

    /// The groups in order of their first series' labels.
    pub(crate) fn sorted(mut self) -> Self {
        self.groups.sort_by(|a, b| a.series.cmp(&b.series));
        self
    }

    pub(crate) fn finish(self, notes: &Notes) -> Result<Vector<'b>, QueryError> {
        notes.absorb(self.notes);
        let mut vector = Vector::empty(self.budget);
        for group in self.groups {
            let mut row = Row::new(group.labels).marked(group.drop_name);
            for (place, cell) in group.cells.into_iter().enumerate() {
                if let Some(sample) = cell.and_then(|cell| cell.finish(notes, self.span)) {
                    row.push(group.first + place, sample);
                }
            }
            vector.push(row)?;
        }
        Ok(vector)
    }
}

impl<F: Fold> RowSink for Folding<'_, F> {
    fn take(&mut self, made: Made) -> Result<(), QueryError> {
        self.budget.check()?;
        let Made { series, group, row } = made;
        let labels = group.unwrap_or_else(Labels::empty);
        let place = *self.places.entry(labels).or_insert_with_key(|labels| {
            let (labels, series) = (labels.clone(), series.clone());
            self.groups.push(Group { labels, series, drop_name: false, first: 0, cells: Vec::new() });
            self.groups.len() - 1
        });
        let Some(group) = self.groups.get_mut(place) else { return Ok(()) };
        let before = group.cells.len();
        group.reach(row.first..row.end());
        self.charge.add((group.cells.len() - before) * size_of::<Option<F>>() / SAMPLE_BYTES)?;
        group.drop_name |= row.drop_name && !self.keeps_names;
        if series < group.series {
            group.series = series;
        }
        group.add(&row, &self.notes, self.span);
        Ok(())
    }
}
